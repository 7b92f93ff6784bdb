"""Speed of one language model on one device.

All operations of a run with the model are timed with the paper's constants, within a time limit;
operations that are too slow are measured at reduced size, which the table notes.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch

from benchmarks.products import Products
from benchmarks.timed import Deadline, Operation, Timed, timed
from magellan.agent.replay import Batch, Episodes
from magellan.backends.local import LocalBackend
from magellan.backends.machine import configure_torch
from magellan.competence.learned import LearnedCompetence
from magellan.config import RunConfig, resolve_run
from magellan.core.codec import stack
from magellan.core.errors import is_out_of_memory
from magellan.training.loop import Trainer
from magellan.worlds import WORLDS

SMALL_MODEL = 10_000_000
"""Number of parameters below which adapters are merged into the weights."""
SHARES = {"acting": 4, "SAC update": 10, "competence update": 4, "refresh": 5, "whole loop": 6}
"""Shares of the time; time left over goes to later measurements."""
GOAL_SPACE, FIRST_GOALS = "25k", 64
"""Goal space of the refresh, and the number of goals in its first measurement."""
TRANSITIONS = 2_000
"""Of random play in the replay, from which batches are drawn."""
ROUNDS, EVALUATION_STEPS = 8, 30
SQUARE = {"cuda": 8192, "cpu": 1024}
"""Rows and columns of the product that measures the peak of a device."""
EPISODES = 500_000
"""Of the paper's runs."""


@dataclass(frozen=True)
class Part:
    """A measured operation, or one that could not be measured.

    row, size: name and goal space.
    value, unit: environment steps per second or seconds; None where it was not measured.
    seconds: of one operation.
    gflop: 10^9 operations of its matrix products; None where they are not counted.
    kernels: calls that start a kernel, of one operation of measured size; None likewise.
    utilisation: share of the device's peak; None without `gflop`.
    memory_mb: peak memory of the device, 10^6 bytes; None on a CPU.
    note: limitations of the measurement, or why there is none.
    """

    row: str
    size: str
    note: str
    value: float | None = None
    unit: str = ""
    seconds: float = 0.0
    repetitions: int = 0
    gflop: float | None = None
    kernels: int | None = None
    utilisation: float | None = None
    memory_mb: float | None = None


def device_configuration(
    model: str,
    parameters: int,
    device: str,
    dtype: str | None,
    settings: Sequence[Mapping[str, Any]] = (),
) -> RunConfig:
    """Preset `paper` with this model on this device, without warm-up of the actor.

    Args:
        model: value of `backbone.model`.
        parameters: number of its parameters.
        device: value of `backend.device`.
        dtype: value of `backend.dtype`; None: bfloat16 on a GPU, float32 on a CPU.
        settings: further keys.
    """
    default_dtype = "float32" if device == "cpu" else "bfloat16"
    is_small = parameters < SMALL_MODEL
    layer = {
        "sampler": "magellan",
        # For the loop; refreshes draw their own goal spaces.
        "goal_space": "2500",
        "backbone": {"model": model, "lora_mode": "merged" if is_small else "per_token"},
        "backend": {"device": device, "dtype": dtype or default_dtype, "micro_batch": "auto"},
        "agent": {"actor_warmup_updates": 0},
        "budget": {"evaluation_goals": 1, "evaluate_every": EPISODES},
    }
    return resolve_run("paper", [layer, *settings])


class DeviceBenchmark:
    """The timed operations of one run, and their time limit.

    Args:
        config: of the run.
        deadline: shared by all measurements.
    """

    def __init__(self, config: RunConfig, deadline: Deadline) -> None:
        self.deadline = deadline
        configure_torch(config.threads, config.backend.deterministic)
        self.trainer = Trainer(config)
        self.config = config
        self.backend = cast(LocalBackend, self.trainer.backend)
        self.device = self.backend.backbone.device
        while len(self.trainer.replay) < TRANSITIONS:
            self.trainer.collector.step(at_random=True)
        self.peak = product_rate(self.device, self.backend.backbone.dtype)
        self._shares = dict(SHARES)

    @cached_property
    def batch(self) -> Batch:
        """A batch of transitions of random play."""
        return self.trainer.replay.sample(self.config.agent.batch_size)

    def parts(self) -> Iterator[Part]:
        """All measurements, in order."""
        measured: dict[str, Part] = {}
        measurements: list[tuple[str, str, Callable[[float], Part]]] = [
            ("acting", "", self._acting),
            ("SAC update", "", self._sac),
            ("competence update", "", self._competence),
            ("refresh", GOAL_SPACE, self._refresh),
        ]
        for row, size, measure in measurements:
            part = self._measure(row, size, measure)
            if part.value is not None:
                measured[row] = part
            yield part
        yield self._loop(measured)

    def _measure(self, row: str, size: str, measure: Callable[[float], Part]) -> Part:
        seconds = self._share(row)
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        try:
            return measure(seconds)
        except Exception as error:  # the type is the library's choice
            if not is_out_of_memory(error):
                raise
            return Part(row, size, f"not measured: out of memory on {self.backend.device}")

    def _share(self, row: str) -> float:
        """Seconds for a measurement, out of the time left."""
        share = self._shares.pop(row) / (sum(self._shares.values()) + SHARES[row])
        return self.deadline.left * share

    def _acting(self, seconds: float) -> Part:
        steps = steps_per_update(self.config)
        rounds = steps // self.config.agent.num_envs

        def act() -> None:
            for _ in range(rounds):
                self.trainer.collector.step()

        return self._timed("acting", "", lambda _: act, 1, 1, seconds, "", steps)

    def _sac(self, seconds: float) -> Part:
        def make(size: int) -> Operation:
            batch = _first_rows(self.batch, size)
            return lambda: self.backend.update_policy(batch)

        size = len(self.batch.actions)
        return self._timed("SAC update", "", make, size, 4, seconds, "transitions")

    def _competence(self, seconds: float) -> Part:
        size = self.config.section("competence").batch_size
        tokens, segments = self._prompts(self.config.goal_space, size)
        episodes = Episodes(tokens, segments, (np.arange(size) % 2).astype(np.float32))

        def make(n: int) -> Operation:
            batch = _first_rows(episodes, n)
            return lambda: self.backend.update_competence(batch)

        return self._timed("competence update", "", make, size, 4, seconds, "episodes")

    def _refresh(self, seconds: float) -> Part:
        def make(n: int) -> Operation:
            held = self.backend.cache_prompts(self._prompts(GOAL_SPACE, n))
            return lambda: self.backend.competence(held)

        total = sum(WORLDS[self.config.world].parse(GOAL_SPACE))
        return self._timed("refresh", GOAL_SPACE, make, total, FIRST_GOALS, seconds, "goals")

    def _prompts(self, goal_space: str, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Tokens and segments, (n, length) each, of n goals drawn uniformly from a space."""
        goals = WORLDS[self.config.world].goals(goal_space, 0)
        positions = np.random.default_rng(0).choice(len(goals), n, replace=n > len(goals))
        texts = [goals.prompt(int(position)) for position in positions]
        return stack(self.backend.codec.pack(texts, [()] * n))

    def _loop(self, measured: Mapping[str, Part]) -> Part:
        """Rounds of the real loop if the time suffices, else the sum of its parts."""
        for row in ("acting", "SAC update", "competence update", "refresh"):
            if row not in measured:
                return Part("whole loop", GOAL_SPACE, f"not measured: {row} is not")
        refresh = measured["refresh"].seconds / self.config.section("competence").refresh
        one = sum(part.seconds for row, part in measured.items() if row != "refresh")
        seconds, steps = self._share("whole loop"), steps_per_update(self.config)
        start = measured["acting"].seconds * EVALUATION_STEPS / 2
        rounds = max(0, min(int((seconds - start) / one) - 1, ROUNDS))
        note = "not measured: acting, both updates and 1/32 of a refresh, added"
        if rounds:
            one = quiet_round_seconds(self.trainer, rounds)
            note = "1/32 of a refresh added"
        loop = Timed(one + refresh, rounds, 1, 1)
        return self._part("whole loop", GOAL_SPACE, loop, None, note, steps)

    def _timed(
        self,
        row: str,
        size: str,
        make: Callable[[int], Operation],
        total: int,
        smallest: int,
        seconds: float,
        things: str,
        steps: int = 0,
    ) -> Part:
        """Time an operation; counts the products and kernels of its first call.

        Of an update, that is its second one: the first also makes the moments of the optimizers.
        """
        counted: list[tuple[float, int]] = []
        if row.endswith("update"):
            make(smallest)()

        def make_synchronized(n: int) -> Operation:
            operation = make(n)

            def run() -> None:
                if counted:
                    operation()
                else:
                    with Products() as products:
                        operation()
                    counted.append((products.gflop * total / n, products.kernels))
                synchronize(self.device)

            return run

        result = timed(make_synchronized, total, smallest, seconds, self.deadline)
        counts = None if self.backend.passes.startswith("compiled") else counted[0]
        return self._part(row, size, result, counts, result.note(things), steps)

    def _part(
        self,
        row: str,
        size: str,
        result: Timed,
        counts: tuple[float, int] | None,
        note: str,
        steps: int,
    ) -> Part:
        """A measurement as a row; a rate if an operation is `steps` environment steps."""
        memory = None
        if self.device.type == "cuda":
            memory = torch.cuda.max_memory_allocated(self.device) / 1e6
        gflop, kernels = counts or (None, None)
        return Part(
            row=row,
            size=size,
            note=note,
            value=steps / result.seconds if steps else result.seconds,
            unit="steps/s" if steps else "s",
            seconds=result.seconds,
            repetitions=result.repetitions,
            gflop=gflop,
            kernels=kernels,
            utilisation=None if gflop is None else gflop / 1e3 / result.seconds / self.peak,
            memory_mb=memory,
        )


def _first_rows(data: Any, n: int) -> Any:
    """The first n rows of a dataclass of arrays."""
    return type(data)(**{field.name: getattr(data, field.name)[:n] for field in fields(data)})


def steps_per_update(config: RunConfig) -> int:
    """Environment steps between two updates: whole steps of all environments."""
    num_envs = config.agent.num_envs
    return math.ceil(config.agent.steps_per_update / num_envs) * num_envs


def quiet_round_seconds(trainer: Trainer, rounds: int) -> float:
    """Median seconds of rounds without refresh; the first round is not counted."""
    learned = cast(LearnedCompetence, trainer.estimators.by_name["learned"])
    trainer.advance()
    times: list[float] = []
    while len(times) < rounds:
        refreshes = (learned.updates + 1) % learned.config.refresh == 0
        start = time.perf_counter()
        trainer.advance()
        if not refreshes:
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def product_rate(device: torch.device, dtype: torch.dtype, repetitions: int = 20) -> float:
    """TFLOP/s of a large square product, best of its repetitions."""
    size = SQUARE[device.type]
    left = torch.ones(size, size, dtype=dtype, device=device)
    out, best = torch.empty_like(left), math.inf
    for _ in range(repetitions):
        synchronize(device)
        start = time.perf_counter()
        torch.mm(left, left, out=out)
        synchronize(device)
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best / 1e12


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
