"""Inputs of a run's estimators, shared by training and replay."""

from __future__ import annotations

from dataclasses import replace

from magellan.backends import BACKENDS, Backend, make_backend
from magellan.competence import EstimatorParts
from magellan.config import Phase, RunConfig, phases_of
from magellan.core.randomness import Streams, initial_seeds
from magellan.training.evaluate import EvaluationSet, evaluation_sets
from magellan.worlds import WORLDS, GoalSet


def goals_of(config: RunConfig, phase: Phase) -> GoalSet:
    """Return the goals that a phase practises."""
    seed = phase.goals.seed
    assert seed != "run", "phases have a number"
    return WORLDS[config.world].goals(phase.goal_space, seed, phase.goals.split)


def evaluated_goals(
    config: RunConfig, phase: Phase, practised: GoalSet
) -> dict[str, EvaluationSet]:
    """Return the goals on which a phase is evaluated, by split.

    For the practised split, from the phase's goal space. For the other split, from all held-out
    goals, or from the training goals of the same space.

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
    return EstimatorParts(
        goals, streams or Streams(first.seed), estimator_seed, backend, scores_candidates
    )
