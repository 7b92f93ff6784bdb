"""The phases of a run: parts with their own goals and sampler (Gaven et al. 2025, Q4).

All phases of a run but the last form a run themselves: its *beginning*. A run may start from the
final checkpoint of its beginning, or from one that a longer run kept at that length; its results
are the same as without.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from magellan.competence import ESTIMATORS
from magellan.config.schema import GoalConfig, RunConfig, checked_goal_space
from magellan.core.errors import InputError, not_allowed
from magellan.samplers import SAMPLERS
from magellan.worlds import WORLDS, GoalSet

HEAD = "competence"
"""Section of the estimators that use the model's competence head; a run has only one of them."""


@dataclass(frozen=True)
class Phase:
    """One phase, with all values resolved.

    Attributes:
        number: from 1.
        begins, ends: lengths of the run, in the unit of its budget.
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

    def has_goals_of(self, phase: Phase) -> bool:
        """Whether both phases practise the same goals."""
        return (self.goal_space, self.goals) == (phase.goal_space, phase.goals)

    def as_dict(self) -> dict[str, Any]:
        """Return the phase as JSON values."""
        values = vars(self) | {"goals": self.goals.model_dump()}
        return {name: values[name] for name in values if name not in ("number", "begins")}


def phases_of(config: RunConfig) -> tuple[Phase, ...]:
    """Return the phases of a run; a single one if it declares none."""
    goals = config.goals
    if goals.seed == "run":
        goals = goals.model_copy(update={"seed": config.seed})
    phases: list[Phase] = []
    for number, phase in enumerate(config.phases, start=1):
        draw = phase.goals.model_dump(exclude_none=True)
        phases.append(
            Phase(
                number,
                phases[-1].ends if phases else 0,
                config.budget.end if phase.until is None else phase.until,
                phase.sampler or config.sampler,
                config.goal_space
                if phase.goal_space is None
                else checked_goal_space(phase.goal_space, WORLDS[config.world]),
                goals.model_copy(update=draw),
                config.seed if phase.seed is None else phase.seed,
                phase.explore_anew,
            )
        )
    if phases:
        return tuple(phases)
    own = config.sampler, config.goal_space, goals, config.seed
    return (Phase(1, 0, config.budget.end, *own, explore_anew=False),)


def goals_of(config: RunConfig, phase: Phase) -> GoalSet:
    """Return the goals that a phase practises."""
    seed = phase.goals.seed
    assert seed != "run", "phases have a number"
    return WORLDS[config.world].goals(phase.goal_space, seed, phase.goals.split)


def driver_of(config: RunConfig, sampler: str) -> str | None:
    """Return the estimator that drives a sampler in this run; None if it uses none."""
    return SAMPLERS[sampler].driver(config.samplers.estimator)


def drivers_of(config: RunConfig) -> tuple[str, ...]:
    """Return the distinct names of the estimators that drive a phase, in order."""
    names = (driver_of(config, phase.sampler) for phase in phases_of(config))
    return tuple(dict.fromkeys(name for name in names if name is not None))


def estimators_of(config: RunConfig) -> tuple[str, ...]:
    """Return the names of a run's estimators: the driver of its first sampler, then observers.

    An estimator that drives a later phase observes until then.
    """
    driver = driver_of(config, phases_of(config)[0].sampler)
    observers = {*config.observers, *drivers_of(config)} - {driver}
    names = [name for name in ESTIMATORS if name in observers]
    return tuple(names) if driver is None else (driver, *names)


def beginning(config: RunConfig) -> RunConfig | None:
    """Return all phases of a run but the last, as a run; None if it has one phase."""
    phases = phases_of(config)
    return None if len(phases) == 1 else truncated(config, phases[-2].ends)


def truncated(config: RunConfig, length: int) -> RunConfig:
    """Return a run up to some length, as a run.

    It has all estimators of the run: those that drive later phases observe it.

    length: above 0, in the unit of the budget, at most that of the run.
    """
    phases = [phase for phase in phases_of(config) if phase.begins < length]
    phases[-1] = last = replace(phases[-1], ends=length)
    observers = {*drivers_of(config), *config.observers} - {driver_of(config, last.sampler)}
    listed = [phase.as_dict() for phase in phases] if len(phases) > 1 else []
    for phase in listed:
        phase["until"] = phase.pop("ends")
    if listed:
        listed[-1] |= {"until": None, "sampler": None}
    values = config.model_dump()
    goals = last.goals.model_dump()
    if config.goals.seed == "run" and last.goals.seed == last.seed:
        goals["seed"] = "run"  # as in a run of that length
    values |= {
        "sampler": last.sampler,
        "goal_space": last.goal_space,
        "goals": goals,
        "seed": last.seed,
        "observers": tuple(sorted(observers)),
        "phases": tuple(listed),
    }
    values["budget"] = values["budget"] | {config.budget.unit: length}
    return type(config).model_validate(values)


def check_observers(config: RunConfig) -> None:
    """Check that one estimator uses the model's head, and does not train the policy as an observer.

    Raises:
        InputError: two estimators share the head, or an observer trains the policy.
    """
    drivers = {driver_of(config, phase.sampler) for phase in phases_of(config)}
    used = {*config.observers, *drivers} - {None}
    heads = [name for name in ESTIMATORS if name in used and ESTIMATORS[name].section == HEAD]
    if len(heads) > 1:
        raise InputError(
            f"observers: {' and '.join(heads)} in one run are not allowed: they would share the "
            "model's head; allowed: one of them"
        )
    if heads and config.section(HEAD).adapter == "shared" and drivers != {*heads}:
        why = f" if the estimator {heads[0]} observes another sampler: it would train the policy"
        raise not_allowed("competence.adapter", "shared", "own, policy, frozen, ignored", why)


def check_phases(config: RunConfig) -> None:
    """Check the ends, samplers and goal spaces of a run's phases.

    Raises:
        InputError: one phase only, an end that is missing or out of order, a sampler of the last
            phase, or a goal space that its split does not have.
    """
    if len(config.phases) == 1:
        raise InputError("phases: one phase is not allowed; allowed: none, or two and more")
    begin, length = 0, f"budget.{config.budget.unit} = {config.budget.end}"
    for index, phase in enumerate(config.phases[:-1]):
        if phase.until is None or not begin < phase.until < config.budget.end:
            problem = "missing" if phase.until is None else f"{phase.until} is not allowed"
            allowed = f"more than {begin} and less than {length}"
            raise InputError(f"phases.{index}.until: {problem}; allowed: {allowed}")
        begin = phase.until
    if config.phases:
        last, key = config.phases[-1], f"phases.{len(config.phases) - 1}"
        if last.until is not None:
            why = f" in the last phase, which takes the rest of {length}"
            raise not_allowed(f"{key}.until", last.until, "null", why)
        if last.sampler not in (None, config.sampler):
            why = " in the last phase, which the run's own sampler drives"
            raise not_allowed(f"{key}.sampler", last.sampler, config.sampler, why)
    for index, each in enumerate(phases_of(config)):
        _check_goals(each, config, f"phases.{index}: " if config.phases else "")


def _check_goals(phase: Phase, config: RunConfig, key: str) -> None:
    """Check that the world has enough goals in the split, without drawing them."""
    world = WORLDS[config.world]
    totals = world.totals(phase.goals.split)
    if totals is None:
        return
    mix = zip(world.categories.names, world.parse(phase.goal_space), totals, strict=True)
    for category, count, total in mix:
        if count > total:
            raise InputError(
                f"{key}goal_space = {phase.goal_space!r}: {count} goals of {category} are not "
                f"allowed: the split {phase.goals.split!r} has {total}; allowed: a smaller goal "
                "space, or goals.split: train"
            )


def check_pool(config: RunConfig) -> None:
    """Check that samplers that need predictions of all goals have them.

    Raises:
        InputError: `competence.pool` is smaller than the goal space of such a phase.
    """
    for phase in phases_of(config):
        driver, spec = driver_of(config, phase.sampler), SAMPLERS[phase.sampler]
        if driver is None or ESTIMATORS[driver].section != HEAD:
            continue
        size, pool = sum(WORLDS[config.world].parse(phase.goal_space)), config.section(HEAD).pool
        if size > pool and (spec.is_rule or spec.needs_all or driver == "learned_groups"):
            why = f" with the sampler {phase.sampler}, which needs predictions of all goals"
            raise not_allowed(f"{HEAD}.pool", pool, f"{size} or more", why)
