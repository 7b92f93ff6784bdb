"""How often an experiment of a given size would get the order of a reference study right.

A small experiment shows an order of two samplers that another, with other seeds, may turn round.
Where a larger study of the same two has been made, its runs say how often: draw as many runs of
each as the small experiment has, and look at the sign.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from analysis.statistics.matrices import evaluation_points
from analysis.statistics.power import order_chance
from analysis.statistics.primary import run_means
from analysis.tables.grid import Algorithm
from analysis.tables.results import Results


class Order(NamedTuple):
    """What a reference study says of two algorithms.

    difference: of their mean primary metric there, the first minus the second.
    runs: how many runs it has of each.
    chance: share of experiments of the asked size whose difference has the same sign; equal means
        count one half.
    """

    difference: float
    runs: tuple[int, int]
    chance: float


def order_in(
    study: Results,
    results: Results,
    pair: tuple[Algorithm, Algorithm],
    goal_space: str,
    split: str,
) -> Order | None:
    """What `study` says of two algorithms of `results`, for an experiment of the size of `results`.

    The algorithms are found by what they are (every value that counts, but the seed and how long
    and how often runs are looked at), not by the name of their variant. The study's runs count up
    to the length of those of `results`. None where the study lacks one of them, has no evaluation
    at that length, or they are equal in it.
    """
    if goal_space not in study.goal_spaces or study.unit != results.unit:
        return None
    length = evaluation_points(results, goal_space)[-1]
    if length not in evaluation_points(study, goal_space):
        return None
    study = _until(study, length)
    found = [_same(study, results, algorithm, goal_space) for algorithm in pair]
    if None in found:
        return None
    means = [run_means(study, each, goal_space, split) for each in found if each is not None]
    difference = float(means[0].mean() - means[1].mean())
    if difference == 0.0:
        return None
    if difference < 0.0:
        pair, means = pair[::-1], means[::-1]
    first, second = (len(results.seeds_of(algorithm, goal_space)) for algorithm in pair)
    chance = order_chance(means[0], means[1], (first, second))
    runs = tuple(len(study.seeds_of(each, goal_space)) for each in found if each is not None)
    return Order(difference, (runs[0], runs[1]), chance)


def _same(
    study: Results, results: Results, algorithm: Algorithm, goal_space: str
) -> Algorithm | None:
    """The algorithm of the study that is what this one is."""
    wanted = _counted(results, algorithm, goal_space)
    for each in study.algorithms_in(goal_space):
        if each.sampler == algorithm.sampler and _counted(study, each, goal_space) == wanted:
            return each
    return None


def _counted(results: Results, algorithm: Algorithm, goal_space: str) -> Mapping[str, Any]:
    """Every value that counts for how the runs of an algorithm learn, but the seed."""
    place = {**algorithm._asdict(), "goal_space": goal_space}
    run = next(
        manifest
        for manifest in results.manifest["runs"]
        if all(manifest[key] == value for key, value in place.items())
    )
    return {
        key: value
        for key, value in run["counted"].items()
        if key != "seed" and not key.startswith("budget.")
    }


def _until(study: Results, length: float) -> Results:
    """The study as it would be, had its runs ended there."""
    evaluation = study.tables["evaluation"]
    cut = evaluation[evaluation[study.at] <= length]
    return Results({**study.tables, "evaluation": cut}, study.manifest)
