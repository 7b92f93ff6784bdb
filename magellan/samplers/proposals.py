"""Goals that a chat model proposes: the question, the grammar of its answer, and the draws."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from magellan.competence.arms import Arms
from magellan.core.settings import Count
from magellan.model.chat import Chat, ChatSettings, Message
from magellan.samplers.base import GoalSampler
from magellan.samplers.registry import SamplerParts
from magellan.samplers.rules import ArmStats, Rule

LONGEST, MOST_LINES = 300, 50
"""Characters of a proposal, and lines of an answer that are read."""
ANSWER_LINE = re.compile(rf"(mastered|stuck|easier|train): (\S.{{0,{LONGEST - 1}}})")
COUNTED = ("next", "kept", "unread", "unknown", "dropped")
"""Update of the next question; questions after which the last proposals went on; lines that are not
of the form; proposals that name no goal; repeated, contradictory or supernumerary proposals."""


class AskSettings(ChatSettings):
    """When a chat model is asked, and for how much."""

    ask_every: Count = Field(100, description="Policy updates between two questions.")
    window: int = Field(256, ge=1, le=10**6, description="Last episodes that it is told of.")


class Reading(NamedTuple):
    """What an answer says: names by word, in order; and its number of unread lines."""

    said: Mapping[str, Sequence[str]]
    unread: int


def as_line(text: str) -> str:
    """A text as an answer may name it."""
    return " ".join(text.split())[:LONGEST].strip()


def read(answer: str) -> Reading:
    """Read lines of the form `word: name`, with one of four words; others have no effect."""
    lines = [" ".join(line.split()) for line in answer.splitlines()]
    lines = [line for line in lines if line]
    said: dict[str, list[str]] = {word: [] for word in ("mastered", "stuck", "easier", "train")}
    matches = [ANSWER_LINE.fullmatch(line) for line in lines[:MOST_LINES]]
    for match in filter(None, matches):
        said[match[1]].append(match[2])
    return Reading(said, len(lines) - sum(match is not None for match in matches))


class Proposals(Rule):
    """Equal shares for the current proposals, then equal shares for the goals, or arms, of each.

    Every `ask_every` updates `chat` answers the `question`; what it proposes is matched to arms.
    Until the first answer all arms are alike.

    most: largest number of proposals.
    """

    shared = ("counts",)
    system: str
    example: Sequence[Message] = ()

    def __init__(self, settings: AskSettings, chat: Chat, most: int) -> None:
        super().__init__(settings)
        self.chat, self.most = chat, most

    def start(self, n_arms: int) -> None:
        self.proposal = np.full(n_arms, -1)  # of each arm; -1: none
        self.heads = np.full((1, self.most), -1)  # the arm that each proposal names
        self.mastered = np.full((1, self.most), -1)  # arms that the last answers called so
        self.recent = np.full((1, self.settings.window, 2), -1.0)  # arm, success; oldest first
        self.counts = np.zeros((1, len(COUNTED)), np.int64)
        self.counts[0, 0] = self.settings.ask_every

    def observe(self, arm: int, success: float, advantage: float) -> None:
        self.recent[0, :-1] = self.recent[0, 1:]
        self.recent[0, -1] = arm, success

    def end_update(self, arms: ArmStats) -> None:
        if arms.step >= self.counts[0, 0]:
            self.counts[0, 0] = arms.step + self.settings.ask_every
            self._ask(arms.step)

    def weights(self, arms: ArmStats) -> np.ndarray:
        inside = self.proposal >= 0
        if not inside.any():
            return np.ones(len(self.proposal))
        sizes = np.bincount(self.proposal[inside], minlength=self.most)
        return np.where(inside, 1.0 / np.maximum(sizes, 1)[self.proposal], 0.0)

    @abstractmethod
    def question(self, number: int) -> str:
        """Return the text that the chat model reads; `number` differs between questions."""

    @abstractmethod
    def match(self, name: str) -> np.ndarray:
        """Return the arms of a proposal, int64 (k,), the one that it names first; empty: none."""

    def results(self, arms: np.ndarray) -> str:
        """Return `k of n`: successes and episodes of these arms among the last ones."""
        mine = np.isin(self.recent[0, :, 0], arms)
        return f"{round(self.recent[0, mine, 1].sum())} of {mine.sum()}"

    def _ask(self, step: int) -> None:
        question = {"role": "user", "content": self.question(step // self.settings.ask_every)}
        messages = [{"role": "system", "content": self.system}, *self.example, question]
        answer, entry = self.chat.ask(step, messages)
        said, unread = read(answer or "")
        proposed, counts = self._matched(said)
        counts |= {"unread": unread, "kept": int(not proposed)}
        for name, arms in proposed.items():
            entry.setdefault("proposed", []).append([name, len(arms)])
        self.chat.record({**entry, **counts})
        for name, count in counts.items():
            self.counts[0, COUNTED.index(name)] += count
        self._note_mastered(said["mastered"])
        if proposed:
            self.proposal[:], self.heads[:] = -1, -1
            for number, arms in reversed([*enumerate(proposed.values())]):
                self.proposal[arms], self.heads[0, number] = number, arms[0]

    def _matched(
        self, said: Mapping[str, Sequence[str]]
    ) -> tuple[dict[str, np.ndarray], dict[str, int]]:
        """Arms of each proposal, and how many were unknown and dropped."""
        proposed: dict[str, np.ndarray] = {}
        unknown = dropped = 0
        against = {*said["mastered"], *said["stuck"]}
        for name in (*said["train"], *said["easier"]):
            if name in proposed or name in against or len(proposed) == self.most:
                dropped += 1
                continue
            arms = self.match(name)
            if len(arms):
                proposed[name] = arms
            unknown += not len(arms)
        return proposed, {"unknown": unknown, "dropped": dropped}

    def _note_mastered(self, names: Sequence[str]) -> None:
        for name in names:
            for arm in self.match(name)[:1].tolist():
                kept = [other for other in self.mastered[0].tolist() if other not in (arm, -1)]
                latest = [*kept, arm][-self.most :]
                self.mastered[0] = np.pad(latest, (0, self.most - len(latest)), constant_values=-1)


class ChatSampler(GoalSampler):
    """A sampler whose rule asks a chat model."""

    def __init__(self, parts: SamplerParts, rule: Proposals, arms: Arms | None = None) -> None:
        super().__init__(parts.goals, None, rule, parts.epsilon, parts.rng, arms)
        self.chat = rule.chat

    def facts(self) -> dict[str, Any]:
        return {"chat": self.chat.summary()}


RESULT = re.compile(r"- (.+): (\d+) of (\d+)")
ENOUGH, MASTERED = 10, 0.9
"""Tries after which a rate counts, and the rate of what is mastered."""


def scripted(question: str) -> str:
    """Answer as a careful person would who reads the results and knows nothing else.

    Mastered: nine of ten of ten tries or more; stuck: none of them. Worth training is first what is
    unlike the mastered and has in sight what it names, of these what succeeds most often.
    """
    found = [(match[1], int(match[2]), int(match[3])) for match in RESULT.finditer(question)]
    limits = re.findall(r"At most (\d+)", question)
    mastered = [name for name, k, n in found if n >= ENOUGH and k >= MASTERED * n]
    before = re.findall(r"^\* mastered: (.+)$", question, flags=re.M)
    verbs = {_verb(name) for name in (*mastered, *before) if "; " in name}

    def order(row: tuple[str, int, int]) -> tuple[bool, bool, float]:
        name, k, n = row
        return _verb(name) in verbs, not _in_sight(name), -(k + 1) / (n + 2)

    ranked = [row for row in sorted(found, key=order) if row[0] not in mastered]
    train = [name for name, _, _ in ranked[: int(limits[-1]) if limits else 1]]
    stuck = [name for name, k, n in found if n >= ENOUGH and k == 0 and name not in train]
    lines = [f"mastered: {name}" for name in mastered] + [f"stuck: {name}" for name in stuck]
    return "\n".join([*lines, *(f"train: {name}" for name in train)])


def _verb(name: str) -> str:
    """The instruction of a goal without its last word."""
    return name.partition("; ")[0].rpartition(" ")[0]


def _in_sight(name: str) -> bool:
    """Whether what the instruction names, its last word, is in the rest of the line."""
    instruction, _, rest = name.partition("; ")
    return not rest or instruction.rpartition(" ")[2] in re.findall(r"\w+", rest)
