"""Tables of pages, from committed results; `python -m tests.pages [PAGE ...]` writes them."""

import itertools
import re
import sys
from collections.abc import Sequence
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from analysis.report import claims, pictures
from analysis.statistics import contrasts, standing
from analysis.statistics.intervals import holm_within, percentile_estimate, sign_flip_test
from analysis.statistics.mastery import kaplan_meier, median_time, times_of
from analysis.statistics.matrices import mean_until, settings, success_curves
from analysis.statistics.practice_shares import goal_counts, practised_until, run_counts
from analysis.statistics.primary import run_means
from analysis.studies import behaviour, estimation
from analysis.tables import printing, store
from analysis.tables.grid import Algorithm, sampler_label
from analysis.tables.results import SPLITS, rows_where
from magellan.config.grid import PLAIN
from magellan.samplers.conformance import track_of
from tests import config_page
from tests.snippets import ROOT, parts

REFERENCE = ROOT / "results" / "reference"


def path_of(name: str) -> Path:
    """File of a page: a README, or one of the docs, wherever it lies in them."""
    path = ROOT / f"{name}.md"
    (path,) = [path] if path.exists() else (ROOT / "docs").rglob(f"{name}.md")
    return path


def page(name: str) -> str:
    return path_of(name).read_text(encoding="utf-8")


def between_markers(name: str, text: str) -> str:
    return parts(name, text)[1].strip()


CATEGORY_WORDS = {
    "grasp": "grasping",
    "grow_plant": "plants",
    "grow_herbivore": "herbivores",
    "grow_carnivore": "carnivores",
}
PAPERS_ERRORS = {
    "grasp": (".01", ".98", ".01"),
    "grow_plant": (".05", ".78", ".03"),
    "grow_herbivore": (".08", ".34", ".06"),
    "grow_carnivore": (".30", ".00", ".28"),
}
"""Table 2 of Gaven et al. 2025: MAGELLAN, Online-ALP, EK-Online-ALP."""


def unseen_errors(results, variant: str = "base") -> str:
    """The same table from a study of ours, by default the reference study, beside the paper's."""
    frame = estimation.table(results, estimation.OBSERVED, "unseen")
    frame = frame[frame["variant"] == variant].set_index("sampler")["categories"]
    samplers = ("magellan", "online", "ek_online")
    labels = [sampler_label(name) for name in samplers]
    rows = []
    for name, papers in PAPERS_ERRORS.items():
        ours = [f"{frame[sampler][name]:.2f}".lstrip("0") for sampler in samplers]
        rows.append([results.categories.named(name).words, *ours, *papers])
    header = ["", *labels, *(f"paper: {label}" for label in labels)]
    return in_table(header, rows)


def chosen(folder: str) -> str:
    """Shares of a study's goals drawn by its rules, not by exploration (the paper's Figure 19)."""
    table = next(
        found for found in behaviour.tables(of(folder)) if "without exploration" in found.caption
    )
    return in_table(table.columns, table.rows)


Arms = dict[str, tuple[str, str, str]]
"""Name in tables -> folder, sampler, variant."""


def times(folder: str, *algorithm: str) -> dict[str, Any]:
    """When each run masters each category, or its end, and whether it does: (runs,) each."""
    return times_of(of(folder), Algorithm(*algorithm), "25k", "train")


def finding(arms: Arms, **more: Sequence[str]) -> str:
    """A row for each arm: what its runs master, and when half of them have; `more` columns."""
    rows = []
    for name, arm in arms.items():
        row = [f"`{name}`", *(f"{success(*arm, split).mean():.2f}" for split in SPLITS)]
        for at, flags in times(*arm).values():
            half = median_time(kaplan_meier(at, flags))  # nan if fewer than half ever do
            row.append(f"{flags.sum()}" + ("" if np.isnan(half) else f", {half:,.0f}"))
        rows.append([*row, *(cells[len(rows)] for cells in more.values())])
    header = ["sampler", "success over training", "unseen goals"]
    header.append(f"runs of {len(flags)} that master grasping; half by step")
    return in_table([*header, "plants", "herbivores", "carnivores", *more], rows)


def leads() -> str:
    """MAGELLAN's leads over the same steps, tested, and at equal episodes."""
    rows, at_equal = [], []
    for other, split in OTHERS:
        own, others = (equal("samplers", name, split=split) for name in ("magellan", other))
        at_equal.append(with_ends(own - others))
        rows.append(([f"`{other}`", split], lead("samplers", other, "base", split)))
    tested = with_tests(rows, halves=True)
    cells = [[*row, episodes] for row, episodes in zip(tested, at_equal, strict=True)]
    header = ["MAGELLAN minus", "goals", "at equal steps", "halves of the seeds"]
    return in_table([*header, "p, Holm over 6", "at equal episodes"], cells)


FOLLOWS = {
    "ek_online": "EK-Online-ALP: the learning progress of each category, told by an expert",
    "magellan": "MAGELLAN: that of each goal, predicted by the agent's model",
    "online": "Online-ALP: that of each goal, from its outcomes",
    "random": "nothing",
}


def four(folder: str, variant: str) -> Arms:
    """The samplers of the first page in a study."""
    return {sampler: (folder, sampler, variant) for sampler in FOLLOWS}


def equal(folder: str, sampler: str, variant: str = "base", split: str = "train") -> pd.Series:
    """Mean success of each run until the fewest episodes of any, by seed: (seeds,)."""
    (term,) = contrasts.parse(f"{sampler}/{variant}")
    return contrasts.scores(of(folder), term, "equal", split).mean(axis=1)


def first_page() -> str:
    """A row for each sampler of the reference study, for the README."""
    rows = []
    for sampler, follows in FOLLOWS.items():
        arm = ("samplers", sampler, "base")
        flags = {CATEGORY_WORDS[name]: flags for name, (_, flags) in times(*arm).items()}
        most = [words for words in flags if flags[words].mean() > 0.5]
        means = (success(*arm), equal(*arm), success(*arm, "unseen"))
        cells = (f"{mean.mean():.2f}".lstrip("0") for mean in means)
        words = "all four" if len(most) == len(flags) else ", ".join(most)
        rows.append([f"`{sampler}`", follows, *cells, words])
    header = ["sampler", "follows", "success, equal steps", "equal episodes", "unseen goals"]
    return in_table([*header, "mastered by most runs"], rows)


def separated() -> str:
    """A row for each run that goes on from MAGELLAN: success, mastery, dormant units."""
    results, rows = of("separated"), []
    for sampler in ("magellan", "scripted"):
        algorithm = Algorithm(sampler, "default")
        areas = success("separated", *algorithm)
        mastered = times("separated", *algorithm)
        for place, seed in enumerate(results.seeds_of(algorithm, "25k")):
            run = results.table("evaluation", sampler=sampler, seed=seed, split="train")
            cells = []
            for name in ("grow_herbivore", "grow_carnivore"):
                category = rows_where(run, category=name).sort_values("step")
                at, flags = (each[place] for each in mastered[name])
                last = f"{category['success'].iloc[-1]:.2f}"
                cells.append(f"{last}, {at:,.0f}" if flags else f"{last}, never")
            dormant = (f"{share:.2f}" for share in category["dormant"].iloc[[0, -1]])
            rows.append([f"`{sampler}`", str(seed), f"{areas[seed]:.2f}", *cells, *dormant])
    header = ["sampler", "seed", "success over the phase", "herbivores: at the end, mastered after"]
    return in_table([*header, "carnivores", "dormant on carnivores, first", "last"], rows)


def runs_one_by_one(folder: str) -> str:
    """A row for each run: success over training, and when it masters each category, or its end.

    The first row is the paper's, if the experiment states it.
    """
    results = of(folder)
    papers = [f"{at:,}" for at in (settings(results).paper_mastery or {}).values()]
    rows = [["paper, MAGELLAN", "0", "", "", *papers]] if papers else []
    for algorithm in results.algorithms_in("25k"):
        name = algorithm.sampler if algorithm.variant == PLAIN else "/".join(algorithm)
        areas = [success(folder, *algorithm, split) for split in SPLITS]
        mastered = times(folder, *algorithm).values()
        ends = success_curves(results, algorithm, "25k", "train")[..., -1]
        for place, seed in enumerate(results.seeds_of(algorithm, "25k")):
            cells = [f"{area[seed]:.2f}" for area in areas]
            for end, (at, flags) in zip(ends[place], mastered, strict=True):
                cells.append(f"{at[place]:,.0f}" if flags[place] else f"never; {end:.2f}")
            rows.append([f"`{name}`", str(seed), *cells])
    header = ["sampler", "seed", "success over training", "unseen goals", "grasping mastered"]
    return in_table([*header, "plants", "herbivores", "carnivores"], rows)


Values = np.ndarray | pd.Series
VARIANTS = {
    "samplers_replay": ("success_replay", "with success replay"),
    "samplers_tenfold": ("tenfold_step", "with step size 1e-3"),
}
"""Folders of the interactions' family: the variant, and what it is called."""


def with_ends(values: Values) -> str:
    """Mean of the pairs and its 95 % interval."""
    values = np.asarray(values)
    assert not np.isnan(values).any(), "a seed is on one side only"
    mean, low, high = sign_flip_test(values).interval
    return f"{mean:+.3f} ({printing.interval_cell(low, high)})"


def with_tests(
    rows: list[tuple[list[str], Values]], families: Any = None, halves: bool = False
) -> list[list[str]]:
    """To the cells of each row the mean of its values, its interval, and p after Holm."""
    chances = [sign_flip_test(np.asarray(values)).p for _, values in rows]
    corrected = holm_within(chances, families or [0] * len(rows))
    tested = []
    for (cells, values), p in zip(rows, corrected, strict=True):
        more = [contrasts.halves(np.asarray(values))] * halves
        tested.append([*cells, with_ends(values), *more, printing.chance(p)])
    return tested


def in_table(header: list[str], rows: list[list[str]]) -> str:
    return "\n".join([*printing.head(header), *map(printing.row, rows)])


def success(folder: str, sampler: str, variant: str = "base", split: str = "train") -> pd.Series:
    """Mean success over training of each run, by seed: (seeds,)."""
    results, algorithm = of(folder), Algorithm(sampler, variant)
    (space,) = results.goal_spaces
    return run_means(results, algorithm, space, split)


def on_both(arms: Arms) -> dict[str, dict[str, pd.Series]]:
    """Split -> name -> mean success over training of each run, by seed."""
    return {split: {name: success(*arm, split) for name, arm in arms.items()} for split in SPLITS}


PRACTISED = {
    "uniform": "all prompts alike",
    "length_1": "length 1",
    "length_1_2": "lengths 1, 2",
    "length_1_3": "lengths 1 to 3",
    "staircase": "staircase: 1 and 2, then 2 and 3, then 3 and 4",
}


def scripted_map() -> str:
    """Success on held-out prompts of the scripted practices, on both tuning seeds."""
    results, rows = of("grpo_learner"), []
    for variant, words in PRACTISED.items():
        algorithm, space = Algorithm("scripted", variant), results.goal_spaces[0]
        curves = success_curves(results, algorithm, space, "unseen").mean(axis=1)  # seeds, moments
        means = success("grpo_learner", *algorithm, "unseen")
        moments = [*curves[:, [1, 3, 6, 10]].T, means]
        rows.append([words, *(", ".join(f"{each:.3f}"[1:] for each in pair) for pair in moments)])
    header = ["practice", "20,000 tokens", "60,000", "120,000", "200,000", "mean over training"]
    return in_table(header, rows)


def on_prompts(folder: str, variant: str, base: str, columns: Sequence[str]) -> str:
    """A study's samplers on GRPO's prompts, minus `base`, or themselves; Holm over all of them."""
    rows = []
    for sampler in of(folder).experiment["samplers"]:
        own = success(folder, sampler, variant, "unseen")
        other = success("grpo", base or sampler, PLAIN, "unseen")
        rows.append(([f"`{sampler}`", f"{own.mean():.3f}"], own - other))
    header = ["sampler", *columns, "halves of the seeds", f"p, Holm over {len(rows)}"]
    return in_table(header, with_tests(rows, halves=True))


def in_trl() -> str:
    """Success on held-out prompts of the runs in TRL, seed by seed, and differences."""
    table = pd.read_csv(REFERENCE / "trl_digits.csv")
    table = table[table["split"] == "unseen"]
    curves = table.pivot_table("success", ["sampler", "seed"], "step")
    at = curves.columns.to_numpy()
    area = np.trapezoid(curves, at, axis=1) / (at[-1] - at[0])
    means = pd.Series(area, curves.index)
    arms = {f"`{sampler}`": means[sampler] for sampler in ("random", "pcl", "plr")}
    for variant, words in (("none", "as above"), ("empty", "with empty steps")):
        arms[f"`random` here, {words}"] = success("grpo_steps", "random", variant, "unseen")
    rows = []
    for name, own in arms.items():
        values = own - means["random"]
        tested = [with_ends(values), f"{(values > 0).sum()} of {len(values)}"]
        cells = [f"{each:.3f}"[1:] for each in (*own, own.mean())]
        rows.append([name, *cells, *(tested if name in ("`pcl`", "`plr`") else ["", ""])])
    seeds = [f"seed {seed}" for seed in own.index]
    return in_table(["sampler", *seeds, "mean", "minus `random`", "pairs above 0"], rows)


def lead(folder: str, other: str, variant: str, split: str) -> pd.Series:
    own, others = (success(folder, name, variant, split) for name in ("magellan", other))
    return own - others


OTHERS = [*itertools.product(("random", "online", "ek_online"), SPLITS)]
"""What MAGELLAN is compared with, and on which goals."""


def interactions(folder: str) -> str:
    """MAGELLAN's leads in a variant, and what they were in `base` minus that; Holm over the 12."""
    rows = []
    for name, (variant, _) in VARIANTS.items():
        for other, split in OTHERS:
            base, changed = (lead(name, other, side, split) for side in ("base", variant))
            rows.append(([f"`{other}`", split, with_ends(changed)], base - changed))
    header = ["MAGELLAN minus", "goals", VARIANTS[folder][1], "`base` minus that"]
    start = len(OTHERS) * list(VARIANTS).index(folder)
    tested = with_tests(rows)[start : start + len(OTHERS)]
    return in_table([*header, "p, Holm over 12"], tested)


def other_model_tests(folder: str, variant: str, model: str) -> str:
    """MAGELLAN's leads with another model, and what they are more than; Holm over six each."""
    first, more = [], []
    for other, split in OTHERS:
        new = lead(folder, other, variant, split)
        first.append(([f"`{other}`", split], new))
        more.append(([], new - lead("samplers", other, "base", split)))
    both = (with_tests(rows, halves=True) for rows in (first, more))
    rows = [[*cells, *others] for cells, others in zip(*both, strict=True)]
    header = ["MAGELLAN minus", "goals", f"`{model}`", "halves of the seeds", "p, Holm"]
    return in_table([*header, "minus the same with `zoo-reader`", "halves", "p, Holm"], rows)


READERS = {
    ("learned", "smollm2-135m"): "MAGELLAN's head, read by `smollm2-135m`",
    ("learned", "zoo-reader-no-kinds"): "by `zoo-reader-no-kinds`",
    ("learned", "zoo-reader"): "by `zoo-reader`",
    ("per_goal", ""): "a window for each goal",
    ("expert_buckets", ""): "a window for each category",
}
"""Estimators of `replays.csv`, and the models that they read with."""


def replayed() -> str:
    """Error of replayed predictions: mean over evaluations and categories, then each run's."""
    table = pd.read_csv(REFERENCE / "replays.csv", keep_default_na=False)
    every = rows_where(table, category="all").set_index(["split", "estimator", "model", "seed"])
    errors, rows = every["mean_absolute_error"].sort_index(), []
    for reader, words in READERS.items():
        rows.append([words])
        for own in (errors.loc[(split, *reader)] for split in SPLITS):
            rows[-1] += [f"{own.mean():.3f}", ", ".join(f"{each:.2f}"[1:] for each in own)]
    seeds = f"seeds {', '.join(map(str, own.index))}"
    return in_table(["estimator", "training goals", seeds, "unseen", seeds], rows)


def one_constant() -> str:
    """A sampler with one constant changed, and with the base's; p after Holm over both splits."""
    rows, changes = [], (("magellan", "text_window"), ("ek_online", "explore_goals"))
    for (sampler, variant), split in itertools.product(changes, SPLITS):
        arms = (("samplers_settings", sampler, name, split) for name in (variant, "base"))
        changed, base = (success(*arm) for arm in arms)
        cells = [f"`{sampler}`, `{variant}`", split, f"{changed.mean():.3f}", f"{base.mean():.3f}"]
        rows.append((cells, changed - base))
    header = ["variant", "goals", "success", "of `base`", "difference", "p, Holm over 2"]
    return in_table(header, with_tests(rows, [cells[0] for cells, _ in rows]))


MASTER = "master grasping, plants, herbivores, carnivores"


def masteries(*arm: str) -> str:
    return ", ".join(str(flags.sum()) for _, flags in times(*arm).values())


def covered(*sides: np.ndarray) -> str:
    """Share of the way from the second to the third that the first covers; seeds resampled."""

    def share(values: np.ndarray) -> np.ndarray:
        rule, low, high = np.moveaxis(values.mean(axis=-2), -1, 0)
        return ((rule - low) / (high - low))[..., None]

    found = percentile_estimate([np.stack(sides, axis=1)], share, contrasts.BOOTSTRAP)
    return f"{found.value[0]:.2f} ({found.low[0]:.2f} to {found.high[0]:.2f})"


def rules(folder: str, way: bool = False) -> str:
    """Each rule's place among those of its track, and its share of the way to `ek_online`."""
    scores = standing.scores_of(of(folder))
    listed = standing.table(
        "", standing.standings(scores, {rule: track_of(rule) for rule in scores}, "random")
    )
    cells = []
    for rule, track, mean, *others, _ in listed.rows:
        sides = (scores[name] for name in (rule.strip("`"), "random", "ek_online"))
        told = "†" if track == "groups given" else ""
        cells.append([rule + told, mean.partition(" ")[0], *others, *[covered(*sides)] * way])
    header = ["sampler", "success", "over `random`", "p", "p, track's best"]
    return in_table([*header, *["of the way to `ek_online`"] * way], cells)


def asked() -> str:
    """Arms with a chat model, what asking cost, and success minus uniform choice; Holm over four.

    `random` and `ek_online` are the rules' runs of the same seeds.
    """
    low, high = (standing.scores_of(of("rules"))[rule] for rule in ("random", "ek_online"))
    rows = []
    for algorithm in of("experimenter").algorithms_in("25k"):
        own = success("experimenter", *algorithm)
        chats = [run["chat"] for run in of("experimenter").manifests_of(algorithm)]
        read, written = np.array([chat["tokens"] for chat in chats]).mean(axis=0)
        seconds = np.mean([chat["seconds"] for chat in chats])
        cells = [f"`{algorithm.sampler}`, {algorithm.variant}", f"{own.mean():.3f}"]
        cells.append(covered(*(side.loc[own.index].to_numpy() for side in (own, low, high))))
        cells.append(f"{read:,.0f}, {written:,.0f}, {seconds:,.0f} s")
        rows.append((cells, own - low.loc[own.index]))
    header = ["arm", "success", f"of the way from `random`, {low.mean():.3f}, to `ek_online`, "]
    header[-1] += f"{high.mean():.3f}"
    header += ["tokens read, written, time for them", "minus `random`", "halves", "p, Holm over 4"]
    return in_table(header, with_tests(rows, halves=True))


def misjudged() -> str:
    """Samplers with an evaluator that errs, minus those of the rules' study; a family of nine."""
    clean, rows = standing.scores_of(of("rules")), []
    for sampler in ("random", "magellan", "ek_online"):
        for variant in of("evaluator").experiment["variants"]:
            own, floor = (success("evaluator", name, variant) for name in (sampler, "random"))
            lead = "" if sampler == "random" else with_ends(own - floor)
            rate = f".{variant.removeprefix('err')}"
            practice = of("evaluator").table("practice", sampler=sampler, variant=variant)
            won = practice.groupby("category")["successes"].sum()
            false = f"{won['impossible'] / won.sum():.2f}"
            cells = [f"`{sampler}`", rate, false, f"{own.mean():.3f}", lead]
            rows.append((cells, own - clean[sampler].loc[own.index]))
    header = ["sampler", "errors", "of rewarded episodes on impossible goals"]
    header += ["success over training", "minus `random` with them"]
    header += ["minus the same without errors", "halves of the seeds", "p after Holm"]
    return in_table(header, with_tests(rows, halves=True))


def orders_in_both_worlds(folder: str = "craft", split: str = "train") -> str:
    """Spearman's correlation of the rules' means there and in Little-Zoo; seeds resampled."""
    worlds = [standing.scores_of(of(folder), split=split), standing.scores_of(of("rules"))]
    both = [rule for rule in worlds[0] if rule in worlds[1]]

    def correlation(*scores: np.ndarray) -> np.ndarray:
        ranks = [rankdata(values.mean(axis=-2), axis=-1) for values in scores]
        ranks = [rank - rank.mean(axis=-1, keepdims=True) for rank in ranks]
        lengths = [np.sqrt((rank**2).sum(axis=-1)) for rank in ranks]
        return ((ranks[0] * ranks[1]).sum(axis=-1) / (lengths[0] * lengths[1]))[..., None]

    kinds = {"all, `random` included": both}
    for track in ("same information", "groups given"):
        kinds[track] = [rule for rule in both if track_of(rule) == track and rule != "random"]
    rows = []
    for kind, rules in kinds.items():
        samples = [np.stack([scores[rule] for rule in rules], axis=1) for scores in worlds]
        found = percentile_estimate(samples, correlation, contrasts.BOOTSTRAP)
        interval = f"{found.low[0]:.2f} to {found.high[0]:.2f}"
        rows.append([kind, str(len(rules)), f"{found.value[0]:.2f} ({interval})"])
    return in_table(["samplers", "how many", "Spearman's correlation"], rows)


def against(
    pairs: list[tuple[str, str]], scores: dict[str, np.ndarray], families: Any = None
) -> str:
    """Pairs of rules and the means of both, tested."""
    rows = []
    for pair in pairs:
        means = (f"{scores[name].mean():.3f}" for name in pair)
        rows.append(([*pair, *means], scores[pair[0]] - scores[pair[1]]))
    header = ["first", "second", "success", "of the second", "first minus second", "p, Holm"]
    return in_table(header, with_tests(rows, families))


def signals() -> str:
    """MAGELLAN minus rules with its estimator (Holm over four), these minus the same rules with
    windows of their own (Holm over three).
    """
    others = ("learnability", "procurl", "pools")
    scores = {f"`{name}`": success("rules", name, "default") for name in ("magellan", "pcl")}
    for name in others:
        scores[f"`{name}`, windows"] = success("rules", name, "default")
        scores[f"`{name}`, learned"] = success("signals", name, "default")
    pairs = [("`magellan`", f"`{name}`, learned") for name in others]
    pairs.insert(2, ("`magellan`", "`pcl`"))
    windows = [(f"`{name}`, learned", f"`{name}`, windows") for name in others]
    return against([*pairs, *windows], scores, [0] * len(pairs) + [1] * len(windows))


def exploration() -> str:
    """MAGELLAN and `learnability` without epsilon against themselves and rules that explore by
    themselves; p after Holm over the four.
    """
    names = ("magellan", "learnability")
    scores = {f"`{name}`": success("exploration", name) for name in (*names, "pcl", "procurl")}
    for name in names:
        scores[f"`{name}`, no epsilon"] = success("exploration", name, "no_epsilon")
    seconds = ("magellan", "learnability", "pcl", "procurl")
    firsts = [f"`{name}`, no epsilon" for name in names * 2]
    return against([*zip(firsts, (f"`{name}`" for name in seconds), strict=True)], scores)


WITHOUT_GROUPS = ("pcl", "fast_slow", "alp_gmm", "regions")
"""Rules of the long study that are not told the groups, beside the reference study's."""


def long_arms() -> Arms:
    return {one.sampler: ("rules_long", *one) for one in of("rules_long").algorithms}


def long_rules() -> str:
    """Each rule over the whole length, best first: success, the way to `ek_online`, mastery."""
    scores, results, rows = on_both(long_arms()), of("rules_long"), []
    train = scores["train"]
    for rule in sorted(train, key=lambda rule: -train[rule].mean()):
        way = covered(train[rule], train["random"], train["ek_online"])
        algorithm = Algorithm(rule, "default")
        means = [values[rule].mean() for values in scores.values()]
        means += [run_means(results, algorithm, "25k", split, "final").mean() for split in SPLITS]
        cells = [f"{mean:.3f}" for mean in means]
        rows.append([f"`{rule}`", *cells, way, masteries("rules_long", *algorithm)])
    header = ["sampler", "success", "unseen goals", "at the end", "unseen"]
    return in_table([*header, "of the way to `ek_online`", f"runs of 12 that {MASTER}"], rows)


def long_tests() -> str:
    pairs = [(rule, other) for other in ("magellan", "random") for rule in WITHOUT_GROUPS]
    return pairs_tested(on_both(long_arms()), [*pairs, ("adarft", "ek_online")])


def pairs_tested(
    scores: dict[str, dict[str, Any]], pairs: list[tuple[str, str]], family: bool = True
) -> str:
    """Pairs of rules on both splits; p after Holm over all of them, if they are a family."""
    rows = [
        ([f"`{first}`", f"`{second}`"][: 2 * (split == "train")], means[first] - means[second])
        for first, second in pairs
        for split, means in scores.items()
    ]
    tested = [[*cells, p * family] for *cells, p in with_tests(rows, halves=True)]
    header = ["first", "second", "training goals", "halves of the seeds", "p, Holm"]
    header += ["unseen goals", "halves", "p"]
    both = zip(tested[::2], tested[1::2], strict=True)
    return in_table(header, [[*train, *unseen] for train, unseen in both])


FRONTIER = {"frontier": "base", "frontier, one kind": "one_kind"}


def frontier_arms() -> Arms:
    own: Arms = {name: ("frontier", "frontier", variant) for name, variant in FRONTIER.items()}
    goals = ("samplers_settings", "ek_online", "explore_goals")
    return {**long_arms(), "ek_online, goals": goals, **own}


def frontier() -> str:
    """The fifth question's rules and those beside them; the way to `ek_online`, both kinds."""
    scores, rows = on_both(frontier_arms()), []
    train, tops = scores["train"], ("ek_online", "ek_online, goals")
    for name in (tops[1], *FRONTIER, "magellan"):
        means = (f"{values[name].mean():.3f}" for values in scores.values())
        ways = (covered(train[name], train["random"], train[top]) for top in tops)
        mastered = masteries(*frontier_arms()[name]) if name in FRONTIER else ""
        rows.append([f"`{name}`", *means, *ways, mastered])
    header = ["sampler", "success", "unseen goals", "of the way to `ek_online`"]
    header += ["to `ek_online` exploring over goals", f"runs of 12 that {MASTER}"]
    return in_table(header, rows)


def frontier_tests() -> str:
    others = ("magellan", "pcl", "ek_online", "frontier, one kind")
    return pairs_tested(on_both(frontier_arms()), [("frontier", other) for other in others])


YOKED = ("other", "own")
YOKED_ARMS: Arms = {f"scripted/{arm}": ("yoked", "scripted", arm) for arm in YOKED}
YOKED_ARMS |= {name: ("samplers", name, "base") for name in ("magellan", "random")}


def yoked_tests() -> str:
    """The family of four, and below it each arm minus uniform choice, which has no test."""
    own, uniform = (
        pairs_tested(on_both(YOKED_ARMS), [(f"scripted/{arm}", other) for arm in YOKED], family)
        for other, family in (("magellan", True), ("random", False))
    )
    return "\n".join([own, *uniform.splitlines()[2:]])


REPAIRED = ("repair", "magellan", "p05"), ("samplers", "magellan", "base")


def repaired() -> str:
    """What runs master whose predictions begin near .05, and their base's; early practice."""
    shares = [f"{early_impossible(folder, variant).mean():.2f}" for folder, _, variant in REPAIRED]
    more = {"impossible goals, first 20,000 steps": shares}
    return finding({arm[-1]: arm for arm in REPAIRED}, **more)


def early_impossible(folder: str, variant: str) -> pd.Series:
    """Share of a run's first episodes that went to impossible goals: (seeds,)."""
    training, practice = (
        rows_where(of(folder).tables[name], sampler="magellan", variant=variant)
        for name in ("training", "practice")
    )
    until = training[training["step"] <= 20_000].groupby("seed")["episode"].max()
    early = practice[practice["episode"] <= practice["seed"].map(until)]
    counts = early.pivot_table("n", "seed", "category", "sum", observed=True)
    return counts["impossible"] / counts.sum(axis=1)


def repaired_tests() -> str:
    new, base = (on_both({"arm": arm}) for arm in REPAIRED)
    rows = [([split], new[split]["arm"] - base[split]["arm"]) for split in SPLITS]
    header = ["goals", "`p05` minus `base`", "halves of the seeds", "p, Holm over 2"]
    return in_table(header, with_tests(rows, halves=True))


READ_UNTIL = 150_000
READINGS = {
    ("paper_small", "default"): "text",
    ("paper_small_variants", "released_window"): "code",
    ("readings", "code"): "code",
    ("readings", "often_long"): "often_long",
    ("readings", "seldom_short"): "seldom_short",
    ("readings_more", "no_threshold"): "no_threshold",
    ("readings_more", "initial_05"): "initial_05",
}
"""Folder and variant -> reading; of a seed in two folders, the first one's run."""


def impossible_progress(results: store.Results, algorithm: Algorithm) -> pd.Series:
    """Share of a space's learning progress on impossible goals, mean over training: (seeds,)."""
    rows = rows_where(results.tables["competence"], split="train", **algorithm._asdict())
    progress = rows.pivot_table("learning_progress", ["seed", "episode"], "category", observed=True)
    progress *= pd.Series(goal_counts(results, algorithm, "25k"))
    shares = progress["impossible"] / progress.sum(axis=1)  # nan without any progress
    return shares.groupby("seed").mean()


@cache
def readings() -> pd.DataFrame:
    """A row for each run of a reading: episodes until mastery (nan: never), and the rest."""
    papers = pd.Series(settings(of("paper_small")).paper_mastery)[:3]
    rows: dict[tuple[str, int], pd.Series] = {}
    for (folder, variant), reading in READINGS.items():
        results, algorithm = begun(of(folder), READ_UNTIL), Algorithm("magellan", variant)
        if algorithm not in results.algorithms_in("25k"):
            continue
        (term,) = contrasts.parse("/".join(algorithm))
        times = times_of(results, algorithm, "25k", "train")
        at = {name: np.where(flags, at, np.nan) for name, (at, flags) in times.items()}
        frame = pd.DataFrame(at, results.seeds_of(algorithm, "25k"))[papers.index]
        ratios = np.log2(frame.fillna(2 * READ_UNTIL) / papers)
        frame["distance"] = ratios.abs().mean(axis=1)
        frame["impossible"] = impossible_progress(results, algorithm)
        for split in SPLITS:
            frame[split] = contrasts.scores(results, term, "error", split).mean(axis=1)
        for seed, row in frame.iterrows():
            rows.setdefault((reading, seed), row)
    return pd.DataFrame.from_dict(rows, orient="index")


def read() -> str:
    *papers, _ = settings(of("paper_small")).paper_mastery.values()  # carnivores are not judged
    names = zip(("grasping mastered", "plants", "herbivores"), papers, strict=True)
    header = ["reading, seed", *(f"{name} (paper: {at:,})" for name, at in names), "distance"]
    header += ["progress on impossible goals", "error, training and unseen goals"]
    rows = []
    for (reading, seed), run in readings().iterrows():
        cells = ["never" if np.isnan(at) else f"{at:,.0f}" for at in run[:3]]
        *cells[3:], train, unseen = (f"{value:.2f}" for value in run[3:])
        rows.append([f"{reading}, {seed}", *cells, f"{train}, {unseen}"])
    return in_table(header, rows)


SPACES = {
    "0": "0-4000-800-160-32",
    ".5": "4992-4000-800-160-32",
    ".8": "25k",
    ".92": "57408-4000-800-160-32",
}
"""Share of impossible goals -> goal space of `share`; that of .8 is the reference study's."""
COMMITTED = {
    "random": ("samplers", "base"),
    "magellan": ("samplers", "base"),
    "pcl": ("rules_long", PLAIN),
    "fast_slow": ("rules_long", PLAIN),
    "ek_online": ("samplers_settings", "explore_goals"),
}
"""Samplers of `share` -> folder and variant of their runs with a share of .8."""


@cache
def at_share(share: str, sampler: str) -> dict[int, tuple[np.ndarray, list[np.ndarray]]]:
    """Of each run of `share`, by seed: success on training goals, (categories, moments), and steps
    and episodes of possible goals until then, (moments,) each.
    """
    folder, variant = COMMITTED[sampler] if share == ".8" else ("share", PLAIN)
    results, where = of(folder), (Algorithm(sampler, variant), SPACES[share])
    curves, steps, episodes = (
        success_curves(results, *where, "train", column)
        for column in ("success", "step", "episode")
    )
    counts, runs = run_counts(results, *where)[list(results.categories.feasible)], {}
    for place, seed in enumerate(results.seeds_of(*where)):
        if seed in of("share").experiment["seeds"]:
            units = [steps[place, 0], practised_until(counts.loc[seed], episodes[place, 0]).sum(1)]
            until = units[0] <= 64_000
            runs[seed] = curves[place][:, until], [unit[until] for unit in units]
    return runs


def over_uniform(share: str, unit: int) -> pd.DataFrame:
    """Mean success of uniform choice and each sampler's lead over it, by seed, over as many steps
    (unit 0) or episodes of possible goals (1) as the shortest run of this share has.
    """
    runs = {sampler: at_share(share, sampler) for sampler in COMMITTED}
    limit = min(units[unit][-1] for own in runs.values() for _, units in own.values())
    means = pd.DataFrame()
    for sampler, own in runs.items():
        for seed, (curves, units) in own.items():
            areas = [mean_until(curve, units[unit], limit) for curve in curves]
            means.loc[seed, sampler] = np.mean(areas)
    leads = means.drop(columns="random").sub(means["random"], axis=0)
    return pd.concat([means["random"], leads.assign(mean=leads.mean(axis=1))], axis=1)


def shared() -> str:
    """Uniform choice and leads over it at each share, over equal steps and possible episodes."""
    rows = []
    for unit, words in enumerate(("steps", "episodes")):
        for share in SPACES:
            columns = over_uniform(share, unit)
            cells = map(with_ends, (columns[name] for name in [*columns][1:]))
            rows.append([words, share, f"{columns['random'].mean():.3f}", *cells])
    header = ["at equal", "share impossible", *(f"`{name}`" for name in COMMITTED), "mean lead"]
    return in_table(header, rows)


def shared_test() -> str:
    """The one test: mean lead over equal steps at a share of .92 minus that at 0."""
    last, first = (over_uniform(share, 0)["mean"] for share in (".92", "0"))
    header = ["mean lead at .92 minus at 0", "difference", "halves of the seeds", "p"]
    return in_table(header, with_tests([(["at equal steps"], last - first)], halves=True))


def dosed() -> str:
    """What the runs of each arm master, and their practice and success after the arms part."""
    results, rows = of("dose"), []
    for algorithm in results.algorithms_in("25k"):
        *_, (herbivores, grown), (at, mastered) = times("dose", *algorithm).values()
        first = mastered & grown & (herbivores <= at)
        practice = rows_where(results.tables["practice"], **algorithm._asdict())
        episodes = rows_where(practice, category="grow_carnivore").groupby("seed")["n"].sum()
        success = [late_success(algorithm.variant, name).mean() for name in PAPERS_ERRORS]
        cells = [f"`{algorithm.variant}`", f"{mastered.sum()} of {len(mastered)}", f"{first.sum()}"]
        cells.append(f"{episodes.median():,.0f} ({episodes.min():,} to {episodes.max():,})")
        rows.append([*cells, *(f"{mean:.2f}" for mean in success)])
    header = ["arm", "master carnivores", "after herbivores", "carnivore episodes"]
    return in_table([*header, "success on grasping", "plants", "herbivores", "carnivores"], rows)


def late_success(arm: str, category: str) -> pd.Series:
    """Mean success of each run on training goals once the arms of `dose` differ: (seeds,)."""
    table = of("dose").table("evaluation", variant=arm, split="train", category=category)
    return table[table["step"] > 56_000].groupby("seed")["success"].mean()


def dosed_tests() -> str:
    """Differences of success on carnivores; Holm over the three."""
    late = {arm: late_success(arm, "grow_carnivore") for arm in ("none", "two", "five")}
    pairs = (("two", "none"), ("five", "none"), ("five", "two"))
    rows = [([f"`{one}`", f"`{other}`"], late[one] - late[other]) for one, other in pairs]
    header = ["arm", "minus", "difference", "halves of the seeds", "p, Holm over 3"]
    return in_table(header, with_tests(rows, halves=True))


@cache
def of(folder: str) -> store.Results:
    return store.load(REFERENCE / folder)


def begun(results: store.Results, until: float) -> store.Results:
    tables = {name: rows[rows["episode"] <= until] for name, rows in results.tables.items()}
    return store.Results(tables, results.manifest)


OBSERVERS = ["random:learned - random:per_goal", "random:learned - random:expert_buckets"]


def gaps(folder: str, until: float = np.inf) -> list[contrasts.Compared]:
    """MAGELLAN's estimator against each other one, up to a number of episodes; spaces in order."""
    measured = begun(estimation.with_truth(of(folder), estimation.MEASURED), until)
    observers = [text.replace("random", "ek_eval") for text in OBSERVERS]
    compared = contrasts.compare(measured, observers, "error", ["train"])
    return sorted(compared, key=lambda one: measured.goal_spaces.index(one.goal_space))


def gap_rows(compared: list[contrasts.Compared], label: str = "") -> list[Any]:
    """Cells, and differences by seed: (cells, (seeds,))."""
    rows = []
    for one in compared:
        errors = [side.mean(axis=1) for side in one.sides]
        means = (f"{values.mean():.3f}" for values in errors)
        cells = [label or one.goal_space, f"`{one.terms[1].estimator}`", *means]
        rows.append((cells, (errors[0] - errors[1]).to_numpy()))
    return rows


def estimated() -> str:
    """MAGELLAN's estimator against each other one; p after Holm over both, in each goal space."""
    rows = gap_rows(gaps("estimation"))
    header = ["goals", "other", "error of `learned`", "of the other", "difference"]
    header += ["halves of the seeds", "p, Holm over 2"]
    return in_table(header, with_tests(rows, [cells[0] for cells, _ in rows], halves=True))


def estimated_long() -> str:
    """Errors over 50,000 episodes, and how much nearer to windows of categories length brings."""
    whole = gap_rows(gaps("estimation_long"), "50,000")
    # Evaluations are at thousands of episodes.
    early = gap_rows(gaps("estimation_long", 9_500))
    cells = ["10,000 minus 50,000", "`expert_buckets`", "", ""]
    listed = with_tests(whole)
    listed += with_tests([(cells, early[1][1] - whole[1][1])])
    header = ["episodes", "other", "error of `learned`", "of the other", "difference", "p"]
    return in_table(header, listed)


def errors_by_category() -> str:
    """Errors over 50,000 episodes of MAGELLAN's estimator and of windows of categories."""
    own, other = gaps("estimation_long")[1].sides
    named, rows = of("estimation_long").categories.named, []
    for name in own:
        rows.append([named(name).words, *(f"{side[name].mean():.3f}" for side in (own, other))])
    return in_table(["error on", "`learned`", "`expert_buckets`"], rows)


def by_families(
    folder: str, heading: str, *families: tuple[str, Sequence[str], Sequence[str]]
) -> str:
    """Contrasts of runs; a family is a measure, splits and what is compared, Holm in each."""
    several = len({split for _, splits, _ in families for split in splits}) > 1
    measures = len({measure for measure, *_ in families}) > 1
    listed = []
    for measure, splits, texts in families:
        rows = []
        for one in contrasts.compare(of(folder), texts, measure, splits):
            values = contrasts.total(one.terms, one.sides).mean(axis=1).to_numpy()
            words = " - ".join(f"`{term.text}`" for term in one.terms)
            words += f", {measure}" * measures + f", {one.split} goals" * several
            rows.append(([words], values))
        listed += with_tests(rows, halves=True)
    return in_table([heading, "mean", "halves of the seeds", "p, Holm"], listed)


ADAPTERS = ("own", "ignored", "shared", "policy", "frozen")
DEFECTS = ("corrected", "adapters", "temperature", "candidates", "public")


def of_defects(sampler: str) -> tuple[str, Sequence[str], Sequence[str]]:
    """The family of a sampler: each defect minus none."""
    return "success", ["train"], [f"{sampler}/{name} - {sampler}/corrected" for name in DEFECTS[1:]]


def by_variant(folder: str, samplers: Sequence[str], variants: Sequence[str]) -> str:
    """What runs of each variant come to: means over the runs, training goals."""
    results = of(folder)
    names = [results.categories.named(name).words for name in results.categories.feasible]
    rows = []
    for algorithm in (Algorithm(*one) for one in itertools.product(samplers, variants)):
        where = algorithm._asdict()
        areas = [f"{success(folder, *algorithm, split).mean():.2f}" for split in SPLITS]
        evaluated = results.table("evaluation", split="train", **where)
        last = evaluated[evaluated["step"] == evaluated["step"].max()].groupby("category")
        ends = last["success"].mean()[list(results.categories.feasible)]
        training = results.table("training", **where)
        entropy = training[training["step"] > 2 / 3 * training["step"].max()]["entropy"].mean()
        shares = behaviour.practice_shares(results, algorithm, "25k")["impossible"]
        found = behaviour.beliefs(results, algorithm, "25k")
        together = [f"{found[name].mean():.2f}" for name in ("error", "lockstep")]
        rows.append([f"`{'/'.join(algorithm)}`", *areas, *(f"{end:.2f}" for end in ends)])
        rows[-1] += together if algorithm.sampler == "magellan" else ["", ""]
        rows[-1] += [
            f"{each:.2f}" for each in (shares.mean(), entropy, last["dormant"].mean().mean())
        ]
    header = ["", "success", "unseen", *(f"last {name.lower()}" for name in names)]
    header += ["error", "lockstep", "practice on impossible", "entropy", "dormant"]
    return in_table(header, rows)


def errors_by_practice(folder: str, first: str, second: str, tested: str) -> str:
    """Error of MAGELLAN's estimator with two scripted practices; the test is on one category."""
    results, text = of(folder), f"scripted/{first}:learned - scripted/{second}:learned"
    (one,) = contrasts.compare(results, [text], "error", ["train"])
    sides = {
        results.categories.named(name).words: [side[name] for side in one.sides]
        for name in one.sides[0]
    }
    words = results.categories.named(tested).words
    for label, table, column, only in (
        ("predicted", "competence", "competence", {"estimator": "learned"}),
        ("success", "evaluation", "success", {}),
    ):
        frame = results.table(table, split="train", category=tested, **only)
        if len(frame):  # impossible goals are not evaluated
            last = frame.groupby(["variant", "seed"])[column].last()
            sides[f"{words} at the end, {label}"] = [last.loc[name] for name in (first, second)]
    rows = []
    for name, (own, other) in sides.items():
        difference = (own - other).to_numpy()
        p = with_tests([([], difference)])[0][-1] if name == words else ""
        means = (f"{side.mean():.3f}" for side in (own, other))
        rows.append([name, *means, with_ends(difference), p])
    header = ["error on", f"`{first}`", f"`{second}`", f"`{first}` minus `{second}`", "p"]
    return in_table(header, rows)


def without_collapse() -> str:
    """The measure of the study at collapses, and at the same times where nothing collapses."""
    rows = []
    for name in COLLAPSES:
        (term,), row = contrasts.parse(name), [f"`{name}`"]
        for elsewhere in (False, True):
            found = contrasts.around_collapses(
                of("collapse"), term, "25k", "train", elsewhere=elsewhere
            )
            row.append(with_ends((found["at"] - found["before"]).groupby(found["seed"]).mean()))
        rows.append(row)
    return in_table(["", "at collapses", "no collapse"], rows)


COLLAPSES = "scripted:learned", "scripted:expert_buckets"
DOSES = {"grow_herbivore": (1_000, 2_000), "grow_carnivore": (200, 800)}
"""Category -> practice, in episodes, below and above which runs are counted; chosen afterwards."""


same_learner = cache(pictures.same_learner)


def doses() -> str:
    """Runs of the same learner that master a category, by their practice in it."""
    every, rows = same_learner(REFERENCE), []
    for name, (few, many) in DOSES.items():
        runs = rows_where(every, category=name)
        words = of("samplers").categories.named(name).words
        for label, column in (("whole run", "practice"), ("until mastery", "before")):
            parts = runs[column] < few, runs[column].between(few, many), runs[column] > many
            counts = (f"{runs.loc[part, 'mastered'].sum()} of {part.sum()}" for part in parts)
            rows.append([f"{words}, {label}", f"{few:,} and {many:,}", *counts])
    return in_table(["practice counted", "limits", "below", "between", "above"], rows)


def layers() -> str:
    """Mermaid diagram of the packages: who imports whom, without lines that others imply."""
    edges: dict[str, set[str]] = {}
    roots = [ROOT / part for part in ("magellan", "analysis")]
    for path in sorted(path for root in roots for path in root.rglob("*.py")):
        room = ".".join(path.relative_to(ROOT).with_suffix("").parts[:2])
        if room.count(".") == 1 and not room.endswith("__"):
            code = re.sub(
                r"^if TYPE_CHECKING:\n(?:(?:    .*)?\n)+", "", path.read_text("utf-8"), flags=re.M
            )
            names = re.findall(r"^ *(?:from|import) ((?:magellan|analysis)\.\w+)", code, flags=re.M)
            edges.setdefault(room, set()).update({*names} - {room, "magellan.core"})
    edges.pop("magellan.core")
    edges = {room: targets & edges.keys() for room, targets in edges.items()}
    below: dict[str, set[str]] = {}
    for room in TopologicalSorter(edges).static_order():  # CycleError: rooms import each other
        below[room] = edges[room].union(*(below[target] for target in edges[room]))
    lines = [
        f"  {room} --> {target}"
        for room, targets in sorted(edges.items())
        for target in sorted(targets)
        if not any(target in below[other] for other in targets)
    ]
    text = "\n".join(["```mermaid", "flowchart TD", *lines, "```"])
    return text.replace("magellan.", "")


BLOCKS = {
    ("config/README", "experiment"): config_page.experiment_table,
    ("config/README", "run"): config_page.run_tables,
    ("architecture", "layers"): layers,
    ("README", "first page"): first_page,
    ("paper", "unseen"): lambda: unseen_errors(of("samplers")),
    ("simulated", "observed"): lambda: by_families(
        "simulated",
        "error against observed success",
        *(("error", [split], OBSERVERS) for split in SPLITS),
    ),
    ("separated", "separated"): separated,
    ("yoked", "yoked"): lambda: finding(YOKED_ARMS),
    ("yoked", "yoked tests"): yoked_tests,
    ("yoked", "dosed"): dosed,
    ("yoked", "dosed tests"): dosed_tests,
    ("share", "shared"): shared,
    ("share", "shared test"): shared_test,
    ("readings", "read"): read,
    ("repair", "repaired"): repaired,
    ("repair", "repaired tests"): repaired_tests,
    ("separated", "memory"): lambda: finding(
        {f"magellan/{name}": ("memory", "magellan", name) for name in ("base", "short")}
    ),
    ("separated", "memory tests"): lambda: by_families(
        "memory",
        "success with a short memory",
        ("success", SPLITS, ["magellan/short - magellan/base"]),
    ),
    ("samplers", "finding"): lambda: finding(four("samplers", "base")),
    ("samplers", "leads"): leads,
    ("samplers", "practice and mastery"): doses,
    ("samplers", "samplers replay"): lambda: interactions("samplers_replay"),
    ("samplers", "samplers tenfold"): lambda: interactions("samplers_tenfold"),
    ("samplers", "samplers constants"): one_constant,
    ("other_build", "other build"): lambda: finding(four("other_build", "other_build")),
    ("other_build", "other build tests"): lambda: other_model_tests(
        "other_build", "other_build", "zoo-reader-1"
    ),
    ("pretraining", "without"): lambda: finding(four("pretraining", PLAIN)),
    ("pretraining", "without tests"): lambda: other_model_tests(
        "pretraining", PLAIN, "zoo-reader-no-kinds"
    ),
    ("pretraining", "replayed"): replayed,
    ("rules", "rules"): lambda: rules("rules"),
    ("studies/craft", "craft"): lambda: rules("craft", way=True),
    ("studies/craft", "order"): orders_in_both_worlds,
    ("studies/craft", "estimation in craft"): lambda: errors_by_practice(
        "craft_estimation", "own", "even", "depth_2"
    ),
    ("studies/experimenter", "asked"): asked,
    ("studies/experimenter", "misjudged"): misjudged,
    ("studies/grpo", "map"): scripted_map,
    ("studies/grpo", "rank"): lambda: orders_in_both_worlds("grpo", "unseen"),
    ("studies/grpo", "newer"): lambda: on_prompts(
        "grpo_groups", PLAIN, "random", ["mean", "minus `random`"]
    ),
    ("studies/grpo", "gate"): lambda: on_prompts(
        "grpo_gate", "spread", "", ["mean with the gate", "minus without"]
    ),
    ("studies/grpo", "trl"): in_trl,
    ("rules", "signals"): signals,
    ("rules", "exploration"): exploration,
    ("rules", "rules long"): long_rules,
    ("rules", "rules long tests"): long_tests,
    ("rules", "frontier"): frontier,
    ("rules", "frontier tests"): frontier_tests,
    ("estimation", "estimation"): estimated,
    ("estimation", "long"): estimated_long,
    ("estimation", "long by category"): errors_by_category,
    ("estimation", "impossible"): lambda: errors_by_practice(
        "impossible", "few", "many", "impossible"
    ),
    ("claims", "claims"): lambda: printing.render(
        claims.to_tables(claims.load(), claims.judge(claims.load(), REFERENCE))
    ),
    ("again", "goal change"): lambda: by_families(
        "goal_change",
        "on the new goals",
        ("success", ["unseen"], ["magellan - online", "magellan - ek_online"]),
        ("gain", ["unseen"], ["random", "magellan"]),
    ),
    ("again", "adapters"): lambda: by_families(
        "estimator_adapters",
        "training goals",
        ("success", ["train"], [f"magellan/own - magellan/{other}" for other in ADAPTERS[2:]]),
        ("error", ["train"], ["magellan/ignored - magellan/own"]),
    ),
    ("again", "by adapter"): lambda: by_variant("estimator_adapters", ["magellan"], ADAPTERS),
    ("paper_small", "runs so far"): lambda: runs_one_by_one("paper_small"),
    ("paper_small", "variants so far"): lambda: runs_one_by_one("paper_small_variants"),
    ("paper_small", "unseen so far"): lambda: unseen_errors(of("paper_small"), "default"),
    ("paper_small", "chosen so far"): lambda: chosen("paper_small"),
    ("collapse", "collapse"): lambda: by_families(
        "collapse", "progress at collapses, 18 runs", ("collapse", ["train"], COLLAPSES)
    ),
    ("collapse", "without"): without_collapse,
    ("released", "released"): lambda: by_families(
        "released", "success on training goals", of_defects("magellan"), of_defects("ek_online")
    ),
    ("released", "by defect"): lambda: by_variant("released", ["magellan", "ek_online"], DEFECTS),
}
"""Page and marker of a block -> the block anew from the committed tables."""


if __name__ == "__main__":
    for (name, marker), block in BLOCKS.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        before, _, after = parts(marker, page(name))
        path_of(name).write_text(f"{before}{block().strip()}\n{after}", encoding="utf-8")
        print(name, marker)
