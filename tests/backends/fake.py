"""A backend that holds no model: words are as many letters, play is uniform, all chances are even.

What it is given it takes as numbers only, and counts its updates.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from magellan.agent.replay import Batch, Episodes
from magellan.backends import CURRENT, Backend, Which
from magellan.core.codec import Codec, Packed, PackedState
from magellan.training.collect import uniform


def words(texts: list[str], add_special_tokens: bool) -> dict[str, list[list[int]]]:
    assert not add_special_tokens
    return {"input_ids": [[len(word) for word in text.split()] for text in texts]}


class FakeBackend(Backend):
    passes = device = dtype = "none"

    def __init__(self) -> None:
        self.codec, self.updates, self.closed = Codec(words), Counter(), False

    def nothing(self, *_: Any) -> None: ...

    start_policy = start_competence = free_prompts = snapshot = load_state_dict = nothing

    def probabilities(self, states: list[PackedState]) -> np.ndarray:
        return uniform(states)

    def values(self, states: list[PackedState]) -> np.ndarray:
        return np.zeros_like(uniform(states))

    def cache_prompts(self, prompts: Packed) -> int:
        return len(prompts[0])

    def competence(self, prompts: Packed | int, which: Sequence[Which] = (CURRENT,)) -> np.ndarray:
        n = prompts if isinstance(prompts, int) else len(prompts[0])
        return np.full((len(which), n), 0.5)

    def update_policy(self, transitions: Batch) -> dict[str, float]:
        names = ("critic_loss", "actor_loss", "entropy", "temperature")
        return dict.fromkeys(names, self._updated("sac", transitions))

    def update_competence(self, episodes: Episodes) -> float:
        return self._updated("competence", episodes)

    def _updated(self, name: str, data: Batch | Episodes) -> float:
        assert all(isinstance(value, np.ndarray) for value in vars(data).values())
        self.updates[name] += 1
        return 1.0

    def state_dict(self) -> dict[str, Any]:
        return {"updates": dict(self.updates)}

    def close(self) -> None:
        self.closed = True
