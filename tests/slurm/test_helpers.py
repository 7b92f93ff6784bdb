"""What of the campaign needs no Slurm."""

import json
import os
import signal
import subprocess

import pytest

from tests.slurm import cluster
from tests.slurm.__main__ import end_all_in
from tests.slurm.project import FAILING, Run


def ended_process():
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def write_attempts(run, *rows):
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (run.folder / "attempts.jsonl").write_text(text)


def test_a_run_is_in_its_middle_once_this_attempt_has_saved_until_it_is_over(tmp_path):
    run, checkpoints = Run(tmp_path, "comment", tmp_path / "log"), tmp_path / "checkpoints"
    checkpoints.mkdir()
    start = {"attempt": 1, "pid": os.getpid(), "resumed_from": "00000003.safetensors"}
    write_attempts(run, start)
    (checkpoints / "00000003.safetensors").touch()
    assert run.live_attempt() is None
    (checkpoints / "00000007.safetensors").touch()
    assert run.live_attempt()["attempt"] == 1
    assert run.attempt(1) is None
    write_attempts(run, start, {"attempt": 1, "ended": "now", "reason": "complete"})
    assert run.live_attempt() is None
    assert run.attempt(1)["reason"] == "complete"
    write_attempts(run, {**start, "pid": ended_process()})
    assert run.live_attempt() is None
    assert run.attempt(1)["reason"] == "killed"


@pytest.mark.parametrize(
    ("text", "in_use"),
    [
        (None, False),
        ("ClusterName=somebody\n", True),
        (f"{cluster.MARK} {os.getpid()}\n", True),
        (f"{cluster.MARK} {2**22 + 1}\n", False),
    ],
    ids=["no file", "of somebody", "of a test that runs", "of a dead test"],
)
def test_only_what_a_dead_test_left_is_written_over(tmp_path, monkeypatch, text, in_use):
    path = tmp_path / "slurm.conf"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(cluster, "CONFIG", path)
    assert cluster._in_use() is in_use


def test_processes_that_work_in_a_folder_are_ended(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine of another").mkdir()
    sleep = ["sleep", "60"]
    inside = subprocess.Popen(sleep, cwd=tmp_path / "mine")
    outside = subprocess.Popen(sleep, cwd=tmp_path / "mine of another")
    try:
        end_all_in(tmp_path / "mine")
        assert inside.wait(timeout=30) == -signal.SIGKILL
        assert outside.poll() is None
    finally:
        inside.kill()
        outside.kill()


def test_a_command_fails_for_drivers_only_and_for_so_long(tmp_path):
    """The outage begins when it is asked, so that it lies exactly at a poll."""
    script = tmp_path / "squeue"
    script.write_text(f"{FAILING}echo answered\n")

    def ask(**environment):
        return subprocess.run(["sh", script], env={**os.environ, **environment}).returncode

    assert ask() == 0
    (tmp_path / "armed").touch()
    assert ask(SLURM_JOB_ID="3") == 0
    assert not (tmp_path / "begun").exists()
    assert [ask(), ask()] == [1, 1]
    os.utime(tmp_path / "begun", (0, 0))
    assert ask() == 0
