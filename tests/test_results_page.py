"""The figures that docs/results.md has in its sentences are those of the committed tables."""

import pytest

from analysis import behaviour, summaries, tables
from analysis.grid import Algorithm
from magellan.worlds import DEFAULT_WORLD, WORLDS
from tests.workflow.conftest import ROOT

REFERENCE = ROOT / "results" / "reference"
PAGE = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
FLOWING = " ".join(PAGE.split())
MAGELLAN = Algorithm("magellan", "base")


@pytest.fixture(scope="module")
def results():
    return tables.load(REFERENCE / "tables")


def two(values, form: str = ".3f") -> str:
    """As the page writes numbers below one."""
    return " | ".join(f"{value:{form}}".lstrip("0") for value in values)


@pytest.fixture(scope="module")
def learns_plants(results):
    """Of each MAGELLAN run, by seed."""
    return behaviour.learnt(results, MAGELLAN, "25k")["grow_plant"]


@pytest.mark.parametrize(
    ("learnt", "row"), [(True, "11 runs that learn plants"), (False, "9 runs that do not")]
)
def test_where_the_draws_go(results, learns_plants, learnt, row):
    """Learning progress, and its share once it is multiplied by the number of goals."""
    names = list(results.categories.names)
    frame = results.table("competence", split="train", estimator="learned", **MAGELLAN._asdict())
    frame = frame[frame["step"].between(20_000, 40_000)]
    mine = frame[frame["seed"].map(learns_plants) == learnt]
    assert (learns_plants == learnt).sum() == int(row.split()[0])
    runs = mine.groupby(["seed", "category"])["learning_progress"].mean().unstack()[names]
    progress = runs.mean()
    weights = progress * WORLDS[DEFAULT_WORLD].parse("25k")
    shares = two(weights / weights.sum(), ".2f")
    assert f"| {row}: learning progress | {two(progress)} |" in PAGE
    after = PAGE[PAGE.index(row) :]
    assert after.splitlines()[1] == f"| the same times the number of goals, share | {shares} |"
    if not learnt:
        taken = (weights["impossible"] + weights["grasp"]) / weights.sum()
        assert f"takes {taken:.0%}".replace("%", " %") in FLOWING


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
    earlier = tables.load(REFERENCE / "first")
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
