"""Recordings of runs, and open-loop replay of a sampling rule on their predictions.

Open loop: the rule's draws have no effect on the recorded agent.
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

from analysis.tables.printing import Table
from analysis.tables.reading import read_columns
from analysis.tables.results import TableSpec
from magellan.core.columns import COLUMNS
from magellan.core.errors import InputError, shown
from magellan.samplers.signals import absolute_learning_progress
from magellan.training.recording import CHECKSUMS, FORMAT, PREDICTIONS, RECORDED

Rule = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(now, delayed), float64 (goals,) each -> weights (goals,), none negative."""
PARTS = 8
"""Parts of a run in the table."""
VECTORS = "vectors_"
WRITES = "allowed: what a run with budget.record_predictions: true has written"


class Recording(NamedTuple):
    """The recording of a run with `budget.record_predictions`, see docs/runs.md.

    header: metadata of the run.
    updates: int64 (refreshes,), policy update after which each refresh took place.
    now, delayed: float16 (refreshes, goals).
    codes, categories: of each goal; categories are indices of `header["categories"]`.
    vectors: float16 (goals, width) by update.
    episodes: columns of outcomes.csv, and `number`, the index of the category.
    """

    header: dict[str, Any]
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
        InputError: a file is missing, or not as the run wrote it.
    """
    _check(folder)
    path = folder / PREDICTIONS
    try:
        header, arrays = _read_predictions(path)
        names = [name for name in arrays if name.startswith(VECTORS)]
        vectors = {int(name.removeprefix(VECTORS)): arrays.pop(name) for name in names}
        episodes = _read_episodes(folder / "outcomes.csv", header["categories"])
        recording = Recording(header=header, vectors=vectors, episodes=episodes, **arrays)
        shape = len(recording.updates), len(recording.codes)
        last = shape[0], len(recording.categories)
        shapes = {recording.now.shape, recording.delayed.shape, last}
        if header["format"] != FORMAT or shapes != {shape}:
            raise ValueError(f"format {header['format']}, shapes {shapes}")
    except InputError:
        raise
    except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
        raise InputError(f"{path}: cannot be read ({shown(error)}); {WRITES}") from None
    return recording


def _check(folder: Path) -> None:
    """Refuse files that differ from their SHA-256, and other checksums than those of a run."""
    text = _content(folder / CHECKSUMS).decode(errors="replace")
    lines = [line.split("  ") for line in text.splitlines()]
    if [line[1:] for line in lines] != [[name] for name in RECORDED]:
        raise InputError(
            f"{folder / CHECKSUMS}: not the checksums of {' and '.join(RECORDED)}; {WRITES}"
        )
    for expected, name in lines:
        digest = hashlib.sha256(_content(folder / name)).hexdigest()
        if digest != expected:
            raise InputError(
                f"{folder / name}: its SHA-256 begins with {digest[:12]}, in {CHECKSUMS} with "
                f"{shown(expected[:12])}; {WRITES}"
            )


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: file is missing; {WRITES}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def _read_predictions(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays."""
    with safe_open(path, framework="np") as file:
        header = json.loads(file.metadata()["recording"])
        return header, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def _read_episodes(path: Path, names: list[str]) -> pd.DataFrame:
    episodes = read_columns(path, TableSpec(COLUMNS["outcomes"], ()))
    numbers = pd.Categorical(episodes["category"], names).codes
    for row in np.flatnonzero(numbers < 0)[:1]:
        category = shown(episodes["category"].iloc[row])
        raise InputError(
            f"{path}: line {row + 2}: category is {category}; allowed: {', '.join(names)}"
        )
    return episodes.assign(number=numbers)


def recorded_rule(recording: Recording) -> Rule:
    """Absolute learning progress with the run's own threshold."""
    return partial(absolute_learning_progress, threshold=float(recording.header["threshold"]))


def shares(recording: Recording, rule: Rule) -> np.ndarray:
    """Share of draws of each category after each refresh, (refreshes, categories).

    If all weights are 0, draws are uniform over the goals, as a sampler's are.
    """
    rows = []
    for now, delayed in zip(recording.now, recording.delayed, strict=True):
        weights = rule(now.astype(np.float64), delayed.astype(np.float64))
        weights = weights if weights.any() else np.ones(len(now))
        totals = np.bincount(recording.categories, weights, len(recording.header["categories"]))
        rows.append(totals / weights.sum())
    return np.array(rows)


def compare_draws(recording: Recording, rule: Rule) -> pd.DataFrame:
    """Exploited draws of the run beside the draws of a rule, as shares of each category.

    For each part of the run and for all of it (the last): columns first and last (updates), draws,
    category, practised, by_rule. A draw belongs to the refresh before the update after which its
    episode ended.
    """
    episodes = recording.episodes
    drawn = episodes[episodes["explored"] == 0]
    refresh = np.searchsorted(recording.updates, drawn["update"]) - 1
    names = recording.header["categories"]
    by_rule = pd.DataFrame(shares(recording, rule)[refresh], columns=names)
    practised = pd.DataFrame(np.eye(len(names))[drawn["number"]], columns=names)
    end = int(episodes["update"].max()) if len(episodes) else 0
    parts = []
    for first, last in [*_parts(end), (1, end)]:
        inside = drawn["update"].between(first, last).to_numpy()
        means = {"practised": practised[inside].mean(), "by_rule": by_rule[inside].mean()}
        where = {"first": first, "last": last, "draws": inside.sum(), "category": names}
        parts.append(pd.DataFrame({**where, **means}))
    return pd.concat(parts, ignore_index=True)


def _parts(end: int) -> list[tuple[int, int]]:
    """First and last update of each part."""
    ends = [end * part // PARTS for part in range(PARTS + 1)]
    return [(previous + 1, last) for previous, last in itertools.pairwise(ends)]


def describe(recording: Recording) -> str:
    """A summary of the recording in one sentence."""
    episodes = recording.episodes
    explored = int((episodes["explored"] == 1).sum())
    moments = ", ".join(map(str, sorted(recording.vectors)))
    return (
        f"{recording.header['identity']}: {len(recording.updates)} refreshes of "
        f"{len(recording.codes):,} goals, {len(episodes):,} episodes, {explored:,} explored; "
        f"hidden states after updates {moments}; checksums are right"
    )


def table(recording: Recording) -> Table:
    """The exploited draws of a run beside those of its own rule."""
    threshold, names = recording.header["threshold"], recording.header["categories"]
    title = f"Exploited draws: practised / by |now - delayed| of at least {threshold:g}"
    rows = []
    for (first, last), part in compare_draws(recording, recorded_rule(recording)).groupby(
        ["first", "last"], sort=False
    ):
        cells = [
            f"{row.practised:.3f} / {row.by_rule:.3f}" if row.draws else ""
            for row in part.itertuples()
        ]
        rows.append([f"{first} to {last}", str(part["draws"].iloc[0]), *cells])
    return Table(title, ["updates", "draws", *names], rows)
