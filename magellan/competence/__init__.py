"""Who estimates p(success | goal), now and some updates ago."""

from magellan.competence.base import CompetenceEstimator, Outcomes
from magellan.competence.expert_buckets import ExpertBuckets
from magellan.competence.per_goal import PerGoalWindows

__all__ = ["CompetenceEstimator", "ExpertBuckets", "Outcomes", "PerGoalWindows"]
