"""The table of docs/speed.md, made from a benchmark's files: `python -m benchmarks.highlights`."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

from benchmarks.released import MODEL
from benchmarks.rows import number

Key = tuple[str, str, str]
"""Row, shape and size, as in bench.csv."""

REFERENCE = Path(__file__).resolve().parents[1] / "results" / "reference" / "bench"
ALL = "19,531,250 goals"
HIGHLIGHTS: tuple[tuple[str, tuple[Key, ...]], ...] = (
    (
        "whole loop at the paper's schedule, 25k goals, `zoo-mini`",
        (("whole loop", "zoo-mini", "25k"),),
    ),
    (
        f"the same on all {ALL}, in a new process; its memory",
        (
            ("new process: whole loop", "zoo-mini", "all"),
            ("new process: peak memory of a run", "zoo-mini", "all"),
        ),
    ),
    ("`zoo-mini`: SAC update, batch 256", (("SAC update", "zoo-mini", ""),)),
    ("`zoo-mini`: competence update, batch 256", (("competence update", "zoo-mini", ""),)),
    ("`zoo-mini`: learning progress of 24,992 goals", (("LP refresh", "zoo-mini", "25k"),)),
    (f"{MODEL}: whole loop, 25k goals", (("whole loop", "t5", "25k"),)),
    ("this T5: SAC update, batch 256", (("SAC update", "t5", ""),)),
    ("this T5: competence update, batch 256", (("competence update", "t5", ""),)),
    ("this T5: learning progress of 24,992 goals", (("LP refresh", "t5", "25k"),)),
    (
        "Little-Zoo, random play, resets and text included",
        (("random play, resets included", "", ""),),
    ),
    (
        "drawing the 25k goal space; memory of the process",
        (("goal space: build", "", "25k"), ("goal space: peak memory of a process", "", "25k")),
    ),
    (
        "`online`, 100k goals: 32 outcomes; one draw",
        (("online: update, 32 outcomes", "", "100k"), ("online: draw one goal", "", "100k")),
    ),
    (
        "`ek_online`, 100k goals: 32 outcomes; one draw",
        (("ek_online: update, 32 outcomes", "", "100k"), ("ek_online: draw one goal", "", "100k")),
    ),
)


def to_markdown(folder: Path) -> str:
    """What docs/speed.md says of a full benchmark, whose files are in `folder`."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    with (folder / "bench.csv").open(newline="", encoding="utf-8") as file:
        figures = {
            (row["row"], row["shape"], row["size"]): f"{number(float(row['value']))} {row['unit']}"
            for row in csv.DictReader(file)
        }
    core = number(manifest["matmul_gflop_per_second"])
    lines = [f"| what, on one core that multiplies matrices at {core} GFLOP/s | |", "|---|---|"]
    for text, keys in HIGHLIGHTS:
        lines.append(f"| {text} | {'; '.join(figures[key] for key in keys)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(to_markdown(Path(sys.argv[1]) if len(sys.argv) > 1 else REFERENCE), end="")
