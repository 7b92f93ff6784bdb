"""Families of models that are scored rightly in one pass, and others; folders for older readers."""

import json
import re

import numpy as np
import pytest
import torch
from transformers import BertModel, T5EncoderModel

from magellan.agent.grpo import GRPO
from magellan.backends import make_backend
from magellan.core.codec import stack
from magellan.model import loading
from magellan.model.chat import Chat, ChatSettings
from magellan.model.loading import ChatModel, load_tokenizer
from magellan.model.scoring_check import check_writing
from magellan.model.settings import BackboneConfig, BackendConfig, GrpoConfig
from magellan.model.transformers4 import readable
from magellan.worlds import WORLDS, Categories, Category
from magellan.worlds.listed import ListedWorld
from magellan.worlds.texts import Texts
from tests.agent import tiny
from tests.agent.tiny import like_gpt2, model, save
from tests.runs import refusal

GOOD = ("gpt2", "llama", "qwen2", "t5", "bart", "mt5", "longt5", "mistral", "gpt_neox", "opt")
GOOD += ("mixtral", "gpt_neo")
RANDOM_AND_LARGE = ("t5", "mt5", "longt5")  # their logits as they are
BAD = {
    "t5": {"decoder_start_token_id": None},  # its decoder reads nothing before the first token
    "mamba": {},
    "bloom": {},
    "gptj": {},  # its output layer has a bias
    "gemma2": {"final_logit_softcapping": 0.1},  # it bends large logits
    "bert": {},  # its output layer does more than multiply
}


def backend_of(family, folder, kind=None, settings=None, world=None, **backend):
    torch.manual_seed(0)
    tokenizer = like_gpt2()
    scored = model(family, len(tokenizer), **(settings or {}))
    if family == "gptj":
        torch.nn.init.normal_(scored.lm_head.bias)
    scored = scored if family in RANDOM_AND_LARGE else tiny.louder(scored)
    save(folder, scored if kind is None else kind(scored.config), tokenizer)
    lora = {"lora_rank": 2, "lora_targets": "all_linear", "lora_mode": "per_token"}
    config = BackboneConfig(model=str(folder), **lora)
    return make_backend(config, BackendConfig(**backend), world=world)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", GOOD)
def test_families_that_are_scored_rightly_are_taken(family, dtype, tmp_path):
    assert backend_of(family, tmp_path, dtype=dtype).passes == "transformers"


@pytest.mark.parametrize("family", BAD)
def test_families_that_would_be_scored_wrongly_are_refused(family, tmp_path):
    message = refusal(backend_of, family, tmp_path, settings=BAD[family])
    assert re.match(r"backbone.model: .*; allowed: ", message)


def test_scores_are_checked_in_any_world_with_actions(tmp_path):
    message = refusal(backend_of, "gptj", tmp_path, world=WORLDS["simulated"])
    assert "batched and single scores differ" in message


class Copies(type(WORLDS["digits"])):
    """A world of a user's own, with the defaults of `ListedWorld`."""

    texts, longest = ListedWorld.openings, ListedWorld.longest

    def totals(self, split):
        return (2,) * len(self.categories)


LISTED = Texts(["Add two numbers."], np.zeros(1, int), Categories([Category("all")]))
SHORT = {"simulated": "action", "digits": "answer", "texts": "action", "copies": "answer"}


@pytest.mark.parametrize("name", SHORT)
def test_a_model_that_reads_too_few_tokens_is_refused_in_any_world(name, tmp_path):
    world = {"texts": LISTED, "copies": Copies()}.get(name) or WORLDS[name]
    settings = {"max_position_embeddings": 8}  # an answer alone has 7
    message = refusal(backend_of, "gpt2", tmp_path, settings=settings, world=world)
    assert f"reads 8 tokens at most, a prompt with an {SHORT[name]} has" in message
    if world.answer_tokens:
        backend_of("gpt2", tmp_path, world=world).start_writing(GrpoConfig())


@pytest.mark.parametrize("family", ["mamba", "gpt2"])
def test_a_model_that_writes_otherwise_for_several_prompts_is_refused(family, monkeypatch):
    torch.manual_seed(0)
    writer = GRPO(model(family, 50, eos_token_id=3).eval(), GrpoConfig())
    if family == "gpt2":
        check_writing("x", writer)
        padded = writer._padded  # as for a model that does not look at the mask
        monkeypatch.setattr(
            writer, "_padded", lambda texts: (padded(texts)[0], torch.ones_like(padded(texts)[1]))
        )
    words = "writes otherwise for several" if family == "gpt2" else "cannot write answers"
    assert refusal(check_writing, "x", writer).startswith(f"backbone.model: 'x' {words}")


def test_states_beyond_a_local_attention_are_refused(tmp_path):
    """It counts places in the packed state: actions at its end would not see the prompt."""
    backend = backend_of("gpt_neo", tmp_path)
    (state,) = backend.codec.pack(["Goal: Grasp water"], [["Go to water"] * 127])
    words = f"reads 256 tokens at most, a prompt with all its actions has {len(state.tokens)}"
    assert words in refusal(backend.backbone.batch, *stack([state]))


def test_a_chat_model_is_greedy_and_reads_by_its_file_whatever_else_its_folder_says(tmp_path):
    torch.manual_seed(0)
    scored = tiny.louder(model("qwen2", 500))
    tiny.write(tmp_path, "qwen2")
    tokenizer = load_tokenizer(str(tmp_path))
    # And no token at the end.
    tokenizer.chat_template = TURNS
    save(tmp_path, scored, tokenizer)
    text = "Goal: Grow baby lion"
    question, answers = [{"role": "user", "content": text}], []
    stored = {"repetition_penalty": 9.0, "num_beams": 3, "return_dict_in_generate": True}
    for more in ({}, *({name: value} for name, value in stored.items())):
        (tmp_path / "generation_config.json").write_text(json.dumps(more))
        answers.append(ChatModel(str(tmp_path)).answer(question, 8))
    ids = load_tokenizer(str(tmp_path))(text, add_special_tokens=False)["input_ids"]
    assert answers == [answers[0]] * 4
    assert answers[0][1][0] == len(ids) > 0
    question[0]["content"] = ""
    assert "has no token for ''" in refusal(ChatModel(str(tmp_path)).answer, question, 8)


TURNS = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
TEMPLATES = {
    "{{ raise_exception('no system') }}": "cannot answer (TemplateError: no system)",
    "{% for m in messages %}": "cannot answer (TemplateSyntaxError: ",
    TURNS.replace("messages", "messages[1:]"): "has a chat template without 'Task'",
    TURNS + "{{ ' Goal' * 300 }}": "reads 256 tokens at most, a question with ",
}


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_chat_model_that_does_not_read_the_whole_question_is_refused(template, tmp_path):
    tiny.write(tmp_path, "gpt2")
    tokenizer = load_tokenizer(str(tmp_path))
    tokenizer.chat_template = template
    save(tmp_path, model("gpt2", 500), tokenizer)
    question = [{"role": "system", "content": "Task"}, {"role": "user", "content": "Goal"}]
    chat = Chat(ChatSettings(model=str(tmp_path)), "proposer", str)
    line = refusal(chat.ask, 0, question)
    assert line.startswith("proposer.model: ")
    assert TEMPLATES[template] in line


ENCODERS = {
    "BertModel": ("bert", BertModel, {"is_decoder": False}),
    "BertLMHeadModel": ("bert", None, {"is_decoder": False}),
    "T5EncoderModel": ("t5", T5EncoderModel, {}),
}


@pytest.mark.parametrize("kind", ENCODERS)
def test_an_encoder_alone_is_refused_before_it_is_loaded(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "_check_size", None)  # the next step would fail
    family, *more = ENCODERS[kind]
    words = f"'{tmp_path}' is neither causal nor encoder-decoder ({kind}); allowed: "
    assert words in refusal(backend_of, family, tmp_path, *more)


LINEAR = {"rope_theta": 5e5, "rope_type": "linear", "factor": 2.0}
PART = {"rope_theta": 5e5, "partial_rotary_factor": 0.5}


@pytest.mark.parametrize(
    ("kind", "rotary", "older"),
    [
        ("llama", LINEAR, {"rope_theta": 5e5, "rope_scaling": LINEAR}),
        ("llama", {"rope_type": "default"}, {"rope_theta": 1e4}),  # the usual ones are not scaled
        ("phi", PART, PART),
        ("gpt_neox", PART, {"rotary_emb_base": 5e5, "rotary_pct": 0.5}),
    ],
)
def test_with_the_older_one_names_are_those_that_it_knows(kind, rotary, older, tmp_path):
    values = {"model_type": kind, "rope_parameters": rotary, "dtype": "float32"}
    (tmp_path / "config.json").write_text(json.dumps(values))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "TokenizersBackend"}')
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    with readable(tmp_path, new=False) as folder:
        config = json.loads((folder / "config.json").read_text())
        tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
        assert (folder / "model.safetensors").read_bytes() == b"weights"
    assert config == values | older | {"torch_dtype": "float32"}
    assert tokenizer == {"tokenizer_class": "PreTrainedTokenizerFast"}
    assert not folder.exists()
    values["rope_parameters"] = {"full_attention": rotary, "sliding_attention": LINEAR}
    (tmp_path / "config.json").write_text(json.dumps(values))
    assert "rope_parameters by kind of layer" in refusal(readable(tmp_path, new=False).__enter__)
