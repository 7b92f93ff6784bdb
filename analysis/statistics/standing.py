"""Rank rules in one place: against a floor, a ceiling and the best rule of their track.

A place is a world with its budget, or a point on an axis of difficulty. Every rule has one score
per seed, and seeds are paired. A track holds rules with the same information; Holm's correction
goes over its rules, separately for tests against the floor and against the track's best.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis.statistics.contrasts import BOOTSTRAP
from analysis.statistics.intervals import (
    Interval,
    Matrix,
    Tested,
    holm,
    mean_interval,
    sign_flip_test,
)
from analysis.statistics.primary import run_means
from analysis.tables.grid import reference_algorithm
from analysis.tables.printing import LEVEL, Table, chance, interval_cell
from analysis.tables.results import Results
from magellan.core.errors import InputError


class Standing(NamedTuple):
    """A rule in one place; p values are Holm-corrected."""

    rule: str
    track: str
    n: int  # seeds
    success: Interval  # mean over seeds
    gain: Interval | None  # the rule minus the floor; None for the floor itself
    regret: Interval | None  # the ceiling minus the rule; None without a ceiling
    p_floor: float  # of the gain; NaN for the floor
    p_best: float  # of the difference to the track's best rule; NaN for that rule

    @property
    def verdict(self) -> str:
        """`ahead` of the floor, `behind` it, or `equal`: not told apart."""
        if self.gain is None or not self.p_floor < LEVEL:
            return "equal"
        return "ahead" if self.gain.value > 0 else "behind"


def scores_of(
    results: Results, seeds: Collection[int] | None = None, split: str = "train", variant: str = ""
) -> dict[str, pd.Series]:
    """Mean success over training, by sampler: (seeds,), by increasing seed.

    In the first goal space.

    seeds: use only these; None: all.
    split: of the goals.
    variant: empty: that of the experiment's reference.
    """
    variant = variant or reference_algorithm(results.experiment).variant
    space = results.goal_spaces[0]
    scores = {}
    for algorithm in results.algorithms_in(space):
        if algorithm.variant == variant:
            means = run_means(results, algorithm, space, split).sort_index()
            scores[algorithm.sampler] = means if seeds is None else means[means.index.isin(seeds)]
    return scores


def standings(
    by_seed: Mapping[str, pd.Series],
    tracks: Mapping[str, str],
    floor: str,
    ceiling: str | None = None,
) -> list[Standing]:
    """Every rule of a place, best first; a ceiling without a track is not listed.

    Args:
        by_seed: scores of each rule, (seeds,), indexed by seed.
        tracks: track of each rule.
        floor, ceiling: names of the lower and upper references.

    Raises:
        InputError: seeds differ or are one, or the floor is missing.
    """
    seeds = {rule: values.index.tolist() for rule, values in by_seed.items()}
    if floor not in seeds or any(s != seeds[floor] or len(s) < 2 for s in seeds.values()):
        raise InputError(
            f"standings: seeds {seeds} are not allowed; allowed: the same two or more of each "
            f"sampler, {floor} among them"
        )
    scores: dict[str, Matrix] = {rule: values.to_numpy() for rule, values in by_seed.items()}

    def lead(rule: str, rival: str) -> Tested | None:
        return None if rule == rival else sign_flip_test(scores[rule] - scores[rival])

    ranked = []
    for track in dict.fromkeys(tracks.values()):
        rules = [rule for rule in scores if tracks.get(rule) == track]
        best = max(rules, key=lambda rule: scores[rule].mean())
        leads = [[lead(rule, rival) for rule in rules] for rival in (floor, best)]
        p_values = [holm([np.nan if one is None else one.p for one in each]) for each in leads]
        for rule, gain, *p in zip(rules, leads[0], *p_values, strict=True):
            lost = lead(ceiling, rule) if ceiling is not None and ceiling in scores else None
            success = mean_interval(scores[rule], BOOTSTRAP)
            intervals = success, gain and gain.interval, lost and lost.interval
            ranked.append(Standing(rule, track, len(scores[rule]), *intervals, *map(float, p)))
    return sorted(ranked, key=lambda standing: -standing.success.value)


def table(caption: str, ranked: Sequence[Standing]) -> Table:
    """Standings as a table: success, lead over the floor, p against the floor and the best."""
    rows = [
        [
            f"`{standing.rule}`",
            standing.track,
            f"{standing.success.value:.3f} ({interval_cell(*standing.success[1:], '.3f')})",
            ""
            if standing.gain is None
            else f"{standing.gain.value:+.3f} ({interval_cell(*standing.gain[1:])})",
            *map(chance, (standing.p_floor, standing.p_best)),
            str(standing.n),
        ]
        for standing in ranked
    ]
    header = ["sampler", "track", "success", "over the floor", "p", "p, track's best", "n"]
    return Table(caption, header, rows)
