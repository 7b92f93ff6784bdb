"""The simulated learner's competence, from what it practised."""

import numpy as np
import pandas as pd
import pytest

from analysis.studies import estimation
from analysis.tables import store
from magellan.core.errors import InputError
from magellan.worlds import WORLDS
from magellan.worlds.simulated import KINDS
from tests.analysis import synthetic
from tests.workflow.conftest import ROOT

REFERENCE = ROOT / "results" / "reference"
WORLD = WORLDS["simulated"]
TOGETHER, WINDOW = 8, 40


@pytest.fixture(scope="module")
def study():
    return store.load(REFERENCE / "simulated")


@pytest.fixture(scope="module")
def practice():
    """What a real learner practised, in windows, and the skills that it had after each."""
    goals = WORLD.goals("60-60-20-132-132", 0)
    env, rng = WORLD.environment(TOGETHER), np.random.default_rng(5)
    rows, skills = [], {}
    kinds = np.zeros(len(KINDS), dtype=int)
    for episode in range(TOGETHER, 801, TOGETHER):
        positions = rng.integers(len(goals), size=TOGETHER)
        env.reset(seed=episode, options={"goals": [goals.goal(int(at)) for at in positions]})
        env.step(np.zeros(TOGETHER, dtype=int))
        kinds += np.bincount(goals.categories_at(positions), minlength=len(KINDS))
        if episode % WINDOW == 0:
            rows += [(episode, kind, n) for kind, n in zip(KINDS, kinds, strict=True)]
            skills[episode] = env.skills
            kinds = np.zeros(len(KINDS), dtype=int)
    return pd.DataFrame(rows, columns=["episode", "category", "n"]), skills


def test_skills_are_those_of_the_learner(practice):
    frame, skills = practice
    estimated = estimation.skills_of(frame, 800)
    assert estimated.shape == (801, len(KINDS))
    assert skills[800][0] > 0.5
    for episode, true in skills.items():
        np.testing.assert_allclose(estimated[episode], true, atol=0.01)


def test_success_becomes_the_competence_and_nothing_else_changes(study):
    exact = estimation.with_known_competence(study)
    frame = exact.tables["evaluation"]
    keys = ["sampler", "seed", "episode", "category"]
    splits = frame.pivot_table(index=keys, columns="split", values="success")
    np.testing.assert_allclose(splits["unseen"], 0.8 * splits["train"])
    assert (splits.xs(0, level="episode") == 0.0).all(axis=None)
    observed = study.tables["evaluation"]
    assert frame.drop(columns="success").equals(observed.drop(columns="success"))
    # Sampled with 20 to 64 tries of each goal, it is never far off.
    train = frame["split"] == "train"
    assert 0.01 < (frame["success"] - observed["success"])[train].abs().mean() < 0.1
    assert exact.tables["competence"] is study.tables["competence"]


def test_other_worlds_and_phases_are_refused(study):
    with pytest.raises(InputError, match="world is 'little_zoo'; allowed: simulated"):
        estimation.with_known_competence(store.load(REFERENCE / "default"))
    runs = [{**run, "config": {**run["config"], "phases": [{}]}} for run in study.manifest["runs"]]
    with pytest.raises(InputError, match="allowed: runs of one phase"):
        estimation.with_known_competence(synthetic.with_manifest(study, runs=runs))


def test_the_option_wants_estimators(refused):
    line = refused("compare", REFERENCE / "simulated", "--known-competence")
    assert "--known-competence: allowed: with --estimators" in line
