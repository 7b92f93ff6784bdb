"""How far estimators are off, and what estimating costs: the paper's first question.

Gaven et al. 2025, section 4.1, Figures 3 and 12 to 14: estimators watch the same training. The
truth is what EK-Eval-ALP has measured by playing each category 2,048 times every 1,000 episodes;
success of the evaluation can take its place. Error: |estimate - truth|, mean over training and over
the categories. Cost: episodes that were played only to estimate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from analysis.statistics import summaries
from analysis.statistics.intervals import DIFFERENCE, STUDENTISED, mean_estimate
from analysis.statistics.matrices import bootstrap_of
from analysis.statistics.practice_shares import goal_counts
from analysis.tables.grid import RUN_COLUMNS, Algorithm, run_of
from analysis.tables.labels import NO_NAMES, SPLIT_LABELS, Names, estimator_label
from analysis.tables.phases import practised_split
from analysis.tables.printing import Table
from analysis.tables.results import Results, rows_where
from magellan.core.errors import InputError
from magellan.worlds import DEFAULT_WORLD, Categories
from magellan.worlds.simulated import KINDS, SimulatedWorld, chance, practised

OBSERVED = "observed"
"""Truth: success of the evaluation."""
MEASURED, PER_GOAL = "evaluated_buckets", "evaluated_goals"
"""EK-Eval-ALP's estimator, and Eval-ALP's, whose cost can be computed without running it."""
PLAYING = (MEASURED, PER_GOAL)
"""Those that measure by playing."""
ALGORITHM = ["goal_space", "sampler", "variant"]
RUN, TRUTH, COMPUTED = "measured in runs", "it is the truth", "computed, not run"
"""What an error rests on."""
NO_ERROR = {"runs": 0, "error": 0.0, "low": math.nan, "high": math.nan, "interval": "none"}
NO_ERROR |= {"categories": {}}
COLUMNS = (
    *(*ALGORITHM, "estimator", "truth", "split", "runs", "error", "low", "high", "interval"),
    *("categories", "estimating", "training", "status"),
)
HEADER = ("mean", "interval", "n", "episodes to estimate", "episodes of training")


def with_truth(results: Results, name: str) -> Results:
    """The same tables, with what an estimator says of training goals as their observed success.

    On unseen goals success stays what was observed. What is measured by playing is known from the
    next evaluation on: each evaluation is made before the measurement that is due at the same
    time. So the truth of one evaluation is what the estimator says at the next, and the last one
    is left out.

    Raises:
        InputError: a run has no such estimator, or has practised other goals than those of
            training.
    """
    check_one_phase(results, "--against")
    if practised_split(results) != "train":
        raise InputError(
            f"--against: {name!r} has measured unseen goals, which these runs practise; allowed: "
            f"{OBSERVED}"
        )
    said = results.tables["competence"]
    said = said[(said["estimator"] == name) & (said["split"] == "train")]
    keys = [*RUN_COLUMNS, results.at, "category"]
    evaluation, competence = results.tables["evaluation"], results.tables["competence"]
    if name in PLAYING:
        later = said.sort_values(results.at).groupby([*RUN_COLUMNS, "category"])["competence"]
        said = said.assign(competence=later.shift(-1))
        evaluation, competence = (_without_last(results, each) for each in (evaluation, competence))
    training = evaluation["split"] == "train"
    found = evaluation[keys].merge(said[[*keys, "competence"]], on=keys, how="left")
    found.index = evaluation.index
    if found.loc[training, "competence"].isna().any():
        known = sorted(results.tables["competence"]["estimator"].unique())
        raise InputError(
            f"--against: {name!r} has not predicted in all runs; allowed: an estimator of every "
            f"run, at more than one evaluation; there are: {', '.join(known) or 'none'}"
        )
    truth = evaluation["success"].where(~training, found["competence"])
    tables = {"evaluation": evaluation.assign(success=truth), "competence": competence}
    return Results({**results.tables, **tables}, results.manifest)


def _without_last(results: Results, frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of a table but for those of each run's last evaluation."""
    last = frame.groupby(list(RUN_COLUMNS))[results.at].transform("max")
    return frame[frame[results.at] < last]


def check_one_phase(results: Results, where: str) -> None:
    """Costs are those of whole runs, errors those of a last phase: they do not go together."""
    if any(len(run["config"].get("phases") or ()) > 1 for run in results.manifest["runs"]):
        raise InputError(f"{where}: runs have several phases; allowed: runs of one phase")


def chosen_truth(results: Results, name: str | None, split: str = "train") -> str:
    """What errors are against: `name` where it is given, else the measured or the observed."""
    if name is not None:
        return name
    runs = results.manifest["runs"]
    measured = all(MEASURED in run["estimation_episodes"] for run in runs)
    training = split == practised_split(results) == "train"
    return MEASURED if measured and training else OBSERVED


def table(results: Results, truth: str, split: str = "train") -> pd.DataFrame:
    """Error and cost of every estimator, columns `COLUMNS`.

    A row for each goal space, sampler, variant and estimator: mean over runs of the error, with its
    studentised interval; mean episodes for estimating, and of training. An estimator that is the
    truth has no error by definition. Beside EK-Eval-ALP's there is Eval-ALP's then, computed: as
    many evaluations of each goal as there were of each category.

    Args:
        results: of runs with estimators.
        truth: `OBSERVED`, or an estimator of every run.
        split: of the goals. Nobody but the evaluation has measured unseen ones.

    Raises:
        InputError: no run has another estimator, one lacks that one, or runs have phases.
    """
    errors = _errors(results, truth, split)
    run = [*ALGORITHM, "estimator", "seed"]
    mean = _of_runs(errors)
    categories = errors.groupby([*run[:-1], "category"])["mean_absolute_error"].mean()
    rows: list[dict[str, Any]] = []
    computes = truth == MEASURED and PER_GOAL not in set(mean["estimator"])
    for keys, group in mean.groupby(run[:-1], sort=False):
        where = dict(zip(run, keys, strict=False))
        if where["estimator"] != truth:
            found = _error(results, group) | {"categories": categories.loc[keys].to_dict()}
            rows.append({**where, **found, **_cost(results, where), "status": RUN})
        else:
            rows.append({**where, **NO_ERROR, **_cost(results, where), "status": TRUTH})
            rows += _per_goal(results, where) if computes else []
    if all(row["status"] != RUN for row in rows):
        raise InputError(f"estimation: {truth} is the only estimator; allowed: one more to judge")
    order = {name: at for at, name in enumerate(results.goal_spaces)}
    frame = pd.DataFrame(rows, columns=list(COLUMNS)).assign(truth=truth, split=split)
    return frame.sort_values(
        [*ALGORITHM, "error", "estimating"],
        key=lambda column: column.map(order) if column.name == "goal_space" else column,
        kind="stable",
        ignore_index=True,
    )


def _of_runs(errors: pd.DataFrame) -> pd.DataFrame:
    """Error of each run and estimator, mean over categories: column `mean_absolute_error`."""
    run = [*ALGORITHM, "estimator", "seed"]
    return errors.groupby(run, sort=False)["mean_absolute_error"].mean().reset_index()


def _errors(results: Results, truth: str, split: str) -> pd.DataFrame:
    """Error of each run, estimator and category."""
    check_one_phase(results, "estimation")
    if truth != OBSERVED and split != "train":
        raise InputError(
            f"--split: {split!r} is not allowed against {truth}, which speaks of training goals; "
            f"allowed: train, or --against {OBSERVED}"
        )
    judged = results if truth == OBSERVED else with_truth(results, truth)
    errors = rows_where(summaries.calibration(judged), split=split)
    if not len(errors):
        raise InputError("estimation: no run has an estimator; allowed: runs that predict")
    return errors


def growth(results: Results, truth: str, split: str = "train") -> pd.DataFrame:
    """How the error changes with the goal space: each one minus the first, paired by seed.

    Columns: sampler, variant, estimator, goal_space, first, runs, difference, low, high, interval.
    No rows where there is one goal space, or no seed in both.
    """
    errors = _of_runs(_errors(results, truth, split))
    errors = errors[errors["estimator"] != truth]
    rows = []
    for keys, group in errors.groupby(["sampler", "variant", "estimator"], sort=False):
        wide = group.pivot_table(index="seed", columns="goal_space", values="mean_absolute_error")
        first, *others = [name for name in results.goal_spaces if name in wide.columns]
        for name in others:
            found = (wide[name] - wide[first]).dropna().to_numpy()
            if len(found):
                mean = mean_estimate(found[:, None], bootstrap_of(results), DIFFERENCE)
                parts = (mean.value, mean.low, mean.high, mean.method)
                rows.append((*keys, name, first, len(found), *(part[0] for part in parts)))
    names = ("goal_space", "first", "runs", "difference", "low", "high", "interval")
    return pd.DataFrame(rows, columns=["sampler", "variant", "estimator", *names])


def _error(results: Results, group: pd.DataFrame) -> dict[str, Any]:
    """Mean over runs, and its interval."""
    values = group.sort_values("seed")["mean_absolute_error"].to_numpy()
    found = mean_estimate(values[:, None], bootstrap_of(results))
    return {
        "runs": len(values),
        "error": float(found.value[0]),
        "low": float(found.low[0]),
        "high": float(found.high[0]),
        "interval": found.method[0],
    }


def _cost(results: Results, where: Mapping[str, str]) -> dict[str, float]:
    """Mean episodes of a run that were played to estimate, and to train."""
    mine = [
        run
        for run in results.manifest["runs"]
        if all(getattr(run_of(run), key) == where[key] for key in ALGORITHM)
    ]
    estimating = [run["estimation_episodes"][where["estimator"]] for run in mine]
    training = [run.get("episodes") or math.nan for run in mine]
    return {"estimating": float(np.mean(estimating)), "training": float(np.mean(training))}


def _per_goal(results: Results, where: Mapping[str, str]) -> list[dict[str, Any]]:
    """What Eval-ALP would have cost: as many evaluations of each goal as of each category."""
    counts = goal_counts(
        results, Algorithm(where["sampler"], where["variant"]), where["goal_space"]
    )
    if counts is None:
        return []  # the file that adds the world is not at hand
    arms = sum(count > 0 for count in counts.values())
    cost = _cost(results, where)
    estimating = cost["estimating"] / arms * sum(counts.values())
    told = {"estimator": PER_GOAL, **cost, "estimating": estimating, "status": COMPUTED}
    return [{**where, **NO_ERROR, **told}]


def tables(frame: pd.DataFrame, categories: Categories, names: Names = NO_NAMES) -> Iterator[Table]:
    """A table for each goal space, sampler and variant, the smallest error first."""
    for (goal_space, sampler, variant), group in frame.groupby(ALGORITHM, sort=False):
        truth = group["truth"].iloc[0]
        known = truth == OBSERVED
        against = "success observed in evaluation" if known else estimator_label(truth, names)
        title = (
            f"Error on {SPLIT_LABELS[group['split'].iloc[0]].lower()} against {against}, and cost: "
            f"goal space {goal_space}, sampler {sampler}, variant {variant}"
        )
        there = {name for each in group["categories"] for name in each}
        named = {each.name: each.words for each in categories if each.name in there}
        header = ("estimator", *named.values(), *HEADER)
        rows = [_cells(row, tuple(named), names) for row in group.itertuples()]
        yield Table(title, header, rows)


def _cells(row: Any, categories: tuple[str, ...], names: Names) -> list[str]:
    name = estimator_label(row.estimator, names)
    episodes = [
        f"{row.estimating:,.0f}",
        "" if math.isnan(row.training) else f"{row.training:,.0f}",
    ]
    if row.status != RUN:
        return [name, *[""] * len(categories), "0", f"none: {row.status}", "", *episodes]
    ends = _between(row, ".3f")
    each = [f"{row.categories[category]:.3f}" for category in categories]
    return [name, *each, f"{row.error:.3f}", ends, str(row.runs), *episodes]


def _between(row: Any, form: str) -> str:
    """An interval; with its method where that is not the usual one."""
    if math.isnan(row.low):
        return str(row.interval)
    how = "" if row.interval == STUDENTISED else f" ({row.interval})"
    return f"{row.low:{form}} to {row.high:{form}}{how}"


def growth_tables(frame: pd.DataFrame, names: Names = NO_NAMES) -> list[Table]:
    """The table of the differences between goal spaces; none where there are no differences."""
    if not len(frame):
        return []
    header = ("sampler", "variant", "estimator", "goal space", "difference", "interval", "n")
    rows = []
    for row in frame.itertuples():
        which = [row.sampler, row.variant, estimator_label(row.estimator, names)]
        spaces, ends = f"{row.goal_space} - {row.first}", _between(row, "+.3f")
        rows.append([*which, spaces, f"{row.difference:+.3f}", ends, str(row.runs)])
    return [Table("Error by goal space, paired by seed", header, rows)]


# --- the truth itself: what the simulated learner could do, rebuilt from its practice ---


def with_known_competence(results: Results) -> Results:
    """The same tables with the learner's competence as success of every evaluation.

    Within a window of the table of practice, goals are taken to be spread evenly, as their order is
    not recorded.

    Raises:
        InputError: another world, or runs of several phases, whose earlier practice is not there.
    """
    for run in results.manifest["runs"]:
        world = run["config"].get("world", DEFAULT_WORLD)
        if world != SimulatedWorld.name:
            raise InputError(
                f"known competence: world is {world!r}; allowed: {SimulatedWorld.name}"
            )
        if run["config"].get("phases"):
            raise InputError("known competence: runs have phases; allowed: runs of one phase")
    practice = dict(tuple(results.tables["practice"].groupby(list(RUN_COLUMNS), sort=False)))
    evaluation = results.tables["evaluation"].copy()
    for run, rows in evaluation.groupby(list(RUN_COLUMNS), sort=False):
        skills = skills_of(practice[run], rows["episode"].max())
        evaluation.loc[rows.index, "success"] = [
            float(chance(skills[episode], np.array([KINDS.index(category)]), split)[0])
            for episode, category, split in zip(
                rows["episode"], rows["category"], rows["split"], strict=True
            )
        ]
    return Results({**results.tables, "evaluation": evaluation}, results.manifest)


def skills_of(practice: pd.DataFrame, episodes: int) -> np.ndarray:
    """Skill in each kind after each number of episodes: float64 (episodes + 1, kinds).

    Args:
        practice: one run's table of practice.
        episodes: how far.
    """
    counts = practice.pivot_table(index="episode", columns="category", values="n", aggfunc="sum")
    counts = counts.reindex(columns=list(KINDS)).fillna(0.0).sort_index()
    ends = np.concatenate([[0], counts.index.to_numpy()])
    done = np.concatenate([np.zeros((1, len(KINDS))), counts.to_numpy().cumsum(axis=0)])
    points = np.arange(episodes + 1)
    practised_by = np.column_stack([np.interp(points, ends, column) for column in done.T])
    skills = np.zeros((episodes + 1, len(KINDS)))
    for episode, tried in enumerate(np.diff(practised_by, axis=0), start=1):
        skills[episode] = practised(skills[episode - 1], tried)
    return skills
