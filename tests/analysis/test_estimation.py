"""Errors and costs of estimators that watched the same training."""

import json

import numpy as np
import pandas as pd
import pytest

from analysis import tables
from analysis.__main__ import main
from analysis.estimation import OBSERVED, chosen_truth, table, to_markdown, with_truth
from analysis.figures import style
from analysis.figures.estimation import draw
from analysis.results import Results
from magellan.errors import InputError
from tests.analysis.synthetic import experiment, write_runs

OBSERVERS = ["per_goal", "expert_buckets", "learned"]
SPACES = ("500-100-20-20-10", "1000-400-200-100-50")


def made(tmp_path, **changes) -> Results:
    declared = experiment(("ek_eval",), SPACES, (0, 1, 2))
    declared["overrides"] = {"observers": OBSERVERS}
    declared |= changes
    folders = write_runs(tmp_path / "runs", declared, episodes=8_000)
    found = tables.combine(folders, declared)
    tables.write(found, tmp_path / "tables")
    return found


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    return made(tmp_path_factory.mktemp("watched"))


def test_errors_are_means_over_training_categories_and_runs(watched):
    """Computed again by hand, from the table of predictions alone."""
    said = watched.tables["competence"]
    said = said[(said["split"] == "train") & (said["goal_space"] == SPACES[0])]
    wide = said.pivot_table(
        index=["seed", "category", "episode"], columns="estimator", values="competence"
    )
    # Impossible goals cannot be reached: the truth is 0 whatever was measured.
    truth = wide["evaluated_buckets"].where(wide.index.get_level_values(1) != "impossible", 0.0)
    frame = table(watched, "evaluated_buckets")
    frame = frame[frame["goal_space"] == SPACES[0]].set_index("estimator")
    for name in OBSERVERS:
        error = (wide[name] - truth).abs().groupby(["seed", "category"]).mean()
        by_run = error.groupby("seed").mean()
        assert frame.loc[name, "error"] == pytest.approx(by_run.mean(), abs=1e-9)
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


def test_the_paper_s_cost_of_eval_alp_follows(watched):
    """512,000 episodes for five groups are 2,560 million for 25 thousand goals."""
    manifest = json.loads(json.dumps(watched.manifest))
    for run in manifest["runs"]:
        run["estimation_episodes"]["evaluated_buckets"] = 5 * 2_048 * 50
    frame = table(Results(watched.tables, manifest), "evaluated_buckets")
    row = frame[frame["status"] == "computed, not run"].iloc[-1]
    assert row["estimating"] == pytest.approx(2_048 * 50 * 1_750)


def test_the_truth_is_what_was_measured_if_all_runs_did(watched, tmp_path):
    assert chosen_truth(watched, None) == "evaluated_buckets"
    assert chosen_truth(watched, "observed") == OBSERVED
    other = made(tmp_path, samplers=["ek_online"])
    assert chosen_truth(other, None) == OBSERVED


def test_against_what_was_observed_is_the_calibration_error(tmp_path):
    found = made(tmp_path, samplers=["ek_online"])
    frame = table(found, OBSERVED)
    assert set(frame["status"]) == {"measured in runs"}
    observed = found.tables["evaluation"].merge(
        found.tables["competence"].drop(columns="n"),
        on=["goal_space", "seed", "split", "category", "episode"],
    )
    observed = observed[(observed["split"] == "train") & (observed["estimator"] == "learned")]
    error = (observed["success"] - observed["competence"]).abs()
    keys = [observed["goal_space"], observed["seed"], observed["category"]]
    by_category = error.groupby(keys).mean().groupby(["goal_space", "seed"]).sum()
    impossible = 0.02  # the synthetic estimators say so of impossible goals
    wanted = ((by_category + impossible) / 5).groupby("goal_space").mean()
    mine = frame[frame["estimator"] == "learned"].set_index("goal_space")["error"]
    np.testing.assert_allclose(mine[wanted.index], wanted, atol=1e-9)


def test_errors_of_each_category_are_those_of_the_papers_second_table(watched, capsys, tmp_path):
    """On unseen goals, against observed success: the mean over training and runs."""
    tables.write(watched, tmp_path / "tables")
    assert main(["estimation", str(tmp_path / "tables"), "--split", "unseen"]) == 0
    keys = ["goal_space", "seed", "split", "category", "episode"]
    both = watched.tables["competence"].merge(
        watched.tables["evaluation"], on=keys, suffixes=("", "_of_evaluation")
    )
    both = both[(both["split"] == "unseen") & (both["goal_space"] == SPACES[1])]
    errors = (both["competence"] - both["success"]).abs()
    wanted = errors.groupby([both["estimator"], both["category"], both["seed"]]).mean()
    wanted = wanted.groupby(["estimator", "category"]).mean()
    names = ["grasp", "grow_plant", "grow_herbivore", "grow_carnivore"]
    said = capsys.readouterr().out.split(f"goal space {SPACES[1]}")[1]
    cells = " | ".join(f"{wanted['learned', name]:.3f}" for name in names)
    assert f"| Learned | 0.020 | {cells} |" in said
    assert "| estimator | Impossible | Grasp | Grow plant |" in said
    assert "Evaluated goals" not in said  # nobody has measured unseen goals


def test_unseen_goals_are_not_judged_by_what_was_measured_of_others(watched):
    with pytest.raises(InputError, match="--split: 'unseen' is not allowed against evaluated_"):
        table(watched, "evaluated_buckets", "unseen")


def test_success_on_unseen_goals_stays_what_was_observed(watched):
    before, after = (
        watched.tables["evaluation"],
        with_truth(watched, "learned").tables["evaluation"],
    )
    unseen = before["split"] == "unseen"
    pd.testing.assert_frame_equal(before[unseen], after[unseen])
    assert (before.loc[~unseen, "success"] != after.loc[~unseen, "success"]).any()


def test_an_estimator_that_one_run_lacks_is_no_truth(watched):
    said = watched.tables["competence"]
    less = said[~((said["estimator"] == "learned") & (said["seed"] == 2))]
    with pytest.raises(InputError, match="--against: 'learned' has not predicted in all runs"):
        with_truth(Results({**watched.tables, "competence": less}, watched.manifest), "learned")


def test_the_command_prints_a_table_for_each_goal_space_and_draws(watched, tmp_path, capsys):
    tables.write(watched, tmp_path / "tables")
    for name in ("a", "b"):
        stem = ["--stem", str(tmp_path / name)]
        assert main(["estimation", str(tmp_path / "tables"), *stem]) == 0
    said = capsys.readouterr().out
    assert said.startswith(to_markdown(table(watched, "evaluated_buckets"), watched.categories))
    for end in ("png", "pdf"):
        pair = [(tmp_path / f"{name}.{end}").read_bytes() for name in ("a", "b")]
        assert pair[0] == pair[1]


def test_compare_takes_the_same_truth(watched, tmp_path, capsys):
    tables.write(watched, tmp_path / "tables")
    names = ["--estimators", "learned", "per_goal", "--against", "evaluated_buckets"]
    assert main(["compare", str(tmp_path / "tables"), *names]) == 0
    frame = table(watched, "evaluated_buckets").set_index(["goal_space", "estimator"])["error"]
    wanted = (
        f"| train | mean | {frame[SPACES[0]]['learned']:.3f} | {frame[SPACES[0]]['per_goal']:.3f} |"
    )
    assert wanted in capsys.readouterr().out


def test_a_panel_for_each_goal_space_and_hollow_marks_without_an_error(watched):
    figure = style.settled(draw, watched, table(watched, "evaluated_buckets"))
    assert [ax.get_title() for ax in figure.axes] == [f"{space} goals" for space in SPACES]
    for ax in figure.axes:
        marks = [line for line in ax.lines if line.get_marker() not in ("None", "")]
        hollow = [line for line in marks if line.get_markerfacecolor() == "#FFFFFF"]
        assert len(marks) == 5
        assert [line.get_ydata()[0] for line in hollow] == [0.0, 0.0]
