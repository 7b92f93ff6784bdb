"""Give a run's recorded outcomes to one estimator again, and evaluate it where the run was.

Open loop: episodes stay what they were, whatever the estimator says of them. So its predictions
are those that it would have made as an observer of that run.
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
    FinishedRun,
    Looks,
    Point,
    RecordedOutcomes,
    own_success,
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
"""Stands for all categories of a split together."""


class Predicted(NamedTuple):
    """What the estimator says of the goals of one split at one point; now and delayed (n,)."""

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
    """Feed the outcomes of a run to one estimator; write what it predicts and how far that is off.

    Args:
        run: with recorded outcomes.
        name: of the estimator.
        settings: its constants that differ from those of the run, each in its section.
        output: folder for the tables; made when absent.
        every: updates between further points at which it is asked; None: only where the run was.
        backend: the section `backend`, which that of the run is not; None: the defaults.

    Raises:
        InputError: unknown estimator, one that has episodes played, a key of something else, a
            folder that is in use, or tables that are not those of a complete run.
    """
    config = _configured(run.config, name, settings, backend or {})
    check_backend(config.backend)
    _check_output(output)
    looks = Looks.read(run)
    success = own_success(run)
    folder = check_backbone(config.backbone.model)
    if model_digest(folder) != run.backbone:
        raise InputError(
            f"backbone.model: {folder} has other files than when {run.folder} was trained"
        )
    settle(config.threads, config.backend.deterministic)
    parts = estimator_parts(config, sampled=False)
    heard = RecordedOutcomes.read(run, parts.goals)
    sets = evaluated_goals(config, phases_of(config)[0], parts.goals)
    own = config.constants(ESTIMATORS[name])
    points = [*looks.points, *_between(run, heard, looks, every)]
    found = _predicted(make_estimator(name, parts, own), heard, sets, sorted(points))
    at_looks = [each for each in found if each.point in set(looks.points)]
    won = None if success is None else _matched(run, sets, success, at_looks)
    tables = {
        "competence": (COLUMNS["competence"], _competence(name, sets, found)),
        "error": (ERROR_COLUMNS, _errors(name, config, sets, looks, at_looks, won)),
    }
    if won is not None:
        tables["goals"] = (COLUMNS["goals"], _goals(name, sets, at_looks, won))
    _write(output, tables, _description(run, config, name, every))


def _configured(
    config: RunConfig,
    name: str,
    settings: Iterable[Mapping[str, Any]],
    backend: Mapping[str, Any],
) -> RunConfig:
    """The run's configuration with other constants of this estimator, and of nothing else.

    The section `backend` says how a job runs: that of the run does not count here.
    """
    section = ESTIMATORS.find(name, "--estimator").section
    values = {**config.model_dump(mode="json"), "backend": backend}
    for layer in settings:
        odd = [key for key in layer if key != section]
        if odd:
            raise InputError(
                f"--set: {shown(odd[0])} is not allowed: outcomes stay what they were; allowed: "
                f"constants of {name}, such as {section}.key=value"
            )
        values = merged(values, layer)
    made = checked_run(values)
    adapter = made.section("competence").adapter
    if section == "competence" and adapter not in ("own", "frozen"):
        raise InputError(
            f"competence.adapter: {shown(adapter)} is not allowed: it reads with the policy's "
            "adapter, which a replay does not train; allowed: own, frozen"
        )
    return made


def _check_output(output: Path) -> None:
    """A folder that holds neither a run nor another replay."""
    used = [n for n in (MANIFEST, REPLAY, *(f"{t}.csv" for t in COLUMNS)) if (output / n).exists()]
    if used:
        raise InputError(f"--output: {output} already holds {used[0]}; name another folder")


def _between(
    run: FinishedRun, heard: RecordedOutcomes, looks: Looks, every: int | None
) -> list[Point]:
    """Points at multiples of `every` updates at which the run was not looked at."""
    if every is None:
        return []
    own = {point.update for point in looks.points}
    updates = (u for u in range(0, run.length.update + 1, every) if u not in own)
    return [Point(u, run.step_at(u), heard.told(u)) for u in updates]


def _predicted(
    estimator: CompetenceEstimator,
    heard: RecordedOutcomes,
    sets: Mapping[str, EvaluationSet],
    points: list[Point],
) -> list[Predicted]:
    """Update by update, as in training; what it says at each point, which are in order."""
    found: list[Predicted] = []
    update = 0
    _refuse_if_it_plays(estimator, 0)
    for point in points:
        while update < point.update:
            _refuse_if_it_plays(estimator, heard.told(update))
            update += 1
            estimator.update(heard.at(update))
            check_losses(update, estimator.losses())
        for split, goals in sets.items():
            found.append(Predicted(point, split, *estimator.predict(goals.space, goals.positions)))
    return found


def _refuse_if_it_plays(estimator: CompetenceEstimator, episodes: int) -> None:
    if estimator.goals_to_evaluate(episodes) is not None:
        raise InputError(
            "--estimator: this one has episodes played by the agent to learn from, and in a replay "
            "there is no agent; allowed: estimators that learn from practice"
        )


def _competence(
    name: str, sets: Mapping[str, EvaluationSet], found: list[Predicted]
) -> list[dict[str, Any]]:
    return [
        {**each.point._asdict(), "estimator": name, "split": each.split, **row}
        for each in found
        for row in competence_rows(sets[each.split], each.now, each.delayed)
    ]


def _matched(
    run: FinishedRun,
    sets: Mapping[str, EvaluationSet],
    success: Mapping[tuple[Point, str, int], int],
    found: list[Predicted],
) -> list[np.ndarray]:
    """Success in the run of the goals of each prediction, float64 (n,)."""
    won = []
    for each in found:
        goals = sets[each.split]
        codes = goals.space.codes_at(goals.positions).tolist()
        try:
            won.append(np.array([success[each.point, each.split, c] for c in codes], np.float64))
        except KeyError as error:
            point, split, code = error.args[0]
            raise InputError(
                f"{run.folder / 'goals.csv'}: no row at update {point.update} for goal {code}, "
                f"split {split}; the file is not whole"
            ) from None
    return won


def _goals(
    name: str, sets: Mapping[str, EvaluationSet], found: list[Predicted], won: list[np.ndarray]
) -> list[dict[str, Any]]:
    return [
        {**each.point._asdict(), "estimator": name, "split": each.split, **row}
        for each, success in zip(found, won, strict=True)
        for row in goal_rows(sets[each.split], success, each.now, each.delayed)
    ]


def _errors(
    name: str,
    config: RunConfig,
    sets: Mapping[str, EvaluationSet],
    looks: Looks,
    found: list[Predicted],
    won: list[np.ndarray] | None,
) -> list[dict[str, Any]]:
    """A row per split and category, and one for all categories of a split."""
    spacing, unit = config.budget.evaluate_every, config.budget.unit
    planned = [point._asdict()[UNIT_COLUMNS[unit]] for point in looks.points]
    regular = np.array([number % spacing == 0 for number in planned])
    rows: list[dict[str, Any]] = []
    for split, goals in sets.items():
        mine = [at for at, each in enumerate(found) if each.split == split]
        now = np.array([found[at].now for at in mine])
        success = None if won is None else np.array([won[at] for at in mine])
        curves: list[tuple[Curve, Curve]] = []
        parts: list[tuple[str, list[tuple[Curve, Curve]], np.ndarray]] = []
        for number, kind in enumerate(goals.kinds):
            which = np.flatnonzero(goals.categories == number)
            if len(which):
                curve = now[:, which].mean(axis=1), _observed(looks, split, kind)
                curves.append(curve)
                parts.append((kind.name, [curve], which))
        parts.append((ALL, curves, np.arange(len(goals.categories))))
        for category, pairs, which in parts:
            score = np.nan if success is None else brier(now[:, which], success[:, which])
            late = lag([(predicted[regular], observed[regular]) for predicted, observed in pairs])
            rows.append(
                {
                    "estimator": name,
                    "split": split,
                    "category": category,
                    "points": len(mine),
                    "mean_absolute_error": float(np.mean([curve_error(*pair) for pair in pairs])),
                    "brier": score,
                    "lag": late * spacing,
                    "unit": unit,
                }
            )
    return rows


def _observed(looks: Looks, split: str, category: Category) -> Curve:
    """Success of a category in the run, (points,); impossible goals never succeed."""
    if not category.feasible:
        return np.zeros(len(looks.points))
    try:
        return np.array([looks.success[point, split, category.name] for point in looks.points])
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
    """Tables, then the description that says they are complete."""
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
    """Mean over points of the absolute difference."""
    return float(np.abs(predicted - observed).mean())


def brier(predicted: np.ndarray, success: np.ndarray) -> float:
    """Mean over goals and points of (predicted - success)^2; 0 is best, 0.25 knows nothing.

    predicted, success: (n,), success 0 or 1.
    """
    return float(((predicted - success) ** 2).mean())


def lag(curves: list[tuple[Curve, Curve]]) -> int:
    """By how many points predicted curves lag behind the observed ones: 0 or more.

    The shift of the observed curves, of at most half of their points, that leaves the smallest mean
    absolute difference; the smaller of two that are equal. Observed curves that never change say
    nothing; where no other is left it is 0.

    curves: pairs of predicted and observed, at points with equal distances.
    """
    told = [(p, o) for p, o in curves if len(o) and (o != o[0]).any()]
    if not told:
        return 0
    points = len(told[0][1])
    errors = [
        np.mean(
            [curve_error(predicted[k:], observed[: points - k]) for predicted, observed in told]
        )
        for k in range(points // 2 + 1)
    ]
    return int(np.argmin(errors))
