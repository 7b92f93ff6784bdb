"""Columns of a run's tables, shared by trainer and analysis."""

from __future__ import annotations

CRITIC = ("value", "dormant", "spread")
"""Columns of `evaluation` about the critic."""

COLUMNS: dict[str, tuple[str, ...]] = {
    "evaluation": ("update", "step", "episode", "split", "category", "n", "success", *CRITIC),
    "competence": (
        "update",
        "step",
        "episode",
        "estimator",
        "split",
        "category",
        "n",
        "competence",
        "delayed_competence",
        "learning_progress",
    ),
    "practice": ("episode", "category", "n", "successes"),
    "goals": (
        "update",
        "step",
        "episode",
        "estimator",
        "split",
        "goal",
        "category",
        "success",
        "competence",
        "delayed_competence",
    ),
    "outcomes": ("update", "goal", "category", "standing_on", "success", "explored"),
    "training": (
        "update",
        "step",
        "episode",
        "critic_loss",
        "actor_loss",
        "entropy",
        "temperature",
        "competence_loss",
        "epsilon",
    ),
}

OPTIONAL = ("goals", "outcomes")
"""Tables that a run writes only if configured."""

NAMES = ("split", "category", "estimator")
"""Columns of strings; all others hold numbers."""
PHASE = "phase"
"""First column of all tables of a run with phases; phases are numbered from 1."""
