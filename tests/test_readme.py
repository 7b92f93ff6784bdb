"""Numbers in README and docs are those of the committed results."""

import re

import numpy as np
import pandas as pd
import pytest

from analysis.report.pictures import is_up_to_date, pictures_in
from analysis.statistics import standing
from analysis.statistics.intervals import sign_flip_test
from analysis.statistics.matrices import settings
from analysis.statistics.practice_shares import by_length, run_counts
from analysis.statistics.primary import PRIMARY_SCORE
from analysis.statistics.primary import comparison as compared
from analysis.tables import store
from analysis.tables.grid import Algorithm
from analysis.tables.printing import chance
from analysis.tables.results import SPLITS
from analysis.tables.store import load
from magellan.config import grid, load_experiment, read_yaml
from magellan.samplers.conformance import track_of
from tests import pages
from tests.faults import promises
from tests.pages import between_markers, page
from tests.snippets import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "config" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


DECLARED = (
    *("default", "simulated", "smollm2", "separated", "exploration", "frontier", "impossible"),
    *("craft", "craft_estimation", "estimation_long", "goal_change", "estimator_adapters"),
    *("released", "collapse", "memory", "pretraining", "share", "readings_more"),
)
"""Folders of committed tables."""


def test_faults_are_those_of_the_campaign():
    assert between_markers("faults", page("faults")) == promises.table()


@pytest.mark.slow
@pytest.mark.parametrize("folder", DECLARED)
def test_committed_tables_are_those_of_a_configuration(folder):
    committed = pages.of(folder)
    (path,) = (ROOT / "config").rglob("config.yaml" if folder == "default" else f"{folder}.yaml")
    experiment = load_experiment(read_yaml(path))
    declared = dict(committed.manifest["experiment"])
    declared["analysis"] = settings(committed).model_dump()  # older tables do not say everything
    settled = store.resolved_experiment(experiment)
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


def says(*texts: str) -> None:
    """The README has these words, wherever its lines break."""
    text = " ".join(README.split())
    assert [words for words in texts if words not in text] == []


def short(value: float) -> str:
    return f"{value:.2f}".removeprefix("0")


def masters(folder: str, sampler: str, variant: str) -> np.ndarray:
    """Whether each run masters each category, (categories, runs)."""
    return np.array([flags for _, flags in pages.times(folder, sampler, variant).values()])


def test_the_readme_quotes_the_leads_and_masteries():
    arms = ("samplers", "magellan"), ("samplers", "random")
    pairs = [score(*arms[0]) - score(*arms[1]) for score in (pages.success, pages.equal)]
    leads = [values.mean() for values in pairs]
    assert min(sign_flip_test(values.to_numpy()).low for values in pairs) > 0
    says(f"uniform choice by {short(leads[0])} at equal steps, by {short(leads[1])} at equal")
    assert not masters("samplers", "magellan", "base").all(axis=0).any()
    assert masters("samplers", "magellan", "base").shape[1] == 12
    episodes = pages.of("samplers").table("practice", variant="base")
    episodes = episodes.groupby(["sampler", "seed"])["n"].sum()
    more = f"episodes, {500_000 / episodes['magellan'].mean():.0f} times as many"
    says("None of its 12 runs does", f"first {episodes.min():,} episodes", more)
    samplers = ("ek_online", "magellan", "online", "random")
    every = [masters("paper_small", sampler, "default").all(axis=0) for sampler in samplers]
    assert [len(runs) for runs in every] == [4] * 4
    first, second, *others = (int(runs.sum()) for runs in every)
    assert others == [2, 1]
    says(f"by {first} runs of `ek_online` and {second} of `magellan`, two of `online` and one")
    names = ("online", "magellan")
    plants = [pages.times("paper_small", name, "default")["grow_plant"] for name in names]
    assert all(flags.all() for _, flags in plants)
    assert (plants[0][0] < plants[1][0]).all()
    says("In all four seeds `online` masters plants before `magellan`")


def test_the_readme_quotes_the_model_without_questions_about_kinds():
    over, near = (
        sign_flip_test(pages.lead("pretraining", other, "default", "train").to_numpy())
        for other in ("random", "online")
    )
    assert over.interval.low > 0 > near.interval.low
    assert near.p > 0.05
    says(f"MAGELLAN leads uniform choice by {short(over.interval.value)} and is not told apart")


@pytest.mark.slow
def test_the_readme_quotes_practice_and_mastery():
    runs = pages.same_learner(pages.REFERENCE)
    runs = runs[runs["category"] == "grow_carnivore"]
    mastered = runs["mastered"].astype(bool)
    assert not mastered[runs["practice"] < 200].any()
    own = runs[(runs["sampler"] == "magellan") & (runs["variant"] == "base")].head(12)
    [five] = [line for line in pages.dosed().splitlines() if line.startswith("| `five` ")]
    few, many = own["practice"].min(), own["practice"].max()
    says(
        f"gives carnivores {few:.0f} to {many:.0f} episodes, too few",
        f"a twentieth of late practice master them ({five.split('|')[2].strip()})",
    )


@pytest.mark.slow
def test_the_readme_speaks_of_other_samplers_as_the_tests_do():
    lines = (line.split(" | ") for line in pages.long_tests().splitlines()[2:])
    p = {tuple(cells[:2]): cells[4] for cells in lines}
    for rule in pages.WITHOUT_GROUPS:
        assert float(p[f"| `{rule}`", "`magellan`"]) >= 0.05
    ahead = [pages.equal("rules_long", name, "default") for name in ("pcl", "magellan")]
    assert (ahead[0] > ahead[1]).all()
    says("does over 32,000, and at equal episodes", "over 112,000 steps. `pcl`")
    assert "with one answer or [with eight](docs/studies/grpo.md)" in README
    for folder, split in (("rules", "train"), ("grpo", "unseen")):
        scores = standing.scores_of(pages.of(folder), split=split)
        ranked = standing.standings(scores, {rule: track_of(rule) for rule in scores}, "random")
        gained = {rank.rule for rank in ranked if rank.verdict == "ahead"}
        assert not gained & {"learnability", "mopps", "greso", "pools"}
        assert "pcl" in gained
        if folder == "rules":  # 32,000 steps; p of the best of its track minus each other
            p_best = {rank.rule: rank.p_best for rank in ranked}
            assert np.isnan(p_best["pcl"])
            assert p_best["magellan"] < 0.05
    says("`pcl` does with both.")
    board = pd.read_csv(ROOT / "results/reference/leaderboard.csv")
    board = board[(board["gain_low"] > 0) & (board["p_floor"] < 0.05)]
    board = board[board["world"].str.startswith("Digits")]
    assert board["rule"].tolist() == ["pcl"]
    leads = (pages.lead("samplers_replay", "random", "success_replay", split) for split in SPLITS)
    train, unseen = (sign_flip_test(values.to_numpy(), 0).p for values in leads)
    assert train >= 0.05 > unseen


def test_eight_seeds_of_the_papers_length_cannot_tell_online_apart():
    """Whatever four more seeds give: p is least where their differences exceed all known ones."""
    known = pages.lead("paper_small", "online", "default", "train").to_numpy()
    assert len(known) == 4
    least = min(sign_flip_test(np.array([*known, *[more] * 4])).p for more in (-99.0, 99.0))
    page = (ROOT / "docs/studies/paper_small.md").read_text()
    assert f"(p at least {chance(least)})" in page


def test_leads_shrink_with_the_share_of_impossible_goals():
    """By the protocol: undecided whether any lead is left, as the interval holds 0 and .05."""
    leads = {share: pages.over_uniform(share, 0)["mean"] for share in pages.SPACES}
    means = [leads[share].mean() for share in ("0", ".8")]
    first, last = map(short, means)
    says(f"lead uniform choice by {first} in the mean, if at all, not {last}")
    _, low, high = sign_flip_test(leads["0"].to_numpy()).interval
    assert low < 0 < 0.05 < high
    more = leads[".92"] - leads["0"]
    assert len(more) == 6
    assert (more > 0).all()
    assert sign_flip_test(more.to_numpy()).p < 0.05


def test_the_page_compares_the_errors_of_replays_as_they_are():
    lines = [line.strip("| ").split(" | ") for line in pages.replayed().splitlines()[2:]]
    (train, unseen), (train_ours, unseen_ours), (train_asked, _) = (
        (cells[1], cells[3]) for cells in lines[:3]
    )
    assert train > train_ours
    assert unseen < unseen_ours
    assert train_asked > train_ours
    words = page("pretraining")
    assert f"as well as ours (error {unseen} against {unseen_ours})" in words
    assert f"worse ({train} against {train_ours})" in words
    assert f"predictions are not better ({train_asked})" in words


def test_no_reading_gives_the_papers_curves():
    """By the rule of the protocol: all runs of a reading master three categories."""
    every = pages.readings()
    found = every.loc[["text", "code", "often_long", "seldom_short"]]
    failing = found["grow_herbivore"].isna()
    assert failing.groupby(level=0).any().tolist() == [True] * 4
    words = page("readings")
    near, means = found.loc["code", 1], found["distance"].groupby(level=0).mean()
    assert near[:3].is_monotonic_increasing
    assert f"masters the three in the paper's order, at distance {short(near['distance'])}" in words
    assert found["distance"].idxmin() == ("code", 1)
    assert found["grow_herbivore"].notna().sum() == 1
    assert found.loc["code", "distance"].max() < found.drop("code", level=0)["distance"].min()
    assert found.groupby(level=0).size().tolist() == [4] * 4
    one, *others = (short(means[name]) for name in ("code", "seldom_short", "often_long", "text"))
    told = (
        f"at a mean distance of {one}; `seldom_short` has\n{others[0]}, `often_long` {others[1]}, "
    )
    assert told + f"the text {others[2]}. Each of its four runs is nearer than any of" in words
    assert "None of the four readings gives the paper's curves: each has a run that" in words
    assert len(every) == 20
    assert "all 20 runs, five known before" in words
    assert "the code is nearest; 20 runs" in pages.page("studies/README")
    assert every.loc["no_threshold", "grow_herbivore"].isna().tolist() == [True, False]
    assert found.loc["code", "grow_herbivore"].isna()[:2].tolist() == [True, False]
    assert "without it seed 0 does not master herbivores either, seed 1 does" in words
    low, text = every.loc["initial_05"], every.loc["text"].loc[[0, 1]]
    assert (low[["distance", "grasp"]] > text[["distance", "grasp"]]).all(axis=None)
    measured = ["train", "unseen", "impossible"]
    assert (low[measured] < text[measured]).all(axis=None)
    assert set(low["grasp"]) == {50_000}
    assert "**Predictions that begin near .05 bring the text no nearer**: both seeds" in words
    often = found.index.get_level_values(0).isin(["code", "often_long"])
    for column in ("train", "impossible"):
        assert found.loc[often, column].max() < found.loc[~often, column].min()


def test_shares_alone_have_magellans_success():
    """By the rule of the protocol: the interval lies within .08 of zero."""
    assert "[learn as much](docs/studies/yoked.md)" in README
    scores = pages.on_both(pages.YOKED_ARMS)["train"]
    for arm in pages.YOKED:
        difference = scores[f"scripted/{arm}"] - scores["magellan"]
        _, low, high = sign_flip_test(difference.to_numpy()).interval
        assert -0.04 < low < 0 < high < 0.04


def test_the_readme_counts_the_samplers_of_the_leaderboard():
    listed = pd.read_csv(pages.REFERENCE / "leaderboard.csv")["rule"]
    listed = listed.str.partition("/")[0].nunique()
    says(f"{listed} samplers compared")


def test_the_first_page_is_short():
    """Words, lines, and in sentences words and numbers: what two minutes can read."""
    lines = README.splitlines()
    assert len(lines) <= 100
    assert len(README.split()) <= 800
    assert max(len(line) for line in lines if not line.startswith("|") and "](" not in line) <= 110
    text = re.sub(r"\n(    |\||<!--).*|\]\([^)]*\)", "", README)
    paragraphs = re.split(r"\n\n|\n- |\n#+ ", text)
    ends = r"(?<=[.:;!?])[*]*\s"
    for sentence in (one for part in paragraphs for one in re.split(ends, " ".join(part.split()))):
        assert len(sentence.split()) <= 25, sentence
        assert len(re.findall(r"(?<![\w`])\.?\d[\d,.]*", sentence)) <= 2, sentence


@pytest.mark.parametrize("path", PAGES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_pictures_and_files_exist(path):
    links = re.findall(r"\]\((?!http)([^)#]+)\)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_every_page_is_named_on_the_first_or_among_the_studies():
    pages = {path for path in PAGES if ROOT / "docs" in path.parents}
    index = ROOT / "docs" / "studies" / "README.md"
    named = set()
    for path in (ROOT / "README.md", index):
        links = re.findall(r"\]\(([\w/.]+\.md)[#)]", path.read_text(encoding="utf-8"))
        named |= {(path.parent / link).resolve() for link in links}
    assert not pages - named


@pytest.mark.slow
@pytest.mark.parametrize("block", [*pages.BLOCKS][2:], ids=lambda block: block[1])
def test_a_block_of_a_page_is_that_of_the_tables(block):
    assert between_markers(block[1], page(block[0])) == pages.BLOCKS[block]().strip()


@pytest.mark.parametrize("block", [*pages.BLOCKS][:2], ids=lambda block: block[1])
def test_a_block_of_the_page_of_keys_is_that_of_the_typed_configuration(block):
    test_a_block_of_a_page_is_that_of_the_tables(block)


def test_scripts_are_those_of_the_committed_practice() -> None:
    """In parts of 10,000, from one evaluation to the next: 250 updates."""
    results, algorithm = load(ROOT / "results/reference/samplers"), Algorithm("magellan", "base")
    where = {**algorithm._asdict(), "goal_space": "25k"}
    counts = by_length(results, where, run_counts(results, algorithm, "25k"))
    shares = (10_000 * counts.div(counts.sum(axis=1), axis=0)).round()
    variants = read_yaml(ROOT / "config/studies/yoked.yaml")["variants"]
    own, other = (variants[name]["scripted"]["by_seed"] for name in ("own", "other"))
    assert list(own) == list(range(1, 13))
    for seed, stages in own.items():
        assert [stage["shares"] for stage in stages] == shares.loc[seed].to_numpy().tolist()
        assert {stage["updates"] for stage in stages} == {250}
        assert other[seed] == own[seed % 12 + 1]


PICTURES = list(pictures_in(ROOT / "results/reference"))


@pytest.mark.slow
@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: "/".join(picture.parts[-2:]))
def test_a_committed_picture_is_what_the_code_draws(picture):
    """What it shows, in words and rounded numbers: pixels may differ between machines."""
    assert is_up_to_date(picture), "first: python -m analysis pictures results/reference"


def test_all_pictures_of_pages_are_looked_at():
    assert len(PICTURES) >= 16
