"""Sections of a run's configuration for the model, its backend and the agent.

No torch here: the configuration imports this module.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from magellan.core.errors import InputError
from magellan.core.settings import BatchSize, Count, Fraction, Positive, Section, StepSize, Width
from magellan.model.files import EMBEDDED


class BackboneConfig(Section):
    """The language model and its LoRA adapters."""

    model: str = Field(
        "zoo-mini",
        description=f"`{'`, `'.join(EMBEDDED)}`, `smollm2-135m`, or any folder or cached name "
        "in Hugging Face format (docs/models.md).",
    )
    lora_rank: Width = Field(16, description="Rank r of the LoRA adapters.")
    lora_alpha: float = Field(32.0, gt=0.0, le=1e6, description="B A is multiplied by alpha / r.")
    lora_targets: Literal["attention_qv", "all_linear"] = Field(
        "attention_qv", description="Linear layers with adapters."
    )
    lora_layers: int = Field(
        0,
        ge=0,
        le=10_000,
        description="Last layers with adapters, of encoder and decoder each; 0: all.",
    )
    lora_mode: Literal["merged", "per_token"] = Field(
        "merged",
        description="B A is added to the weights once per update, for small models, or applied to "
        "every token (`per_token`), for large ones.",
    )
    passes: Literal["auto", "compiled", "torch"] = Field(
        "auto",
        description="Small Llamas in C++ (docs/speed.md): if possible, always (`compiled`) or "
        "never (`torch`).",
    )
    quantization: Literal["none", "nf4"] = Field(
        "none",
        description="`nf4`: frozen linear layers in 4 bits (docs/models.md).",
    )

    @model_validator(mode="after")
    def _check_quantization(self) -> BackboneConfig:
        if self.quantization != "none" and self.lora_mode == "merged":
            raise InputError(
                f"backbone.quantization: {self.quantization!r} is not for backbone.lora_mode "
                "'merged', which adds to the weights; allowed: none, or lora_mode per_token"
            )
        return self


DEVICE = re.compile(r"cpu|auto|cuda(:\d{1,3})?", re.ASCII)
AUTO: Literal["auto"] = "auto"
MOST_STATES = 10**6


class BackendConfig(Section):
    """How a job runs the model: no part of a run's identity, but for `dtype`."""

    kind: str = Field(
        "local",
        description="In the job's process; or `lamorel` (docs/lamorel.md), or a backend from "
        "`modules`.",
        json_schema_extra={"examples": ["local", "lamorel"]},
    )
    device: str = Field(
        "cpu",
        description="`cuda`, `cuda:1` and so on, or `auto`: a GPU if there is one.",
        json_schema_extra={"pattern": f"^({DEVICE.pattern})$"},
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="Number format of the frozen model; also `bfloat16`.",
    )
    micro_batch: int | Literal["auto"] = Field(
        0,
        description="States per pass of an update; 0: the whole batch, `auto`: as many as fit "
        "(docs/runs.md).",
    )
    kept_states_mb: int = Field(
        2000,
        ge=0,
        le=10**6,
        description="MB of cached output of layers without adapters, with `passes: torch`.",
    )
    gradient_checkpointing: bool = Field(
        False,
        description="Less memory, more time; with `per_token`.",
    )
    deterministic: bool = Field(
        True,
        description="Only deterministic operations on a GPU.",
    )

    @field_validator("device")
    @classmethod
    def _check_device(cls, name: str) -> str:
        if not DEVICE.fullmatch(name):
            raise ValueError("Input should be 'cpu', 'cuda', 'cuda:N' or 'auto'")
        return name

    @field_validator("micro_batch", mode="before")
    @classmethod
    def _check_micro_batch(cls, value: Any) -> Any:
        number = int(value) if isinstance(value, str) and value.isdecimal() else value
        if value == AUTO or (isinstance(number, int) and 0 <= number <= MOST_STATES):
            return number
        raise ValueError(f"Input should be a valid integer from 0 to {MOST_STATES}, or 'auto'")


def check_together(backbone: BackboneConfig, backend: BackendConfig) -> None:
    """Raise InputError for checkpointing with settings that exclude it."""
    if backend.gradient_checkpointing and backbone.lora_mode == "merged":
        raise InputError(
            "backend.gradient_checkpointing: True is not for backbone.lora_mode 'merged'; allowed: "
            "false, or lora_mode per_token"
        )


class AgentConfig(Section):
    """Discrete SAC over candidate actions."""

    num_envs: int = Field(32, ge=1, le=10**5, description="Environments stepped in parallel.")
    steps_per_update: int = Field(
        64,
        ge=1,
        le=10**7,
        description="Steps of all environments between updates.",
    )
    gamma: Fraction = Field(0.99, description="Discount per step.")
    n_step: Count = Field(3, description="Length of returns; 15 or more is Monte Carlo.")
    replay_capacity: Count = Field(500_000, description="Transitions in the replay memory.")
    batch_size: BatchSize = Field(256, description="Transitions per update.")
    success_fraction: Fraction = Field(
        0.0, description="Share of a batch from successful episodes."
    )
    learning_rate: StepSize = Field(1e-4, description="Adam step size of policy and critic.")
    critic_hidden: tuple[Width, ...] = Field(
        (1024, 1024),
        min_length=1,
        max_length=16,
        description="Widths of hidden layers.",
    )
    joint_update: bool = Field(
        False,
        description="One Adam step on both losses together.",
    )
    critic_trains_adapter: bool = Field(
        True,
        description="Whether its loss reaches the policy's adapter; false: defect B2.",
    )
    polyak: Fraction = Field(0.005, description="Step of the target critic towards the critic.")
    target_init: Literal["random", "copy"] = Field(
        "random", description="Initial target head: random (released) or a `copy`."
    )
    target_adapter: Literal["own", "policy"] = Field(
        "own",
        description="The target's own, or the `policy`'s (defect B1).",
    )
    next_candidates: Literal["next", "current"] = Field(
        "next",
        description="State whose actions the bootstrap uses; `current`: defect B4.",
    )
    score: Literal["logit_sum", "log_prob_sum"] = Field(
        "logit_sum",
        description="Score of an action; `logit_sum` takes raw logits.",
    )
    actor_warmup_updates: int = Field(
        11, ge=0, le=10**9, description="First updates, which train the critic alone."
    )
    random_steps: int = Field(
        0,
        ge=0,
        le=10**9,
        description="First steps, which take random actions.",
    )
    temperature: Literal["fixed", "released", "target_entropy", "max_entropy"] = Field(
        "released",
        description="Target entropy: none (`fixed`), -log n (`released`, defect B3), that "
        "of `target_entropy`, or c log n (`max_entropy`).",
    )
    temperature_initial: float = Field(
        0.049787, ge=1e-12, le=1e6, description="Initial entropy temperature."
    )
    temperature_learning_rate: StepSize = Field(1e-3, description="Adam step size of log alpha.")
    target_entropy_scale: Fraction = Field(0.98, description="The c of `max_entropy`.")
    target_entropy: float = Field(
        -0.125,
        ge=-100.0,
        le=100.0,
        description="In nats; a negative one only lowers the temperature.",
    )
    gradient_clip: float = Field(0.0, ge=0.0, description="Maximum gradient norm; 0: none.")


class GrpoConfig(Section):
    """GRPO, instead of `agent`, in worlds whose agent writes its answers."""

    prompts: Count = Field(8, description="Prompts per update.")
    answers: int = Field(8, ge=2, le=10**4, description="Answers to each prompt.")
    learning_rate: StepSize = Field(
        1e-3, description="Adam step size; some 1e-6 from 0.1 billion weights on."
    )
    temperature: Positive = Field(1.0, description="Of the softmax that answers are drawn from.")
    loss: Literal["dapo", "grpo", "dr_grpo"] = Field(
        "dapo",
        description="Mean over tokens; over answers, of means over tokens (`grpo`); or sum over "
        "tokens by the longest possible (`dr_grpo`).",
    )
    scale: bool = Field(True, description="Divide advantages by the group's standard deviation.")
    gate: Literal["all", "spread"] = Field(
        "all",
        description="Groups trained on; `spread`: those with both rewards (DAPO's filter).",
    )
    empty_steps: bool = Field(
        False, description="Adam steps also where no answer has an advantage, as in TRL."
    )
    gradient_clip: float = Field(1.0, ge=0.0, description="Maximum gradient norm; 0: none.")
