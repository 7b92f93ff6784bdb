"""Experimenter: a chat model reads success rates and says which goals to train next."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from pydantic import Field

from magellan.competence.arms import EachCategory
from magellan.core.errors import InputError
from magellan.core.settings import Count
from magellan.model.chat import Chat
from magellan.samplers.base import GoalSampler
from magellan.samplers.proposals import AskSettings, ChatSampler, Proposals, as_line, scripted
from magellan.samplers.registry import SamplerParts, register_sampler
from magellan.worlds import GoalSet

TASK = """You are the experimenter of an agent that learns to reach goals in a text world. You \
read how often it succeeded lately and say what it trains next. First the analysis: lines \
"mastered: NAME" for what nearly always succeeds, "stuck: NAME" for what never does. Then the \
proposals: lines "train: NAME" for what is worth training, and "easier: NAME" for something \
easier than what is stuck. Names are copied from the results. Nothing else."""
EXAMPLE = (
    {
        "role": "user",
        "content": "Results of the last tries:\n- walk: 48 of 50\n- jump: 9 of 31\n- fly: 0 of 40\n"
        "- swim: 3 of 22\nWhat to train next? At most 2.",
    },
    {"role": "assistant", "content": "mastered: walk\nstuck: fly\ntrain: jump\ntrain: swim"},
)


class ExperimenterSettings(AskSettings):
    """The sampler `experimenter`."""

    proposals: int = Field(2, ge=1, le=100, description="Maximum number of groups it may propose.")


class ExperimenterGoalsSettings(AskSettings):
    """The sampler `experimenter_goals`."""

    tokens: int = Field(320, ge=1, le=4_096, description="Maximum number of tokens of an answer.")
    proposals: int = Field(8, ge=1, le=100, description="Maximum number of goals it may propose.")
    shown: int = Field(
        16, ge=3, le=1_000, description="Goals that it is shown besides its own proposals."
    )
    retrieved: Count = Field(
        16, description="Goals that a proposal stands for: its own, then the nearest by features."
    )


class Experimenter(Proposals):
    """Proposes groups of goals. names: of the groups; examples: a goal of each, as one line."""

    system, example = TASK, EXAMPLE

    def __init__(self, settings: Any, chat: Chat, names: list[str], examples: list[str]) -> None:
        super().__init__(settings, chat, settings.proposals)
        self.names, self.examples = names, examples

    def question(self, number: int) -> str:
        pairs = zip(self.names, self.examples, strict=True)
        lines = ["Groups of goals, with an example:", *(f"* {n}: {line}" for n, line in pairs)]
        lines.append("Results of the last tries:")
        lines += [f"- {n}: {self.results(np.array([i]))}" for i, n in enumerate(self.names)]
        trained = [self.names[i] for i in self.heads[0] if i >= 0]
        lines += [f"You proposed: {', '.join(trained)}."] if trained else []
        return "\n".join([*lines, f"What to train next? At most {self.most}."])

    def match(self, name: str) -> np.ndarray:
        lower = [known.lower() for known in self.names]
        names, name = (self.names, name) if name in self.names else (lower, name.lower())
        return np.array([names.index(name)] if name in names else [], np.int64)


class GoalLines:
    """Goals as lines: the lines of their prompts, without those that all share, joined by `; `."""

    def __init__(self, goals: GoalSet) -> None:
        self.goals = goals
        some = np.unique(np.linspace(0, len(goals) - 1, 64).astype(np.int64))
        prompts = [goals.prompt(int(position)).split("\n") for position in some]
        self._template = prompts[0]
        shared = set.intersection(*map(set, prompts))
        self._fixed = shared if len(shared) < len({*prompts[0]}) else set()
        self._index = cache(self._make_index)

    def line(self, position: int) -> str:
        """Return the line of a goal, at most as long as a proposal may be."""
        lines = self.goals.prompt(int(position)).split("\n")
        own = (line.strip() for line in lines if line not in self._fixed)
        return as_line("; ".join(filter(None, own)))

    def prompt(self, line: str) -> str:
        """Return the prompt of a goal that may not exist, from its line."""
        parts = iter(line.split("; "))
        lines = (one if one in self._fixed else next(parts, None) for one in self._template)
        return "\n".join(one for one in lines if one is not None)

    def exactly(self, line: str) -> np.ndarray:
        """Return the goals of this line, or, if there are none, of this instruction: int64 (k,)."""
        whole, instruction = self._index()
        return np.array(whole.get(line) or instruction.get(line) or [], np.int64)

    def _make_index(self) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
        whole: dict[str, list[int]] = {}
        instruction: dict[str, list[int]] = {}
        for position in range(len(self.goals)):
            line = self.line(position)
            whole.setdefault(line, []).append(position)
            instruction.setdefault(line.partition("; ")[0], []).append(position)
        return whole, instruction


class GoalExperimenter(Proposals):
    """Proposes single goals, of a sample that it is shown."""

    system, example = TASK, EXAMPLE

    def __init__(self, settings: Any, chat: Chat, parts: SamplerParts) -> None:
        super().__init__(settings, chat, settings.proposals)
        self.lines, self._embed = GoalLines(parts.goals), parts.embed
        self._features = cache(parts.features)

    def question(self, number: int) -> str:
        heads = [head for head in self.heads[0].tolist() if head >= 0]
        regions = [np.flatnonzero(self.proposal == i) for i in range(len(heads))]
        lines = [f"* mastered: {self.lines.line(arm)}" for arm in self.mastered[0] if arm >= 0]
        lines.append("Results of the last tries, your proposals (with goals like them) first:")
        lines += [
            f"- {self.lines.line(head)}: {self.results(region)}"
            for head, region in zip(heads, regions, strict=True)
        ]
        others = self._others(number, np.flatnonzero(self.proposal < 0))
        lines += [f"- {self.lines.line(goal)}: {self.results(goal)}" for goal in others]
        return "\n".join([*lines, f"What to train next? At most {self.most}."])

    def _others(self, number: int, outside: np.ndarray) -> np.ndarray:
        """Goals outside of the proposals: the last to succeed, the last to fail, untried ones."""
        goals, success = self.recent[0, ::-1].T
        among = np.isin(goals, outside)
        third = -(-self.settings.shown // 3)
        won = list(dict.fromkeys(goals[among & (success > 0)]))[:third]
        lost = [goal for goal in dict.fromkeys(goals[among & (success == 0)]) if goal not in won]
        untried = np.setdiff1d(outside, goals)
        # A stride of its own for each question; no randomness, which would need a state.
        places = (np.arange(third) * 7_919 + number * 104_729) % max(len(untried), 1)
        chosen = [*won, *lost[:third], *(untried[np.unique(places)] if len(untried) else [])]
        return np.array(chosen[: self.settings.shown], np.int64)

    def match(self, name: str) -> np.ndarray:
        goals = self.lines.exactly(name)
        if len(goals) >= self.settings.retrieved:
            return goals
        try:
            features = self._features()
            place = features[goals[0]] if len(goals) else self._embed([self.lines.prompt(name)])[0]
        except InputError:  # no model, or one that reads no such text
            return goals
        order = np.argsort(((features.astype(np.float64) - place) ** 2).sum(axis=1), kind="stable")
        nearest = order[: self.settings.retrieved]
        return np.concatenate([goals, nearest[~np.isin(nearest, goals)]])[: self.settings.retrieved]


@register_sampler(
    "experimenter", "Experimenter", settings=ExperimenterSettings, explores="categories"
)
def build(parts: SamplerParts, settings: ExperimenterSettings) -> GoalSampler:
    """Language models as experimenters (Zhang et al. 2024, arXiv 2409.03402), told the groups.

    There Gemini proposes skills of a robot, breaks them into steps, retrieves them from a library
    and judges learning curves; here one question has analysis, proposition and decomposition, and
    a proposal names a group. The scripted model is a rule that reads the same questions.

    A group of answers is one episode, labelled with its share of successes.
    """
    arms, categories = EachCategory(parts.goals), [*parts.goals.counts()]
    assert arms.exploited is not None
    names = [as_line(categories[arm]) for arm in arms.exploited]
    lines = GoalLines(parts.goals)
    first = np.zeros(1, np.int64)
    examples = [lines.line(parts.goals.nth(int(arm), first)[0]) for arm in arms.exploited]
    chat = Chat(settings, "experimenter", scripted, parts.transcript)
    return ChatSampler(parts, Experimenter(settings, chat, names, examples), arms)


@register_sampler(
    "experimenter_goals",
    "Experimenter, goals",
    settings=ExperimenterGoalsSettings,
    needs_features=True,
    explores="goals",
)
def build_goals(parts: SamplerParts, settings: ExperimenterGoalsSettings) -> GoalSampler:
    """The same without groups: it reads a sample of goals with their outcomes and proposes goals.

    Retrieval: the goal of that text, or all of that instruction, then the nearest by the untrained
    model's representation.

    A group of answers is one episode, labelled with its share of successes.
    """
    chat = Chat(settings, "experimenter_goals", scripted, parts.transcript)
    return ChatSampler(parts, GoalExperimenter(settings, chat, parts))
