"""The command around `benchmarks.device`: its table, its files."""

from __future__ import annotations

import csv
import io
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import needs
from benchmarks.device import (
    QUICK_SECONDS,
    SECONDS,
    DeviceBenchmark,
    Hours,
    Missing,
    Part,
    device_configuration,
    hours_of,
)
from benchmarks.fresh import peak_memory_mb
from benchmarks.needs import Need, need_of
from benchmarks.rows import number
from benchmarks.run import machine, prepare_folder
from benchmarks.shapes import FLAN, model_folder
from benchmarks.timed import Deadline
from magellan.backends import check_backend
from magellan.config import check_backbone
from magellan.core.errors import InputError, OutOfMemoryError, is_out_of_memory
from magellan.model.files import number_of_parameters

DEFAULT_MODEL = "zoo-mini"
HEADINGS = ("what", "goals", "value", "n", "GFLOP", "TFLOP/s", "share of peak", "memory", "note")
COLUMNS = tuple(Part.__dataclass_fields__)
NOTES = (
    "Constants are the paper's: 32 environments, 64 steps per update, batches of 256, a refresh "
    "every 32 updates. A value is a median over n repetitions; n is 0 where it is a sum. "
    "Refresh: the current estimator scores every goal of the space.",
    "GFLOP: operations that the model needs (benchmarks/model_flops.py): 2 per weight of a linear "
    "layer and token, 4 per visible pair of tokens, layer and unit of attention's width, the same "
    "again for gradients; real tokens only, no padding, nothing twice. Share of peak (model FLOPs "
    "utilisation): GFLOP / seconds / peak; more than 100 % where passes share the beginnings of "
    "prompts.",
)


@dataclass(frozen=True)
class Wanted:
    """What is to be measured.

    device, dtype: of the backend; None: a CPU, and the device's usual format.
    model: a name or a folder, or `flan-t5-base-shape`; None: `zoo-mini`.
    settings: further keys of the run.
    quick: a minute instead of eight.
    """

    device: str | None
    dtype: str | None
    model: str | None
    settings: Sequence[Mapping[str, Any]] = ()
    quick: bool = False


def run_device(output: Path, wanted: Wanted) -> str:
    """Measure, write device.md, device.csv and device.json to a folder, give the Markdown.

    Args:
        output: the folder; made when absent, what it holds of an earlier benchmark is replaced.
        wanted: what is measured.

    Raises:
        InputError: no such device or model, or a folder that cannot be written.
        OutOfMemoryError: the model does not fit.
    """
    began = time.perf_counter()
    started = datetime.now(UTC)
    model = wanted.model or DEFAULT_MODEL
    with model_folder(model) as folder:
        check_backbone(folder)
        parameters = number_of_parameters(folder)
        device = wanted.device or "cpu"
        config = device_configuration(folder, parameters, device, wanted.dtype, wanted.settings)
        check_kind(config.backend.kind)
        check_backend(config.backend, config.backbone)
        prepare_folder(output)
        whole = QUICK_SECONDS if wanted.quick else SECONDS
        deadline = Deadline(whole - (time.perf_counter() - began))
        try:
            bench = DeviceBenchmark(config, deadline)
        except Exception as error:  # the library's own kinds
            if is_out_of_memory(error):
                raise OutOfMemoryError(f"out of memory while {model} was loaded") from error
            raise
        parts = [_told(part) for part in bench.parts()]
    facts = {
        **_facts(bench, model, parameters),
        "started": started.isoformat(timespec="seconds"),
        "wall_seconds": round(time.perf_counter() - began, 1),
    }
    return write_files(output, facts, parts, hours_of(parts, config), need_of(parts, config))


def check_kind(kind: str) -> None:
    """What is timed is this process's model: its parts, and the device's memory."""
    if kind != "local":
        raise InputError(f"backend.kind: {kind!r} is not timed here; allowed: local")


def _told(part: Part | Missing) -> Part | Missing:
    figure = f"{number(part.value)} {part.unit}" if isinstance(part, Part) else part.note
    print(f"{part.row} {part.size}: {figure}", file=sys.stderr, flush=True)
    return part


def _facts(bench: DeviceBenchmark, model: str, parameters: int) -> dict[str, Any]:
    """Where and with what the figures were measured."""
    config, backend = bench.config, bench.backend
    return {
        **machine(),
        "threads": config.threads,
        "device": backend.device,
        "dtype": backend.dtype,
        "model": model,
        "random_weights": model == FLAN,
        "parameters": parameters,
        "backbone": config.backbone.model_dump(mode="json") | {"model": model},
        "backend": config.backend.model_dump(mode="json"),
        "micro_batch": backend.backbone.micro_batch,
        "passes": backend.passes,
        "deterministic": config.backend.deterministic or bench.device.type == "cpu",
        "peak": asdict(bench.peak),
        "process_memory_mb": round(peak_memory_mb()),
    }


def write_files(
    output: Path,
    facts: Mapping[str, Any],
    parts: Sequence[Part | Missing],
    hours: Hours | None,
    need: Need | None,
) -> str:
    """Write the three files; gives the Markdown."""
    markdown = to_markdown(facts, parts, hours, need)
    rows = [{**asdict(part), "measured": isinstance(part, Part)} for part in parts]
    told = {"hours": hours, "need_gflop": need}
    whole = {**facts, "rows": rows, **{key: each and asdict(each) for key, each in told.items()}}
    (output / "device.md").write_text(markdown, encoding="utf-8")
    (output / "device.csv").write_text(to_csv(parts), encoding="utf-8")
    (output / "device.json").write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
    return markdown


def to_csv(parts: Sequence[Part | Missing]) -> str:
    """A tidy table with the fields of `Part`, six significant digits, empty for None."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n", restval="")
    writer.writeheader()
    for part in parts:
        values = asdict(part).items()
        writer.writerow({key: f"{v:.6g}" if isinstance(v, float) else v for key, v in values})
    return text.getvalue()


def to_markdown(
    facts: Mapping[str, Any],
    parts: Sequence[Part | Missing],
    hours: Hours | None,
    need: Need | None,
) -> str:
    """The table for people, with how to read it below."""
    lines = [HEADINGS, ("---",) * 2 + ("---:",) * 6 + ("---",), *map(_cells, parts)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    took = "not measured: the loop is not" if hours is None else f"{number(hours.hours)} h"
    why = "" if hours is None else f": {hours.arithmetic}"
    here = f"500,000 episodes: **{took}**{why}."
    texts = [_headline(facts), table, here, needs.to_markdown(need), *NOTES, _peak(facts)]
    return "\n\n".join(texts) + "\n"


def _headline(facts: Mapping[str, Any]) -> str:
    batch = f"micro-batch {facts['micro_batch'] or 'none'}"
    random = ", random weights; each word is a token, a real tokenizer makes more of them"
    where = facts["cpu"] if facts["device"] == "cpu" else facts["device"]
    return (
        f"`{facts['model']}` ({facts['parameters'] / 1e6:,.1f} million parameters"
        f"{random if facts['random_weights'] else ''}) on {where}, {facts['dtype']}, "
        f"`lora_mode: {facts['backbone']['lora_mode']}`, {batch}, passes {facts['passes']}, "
        f"deterministic: {str(facts['deterministic']).lower()}, "
        f"PyTorch {facts['versions']['torch']}, threads {facts['threads']}. Peak memory of the "
        f"process: {facts['process_memory_mb']:,} MB."
    )


def _peak(facts: Mapping[str, Any]) -> str:
    peak = facts["peak"]
    return (
        f"Peak: {number(peak['tflops'])} TFLOP/s ({peak['source']}); one large product reached "
        f"{number(peak['product'])} TFLOP/s in the same run."
    )


def _cells(part: Part | Missing) -> tuple[str, ...]:
    if isinstance(part, Missing):
        return (part.row, part.size, "", "", "", "", "", "", part.note)
    rate = None if part.gflop is None else part.gflop / 1e3 / part.seconds
    return (
        part.row,
        part.size,
        f"{number(part.value)} {part.unit}",
        str(part.repetitions),
        number(part.gflop),
        number(rate),
        "" if part.utilisation is None else f"{part.utilisation:.1%}",
        "" if part.memory_mb is None else f"{part.memory_mb:,.0f} MB",
        part.note,
    )
