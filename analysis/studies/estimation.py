"""Error and cost of estimators, the paper's first question (Gaven et al. 2025, section 4.1).

As in Figures 3 and 12 to 14, estimators observe the same training. The truth is EK-Eval-ALP's
measurement, which plays each category 2,048 times every 1,000 episodes, or the success observed in
evaluation. Error: |estimate - truth|, mean over training and categories. Cost: episodes played only
to estimate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.statistics import summaries
from analysis.statistics.intervals import STUDENTISED, mean_estimate
from analysis.statistics.matrices import bootstrap_of
from analysis.statistics.practice_shares import goal_counts, practised_until
from analysis.tables.grid import RUN_COLUMNS, SPLIT_LABELS, Algorithm, estimator_label
from analysis.tables.phases import practised_split
from analysis.tables.printing import Table
from analysis.tables.results import Results, rows_where
from magellan.core.errors import InputError
from magellan.worlds import DEFAULT_WORLD, Category
from magellan.worlds.simulated import KINDS, SimulatedWorld, chance, practised

OBSERVED, KNOWN = "observed", "known"
"""Truths: success in evaluation, and the simulated learner's competence."""
MEASURED, PER_GOAL = "evaluated_buckets", "evaluated_goals"
"""Estimators of EK-Eval-ALP, and of Eval-ALP, whose cost can be computed without running it."""
PLAYING = (MEASURED, PER_GOAL)
"""Estimators that measure by playing."""
ALGORITHM = ["goal_space", "sampler", "variant"]
RUN, TRUTH, COMPUTED = "measured in runs", "it is the truth", "computed, not run"
"""Status of an error."""
ERROR = ("runs", "error", "low", "high", "interval")
NO_ERROR = {"runs": 0, "error": 0.0, "low": math.nan, "high": math.nan, "interval": "none"}
NO_ERROR |= {"categories": {}}
HEADER = ("mean", "interval", "n", "episodes to estimate", "episodes of training")


def with_truth(results: Results, name: str) -> Results:
    """Results with a truth as observed success.

    `OBSERVED` and `KNOWN` cover both splits, an estimator's predictions training goals only. An
    evaluation precedes a measurement due at the same time, so for estimators that play, the truth
    of an evaluation is their prediction at the next one, and the last evaluation is left out.

    Raises:
        InputError: a run has no such estimator, practises unseen goals, or is not evaluated as
            often as an estimator that plays measures.
    """
    if name == OBSERVED:
        return results
    if name == KNOWN:
        return _with_known_competence(results)
    check_one_phase(results, "--against")
    if practised_split(results) != "train":
        raise InputError(
            f"--against: {name!r} has measured unseen goals, which these runs practise; allowed: "
            f"{OBSERVED}"
        )
    if name in PLAYING and not measured_when_evaluated(results, name):
        raise InputError(
            f"--against: {name!r} measures at other points than the evaluations; allowed: runs "
            f"with equal budget.evaluate_every and {name}.every in episodes, or {OBSERVED}"
        )
    evaluation, competence = results.tables["evaluation"], results.tables["competence"]
    predicted = competence[(competence["estimator"] == name) & (competence["split"] == "train")]
    keys = [*RUN_COLUMNS, results.unit_column, "category"]
    if name in PLAYING:
        ordered = predicted.sort_values(results.unit_column).groupby([*RUN_COLUMNS, "category"])
        predicted = predicted.assign(competence=ordered["competence"].shift(-1))
        evaluation, competence = (_drop_last(results, frame) for frame in (evaluation, competence))
    training = evaluation["split"] == "train"
    merged = evaluation[keys].merge(predicted[[*keys, "competence"]], on=keys, how="left")
    merged.index = evaluation.index
    if merged.loc[training, "competence"].isna().any():
        estimators = sorted(results.tables["competence"]["estimator"].unique())
        raise InputError(
            f"--against: {name!r} has not predicted in all runs; allowed: an estimator of every "
            f"run, at more than one evaluation; there are: {', '.join(estimators) or 'none'}"
        )
    truth = evaluation["success"].where(~training, merged["competence"])
    tables = {"evaluation": evaluation.assign(success=truth), "competence": competence}
    return Results({**results.tables, **tables}, results.manifest)


def measured_when_evaluated(results: Results, name: str) -> bool:
    """Whether an estimator that plays measures at the evaluations of every run."""
    configs = [run["config"] for run in results.manifest["runs"]]
    return results.unit_column == "episode" and all(
        config["budget"]["evaluate_every"] == config[name]["every"] for config in configs
    )


def _drop_last(results: Results, frame: pd.DataFrame) -> pd.DataFrame:
    last = frame.groupby(list(RUN_COLUMNS))[results.unit_column].transform("max")
    return frame[frame[results.unit_column] < last]


def check_one_phase(results: Results, where: str) -> None:
    """Refuse runs of several phases: costs are of whole runs, errors of the last phase."""
    if any(len(run["config"].get("phases") or ()) > 1 for run in results.manifest["runs"]):
        raise InputError(f"{where}: runs have several phases; allowed: runs of one phase")


def choose_truth(results: Results, name: str | None, split: str = "train") -> str:
    """The truth: `name` if given, else the measured competence if all runs have it, or success."""
    if name is not None:
        return name
    runs = results.manifest["runs"]
    measured = all(MEASURED in run["estimation_episodes"] for run in runs)
    measured = measured and measured_when_evaluated(results, MEASURED)
    training = split == practised_split(results) == "train"
    return MEASURED if measured and training else OBSERVED


def table(results: Results, truth: str, split: str = "train") -> pd.DataFrame:
    """Error and cost of every estimator.

    A row for each goal space, sampler, variant and estimator. Columns of `ERROR`: mean over runs of
    the error, with its studentised interval; `categories`: the same mean by category; `estimating`,
    `training`: mean episodes; `truth`, `split`, `status`. An estimator that is the truth has no
    error by definition. Beside EK-Eval-ALP, Eval-ALP's cost is computed then: as many evaluations
    of each goal as there were of each category.

    truth: `OBSERVED`, `KNOWN` or, on training goals only, an estimator of every run.

    Raises:
        InputError: a run lacks the true estimator, there is no other one, or runs have phases.
    """
    check_one_phase(results, "estimation")
    if truth not in (OBSERVED, KNOWN) and split != "train":
        raise InputError(
            f"--split: {split!r} is not allowed against {truth}, which covers training goals only; "
            f"allowed: train, or --against {OBSERVED}"
        )
    errors = rows_where(summaries.calibration(with_truth(results, truth)), split=split)
    if not len(errors):
        raise InputError("estimation: no run has an estimator; allowed: runs that predict")
    keys = [*ALGORITHM, "estimator"]
    rows: list[dict[str, Any]] = []
    computes = truth == MEASURED and PER_GOAL not in set(errors["estimator"])
    for values, group in errors.groupby(keys, sort=False):
        where = dict(zip(keys, values, strict=True))
        if where["estimator"] != truth:
            of_runs = group.groupby("seed")["mean_absolute_error"].mean().to_numpy()
            found = mean_estimate(of_runs[:, None], bootstrap_of(results))
            numbers = (found.value[0], found.low[0], found.high[0], found.method[0])
            error = dict(zip(ERROR, (len(of_runs), *numbers), strict=True))
            error["categories"] = group.groupby("category")["mean_absolute_error"].mean().to_dict()
            rows.append({**where, **error, **_cost(results, where), "status": RUN})
        else:
            cost = _cost(results, where)
            rows.append({**where, **NO_ERROR, **cost, "status": TRUTH})
            algorithm = Algorithm(where["sampler"], where["variant"])
            counts = goal_counts(results, algorithm, where["goal_space"]) if computes else None
            if counts is not None:  # the world is registered
                arms = sum(count > 0 for count in counts.values())
                cost["estimating"] = cost["estimating"] / arms * sum(counts.values())
                rows.append({**rows[-1], **cost, "estimator": PER_GOAL, "status": COMPUTED})
    if all(row["status"] != RUN for row in rows):
        raise InputError(f"estimation: {truth} is the only estimator; allowed: one more to judge")
    order = {name: index for index, name in enumerate(results.goal_spaces)}
    frame = pd.DataFrame(rows).assign(truth=truth, split=split)
    return frame.sort_values(
        [*ALGORITHM, "error", "estimating"],
        key=lambda column: column.map(order) if column.name == "goal_space" else column,
        kind="stable",
        ignore_index=True,
    )


def _cost(results: Results, where: Mapping[str, str]) -> dict[str, float]:
    runs = [r for r in results.manifest["runs"] if all(r[key] == where[key] for key in ALGORITHM)]
    estimating = [run["estimation_episodes"][where["estimator"]] for run in runs]
    training = [run.get("episodes") or math.nan for run in runs]
    return {"estimating": float(np.mean(estimating)), "training": float(np.mean(training))}


def truth_label(truth: str) -> str:
    """A truth in words."""
    labels = {OBSERVED: "success observed in evaluation", KNOWN: "the known competence"}
    return labels.get(truth) or estimator_label(truth)


def tables(results: Results, frame: pd.DataFrame) -> Iterator[Table]:
    """A table for each goal space, sampler and variant, smallest error first.

    frame: from `table`.
    """
    truth, split = frame.loc[0, ["truth", "split"]]
    against = truth_label(truth)
    for (goal_space, sampler, variant), group in frame.groupby(ALGORITHM, sort=False):
        title = (
            f"Error on {SPLIT_LABELS[split].lower()} against {against}, and cost: goal space "
            f"{goal_space}, sampler {sampler}, variant {variant}"
        )
        present = {name for errors in group["categories"] for name in errors}
        categories = [category for category in results.categories if category.name in present]
        header = ("estimator", *(category.words for category in categories), *HEADER)
        rows = [
            [estimator_label(row.estimator), *_cells(row, categories)] for row in group.itertuples()
        ]
        yield Table(title, header, rows)


def _cells(row: Any, categories: Sequence[Category]) -> list[str]:
    episodes = [
        f"{row.estimating:,.0f}",
        "" if math.isnan(row.training) else f"{row.training:,.0f}",
    ]
    if row.status != RUN:
        return [*[""] * len(categories), "0", f"none: {row.status}", "", *episodes]
    interval = str(row.interval)
    if not math.isnan(row.low):
        method = "" if row.interval == STUDENTISED else f" ({row.interval})"
        interval = f"{row.low:.3f} to {row.high:.3f}{method}"
    errors = [f"{row.categories[category.name]:.3f}" for category in categories]
    return [*errors, f"{row.error:.3f}", interval, str(row.runs), *episodes]


# --- the exact truth: the simulated learner's competence, rebuilt from its practice ---


def _with_known_competence(results: Results) -> Results:
    """Results with the simulated learner's competence as success of every evaluation.

    Goals are assumed to be spread evenly over a window of the table of practice, as their order is
    not recorded.

    Raises:
        InputError: another world, or runs of several phases.
    """
    check_one_phase(results, "known competence")
    world = results.manifest["runs"][0]["config"].get("world", DEFAULT_WORLD)
    if world != SimulatedWorld.name:
        raise InputError(f"known competence: world is {world!r}; allowed: {SimulatedWorld.name}")
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
        episodes: last number of episodes.
    """
    counts = practice.pivot_table(index="episode", columns="category", values="n", aggfunc="sum")
    counts = counts.reindex(columns=list(KINDS)).fillna(0.0)
    by_episode = practised_until(counts, np.arange(episodes + 1))
    skills = np.zeros((episodes + 1, len(KINDS)))
    for episode, practice_of_kinds in enumerate(np.diff(by_episode, axis=0), start=1):
        skills[episode] = practised(skills[episode - 1], practice_of_kinds)
    return skills
