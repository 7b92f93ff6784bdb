"""The figures in the sentences of docs/studies/reference.md are those of the committed tables."""

import copy
import itertools

import numpy as np
import pandas as pd
import pytest

from analysis.statistics import primary, summaries
from analysis.studies import behaviour
from analysis.tables import store
from analysis.tables.grid import Algorithm
from analysis.tables.results import Results
from magellan.worlds import DEFAULT_WORLD, WORLDS
from tests.workflow.conftest import ROOT

REFERENCE = ROOT / "results" / "reference"
PAGE = (ROOT / "docs" / "studies" / "reference.md").read_text(encoding="utf-8")
FLOWING = " ".join(PAGE.split())
MAGELLAN, RANDOM = Algorithm("magellan", "base"), Algorithm("random", "base")


@pytest.fixture(scope="module")
def results():
    return store.load(REFERENCE / "tables")


@pytest.fixture(scope="module")
def learns_plants(results):
    """Of each MAGELLAN run, by seed."""
    return behaviour.learnt(results, MAGELLAN, "25k")["grow_plant"]


def test_what_was_said_of_the_draws_is_not_what_was_drawn(results, learns_plants):
    """Mean learning progress times the number of goals, in the middle of the nine runs."""
    frame = results.table("competence", split="train", estimator="learned", **MAGELLAN._asdict())
    frame = frame[frame["step"].between(20_000, 40_000)]
    mine = frame[~frame["seed"].map(learns_plants)]
    progress = mine.groupby("category")["learning_progress"].mean()[list(results.categories.names)]
    weights = progress * WORLDS[DEFAULT_WORLD].parse("25k")
    idle = ["impossible", "grasp"]
    low, high = (f"{progress[name]:.3f}".lstrip("0") for name in idle)
    share = weights[idle].sum() / weights.sum()
    assert f"(in the middle of training {low} to {high})" in FLOWING
    assert f"that would be {100 * share:.0f} % of the draws" in FLOWING


def practised(results, algorithm: Algorithm, ends=(20_000, 40_000)) -> pd.DataFrame:
    """Plants and all episodes between these environment steps and after, of each run.

    Practice is counted by windows of episodes; within one it is taken to be even.
    """
    tables_of = (results.table(name, **algorithm._asdict()) for name in ("practice", "training"))
    practice, training = (dict(list(table.groupby("seed"))) for table in tables_of)
    rows = {}
    for seed, mine in practice.items():
        at = np.interp(ends, training[seed]["step"], training[seed]["episode"])
        at = [*at, mine["episode"].max()]
        plants = mine["n"].where(mine["category"] == "grow_plant", 0)
        counts = [each.groupby(mine["episode"]).sum().cumsum() for each in (plants, mine["n"])]
        found = [np.diff(np.interp(at, [0, *each.index], [0, *each])) for each in counts]
        rows[seed] = np.concatenate(found)
    names = ["middle", "after", "all_middle", "all_after"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=names)


def test_where_the_draws_went(results, learns_plants):
    ours, uniform = (practised(results, each) for each in (MAGELLAN, RANDOM))
    failing = ours[~learns_plants]
    learnt = behaviour.learnt(results, RANDOM, "25k")["grow_plant"].sum()
    rows = {
        f"MAGELLAN, {learns_plants.sum()} runs that learn plants": ours[learns_plants],
        f"MAGELLAN, {len(failing)} runs that do not": failing,
        f"`random`, {len(uniform)} runs, of which {learnt} learn plants": uniform,
    }
    for title, runs in rows.items():
        cells = [
            f"{runs[when].mean():,.0f} ({runs[when].min():,.0f} to {runs[when].max():,.0f}), "
            f"{100 * runs[when].sum() / runs[f'all_{when}'].sum():.1f} %"
            for when in ("middle", "after")
        ]
        assert f"| {title} | {cells[0]} | {cells[1]} |" in PAGE
    fewer = failing["middle"][failing["middle"] < uniform["middle"].mean()]
    more = failing["after"][failing["after"] > uniform["after"].mean()]
    assert len(fewer) == len(more) == 7
    assert f"`random`, {fewer.min():.0f} to {fewer.max():.0f}." in FLOWING
    assert f"seven get more, {more.min():.0f} to {more.max():,.0f}, and none" in FLOWING


def start_of_plants(results, algorithm: Algorithm) -> list[tuple[float, int, bool]]:
    """Runs that practise 300 plants: steps left then, successes until then, whether they learn."""
    learnt = behaviour.learnt(results, algorithm, "25k")["grow_plant"]
    training, practice = (
        results.table(name, **algorithm._asdict()) for name in ("training", "practice")
    )
    found = []
    for seed, mine in practice.groupby("seed"):
        plants = mine["n"].where(mine["category"] == "grow_plant", 0)
        plants = plants.groupby(mine["episode"]).sum().cumsum()
        if plants.max() >= 300:
            at = plants.index[plants >= 300][0]
            steps = training[training["seed"] == seed]
            left = 64_000 - np.interp(at, steps["episode"], steps["step"])
            found.append(
                (left, mine.groupby("episode")["successes"].sum().cumsum()[at], learnt[seed])
            )
    return found


def test_who_comes_to_plants_with_much_success_does_not_learn_them(results):
    others = [store.load(REFERENCE / name) for name in ("adapters", "noise", "pool_again")]
    seen, found = set(), []
    for each in (results, *others):
        identities = {
            (run["sampler"], run["variant"], run["seed"]): run["identity"]
            for run in each.manifest["runs"]
        }
        for algorithm in each.algorithms:
            mine = {identities[(*algorithm, seed)] for seed in each.seeds_of(algorithm, "25k")}
            if not mine & seen:  # runs of the study stand in the other tables once more
                found += start_of_plants(each, algorithm)
                seen |= mine
    assert f"Of {len(seen)} runs" in FLOWING
    late = [(successes, learns) for left, successes, learns in found if left >= 16_000]
    bounds = [0, 1_000, 2_000, 3_000, 4_000, 5_000, np.inf]
    cells = []
    for low, high in itertools.pairwise(bounds):
        group = [learns for successes, learns in late if low <= successes < high]
        cells.append(f"{sum(group)} of {len(group)}")
    assert f"| runs that learn plants | {' | '.join(cells)} |" in PAGE


def test_differences_of_differences_and_the_wider_family(results):
    manifest = copy.deepcopy(dict(results.manifest))
    manifest["experiment"]["analysis"]["family"] = "question"
    frame = primary.comparison(Results(results.tables, manifest))
    frame = frame[frame["score"] == "area"].set_index(["split", "baseline", "baseline_variant"])
    chance = f"{frame.loc[('unseen', 'random', 'base'), 'p_holm']:.3f}".lstrip("0")
    assert f"p = .029; {chance} with both splits in one Holm family" in FLOWING
    goals, groups = (
        frame.loc[("train", "ek_online", name), "difference"] for name in ("explore_goals", "base")
    )
    assert f"some {goals - groups:.3f} of the lead" in FLOWING


@pytest.mark.slow
def test_how_early_grasping_is_mastered(results):
    frame = summaries.compute(results)["mastery"]
    rows = frame[(frame["split"] == "train") & (frame["category"] == "grasp")]
    rows = rows.set_index(["sampler", "variant"])
    uniform, ours = rows.loc["random", "base"], rows.loc["magellan", "base"]
    times = f"{ours['restricted_mean']:,.0f} against {uniform['restricted_mean']:,.0f}"
    chance = f"{uniform['p_holm']:.5f}".lstrip("0")
    assert f"({times} environment steps; log-rank test, p = {chance} after correction)" in FLOWING
    plants = frame[(frame["split"] == "train") & (frame["category"] == "grow_plant")]
    plants = plants.set_index(["sampler", "variant"]).loc["random", "base"]
    assert plants["p_holm"] > 0.05


def collapses(results, goal_space: str) -> str:
    counts = [
        behaviour.collapses(results, algorithm, goal_space) for algorithm in results.algorithms
    ]
    fallen, above = (sum(column) for column in zip(*counts, strict=True))
    return f"{fallen} of {above:,}"


def test_what_a_model_that_reads_has_changed(results):
    """Shares of impossible goals, predictions, and collapses, before and after."""
    earlier = store.load(REFERENCE / "first")
    [before] = earlier.manifest["experiment"]["goal_spaces"]
    found = ((earlier, before), (results, "25k"))

    def row(title: str) -> list[str]:
        [line] = [line for line in PAGE.splitlines() if line.startswith(f"| {title}")]
        return [cell.strip() for cell in line.strip("|").split("|")][1:]

    sizes = [WORLDS[DEFAULT_WORLD].parse(space) for _, space in found]
    shares = [f"{size[0] / sum(size):.0%}".replace("%", " %") for size in sizes]
    assert row("impossible goals in the goal space") == shares
    assert row("collapses") == [collapses(*each) for each in found]
    exploited = [behaviour.exploited_shares(each, each.reference, space) for each, space in found]
    means = [f"{shares['impossible'].mean():.0%}".replace("%", " %") for shares in exploited]
    assert row("their share of what it chooses without exploration") == means
    beliefs = [behaviour.beliefs(each, each.reference, space) for each, space in found]
    means = [frame.groupby("category")[["error", "learning_progress"]].mean() for frame in beliefs]
    assert row("error of the prediction") == [
        f"{mean['error']['grasp']:.2f}; {mean['error']['impossible']:.2f}" for mean in means
    ]
    progress = [f"{mean['learning_progress']['impossible']:.3f}" for mean in means]
    assert row("learning progress on them") == progress
    lags = [frame.groupby("category")["lag"].mean() for frame in beliefs]
    lengths = [each.table("evaluation")[each.at].max() for each, _ in found]
    lags = [
        frame.groupby("category")["lag"].mean()[["grasp", "grow_plant"]] / length
        for frame, length in zip(beliefs, lengths, strict=True)
    ]
    shares = ["; ".join(f"{100 * share:.0f} %" for share in lag) for lag in lags]
    assert row("lag of the prediction") == shares
    errors = [f"{means[1]['error'][name]:.2f}" for name in ("grasp", "grow_plant", "impossible")]
    sentence = "the mean error is {} for grasping, {} for plants, {} for impossible goals"
    assert sentence.format(*errors) in FLOWING
