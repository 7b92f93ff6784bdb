"""Scripted: fixed shares of practice per category, in stages; outcomes are ignored.

Shows what an agent learns from a given practice: to tune a learner without a sampler, or to replay
the practice that a sampler chose in another run.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field, field_validator

from magellan.core.errors import InputError
from magellan.core.settings import Count, Section, Seed
from magellan.samplers.base import NEVER, GoalSampler
from magellan.samplers.registry import SamplerParts, register_sampler


class Stage(Section):
    """A number of policy updates with the same shares."""

    updates: Count = Field(10**9, description="Policy updates in this stage.")
    shares: tuple[float, ...] = Field(
        min_length=1,
        description="Share of episodes per category, in the world's order; need not sum to one.",
    )

    @field_validator("shares")
    @classmethod
    def _check_shares(cls, shares: tuple[float, ...]) -> tuple[float, ...]:
        if min(shares) < 0 or sum(shares) <= 0:
            raise ValueError("Input should be numbers >= 0, not all 0")
        return shares


class ScriptedSettings(Section):
    """The script of the sampler `scripted`."""

    stages: tuple[Stage, ...] = Field(
        (),
        max_length=1000,
        description="Stages in order, `{updates, shares}` each; the last one lasts. Empty: equal "
        "shares of feasible categories.",
    )
    by_seed: dict[Seed, tuple[Stage, ...]] = Field(
        {}, description="Stages for single seeds instead."
    )


class Scripted(GoalSampler):
    """Draws a category by the shares of the current stage, then any goal in it.

    shares: per stage, float64 (stages, categories), rows sum to one.
    ends: updates at which each stage but the last ends, int64 (stages - 1,).
    """

    def __init__(self, parts: SamplerParts, shares: np.ndarray, ends: np.ndarray) -> None:
        self._shares, self._ends = shares, ends
        super().__init__(parts.goals, None, None, NEVER, parts.rng, arms="categories")

    @property
    def shares(self) -> np.ndarray:
        """Probability of each category at the next draw, float64 (categories,)."""
        return self._shares[np.searchsorted(self._ends, self.step, side="right")]

    def sample(self, n: int) -> np.ndarray:
        """`n` goals with replacement: positions in the goal space, (n,) int64."""
        categories = self._rng.choice(len(self.shares), size=n, p=self.shares)
        return self.arms.draw_goals(categories, self._rng)

    def probabilities(self) -> np.ndarray:
        """Probability of each goal at the next draw, (n_goals,) float64, sums to one."""
        return self.arms.spread(self.shares)


@register_sampler("scripted", "Scripted", settings=ScriptedSettings, epsilon=False, ordered=True)
def build(parts: SamplerParts, settings: ScriptedSettings) -> GoalSampler:
    """Shares are given for every category, 0 for those without goals; others are refused."""
    feasible = (parts.goals.feasible & (parts.goals.sizes > 0)).astype(np.float64)
    key, stages = "stages", settings.stages
    if parts.seed in settings.by_seed:
        key, stages = f"by_seed.{parts.seed}", settings.by_seed[parts.seed]
    rows = [stage.shares for stage in stages] or [tuple(feasible)]
    for row in rows:
        if len(row) != len(feasible) or any(np.array(row)[parts.goals.sizes == 0]):
            raise InputError(
                f"scripted.{key}: shares {list(row)} do not fit; allowed: {len(feasible)} numbers,"
                f" 0 for categories without goals (goals of each: {parts.goals.sizes.tolist()})"
            )
    shares = np.array(rows, dtype=np.float64)
    ends = np.cumsum([stage.updates for stage in stages[:-1]], dtype=np.int64)
    return Scripted(parts, shares / shares.sum(axis=1, keepdims=True), ends)
