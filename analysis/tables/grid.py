"""Runs of a grid (sampler, variant, goal space, seed), units of training length, and labels.

An algorithm, in the sense of rliable, is a sampler with a variant. Labels of samplers and
estimators come from their registries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from magellan.competence import ESTIMATORS
from magellan.config import UNIT_COLUMNS
from magellan.config.schema import PLAIN, Unit
from magellan.core.errors import InputError, shown
from magellan.samplers import SAMPLERS
from magellan.worlds import DEFAULT_WORLD, WORLDS, Categories, Category

RUN_COLUMNS = ("sampler", "variant", "goal_space", "seed")
SHOWN_RUNS = 5
DEFAULT_REFERENCE = "magellan"


class Algorithm(NamedTuple):
    """A sampler and its variant."""

    sampler: str
    variant: str


class Run(NamedTuple):
    """One run of a grid."""

    sampler: str
    variant: str
    goal_space: str
    seed: int

    @property
    def algorithm(self) -> Algorithm:
        """Sampler and variant."""
        return Algorithm(self.sampler, self.variant)


def run_of(entry: Mapping[str, Any]) -> Run:
    """The run of an entry of a manifest or a row of a table."""
    return Run(*(entry[column] for column in RUN_COLUMNS))


def declared_runs(manifest: Mapping[str, Any]) -> list[Run]:
    """Every run of the grid behind combined tables, in order."""
    return [run_of(entry) for entry in manifest["plan"]]


def run_name(run: Run) -> str:
    """A run's name in messages."""
    return (
        f"sampler {run.sampler!r}, variant {run.variant!r}, goal space {run.goal_space!r}, "
        f"seed {run.seed}"
    )


def run_names(runs: Sequence[Run]) -> str:
    """Names of the first few runs, and how many more there are."""
    names = [run_name(run) for run in runs[:SHOWN_RUNS]]
    more = len(runs) - len(names)
    return "; ".join([*names, f"and {more} more"] if more else names)


def seeds_by_algorithm(runs: Iterable[Run]) -> dict[str, dict[Algorithm, list[int]]]:
    """Goal space -> algorithm -> seeds of its runs."""
    seeds: dict[str, dict[Algorithm, list[int]]] = {}
    for run in runs:
        seeds.setdefault(run.goal_space, {}).setdefault(run.algorithm, []).append(run.seed)
    return seeds


def number_text(numbers: Iterable[int]) -> str:
    """Numbers of seeds as one number or a range: `4`, or `3 to 4`."""
    values = list(numbers)
    fewest, most = min(values), max(values)
    return f"{most}" if fewest == most else f"{fewest} to {most}"


def variant_names(experiment: Mapping[str, Any]) -> tuple[str, ...]:
    """Variants of an experiment; the plain one if none is declared."""
    return tuple(experiment.get("variants") or (PLAIN,))


def reference_algorithm(experiment: Mapping[str, Any]) -> Algorithm:
    """The algorithm that the others are compared with.

    `analysis.reference`; if empty, `magellan` if it is a sampler of the experiment, else the first
    sampler.

    Raises:
        InputError: it names no sampler or variant of the experiment.
    """
    samplers, variants = experiment["samplers"], variant_names(experiment)
    default = DEFAULT_REFERENCE if DEFAULT_REFERENCE in samplers else samplers[0]
    name = experiment["analysis"].get("reference") or default
    sampler, slash, variant = name.partition("/")
    reference = Algorithm(sampler, variant if slash else variants[0])
    if reference.sampler not in samplers or reference.variant not in variants:
        raise unknown_reference(name, [Algorithm(sampler, "") for sampler in samplers])
    return reference


def unknown_reference(name: str, allowed: Iterable[Algorithm]) -> InputError:
    """The error for a reference that the experiment does not have."""
    names = dict.fromkeys(f"{a.sampler}/{a.variant}" if a.variant else a.sampler for a in allowed)
    return InputError(
        f"analysis.reference: {shown(name)} is not in the experiment; allowed: "
        f"{', '.join(names)}, or one of these with /VARIANT"
    )


def exploiting(algorithms: Iterable[Algorithm]) -> list[Algorithm]:
    """Algorithms whose exploration is known, so that what they chose can be told from it."""
    known = {name for name, spec in SAMPLERS.items() if spec.explores}
    return [algorithm for algorithm in algorithms if algorithm.sampler in known]


# --- units of training length: episodes, environment steps or policy updates ---


UNIT_LABELS: Mapping[Unit, str] = {
    "episodes": "training episodes",
    "steps": "environment steps",
    "updates": "policy updates",
}
"""On axes and in captions."""

UNIT_WORDS: Mapping[Unit, str] = {**UNIT_LABELS, "episodes": "episodes"}
"""In a sentence."""


def unit_of(config: Mapping[str, Any]) -> Unit:
    """Unit of a run, from its configuration."""
    budget = config.get("budget")
    budget = budget if isinstance(budget, Mapping) else {}
    if budget.get("steps"):
        return "steps"
    return "updates" if budget.get("updates") else "episodes"


def in_unit(columns: tuple[str, ...], unit: Unit) -> tuple[str, ...]:
    """Key columns of a table, with the column of the unit in place of `episode`."""
    return tuple(UNIT_COLUMNS[unit] if column == "episode" else column for column in columns)


# --- labels in figures and tables ---


LONGEST = 34
SPLIT_LABELS = {"train": "Training goals", "unseen": "Unseen goals"}
SCORE_LABELS = {"final": "Success at the end", "area": "Mean success over training"}


def sampler_label(name: str) -> str:
    """Label of a sampler; its name if it is not registered, because its file is absent."""
    return shorten(SAMPLERS[name].label if name in SAMPLERS else name)


def estimator_label(name: str) -> str:
    """Label of an estimator; that of the sampler if the sampler brings its own."""
    return shorten(ESTIMATORS[name].label) if name in ESTIMATORS else sampler_label(name)


def algorithm_labels(
    algorithms: Collection[Algorithm], variants: Mapping[str, str] | None = None
) -> dict[Algorithm, str]:
    """Labels of algorithms, with the variant if a sampler has several.

    A long label is shortened, unless that makes it ambiguous.

    variants: other names of variants (`analysis.labels`), by VARIANT or SAMPLER/VARIANT.
    """
    given = variants or {}
    own = {a: given.get("/".join(a), given.get(a.variant)) for a in algorithms}
    count = Counter(algorithm.sampler for algorithm in algorithms)
    labels = {
        a: sampler_label(a.sampler) + (f", {own[a] or a.variant}" if count[a.sampler] > 1 else "")
        for a in algorithms
    }
    alike = Counter(map(shorten, labels.values()))
    return {
        a: label if own[a] or alike[shorten(label)] > 1 else shorten(label)
        for a, label in labels.items()
    }


def shorten(text: str) -> str:
    """Text shortened in the middle to `LONGEST` characters."""
    if len(text) <= LONGEST:
        return text
    end = LONGEST // 2 - 1
    return f"{text[: LONGEST - end - 1]}…{text[-end:]}"


def categories_of(manifest: Mapping[str, Any]) -> Categories:
    """Categories of the world of a run, from its manifest.

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
