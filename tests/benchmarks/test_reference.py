"""The committed benchmark is what this code writes, and the speeds in the docs are those in it."""

import csv
import json
import re
from pathlib import Path

from benchmarks import highlights
from benchmarks.rows import COLUMNS, Row, Skipped, to_csv, to_markdown

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
MANIFEST = json.loads((highlights.REFERENCE / "manifest.json").read_text(encoding="utf-8"))
CORE = MANIFEST["matmul_gflop_per_second"]


def text_of(name: str) -> str:
    return (highlights.REFERENCE / name).read_text(encoding="utf-8")


def row_of(record: dict[str, str]) -> Row:
    """The row that a line of bench.csv was written from."""
    timed = {}
    if record["gflop"]:
        gflop, rate, ceiling = (float(record[key]) for key in ("gflop", "rate", "ceiling"))
        timed = {"gflop": gflop, "seconds": gflop / rate, "alone": gflop / (ceiling * CORE)}
    named = {key: record[key] for key in ("row", "shape", "size", "unit")}
    repetitions = int(record["repetitions"])
    return Row(value=float(record["value"]), repetitions=repetitions, **named, **timed)


def committed_rows() -> list[Row]:
    return [row_of(record) for record in csv.DictReader(text_of("bench.csv").splitlines())]


def test_committed_table_is_what_the_benchmark_writes():
    skipped = [Skipped(row, reason) for row, reason in MANIFEST["skipped"].items()]
    assert text_of("bench.md") == to_markdown(committed_rows(), skipped, CORE)
    assert text_of("bench.csv").splitlines()[0] == ",".join(COLUMNS)


def test_committed_csv_is_what_the_benchmark_writes():
    written, committed = (
        [[number_or_text(cell) for cell in record] for record in csv.reader(text.splitlines())]
        for text in (to_csv(committed_rows(), CORE), text_of("bench.csv"))
    )
    assert written == committed


def number_or_text(cell: str) -> str:
    """Four digits of a number: what follows from others of six digits is not good for more."""
    try:
        return f"{float(cell):.4g}"
    except ValueError:
        return cell


def test_speeds_on_the_page_are_the_committed_ones():
    found = re.search("<!-- begin: speed -->\n(.*)<!-- end: speed -->", PAGE, re.DOTALL)
    assert found is not None
    assert found.group(1) == highlights.to_markdown(highlights.REFERENCE)


def test_the_page_gives_no_ratio_over_the_released_code():
    section = PAGE.split("## On one core", 1)[1].split("\n## ", 1)[0]
    assert "no ratio is given" in section
    assert "times better" not in section
    assert not re.search(r"times the\s+released", section)
