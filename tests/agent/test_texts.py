"""Which tokenizers can tell the world's texts apart."""

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import ByT5Tokenizer

from magellan.model import tokenizers
from magellan.model.loading import load_model
from magellan.worlds import WORLDS
from magellan.worlds.little_zoo.goals import GoalSpace
from tests.agent.tiny import CORPUS, fast, like_t5, trained

ZOO = WORLDS["little_zoo"]


def pairs(corpus):
    settings = {"special_tokens": ["<unk>"], "vocab_size": 300, "show_progress": False}
    empty = Tokenizer(models.BPE(unk_token="<unk>"))
    return trained(empty, trainers.BpeTrainer(**settings), pre_tokenizers.Whitespace(), corpus)


def pieces():
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "goal": 1, ":": 2}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


GOOD = {
    "zoo-mini": lambda: load_model("zoo-mini")[1],
    "as T5": like_t5,
    # A line break is no word: that it is unknown makes no two texts alike.
    "line break unknown": lambda: fast(pairs(CORPUS), unk_token="<unk>"),
    "byte by byte, not a fast one": ByT5Tokenizer,
}
BAD = {
    "other letters": (
        lambda: fast(pairs(["abcde"]), unk_token="<unk>"),
        "does not know 'G'",
    ),
    "unknown token not declared": (lambda: fast(pairs(["abcde"])), "does not know 'G'"),
    "other words": (lambda: fast(pieces()), "does not know 'Grasp'"),
    "drops what it does not know": (
        lambda: fast(Tokenizer(models.BPE({"a": 0, "b": 1}, []))),
        "reads 'door' and 'desk' alike",
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_tokenizers_that_tell_everything_apart_are_accepted(name):
    tokenizer = GOOD[name]()
    assert tokenizers.problem(tokenizer, ZOO) is None
    prompts = (GoalSpace.named("40-20-10-5-5", 0).prompt(goal) for goal in range(80))
    longest = max(len(ids) for ids in tokenizer(list(prompts), add_special_tokens=False).input_ids)
    assert len(tokenizers.longest(tokenizer, ZOO)) > longest


@pytest.mark.parametrize("name", BAD)
def test_tokenizers_that_make_goals_alike_are_refused(name):
    make, words = BAD[name]
    assert tokenizers.problem(make(), ZOO) == f"has a tokenizer that {words}"


def test_every_part_of_a_prompt_is_looked_at():
    everything = "\n\n".join(CORPUS)
    assert [part for part in ZOO.parts.texts() if part not in everything] == []
