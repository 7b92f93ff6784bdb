"""From scores to weights: softmax, ranks, nearest to a target, greedy, Thompson.

All take scores, float64 (n,), and return non-negative weights (n,) to draw in proportion to.
Non-negative scores may also serve as weights directly.
"""

from __future__ import annotations

import numpy as np


def softmax(scores: np.ndarray, temperature: float) -> np.ndarray:
    """exp(score / temperature), scaled so that the largest is 1."""
    return np.exp((scores - scores.max()) / temperature)


def by_rank(scores: np.ndarray, temperature: float) -> np.ndarray:
    """(1 / rank) ** (1 / temperature), rank 1 for the highest score (Jiang et al. 2021, PLR).

    Equal scores get the mean of their ranks. Scaled so that the largest is 1.
    """
    _, group, counts = np.unique(-scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    return (ranks / ranks[0])[group] ** (-1.0 / temperature)


def nearest(scores: np.ndarray, target: float, among: int) -> np.ndarray:
    """Probability of being the nearest to `target` of `among` uniform draws with replacement.

    Arms that are equally near, but for rounding, share their probability. `among` = 1 is uniform;
    the larger, the greedier.
    """
    distances = np.round(np.abs(scores - target), 12)
    _, group, counts = np.unique(distances, return_inverse=True, return_counts=True)
    farther = 1.0 - np.concatenate([[0.0], np.cumsum(counts)]) / len(scores)
    chance = farther[:-1] ** among - farther[1:].clip(0.0) ** among
    return (chance / counts)[group]


BINS, BLOCK = 64, 128
"""Bins of the distance to the target, finer near 0, where the nearest of many draws lies; groups of
arms per block of work."""


def nearest_draw(
    successes: np.ndarray, failures: np.ndarray, target: float, among: float
) -> np.ndarray:
    """Probability that an arm's draw from Beta(successes, failures) is the nearest to `target`.

    `among` arms are drawn uniformly, with replacement, and one number from the Beta of each. Like
    `nearest` with random distances: the probability that the smallest falls into a bin is shared in
    proportion to each arm's mass there. Counts (n,), at least 1; equal counts are grouped.
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
    """Probability of each bin of |draw - `target`| for each Beta, by the midpoint rule.

    Counts (groups,), bin edges (bins + 1,); returns float32 (groups, bins), rows sum to one. Blocks
    of rows fit the CPU cache; logs are clipped at -60, since denormal numbers are slow.
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
        block = powers[begin : begin + BLOCK] @ logs
        block -= block.max(axis=1, keepdims=True)
        density = np.exp(np.maximum(block, -60.0).astype(np.float32))
        below, above = density[:, : len(distances)], density[:, len(distances) :]
        mass[begin : begin + BLOCK] = below + above
    return mass / mass.sum(axis=1, keepdims=True)


def greedy(scores: np.ndarray) -> np.ndarray:
    """1 for the highest score, ties to rounding included; 0 for all others."""
    scores = np.round(scores, 12)
    return (scores == scores.max()).astype(np.float64)


def thompson(scores: np.ndarray, valid: np.ndarray, untried: float) -> np.ndarray:
    """Probability that an arm is highest when each arm draws one of its scores uniformly.

    Exact, so that a rule needs no random numbers; ties, to rounding, are shared.

    scores: float64 (n, window).
    valid: which scores exist, bool (n, window).
    untried: score of an arm without any.
    """
    scores = np.where(valid.any(axis=1, keepdims=True), np.round(scores, 12), untried)
    valid = np.where(valid.any(axis=1, keepdims=True), valid, np.arange(valid.shape[1]) == 0)
    nodes, weights = np.polynomial.legendre.leggauss(len(scores) // 2 + 1)
    ties = (nodes + 1) / 2
    chance = np.zeros(len(scores))
    for level in np.unique(scores[valid]):
        equal = ((scores == level) & valid).sum(axis=1) / valid.sum(axis=1)
        lower = ((scores < level) & valid).sum(axis=1) / valid.sum(axis=1)
        # An arm tied with k others wins with 1 / (k + 1), the integral of t^k over [0, 1].
        beaten = lower + ties[:, None] * equal  # (nodes, n)
        for arm in np.flatnonzero(equal):
            all_beaten = np.delete(beaten, arm, axis=1).prod(axis=1)
            chance[arm] += equal[arm] * (weights / 2) @ all_beaten
    return chance
