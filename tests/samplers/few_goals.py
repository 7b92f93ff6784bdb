"""A goal space small enough to work out probabilities by hand, and the samplers over it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from magellan.competence import (
    ESTIMATORS,
    CompetenceEstimator,
    EstimatorParts,
    Outcomes,
    make_estimator,
)
from magellan.competence.arms import Regions
from magellan.competence.ensemble import Ensemble, EnsembleSettings
from magellan.samplers import (
    SAMPLERS,
    ExponentialEpsilon,
    GoalSampler,
    SamplerParts,
    make_sampler,
)


class FewGoals:
    """Goals known by their categories alone, in no particular order."""

    def __init__(self, categories: list[int]) -> None:
        self.categories = np.array(categories, dtype=np.int8)

    def __len__(self) -> int:
        return len(self.categories)

    @property
    def sizes(self) -> np.ndarray:
        return np.bincount(self.categories, minlength=5)

    @property
    def feasible(self) -> np.ndarray:
        return np.arange(5) > 0

    def categories_at(self, positions: np.ndarray) -> np.ndarray:
        return self.categories[positions]

    def nth(self, category: int, ranks: np.ndarray) -> np.ndarray:
        return np.flatnonzero(self.categories == category)[ranks]


class CompetenceOfGoalNumber(CompetenceEstimator):
    """Stands in for the learned estimator: competence drifts, goal by goal, with each success."""

    def __init__(self, n_goals: int) -> None:
        self._n_goals = n_goals
        self._successes = 0

    def update(self, outcomes: Outcomes) -> None:
        self._successes += int(outcomes.success.sum())

    def known(self) -> np.ndarray:
        return np.arange(self._n_goals)

    def competence(self, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return 0.5 + 0.5 * np.sin(which + self._successes), 0.5 + 0.5 * np.sin(which)

    def predict(self, goals, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.competence(positions)

    def state_dict(self) -> dict[str, Any]:
        return {"successes": self._successes}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._successes = state["successes"]


class CompetenceOfRegions(CompetenceOfGoalNumber):
    """Stands in for learned groups: four regions, others after some successes."""

    def __init__(self, n_goals: int) -> None:
        super().__init__(n_goals)
        self.arms = Regions(n_goals, 4)
        self._group()

    def _group(self) -> None:
        goals = np.arange(self._n_goals)
        self.arms.assign((goals * (1 + 2 * (self._successes // 20)) + self._successes // 50) % 4)
        self.goals = super().competence(goals)
        self.arms.prefer(np.abs(self.goals[0] - self.goals[1]))

    def update(self, outcomes: Outcomes) -> None:
        super().update(outcomes)
        self._group()

    def known(self) -> np.ndarray:
        return np.arange(4)

    def competence(self, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        now, delayed = (self.arms.mean_of(each)[which] for each in self.goals)
        return now, delayed

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._group()


TEN_GOALS = FewGoals([0, 1, 4, 0, 0, 1, 1, 2, 4, 0])
"""4 impossible (0, 3, 4, 9), 3 grasp (1, 5, 6), 1 plant (7), 2 carnivores (2, 8), no herbivore."""


def exploration(**settings: float) -> ExponentialEpsilon:
    """Epsilon from the keys of the section `samplers`, and what is left of the settings."""
    names = {"epsilon_start": "start", "epsilon_end": "end", "epsilon_decay": "decay"}
    return ExponentialEpsilon(**{names[key]: value for key, value in settings.items()})


def features(goals: FewGoals, positions: np.ndarray | None = None) -> np.ndarray:
    """Stands in for a language model: three numbers that follow from a goal's place."""
    where = np.arange(len(goals)) if positions is None else positions
    return np.sin(np.outer(where + 1, [1.0, 2.0, 3.0])).astype(np.float32)


def estimator_of(
    name: str | None, goals: FewGoals, seed: int = 0, **settings: Any
) -> CompetenceEstimator | None:
    """The estimator that a sampler follows; a stand-in for one that needs a model."""
    if name is None:
        return None
    if name == "learned":
        return CompetenceOfGoalNumber(len(goals))
    if name == "ensemble":
        return Ensemble(goals, features, EnsembleSettings(), np.random.default_rng(seed))
    if name == "learned_groups":
        return CompetenceOfRegions(len(goals))
    parts = EstimatorParts(goals, lambda stream: np.random.default_rng([seed, *stream.encode()]))
    known = ESTIMATORS[name].settings
    chosen = {key: value for key, value in settings.items() if key in known.model_fields}
    return make_estimator(name, parts, known(**chosen))


def make(name: str, goals: FewGoals = TEN_GOALS, seed: int = 0, **settings: Any) -> GoalSampler:
    """Any sampler of the registry; each part takes those settings that are its own."""
    spec = SAMPLERS[name]
    epsilon = {key: value for key, value in settings.items() if key.startswith("epsilon")}
    own = {key: value for key, value in settings.items() if key in spec.settings.model_fields}
    rng = np.random.default_rng(seed)
    estimator = estimator_of(spec.estimator, goals, seed, **settings)
    read = partial(features, goals)
    parts = SamplerParts(goals, rng, exploration(**epsilon), estimator, read)
    return make_sampler(name, parts, spec.settings(**own))


def outcomes(*pairs: tuple[int, int], standing_on: list[int] | None = None) -> Outcomes:
    """Episodes as (goal, success), oldest first; all start on bare ground unless said otherwise."""
    goals, success = np.array(pairs).T if pairs else (np.empty(0), np.empty(0))
    return Outcomes(goals, success, np.array(standing_on or [-1] * len(pairs)))
