"""Agents whose adapters all differ and matter, without any training."""

from __future__ import annotations

import torch

from magellan.backends import make_backend
from magellan.backends.local import LocalBackend
from magellan.config import RunConfig, resolve_run
from magellan.model.backbone import ADAPTERS
from tests.runs import SPACE

CRITIC = (0.5, 0.0, 1.0)
"""Value, dormant, spread."""


def config_of(
    model: str, score: str = "logit_sum", phases=(), reads: str = "own", **backbone
) -> RunConfig:
    layer = {
        "sampler": "magellan",
        "goal_space": SPACE,
        "phases": list(phases),
        "backbone": {
            "passes": "torch",
            "lora_rank": 4,
            "lora_alpha": 6,
            **backbone,
            "model": model,
        },
        "competence": {"adapter": reads},
        "agent": {"critic_hidden": (8, 6), "score": score},
    }
    return resolve_run("smoke", [layer])


def make(config: RunConfig) -> LocalBackend:
    """Started updates; the delayed estimator is an older one than the current."""
    backend = make_backend(config.backbone, config.backend, seed=1)
    assert isinstance(backend, LocalBackend)
    generator = torch.Generator().manual_seed(2)
    backend.start_policy(config.agent, 0)
    backend.start_competence(config.competence, 0)
    move(backend, generator)
    backend.snapshot(keep=1)
    delayed = {key: value.clone() for key, value in backend.backbone.adapter(ADAPTERS[3]).items()}
    move(backend, generator)
    backend.backbone.load_adapter(ADAPTERS[3], delayed)
    return backend


@torch.no_grad()
def move(backend: LocalBackend, generator: torch.Generator) -> None:
    """Give all adapters and the current heads other values."""
    parameters = [*backend.agent.critic.parameters(), *backend.agent.target_critic.parameters()]
    parameters += backend.head.head.parameters()
    for name in ADAPTERS:
        parameters += backend.backbone.adapter(name).values()
    for parameter in parameters:
        parameter.copy_(torch.empty(parameter.shape).normal_(0, 0.15, generator=generator))
    for name in ADAPTERS:
        backend.backbone.adapter_changed(name)


def state_of(backend: LocalBackend) -> dict:
    """As a checkpoint's trainer, as far as an export looks."""
    rows = [
        [0, 0, 0, "train", "grasp", 4, 0.25, *CRITIC],
        [7, 70, 20, "train", "grasp", 4, 0.75, *CRITIC],
        [7, 70, 20, "unseen", "grasp", 3, 1 / 3, *CRITIC],
    ]
    counters = {"phase": 1, "updates": 7, "steps": 70, "episodes": 20, "next_evaluation": 60}
    record = {"tables": {"evaluation": rows}}
    return {"backend": backend.state_dict(), **counters, "record": record}
