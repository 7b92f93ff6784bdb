"""Coverage of the intervals in use, simulated small, and the page of all."""

import re
from pathlib import Path

import numpy as np
import pytest

from analysis.statistics.intervals import Bootstrap
from analysis.studies import coverage as simulation
from analysis.studies.coverage import METHODS, WORLDS, coverage

BOOTSTRAP = Bootstrap(repetitions=400, seed=3)
HALF, _, SPREAD = WORLDS


def covered(statistic, name, world, runs):
    methods = [method for method in METHODS if method.statistic == statistic]
    method = next(method for method in methods if method.name.startswith(name))
    return coverage(method, world, runs, 400, BOOTSTRAP)


def test_made_up_runs_are_like_the_observed_ones():
    correlations = np.corrcoef(simulation.population(HALF)[0].T)
    assert correlations[2, 3] > 0.9  # herbivore and carnivore
    assert correlations[0, 2] < -0.6  # grasp and herbivore


@pytest.mark.parametrize("runs", [4, 5, 8, 20])
def test_studentised_intervals_cover_about_as_often_as_they_say(runs):
    assert covered("mean", "studentised", SPREAD, runs) > 0.92
    assert covered("mean", "studentised", HALF, runs) > (0.88 if runs == 4 else 0.92)
    least = 0.9 if runs == 8 else 0.84
    for world in WORLDS if runs < 10 else ():
        assert covered("difference of means", "inverted", world, runs) > least


def test_a_tie_is_half_an_improvement():
    same = np.zeros((3, 4))
    assert simulation.TRUTHS["probability of improvement"](same, same) == 0.5


def test_tests_hold_their_level():
    alarms = simulation.false_alarms(HALF, 5, 400, seed=0)
    assert alarms["permutation"] < 0.08
    assert alarms["log-rank"] < 0.11


@pytest.mark.parametrize("arguments", [["--experiments", "1"], ["--seed", "x"], ["--more"]])
def test_wrong_arguments_are_refused_in_one_line(capsys, arguments):
    assert simulation.main(arguments) == 2
    assert capsys.readouterr().err.count("\n") == 1


def masked(text):
    """A text without its shares."""
    return re.sub(r"\b[01]\.\d{2,3}\b", "x", text)


@pytest.mark.slow
def test_the_command_prints_the_tables_of_the_page(capsys):
    """Their form: the large simulation is not rerun."""
    assert simulation.main(["--experiments", "3", "--resamples", "60"]) == 0
    out = capsys.readouterr().out
    assert out.count("| statistic | interval |") == len(WORLDS)
    page = (Path(__file__).parents[2] / "docs" / "studies" / "coverage.md").read_text()
    assert masked(out) in masked(page)
