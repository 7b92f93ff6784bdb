"""A recording of a run, and what a rule of sampling would have drawn from it: open loop.

The run is as it was: its agent would have become another one had it practised what the rule draws.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from safetensors import SafetensorError, safe_open

from analysis.tables.markdown import Table
from analysis.tables.reading import read_columns
from analysis.tables.results import TableSpec
from magellan.core.columns import COLUMNS
from magellan.core.errors import InputError, shown
from magellan.samplers.signals import absolute_learning_progress
from magellan.training.recording import CHECKSUMS, FORMAT, PREDICTIONS, RECORDED

Rule = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(now, delayed), float64 (goals,) each, to weights (goals,), none negative."""
PARTS = 8
"""Of a run, in the table."""
VECTORS = "vectors_"
WRITES = "allowed: what a run with budget.record_predictions: true has written"


class Recording(NamedTuple):
    """What a run with `budget.record_predictions` left; docs/runs.md has all of it.

    about: which run it is.
    updates: int64 (refreshes,), the policy update after which each refresh was.
    now, delayed: float16 (refreshes, goals).
    codes, categories: of each goal; categories are numbers of `about["categories"]`.
    vectors: float16 (goals, width) by update.
    episodes: columns of outcomes.csv, and `number`, of the category.
    """

    about: dict[str, Any]
    updates: np.ndarray
    now: np.ndarray
    delayed: np.ndarray
    codes: np.ndarray
    categories: np.ndarray
    vectors: dict[int, np.ndarray]
    episodes: pd.DataFrame


def load(folder: Path) -> Recording:
    """Read the recording in the folder of a run.

    Raises:
        InputError: a file is missing, or not as the run has written it.
    """
    for name, wanted in _checksums(folder / CHECKSUMS).items():
        _check(folder / name, wanted)
    path = folder / PREDICTIONS
    try:
        about, arrays = _contents(path)
        named = [name for name in arrays if name.startswith(VECTORS)]
        vectors = {int(name.removeprefix(VECTORS)): arrays.pop(name) for name in named}
        episodes = _episodes(folder / "outcomes.csv", about["categories"])
        found = Recording(about=about, vectors=vectors, episodes=episodes, **arrays)
        shape = len(found.updates), len(found.codes)
        shapes = {found.now.shape, found.delayed.shape, (shape[0], len(found.categories))}
        if about["format"] != FORMAT or shapes != {shape}:
            raise ValueError(f"format {about['format']}, shapes {shapes}")
    except InputError:
        raise
    except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
        raise InputError(f"{path}: cannot be read ({shown(error)}); {WRITES}") from None
    return found


def _checksums(path: Path) -> dict[str, str]:
    """SHA-256 of each file, by its name."""
    try:
        lines = [line.split("  ") for line in path.read_text().splitlines()]
    except FileNotFoundError:
        raise InputError(f"{path}: file is missing; {WRITES}") from None
    except (OSError, UnicodeDecodeError):
        raise InputError(f"{path}: cannot be read; {WRITES}") from None
    if [line[1:] for line in lines] != [[name] for name in RECORDED]:
        raise InputError(f"{path}: not the checksums of {' and '.join(RECORDED)}; {WRITES}")
    return {name: digest for digest, name in lines}


def _check(path: Path, wanted: str) -> None:
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise InputError(f"{path}: file is missing; {WRITES}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    if found != wanted:
        raise InputError(
            f"{path}: its SHA-256 begins with {found[:12]}, in {CHECKSUMS} with "
            f"{shown(wanted[:12])}; {WRITES}"
        )


def _contents(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays."""
    with safe_open(path, framework="np") as file:
        about = json.loads(file.metadata()["recording"])
        return about, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def _episodes(path: Path, names: list[str]) -> pd.DataFrame:
    found = read_columns(path, TableSpec(COLUMNS["outcomes"], ()))
    numbers = pd.Categorical(found["category"], names).codes
    for odd in np.flatnonzero(numbers < 0)[:1]:
        raise InputError(
            f"{path}: line {odd + 2}: category is {shown(found['category'].iloc[odd])}; allowed: "
            f"{', '.join(names)}"
        )
    return found.assign(number=numbers)


def recorded_rule(recording: Recording) -> Rule:
    """Absolute learning progress with the run's own threshold."""
    return partial(absolute_learning_progress, threshold=float(recording.about["threshold"]))


def shares(recording: Recording, rule: Rule) -> np.ndarray:
    """Share of draws of each category after each refresh, (refreshes, categories).

    Where all weights are 0 a draw is uniform over the goals, as a sampler's is.
    """
    rows = []
    for now, delayed in zip(recording.now, recording.delayed, strict=True):
        weights = rule(now.astype(np.float64), delayed.astype(np.float64))
        weights = weights if weights.any() else np.ones(len(now))
        of_each = np.bincount(recording.categories, weights, len(recording.about["categories"]))
        rows.append(of_each / weights.sum())
    return np.array(rows)


def compared(recording: Recording, rule: Rule) -> pd.DataFrame:
    """What was practised without exploring, and what a rule would have drawn instead.

    Of each part of the run, and of all of it (the last): columns first and last (updates), draws,
    category, practised, by_rule. A draw counts at the refresh before the update after which its
    episode had ended.
    """
    episodes = recording.episodes
    drawn = episodes[episodes["explored"] == 0]
    refresh = np.searchsorted(recording.updates, drawn["update"]) - 1
    by_rule = shares(recording, rule)[refresh]
    practised = np.eye(by_rule.shape[1])[drawn["number"]]
    end = int(episodes["update"].max()) if len(episodes) else 0
    rows = []
    for first, last in [*_parts(end), (1, end)]:
        inside = drawn["update"].between(first, last).to_numpy()
        for number, category in enumerate(recording.about["categories"]):
            both = (_mean(each[inside, number]) for each in (practised, by_rule))
            rows.append((first, last, int(inside.sum()), category, *both))
    columns = ["first", "last", "draws", "category", "practised", "by_rule"]
    return pd.DataFrame(rows, columns=columns)


def _parts(end: int) -> list[tuple[int, int]]:
    """First and last update of each part."""
    ends = [end * part // PARTS for part in range(PARTS + 1)]
    return [(before + 1, last) for before, last in itertools.pairwise(ends)]


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else np.nan


def described(recording: Recording) -> str:
    """What the recording holds, in one sentence."""
    episodes = recording.episodes
    explored = int((episodes["explored"] == 1).sum())
    moments = ", ".join(map(str, sorted(recording.vectors)))
    return (
        f"{recording.about['identity']}: {len(recording.updates)} refreshes of "
        f"{len(recording.codes):,} goals, {len(episodes):,} episodes, {explored:,} explored; "
        f"hidden states after updates {moments}; checksums are right"
    )


def table(recording: Recording) -> Table:
    """How far the rule of the recording explains what was practised."""
    threshold, names = recording.about["threshold"], recording.about["categories"]
    title = f"Exploited draws: practised / by |now - delayed| of at least {threshold:g}"
    rows = []
    for (first, last), part in compared(recording, recorded_rule(recording)).groupby(
        ["first", "last"], sort=False
    ):
        cells = [
            f"{each.practised:.3f} / {each.by_rule:.3f}" if each.draws else ""
            for each in part.itertuples()
        ]
        rows.append([f"{first} to {last}", str(part["draws"].iloc[0]), *cells])
    return Table(title, ["updates", "draws", *names], rows)
