"""What the agent's tests share: two states, tiny random models, tokenizers of every family."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import nn
from torch.overrides import TorchFunctionMode
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from magellan.agent import learning
from magellan.agent.replay import Batch
from magellan.core.codec import PackedState
from magellan.model import backbone as backbones
from magellan.model.backbone import ADAPTERS, Backbone
from magellan.model.files import check_backbone
from magellan.model.scoring import Scores
from magellan.worlds import WORLDS

try:
    from magellan.fastpath import SOURCE, compiler
except ModuleNotFoundError as error:
    MISSING = str(error)
else:
    try:
        compiler.load(SOURCE)
        MISSING = ""
    except compiler.NotCompiledError as error:
        MISSING = str(error)
needs_compiler = pytest.mark.skipif(bool(MISSING), reason=f"not compiled: {MISSING}")

# Five distinct candidates, and two equal ones.
PROMPTS = (
    "Goal: Grow lion\nYou see: baby lion, water, baby cow, carrot seed\n"
    "You are standing on: nothing\nInventory (0/2): empty\nAction: ",
    "Goal: Grasp water\nYou see: water\nYou are standing on: water\n"
    "Inventory (2/2): carrot seed, carrot seed\nAction: ",
)
CANDIDATES = (
    ("Grasp", "Go to baby lion", "Go to water", "Go to baby cow", "Go to carrot seed"),
    ("Grasp", "Go to water", "Release carrot seed", "Release carrot seed"),
)


def features_of(scores: Scores, row: int) -> torch.Tensor:
    """Features of one state's candidates, in their order: (candidates, width)."""
    chosen = (scores.slots // scores.log_policy.shape[1]) == row
    return scores.features[chosen][scores.slots[chosen].argsort()]


def set_adapters(backbone: Backbone, std: float, seed: int, names: Any = ADAPTERS) -> Backbone:
    """Normal numbers in place of the values of these adapters."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name in names:
            for parameter in backbone.adapter(name).values():  # which may lie on a GPU
                values = torch.empty(parameter.shape).normal_(std=std, generator=generator)
                parameter.copy_(values)
            backbone.adapter_changed(name)
    return backbone


def gradients_of(backbone: Backbone, adapter: str) -> dict[str, torch.Tensor]:
    """Those of an adapter, 0 where there is none; they are forgotten."""
    found = {}
    for name, parameter in backbone.adapter(adapter).items():
        found[name] = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        parameter.grad = None
    return found


def moved(before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    return {g for g in before if any(not torch.equal(before[g][k], after[g][k]) for k in before[g])}


def random_states(seed: int, n: int, words: int, longest: int) -> list[PackedState]:
    """States from few words, so that beginnings, and whole candidates, often repeat.

    `longest`: most tokens of a prompt.
    """
    rng = np.random.default_rng(seed)
    states = []
    for _ in range(n):
        lengths = [rng.integers(1, longest + 1), *rng.integers(1, 4, rng.integers(1, 6))]
        segments = np.repeat(np.arange(len(lengths)), lengths)
        states.append(PackedState(rng.integers(0, words, len(segments)), segments))
    return states


def reversed_batch(tokens: np.ndarray, segments: np.ndarray, **values: np.ndarray) -> Batch:
    """A batch whose next states are its states in reverse order."""
    after = {"next_tokens": tokens[::-1].copy(), "next_segments": segments[::-1].copy()}
    return Batch(tokens=tokens, segments=segments, **after, **values)


TIMES = 8
"""What `close` allows; 3.6 is the most that was seen, whatever the instructions of the CPU."""


def close(found: Any, library: Any, exact: Any) -> None:
    """Compare two implementations in float32 through a third, in float64.

    Errors of `found` may be `TIMES` the largest of `library`, or of the unit of rounding. They are
    shares of the largest entry of their array, or of a thousandth of the largest of all, or of this
    where all is 0: what cancels in one order of sums leaves a rounding in another. An argument is
    an array or a tensor, or several of them in a list or by name.
    """
    arrays, others, expected = map(arrays_of, (found, library, exact))
    for some in (arrays, others):
        assert [each.shape for each in some] == [each.shape for each in expected]
    largest = [np.abs(values).max(initial=0.0) for values in expected]
    scales = np.maximum(np.maximum(largest, 1e-3 * max(largest)), np.finfo(float).tiny)
    scales[np.equal(largest, 0.0)] = max(largest) or 1.0

    def error(some: list[np.ndarray]) -> float:
        gaps = [np.abs(a - b).max(initial=0.0) for a, b in zip(some, expected, strict=True)]
        return np.max(gaps / scales)

    assert error(arrays) / max(error(others), np.finfo(np.float32).eps) <= TIMES


def arrays_of(values: Any) -> list[np.ndarray]:
    """In float64, with 0 for minus infinity, which stands where there is no candidate."""
    if isinstance(values, Mapping):
        return arrays_of([values[name] for name in sorted(values)])
    if isinstance(values, list | tuple):
        return [array for value in values for array in arrays_of(value)]
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().numpy()
    values = np.asarray(values, np.float64)
    return [np.where(np.isneginf(values), 0.0, values)]


class _Widened(TorchFunctionMode):
    """Where float32 is asked for, as `transformers` does for norms and angles, float64 is given."""

    def __torch_function__(self, function, types, arguments=(), named=None):
        def wide(value: Any) -> Any:
            return torch.float64 if value is torch.float32 else value

        function = torch.Tensor.double if function is torch.Tensor.float else function
        named = {name: wide(value) for name, value in (named or {}).items()}
        return function(*map(wide, arguments), **named)


@contextmanager
def in_float64(model: Any) -> Iterator[None]:
    """Let `transformers` read a backbone, a backend's or one of its own, as loaded, in float64.

    What is learnt within is forgotten, but for the moments of the optimizers.
    """
    backbone = getattr(model, "backbone", model)
    modules = [model]
    if not isinstance(model, nn.Module):
        modules = [backbone._peft, backbone._plain]
        for learner in getattr(model, "_learners", {}).values():
            modules += vars(learner).values()
    modules = [module for module in modules if isinstance(module, nn.Module)]
    read = {part for whole in modules for part in whole.modules()}
    faster = [(part, vars(part).pop("forward")) for part in read if "forward" in vars(part)]
    tensors = [tensor for part in modules for tensor in (*part.parameters(), *part.buffers())]
    kept = [(tensor, tensor.data) for tensor in tensors if tensor.is_floating_point()]
    with pytest.MonkeyPatch.context() as patch, _Widened():
        torch.set_default_dtype(torch.float64)
        for tensor, values in kept:
            tensor.data = values.double()
        patch.setattr(learning, "HAS_ONEDNN", False)  # whose products are of float32
        if isinstance(backbone, Backbone):
            changes = {"fast_pass": None, "_fused": None, "reads_pairs": False, "_flat": {}}
            for name, value in (changes | {"dtype": torch.float64, "_prepared": {}}).items():
                patch.setattr(backbone, name, value)
            for name in ADAPTERS:
                backbone._collect(name)
        try:
            yield
        finally:
            torch.set_default_dtype(torch.float32)
            for tensor, values in kept:
                tensor.data = values
            for module, forward in faster:
                module.forward = forward


@contextmanager
def as_loaded() -> Iterator[None]:
    """Backbones that are made within read by the modules of `transformers` and `peft`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Backbone, "_fuse", lambda self: None)
        patch.setattr(backbones, "is_fused", lambda model: False)
        yield


def weighted_sum(scores: Scores) -> torch.Tensor:
    """Features and log-probabilities of all candidates, each with a random weight."""
    values = scores.features[scores.slots.argsort()], scores.log_policy[scores.valid]
    return sum((some * random_weights(some.shape)).sum() for some in values)


def random_weights(shape: tuple[int, ...]) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).normal(size=shape).astype(np.float32))


LAYERED = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA = {**LAYERED, "intermediate_size": 48, "max_position_embeddings": 256}
BART = {"layers": 2, "attention_heads": 4, "ffn_dim": 48}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_heads": 4, "num_layers": 2, "dropout_rate": 0.0}
T5 |= {"decoder_start_token_id": 0, "pad_token_id": 0}
SIZES: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "qwen2": {**LLAMA, "num_key_value_heads": 2},
    "mistral": {**LLAMA, "num_key_value_heads": 2},
    "mixtral": {**LLAMA, "num_key_value_heads": 2, "num_local_experts": 4},
    "gpt_neo": {"hidden_size": 32, "num_layers": 2, "num_heads": 4}
    | {"attention_types": [[["global", "local"], 1]], "max_position_embeddings": 512},
    "gemma2": {**LLAMA, "num_key_value_heads": 2, "head_dim": 8},
    "gpt_neox": {**LAYERED, "intermediate_size": 48},
    "opt": {**LAYERED, "ffn_dim": 48, "word_embed_proj_dim": 32},
    "bert": {**LAYERED, "intermediate_size": 48, "is_decoder": True},
    "mamba": {"hidden_size": 32, "num_hidden_layers": 2},
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4},
    "gpt2": {"n_positions": 256, "n_embd": 32, "n_layer": 2, "n_head": 4},
    "gptj": {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 8},
    "t5": T5,
    "mt5": T5,
    "longt5": {**T5, "local_radius": 3},
    "bart": {f"{part}_{key}": n for part in ("encoder", "decoder") for key, n in BART.items()}
    | {"d_model": 32},
}


def model(family: str, words: int, **settings: Any) -> PreTrainedModel:
    """A random model of a family; `settings` are those of its configuration."""
    config = AutoConfig.for_model(family, vocab_size=words, **SIZES[family] | settings)
    kind = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    return kind.from_config(config)


def louder(model: PreTrainedModel) -> PreTrainedModel:
    """With matrices three times as large: else all candidates are about alike."""
    for parameter in model.parameters():
        parameter.data *= 3 if parameter.dim() > 1 else 1
    return model


def save(path: Path, model: PreTrainedModel, tokenizer: Any) -> None:
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)


def write(path: Path, family: str, seed: int = 0, **settings: Any) -> None:
    """The folder of a random model with zoo-mini's tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(check_backbone("zoo-mini"))
    torch.manual_seed(seed)
    save(path, model(family, len(tokenizer), **settings), tokenizer)


CORPUS = [text for group in WORLDS["little_zoo"].texts() for text in group.values()]
SPECIAL = ["<unk>", "<s>", "</s>", "<pad>"]
NAMES = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


def fast(tokenizer: Tokenizer, **named: Any) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named)


def trained(tokenizer: Tokenizer, trainer: Any, before: Any, corpus: list[str]) -> Tokenizer:
    tokenizer.pre_tokenizer = before
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def like_gpt2(prefix: bool = False) -> PreTrainedTokenizerFast:
    """Pieces of bytes; a space belongs to the word behind it; one token for begin and end."""
    tokenizer, end = Tokenizer(models.BPE()), "<|endoftext|>"
    tokenizer.decoder = decoders.ByteLevel()
    bytes_of_all = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet(), "vocab_size": 500}
    trainer = trainers.BpeTrainer(**bytes_of_all, special_tokens=[end], show_progress=False)
    before = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    return fast(trained(tokenizer, trainer, before, CORPUS), bos_token=end, eos_token=end)


def in_pieces(template: str) -> Tokenizer:
    """As SentencePiece: a mark stands for the space before a word; special tokens by template."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=300, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False
    )
    # A piece is what several words have in common; "Grasp" is to be one.
    corpus = CORPUS + 500 * ["Grasp Grasps Grasped"]
    trained(tokenizer, trainer, pre_tokenizers.Metaspace(), corpus)
    named = [(token, tokenizer.token_to_id(token)) for token in SPECIAL]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=template, special_tokens=[pair for pair in named if pair[0] in template]
    )
    return tokenizer


def like_llama() -> PreTrainedTokenizerFast:
    return fast(in_pieces("<s> $A"), **{**NAMES, "pad_token": "</s>"}, padding_side="left")


def like_t5() -> PreTrainedTokenizerFast:
    names = {key: name for key, name in NAMES.items() if key != "bos_token"}
    return fast(in_pieces("$A </s>"), **names)


def that_pads_and_cuts() -> PreTrainedTokenizerFast:
    """Its file asks for padding on the left and for at most eight tokens."""
    tokenizer = in_pieces("<s> $A </s>")
    tokenizer.enable_padding(direction="left", pad_id=3, pad_token="<pad>", length=64)
    tokenizer.enable_truncation(max_length=8)
    return fast(tokenizer, **NAMES, padding_side="left", model_max_length=8)
