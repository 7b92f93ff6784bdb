"""Rows of `competence.csv` and `goals.csv`: what an estimator says of the evaluated goals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from magellan.training.evaluate import EvaluationSet, mean_competence


def competence_rows(
    goals: EvaluationSet, now: np.ndarray, delayed: np.ndarray
) -> Iterator[dict[str, Any]]:
    """Means over the evaluated goals of each category; impossible goals are among them.

    now, delayed: competences (n,) of the goals.
    """
    for means in mean_competence(goals.kinds, goals.categories, now, delayed):
        yield {
            "category": means.category,
            "n": means.n,
            "competence": means.now,
            "delayed_competence": means.delayed,
            "learning_progress": means.progress,
        }


def goal_rows(
    goals: EvaluationSet, success: np.ndarray, now: np.ndarray, delayed: np.ndarray
) -> Iterator[dict[str, Any]]:
    """A row for each evaluated goal; impossible ones cannot win.

    success, now, delayed: (n,), 0 or 1, and competences.
    """
    codes, names = goals.space.codes_at(goals.positions), goals.kinds.names
    for row in zip(codes, goals.categories, success, now, delayed, strict=True):
        code, category, won, here, before = row
        yield {
            "goal": int(code),
            "category": names[category],
            "success": int(won),
            "competence": float(here),
            "delayed_competence": float(before),
        }
