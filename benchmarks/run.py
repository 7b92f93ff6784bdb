"""The command `python -m magellan bench`: the estimate of a run's hours, and its files."""

from __future__ import annotations

import json
import math
import os
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from benchmarks.device import (
    EPISODES,
    SQUARE,
    DeviceBenchmark,
    Part,
    device_configuration,
    steps_per_update,
)
from benchmarks.shapes import SHAPES, model_folder
from benchmarks.timed import Deadline
from magellan.backends import check_backend
from magellan.backends.machine import cpu_model
from magellan.config import RunConfig, resolve_run
from magellan.core.errors import InputError, OutOfMemoryError, is_out_of_memory
from magellan.jobs.provenance import code_version, library_versions
from magellan.model.files import check_backbone, number_of_parameters

SECONDS, QUICK_SECONDS = 440.0, 60.0
"""Time limits of a benchmark, including loading the model; the full one ends within 8 minutes."""
EPISODE_STEPS = 5.0
"""Steps per episode in the reference study, 4 to 6.4 by sampler."""

HEADINGS = ("what", "goals", "value", "n", "GFLOP", "kernels", "share of peak", "memory", "note")
NOTES = (
    "Constants are the paper's: 32 environments, 64 steps per update, batches of 256, a refresh "
    "every 32 updates. A value is a median over n repetitions; n is 0 where it is a sum. "
    "Refresh: the current estimator scores every goal of the space.",
    "GFLOP: what PyTorch multiplies, padding included; not counted are attention in one kernel "
    "and compiled passes. Share of peak: GFLOP / seconds / peak. Kernels: calls of PyTorch that "
    "start one, in one operation: of acting 64 steps, of the refresh its first 64 goals.",
)


def run(
    output: Path,
    model: str,
    device: str,
    dtype: str | None = None,
    settings: Sequence[Mapping[str, Any]] = (),
    quick: bool = False,
) -> str:
    """Measure, and write device.md and device.json to a folder; returns the Markdown.

    Args:
        output: the folder; created if absent, files of an earlier benchmark are overwritten.
        model: a name, a folder, or one of `SHAPES`.
        device, dtype: of the backend; no dtype: the device's default format.
        settings: further keys of the run.
        quick: a minute instead of eight.

    Raises:
        InputError: no such device or model, or a folder that cannot be written.
        OutOfMemoryError: the model does not fit.
    """
    start, started = time.perf_counter(), datetime.now(UTC)
    with model_folder(model) as folder:
        check_backbone(folder)
        parameters = number_of_parameters(folder)
        config = device_configuration(folder, parameters, device, dtype, settings)
        for key, value, timed in (
            ("sampler", config.sampler, "magellan"),
            ("backend.kind", config.backend.kind, "local"),
        ):
            if value != timed:
                raise InputError(f"{key}: {value!r} is not timed here; allowed: {timed}")
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
        "schema_version": 1,
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "threads": config.threads,
        "system": f"{platform.system()} {platform.machine()}",
        "versions": library_versions(),
        "code_version": code_version(),
        "device": backend.device,
        "device_name": name,
        "dtype": backend.dtype,
        "model": model,
        "random_weights": model in SHAPES,
        "parameters": parameters,
        "backbone": config.backbone.model_dump(mode="json") | {"model": model},
        "backend": config.backend.model_dump(mode="json"),
        "micro_batch": backend.backbone.micro_batch,
        "passes": backend.passes,
        "deterministic": config.backend.deterministic or device.type == "cpu",
        "peak_tflops": bench.peak,
        "process_memory_mb": round(peak_memory_mb()),
    }


def prepare_folder(output: Path) -> None:
    """Create the folder and check that it is writable."""
    try:
        output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=output):
            pass
    except OSError as error:
        raise InputError(f"--output: {output} cannot be written ({error.strerror})") from error


def peak_memory_mb() -> float:
    """Largest resident memory of this process so far, MB (10^6 bytes)."""
    try:
        # Unlike VmHWM, ru_maxrss starts at the size of the parent.
        status = Path("/proc/self/status").read_text(encoding="ascii")
        kib = int(status.split("VmHWM:")[1].split()[0])
    except (OSError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        kib = peak // 1024 if sys.platform == "darwin" else peak
    return kib * 1024 / 1e6


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
    lines = [HEADINGS, ("---",) * 2 + ("---:",) * 6 + ("---",), *map(_cells, parts)]
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
        return (part.row, part.size, *[""] * 6, part.note)
    return (
        part.row,
        part.size,
        f"{number(part.value)} {part.unit}",
        str(part.repetitions),
        number(part.gflop),
        "" if part.kernels is None else f"{part.kernels:,}",
        "" if part.utilisation is None else f"{part.utilisation:.1%}",
        "" if part.memory_mb is None else f"{part.memory_mb:,.0f} MB",
        part.note,
    )


def number(value: float | None) -> str:
    """Three significant digits, whole above 100, commas between thousands; empty for None."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}".rstrip(".")
