"""Seeds needed, against textbook values; chances of the right order, by enumeration."""

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.statistics import power
from analysis.tables import store
from analysis.tables.grid import Algorithm
from magellan.core.errors import InputError

A, B = Algorithm("a", "default"), Algorithm("b", "default")
RNG = np.random.default_rng(1)


def test_seeds_for_a_difference_of_one_deviation_as_in_textbooks():
    """Two groups, d = 1, 80 % at two-sided 5 %: 17 each (Cohen 1988, table 2.4.1)."""
    normal = RNG.standard_normal(4_000)
    normal = (normal - normal.mean()) / normal.std(ddof=1) * 0.1
    found = power.seeds_needed({A: normal}, 0.1, 0.8)
    assert found.approximated == 17
    assert abs(found.simulated - 17) <= 1
    assert power.t_power(17, 1.0, 1.0) == pytest.approx(0.807, abs=0.001)


def test_more_seeds_for_less():
    spread = {A: np.array([0.3, 0.35, 0.6, 0.65, 0.3]), B: np.array([0.2, 0.5, 0.55, 0.2])}
    small, large = (power.seeds_needed(spread, by, 0.8) for by in (0.1, 0.3))
    assert small.approximated > large.approximated
    assert small.simulated > large.simulated
    assert power.seeds_needed(spread, 0.001, 0.8) == (None, None)


def test_residuals_have_the_unbiased_variance_within_algorithms():
    runs = {A: np.array([0.1, 0.3]), B: np.array([0.5, 0.5, 0.8]), Algorithm("c", "x"): np.ones(1)}
    found = power.residuals(runs)
    assert (found**2).mean() == pytest.approx(np.average([0.02, 0.03], weights=[2, 3]))
    with pytest.raises(InputError, match="no spread"):
        power.residuals({A: np.ones(1)})


def test_chance_of_the_right_order_by_enumeration():
    """One run each: .2 or .6 against .4 or .6: of four pairs one win, one tie, two losses."""
    runs = {A: np.array([0.2, 0.6]), B: np.array([0.4, 0.6])}
    (order,) = power.order_chances(runs, (1, 200))
    assert (order.better, order.worse) == (B, A)
    assert order.difference == pytest.approx(0.1)
    assert order.chances[0] == pytest.approx(1 - 1.5 / 4, abs=0.03)
    assert order.chances[1] > 0.99


def test_the_command_prints_tables(results, tmp_path, capsys):
    store.write(results, tmp_path)
    assert main(["power", str(tmp_path), "--difference", "0.2", "--seeds", "3", "7"]) == 0
    out = capsys.readouterr().out
    assert "difference of 0.2 with a chance of 80%" in out
    assert "| all algorithms | 8 |" in out
    assert "| better | worse | better minus worse | n = 3 | n = 7 |" in out
    assert out.count("| MAGELLAN |") == 4


@pytest.mark.parametrize("arguments", [["--difference", "0"], ["--power", "x"], ["--seeds", "0"]])
def test_other_numbers_are_refused_in_one_line(tmp_path, capsys, arguments):
    assert main(["power", str(tmp_path), *arguments]) == 2
    line = capsys.readouterr().err
    assert arguments[0] in line
    assert line.count("\n") == 1
