"""Scores with tokenizers of every family equal a plain loop, one candidate at a time.

Prompt and candidate are tokenised apart and joined, as in the released code.
"""

import contextlib
import functools
import json
import shutil
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, ByT5Tokenizer

from magellan.core.codec import PADDING, Codec, stack
from magellan.core.errors import InputError
from magellan.model import tokenizers
from magellan.model.backbone import Backbone
from magellan.model.files import BACKBONES, backbone_folder, is_to_be_made
from magellan.model.loading import load_model, load_tokenizer
from magellan.model.scoring import prompt_features, score_candidates
from magellan.model.settings import BackboneConfig
from magellan.model.tokenizers import PLAIN, SAMPLE
from magellan.worlds import WORLDS
from magellan.worlds.little_zoo.goals import GoalSpace
from tests.agent import tiny
from tests.agent.tiny import PROMPTS, close, features_of, in_float64, needs_compiler
from tests.runs import refuses

# Of several lengths and numbers; some begin alike, one is the beginning of another, two are equal.
LION = ("Grasp", "Go to lion", "Go to lion seed", "Go to baby lion", "Go to carrot seed")
STATES = (
    (PROMPTS[0], LION),
    (PROMPTS[1], ("Grasp", "Release carrot seed", "Release carrot", "Release carrot seed")),
    ("Goal: Grasp water\nAction: ", ("Go to water",)),
)
TOKENIZERS = {
    "GPT-2": tiny.like_gpt2,
    "GPT-2 with a space in front": functools.partial(tiny.like_gpt2, prefix=True),
    "Llama": tiny.like_llama,
    "T5": tiny.like_t5,
    "pads and cuts": tiny.that_pads_and_cuts,
}
PER_TOKEN, TORCH = {"lora_mode": "per_token"}, {"passes": "torch"}
WAYS = {
    "gpt2": ("gpt2", {}),
    "gpt2 per token": ("gpt2", PER_TOKEN),
    "qwen2": ("qwen2", {}),
    "llama compiled": ("llama", {"passes": "compiled"}),
    "llama torch": ("llama", TORCH),
    "llama per token": ("llama", PER_TOKEN),
    "t5": ("t5", {}),
    "t5 per token": ("t5", PER_TOKEN),
}


@dataclass(frozen=True)
class Read:
    """A backbone, and the same model and tokenizer without any of this package."""

    backbone: Backbone
    model: torch.nn.Module
    tokenizer: Tokenizer

    def ids(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    @torch.no_grad()
    def plainly(self, prompt, candidate):
        """Scores of a candidate, logits and log-probabilities, (2,), and its last hidden state."""
        head, tail = self.ids(prompt), self.ids(candidate)
        if self.model.config.is_encoder_decoder:
            start = [self.model.config.decoder_start_token_id]
            decoder = {"decoder_input_ids": torch.tensor([start + tail])}
            output = self.model(torch.tensor([head]), **decoder, output_hidden_states=True)
            logits, hidden = output.logits[0, :-1], output.decoder_hidden_states[-1][0, -1]
        else:
            output = self.model(torch.tensor([head + tail]), output_hidden_states=True)
            logits, hidden = output.logits[0, len(head) - 1 : -1], output.hidden_states[-1][0, -1]
        both = (logits, logits.log_softmax(-1))
        return torch.stack([values[range(len(tail)), tail].sum() for values in both]), hidden

    def check(self, found, plainly):
        library = plainly()
        with in_float64(self.model):
            exact = plainly()
        for values in zip(found, library, exact, strict=True):
            close(*values)


@functools.cache
def made(kind):
    return TOKENIZERS[kind]()


PAIRS = [
    pytest.param((way, kind), marks=[needs_compiler] * ("compiled" in way), id=f"{way}, {kind}")
    for way in WAYS
    for kind in TOKENIZERS
    if way == "llama torch" or kind == "Llama"  # the way does not matter for the tokens
]


@pytest.fixture(scope="module", params=PAIRS)
def read(request, tmp_path_factory):
    way, kind = request.param
    family, settings = WAYS[way]
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    more = {} if family in ("gpt2", "t5") else {"tie_word_embeddings": True}
    more |= {"num_key_value_heads": 2} if family == "llama" else {}
    model = tiny.model(family, len(made(kind)), **more)
    if family != "t5":  # whose initial weights are large
        tiny.louder(model)
    tiny.save(folder, model, made(kind))
    config = BackboneConfig(model=str(folder), lora_rank=2, lora_targets="all_linear", **settings)
    return Read(Backbone(config), *without_this_package(folder))


def without_this_package(folder):
    """Model and tokenizer as their own libraries read them."""
    encoder = "T5" in (folder / "config.json").read_text()
    family = AutoModelForSeq2SeqLM if encoder else AutoModelForCausalLM
    return family.from_pretrained(folder, dtype=torch.float32).eval(), tokenizer_of(folder)


def tokenizer_of(folder):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def packed(backbone, states=STATES):
    return Codec(backbone.tokenizer).pack(*zip(*states, strict=True))


@pytest.mark.parametrize("score", ["logit_sum", "log_prob_sum"])
def test_scores_equal_a_plain_loop(read, score):
    with torch.no_grad():
        batch = read.backbone.batch(*stack(packed(read.backbone)))
        scores = score_candidates(read.backbone, "policy", batch, score)
    policy, features = scores.log_policy, [features_of(scores, n) for n in range(len(STATES))]
    number = ("logit_sum", "log_prob_sum").index(score)

    def plainly():
        alone = [[read.plainly(prompt, each) for each in actions] for prompt, actions in STATES]
        totals = [torch.stack([scores[number] for scores, _ in row]) for row in alone]
        hidden = [torch.stack([state for _, state in row]) for row in alone]
        return [total.log_softmax(0) for total in totals], hidden

    rows = [row[: len(part)] for row, (_, part) in zip(policy, STATES, strict=True)]
    read.check((rows, features), plainly)
    for row, (_, candidates) in zip(policy, STATES, strict=True):
        assert (row[len(candidates) :] == float("-inf")).all()


def test_what_stands_in_the_padding_changes_nothing(read):
    tokens, segments = stack(packed(read.backbone))
    more = np.pad(segments, ((0, 0), (0, 9)), constant_values=PADDING)
    rng = np.random.default_rng(0)
    noise = rng.integers(0, len(read.backbone.tokenizer), more.shape)
    filled = np.where(more == PADDING, noise, np.pad(tokens, ((0, 0), (0, 9)))).astype(np.int32)
    with torch.no_grad():
        for reading in (
            lambda batch: score_candidates(read.backbone, "policy", batch).log_policy,
            lambda batch: prompt_features(read.backbone, "policy", batch),
        ):
            batches = [read.backbone.batch(*s) for s in ((filled, more), (tokens, segments))]
            found = [reading(batch) for batch in batches]
            with in_float64(read.backbone):
                close(*found, reading(batches[1]))


def test_prompts_read_alone_equal_those_with_candidates(read):
    alone = packed(read.backbone, [(prompt, ()) for prompt, _ in STATES])
    with torch.no_grad():
        features, with_candidates = (
            prompt_features(read.backbone, "policy", read.backbone.batch(*stack(states)))
            for states in (alone, packed(read.backbone))
        )

    def plainly():  # an encoder-decoder reads its start token alone
        return 2 * [[read.plainly(prompt, "")[1] for prompt, _ in STATES]]

    read.check((list(features), list(with_candidates)), plainly)


FAMILIES = ("llama", "qwen2", "gemma", "gpt2", "opt", "t5", "mistral", "bert")
CLASSES = (None, "LlamaTokenizerFast", "Qwen2Tokenizer", "GPT2Tokenizer", "T5Tokenizer", "Other")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """zoo-mini's files, whose family and tokenizer a test replaces."""
    return shutil.copytree(BACKBONES / "zoo-mini", tmp_path_factory.mktemp("any") / "model")


def declare(folder, family, named, **settings):
    (folder / "config.json").write_text(json.dumps({"model_type": family}))
    settings |= {} if named is None else {"tokenizer_class": named}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("named", CLASSES)
@pytest.mark.parametrize("family", FAMILIES)
def test_ids_are_those_of_the_file_whatever_class_is_named(family, named, kind, folder):
    made(kind).save_pretrained(folder)
    declare(folder, family, named, add_prefix_space=True, additional_special_tokens=["baby"])
    expected = tokenizer_of(folder)
    got = load_tokenizer(str(folder))(list(SAMPLE), add_special_tokens=False)["input_ids"]
    assert got == [expected.encode(text, add_special_tokens=False).ids for text in SAMPLE]


@pytest.mark.parametrize("named", CLASSES)
@pytest.mark.parametrize("family", FAMILIES)
def test_without_that_file_ids_are_those_of_words_and_merges_or_refused(family, named, tmp_path):
    folder = shutil.copytree(BACKBONES / "zoo-mini", tmp_path / "model")
    (folder / "tokenizer.json").unlink()
    made("GPT-2").backend_tokenizer.model.save(str(folder))
    declare(folder, family, named)
    must_be_read = (family, named) == ("gpt2", "GPT2Tokenizer")
    with contextlib.nullcontext() if must_be_read else contextlib.suppress(InputError):
        texts, tokenizer = list(PLAIN), load_tokenizer(str(folder))
        expected = made("GPT-2")(texts, add_special_tokens=False)["input_ids"]
        assert tokenizer(texts, add_special_tokens=False)["input_ids"] == expected


def test_a_file_of_words_is_read_by_its_line_feeds_alone(tmp_path):
    """As classes do; the words of Chinese BERTs have a line separator among them."""
    folder = shutil.copytree(BACKBONES / "zoo-mini", tmp_path / "model")
    (folder / "tokenizer.json").unlink()
    words = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "\u2028", "goal")
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    declare(folder, "llama", "BertTokenizer")
    assert load_tokenizer(str(folder)).convert_tokens_to_ids("goal") == 6


def test_a_text_is_tokenised_once():
    tokenizer, tokenised = made("Llama"), []
    codec = Codec(lambda texts, **options: tokenised.extend(texts) or tokenizer(texts, **options))
    forgetful = Codec(tokenizer, remember=2)
    for texts in (PROMPTS, ["Grasp", "Go to water"], PROMPTS):
        assert [*map(list, forgetful.encode(texts))] == [*map(list, codec.encode(texts))]
    assert tokenised == [*PROMPTS, "Grasp", "Go to water"]


def test_more_actions_than_can_be_numbered_are_refused():
    """Numbers beyond the largest would become those of padding."""
    codec = Codec(made("Llama"))
    (state,) = codec.pack(["Action: "], [["Grasp"] * 127])
    assert state.segments.max() == 127
    actions = [["Grasp"], ["Grasp"] * 128]
    refuses("128 actions is not allowed: .* at most 127", codec.pack, ["Action: "] * 2, actions)


def test_ids_may_have_gaps():
    """A vocabulary that was pruned: ids in use lie above the number of tokens."""
    codec = Codec(SimpleNamespace(get_vocab=lambda: {"a": 0, "b": 70}))
    codec.check(np.array([[0, 70]], np.int32), np.zeros((1, 2), np.int8))
    beyond = np.array([[0, 71]], np.int32), np.zeros((1, 2), np.int8)
    refuses("token 71 is not allowed; allowed: 0 to 70", codec.check, *beyond)


@pytest.mark.skipif(
    is_to_be_made("smollm2-135m"), reason="no smollm2-135m here; `snakemake backbone_smollm2`"
)
def test_smollm2_scores_as_in_a_plain_loop():
    backbone = Backbone(BackboneConfig(model="smollm2-135m", lora_rank=1, lora_mode="per_token"))
    read = Read(backbone, *without_this_package(backbone_folder("smollm2-135m")))
    test_scores_equal_a_plain_loop(read, "log_prob_sum")


ZOO = WORLDS["little_zoo"]


def pairs(corpus):
    settings = {"special_tokens": ["<unk>"], "vocab_size": 300, "show_progress": False}
    empty = Tokenizer(models.BPE(unk_token="<unk>"))
    return tiny.trained(empty, trainers.BpeTrainer(**settings), pre_tokenizers.Whitespace(), corpus)


def pieces():
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "goal": 1, ":": 2}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


GOOD = {
    "zoo-mini": lambda: load_model("zoo-mini")[1],
    "as T5": tiny.like_t5,
    # A line break is no word: that it is unknown makes no two texts alike.
    "line break unknown": lambda: tiny.fast(pairs(tiny.CORPUS), unk_token="<unk>"),
    "byte by byte, not a fast one": ByT5Tokenizer,
}
BAD = {
    "other letters": (lambda: tiny.fast(pairs(["abcde"]), unk_token="<unk>"), "does not know 'G'"),
    "unknown token not declared": (lambda: tiny.fast(pairs(["abcde"])), "does not know 'G'"),
    "other words": (lambda: tiny.fast(pieces()), "does not know 'Grasp'"),
    "drops what it does not know": (
        lambda: tiny.fast(Tokenizer(models.BPE({"a": 0, "b": 1}, []))),
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
    everything = "\n\n".join(tiny.CORPUS)
    assert [part for part in ZOO.parts.texts() if part not in everything] == []
