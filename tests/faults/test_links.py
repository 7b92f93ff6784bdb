"""Foreign run folders: no link in them is followed, no control character is printed."""

import os
import re
import socket
import tempfile
import unicodedata

import pytest

from magellan.cli import main
from magellan.core import files
from magellan.core.errors import InputError, JobError, StorageError, printable
from magellan.jobs.checkpoint import Checkpoints
from magellan.jobs.display import TensorBoard
from magellan.jobs.folder import FILES, FolderLock
from magellan.jobs.log import RunLog
from magellan.jobs.provenance import Attempts
from magellan.jobs.run import train
from tests.faults.conftest import TRAIN, config
from tests.faults.promises import UNTOUCHED, fault
from tests.runs import contents, error_line, tables

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


def test_every_name_that_a_run_leaves_is_looked_at(undisturbed, tmp_path):
    """In a folder that is itself a link, which is as good as any."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    train(config(), tmp_path / "run", resume=True, progress="none")
    assert tables(tmp_path / "disk") == undisturbed["random"]
    left = {path.name for path in (tmp_path / "disk").iterdir()}
    assert left <= {*FILES, "checkpoints"}


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
def test_no_write_follows_a_link(name, tmp_path):
    run, target = tmp_path / "run", tmp_path / "target"
    (run / name).parent.mkdir(parents=True)
    (run / name).symlink_to(target)
    write, error = WRITES[name]
    with pytest.raises(error, match=r"cannot be written \(.*symbolic link"):
        write(run)
    assert not target.exists()


HOSTILE = "\x1b[2J\x1b]0;title\x07 one\r\ntwo\x85\x9b31m\u2028\u202ereversed\u2066\ud800 {x} %s"
SHOWN = r"\x1b[2J\x1b]0;title\x07 one\r\ntwo\x85\x9b31m\u2028\u202ereversed\u2066\ud800 {x} %s"


def test_controls_are_shown_escaped_and_all_else_is_kept(tmp_path, capsys):
    kept = "Häuser, 猫, 🐈, العربية, a\\nb, ~"
    assert [printable(text) for text in (HOSTILE, kept, SHOWN)] == [SHOWN, kept, SHOWN]
    text = printable("".join(map(chr, range(0x110000))))
    assert {unicodedata.category(letter) for letter in text}.isdisjoint({"Cc", "Cs", "Zl", "Zp"})
    assert not re.search("[\u202a-\u202e\u2066-\u2069]", text)
    for kind in (InputError, JobError):
        assert str(kind(f"reason: {HOSTILE}")) == f"reason: {SHOWN}"
    RunLog(tmp_path).warn(HOSTILE)
    assert capsys.readouterr().err == f"warning: {SHOWN}\n"
    (line,) = (tmp_path / "run.log").read_bytes().splitlines()
    assert line.endswith(f" warning: {SHOWN}".encode())
