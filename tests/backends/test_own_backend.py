"""Backends that are not ours: a user's files, and one without any model."""

import pytest

from magellan.backends import BACKENDS, register_backend
from magellan.config import counted, identity
from magellan.core.errors import InputError
from magellan.jobs.run import train
from tests.backends.fake import FakeBackend
from tests.runs import config, refusal
from tests.snippets import ROOT, imported, run_program, write_files


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


def test_neither_its_name_nor_its_constants_are_part_of_a_run(files):
    plain = config()
    more = {"modules": [files["my_backend.py"]], "timed": {"least": 0.5}}
    timed = config(**more, backend={"kind": "timed"})
    assert timed.section("timed").least == 0.5
    assert identity(timed) == identity(plain)
    assert counted(timed) == counted(plain)


def test_what_is_none_or_cannot_be_used_is_refused_before_any_work(register, tmp_path):
    def check(settings, backbone):
        if settings.device == "auto":
            raise InputError(f"made: nobody answers for {backbone.model}")

    register(lambda parts, settings: "a model", check=check)
    for device, words in (
        ("auto", "made: nobody answers for zoo-mini"),
        ("cpu", "backend.kind: 'made'"),
    ):
        run = config(backend={"kind": "made", "device": device})
        assert refusal(train, run, tmp_path / "run", False, "none").startswith(words)
        assert not (tmp_path / "run").exists()


def test_one_without_a_model_trains(register, tmp_path):
    built = []
    register(lambda parts, settings: built.append((parts, FakeBackend())) or built[0][1])
    run = config(backend={"kind": "made"})
    manifest = train(run, tmp_path / "run", False, "none")
    ((parts, backend),) = built
    assert (manifest["passes"], manifest["status"]) == ("none", "complete")
    assert backend.updates["sac"] == manifest["updates"] > 0
    assert backend.closed
    assert (parts.backbone, parts.settings) == (run.backbone, run.backend)
    assert parts.world.name == run.world


MODEL_LIBRARIES = {"torch", "transformers", "peft"}


def test_a_run_without_a_model_imports_none():
    program = (
        "import sys\n"
        "from magellan.config import resolve_run\n"
        "from magellan.training.loop import Trainer\n"
        "from tests.backends.fake import FakeBackend\n"
        "layer = {'sampler': 'magellan', 'goal_space': '40-8-4-2-2'}\n"
        "trainer = Trainer(resolve_run('smoke', [layer]), FakeBackend())\n"
        "while not trainer.done:\n"
        "    trainer.advance()\n"
        f"print(sorted(set(sys.modules) & {MODEL_LIBRARIES!r}))"
    )
    assert run_program(program) == "[]"


@pytest.mark.parametrize("part", ["training", "samplers", "competence", "config", "tools"])
def test_no_model_library_above_the_seam(part):
    paths = list((ROOT / "magellan" / part).rglob("*.py"))
    assert paths
    for path in paths:
        assert not {name.split(".")[0] for name in imported(path)} & MODEL_LIBRARIES, path
