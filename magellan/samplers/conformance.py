"""The contract of every sampler, as checks by name over ten goals; they take a second.

The tests run them over the registry, `python -m magellan submit` over a file of yours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
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
from magellan.core.errors import InputError
from magellan.samplers import SAMPLERS, make_sampler
from magellan.samplers.base import ExponentialEpsilon, GoalSampler
from magellan.samplers.registry import SamplerParts
from magellan.worlds import NOTHING, Categories, Category
from magellan.worlds.texts import TextGoals, Texts

SAME, GROUPS = "same information", "groups given"
"""Tracks: whether a sampler gets the categories of goals, and which are impossible."""


class FewGoals(TextGoals):
    """A goal space given by the category of each goal, in any order; the first is impossible."""

    def __init__(self, categories: list[int]) -> None:
        kinds = Categories(Category(f"kind {kind}", feasible=kind > 0) for kind in range(5))
        world = Texts([], np.array(categories), kinds)
        super().__init__(world, np.arange(len(categories)))

    def prompt(self, position: int, standing_on: int = NOTHING) -> str:
        name, other = chr(ord("a") + position), chr(ord("a") + position // 2)
        return f"Goal: Find {name}\nYou see: {name}, {other}\nAction: "


TEN_GOALS = FewGoals([0, 1, 4, 0, 0, 1, 1, 2, 4, 0])
"""4 impossible (0, 3, 4, 9), 3 grasp (1, 5, 6), 1 plant (7), 2 carnivores (2, 8), no herbivore."""
SETTINGS: Mapping[str, Any] = {
    "epsilon_decay": 20.0,
    "every": 50,
    "ask_every": 5,
    "proposals": 2,
    "retrieved": 2,
    "episodes": 20,
    "fit_every": 100,
    "batch": 50,
    "updates": 50,
}
"""Fast decay of epsilon; evaluations, fits and batches every few updates."""
DRAWS = 200_000
ERRORS = 5.0
"""Largest deviation of a frequency from its probability, in standard errors."""


class CompetenceOfGoalNumber(CompetenceEstimator):
    """Stand-in for the learned estimator: each goal's competence drifts with every success."""

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
    """Stand-in for learned groups: four regions, which change after some successes."""

    def __init__(self, n_goals: int) -> None:
        super().__init__(n_goals)
        self.arms: Regions = Regions(n_goals, 4)
        self._group()

    def _group(self) -> None:
        goals = np.arange(self._n_goals)
        self.arms.assign((goals * (1 + 2 * (self._successes // 20)) + self._successes // 50) % 4)
        self.goals = super().competence(goals)

    def update(self, outcomes: Outcomes) -> None:
        super().update(outcomes)
        self._group()

    def known(self) -> np.ndarray:
        return np.arange(4)

    def competence(self, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        now, delayed = (self.arms.mean_of(values)[which] for values in self.goals)
        return now, delayed

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._group()


def exploration(**settings: float) -> ExponentialEpsilon:
    """Epsilon schedule from the keys `epsilon_*` of the section `samplers`."""
    return ExponentialEpsilon(**{k.removeprefix("epsilon_"): v for k, v in settings.items()})


def features(goals: FewGoals, positions: np.ndarray | None = None) -> np.ndarray:
    """Stand-in for a language model: three features computed from a goal's position."""
    positions = np.arange(len(goals)) if positions is None else positions
    return np.sin(np.outer(positions + 1, [1.0, 2.0, 3.0])).astype(np.float32)


def embedded(prompts: Sequence[str]) -> np.ndarray:
    """The same of any prompt, here of its length."""
    return np.sin(np.outer([len(prompt) for prompt in prompts], [1.0, 2.0, 3.0]))


def estimator_of(
    name: str | None, goals: FewGoals, seed: int = 0, **settings: Any
) -> CompetenceEstimator | None:
    """The estimator `name`, or a stand-in if it needs a language model."""
    if name is None:
        return None
    if name == "learned":
        return CompetenceOfGoalNumber(len(goals))
    if name == "learned_groups":
        return CompetenceOfRegions(len(goals))
    if name == "ensemble":
        return Ensemble(goals, features, EnsembleSettings(), np.random.default_rng(seed))
    parts = EstimatorParts(goals, lambda stream: np.random.default_rng([seed, *stream.encode()]))
    section = ESTIMATORS[name].settings
    own = {key: value for key, value in settings.items() if key in section.model_fields}
    return make_estimator(name, parts, section(**own))


def make(name: str, goals: FewGoals = TEN_GOALS, seed: int = 0, **settings: Any) -> GoalSampler:
    """Build a registered sampler; each part takes the settings that belong to it."""
    spec = SAMPLERS[name]
    epsilon = {key: value for key, value in settings.items() if key.startswith("epsilon")}
    own = {key: value for key, value in settings.items() if key in spec.settings.model_fields}
    rng = np.random.default_rng(seed)
    estimator = estimator_of(spec.estimator, goals, seed, **settings)
    read = partial(features, goals)
    parts = SamplerParts(goals, rng, exploration(**epsilon), estimator, read, embed=embedded)
    return make_sampler(name, parts, spec.settings(**own))


class WatchedGoals(FewGoals):
    """Notes whether the goals' categories are read."""

    read = False

    @cached_property
    def sizes(self) -> np.ndarray:
        self.read = True
        return super().sizes

    def categories_at(self, positions: np.ndarray) -> np.ndarray:
        self.read = True
        return super().categories_at(positions)

    def nth(self, category: int, ranks: np.ndarray) -> np.ndarray:
        self.read = True
        return super().nth(category, ranks)


def track_of(name: str) -> str:
    """Track of a sampler: `GROUPS` if it, or its estimator, reads categories; otherwise `SAME`."""
    goals = WatchedGoals(TEN_GOALS.categories.tolist())
    sampler = make(name, goals, **SETTINGS)
    practise(sampler, np.random.default_rng(1), updates=3)
    return GROUPS if goals.read else SAME


def practise(sampler: GoalSampler, episodes: np.random.Generator, updates: int) -> None:
    """Run a mock training loop, in which later goals succeed more often."""
    for update in range(updates):
        goals = sampler.sample(8)
        success = episodes.random(8) < goals / 10
        if sampler.estimator is not None:
            evaluated = sampler.estimator.goals_to_evaluate(8 * update)
            if evaluated is not None:
                outcome = episodes.random(len(evaluated)) < evaluated / 10
                sampler.estimator.record_evaluation(Outcomes(evaluated, outcome))
        standing_on, advantage = episodes.integers(-1, 4, 8), episodes.random(8)
        sampler.update(Outcomes(goals, success, standing_on, advantage=advantage))


def practised(name: str, seed: int = 0) -> GoalSampler:
    """A sampler after 43 updates: a prime, so that no period hides; epsilon is well below 1."""
    sampler = make(name, seed=seed, **SETTINGS)
    practise(sampler, np.random.default_rng(1), updates=43)
    return sampler


def through_json(state: Any) -> Any:
    """Round-trip a state as a checkpoint does: arrays are copied, the rest goes through JSON."""
    if isinstance(state, dict):
        return {key: through_json(value) for key, value in state.items()}
    return state.copy() if isinstance(state, np.ndarray) else json.loads(json.dumps(state))


def check_probabilities(name: str) -> None:
    """Initially and after practice they are finite, not negative and sum to one."""
    for sampler in (make(name), practised(name)):
        p = np.asarray(sampler.probabilities())
        if p.shape != (len(TEN_GOALS),) or not np.isfinite(p).all() or p.min() < 0:
            raise InputError(f"probabilities of {len(TEN_GOALS)} goals are {p.tolist()}")
        if abs(p.sum() - 1.0) > 1e-12:
            raise InputError(f"probabilities sum to {p.sum():.12g}, not to 1")


def check_draws(name: str) -> None:
    """Each frequency of many draws is within a few standard errors of its probability."""
    sampler = practised(name)
    p = sampler.probabilities()
    drawn = np.asarray(sampler.sample(DRAWS))
    if drawn.shape != (DRAWS,) or drawn.min() < 0 or drawn.max() >= len(TEN_GOALS):
        raise InputError(f"draws of {DRAWS} goals have the shape {drawn.shape}, or are not goals")
    frequencies = np.bincount(drawn, minlength=len(TEN_GOALS)) / DRAWS
    error = np.sqrt(p * (1 - p).clip(0.0) / DRAWS)
    wrong = np.flatnonzero(np.abs(frequencies - p) > ERRORS * error + 1e-12)
    if len(wrong):
        goal = wrong[0]
        raise InputError(
            f"goal {goal} has probability {p[goal]:.4f} but frequency {frequencies[goal]:.4f}"
        )


def check_seed(name: str) -> None:
    """The same seed gives the same draws: its own stream is its only randomness."""
    if not np.array_equal(practised(name).sample(50), practised(name).sample(50)):
        raise InputError("the same seed gives different draws: not all randomness is its stream's")


def check_resuming(name: str) -> None:
    """A sampler restored from a saved state continues exactly like the original."""
    first, restored = practised(name), make(name, seed=99, **SETTINGS)
    try:
        restored.load_state_dict(through_json(first.state_dict()))
    except (TypeError, ValueError, KeyError) as error:
        raise InputError(f"its state cannot be saved and restored ({error})") from None
    for sampler in (first, restored):
        practise(sampler, np.random.default_rng(2), updates=20)
    same = np.array_equal(first.probabilities(), restored.probabilities())
    if not same or not np.array_equal(first.sample(50), restored.sample(50)):
        raise InputError("a restored sampler continues differently: state_dict is incomplete")


CHECKS: Mapping[str, Callable[[str], None]] = {
    "probabilities are finite, not negative and sum to one": check_probabilities,
    "draws follow the probabilities": check_draws,
    "the same seed gives the same draws": check_seed,
    "saved and restored it goes on as if never stopped": check_resuming,
}
"""Each raises InputError if the sampler of this name fails it."""
