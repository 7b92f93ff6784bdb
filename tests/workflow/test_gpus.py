"""Runs on several GPUs, which are made up here: each its own, none shared, freed at any end."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from tests.workflow.conftest import ROOT

SCRIPT = ROOT / "workflow/scripts/take_gpu.py"
TWO = "echo 'GPU 0: Kind (UUID: GPU-aaaa)'; echo 'GPU 1: Kind (UUID: GPU-bbbb)'"
# One short line is written at once: lines of several processes do not mix.
BUSY = "echo start $CUDA_VISIBLE_DEVICES >> log; sleep 0.4; echo end $CUDA_VISIBLE_DEVICES >> log"
SHOW = "echo ${CUDA_VISIBLE_DEVICES-none}"


@pytest.fixture
def machine(tmp_path, tools, monkeypatch):
    """An `nvidia-smi` on the PATH that lists two GPUs; call it with another script for it."""
    monkeypatch.setenv("MAGELLAN_GPU_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setenv("MAGELLAN_GPU_PAUSE", "0.05")
    for name in ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    tools("nvidia-smi", TWO)
    return partial(tools, "nvidia-smi")


def start(folder: Path, number: int, *command: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, SCRIPT, str(number), *command],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcome(folder: Path, number: int, *command: str) -> tuple[int, str, str]:
    """Status and outputs of a command; by default it prints which GPUs it has."""
    process = start(folder, number, *(command or ("sh", "-c", SHOW)))
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@contextlib.contextmanager
def holding(folder: Path, lock: str) -> Iterator[None]:
    """A command has a GPU, by this lock; it is killed at the end."""
    process, path = start(folder, 1, "sleep", "60"), folder / "locks" / lock
    deadline = time.monotonic() + 60
    try:
        while not path.exists():
            assert time.monotonic() < deadline, f"{path} did not come"
            time.sleep(0.1)
        yield
    finally:
        process.kill()
        process.wait()


def test_every_run_has_a_gpu_of_its_own(machine, tmp_path):
    runs = [start(tmp_path, 1, "sh", "-c", BUSY) for _ in range(5)]
    errors = [run.communicate(timeout=120)[1] for run in runs]
    assert [run.returncode for run in runs] == [0] * 5
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) == 10
    for device in ("GPU-aaaa", "GPU-bbbb"):
        own = [line.split()[0] for line in lines if line.endswith(device)]
        assert own == ["start", "end"] * (len(own) // 2)
    assert {"start GPU-aaaa", "start GPU-bbbb"} in map(set, pairwise(lines))  # at a time
    assert any("waiting for a free GPU (2 here)" in error for error in errors)


def test_only_gpus_that_may_be_seen_are_taken(machine, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert outcome(tmp_path, 1)[:2] == (0, "1\n")
    # Another driver that sees both leaves alone what the first one has.
    with holding(tmp_path, "GPU-bbbb.lock"):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
        assert outcome(tmp_path, 1)[1] == "GPU-aaaa\n"
    assert outcome(tmp_path, 2)[:2] == (0, "GPU-aaaa,GPU-bbbb\n")


def test_of_a_gpu_in_mig_mode_the_parts_are_taken(machine, tmp_path):
    """As `nvidia-smi -L` lists them; the GPU itself is none for CUDA."""
    machine(
        "echo 'GPU 0: Kind (UUID: GPU-aaaa)'\n"
        "echo '  MIG 1g.10gb     Device  0: (UUID: MIG-cccc)'\n"
        "echo '  MIG 1g.10gb     Device  1: (UUID: MIG-dddd)'\n"
        "echo 'GPU 1: Kind (UUID: GPU-bbbb)'"
    )
    assert outcome(tmp_path, 3)[1] == "MIG-cccc,MIG-dddd,GPU-bbbb\n"
    assert outcome(tmp_path, 4, "true")[0] == 1


def test_more_gpus_than_there_are_is_one_clear_line(machine, tmp_path):
    line = "error: gpu: 3 is not allowed: there are 2 here\n"
    assert outcome(tmp_path, 3, "true") == (1, "", line)


def test_where_no_gpu_is_found_the_command_runs(machine, tmp_path):
    machine("exit 9")
    assert outcome(tmp_path, 1, "sh", "-c", f"{SHOW}; exit 7") == (7, "none\n", "")


@pytest.mark.slow
def test_runs_of_an_experiment_take_a_gpu_each(project):
    call = ("-n", "-p", "--config", "samplers=[random]", "seeds=[0]")
    for more, number in (((), 0), (("overrides={backend: {device: cuda}}",), 1)):
        assert f"take_gpu.py {number} python -m magellan train" in project.run(*call, *more)
