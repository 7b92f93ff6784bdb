"""How far predicted competence is from success: a curve against a curve, and goal by goal."""

from __future__ import annotations

import numpy as np

Curve = np.ndarray
"""Values at evaluation points, float64 (points,)."""


def curve_error(predicted: Curve, observed: Curve) -> float:
    """Mean over points of the absolute difference."""
    return float(np.abs(predicted - observed).mean())


def brier(predicted: np.ndarray, success: np.ndarray) -> float:
    """Mean over goals and points of (predicted - success)^2; 0 is best, 0.25 knows nothing.

    predicted, success: (n,), success 0 or 1.
    """
    return float(((predicted - success) ** 2).mean())


def lag(curves: list[tuple[Curve, Curve]]) -> int:
    """By how many points predicted curves lag behind the observed ones: 0 or more.

    The shift of the observed curves, of at most half of their points, that leaves the smallest mean
    absolute difference; the smaller of two that are equal. Observed curves that never change say
    nothing; where no other is left it is 0.

    curves: pairs of predicted and observed, at points with equal distances.
    """
    told = [(p, o) for p, o in curves if len(o) and (o != o[0]).any()]
    if not told:
        return 0
    points = len(told[0][1])
    errors = [
        np.mean(
            [curve_error(predicted[k:], observed[: points - k]) for predicted, observed in told]
        )
        for k in range(points // 2 + 1)
    ]
    return int(np.argmin(errors))
