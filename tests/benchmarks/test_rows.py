"""Figures that follow from a measured one, the released figures, and the tables."""

import csv
import io
import itertools

import pytest

from benchmarks.released import RELEASED
from benchmarks.rows import COLUMNS, HEADINGS, Row, Skipped, number, records, to_csv, to_markdown
from benchmarks.timing import MatmulRate, median_seconds

UPDATE = Row("SAC update", 0.5, "s", 9, shape="t5", seconds=0.5, gflop=20.0, alone=0.2)
BARE = Row("random: draw one goal", 0.015, "ms", 100, size="25k")


def test_rate_and_share_of_the_floor():
    """20 GFLOP in half a second is 40 GFLOP/s: a core that does 160 needs a quarter of the time."""
    assert UPDATE.rate == pytest.approx(40.0)
    assert UPDATE.fraction(160.0) == pytest.approx(0.25)
    assert BARE.rate is None
    assert BARE.fraction(160.0) is None


def test_share_of_the_floor_with_products_alone():
    """The same 20 GFLOP in 0.2 s are 100 GFLOP/s."""
    assert UPDATE.ceiling(160.0) == pytest.approx(100 / 160)
    assert BARE.ceiling(160.0) is None


def test_the_released_code_stands_beside_its_own_model_only():
    assert UPDATE.released == 2.64
    assert Row("SAC update", 0.5, "s", 9, shape="zoo-mini").released is None
    assert BARE.released is None


def test_nothing_is_divided_by_figures_of_another_machine():
    assert not {"ratio", "times better"} & {*COLUMNS, *HEADINGS}
    assert "no ratio is given" in to_markdown([UPDATE], [], 160.0)


@pytest.mark.parametrize(
    ("row", "size", "figures"),
    [
        ("online: draw one goal", ("25k", "50k", "100k"), (4.3, 10.8, 51)),
        ("online: update, 32 outcomes", ("25k", "50k", "100k"), (284, 569, 1_168)),
        ("ek_online: update, 32 outcomes", ("25k", "50k", "100k"), (980, 4_300, 24_500)),
        ("magellan: draw one goal", ("25k", "50k", "100k"), (4.8, 9.5, 20)),
        ("goal space: build", ("25k",), (81.5,)),
        ("goal space: peak memory of a process", ("25k",), (18_200,)),
        ("random play, resets included", ("",), (1_880,)),
    ],
)
def test_released_figures_without_a_model(row, size, figures):
    assert tuple(RELEASED[row, "", name] for name in size) == figures


def test_released_figures_with_a_model():
    with_model = {key[0]: figure for key, figure in RELEASED.items() if key[1]}
    assert with_model == {
        "acting": 452,
        "SAC update": 2.64,
        "competence update": 0.21,
        "LP refresh": 19.9,
        "whole loop": 14,
        "whole loop without refresh": 21,
    }
    assert {key[1] for key in RELEASED} == {"", "t5"}


def test_csv_is_tidy_and_leaves_cells_empty():
    table = list(csv.DictReader(io.StringIO(to_csv([UPDATE, BARE], 160.0))))
    assert tuple(table[0]) == COLUMNS
    assert table[0]["fraction"] == "0.25"
    assert table[0]["ceiling"] == "0.625"
    assert table[0]["released"] == "2.64"
    assert [table[1][key] for key in ("released", "gflop", "fraction", "ceiling")] == [""] * 4
    assert [record["row"] for record in records([UPDATE, BARE], 160.0)] == [UPDATE.row, BARE.row]


def test_markdown_shows_each_row_and_what_is_left_out():
    text = to_markdown([UPDATE, BARE], [Skipped("loop on all", "no such goal space")], 160.0)
    lines = text.splitlines()
    assert lines[2] == "| SAC update | t5 |  | 0.500 s | 2.64 s | 20.0 | 40.0 | 25% | 62% | 9 |"
    assert lines[3] == "| random: draw one goal |  | 25k | 0.0150 ms |  |  |  |  |  | 100 |"
    assert {line.count("|") for line in lines[:4]} == {11}
    assert "Not measured: loop on all: no such goal space." in text
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
