"""Faults within a run: storage, numbers, memory, clock, limits, closed output."""

import errno
import fcntl
import math
import os
import re
import signal
import sys
import time
from importlib.metadata import version
from types import SimpleNamespace

import pytest
import torch

from magellan.agent import sac
from magellan.agent.sac import SAC
from magellan.cli import main
from magellan.competence.learned import LearnedCompetence
from magellan.core.errors import (
    InputError,
    JobError,
    NotFiniteError,
    OutOfMemoryError,
    StorageError,
)
from magellan.jobs.progress import Progress
from magellan.jobs.provenance import Attempts
from magellan.jobs.run import Job, train
from magellan.jobs.stopping import END_TIME, JOB, SIGNALS, Stopper, seconds_granted, seconds_left
from magellan.model import loading
from magellan.training import loop
from tests.faults import cases as campaign
from tests.faults.cases import cases
from tests.faults.conftest import BRIEF, TRAIN, config, struck
from tests.faults.injection import Killed, os_error
from tests.runs import contents, refusal, stopped, tables
from tests.snippets import ROOT, raising


def run(folder, sampler="random", progress="none", **more):
    return train(config(sampler), folder, resume=True, progress=progress, **more)


@pytest.mark.parametrize(("name", "step", "file", "nth"), cases("disk"))
def test_storage_that_fails_is_one_error(name, step, file, nth, undisturbed, tmp_path):
    error = os_error(name)
    with struck(raising(error), nth, step, file), pytest.raises(StorageError) as caught:
        run(tmp_path)
    line = rf"{tmp_path}/\S*{file}\S* cannot be written \({error.strerror}\)"
    assert re.fullmatch(line, str(caught.value))
    assert not (tmp_path / "manifest.json").exists()
    run(tmp_path)
    assert tables(tmp_path) == undisturbed["random"]


@pytest.mark.parametrize("name", cases("unwritable"))
def test_a_folder_that_cannot_be_written_is_left_as_it_is(name, tmp_path, monkeypatch):
    folder, real = tmp_path / "new" / "run", os.open

    def refuse(path, *arguments, **named):
        if str(path).startswith(str(folder)):
            raise os_error(name)
        return real(path, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        assert f"--output: {folder} cannot be written (" in refusal(run, folder)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", cases("no locks"))
def test_a_filesystem_without_locks_is_one_error(name, tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", raising(os_error(name)))
    assert "has no file locks" in refusal(run, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def break_number(case, patch):
    """From update 4 on, replace a loss or a weight."""
    name, value = case.split()
    learn, update = LearnedCompetence._learn, SAC.update

    def learned(self):
        return learn(self) if name != "competence_loss" or self.updates < 3 else float(value)

    def broken(self, batch):
        losses = update(self, batch)
        if self.updates == 4 and name == "weight":
            with torch.no_grad():
                next(self.critic.parameters()).view(-1)[0] = float(value)
        elif self.updates == 4 and name in losses:
            losses[name] = float(value)
        return losses

    patch.setattr(SAC, "update", broken)
    patch.setattr(LearnedCompetence, "_learn", learned)


@pytest.mark.slow
@pytest.mark.parametrize("case", cases("not finite"))
def test_what_is_not_finite_is_never_saved(case, undisturbed, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        break_number(case, patch)
        with pytest.raises(NotFiniteError) as caught:
            run(tmp_path, "magellan")
    name, value = case.split()
    reason = f"{name} is {value}"
    if name == "weight":
        reason = "sac.critic.0.weight holds NaN or infinity"
    assert str(caught.value).startswith(f"update 4: {reason}; ")
    assert not (tmp_path / "manifest.json").exists()
    assert f"ended: error: update 4: {reason}" in (tmp_path / "run.log").read_text()
    run(tmp_path, "magellan")
    assert tables(tmp_path) == undisturbed["magellan"]


SHORTAGES = {
    "MemoryError": MemoryError(),
    "allocator": RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to ..."),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", cases("memory"))
def test_memory_that_runs_out(case, jobs, undisturbed, tmp_path):
    if case == "killed":
        jobs.kill(tmp_path, 4, "update", "")
    else:
        line = r"^out of memory, update 3, .*\d MB;"
        with (
            struck(raising(SHORTAGES[case]), 4, "update"),
            pytest.raises(OutOfMemoryError, match=line),
        ):
            run(tmp_path)
    run(tmp_path)
    assert tables(tmp_path) == undisturbed["random"]


def told_by_a_library(*_, **__):
    try:
        raise MemoryError
    except MemoryError as error:
        raise OSError("Unable to load weights from this file") from error


# A GPU's error is a RuntimeError, like that of a state that does not fit.
NO_MEMORY = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
PLACES = {
    "allocator": (loading.AutoConfig, "from_pretrained", raising(SHORTAGES["allocator"])),
    "told by a library": (loading.AutoConfig, "from_pretrained", told_by_a_library),
    "ENOMEM": (loading.AutoConfig, "from_pretrained", raising(os_error("ENOMEM"))),
    "in the trainer": (loop, "evaluated_goals", raising(MemoryError())),
    "on a GPU": (SAC, "load_state_dict", raising(NO_MEMORY)),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", cases("memory at the start"))
def test_memory_that_runs_out_while_a_run_is_set_up(case, jobs, undisturbed, tmp_path):
    resumed, new = tmp_path / "stopped", tmp_path / "new" / "run"
    jobs.start(resumed, (signal.SIGKILL, 4, "update", ""))
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


def test_a_tensor_too_large_is_one_line_and_exit_status_71(tmp_path, capsys, monkeypatch):
    """The library's error for a head of 4 PB; settings do not allow such widths."""
    monkeypatch.setattr(sac, "mlp", lambda *_: torch.empty(10**15))
    assert main([*TRAIN, "--output", str(tmp_path / "run")]) == 71
    line = capsys.readouterr().err
    assert re.fullmatch(r"error: out of memory while the run was set up, .*\n", line)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("case", cases("clock"))
def test_a_clock_that_jumps_backwards(case, undisturbed, tmp_path, monkeypatch):
    jumps = iter(range(10**9, 0, -3600))
    with monkeypatch.context() as patch:
        if case == "run":
            patch.setattr(time, "time", lambda: next(jumps))
        with struck(raising(Killed()), 5, "update"), pytest.raises(Killed):
            run(tmp_path)
    oldest, newest = sorted((tmp_path / "checkpoints").iterdir())
    os.utime(newest, (0, 0))
    os.utime(oldest, (2**31, 2**31))
    monkeypatch.setattr(time, "time", lambda: 86_400.0)
    manifest = run(tmp_path)
    assert f"resumed from {newest.name}" in (tmp_path / "run.log").read_text()
    assert tables(tmp_path) == undisturbed["random"]
    assert manifest["wall_seconds"] >= 0


def test_the_limit_keeps_the_longest_round_and_save_free_whatever_the_clock():
    ticks = [0.0]
    granted = seconds_granted(None, {END_TIME: "1000"}, now=lambda: 400.0)
    stopper = Stopper(granted, 100.0, clock=lambda: ticks[0])
    for what, seconds in (("round", 50.0), ("round", 10.0), ("save", 20.0)):
        stopper.record_duration(what, seconds)
    for seconds, reason in ((0, None), (429, None), (431, "169 s left, 170 s reserved")):
        ticks[0] = seconds
        assert stopper.reason == (reason and f"before the time limit ({reason})")


def test_ignored_signals_stay_ignored_and_handlers_come_back():
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        with Stopper() as stopper:
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert stopper.reason is None
            os.kill(os.getpid(), signal.SIGUSR1)
            assert stopper.reason == "on SIGUSR1"
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("59:30\n", 3570), ("1:00:05", 3605), ("2-03:00:00", 183_600), ("0:07", 7)]
    + [(text, math.inf) for text in ("UNLIMITED\n", "INVALID", "NOT_SET", "")],
)
def test_the_time_left_as_slurm_writes_it(text, seconds):
    assert seconds_left(text) == seconds


def test_squeue_is_asked_where_the_environment_does_not_say(tmp_path, monkeypatch):
    squeue = tmp_path / "squeue"
    squeue.write_text('#!/bin/sh\ntest "$3" = 17 && echo 10:00\n')
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert seconds_granted(None, {JOB: "17"}) == 600.0
    assert seconds_granted(5.0, {JOB: "17"}) == 300.0  # the nearer limit counts
    assert seconds_granted(2.0, {END_TIME: "1000"}, now=lambda: 900.0) == 100.0
    assert seconds_granted(None, {JOB: "18"}) == math.inf
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert seconds_granted(None, {JOB: "17"}) == seconds_granted(None, {}) == math.inf


@pytest.mark.parametrize("minutes", [0.0, -1.0, math.nan, math.inf, 1.0])
def test_a_time_limit_that_leaves_no_time_is_one_error(minutes, tmp_path):
    assert "--stop-after" in refusal(run, tmp_path / "run", stop_after=minutes)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("end", ["soon", "-5", "1.5", "nan", "inf", "9" * 400, "9" * 5000])
def test_a_malformed_limit_of_slurm_is_one_error(end):
    with pytest.raises(InputError, match=rf"SLURM_JOB_END_TIME: '{end[:40]}.*' is not allowed"):
        seconds_granted(None, {END_TIME: end})
    assert seconds_left(f"{end}:00") == math.inf


@pytest.mark.parametrize("case", cases("limit"))
def test_a_job_stops_before_its_time_limit(case, undisturbed, tmp_path, monkeypatch, capsys):
    arguments = [*BRIEF, "--sampler", "random", "--output", str(tmp_path)]
    with monkeypatch.context() as patch:
        # A round that seems to take an hour exceeds all limits below.
        record_duration = Stopper.record_duration
        patch.setattr(
            Stopper, "record_duration", lambda self, what, _: record_duration(self, what, 3600.0)
        )
        limit = ["--stop-after", "30"] if case == "--stop-after" else []
        if not limit:
            patch.setenv(END_TIME, str(int(time.time()) + 1800))
        assert main([*arguments, *limit]) == 75
    line = capsys.readouterr().err
    assert re.match(r"stopped: before the time limit \(\d+ s left, 7260 s reserved\)", line)
    assert line.count("\n") == 1
    assert "ended: stopped: before the time limit" in (tmp_path / "run.log").read_text()
    manifest = run(tmp_path)
    assert tables(tmp_path) == undisturbed["random"]
    assert manifest["stop_reasons"][0].startswith("stopped: before the time limit")


class Gone:
    """A closed terminal."""

    def write(self, _=""):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    flush = write

    def isatty(self):
        return False


@pytest.mark.parametrize("progress", cases("no reader"))
def test_a_terminal_that_has_gone_away(progress, undisturbed, tmp_path, monkeypatch):
    monkeypatch.setattr(Progress, "SECONDS_PER_LINE", 0.0)
    monkeypatch.setattr(sys, "stderr", Gone())
    run(tmp_path, progress=progress)
    assert tables(tmp_path) == undisturbed["random"]


def test_the_log_records_what_happened(tmp_path):
    stopped(config(), tmp_path)
    manifest = run(tmp_path)
    lines = (tmp_path / "run.log").read_text().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ \+\d+\.\ds \S", line) for line in lines)
    text = "\n".join(lines)
    for part in (
        "attempt 1 on ",
        "attempt 2 on ",
        f"torch {version('torch')}",
        f"device cpu, float32, threads 1, passes {manifest['passes']}",
        f"configuration {manifest['identity']}: {{",
        "begins at episode 0",
        "resumed from 00000001.safetensors, update 0, episode 0",
        "evaluation at episode 30, unseen goals: grasp",
        "ended: stopped: on SIGTERM: saved checkpoints/00000001.safetensors, update 0",
        "ended: complete",
    ):
        assert part in text, part
    assert manifest["passes"].startswith(("compiled (", "torch ("))
    assert manifest["attempts"] == 2
    assert manifest["restarts"] == 1
    rows = Attempts(tmp_path, "").read()
    assert [row["reason"] for row in rows] == [*manifest["stop_reasons"][:1], "complete"]
    assert all(row["seconds"] >= 0 and row["peak_memory_mb"] > 0 for row in rows)


def test_the_manifest_counts_the_saving_of_all_attempts(tmp_path, monkeypatch):
    save = Job._save

    def save_after_another(job):
        job._saving += 100.0
        return save(job)

    with monkeypatch.context() as patch:
        patch.setattr(Job, "_save", save_after_another)
        stopped(config(), tmp_path)
    assert 100.0 <= run(tmp_path)["saving_seconds"] < 200.0


def test_an_unexpected_error_is_logged_and_raised_on_a_line_of_its_own(tmp_path, monkeypatch):
    error, closed = ZeroDivisionError("by nought"), []
    monkeypatch.setattr(Progress, "close", lambda self: closed.append(self))
    with struck(raising(error), 3, "update"), pytest.raises(ZeroDivisionError):
        run(tmp_path)
    assert "ended: failed: ZeroDivisionError: by nought" in (tmp_path / "run.log").read_text()
    assert len(closed) == 1


def test_a_line_cut_short_swallows_no_other(tmp_path):
    attempts = Attempts(tmp_path, "abc")
    attempts.begin(None)
    with (tmp_path / "attempts.jsonl").open("a") as file:
        file.write('{"attempt": 2, "star')
    again = Attempts(tmp_path, "abc")
    assert again.begin("00000003.safetensors") == 2
    assert [row["reason"] for row in again.read()] == ["killed", "killed"]
    assert again.summary()["restarts"] == 1
    # Another configuration in the same folder is counted separately.
    assert Attempts(tmp_path, "abd").summary()["attempts"] == 0


def test_saving_takes_no_more_than_its_share(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    job = Job.__new__(Job)
    saving = config(budget={"checkpoint_seconds": 60, "checkpoint_share": 0.01})
    job._trainer = SimpleNamespace(config=saving)
    job._saved_at = 1000.0
    for save, due_after in ((0.1, 60.0), (2.0, 198.0)):
        job._last_save = save
        now[0] = 1000.0 + due_after - 0.5
        assert not job._save_is_due()
        now[0] = 1000.0 + due_after + 0.5
        assert job._save_is_due()


def test_exit_statuses_are_distinct():
    statuses = [InputError.exit_status, *(kind.exit_status for kind in JobError.__subclasses__())]
    assert sorted(statuses) == [2, 70, 71, 73, 74, 75, 76]


def test_every_fault_of_the_campaign_is_done():
    tests = [path.read_text() for path in (ROOT / "tests/faults").glob("test_*.py")]
    for name in campaign.NAMED:
        assert any(f'cases("{name}")' in text for text in tests), name
    assert len(cases("kill")) == 20
