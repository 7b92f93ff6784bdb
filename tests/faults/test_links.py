"""Foreign run folders: the trainer follows no link in them to outside files."""

import os
import socket
from pathlib import Path

import pytest

from magellan.cli import main
from magellan.core import files
from magellan.core.errors import InputError, StorageError
from magellan.core.parsing import read_json_object
from magellan.jobs.checkpoint import Checkpoints
from magellan.jobs.folder import FILES, FolderLock
from magellan.jobs.log import RunLog
from magellan.jobs.progress import TensorBoard
from magellan.jobs.provenance import Attempts
from magellan.jobs.run import train
from tests.faults.conftest import TRAIN, config
from tests.faults.promises import UNTOUCHED, fault
from tests.runs import contents, error_line, tables

CHECKPOINT = "checkpoints/00000001.safetensors"


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def link(target):
    return lambda path: path.symlink_to(target)


LINKED = ("run.log", "practice.csv.part", CHECKPOINT, f"{CHECKPOINT}.part", "tensorboard/events")
KINDS = [
    *((n, link("../" * n.count("/") + "../theirs/file"), "a symbolic link") for n in LINKED),
    *((name, link("../new"), "a symbolic link") for name in ("checkpoints", "manifest.json")),
    (CHECKPOINT, os.mkfifo, "a named pipe"),
    (".lock", make_socket, "a socket"),
    ("run.log", os.mkdir, "a folder"),
    ("checkpoints", lambda path: path.touch(), "a file"),
]


@fault(UNTOUCHED, "a link, a pipe or a socket for a file of the run", "name, make, kind", KINDS)
def test_only_files_and_folders_of_its_own_are_used(
    name, make, kind, tmp_path, capsys, monkeypatch
):
    run = tmp_path / "run"
    (run / name).parent.mkdir(parents=True)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/file").write_text("precious")
    monkeypatch.chdir((run / name).parent)  # names of sockets are short
    make(Path(Path(name).name))
    before = sorted(tmp_path.rglob("*"))
    assert main([*TRAIN, "--resume", "--output", str(run)]) == 2
    line = f"error: --output: {run / name} is {kind}; allowed at this place"
    assert error_line(capsys).startswith(line)
    assert sorted(tmp_path.rglob("*")) == before
    assert contents(tmp_path / "theirs") == {"file": b"precious"}


def test_every_name_that_a_run_leaves_is_looked_at(undisturbed, tmp_path):
    """In a folder that is itself a link, which is as good as any."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    train(config(), tmp_path / "run", resume=True, progress="none")
    assert tables(tmp_path / "disk") == undisturbed["random"]
    left = {path.name for path in (tmp_path / "disk").iterdir()}
    assert left <= {*FILES, "checkpoints"}


def test_a_manifest_without_end_is_refused_instead_of_read(tmp_path):
    (tmp_path / "manifest.json").symlink_to("/dev/zero")
    with pytest.raises(InputError, match=r"manifest.json: cannot be read \(not a regular file\)"):
        read_json_object(tmp_path / "manifest.json")


@pytest.mark.parametrize("name", ["run.log", "500/checkpoints/1.safetensors"])
def test_no_language_model_is_written_into_a_run(name, tmp_path, capsys):
    path = tmp_path / "run" / name
    path.parent.mkdir(parents=True)
    path.write_text("a run's")
    arguments = ["backbone", "--world", "simulated", "--output", str(tmp_path / "run")]
    assert main(arguments) == 2
    assert f"it holds a run ({name.split('/')[0]})" in error_line(capsys)
    assert list(contents(tmp_path)) == [f"run/{name}"]


def write_checkpoint(folder):
    Checkpoints(folder, config()).save({})


# Links created after the check: the write itself does not follow them.
WRITES = {
    ".lock": (FolderLock, InputError),
    "run.log": (lambda folder: RunLog(folder).write("x"), StorageError),
    "attempts.jsonl": (lambda folder: Attempts(folder, "").begin(None), StorageError),
    "a.csv.part": (lambda folder: files.write_atomically(folder / "a.csv", b""), StorageError),
    "checkpoints": (write_checkpoint, StorageError),
    "tensorboard": (lambda folder: TensorBoard(folder, {}, 0), StorageError),
    "checkpoints/00000001.safetensors.part": (write_checkpoint, StorageError),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("there", [True, False])
def test_no_write_follows_a_link(name, there, tmp_path):
    run, target = tmp_path / "run", tmp_path / "target"
    (run / name).parent.mkdir(parents=True)
    (run / name).symlink_to(target)
    is_folder = name in ("checkpoints", "tensorboard")
    if there:
        target.mkdir() if is_folder else target.write_text("precious")
    write, error = WRITES[name]
    with pytest.raises(error, match=r"cannot be written \(.*symbolic link"):
        write(run)
    assert target.exists() == there
    assert not there or (not any(target.iterdir()) if is_folder else target.read_text())
