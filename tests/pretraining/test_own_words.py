"""Small models for the words of one world."""

import json

import pytest
import torch

from magellan.model import tokenizers
from magellan.model.files import model_digest
from magellan.model.loading import load_model
from magellan.pretraining import own_words
from magellan.worlds import WORLDS


@pytest.mark.parametrize("name", list(WORLDS))
def test_every_text_of_a_world_is_read_whole_and_told_apart(name, tmp_path):
    world = WORLDS[name]
    record = own_words.write(world, tmp_path / "model")
    model, tokenizer = load_model(str(tmp_path / "model"), world)
    assert tokenizers.problem(tokenizer, world) is None
    for group in world.texts():
        for text in group.values():
            assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert record["tokens"] == len(tokenizer) == model.get_input_embeddings().weight.shape[0]
    assert record["parameters"] == sum(weight.numel() for weight in model.parameters())
    assert record == json.loads((tmp_path / "model" / "build.json").read_text())


def test_the_same_world_gives_the_same_files_and_draws_no_number_of_others(tmp_path):
    world = WORLDS["simulated"]
    torch.manual_seed(1)
    before = torch.get_rng_state()
    own_words.write(world, tmp_path / "first")
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    own_words.write(world, tmp_path / "second")
    digest = model_digest(tmp_path / "first")
    assert model_digest(tmp_path / "second") == digest
    own_words.write(world, tmp_path / "second")
    assert model_digest(tmp_path / "second") == digest
