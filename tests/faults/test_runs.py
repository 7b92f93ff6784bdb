"""Faults within a run: storage, numbers, memory, clock, limits, output, links; its attempts."""

import json
import math
import os
import re
import socket
import sys
import tempfile
import time
from types import SimpleNamespace

import pytest
import torch

from magellan.agent.sac import SAC
from magellan.cli import main
from magellan.core.errors import InputError, NotFiniteError, OutOfMemoryError, StorageError
from magellan.jobs import provenance
from magellan.jobs.checkpoint import Checkpoints, decode
from magellan.jobs.display import Progress
from magellan.jobs.folder import FILES
from magellan.jobs.provenance import LARGEST, Attempts
from magellan.jobs.run import Job, train
from magellan.jobs.stopping import END_TIME, JOB, Stopper, seconds_granted, seconds_left
from magellan.model.files import check_backbone, model_digest
from tests.faults.conftest import BRIEF, TRAIN, Killed, config, kill, os_error, refused, struck
from tests.faults.promises import INTACT, SAME, SAVED, UNTOUCHED, fault, listed
from tests.runs import contents, error_line, refusal, stopped
from tests.snippets import raising, script

INTACT_THEN_SAME = f"{INTACT}, then {SAME}"


def run(folder, sampler="random"):
    return train(config(sampler), folder, resume=True, progress="none")


DISK = [
    ("EACCES", "replace", "safetensors", 2),
    ("ENOSPC", "write", "run.log", 9),
    ("ENOSPC", "write", "attempts.jsonl", 1),
    ("EDQUOT", "write", "practice.csv", 1),
    ("EROFS", "replace", "manifest.json", 1),
]


@fault(INTACT_THEN_SAME, "full disk or missing rights in a run", "name, step, file, nth", DISK)
def test_storage_that_fails_is_one_error(name, step, file, nth, goes_on, tmp_path):
    error = os_error(name)
    with struck(raising(error), nth, step, file), pytest.raises(StorageError) as caught:
        run(tmp_path)
    line = rf"{tmp_path}/\S*{file}\S* cannot be written \({error.strerror}\)"
    assert re.fullmatch(line, str(caught.value))
    assert not (tmp_path / "manifest.json").exists()
    goes_on(tmp_path)


NOWHERE = [("ENOSPC", "os.open", "cannot be written ("), ("ENOLCK", "fcntl.flock", "no file locks")]
NO_FOLDER = "output folder without space or file locks"


@fault("one clear error, nothing made", NO_FOLDER, "name, where, words", NOWHERE)
def test_a_folder_that_cannot_be_used_is_left_as_it_is(name, where, words, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(where, raising(os_error(name)))
        assert words in refusal(run, tmp_path / "new" / "run")
    assert list(tmp_path.iterdir()) == []


NUMBERS = {
    "critic_loss is nan": math.nan,
    "actor_loss is inf": math.inf,
    "sac.critic.0.weight holds NaN or infinity": math.nan,
}


@pytest.mark.slow
@fault(INTACT, "a loss or a weight turns NaN or infinite", "reason", NUMBERS)
def test_what_is_not_finite_is_never_saved(reason, goes_on, tmp_path, monkeypatch):
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
    goes_on(tmp_path, "magellan")


MEMORY = (MemoryError(), OutOfMemoryError, "error: ", r"out of memory, update 3, .*\d MB;")
OTHER = (ZeroDivisionError("by 0"), ZeroDivisionError, "failed: ZeroDivisionError: ", "by 0")
listed(INTACT_THEN_SAME, "memory runs out", [MEMORY])


@pytest.mark.parametrize(("error", "kind", "label", "words"), [MEMORY, OTHER])
def test_an_error_is_logged_and_raised(error, kind, label, words, goes_on, tmp_path, monkeypatch):
    """On a line of its own: the display is closed."""
    closed = []
    monkeypatch.setattr(Progress, "close", lambda self: closed.append(self))
    with struck(raising(error), 4, "update_policy"), pytest.raises(kind, match=f"^{words}"):
        run(tmp_path)
    assert len(closed) == 1
    assert re.search(f"ended: {label}{words}", (tmp_path / "run.log").read_text())
    goes_on(tmp_path)


OF_A_LIBRARY = OSError("Unable to load weights from this file")
OF_A_LIBRARY.__cause__ = MemoryError()
# A GPU's error is a RuntimeError, like that of a state that does not fit.
ON_A_GPU = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
PLACES = {
    "magellan.agent.sac.mlp": lambda *_: torch.empty(10**15),  # 4 PB
    "magellan.model.loading.AutoConfig.from_pretrained": raising(OF_A_LIBRARY),
    "magellan.training.loop.evaluated_goals": raising(MemoryError()),
    "magellan.agent.sac.SAC.load_state_dict": raising(ON_A_GPU),
}
NOTHING_LEFT = f"one clear error, nothing left behind, then {SAME}"


@pytest.mark.slow
@fault(NOTHING_LEFT, "memory runs out while a run is set up", "place", PLACES)
def test_memory_that_runs_out_while_a_run_is_set_up(place, goes_on, tmp_path, monkeypatch):
    resumed, new = tmp_path / "stopped", tmp_path / "new" / "run"
    kill(resumed, 4, "update_policy")
    before = contents(tmp_path)
    for folder in (resumed,) if place.endswith("load_state_dict") else (resumed, new):
        with monkeypatch.context() as patch:
            patch.setattr(place, PLACES[place])
            with pytest.raises(OutOfMemoryError, match=r"^out of memory while .*\d MB; nothing"):
                run(folder)
        assert contents(tmp_path) == before
        assert not (tmp_path / "new").exists()
    goes_on(resumed)


@pytest.mark.slow
@fault(SAME, "the wall clock jumps backwards", "step", [3600])
def test_a_clock_that_jumps_backwards(step, goes_on, tmp_path, monkeypatch):
    jumps = iter(range(10**9, 0, -step))
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: next(jumps))
        with struck(raising(Killed()), 5, "update_policy"), pytest.raises(Killed):
            run(tmp_path)
    oldest, newest = sorted((tmp_path / "checkpoints").iterdir())
    os.utime(newest, (0, 0))
    os.utime(oldest, (2**31, 2**31))
    monkeypatch.setattr(time, "time", lambda: 86_400.0)
    assert goes_on(tmp_path)["wall_seconds"] >= 0
    assert f"resumed from {newest.name}" in (tmp_path / "run.log").read_text()


def test_the_limit_keeps_the_longest_round_and_save_free_whatever_the_clock():
    ticks = [0.0]
    granted = seconds_granted(None, {END_TIME: "1000"}, now=lambda: 400.0)
    stopper = Stopper(granted, 100.0, clock=lambda: ticks[0])
    for what, seconds in (("round", 50.0), ("round", 10.0), ("save", 20.0)):
        stopper.record_duration(what, seconds)
    for seconds, reason in ((429, None), (431, "169 s left, 170 s reserved")):
        ticks[0] = seconds
        assert stopper.reason == (reason and f"before the time limit ({reason})")


def test_limits_are_those_of_the_call_the_environment_and_squeue(tmp_path, monkeypatch):
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
    for minutes in (0.0, math.nan):
        assert "--stop-after" in refusal(seconds_granted, minutes)
    for end in ("soon", "-5", "9" * 5000):
        assert f"{END_TIME}: '{end[:40]}" in refusal(seconds_granted, None, {END_TIME: end})


@fault(SAVED, "time limit near", "seconds", [1800])
def test_a_job_stops_before_its_time_limit(seconds, goes_on, tmp_path, monkeypatch, capsys):
    record = Stopper.record_duration
    with monkeypatch.context() as patch:
        # A round that seems to take an hour exceeds all limits below.
        patch.setattr(Stopper, "record_duration", lambda self, what, _: record(self, what, 3600.0))
        patch.setenv(END_TIME, str(int(time.time()) + seconds))
        assert main([*BRIEF, "--sampler", "random", "--output", str(tmp_path)]) == 75
    line = r"stopped: before the time limit \(\d+ s left, 7260 s reserved\).*\n"
    assert re.fullmatch(line, capsys.readouterr().err)
    assert goes_on(tmp_path)["stop_reasons"][0].startswith("stopped: before the time limit")


@fault(SAME, "the terminal has gone away", "shown", ("lines", "bar"))
def test_a_terminal_that_has_gone_away(shown, goes_on, tmp_path, monkeypatch):
    monkeypatch.setattr(Progress, "SECONDS_PER_LINE", 0.0)
    gone = raising(os_error("EPIPE"))
    terminal = SimpleNamespace(write=gone, flush=gone, isatty=lambda: shown == "bar")
    monkeypatch.setattr(sys, "stderr", terminal)
    goes_on(tmp_path, progress=shown)


def test_saving_takes_no_more_than_its_share(monkeypatch):
    job = Job.__new__(Job)
    saving = config(budget={"checkpoint_seconds": 60, "checkpoint_share": 0.01})
    job._trainer, job._saved_at = SimpleNamespace(config=saving), 1000.0
    for job._last_save, early in ((0.1, 1059.5), (2.0, 1197.5)):
        for late in (0, 1):
            monkeypatch.setattr(time, "monotonic", lambda now=early + late: now)
            assert job._save_is_due() == late


def test_every_attempt_records_what_it_was_made_with(tmp_path, monkeypatch):
    def made(*rows):
        return [(row["dtype"], row["device"], row["passes"] == "torch") for row in rows]

    code = iter(["first", "refused", "second.dirty", "too late"])
    speeds = iter([50.04, 25.0])
    monkeypatch.setattr(provenance, "cpu_model", lambda: "A Processor 1234")
    monkeypatch.setattr(provenance, "core_speed", lambda: next(speeds))
    monkeypatch.setattr(provenance, "code_version", lambda: f"0.1.0+{next(code)}")
    both = [("float32", "cpu", False), ("float32", "cpu", True)]
    stopped(config(), tmp_path)
    line = refused(config(backend={"dtype": "bfloat16"}), tmp_path)
    assert "backend.dtype is 'bfloat16' here and 'float32' there" in line
    manifest = train(config(backbone={"passes": "torch"}), tmp_path, resume=True, progress="none")
    assert next(code) == "too late"
    keys = ("attempt", "code_version", "resumed_from", "cpu", "matmul_gflop_per_second")
    first, second = manifest["attempt_log"]
    assert [tuple(row[key] for key in keys) for row in (first, second)] == [
        (1, "0.1.0+first", None, "A Processor 1234", 50.0),
        (2, "0.1.0+second.dirty", "00000001.safetensors", "A Processor 1234", 25.0),
    ]
    assert manifest["code_version"] == "0.1.0+second.dirty"
    assert first["reason"].startswith("stopped: on SIGTERM: saved")
    assert manifest["stop_reasons"] == [first["reason"], "complete"]
    assert first["started"] == manifest["started"]
    assert first["versions"] == second["versions"] == manifest["versions"]
    assert made(first, second) == both
    assert made(manifest) == both[1:]
    # A checkpoint lists each change once, as runs that start from it need.
    metadata, state = decode(max((tmp_path / "checkpoints").iterdir()))
    assert made(*state["made_with"]) == both
    digest = model_digest(check_backbone("zoo-mini"))
    assert manifest["backbone"] == {"model": "zoo-mini", "sha256": digest}
    assert metadata["backbone"] == digest


START = {"attempt": 1, "identity": "abc", "started": "2026-01-01T00:00:00Z"}
LINES = [
    *({**START, "attempt": number} for number in (10**400, LARGEST, True, "1")),
    {**START, "identity": ["abc"]},
    {**START, "reason": {"a": 1}},
    {**START, "versions": {"torch": 2}},
    json.dumps({**START, "reason": "x", "seconds": 0.5})[:-1] + ', "peak_memory_mb": Infinity}',
    *("[" * 100_000, "[1]", "\0\1\2", '{"attempt": 2, "star'),
]


def test_a_run_goes_on_beside_hostile_attempts(goes_on, tmp_path):
    os.mkfifo(tmp_path / "attempts.jsonl")  # reading it would wait for ever
    assert Attempts(tmp_path, "abc").read() == []
    (tmp_path / "attempts.jsonl").unlink()
    texts = (line if isinstance(line, str) else json.dumps(line) for line in (START, *LINES))
    (tmp_path / "attempts.jsonl").write_text("\n".join(texts))  # the last one is cut short
    rows = Attempts(tmp_path, "abc").read()
    assert all(type(row["attempt"]) is int and isinstance(row["reason"], str) for row in rows)
    (tmp_path / "manifest.json").write_text("[" * 100_000)
    manifest = goes_on(tmp_path)
    assert manifest["attempts"] == len(manifest["attempt_log"]) == 1
    assert 1 < manifest["peak_memory_mb"] <= LARGEST
    assert json.loads((tmp_path / "manifest.json").read_text()) == manifest


CHECKPOINT = "checkpoints/00000001.safetensors"


def link(target):
    return lambda path: path.symlink_to(target)


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as server, tempfile.TemporaryDirectory() as short:
        server.bind(f"{short}/s")  # names of sockets are short
        os.rename(f"{short}/s", path)


KINDS = [
    ("run.log", link("../theirs/file"), "a symbolic link"),
    ("evaluator.jsonl", link("../theirs/file"), "a symbolic link"),
    (f"{CHECKPOINT}.part", link("../../theirs/file"), "a symbolic link"),
    ("checkpoints", link("../new"), "a symbolic link"),
    (CHECKPOINT, os.mkfifo, "a named pipe"),
    (".lock", make_socket, "a socket"),
    ("checkpoints", lambda path: path.touch(), "a file"),
]


@fault(UNTOUCHED, "a link, a pipe or a socket for a file of the run", "name, make, kind", KINDS)
def test_only_files_and_folders_of_its_own_are_used(name, make, kind, tmp_path, capsys):
    run = tmp_path / "run"
    (run / name).parent.mkdir(parents=True)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/file").write_text("precious")
    make(run / name)
    before = sorted(tmp_path.rglob("*"))
    assert main([*TRAIN, "--resume", "--output", str(run)]) == 2
    line = f"error: --output: {run / name} is {kind}; allowed at this place"
    assert error_line(capsys).startswith(line)
    assert sorted(tmp_path.rglob("*")) == before
    assert contents(tmp_path / "theirs") == {"file": b"precious"}


def test_every_name_that_a_run_leaves_is_looked_at(goes_on, tmp_path):
    """In a folder that is itself a link, which is as good as any."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    goes_on(tmp_path / "run")
    left = {path.name for path in (tmp_path / "disk").iterdir()}
    assert left <= {*FILES, "checkpoints"}


WRITES = (".lock", "run.log", "attempts.jsonl", "practice.csv.part", "tensorboard")


@pytest.mark.parametrize("name", [*WRITES, "checkpoints", f"{CHECKPOINT}.part"])
def test_no_write_follows_a_link(name, tmp_path, monkeypatch):
    """As if it was made after the folder was looked at."""
    run, target = tmp_path / "run", tmp_path / "target"
    (run / name).parent.mkdir(parents=True)
    (run / name).symlink_to(target)
    for check in ("check_folder", "check_sink"):
        monkeypatch.setattr(f"magellan.jobs.run.{check}", lambda _: None)
    monkeypatch.setattr(Checkpoints, "remove_partial", lambda _: None)
    with pytest.raises((InputError, StorageError), match=r"cannot be written \(.*symbolic link"):
        train(config(), run, True, "none", log=name if name == "tensorboard" else "none")
    assert not target.exists()
