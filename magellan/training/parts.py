"""What the estimators of a run are built from: the same in training and in a replay."""

from __future__ import annotations

from dataclasses import replace

from magellan.backends import BACKENDS, Backend, make_backend
from magellan.competence import EstimatorParts
from magellan.config import Phase, RunConfig, phases_of
from magellan.core.randomness import Streams, initial_seeds
from magellan.training.evaluate import EvaluationSet, evaluation_sets
from magellan.worlds import WORLDS, GoalSet


def goals_of(config: RunConfig, phase: Phase) -> GoalSet:
    """Goals that a phase practises."""
    seed = phase.goals.seed
    assert seed != "run", "phases have the number"
    return WORLDS[config.world].goals(phase.goal_space, seed, phase.goals.split)


def evaluated_goals(
    config: RunConfig, phase: Phase, practised: GoalSet
) -> dict[str, EvaluationSet]:
    """Goals of both splits on which a phase is evaluated.

    Of the split that is practised they are from the goal space of the phase. Of the other one they
    are held-out goals of any kind, or those that a run on training goals would practise.

    practised: goals of the phase, `goals_of`.
    """
    budget = config.budget
    size, seed = budget.evaluation_goals, budget.evaluation_seed
    if practised.split == "train":
        return evaluation_sets(practised, size, seed)
    train = phase.goals.model_copy(update={"split": "train"})
    return evaluation_sets(goals_of(config, replace(phase, goals=train)), size, seed, practised)


def estimator_parts(
    config: RunConfig,
    streams: Streams | None = None,
    sampled: bool = True,
    backend: Backend | None = None,
) -> EstimatorParts:
    """Goal space, language model, streams and seed of a run at its start.

    streams: of the run; new ones where they are not given.
    sampled: whether a sampler chooses goals by what the estimators say.
    backend: the language model at its start; None: the one of the configuration is made.

    Raises:
        InputError: unknown goal space, missing backbone.
    """
    first = phases_of(config)[0]
    for_adapters, _, for_estimators = initial_seeds(first.seed)
    goals = goals_of(config, first)
    if backend is None:
        own = config.constants(BACKENDS[config.backend.kind])
        backend = make_backend(config.backbone, config.backend, for_adapters, goals.world, own)
    return EstimatorParts(
        goals,
        streams or Streams(first.seed),
        for_estimators,
        backend,
        sampled,
    )
