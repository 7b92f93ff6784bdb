"""`digits-mini`: a small Llama that has read answers of a poor teacher, for the world `digits`.

Each digit of the teacher's answers is right with the chance `CHANCE`, and otherwise drawn uniformly
from all ten. So the model knows what the operations are, but seldom writes a long answer that is
right. Numbers are those of the training split; operations without a right answer get random digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Regex, pre_tokenizers
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm
from transformers import PreTrainedTokenizerFast

from magellan.core.codec import Codec
from magellan.pretraining import check_output, write_embedded
from magellan.pretraining.small import make_optimizer_step, mask_except_actions, small_llama
from magellan.pretraining.tokenizer import SPECIAL, word_tokenizer
from magellan.worlds.digits import LONGEST, OPERATIONS, UNSOLVABLE, Prompt, digits_of, right_answer
from magellan.worlds.digits import numbers as numbers_of

NAME = "digits-mini"
CHANCE = 0.25
RECIPE: dict[str, Any] = {
    "width": 64,
    "layers": 3,
    "heads": 4,
    "mlp_width": 192,
    "steps": 2_500,
    "batch_size": 64,
    "learning_rate": 3e-3,
    "teacher": CHANCE,
    "seed": 0,
}
IGNORED = -100


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token for each operation, digit and sign."""
    split = pre_tokenizers.Split(Regex(r"[a-z]+|[ =]|\d"), behavior="isolated")
    return word_tokenizer([*SPECIAL, *OPERATIONS, *UNSOLVABLE, " ", "=", *"0123456789"], split)


def lessons(rng: np.random.Generator) -> Iterator[tuple[str, str]]:
    """Yield prompts of all operations and lengths alike, with the teacher's answers."""
    names = (*OPERATIONS, *UNSOLVABLE)
    while True:
        name, length = names[rng.integers(len(names))], int(rng.integers(1, LONGEST + 1))
        digits = digits_of(length, int(rng.integers(numbers_of(length, "train"))), "train")
        right = right_answer(name, digits)
        known, others = rng.random(length) < CHANCE, rng.integers(10, size=length)
        answer = (
            right[i] if right is not None and known[i] else str(others[i]) for i in range(length)
        )
        yield Prompt(name, digits).prompt(), "".join(answer)


def batch(codec: Codec, pairs: list[tuple[str, str]], end: int) -> tuple[Tensor, Tensor]:
    """Tokens, and those of the answers as labels: int64 (batch, length) each."""
    heads, tails = (codec.encode([pair[part] for pair in pairs]) for part in (0, 1))
    tails = [np.append(tail, end) for tail in tails]
    rows = map(np.concatenate, zip(heads, tails, strict=True))
    tokens = pad_sequence([torch.from_numpy(row) for row in rows], batch_first=True)
    return tokens, mask_except_actions(tokens, heads, tails, IGNORED)


def write(output: Path) -> dict[str, Any]:
    """Pretrain the model; write it, its tokenizer, its record and the committed card to `output`.

    Returns:
        figures: the mean loss of the last 100 steps, in nats.

    Raises:
        InputError: `output` holds another model.
    """
    check_output(output, "recipe", RECIPE)
    width, layers, heads, mlp_width, steps, size, rate, _, seed = RECIPE.values()
    tokenizer = build_tokenizer()
    codec, play = Codec(tokenizer), lessons(np.random.default_rng(seed))
    torch.manual_seed(seed)
    model = small_llama(
        len(tokenizer), width, layers, heads, mlp_width, 64, initializer_range=width**-0.5
    )
    optimizer_step = make_optimizer_step([*model.parameters()], rate, steps)
    losses = []
    for _ in tqdm(range(steps), desc="pretraining", unit="batch"):
        pairs = [next(play) for _ in range(size)]
        tokens, labels = batch(codec, pairs, tokenizer.eos_token_id)
        logits = model(tokens).logits[:, :-1].transpose(1, 2)
        loss = nn.functional.cross_entropy(logits, labels[:, 1:], ignore_index=IGNORED)
        optimizer_step(loss)
        losses.append(float(loss.detach()))
    figures = {"loss": float(np.mean(losses[-100:]))}
    write_embedded(NAME, output, model, tokenizer, RECIPE, figures)
    return figures
