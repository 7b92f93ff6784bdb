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


def greedy(scores: np.ndarray) -> np.ndarray:
    """1 for the highest score, and for all that equal it; 0 for others."""
    return (scores == scores.max()).astype(np.float64)


def thompson(scores: np.ndarray, held: np.ndarray, untried: float) -> np.ndarray:
    """Probability that an arm is highest where each takes one of its scores at random.

    Exact, so that a rule needs no random numbers; equally high arms share it.

    scores: float64 (n, window).
    held: which of them there are, bool (n, window).
    untried: the score of an arm without any.
    """
    scores = np.where(held.any(axis=1, keepdims=True), scores, untried)
    held = np.where(held.any(axis=1, keepdims=True), held, np.arange(held.shape[1]) == 0)
    nodes, shares = np.polynomial.legendre.leggauss(len(scores) // 2 + 1)
    ties = (nodes + 1) / 2
    chance = np.zeros(len(scores))
    for level in np.unique(scores[held]):
        equal = ((scores == level) & held).sum(axis=1) / held.sum(axis=1)
        lower = ((scores < level) & held).sum(axis=1) / held.sum(axis=1)
        # With k others as high, an arm is drawn with 1 / (k + 1), the integral of t^k over [0, 1].
        beaten = lower + ties[:, None] * equal  # (nodes, n)
        for arm in np.flatnonzero(equal):
            others = np.delete(beaten, arm, axis=1).prod(axis=1)
            chance[arm] += equal[arm] * (shares / 2) @ others
    return chance
