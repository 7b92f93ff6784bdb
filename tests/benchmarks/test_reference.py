"""The speeds in the docs are those of the committed benchmark."""

import csv
import json
import re

from benchmarks.run import number
from tests.snippets import ROOT

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
    [("whole loop", "t5", "25k")],
)


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
