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


BINS = 64
"""Of the distance from the target; finer near 0, where the nearest of many draws is found."""


def nearest_draw(
    successes: np.ndarray, failures: np.ndarray, target: float, among: int
) -> np.ndarray:
    """Probability to win where the draw from Beta(successes, failures) nearest to `target` wins.

    `among` arms are drawn uniformly, with replacement, and one number from the Beta of each. It is
    `nearest` for distances that are not known: the chance that the smallest one falls into a bin is
    shared by what each arm has there. Counts (n,), at least 1; arms of equal counts are one group.
    """
    pairs, group, counts = np.unique(
        successes + 1j * failures, return_inverse=True, return_counts=True
    )
    edges = max(target, 1.0 - target) * np.linspace(0.0, 1.0, BINS + 1) ** 2
    distances, widths = (edges[1:] + edges[:-1]) / 2, np.tile(np.diff(edges), 2)
    bins, values = (
        np.tile(np.arange(BINS), 2),
        np.concatenate([target - distances, target + distances]),
    )
    inside = (values > 0.0) & (values < 1.0)
    bins, values, widths = bins[inside], values[inside], widths[inside]
    powers = np.stack([pairs.real, pairs.imag], axis=1) - 1.0
    logs = powers @ np.log([values, 1.0 - values]) + np.log(widths)  # (groups, bins of both sides)
    logs -= logs.max(axis=1, keepdims=True)
    mass = np.exp(np.maximum(logs, -60.0).astype(np.float32))  # what is smaller is slow, and 0
    totals = mass.sum(axis=1)
    share = np.bincount(bins, (counts / totals) @ mass, BINS) / len(group)
    farther = np.concatenate([[1.0], 1.0 - np.cumsum(share)]).clip(0.0)
    chance = farther[:-1] ** among - farther[1:] ** among
    per_arm = np.divide(chance, share * len(group), out=np.zeros(BINS), where=share > 0.0)
    return (mass @ per_arm[bins] / totals)[group]
