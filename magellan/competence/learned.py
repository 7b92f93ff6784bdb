"""The language model predicts its own success: the estimator of MAGELLAN, and its constants.

The estimator itself is in `magellan.competence.learned_estimator`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from magellan.competence.registry import EstimatorParts, register_estimator
from magellan.core.errors import InputError
from magellan.core.settings import BatchSize, Count, Section, StepSize, Width

if TYPE_CHECKING:
    from magellan.competence.learned_estimator import LearnedCompetence


class LearnedSettings(Section):
    """The estimator `learned`, MAGELLAN's competence head."""

    learning_rate: StepSize = Field(1e-4, description="Adam step size of head and adapter.")
    adapter: Literal["own", "shared", "policy", "frozen", "ignored"] = Field(
        "own",
        description="Adapter that the head reads with: `own` (A in the paper's Figure 9); the "
        "policy's, which both train (`shared`, B) or the policy alone (`policy`, C); none "
        "(`frozen`, D). `ignored`: it trains its own, but predicts with the policy's (defect B1 of "
        "the released code with the public lamorel).",
    )
    hidden: Width = Field(128, description="Width of the head's hidden layer (tanh).")
    buffer: Count = Field(5_000, description="Most recent episodes kept.")
    batch_size: BatchSize = Field(256, description="Episodes per update, drawn by recency rank.")
    delay: Count = Field(
        100, description="N: updates between the current and the delayed estimate."
    )
    update_every: Count = Field(
        1,
        description="Policy updates between two gradient steps: 1 as released; by the paper's text "
        "32.",
    )
    refresh: Count = Field(32, description="Updates between two evaluations of the goal space.")
    pool: int = Field(
        25_000,
        ge=2,
        le=10**9,
        description="Predictions per refresh, at most. A goal space with more goals is sampled: "
        "half as many goals, drawn anew, each predicted now and delayed.",
    )
    refresh_batch: Count = Field(512, description="Goals per forward pass of a refresh.")

    @model_validator(mode="after")
    def _old_enough_snapshots(self) -> LearnedSettings:
        if self.delay < self.refresh:
            raise InputError(
                f"competence.delay: {self.delay} is not allowed: snapshots are taken every "
                f"competence.refresh = {self.refresh} updates, so learning progress would stay 0; "
                f"allowed: {self.refresh} or more"
            )
        return self


@register_estimator("learned", "Learned", LearnedSettings, section="competence")
def build(parts: EstimatorParts, settings: LearnedSettings) -> LearnedCompetence:
    """Head, adapter and delayed copy on the run's language model."""
    from magellan.competence.learned_estimator import LearnedCompetence

    assert parts.backend is not None
    streams = parts.stream("competence"), parts.stream("pool")
    return LearnedCompetence(
        parts.backend, parts.goals, settings, *streams, parts.seed, parts.sampled
    )
