"""A learner whose competence is known: a skill in [0, 1] for each kind of goals."""

from __future__ import annotations

import numpy as np

RATE = 0.01
"""Share of what is left to learn that one episode teaches, where the kind before is mastered."""
TRANSFER = 0.8
"""Competence on an unseen goal, as a share of that on goals of training."""


def practised(skills: np.ndarray, episodes: np.ndarray) -> np.ndarray:
    """Skills after more training: float64 (kinds,).

    A kind is learned from its own episodes, in proportion to the skill in the kind before.

    skills: float64 (kinds,).
    episodes: int64 (kinds,), how many of each kind.
    """
    before = np.concatenate([[1.0], skills[:-1]])
    return 1.0 - (1.0 - skills) * (1.0 - RATE * before) ** episodes


def chance(skills: np.ndarray, kinds: np.ndarray, split: str) -> np.ndarray:
    """Competence: probability of success on goals of these kinds (n,), float64 (n,)."""
    return skills[kinds] * (1.0 if split == "train" else TRANSFER)
