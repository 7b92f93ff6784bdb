"""Typed configuration: one schema for a run, one for an experiment (a grid of runs).

Every key has its default and a sentence saying what it is. Presets are named sets of values; the
resolved configuration is saved in a run's manifest. No torch here: the workflow imports this.
"""

from __future__ import annotations

import hashlib
import json
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from magellan.errors import InputError, shown
from magellan.model_files import check_model_folder
from magellan.parsing import parse_yaml

SamplerName = Literal["random", "online", "ek_online", "magellan"]
Validated = typing.TypeVar("Validated", bound=BaseModel)


class Section(BaseModel):
    """A group of keys: immutable; an unknown key is an error, and so are NaN and infinity."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_value_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        values = value if isinstance(value, list | tuple) else [value]
        wanted = cls.model_fields[str(info.field_name)].annotation
        if any(isinstance(item, bool) for item in values) and _takes_numbers(wanted):
            raise ValueError("Input should be a number, not true or false")
        return value


def _takes_numbers(annotation: Any) -> bool:
    return annotation in (int, float) or any(map(_takes_numbers, typing.get_args(annotation)))


Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
# Upper limits keep numbers within what arrays and random generators can hold.
Count = Annotated[int, Field(ge=1, le=10**9)]
Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]


class GoalConfig(Section):
    """Which goals a run trains on."""

    seed: Seed = Field(
        0,
        description="Seed that draws the goal space; the same for all runs of an experiment.",
    )


class BackboneConfig(Section):
    """The language model and its LoRA adapters."""

    model: str = Field(
        "zoo-mini",
        description="`zoo-mini` (in the repository) or a folder in Hugging Face format with a "
        "causal or encoder-decoder language model.",
    )
    lora_rank: Count = Field(16, description="Rank r of every LoRA adapter.")
    lora_alpha: Positive = Field(32.0, description="LoRA scale: updates count alpha / r.")
    lora_targets: Literal["attention_qv", "all_linear"] = Field(
        "attention_qv", description="Which linear layers carry adapters."
    )
    lora_mode: Literal["merged", "per_token"] = Field(
        "merged",
        description="`merged` adds B A to the weights once per update (small models); `per_token` "
        "applies the adapter to every token (large models). Same result up to rounding.",
    )


class AgentConfig(Section):
    """Discrete SAC over candidate actions."""

    num_envs: Count = Field(32, description="Environments stepped together.")
    steps_per_update: Count = Field(
        64, description="Environment steps (all environments together) between two updates."
    )
    gamma: Fraction = Field(0.99, description="Discount per step.")
    n_step: Count = Field(3, description="Length of n-step returns; 15 or more is Monte Carlo.")
    replay_capacity: Count = Field(500_000, description="Transitions kept.")
    batch_size: Count = Field(256, description="Transitions per update.")
    success_fraction: Fraction = Field(
        0.0, description="Share of a batch drawn from successful episodes; 0 is plain replay."
    )
    learning_rate: Positive = Field(1e-4, description="Adam step size of policy and critic.")
    critic_hidden: tuple[Count, ...] = Field(
        (1024, 1024), description="Hidden widths of the critic head (ReLU)."
    )
    joint_update: bool = Field(
        False,
        description="One pass and one Adam step for critic and actor loss together, instead of a "
        "critic step followed by an actor step with its own Adam moments.",
    )
    critic_trains_adapter: bool = Field(
        True,
        description="Whether the critic loss reaches the policy adapter; false reproduces defect "
        "B2 of the released code.",
    )
    polyak: Fraction = Field(0.005, description="Step of the target critic towards the critic.")
    target_init: Literal["random", "copy"] = Field(
        "random", description="Target head at the start: drawn anew (released) or a copy."
    )
    next_candidates: Literal["next", "current"] = Field(
        "next",
        description="Candidates used in the bootstrap: those of the next state, or those of the "
        "current one (defect B4 of the released code).",
    )
    score: Literal["logit_sum", "log_prob_sum"] = Field(
        "logit_sum",
        description="Score of an action: sum of raw token logits, or of log-probabilities.",
    )
    actor_warmup_updates: int = Field(
        11, ge=0, le=10**9, description="Updates in which only critic and competence learn."
    )
    random_steps: int = Field(
        0,
        ge=0,
        le=10**9,
        description="Environment steps of uniformly random play before the policy acts.",
    )
    temperature: Literal["fixed", "released", "max_entropy"] = Field(
        "released",
        description="`fixed`; `released` (target -log n, only decays: defect B3); `max_entropy` "
        "(target c log n).",
    )
    temperature_initial: Positive = Field(0.049787, description="Entropy temperature at the start.")
    temperature_learning_rate: Positive = Field(1e-3, description="Adam step size of log alpha.")
    target_entropy_scale: Fraction = Field(
        0.98, description="c of `max_entropy`: share of the largest entropy log n."
    )
    gradient_clip: float = Field(
        0.0, ge=0.0, description="Largest gradient norm; 0 is no clipping."
    )


class CompetenceConfig(Section):
    """MAGELLAN's competence head and its learning progress."""

    learning_rate: Positive = Field(1e-4, description="Adam step size of head and adapter.")
    hidden: Count = Field(128, description="Width of the head's hidden layer (tanh).")
    buffer: Count = Field(5_000, description="Most recent episodes kept.")
    batch_size: Count = Field(256, description="Episodes per update, drawn by recency rank.")
    delay: Count = Field(
        100, description="N: updates between the current and the delayed estimate."
    )
    refresh: Count = Field(32, description="Updates between two evaluations of the goal space.")
    pool: int = Field(
        25_000,
        ge=2,
        description="Predictions per refresh, at most. A goal space with more goals is sampled: "
        "half as many goals, drawn anew, each predicted now and delayed.",
    )
    refresh_batch: Count = Field(512, description="Goals per forward pass of a refresh.")
    lp_threshold: Fraction = Field(0.01, description="Learning progress below this counts as 0.")


class SamplerConfig(Section):
    """What the goal samplers share."""

    epsilon_start: Fraction = Field(1.0, description="Share of uniform draws at the start.")
    epsilon_end: Fraction = Field(0.2, description="Share of uniform draws in the limit.")
    epsilon_decay: Positive = Field(320.0, description="Time constant in policy updates.")
    window: int = Field(
        100, ge=2, le=10**9, description="Outcomes kept per goal or bucket (ALP baselines)."
    )
    drop_standing_starts: bool = Field(
        False,
        description="EK buckets ignore episodes that start on an object (defect B13).",
    )


class BudgetConfig(Section):
    """How long a run is, and when it is looked at."""

    episodes: Count = Field(500_000, description="Training episodes.")
    evaluate_every: Count = Field(5_000, description="Episodes between two evaluations.")
    evaluation_goals: Count = Field(
        64, description="Goals per category and split; fewer where the goal space has fewer."
    )
    evaluation_seed: Seed = Field(
        12_345, description="Seed of the evaluation set and of its episodes."
    )
    practice_window: Count = Field(5_000, description="Episodes per row of practice.csv.")
    record_every: Count = Field(100, description="Updates per row of training.csv.")
    checkpoint_seconds: float = Field(
        300.0, ge=0.0, description="Seconds between two checkpoints, at least."
    )
    checkpoint_share: float = Field(
        0.01,
        gt=0.0,
        le=1.0,
        description="Largest share of the run time spent saving: after a slow save the next one "
        "waits longer; 1 is no limit.",
    )
    stop_margin_seconds: float = Field(
        60.0,
        ge=0.0,
        description="A job with a time limit stops this long before it, and earlier by its longest "
        "round and save so far.",
    )


class RunConfig(Section):
    """One training run."""

    sampler: SamplerName = Field("magellan", description="Goal sampler.")
    goal_space: str = Field(
        "25k",
        description="25k, 50k, 100k, another size up to 1.29M in the same proportions, a mix such "
        "as 1000-400-200-100-50 (impossible, grasp, plant, herbivore, carnivore), or all: every "
        "goal there is.",
    )
    seed: Seed = Field(0, description="Root seed of all random streams of the run.")
    preset: str = Field("paper", description="Preset that the values started from.")
    threads: int = Field(1, ge=1, le=1024, description="Threads of the numerical libraries.")
    goals: GoalConfig = Field(default_factory=GoalConfig)
    backbone: BackboneConfig = Field(default_factory=BackboneConfig)
    agent: AgentConfig = Field(default_factory=AgentConfig)
    competence: CompetenceConfig = Field(default_factory=CompetenceConfig)
    samplers: SamplerConfig = Field(default_factory=SamplerConfig)
    budget: BudgetConfig = Field(default_factory=BudgetConfig)

    @field_validator("goal_space")
    @classmethod
    def _known_goal_space(cls, name: str) -> str:
        return _checked_goal_space(name)


class AnalysisConfig(Section):
    """Statistics of the report."""

    bootstrap_repetitions: int = Field(
        2_000, ge=100, le=10**6, description="Stratified bootstrap resamples."
    )
    confidence: float = Field(0.95, gt=0.5, lt=1.0, description="Level of the intervals.")
    bootstrap_seed: Seed = Field(0, description="Seed of the resampling.")


class ExperimentConfig(Section):
    """A grid sampler x goal space x seed, and what is made of it."""

    experiment: str = Field(
        "laptop", pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", description="Name of the results folder."
    )
    # No braces: to Snakemake they are wildcards.
    results: str = Field(
        "results",
        pattern=r"^[^\x00-\x1f{}]+$",
        description="Folder that holds the experiments.",
    )
    preset: str = Field("laptop", description="Preset of every run: smoke, laptop or paper.")
    samplers: list[SamplerName] = Field(
        ["random", "online", "ek_online", "magellan"],
        min_length=1,
        description="Samplers to compare.",
    )
    goal_spaces: list[str] = Field(
        ["1000-400-200-100-50"], min_length=1, description="Goal spaces, by size or by mix."
    )
    seeds: list[Seed] = Field([0, 1], min_length=1, description="Root seeds.")
    overrides: dict[str, Any] = Field(
        {}, description="Keys of the run configuration that differ from the preset, by section."
    )
    allow_incomplete: bool = Field(
        False,
        description="Report on the runs that are complete, and start none.",
    )
    analysis: AnalysisConfig = Field(default_factory=AnalysisConfig)

    @field_validator("goal_spaces")
    @classmethod
    def _known_goal_spaces(cls, names: list[str]) -> list[str]:
        return without_duplicates([_checked_goal_space(name) for name in names])

    @field_validator("seeds", "samplers")
    @classmethod
    def _no_duplicates(cls, values: list) -> list:
        return without_duplicates(values)

    @field_validator("preset")
    @classmethod
    def _known_preset(cls, name: str) -> str:
        return _checked_preset(name)

    @model_validator(mode="after")
    def _overrides_fit(self) -> ExperimentConfig:
        for key, value in self.overrides.items():
            if key in RunConfig.model_fields and key not in SECTIONS:
                raise InputError(
                    f"overrides.{key}: {shown(value)} is not allowed: the experiment gives it; "
                    f"allowed here: {', '.join(SECTIONS)}"
                )
        try:
            resolve_run(self.preset, [self.overrides])
        except InputError as error:
            raise InputError(f"overrides.{error}") from None
        return self


SECTIONS = tuple(
    name
    for name, field in RunConfig.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
)


def _checked_preset(name: str) -> str:
    if name not in PRESETS:
        raise InputError(f"preset: {shown(name)} is unknown; allowed: {', '.join(PRESETS)}")
    return name


def _checked_goal_space(name: str) -> str:
    from magellan.littlezoo.goals import parse_goal_space

    parse_goal_space(name)
    return name


def without_duplicates(values: list) -> list:
    """The values, if each stands once; for use in validators."""
    twice = sorted({value for value in values if values.count(value) > 1})
    if twice:
        raise ValueError(f"{twice[0]!r} is listed twice; each value may stand once")
    return values


# The accelerated recipe for two CPU cores. It was fixed with the random sampler only (see
# docs/protocol.md) and is the same for every sampler.
LAPTOP: dict[str, Any] = {
    "backbone": {"lora_targets": "all_linear"},
    "agent": {
        "steps_per_update": 32,
        "n_step": 15,
        "replay_capacity": 50_000,
        "batch_size": 64,
        "success_fraction": 0.3,
        "learning_rate": 1e-3,
        "critic_hidden": (128,),
        "joint_update": True,
        "temperature": "fixed",
        "temperature_initial": 0.02,
        "actor_warmup_updates": 100,
        "score": "log_prob_sum",
    },
    "competence": {"learning_rate": 3e-4, "batch_size": 64},
    "budget": {
        "episodes": 12_000,
        "evaluate_every": 1_000,
        "practice_window": 500,
        "record_every": 50,
        "checkpoint_seconds": 60.0,
    },
}

SMOKE: dict[str, Any] = {
    "backbone": {"lora_targets": "all_linear", "lora_rank": 4},
    "agent": {
        **LAPTOP["agent"],
        "num_envs": 8,
        "batch_size": 16,
        "replay_capacity": 2_000,
        "actor_warmup_updates": 2,
        "critic_hidden": (32,),
    },
    "competence": {"learning_rate": 3e-4, "batch_size": 16, "hidden": 16, "refresh": 4, "delay": 8},
    "budget": {
        "episodes": 120,
        "evaluate_every": 60,
        "evaluation_goals": 4,
        "practice_window": 30,
        "record_every": 5,
        "checkpoint_seconds": 60.0,
    },
}

# Every default above is the paper's or the released code's constant; see DEVIATIONS.md. The paper's
# backbone is not in the repository: point backbone.model at a local copy of flan-t5-base.
PAPER: dict[str, Any] = {
    "backbone": {"model": "google/flan-t5-base", "lora_mode": "per_token"},
    "competence": {"pool": 100_000},  # its largest goal space, scored as a whole
    "samplers": {"drop_standing_starts": True},
}

PRESETS: Mapping[str, dict[str, Any]] = types.MappingProxyType(
    {"smoke": SMOKE, "laptop": LAPTOP, "paper": PAPER}
)


def resolve_run(preset: str, layers: Iterable[Mapping[str, Any]]) -> RunConfig:
    """Build a run's configuration: schema defaults, then the preset, then each layer in turn.

    Raises:
        InputError: unknown preset, unknown key or a value out of range; one line.
    """
    values: dict[str, Any] = {"preset": _checked_preset(preset)}
    for layer in (PRESETS[preset], *layers):
        values = _merged(values, layer, "")
    if values["preset"] != preset:
        raise InputError(
            f"preset: {shown(values['preset'])} is not allowed here: the run starts from the "
            f"preset {preset!r}; allowed: {preset}, or another --preset"
        )
    return validated(RunConfig, values)


def _merged(base: Mapping[str, Any], extra: Any, where: str) -> dict[str, Any]:
    if not isinstance(extra, Mapping):
        raise InputError(
            f"{where.rstrip('.') or 'overrides'}: {shown(extra)} is not a mapping of keys to values"
        )
    merged = dict(base)
    for key, value in extra.items():
        if isinstance(merged.get(key), Mapping):
            merged[key] = _merged(merged[key], value, f"{where}{key}.")
        else:
            merged[key] = value
    return merged


def parse_assignment(text: str) -> dict[str, Any]:
    """Turn `section.key=value` into a nested mapping; the value is read as YAML."""
    key, separator, value = text.partition("=")
    parts = [part.strip() for part in key.split(".")]
    if not separator or not all(parts):
        raise InputError(f"--set: {shown(text)} is not of the form section.key=value")
    nested = parse_yaml(value, f"--set: the value of {shown(text)}")
    for part in reversed(parts):
        nested = {part: nested}
    return nested


def load_experiment(values: Mapping[str, Any]) -> ExperimentConfig:
    """Validate an experiment's configuration.

    Raises:
        InputError: one line naming the key, the value and what is allowed.
    """
    if not isinstance(values, Mapping):
        raise InputError(f"config: {shown(values)} is not a mapping of keys to values")
    experiment = validated(ExperimentConfig, dict(values))
    check_backbone(resolve_run(experiment.preset, [experiment.overrides]).backbone.model)
    return experiment


def check_backbone(model: str) -> Path:
    """Folder of a backbone, its files checked without building the model.

    Raises:
        InputError: no such folder, or its files cannot be those of a language model.
    """
    folder = Path(__file__).parent / "backbones" / model if model == "zoo-mini" else Path(model)
    check_model_folder(folder, model)
    return folder


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read a YAML mapping; an empty file is an empty mapping.

    Raises:
        InputError: one line with the file and the place, when it is absent or malformed.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"config file: {path} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"config file: {path} is not UTF-8 text (byte {error.start}); allowed: YAML in UTF-8"
        ) from None
    values = parse_yaml(text, f"config file: {path}")
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise InputError(
            f"config file: {path} holds {shown(values)}; allowed: a mapping of keys to values"
        )
    return values


# Keys of `budget` that say how a job is run, and change no number in its tables.
OPERATIONAL = ("checkpoint_seconds", "checkpoint_share", "stop_margin_seconds")


def config_hash(config: RunConfig) -> str:
    """SHA-256 of the resolved configuration: equal exactly when every value is equal.

    Operational keys do not count. Version 0.1.0 counted `checkpoint_seconds`, so the preset's value
    stands in its place: runs made then keep their hash.
    """
    values = config.model_dump(mode="json")
    for key in OPERATIONAL:
        del values["budget"][key]
    preset = resolve_run(config.preset, []).budget
    values["budget"]["checkpoint_seconds"] = preset.checkpoint_seconds
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def flat_keys(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested mapping as one level: `section.key` -> value."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        inner = flat_keys(value, f"{prefix}{key}.") if isinstance(value, Mapping) else None
        flat |= {f"{prefix}{key}": value} if inner is None else inner
    return flat


def experiment_schema() -> dict[str, Any]:
    """JSON schema of the experiment file, generated from the typed configuration."""
    schema = ExperimentConfig.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["additionalProperties"] = False
    return schema


def validated(model: type[Validated], values: Any, where: str = "") -> Validated:
    """Values as a typed model; `where` goes before the key in the error.

    Raises:
        InputError: one line naming the key, the value and what is allowed.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise InputError(where + _one_line(error, model)) from None


def _one_line(error: ValidationError, model: type[BaseModel]) -> str:
    """First problem of a validation error as `key: value ...; allowed: ...`."""
    problem = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        allowed = ", ".join(_keys_at(model, problem["loc"][:-1]))
        return f"{key}: unknown key; allowed here: {allowed}"
    if problem["type"] == "missing":
        return f"{key}: key is missing"
    message = str(problem["msg"]).removeprefix("Value error, ")
    inner = problem.get("ctx", {}).get("error")
    if isinstance(inner, InputError):
        return str(inner)
    if problem["type"] in ("model_type", "dict_type"):
        message = "Input should be a mapping of keys to values"
    return f"{key}: {shown(problem['input'])} is not allowed: {message}"


def _keys_at(model: type[BaseModel], location: tuple) -> list[str]:
    for part in location:
        annotation = model.model_fields[part].annotation if part in model.model_fields else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        model = annotation
    return list(model.model_fields)


def sampler_names() -> tuple[str, ...]:
    """Names that `sampler` accepts, from the schema itself."""
    return typing.get_args(SamplerName)
