"""Backends that are not ours: a user's files, and one without any model."""

import pytest

from magellan.backends import register_backend
from magellan.config import counted, identity
from magellan.core.errors import InputError
from magellan.jobs.run import train
from tests.backends.fake import FakeBackend
from tests.runs import config, refusal
from tests.snippets import ROOT, imported, run_program, write_files


def test_neither_its_name_nor_its_constants_are_part_of_a_run(tmp_path):
    plain, files = config(), write_files("docs/extend.md", tmp_path)
    more = {"modules": [files["my_backend.py"]], "timed": {"least": 0.5}}
    timed = config(**more, backend={"kind": "timed"})
    assert timed.section("timed").least == 0.5
    assert identity(timed) == identity(plain)
    assert counted(timed) == counted(plain)


def test_what_is_none_or_cannot_be_used_is_refused_before_any_work(tmp_path):
    def check(settings, backbone):
        if settings.device == "auto":
            raise InputError(f"made: nobody answers for {backbone.model}")

    register_backend("made", check=check)(lambda parts, settings: "a model")
    for device, words in (
        ("auto", "made: nobody answers for z"),
        ("cpu", "backend.kind: 'made'"),
    ):
        run = config(backend={"kind": "made", "device": device})
        assert refusal(train, run, tmp_path / "run", False, "none").startswith(words)
        assert not (tmp_path / "run").exists()


def test_one_without_a_model_trains(tmp_path):
    built = []

    @register_backend("made")
    def build(parts, settings):
        built.append((parts, FakeBackend()))
        return built[0][1]

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
