"""Numbers in README and docs are those of the committed results."""

import itertools
import re
from collections import Counter
from functools import cache

import numpy as np
import pytest

from analysis.report import claims
from analysis.statistics import comparison, standing
from analysis.statistics.intervals import holm, percentile_estimate, sign_flip_test
from analysis.statistics.mastery import times_of
from analysis.statistics.matrices import score_matrices, settings
from analysis.statistics.primary import PRIMARY_SCORE, run_means
from analysis.statistics.primary import comparison as compared
from analysis.studies import behaviour, cost, estimation, gain
from analysis.studies.estimation import with_known_competence
from analysis.tables import printing, store
from analysis.tables.grid import Algorithm
from analysis.tables.labels import sampler_label
from magellan.config import grid, load_experiment, read_yaml, resolve_run
from magellan.samplers.conformance import track_of
from tests.analysis.synthetic import to_markdown
from tests.faults import cases as faults
from tests.inputs import cases
from tests.snippets import ROOT

REFERENCE = ROOT / "results" / "reference"
STUDIES = ROOT / "config" / "studies"
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "config" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def page(name: str) -> str:
    """A page of the docs, wherever it lies in them."""
    (path,) = (ROOT / "docs").rglob(f"{name}.md")
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def results():
    return store.load(REFERENCE / "first_learner")


def between_markers(name: str, text: str) -> str:
    found = re.search(f"<!-- begin: {name} -->\n(.*)<!-- end: {name} -->", text, re.DOTALL)
    assert found is not None
    return found.group(1).strip()


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
        ("first_learner", "reference"),
        ("first", "laptop"),
        ("default", "config"),
        ("pilot", "pilot"),
        ("more_data", "more_data"),
        ("more_updates", "more_updates"),
        ("simulated", "simulated"),
        ("adapters", "adapters"),
        ("noise", "noise"),
        ("pool_again", "pool_again"),
        ("smollm2", "smollm2"),
        ("evolving", "evolving"),
        ("separated", "separated"),
        ("exploration", "exploration"),
        ("frontier", "frontier"),
    ],
)
def test_committed_tables_are_those_of_a_configuration(folder, file):
    committed = store.load(REFERENCE / folder)
    (path,) = (ROOT / "config").rglob(f"{file}.yaml")
    experiment = load_experiment(read_yaml(path))
    declared = dict(committed.manifest["experiment"])
    declared["analysis"] = settings(committed).model_dump()  # older tables do not say everything
    settled = store.settled_experiment(experiment)
    assert declared == {key: settled[key] for key in declared}
    planned = {run.identity for run in grid(experiment)}
    assert {run["identity"] for run in committed.manifest["runs"]} == planned


PAPERS_ERRORS = {
    "grasp": (".01", ".98", ".01"),
    "grow_plant": (".05", ".78", ".03"),
    "grow_herbivore": (".08", ".34", ".06"),
    "grow_carnivore": (".30", ".00", ".28"),
}
"""Table 2 of Gaven et al. 2025: MAGELLAN, Online-ALP, EK-Online-ALP."""


def unseen_errors(results) -> str:
    """The same table from the reference study, beside the paper's."""
    frame = estimation.table(results, estimation.OBSERVED, "unseen")
    frame = frame[frame["variant"] == "base"].set_index("sampler")["categories"]
    samplers = ("magellan", "online", "ek_online")
    labels = [sampler_label(name) for name in samplers]
    rows = [[results.categories.named(name).words] for name in PAPERS_ERRORS]
    for row, (name, papers) in zip(rows, PAPERS_ERRORS.items(), strict=True):
        row += [f"{frame[sampler][name]:.2f}".lstrip("0") for sampler in samplers]
        row += papers
    header = ["", *labels, *(f"paper: {label}" for label in labels)]
    return "\n".join([*printing.head(header), *map(printing.row, rows)])


def test_the_default_comparison_is_that_of_its_tables():
    found = compared(store.load(REFERENCE / "default"))
    found = found[found["score"] == PRIMARY_SCORE]
    assert len(found) == 6
    for row in found.itertuples():
        ends = f"{row.difference:+.3f} | {row.low:+.3f} to {row.high:+.3f}"
        chances = " | ".join(f"{p:.3f}".lstrip("0") for p in (row.p, row.p_holm))
        assert f"| `{row.baseline}` | {ends} | {chances} |" in page("default")


ARCHIVED = {
    "noise": ("variants", ["base", "five", "ten"]),
    "adapters": ("variants", ["own", "ignored"]),
    "evolving": ("samplers", ["magellan", "random", "online", "ek_online"]),
    "pool_again": ("variants", ["small", "whole"]),
}
"""Folders of tables that the archive quotes, and what is compared in them."""


def quoted(value: float, low: float, high: float, digits: int) -> str:
    """A difference as pages write it, from the side where it is not negative."""
    if value < 0:
        value, low, high = -value, -high, -low
    sign = "+" if low < 0 < high else ""
    return f"{value:.{digits}f} ({low:{sign}.{digits}f} to {high:{sign}.{digits}f})"


@pytest.mark.slow
@pytest.mark.parametrize("folder", ARCHIVED)
def test_the_archive_quotes_its_tables(folder):
    kind, names = ARCHIVED[folder]
    pairs = getattr(comparison, f"pairs_of_{kind}")(store.load(REFERENCE / folder), names)
    split = "unseen" if folder == "evolving" else "train"  # the goals of its second phase
    assert len(pairs) >= len(names) - 1
    for pair in pairs:
        sides = (pair.first, pair.second)
        first, second = (comparison.success_of(side, "25k", split)[1] for side in sides)
        value, interval = comparison.mean_difference((first - second).mean(axis=1))
        assert interval is not None
        assert quoted(value, *interval, 3) in " ".join(page("archive").split())


def test_the_archive_quotes_the_first_reference_study(results):
    found = compared(results)
    found = found[(found["score"] == PRIMARY_SCORE) & (found["split"] == "train")]
    found = found[found["baseline_variant"] != "long_window"]
    assert len(found)
    for row in found.itertuples():
        assert quoted(row.difference, row.low, row.high, 2) in " ".join(page("archive").split())


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
    words = f"Of {len(judged)} claims of the paper {n['reproduced']} are reproduced, "
    words += f"{n['contradicted']} contradicted, {n['undecided']} undecided and {n['not tested']}"
    assert words in README
    rows = [line.split(" | ") for line in estimated().splitlines()]
    errors = [" and ".join(f"{float(cell):.2f}" for cell in row[2:4]) for row in rows[2:]]
    assert f"({errors[0]} on" in README.replace("mean error ", "")
    assert errors[4] in README
    assert {row[-1] for row in rows[2:]} == {"0.016 |"}


def test_the_readme_quotes_the_study_of_all_rules():
    scores = standing.scores_of(of("rules"))
    ranked = standing.standings(scores, {rule: track_of(rule) for rule in scores}, "random")
    p = {rank.rule: f"{rank.p_best:.3f}".removeprefix("0") for rank in ranked}
    mean = {rule: f"{values.mean():.2f}" for rule, values in scores.items()}
    text = " ".join(README.split())
    for best, other in (("adarft", "ek_online"), ("pcl", "magellan")):
        assert f"{mean[best]} to {mean[other]} (p = {p[other]})" in text


@pytest.mark.slow
def test_the_readme_quotes_the_rules_over_the_whole_length():
    rows = [line.split(" | ") for line in long_tests().splitlines()[2:]]
    p = {tuple(cells[:3]): float(cells[-1].rstrip(" |")) for cells in rows}
    told = next(cells for cells in rows if cells[0] == "| `adarft`" and cells[2] == "train")
    mean, low, high = (abs(float(end)) for end in re.findall(r"0\.\d+", told[3]))
    chance = f"{p[tuple(told[:3])]:.3f}".removeprefix("0")
    assert f"overtaken by {mean:.2f} ({high:.2f} to {low:.2f}; p = {chance})" in README
    for rule in WITHOUT_GROUPS:
        first, second = f"| `{rule}`", "`magellan`"
        assert p[first, second, "train"] >= 0.05
        assert (p[first, second, "unseen"] < 0.05) == (rule == "fast_slow")
    scores = long_scores()["train"]
    half = (scores["random"].mean() + scores["ek_online"].mean()) / 2
    assert max(scores[rule].mean() for rule in WITHOUT_GROUPS) < half


@pytest.mark.slow
def test_the_readme_quotes_frontier():
    train = frontier_scores()["train"]
    way = covered(train["frontier"], train["random"], train["ek_online"])
    carnivores = masteries(of("frontier"), Algorithm("frontier", "base"), "25k").split(", ")[-1]
    told = next(line for line in frontier_tests().splitlines() if "`magellan` | train |" in line)
    mean, low, high, *_, p = re.findall(r"0\.\d+", told)
    lead = f"{float(mean):.2f} ahead, {float(low):.2f} to {float(high):.2f}; p = {p[1:]}"
    for quoted in (f"{way} of the way from `random`", f"{carnivores} of 12 runs", lead):
        assert quoted in " ".join(README.split())


def test_the_readme_quotes_the_other_build():
    results = of("other_build")
    times = times_of(results, Algorithm("magellan", "other_build"), "25k", "train").values()
    masters = np.all([flags for _, flags in times], axis=0)
    assert not masters.any()
    carnivores = list(times)[-1][1].sum()
    quoted = f"there {carnivores} of {len(masters)} master carnivores, and none all four."
    assert quoted in README


@pytest.mark.slow
def test_the_readme_quotes_what_exploring_over_goals_costs():
    row = next(line for line in one_constant().splitlines() if "`explore_goals` | train" in line)
    mean, low, high, p = (abs(float(cell)) for cell in re.findall(r"-?0\.\d+", row)[2:])
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


def test_replay_ratios_are_those_of_the_files():
    """Transitions that are learnt from for each environment step."""
    text = (ROOT / "DEVIATIONS.md").read_text(encoding="utf-8")
    study = grid(load_experiment(read_yaml(STUDIES / "reference.yaml")))[0].config.agent
    paper, laptop = (resolve_run(name, []).agent for name in ("paper", "laptop"))
    ratios = [each.batch_size // each.steps_per_update for each in (paper, laptop, study)]
    assert f"{ratios[0]} transitions for each environment step (replay ratio)" in text
    assert f"64 every 32 steps, {ratios[1]} for each" in text
    times = paper.steps_per_update // study.steps_per_update
    assert f"replay ratio {ratios[2]}, and {times} times as many updates" in text


def finding(folder: str = "samplers", variant: str = "base") -> str:
    """A row for each sampler of a study: what its runs master, and when."""
    results = of(folder)
    rows = []
    for sampler in ("ek_online", "magellan", "online", "random"):
        algorithm = Algorithm(sampler, variant)
        areas = [
            f"{run_means(results, algorithm, '25k', split).mean():.2f}"
            for split in ("train", "unseen")
        ]
        times = times_of(results, algorithm, "25k", "train").values()
        count = len(results.seeds_of(algorithm, "25k"))
        mastered = [
            f"{flags.sum()} of {count}" + (f", {np.median(at[flags]):,.0f}" if flags.any() else "")
            for at, flags in times
        ]
        rows.append([f"`{sampler}`", *areas, *mastered])
    header = ["sampler", "success over training", "unseen goals", "grasping mastered"]
    header += ["plants", "herbivores", "carnivores"]
    return "\n".join([*printing.head(header), *map(printing.row, rows)])


def separated() -> str:
    """A row for each run that goes on from MAGELLAN: success, mastery, dormant units."""
    results = store.load(REFERENCE / "separated")
    frame = results.tables["evaluation"]
    frame = frame[frame["split"] == "train"]
    rows = []
    for sampler in ("magellan", "scripted"):
        algorithm = Algorithm(sampler, "default")
        areas = dict(
            zip(
                results.seeds_of(algorithm, "25k"),
                run_means(results, algorithm, "25k", "train"),
                strict=True,
            )
        )
        mastered = times_of(results, algorithm, "25k", "train")
        for place, seed in enumerate(results.seeds_of(algorithm, "25k")):
            run = frame[(frame["sampler"] == sampler) & (frame["seed"] == seed)]
            hunters = run[run["category"] == "grow_carnivore"].sort_values("step")
            cells = []
            for name in ("grow_plant", "grow_herbivore", "grow_carnivore"):
                at, flags = (each[place] for each in mastered[name])
                last = run[run["category"] == name].sort_values("step")["success"].iloc[-1]
                cells.append(f"{last:.2f}, " + (f"{at:,.0f}" if flags else "never"))
            dormant = (f"{hunters['dormant'].iloc[at]:.2f}" for at in (0, -1))
            rows.append([f"`{sampler}`", str(seed), f"{areas[seed]:.2f}", *cells, *dormant])
    header = ["sampler", "seed", "success over the phase", "plants: at the end, mastered after"]
    header += ["herbivores", "carnivores", "dormant on carnivores, first", "last"]
    return "\n".join([*printing.head(header), *map(printing.row, rows)])


VARIANTS = {
    "samplers_replay": ("success_replay", "uniform replay", "success replay"),
    "samplers_tenfold": ("tenfold_step", "step size 2e-4", "step size 1e-3"),
}
"""Folders of the interactions' family: the variant, and what its sides are called."""


def with_ends(values: np.ndarray) -> str:
    """Mean of the pairs and its 95 % interval."""
    mean, interval = comparison.mean_difference(values, 2.0)
    assert interval is not None
    return f"{mean:+.3f} ({interval[0]:+.3f} to {interval[1]:+.3f})"


def interactions(folder: str) -> str:
    """MAGELLAN's leads on both sides; p after Holm over the 12 tests of the protocol's family."""
    others = ["random", "online", "ek_online"]
    rows, chances = {}, []
    for name, (variant, *_) in VARIANTS.items():
        algorithms, rows[name] = ["magellan", *others], []
        pairs = comparison.pairs_of_interactions(of(name), algorithms, ["base", variant])
        for other, pair in zip(others, pairs, strict=True):
            for split in comparison.SPLITS:
                sides = (pair.first, pair.second)
                leads = [comparison.success_of(s, "25k", split)[1].mean(axis=1) for s in sides]
                chances.append(sign_flip_test(leads[0] - leads[1]).p)
                cells = map(with_ends, [*leads, leads[0] - leads[1]])
                rows[name].append([f"`{other}`", split, *cells])
    corrected = np.split(holm(np.array(chances)), len(VARIANTS))[list(VARIANTS).index(folder)]
    header = ["MAGELLAN minus", "goals", *VARIANTS[folder][1:], "difference", "p, Holm over 12"]
    cells = [[*row, f"{p:.3f}"] for row, p in zip(rows[folder], corrected, strict=True)]
    return "\n".join([*printing.head(header), *map(printing.row, cells)])


def other_build_tests() -> str:
    """MAGELLAN's leads with the other build, and what they are more than; Holm over six each."""
    leads, rows = [], []
    for other, split in itertools.product(("random", "online", "ek_online"), comparison.SPLITS):
        new, base = (
            run_means(of("other_build"), Algorithm("magellan", variant), "25k", split)
            - run_means(of("other_build"), Algorithm(other, variant), "25k", split)
            for variant in ("other_build", "base")
        )
        rows.append([f"`{other}`", split])
        leads.append((new, new - base))
    for values in zip(*leads, strict=True):
        corrected = holm(np.array([sign_flip_test(value).p for value in values]))
        for row, value, p in zip(rows, values, corrected, strict=True):
            row += [with_ends(value), comparison.halves(value), f"{p:.3f}"]
    header = ["MAGELLAN minus", "goals", "`zoo-reader-1`", "halves of the seeds", "p, Holm"]
    header += ["minus the same with `zoo-reader`", "halves", "p, Holm"]
    return "\n".join([*printing.head(header), *map(printing.row, rows)])


def one_constant() -> str:
    """A sampler with one constant changed, and with the base's; p after Holm over both splits."""
    rows, splits = [], comparison.SPLITS
    names = ["base", "text_window", "explore_goals"]
    for pair in comparison.pairs_of_variants(of("samplers_settings"), names):
        scores = [
            [comparison.success_of(side, "25k", split)[1].mean(axis=1) for split in splits]
            for side in (pair.second, pair.first)
        ]
        chances = [sign_flip_test(one - other).p for one, other in zip(*scores, strict=True)]
        corrected = holm(np.array(chances))
        for split, changed, base, p in zip(splits, *scores, corrected, strict=True):
            means = (f"{values.mean():.3f}" for values in (changed, base))
            name = f"`{pair.second.algorithm.sampler}`, `{pair.second.name}`"
            rows.append([name, split, *means, with_ends(changed - base), f"{p:.3f}"])
    header = ["variant", "goals", "success", "of `base`", "difference", "p, Holm over 2"]
    return "\n".join([*printing.head(header), *map(printing.row, rows)])


def orders() -> str:
    """Success of each sampler in each variant and seed, best first."""
    results, rows = of("sensitivity"), []
    for variant in dict.fromkeys(algorithm.variant for algorithm in results.algorithms):
        success = {
            algorithm.sampler: dict(
                zip(
                    results.seeds_of(algorithm, "25k"),
                    run_means(results, algorithm, "25k", "train"),
                    strict=True,
                )
            )
            for algorithm in results.algorithms
            if algorithm.variant == variant
        }
        for seed in results.experiment["seeds"]:
            ranked = sorted(((means[seed], name) for name, means in success.items()), reverse=True)
            cells = ", ".join(f"`{name}` {mean:.2f}" for mean, name in ranked)
            rows.append([f"`{variant}`", str(seed), cells])
    header = ["variant", "seed", "mean success over training, training goals"]
    return "\n".join([*printing.head(header), *map(printing.row, rows)])


def masteries(results: store.Results, algorithm: Algorithm, space: str) -> str:
    """Runs that master each category, in the world's order."""
    times = times_of(results, algorithm, space, "train").values()
    return ", ".join(str(flags.sum()) for _, flags in times)


def covered(*sides: np.ndarray) -> str:
    """Share of the way from the second to the third that the first covers; seeds resampled."""

    def share(values: np.ndarray) -> np.ndarray:
        rule, low, high = np.moveaxis(values.mean(axis=-2), -1, 0)
        return ((rule - low) / (high - low))[..., None]

    found = percentile_estimate([np.stack(sides, axis=1)], share, comparison.BOOTSTRAP)
    return f"{found.value[0]:.2f} ({found.low[0]:.2f} to {found.high[0]:.2f})"


def rules() -> str:
    """Each rule's place among those of its track, and how many of its runs master what."""
    results = of("rules")
    scores = standing.scores_of(results)
    listed = standing.table(
        "", standing.standings(scores, {rule: track_of(rule) for rule in scores}, "random")
    )
    header = [*listed.columns, "of the way to `ek_online`"]
    header += ["runs that master grasping, plants, herbivores, carnivores"]
    cells = []
    for row in listed.rows:
        rule = row[0].strip("`")
        way = covered(scores[rule], scores["random"], scores["ek_online"])
        cells.append([*row, way, masteries(results, Algorithm(rule, "default"), "25k")])
    return "\n".join([*printing.head(header), *map(printing.row, cells)])


def signals() -> str:
    """MAGELLAN minus rules with its estimator (Holm over four), these minus the same rules with
    windows of their own (Holm over three).
    """
    own, learned = (standing.scores_of(of(folder)) for folder in ("rules", "signals"))
    others = ("learnability", "procurl", "pools")
    pairs = [
        ("`magellan`", f"`{name}`, learned", own["magellan"], learned[name]) for name in others
    ]
    pairs.insert(2, ("`magellan`", "`pcl`", own["magellan"], own["pcl"]))
    windows = [
        (f"`{name}`, learned", f"`{name}`, windows", learned[name], own[name]) for name in others
    ]
    rows = []
    for family in (pairs, windows):
        chances = [sign_flip_test(first - second).p for *_, first, second in family]
        for (one, other, first, second), p in zip(family, holm(np.array(chances)), strict=True):
            means = (f"{values.mean():.3f}" for values in (first, second))
            rows.append([one, other, *means, with_ends(first - second), f"{p:.3f}"])
    header = ["first", "second", "success", "of the second", "first minus second", "p, Holm"]
    return "\n".join([*printing.head(header), *map(printing.row, rows)])


def exploration() -> str:
    """MAGELLAN and `learnability` without epsilon against themselves and rules that explore by
    themselves; p after Holm over the four.
    """
    results = of("exploration")
    scores = {
        (algorithm.sampler, algorithm.variant): run_means(results, algorithm, "25k", "train")
        for algorithm in results.algorithms
    }
    pairs = [("magellan", "magellan"), ("learnability", "learnability")]
    pairs += [("magellan", "pcl"), ("learnability", "procurl")]
    sides = [(scores[first, "no_epsilon"], scores[second, "base"]) for first, second in pairs]
    corrected = holm(np.array([sign_flip_test(one - other).p for one, other in sides]))
    rows = []
    for (first, second), (one, other), p in zip(pairs, sides, corrected, strict=True):
        means = (f"{values.mean():.3f}" for values in (one, other))
        names = (f"`{first}`, no epsilon", f"`{second}`")
        rows.append([*names, *means, with_ends(one - other), f"{p:.3f}"])
    header = ["first", "second", "success", "of the second", "first minus second", "p, Holm"]
    return "\n".join([*printing.head(header), *map(printing.row, rows)])


WITHOUT_GROUPS = ("pcl", "fast_slow", "alp_gmm", "regions")
"""Rules of the long study that are not told the groups, beside the reference study's."""


def long_scores() -> dict[str, dict[str, np.ndarray]]:
    """Split -> rule -> mean success over training of each seed, in the long study."""
    results = of("rules_long")
    return {
        split: {
            algorithm.sampler: run_means(results, algorithm, "25k", split)
            for algorithm in results.algorithms
        }
        for split in comparison.SPLITS
    }


def long_rules() -> str:
    """Each rule over the whole length, best first: success, the way to `ek_online`, mastery."""
    scores, results, rows = long_scores(), of("rules_long"), []
    train = scores["train"]
    for rule in sorted(train, key=lambda rule: -train[rule].mean()):
        ways = [
            covered(means[rule], means["random"], means["ek_online"]) for means in scores.values()
        ]
        means = (f"{means[rule].mean():.3f}" for means in scores.values())
        mastered = masteries(results, Algorithm(rule, "default"), "25k")
        rows.append([f"`{rule}`", track_of(rule), *means, *ends_of(results, rule), *ways, mastered])
    header = ["rule", "track", "success", "unseen goals", "at the end", "unseen"]
    header += [
        "of the way to `ek_online`",
        "unseen",
        "runs of 12 that master grasping, plants, herbivores, carnivores",
    ]
    return "\n".join([*printing.head(header), *map(printing.row, rows)])


def ends_of(results: store.Results, rule: str) -> list[str]:
    """Mean success at the last evaluation, training goals and unseen ones."""
    ends = [
        score_matrices(results, Algorithm(rule, "default"), "25k", split)["final"].mean()
        for split in comparison.SPLITS
    ]
    return [f"{end:.3f}" for end in ends]


def long_tests() -> str:
    """The eighteen tests of the third question."""
    pairs = [(rule, other) for other in ("magellan", "random") for rule in WITHOUT_GROUPS]
    return pairs_tested(long_scores(), [*pairs, ("adarft", "ek_online")])


def pairs_tested(scores: dict[str, dict[str, np.ndarray]], pairs: list[tuple[str, str]]) -> str:
    """Pairs of rules on both splits, tested; p after Holm over all of them."""
    rows, chances = [], []
    for first, second in pairs:
        for split, means in scores.items():
            lead = means[first] - means[second]
            chances.append(sign_flip_test(lead).p)
            rows.append(
                [f"`{first}`", f"`{second}`", split, with_ends(lead), comparison.halves(lead)]
            )
    header = ["first", "second", "goals", "first minus second", "halves of the seeds", "p, Holm"]
    cells = [[*row, f"{p:.3f}"] for row, p in zip(rows, holm(np.array(chances)), strict=True)]
    return "\n".join([*printing.head(header), *map(printing.row, cells)])


FRONTIER = {"frontier": "base", "frontier, one kind": "one_kind"}
"""Name in the fifth question's tables -> variant."""


def frontier_scores() -> dict[str, dict[str, np.ndarray]]:
    """Split -> rule -> mean success over training of each seed, beside the long study's rules."""
    scores = long_scores()
    goals = Algorithm("ek_online", "explore_goals")
    for split, means in scores.items():
        means["ek_online, goals"] = run_means(of("samplers_settings"), goals, "25k", split)
        for name, variant in FRONTIER.items():
            algorithm = Algorithm("frontier", variant)
            means[name] = run_means(of("frontier"), algorithm, "25k", split)
    return scores


def frontier() -> str:
    """The fifth question's rules, and those beside them, best first."""
    scores, rows = frontier_scores(), []
    beside = ("ek_online", "ek_online, goals", "pcl", "magellan", "random")
    for name in sorted((*FRONTIER, *beside), key=lambda name: -scores["train"][name].mean()):
        means = (f"{values[name].mean():.3f}" for values in scores.values())
        ways = [
            covered(values[name], values["random"], values[top])
            for top in ("ek_online", "ek_online, goals")
            for values in scores.values()
        ]
        algorithm = Algorithm("frontier", FRONTIER.get(name, ""))
        mastered = masteries(of("frontier"), algorithm, "25k") if name in FRONTIER else ""
        rows.append([f"`{name}`", *means, *ways, mastered])
    header = ["rule", "success", "unseen goals", "of the way to `ek_online`", "unseen"]
    header += ["of the way to `ek_online` exploring over goals", "unseen"]
    header += ["runs of 12 that master grasping, plants, herbivores, carnivores"]
    return "\n".join([*printing.head(header), *map(printing.row, rows)])


def frontier_tests() -> str:
    """The eight tests of the fifth question."""
    others = ("magellan", "pcl", "ek_online", "frontier, one kind")
    return pairs_tested(frontier_scores(), [("frontier", other) for other in others])


def practice() -> str:
    """Where a rule's episodes go, most on herbivores first, and when half of its runs master."""
    names, rows = {variant: name for name, variant in FRONTIER.items()}, []
    for folder in ("rules_long", "frontier"):
        results = of(folder)
        keys = ["sampler", "variant", "seed"]
        episodes = results.table("practice").groupby([*keys, "category"])["n"].sum()
        shares = episodes / episodes.groupby(keys).transform("sum")
        means = shares.reset_index().pivot_table("n", ["sampler", "variant"], "category")
        for rule, variant in means.index:
            times = times_of(results, Algorithm(rule, variant), "25k", "train").values()
            medians = (np.median(np.where(flags, at, np.inf)) for at, flags in times)
            cells = [f"{median:,.0f}" if np.isfinite(median) else "" for median in medians]
            listed = means.loc[rule, variant][[c.name for c in results.categories]]
            rows.append([f"`{names.get(variant, rule)}`", *listed, *cells[:2]])
    rows.sort(key=lambda row: -row[4])
    header = ["rule", "impossible", "grasping", "plants", "herbivores", "carnivores"]
    header += ["grasping mastered, step", "plants mastered, step"]
    cells = [[row[0], *(f"{share:.3f}" for share in row[1:6]), *row[6:]] for row in rows]
    return "\n".join([*printing.head(header), *map(printing.row, cells)])


@cache
def of(folder: str) -> store.Results:
    return store.load(REFERENCE / folder)


def samplers(folder: str, *names: str) -> str:
    return to_markdown(comparison, comparison.pairs_of_samplers(of(folder), list(names)), "success")


def simulated(results: store.Results) -> str:
    pairs = comparison.pairs_of_estimators(results, ["learned", "per_goal", "expert_buckets"])
    return to_markdown(comparison, pairs, "error")


def observed_errors(folder: str) -> str:
    table = estimation.table(of(folder), estimation.OBSERVED)
    return to_markdown(estimation, of(folder), table)


def estimated() -> str:
    """MAGELLAN's estimator against each other one; p after Holm over both, in each goal space."""
    measured = estimation.with_truth(of("estimation"), estimation.MEASURED)
    names = ["learned", "per_goal", "expert_buckets"]
    pairs, rows = comparison.pairs_of_estimators(measured, names), []
    for space in measured.goal_spaces:
        here = [pair for pair in pairs if pair.goal_space == space]
        errors = [
            [
                comparison.error_of(side, space, "train")[1].mean(axis=1)
                for side in (pair.first, pair.second)
            ]
            for pair in here
        ]
        chances = holm(np.array([sign_flip_test(one - other).p for one, other in errors]))
        for pair, (one, other), p in zip(here, errors, chances, strict=True):
            means = (f"{values.mean():.3f}" for values in (one, other))
            cells = [with_ends(one - other), comparison.halves(one - other), f"{p:.3f}"]
            rows.append([space, f"`{pair.second.estimator}`", *means, *cells])
    header = ["goals", "other", "error of `learned`", "of the other", "difference"]
    header += ["halves of the seeds", "p, Holm over 2"]
    return "\n".join([*printing.head(header), *map(printing.row, rows)])


def verdicts() -> str:
    listed = claims.load()
    return printing.render(claims.to_tables(listed, claims.judge(listed, REFERENCE)))


def costs() -> str:
    text = printing.render([cost.table(cost.costs(of("learner")))])
    return "\n".join(line for line in text.splitlines() if line.startswith("|"))


BLOCKS = {
    ("paper", "unseen"): lambda: unseen_errors(of("samplers")),
    ("simulated", "observed"): lambda: simulated(of("simulated")),
    ("simulated", "known"): lambda: simulated(with_known_competence(of("simulated"))),
    ("smollm2", "smollm2 gain"): lambda: to_markdown(gain, of("smollm2")),
    ("smollm2", "smollm2 estimation"): lambda: observed_errors("smollm2"),
    ("smollm2", "smollm2 behaviour"): lambda: to_markdown(behaviour, of("smollm2")),
    ("separated", "separated"): separated,
    ("samplers", "finding"): finding,
    ("samplers", "samplers success"): lambda: samplers(
        "samplers", "magellan", "random", "online", "ek_online"
    ),
    ("samplers", "samplers replay"): lambda: interactions("samplers_replay"),
    ("samplers", "samplers tenfold"): lambda: interactions("samplers_tenfold"),
    ("samplers", "samplers constants"): one_constant,
    ("sensitivity", "sensitivity"): orders,
    ("sensitivity", "other build"): lambda: finding("other_build", "other_build"),
    ("sensitivity", "other build tests"): other_build_tests,
    ("rules", "rules"): rules,
    ("rules", "signals"): signals,
    ("rules", "exploration"): exploration,
    ("rules", "rules long"): long_rules,
    ("rules", "rules long tests"): long_tests,
    ("rules", "practice"): practice,
    ("rules", "frontier"): frontier,
    ("rules", "frontier tests"): frontier_tests,
    ("estimation", "estimation"): estimated,
    ("claims", "claims"): verdicts,
    ("learner", "learner"): costs,
}
"""Page and marker of a block -> the block anew from the committed tables."""


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block[1])
def test_a_block_of_a_page_is_that_of_the_tables(block):
    assert between_markers(block[1], page(block[0])) == BLOCKS[block]().strip()


def test_the_finding_of_the_readme_is_that_of_the_tables():
    assert between_markers("finding", README) == finding()
