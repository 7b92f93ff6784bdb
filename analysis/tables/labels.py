"""Labels of samplers, variants, estimators, scores and splits in figures and tables.

Those of samplers and estimators come from their registries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from analysis.tables.grid import Algorithm
from magellan.competence import ESTIMATORS
from magellan.core.errors import InputError, shown
from magellan.samplers import SAMPLERS
from magellan.worlds import DEFAULT_WORLD, WORLDS, Categories, Category

LONGEST = 34
SPLIT_LABELS = {"train": "Training goals", "unseen": "Unseen goals"}
SCORE_LABELS = {"final": "Success at the end", "area": "Mean success over training"}


class Algorithms(tuple[Algorithm, ...]):
    """Algorithms of an experiment, with labels of its variants by VARIANT or SAMPLER/VARIANT."""

    variants: Mapping[str, str]

    def __new__(cls, algorithms: Iterable[Algorithm], variants: Mapping[str, str]) -> Algorithms:
        instance = super().__new__(cls, algorithms)
        instance.variants = variants
        return instance


def variant_labels(algorithms: Sequence[Algorithm]) -> Mapping[str, str]:
    """Labels of the variants of an experiment's algorithms (`analysis.labels`)."""
    return algorithms.variants if isinstance(algorithms, Algorithms) else {}


def sampler_label(name: str) -> str:
    """Label of a sampler; its name if it is not registered, because its file is absent."""
    return shorten(SAMPLERS[name].label if name in SAMPLERS else name)


def estimator_label(name: str) -> str:
    """Label of an estimator; that of the sampler if the sampler brings its own."""
    return shorten(ESTIMATORS[name].label) if name in ESTIMATORS else sampler_label(name)


def algorithm_label(algorithm: Algorithm, algorithms: Sequence[Algorithm]) -> str:
    """Label of an algorithm, with its variant if its sampler has several.

    A long label is shortened, unless that makes it ambiguous.
    """
    full = {a: _full_label(a, algorithms, a.variant) for a in (algorithm, *algorithms)}
    short = shorten(full[algorithm])
    unique = [shorten(label) for label in full.values()].count(short) == 1
    return short if unique else full[algorithm]


def figure_label(algorithm: Algorithm, algorithms: Sequence[Algorithm]) -> str:
    """The label in figures, where `analysis.labels` replaces the name of a variant."""
    variants = variant_labels(algorithms)
    label = variants.get("/".join(algorithm), variants.get(algorithm.variant))
    if label is None:
        return algorithm_label(algorithm, algorithms)
    return _full_label(algorithm, algorithms, label)


def _full_label(algorithm: Algorithm, algorithms: Sequence[Algorithm], variant: str) -> str:
    label = sampler_label(algorithm.sampler)
    alone = sum(entry.sampler == algorithm.sampler for entry in algorithms) < 2
    return label if alone else f"{label}, {variant}"


def shorten(text: str) -> str:
    """Text shortened in the middle to `LONGEST` characters."""
    if len(text) <= LONGEST:
        return text
    end = LONGEST // 2 - 1
    return f"{text[: LONGEST - end - 1]}…{text[-end:]}"


# --- categories of the world of the runs ---


def categories_of(manifest: Mapping[str, Any]) -> Categories:
    """Categories of the world of a run.

    Args:
        manifest: the run's manifest, validated.

    Raises:
        InputError: the world is neither registered nor described in the manifest.
    """
    name = manifest["config"].get("world", DEFAULT_WORLD)
    if name in WORLDS:
        return WORLDS[name].categories
    world = manifest.get("world") or {}
    if world.get("name") != name:
        raise InputError(
            f"world: {shown(name)} is unknown, and the run does not list its categories; allowed: "
            f"{', '.join(WORLDS)}"
        )
    return Categories(
        Category(**{key: entry[key] for key in ("name", "feasible", "label", "color")})
        for entry in world["categories"]
    )
