"""What samplers, variants, estimators, scores and splits are called in figures and tables to read.

Names of samplers and estimators come from their registries. Tables may be about one that is not
registered here, because the file that adds it is not at hand: then its run's manifest says how it
was registered, and of older runs the name itself stands for it.
"""

from __future__ import annotations

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
# Of a manifest, which anybody may have written: no controls, no marks of HTML or of mathematics.
SAFE = re.compile(r"[^\x00-\x1f\x7f-\x9f<>{}$\\]{1,100}")


@dataclass(frozen=True)
class Names:
    """What an experiment and the files of its user call things.

    Attributes:
        registered: kind (`sampler`, `estimator`) -> name -> how it was registered, as manifests
            have it (`magellan.core.registry.as_registered`).
        variants: labels of variants by VARIANT or SAMPLER/VARIANT.
    """

    registered: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    variants: Mapping[str, str] = field(default_factory=dict)

    def label(self, kind: str, name: str) -> str:
        """Label of something that is not registered here, or its name."""
        label = self._entry(kind, name).get("label")
        return label if isinstance(label, str) and SAFE.fullmatch(label) else name

    def look(self, kind: str, name: str) -> Look | None:
        """Look of something that is not registered here, if it has one; it is not checked."""
        look = self._entry(kind, name).get("look")
        if not isinstance(look, Mapping) or {*look} != {"color", "dash", "marker"}:
            return None
        return Look(look["color"], _tuples(look["dash"]), look["marker"])

    def _entry(self, kind: str, name: str) -> Mapping[str, Any]:
        entry = self.registered.get(kind, {}).get(name, {})
        return entry if isinstance(entry, Mapping) else {}


NO_NAMES = Names()


class Algorithms(tuple[Algorithm, ...]):
    """Algorithms of an experiment, with what it calls them."""

    names: Names

    def __new__(cls, algorithms: Iterable[Algorithm], names: Names = NO_NAMES) -> Algorithms:
        made = super().__new__(cls, algorithms)
        made.names = names
        return made


def names_of(algorithms: Sequence[Algorithm]) -> Names:
    """What the experiment of these algorithms calls them."""
    return algorithms.names if isinstance(algorithms, Algorithms) else NO_NAMES


def names_in(manifest: Mapping[str, Any]) -> Names:
    """What the manifest of combined tables says of names."""
    registered: dict[str, dict[str, Any]] = {}
    for run in manifest["runs"]:
        for kind, entries in (run.get("registered") or {}).items():
            registered.setdefault(kind, {}).update(entries)
    return Names(registered, manifest["experiment"]["analysis"].get("labels") or {})


def sampler_label(name: str, names: Names = NO_NAMES) -> str:
    """Name of a sampler for readers."""
    return shortened(SAMPLERS[name].label if name in SAMPLERS else names.label("sampler", name))


def estimator_label(name: str, names: Names = NO_NAMES) -> str:
    """Name of an estimator for readers; one that a sampler brings itself has the sampler's."""
    if name in ESTIMATORS:
        return shortened(ESTIMATORS[name].label)
    label = names.label("estimator", name)
    return shortened(label) if label != name else sampler_label(name, names)


def algorithm_label(algorithm: Algorithm, algorithms: Sequence[Algorithm]) -> str:
    """Name of an algorithm among others; with its variant where its sampler has several.

    A long one is shortened, unless that makes it the same as another.
    """
    full = {each: _full(each, algorithms, each.variant) for each in (algorithm, *algorithms)}
    short = shortened(full[algorithm])
    alike = [each for each in full if shortened(full[each]) == short]
    return short if alike == [algorithm] else full[algorithm]


def figure_label(algorithm: Algorithm, algorithms: Sequence[Algorithm]) -> str:
    """The same in figures, where a variant with a label (`analysis.labels`) is called by that."""
    variants = names_of(algorithms).variants
    label = variants.get("/".join(algorithm), variants.get(algorithm.variant))
    if label is None:
        return algorithm_label(algorithm, algorithms)
    return _full(algorithm, algorithms, label)


def _full(algorithm: Algorithm, algorithms: Sequence[Algorithm], variant: str) -> str:
    label = sampler_label(algorithm.sampler, names_of(algorithms))
    alone = sum(other.sampler == algorithm.sampler for other in algorithms) < 2
    return label if alone else f"{label}, {variant}"


def shortened(text: str, longest: int = LONGEST) -> str:
    """A name with its middle left out where it has more letters than there is room for."""
    if len(text) <= longest:
        return text
    end = longest // 2 - 1
    return f"{text[: longest - end - 1]}…{text[-end:]}"


def _tuples(value: Any) -> Any:
    """A value with tuples where JSON had lists, as matplotlib takes line styles."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


# --- The categories of the world that runs were made in ---


INFEASIBLE = "#BBBBBB"
# Okabe and Ito's, in the order of the categories of the default world.
SPARE_COLORS = ("#56B4E9", "#F0E442", "#E69F00", "#CC79A7", "#009E73", "#0072B2", "#D55E00")


def categories_of(manifest: Mapping[str, Any]) -> Categories:
    """Categories of the world of a run.

    Args:
        manifest: of the run, checked.

    Raises:
        InputError: neither a registry nor the manifest knows the world.
    """
    name = manifest["config"].get("world", DEFAULT_WORLD)
    if name in WORLDS:
        return WORLDS[name].categories
    told = manifest.get("world") or {}
    if told.get("name") != name:
        raise InputError(
            f"world: {shown(name)} is unknown, and the run does not say its categories; allowed: "
            f"{', '.join(WORLDS)}"
        )
    return Categories(
        Category(**{key: each[key] for key in ("name", "feasible", "label", "color")})
        for each in told["categories"]
    )


def category_colors(categories: Categories) -> dict[str, str]:
    """Colours of categories by name; those without one take spare ones in turn."""
    used = {category.color for category in categories}
    spare = [color for color in SPARE_COLORS if color not in used] or list(SPARE_COLORS)
    colors: dict[str, str] = {}
    for category in categories:
        color = category.color or ("" if category.feasible else INFEASIBLE)
        colors[category.name] = color or spare[0]
        if not color:
            spare = [*spare[1:], spare[0]]
    return colors
