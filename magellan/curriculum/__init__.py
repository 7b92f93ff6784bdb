"""Goal samplers for your own training loop.

Samplers, estimators and random streams are those of a run: with the same outcomes, a `Curriculum`
draws the same goals. But all answers to a goal in one update are one outcome, and goals come in the
order of their rows: the order of answers has no meaning. Needs only numpy, except for `magellan`
and other samplers whose estimator reads goals with a model.
"""

from __future__ import annotations

from magellan.curriculum.answers import GATES, Gate, checked_gate, group_advantages
from magellan.curriculum.build import Settings, backend_for
from magellan.curriculum.curriculum import Curriculum

__all__ = [
    "GATES",
    "Curriculum",
    "Gate",
    "Settings",
    "backend_for",
    "checked_gate",
    "group_advantages",
]
