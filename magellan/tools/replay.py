"""Replay a run's recorded outcomes to one estimator, and evaluate it where the run was evaluated.

Open loop: predictions do not change the episodes, so they are those that the estimator would have
made as an observer of that run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from magellan import __version__
from magellan.backends import check_backend
from magellan.backends.machine import configure_torch
from magellan.competence import ESTIMATORS, CompetenceEstimator, Outcomes, make_estimator
from magellan.config import UNIT_COLUMNS, RunConfig, checked_run, identity, phases_of
from magellan.config.resolve import merged
from magellan.core.columns import COLUMNS
from magellan.core.errors import InputError, not_allowed
from magellan.core.files import check_writable, new_folder, write_atomically, write_table
from magellan.core.finite import check_losses
from magellan.jobs.folder import MANIFEST
from magellan.jobs.trained import Point, TrainedAgent
from magellan.training.estimators import estimator_parts
from magellan.training.evaluate import EvaluationSet, competence_rows, evaluated_goals, goal_rows

ERROR_COLUMNS: tuple[str, ...] = ("estimator", "split", "category", "points")
ERROR_COLUMNS += ("mean_absolute_error", "brier", "lag", "unit")
REPLAY = "replay.json"
ALL = "all"
"""`category` of rows over a whole split."""


@dataclass(frozen=True)
class RecordedRun:
    """A complete run with recorded outcomes.

    Attributes:
        agent: of its end.
        updates: int64 (n,), not falling: when the run's estimators received each outcome.
        outcomes: n, in that order.
        success: of feasible categories in its evaluations, by point, split and category, in order.
        goal_success: of each evaluated goal, by point, split and code; empty if not recorded.
    """

    agent: TrainedAgent
    updates: np.ndarray
    outcomes: Outcomes
    success: Mapping[tuple[Point, str, str], float]
    goal_success: Mapping[tuple[Point, str, int], int]

    @classmethod
    def read(cls, folder: Path, modules: tuple[str, ...] = ()) -> RecordedRun:
        """Read the folder of a run; `modules`: see `TrainedAgent.read`.

        Raises:
            InputError: not complete, without recorded outcomes, or with phases; or no agent.
        """
        if not (folder / MANIFEST).exists():
            raise InputError(f"{folder} is not the folder of a complete run: no {MANIFEST} there")
        agent = TrainedAgent.read(folder, modules)
        if not agent.complete:
            raise InputError(f"{agent.path} is not the end of the run: {agent.where}")
        if agent.config.phases:
            raise InputError(
                f"{folder}: phases: the run has {len(agent.config.phases)}; allowed: runs of one "
                "phase, as a replay does not change goal spaces"
            )
        with agent.fitting():
            record, tables = agent.state["record"], agent.state["record"]["tables"]
            if record["outcomes"] is None:
                raise InputError(
                    f"{folder} has no outcomes.csv; runs with budget.record_outcomes: true write it"
                )
            _, updates, codes, _, standing_on, won, _ = record["outcomes"].T
            positions = agent.goals.positions_of(codes)
            if (positions < 0).any():
                raise ValueError("a goal outside the goal space")
            success = {
                (Point(update, step, episode), split, category): value
                for update, step, episode, split, category, _, value, *_ in tables["evaluation"]
            }
            goal_success = {
                (Point(update, step, episode), split, code): value
                for update, step, episode, _, split, code, _, value, *_ in tables.get("goals", ())
            }
            outcomes = Outcomes(positions, won, standing_on)
        return cls(agent, updates, outcomes, success, goal_success)

    @property
    def points(self) -> list[Point]:
        """The run's evaluations, in order."""
        return list(dict.fromkeys(point for point, _, _ in self.success))

    def success_at(self, point: Point, goals: EvaluationSet) -> np.ndarray:
        """Success of evaluated goals in an evaluation, float64 (n,); NaN if not recorded."""
        codes, split = goals.space.codes_at(goals.positions).tolist(), goals.space.split
        return np.array([self.goal_success.get((point, split, code), np.nan) for code in codes])

    def received(self, update: int) -> Outcomes:
        """Outcomes received at this update, possibly none."""
        rows = slice(*np.searchsorted(self.updates, (update, update + 1)))
        every = self.outcomes
        return Outcomes(every.goals[rows], every.success[rows], every.standing_on[rows])

    def episodes_until(self, update: int) -> int:
        """Number of episodes received up to this update, inclusive."""
        return int(np.searchsorted(self.updates, update, side="right"))


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
    spec = ESTIMATORS[name]
    constants = config.constants(spec)
    used = {spec.section: constants.model_dump(mode="json")}
    if spec.needs_features:
        used["backbone"] = config.backbone.model_dump(mode="json")
    points = sorted([*run.points, *_extra_points(run, every)])
    predictions = _predict(make_estimator(name, parts, constants), run, sets, points)
    own_points = set(run.points)
    evaluated = [p for p in predictions if p.point in own_points]
    tables = {
        "competence": _rows(
            name, predictions, lambda p: competence_rows(p.goals, p.now, p.delayed)
        ),
        "error": _error_table(name, run, sets, evaluated),
    }
    if run.goal_success:
        tables["goals"] = _rows(
            name,
            evaluated,
            lambda p: goal_rows(p.goals, run.success_at(p.point, p.goals), p.now, p.delayed),
        )
    description = {
        "replayed": identity(run.agent.config),
        "sampler": config.sampler,
        "goal_space": config.goal_space,
        "seed": config.seed,
        "estimator": name,
        "settings": {section: values for section, values in used.items() if values},
        "every": every,
        "version": __version__,
    }
    _write(output, tables, description)


def _check_output(folder: Path) -> None:
    check_writable(folder)
    for file in (MANIFEST, REPLAY, *(f"{table}.csv" for table in COLUMNS)):
        if (folder / file).exists():
            raise InputError(f"--output: {folder} already holds {file}; name another folder")


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
                raise not_allowed("--set", key, allowed, ": outcomes are recorded")
        values = merged(values, layer)
    replayed = checked_run(values)
    adapter = replayed.section("competence").adapter
    if section == "competence" and adapter not in ("own", "frozen"):
        why = ": it reads with the policy's adapter, which a replay does not train"
        raise not_allowed("competence.adapter", adapter, "own, frozen", why)
    return replayed


def _extra_points(run: RecordedRun, every: int | None) -> list[Point]:
    """Points at multiples of `every` updates without an evaluation of the run."""
    if every is None:
        return []
    evaluated = {point.update for point in run.points}
    agent, end = run.agent.config.agent, run.agent.point
    # Equally many steps lie before each update but the first.
    spacing = math.ceil(agent.steps_per_update / agent.num_envs) * agent.num_envs
    updates = [u for u in range(0, end.update + 1, every) if u not in evaluated]
    steps = [end.step - (end.update - u) * spacing if u else 0 for u in updates]
    return [Point(u, step, run.episodes_until(u)) for u, step in zip(updates, steps, strict=True)]


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
                    # 0 is best, 0.25 a constant 1/2
                    "brier": float(((now[:, members] - success[:, members]) ** 2).mean()),
                    "lag": shift * budget.evaluate_every,
                    "unit": budget.unit,
                }
            )
    return rows


def _write(output: Path, tables: Mapping[str, Any], description: dict[str, Any]) -> None:
    """Write tables, then the description, which marks them as complete."""
    new_folder(output)
    for table, rows in tables.items():
        columns = ERROR_COLUMNS if table == "error" else COLUMNS[table]
        cells = ([row[column] for column in columns] for row in rows)
        write_table(output / f"{table}.csv", columns, cells)
    write_atomically(output / REPLAY, (json.dumps(description, indent=2) + "\n").encode())


Curve = np.ndarray
"""Values at evaluation points, float64 (points,)."""


def curve_error(predicted: Curve, observed: Curve) -> float:
    """Mean absolute difference over points."""
    return float(np.abs(predicted - observed).mean())


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
