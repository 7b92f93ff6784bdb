"""The phases of a run: parts of it with goals and a sampler of their own (Gaven et al. 2025, Q4).

All but the last phase of a run are a run of their own: its *beginning*. A run may start from the
checkpoint that its beginning ended with, or that a longer run kept where its beginning would have
ended. It is then what it would have been from the start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from magellan.competence import ESTIMATORS
from magellan.config.schema import GoalConfig, RunConfig, Unit, checked_goal_space
from magellan.core.errors import InputError
from magellan.samplers import SAMPLERS
from magellan.worlds import WORLDS

HEAD = "competence"
"""Section of the estimators that read goals with the model's head, which a run has one of."""


@dataclass(frozen=True)
class Phase:
    """One phase, with nothing left out.

    Attributes:
        number: from 1.
        begins, ends: lengths of the run, in what its budget counts.
        sampler, goal_space, goals, seed, explore_anew: see `PhaseConfig`.
    """

    number: int
    begins: int
    ends: int
    sampler: str
    goal_space: str
    goals: GoalConfig
    seed: int
    explore_anew: bool

    def has_goals_of(self, other: Phase) -> bool:
        """Whether both practise the same goals."""
        return (self.goal_space, self.goals) == (other.goal_space, other.goals)

    def begins_anew(self, before: Phase) -> bool:
        """Whether running episodes end where this phase begins."""
        return self.seed != before.seed or not self.has_goals_of(before)

    def described(self) -> dict[str, Any]:
        """What it is, as JSON values; the end of the last phase is the run's, and left to it."""
        return {
            "ends": self.ends,
            "sampler": self.sampler,
            "goal_space": self.goal_space,
            "goals": {"seed": self.goals.seed, "split": self.goals.split},
            "seed": self.seed,
            "explore_anew": self.explore_anew,
        }


def phases_of(config: RunConfig) -> tuple[Phase, ...]:
    """The phases of a run; one where it names none."""
    found: list[Phase] = []
    for number, given in enumerate(config.phases, start=1):
        draw = given.goals.model_dump(exclude_none=True)
        found.append(
            Phase(
                number,
                found[-1].ends if found else 0,
                config.budget.end if given.until is None else given.until,
                given.sampler or config.sampler,
                _goal_space(given.goal_space, config),
                _drawn(config).model_copy(update=draw),
                config.seed if given.seed is None else given.seed,
                given.explore_anew,
            )
        )
    if found:
        return tuple(found)
    end = config.budget.end
    own = config.sampler, config.goal_space, _drawn(config), config.seed
    return (Phase(1, 0, end, *own, explore_anew=False),)


def _drawn(config: RunConfig) -> GoalConfig:
    """Which goals a run trains on, the seed that draws them as a number."""
    goals = config.goals
    return goals.model_copy(update={"seed": config.seed}) if goals.seed == "run" else goals


def _goal_space(name: str | None, config: RunConfig) -> str:
    return config.goal_space if name is None else checked_goal_space(name, WORLDS[config.world])


def driver_of(config: RunConfig, sampler: str) -> str | None:
    """Estimator that a sampler follows in this run: `samplers.estimator`, or else its own."""
    own = SAMPLERS[sampler].estimator
    return own and (config.samplers.estimator or own)


def drivers_of(config: RunConfig) -> tuple[str, ...]:
    """Names of the estimators that drive a sampler in some phase, each once, in order."""
    named = (driver_of(config, phase.sampler) for phase in phases_of(config))
    return tuple(dict.fromkeys(name for name in named if name is not None))


def beginning(config: RunConfig) -> RunConfig | None:
    """All phases of a run but the last, as a run of its own; None where it has one phase."""
    phases = phases_of(config)
    return None if len(phases) == 1 else part(config, phases[-2].ends)


def part(config: RunConfig, length: int) -> RunConfig:
    """What a run is up to some length, as a run of its own.

    Its estimators are those of the run: an estimator that drives a later phase has watched it.

    length: above 0, in what the budget counts, and not more than the run has.
    """
    phases = [phase for phase in phases_of(config) if phase.begins < length]
    phases[-1] = last = replace(phases[-1], ends=length)
    watching = {*drivers_of(config), *config.observers} - {driver_of(config, last.sampler)}
    values = config.model_dump()
    goals = last.goals.model_dump()
    if config.goals.seed == "run" and last.goals.seed == last.seed:
        goals["seed"] = "run"  # as a run of that length alone would have it
    values |= {
        "sampler": last.sampler,
        "goal_space": last.goal_space,
        "goals": goals,
        "seed": last.seed,
        "observers": tuple(sorted(watching)),
        "phases": _listed(phases),
    }
    values["budget"] = values["budget"] | {config.budget.unit: length}
    return type(config).model_validate(values)


def _listed(phases: Sequence[Phase]) -> tuple[Mapping[str, Any], ...]:
    """Phases as a configuration lists them; none where there is one."""
    if len(phases) == 1:
        return ()
    listed = [phase.described() for phase in phases]
    for values in listed:
        values["until"] = values.pop("ends")
    listed[-1] |= {"until": None, "sampler": None}
    return tuple(listed)


def check_watchers(config: RunConfig) -> None:
    """Check that one estimator has the model's head; it drives each phase if it trains the policy.

    Raises:
        InputError: two of them share a head, or one would change what it watches.
    """
    driving = {driver_of(config, phase.sampler) for phase in phases_of(config)}
    used = {*config.observers, *driving} - {None}
    heads = [name for name in ESTIMATORS if name in used and ESTIMATORS[name].section == HEAD]
    if len(heads) > 1:
        raise InputError(
            f"observers: {' and '.join(heads)} in one run are not allowed: they would share the "
            "model's head; allowed: one of them"
        )
    settings = getattr(config, HEAD, None)  # `run_model()` has all sections
    if heads and settings is not None and settings.adapter == "shared" and driving != {*heads}:
        raise InputError(
            f"competence.adapter: 'shared' is not allowed where the estimator {heads[0]} watches "
            "another sampler: it would train the policy; allowed: own, policy, frozen, ignored"
        )


def check_recorded(config: RunConfig) -> None:
    """Check that what is to be recorded is there: a prediction of every goal at each refresh.

    Raises:
        InputError: another estimator drives the sampler, or it knows the goals by samples, or there
            are phases.
    """
    if not config.budget.record_predictions:
        return
    refused = "budget.record_predictions: true is not allowed"
    if config.phases:
        raise InputError(f"{refused} in a run with phases; allowed: false, or a run of one phase")
    if driver_of(config, config.sampler) != "learned":
        raise InputError(
            f"{refused} for the sampler {config.sampler!r}; allowed: false, or a sampler that the "
            "estimator learned drives, as magellan"
        )
    size = sum(WORLDS[config.world].parse(config.goal_space))
    pool = config.section("competence").pool
    if size > pool:
        raise InputError(
            f"{refused} for {size} goals, of which the estimator samples some at each refresh; "
            f"allowed: false, or a goal space of at most competence.pool = {pool} goals"
        )


def check_phases(config: RunConfig) -> None:
    """Check that the phases of a run follow each other.

    Raises:
        InputError: one phase only, an end that is missing, too early or too late, a sampler of the
            last phase, or a goal space that its split does not have.
    """
    given = config.phases
    if len(given) == 1:
        raise InputError("phases: one phase is not allowed; allowed: none, or two and more")
    for place in range(len(given) - 1):
        _check_end(config, place)
    if given:
        _check_last(config)
    elif config.goals.split == "train":
        return  # its goal space has been looked at
    for place, found in enumerate(phases_of(config)):
        key = f"phases.{place}: " if given else ""
        _check_goals(found, config, key)


def _check_end(config: RunConfig, place: int) -> None:
    until, end = config.phases[place].until, config.budget.end
    before = config.phases[place - 1].until if place else 0
    unit: Unit = config.budget.unit
    if until is None or not (before or 0) < until < end:
        shown = "missing" if until is None else f"{until} is not allowed"
        raise InputError(
            f"phases.{place}.until: {shown}; allowed: more than {before or 0} and less than "
            f"budget.{unit} = {end}"
        )


def _check_last(config: RunConfig) -> None:
    place, last = len(config.phases) - 1, config.phases[-1]
    if last.until is not None:
        raise InputError(
            f"phases.{place}.until: {last.until} is not allowed in the last phase, which takes the "
            f"rest of budget.{config.budget.unit} = {config.budget.end}; allowed: null"
        )
    if last.sampler not in (None, config.sampler):
        raise InputError(
            f"phases.{place}.sampler: {last.sampler!r} is not allowed in the last phase, which the "
            f"run's own sampler drives; allowed: {config.sampler}"
        )


def _check_goals(phase: Phase, config: RunConfig, key: str) -> None:
    """The world has such goals in the split; asked before anything is drawn."""
    world = WORLDS[config.world]
    there = world.totals(phase.goals.split)
    if there is None:
        return
    mix = zip(world.categories.names, world.parse(phase.goal_space), there, strict=True)
    for category, wanted, most in mix:
        if wanted > most:
            raise InputError(
                f"{key}goal_space = {phase.goal_space!r}: {wanted} goals of {category} are not "
                f"allowed: the split {phase.goals.split!r} has {most}; allowed: a smaller goal "
                "space, or goals.split: train"
            )
