"""Time and FLOP of all operations with the language model, with the paper's constants."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator
from typing import cast

import numpy as np

from benchmarks.effort import Effort
from benchmarks.products import Timing, measure
from benchmarks.rows import Row
from benchmarks.shapes import model_folder
from benchmarks.timing import SEED, in_fresh_process
from magellan.backends.machine import settle
from magellan.competence import Outcomes
from magellan.competence.learned import LearnedCompetence, LearnedSettings
from magellan.config import PRESETS, RunConfig, run_model
from magellan.training.loop import Trainer

TRANSITIONS = 2_000
GOAL_SPACE, WHOLE_SPACE = "25k", "all"
LOOP = "whole loop"
NO_OUTCOMES = Outcomes(np.zeros(0, np.int64), np.zeros(0))


def configuration(model: str, goal_space: str) -> RunConfig:
    """Preset `paper` with another backbone, the default pool, and no warm-up of the actor."""
    values = {
        **PRESETS["paper"],
        "preset": "paper",
        "sampler": "magellan",
        "goal_space": goal_space,
        "seed": SEED,
        "threads": 1,
        # The products in compiled code cannot be counted.
        "backbone": {"model": model, "passes": "torch"},
        "agent": {"actor_warmup_updates": 0},
        "competence": {"pool": LearnedSettings().pool},
        # A single small evaluation at the start, which is not timed.
        "budget": {"evaluation_goals": 1, "evaluate_every": 500_000},
    }
    return run_model().model_validate(values)


def steps_per_update(config: RunConfig) -> int:
    """Environment steps between two updates: whole steps of all environments."""
    num_envs = config.agent.num_envs
    return math.ceil(config.agent.steps_per_update / num_envs) * num_envs


def make_trainer(model: str, goal_space: str) -> Trainer:
    """The trainer of a new run, set up like `magellan train`."""
    settle(1)
    return Trainer(configuration(model, goal_space))


def fill_replay(trainer: Trainer) -> Outcomes:
    """Play at random until the replay is filled; returns the episodes that ended, in order."""
    ended = [NO_OUTCOMES]
    while len(trainer.replay) < TRANSITIONS:
        ended.append(trainer.collector.step(at_random=True))
    parts = [(part.goals, part.success, part.standing_on) for part in ended]
    return Outcomes(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def round_seconds(trainer: Trainer, rounds: int) -> float:
    """Mean seconds of a round (64 steps, one update of everything) over a span of `rounds`.

    Any span of 32 contains one refresh. The first round is not counted.
    """
    trainer.advance()
    start = time.perf_counter()
    for _ in range(rounds):
        trainer.advance()
    return (time.perf_counter() - start) / rounds


class ModelBenchmark:
    """The timed operations of one run, to be called in the order of their definition."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.learned = cast(LearnedCompetence, trainer.estimators.by_name["learned"])
        self.config = trainer.config

    def refresh(self) -> None:
        """One refresh of the goal space; without episodes no gradient step is taken."""
        for _ in range(self.learned.config.refresh):
            self.learned.update(NO_OUTCOMES)

    def fill(self) -> None:
        """Fill the replay and the competence estimator with real episodes."""
        self.learned.update(fill_replay(self.trainer))

    def acting(self) -> None:
        """The environment steps between two updates."""
        for _ in range(steps_per_update(self.config) // self.config.agent.num_envs):
            self.trainer.collector.step()

    def sac_update(self) -> None:
        """Update critic, actor, temperature and target critic on a batch of the replay."""
        batch = self.trainer.replay.sample(self.config.agent.batch_size)
        self.trainer.backend.update_policy(batch)

    def competence_update(self) -> None:
        """One gradient step on the episodes of `fill`.

        Every 32nd call would refresh as well; fewer calls follow a `refresh`.
        """
        self.learned.update(NO_OUTCOMES)

    @property
    def refreshes_next(self) -> bool:
        """Whether the next update of the competence refreshes the goal space as well."""
        return (self.learned.updates + 1) % self.learned.config.refresh == 0

    def quiet_round_seconds(self, rounds: int) -> float:
        """Median seconds of the rounds without refresh."""
        self.trainer.advance()
        times: list[float] = []
        while len(times) < rounds:
            refreshes, start = self.refreshes_next, time.perf_counter()
            self.trainer.advance()
            if not refreshes:
                times.append(time.perf_counter() - start)
        return statistics.median(times)


def model_rows(shape: str, effort: Effort) -> Iterator[Row]:
    """Refresh, acting, both updates and the whole loop with a model of this shape."""
    with model_folder(shape) as model:
        bench = ModelBenchmark(make_trainer(model, GOAL_SPACE))
        steps = steps_per_update(bench.config)
        parts = {"LP refresh": measure(bench.refresh, effort.refreshes)}
        yield _row("LP refresh", shape, parts["LP refresh"], size=GOAL_SPACE)
        bench.fill()
        parts["acting"] = measure(bench.acting, effort.acting)
        yield _row("acting", shape, parts["acting"], steps)
        for name, operation in (
            ("SAC update", bench.sac_update),
            ("competence update", bench.competence_update),
        ):
            parts[name] = measure(operation, effort.updates)
            yield _row(name, shape, parts[name])
        yield _row(LOOP, shape, loop_timing(bench, parts, shape, effort), steps, GOAL_SPACE)


def loop_timing(
    bench: ModelBenchmark, parts: dict[str, Timing], shape: str, effort: Effort
) -> Timing:
    """Time spans of the loop with a refresh each, or single rounds plus 1/32 of a refresh."""
    timings = [parts[name] for name in ("acting", "SAC update", "competence update")]
    gflop, alone = sum(part.gflop for part in timings), sum(part.alone for part in timings)
    interval = bench.learned.config.refresh
    refresh = parts["LP refresh"]
    products = gflop + refresh.gflop / interval, alone + refresh.alone / interval
    cycles = effort.cycles if shape == "zoo-mini" else 0
    if cycles:
        spans = [round_seconds(bench.trainer, interval) for _ in range(cycles)]
        return Timing(statistics.median(spans), cycles, *products)
    quiet = bench.quiet_round_seconds(effort.rounds)
    return Timing(quiet + refresh.seconds / interval, effort.rounds, *products)


def _row(name: str, shape: str, timing: Timing, steps: int = 0, size: str = "") -> Row:
    """A row in seconds, or in steps/s if one operation is `steps` environment steps."""
    return Row(
        row=name,
        value=steps / timing.seconds if steps else timing.seconds,
        unit="steps/s" if steps else "s",
        repetitions=timing.repetitions,
        shape=shape,
        size=size,
        seconds=timing.seconds,
        gflop=timing.gflop,
        alone=timing.alone,
    )


def whole_space_rows(effort: Effort) -> Iterator[Row]:
    """The loop with `zoo-mini` on all goals and on 25k, each in a new process."""
    sizes, n = (GOAL_SPACE, WHOLE_SPACE), effort.whole_space_repetitions
    runs: dict[str, list[dict[str, float]]] = {size: [] for size in sizes}
    for _ in range(n):  # alternating, so that slow periods of the machine affect both
        for size in sizes:
            runs[size].append(in_fresh_process("loop", size, str(effort.whole_space_rounds)))
    steps = steps_per_update(configuration("zoo-mini", GOAL_SPACE))
    rates = {size: steps / _median(runs[size], "update_seconds") for size in sizes}
    for size in sizes:
        peak = _median(runs[size], "peak_mb")
        yield Row("new process: peak memory of a run", peak, "MB", n, "zoo-mini", size)
        yield Row("new process: whole loop", rates[size], "steps/s", n, "zoo-mini", size)
    speed = rates[WHOLE_SPACE] / rates[GOAL_SPACE]
    yield Row(f"whole loop, speed on {WHOLE_SPACE} over 25k", speed, "x", n, "zoo-mini")


def _median(runs: list[dict[str, float]], key: str) -> float:
    return statistics.median(run[key] for run in runs)
