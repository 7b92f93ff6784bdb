"""Simulated learners: goals of BabyAI-Text's five kinds, outcomes from a known competence.

Nothing is played. An episode is one step with one action, and succeeds with the competence that the
learner has for its goal. Competence grows with practice, and in each kind of goals only as fast as
that in the kind before allows: so it rises kind by kind. For tests of estimators and samplers that
need the truth.
"""

from __future__ import annotations

from magellan.worlds.simulated.grammar import KINDS
from magellan.worlds.simulated.learner import chance, practised
from magellan.worlds.simulated.world import SimulatedWorld, Trials

__all__ = ["KINDS", "SimulatedWorld", "Trials", "chance", "practised"]
