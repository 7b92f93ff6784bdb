"""Coverage of the intervals in use, simulated small, and the page of all."""

import re
from pathlib import Path

import numpy as np
import pytest

from analysis.statistics.intervals import Bootstrap
from analysis.studies import coverage as simulation
from analysis.studies.coverage import METHODS, WORLDS, coverage
from analysis.tables.printing import to_markdown

BOOTSTRAP = Bootstrap(repetitions=400, seed=3)
HALF, _, SPREAD = WORLDS


def covered(statistic, name, world, runs):
    found = (of for other, label, _, of in METHODS if other == statistic and label.startswith(name))
    return coverage(statistic, next(found), world, runs, 400, BOOTSTRAP)


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


def masked(text):
    """A text without its shares."""
    return re.sub(r"\b[01]\.\d{2,3}\b", "x", text)


@pytest.mark.slow
def test_the_command_prints_the_tables_of_the_page():
    """Their form: the large simulation is not rerun."""
    out = "\n\n".join(map(to_markdown, simulation.tables(3, 60)))
    page = (Path(__file__).parents[2] / "docs" / "studies" / "coverage.md").read_text()
    assert masked(out) in masked(page)
