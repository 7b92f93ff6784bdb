"""Columns of a run's tables, shared by trainer and analysis."""

from __future__ import annotations

POINT = ("update", "step", "episode")
"""Columns that say when a row was written."""
CRITIC = ("value", "dormant", "spread")
"""Columns of `evaluation` about the critic."""
PREDICTED = ("competence", "delayed_competence")
LOSSES = ("critic_loss", "actor_loss", "entropy", "temperature", "competence_loss")

COLUMNS: dict[str, tuple[str, ...]] = {
    "evaluation": (*POINT, "split", "category", "n", "success", *CRITIC),
    "competence": (*POINT, "estimator", "split", "category", "n", *PREDICTED, "learning_progress"),
    "practice": ("episode", "category", "n", "successes"),
    "goals": (*POINT, "estimator", "split", "goal", "category", "success", *PREDICTED),
    "outcomes": ("update", "goal", "category", "standing_on", "success", "explored"),
    "training": (*POINT, *LOSSES, "epsilon"),
}

OPTIONAL = ("goals", "outcomes")
"""Tables that a run writes only if configured."""

NAMES = ("split", "category", "estimator")
"""Columns of strings; all others hold numbers."""
PHASE = "phase"
"""First column of all tables of a run with phases; phases are numbered from 1."""
