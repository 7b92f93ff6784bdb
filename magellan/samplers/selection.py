"""From scores to weights: how sharply a rule prefers what it finds better.

All take scores, float64 (n,), and give weights (n,), not negative, to draw in proportion to. Taking
them as they are, if none is negative, is selection by proportion.
"""

from __future__ import annotations

import numpy as np


def softmax(scores: np.ndarray, temperature: float) -> np.ndarray:
    """exp(score / temperature), the largest one scaled to 1."""
    return np.exp((scores - scores.max()) / temperature)


def by_rank(scores: np.ndarray, temperature: float) -> np.ndarray:
    """(1 / rank) ** (1 / temperature), rank 1 for the highest score (Jiang et al. 2021, PLR).

    Equal scores share the mean of their ranks.
    """
    _, group, counts = np.unique(-scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    return ranks[group] ** (-1.0 / temperature)


def nearest(scores: np.ndarray, target: float, among: int) -> np.ndarray:
    """Probability to be the nearest to `target` of `among` arms drawn uniformly, with replacement.

    Equally near arms share their probability. With few more arms than `among`, nearly a greedy
    choice; with `among` = 1 the uniform one.
    """
    _, group, counts = np.unique(np.abs(scores - target), return_inverse=True, return_counts=True)
    farther = 1.0 - np.concatenate([[0.0], np.cumsum(counts)]) / len(scores)
    chance = farther[:-1] ** among - farther[1:].clip(0.0) ** among
    return (chance / counts)[group]
