"""Runs of several phases: read, checked, compared in the last one, and shown phase by phase."""

import numpy as np
import pandas as pd
import pytest

from analysis import figures
from analysis.figures import FIGURES
from analysis.figures.training import curves, is_shared
from analysis.report import summary
from analysis.statistics import summaries
from analysis.tables import store
from analysis.tables.phases import each_phase, last_phase
from analysis.tables.results import rows_where
from magellan.core.errors import InputError
from tests.analysis import synthetic
from tests.analysis.synthetic import to_markdown
from tests.analysis.test_tables import edit

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
    for name in store.TABLES:
        path = folder / f"{name}.csv"
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
        at = frame["episode"].astype(int)
        frame.insert(0, "phase", np.searchsorted(ends, at, side="left") + 1)
        if "split" in frame.columns:
            for number, end in enumerate(ends, start=2):
                again = frame[at.to_numpy() == end].assign(phase=number)
                if any(dict(run.config.phases[number - 1].goals).values()):  # they change here
                    frame = pd.concat([frame, again])
            # Rows as a run writes them: by phase, then by length of training.
            frame = frame.iloc[np.lexsort((frame["episode"].astype(int), frame["phase"]))]
        frame.to_csv(path, index=False)
    return folder


def combine(tmp_path, experiment, write_run=phased):
    folders = [write_run(tmp_path / run.path, run) for run in synthetic.plan(experiment)]
    return store.combine(folders, experiment)


@pytest.fixture
def written(tmp_path):
    store.write(combine(tmp_path / "runs", declared()), tmp_path / "tables")
    return tmp_path / "tables"


def test_tables_keep_all_phases_and_what_is_compared_has_the_last(written):
    whole, compared = store.load_whole(written), store.load(written)
    assert sorted(whole.tables["practice"]["phase"].unique()) == [1, 2, 3]
    for name, frame in compared.tables.items():
        assert "phase" not in frame.columns, name
    evaluation = compared.tables["evaluation"]
    assert sorted(evaluation["episode"].unique()) == list(range(0, 8_001, 1_000))
    own = whole.tables["evaluation"]
    for variant, begins in (("early", 4_000), ("late", 8_000)):
        chosen = {"variant": variant, "sampler": "online", "seed": 1, "category": "grasp"}
        now = compared.table("evaluation", **chosen)
        last = own[own["phase"] == own[own["variant"] == variant]["phase"].max()]
        then = rows_where(last, **chosen)
        assert np.array_equal(now["success"], then["success"])
        assert np.array_equal(now["episode"], then["episode"] - begins)
        assert np.array_equal(now["update"], then["update"] - begins // 10)
    practice = compared.tables["practice"]
    assert practice["episode"].min() == 500
    assert (practice.groupby(["sampler", "variant", "seed"])["n"].sum() == 8_000).all()


def test_runs_without_phases_beside_others_have_one_phase(tmp_path):
    def write_run(folder, run):
        if run.variant == "plain":
            return synthetic.write_run(folder, run, episodes=8_000)
        return phased(folder, run)

    variants = {"plain": {"budget": {"episodes": 8_000}}, "early": PHASES["early"]}
    results = combine(tmp_path, declared(variants=variants), write_run)
    plain = results.table("evaluation", variant="plain")
    assert set(plain["phase"]) == {1}
    compared = last_phase(results).table("evaluation", variant="plain")
    assert sorted(compared["episode"].unique()) == list(range(0, 8_001, 1_000))


@pytest.mark.parametrize(
    ("table", "change", "message"),
    [
        ("evaluation", lambda f: f[f["phase"] < 3], "2 phases for .*'random', variant 'late'"),
        ("training", lambda f: f.drop(columns="phase"), "training.csv: column phase is not in all"),
        ("evaluation", lambda f: f.assign(phase=f["phase"] - 1), "phase is 0; allowed: 1 or more"),
        ("evaluation", lambda f: pd.concat([f, f[:1]]), "two rows at"),
    ],
)
def test_tables_whose_phases_do_not_fit_are_refused(table, change, message, written):
    edit(written / f"{table}.csv", change)
    with pytest.raises(InputError, match=message):
        store.load(written)


@pytest.fixture
def evolving(tmp_path):
    layer = {"phases": PHASES["early"]["phases"], "budget": {"episodes": 12_000}}
    experiment = synthetic.experiment(("random", "online"), overrides=layer)
    store.write(combine(tmp_path, experiment), tmp_path / "tables")
    return store.load(tmp_path / "tables")


def test_each_phase_by_itself_has_its_rows_and_its_goals(written):
    results = store.load(written)
    phases = {(phase.results.runs[0].variant, phase.number): phase for phase in each_phase(results)}
    assert list(phases) == [("early", 1), ("early", 2), ("late", 1), ("late", 2), ("late", 3)]
    begins = {key: (phase.begins, phase.replaces) for key, phase in phases.items()}
    assert begins["early", 2] == (4_000, True)
    assert begins["late", 2] == (4_000, False)
    assert begins["late", 3] == (8_000, True)
    assert phases["early", 2].goals.split == "unseen"
    assert [phases["late", number].goals.seed for number in (1, 2, 3)] == [0, 0, 3]
    for key, phase in phases.items():
        episodes = phase.results.tables["evaluation"]["episode"]
        length = 8_000 if key in (("early", 2), ("late", 3)) else 4_000
        assert (episodes.min(), episodes.max()) == (0, length)
    last = phases["late", 3].results.tables["evaluation"].reset_index(drop=True)
    compared = results.table("evaluation", variant="late").reset_index(drop=True)
    pd.testing.assert_frame_equal(last, compared)


def test_the_statistic_has_what_each_phase_begins_with_ends_with_and_averages(written):
    results = store.load(written)
    frame = summaries.compute(results, ["phases"])["phases"]
    where = {"split": "unseen", "sampler": "online", "variant": "late", "phase": 2}
    rows = results.whole.table("evaluation", **where)
    before = results.whole.table("evaluation", **where | {"phase": 1}, episode=4_000)
    runs = pd.concat([before, rows]).groupby(["seed", "category", "episode"])["success"].first()
    area = runs.groupby(["seed", "category"]).apply(
        lambda run: np.trapezoid(run, run.index.get_level_values("episode")) / 4_000
    )
    scores = rows_where(frame, **where).set_index(["category", "score"])
    assert set(scores["begins"]) == {4_000}
    assert set(scores["practised"]) == {"train"}
    assert (scores["runs"] == 2).all()
    for category in (*synthetic.FEASIBLE, "mean"):
        chosen = area if category == "mean" else area[:, category]
        assert scores.loc[(category, "area"), "value"] == pytest.approx(chosen.mean())
    for score, episode in (("first", 4_000), ("final", 8_000)):
        at = runs[:, "grasp", episode]
        assert scores.loc[("grasp", score), "value"] == pytest.approx(at.mean())
        low, high = (scores.loc[("grasp", score), bound] for bound in ("low", "high"))
        assert low <= at.mean() <= high
    assert set(frame[frame["variant"] == "early"]["practised"]) == {"train", "unseen"}


def test_runs_of_one_phase_have_neither_the_statistic_nor_the_figure(tmp_path):
    results = synthetic.combined(tmp_path, ("random", "magellan"), episodes=2_000)
    assert summaries.compute(results, ["phases"])["phases"].empty
    with pytest.raises(InputError, match="phases needs runs of several phases"):
        figures.draw("phases", results, {}, synthetic.GOAL_SPACE)
    assert "phases" in figures.applicable(results.algorithms, declared())


@pytest.mark.slow
def test_the_primary_metric_is_of_the_goals_that_are_practised_in_the_last_phase(evolving, written):
    statistics = summaries.compute(evolving)
    primary = statistics["comparison"].query("primary")
    assert set(primary["split"]) == {"unseen"}
    mixed = summaries.compute(store.load(written), ["comparison"])["comparison"]
    assert set(mixed.query("primary")["split"]) == {"train"}  # variants practise different ones
    text = to_markdown(summary, evolving, statistics)
    assert "mean success over training of the last phase" in text
    assert "Phase 2, at the end" in text
    figure = FIGURES["mastery"].draw(evolving, statistics, synthetic.GOAL_SPACE)
    labels = {ax.get_xlabel() for ax in figure.axes} - {""}
    assert labels == {"training episodes of the last phase"}


def test_success_that_is_equal_by_chance_is_not_taken_for_a_phase_that_all_share(evolving):
    whole = evolving.whole
    evaluation = whole.tables["evaluation"].assign(success=0.0)
    phases = each_phase(last_phase(synthetic.with_tables(whole, evaluation=evaluation)))
    shared = [is_shared(phase, curves(phase.results, synthetic.GOAL_SPACE)) for phase in phases]
    assert shared == [True, False]


@pytest.mark.parametrize("same", [True, False])
def test_a_beginning_that_several_runs_have_is_written_once(same, tmp_path):
    results = combine(tmp_path / "runs", declared(variants={"early": PHASES["early"]}))
    tables = {}
    for name in results.tables:
        parts = []
        for run in results.runs:
            first = run._replace(sampler="random") if same else run
            begun, own = (results.rows_of(name, one) for one in (first, run))
            begun = begun[begun["phase"] == 1].assign(sampler=run.sampler)
            parts += [begun, own[own["phase"] > 1]]
        tables[name] = pd.concat(parts, ignore_index=True)
    runs = [
        {**run, "started_from": {"run": str(run["seed"]), "checkpoint": "a", "made_with": []}}
        for run in results.manifest["runs"]
    ]
    store.write(store.Results(tables, {**results.manifest, "runs": runs}), tmp_path / "tables")
    loaded = store.load_whole(tmp_path / "tables")
    for name, frame in tables.items():
        assert loaded.tables[name].equals(frame), name
        written = pd.read_csv(tmp_path / "tables" / f"{name}.csv")
        begun = written[written["phase"] == 1]
        assert set(begun["sampler"]) == ({"random"} if same else {"random", "online"})
        assert len(written) == len(frame) - same * len(begun)
