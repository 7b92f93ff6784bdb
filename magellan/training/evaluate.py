"""Evaluation on fixed goals, with random streams of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from magellan.backends import Backend
from magellan.core.codec import Codec, PackedState
from magellan.core.randomness import choose
from magellan.worlds import Categories, Environment, GoalSet

MakeEnvironment = Callable[[int], Environment]
"""Number of episodes to an environment for them."""


class Policy(Protocol):
    """What plays: a `magellan.backends.Backend`, or anything else that chooses."""

    def probabilities(self, states: list[PackedState], /) -> np.ndarray:
        """Of each state's candidates, float64 (batch, candidates)."""


TOGETHER = 512
"""Most episodes played at the same time where an estimator asks for many."""


@dataclass(frozen=True)
class EvaluationSet:
    """Goals of one split: up to n of every category, the same for all samplers and seeds.

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
        """Category of each goal, as position in `Categories`: (n,)."""
        return self.space.categories_at(self.positions)

    @property
    def feasible(self) -> np.ndarray:
        """Which of the goals are played, int64 (k,); impossible ones are not, as in the paper."""
        return np.flatnonzero(self.space.feasible[self.categories])


def evaluation_sets(
    training: GoalSet, per_category: int, seed: int, unseen: GoalSet | None = None
) -> dict[str, EvaluationSet]:
    """Goals of the training space, and goals that were held out of it, by split.

    Drawn without replacement, so a category with fewer goals gives all it has.

    unseen: space of held-out goals that are practised; None: none is, and they are drawn from all
        that there are.
    """
    found = {"train": _drawn_from(training, per_category, seed)}
    if unseen is None:
        drawn = training.world.unseen(per_category, seed)
        found["unseen"] = EvaluationSet(drawn, np.arange(len(drawn)))
    else:
        found["unseen"] = _drawn_from(unseen, per_category, seed)
    return found


def _drawn_from(space: GoalSet, per_category: int, seed: int) -> EvaluationSet:
    rng = np.random.default_rng(seed)
    chosen = []
    for category, size in enumerate(space.sizes):
        ranks = rng.choice(size, min(per_category, size), replace=False)
        chosen.append(space.nth(category, ranks))
    return EvaluationSet(space, np.concatenate(chosen))


def evaluate(
    agent: Policy,
    codec: Codec,
    goals: EvaluationSet,
    seed: int,
    make_env: MakeEnvironment | None = None,
) -> np.ndarray:
    """One episode per feasible goal, actions sampled from the policy: success, float64 (k,).

    Placement and actions are drawn from `seed` alone, so every evaluation of a run, and of every
    run, meets the same draws.

    make_env: makes the environment; a new one of the world where it is not given.
    """
    positions = goals.positions[goals.feasible]
    return play(agent, codec, goals.space, positions, np.random.default_rng(seed), make_env)


def play_many(
    agent: Policy,
    codec: Codec,
    goals: GoalSet,
    positions: np.ndarray,
    rng: np.random.Generator,
    make_env: MakeEnvironment | None = None,
) -> np.ndarray:
    """As `play`, `TOGETHER` episodes at a time: for the thousands that an estimator asks for."""
    pieces = [positions[i : i + TOGETHER] for i in range(0, len(positions), TOGETHER)]
    played = [play(agent, codec, goals, piece, rng, make_env) for piece in pieces]
    return np.concatenate([np.zeros(0), *played])


def play(
    agent: Policy,
    codec: Codec,
    goals: GoalSet,
    positions: np.ndarray,
    rng: np.random.Generator,
    make_env: MakeEnvironment | None = None,
) -> np.ndarray:
    """One episode per goal at `positions` (n,), n > 0; its success, 0 or 1, float64 (n,)."""
    env = (make_env or goals.world.environment)(len(positions))
    env.reset(
        seed=int(rng.integers(2**31)),
        options={"goals": [goals.goal(int(position)) for position in positions]},
    )
    success = np.zeros(len(positions))
    running = np.ones(len(positions), bool)
    while running.any():
        rows = np.flatnonzero(running).tolist()
        prompts, possible = env.prompts(), env.possible_actions
        states = codec.pack([prompts[row] for row in rows], [possible[row] for row in rows])
        actions = np.full(len(positions), -1)
        actions[rows] = choose(agent.probabilities(states), rng)
        _, rewards, terminated, truncated, _ = env.step(actions)
        success[rows] += rewards[rows]
        running &= ~(terminated | truncated)
    return success


def by_category(
    kinds: Categories, categories: np.ndarray, success: np.ndarray
) -> dict[str, tuple[int, float]]:
    """Feasible category -> (number of episodes, mean success).

    kinds: of the world.
    categories, success: (n,) of each goal.
    """
    result = {}
    for number in np.flatnonzero(kinds.can_succeed).tolist():
        mine = success[categories == number]
        if len(mine):
            result[kinds[number].name] = (len(mine), float(mine.mean()))
    return result


def critic_by_category(
    backend: Backend, goals: EvaluationSet, seed: int, make_env: MakeEnvironment
) -> dict[str, dict[str, float]]:
    """Feasible category -> `Backend.critic_statistics` where its episodes start.

    seed, make_env: see `evaluate`.
    """
    positions = goals.positions[goals.feasible]
    env = make_env(len(positions))
    env.reset(
        seed=seed, options={"goals": [goals.space.goal(int(position)) for position in positions]}
    )
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
    """Rows of `competence.csv`: means over the evaluated goals of each category that has some.

    Impossible goals are among them.

    now, delayed: competences (n,) of the goals.
    """
    progress = np.abs(now - delayed)
    for number, category in enumerate(goals.kinds.names):
        mine = goals.categories == number
        if mine.any():
            yield {
                "category": category,
                "n": int(mine.sum()),
                "competence": float(now[mine].mean()),
                "delayed_competence": float(delayed[mine].mean()),
                "learning_progress": float(progress[mine].mean()),
            }


def goal_rows(
    goals: EvaluationSet, success: np.ndarray, now: np.ndarray, delayed: np.ndarray
) -> Iterator[dict[str, Any]]:
    """Rows of `goals.csv`, one for each evaluated goal; impossible ones cannot win.

    success, now, delayed: (n,), 0 or 1, and competences.
    """
    codes, names = goals.space.codes_at(goals.positions), goals.kinds.names
    for row in zip(codes, goals.categories, success, now, delayed, strict=True):
        code, category, won, here, before = row
        yield {
            "goal": int(code),
            "category": names[category],
            "success": int(won),
            "competence": float(here),
            "delayed_competence": float(before),
        }
