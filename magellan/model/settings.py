"""Sections of a run's configuration about the model: what it is, and how it learns.

No torch here: the configuration imports this.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from magellan.core.errors import InputError
from magellan.core.settings import BatchSize, Count, Fraction, Section, StepSize, Width


class BackboneConfig(Section):
    """The language model and its LoRA adapters."""

    model: str = Field(
        "zoo-mini",
        description="`zoo-mini`, `zoo-reader`, `craft-reader` (in the repository), `smollm2-135m` "
        "(made by the workflow), a folder in Hugging Face format with a causal or encoder-decoder "
        "language model, or the name of such a model in the Hugging Face cache.",
    )
    lora_rank: Width = Field(16, description="Rank r of every LoRA adapter.")
    lora_alpha: float = Field(
        32.0, gt=0.0, le=1e6, description="LoRA scale: updates count alpha / r."
    )
    lora_targets: Literal["attention_qv", "all_linear"] = Field(
        "attention_qv", description="Which linear layers carry adapters."
    )
    lora_layers: int = Field(
        0,
        ge=0,
        le=10_000,
        description="How many layers carry adapters, counted from the last one (of encoder and "
        "decoder each); 0 is all. Those below stay as they are, and need no gradients.",
    )
    lora_mode: Literal["merged", "per_token"] = Field(
        "merged",
        description="`merged` adds B A to the weights once per update (small models); `per_token` "
        "applies the adapter to every token (large models). Same result up to rounding, "
        "which in bfloat16 loses small changes when they are merged (docs/runs.md).",
    )
    passes: Literal["auto", "compiled", "torch"] = Field(
        "auto",
        description="What reads a small Llama: `compiled` is C++, compiled once per machine; "
        "`torch` is PyTorch; `auto` is `compiled` where there is a C++ compiler and threads is 1. "
        "Same result up to rounding.",
    )
    quantization: Literal["none", "nf4"] = Field(
        "none",
        description="`nf4` keeps the frozen linear layers in 4 bits (released code), by the "
        "library bitsandbytes, with `lora_mode: per_token`; adapters and heads have float32.",
    )

    @model_validator(mode="after")
    def _four_bits_stay(self) -> BackboneConfig:
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
    """Where and in which numbers the model is computed: how a job runs, not what the run is."""

    kind: str = Field(
        "local",
        description="`local`: the model is in the job's own process; `lamorel`: it is behind "
        "lamorel's servers, which lamorel's launcher starts beside the job (docs/lamorel.md); or "
        "a backend from `modules`.",
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
        description="States per pass of an update, where `transformers` reads; their gradients "
        "are added up. 0 is the whole batch, `auto` as many as the free memory takes.",
    )
    kept_states_mb: int = Field(
        2000,
        ge=0,
        le=10**6,
        description="Memory in MB for what layers without adapters (`backbone.lora_layers`) make "
        "of states, so that they read each of them once; where a Llama is read by `torch`. Any "
        "number gives the same results.",
    )
    gradient_checkpointing: bool = Field(
        False,
        description="Keep each layer's input only and compute the rest again for the gradients: "
        "less memory, more time, the same numbers. With `lora_mode: per_token`.",
    )
    length_bucket: int = Field(
        0,
        ge=0,
        le=4096,
        description="Padded batches are as long as a multiple of so many tokens, so that shapes "
        "repeat; 0 is 1 on a CPU and 16 on a GPU.",
    )
    compile: bool = Field(
        False,
        description="PyTorch compiles the layers where `transformers` reads, with "
        "`lora_mode: per_token`.",
    )
    deterministic: bool = Field(
        True,
        description="On a GPU: only operations that give the same numbers every time. A CPU "
        "always does.",
    )

    @field_validator("device")
    @classmethod
    def _known_device(cls, name: str) -> str:
        if not DEVICE.fullmatch(name):
            raise ValueError("Input should be 'cpu', 'cuda', 'cuda:N' or 'auto'")
        return name

    @field_validator("micro_batch", mode="before")
    @classmethod
    def _whole_or_auto(cls, value: Any) -> Any:
        whole = int(value) if isinstance(value, str) and value.isdecimal() else value
        if value == AUTO or (isinstance(whole, int) and 0 <= whole <= MOST_STATES):
            return whole
        raise ValueError(f"Input should be a valid integer from 0 to {MOST_STATES}, or 'auto'")


def check_together(backbone: BackboneConfig, backend: BackendConfig) -> None:
    """What a job asks of the layers of `transformers` needs adapters beside the weights.

    Raises:
        InputError: they are merged into copies of the weights.
    """
    for key in ("gradient_checkpointing", "compile"):
        if getattr(backend, key) and backbone.lora_mode == "merged":
            raise InputError(
                f"backend.{key}: True is not for backbone.lora_mode 'merged'; allowed: false, or "
                "lora_mode per_token"
            )


class AgentConfig(Section):
    """Discrete SAC over candidate actions."""

    num_envs: int = Field(32, ge=1, le=10**5, description="Environments stepped together.")
    steps_per_update: int = Field(
        64,
        ge=1,
        le=10**7,
        description="Environment steps (all environments together) between two updates.",
    )
    gamma: Fraction = Field(0.99, description="Discount per step.")
    n_step: Count = Field(3, description="Length of n-step returns; 15 or more is Monte Carlo.")
    replay_capacity: Count = Field(500_000, description="Transitions kept.")
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
        False, description="Whether a layer norm stands before each of these activations."
    )
    critic_loss: Literal["squared", "cross_entropy"] = Field(
        "squared",
        description="What the critic minimises: the squared error of Q; or the cross-entropy of Q "
        "as a chance, the sigmoid of what the head says, against the return within 0 and 1.",
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
    target_adapter: Literal["own", "policy"] = Field(
        "own",
        description="Adapter that the target critic reads with: its own, which follows the "
        "policy's; or the policy's (defect B1 of the released code with the public lamorel).",
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
    temperature: Literal["fixed", "released", "target_entropy", "max_entropy"] = Field(
        "released",
        description="`fixed`; `released` (target -log n, only decays: defect B3); `target_entropy` "
        "(a number, the paper's -0.125: only decays too); `max_entropy` (target c log n).",
    )
    temperature_initial: float = Field(
        0.049787, ge=1e-12, le=1e6, description="Entropy temperature at the start."
    )
    temperature_learning_rate: StepSize = Field(1e-3, description="Adam step size of log alpha.")
    target_entropy_scale: Fraction = Field(
        0.98, description="c of `max_entropy`: share of the largest entropy log n."
    )
    target_entropy: float = Field(
        -0.125,
        ge=-100.0,
        le=100.0,
        description="Target of `target_entropy` in nats; Table 5 of the paper. Entropy is never "
        "below 0, so a negative one only lowers the temperature.",
    )
    gradient_clip: float = Field(
        0.0, ge=0.0, description="Largest gradient norm; 0 is no clipping."
    )
