"""Studies: errors and costs of estimators, what was practised and believed, and what it cost."""

import re

import numpy as np
import pandas as pd
import pytest

from analysis.statistics.practice_shares import explored_shares
from analysis.studies import behaviour, estimation
from analysis.studies.estimation import KNOWN, OBSERVED, choose_truth, table, with_truth
from analysis.tables import store
from analysis.tables.grid import Algorithm
from analysis.tables.results import Results, rows_where
from magellan.competence.evaluated import EvaluatedBuckets
from magellan.worlds import WORLDS
from magellan.worlds.simulated import KINDS
from tests.analysis import synthetic
from tests.analysis.synthetic import combined, experiment, to_markdown, with_configs, with_tables
from tests.runs import refuses, trained
from tests.workflow.conftest import ROOT

OBSERVERS = ["per_goal", "expert_buckets", "learned"]
ERRORS = ("--of", "error")
SPACES = ("500-100-20-20-10", "1000-400-200-100-50")


def combine_watched(folder, sampler) -> Results:
    layer = {"observers": OBSERVERS, "budget": {"evaluate_every": 1_000}}
    return combined(folder, (sampler,), SPACES, (0, 1, 2), overrides=layer, episodes=8_000)


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    return combine_watched(tmp_path_factory.mktemp("watched"), "ek_eval")


def test_errors_are_means_over_training_categories_and_runs(watched):
    """Computed again by hand, from the table of predictions alone."""
    predictions = watched.table("competence", split="train", goal_space=SPACES[0])
    wide = predictions.pivot_table(
        index=["seed", "category", "episode"], columns="estimator", values="competence"
    )
    # What is measured at one evaluation is recorded at the next; the last one is not judged.
    truth = wide["evaluated_buckets"].groupby(["seed", "category"]).shift(-1)
    # Impossible goals cannot be reached: the truth is 0 whatever was measured.
    truth = truth.where(wide.index.get_level_values(1) != "impossible", 0.0)
    judged = wide.index.get_level_values(2) < wide.index.get_level_values(2).max()
    truth, wide = truth[judged], wide[judged]
    frame = rows_where(table(watched, "evaluated_buckets"), goal_space=SPACES[0])
    frame = frame.set_index("estimator")
    for name in OBSERVERS:
        errors = (wide[name] - truth).abs().groupby(["seed", "category"])
        areas = errors.agg(lambda g: np.trapezoid(g, g.index.get_level_values("episode")))
        by_run = areas.groupby("seed").mean() / 7_000
        assert frame.loc[name, "error"] == pytest.approx(by_run.mean())
        assert frame.loc[name, "low"] <= by_run.mean() <= frame.loc[name, "high"]
        assert frame.loc[name, "runs"] == 3
    assert frame.loc["evaluated_buckets", "error"] == 0.0


def test_costs_are_what_was_played_to_estimate_and_what_eval_alp_would_have_played(watched):
    frame = table(watched, "evaluated_buckets").set_index(["goal_space", "estimator"])
    for space, goals in zip(SPACES, (650, 1_750), strict=True):
        costs = frame.loc[space]["estimating"]
        assert costs[["per_goal", "expert_buckets", "learned"]].tolist() == [0.0, 0.0, 0.0]
        assert costs["evaluated_buckets"] == 200
        assert costs["evaluated_goals"] == 200 / 5 * goals  # five categories were measured
    assert frame.loc[(SPACES[0], "evaluated_goals"), "status"] == "computed, not run"


def test_the_truth_is_what_was_measured_if_all_runs_did(watched, tmp_path):
    assert choose_truth(watched, None) == "evaluated_buckets"
    assert choose_truth(watched, "observed") == OBSERVED
    assert choose_truth(with_configs(watched, **UNSEEN), None) == OBSERVED
    assert choose_truth(with_configs(watched, **SELDOM), None) == OBSERVED
    assert choose_truth(combine_watched(tmp_path, "ek_online"), None) == OBSERVED


def without(results, where):
    frame = results.tables["competence"]
    return with_tables(results, competence=frame.drop(frame.query(where).index))


UNSEEN = {"goals": {"seed": 0, "split": "unseen"}}
SELDOM = {"evaluated_buckets": {"every": 2_000, "episodes": 8}}
# What is judged where it cannot be, by the words of the error.
REFUSED = {
    "--split: 'unseen' is not allowed against evaluated_": lambda results: table(
        results, "evaluated_buckets", "unseen"
    ),
    "evaluated_buckets is the only estimator": lambda results: table(
        without(results, "estimator != 'evaluated_buckets'"), "evaluated_buckets"
    ),
    "estimation: runs have several phases": lambda results: table(
        with_configs(results, phases=[{"until": 10}, {}]), OBSERVED
    ),
    "world is 'little_zoo'; allowed: simulated": lambda results: with_truth(results, KNOWN),
    "has measured unseen goals": lambda results: with_truth(
        with_configs(results, **UNSEEN), "evaluated_buckets"
    ),
    "measures at other points than the evaluations": lambda results: with_truth(
        with_configs(results, **SELDOM), "evaluated_buckets"
    ),
    "--against: 'learned' has not predicted in all runs": lambda results: with_truth(
        without(results, "estimator == 'learned' and seed == 2"), "learned"
    ),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_judged_is_refused(watched, words):
    refuses(words, REFUSED[words], watched)


def test_what_was_measured_at_an_evaluation_is_its_truth(tmp_path, monkeypatch):
    layer = {
        "observers": ["expert_buckets"],
        "evaluated_buckets": {"every": 20, "episodes": 8},
        "budget": {"episodes": 60, "evaluate_every": 20, "evaluation_goals": 2},
    }
    declared, measured = experiment(("ek_eval",), ("20-10-6-4-4",), (0,), overrides=layer), []
    record_evaluation = EvaluatedBuckets.record_evaluation

    def record_eighths(estimator, outcomes):
        """Whatever was won: an eighth at the first measurement, two at the second, and so on."""
        record_evaluation(estimator, outcomes)
        measured.append(outcomes)
        estimator._pending[-1][:] = len(measured) / 8

    monkeypatch.setattr(EvaluatedBuckets, "record_evaluation", record_eighths)
    (run,) = synthetic.plan(declared)
    results = store.combine([trained(run.config, tmp_path / "run")], declared)
    assert len(measured) == 3  # what is due at the end is not measured
    truth = with_truth(results, "evaluated_buckets")
    judged = truth.table("evaluation", split="train", category="grasp")
    assert judged["episode"].tolist() == [0, 20, 40]
    assert judged["success"].tolist() == pytest.approx([1 / 8, 2 / 8, 3 / 8])


WORLD = WORLDS["simulated"]
TOGETHER, WINDOW = 8, 40


@pytest.fixture(scope="module")
def study():
    return store.load(ROOT / "results/reference/simulated")


def test_skills_are_those_of_a_learner_with_this_practice():
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
    frame = pd.DataFrame(rows, columns=["episode", "category", "n"])
    estimated = estimation.skills_of(frame, 800)
    assert estimated.shape == (801, len(KINDS))
    assert skills[800][0] > 0.5
    for episode, true in skills.items():
        np.testing.assert_allclose(estimated[episode], true, atol=0.01)


def test_success_becomes_the_competence_and_nothing_else_changes(study):
    exact = with_truth(study, KNOWN)
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


def test_the_command_takes_the_known_competence(study, printed):
    """On both splits, and the errors are those of `compare`."""
    text = printed("estimation", study, "--against", "known", "--split", "unseen")
    assert "against the known competence" in text
    error = re.search(r"\| Learned \|.* (\d\.\d{3}) \| \d\.\d{3} to", text)[1]
    compared = printed("compare", study, "random:learned", *ERRORS, "--against", "known")
    assert f"| unseen | mean | {error} |" in compared


SPACE = synthetic.GOAL_SPACE
MAGELLAN, RANDOM = Algorithm("magellan", "default"), Algorithm("random", "default")
ONLINE, EK = Algorithm("online", "default"), Algorithm("ek_online", "default")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return synthetic.combined(tmp_path_factory.mktemp("runs"), seeds=(0, 1, 2), episodes=8_000)


def test_a_shift_is_found():
    points = np.arange(0, 16_001, 1_000)
    observed = 1 / (1 + np.exp(-(points - 6_000) / 800))
    late = np.interp(points - 2_000, points, observed)
    assert behaviour.lag(points, observed, observed) == 0
    assert behaviour.lag(points, observed, late) == pytest.approx(2_000, abs=134)
    assert np.isnan(behaviour.lag(points, observed * 0.2, late))


def test_the_end_of_training_has_its_own_shares(results):
    """Grasping only, but plants only in the last third of a run."""
    practice = results.tables["practice"].copy()
    late = practice["episode"] > practice["episode"].max() * 2 / 3
    assert late.any()
    assert not late.all()
    chosen = np.where(late, "grow_plant", "grasp")
    practice["n"] = np.where(practice["category"] == chosen, 10, 0)
    made_up = with_tables(results, practice=practice)
    whole = behaviour.practice_shares(made_up, MAGELLAN, SPACE)
    end = behaviour.practice_shares(made_up, MAGELLAN, SPACE, behaviour.LATE)
    assert (whole["grasp"] > 0.5).all()
    assert (end["grow_plant"] == 1.0).all()


def test_no_exploitation_is_estimated_where_exploration_is_not_known(results):
    assert behaviour.exploited_shares(results, RANDOM, SPACE) is None
    for algorithm in (EK, ONLINE):
        assert behaviour.exploited_shares(results, algorithm, SPACE) is not None
    unknown = with_configs(results, world="far")
    unknown.__dict__["categories"] = results.categories
    assert behaviour.exploited_shares(unknown, ONLINE, SPACE) is None
    training = results.tables["training"]
    unrecorded = with_tables(results, training=training[training["sampler"] != "online"])
    assert behaviour.exploited_shares(unrecorded, ONLINE, SPACE) is None


def test_the_mix_of_goals_is_that_of_the_last_phase_or_of_the_manifest(results):
    other = with_configs(results, phases=[{}, {"goal_space": "10-10-0-0-0"}])
    mix = explored_shares(other, ONLINE, SPACE)
    never = dict.fromkeys(("grow_plant", "grow_herbivore", "grow_carnivore"), 0.0)
    assert mix == {"impossible": 0.5, "grasp": 0.5, **never}
    assert explored_shares(other, EK, SPACE) == mix
    for run in other.manifest["runs"]:
        run["goal_counts"] = {"grasp": 1, "grow_plant": 3}
    mix = explored_shares(other, ONLINE, SPACE)
    assert (mix["grasp"], mix["grow_plant"], mix["impossible"]) == (0.25, 0.75, 0.0)


@pytest.mark.parametrize(
    ("algorithm", "config", "even"),
    [
        (MAGELLAN, {}, False),
        (MAGELLAN, {"samplers": {"estimator": "expert_buckets"}}, True),
        (MAGELLAN, {"samplers": {"estimator": "learned_groups"}}, None),
        (ONLINE, {"samplers": {"estimator": "one_that_is_not_here"}}, None),
        (EK, {}, True),
        (EK, {"ek_online": {"explore": "goals"}}, False),
    ],
)
def test_exploration_is_over_the_arms_of_the_estimator(results, algorithm, config, even):
    found = explored_shares(with_configs(results, **config), algorithm, SPACE)
    counts = np.array([1_000, 400, 200, 100, 50])
    expected = None if even is None else np.full(5, 0.2) if even else counts / counts.sum()
    assert (found is None) == (expected is None)
    if found is not None:
        np.testing.assert_allclose(list(found.values()), expected)


def test_collapses_are_counted_and_what_is_learnt_at_the_end(results):
    falls = (0.6, 0.1, 0.9, 0.3, 0.1, 0.51, 0.51)
    seen = {(1, 1_000 * at): success for at, success in enumerate(falls)}
    seen |= {(0, 8_000): 0.51, (2, 8_000): 0.5}  # the bar is .5
    evaluation = results.tables["evaluation"]
    online = (evaluation["sampler"] == "online") & (evaluation["split"] == "train")
    grasp = online & (evaluation["category"] == "grasp")
    points = zip(evaluation["seed"], evaluation["episode"], strict=True)
    own = np.where(grasp, [seen.get(point, 0.0) for point in points], 0.0)
    success = np.where(online, own, evaluation["success"])
    made_up = with_tables(results, evaluation=evaluation.assign(success=success))
    # Two falls: .6 to .1, and the last .51 to the 0 behind it; .9 falls to .3 only.
    assert behaviour.collapses(made_up, ONLINE, SPACE) == (2, 4)
    runs = behaviour.learnt(made_up, ONLINE, SPACE)
    assert runs["grasp"].to_dict() == {0: True, 1: False, 2: False}
    assert not runs.drop(columns="grasp").to_numpy().any()
    table = to_markdown(behaviour, made_up)
    assert "| Online-ALP | 1 of 3 | 0 of 3 | 0 of 3 | 0 of 3 |" in table


def test_beliefs_are_those_of_the_driving_estimator(results):
    frame = behaviour.beliefs(results, MAGELLAN, SPACE)
    assert sorted(set(frame["seed"])) == [0, 1, 2]
    where = {"sampler": "magellan", "estimator": "learned", "split": "train"}
    competence = results.table("competence", seed=2, category="grasp", **where)
    row = rows_where(frame, seed=2, category="grasp").iloc[0]
    area = np.trapezoid(competence["competence"], competence["episode"])
    assert row["competence"] == pytest.approx(area / 8_000)
    settled = competence[competence["episode"] > 8_000 / 8]
    assert 0 < len(settled) < len(competence)
    assert row["learning_progress"] == pytest.approx(settled["learning_progress"].mean())
    impossible = frame[frame["category"] == "impossible"]
    assert impossible["lag"].isna().all()
    assert np.allclose(impossible["error"], impossible["competence"].abs())


def test_all_is_of_the_goals_that_are_practised_at_the_end(results):
    """Runs that practise unseen goals: success and predictions are those of unseen goals."""
    evaluation = results.tables["evaluation"]
    trained = evaluation["split"] == "train"
    frame = evaluation.assign(success=evaluation["success"].where(trained, 0.0))
    unseen = with_configs(results, goals={"seed": 0, "split": "unseen"})
    made_up = with_tables(unseen, evaluation=frame)
    assert not behaviour.learnt(made_up, EK, SPACE).to_numpy().any()
    assert behaviour.collapses(made_up, EK, SPACE) == (0, 0)
    beliefs = behaviour.beliefs(made_up, MAGELLAN, SPACE)
    assert np.allclose(beliefs["error"], beliefs["competence"].abs())
    assert "|predicted - observed|, unseen goals, goal space" in to_markdown(behaviour, made_up)
