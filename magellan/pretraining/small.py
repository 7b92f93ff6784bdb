"""What the small models of this folder share: their family, and the steps of their training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM


def small_llama(
    tokens: int, width: int, layers: int, heads: int, mlp_width: int, places: int, **others: Any
) -> LlamaForCausalLM:
    """A Llama with tied embeddings and random weights, for a tokenizer of `word_tokenizer`.

    others: of the configuration.
    """
    config = LlamaConfig(
        vocab_size=tokens,
        hidden_size=width,
        intermediate_size=mlp_width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=places,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=2,
        bos_token_id=None,
        **others,
    )
    return LlamaForCausalLM(config)


def make_optimizer_step(
    parameters: Sequence[nn.Parameter], learning_rate: float, steps: int
) -> Callable[[Tensor], None]:
    """Function that takes one Adam step on a loss, of so many."""
    optimizer = torch.optim.Adam(parameters, learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, learning_rate, total_steps=steps, pct_start=0.05
    )

    def optimizer_step(loss: Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()

    return optimizer_step


def mask_except_actions(
    tokens: Tensor, prompts: Sequence[np.ndarray], actions: Sequence[np.ndarray], padding: int
) -> Tensor:
    """Replace all tokens but those of the actions by padding, int64 (batch, length)."""
    starts = torch.tensor([len(prompt) for prompt in prompts])[:, None]
    ends = starts + torch.tensor([len(action) for action in actions])[:, None]
    place = torch.arange(tokens.shape[1])
    return tokens.masked_fill((place < starts) | (place >= ends), padding)
