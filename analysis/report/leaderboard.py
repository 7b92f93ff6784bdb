"""The leaderboard: every rule in every place that has committed tables, and a card of each rule.

Nothing is trained and no number is typed in: rows come from `results/reference`, cards from the
registry of samplers. A rule that has no interval in a place (one seed) has no row there.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from analysis.statistics.intervals import Matrix
from analysis.statistics.standing import LEVEL, Interval, Standing, scores_of, standings
from analysis.studies import axes
from analysis.tables import store
from analysis.tables.grid import Algorithm, reference_algorithm
from analysis.tables.printing import between, head, row
from analysis.tables.results import Results
from magellan.competence import ESTIMATORS
from magellan.core.errors import InputError
from magellan.core.files import write_atomically, write_table
from magellan.core.registry import is_built_in
from magellan.core.settings import NoSettings, Section
from magellan.samplers import SAMPLERS, SamplerSpec
from magellan.samplers.conformance import make, track_of
from magellan.worlds import WORLDS

BEGIN, END = "<!-- begin: leaderboard -->", "<!-- end: leaderboard -->"
BLOCK = re.compile(f"{BEGIN}\n(.*?){END}", re.DOTALL)
FLOOR, CEILINGS = "random", ("oracle", "scripted")
TABLES = ("samplers", "default")
"""Folders of combined tables; each is a place. Those of the first learner are left out."""
SIMULATED = "axes"
COLUMNS = (
    *("rule", "world", "track", "success", "success_low", "success_high"),
    *("gain", "gain_low", "gain_high", "p_floor", "regret", "regret_low", "regret_high"),
    *("p_best", "n", "seconds", "estimation_episodes", "date", "version", "tables"),
)


class Place(NamedTuple):
    """Where rules were compared: the world and how long, and by rule the numbers of the seeds,
    (seeds,), the cost (seconds of a run, episodes to estimate alone) and the track.
    """

    world: str
    scores: Mapping[str, Matrix]
    costs: Mapping[str, tuple[float, float]]
    tracks: Mapping[str, str]
    date: str
    version: str
    folder: str


Row = tuple[Standing, Place]
"""A rule in a place."""


def rows(reference: Path) -> list[Row]:
    """All rows, a place after the other, the best rule of a place first."""
    places = [*map(_of_runs, (reference / name for name in TABLES)), _simulated(reference)]
    return [(standing, place) for place in places for standing in _ranked(place)]


def _ranked(place: Place) -> list[Standing]:
    ceiling = next((name for name in CEILINGS if name in place.scores), None)
    return standings(place.scores, place.tracks, FLOOR, ceiling)


def _of_runs(folder: Path) -> Place:
    """The variant that an experiment's reference has, on its first goal space."""
    results = store.load(folder)
    scores = {rule: each for rule, each in scores_of(results).items() if len(each) > 1}
    variant = reference_algorithm(results.experiment).variant
    runs = results.manifest["runs"]
    name = runs[0]["world"]["name"]
    world = WORLDS.get(name)
    length = f"{max(run['steps'] for run in runs):,} steps"
    return Place(
        f"{world.label if world else name}, {length}",
        scores,
        {rule: _cost(results, Algorithm(rule, variant)) for rule in scores},
        {name: track_of(name) for name in scores},
        max(run["finished"] for run in runs)[:10],
        ", ".join(sorted({run["code_version"] for run in runs})),
        folder.name,
    )


def _cost(results: Results, algorithm: Algorithm) -> tuple[float, float]:
    """Seconds of a whole run, and episodes that its driver had played only to estimate."""
    mine = [run for run in results.manifest["runs"] if run["sampler"] == algorithm.sampler]
    mine = [run for run in mine if run["variant"] == algorithm.variant]
    episodes = [run["estimation_episodes"].get(run["driver"], 0) for run in mine]
    return float(np.mean([run["wall_seconds"] for run in mine])), float(np.mean(episodes))


def _simulated(reference: Path) -> Place:
    """The base of the axes of difficulty."""
    found = axes.load(reference / SIMULATED / "axes.csv")
    rows = axes.place(found).dropna(subset="success").sort_values("seed")
    groups = list(rows.groupby("sampler", sort=False))
    tracks = dict(zip(rows["sampler"], rows["track"], strict=True))
    return Place(
        "Simulated learner",
        {str(name): each["success"].to_numpy() for name, each in groups},
        {
            str(name): (each["seconds"].mean(), each["estimation_episodes"].mean())
            for name, each in groups
        },
        {rule: track for rule, track in tracks.items() if rule != axes.CEILING},
        str(found.about["finished"])[:10],
        str(found.about["code_version"]),
        SIMULATED,
    )


# --- the table ------------------------------------------------------------------------------------


def cells(each: Row) -> list[str]:
    """A row of the CSV, in the order of `COLUMNS`; what does not exist is empty."""
    standing, place = each
    parts = (standing.success, standing.gain, standing.regret)
    success, gain, regret = (
        ["", "", ""] if part is None else [f"{number:.4f}" for number in part] for part in parts
    )
    chances = ["" if np.isnan(p) else f"{p:.4g}" for p in (standing.p_floor, standing.p_best)]
    cost = [f"{number:.4g}" for number in place.costs[standing.rule]]
    named = [standing.rule, place.world, standing.track]
    numbers = [*success, *gain, chances[0], *regret, chances[1], str(standing.n), *cost]
    return [*named, *numbers, place.date, place.version, place.folder]


def write(found: Sequence[Row], path: Path, numbers: Path) -> None:
    """The block `leaderboard` of a page, and all numbers as CSV.

    Raises:
        InputError: the page is missing or has no such block.
    """
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    parts = BLOCK.split(text)
    if len(parts) != 3:
        raise InputError(f"--page: {path} has no block `leaderboard`; allowed: a page with one")
    write_atomically(path, f"{parts[0]}{BEGIN}\n{page(found)}\n{END}{parts[2]}".encode())
    write_table(numbers, COLUMNS, map(cells, found))


def page(found: Sequence[Row]) -> str:
    """Tables of the places, each with its tracks, and the cards, in Markdown."""
    parts = [_of_place(place, found) for place in dict.fromkeys(place.world for _, place in found)]
    return "\n\n".join([*parts, "## Cards", *map(card, SAMPLERS)])


def _of_place(world: str, found: Sequence[Row]) -> str:
    mine = [each for each in found if each[1].world == world]
    place = mine[0][1]
    header = ["rule", "success over training", "over `random`", "p", "behind the ceiling"]
    header += ["level with the track's best", "n", "seconds", "episodes to estimate"]
    lines = [f"### {world}", ""]
    lines += [f"{place.date}, version {place.version}, tables `results/reference/{place.folder}`."]
    for track in dict.fromkeys(standing.track for standing, _ in mine):
        lines += ["", f"Track: **{track}**.", "", *head(header)]
        lines += [row(_shown(each)) for each in mine if each[0].track == track]
    return "\n".join(lines)


def _shown(each: Row) -> list[str]:
    standing, place = each
    p = standing.p_floor
    seconds, episodes = place.costs[standing.rule]
    level = "best" if np.isnan(standing.p_best) else "no" if standing.p_best < LEVEL else "yes"
    return [
        f"[`{standing.rule}`](#{standing.rule})",
        _with_ends(standing.success, ".2f"),
        _with_ends(standing.gain, "+.2f"),
        "" if np.isnan(p) else "< .001" if p < 0.001 else f"{p:.3f}".removeprefix("0"),
        _with_ends(standing.regret, ".2f") or "not run",
        level,
        str(standing.n),
        f"{seconds:.2g}" if seconds < 1 else f"{seconds:.0f}",
        f"{episodes:,.0f}",
    ]


def _with_ends(interval: Interval | None, form: str) -> str:
    if interval is None:
        return ""
    return f"{interval.value:{form}} ({between(interval.low, interval.high, form)})"


# --- cards ----------------------------------------------------------------------------------------


def card(name: str) -> str:
    """What a rule is: its description, what it needs, source, constants and command."""
    spec, sampler = SAMPLERS[name], make(name)
    module = inspect.getdoc(sys.modules[spec.build.__module__]) or spec.label
    needs = [f"track: {track_of(name)}"]
    needs += [f"estimator: `{spec.estimator}`"] * (spec.estimator is not None)
    needs += ["the advantage of each episode"] * sampler.wants_advantage
    constants = [*_constants(spec.section, spec.settings)]
    if spec.estimator is not None:
        estimator = ESTIMATORS[spec.estimator]
        constants += _constants(estimator.section, estimator.settings)
    constants += ["`samplers.epsilon_*`: exploration, shared"] * spec.epsilon
    text = [f"### {name}", module, inspect.getdoc(spec.build) or ""]
    text += [f"Needs: {'; '.join(needs)}. Source: {_source(spec)}."]
    text += ["\n".join(f"- {each}" for each in constants)] * bool(constants)
    return "\n\n".join(filter(None, [*text, f"    python -m magellan train --sampler {name}"]))


def _constants(section: str, settings: type[Section]) -> Iterator[str]:
    """Each constant with its default and meaning."""
    if settings is not NoSettings:
        for key, field in settings.model_fields.items():
            default: Any = field.default
            yield f"`{section}.{key}` = {default!r}: {field.description}"


def _source(spec: SamplerSpec) -> str:
    file = Path(spec.source)
    if not is_built_in(spec):
        return f"`{file.name}`"
    name = file.relative_to(Path(__file__).parents[2]).as_posix()
    return f"[`{name}`](../{name})"
