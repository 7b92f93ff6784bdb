"""Signals: weights from competence, now and delayed.

All take float64 arrays (n,) in [0, 1] and return non-negative weights (n,) to draw goals in
proportion to.
"""

from __future__ import annotations

import numpy as np


def absolute_learning_progress(
    now: np.ndarray, delayed: np.ndarray, threshold: float = 0.0
) -> np.ndarray:
    """ALP = |now - delayed|, 0 where below `threshold` (Gaven et al. 2025)."""
    progress = np.abs(now - delayed)
    return np.where(progress < threshold, 0.0, progress)


def learnability(now: np.ndarray, delayed: np.ndarray) -> np.ndarray:
    """p (1 - p), the variance of an outcome; p is current competence."""
    return now * (1.0 - now)
