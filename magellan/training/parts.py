"""What the estimators of a run are built from: the same in training and in a replay."""

from __future__ import annotations

from magellan.backends import Backend, make_backend
from magellan.competence import EstimatorParts
from magellan.config import RunConfig
from magellan.training.randomness import initial_seeds, stream
from magellan.worlds import WORLDS


def estimator_parts(
    config: RunConfig, sampled: bool = True, backend: Backend | None = None
) -> EstimatorParts:
    """Goal space, language model, streams and seed of a run at its start.

    sampled: whether a sampler chooses goals by what the estimators say.
    backend: the language model at its start; None: the one of the configuration is made.

    Raises:
        InputError: unknown goal space, missing backbone.
    """
    for_adapters, _, for_estimators = initial_seeds(config.seed)
    world = WORLDS[config.world]
    goals = world.goals(config.goal_space, config.goals.seed)
    if backend is None:
        backend = make_backend(config.backbone, config.backend, for_adapters, world)
    return EstimatorParts(
        goals,
        lambda name: stream(config.seed, name),
        for_estimators,
        backend,
        sampled,
    )
