"""Repetitions and sizes of the full and the quick benchmark."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """Repetitions and sizes; the defaults are those of the full benchmark."""

    environment_steps: int = 200_000
    environment_repetitions: int = 5
    goal_repetitions: int = 5
    sampler_spaces: tuple[str, ...] = ("25k", "100k")
    sampler_rounds: int = 1_000
    acting: int = 20
    updates: int = 9
    refreshes: int = 3
    # Spans of the whole loop of `zoo-mini` with a refresh each; 0: time single rounds.
    cycles: int = 2
    # Rounds without refresh, if single rounds are timed.
    rounds: int = 8
    # The loop on all goals, in new processes.
    whole_space_rounds: int = 32
    whole_space_repetitions: int = 2


FULL = Effort()
QUICK = Effort(
    environment_steps=50_000,
    environment_repetitions=3,
    goal_repetitions=1,
    sampler_spaces=("25k",),
    sampler_rounds=200,
    acting=5,
    updates=3,
    refreshes=1,
    cycles=0,
    rounds=3,
    whole_space_rounds=4,
    whole_space_repetitions=1,
)
