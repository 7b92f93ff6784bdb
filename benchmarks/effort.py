"""How long each figure is measured: the full benchmark and the quick one."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """Repetitions and sizes.

    environment_steps, environment_repetitions: random play.
    goal_spaces, goal_repetitions: goal spaces built in processes of their own.
    sampler_spaces, sampler_rounds: updates and draws that are timed.
    acting, updates, refreshes: timed calls of the model's parts.
    cycles: spans of the whole loop of `zoo-mini` with a refresh each; 0 times single rounds.
    rounds: rounds without refresh, where single rounds of the loop are timed.
    t5_refresh: whether `t5` evaluates the 25k goal space.
    whole_space_rounds, whole_space_repetitions: the loop on all goals, in new processes.
    """

    environment_steps: int
    environment_repetitions: int
    goal_spaces: tuple[str, ...]
    goal_repetitions: int
    sampler_spaces: tuple[str, ...]
    sampler_rounds: int
    acting: int
    updates: int
    refreshes: int
    cycles: int
    rounds: int
    t5_refresh: bool
    whole_space_rounds: int
    whole_space_repetitions: int


FULL = Effort(
    environment_steps=200_000,
    environment_repetitions=5,
    goal_spaces=("25k", "1M", "all"),
    goal_repetitions=5,
    sampler_spaces=("25k", "50k", "100k", "all"),
    sampler_rounds=1_000,
    acting=20,
    updates=9,
    refreshes=3,
    cycles=2,
    rounds=8,
    t5_refresh=True,
    whole_space_rounds=32,
    whole_space_repetitions=2,
)

QUICK = Effort(
    environment_steps=50_000,
    environment_repetitions=3,
    goal_spaces=("25k",),
    goal_repetitions=1,
    sampler_spaces=("25k",),
    sampler_rounds=200,
    acting=5,
    updates=3,
    refreshes=1,
    cycles=0,
    rounds=3,
    t5_refresh=False,
    whole_space_rounds=4,
    whole_space_repetitions=1,
)
