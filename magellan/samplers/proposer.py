"""Proposer: a chat model composes goals from what the world shows, without success rates."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from pydantic import Field

from magellan.model.chat import Chat
from magellan.samplers.base import GoalSampler
from magellan.samplers.experimenter import GoalLines
from magellan.samplers.proposals import AskSettings, ChatSampler, Proposals
from magellan.samplers.registry import SamplerParts, register_sampler

TASK = """You think up goals for an agent that explores a text world. You read what it sees there \
and a goal that a person had. Answer with lines "train: GOAL", goals of that form that make sense \
with what is seen. Nothing else."""
EXAMPLE = (
    {
        "role": "user",
        "content": "Seen:\n* You see: lamp, red ball\n* You see: box, cup\nA goal: Goal: Lift cup\n"
        "Which goals? At most 2.",
    },
    {"role": "assistant", "content": "train: Goal: Lift box\ntrain: Goal: Lift lamp"},
)


class ProposerSettings(AskSettings):
    """The sampler `proposer`."""

    tokens: int = Field(128, ge=1, le=4_096, description="Maximum number of tokens of an answer.")
    proposals: int = Field(8, ge=1, le=100, description="Maximum number of goals it may propose.")
    seen: int = Field(6, ge=1, le=100, description="Goals whose surroundings it is shown.")


class Proposer(Proposals):
    """Proposes instructions; each stands for all goals that have it."""

    system, example = TASK, EXAMPLE

    def __init__(self, settings: Any, chat: Chat, lines: GoalLines) -> None:
        super().__init__(settings, chat, settings.proposals)
        self.lines = lines

    def question(self, number: int) -> str:
        # Other goals for each question; no randomness, which would need a state.
        places = (np.arange(self.settings.seen) + number * 64) * 7_919 % len(self.proposal)
        pairs = [self.lines.line(place).partition("; ") for place in places]
        seen = dict.fromkeys(rest or instruction for instruction, _, rest in pairs)
        lines = ["Seen:", *(f"* {one}" for one in seen), f"A goal: {pairs[0][0]}"]
        return "\n".join([*lines, f"Which goals? At most {self.most}."])

    def match(self, name: str) -> np.ndarray:
        return self.lines.exactly(name)


def composed(question: str) -> str:
    """Answer as a person would: what was done with one thing is tried with others in sight."""
    scenes, _, goal = question.partition("\nA goal: ")
    verb = goal.splitlines()[0].rpartition(" ")[0]
    words = re.findall(r"[^\W\d]+", " ".join(scenes.replace("You see", "").split("*")[1:]))
    things = [word for word in dict.fromkeys(words) if word not in ("baby", "seed")]
    return "\n".join(f"train: {verb} {thing}" for thing in things[: int(goal.split()[-1][:-1])])


@register_sampler("proposer", "Proposer", settings=ProposerSettings, explores="goals")
def build(parts: SamplerParts, settings: ProposerSettings) -> GoalSampler:
    """The proposer of Proposer-Agent-Evaluator (PAE; Zhou et al. 2025, arXiv 2412.13194).

    There a model proposes tasks for a web site from its name or screenshots of demonstrations, once
    and before training; here every `ask_every` updates, from texts. What names no goal is dropped.

    A group of answers is one episode, labelled with its share of successes.
    """
    chat = Chat(settings, "proposer", composed, parts.transcript)
    return ChatSampler(parts, Proposer(settings, chat, GoalLines(parts.goals)))
