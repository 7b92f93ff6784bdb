"""The schema: models of a run and of an experiment (a grid of runs).

Every key has a default and a description. Sections of samplers, estimators and backends come from
their registries, so that new ones bring their own keys.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)

from magellan.backends import BACKENDS
from magellan.competence import ESTIMATORS
from magellan.config.presets import DEFAULT, PRESETS, check_preset
from magellan.core.errors import InputError, not_allowed, shown, suggestion
from magellan.core.registry import Spec
from magellan.core.settings import (
    LARGEST_SEED,
    Count,
    Fraction,
    Positive,
    Section,
    Seed,
    without_duplicates,
)
from magellan.model.chat import WORLD, ChatSettings
from magellan.model.settings import (
    AgentConfig,
    BackboneConfig,
    BackendConfig,
    GrpoConfig,
    check_together,
)
from magellan.samplers import SAMPLERS
from magellan.worlds import DEFAULT_WORLD, WORLDS, World

Split = Literal["train", "unseen"]
"""Goals about training objects, or about held-out objects."""


class GoalConfig(Section):
    """Which goals a run trains on."""

    seed: int | Literal["run"] = Field(
        0, description="Draws the goal space of all runs; `run`: each run's own."
    )
    split: Split = Field("train", description="`unseen`: goals about held-out objects.")

    @field_validator("seed", mode="before")
    @classmethod
    def _number_or_run(cls, value: Any) -> Any:
        number = int(value) if isinstance(value, str) and value.isdecimal() else value
        if number == "run" or (isinstance(number, int) and 0 <= number <= LARGEST_SEED):
            return number
        raise ValueError(f"Input should be a valid integer from 0 to {LARGEST_SEED}, or 'run'")


SamplerName = Annotated[str, AfterValidator(lambda name: SAMPLERS.find(name).name)]
"""A registered sampler."""
WorldName = Annotated[str, AfterValidator(lambda name: WORLDS.find(name).name)]
"""A registered world."""
EstimatorName = Annotated[
    str, AfterValidator(lambda name: name and ESTIMATORS.find(name, "samplers.estimator").name)
]
"""A registered estimator, or none: empty."""


class SamplerConfig(Section):
    """Settings common to goal samplers: exploration and estimator."""

    epsilon_start: Fraction = Field(1.0, description="Share of uniform draws at the start.")
    epsilon_end: Fraction = Field(0.2, description="Share of uniform draws in the limit.")
    epsilon_decay: Positive = Field(320.0, description="Time constant in policy updates.")
    estimator: EstimatorName = Field("", description="Estimator that replaces the samplers' own.")


Unit = Literal["episodes", "steps", "updates"]
"""Unit of a run's length."""

UNIT_COLUMNS: Mapping[str, str] = {"episodes": "episode", "steps": "step", "updates": "update"}
"""Column of each unit in the tables of a run."""


class BudgetConfig(Section):
    """Length of a run, evaluation and output."""

    episodes: Count = Field(500_000, description="Training episodes.")
    steps: int = Field(0, ge=0, le=10**9, description="Environment steps that end the run instead.")
    updates: int = Field(0, ge=0, le=10**9, description="Policy updates that end the run instead.")
    evaluate_every: Count = Field(
        5_000, description="Between evaluations, in the unit that ends the run."
    )
    evaluation_goals: Count = Field(64, description="Goals per category and split, at most.")
    evaluation_seed: Seed = Field(12_345, description="Draws evaluated goals and episodes.")
    record_goals: bool = Field(False, description="Also write goals.csv.")
    record_outcomes: bool = Field(False, description="Also write outcomes.csv.")
    export: bool = Field(False, description="Write the trained agent, to `agent/` (docs/runs.md).")
    practice_window: Count = Field(5_000, description="Episodes per row of practice.csv.")
    record_every: Count = Field(100, description="Updates per row of training.csv.")
    checkpoint_seconds: float = Field(
        300.0, ge=0.0, description="Minimum seconds between checkpoints."
    )
    checkpoint_share: float = Field(
        0.01, gt=0.0, le=1.0, description="Maximum share of the run time spent on saving."
    )
    keep_every: int = Field(
        0,
        ge=0,
        le=10**9,
        description="Between permanent checkpoints, in the unit that ends the run; 0: none.",
    )
    stop_margin_seconds: float = Field(
        60.0, ge=0.0, description="Stop this long before the time limit."
    )

    @model_validator(mode="after")
    def _one_end(self) -> BudgetConfig:
        if self.steps and self.updates:
            why = f" beside budget.steps = {self.steps}: one of them ends the run"
            raise not_allowed("budget.updates", self.updates, "0 for one of the two", why)
        return self

    @property
    def unit(self) -> Unit:
        """Unit of the budget and of `evaluate_every`."""
        if self.steps:
            return "steps"
        return "updates" if self.updates else "episodes"

    @property
    def end(self) -> int:
        """Length of the run in `unit`."""
        return self.steps or self.updates or self.episodes


class RewardConfig(ChatSettings):
    """Who judges training episodes, and with which errors; evaluations stay true."""

    model: str = Field(
        WORLD,
        min_length=1,
        description="The world itself, or a chat model (as for `experimenter.model`), which judges "
        "an episode's last observation.",
    )
    tokens: int = Field(4, ge=1, le=4_096, description="Maximum tokens of an answer.")
    on_failure: Literal["keep", "stop"] = Field(
        "keep", description="If it fails: the episode is no success, or (`stop`) the run stops."
    )
    false_positive: Fraction = Field(0.0, description="Chance that a failed episode is rewarded.")
    false_negative: Fraction = Field(
        0.0, description="Chance that a success, which still ends the episode, is not rewarded."
    )

    @model_validator(mode="after")
    def _asks(self) -> RewardConfig:
        if self.transcript and self.model == WORLD:
            why = " with rewards.model = 'world', which answers itself"
            raise not_allowed("rewards.transcript", self.transcript, "with a chat model", why)
        return self


class PhaseGoals(Section):
    """Goals of a phase, if they differ from the run's `goals`."""

    seed: Seed | None = Field(None, description="Seed that draws them.")
    split: Split | None = Field(None, description="`train` or `unseen`.")


class PhaseConfig(Section):
    """A part of a run; keys that are not set have the run's value."""

    until: Count | None = Field(
        None,
        description="Length of the run at which the phase ends, in the unit of the budget; not for "
        "the last phase, which takes the rest.",
    )
    sampler: SamplerName | None = Field(
        None, description="Goal sampler; not for the last phase, which has the run's own."
    )
    goal_space: str | None = Field(None, description="Goal space.")
    goals: PhaseGoals = Field(default_factory=PhaseGoals, description="Draw and split.")
    seed: Seed | None = Field(
        None,
        description="Root seed of the random streams; they restart if it differs from that of the "
        "previous phase.",
    )
    explore_anew: bool = Field(
        False,
        description="Whether epsilon restarts from its initial value; otherwise it keeps decaying.",
    )


MODULES_DESCRIPTION = "Python files with your own parts (docs/extend.md), which are executed."
WORLD_DESCRIPTION = f"{', '.join(f'`{name}`' for name in WORLDS)}, or one from `modules`."
OBSERVERS_DESCRIPTION = (
    "Estimators that observe the run beside the one that drives its sampler, without affecting it."
)
PHASES_DESCRIPTION = (
    "Parts of the run, in order, each with its own goals and sampler; empty: a single phase."
)


class RunConfig(Section):
    """One training run. The sections of samplers, estimators and backends are in `run_model()`."""

    sampler: SamplerName = Field("magellan", description="Goal sampler.")
    world: WorldName = Field(DEFAULT_WORLD, description=WORLD_DESCRIPTION)
    goal_space: str = Field(
        "25k",
        description="25k, 50k, 100k, another size up to 1.29M in the same proportions, a mix such "
        "as 1000-400-200-100-50 (impossible, grasp, plant, herbivore, carnivore), or all: all "
        "goals.",
    )
    seed: Seed = Field(0, description="Root seed of all random streams of the run.")
    preset: str = Field("paper", description="Preset that the values derive from.")
    threads: int = Field(1, ge=1, le=1024, description="Threads of the numerical libraries.")
    modules: tuple[str, ...] = Field((), description=MODULES_DESCRIPTION)
    observers: tuple[str, ...] = Field((), description=OBSERVERS_DESCRIPTION)
    phases: tuple[PhaseConfig, ...] = Field((), description=PHASES_DESCRIPTION)
    goals: GoalConfig = Field(default_factory=GoalConfig)
    backbone: BackboneConfig = Field(default_factory=BackboneConfig)
    backend: BackendConfig = Field(default_factory=BackendConfig)
    agent: AgentConfig = Field(default_factory=AgentConfig)
    grpo: GrpoConfig = Field(default_factory=GrpoConfig)
    samplers: SamplerConfig = Field(default_factory=SamplerConfig)
    rewards: RewardConfig = Field(default_factory=RewardConfig)
    budget: BudgetConfig = Field(default_factory=BudgetConfig)

    @field_validator("observers")
    @classmethod
    def _known_observers(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        without_duplicates([ESTIMATORS.find(name, "observers").name for name in names])
        return tuple(name for name in ESTIMATORS if name in names)

    @field_validator("goal_space")
    @classmethod
    def _known_goal_space(cls, name: str, info: ValidationInfo) -> str:
        return _canonical_goal_spaces([name], info)[0]

    @model_validator(mode="after")
    def _fits_together(self) -> RunConfig:
        capacity, batch = self.agent.replay_capacity, self.agent.batch_size
        if capacity < batch:
            why = f": a batch of agent.batch_size = {batch} would never be full"
            raise not_allowed("agent.replay_capacity", capacity, f"{batch} or more", why)
        # The other agent's section would be ignored in silence.
        writes = bool(self.world in WORLDS and WORLDS[self.world].answer_tokens)
        other, own = ("agent", "grpo") if writes else ("grpo", "agent")
        does = "writes its answers" if writes else "chooses actions"
        of_world = f"is not for the world {self.world!r}, whose agent {does}; allowed:"
        section = getattr(self, other)
        for key, default in type(section)():
            if getattr(section, key) != default:
                allowed = f"the section {own}" + ", from preset grpo" * writes
                value = shown(getattr(section, key))
                raise InputError(f"{other}.{key}: {value} {of_world} {allowed}")
        if writes and self.budget.export:
            raise InputError(f"budget.export: true {of_world} false")
        BACKENDS.find(self.backend.kind, "backend.kind")
        check_together(self.backbone, self.backend)
        return self

    def section(self, name: str) -> Any:
        """Return the settings of a sampler's, estimator's or backend's section."""
        return getattr(self, name)

    def constants(self, spec: Spec) -> Any:
        """Return the constants of a sampler, an estimator or a backend."""
        return self.section(spec.section) if spec.settings.model_fields else spec.settings()


# Keys of a run that an experiment sets itself, so they are not allowed in overrides.
GRID_KEYS = ("sampler", "world", "goal_space", "seed", "preset", "threads", "modules")


def run_model() -> type[RunConfig]:
    """Return the model of a run, with sections of all registered estimators, samplers, backends.

    Raises:
        InputError: a section's name is already a key.
    """
    specs: list[Spec] = [*ESTIMATORS.values(), *SAMPLERS.values(), *BACKENDS.values()]
    pairs = [(spec.section, spec.settings) for spec in specs if spec.settings.model_fields]
    return _run_model(tuple(dict.fromkeys(pairs)))  # specs may share a section


@functools.lru_cache(maxsize=8)
def _run_model(sections: tuple[tuple[str, type[Section]], ...]) -> type[RunConfig]:
    fields: dict[str, Any] = {}
    for name, settings in sections:
        if name in RunConfig.model_fields or name in fields:
            raise InputError(f"section {name!r}: the name is taken; allowed: another name")
        fields[name] = (settings, Field(default_factory=settings))
    model = create_model("RunConfig", __base__=RunConfig, **fields)
    model.__doc__ = "One training run."
    return model


def sections() -> tuple[str, ...]:
    """Return the names of all sections of a run's configuration."""
    return tuple(
        name
        for name, field in run_model().model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
    )


def _canonical_goal_spaces(names: list[str], info: ValidationInfo) -> list[str]:
    """Canonical names of goal spaces; unchanged if the `world` validated before is invalid."""
    if "world" not in info.data:
        return names
    return [checked_goal_space(name, WORLDS[info.data["world"]]) for name in names]


def checked_goal_space(name: str, world: World) -> str:
    """Return the canonical name of a goal space: `25k` for `25000`.

    Raises:
        InputError: not a goal space, or all its goals are impossible.
    """
    mix = zip(world.parse(name), world.categories, strict=True)
    if not any(count for count, category in mix if category.feasible):
        raise InputError(
            f"goal_space = {name!r}: all goals are impossible; allowed: mixes with a goal of "
            f"{', '.join(world.categories.feasible)}"
        )
    canonical = world.canonical(name)
    if not GOAL_SPACE.fullmatch(canonical):
        raise InputError(
            f"goal_space = {name!r}: {shown(canonical)} is not a valid folder name; allowed: "
            "letters, digits, dots and dashes, a letter or digit first"
        )
    return canonical


GOAL_SPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")
EXPERIMENT_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"
VARIANT_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
PLAIN = "default"
"""Name of the only variant of an experiment without variants."""
VARIANT_LABEL = re.compile(r"[A-Za-z0-9 .,:()/_-]{1,34}")


class AnalysisConfig(Section):
    """Statistics of the report."""

    bootstrap_repetitions: int = Field(
        10_000, ge=100, le=10**6, description="Bootstrap resamples of whole runs."
    )
    confidence: float = Field(0.95, gt=0.5, lt=1.0, description="Level of the intervals.")
    bootstrap_seed: Seed = Field(0, description="Seed of the resampling.")
    family: Literal["split", "question"] = Field(
        "split", description="Holm's correction over one `split`, or both (`question`)."
    )
    reference: str = Field(
        "",
        description="Sampler, or sampler/variant, to compare with; empty: `magellan`, else the "
        "first.",
    )
    labels: dict[str, str] = Field(
        {}, description="Labels in figures, by VARIANT or SAMPLER/VARIANT."
    )
    paper_mastery: dict[str, Annotated[int, Field(ge=1)]] = Field(
        {}, description="When the paper's agent masters each category, for the figure of success."
    )

    @field_validator("labels")
    @classmethod
    def _short_labels(cls, labels: dict[str, str]) -> dict[str, str]:
        for label in labels.values():
            if not VARIANT_LABEL.fullmatch(label):
                raise ValueError(
                    f"label {shown(label)}: Input should be up to 34 letters, digits, spaces and "
                    ".,:()/_-"
                )
        return labels


class ExperimentConfig(Section):
    """A grid sampler x variant x goal space x seed, and its analysis."""

    experiment: str = Field(
        "default", pattern=EXPERIMENT_PATTERN, description="Name of the results folder."
    )
    # No braces: wildcards to Snakemake. No <: Snakemake's report embeds paths in a script. No ~ or
    # - at the beginning: no shell expands it here, and commands would take it for an option.
    results: Annotated[str, AfterValidator(lambda path: path.rstrip("/") or "/")] = Field(
        "results",
        pattern=r"^[^\x00-\x1f{}<>~-][^\x00-\x1f{}<>]*$",
        description="Folder of all experiments.",
    )
    preset: Annotated[str, AfterValidator(check_preset)] = Field(
        DEFAULT, description=f"{', '.join(f'`{name}`' for name in PRESETS)}."
    )
    modules: tuple[str, ...] = Field(
        (), description=f"{MODULES_DESCRIPTION} Paths are relative to this file."
    )
    samplers: list[str] = Field(
        ["random", "online", "ek_online", "magellan"],
        min_length=1,
        description="Samplers to compare.",
    )
    world: WorldName = Field(DEFAULT_WORLD, description=WORLD_DESCRIPTION)
    goal_spaces: list[str] = Field(
        ["1000-400-200-100-50"], min_length=1, description="By size or mix."
    )
    seeds: Annotated[list[Seed], AfterValidator(without_duplicates)] = Field(
        [0, 1], min_length=1, description="Root seeds."
    )
    overrides: dict[str, Any] = Field(
        {}, description="Keys of the run configuration that override the preset, by section."
    )
    variants: dict[str, dict[str, Any]] = Field(
        {},
        description="Named sets of further overrides; each sampler runs with every one that "
        "affects it.",
    )
    allow_incomplete: bool = Field(False, description="Report on the complete runs only.")
    log: Literal["none", "tensorboard"] = Field(
        "none", description="`tensorboard`: live curves of each run."
    )
    analysis: AnalysisConfig = Field(default_factory=AnalysisConfig)

    @field_validator("goal_spaces")
    @classmethod
    def _known_goal_spaces(cls, names: list[str], info: ValidationInfo) -> list[str]:
        return without_duplicates(_canonical_goal_spaces(names, info))

    @field_validator("samplers")
    @classmethod
    def _known_samplers(cls, names: list[str]) -> list[str]:
        for index, name in enumerate(names):
            SAMPLERS.find(name, f"samplers.{index}")
        return without_duplicates(names)

    @property
    def common(self) -> dict[str, Any]:
        """Keys common to all runs; the goal space is a placeholder that the grid replaces."""
        return {"modules": self.modules, "world": self.world, "goal_space": self.goal_spaces[0]}

    @model_validator(mode="after")
    def _known_names(self) -> ExperimentConfig:
        """Check the names in `analysis`: labels name variants, or variants of one sampler."""
        name = self.analysis.reference
        sampler, slash, variant = name.partition("/")
        variants = self.variants or {PLAIN: {}}
        if name and (sampler not in self.samplers or (slash and variant not in variants)):
            allowed = f"{', '.join(self.samplers)}, or with one of the variants: SAMPLER/VARIANT"
            raise not_allowed("analysis.reference", name, allowed)
        for key in self.analysis.labels:
            sampler, slash, variant = key.rpartition("/")
            if variant not in self.variants or (slash and sampler not in self.samplers):
                names = f"{', '.join(self.variants)}, or one of these after SAMPLER/"
                allowed = names if self.variants else "none, as there are no variants"
                raise InputError(
                    f"analysis.labels.{key}: not a variant; allowed: {allowed}"
                    f"{suggestion(variant, self.variants)}"
                )
        feasible = WORLDS[self.world].categories.feasible
        for name in self.analysis.paper_mastery:
            if name not in feasible:
                raise InputError(
                    f"analysis.paper_mastery.{name}: not a feasible category of the world "
                    f"{self.world}; allowed: {', '.join(feasible)}"
                )
        return self
