"""The competence estimators of a run: the driver of its sampler, and the observers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from magellan.backends import BACKENDS, Backend, make_backend
from magellan.competence import (
    ESTIMATORS,
    CompetenceEstimator,
    EstimatorParts,
    Outcomes,
    make_estimator,
)
from magellan.competence.prompt_tokens import GoalFeatures
from magellan.config import Phase, RunConfig, estimators_of, phases_of
from magellan.config.phases import goals_of
from magellan.core.errors import InputError
from magellan.core.finite import check_losses
from magellan.core.randomness import Streams, initial_seeds
from magellan.samplers import SAMPLERS, ExponentialEpsilon, GoalSampler, SamplerParts, make_sampler
from magellan.samplers.registry import no_features

if TYPE_CHECKING:
    from magellan.worlds import GoalSet

Play = Callable[[np.ndarray, np.random.Generator], np.ndarray]
"""(goals (n,), random stream) -> success of one episode each (n,)."""


EVALUATION_OF = "evaluation of {}"
"""Random stream of an estimator's evaluation episodes."""
ESTIMATOR_LOST = (
    "the sampler {!r} brings its own estimator, which would begin anew with other goals"
)


def estimator_parts(
    config: RunConfig,
    streams: Streams | None = None,
    scores_candidates: bool = True,
    backend: Backend | None = None,
) -> EstimatorParts:
    """Return goal space, language model, streams and seed of a run at its start.

    streams: of the run; None: new ones.
    scores_candidates: whether a sampler chooses goals by the estimates.
    backend: the language model at its start; None: built from the configuration.

    Raises:
        InputError: unknown goal space, missing backbone.
    """
    first = phases_of(config)[0]
    adapter_seed, _, estimator_seed = initial_seeds(first.seed)
    goals = goals_of(config, first)
    if backend is None:
        constants = config.constants(BACKENDS[config.backend.kind])
        backend = make_backend(
            config.backbone, config.backend, adapter_seed, goals.world, constants
        )
    streams = streams or Streams(first.seed)
    return EstimatorParts(goals, streams, estimator_seed, backend, scores_candidates)


class Estimators:
    """All estimators of a run by name; all learn from the same outcomes.

    The sampler updates the driver, `update` the observers. An estimator behaves the same as driver
    or observer, and observers do not affect the run.

    transcript: file for what a chat model is asked; None: none.
    """

    def __init__(
        self, config: RunConfig, parts: EstimatorParts, transcript: Path | None = None
    ) -> None:
        self._config, self._transcript = config, transcript
        self.driver: str | None = None
        self.by_name = {
            name: make_estimator(name, parts, config.constants(ESTIMATORS[name]))
            for name in estimators_of(config)
        }
        self._stream = parts.stream
        self._features = None if parts.backend is None else GoalFeatures(parts.backend)
        self._streams = {name: self._stream(EVALUATION_OF.format(name)) for name in self.by_name}

    def start_sampler(self, name: str, goals: GoalSet, rng: np.random.Generator) -> GoalSampler:
        """Make the sampler of this name; its estimator becomes the driver.

        An estimator that the sampler brings itself, instead of naming one, has the sampler's name
        and is removed with the sampler.
        """
        config, spec = self._config, SAMPLERS[name]
        if self.driver is not None and self.driver not in estimators_of(config):
            del self.by_name[self.driver], self._streams[self.driver]
        self.driver = spec.driver(config.samplers.estimator)
        common = config.samplers
        epsilon = ExponentialEpsilon(common.epsilon_start, common.epsilon_end, common.epsilon_decay)
        estimator = self.by_name[self.driver] if self.driver else None
        read = no_features if self._features is None else partial(self._features, goals)
        embed = no_features if self._features is None else self._features.of
        parts = SamplerParts(
            goals, rng, epsilon, estimator, read, config.seed, embed, self._transcript
        )
        sampler = make_sampler(name, parts, config.constants(spec))
        if sampler.estimator is not None and sampler.estimator is not estimator:
            self.driver = name
            self.by_name = {self.driver: sampler.estimator, **self.by_name}
            self._streams[self.driver] = self._stream(EVALUATION_OF.format(name))
        return sampler

    def check_phases(self, phases: Sequence[Phase]) -> None:
        """Raise InputError if the goals change and an estimator, or its sampler, cannot go on."""
        if all(phase.has_goals_of(phases[0]) for phase in phases):
            return
        for name, estimator in self.by_name.items():
            if name not in estimators_of(self._config):
                pairs = itertools.pairwise(phases)
                if any(a.sampler == b.sampler == name and not a.has_goals_of(b) for a, b in pairs):
                    raise InputError(
                        f"phases: {ESTIMATOR_LOST.format(name)}; allowed: the same goals"
                    )
            elif type(estimator).set_goal_space is CompetenceEstimator.set_goal_space:
                raise InputError(
                    f"phases: the estimator {name!r} cannot continue with other goals; allowed: "
                    "the same goals in all phases, or an estimator with a method `set_goal_space`"
                )

    def set_goal_space(self, goals: GoalSet) -> None:
        """Switch to another goal space; `start_sampler` replaces what a sampler brought."""
        for name in estimators_of(self._config):
            self.by_name[name].set_goal_space(goals)

    @property
    def observers(self) -> Mapping[str, CompetenceEstimator]:
        """Estimators that do not drive the sampler."""
        items = self.by_name.items()
        return {name: estimator for name, estimator in items if name != self.driver}

    def play_wanted(self, episodes: int, play: Play) -> None:
        """Play the goals that estimators request after this number of training episodes."""
        for name, estimator in self.by_name.items():
            goals = estimator.goals_to_evaluate(episodes)
            if goals is not None:
                estimator.record_evaluation(Outcomes(goals, play(goals, self._streams[name])))

    def update(self, outcomes: Outcomes) -> None:
        """Update the observers, once per policy update, after the sampler's update."""
        for observer in self.observers.values():
            observer.update(outcomes)

    def check(self, updates: int) -> dict[str, float]:
        """Return the driver's losses by name; NotFiniteError if any estimator's is not finite."""
        for name, observer in self.observers.items():
            losses = {f"{loss} of {name}": value for loss, value in observer.losses().items()}
            check_losses(updates, losses)
        losses = self.by_name[self.driver].losses() if self.driver else {}
        check_losses(updates, losses)
        return losses

    def cost(self) -> dict[str, int]:
        """Return the number of episodes played only for each estimator."""
        return {name: estimator.cost for name, estimator in self.by_name.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return observers and evaluation streams; the driver is in the sampler's state."""
        observers = self.observers.items()
        return {
            "observers": {name: estimator.state_dict() for name, estimator in observers},
            "streams": {name: rng.bit_generator.state for name, rng in self._streams.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`."""
        for name, observer in self.observers.items():
            observer.load_state_dict(state["observers"][name])
        for name, rng in self._streams.items():
            rng.bit_generator.state = state["streams"][name]
