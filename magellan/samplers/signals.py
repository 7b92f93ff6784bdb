"""What makes a goal worth practising: weights from competence, now and delayed.

All take float64 arrays (n,) with values in [0, 1] and give weights (n,), none negative, to draw
goals in proportion to.
"""

from __future__ import annotations

import numpy as np


def absolute_learning_progress(
    now: np.ndarray, delayed: np.ndarray, threshold: float = 0.0
) -> np.ndarray:
    """|now - delayed|, and 0 where that is below `threshold` (Gaven et al. 2025, ALP)."""
    progress = np.abs(now - delayed)
    return np.where(progress < threshold, 0.0, progress)


def learnability(now: np.ndarray, delayed: np.ndarray) -> np.ndarray:
    """now (1 - now), the variance of an outcome: largest where success is a coin toss."""
    return now * (1.0 - now)
