"""Names of the runs of a grid: sampler, variant, goal space and seed; and what others count in.

An algorithm, as rliable calls it, is a sampler with a variant: what is compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from magellan.config import PLAIN, UNIT_COLUMNS, Unit
from magellan.core.errors import InputError, shown

RUN_COLUMNS = ("sampler", "variant", "goal_space", "seed")
SHOWN_RUNS = 5
EXPLORING_GOALS, EXPLORING_CATEGORIES = ("online", "magellan"), ("ek_online", "ek_eval")
"""Samplers that choose by what they estimate, and explore uniformly over goals or categories."""


ABOUT = "magellan"
"""The sampler that an experiment is about unless it says otherwise."""


class Algorithm(NamedTuple):
    """A sampler and the name of the overrides that it runs with."""

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
    """The run that an entry of a manifest, or a row of a table, is about."""
    return Run(*(entry[column] for column in RUN_COLUMNS))


def declared_runs(manifest: Mapping[str, Any]) -> list[Run]:
    """Every run of the grid that combined tables are of, in its order."""
    return [run_of(entry) for entry in manifest["plan"]]


def run_name(run: Run) -> str:
    """A run in words, for messages."""
    return (
        f"sampler {run.sampler!r}, variant {run.variant!r}, goal space {run.goal_space!r}, "
        f"seed {run.seed}"
    )


def run_names(runs: Sequence[Run]) -> str:
    """The first few runs in words, and how many more there are."""
    names = [run_name(run) for run in runs[:SHOWN_RUNS]]
    more = len(runs) - len(names)
    return "; ".join([*names, f"and {more} more"] if more else names)


def seeds_by_algorithm(runs: Iterable[Run]) -> dict[str, dict[Algorithm, list[int]]]:
    """Goal space -> algorithm -> its seeds, for the runs that are there."""
    found: dict[str, dict[Algorithm, list[int]]] = {}
    for run in runs:
        found.setdefault(run.goal_space, {}).setdefault(run.algorithm, []).append(run.seed)
    return found


def number_text(numbers: Iterable[int]) -> str:
    """Numbers of seeds as one number or a range: `4`, or `3 to 4`."""
    listed = list(numbers)
    fewest, most = min(listed), max(listed)
    return f"{most}" if fewest == most else f"{fewest} to {most}"


def variant_names(experiment: Mapping[str, Any]) -> tuple[str, ...]:
    """Variants of an experiment, the plain one where none is declared."""
    return tuple(experiment.get("variants") or (PLAIN,))


def reference_algorithm(experiment: Mapping[str, Any]) -> Algorithm:
    """The algorithm that the others are compared with.

    `analysis.reference`; where it is empty `magellan` if it is a sampler of the experiment, else
    the first one.

    Raises:
        InputError: it names no sampler or variant of the experiment.
    """
    samplers = experiment["samplers"]
    about = ABOUT if ABOUT in samplers else samplers[0]
    named = experiment["analysis"].get("reference") or about
    variants = variant_names(experiment)
    sampler, slash, variant = named.partition("/")
    found = Algorithm(sampler, variant if slash else variants[0])
    if found.sampler not in experiment["samplers"] or found.variant not in variants:
        raise unknown_reference(named, [Algorithm(name, "") for name in experiment["samplers"]])
    return found


def unknown_reference(named: str, known: Iterable[Algorithm]) -> InputError:
    """The error for a reference that the experiment does not have."""
    names = dict.fromkeys(f"{a.sampler}/{a.variant}" if a.variant else a.sampler for a in known)
    return InputError(
        f"analysis.reference: {shown(named)} is not in the experiment; allowed: "
        f"{', '.join(names)}, or one of these with /VARIANT"
    )


def exploiting(algorithms: Iterable[Algorithm]) -> list[Algorithm]:
    """Those that choose goals by what they estimate, and of which exploration is known."""
    known = (*EXPLORING_GOALS, *EXPLORING_CATEGORIES)
    return [algorithm for algorithm in algorithms if algorithm.sampler in known]


# --- What the length of training is counted in: episodes, environment steps or policy updates ---


UNIT_LABELS: Mapping[Unit, str] = {
    "episodes": "training episodes",
    "steps": "environment steps",
    "updates": "policy updates",
}
"""On axes and in captions."""

UNIT_WORDS: Mapping[Unit, str] = {**UNIT_LABELS, "episodes": "episodes"}
"""In a sentence."""


def unit_of(config: Mapping[str, Any]) -> Unit:
    """Unit of a run, from its configuration in its manifest."""
    budget = config.get("budget")
    given = budget if isinstance(budget, Mapping) else {}
    if given.get("steps"):
        return "steps"
    return "updates" if given.get("updates") else "episodes"


def unit_of_experiment(experiment: Mapping[str, Any]) -> Unit:
    """Unit of all runs of an experiment, from the keys that it gives them."""
    layers: Iterable[Mapping[str, Any]] = (
        experiment.get("overrides") or {},
        *(experiment.get("variants") or {}).values(),
    )
    return next((unit for unit in map(unit_of, layers) if unit != "episodes"), "episodes")


def in_unit(columns: tuple[str, ...], unit: Unit) -> tuple[str, ...]:
    """Key columns of a table of evaluations, with the column of the unit for that of episodes."""
    return tuple(UNIT_COLUMNS[unit] if column == "episode" else column for column in columns)
