"""The competence estimators of a run: the one that drives its sampler, and those that watch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from magellan.competence import ESTIMATORS, CompetenceEstimator, Outcomes, make_estimator
from magellan.competence.features import GoalFeatures
from magellan.competence.registry import EstimatorParts
from magellan.config import Phase, RunConfig, driver_of, estimators_of
from magellan.core.errors import InputError
from magellan.core.finite import check_losses
from magellan.samplers import SAMPLERS, ExponentialEpsilon, GoalSampler, SamplerParts, make_sampler
from magellan.samplers.registry import no_features

if TYPE_CHECKING:
    from magellan.worlds import GoalSet

Play = Callable[[np.ndarray, np.random.Generator], np.ndarray]
"""(goals (n,), stream) to the success of one episode each (n,)."""


class Estimators:
    """All estimators of a run by name; all learn from the same outcomes.

    The sampler updates its own; `update` does it for the others. None of them can tell whether it
    drives or watches, and a watcher changes nothing in the run.

    Args:
        config: the run's configuration.
        parts: what estimators are built from.
    """

    def __init__(self, config: RunConfig, parts: EstimatorParts) -> None:
        self._config = config
        self.driver: str | None = None
        self.by_name = {
            name: make_estimator(name, parts, config.constants(ESTIMATORS[name]))
            for name in estimators_of(config)
        }
        self._stream = parts.stream
        self._features = None if parts.backend is None else GoalFeatures(parts.backend)
        self._streams = {name: self._own_stream(name) for name in self.by_name}

    def _own_stream(self, name: str) -> np.random.Generator:
        """The stream of the episodes that an estimator has played."""
        return self._stream(f"evaluation of {name}")

    def drive(self, name: str, goals: GoalSet, rng: np.random.Generator) -> GoalSampler:
        """The sampler of this name, following its estimator, which is the driver from here on.

        One that a sampler brings itself, instead of naming it, is known by the sampler's name. It
        leaves with the sampler.
        """
        config, spec = self._config, SAMPLERS[name]
        if self.driver is not None and self.driver not in estimators_of(config):
            del self.by_name[self.driver], self._streams[self.driver]
        self.driver = driver_of(config, name)
        shared = config.samplers
        epsilon = ExponentialEpsilon(shared.epsilon_start, shared.epsilon_end, shared.epsilon_decay)
        estimator = self.by_name[self.driver] if self.driver else None
        read = no_features if self._features is None else partial(self._features, goals)
        parts = SamplerParts(goals, rng, epsilon, estimator, read)
        sampler = make_sampler(name, parts, config.constants(spec))
        if sampler.estimator is not None and sampler.estimator is not estimator:
            self.driver = name
            self.by_name = {self.driver: sampler.estimator, **self.by_name}
            self._streams[self.driver] = self._own_stream(self.driver)
        return sampler

    def check_phases(self, phases: Sequence[Phase]) -> None:
        """InputError where an estimator would have to go on with other goals and cannot."""
        if all(phase.has_goals_of(phases[0]) for phase in phases):
            return
        for name, estimator in self.by_name.items():  # before any sampler has brought one
            if type(estimator).set_goal_space is CompetenceEstimator.set_goal_space:
                raise InputError(
                    f"phases: the estimator {name!r} cannot go on with other goals; allowed: the "
                    "same goals in all phases, or an estimator that has the method `set_goal_space`"
                )

    def set_goal_space(self, goals: GoalSet) -> None:
        """Go on with another goal space; what a sampler brought itself is made anew by `drive`."""
        for name in estimators_of(self._config):
            self.by_name[name].set_goal_space(goals)

    @property
    def watchers(self) -> Mapping[str, CompetenceEstimator]:
        """Those that do not drive the sampler."""
        return {name: each for name, each in self.by_name.items() if name != self.driver}

    def play_wanted(self, episodes: int, play: Play) -> None:
        """Play what estimators want to see played after so many training episodes."""
        for name, estimator in self.by_name.items():
            goals = estimator.goals_to_evaluate(episodes)
            if goals is not None:
                estimator.record_evaluation(Outcomes(goals, play(goals, self._streams[name])))

    def update(self, outcomes: Outcomes) -> None:
        """Once per policy update, with the episodes finished since; after the sampler's update."""
        for watcher in self.watchers.values():
            watcher.update(outcomes)

    def check(self, updates: int) -> dict[str, float]:
        """Losses of the driver, by name; NotFiniteError if one of any estimator is not finite."""
        for name, watcher in self.watchers.items():
            losses = {f"{loss} of {name}": value for loss, value in watcher.losses().items()}
            check_losses(updates, losses)
        driving = self.by_name[self.driver].losses() if self.driver else {}
        check_losses(updates, driving)
        return driving

    def cost(self) -> dict[str, int]:
        """Episodes that each estimator had played only to estimate."""
        return {name: estimator.cost for name, estimator in self.by_name.items()}

    def state_dict(self) -> dict[str, Any]:
        """Watchers, and the streams of evaluations; the driver is in the sampler's state."""
        return {
            "watchers": {name: each.state_dict() for name, each in self.watchers.items()},
            "streams": {name: rng.bit_generator.state for name, rng in self._streams.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` gave."""
        for name, watcher in self.watchers.items():
            watcher.load_state_dict(state["watchers"][name])
        for name, rng in self._streams.items():
            rng.bit_generator.state = state["streams"][name]
