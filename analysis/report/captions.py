"""What the captions of the report say about the tables: numbers of seeds, names, intervals."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from analysis.tables.grid import (
    Algorithm,
    Run,
    number_text,
    reference_algorithm,
    seeds_by_algorithm,
)
from analysis.tables.labels import Algorithms, Names, figure_label, sampler_label
from analysis.tables.units import UNIT_LABELS, UNIT_WORDS, unit_of_experiment


def numbers(runs: Iterable[Run], missing: int, experiment: Mapping[str, Any]) -> dict[str, Any]:
    """How much tables rest on, as plain values for the captions.

    Args:
        runs: those that are there.
        missing: how many of the grid are not.
        experiment: configuration of the grid.

    Returns:
        complete and declared runs; labels of the reference and of its sampler, and of what training
        is counted in, on the x axis (`across`) and in a sentence (`unit`); for each goal space
        `n` seeds in words, the fewest and the most, and `reference_n`, that of the reference's
        sampler.
    """
    listed = list(runs)
    reference, unit = reference_algorithm(experiment), unit_of_experiment(experiment)
    names = Names(variants=experiment["analysis"].get("labels") or {})
    algorithms = Algorithms(dict.fromkeys(run.algorithm for run in listed), names)
    return {
        "complete": len(listed),
        "declared": len(listed) + missing,
        "reference": _plain(figure_label(reference, algorithms)),
        "across": UNIT_LABELS[unit],
        "unit": UNIT_WORDS[unit],
        "reference_sampler": _plain(sampler_label(reference.sampler)),
        "goal_spaces": {
            name: _of_goal_space(seeds, reference)
            for name, seeds in seeds_by_algorithm(listed).items()
        },
    }


def _plain(label: str) -> str:
    """A name in reStructuredText: `small_` is no link."""
    return re.sub(r"([\\*`|_])", r"\\\1", label)


def as_plain_text(text: str) -> str:
    """Text whose paragraphs look in a caption as they are written: no mark in it has a meaning."""
    lines = [re.sub(r"([^\w\s]|_)", r"\\\1", line.strip()) for line in text.splitlines()]
    return "\n".join(lines)


def _of_goal_space(seeds: Mapping[Algorithm, list[int]], reference: Algorithm) -> dict[str, Any]:
    counts = {algorithm: len(listed) for algorithm, listed in seeds.items()}
    own = [count for algorithm, count in counts.items() if algorithm.sampler == reference.sampler]
    return {
        "n": number_text(counts.values()),
        "fewest": min(counts.values()),
        "most": max(counts.values()),
        "reference_n": number_text(own) if own else "0",
    }


def facts(experiment: Mapping[str, Any]) -> dict[str, str]:
    """What the captions say about intervals."""
    settings = experiment["analysis"]
    return {
        "confidence": f"{settings['confidence']:.0%}",
        "resamples": f"{settings['bootstrap_repetitions']:,}",
    }
