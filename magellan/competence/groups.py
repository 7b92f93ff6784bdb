"""Groups of answers: all answers to a goal in one update as one outcome, in the order of goals."""

from __future__ import annotations

import numpy as np

from magellan.competence.base import NEITHER, Outcomes

TOLERANCE = 4 * float(np.finfo(np.float32).eps)
"""Relative difference of rewards below which they are equal: they were rounded to float32."""


def grouped(
    goals: np.ndarray,
    rewards: np.ndarray,
    solved: float = 1.0,
    advantage: np.ndarray | None = None,
    explored: np.ndarray | None = None,
) -> Outcomes:
    """Answers (m,), in any order, as one outcome a goal.

    solved: smallest reward that is a success, up to the rounding of float32: of its size, or, if it
        is 0, of the largest reward, at most of 1.
    advantage: of each; None: none.
    explored: see `Outcomes`; a goal has the largest of its answers.
    """
    scale = abs(solved) or min(1.0, np.abs(rewards).max(initial=0.0))
    succeeded = rewards >= solved - TOLERANCE * scale
    # The sums below must not depend on the order of answers, not even by rounding.
    order = np.lexsort([rewards if advantage is None else advantage, rewards, goals])
    rows, begins, counts = np.unique(goals[order], return_index=True, return_counts=True)
    spread = spread_of(rewards[order], begins, counts)

    def mean(values: np.ndarray) -> np.ndarray:
        means = np.add.reduceat(values[order].astype(np.float64), begins) / counts
        return np.where(counts > 1, _rounded(means), means)

    means = None
    if advantage is not None:
        means = mean(advantage)
        means[(counts > 1) & (spread == 0) & (means <= _rounding(rewards[order], begins))] = 0.0
    flags = np.full(len(rows), NEITHER)
    if explored is not None:
        flags = np.maximum.reduceat(explored[order], begins)
    return Outcomes(
        goals=rows,
        success=np.add.reduceat(succeeded[order].astype(np.int64), begins) / counts,
        explored=flags,
        advantage=means,
        answers=counts,
        reward=mean(rewards),
        spread=spread,
    )


def advantages_of(goals: np.ndarray, rewards: np.ndarray) -> np.ndarray:
    """|reward - mean reward of the same goal| of each answer (m,); NaN where a reward is.

    Exactly 0 where rewards of a goal are equal; lost answers are in no mean.
    """
    found = np.full(len(rewards), np.nan)
    came = np.flatnonzero(np.isfinite(rewards))
    order = came[np.lexsort([rewards[came], goals[came]])]
    _, begins, counts = np.unique(goals[order], return_index=True, return_counts=True)
    group = np.repeat(np.arange(len(counts)), counts)
    least = rewards[order][begins]
    means = least + np.add.reduceat(rewards[order] - least[group], begins) / counts
    differ = spread_of(rewards[order], begins, counts) > 0
    found[order] = np.where(differ[group], np.abs(rewards[order] - means[group]), 0.0)
    return found


def spread_of(rewards: np.ndarray, begins: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Largest minus smallest of each run of rising rewards (m,); 0 if equal to rounding."""
    spread = rewards[begins + counts - 1] - rewards[begins]
    return np.where(spread > _rounding(rewards, begins), spread, 0.0)


def _rounding(rewards: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """Most by which equal rewards of each run differ: of its size, or of that of its terms.

    Where a bonus and a penalty cancel, a difference of 1e-17 is left. So a size counts as at least
    that of the largest reward of all, at most 1, or as 1e-6 where all rewards are smaller.
    """
    sizes = np.abs(rewards)
    floor = np.clip(sizes.max(initial=0.0), 1e-6, 1.0)
    return TOLERANCE * np.maximum(np.maximum.reduceat(sizes, begins), floor)


def _rounded(values: np.ndarray) -> np.ndarray:
    """Values to twelve digits, so that sums over other orders or numbers of answers are equal."""
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.round(mantissa, 12), exponent)
