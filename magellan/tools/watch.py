"""`python -m magellan watch`: a trained agent plays one episode, and shows what it makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

import numpy as np

from magellan.backends import CURRENT, DELAYED, Backend
from magellan.core.codec import stack
from magellan.core.errors import InputError, printable
from magellan.core.randomness import choose
from magellan.tools.trained import TrainedAgent
from magellan.worlds import GoalSet

BAR = 20
"""Letters of the bar of an action that is certain."""


def check_words(words: str | None, objects: Sequence[str] | None, category: str | None) -> None:
    """Look at what the command line says of the goal, before any work.

    Raises:
        InputError: one of words and objects without the other, or with a category.
    """
    if (words is None) != (objects is None):
        given, missing = ("--goal", "--objects") if objects is None else ("--objects", "--goal")
        raise InputError(
            f"{given}: {words or objects!r} is not allowed without {missing}; allowed: both, as in "
            '--goal "Grow lion" --objects lion water cow carrot, or neither'
        )
    if words is not None and category is not None:
        raise InputError(
            f"--category: {category!r} is not allowed with --goal, which has a category; allowed: "
            "one of the two"
        )


def chosen_goal(
    agent: TrainedAgent,
    words: str | None,
    objects: Sequence[str] | None,
    category: str | None,
    seed: int,
) -> tuple[GoalSet, int]:
    """The goal that a person names, or one of those that the run practised last.

    Args:
        agent: that is watched.
        words, objects: the goal and its scene, both or neither.
        category: of the goal that is drawn; None: any whose goals can be reached.
        seed: of the draw.

    Returns:
        a set of goals, and the position of the goal in it.

    Raises:
        InputError: a goal that is not of the run's world; a category without goals.
    """
    if words is None or objects is None:
        return _drawn(agent.goals, category, seed)
    return agent.goals.world.named_goal(words, objects), 0


def _drawn(goals: GoalSet, category: str | None, seed: int) -> tuple[GoalSet, int]:
    rng = np.random.default_rng(seed)
    there = np.flatnonzero(goals.sizes * goals.feasible)
    if category is not None:
        kinds = goals.world.categories
        there = np.flatnonzero(goals.sizes)
        there = there[there == kinds.index(kinds.named(category))]
    if not len(there):
        raise InputError(
            f"--category: {category!r} is not allowed: the run's goal space has no goal of it; "
            f"allowed: {', '.join(name for name, count in goals.counts().items() if count)}"
        )
    number = int(rng.choice(there))
    return goals, int(goals.nth(number, rng.choice(goals.sizes[number], size=1))[0])


def watch(
    agent: TrainedAgent,
    backend: Backend,
    goals: GoalSet,
    position: int,
    seed: int,
    greedy: bool,
    out: TextIO,
    pause: TextIO | None = None,
) -> bool:
    """Let the agent play one episode, as in an evaluation; return whether the goal was reached.

    Args:
        agent, backend: whose it is, and its model.
        goals, position: the goal is that one of them.
        seed: of start and actions.
        greedy: whether it takes the most probable action instead of drawing one.
        out: where the episode is written, as plain text.
        pause: a line is read from it before each step, `q` or its end stops; None: nothing is.
    """
    rng = np.random.default_rng(seed)
    env = goals.world.environment(1)
    env.reset(seed=int(rng.integers(2**31)), options={"goals": [goals.goal(position)]})
    _say(out, *_introduction(agent, backend, goals, position, env.prompts()[0]))
    for step in range(1, 10**9):
        _say(out, "", f"Step {step}", env.prompts()[0].rstrip())
        possible = env.possible_actions[0]
        (state,) = backend.codec.pack(env.prompts(), [possible])
        chances, values = backend.probabilities([state]), backend.values([state])
        action = int(chances[0].argmax()) if greedy else int(choose(chances, rng)[0])
        _say(out, *_table(possible, chances[0], values[0]))
        if pause is not None and not _goes_on(pause, out):
            _say(out, "Stopped.")
            return False
        _say(out, f"Takes: {possible[action]}")
        _, rewards, terminated, truncated, _ = env.step(np.array([action]))
        if terminated[0] or truncated[0]:
            break
    reached = bool(rewards[0] > 0)
    verdict = "Goal reached" if reached else "Goal not reached"
    _say(out, "", f"{verdict} in {step} {'step' if step == 1 else 'steps'}.")
    return reached


def _introduction(
    agent: TrainedAgent, backend: Backend, goals: GoalSet, position: int, prompt: str
) -> list[str]:
    """Who plays what, and what the agent expects."""
    config, world = agent.config, goals.world
    category = world.categories[int(goals.categories_at(np.array([position]))[0])]
    lines = [
        *(f"Damaged, so an older one is taken: {path}" for path in agent.damaged),
        f"Agent: {config.sampler}, {goals.world.label}, seed {config.seed}, {agent.where}",
        f"Category: {category.words}"
        + (", with a held-out object" if goals.split == "unseen" else ""),
    ]
    if agent.predicts:
        prompts = stack(backend.codec.pack([prompt], [()]))
        now, delayed = backend.competence(prompts, (CURRENT, DELAYED))[:, 0]
        lines.append(f"Predicted competence: {now:.3f} now, {delayed:.3f} delayed")
    return lines


def _table(possible: Sequence[str], chances: np.ndarray, values: np.ndarray) -> list[str]:
    """A line per action: its name, its probability with a bar, its Q."""
    width = max(map(len, possible))
    return [
        f"  {action:<{width}}  {chance:.3f} {'#' * round(BAR * chance):<{BAR}}  Q {value:7.3f}"
        for action, chance, value in zip(possible, chances, values, strict=False)
    ]


def _goes_on(pause: TextIO, out: TextIO) -> bool:
    """Wait for a line; false for `q` and at the end of the input."""
    try:
        print("Enter goes on, q stops: ", end="", file=out, flush=True)
        line = pause.readline()
    except KeyboardInterrupt:
        print(file=out)  # what is said next begins its own line
        raise
    if not line.endswith("\n"):
        print(file=out)
    return bool(line) and line.strip().lower() not in ("q", "quit")


def _say(out: TextIO, *lines: str) -> None:
    """Write lines at once, so that a reader who has gone away is noticed."""
    for text in lines:
        for line in text.split("\n"):
            print(printable(line), file=out)
    out.flush()
