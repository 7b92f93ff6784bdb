"""The committed benchmark is what this code writes, and the speeds in the docs are those in it."""

import csv
import json
import re
from pathlib import Path

from benchmarks.rows import COLUMNS, Row, number, to_csv, to_markdown

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
COMMITTED = ROOT / "results" / "reference" / "bench"
CORE = json.loads((COMMITTED / "manifest.json").read_text())["matmul_gflop_per_second"]
RECORDS = list(csv.DictReader((COMMITTED / "bench.csv").read_text().splitlines()))
# What each line of the page's table says: (row, shape, size) of bench.csv.
SHOWN = (
    [("whole loop", "zoo-mini", "25k")],
    [
        ("new process: whole loop", "zoo-mini", "all"),
        ("new process: peak memory of a run", "zoo-mini", "all"),
    ],
    [("SAC update", "zoo-mini", "")],
    [("competence update", "zoo-mini", "")],
    [("LP refresh", "zoo-mini", "25k")],
    [("whole loop", "t5", "25k")],
    [("SAC update", "t5", "")],
    [("competence update", "t5", "")],
    [("LP refresh", "t5", "25k")],
    [("random play, resets included", "", "")],
    [("goal space: build", "", "25k"), ("goal space: peak memory of a process", "", "25k")],
    [("online: update, 32 outcomes", "", "100k"), ("online: draw one goal", "", "100k")],
    [("ek_online: update, 32 outcomes", "", "100k"), ("ek_online: draw one goal", "", "100k")],
)


def row_of(record: dict[str, str]) -> Row:
    """The row that a line of bench.csv was written from."""
    timed = {}
    if record["gflop"]:
        gflop, rate, ceiling = (float(record[key]) for key in ("gflop", "rate", "ceiling"))
        timed = {"gflop": gflop, "seconds": gflop / rate, "alone": gflop / (ceiling * CORE)}
    named = {key: record[key] for key in ("row", "shape", "size", "unit")}
    repetitions = int(record["repetitions"])
    return Row(value=float(record["value"]), repetitions=repetitions, **named, **timed)


def rounded(text: str) -> list[list[str]]:
    """Four digits of each number: what follows from others of six digits is not good for more."""

    def cell(word: str) -> str:
        try:
            return f"{float(word):.4g}"
        except ValueError:
            return word

    return [list(map(cell, record)) for record in csv.reader(text.splitlines())]


def test_committed_tables_are_what_the_benchmark_writes():
    rows, text = list(map(row_of, RECORDS)), (COMMITTED / "bench.csv").read_text()
    assert (COMMITTED / "bench.md").read_text() == to_markdown(rows, CORE)
    assert text.splitlines()[0] == ",".join(COLUMNS)
    assert rounded(to_csv(rows, CORE)) == rounded(text)


def test_speeds_on_the_page_are_the_committed_ones():
    figures = {
        (row["row"], row["shape"], row["size"]): f"{number(float(row['value']))} {row['unit']}"
        for row in RECORDS
    }
    table = re.search("<!-- begin: speed -->\n(.*)\n<!-- end: speed -->", PAGE, re.DOTALL)
    head, _, *lines = table[1].splitlines()
    assert f"multiplies matrices at {number(CORE)} GFLOP/s" in head
    speeds = [line.split(" | ")[1].removesuffix(" |") for line in lines]
    assert speeds == ["; ".join(figures[key] for key in keys) for keys in SHOWN]


def test_the_page_gives_no_ratio_over_the_released_code():
    section = PAGE.split("## On one core", 1)[1].split("\n## ", 1)[0]
    assert "no ratio is given" in section
    assert "times better" not in section
    assert not re.search(r"times the\s+released", section)
