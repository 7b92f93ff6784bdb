"""Little-Zoo in the terminal: a person plays a goal."""

import io
import re
from typing import TextIO

import numpy as np

from magellan.core.errors import InputError
from magellan.worlds.little_zoo.codes import CATEGORIES, FEASIBLE, KINDS_OF_GOALS
from magellan.worlds.little_zoo.dynamics import horizon, parse_goal
from magellan.worlds.little_zoo.env import LittleZoo
from magellan.worlds.little_zoo.goals import Goal, GoalSpace

_HELP = "Type the number of an action or the action itself; q quits."
_NO_KEYS = "Arrow keys and other special keys have no effect. " + _HELP
# A terminal sends an escape sequence or a control character for such a key.
_KEY = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]?|O.?|.)?|[\x00-\x1f\x7f-\x9f]")
_LONGEST = 100


def choose_goal(goal_space: str, seed: int, category: str | None) -> Goal:
    """Draw a goal to play from a goal space: of `category`, by default a feasible one."""
    if category is not None:
        KINDS_OF_GOALS.named(category)
    goals = GoalSpace.named(goal_space, seed)
    rng = np.random.default_rng(seed)
    name = category or rng.choice([c for c in FEASIBLE if goals.counts()[c]] or CATEGORIES[:1])
    number = CATEGORIES.index(str(name))
    if not goals.sizes[number]:
        raise InputError(f"category = {category!r}: goal space {goal_space} has none of it")
    position = goals.nth(number, rng.choice(goals.sizes[number], size=1))
    return goals.goal(int(position[0]))


def play(
    goal_space: str, seed: int, category: str | None, stream_in: TextIO, stream_out: TextIO
) -> bool:
    """Let a person play one episode; return whether the goal was reached.

    Reads one action per line (number or text; "q" or end of input quits) and writes what the agent
    would read.

    Raises:
        InputError: an unknown goal space or category, or one without goals in the space.
    """
    if isinstance(stream_in, io.TextIOWrapper):
        stream_in.reconfigure(errors="replace")  # undecodable bytes become an invalid action
    goal = choose_goal(goal_space, seed, category)
    steps = horizon(*parse_goal(goal.text))
    print(f"Goal: {goal.text} ({goal.category}), {steps} steps. {_HELP}", file=stream_out)
    env = LittleZoo()
    observation, info = env.reset(seed=seed, options={"goal": goal.text, "objects": goal.objects})
    for step in range(1, steps + 1):
        print(f"\nStep {step} of {steps}\n{observation}", file=stream_out)
        action = ask(env, info["possible_actions"], stream_in, stream_out)
        if action is None:
            print("\nStopped.", file=stream_out)
            return False
        observation, _, reached, _, info = env.step(action)
        if reached:
            print(f"\n{observation}\nGoal reached in {step} steps.", file=stream_out)
            return True
    print(f"\n{observation}\nNot reached in {steps} steps.", file=stream_out)
    return False


def ask(
    env: LittleZoo, possible_actions: list[str], stream_in: TextIO, stream_out: TextIO
) -> str | None:
    """Ask until the answer is a valid action; None to quit."""
    for number, action in enumerate(possible_actions, start=1):
        print(f"  {number}. {action}", file=stream_out)
    while True:
        line = _read_line(stream_in, stream_out)
        typed = _KEY.sub("", line).strip()[:_LONGEST]
        if not line or typed.lower() in ("q", "quit"):
            return None
        if not typed and line.strip():
            print(_NO_KEYS, file=stream_out)
            continue
        try:
            action = read_action(typed, possible_actions)
            env.check(action)
        except InputError as error:
            print(error, file=stream_out)
        else:
            return action


def _read_line(stream_in: TextIO, stream_out: TextIO) -> str:
    """The next line; empty at the end of the input."""
    try:  # includes the prompt: a fast user may interrupt before readline
        print("> ", end="", file=stream_out, flush=True)
        return stream_in.readline()
    except KeyboardInterrupt:
        print(file=stream_out)  # start the next message on its own line
        raise


def read_action(line: str, possible_actions: list[str]) -> str:
    """Parse a typed line: an action's number, from 1, or the action itself."""
    if not line.isdecimal():
        return line
    number = int(line)
    if not 1 <= number <= len(possible_actions):
        raise InputError(f"action = {line}: allowed are 1..{len(possible_actions)}")
    return possible_actions[number - 1]
