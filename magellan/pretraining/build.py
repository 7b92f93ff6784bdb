"""Builds the `zoo-mini` backbone: `python -m magellan backbone --wheel FILE --output DIR`."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from tqdm import tqdm
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from magellan.agent.packing import Codec
from magellan.littlezoo.vocabulary import HELD_OUT_OBJECTS, KIND_OF, KINDS, OBJECTS
from magellan.pretraining import words
from magellan.pretraining.card import write_card
from magellan.pretraining.play import random_play
from magellan.pretraining.tokenizer import build_tokenizer


@dataclass(frozen=True)
class Recipe:
    """What goes into the model."""

    width: int = 64
    layers: int = 2
    heads: int = 4
    mlp_width: int = 192
    steps: int = 4_000
    batch_size: int = 128
    learning_rate: float = 3e-3
    vector_noise: float = 0.5
    seed: int = 0


def build(wheel: Path, output: Path, recipe: Recipe | None = None) -> dict[str, float]:
    """Build model, tokenizer and card into `output`; gives the figures of the card.

    Raises:
        InputError: the wheel is missing or is not the pinned one.
    """
    recipe = recipe or Recipe()
    streams = [np.random.default_rng(s) for s in np.random.SeedSequence(recipe.seed).spawn(2)]
    states = words.object_states(wheel, list(OBJECTS))
    vectors = words.project(states, recipe.width, streams[0])
    tokenizer = build_tokenizer(list(OBJECTS))
    torch.manual_seed(recipe.seed)
    model = make_model(recipe, tokenizer, vectors)
    loss = pretrain(model, tokenizer, recipe, streams[1])
    figures = {"loss": loss, **embedding_figures(vectors)}
    output.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(output)
    tokenizer.save_pretrained(output)
    (output / "build.json").write_text(
        json.dumps({"recipe": asdict(recipe), "figures": figures}, indent=2) + "\n"
    )
    write_card(output, asdict(recipe), figures)
    return figures


def embedding_figures(vectors: np.ndarray) -> dict[str, float]:
    """Nearest-training-centroid accuracy of the held-out objects among the four kinds with any."""
    kinds = np.asarray(KIND_OF)
    held_out = np.asarray([name in HELD_OUT_OBJECTS for name in OBJECTS])
    kept = kinds != KINDS.index("supply")
    accuracy = words.centroid_accuracy(vectors[kept], kinds[kept], held_out[kept])
    return {"centroid_accuracy": accuracy, "held_out_objects": int(held_out.sum())}


def make_model(
    recipe: Recipe, tokenizer: PreTrainedTokenizerFast, vectors: np.ndarray
) -> LlamaForCausalLM:
    """A small Llama with tied embeddings, whose object rows are the given vectors."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=recipe.width,
        intermediate_size=recipe.mlp_width,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.heads,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        embedding = model.get_input_embeddings().weight
        embedding.normal_(std=recipe.width**-0.5)
        embedding[object_rows(tokenizer, OBJECTS)] = torch.from_numpy(vectors).float()
    return model


def object_rows(tokenizer: PreTrainedTokenizerFast, names: tuple[str, ...]) -> list[int]:
    """Token ids of objects."""
    return tokenizer.convert_tokens_to_ids([f" {name}" for name in names])


def pretrain(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    recipe: Recipe,
    rng: np.random.Generator,
) -> float:
    """Next-token prediction on random play; gives the mean loss of the last 100 steps, in nats.

    The objects' vectors do not move. Held-out objects never occur, so they are left out of the
    softmax: otherwise training would push the model away from ever naming them. Every batch shifts
    the objects' vectors at random (by `vector_noise` in mean norm, the same at input and output),
    so that the model learns to name whatever vector it has read and not only 25 of them.
    """
    fixed = object_rows(tokenizer, OBJECTS)
    unseen = object_rows(tokenizer, HELD_OUT_OBJECTS)
    embedding = model.get_input_embeddings().weight
    embedding.register_hook(lambda gradient: gradient.index_fill(0, torch.tensor(fixed), 0.0))
    optimizer = torch.optim.Adam(model.parameters(), recipe.learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, recipe.learning_rate, total_steps=recipe.steps, pct_start=0.05
    )
    codec, play = Codec(tokenizer), random_play(rng)
    losses: list[float] = []
    for _ in tqdm(range(recipe.steps), desc="pretraining", unit="batch"):
        tokens = text_batch(
            codec, itertools.islice(play, recipe.batch_size), tokenizer.eos_token_id
        )
        shifted = {"model.embed_tokens.weight": shift_rows(embedding, fixed, recipe, rng)}
        logits = functional_call(model, shifted, (tokens,)).logits
        loss = next_token_loss(logits, tokens, unseen, tokenizer.pad_token_id)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
    return float(np.mean(losses[-100:]))


def shift_rows(
    embedding: Tensor, rows: list[int], recipe: Recipe, rng: np.random.Generator
) -> Tensor:
    """The embedding matrix with normal noise of mean norm `vector_noise` added to some rows."""
    noise = rng.standard_normal((len(rows), recipe.width), dtype=np.float32)
    scale = recipe.vector_noise * recipe.width**-0.5
    return embedding.index_add(0, torch.tensor(rows), torch.from_numpy(noise), alpha=scale)


def text_batch(codec: Codec, triples: Iterable[tuple[str, str, str]], end: int) -> Tensor:
    """Tokens of prompt + action + next observation + end, padded with 0, int64 (batch, length)."""
    pieces = list(itertools.chain.from_iterable(triples))
    encoded = codec.encode(pieces)
    rows = [np.concatenate([*encoded[i : i + 3], [end]]) for i in range(0, len(encoded), 3)]
    tokens = np.zeros((len(rows), max(map(len, rows))), np.int64)
    for row, values in zip(tokens, rows, strict=True):
        row[: len(values)] = values
    return torch.from_numpy(tokens)


def next_token_loss(logits: Tensor, tokens: Tensor, unseen: list[int], padding: int) -> Tensor:
    """Mean cross-entropy of each next token, in nats; logits (batch, length, vocabulary)."""
    masked = logits[:, :-1].index_fill(2, torch.tensor(unseen), float("-inf"))
    return nn.functional.cross_entropy(masked.transpose(1, 2), tokens[:, 1:], ignore_index=padding)
