"""Labels of samplers, variants, estimators, scores and splits in figures and tables.

Labels of samplers and estimators come from their registries. One that is not registered, because
the file that adds it is absent, gets its label from its run's manifest; in older runs its name is
its label.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analysis.tables.grid import Algorithm
from magellan.competence import ESTIMATORS
from magellan.core.errors import InputError, shown
from magellan.core.registry import Look
from magellan.samplers import SAMPLERS
from magellan.worlds import DEFAULT_WORLD, WORLDS, Categories, Category

LONGEST = 34
SPLIT_LABELS = {"train": "Training goals", "unseen": "Unseen goals"}
SCORE_LABELS = {"final": "Success at the end", "area": "Mean success over training"}
# Allowed in labels from a manifest, which is untrusted: no control characters, HTML or LaTeX math.
SAFE = re.compile(r"[^\x00-\x1f\x7f-\x9f<>{}$\\]{1,100}")


@dataclass(frozen=True)
class Names:
    """Labels from an experiment and its manifests.

    Attributes:
        registered: kind (`sampler`, `estimator`) -> name -> its entry in the manifest
            (`magellan.core.registry.as_registered`).
        variants: labels of variants by VARIANT or SAMPLER/VARIANT.
    """

    registered: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    variants: Mapping[str, str] = field(default_factory=dict)

    def label(self, kind: str, name: str) -> str:
        """Label of an unregistered sampler or estimator, or its name."""
        label = self._entry(kind, name).get("label")
        return label if isinstance(label, str) and SAFE.fullmatch(label) else name

    def look(self, kind: str, name: str) -> Look | None:
        """Look of an unregistered sampler or estimator, unchecked; None if it has none."""
        look = self._entry(kind, name).get("look")
        if not isinstance(look, Mapping) or {*look} != {"color", "dash", "marker"}:
            return None
        return Look(look["color"], _tuples(look["dash"]), look["marker"])

    def _entry(self, kind: str, name: str) -> Mapping[str, Any]:
        entry = self.registered.get(kind, {}).get(name, {})
        return entry if isinstance(entry, Mapping) else {}


NO_NAMES = Names()


class Algorithms(tuple[Algorithm, ...]):
    """Algorithms of an experiment, with its labels."""

    names: Names

    def __new__(cls, algorithms: Iterable[Algorithm], names: Names = NO_NAMES) -> Algorithms:
        instance = super().__new__(cls, algorithms)
        instance.names = names
        return instance


def names_of(algorithms: Sequence[Algorithm]) -> Names:
    """Labels of the experiment of these algorithms."""
    return algorithms.names if isinstance(algorithms, Algorithms) else NO_NAMES


def names_in(manifest: Mapping[str, Any]) -> Names:
    """Labels from the manifest of combined tables."""
    registered: dict[str, dict[str, Any]] = {}
    for run in manifest["runs"]:
        for kind, entries in (run.get("registered") or {}).items():
            registered.setdefault(kind, {}).update(entries)
    return Names(registered, manifest["experiment"]["analysis"].get("labels") or {})


def sampler_label(name: str, names: Names = NO_NAMES) -> str:
    """Label of a sampler."""
    return shorten(SAMPLERS[name].label if name in SAMPLERS else names.label("sampler", name))


def estimator_label(name: str, names: Names = NO_NAMES) -> str:
    """Label of an estimator; that of the sampler if the sampler brings its own."""
    if name in ESTIMATORS:
        return shorten(ESTIMATORS[name].label)
    label = names.label("estimator", name)
    return shorten(label) if label != name else sampler_label(name, names)


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
    variants = names_of(algorithms).variants
    label = variants.get("/".join(algorithm), variants.get(algorithm.variant))
    if label is None:
        return algorithm_label(algorithm, algorithms)
    return _full_label(algorithm, algorithms, label)


def _full_label(algorithm: Algorithm, algorithms: Sequence[Algorithm], variant: str) -> str:
    label = sampler_label(algorithm.sampler, names_of(algorithms))
    alone = sum(entry.sampler == algorithm.sampler for entry in algorithms) < 2
    return label if alone else f"{label}, {variant}"


def shorten(text: str) -> str:
    """Text shortened in the middle to `LONGEST` characters."""
    if len(text) <= LONGEST:
        return text
    end = LONGEST // 2 - 1
    return f"{text[: LONGEST - end - 1]}…{text[-end:]}"


def _tuples(value: Any) -> Any:
    """Convert lists from JSON to tuples, as matplotlib's line styles need them."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


# --- categories of the world of the runs ---


INFEASIBLE = "#BBBBBB"
# Okabe and Ito's, in the order of the categories of the default world.
SPARE_COLORS = ("#56B4E9", "#F0E442", "#E69F00", "#CC79A7", "#009E73", "#0072B2", "#D55E00")


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


def category_colors(categories: Categories) -> dict[str, str]:
    """Colours of categories by name; those without their own take spare ones in turn."""
    used = {category.color for category in categories}
    spare = itertools.cycle([color for color in SPARE_COLORS if color not in used] or SPARE_COLORS)
    return {
        category.name: category.color or (next(spare) if category.feasible else INFEASIBLE)
        for category in categories
    }
