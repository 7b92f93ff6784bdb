"""A user's own backend: files outside the package, named in a configuration."""

import pytest

from magellan.backends import BACKENDS, register_backend
from magellan.config import counted, identity, resolve_run
from magellan.core.errors import InputError
from magellan.jobs.run import train
from tests.runs import refusal
from tests.snippets import write_files

SPACE = "8-4-4-4-4"


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


def test_neither_its_name_nor_its_constants_are_part_of_a_run(files):
    plain = resolve_run("smoke", [layer()])
    more = {"modules": [files["my_backend.py"]], "timed": {"least": 0.5}}
    timed = resolve_run("smoke", [layer(**more, backend={"kind": "timed"})])
    assert timed.section("timed").least == 0.5
    assert identity(timed) == identity(plain)
    assert counted(timed) == counted(plain)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"backend": {"kind": "theirs"}}, "backend.kind: 'theirs' is unknown; "),
        ({"timed": {"most": 1}}, "timed.most: unknown key; allowed here: least"),
    ],
)
def test_what_is_wrong_is_one_line(values, words, files):
    message = refusal(resolve_run, "smoke", [layer(modules=[files["my_backend.py"]], **values)])
    assert message.startswith(words)


def test_what_is_none_or_cannot_be_used_is_refused_before_any_work(register, tmp_path):
    def check(settings, backbone):
        if settings.device == "auto":
            raise InputError(f"made: nobody answers for {backbone.model}")

    register(lambda parts, settings: "a model", check=check)
    for device, words in (
        ("auto", "made: nobody answers for zoo-mini"),
        ("cpu", "backend.kind: 'made'"),
    ):
        config = resolve_run("smoke", [layer(backend={"kind": "made", "device": device})])
        assert refusal(train, config, tmp_path / "run", False, "none").startswith(words)
        assert not (tmp_path / "run").exists()


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
