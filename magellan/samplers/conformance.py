"""The contract that every sampler keeps, as checks of one by its name, over ten goals, in a second.

The tests run them over the registry, `python -m magellan submit` over a file of yours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
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
from magellan.competence.arms import EachCategory, Regions
from magellan.competence.ensemble import Ensemble, EnsembleSettings
from magellan.core.errors import InputError
from magellan.samplers import SAMPLERS, make_sampler
from magellan.samplers.base import ExponentialEpsilon, GoalSampler
from magellan.samplers.registry import SamplerParts

SAME, GROUPS = "same information", "groups given"
"""Tracks: whether a sampler is told which goals belong together, and which are impossible."""


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

    def positions_in(self, other: Any, positions: np.ndarray) -> np.ndarray:
        """Goals are what they are by their place: -1 where there are not so many here."""
        return np.where(positions < len(self), positions, -1)


TEN_GOALS = FewGoals([0, 1, 4, 0, 0, 1, 1, 2, 4, 0])
"""4 impossible (0, 3, 4, 9), 3 grasp (1, 5, 6), 1 plant (7), 2 carnivores (2, 8), no herbivore."""
SETTINGS: Mapping[str, Any] = {
    "epsilon_decay": 20.0,
    "every": 50,
    "episodes": 20,
    "fit_every": 100,
    "batch": 50,
    "updates": 50,
}
"""Exploration that falls in time; evaluations, fits and batches of a few updates, where there are
some."""
DRAWS = 200_000
ERRORS = 5.0
"""Standard errors that a frequency may be away from its probability."""


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

    def predict(self, goals: Any, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.competence(positions)

    def state_dict(self) -> dict[str, Any]:
        return {"successes": self._successes}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._successes = state["successes"]


class CompetenceOfRegions(CompetenceOfGoalNumber):
    """Stands in for learned groups: four regions, others after some successes."""

    def __init__(self, n_goals: int) -> None:
        super().__init__(n_goals)
        self.arms: Regions = Regions(n_goals, 4)
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
    if name == "learned_groups":
        return CompetenceOfRegions(len(goals))
    few: Any = goals
    if name == "ensemble":
        return Ensemble(few, features, EnsembleSettings(), np.random.default_rng(seed))
    parts = EstimatorParts(few, lambda stream: np.random.default_rng([seed, *stream.encode()]))
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


def track_of(name: str) -> str:
    """Track of a sampler: `SAME`, or `GROUPS` where it chooses among the categories."""
    return GROUPS if isinstance(make(name).arms, EachCategory) else SAME


def practise(sampler: GoalSampler, episodes: np.random.Generator, updates: int) -> None:
    """Play as a training loop would, on made-up outcomes that lean to success on later goals."""
    for update in range(updates):
        goals = sampler.sample(8)
        success = episodes.random(8) < goals / 10
        if sampler.estimator is not None:
            wanted = sampler.estimator.wanted(8 * update)
            if wanted is not None:
                played = episodes.random(len(wanted)) < wanted / 10
                sampler.estimator.evaluated(Outcomes(wanted, played))
        standing_on, advantage = episodes.integers(-1, 4, 8), episodes.random(8)
        sampler.update(Outcomes(goals, success, standing_on, advantage=advantage))


def practised(name: str, seed: int = 0) -> GoalSampler:
    """A sampler after 43 updates, a prime, so that no period hides; epsilon is well below one."""
    sampler = make(name, seed=seed, **SETTINGS)
    practise(sampler, np.random.default_rng(1), updates=43)
    return sampler


def through_json(state: Any) -> Any:
    """What a checkpoint does to a state: arrays stay, the rest goes through JSON and back."""
    if isinstance(state, dict):
        return {key: through_json(value) for key, value in state.items()}
    return state.copy() if isinstance(state, np.ndarray) else json.loads(json.dumps(state))


def check_probabilities(name: str) -> None:
    """At the start and after practice they are finite, not negative, and sum to one."""
    for sampler in (make(name), practised(name)):
        found = np.asarray(sampler.probabilities())
        if found.shape != (len(TEN_GOALS),) or not np.isfinite(found).all() or found.min() < 0:
            raise InputError(f"probabilities of {len(TEN_GOALS)} goals are {found.tolist()}")
        if abs(found.sum() - 1.0) > 1e-12:
            raise InputError(f"probabilities sum to {found.sum():.12g}, not to 1")


def check_draws(name: str) -> None:
    """Many draws: each frequency within a few standard errors of its probability."""
    sampler = practised(name)
    probabilities = sampler.probabilities()
    drawn = np.asarray(sampler.sample(DRAWS))
    if drawn.shape != (DRAWS,) or drawn.min() < 0 or drawn.max() >= len(TEN_GOALS):
        raise InputError(f"draws of {DRAWS} goals have the shape {drawn.shape}, or are no goals")
    frequencies = np.bincount(drawn, minlength=len(TEN_GOALS)) / DRAWS
    error = np.sqrt(probabilities * (1 - probabilities).clip(0.0) / DRAWS)
    wrong = np.flatnonzero(np.abs(frequencies - probabilities) > ERRORS * error + 1e-12)
    if len(wrong):
        told, seen = probabilities[wrong[0]], frequencies[wrong[0]]
        raise InputError(f"goal {wrong[0]} has probability {told:.4f} and is drawn {seen:.4f}")


def check_seed(name: str) -> None:
    """Its own stream is its only randomness: the same seed gives the same draws."""
    if not np.array_equal(practised(name).sample(50), practised(name).sample(50)):
        raise InputError("the same seed gives other draws: it has randomness of its own")


def check_resuming(name: str) -> None:
    """One that takes over a saved state goes on exactly as the one that was saved."""
    first, restored = practised(name), make(name, seed=99, **SETTINGS)
    try:
        restored.load_state_dict(through_json(first.state_dict()))
    except (TypeError, ValueError, KeyError) as error:
        raise InputError(f"its state cannot be saved and restored ({error})") from None
    for sampler in (first, restored):
        practise(sampler, np.random.default_rng(2), updates=20)
    same = np.array_equal(first.probabilities(), restored.probabilities())
    if not same or not np.array_equal(first.sample(50), restored.sample(50)):
        raise InputError("a restored sampler goes on otherwise: its state is not all in state_dict")


CHECKS: Mapping[str, Callable[[str], None]] = {
    "probabilities are finite, not negative and sum to one": check_probabilities,
    "draws follow the probabilities": check_draws,
    "the same seed gives the same draws": check_seed,
    "saved and restored it goes on as if never stopped": check_resuming,
}
"""Each raises InputError where the sampler of this name fails it."""
