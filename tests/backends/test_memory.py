"""Micro-batches that fit into the memory: tried, recorded, refused."""

import pytest

from magellan.agent.sac import SAC
from magellan.backends import check_backend, memory
from magellan.backends.memory import find_micro_batch
from magellan.cli import main
from magellan.core.errors import OutOfMemoryError
from magellan.jobs.run import train
from magellan.model.settings import BackboneConfig, BackendConfig
from tests.backends.models import make
from tests.runs import config, error_line, stopped, tables
from tests.snippets import raising

NO_MEMORY = "CUDA out of memory. Tried to allocate 2.00 GiB."


@pytest.fixture
def memory_for(monkeypatch):
    """Lets passes with gradients fail on more than this many states; returns what was tried."""
    probe, tried = SAC.probe, []

    def allow(states):
        def probe_or_fail(agent, batch):
            tried.append(len(batch))
            if len(batch) > states:
                raise RuntimeError(NO_MEMORY)
            probe(agent, batch)

        monkeypatch.setattr(SAC, "probe", probe_or_fail)
        return tried

    return allow


def test_the_largest_that_runs_with_some_to_spare_is_taken(memory_for):
    tried = memory_for(10**6)
    whole = make("plain", micro_batch="auto")
    assert tried == [320]  # a quarter more than the batch
    assert whole.backbone.micro_batch == 0
    assert whole.memory == "micro-batch of the whole batch (auto: tried on cpu)"
    memory_for(100)
    some = make("plain", micro_batch="auto")
    assert 0.75 * 100 / memory.SPARE <= some.backbone.micro_batch <= 100 / memory.SPARE
    assert some.memory == f"micro-batch {some.backbone.micro_batch} (auto: tried on cpu)"


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (RuntimeError(NO_MEMORY), OutOfMemoryError, r"^backend.micro_batch: 'auto': not even one"),
        (RuntimeError("shapes differ"), RuntimeError, r"^shapes differ$"),
    ],
)
def test_not_even_one_state_is_one_line_and_another_error_itself(error, kind, words):
    with pytest.raises(kind, match=words):
        find_micro_batch(raising(error), 4, "cpu")


def test_weights_that_cannot_fit_are_refused_before_they_are_loaded(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 500_000)
    with pytest.raises(OutOfMemoryError, match="take 1 MB, 0 MB are free on cpu"):
        check_backend(BackendConfig(), BackboneConfig())
    check_backend(BackendConfig(), BackboneConfig(lora_mode="per_token"))
    command = ["train", "--preset", "smoke", "--goal-space", "8-4-2-1-1", "--progress", "none"]
    assert main([*command, "--output", str(tmp_path / "run")]) == OutOfMemoryError.exit_status
    assert error_line(capsys).startswith("error: backbone.model: the weights of 'zoo-mini' take")
    assert not (tmp_path / "run").exists()


def test_a_resumed_run_keeps_its_micro_batch(tmp_path, memory_for):
    """Also with more memory: with another one, sums round differently."""
    folder, how = tmp_path / "run", {"backbone": {"lora_mode": "per_token"}}
    budget = {"episodes": 24, "evaluate_every": 8, "evaluation_goals": 1}
    how |= {"goal_space": "8-4-2-1-1", "backend": {"micro_batch": "auto"}}
    run = config("random", budget=budget, **how)
    memory_for(8)
    whole = train(run, tmp_path / "whole", False, "none")
    stopped(run, folder)
    log = (folder / "run.log").read_text()
    assert whole["memory"] in log
    assert log.index(whole["memory"]) < log.index("begins at episode 0")
    memory_for(10**6)
    manifest = train(run, folder, True, "none")
    size = whole["memory"].split()[1]
    assert manifest["memory"] == f"micro-batch {size} (auto: as this run began)"
    assert manifest["config"]["backend"]["micro_batch"] == "auto"
    assert tables(folder) == tables(tmp_path / "whole")
