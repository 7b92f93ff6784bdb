"""What a run records about its attempts, code, libraries and model."""

import json
import os
import re
import shutil
import subprocess

import pytest

from magellan import __version__
from magellan.jobs import provenance
from magellan.jobs.checkpoint import decode
from magellan.jobs.provenance import LARGEST, Attempts, code_version
from magellan.jobs.run import train
from magellan.model import tokenizers
from magellan.model.files import check_backbone, model_digest
from tests.faults.conftest import config, refused
from tests.runs import stopped, tables


def git(folder, *arguments):
    names = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *names, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def clone(tmp_path):
    """A repository with a package `magellan` and a file outside it."""
    (tmp_path / "magellan").mkdir()
    for name in ("magellan/data.json", "README.md"):
        (tmp_path / name).write_text("1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


CHANGES = {"magellan/data.json": ".dirty", "magellan/new.py": ".dirty", "magellan/new.txt": ""}


@pytest.mark.parametrize("changed", CHANGES)
def test_a_tree_that_differs_from_its_commit_is_marked(changed, clone, monkeypatch):
    (clone / changed).write_text("2\n")
    monkeypatch.setenv("GIT_DIR", "/nowhere")  # as in a hook
    version = code_version(clone / "magellan")
    monkeypatch.delenv("GIT_DIR")
    commit = git(clone, "rev-parse", "--short=12", "HEAD")
    assert version == f"{__version__}+{commit}{CHANGES[changed]}"


def test_a_repository_around_an_installed_package_is_ignored(clone, monkeypatch):
    installed = clone / ".venv/lib/python3/site-packages/magellan"
    shutil.copytree(clone / "magellan", installed)
    assert code_version(installed) == __version__
    monkeypatch.setenv("PATH", str(clone / "empty"))  # no git
    assert code_version(clone / "magellan") == __version__


MADE = [("float32", "cpu", False), ("float32", "cpu", True)]


def made(rows):
    """Format, device, and whether its passes were PyTorch's."""
    return [(row["dtype"], row["device"], row["passes"] == "torch") for row in rows]


def test_every_attempt_records_what_it_was_made_with(tmp_path, monkeypatch):
    code = iter(["first", "refused", "second.dirty", "too late"])
    speeds = iter([50.04, 25.0])
    monkeypatch.setattr(provenance, "cpu_model", lambda: "A Processor 1234")
    monkeypatch.setattr(provenance, "core_speed", lambda: next(speeds))
    monkeypatch.setattr(provenance, "code_version", lambda: f"0.1.0+{next(code)}")
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
    assert made([first, second]) == MADE
    assert made([manifest]) == MADE[1:]
    # A checkpoint lists each change once, as runs that start from it need.
    metadata, state = decode(max((tmp_path / "checkpoints").iterdir()))
    assert made(state["made_with"]) == MADE
    digest = model_digest(check_backbone("zoo-mini"))
    assert manifest["backbone"] == {"model": "zoo-mini", "sha256": digest}
    assert metadata["backbone"] == digest


def test_what_another_library_has_read_is_not_continued(tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizers, "digest", lambda _: "a" * 64)
        stopped(config(), tmp_path)
    line = refused(config(), tmp_path)
    assert re.search(r"safetensors was made with other token ids: .* SHA-256 a{12} there", line)


def test_a_digest_is_that_of_the_files_that_count(tmp_path):
    copy = shutil.copytree(check_backbone("zoo-mini"), tmp_path / "copy")
    good = model_digest(copy)
    (copy / "README.md").write_text("x")
    assert model_digest(copy) == good
    for name in ("config.json", "tokenizer_config.json", "model.safetensors"):
        content = (copy / name).read_bytes()
        (copy / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        assert model_digest(copy) != good, name
        (copy / name).write_bytes(content)


START = {"attempt": 1, "identity": "abc", "started": "2026-01-01T00:00:00Z"}
END = {"attempt": 1, "reason": "stopped: on SIGTERM", "peak_memory_mb": 1, "seconds": 0.5}


LINES = [
    *({**START, "attempt": number} for number in (10**400, LARGEST, True, "1")),
    {**START, "identity": ["abc"]},
    {**START, "reason": {"a": 1}},
    {**START, "versions": {"torch": 2}},
    json.dumps({**START, **END})[:-1] + ', "peak_memory_mb": Infinity}',
    *("[" * 100_000, "[1]", "\0\1\2", '{"attempt": 2, "star'),
]


def test_a_run_goes_on_beside_hostile_attempts(undisturbed, tmp_path):
    os.mkfifo(tmp_path / "attempts.jsonl")  # reading it would wait for ever
    assert Attempts(tmp_path, "abc").read() == []
    (tmp_path / "attempts.jsonl").unlink()
    texts = (line if isinstance(line, str) else json.dumps(line) for line in (START, *LINES))
    (tmp_path / "attempts.jsonl").write_text("\n".join(texts))  # the last one is cut short
    rows = Attempts(tmp_path, "abc").read()
    assert all(type(row["attempt"]) is int and isinstance(row["reason"], str) for row in rows)
    (tmp_path / "manifest.json").write_text("[" * 100_000)
    manifest = train(config(), tmp_path, resume=True, progress="none")
    assert manifest["attempts"] == len(manifest["attempt_log"]) == 1
    assert 1 < manifest["peak_memory_mb"] <= LARGEST
    assert tables(tmp_path) == undisturbed["random"]
    assert json.loads((tmp_path / "manifest.json").read_text()) == manifest
