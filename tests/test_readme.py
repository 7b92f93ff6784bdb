"""Numbers in README and docs are those of the committed results."""

import re
from collections import Counter

import numpy as np
import pytest

from analysis.report import claims
from analysis.statistics import standing
from analysis.statistics.mastery import times_of
from analysis.statistics.matrices import settings
from analysis.statistics.primary import PRIMARY_SCORE
from analysis.statistics.primary import comparison as compared
from analysis.tables import store
from analysis.tables.grid import Algorithm
from magellan.config import grid, load_experiment, read_yaml
from magellan.samplers.conformance import track_of
from tests import pages
from tests.faults import cases as faults
from tests.inputs import cases
from tests.pages import REFERENCE, between_markers, page
from tests.snippets import ROOT

STUDIES = ROOT / "config" / "studies"
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "config" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_faults_are_those_of_the_campaign():
    assert between_markers("faults", page("faults")) == faults.table()


def test_counts_of_refused_inputs_are_those_of_the_cases():
    counts = dict(cases.COUNTS)
    counts["in all"] = sum(counts.values())
    rows = (counts, ["---"] * len(counts), map(str, counts.values()))
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    assert between_markers("inputs", page("faults")) == table
    assert counts["in all"] >= 60
    injected = re.search(r"- all: (\d+)", faults.table())
    assert injected is not None
    assert f"{injected[1]} injected faults, {counts['in all']} bad inputs" in README


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "file"),
    [
        ("default", "config"),
        ("simulated", "simulated"),
        ("smollm2", "smollm2"),
        ("separated", "separated"),
        ("exploration", "exploration"),
        ("frontier", "frontier"),
        ("impossible", "impossible"),
        ("craft", "craft"),
        ("goal_change", "goal_change"),
        ("estimator_adapters", "estimator_adapters"),
        ("released", "released"),
        ("estimation_long", "estimation_long"),
        ("craft_estimation", "craft_estimation"),
        ("collapse", "collapse"),
        ("memory", "memory"),
    ],
)
def test_committed_tables_are_those_of_a_configuration(folder, file):
    committed = pages.of(folder)
    (path,) = (ROOT / "config").rglob(f"{file}.yaml")
    experiment = load_experiment(read_yaml(path))
    declared = dict(committed.manifest["experiment"])
    declared["analysis"] = settings(committed).model_dump()  # older tables do not say everything
    settled = store.settled_experiment(experiment)
    assert declared == {key: settled[key] for key in declared}
    planned = {run.identity for run in grid(experiment)}
    assert {run["identity"] for run in committed.manifest["runs"]} == planned


def test_the_default_comparison_is_that_of_its_tables():
    found = compared(pages.of("default"))
    found = found[found["score"] == PRIMARY_SCORE]
    assert len(found) == 6
    for row in found.itertuples():
        ends = f"{row.difference:+.3f} | {row.low:+.3f} to {row.high:+.3f}"
        chances = " | ".join(f"{p:.3f}".lstrip("0") for p in (row.p, row.p_holm))
        assert f"| `{row.baseline}` | {ends} | {chances} |" in page("default")


@pytest.mark.slow
def test_the_readme_quotes_the_differences_of_the_claims():
    """Those of the reference study."""
    asked = [
        each
        for each in claims.judge(claims.load(), REFERENCE)
        if (each.claim.study, each.claim.question) == ("samplers", "samplers")
        and each.verdict != "not tested"
    ]
    assert asked
    for each in asked:
        ends = f"{each.value:.2f} ({each.low:.2f} to {each.high:.2f})"
        assert ends in " ".join(README.split())


def test_the_readme_counts_the_verdicts_and_quotes_the_errors_of_estimators():
    listed = claims.load()
    judged = claims.judge(listed, REFERENCE)[: len(listed.claims)]
    n = Counter(each.verdict for each in judged)
    elsewhere = ("other_build", "paper_small", "estimation_long")
    again = sum(each.claim.study in elsewhere for each in judged)
    words = (
        f"Of {len(judged)} tests of the paper's claims ({again} repeat others with another build "
    )
    words += f"or at the paper's length) {n['reproduced']} are reproduced, "
    words += f"{n['contradicted']} contradicted, {n['undecided']} undecided and {n['not tested']}"
    assert words in README
    rows = [line.split(" | ") for line in pages.estimated().splitlines()]
    errors = [" and ".join(f"{float(cell):.2f}" for cell in row[2:4]) for row in rows[2:]]
    assert f"({errors[0]} on" in README.replace("mean error ", "")
    assert errors[4] in README
    assert {row[-1] for row in rows[2:]} == {".016 |"}
    own, other = pages.estimated_long().splitlines()[3].split(" | ")[2:4]
    assert f"50,000 episodes ({float(own):.2f} and {float(other):.2f}; 8 runs)" in README


def test_the_readme_quotes_the_error_on_impossible_goals():
    _, _, row, *_ = pages.BLOCKS["estimation", "impossible"]().splitlines()
    few, many, p = (float(cell) for cell in [*row.split(" | ")[1:3], row.split(" | ")[-1][:-2]])
    assert f"from {few:.2f} to {many:.2f} (p = {p:.3f})".replace("= 0.", "= .") in README


def test_the_readme_quotes_the_ablation_and_the_ignored_adapters():
    rows = [pages.BLOCKS["again", "adapters"](), pages.BLOCKS["released", "released"]()]
    for text, says in zip(
        rows, ("learns less ({}, {} to {}; 12", "loses {} ({} to {}; 8"), strict=True
    ):
        row = text.splitlines()[2]
        mean, low, high, *_, p = re.findall(r"\d*\.\d+", row)
        ends = sorted((low, high), key=float)
        quoted = says.format(*(f"{float(number):.2f}" for number in (mean, *ends)))
        assert re.search(re.escape(quoted) + rf" runs( each)?, p = {p}\)", README)


def test_the_readme_quotes_the_study_of_all_rules():
    scores = standing.scores_of(pages.of("rules"))
    ranked = standing.standings(scores, {rule: track_of(rule) for rule in scores}, "random")
    p = {rank.rule: f"{rank.p_best:.3f}".removeprefix("0") for rank in ranked}
    mean = {rule: f"{values.mean():.2f}" for rule, values in scores.items()}
    text = " ".join(README.split())
    for best, other in (("adarft", "ek_online"), ("pcl", "magellan")):
        assert f"{mean[best]} to {mean[other]} (p = {p[other]})" in text


def test_the_readme_quotes_craft():
    correlation = pages.orders_in_both_worlds().splitlines()[2].split(" | ")[2].rstrip(" |")
    rows = [line.strip("| ").split(" | ") for line in pages.rules("craft").splitlines()[2:]]
    told = [row[0] for row in rows if row[1] == "groups given"]
    best, *others = (row for row in rows if row[1] == "same information")
    (own,) = (row for row in others if row[0] == "`magellan`")
    mean, low, high = (f"{float(end):.2f}" for end in re.findall(r"0\.\d+", own[3]))
    assert told[-1] == "`adarft`"
    assert best[0] == "`pcl`"
    assert best[4] == own[4]
    for quoted in (
        f"correlation is {correlation.replace(' (', ', ')},",
        f"`random` by {mean} ({low} to {high}; p = {own[4]})",
        f"{best[-1]} of the way to `ek_online`",
    ):
        assert quoted in README


@pytest.mark.slow
def test_the_readme_quotes_the_rules_over_the_whole_length():
    rows = [line.split(" | ") for line in pages.long_tests().splitlines()[2:]]
    p = {tuple(cells[:3]): float(cells[-1].rstrip(" |")) for cells in rows}
    told = next(cells for cells in rows if cells[0] == "| `adarft`" and cells[2] == "train")
    mean, low, high = (abs(float(end)) for end in re.findall(r"0\.\d+", told[3]))
    chance = f"{p[tuple(told[:3])]:.3f}".removeprefix("0")
    assert f"overtaken by {mean:.2f} ({high:.2f} to {low:.2f}; p = {chance})" in README
    for rule in pages.WITHOUT_GROUPS:
        first, second = f"| `{rule}`", "`magellan`"
        assert p[first, second, "train"] >= 0.05
        assert (p[first, second, "unseen"] < 0.05) == (rule == "fast_slow")
    scores = pages.long_scores()["train"]
    half = (scores["random"].mean() + scores["ek_online"].mean()) / 2
    assert max(scores[rule].mean() for rule in pages.WITHOUT_GROUPS) < half


@pytest.mark.slow
def test_the_readme_quotes_frontier():
    train = pages.frontier_scores()["train"]
    way = pages.covered(train["frontier"], train["random"], train["ek_online"])
    carnivores = pages.masteries(pages.of("frontier"), Algorithm("frontier", "base"), "25k").split(
        ", "
    )[-1]
    told = next(
        line for line in pages.frontier_tests().splitlines() if "`magellan` | train |" in line
    )
    mean, low, high, *_, p = re.findall(r"\d*\.\d+", told)
    lead = f"{float(mean):.2f} ahead, {float(low):.2f} to {float(high):.2f}; p = {p}"
    for quoted in (f"{way} of the way from `random`", f"{carnivores} of 12 runs", lead):
        assert quoted in " ".join(README.split())


def masters(folder: str, variant: str) -> tuple[int, int, int]:
    """Runs of MAGELLAN, those that master carnivores, and those that master all four."""
    times = times_of(pages.of(folder), Algorithm("magellan", variant), "25k", "train").values()
    flags = np.array([flags for _, flags in times])
    return flags.shape[1], flags[-1].sum(), flags.all(axis=0).sum()


def test_the_readme_says_how_many_runs_master_all_four():
    runs, carnivores, every = masters("other_build", "other_build")
    assert not every
    assert f"there {carnivores} of {runs} master carnivores, and none all four." in README
    runs, _, every = masters("paper_small", "default")
    assert f"{every} of {runs} runs so far do" in README


@pytest.mark.slow
def test_the_readme_quotes_what_exploring_over_goals_costs():
    row = next(
        line for line in pages.one_constant().splitlines() if "`explore_goals` | train" in line
    )
    mean, low, high, p = (abs(float(cell)) for cell in re.findall(r"-?\d*\.\d+", row)[2:])
    quoted = f"costs it {mean:.2f} ({high:.2f} to {low:.2f}; p = {p:.3f})".replace("= 0.", "= .")
    assert quoted in " ".join(README.split())


@pytest.mark.parametrize("path", PAGES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_pictures_and_files_exist(path):
    links = re.findall(r"\]\((?!http)([^)#]+)\)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_the_readme_is_short_and_every_page_is_named_there_or_among_the_studies():
    assert len(README.splitlines()) <= 120
    pages = {path for path in PAGES if ROOT / "docs" in path.parents}
    index = ROOT / "docs" / "studies" / "README.md"
    named = set()
    for path in (ROOT / "README.md", index):
        links = re.findall(r"\]\(([\w/.]+\.md)\)", path.read_text(encoding="utf-8"))
        named |= {(path.parent / link).resolve() for link in links}
    unnamed = pages - named
    assert not unnamed


@pytest.mark.slow
@pytest.mark.parametrize("block", pages.BLOCKS, ids=lambda block: block[1])
def test_a_block_of_a_page_is_that_of_the_tables(block):
    assert between_markers(block[1], page(block[0])) == pages.BLOCKS[block]().strip()
