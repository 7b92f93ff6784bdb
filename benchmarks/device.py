"""Speed of one language model on one device: `python -m magellan bench --device D --model M`.

All operations of a run with the model are timed with the paper's constants, within a time limit;
operations that are too slow are measured at reduced size, which the table notes.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from benchmarks.fresh import peak_memory_mb
from benchmarks.models import ModelBenchmark, fill_replay, steps_per_update
from benchmarks.products import record
from benchmarks.rows import number
from benchmarks.run import machine, prepare_folder
from benchmarks.shapes import FLAN, model_folder
from benchmarks.timed import Deadline, Operation, Timed, timed
from magellan.agent.replay import Batch, Episodes
from magellan.backends import check_backend
from magellan.backends.local import LocalBackend
from magellan.backends.machine import settle
from magellan.config import RunConfig, check_backbone, resolve_run
from magellan.core.codec import stack
from magellan.core.errors import InputError, OutOfMemoryError, is_out_of_memory
from magellan.model.files import number_of_parameters
from magellan.training.loop import Trainer
from magellan.worlds import WORLDS

SECONDS, QUICK_SECONDS = 440.0, 60.0
"""Time limits of a benchmark, including loading the model; the full one ends within 8 minutes."""
SMALL_MODEL = 10_000_000
"""Number of parameters below which adapters are merged into the weights."""
SHARES = {"acting": 4, "SAC": 10, "competence": 4, "25k": 5, "100k": 8, "loop": 6}
"""Shares of the time; time left over goes to later measurements."""
GOALS = {"25k": 64, "100k": 64}
"""Goal spaces of the refreshes, and the number of goals in the first measurement."""
ROUNDS, EVALUATION_STEPS = 8, 30
SQUARE = {"cuda": 8192, "cpu": 1024}
"""Rows and columns of the product that measures the peak of a device."""
EPISODES, EPISODE_STEPS = 500_000, 5.0
"""Episodes of the paper's runs; steps per episode in the reference study, 4 to 6.4 by sampler."""

HEADINGS = ("what", "goals", "value", "n", "GFLOP", "share of peak", "memory", "note")
NOTES = (
    "Constants are the paper's: 32 environments, 64 steps per update, batches of 256, a refresh "
    "every 32 updates. A value is a median over n repetitions; n is 0 where it is a sum. "
    "Refresh: the current estimator scores every goal of the space.",
    "GFLOP: what PyTorch multiplies, padding included; not counted are attention in one kernel "
    "and compiled passes. Share of peak: GFLOP / seconds / peak.",
)


@dataclass(frozen=True)
class Part:
    """A measured operation, or one that could not be measured.

    row, size: name and goal space.
    value, unit: environment steps per second or seconds; None where it was not measured.
    seconds: of one operation.
    gflop: 10^9 operations of its matrix products; None where they are not counted.
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
        settle(config.threads, config.backend.deterministic)
        self.trainer = Trainer(config)
        self.config = config
        self.backend = cast(LocalBackend, self.trainer.backend)
        self.device = self.backend.backbone.device
        fill_replay(self.trainer)
        self.peak = product_rate(self.device, self.backend.backbone.dtype)
        self._shares = dict(SHARES)

    @cached_property
    def batch(self) -> Batch:
        """A batch of transitions of random play."""
        return self.trainer.replay.sample(self.config.agent.batch_size)

    def parts(self) -> Iterator[Part]:
        """All measurements, in order."""
        measured: dict[str, Part] = {}
        measurements: list[tuple[str, str, str, Callable[[float], Part]]] = [
            ("acting", "acting", "", self._acting),
            ("SAC", "SAC update", "", self._sac),
            ("competence", "competence update", "", self._competence),
            *((goals, "refresh", goals, partial(self._refresh, goals)) for goals in GOALS),
        ]
        for name, row, size, measure in measurements:
            part = self._measure(name, row, size, measure)
            if part.value is not None:
                measured[name] = part
            yield part
        yield self._loop(measured)

    def _measure(self, name: str, row: str, size: str, measure: Callable[[float], Part]) -> Part:
        seconds = self._share(name)
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        try:
            return measure(seconds)
        except Exception as error:  # the type is the library's choice
            if not is_out_of_memory(error):
                raise
            return Part(row, size, f"not measured: out of memory on {self.backend.device}")

    def _share(self, name: str) -> float:
        """Seconds for a measurement, out of the time left."""
        share = self._shares.pop(name) / (sum(self._shares.values()) + SHARES[name])
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

    def _refresh(self, goal_space: str, seconds: float) -> Part:
        def make(n: int) -> Operation:
            held = self.backend.hold(self._prompts(goal_space, n))
            return lambda: self.backend.competence(held)

        total, smallest = sum(WORLDS[self.config.world].parse(goal_space)), GOALS[goal_space]
        return self._timed("refresh", goal_space, make, total, smallest, seconds, "goals")

    def _prompts(self, goal_space: str, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Tokens and segments, (n, length) each, of n goals drawn uniformly from a space."""
        goals = WORLDS[self.config.world].goals(goal_space, 0)
        positions = np.random.default_rng(0).choice(len(goals), n, replace=n > len(goals))
        texts = [goals.prompt(int(position)) for position in positions]
        return stack(self.backend.codec.pack(texts, [()] * n))

    def _loop(self, measured: Mapping[str, Part]) -> Part:
        """Rounds of the real loop if the time suffices, else the sum of its parts."""
        names = ("acting", "SAC", "competence", "25k")
        missing = [name for name in names if name not in measured]
        if missing:
            return Part("whole loop", "25k", f"not measured: {missing[0]} is not")
        one = sum(measured[name].seconds for name in names[:3])
        refresh = measured["25k"].seconds / self.config.section("competence").refresh
        seconds, steps = self._share("loop"), steps_per_update(self.config)
        start = measured["acting"].seconds * EVALUATION_STEPS / 2
        rounds = max(0, min(int((seconds - start) / one) - 1, ROUNDS))
        note = "not measured: acting, both updates and 1/32 of a refresh, added"
        if rounds:
            one = ModelBenchmark(self.trainer).quiet_round_seconds(rounds)
            note = "1/32 of a refresh added"
        loop = Timed(one + refresh, rounds, 1, 1)
        return self._part("whole loop", "25k", loop, None, note, steps)

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
        """Time an operation; counts the products of its first call."""
        counted: list[float] = []

        def make_synchronized(n: int) -> Operation:
            operation = make(n)

            def run() -> None:
                if counted:
                    operation()
                else:
                    counted.append(record(operation).gflop * total / n)
                synchronize(self.device)

            return run

        result = timed(make_synchronized, total, smallest, seconds, self.deadline)
        gflop = None if self.backend.passes.startswith("compiled") else counted[0]
        return self._part(row, size, result, gflop, result.note(things), steps)

    def _part(
        self, row: str, size: str, result: Timed, gflop: float | None, note: str, steps: int
    ) -> Part:
        """A measurement as a row; a rate if an operation is `steps` environment steps."""
        memory = None
        if self.device.type == "cuda":
            memory = torch.cuda.max_memory_allocated(self.device) / 1e6
        return Part(
            row=row,
            size=size,
            note=note,
            value=steps / result.seconds if steps else result.seconds,
            unit="steps/s" if steps else "s",
            seconds=result.seconds,
            repetitions=result.repetitions,
            gflop=gflop,
            utilisation=None if gflop is None else gflop / 1e3 / result.seconds / self.peak,
            memory_mb=memory,
        )


def _first_rows(data: Any, n: int) -> Any:
    """The first n rows of a dataclass of arrays."""
    return type(data)(**{field.name: getattr(data, field.name)[:n] for field in fields(data)})


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


def hours_of(parts: Sequence[Part], config: RunConfig) -> tuple[float, str] | None:
    """Hours of `EPISODES` episodes with evaluations, and the calculation; None without the loop."""
    measured = {(part.row, part.size): part for part in parts if part.value is not None}
    loop, acting = measured.get(("whole loop", "25k")), measured.get(("acting", ""))
    if loop is None or acting is None or acting.value is None:
        return None
    paper, steps = resolve_run("paper", []).budget, steps_per_update(config)
    updates = math.ceil(EPISODES * EPISODE_STEPS / steps)
    evaluations = EPISODES // paper.evaluate_every + 1
    episodes = 2 * 4 * paper.evaluation_goals  # splits, feasible categories
    training = updates * loop.seconds / 3600
    evaluating = evaluations * episodes * EPISODE_STEPS / acting.value / 3600
    return (
        training + evaluating,
        f"{EPISODES:,} episodes x {EPISODE_STEPS:g} steps / {steps} steps per update = "
        f"{updates:,} updates x {loop.seconds:.4g} s = {training:.3g} h; "
        f"{evaluations} evaluations of {episodes} episodes x {EPISODE_STEPS:g} steps / "
        f"{acting.value:.4g} steps/s = {evaluating:.3g} h",
    )


def run_device(
    output: Path,
    model: str | None,
    device: str | None,
    dtype: str | None = None,
    settings: Sequence[Mapping[str, Any]] = (),
    quick: bool = False,
) -> str:
    """Measure, and write device.md and device.json to a folder; returns the Markdown.

    Args:
        output: the folder; created if absent, files of an earlier benchmark are overwritten.
        model: a name or a folder, or `flan-t5-base-shape`; None: `zoo-mini`.
        device, dtype: of the backend; None: a CPU, and the device's default format.
        settings: further keys of the run.
        quick: a minute instead of eight.

    Raises:
        InputError: no such device or model, or a folder that cannot be written.
        OutOfMemoryError: the model does not fit.
    """
    start, started, model = time.perf_counter(), datetime.now(UTC), model or "zoo-mini"
    with model_folder(model) as folder:
        check_backbone(folder)
        parameters = number_of_parameters(folder)
        config = device_configuration(folder, parameters, device or "cpu", dtype, settings)
        if config.backend.kind != "local":  # the benchmark times its parts and reads its device
            kind = config.backend.kind
            raise InputError(f"backend.kind: {kind!r} is not timed here; allowed: local")
        check_backend(config.backend, config.backbone)
        prepare_folder(output)
        limit = QUICK_SECONDS if quick else SECONDS
        deadline = Deadline(limit - (time.perf_counter() - start))
        try:
            bench = DeviceBenchmark(config, deadline)
        except Exception as error:  # the type is the library's choice
            if is_out_of_memory(error):
                raise OutOfMemoryError(f"out of memory while {model} was loaded") from error
            raise
        parts = []
        for part in bench.parts():
            figure = part.note if part.value is None else f"{number(part.value)} {part.unit}"
            print(f"{part.row} {part.size}: {figure}", file=sys.stderr, flush=True)
            parts.append(part)
    facts = {
        **_facts(bench, model, parameters),
        "started": started.isoformat(timespec="seconds"),
        "wall_seconds": round(time.perf_counter() - start, 1),
    }
    return write_files(output, facts, parts, hours_of(parts, config))


def _facts(bench: DeviceBenchmark, model: str, parameters: int) -> dict[str, Any]:
    """Machine, device, model and code of the measurements."""
    config, backend, device = bench.config, bench.backend, bench.device
    name = "" if device.type == "cpu" else torch.cuda.get_device_name(device)
    return {
        **machine(),
        "threads": config.threads,
        "device": backend.device,
        "device_name": name,
        "dtype": backend.dtype,
        "model": model,
        "random_weights": model == FLAN,
        "parameters": parameters,
        "backbone": config.backbone.model_dump(mode="json") | {"model": model},
        "backend": config.backend.model_dump(mode="json"),
        "micro_batch": backend.backbone.micro_batch,
        "passes": backend.passes,
        "deterministic": config.backend.deterministic or device.type == "cpu",
        "peak_tflops": bench.peak,
        "process_memory_mb": round(peak_memory_mb()),
    }


def write_files(
    output: Path, facts: Mapping[str, Any], parts: Sequence[Part], hours: tuple[float, str] | None
) -> str:
    """Write device.md and device.json; returns the Markdown."""
    markdown = to_markdown(facts, parts, hours)
    rows = [asdict(part) for part in parts]
    contents = {**facts, "rows": rows, "hours": None if hours is None else hours[0]}
    (output / "device.md").write_text(markdown, encoding="utf-8")
    (output / "device.json").write_text(json.dumps(contents, indent=2) + "\n", encoding="utf-8")
    return markdown


def to_markdown(
    facts: Mapping[str, Any], parts: Sequence[Part], hours: tuple[float, str] | None
) -> str:
    """Markdown table with notes below."""
    lines = [HEADINGS, ("---",) * 2 + ("---:",) * 5 + ("---",), *map(_cells, parts)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    total = "500,000 episodes: **not measured: the loop is not**."
    if hours is not None:
        total = f"500,000 episodes: **{number(hours[0])} h**: {hours[1]}."
    size = SQUARE["cpu" if facts["device"] == "cpu" else "cuda"]
    peak = f"Peak: {number(facts['peak_tflops'])} TFLOP/s, measured with a {size} x {size} product."
    return "\n\n".join([_headline(facts), table, total, *NOTES, peak]) + "\n"


def _headline(facts: Mapping[str, Any]) -> str:
    random_weights = ", random weights; each word is a token, a real tokenizer makes more of them"
    where = f"{facts['device']}, {facts['device_name']}" if facts["device_name"] else facts["cpu"]
    return (
        f"`{facts['model']}` ({facts['parameters'] / 1e6:,.1f} million parameters"
        f"{random_weights if facts['random_weights'] else ''}) on {where}, {facts['dtype']}, "
        f"`lora_mode: {facts['backbone']['lora_mode']}`, micro-batch "
        f"{facts['micro_batch'] or 'none'}, passes {facts['passes']}, "
        f"deterministic: {str(facts['deterministic']).lower()}, "
        f"PyTorch {facts['versions']['torch']}, threads {facts['threads']}. Peak memory of the "
        f"process: {facts['process_memory_mb']:,} MB."
    )


def _cells(part: Part) -> tuple[str, ...]:
    if part.value is None:
        return (part.row, part.size, *[""] * 5, part.note)
    return (
        part.row,
        part.size,
        f"{number(part.value)} {part.unit}",
        str(part.repetitions),
        number(part.gflop),
        "" if part.utilisation is None else f"{part.utilisation:.1%}",
        "" if part.memory_mb is None else f"{part.memory_mb:,.0f} MB",
        part.note,
    )
