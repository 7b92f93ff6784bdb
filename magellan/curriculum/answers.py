"""Groups of answers: all answers to a goal in one update, in any order, as one outcome."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from magellan.competence import Outcomes
from magellan.core.errors import InputError, not_allowed

Gate = Callable[[Outcomes], np.ndarray]
"""Groups of answers, one row a goal, to whether they are trained on, bool (rows,)."""
GATES: Mapping[str, Gate] = {
    "all": lambda groups: np.ones(len(groups), bool),
    "spread": lambda groups: groups.spread > 0,
    "mixed": lambda groups: (groups.success > 0) & (groups.success < 1),
}
"""`spread`: rewards differ, as in the dynamic sampling of DAPO (Yu et al. 2025, arXiv 2503.14476);
`mixed`: some answers succeed and some do not."""
TOLERANCE = 4 * float(np.finfo(np.float32).eps)
"""Relative difference of rewards below which they are equal: they were rounded to float32."""


def checked_gate(gate: str | Gate) -> Gate:
    """The gate of this name, or the function itself.

    Raises:
        InputError: the name is unknown.
    """
    if callable(gate):
        return gate
    if not isinstance(gate, str) or gate not in GATES:
        raise not_allowed("gate", gate, f"{', '.join(GATES)}, or a function")
    return GATES[gate]


def admitted_by(gate: Gate, groups: Outcomes) -> np.ndarray:
    """Goals (k,) of the groups that a gate admits.

    Raises:
        InputError: it returns something else than a bool for each group.
    """
    passed = np.asarray(gate(groups))
    if passed.shape != (len(groups),) or (len(groups) and passed.dtype != bool):
        raise not_allowed("gate: its answer", passed.tolist(), f"a bool for each of {len(groups)}")
    return groups.goals[passed.astype(bool)]


def grouped(
    goals: np.ndarray,
    rewards: np.ndarray,
    solved: float,
    rounding: float = 0.0,
    advantage: np.ndarray | None = None,
) -> Outcomes:
    """Answers (m,) as one outcome a goal, in the order of goals.

    solved: smallest reward that is a success.
    rounding: relative error of the rewards' format, if coarser than float32.
    """
    near = max(TOLERANCE, rounding)
    scale = abs(solved) or np.abs(rewards).max(initial=0.0)
    won = rewards >= solved - near * scale
    # The sums below must not depend on the order of answers, not even by rounding.
    order = np.lexsort([rewards if advantage is None else advantage, rewards, goals])
    rows, begins, counts = np.unique(goals[order], return_index=True, return_counts=True)
    spread = _spread(rewards[order], begins, counts)

    def mean(values: np.ndarray) -> np.ndarray:
        means = np.add.reduceat(values[order].astype(np.float64), begins) / counts
        return np.where(counts > 1, _rounded(means), means)

    means = None
    if advantage is not None:
        means = mean(advantage)
        largest = np.maximum.reduceat(np.abs(rewards[order]), begins)
        means[(counts > 1) & (spread == 0) & (means <= TOLERANCE * largest)] = 0.0
    success = np.add.reduceat(won[order].astype(np.int64), begins) / counts
    return Outcomes(
        goals=rows,
        success=success,
        advantage=means,
        answers=counts,
        reward=mean(rewards),
        spread=spread,
    )


def _rounded(values: np.ndarray) -> np.ndarray:
    """Values to twelve digits, so that sums over other orders or numbers of answers are equal."""
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.round(mantissa, 12), exponent)


def _spread(rewards: np.ndarray, begins: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Largest minus smallest of each run of rising rewards (m,); 0 if equal to rounding."""
    least, largest = rewards[begins], rewards[begins + counts - 1]
    scale = np.maximum(np.abs(least), np.abs(largest))
    return np.where(largest - least > TOLERANCE * scale, largest - least, 0.0)


def group_advantages(indices: Any, rewards: Any) -> np.ndarray:
    """|reward - mean reward of the same goal| of each episode (m,), as GRPO's, not normalised.

    Exactly 0 where rewards of a goal are equal; NaN for lost ones, which no mean includes.

    Args:
        indices: goals (m,), several episodes each.
        rewards: of these episodes, (m,).

    Raises:
        InputError: these are no numbers, or not as many.
    """
    given, values = numbers("indices", indices), numbers("rewards", rewards)
    if len(given) != len(values):
        raise not_allowed("rewards", len(values), f"one for each of {len(given)} indices")
    found = np.full(len(values), np.nan)
    came = np.flatnonzero(np.isfinite(values))
    order = came[np.lexsort([values[came], given[came]])]
    _, begins, counts = np.unique(given[order], return_index=True, return_counts=True)
    group = np.repeat(np.arange(len(counts)), counts)
    least = values[order][begins]
    means = least + np.add.reduceat(values[order] - least[group], begins) / counts
    differ = _spread(values[order], begins, counts) > 0
    found[order] = np.where(differ[group], np.abs(values[order] - means[group]), 0.0)
    return found


def plain(values: Any) -> Any:
    """Numbers without autograd, device or half precision; None as NaN; lists as lists."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        return (values.double() if values.is_floating_point() else values).numpy()
    if isinstance(values, list | tuple):
        return [plain(value) for value in values]
    return math.nan if values is None else values


def rounding_of(values: Any) -> float:
    """Relative error of numbers in their format, if it is coarser than float32; otherwise 0."""
    listed = values if isinstance(values, list | tuple) else [values]
    formats = {str(getattr(value, "dtype", "")).removeprefix("torch.") for value in listed}
    return max({"bfloat16": 2.0**-8, "float16": 2.0**-11}.get(name, 0.0) for name in [*formats, ""])


def numbers(name: str, values: Any) -> np.ndarray:
    """An argument as an array of float64 (m,), NaN for None."""
    try:
        numbers = np.asarray(plain(values)).reshape(-1)
    except ValueError:  # ragged
        raise not_allowed(name, values, "one number for each episode") from None
    if numbers.dtype == object:
        numbers = np.array([math.nan if value is None else value for value in numbers])
    if numbers.dtype.kind not in "biuf" and len(numbers):
        raise not_allowed(name, numbers.tolist()[0], "numbers")
    return numbers.astype(np.float64)


def check_length(goals: np.ndarray, **columns: np.ndarray | None) -> None:
    for name, values in columns.items():
        if values is not None and len(values) != len(goals):
            raise InputError(
                f"outcomes: shapes of goals, {name} {goals.shape, values.shape}; must be equal"
            )
