"""Token rows assembled from parts equal those of the tokenizer."""

import numpy as np
import pytest

from magellan.competence.prompt_tokens import PromptTokens
from magellan.core.codec import Codec, stack
from magellan.model.loading import load_model
from magellan.worlds import WORLDS
from magellan.worlds.little_zoo import GoalSpace, WholeSpace
from magellan.worlds.little_zoo.codes import SPLITS
from tests.agent.tiny import like_gpt2

PARTS = WORLDS["little_zoo"].parts
BOTH = pytest.mark.parametrize("split", ["train", "unseen"])


TOKENIZERS = {
    "zoo-mini": (lambda: load_model("zoo-mini")[1], True),
    "words and pieces": (like_gpt2, True),
    "prefixed": (lambda: like_gpt2(prefix=True), False),
}


@BOTH
@pytest.mark.parametrize("name", TOKENIZERS)
def test_rows_equal_those_of_the_tokenizer(name, split):
    """Also if parts are tokenised differently on their own: then the tokenizer is called."""
    make, composes = TOKENIZERS[name]
    tokenizer = make()
    goals = GoalSpace.draw((60, 60, 20, 20, 20), seed=2, split=split)
    positions = np.random.default_rng(0).permutation(180)
    tokens = PromptTokens(Codec(tokenizer))
    prompts = [goals.prompt(int(position)) for position in positions]
    expected = stack(Codec(tokenizer).pack(prompts, [()] * len(prompts)))
    for array, wanted in zip(tokens.pack(goals, positions), expected, strict=True):
        assert array.dtype == wanted.dtype
        np.testing.assert_array_equal(array, wanted)
    assert tokens.composes(goals.world, split) is composes


def test_after_the_trial_no_prompt_is_read_by_the_tokenizer(monkeypatch):
    tokens = PromptTokens(Codec(load_model("zoo-mini")[1]))
    tokens.composes(WORLDS["little_zoo"], "train")
    monkeypatch.setattr(Codec, "encode", None)
    rows, _ = tokens.pack(WholeSpace(), np.arange(0, 19_531_250, 1_000))
    assert len(rows) == 19_532


@BOTH
def test_the_trial_sets_every_part_beside_every_part_that_can_follow(split):
    def pairs(goals, positions):
        parts = PARTS.of(goals, positions)
        return {pair for at in range(5) for pair in zip(*parts[:, at : at + 2].T, strict=True)}

    some = np.random.default_rng(3).integers(SPLITS[split].size, size=200_000)
    trial = PARTS.trial(split)
    assert pairs(WholeSpace(split), some) <= pairs(trial, np.arange(len(trial)))
