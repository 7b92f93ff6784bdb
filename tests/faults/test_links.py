"""Foreign run folders: no link in them is followed."""

import os
import socket
import tempfile

import pytest

from magellan.cli import main
from magellan.core.errors import InputError, StorageError
from magellan.jobs.checkpoint import Checkpoints
from magellan.jobs.folder import FILES
from magellan.jobs.run import train
from tests.faults.conftest import TRAIN, config
from tests.faults.promises import UNTOUCHED, fault
from tests.runs import contents, error_line

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
