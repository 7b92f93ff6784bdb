"""Figures that follow from a measured one, the released figures, and the tables."""

import csv
import io
import itertools

import pytest

from benchmarks.rows import COLUMNS, HEADINGS, Row, number, to_csv, to_markdown
from benchmarks.timing import MatmulRate, median_seconds

UPDATE = Row("SAC update", 0.5, "s", 9, shape="t5", seconds=0.5, gflop=20.0, alone=0.2)
BARE = Row("random: draw one goal", 0.015, "ms", 100, size="25k")


def test_rates_and_shares_of_the_floor():
    """20 GFLOP in half a second is 40 GFLOP/s, a quarter of what the core does; alone they take
    0.2 s, which is 100 GFLOP/s."""
    assert UPDATE.rate == pytest.approx(40.0)
    assert UPDATE.fraction(160.0) == pytest.approx(0.25)
    assert UPDATE.ceiling(160.0) == pytest.approx(100 / 160)
    assert (BARE.rate, BARE.fraction(160.0), BARE.ceiling(160.0)) == (None, None, None)


def test_the_released_code_stands_beside_its_own_model_only_and_nothing_is_divided_by_it():
    assert UPDATE.released == 2.64
    assert Row("SAC update", 0.5, "s", 9, shape="zoo-mini").released is None
    assert BARE.released is None
    assert not {"ratio", "times better"} & {*COLUMNS, *HEADINGS}
    assert "no ratio is given" in to_markdown([UPDATE], 160.0)


def test_csv_is_tidy_and_leaves_cells_empty():
    table = list(csv.DictReader(io.StringIO(to_csv([UPDATE, BARE], 160.0))))
    assert tuple(table[0]) == COLUMNS
    assert table[0]["fraction"] == "0.25"
    assert table[0]["ceiling"] == "0.625"
    assert table[0]["released"] == "2.64"
    assert [table[1][key] for key in ("released", "gflop", "fraction", "ceiling")] == [""] * 4


def test_markdown_shows_each_row():
    text = to_markdown([UPDATE, BARE], 160.0)
    lines = text.splitlines()
    assert lines[2] == "| SAC update | t5 |  | 0.500 s | 2.64 s | 20.0 | 40.0 | 25% | 62% | 9 |"
    assert lines[3] == "| random: draw one goal |  | 25k | 0.0150 ms |  |  |  |  |  | 100 |"
    assert {line.count("|") for line in lines[:4]} == {11}
    assert "reached 160 GFLOP/s" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (12_345.6, "12,346"), (100, "100"), (14, "14.0"), (0.21, "0.210"), (0, "0.00")],
)
def test_numbers_have_three_digits(value, text):
    assert number(value) == text


def test_median_of_fake_times():
    """Calls that take 1, 9 and 2 seconds."""
    ticks = iter([0.0, 1.0, 10.0, 19.0, 20.0, 22.0])
    calls = []
    assert median_seconds(lambda: calls.append(1), 3, clock=lambda: next(ticks)) == 2.0
    assert len(calls) == 3


def test_speed_of_the_core_is_its_best():
    """Products that take a quarter of a second each: 0.268 GFLOP in 0.25 s."""
    core = MatmulRate(clock=itertools.count(0.0, 0.25).__next__)
    assert core.rates == [pytest.approx(2 * 512**3 / 1e9 / 0.25)]
    core.rates = [50.0, 70.0, 60.0]
    core.measure()
    assert len(core.rates) == 4
    assert core.best == 70.0
