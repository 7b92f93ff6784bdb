"""Goal spaces named by their size, such as 25k, with fixed proportions of categories."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal

_THOUSANDS = {"": 1, "k": 1_000, "M": 1_000_000}
_NAME = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([kM]?)")


def size_named(name: str) -> float | None:
    """Parse a size such as "25k", "1M", "2.5k" or "2500"; None for other names."""
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    return float(Decimal(match[1]) * _THOUSANDS[match[2]]) if match else None


def in_proportion(size: float, proportions: Sequence[float]) -> tuple[int, ...]:
    """Rounded counts of a goal space of this size: (categories,)."""
    return tuple(int(size * share + 0.5) for share in proportions)


def shortest_name(mix: Sequence[int], proportions: Sequence[float]) -> str:
    """Canonical name of a mix: 25k for 20000-4000-800-160-32; counts with dashes if no size fits.

    Neighbouring sizes may round to the same mix; the smallest names it.

    mix: counts, (categories,).
    proportions: the first is the largest, (categories,).
    """
    guess = int(mix[0] / proportions[0])
    sizes = (n for n in range(guess - 2, guess + 3) if in_proportion(n, proportions) == tuple(mix))
    size = next(sizes, None)
    if size is None or min(mix) == 0:
        return "-".join(map(str, mix))
    for letter in ("M", "k"):
        if size % _THOUSANDS[letter] == 0:
            return f"{size // _THOUSANDS[letter]}{letter}"
    return str(size)
