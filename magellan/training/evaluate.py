"""Evaluation on fixed goals, with separate random streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from magellan.backends import Backend
from magellan.config import Phase, RunConfig
from magellan.config.phases import goals_of
from magellan.core.randomness import choose
from magellan.samplers.signals import absolute_learning_progress
from magellan.worlds import Categories, Environment, GoalSet

MakeEnvironment = Callable[[int], Environment]
"""Number of episodes -> an environment for them."""


MAX_PARALLEL = 512
"""Maximum number of parallel episodes in `play_many`."""


@dataclass(frozen=True)
class EvaluationSet:
    """Evaluated goals of one split: up to n per category, the same for all samplers and seeds.

    Attributes:
        space: the training goal space, or the unseen goals.
        positions: of the evaluated goals in it, int64 (n,).
    """

    space: GoalSet
    positions: np.ndarray

    @property
    def kinds(self) -> Categories:
        """Categories of the world."""
        return self.space.world.categories

    @property
    def categories(self) -> np.ndarray:
        """Category of each goal, as its index in `kinds`: (n,)."""
        return self.space.categories_at(self.positions)

    @property
    def feasible(self) -> np.ndarray:
        """Indices of the goals that are played, int64 (k,): not the impossible ones (paper)."""
        return np.flatnonzero(self.space.feasible[self.categories])


def evaluation_sets(
    training: GoalSet, per_category: int, seed: int, unseen: GoalSet | None = None
) -> dict[str, EvaluationSet]:
    """Return the evaluated goals by split: of the training space, and held-out ones.

    Drawn without replacement; a category with fewer than `per_category` goals is used whole.

    unseen: space of held-out goals, if they are practised; None: drawn from all held-out goals.
    """
    train = _draw_goals(training, per_category, seed)
    if unseen is not None:
        return {"train": train, "unseen": _draw_goals(unseen, per_category, seed)}
    space = training.world.unseen(per_category, seed)
    return {"train": train, "unseen": EvaluationSet(space, np.arange(len(space)))}


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


def _draw_goals(space: GoalSet, per_category: int, seed: int) -> EvaluationSet:
    rng = np.random.default_rng(seed)
    positions = []
    for category, size in enumerate(space.sizes):
        ranks = rng.choice(size, min(per_category, size), replace=False)
        positions.append(space.nth(category, ranks))
    return EvaluationSet(space, np.concatenate(positions))


def evaluate(
    backend: Backend, goals: EvaluationSet, seed: int, make_env: MakeEnvironment | None = None
) -> np.ndarray:
    """Play one episode per feasible goal, sampling from the policy; return success, float64 (k,).

    Placement and actions depend on `seed` alone, so all evaluations of all runs share their draws.

    make_env: makes the environment; None: a new one of the world.
    """
    positions = goals.positions[goals.feasible]
    return play(backend, goals.space, positions, np.random.default_rng(seed), make_env)


def play_many(
    backend: Backend,
    goals: GoalSet,
    positions: np.ndarray,
    rng: np.random.Generator,
    make_env: MakeEnvironment | None = None,
) -> np.ndarray:
    """Play in batches of `MAX_PARALLEL` episodes, for requests of thousands; see `play`."""
    batches = [positions[i : i + MAX_PARALLEL] for i in range(0, len(positions), MAX_PARALLEL)]
    success = [play(backend, goals, batch, rng, make_env) for batch in batches]
    return np.concatenate([np.zeros(0), *success])


def play(
    backend: Backend,
    goals: GoalSet,
    positions: np.ndarray,
    rng: np.random.Generator,
    make_env: MakeEnvironment | None = None,
) -> np.ndarray:
    """Play one episode per goal at `positions` (n,), n > 0; return success, float64 (n,)."""
    env = _begun(goals, positions, rng, make_env or goals.world.environment)
    success = np.zeros(len(positions))
    running = np.ones(len(positions), bool)
    while running.any():
        rows = np.flatnonzero(running).tolist()
        prompts, possible = env.prompts(), env.possible_actions
        packed = [prompts[row] for row in rows], [possible[row] for row in rows]
        states = backend.codec.pack(*packed)
        actions = np.full(len(positions), -1)
        actions[rows] = choose(backend.probabilities(states), rng)
        _, rewards, terminated, truncated, _ = env.step(actions)
        success[rows] += rewards[rows]
        running &= ~(terminated | truncated)
    return success


def _begun(
    goals: GoalSet, positions: np.ndarray, rng: np.random.Generator, make_env: MakeEnvironment
) -> Environment:
    """Return an environment at the start of an episode for each goal at `positions` (n,)."""
    env = make_env(len(positions))
    options = {"goals": [goals.goal(int(position)) for position in positions]}
    env.reset(seed=int(rng.integers(2**31)), options=options)
    return env


def by_category(
    kinds: Categories, categories: np.ndarray, success: np.ndarray
) -> dict[str, tuple[int, float]]:
    """Return feasible category -> (number of episodes, mean success).

    kinds: categories of the world.
    categories, success: (n,) of each goal.
    """
    result = {}
    for number in np.flatnonzero(kinds.can_succeed).tolist():
        values = success[categories == number]
        if len(values):
            result[kinds[number].name] = (len(values), float(values.mean()))
    return result


def critic_by_category(
    backend: Backend, goals: EvaluationSet, seed: int, make_env: MakeEnvironment
) -> dict[str, dict[str, float]]:
    """Return feasible category -> `Backend.critic_statistics` on the first states of `evaluate`.

    seed, make_env: those of the evaluation.
    """
    positions = goals.positions[goals.feasible]
    env = _begun(goals.space, positions, np.random.default_rng(seed), make_env)
    states = backend.codec.pack(env.prompts(), env.possible_actions)
    categories = goals.categories[goals.feasible]
    return {
        goals.kinds[number].name: backend.critic_statistics(
            [states[i] for i in np.flatnonzero(categories == number)]
        )
        for number in np.unique(categories).tolist()
    }


def competence_rows(
    goals: EvaluationSet, now: np.ndarray, delayed: np.ndarray
) -> Iterator[dict[str, Any]]:
    """Yield rows of `competence.csv`: means over the evaluated goals of each category.

    Includes impossible goals, and only categories with goals.

    now, delayed: competences (n,) of the goals.
    """
    progress = absolute_learning_progress(now, delayed)
    for number, category in enumerate(goals.kinds.names):
        members = goals.categories == number
        if members.any():
            yield {
                "category": category,
                "n": int(members.sum()),
                "competence": float(now[members].mean()),
                "delayed_competence": float(delayed[members].mean()),
                "learning_progress": float(progress[members].mean()),
            }


def goal_rows(
    goals: EvaluationSet, success: np.ndarray, now: np.ndarray, delayed: np.ndarray
) -> Iterator[dict[str, Any]]:
    """Yield rows of `goals.csv`, one per evaluated goal, impossible ones included.

    success, now, delayed: (n,); success is 0 or 1, the others are competences.
    """
    codes, names = goals.space.codes_at(goals.positions), goals.kinds.names
    for i, (code, category) in enumerate(zip(codes, goals.categories, strict=True)):
        yield {
            "goal": int(code),
            "category": names[category],
            "success": int(success[i]),
            "competence": float(now[i]),
            "delayed_competence": float(delayed[i]),
        }
