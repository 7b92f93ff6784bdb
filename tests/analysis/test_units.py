"""Runs that end by environment steps or policy updates, and runs of several phases.

Tables and figures go by the unit of the run; runs are compared in their last phase.
"""

import functools
import json

import numpy as np
import pandas as pd
import pytest

from analysis import figures
from analysis.figures import FIGURES
from analysis.figures.training import curves, is_shared
from analysis.report import summary, summary_page
from analysis.statistics import contrasts, matrices, primary, summaries
from analysis.tables import store
from analysis.tables.diagnosis import _check_lengths
from analysis.tables.phases import each_phase, last_phase
from analysis.tables.results import Results, rows_where
from magellan.config import load_experiment
from magellan.core.errors import InputError
from tests.analysis import synthetic
from tests.analysis.synthetic import to_markdown
from tests.analysis.test_tables import edit
from tests.runs import refusal

SPACE = synthetic.GOAL_SPACE
COLUMNS = {"steps": "step", "updates": "update"}


def declared(unit: str, **changes) -> dict:
    budget = {unit: 8_000, "evaluate_every": 1_000, "practice_window": 500}
    samplers = ("random", "online", "magellan")
    return synthetic.experiment(samplers, overrides={"budget": budget}, **changes)


@pytest.fixture(scope="module")
def counted_in(tmp_path_factory):
    @functools.cache
    def analyse(unit):
        folders = synthetic.write_runs(
            tmp_path_factory.mktemp(unit), declared(unit), episodes=8_000
        )
        results = store.combine(folders, declared(unit))
        return results, summaries.compute(results)

    return analyse


@pytest.mark.parametrize("unit", COLUMNS)
def test_statistics_are_at_points_of_the_unit(unit, counted_in):
    results, statistics = counted_in(unit)
    assert (results.unit, results.unit_column) == (unit, COLUMNS[unit])
    for name in ("success", "sample_efficiency"):
        assert sorted(statistics[name][COLUMNS[unit]].unique()) == list(range(0, 8_001, 1_000))
        assert "episode" not in statistics[name].columns
    assert set(statistics["mastery"]["limit"]) == {8_000}
    # A second reading, at equal steps, is for budgets in episodes.
    assert list(statistics["comparison_steps"].columns) == list(primary.COMPARISON_COLUMNS)
    assert statistics["comparison_steps"].empty
    assert len(statistics["comparison"])


@pytest.mark.slow
def test_figures_and_tables_name_the_unit(counted_in):
    results, statistics = counted_in("steps")
    figure = figures.draw("success_by_category", results, statistics, SPACE)
    assert {ax.get_xlabel() for ax in figure.axes} - {""} == {"environment steps"}
    assert {ax.get_xlim() for ax in figure.axes} == {(0, 8_000)}
    assert "mean environment steps until then" in to_markdown(summary, results, statistics)
    caption = summary_page._values(results, SPACE)
    assert caption["across"] == caption["unit"] == "environment steps"


def changed_run(results: Results, change) -> Results:
    runs = json.loads(json.dumps(results.manifest["runs"]))
    change(runs[2])
    return synthetic.with_manifest(results, runs=runs)


def test_mixed_units_are_refused(counted_in):
    results, _ = counted_in("steps")
    other = changed_run(results, lambda r: r["config"]["budget"].update(steps=0, updates=8_000))
    with pytest.raises(InputError, match=r"by updates for .*'online'.*by steps for .*'random'"):
        _check_lengths(other)
    variants = {"long": {}, "other": {"budget": {"steps": 0, "updates": 50}}}
    with pytest.raises(
        InputError, match=r"variants.other.budget: unit is updates, and steps for variants.long"
    ):
        load_experiment(declared("steps", variants=variants))


def test_practice_must_have_all_episodes(counted_in):
    results, _ = counted_in("updates")
    more = changed_run(results, lambda run: run.update(episodes=run["episodes"] + 1))
    with pytest.raises(InputError, match=r"practice.csv: 80000 episodes for .*allowed: 80001"):
        store.diagnose(more)


def test_a_mean_up_to_a_number_of_steps_by_hand():
    curve, steps = np.array([0.0, 0.4, 1.0]), np.array([0.0, 100.0, 200.0])
    assert matrices.mean_until(curve, steps, 200.0) == pytest.approx((20 + 70) / 200)
    assert matrices.mean_until(curve, steps, 100.0) == pytest.approx(0.2)
    # At 150 the curve is at 0.7: (20 + (0.4 + 0.7) / 2 * 50) / 150.
    assert matrices.mean_until(curve, steps, 150.0) == pytest.approx(47.5 / 150)
    assert matrices.mean_until(curve, steps, 0.0) == 0.0
    # Two evaluations at the same step have no width.
    twice = np.array([0.0, 100.0, 100.0, 200.0])
    assert matrices.mean_until(np.array([0.0, 0.4, 0.6, 1.0]), twice, 200.0) == pytest.approx(0.5)
    assert "counts fall" in refusal(matrices.mean_until, curve, np.array([0.0, 100.0, 50.0]), 40.0)


@pytest.fixture(scope="module")
def hand_made(tmp_path_factory):
    """Two samplers, three seeds, evaluations at 0, 1,000 and 2,000 episodes.

    Success goes 0, 0.5, 1 for both in all categories. `random` takes 4,000 + 400 x seed steps for
    2,000 episodes, `magellan` 2,000 + 200 x seed: it learns the same in half of the steps.
    """
    folder = tmp_path_factory.mktemp("hand")
    results = synthetic.combined(folder, ("random", "magellan"), seeds=(0, 1, 2), episodes=2_000)
    frame = results.tables["evaluation"]
    share = frame["episode"] / 2_000
    slow, fast = (thousands * (1_000 + 100 * frame["seed"]) for thousands in (4, 2))
    total = np.where(frame["sampler"] == "random", slow, fast)
    frame = frame.assign(success=share, step=(share * total).astype(int))
    return synthetic.with_tables(results, evaluation=frame)


def test_the_comparison_at_equal_steps_by_hand(hand_made):
    assert matrices.equal_length(hand_made, SPACE) == 2_000
    frame = primary.comparison_steps(hand_made)
    assert list(frame.columns) == list(primary.COMPARISON_COLUMNS)
    assert set(frame["split"]) == {"train", "unseen"}
    assert set(frame["score"]) == {"area"}
    assert not frame["primary"].any()
    # A straight line from 0 to 1 in T steps has the mean S / 2T over its first S steps.
    magellan = np.mean([2_000 / (2 * (2_000 + 200 * seed)) for seed in range(3)])
    random = np.mean([2_000 / (2 * (4_000 + 400 * seed)) for seed in range(3)])
    np.testing.assert_allclose(frame["difference"], magellan - random)
    assert set(frame["runs"]) == {3}
    # By episodes they are the same.
    by_episodes = primary.comparison(hand_made)
    np.testing.assert_allclose(by_episodes["difference"], 0.0, atol=1e-12)


@pytest.mark.parametrize("unit", ["episodes", "steps"])
def test_a_contrast_at_equal_lengths_by_hand(hand_made, unit):
    """Where steps end the runs, up to the fewest episodes, each category by itself."""
    if unit == "steps":
        # The mirror image: equal steps, episodes as many as the steps were.
        evaluation = hand_made.tables["evaluation"]
        swapped = evaluation.rename(columns={"step": "episode", "episode": "step"})
        budget = hand_made.manifest["runs"][0]["config"]["budget"] | {"episodes": 0, "steps": 2_000}
        hand_made = synthetic.with_tables(hand_made, evaluation=swapped)
        hand_made = synthetic.with_configs(hand_made, budget=budget)
    assert hand_made.unit == unit
    (term,) = contrasts.parse("random")
    found = contrasts.scores(hand_made, term, "equal")
    expected = [2_000 / (2 * (4_000 + 400 * seed)) for seed in range(3)]
    for name in ("grasp", "grow_carnivore"):
        np.testing.assert_allclose(found[name], expected, rtol=1e-3)  # whole steps
    np.testing.assert_allclose(contrasts.scores(hand_made, term, "success"), 0.5)


def test_the_report_has_both_and_the_cost(hand_made):
    lengths = pd.DataFrame(
        [
            ("random", 0, 2_000, 4_000, 100, 60.0),
            ("random", 1, 2_004, 4_400, 120, 120.0),
            ("magellan", 0, 2_000, np.nan, 60, 30.0),
            ("magellan", 1, 2_000, np.nan, 60, np.nan),
        ],
        columns=["sampler", "seed", "episodes", "steps", "updates", "wall_seconds"],
    ).assign(variant="default", goal_space=SPACE, estimation_episodes=0, peak_memory_mb=np.nan)
    cost = summary.SummaryTables(hand_made, {"cost": lengths}, SPACE).cost()
    assert [tuple(row[1:]) for row in cost.rows] == [
        ("2,002 (2,000-2,004)", "4,200 (4,000-4,400)", "110 (100-120)", "1.5 (1.0-2.0)", "n/a"),
        ("2,000", "n/a", "60", "0.5", "n/a"),
    ]
    text = to_markdown(summary, hand_made, summaries.compute(hand_made))
    assert "**Secondary, over the first 2,000 environment steps of each run: MAGELLAN" in text


PHASES = {
    "early": {"phases": [{"until": 4_000, "sampler": "magellan"}, {"goals": {"split": "unseen"}}]},
    "late": {
        "phases": [{"until": 4_000}, {"until": 8_000}, {"goals": {"seed": 3}}],
        "budget": {"episodes": 16_000},
    },
}
"""Both have a last phase of 8,000 episodes."""


def with_phases(**changes):
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
    store.write(combine(tmp_path / "runs", with_phases()), tmp_path / "tables")
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
    results = combine(tmp_path, with_phases(variants=variants), write_run)
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
    assert "phases" in figures.applicable(results.algorithms, with_phases())


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
    results = combine(tmp_path / "runs", with_phases(variants={"early": PHASES["early"]}))
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
