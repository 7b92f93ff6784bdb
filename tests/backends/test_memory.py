"""Micro-batches from the memory that is free: measured, chosen, logged, refused."""

import json
import re

import pytest
import torch

from magellan.backends import check_backend, make_backend, memory
from magellan.backends.memory import SHARE, Room, StoragePeak, longest_state, measured_room
from magellan.cli import main
from magellan.core.errors import OutOfMemoryError
from magellan.jobs.run import train
from magellan.model.devices import CPU
from magellan.model.settings import BackboneConfig, BackendConfig
from magellan.worlds import WORLDS
from tests.backends.models import make, needs_cuda

MEGA = 10**6


def test_tensors_that_live_at_one_time_are_counted():
    with StoragePeak() as counter:
        first = torch.zeros(1000)
        view = first.view(10, 100)
        second = view + 1
        del first, view
        third = second * 2
        del second
    assert counter.peak == 2 * 4000
    assert third.numel() == 1000


ROOMS = {
    "the whole batch": (Room(10 * MEGA, MEGA, 1000 * MEGA, "cpu"), 256, 256),
    "a power of two": (Room(10 * MEGA, MEGA, 100 * MEGA, "cpu"), 256, 64),
    "one": (Room(0, 70 * MEGA, 100 * MEGA, "cpu"), 256, 1),
    "none": (Room(0, 90 * MEGA, 100 * MEGA, "cpu"), 256, 0),
    "the fixed part alone is too much": (Room(90 * MEGA, 1, 100 * MEGA, "cpu"), 256, 0),
}


@pytest.mark.parametrize("case", ROOMS)
def test_what_fits(case):
    room, batch, fitting = ROOMS[case]
    assert room.fitting(batch) == fitting
    if fitting:
        room.check()
        assert room.fixed + fitting * room.per_state <= SHARE * room.free
        assert room.words(batch).startswith(f"micro-batch {fitting} of {batch} states (auto: ")
        return
    with pytest.raises(OutOfMemoryError, match=r"^backend.micro_batch: 'auto': not even one"):
        room.check()


def test_a_small_pass_foretells_a_large_one():
    """Twelve of the longest states take what one and four of them foretell, to a fifth."""
    backend = make("plain", micro_batch="auto")
    state = longest_state(backend.codec, WORLDS["little_zoo"])

    def work(n: int) -> None:
        tokens, segments = (values[None].repeat(n, 0) for values in vars(state).values())
        backend.agent.probe(backend.backbone.batch(tokens, segments))

    room = measured_room(work, CPU, "cpu")
    peak = memory.peak_bytes(lambda: work(12), CPU)
    assert peak == pytest.approx(room.fixed + 12 * room.per_state, rel=0.2)


@pytest.fixture
def start(monkeypatch):
    """Starts a backend on a machine with this much free memory."""

    def start_with(free: int):
        monkeypatch.setattr(memory, "free_bytes", lambda device: free)
        return make("plain", micro_batch="auto")

    return start_with


def test_the_choice_follows_the_free_memory(start):
    plenty = start(10**12)
    assert plenty.backbone.micro_batch == 0
    assert plenty.memory.startswith("micro-batch 256 of 256 states (auto: ")
    some = start(30 * MEGA)
    assert 0 < some.backbone.micro_batch < 256
    assert f"micro-batch {some.backbone.micro_batch} of 256" in some.memory
    assert "30 MB free on cpu" in some.memory
    with pytest.raises(OutOfMemoryError, match="not even one state fits"):
        start(1000)


def test_written_out_passes_need_none():
    backend = make("torch", micro_batch="auto")
    assert (backend.backbone.micro_batch, backend.memory) == (0, "")


def group(folder, limit: str, used: int, cache: int, files=memory.SECOND_VERSION) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / files[0]).write_text(limit + "\n")
    (folder / files[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{files[2]} {cache}\nslab 7\n")


def test_the_narrowest_group_counts(tmp_path):
    own = tmp_path / "cgroup"
    own.write_text("12:cpu:/other\n0::/slurm/job_1/step_0\n")
    root = tmp_path / "sys"
    group(root / "slurm" / "job_1" / "step_0", "max", 100, 0)
    assert memory._free_in_groups(own, root) is None
    group(root / "slurm" / "job_1", "1000", 700, 100)
    assert memory._free_in_groups(own, root) == 400
    group(root / "slurm", "500", 300, 0)
    assert memory._free_in_groups(own, root) == 200
    assert memory._free_in_groups(tmp_path / "absent", root) is None
    own.write_text("4:cpu,memory:/job\n0::/\n")
    group(root / "memory/job", "900", 700, 50, memory.FIRST_VERSION)
    assert memory._free_in_groups(own, root) == 250


def test_weights_that_cannot_fit_are_refused_before_they_are_loaded(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 500_000)
    with pytest.raises(OutOfMemoryError, match="take 1 MB, 0 MB are free on cpu"):
        check_backend(BackendConfig(), BackboneConfig())
    check_backend(BackendConfig(), BackboneConfig(lora_mode="per_token"))
    command = ["train", "--preset", "smoke", "--goal-space", "8-4-2-1-1", "--progress", "none"]
    assert main([*command, "--output", str(tmp_path / "run")]) == OutOfMemoryError.exit_status
    error = capsys.readouterr().err
    assert error.startswith("error: backbone.model: the weights of 'zoo-mini' take")
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_run_logs_its_choice_before_it_begins(tmp_path):
    from magellan.config import resolve_run

    layer = {
        "sampler": "random",
        "goal_space": "8-4-2-1-1",
        "budget": {"episodes": 8, "evaluate_every": 8, "evaluation_goals": 1},
        "backbone": {"lora_mode": "per_token"},
        "backend": {"micro_batch": "auto"},
    }
    manifest = train(resolve_run("smoke", [layer]), tmp_path / "run", False, "none")
    assert re.match(r"micro-batch \d+ of 16 states \(auto: ", manifest["memory"])
    log = (tmp_path / "run" / "run.log").read_text()
    assert log.index(manifest["memory"]) < log.index("begins at episode 0")
    stored = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert stored["config"]["backend"]["micro_batch"] == "auto"


@needs_cuda
def test_on_a_gpu_the_allocator_counts():
    backend = make_backend(
        BackboneConfig(lora_mode="per_token"), BackendConfig(device="cuda", micro_batch="auto")
    )
    device = backend.backbone.device
    assert memory.peak_bytes(lambda: torch.zeros(10**6, device=device), device) >= 4 * 10**6
    assert memory.free_bytes(device) > MEGA
