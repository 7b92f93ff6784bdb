"""Seeds needed, against textbook values."""

import numpy as np
import pytest

from analysis.statistics import power
from analysis.tables.grid import Algorithm
from magellan.core.errors import InputError

A, B = Algorithm("a", "default"), Algorithm("b", "default")
RNG = np.random.default_rng(1)


def test_seeds_for_a_difference_of_one_deviation_as_in_textbooks():
    """Two groups, d = 1, 80 % at two-sided 5 %: 17 each (Cohen 1988, table 2.4.1)."""
    normal = RNG.standard_normal(4_000)
    normal = (normal - normal.mean()) / normal.std(ddof=1) * 0.1
    assert power.seeds_needed({A: normal}, 0.1, 0.8) == 17
    assert power.t_power(17, 1.0, 1.0) == pytest.approx(0.807, abs=0.001)


def test_more_seeds_for_less():
    spread = {A: np.array([0.3, 0.35, 0.6, 0.65, 0.3]), B: np.array([0.2, 0.5, 0.55, 0.2])}
    assert power.seeds_needed(spread, 0.1, 0.8) > power.seeds_needed(spread, 0.3, 0.8)
    assert power.seeds_needed(spread, 0.001, 0.8) is None
    assert power.seeds_needed({A: np.ones(3)}, 0.1, 0.8) == 2


def test_residuals_have_the_unbiased_variance_within_algorithms():
    runs = {A: np.array([0.1, 0.3]), B: np.array([0.5, 0.5, 0.8]), Algorithm("c", "x"): np.ones(1)}
    residuals = power.residuals(runs)
    assert (residuals**2).mean() == pytest.approx(np.average([0.02, 0.03], weights=[2, 3]))
    with pytest.raises(InputError, match="no spread"):
        power.residuals({A: np.ones(1)})


@pytest.mark.parametrize("arguments", [["--difference", "0"], ["--power", "x"]])
def test_other_numbers_are_refused_in_one_line(tmp_path, refused, arguments):
    assert arguments[0] in refused("power", tmp_path, *arguments)
