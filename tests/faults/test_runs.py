"""Faults within a run: storage, numbers, memory, clock, limits, closed output."""

import errno
import fcntl
import math
import os
import re
import signal
import sys
import time
from types import SimpleNamespace

import pytest
import torch

from magellan.agent import sac
from magellan.agent.sac import SAC
from magellan.cli import main
from magellan.core.errors import NotFiniteError, OutOfMemoryError, StorageError
from magellan.jobs.display import Progress
from magellan.jobs.run import Job, train
from magellan.jobs.stopping import END_TIME, JOB, Stopper, seconds_granted, seconds_left
from magellan.model import loading
from magellan.training import loop
from tests.faults.conftest import BRIEF, config, struck
from tests.faults.injection import Killed, os_error
from tests.faults.promises import (
    INTACT,
    INTACT_THEN_SAME,
    NOTHING_LEFT,
    NOTHING_MADE,
    SAME,
    SAVED,
    fault,
)
from tests.runs import contents, refusal, tables
from tests.snippets import raising, script


def run(folder, sampler="random", progress="none", **more):
    return train(config(sampler), folder, resume=True, progress=progress, **more)


DISK = [
    ("EACCES", "replace", "safetensors", 2),
    ("ENOSPC", "write", "run.log", 9),
    ("ENOSPC", "write", "attempts.jsonl", 1),
    ("EDQUOT", "write", "practice.csv", 1),
    ("EROFS", "replace", "manifest.json", 1),
]


@fault(INTACT_THEN_SAME, "full disk or missing rights in a run", "name, step, file, nth", DISK)
def test_storage_that_fails_is_one_error(name, step, file, nth, undisturbed, tmp_path):
    error = os_error(name)
    with struck(raising(error), nth, step, file), pytest.raises(StorageError) as caught:
        run(tmp_path)
    line = rf"{tmp_path}/\S*{file}\S* cannot be written \({error.strerror}\)"
    assert re.fullmatch(line, str(caught.value))
    assert not (tmp_path / "manifest.json").exists()
    run(tmp_path)
    assert tables(tmp_path) == undisturbed["random"]


NOWHERE = {
    "ENOSPC": (os, "open", "cannot be written ("),
    "ENOLCK": (fcntl, "flock", "has no file locks"),
}


@fault(NOTHING_MADE, "output folder without space or file locks", "name", NOWHERE)
def test_a_folder_that_cannot_be_used_is_left_as_it_is(name, tmp_path, monkeypatch):
    *where, words = NOWHERE[name]
    with monkeypatch.context() as patch:
        patch.setattr(*where, raising(os_error(name)))
        assert words in refusal(run, tmp_path / "new" / "run")
    assert list(tmp_path.iterdir()) == []


NUMBERS = {
    "critic_loss is nan": math.nan,
    "actor_loss is inf": math.inf,
    "sac.critic.0.weight holds NaN or infinity": math.nan,
}


@pytest.mark.slow
@fault(INTACT, "a loss or a weight turns NaN or infinite", "reason", NUMBERS)
def test_what_is_not_finite_is_never_saved(reason, undisturbed, tmp_path, monkeypatch):
    update, name = SAC.update_policy, reason.partition(" ")[0]

    def broken(self, batch):
        losses = update(self, batch)
        if self.updates == 4 and name in losses:
            losses[name] = NUMBERS[reason]
        elif self.updates == 4:
            with torch.no_grad():
                next(self.critic.parameters()).view(-1)[0] = NUMBERS[reason]
        return losses

    with monkeypatch.context() as patch:
        patch.setattr(SAC, "update_policy", broken)
        with pytest.raises(NotFiniteError, match=f"^update 4: {reason}; "):
            run(tmp_path, "magellan")
    assert not (tmp_path / "manifest.json").exists()
    assert f"ended: error: update 4: {reason}" in (tmp_path / "run.log").read_text()
    run(tmp_path, "magellan")
    assert tables(tmp_path) == undisturbed["magellan"]


@pytest.mark.slow
@fault(INTACT_THEN_SAME, "memory runs out", "error", [MemoryError()])
def test_memory_that_runs_out(error, undisturbed, tmp_path):
    line = r"^out of memory, update 3, .*\d MB;"
    with struck(raising(error), 4, "update_policy"), pytest.raises(OutOfMemoryError, match=line):
        run(tmp_path)
    run(tmp_path)
    assert tables(tmp_path) == undisturbed["random"]


OF_A_LIBRARY = OSError("Unable to load weights from this file")
OF_A_LIBRARY.__cause__ = MemoryError()
# A GPU's error is a RuntimeError, like that of a state that does not fit.
ON_A_GPU = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
PLACES = {
    "a tensor of 4 PB": (sac, "mlp", lambda *_: torch.empty(10**15)),
    "told by a library": (loading.AutoConfig, "from_pretrained", raising(OF_A_LIBRARY)),
    "in the trainer": (loop, "evaluated_goals", raising(MemoryError())),
    "on a GPU": (SAC, "load_state_dict", raising(ON_A_GPU)),
}


@pytest.mark.slow
@fault(NOTHING_LEFT, "memory runs out while a run is set up", "case", PLACES)
def test_memory_that_runs_out_while_a_run_is_set_up(case, jobs, undisturbed, tmp_path):
    resumed, new = tmp_path / "stopped", tmp_path / "new" / "run"
    jobs.start(resumed, (signal.SIGKILL, 4, "update_policy", ""))
    before = contents(tmp_path)
    for folder in (resumed,) if case == "on a GPU" else (resumed, new):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(*PLACES[case])
            with pytest.raises(OutOfMemoryError, match=r"^out of memory while .*\d MB; nothing"):
                run(folder)
        assert contents(tmp_path) == before
        assert not (tmp_path / "new").exists()
    run(resumed)
    assert tables(resumed) == undisturbed["random"]


@pytest.mark.slow
@fault(SAME, "the wall clock jumps backwards", "step", [3600])
def test_a_clock_that_jumps_backwards(step, undisturbed, tmp_path, monkeypatch):
    jumps = iter(range(10**9, 0, -step))
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: next(jumps))
        with struck(raising(Killed()), 5, "update_policy"), pytest.raises(Killed):
            run(tmp_path)
    oldest, newest = sorted((tmp_path / "checkpoints").iterdir())
    os.utime(newest, (0, 0))
    os.utime(oldest, (2**31, 2**31))
    monkeypatch.setattr(time, "time", lambda: 86_400.0)
    assert run(tmp_path)["wall_seconds"] >= 0
    assert f"resumed from {newest.name}" in (tmp_path / "run.log").read_text()
    assert tables(tmp_path) == undisturbed["random"]


def test_the_limit_keeps_the_longest_round_and_save_free_whatever_the_clock():
    ticks = [0.0]
    granted = seconds_granted(None, {END_TIME: "1000"}, now=lambda: 400.0)
    stopper = Stopper(granted, 100.0, clock=lambda: ticks[0])
    for what, seconds in (("round", 50.0), ("round", 10.0), ("save", 20.0)):
        stopper.record_duration(what, seconds)
    for seconds, reason in ((429, None), (431, "169 s left, 170 s reserved")):
        ticks[0] = seconds
        assert stopper.reason == (reason and f"before the time limit ({reason})")


def test_squeue_is_asked_where_the_environment_does_not_say(tmp_path, monkeypatch):
    texts = ("59:30\n", "1:00:05", "2-03:00:00", "UNLIMITED\n", "")
    assert [seconds_left(text) for text in texts] == [3570, 3605, 183_600, math.inf, math.inf]
    script(tmp_path / "squeue", 'test "$3" = 17 && echo 10:00')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert seconds_granted(None, {JOB: "17"}) == 600.0
    assert seconds_granted(5.0, {JOB: "17"}) == 300.0  # the nearer limit counts
    assert seconds_granted(2.0, {END_TIME: "1000"}, now=lambda: 900.0) == 100.0
    assert seconds_granted(None, {JOB: "18"}) == math.inf
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert seconds_granted(None, {JOB: "17"}) == seconds_granted(None, {}) == math.inf


def test_a_limit_that_is_none_is_one_error():
    for minutes in (0.0, math.nan):
        assert "--stop-after" in refusal(seconds_granted, minutes)
    for end in ("soon", "-5", "9" * 5000):
        assert f"{END_TIME}: '{end[:40]}" in refusal(seconds_granted, None, {END_TIME: end})


@fault(SAVED, "time limit near", "seconds", [1800])
def test_a_job_stops_before_its_time_limit(seconds, undisturbed, tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        # A round that seems to take an hour exceeds all limits below.
        record_duration = Stopper.record_duration
        patch.setattr(
            Stopper, "record_duration", lambda self, what, _: record_duration(self, what, 3600.0)
        )
        patch.setenv(END_TIME, str(int(time.time()) + seconds))
        assert main([*BRIEF, "--sampler", "random", "--output", str(tmp_path)]) == 75
    line = r"stopped: before the time limit \(\d+ s left, 7260 s reserved\).*\n"
    assert re.fullmatch(line, capsys.readouterr().err)
    manifest = run(tmp_path)
    assert tables(tmp_path) == undisturbed["random"]
    assert manifest["stop_reasons"][0].startswith("stopped: before the time limit")


@fault(SAME, "the terminal has gone away", "shown", ("lines", "bar"))
def test_a_terminal_that_has_gone_away(shown, undisturbed, tmp_path, monkeypatch):
    monkeypatch.setattr(Progress, "SECONDS_PER_LINE", 0.0)
    gone = raising(BrokenPipeError(errno.EPIPE, "Broken pipe"))
    monkeypatch.setattr(
        sys, "stderr", SimpleNamespace(write=gone, flush=gone, isatty=lambda: shown == "bar")
    )
    run(tmp_path, progress=shown)
    assert tables(tmp_path) == undisturbed["random"]


def test_an_unexpected_error_is_logged_and_raised_on_a_line_of_its_own(tmp_path, monkeypatch):
    error, closed = ZeroDivisionError("by nought"), []
    monkeypatch.setattr(Progress, "close", lambda self: closed.append(self))
    with struck(raising(error), 3, "update_policy"), pytest.raises(ZeroDivisionError):
        run(tmp_path)
    assert "ended: failed: ZeroDivisionError: by nought" in (tmp_path / "run.log").read_text()
    assert len(closed) == 1


def test_saving_takes_no_more_than_its_share(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    job = Job.__new__(Job)
    saving = config(budget={"checkpoint_seconds": 60, "checkpoint_share": 0.01})
    job._trainer, job._saved_at = SimpleNamespace(config=saving), 1000.0
    for job._last_save, due_after in ((0.1, 60.0), (2.0, 198.0)):
        for late in (False, True):
            now[0] = 1000.0 + due_after + (0.5 if late else -0.5)
            assert job._save_is_due() == late
