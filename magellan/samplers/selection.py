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


BINS, BLOCK = 64, 128
"""Bins of the distance from the target, finer near 0, where the nearest of many draws is; groups of
arms that are worked on at a time."""


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
    mass = _distance_mass(pairs.real, pairs.imag, target, edges)
    share = (counts.astype(np.float32) @ mass) / len(group)
    farther = np.concatenate([[1.0], 1.0 - np.cumsum(share)]).clip(0.0)
    chance = farther[:-1] ** among - farther[1:] ** among
    per_arm = chance / np.maximum(share * len(group), 1e-30)
    return (mass @ per_arm.astype(np.float32))[group].astype(np.float64)


def _distance_mass(
    successes: np.ndarray, failures: np.ndarray, target: float, edges: np.ndarray
) -> np.ndarray:
    """Probability of each distance from `target` of a draw from each Beta, by the midpoint rule.

    Counts (groups,), edges of the bins (bins + 1,): float32 (groups, bins), rows sum to one. Blocks
    of rows stay in the processor's cache; numbers below exp(-60) would be slow, and are 0 here.
    """
    distances, widths = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    values = np.concatenate([target - distances, target + distances])
    inside = (values > 0.0) & (values < 1.0)
    values = np.where(inside, values, 0.5)
    widths = np.where(inside, np.tile(widths, 2), 1e-100)
    logs = np.log(np.stack([values, 1.0 - values, widths]))  # (3, bins of both sides)
    powers = np.stack([successes - 1.0, failures - 1.0, np.ones(len(successes))], axis=1)
    mass = np.empty((len(powers), len(distances)), np.float32)
    for begin in range(0, len(powers), BLOCK):
        part = powers[begin : begin + BLOCK] @ logs
        part -= part.max(axis=1, keepdims=True)
        both = np.exp(np.maximum(part, -60.0).astype(np.float32))
        mass[begin : begin + BLOCK] = both[:, : len(distances)] + both[:, len(distances) :]
    return mass / mass.sum(axis=1, keepdims=True)


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
