"""Evaluation on fixed goals, with random streams of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from magellan.agent.packing import Codec
from magellan.agent.sac import SAC
from magellan.littlezoo import CATEGORIES, FEASIBLE, GoalSpace, LittleZooVector, category_totals
from magellan.training.randomness import choose


@dataclass(frozen=True)
class EvaluationSet:
    """Goals of one split: up to n of every category, the same for all samplers and seeds."""

    goals: GoalSpace

    @property
    def feasible(self) -> np.ndarray:
        """Positions of the goals that are played; impossible ones are not, as in the paper."""
        return np.flatnonzero(self.goals.categories != CATEGORIES.index("impossible"))


def evaluation_sets(training: GoalSpace, per_category: int, seed: int) -> dict[str, EvaluationSet]:
    """Goals of the training space, and goals whose target object was held out of training.

    Drawn without replacement, so a category with fewer goals gives all it has.
    """
    rng = np.random.default_rng(seed)
    chosen = []
    for category in CATEGORIES:
        members = training.members(category)
        chosen.append(rng.choice(members, min(per_category, len(members)), replace=False))
    mix = tuple(min(per_category, total) for total in category_totals("unseen").values())
    return {
        "train": EvaluationSet(GoalSpace(training.indices[np.concatenate(chosen)])),
        "unseen": EvaluationSet(GoalSpace.draw(mix, seed, "unseen")),
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
