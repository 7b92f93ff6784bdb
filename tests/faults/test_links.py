"""Foreign run folders: the trainer follows no link in them to outside files."""

import os
import shutil
import socket

import pytest

from magellan.cli import main
from magellan.core import files
from magellan.core.errors import InputError, StorageError
from magellan.core.parsing import read_json_object
from magellan.jobs.checkpoint import Checkpoints
from magellan.jobs.folder import FILES, FolderLock, check_folder
from magellan.jobs.log import RunLog
from magellan.jobs.progress import TensorBoard
from magellan.jobs.provenance import Attempts
from magellan.jobs.run import train
from tests.faults.cases import cases
from tests.faults.conftest import TRAIN, config
from tests.runs import contents, error_line, tables


@pytest.fixture
def stopped(tmp_path):
    """A run folder with two checkpoints, and unrelated files beside it."""
    Checkpoints(tmp_path / "run", config())
    for folder in ("run", "theirs"):
        (tmp_path / folder / "checkpoints").mkdir(parents=True)
        (tmp_path / folder / "tensorboard").mkdir()
        for number in (1, 2):
            (tmp_path / folder / f"checkpoints/0000000{number}.safetensors").write_bytes(b"x" * 99)
    (tmp_path / "theirs/file").write_text("precious")
    return tmp_path


def refusal(folder, capsys):
    assert main([*TRAIN, "--sampler", "random", "--resume", "--output", str(folder)]) == 2
    return error_line(capsys)


@pytest.mark.parametrize("name", cases("link"))
def test_a_link_in_the_folder_is_refused(name, stopped, capsys):
    run, place = stopped / "run", stopped / "run" / name
    is_folder = name in ("checkpoints", "tensorboard")
    target = stopped / "theirs" / (name if is_folder else "file")
    if is_folder:
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.symlink_to(target)
    before, names = contents(stopped), sorted(path.name for path in run.rglob("*"))
    line = refusal(run, capsys)
    assert line.startswith(f"error: --output: {place} is a symbolic link; allowed at this place")
    assert contents(stopped) == before
    assert sorted(path.name for path in run.rglob("*")) == names
    # Nor does a dangling link create a file elsewhere.
    place.unlink()
    place.symlink_to(stopped / "theirs/new")
    before = contents(stopped / "theirs")
    assert "is a symbolic link" in refusal(run, capsys)
    assert contents(stopped / "theirs") == before


def test_every_name_that_a_run_leaves_is_looked_at(tmp_path):
    train(config(), tmp_path, resume=False, progress="none")
    known = {*FILES, "checkpoints", "tensorboard"}
    assert {path.name for path in tmp_path.iterdir()} <= known
    assert {name.split("/")[0] for name in cases("link")} == known


def test_a_folder_that_is_itself_a_link_is_as_good_as_any(undisturbed, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    train(config(), tmp_path / "run", resume=True, progress="none")
    assert tables(tmp_path / "disk") == undisturbed["random"]


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@pytest.mark.parametrize(
    ("name", "make", "kind"),
    [
        ("attempts.jsonl", os.mkfifo, "a named pipe"),
        ("checkpoints/00000003.safetensors", os.mkfifo, "a named pipe"),
        (".lock", make_socket, "a socket"),
        ("run.log", os.mkdir, "a folder"),
        ("checkpoints", lambda path: path.write_bytes(b""), "a file"),
    ],
)
def test_what_is_no_file_is_refused_instead_of_waited_for(
    name, make, kind, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    run = tmp_path / "run"
    (run / name).parent.mkdir(parents=True)
    make(run.relative_to(tmp_path) / name)
    assert f"--output: {run / name} is {kind}; allowed" in refusal(run, capsys)


@pytest.mark.parametrize("target", ["pipe", "/dev/zero"])
def test_a_manifest_without_end_is_refused_instead_of_read(target, tmp_path):
    if target == "pipe":
        os.mkfifo(tmp_path / target)
    (tmp_path / "manifest.json").symlink_to(target)
    with pytest.raises(InputError, match=r"manifest.json: cannot be read \(not a regular file\)"):
        read_json_object(tmp_path / "manifest.json")


@pytest.mark.parametrize(
    "name", ["manifest.json", "run.log", "attempts.jsonl", "checkpoints/1", "500/checkpoints/1"]
)
def test_no_language_model_is_written_into_a_run(name, tmp_path, capsys):
    path = tmp_path / "run" / (f"{name}.safetensors" if "checkpoints" in name else name)
    path.parent.mkdir(parents=True)
    path.write_text("a run's")
    before = contents(tmp_path)
    arguments = ["backbone", "--world", "simulated", "--output", str(tmp_path / "run")]
    assert main(arguments) == 2
    line = f"--output: {tmp_path}/run is not allowed: it holds a run ({name.split('/')[0]})"
    assert line in capsys.readouterr().err
    assert contents(tmp_path) == before


def write_table(folder):
    files.write_atomically(folder / "practice.csv", b"new")


def write_checkpoint(folder):
    Checkpoints(folder, config()).save({})


# Links created after the check: the write itself does not follow them.
WRITES = {
    ".lock": (FolderLock, InputError),
    "run.log": (lambda folder: RunLog(folder).write("x"), StorageError),
    "attempts.jsonl": (lambda folder: Attempts(folder, "").begin(None), StorageError),
    "practice.csv.part": (write_table, StorageError),
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
    if there and name in ("checkpoints", "tensorboard"):
        target.mkdir()
    elif there:
        target.write_text("precious")
    write, error = WRITES[name]
    with pytest.raises(error, match=r"cannot be written \(.*symbolic link"):
        write(run)
    after = {path: data for path, data in contents(tmp_path).items() if path.startswith("target")}
    assert after == ({"target": b"precious"} if target.is_file() else {})
    assert target.exists() == there


def test_a_table_that_became_a_link_is_replaced_and_its_target_kept(tmp_path):
    (tmp_path / "target").write_text("precious")
    (tmp_path / "practice.csv").symlink_to(tmp_path / "target")
    write_table(tmp_path)
    assert (tmp_path / "target").read_text() == "precious"
    assert (tmp_path / "practice.csv").read_bytes() == b"new"


def test_absent_folders_and_foreign_names_are_allowed(tmp_path):
    check_folder(tmp_path / "nowhere")
    (tmp_path / "notes").symlink_to(tmp_path / "elsewhere")
    check_folder(tmp_path)
