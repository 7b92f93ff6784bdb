"""Trainer and estimators need nothing but the seam: they run without any model, and import none."""

import numpy as np
import pytest

from magellan.competence import EstimatorParts, Outcomes, make_estimator
from magellan.config import resolve_run
from magellan.core.randomness import stream
from magellan.training.loop import Trainer
from magellan.worlds.little_zoo import GoalSpace
from tests.backends.fake import FakeBackend
from tests.snippets import ROOT, imported, run_program

SPACE = "40-8-4-2-2"
MODEL_LIBRARIES = {"torch", "transformers", "peft"}


def finished(sampler: str = "magellan", **layer) -> Trainer:
    trainer = Trainer(config(sampler, **layer), FakeBackend())
    while not trainer.done:
        trainer.advance()
    return trainer


def config(sampler: str = "magellan", **layer):
    return resolve_run("smoke", [{"sampler": sampler, "goal_space": SPACE, "seed": 3, **layer}])


def test_a_run_without_a_model_imports_none():
    program = (
        "import sys\nfrom tests.backends.test_seam import finished\nfinished()\n"
        f"print(sorted(set(sys.modules) & {MODEL_LIBRARIES!r}))"
    )
    assert run_program(program) == "[]"


@pytest.mark.parametrize("part", ["training", "samplers", "competence", "config", "tools"])
def test_no_model_library_above_the_seam(part):
    paths = list((ROOT / "magellan" / part).rglob("*.py"))
    assert paths
    for path in paths:
        assert not {name.split(".")[0] for name in imported(path)} & MODEL_LIBRARIES, path


def learned(backend: FakeBackend, **settings):
    parts = EstimatorParts(
        GoalSpace.draw((12, 12, 4, 2, 2), 0), lambda name: stream(0, name), backend=backend
    )
    section = type(config().competence)(**{"refresh": 2, "delay": 4, **settings})
    return make_estimator("learned", parts, section)


def test_remembered_scores_are_those_of_their_snapshots():
    """Any kept snapshot can be asked about any prompts, so that scores can be made anew."""
    backend = FakeBackend()
    estimator = learned(backend)
    for _ in range(9):
        estimator.update(Outcomes(np.arange(4), np.zeros(4)))
    for place, kept in enumerate(estimator._predictions):
        again = backend.competence(estimator._whole, (place,))[0]
        np.testing.assert_array_equal(again, kept)
