"""Replay a run's recorded outcomes to one estimator, and evaluate it where the run was evaluated.

Open loop: predictions do not change the episodes, so they are those that the estimator would have
made as an observer of that run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from magellan import __version__
from magellan.backends import check_backend
from magellan.backends.machine import configure_torch
from magellan.competence import ESTIMATORS, CompetenceEstimator, make_estimator
from magellan.config import UNIT_COLUMNS, RunConfig, checked_run, identity, phases_of
from magellan.config.resolve import merged
from magellan.core.columns import COLUMNS
from magellan.core.errors import InputError, shown
from magellan.core.files import write_atomically, write_table
from magellan.core.finite import check_losses
from magellan.jobs.folder import MANIFEST
from magellan.jobs.trained import Point
from magellan.tools.recorded import RecordedRun
from magellan.training.evaluate import EvaluationSet, competence_rows, goal_rows
from magellan.training.parts import estimator_parts, evaluated_goals

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
    goals: EvaluationSet
    now: np.ndarray
    delayed: np.ndarray


def replay(
    run: RecordedRun,
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
        InputError: unknown estimator, one that evaluates by playing, a foreign key, or a folder in
            use.
    """
    config = _replay_config(run.agent.config, name, settings, backend or {})
    check_backend(config.backend)
    _check_output(output)
    configure_torch(config.threads, config.backend.deterministic)
    parts = estimator_parts(config, scores_candidates=False)
    sets = list(evaluated_goals(config, phases_of(config)[0], parts.goals).values())
    own = config.constants(ESTIMATORS[name])
    points = sorted([*run.points, *_extra_points(run, every)])
    predictions = _predict(make_estimator(name, parts, own), run, sets, points)
    own_points = set(run.points)
    evaluated = [p for p in predictions if p.point in own_points]
    competence = _rows(name, predictions, lambda p: competence_rows(p.goals, p.now, p.delayed))
    tables = {
        "competence": (COLUMNS["competence"], competence),
        "error": (ERROR_COLUMNS, _error_table(name, run, sets, evaluated)),
    }
    if run.goal_success:
        goals = _rows(
            name,
            evaluated,
            lambda p: goal_rows(p.goals, run.success_at(p.point, p.goals), p.now, p.delayed),
        )
        tables["goals"] = (COLUMNS["goals"], goals)
    _write(output, tables, _description(config, name, identity(run.agent.config), every))


def _replay_config(
    config: RunConfig, name: str, settings: Iterable[Mapping[str, Any]], backend: Mapping[str, Any]
) -> RunConfig:
    """The run's configuration with other constants of this estimator and its model only.

    `backend` replaces the run's section, which describes its job.
    """
    spec = ESTIMATORS.find(name, "--estimator")
    section, allowed = spec.section, f"constants of {name}, such as {spec.section}.key=value"
    if spec.needs_features:
        allowed += ", or of the model that it reads with, such as backbone.model=smollm2-135m"
    values = {**config.model_dump(mode="json"), "backend": backend}
    for layer in settings:
        for key in layer:
            if key != section and not (key == "backbone" and spec.needs_features):
                raise InputError(
                    f"--set: {shown(key)} is not allowed: outcomes are recorded; allowed: {allowed}"
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
    used = [n for n in (MANIFEST, REPLAY, *(f"{t}.csv" for t in COLUMNS)) if (output / n).exists()]
    if used:
        raise InputError(f"--output: {output} already holds {used[0]}; name another folder")


def _extra_points(run: RecordedRun, every: int | None) -> list[Point]:
    """Points at multiples of `every` updates without an evaluation of the run."""
    if every is None:
        return []
    evaluated = {point.update for point in run.points}
    updates = (u for u in range(0, run.agent.point.update + 1, every) if u not in evaluated)
    return [Point(u, run.step_at(u), run.episodes_until(u)) for u in updates]


def _predict(
    estimator: CompetenceEstimator, run: RecordedRun, sets: list[EvaluationSet], points: list[Point]
) -> list[Prediction]:
    """Update the estimator as in training; predict at each of the sorted points."""
    predictions: list[Prediction] = []
    update = 0
    for point in points:
        while update < point.update:
            if estimator.goals_to_evaluate(run.episodes_until(update)) is not None:
                raise InputError(
                    "--estimator: this one needs episodes played by the agent, which a replay "
                    "lacks; allowed: estimators that learn from practice"
                )
            update += 1
            estimator.update(run.received(update))
            check_losses(update, estimator.losses())
        for goals in sets:
            competence = estimator.predict(goals.space, goals.positions)
            predictions.append(Prediction(point, goals, *competence))
    return predictions


def _rows(
    name: str,
    predictions: list[Prediction],
    rows_of: Callable[[Prediction], Iterable[dict[str, Any]]],
) -> list[dict[str, Any]]:
    return [
        {**p.point._asdict(), "estimator": name, "split": p.goals.space.split, **row}
        for p in predictions
        for row in rows_of(p)
    ]


def _error_table(
    name: str,
    run: RecordedRun,
    sets: list[EvaluationSet],
    predictions: list[Prediction],
) -> list[dict[str, Any]]:
    """A row per split and category, and one for all categories of a split."""
    budget, points = run.agent.config.budget, run.points
    times = [point._asdict()[UNIT_COLUMNS[budget.unit]] for point in points]
    regular = np.array([time % budget.evaluate_every == 0 for time in times])
    rows: list[dict[str, Any]] = []
    for goals in sets:
        split = goals.space.split
        now = np.array([p.now for p in predictions if p.goals is goals])
        success = np.array([run.success_at(point, goals) for point in points])
        curves: list[tuple[Curve, Curve]] = []
        groups: list[tuple[str, list[tuple[Curve, Curve]], np.ndarray]] = []
        for number, kind in enumerate(goals.kinds.names):
            members = np.flatnonzero(goals.categories == number)
            if len(members):
                # Impossible goals are not played.
                observed = [run.success.get((point, split, kind), 0.0) for point in points]
                curve = now[:, members].mean(axis=1), np.array(observed)
                curves.append(curve)
                groups.append((kind, [curve], members))
        groups.append((ALL, curves, np.arange(len(goals.categories))))
        for category, pairs, members in groups:
            shift = lag([(predicted[regular], observed[regular]) for predicted, observed in pairs])
            rows.append(
                {
                    "estimator": name,
                    "split": split,
                    "category": category,
                    "points": len(points),
                    "mean_absolute_error": float(np.mean([curve_error(*pair) for pair in pairs])),
                    "brier": brier(now[:, members], success[:, members]),
                    "lag": shift * budget.evaluate_every,
                    "unit": budget.unit,
                }
            )
    return rows


def _description(config: RunConfig, name: str, replayed: str, every: int | None) -> dict[str, Any]:
    spec = ESTIMATORS[name]
    own = config.constants(spec).model_dump(mode="json")
    model = config.backbone.model_dump(mode="json")
    return {
        "replayed": replayed,
        "sampler": config.sampler,
        "goal_space": config.goal_space,
        "seed": config.seed,
        "estimator": name,
        "settings": {
            **({spec.section: own} if own else {}),
            **({"backbone": model} if spec.needs_features else {}),
        },
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
