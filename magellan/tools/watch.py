"""`python -m magellan watch`: a trained agent plays one episode and shows its estimates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

import numpy as np

from magellan.backends import CURRENT, DELAYED, Backend
from magellan.core.codec import stack
from magellan.core.errors import not_allowed, printable
from magellan.core.randomness import choose
from magellan.jobs.trained import TrainedAgent
from magellan.worlds import GoalSet

BAR = 20
"""Length of the bar of probability 1."""


def check_words(words: str | None, objects: Sequence[str] | None, category: str | None) -> None:
    """Check the options that name the goal.

    Raises:
        InputError: words without objects or vice versa, or words with a category.
    """
    if (words is None) != (objects is None):
        option, missing = ("--goal", "--objects") if objects is None else ("--objects", "--goal")
        both = 'both, as in --goal "Grow lion" --objects lion water cow carrot, or neither'
        raise not_allowed(option, words or objects, both, f" without {missing}")
    if words is not None and category is not None:
        why = " with --goal, which has a category"
        raise not_allowed("--category", category, "one of the two", why)


def chosen_goal(
    agent: TrainedAgent,
    words: str | None,
    objects: Sequence[str] | None,
    category: str | None,
    seed: int,
) -> tuple[GoalSet, int]:
    """The goal that a user names, or one drawn from the run's last training goals.

    words, objects: the goal and its scene, both or neither.
    category: of the drawn goal; None: any feasible one.

    Returns:
        a set of goals, and the position of the goal in it.

    Raises:
        InputError: a goal outside the run's world; a category without goals.
    """
    goals = agent.goals
    if words is not None and objects is not None:
        return goals.world.named_goal(words, objects), 0
    rng, allowed = np.random.default_rng(seed), goals.feasible
    if category is not None:
        kinds = goals.world.categories
        allowed = np.arange(len(kinds)) == kinds.index(kinds.named(category))
    numbers = np.flatnonzero(goals.sizes * allowed)
    if not len(numbers):
        names = ", ".join(name for name, count in goals.counts().items() if count)
        why = ": the run's goal space has no goal of it"
        raise not_allowed("--category", category, names, why)
    number = int(rng.choice(numbers))
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

    position: of the goal in `goals`.
    seed: of start and actions.
    greedy: take the most probable action instead of drawing one.
    pause: stream to wait for a line of before each step, `q` or its end stops; None: do not wait.
    """
    rng = np.random.default_rng(seed)
    env = goals.world.environment(1)
    env.reset(seed=int(rng.integers(2**31)), options={"goals": [goals.goal(position)]})
    _print(out, *_introduction(agent, backend, goals, position, env.prompts()[0]))
    for step in range(1, 10**9):
        _print(out, "", f"Step {step}", env.prompts()[0].rstrip())
        possible = env.possible_actions[0]
        (state,) = backend.codec.pack(env.prompts(), [possible])
        policy, values = backend.probabilities([state]), backend.values([state])
        action = int(policy[0].argmax()) if greedy else int(choose(policy, rng)[0])
        _print(out, *_table(possible, policy[0], values[0]))
        if pause is not None and not _wait(pause, out):
            _print(out, "Stopped.")
            return False
        _print(out, f"Takes: {possible[action]}")
        _, rewards, terminated, truncated, _ = env.step(np.array([action]))
        if terminated[0] or truncated[0]:
            break
    reached = bool(rewards[0] > 0)
    verdict = "Goal reached" if reached else "Goal not reached"
    _print(out, "", f"{verdict} in {step} {'step' if step == 1 else 'steps'}.")
    return reached


def _introduction(
    agent: TrainedAgent, backend: Backend, goals: GoalSet, position: int, prompt: str
) -> list[str]:
    config, world = agent.config, goals.world
    category = world.categories[int(goals.categories_at(np.array([position]))[0])]
    lines = [
        f"Agent: {config.sampler}, {goals.world.label}, seed {config.seed}, {agent.where}",
        f"Category: {category.words}"
        + (", with a held-out object" if goals.split == "unseen" else ""),
    ]
    if agent.predicts:
        prompts = stack(backend.codec.pack([prompt], [()]))
        now, delayed = backend.competence(prompts, (CURRENT, DELAYED))[:, 0]
        lines.append(f"Predicted competence: {now:.3f} now, {delayed:.3f} delayed")
    return lines


def _table(actions: Sequence[str], policy: np.ndarray, values: np.ndarray) -> list[str]:
    """A line per action: name, probability with a bar, Q."""
    width = max(map(len, actions))
    return [
        f"  {action:<{width}}  {p:.3f} {'#' * round(BAR * p):<{BAR}}  Q {value:7.3f}"
        for action, p, value in zip(actions, policy, values, strict=False)
    ]


def _wait(pause: TextIO, out: TextIO) -> bool:
    """Wait for a line; false for `q` and at end of input."""
    try:
        print("Enter goes on, q stops: ", end="", file=out, flush=True)
        line = pause.readline()
    except KeyboardInterrupt:
        print(file=out)  # start the next message on its own line
        raise
    if not line.endswith("\n"):
        print(file=out)
    return bool(line) and line.strip().lower() not in ("q", "quit")


def _print(out: TextIO, *lines: str) -> None:
    """Print lines and flush, so that a closed pipe is noticed at once."""
    for text in lines:
        for line in text.split("\n"):
            print(printable(line), file=out)
    out.flush()
