"""Sections of a run's configuration for the model, its backend and the agent.

No torch here: the configuration imports this module.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from magellan.core.errors import InputError
from magellan.core.settings import BatchSize, Count, Fraction, Section, StepSize, Width
from magellan.model.files import EMBEDDED


class BackboneConfig(Section):
    """The language model and its LoRA adapters."""

    model: str = Field(
        "zoo-mini",
        description=f"`{'`, `'.join(EMBEDDED)}` (in the repository), `smollm2-135m` (made by the "
        "workflow), a folder in Hugging Face format with a causal or encoder-decoder language "
        "model, or the name of such a model in the Hugging Face cache.",
    )
    lora_rank: Width = Field(16, description="Rank r of every LoRA adapter.")
    lora_alpha: float = Field(
        32.0, gt=0.0, le=1e6, description="LoRA scale: B A is multiplied by alpha / r."
    )
    lora_targets: Literal["attention_qv", "all_linear"] = Field(
        "attention_qv", description="Which linear layers carry adapters."
    )
    lora_layers: int = Field(
        0,
        ge=0,
        le=10_000,
        description="Number of layers with adapters, counted from the last one (of encoder and "
        "decoder each); 0 is all. The layers below stay frozen and need no gradients.",
    )
    lora_mode: Literal["merged", "per_token"] = Field(
        "merged",
        description="`merged` adds B A to the weights once per update (small models); `per_token` "
        "applies the adapter to every token (large models). Same result up to rounding; in "
        "bfloat16 merging loses small changes (docs/runs.md).",
    )
    passes: Literal["auto", "compiled", "torch"] = Field(
        "auto",
        description="Passes of a small Llama: `compiled` is C++, compiled once per machine; "
        "`torch` is PyTorch; `auto` is `compiled` where there is a C++ compiler and threads is 1. "
        "Same result up to rounding.",
    )
    quantization: Literal["none", "nf4"] = Field(
        "none",
        description="`nf4` stores the frozen linear layers in 4 bits (released code), with the "
        "library bitsandbytes and `lora_mode: per_token`; adapters and heads have float32.",
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
    """Device and number format of the model: how a job runs, no part of a run's identity."""

    kind: str = Field(
        "local",
        description="`local`: the model runs in the job's own process; `lamorel`: in lamorel's "
        "servers, which lamorel's launcher starts beside the job (docs/lamorel.md); or a backend "
        "from `modules`.",
        json_schema_extra={"examples": ["local", "lamorel"]},
    )
    device: str = Field(
        "cpu",
        description="`cpu`; `cuda`, a GPU; `cuda:1`, the second of several; `auto`, a GPU where "
        "there is one.",
        json_schema_extra={"pattern": f"^({DEVICE.pattern})$"},
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="Number format of the frozen model; heads, adapters and optimizers always "
        "have float32.",
    )
    micro_batch: int | Literal["auto"] = Field(
        0,
        description="States per pass of an update with `transformers`; gradients are "
        "accumulated. 0 is the whole batch, `auto` as many as fit the free memory.",
    )
    kept_states_mb: int = Field(
        2000,
        ge=0,
        le=10**6,
        description="Memory in MB to cache the output of layers without adapters "
        "(`backbone.lora_layers`), so that they read each state once; for Llamas with `passes: "
        "torch`. Any number gives the same results.",
    )
    gradient_checkpointing: bool = Field(
        False,
        description="Store only each layer's input and recompute the rest for the gradients: "
        "less memory, more time, the same numbers. With `lora_mode: per_token`.",
    )
    length_bucket: int = Field(
        0,
        ge=0,
        le=4096,
        description="Padded batches have a multiple of this length in tokens, so that shapes "
        "repeat; 0 is 1 on a CPU and 16 on a GPU.",
    )
    compile: bool = Field(
        False,
        description="Compile the layers of `transformers` with PyTorch; with `lora_mode: "
        "per_token`.",
    )
    deterministic: bool = Field(
        True,
        description="On a GPU: use only deterministic operations. A CPU is always deterministic.",
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
    """Raise InputError for an option of `backend` that does not work with merged adapters."""
    for key in ("gradient_checkpointing", "compile"):
        if getattr(backend, key) and backbone.lora_mode == "merged":
            raise InputError(
                f"backend.{key}: True is not for backbone.lora_mode 'merged'; allowed: false, or "
                "lora_mode per_token"
            )


class AgentConfig(Section):
    """Discrete SAC over candidate actions."""

    num_envs: int = Field(32, ge=1, le=10**5, description="Environments stepped in parallel.")
    steps_per_update: int = Field(
        64,
        ge=1,
        le=10**7,
        description="Environment steps, summed over environments, between two updates.",
    )
    gamma: Fraction = Field(0.99, description="Discount per step.")
    n_step: Count = Field(3, description="Length of n-step returns; 15 or more is Monte Carlo.")
    replay_capacity: Count = Field(500_000, description="Transitions in the replay memory.")
    batch_size: BatchSize = Field(256, description="Transitions per update.")
    success_fraction: Fraction = Field(
        0.0, description="Share of a batch drawn from successful episodes; 0 is plain replay."
    )
    learning_rate: StepSize = Field(1e-4, description="Adam step size of policy and critic.")
    critic_hidden: tuple[Width, ...] = Field(
        (1024, 1024), max_length=16, description="Hidden widths of the critic head."
    )
    critic_activation: Literal["relu", "silu", "tanh"] = Field(
        "relu", description="Activation of the critic head's hidden units."
    )
    critic_norm: bool = Field(
        False, description="Whether a layer norm precedes each of these activations."
    )
    critic_loss: Literal["squared", "cross_entropy"] = Field(
        "squared",
        description="Loss of the critic: the squared error of Q; or the cross-entropy of Q, then "
        "the sigmoid of the head's output, against the target clipped to 0 to 1.",
    )
    joint_update: bool = Field(
        False,
        description="One pass and one Adam step on the sum of critic and actor loss, instead of a "
        "critic step followed by an actor step with its own Adam moments.",
    )
    critic_trains_adapter: bool = Field(
        True,
        description="Whether the critic loss reaches the policy adapter; false reproduces defect "
        "B2 of the released code.",
    )
    polyak: Fraction = Field(0.005, description="Step of the target critic towards the critic.")
    target_init: Literal["random", "copy"] = Field(
        "random", description="Initial target head: drawn anew (released) or a copy."
    )
    target_adapter: Literal["own", "policy"] = Field(
        "own",
        description="Adapter of the target critic: its own, which follows the policy's; or the "
        "policy's (defect B1 of the released code with the public lamorel).",
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
        11, ge=0, le=10**9, description="First updates, in which the actor is not trained."
    )
    random_steps: int = Field(
        0,
        ge=0,
        le=10**9,
        description="Environment steps of uniformly random actions before the policy acts.",
    )
    temperature: Literal["fixed", "released", "target_entropy", "max_entropy"] = Field(
        "released",
        description="`fixed`; `released` (target -log n, only decays: defect B3); `target_entropy` "
        "(a number, the paper's -0.125: only decays too); `max_entropy` (target c log n).",
    )
    temperature_initial: float = Field(
        0.049787, ge=1e-12, le=1e6, description="Initial entropy temperature."
    )
    temperature_learning_rate: StepSize = Field(1e-3, description="Adam step size of log alpha.")
    target_entropy_scale: Fraction = Field(
        0.98, description="c of `max_entropy`: fraction of the maximum entropy log n."
    )
    target_entropy: float = Field(
        -0.125,
        ge=-100.0,
        le=100.0,
        description="Target of `target_entropy` in nats; Table 5 of the paper. Entropy is never "
        "negative, so a negative target only lowers the temperature.",
    )
    gradient_clip: float = Field(
        0.0, ge=0.0, description="Maximum gradient norm; 0 is no clipping."
    )
