"""Replay a run's recorded outcomes to one estimator, and evaluate it where the run was evaluated.

Open loop: predictions do not change the episodes, so they are those that the estimator would have
made as an observer of that run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from magellan import __version__
from magellan.backends import check_backend
from magellan.backends.machine import settle
from magellan.competence import ESTIMATORS, CompetenceEstimator, make_estimator
from magellan.config import (
    UNIT_COLUMNS,
    RunConfig,
    check_backbone,
    checked_run,
    identity,
    phases_of,
)
from magellan.config.resolve import merged
from magellan.core.columns import COLUMNS
from magellan.core.errors import InputError, shown
from magellan.core.files import write_atomically, write_table
from magellan.core.finite import check_losses
from magellan.model.files import model_digest
from magellan.tools.recorded import (
    MANIFEST,
    Evaluations,
    FinishedRun,
    Point,
    RecordedOutcomes,
    read_goal_success,
)
from magellan.training.evaluate import EvaluationSet, competence_rows, goal_rows
from magellan.training.parts import estimator_parts, evaluated_goals
from magellan.worlds import Category

ERROR_COLUMNS = (
    "estimator",
    "split",
    "category",
    "points",
    "mean_absolute_error",
    "brier",
    "lag",
    "unit",
)
REPLAY = "replay.json"
ALL = "all"
"""`category` of rows over a whole split."""


class Prediction(NamedTuple):
    """Competence of the goals of one split at one point; now and delayed (n,)."""

    point: Point
    split: str
    now: np.ndarray
    delayed: np.ndarray


def replay(
    run: FinishedRun,
    name: str,
    settings: Iterable[Mapping[str, Any]],
    output: Path,
    every: int | None = None,
    backend: Mapping[str, Any] | None = None,
) -> None:
    """Feed the outcomes of a run to one estimator; write its predictions and their errors.

    Args:
        run: with recorded outcomes.
        name: of the estimator.
        settings: constants that differ from the run's, each in its section.
        output: folder for the tables; created if missing.
        every: updates between additional predictions; None: only at the run's evaluations.
        backend: the section `backend`, instead of the run's; None: the defaults.

    Raises:
        InputError: unknown estimator, one that evaluates by playing, a foreign key, a folder in
            use, or invalid tables.
    """
    config = _replay_config(run.config, name, settings, backend or {})
    check_backend(config.backend)
    _check_output(output)
    evaluations = Evaluations.read(run)
    success = read_goal_success(run)
    folder = check_backbone(config.backbone.model)
    if model_digest(folder) != run.backbone:
        raise InputError(
            f"backbone.model: {folder} has other files than when {run.folder} was trained"
        )
    settle(config.threads, config.backend.deterministic)
    parts = estimator_parts(config, sampled=False)
    outcomes = RecordedOutcomes.read(run, parts.goals)
    sets = evaluated_goals(config, phases_of(config)[0], parts.goals)
    own = config.constants(ESTIMATORS[name])
    points = [*evaluations.points, *_extra_points(run, outcomes, evaluations, every)]
    predictions = _predict(make_estimator(name, parts, own), outcomes, sets, sorted(points))
    evaluated = [p for p in predictions if p.point in set(evaluations.points)]
    successes = None if success is None else _match_success(run, sets, success, evaluated)
    errors = _error_table(name, config, sets, evaluations, evaluated, successes)
    tables = {
        "competence": (COLUMNS["competence"], _competence_table(name, sets, predictions)),
        "error": (ERROR_COLUMNS, errors),
    }
    if successes is not None:
        tables["goals"] = (COLUMNS["goals"], _goal_table(name, sets, evaluated, successes))
    _write(output, tables, _description(run, config, name, every))


def _replay_config(
    config: RunConfig,
    name: str,
    settings: Iterable[Mapping[str, Any]],
    backend: Mapping[str, Any],
) -> RunConfig:
    """The run's configuration with other constants of this estimator only.

    `backend` replaces the run's section, which describes its job.
    """
    section = ESTIMATORS.find(name, "--estimator").section
    values = {**config.model_dump(mode="json"), "backend": backend}
    for layer in settings:
        foreign = [key for key in layer if key != section]
        if foreign:
            raise InputError(
                f"--set: {shown(foreign[0])} is not allowed: outcomes are recorded; allowed: "
                f"constants of {name}, such as {section}.key=value"
            )
        values = merged(values, layer)
    replayed = checked_run(values)
    adapter = replayed.section("competence").adapter
    if section == "competence" and adapter not in ("own", "frozen"):
        raise InputError(
            f"competence.adapter: {shown(adapter)} is not allowed: it reads with the policy's "
            "adapter, which a replay does not train; allowed: own, frozen"
        )
    return replayed


def _check_output(output: Path) -> None:
    """Refuse a folder with a run or another replay."""
    used = [n for n in (MANIFEST, REPLAY, *(f"{t}.csv" for t in COLUMNS)) if (output / n).exists()]
    if used:
        raise InputError(f"--output: {output} already holds {used[0]}; name another folder")


def _extra_points(
    run: FinishedRun, outcomes: RecordedOutcomes, evaluations: Evaluations, every: int | None
) -> list[Point]:
    """Points at multiples of `every` updates without an evaluation of the run."""
    if every is None:
        return []
    evaluated = {point.update for point in evaluations.points}
    updates = (u for u in range(0, run.length.update + 1, every) if u not in evaluated)
    return [Point(u, run.step_at(u), outcomes.count_until(u)) for u in updates]


def _predict(
    estimator: CompetenceEstimator,
    outcomes: RecordedOutcomes,
    sets: Mapping[str, EvaluationSet],
    points: list[Point],
) -> list[Prediction]:
    """Update the estimator as in training; predict at each of the sorted points."""
    predictions: list[Prediction] = []
    update = 0
    _refuse_evaluation(estimator, 0)
    for point in points:
        while update < point.update:
            _refuse_evaluation(estimator, outcomes.count_until(update))
            update += 1
            estimator.update(outcomes.at(update))
            check_losses(update, estimator.losses())
        for split, goals in sets.items():
            competence = estimator.predict(goals.space, goals.positions)
            predictions.append(Prediction(point, split, *competence))
    return predictions


def _refuse_evaluation(estimator: CompetenceEstimator, episodes: int) -> None:
    if estimator.goals_to_evaluate(episodes) is not None:
        raise InputError(
            "--estimator: this one needs episodes played by the agent, which a replay lacks; "
            "allowed: estimators that learn from practice"
        )


def _competence_table(
    name: str, sets: Mapping[str, EvaluationSet], predictions: list[Prediction]
) -> list[dict[str, Any]]:
    return [
        {**p.point._asdict(), "estimator": name, "split": p.split, **row}
        for p in predictions
        for row in competence_rows(sets[p.split], p.now, p.delayed)
    ]


def _match_success(
    run: FinishedRun,
    sets: Mapping[str, EvaluationSet],
    success: Mapping[tuple[Point, str, int], int],
    predictions: list[Prediction],
) -> list[np.ndarray]:
    """Success in the run of the goals of each prediction, float64 (n,)."""
    successes = []
    for p in predictions:
        goals = sets[p.split]
        codes = goals.space.codes_at(goals.positions).tolist()
        try:
            successes.append(np.array([success[p.point, p.split, c] for c in codes], np.float64))
        except KeyError as error:
            point, split, code = error.args[0]
            raise InputError(
                f"{run.folder / 'goals.csv'}: no row at update {point.update} for goal {code}, "
                f"split {split}; the file is not whole"
            ) from None
    return successes


def _goal_table(
    name: str,
    sets: Mapping[str, EvaluationSet],
    predictions: list[Prediction],
    successes: list[np.ndarray],
) -> list[dict[str, Any]]:
    return [
        {**p.point._asdict(), "estimator": name, "split": p.split, **row}
        for p, success in zip(predictions, successes, strict=True)
        for row in goal_rows(sets[p.split], success, p.now, p.delayed)
    ]


def _error_table(
    name: str,
    config: RunConfig,
    sets: Mapping[str, EvaluationSet],
    evaluations: Evaluations,
    predictions: list[Prediction],
    successes: list[np.ndarray] | None,
) -> list[dict[str, Any]]:
    """A row per split and category, and one for all categories of a split."""
    spacing, unit = config.budget.evaluate_every, config.budget.unit
    times = [point._asdict()[UNIT_COLUMNS[unit]] for point in evaluations.points]
    regular = np.array([time % spacing == 0 for time in times])
    rows: list[dict[str, Any]] = []
    for split, goals in sets.items():
        of_split = [i for i, p in enumerate(predictions) if p.split == split]
        now = np.array([predictions[i].now for i in of_split])
        success = None if successes is None else np.array([successes[i] for i in of_split])
        curves: list[tuple[Curve, Curve]] = []
        groups: list[tuple[str, list[tuple[Curve, Curve]], np.ndarray]] = []
        for number, kind in enumerate(goals.kinds):
            members = np.flatnonzero(goals.categories == number)
            if len(members):
                curve = now[:, members].mean(axis=1), _observed(evaluations, split, kind)
                curves.append(curve)
                groups.append((kind.name, [curve], members))
        groups.append((ALL, curves, np.arange(len(goals.categories))))
        for category, pairs, members in groups:
            score = np.nan if success is None else brier(now[:, members], success[:, members])
            shift = lag([(predicted[regular], observed[regular]) for predicted, observed in pairs])
            rows.append(
                {
                    "estimator": name,
                    "split": split,
                    "category": category,
                    "points": len(of_split),
                    "mean_absolute_error": float(np.mean([curve_error(*pair) for pair in pairs])),
                    "brier": score,
                    "lag": shift * spacing,
                    "unit": unit,
                }
            )
    return rows


def _observed(evaluations: Evaluations, split: str, category: Category) -> Curve:
    """Success of a category in the run, (points,); 0 for impossible goals."""
    if not category.feasible:
        return np.zeros(len(evaluations.points))
    success = evaluations.success
    try:
        return np.array([success[point, split, category.name] for point in evaluations.points])
    except KeyError as error:
        point, split, name = error.args[0]
        raise InputError(
            f"evaluation.csv: no row at update {point.update} for {name}, split {split}; the "
            "file is not whole"
        ) from None


def _description(
    run: FinishedRun, config: RunConfig, name: str, every: int | None
) -> dict[str, Any]:
    own = config.constants(ESTIMATORS[name]).model_dump(mode="json")
    return {
        "replayed": identity(run.config),
        "sampler": config.sampler,
        "goal_space": config.goal_space,
        "seed": config.seed,
        "estimator": name,
        "settings": {ESTIMATORS[name].section: own} if own else {},
        "every": every,
        "version": __version__,
    }


def _write(output: Path, tables: Mapping[str, Any], description: dict[str, Any]) -> None:
    """Write tables, then the description, which marks them as complete."""
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--output: {output} cannot be written ({error.strerror})") from None
    for table, (columns, rows) in tables.items():
        cells = ([row[column] for column in columns] for row in rows)
        write_table(output / f"{table}.csv", columns, cells)
    write_atomically(output / REPLAY, (json.dumps(description, indent=2) + "\n").encode())


Curve = np.ndarray
"""Values at evaluation points, float64 (points,)."""


def curve_error(predicted: Curve, observed: Curve) -> float:
    """Mean absolute difference over points."""
    return float(np.abs(predicted - observed).mean())


def brier(predicted: np.ndarray, success: np.ndarray) -> float:
    """Brier score: mean of (predicted - success)^2; 0 is best, 0.25 a constant 1/2.

    predicted, success: (n,), success 0 or 1.
    """
    return float(((predicted - success) ** 2).mean())


def lag(curves: list[tuple[Curve, Curve]]) -> int:
    """Number of points, 0 or more, by which predicted curves lag behind observed ones.

    The shift of the observed curves, of at most half of their points, with the smallest mean
    absolute difference; of equal ones the smallest. Constant observed curves are ignored; 0 if all
    are constant.

    curves: pairs of predicted and observed, at points with equal distances.
    """
    changing = [(p, o) for p, o in curves if len(o) and (o != o[0]).any()]
    if not changing:
        return 0
    points = len(changing[0][1])
    errors = [
        np.mean([curve_error(p[k:], o[: points - k]) for p, o in changing])
        for k in range(points // 2 + 1)
    ]
    return int(np.argmin(errors))
