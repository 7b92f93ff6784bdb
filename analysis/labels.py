"""What samplers, estimators, scores and splits are called in figures and tables to read.

Names of the first two come from their registries. Tables may be about one that is not registered
here, because the file that adds it is not at hand: then the name itself stands for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from analysis.grid import Algorithm
from magellan.competence import ESTIMATORS
from magellan.samplers import SAMPLERS

LONGEST = 34
SPLIT_LABELS = {"train": "Training goals", "unseen": "Unseen goals"}
SCORE_LABELS = {"final": "Success at the end", "area": "Mean success over training"}


def sampler_label(name: str) -> str:
    """Name of a sampler for readers."""
    return shortened(SAMPLERS[name].label if name in SAMPLERS else name)


def estimator_label(name: str) -> str:
    """Name of an estimator for readers; one that a sampler brings itself has the sampler's."""
    if name in ESTIMATORS:
        return shortened(ESTIMATORS[name].label)
    return sampler_label(name)


def algorithm_label(algorithm: Algorithm, algorithms: Sequence[Algorithm]) -> str:
    """Name of an algorithm among others; with its variant where its sampler has several.

    A long one is shortened, unless that makes it the same as another.
    """
    full = {each: _full(each, algorithms) for each in (algorithm, *algorithms)}
    short = shortened(full[algorithm])
    alike = [each for each in full if shortened(full[each]) == short]
    return short if alike == [algorithm] else full[algorithm]


def _full(algorithm: Algorithm, algorithms: Sequence[Algorithm]) -> str:
    label = sampler_label(algorithm.sampler)
    alone = sum(other.sampler == algorithm.sampler for other in algorithms) < 2
    return label if alone else f"{label}, {algorithm.variant}"


def shortened(text: str, longest: int = LONGEST) -> str:
    """A name with its middle left out where it has more letters than there is room for."""
    if len(text) <= longest:
        return text
    end = longest // 2 - 1
    return f"{text[: longest - end - 1]}…{text[-end:]}"
