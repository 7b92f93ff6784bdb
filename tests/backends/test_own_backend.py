"""A user's own backend: files outside the package, named in a configuration."""

import json
import os
import re
import subprocess
import sys

import pytest

from magellan.backends import BACKENDS, register_backend
from magellan.config import counted, identity, resolve_run
from magellan.core.errors import InputError
from magellan.jobs.run import train
from tests.runs import refusal, tables
from tests.snippets import ROOT, write_files

SPACE = "8-4-4-4-4"
CALL = ["train", "--preset", "smoke", "--goal-space", SPACE, "--progress", "none"]


@pytest.fixture
def files(tmp_path):
    """The files of docs/extend.md; the backend is forgotten afterwards."""
    yield write_files("docs/extend.md", tmp_path)
    BACKENDS.remove("timed")


@pytest.fixture
def register():
    """Registers a builder as the backend `made`, for one test."""
    yield lambda build, **more: register_backend("made", **more)(build)
    BACKENDS.remove("made")


def layer(**more):
    return {"sampler": "magellan", "goal_space": SPACE, **more}


def from_outside(folder, *arguments):
    """Train in a folder that is not the repository; the messages of the command."""
    process = subprocess.run(
        [sys.executable, "-m", "magellan", *CALL, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert process.returncode == 0, process.stderr
    return process.stderr


@pytest.mark.slow
def test_its_run_has_the_tables_of_the_local_one(files, tmp_path):
    options = ("--module", "my_backend.py", "--set", "backend.kind=timed")
    messages = from_outside(tmp_path, *options, "--output", "timed")
    assert "timed: update_policy, " in messages
    assert "timed:" not in from_outside(tmp_path, "--output", "local")
    assert tables(tmp_path / "timed") == tables(tmp_path / "local")
    timed, local = (
        json.loads((tmp_path / name / "manifest.json").read_text()) for name in ("timed", "local")
    )
    assert timed["identity"] == local["identity"]
    assert timed["config"]["backend"]["kind"] == "timed"
    assert timed["config"]["timed"] == {"least": 0.0}
    assert set(timed["modules"]) == {"my_backend.py"}


def test_neither_its_name_nor_its_constants_are_part_of_a_run(files):
    plain = resolve_run("smoke", [layer()])
    more = {"modules": [files["my_backend.py"]], "timed": {"least": 0.5}}
    timed = resolve_run("smoke", [layer(**more, backend={"kind": "timed"})])
    assert timed.section("timed").least == 0.5
    assert identity(timed) == identity(plain)
    assert counted(timed) == counted(plain)


REFUSED = {
    "an unknown name": ({"backend": {"kind": "theirs"}}, "backend.kind: 'theirs' is unknown; "),
    "no text": ({"backend": {"kind": 3}}, "backend.kind: 3 is not allowed"),
    "an unknown constant": ({"timed": {"most": 1}}, "timed.most: unknown key; allowed here: least"),
    "a constant out of range": ({"timed": {"least": -1}}, "timed.least: -1 is not allowed"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_wrong_is_one_line(case, files):
    values, words = REFUSED[case]
    message = refusal(resolve_run, "smoke", [layer(modules=[files["my_backend.py"]], **values)])
    assert message.startswith(words)


def refused(folder) -> str:
    """The error of a run with the backend `made`, which leaves no folder."""
    config = resolve_run("smoke", [layer(backend={"kind": "made"})])
    message = refusal(train, config, folder / "run", False, "none")
    assert not (folder / "run").exists()
    return message


def test_its_check_comes_before_any_work(register, tmp_path):
    def check(settings, backbone):
        raise InputError(f"made: nobody answers on {settings.device} for {backbone.model}")

    register(lambda parts, settings: pytest.fail("built"), check=check)
    assert refused(tmp_path) == "made: nobody answers on cpu for zoo-mini"


def test_what_is_no_backend_is_refused(register, tmp_path):
    register(lambda parts, settings: "a model")
    words = r"backend.kind: 'made' of .* gave 'a model'; allowed: a"
    assert re.match(words, refused(tmp_path))


def test_one_without_a_model_trains(register, tmp_path):
    from tests.backends.fake import FakeBackend

    built = []
    register(lambda parts, settings: built.append((parts, FakeBackend())) or built[0][1])
    config = resolve_run("smoke", [layer(backend={"kind": "made"})])
    manifest = train(config, tmp_path / "run", False, "none")
    ((parts, backend),) = built
    assert (manifest["passes"], manifest["status"]) == ("none", "complete")
    assert backend.updates["sac"] == manifest["updates"] > 0
    assert backend.closed
    assert (parts.backbone, parts.settings) == (config.backbone, config.backend)
    assert parts.world.name == config.world
