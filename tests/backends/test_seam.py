"""Trainer and estimators need nothing but the seam: they run without any model, and import none."""

from functools import partial

import numpy as np
import pytest

from magellan.competence import EstimatorParts, Outcomes, make_estimator
from magellan.competence.learned import LearnedSettings
from magellan.core.randomness import stream
from magellan.worlds.little_zoo import GoalSpace
from tests.backends.fake import FakeBackend
from tests.snippets import ROOT, imported, run_program

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


def test_remembered_scores_are_those_of_their_snapshots():
    """Any kept snapshot can be asked about any prompts, so that scores can be made anew."""
    backend, goals = FakeBackend(), GoalSpace.draw((12, 12, 4, 2, 2), 0)
    parts = EstimatorParts(goals, partial(stream, 0), backend=backend)
    estimator = make_estimator("learned", parts, LearnedSettings(refresh=2, delay=4))
    for _ in range(9):
        estimator.update(Outcomes(np.arange(4), np.zeros(4)))
    for place, kept in enumerate(estimator._predictions):
        again = backend.competence(estimator._whole, (place,))[0]
        np.testing.assert_array_equal(again, kept)
