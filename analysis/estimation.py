"""How far estimators are off, and what estimating costs: the paper's first question.

Gaven et al. 2025, section 4.1, Figures 3 and 12 to 14: estimators watch the same training. The
truth is what EK-Eval-ALP has measured by playing each category 2,048 times every 1,000 episodes;
success of the evaluation can take its place. Error: |estimate - truth|, mean over training and over
the categories. Cost: episodes that were played only to estimate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from analysis import markdown, summaries
from analysis.grid import RUN_COLUMNS, run_of
from analysis.intervals import mean_estimate
from analysis.labels import SPLIT_LABELS, estimator_label
from analysis.matrices import bootstrap_of
from analysis.results import Results, rows_where
from magellan.errors import InputError
from magellan.worlds import DEFAULT_WORLD, WORLDS, Categories

OBSERVED = "observed"
"""Truth: success of the evaluation."""
MEASURED, PER_GOAL = "evaluated_buckets", "evaluated_goals"
"""EK-Eval-ALP's estimator, and Eval-ALP's, whose cost can be computed without running it."""
ALGORITHM = ["goal_space", "sampler", "variant"]
RUN, TRUTH, COMPUTED = "measured in runs", "it is the truth", "computed, not run"
"""What an error rests on."""
NO_ERROR = {"runs": 0, "error": 0.0, "low": math.nan, "high": math.nan, "interval": "none"}
NO_ERROR |= {"categories": {}}
COLUMNS = (
    *ALGORITHM,
    "estimator",
    "truth",
    "split",
    "runs",
    "error",
    "low",
    "high",
    "interval",
    "categories",
    "estimating",
    "training",
    "status",
)
HEADER = ("mean", "interval", "n", "episodes to estimate", "episodes of training")


def with_truth(results: Results, name: str) -> Results:
    """The same tables, with what an estimator says of training goals as their observed success.

    On unseen goals success stays what was observed: nobody has measured them.

    Raises:
        InputError: a run has no such estimator.
    """
    keys = [*RUN_COLUMNS, results.at, "category"]
    said = results.tables["competence"]
    said = said[(said["estimator"] == name) & (said["split"] == "train")]
    evaluation = results.tables["evaluation"].copy()
    training = evaluation["split"] == "train"
    found = evaluation[keys].merge(said[[*keys, "competence"]], on=keys, how="left")
    found.index = evaluation.index
    if found.loc[training, "competence"].isna().any():
        known = sorted(results.tables["competence"]["estimator"].unique())
        raise InputError(
            f"--against: {name!r} has not predicted in all runs; allowed: {OBSERVED}, or an "
            f"estimator of every run; there are: {', '.join(known) or 'none'}"
        )
    evaluation.loc[training, "success"] = found.loc[training, "competence"]
    return Results({**results.tables, "evaluation": evaluation}, results.manifest)


def chosen_truth(results: Results, name: str | None, split: str = "train") -> str:
    """What errors are against: `name` where it is given, else the measured or the observed."""
    if name is not None:
        return name
    runs = results.manifest["runs"]
    measured = all(MEASURED in run["estimation_episodes"] for run in runs)
    return MEASURED if measured and split == "train" else OBSERVED


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
        InputError: no run has an estimator, or one lacks that one.
    """
    judged = results if truth == OBSERVED else with_truth(results, truth)
    if truth != OBSERVED and split != "train":
        raise InputError(
            f"--split: {split!r} is not allowed against {truth}, which speaks of training goals; "
            f"allowed: train, or --against {OBSERVED}"
        )
    errors = rows_where(summaries.calibration(judged), split=split)
    if not len(errors):
        raise InputError("estimation: no run has an estimator; allowed: runs that predict")
    run = [*ALGORITHM, "estimator", "seed"]
    mean = errors.groupby(run, sort=False)["mean_absolute_error"].mean().reset_index()
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
    order = {name: at for at, name in enumerate(results.goal_spaces)}
    frame = pd.DataFrame(rows, columns=list(COLUMNS)).assign(truth=truth, split=split)
    return frame.sort_values(
        [*ALGORITHM, "error", "estimating"],
        key=lambda column: column.map(order) if column.name == "goal_space" else column,
        kind="stable",
        ignore_index=True,
    )


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
    world = WORLDS.get(results.manifest["runs"][0]["config"].get("world", DEFAULT_WORLD))
    if world is None:
        return []  # the file that adds it is not at hand
    measured = results.table("competence", goal_space=where["goal_space"], split="train")
    arms = measured.loc[measured["estimator"] == MEASURED, "category"].nunique()
    cost = _cost(results, where)
    estimating = cost["estimating"] / arms * sum(world.parse(where["goal_space"]))
    told = {"estimator": PER_GOAL, **cost, "estimating": estimating, "status": COMPUTED}
    return [{**where, **NO_ERROR, **told}]


def to_markdown(frame: pd.DataFrame, categories: Categories) -> str:
    """A table for each goal space, sampler and variant, the smallest error first."""
    parts = []
    for (goal_space, sampler, variant), group in frame.groupby(ALGORITHM, sort=False):
        truth = group["truth"].iloc[0]
        against = "success observed in evaluation" if truth == OBSERVED else estimator_label(truth)
        title = (
            f"Error on {SPLIT_LABELS[group['split'].iloc[0]].lower()} against {against}, and cost: "
            f"goal space {goal_space}, sampler {sampler}, variant {variant}"
        )
        there = {name for each in group["categories"] for name in each}
        named = {each.name: each.words for each in categories if each.name in there}
        header = ("estimator", *named.values(), *HEADER)
        rows = [_cells(row, tuple(named)) for row in group.itertuples()]
        parts.append(markdown.titled(title, header, rows))
    return "\n\n".join(parts) + "\n"


def _cells(row: Any, categories: tuple[str, ...]) -> list[str]:
    name = estimator_label(row.estimator)
    episodes = [
        f"{row.estimating:,.0f}",
        "" if math.isnan(row.training) else f"{row.training:,.0f}",
    ]
    if row.status != RUN:
        return [name, *[""] * len(categories), "0", f"none: {row.status}", "", *episodes]
    ends = "" if math.isnan(row.low) else f"{row.low:.3f} to {row.high:.3f}"
    each = [f"{row.categories[category]:.3f}" for category in categories]
    return [name, *each, f"{row.error:.3f}", ends, str(row.runs), *episodes]
