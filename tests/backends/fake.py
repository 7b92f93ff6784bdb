"""A backend that holds no model: words are tokens, play is nearly uniform, competence a counter."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from magellan.agent.replay import Batch, Episodes
from magellan.backends import CURRENT, DELAYED, Backend, Which
from magellan.core.codec import Codec, Packed, PackedState
from magellan.model.settings import AgentConfig


def words() -> Any:
    """A tokenizer of one token per word, numbered as they are met."""
    known: dict[str, int] = defaultdict(itertools.count().__next__)

    def tokenized(texts: list[str], add_special_tokens: bool) -> dict[str, list[list[int]]]:
        assert not add_special_tokens
        return {"input_ids": [[known[word] for word in text.split()] for text in texts]}

    return tokenized


class FakeBackend(Backend):
    """Counts its updates; what it predicts follows from their number and the prompt's length."""

    passes = device = dtype = "none"

    def __init__(self) -> None:
        self.codec = Codec(words())
        self.updates = {"sac": 0, "competence": 0}
        self.snapshots: list[int] = []
        self.held: dict[int, Packed] = {}
        self.closed = False

    def start_policy(self, settings: AgentConfig, seed: int) -> None:
        assert isinstance(settings, AgentConfig)
        self.updates["sac"] = 0

    def start_competence(self, settings: Any, seed: int) -> None:
        assert settings.batch_size > 0
        self.updates["competence"] = 0

    def probabilities(self, states: list[PackedState]) -> np.ndarray:
        counts = np.array([int(state.segments.max()) for state in states])
        weights = np.arange(1, counts.max() + 1) * (np.arange(counts.max()) < counts[:, None])
        return weights / weights.sum(axis=1, keepdims=True)

    def values(self, states: list[PackedState]) -> np.ndarray:
        return np.zeros_like(self.probabilities(states))

    def cache_prompts(self, prompts: Packed) -> int:
        self.held[len(self.held)] = prompts
        return len(self.held) - 1

    def free_prompts(self, held: int) -> None:
        del self.held[held]

    def competence(self, prompts: Packed | int, which: Sequence[Which] = (CURRENT,)) -> np.ndarray:
        tokens, _ = self.held[prompts] if isinstance(prompts, int) else prompts
        share = (tokens.sum(axis=1) % 97) / 97
        return np.array([share * (1 - 0.9 ** self._age(version)) for version in which])

    def _age(self, which: Which) -> int:
        if which == CURRENT:
            return self.updates["competence"]
        return self.snapshots[0 if which == DELAYED else int(which)]

    def update_policy(self, transitions: Batch) -> dict[str, float]:
        names = ("critic_loss", "actor_loss", "entropy", "temperature")
        return dict.fromkeys(names, self._updated("sac", transitions))

    def update_competence(self, episodes: Episodes) -> float:
        return self._updated("competence", episodes)

    def _updated(self, name: str, data: Batch | Episodes) -> float:
        assert all(isinstance(value, np.ndarray) for value in vars(data).values())
        self.updates[name] += 1
        return 1.0 / self.updates[name]

    def snapshot(self, keep: int) -> None:
        self.snapshots = [*self.snapshots, self.updates["competence"]][-keep:]

    def state_dict(self) -> dict[str, Any]:
        return {"updates": dict(self.updates), "snapshots": [*self.snapshots]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.updates = dict(state["updates"])
        self.snapshots = [*state["snapshots"]]

    def close(self) -> None:
        self.closed = True
