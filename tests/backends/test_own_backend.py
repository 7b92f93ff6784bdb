"""A user's own backend and update: files outside the package, named in a configuration."""

import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from magellan.backends import BACKENDS, register_backend
from magellan.backends.updates import UPDATES
from magellan.cli import main
from magellan.competence import ESTIMATORS
from magellan.config import counted, identity, resolve_run
from magellan.config.modules import load_modules
from magellan.core.errors import InputError
from magellan.jobs.checkpoint import Checkpoints
from magellan.jobs.run import train
from tests.snippets import ROOT, write_files

SPACE = "8-4-4-4-4"
CALL = ["train", "--preset", "smoke", "--goal-space", SPACE, "--progress", "none"]
TABLES = ("evaluation.csv", "competence.csv", "practice.csv", "training.csv")


@pytest.fixture
def files(tmp_path):
    """The files of docs/extend.md; what these two add is forgotten afterwards."""
    yield write_files("docs/extend.md", tmp_path)
    for registry, name in ((BACKENDS, "timed"), (UPDATES, "line")):
        registry.remove(name)


@pytest.fixture
def made():
    """Registers a builder as the backend `made`, for one test."""
    yield lambda build, **more: register_backend("made", **more)(build)
    BACKENDS.remove("made")


def layer(**more):
    return {"sampler": "magellan", "goal_space": SPACE, **more}


def from_outside(folder, *arguments):
    """Train in a folder that is not the repository; gives what was said."""
    done = subprocess.run(
        [sys.executable, "-m", "magellan", *CALL, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_its_run_has_the_tables_of_the_local_one(files, tmp_path):
    named = ("--module", "my_backend.py", "--set", "backend.kind=timed")
    said = from_outside(tmp_path, *named, "--output", "timed")
    assert "timed: update, " in said
    assert "timed: close, 1 calls, " in said
    assert "timed:" not in from_outside(tmp_path, "--output", "local")
    for name in TABLES:
        assert (tmp_path / "timed" / name).read_bytes() == (tmp_path / "local" / name).read_bytes()
    found, plain = (
        json.loads((tmp_path / name / "manifest.json").read_text()) for name in ("timed", "local")
    )
    assert found["identity"] == plain["identity"]
    assert found["config"]["backend"]["kind"] == "timed"
    assert found["config"]["timed"] == {"least": 0.0}
    assert set(found["modules"]) == {"my_backend.py"}


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
    with pytest.raises(InputError) as caught:
        resolve_run("smoke", [layer(modules=[files["my_backend.py"]], **values)])
    assert str(caught.value).startswith(words)
    assert "\n" not in str(caught.value)


def test_an_unknown_one_ends_the_command_before_any_work(tmp_path, capsys):
    folder = tmp_path / "run"
    assert main([*CALL, "--set", "backend.kind=theirs", "--output", str(folder)]) == 2
    expected = "error: backend.kind: 'theirs' is unknown; allowed: local, lamorel\n"
    assert capsys.readouterr().err == expected
    assert not folder.exists()


def test_its_check_comes_before_any_work(made, tmp_path):
    def check(settings, backbone):
        raise InputError(f"made: nobody answers on {settings.device} for {backbone.model}")

    made(lambda parts, settings: pytest.fail("built"), check=check)
    config = resolve_run("smoke", [layer(backend={"kind": "made"})])
    with pytest.raises(InputError, match=r"^made: nobody answers on cpu for zoo-mini$"):
        train(config, tmp_path / "run", False, "none")
    assert not (tmp_path / "run").exists()


def test_what_is_no_backend_is_refused(made, tmp_path):
    made(lambda parts, settings: "a model")
    config = resolve_run("smoke", [layer(backend={"kind": "made"})])
    with pytest.raises(InputError, match=r"^backend.kind: 'made' of .* gave 'a model'; allowed: a"):
        train(config, tmp_path / "run", False, "none")
    assert not (tmp_path / "run").exists()


def test_one_without_a_model_trains(made, tmp_path):
    from tests.backends.fake import FakeBackend

    built = []
    made(lambda parts, settings: built.append((parts, FakeBackend())) or built[0][1])
    config = resolve_run("smoke", [layer(backend={"kind": "made"})])
    manifest = train(config, tmp_path / "run", False, "none")
    ((parts, backend),) = built
    assert (manifest["passes"], manifest["status"]) == ("none", "complete")
    assert backend.updates["sac"] == manifest["updates"] > 0
    assert backend.closed
    assert (parts.backbone, parts.settings) == (config.backbone, config.backend)
    assert parts.world.name == config.world


# --- updates --------------------------------------------------------------------------------------

ASKING = '''"""Asks for the update `line`, and predicts its loss: that is in the tables then."""

import numpy as np
from pydantic import Field

from magellan.core.codec import stack
from magellan.agent.replay import Episodes
from magellan.competence import CompetenceEstimator, register_estimator
from magellan.core.settings import Section


class AskingSettings(Section):
    rate: float = Field(0.01, gt=0.0, description="Step size.")


class Asking(CompetenceEstimator):
    def __init__(self, parts, settings):
        self.goals, self.backend, self.loss = parts.goals, parts.backend, 0.0
        self.backend.start("line", settings, parts.seed)

    def update(self, outcomes):
        if len(outcomes):
            texts = [self.goals.prompt(int(goal)) for goal in outcomes.goals]
            tokens, segments = stack(self.backend.codec.pack(texts, [()] * len(texts)))
            episodes = Episodes(tokens, segments, outcomes.success.astype(np.float32))
            self.loss = min(self.backend.update("line", episodes)["line_loss"], 1.0)

    def known(self):
        return np.arange(len(self.goals))

    def competence(self, which):
        return self.predict(self.goals, which)

    def predict(self, goals, positions):
        return np.full(len(positions), self.loss), np.zeros(len(positions))

    def state_dict(self):
        return {"loss": self.loss}

    def load_state_dict(self, state):
        self.loss = state["loss"]


@register_estimator("asking", settings=AskingSettings)
def build(parts, settings):
    return Asking(parts, settings)
'''


@pytest.fixture
def asking(files, tmp_path):
    path = tmp_path / "asking.py"
    path.write_text(ASKING)
    yield [files["my_update.py"], str(path)]
    ESTIMATORS.remove("asking")


def test_an_update_learns_for_an_estimator_of_ones_own(asking, tmp_path):
    observed = layer(modules=asking, observers=["asking"])
    config = resolve_run("smoke", [observed])
    manifest = train(config, tmp_path / "run", False, "none")
    table = pd.read_csv(tmp_path / "run/competence.csv")
    losses = table[table["estimator"] == "asking"].groupby("episode")["competence"].first()
    assert losses.iloc[0] == 0  # not asked yet
    assert 0 < losses.iloc[-1] < 1
    found = Checkpoints(tmp_path / "run", config, manifest["backbone"]["sha256"]).load()
    weights = found.state["trainer"]["backend"]["line"]["weights"]
    assert np.abs(weights).max() > 0
    train(config, tmp_path / "run", True, "none")  # its state is put back


def test_an_unknown_update_is_one_line(asking, tmp_path):
    load_modules(asking)
    UPDATES.remove("line")
    config = resolve_run("smoke", [layer(observers=["asking"])])
    with pytest.raises(InputError, match=r"^update: 'line' is unknown; allowed: sac, competence$"):
        train(config, tmp_path / "run", False, "none")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("backends", "local", "backend: name 'local' is taken by "),
        ("backends.updates", "sac", "update: name 'sac' is taken by "),
    ],
)
def test_a_name_of_the_package_is_taken(kind, name, words, tmp_path):
    path = tmp_path / "taken.py"
    decorator = f"register_{kind.split('.')[-1].removesuffix('s')}"
    path.write_text(
        f"from magellan.{kind} import {decorator}\n@{decorator}('{name}')\ndef build(*_): ...\n"
    )
    with pytest.raises(InputError) as caught:
        load_modules([str(path)])
    assert words in str(caught.value)
    assert list(BACKENDS) == ["local", "lamorel"]
    assert list(UPDATES) == ["sac", "competence"]
