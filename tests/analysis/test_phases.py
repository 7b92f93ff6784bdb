"""Runs of several phases: read, checked, and compared in the last one."""

import numpy as np
import pandas as pd
import pytest

from analysis import summaries, tables
from analysis.figures import FIGURES
from analysis.phases import last_phase
from analysis.unpacking import unpack
from magellan.errors import InputError
from tests.analysis import synthetic

PHASES = {
    "early": {"phases": [{"until": 4_000, "sampler": "magellan"}, {"goals": {"split": "unseen"}}]},
    "late": {
        "phases": [{"until": 4_000}, {"until": 8_000}, {"goals": {"seed": 3}}],
        "budget": {"episodes": 16_000},
    },
}
"""Both have a last phase of 8,000 episodes."""


def declared(**changes):
    values = {"overrides": {"budget": {"episodes": 12_000}}, "variants": PHASES, **changes}
    return synthetic.experiment(("random", "online"), **values)


def phased(folder, run):
    """Made-up tables with a column `phase`; what is at an end is there once more in the next."""
    length = run.config.budget.episodes
    synthetic.write_run(folder, run, episodes=length)
    ends = [phase.until for phase in run.config.phases[:-1]]
    for name in tables.TABLES:
        path = folder / f"{name}.csv"
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
        at = frame["episode"].astype(int)
        frame.insert(0, "phase", np.searchsorted(ends, at, side="left") + 1)
        if "split" in frame.columns:
            for number, end in enumerate(ends, start=2):
                again = frame[at.to_numpy() == end].assign(phase=number)
                if run.variant == "early" or number == 3:  # goals change here
                    frame = pd.concat([frame, again])
            frame = frame.sort_values("phase", kind="stable")
        frame.to_csv(path, index=False)
    return folder


def combined(tmp_path, experiment):
    runs = synthetic.plan(experiment)
    folders = [phased(tmp_path / run.path, run) for run in runs]
    return tables.combine(folders, experiment)


@pytest.fixture
def written(tmp_path):
    tables.write(combined(tmp_path / "runs", declared()), tmp_path / "tables")
    return tmp_path / "tables"


def test_tables_keep_all_phases_and_what_is_compared_has_the_last(written):
    whole, compared = tables.load_whole(written), tables.load(written)
    assert sorted(whole.tables["practice"]["phase"].unique()) == [1, 2, 3]
    for name, frame in compared.tables.items():
        assert "phase" not in frame.columns, name
    evaluation = compared.tables["evaluation"]
    assert sorted(evaluation["episode"].unique()) == list(range(0, 8_001, 1_000))
    own = whole.tables["evaluation"]
    for variant, begins in (("early", 4_000), ("late", 8_000)):
        chosen = {"variant": variant, "sampler": "online", "seed": 1, "category": "grasp"}
        now = compared.table("evaluation", **chosen)
        mine = own[own["phase"] == own[own["variant"] == variant]["phase"].max()]
        then = mine[np.logical_and.reduce([mine[key] == value for key, value in chosen.items()])]
        assert np.array_equal(now["success"], then["success"])
        assert np.array_equal(now["episode"], then["episode"] - begins)
        assert np.array_equal(now["update"], then["update"] - begins // 10)
    practice = compared.tables["practice"]
    assert practice["episode"].min() == 500
    assert (practice.groupby(["sampler", "variant", "seed"])["n"].sum() == 8_000).all()


def test_a_phase_with_the_goals_of_the_one_before_begins_with_its_last_evaluation(tmp_path):
    phases = {"phases": [{"until": 4_000}, {}], "budget": {"episodes": 12_000}}
    experiment = synthetic.experiment(("random", "online"), overrides=phases)
    runs = synthetic.plan(experiment)
    results = tables.combine([phased(tmp_path / run.path, run) for run in runs], experiment)
    whole = results.tables["evaluation"]
    compared = last_phase(results).tables["evaluation"]
    assert sorted(compared["episode"].unique()) == list(range(0, 8_001, 1_000))
    at_begin = compared[compared["episode"] == 0]["success"].to_numpy()
    assert np.array_equal(at_begin, whole[whole["episode"] == 4_000]["success"].to_numpy())


def test_statistics_are_of_the_last_phase(written, tmp_path):
    results = tables.load(written)
    found = summaries.compute(results)
    assert found["success"]["episode"].max() == 8_000
    scores = found["scores"]
    row = scores[(scores["sampler"] == "random") & (scores["variant"] == "late")].iloc[0]
    chosen = {key: row[key] for key in ("sampler", "variant", "seed", "split", "category")}
    curve = results.table("evaluation", **chosen).sort_values("episode")
    area = np.trapezoid(curve["success"], curve["episode"]) / 8_000
    assert row["area"] == pytest.approx(area)


def test_unpacked_runs_combine_to_the_same_tables(written, tmp_path):
    unpack(written, tmp_path / "unpacked")
    folders = [tmp_path / "unpacked" / run.path for run in synthetic.plan(declared())]
    tables.write(tables.combine(folders, declared()), tmp_path / "again")
    for path in written.iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()


def test_runs_without_phases_beside_others_are_their_only_one(tmp_path):
    variants = {"plain": {"budget": {"episodes": 8_000}}, "early": PHASES["early"]}
    experiment = declared(variants=variants)
    folders = []
    for run in synthetic.plan(experiment):
        if run.variant == "plain":
            folders.append(synthetic.write_run(tmp_path / run.path, run, episodes=8_000))
        else:
            folders.append(phased(tmp_path / run.path, run))
    results = tables.combine(folders, experiment)
    plain = results.table("evaluation", variant="plain")
    assert set(plain["phase"]) == {1}
    assert sorted(last_phase(results).table("evaluation", variant="plain")["episode"].unique()) == [
        *range(0, 8_001, 1_000)
    ]


@pytest.mark.parametrize(
    ("table", "change", "message"),
    [
        (
            "evaluation",
            lambda f: f[f["phase"] < 3],
            "2 phases for sampler 'random', variant 'late'",
        ),
        ("training", lambda f: f.drop(columns="phase"), "training.csv: column phase is not in all"),
        ("evaluation", lambda f: f.assign(phase=f["phase"] - 1), "phase is 0; allowed: 1 or more"),
        ("evaluation", lambda f: pd.concat([f, f[:1]]), "two rows at"),
    ],
)
def test_tables_whose_phases_do_not_fit_are_refused(table, change, message, written):
    path = written / f"{table}.csv"
    frame = pd.read_csv(path, dtype={"goal_space": str}, keep_default_na=False)
    change(frame).to_csv(path, index=False)
    with pytest.raises(InputError, match=message):
        tables.load(written)


def test_axes_say_where_training_is_counted_from(written, tmp_path):
    results = tables.load(written)
    assert results.length_label == "training episodes of the last phase"
    statistics = summaries.compute(results)
    for name in ("success_by_category", "practice", "calibration", "mastery"):
        figure = FIGURES[name].draw(results, statistics, synthetic.GOAL_SPACE)
        labels = {ax.get_xlabel() for ax in figure.axes} - {""}
        assert labels == {"training episodes of the last phase"}, name
    plain = synthetic.experiment(("random", "magellan"))
    folders = synthetic.write_runs(tmp_path / "plain", plain, episodes=2_000)
    assert tables.combine(folders, plain).length_label == "training episodes"
