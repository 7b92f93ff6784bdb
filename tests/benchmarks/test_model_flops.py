"""Operations that a model needs: by hand, and beside what its products really are."""

import numpy as np
import pytest

from benchmarks.model_flops import ModelFlops, Stack, flops_of
from benchmarks.products import record
from benchmarks.shapes import model_folder
from magellan.core.codec import stack
from magellan.model.scoring import score_candidates
from tests.backends.models import make, some_states

# Three tokens of a prompt, candidates of two and one; a prompt of two, one candidate of one.
SEGMENTS = np.array([[0, 0, 0, 1, 1, 2], [0, 0, 1, -1, -1, -1]])
DECODER = Stack(linear=100, cross=0, adapters=10, layers=2, width=8)


def test_of_a_decoder_by_hand():
    """9 tokens; pairs 6 + 3 + 1 + 3 * 3 in the first state, 3 + 1 + 2 in the second."""
    flops = ModelFlops(DECODER, None, embeddings=1_000)
    attention = 4 * 2 * 8 * (19 + 6)
    assert flops.forward(SEGMENTS) * 1e9 == pytest.approx(9 * 2 * 110 + attention)
    assert flops.with_gradients(SEGMENTS) * 1e9 == pytest.approx(
        9 * (4 * 100 + 6 * 10) + 3 * attention
    )
    scored = flops.forward(SEGMENTS, scored=True) - flops.forward(SEGMENTS)
    assert scored * 1e9 == pytest.approx(4 * 2 * 1_000)


def test_of_an_encoder_and_a_decoder_by_hand():
    """Candidates are decoded apart, each behind a start token of its own: 4 + 3 tokens."""
    encoder = Stack(linear=50, cross=0, adapters=0, layers=1, width=4)
    decoder = Stack(linear=100, cross=20, adapters=0, layers=2, width=8)
    flops = ModelFlops(decoder, encoder, embeddings=1_000)
    linear = 2 * (50 * 5 + 20 * 5 + 100 * 7)
    inside, across = (6 + 3) + 3, 5 * 3 + 2 * 2
    attention = 4 * 4 * (9 + 4) + 4 * 2 * 8 * (inside + across)
    assert flops.forward(SEGMENTS) * 1e9 == pytest.approx(linear + attention)
    prompts = np.where(SEGMENTS > 0, -1, SEGMENTS)
    linear = 2 * (50 * 5 + 20 * 5 + 100 * 2)
    attention = 4 * 4 * (9 + 4) + 4 * 2 * 8 * (2 + 5)
    assert flops.forward(prompts) * 1e9 == pytest.approx(linear + attention)


@pytest.mark.parametrize("model", ["zoo-mini", "t5"])
def test_they_are_the_products_that_are_computed(model):
    """One state with one candidate: no padding, nothing twice. Attention also computes pairs that
    are masked, so a little more is done than needed."""
    with model_folder(model) as folder:
        backend = make("plain", folder)
        flops = flops_of(backend.backbone)
        tokens, segments = stack(some_states(backend, 1)[:1])
        batch = backend.backbone.batch(tokens, segments)

        def forward() -> object:
            return score_candidates(backend.backbone, "policy", batch).log_policy

        def update() -> None:
            scores = score_candidates(backend.backbone, "policy", batch)
            scores.features.square().sum().backward()

        assert 0.9 < flops.forward(segments) / record(forward).gflop <= 1.01
        assert 0.85 < flops.with_gradients(segments) / record(update).gflop <= 1.05
