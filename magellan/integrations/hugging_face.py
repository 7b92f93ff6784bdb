"""MAGELLAN's head on a model in memory, such as the policy in training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from magellan.core.errors import not_allowed


class HiddenStates:
    """An `embed` of a `Curriculum`: last hidden state of each text's last token.

    The model gets no adapters and no gradients. It changes during training, so embeddings are
    recomputed: of a batch of prompts at each update, of all prompts at each refresh. The delayed
    estimate is the stored one of that time (the paper's architecture C).

    model: a causal language model of `transformers`, with or without adapters of `peft`.
    tokenizer: of the model.
    at_once: texts per pass.
    """

    nonstationary = True

    def __init__(self, model: Any, tokenizer: Any, at_once: int = 128) -> None:
        self._model, self._tokenizer, self._at_once = model, tokenizer, at_once

    @torch.no_grad()
    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Return embeddings of texts, float32 (n, width), n > 0.

        Raises:
            InputError: a text has no tokens, or more than the model has positions.
        """
        modes = [(module, module.training) for module in self._model.modules()]
        self._model.eval()
        try:
            starts = range(0, len(texts), self._at_once)
            return np.concatenate([self._embed(texts[i : i + self._at_once]) for i in starts])
        finally:
            for module, training in modes:
                module.training = training

    def _embed(self, texts: Sequence[str]) -> np.ndarray:
        rows = [torch.tensor(row) for row in self._tokenizer(list(texts))["input_ids"]]
        config: Any = getattr(self._model, "config", None)
        config = config.get_text_config() if hasattr(config, "get_text_config") else config
        most = getattr(config, "max_position_embeddings", None) or math.inf
        for text, row in zip(texts, rows, strict=True):
            if not 0 < len(row) <= most:
                why = f": it has {len(row)} tokens"
                raise not_allowed("embed", text, f"texts of 1 to {most} tokens", why)
        tokens = pad_sequence(rows, batch_first=True).to(self._model.device)
        last = torch.tensor([len(row) - 1 for row in rows], device=self._model.device)
        mask = torch.arange(tokens.shape[1], device=last.device) <= last[:, None]
        inputs = {"input_ids": tokens, "attention_mask": mask.long()}
        output = self._model(**inputs, output_hidden_states=True, logits_to_keep=1, use_cache=False)
        places = last - tokens.shape[1]  # from the end: peft may put virtual tokens before the text
        states = output.hidden_states[-1][torch.arange(len(last)), places]
        return states.float().cpu().numpy()
