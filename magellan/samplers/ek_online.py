"""EK-Online-ALP: a category by its absolute learning progress, then any goal in it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from magellan.core.settings import Section
from magellan.samplers.base import GoalSampler
from magellan.samplers.registry import SamplerParts, register_sampler
from magellan.samplers.signals import absolute_learning_progress


class EkOnlineSettings(Section):
    """The sampler `ek_online`."""

    explore: Literal["categories", "goals"] = Field(
        "categories", description="Explore over categories, as in the paper, or over `goals`."
    )


@register_sampler(
    "ek_online",
    "EK-Online-ALP",
    estimator="expert_buckets",
    settings=EkOnlineSettings,
    explores=lambda settings: "goals" if settings.explore == "goals" else "arms",
)
def build(parts: SamplerParts, settings: EkOnlineSettings) -> GoalSampler:
    """One window of outcomes per feasible category; no threshold on learning progress.

    Exploration is uniform over the categories that have goals, impossible included; exploitation
    chooses among the feasible ones, uniformly while all learning progress is 0. A group of answers
    is one outcome of its category's window. With `epsilon_end: 0` a category that failed at first
    is hardly drawn again.
    """
    return GoalSampler(
        parts.goals,
        parts.estimator,
        absolute_learning_progress,
        parts.epsilon,
        parts.rng,
        explore="goals" if settings.explore == "goals" else "arms",
    )
