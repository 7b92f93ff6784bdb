"""How rules stand in one place: ahead of the floor, behind the ceiling, told apart from the best.

A place is a world with its budget, or a point on an axis of difficulty. Every rule has one number
of each seed, and seeds are paired. A track holds rules that are told equally much; Holm's
correction goes over its rules, once for the tests against the floor and once for those against the
track's best.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from analysis.statistics.comparison import BOOTSTRAP, mean_difference
from analysis.statistics.intervals import Matrix, holm, mean_estimate, sign_flip_test
from analysis.statistics.primary import run_means
from analysis.tables.grid import reference_algorithm
from analysis.tables.printing import Table, between
from analysis.tables.results import Results
from magellan.core.errors import InputError

LEVEL = 0.05


class Interval(NamedTuple):
    """An estimate and its interval; bounds are the value itself where all seeds are equal."""

    value: float
    low: float
    high: float


class Standing(NamedTuple):
    """A rule in one place.

    Attributes:
        rule, track: which rule it is, and its track.
        n: seeds.
        success: mean of the seeds.
        gain: the rule minus the floor; None of the floor itself.
        regret: the ceiling minus the rule; None without a ceiling.
        p_floor: of the gain, after Holm's correction; NaN of the floor.
        p_best: of the difference to the best rule of the track, likewise; NaN of the best itself.
    """

    rule: str
    track: str
    n: int
    success: Interval
    gain: Interval | None
    regret: Interval | None
    p_floor: float
    p_best: float

    @property
    def verdict(self) -> str:
        """`ahead` of the floor, `behind` it, or `equal`: not told apart."""
        if self.gain is None or not self.p_floor < LEVEL:
            return "equal"
        return "ahead" if self.gain.value > 0 else "behind"


def scores_of(results: Results, seeds: Collection[int] | None = None) -> dict[str, Matrix]:
    """Mean success over training by sampler, (seeds,) in increasing order, on training goals.

    Of the first goal space and of the variant that the experiment's reference has.

    seeds: of these alone; None: of all.
    """
    variant, space = reference_algorithm(results.experiment).variant, results.goal_spaces[0]
    found = {}
    for each in results.algorithms_in(space):
        if each.variant == variant:
            by_seed = dict(
                zip(
                    results.seeds_of(each, space),
                    run_means(results, each, space, "train").tolist(),
                    strict=True,
                )
            )
            listed = sorted(by_seed.keys() & set(by_seed if seeds is None else seeds))
            found[each.sampler] = np.array([by_seed[seed] for seed in listed])
    return found


def standings(
    scores: Mapping[str, Matrix], tracks: Mapping[str, str], floor: str, ceiling: str | None = None
) -> list[Standing]:
    """Every rule of a place, the best first; a ceiling that has no track is no rule.

    Args:
        scores: a number of each seed by rule, (seeds,), the same seeds in the same order.
        tracks: of the rules.
        floor, ceiling: what they are measured by.

    Raises:
        InputError: numbers of seeds differ, there is one only, or the floor is missing.
    """
    counts = {rule: len(values) for rule, values in scores.items()}
    if floor not in scores or len(set(counts.values())) > 1 or counts[floor] < 2:
        raise InputError(
            f"standings: seeds {counts} are not allowed; allowed: the same two or more of each "
            f"rule, {floor} among them"
        )
    found = []
    for track in dict.fromkeys(tracks.values()):
        mine = [rule for rule in scores if tracks.get(rule) == track]
        best = max(mine, key=lambda rule: scores[rule].mean())
        p_floor, p_best = (_corrected(scores, mine, other) for other in (floor, best))
        for rule in mine:
            gain = None if rule == floor else _difference(scores[rule], scores[floor])
            above = ceiling in scores and rule != ceiling
            regret = _difference(scores[str(ceiling)], scores[rule]) if above else None
            mean = _mean(scores[rule])
            chances = p_floor[rule], p_best[rule]
            found.append(Standing(rule, track, counts[rule], mean, gain, regret, *chances))
    return sorted(found, key=lambda each: -each.success.value)


def _corrected(scores: Mapping[str, Matrix], rules: Sequence[str], other: str) -> dict[str, float]:
    """p of each rule against another one after Holm's correction; NaN of that one itself."""
    p = [
        np.nan if rule == other else sign_flip_test(scores[rule] - scores[other], BOOTSTRAP.seed).p
        for rule in rules
    ]
    return dict(zip(rules, holm(np.array(p)).tolist(), strict=True))


def _mean(values: Matrix) -> Interval:
    found = mean_estimate(values[:, None], BOOTSTRAP)
    return Interval(*(float(each[0]) for each in (found.value, found.low, found.high)))


def _difference(ours: Matrix, theirs: Matrix) -> Interval:
    value, interval = mean_difference(ours - theirs)
    return Interval(value, *(interval or (value, value)))


def table(caption: str, found: Sequence[Standing]) -> Table:
    """Standings to read: success, its lead over the floor, and p after Holm's correction."""
    rows = [
        [
            f"`{each.rule}`",
            each.track,
            f"{each.success.value:.3f} ({between(*each.success[1:], '.3f')})",
            "" if each.gain is None else f"{each.gain.value:+.3f} ({between(*each.gain[1:])})",
            "" if np.isnan(each.p_floor) else f"{each.p_floor:.3f}",
            str(each.n),
        ]
        for each in found
    ]
    return Table(caption, ["rule", "track", "success", "over the floor", "p", "n"], rows)
