"""One small run with its agent, and one that was stopped."""

import shutil

import pytest

from magellan.jobs import run
from magellan.jobs.checkpoint import Checkpoints
from magellan.training.loop import Trainer
from tests.tools.agents import config_of


def config(**budget):
    run = config_of("zoo-mini", "log_prob_sum")
    return run.model_copy(update={"seed": 3, "budget": run.budget.model_copy(update=budget)})


@pytest.fixture(scope="session")
def complete(tmp_path_factory):
    """Folder of a run that kept checkpoints and exported its agent; not to be changed."""
    folder = tmp_path_factory.mktemp("complete")
    run.train(config(export=True, keep_every=50), folder, resume=False, progress="none")
    return folder


@pytest.fixture(scope="session")
def stopped(tmp_path_factory):
    """Folder of a run that stopped on its way, with two checkpoints; not to be changed."""
    folder = tmp_path_factory.mktemp("stopped")
    trainer = Trainer(config())
    for _ in range(2):
        for _ in range(10):
            trainer.advance()
        Checkpoints(folder, config()).save({"trainer": trainer.state_dict()})
    return folder


@pytest.fixture
def spoiled(complete, tmp_path):
    """A copy of the complete run that a test may change."""
    return shutil.copytree(complete, tmp_path / "run")
