"""One small run with its agent, and agents without any training."""

import shutil

import pytest

from magellan.backends import make_backend
from magellan.backends.local import LocalBackend
from magellan.config import RunConfig, resolve_run
from magellan.jobs import run
from magellan.model.backbone import ADAPTERS
from tests.agent.tiny import set_adapters
from tests.runs import SPACE


def config(**budget):
    run = config_of("zoo-mini", "log_prob_sum")
    return run.model_copy(update={"seed": 3, "budget": run.budget.model_copy(update=budget)})


@pytest.fixture(scope="session")
def complete(tmp_path_factory):
    """Folder of a run that kept checkpoints and exported its agent; not to be changed."""
    folder = tmp_path_factory.mktemp("complete")
    run.train(config(export=True, keep_every=50), folder, resume=False, progress="none")
    return folder


@pytest.fixture
def spoiled(complete, tmp_path):
    return shutil.copytree(complete, tmp_path / "run")


CRITIC = (0.5, 0.0, 1.0)
"""Value, dormant, spread."""


def config_of(model, score="logit_sum", phases=(), reads="own", **backbone) -> RunConfig:
    layer = {"sampler": "magellan", "goal_space": SPACE, "phases": list(phases)}
    lora = {"passes": "torch", "lora_rank": 4, "lora_alpha": 6, **backbone}
    layer |= {"backbone": {**lora, "model": model}, "competence": {"adapter": reads}}
    layer |= {"agent": {"critic_hidden": (8, 6), "score": score}}
    return resolve_run("smoke", [layer])


def make(config: RunConfig) -> LocalBackend:
    """Started updates; the delayed estimator is an older one than the current."""
    backend = make_backend(config.backbone, config.backend, seed=1)
    assert isinstance(backend, LocalBackend)
    backend.start_policy(config.agent, 0)
    backend.start_competence(config.competence, 0)
    set_adapters(backend.backbone, 0.15, seed=2)
    backend.snapshot(keep=1)
    set_adapters(backend.backbone, 0.15, seed=3, names=ADAPTERS[:3])
    for head in (backend.agent.critic, backend.head.head):
        for parameter in head.parameters():
            parameter.data += 0.1
    return backend


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
