"""Answers as users give them, and gates: which groups of them are trained on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from magellan.competence import Outcomes
from magellan.competence.groups import advantages_of
from magellan.core.errors import InputError, not_allowed
from magellan.core.parsing import is_whole, plain

Gate = Callable[[Outcomes], np.ndarray]
"""Groups of answers, one row a goal, to whether they are trained on, bool (rows,)."""
GATES: Mapping[str, Gate] = {
    "all": lambda groups: np.ones(len(groups), bool),
    "spread": lambda groups: groups.spread > 0,
    "mixed": lambda groups: (groups.success > 0) & (groups.success < 1),
}
"""`spread`: rewards differ, as in the dynamic sampling of DAPO (Yu et al. 2025, arXiv 2503.14476);
`mixed`: some answers succeed and some do not."""


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


def checked_threshold(solved: Any) -> float:
    """The smallest reward that is a success.

    Raises:
        InputError: it is no finite number.
    """
    number = is_whole(solved) or isinstance(solved, float | np.floating)
    if not number or not math.isfinite(solved):
        raise not_allowed("solved", solved, "a finite number")
    return float(solved)


def admitted_by(gate: Gate, groups: Outcomes) -> np.ndarray:
    """Which groups a gate admits, bool (groups,).

    Raises:
        InputError: it returns something else than a bool for each group.
    """
    passed = np.asarray(gate(groups))
    if passed.shape != (len(groups),) or (len(groups) and passed.dtype != bool):
        raise not_allowed("gate: its answer", passed.tolist(), f"a bool for each of {len(groups)}")
    return passed.astype(bool)


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
    return advantages_of(given, values)


DIGITS = {"bfloat16": 8, "float16": 11}
"""Binary digits of formats that are coarser than float32."""


def in_format_of(values: Any, threshold: float) -> float:
    """A threshold, rounded as these values are, if their format is coarse and that lowers it."""
    listed = list(values) if isinstance(values, list | tuple) else [values]
    for value in listed:  # grows by the values of nested lists
        listed += value if isinstance(value, list | tuple) else []
    formats = {str(getattr(value, "dtype", "")).removeprefix("torch.") for value in listed}
    mantissa, exponent = math.frexp(threshold)
    scales = (2.0 ** DIGITS[name] for name in formats & DIGITS.keys())
    return min([threshold, *(math.ldexp(round(mantissa * x) / x, exponent) for x in scales)])


LARGEST = 1e300
"""Finite numbers beyond it are taken as this, so that differences and sums of them are finite."""


def numbers(name: str, values: Any) -> np.ndarray:
    """An argument as an array of float64 (m,), NaN for None."""
    try:
        numbers = np.asarray(plain(values)).reshape(-1)
    except ValueError:  # ragged
        raise not_allowed(name, values, "one number for each episode") from None
    if numbers.dtype == object:
        numbers = np.array([math.nan if value is None else value for value in numbers])
    if numbers.dtype.kind not in "biuf" and len(numbers):
        listed = values if isinstance(values, list | tuple) else numbers.tolist()
        strange = (value for value in listed if np.asarray(plain(value)).dtype.kind not in "biuf")
        raise not_allowed(name, next(strange, numbers.tolist()), "numbers")
    found = numbers.astype(np.float64)
    return np.where(np.isinf(found), found, found.clip(-LARGEST, LARGEST))


def check_length(goals: np.ndarray, **columns: np.ndarray | None) -> None:
    for name, values in columns.items():
        if values is not None and len(values) != len(goals):
            raise InputError(
                f"outcomes: shapes of goals, {name} {goals.shape, values.shape}; must be equal"
            )
