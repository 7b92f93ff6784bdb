"""Sections of a run's configuration about the model: what it is, and how it learns.

No torch here: the configuration imports this.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from magellan.settings import BatchSize, Count, Fraction, Section, StepSize, Width


class BackboneConfig(Section):
    """The language model and its LoRA adapters."""

    model: str = Field(
        "zoo-mini",
        description="`zoo-mini`, `zoo-reader` (in the repository), `smollm2-135m` (made by the "
        "workflow), a folder in Hugging Face format with a causal or encoder-decoder language "
        "model, or the name of such a model in the Hugging Face cache.",
    )
    lora_rank: Width = Field(16, description="Rank r of every LoRA adapter.")
    lora_alpha: float = Field(
        32.0, gt=0.0, le=1e6, description="LoRA scale: updates count alpha / r."
    )
    lora_targets: Literal["attention_qv", "all_linear"] = Field(
        "attention_qv", description="Which linear layers carry adapters."
    )
    lora_mode: Literal["merged", "per_token"] = Field(
        "merged",
        description="`merged` adds B A to the weights once per update (small models); `per_token` "
        "applies the adapter to every token (large models). Same result up to rounding.",
    )
    passes: Literal["auto", "compiled", "torch"] = Field(
        "auto",
        description="What reads a small Llama: `compiled` is C++, compiled once per machine; "
        "`torch` is PyTorch; `auto` is `compiled` where there is a C++ compiler and threads is 1. "
        "Same result up to rounding.",
    )


class BackendConfig(Section):
    """Where and in which numbers the model is computed: how a job runs, not what the run is."""

    kind: Literal["local", "lamorel"] = Field(
        "local",
        description="`local`: the model is in the job's own process; `lamorel`: it is behind "
        "lamorel's servers, which lamorel's launcher starts beside the job (docs/lamorel.md).",
    )
    device: Literal["cpu", "cuda", "auto"] = Field(
        "cpu", description="`cpu`; `cuda`, a GPU; `auto`, a GPU where there is one."
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="Number format of the frozen model; heads, adapters and optimizers always "
        "have float32.",
    )
    micro_batch: int = Field(
        0,
        ge=0,
        le=10**6,
        description="States per pass with gradients, where `transformers` reads; their gradients "
        "are added up. 0 is the whole batch.",
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
        (1024, 1024), max_length=16, description="Hidden widths of the critic head (ReLU)."
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
    temperature_initial: float = Field(
        0.049787, ge=1e-12, le=1e6, description="Entropy temperature at the start."
    )
    temperature_learning_rate: StepSize = Field(1e-3, description="Adam step size of log alpha.")
    target_entropy_scale: Fraction = Field(
        0.98, description="c of `max_entropy`: share of the largest entropy log n."
    )
    gradient_clip: float = Field(
        0.0, ge=0.0, description="Largest gradient norm; 0 is no clipping."
    )
