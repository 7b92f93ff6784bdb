"""Evaluation on fixed goals, with random streams of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from magellan.agent.packing import Codec
from magellan.agent.sac import SAC
from magellan.littlezoo import (
    CATEGORIES,
    FEASIBLE,
    GoalSet,
    GoalSpace,
    LittleZooVector,
    category_totals,
)
from magellan.littlezoo.goals import draw_codes
from magellan.samplers import GoalSampler
from magellan.training.randomness import choose


@dataclass(frozen=True)
class EvaluationSet:
    """Goals of one split: up to n of every category, the same for all samplers and seeds."""

    goals: GoalSpace

    @property
    def feasible(self) -> np.ndarray:
        """Positions of the goals that are played; impossible ones are not, as in the paper."""
        return np.flatnonzero(self.goals.categories != CATEGORIES.index("impossible"))


def evaluation_sets(training: GoalSet, per_category: int, seed: int) -> dict[str, EvaluationSet]:
    """Goals of the training space, and goals whose target object was held out of training.

    Drawn without replacement, so a category with fewer goals gives all it has.
    """
    rng = np.random.default_rng(seed)
    chosen = []
    for category, size in enumerate(training.sizes):
        ranks = rng.choice(size, min(per_category, size), replace=False)
        chosen.append(training.nth(category, ranks))
    mix = tuple(min(per_category, total) for total in category_totals("unseen").values())
    return {
        "train": EvaluationSet(GoalSpace(training.codes_at(np.concatenate(chosen)))),
        "unseen": EvaluationSet(GoalSpace(draw_codes(mix, seed, "unseen"), "unseen")),
    }


def play(agent: SAC, codec: Codec, goals: EvaluationSet, seed: int) -> dict[str, tuple[int, float]]:
    """One episode per feasible goal, actions sampled from the policy.

    Placement and actions are drawn from `seed` alone, so every evaluation of a run, and of every
    run, meets the same draws.

    Returns:
        category -> (number of episodes, mean success).
    """
    positions = goals.feasible
    rng = np.random.default_rng(seed)
    env = LittleZooVector(len(positions))
    env.reset(
        seed=int(rng.integers(2**31)),
        options={"goals": [goals.goals.goal(int(position)) for position in positions]},
    )
    success = np.zeros(len(positions))
    running = np.ones(len(positions), bool)
    while running.any():
        rows = np.flatnonzero(running)
        prompts, possible = env.prompts(), env.possible_actions
        states = codec.pack([prompts[row] for row in rows], [possible[row] for row in rows])
        actions = np.full(len(positions), -1)
        actions[rows] = choose(agent.probabilities(states), rng)
        _, rewards, terminated, truncated, _ = env.step(actions)
        success[rows] += rewards[rows]
        running &= ~(terminated | truncated)
    return _by_category(goals.goals.categories[positions], success)


def _by_category(categories: np.ndarray, success: np.ndarray) -> dict[str, tuple[int, float]]:
    result = {}
    for category in FEASIBLE:
        mine = success[categories == CATEGORIES.index(category)]
        if len(mine):
            result[category] = (len(mine), float(mine.mean()))
    return result


@dataclass(frozen=True)
class MeanCompetence:
    """What a sampler makes of `n` goals of a category: means over them."""

    category: str
    n: int
    now: float
    delayed: float
    progress: float


def mean_competence(
    categories: np.ndarray, now: np.ndarray, delayed: np.ndarray
) -> list[MeanCompetence]:
    """Means per category that has goals.

    categories, now, delayed: (n,) of each goal: position in CATEGORIES, and competences.
    """
    means = []
    for number, category in enumerate(CATEGORIES):
        mine = categories == number
        if mine.any():
            progress = float(np.abs(now - delayed)[mine].mean())
            values = float(now[mine].mean()), float(delayed[mine].mean()), progress
            means.append(MeanCompetence(category, int(mine.sum()), *values))
    return means


def mean_competence_of_space(sampler: GoalSampler, goals: GoalSet) -> list[MeanCompetence]:
    """Means over all goals of each category that has some, by what the sampler's estimator says.

    Only arms it knows are looked at, for the others' competence is 0; empty without an estimator.
    """
    if sampler.estimator is None:
        return []
    known = sampler.estimator.known()
    now, delayed = sampler.estimator.competence(known)
    sums = sampler.arms.goals_by_category(known).T @ np.column_stack(
        [now, delayed, np.abs(now - delayed)]
    )
    return [
        MeanCompetence(CATEGORIES[number], int(size), *(sums[number] / size).tolist())
        for number, size in enumerate(goals.sizes)
        if size
    ]
