"""Presets: named sets of values that a run starts from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from magellan.core.errors import unknown

# The learner of the reference study, in which practice decides what is learnt; it was chosen
# without any sampler (docs/studies/learner.md).
REFERENCE: dict[str, Any] = {
    "backbone": {"model": "zoo-reader", "lora_targets": "all_linear"},
    "goals": {"seed": "run"},
    "agent": {
        "num_envs": 8,
        "steps_per_update": 16,
        "n_step": 15,
        "replay_capacity": 20_000,
        "batch_size": 64,
        "learning_rate": 2e-4,
        "critic_hidden": (128,),
        "joint_update": True,
        "temperature": "fixed",
        "temperature_initial": 0.02,
        "actor_warmup_updates": 100,
        "score": "log_prob_sum",
    },
    "competence": {"learning_rate": 3e-4, "batch_size": 64, "refresh": 64, "delay": 192},
    "budget": {
        "episodes": 20_000,
        "evaluate_every": 1_000,
        "practice_window": 500,
        "record_every": 50,
        "checkpoint_seconds": 60.0,
    },
}

# Small and quick, with a replay that prefers successes: does everything work?
SMOKE: dict[str, Any] = {
    "backbone": {"lora_targets": "all_linear", "lora_rank": 4},
    "agent": {
        **REFERENCE["agent"],
        "steps_per_update": 32,
        "replay_capacity": 2_000,
        "batch_size": 16,
        "success_fraction": 0.3,
        "learning_rate": 1e-3,
        "critic_hidden": (32,),
        "actor_warmup_updates": 2,
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

# Prompts and groups of answers (docs/studies/grpo.md); not for worlds with actions.
GRPO: dict[str, Any] = {
    "backbone": {"model": "digits-mini", "lora_targets": "all_linear"},
    "goals": {"seed": "run"},
    "competence": {"learning_rate": 3e-4, "batch_size": 64, "refresh": 8, "delay": 24},
    "samplers": {"epsilon_decay": 50.0},
    "budget": {
        "steps": 200_000,
        "evaluate_every": 20_000,
        "evaluation_goals": 128,
        "practice_window": 3_200,
        "record_every": 50,
        "checkpoint_seconds": 60.0,
    },
}

# All other values are the schema's defaults: constants of the paper or the released code (see
# DEVIATIONS.md). Set backbone.model to a local copy of flan-t5-base, as it is not included.
PAPER: dict[str, Any] = {
    "backbone": {"model": "google/flan-t5-base", "lora_mode": "per_token"},
    "competence": {"pool": 100_000},  # its largest goal space, scored completely
    "expert_buckets": {"drop_standing_starts": True},
}

PRESETS: Mapping[str, dict[str, Any]] = {
    "smoke": SMOKE,
    "reference": REFERENCE,
    "grpo": GRPO,
    "paper": PAPER,
}
DEFAULT = "reference"


def check_preset(name: str) -> str:
    """Return the name; InputError if there is no such preset."""
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    return name
