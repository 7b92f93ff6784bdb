"""One forward pass per state: score and feature of every candidate action."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding

from magellan.core.codec import PROMPT
from magellan.core.errors import InputError
from magellan.model.packing import PackedBatch

if TYPE_CHECKING:
    from magellan.model.backbone import Backbone


@dataclass(frozen=True)
class Scores:
    """Policy and features of the m candidates of a batch, from one pass.

    log_policy: log pi(a|s), (batch, candidates), -inf where there is no candidate.
    features: (m, width), hidden state of the last token of each candidate.
    slots: int64 (m,), row * candidates + candidate of each.
    """

    log_policy: Tensor
    features: Tensor
    slots: Tensor

    @property
    def valid(self) -> Tensor:
        """Whether there is a candidate: bool (batch, candidates)."""
        return self.spread(torch.ones_like(self.slots, dtype=torch.bool))

    def spread(self, values: Tensor) -> Tensor:
        """Values of the m candidates, (m,), as (batch, candidates); 0 elsewhere."""
        padded = values.new_zeros(self.log_policy.numel())
        return padded.index_copy(0, self.slots, values).view(self.log_policy.shape)

    def halves(self) -> tuple[Scores, Scores]:
        """Of each half of a batch that reads the same states `twice`."""
        slots = self.slots.chunk(2)[0]
        pairs = zip(self.log_policy.chunk(2), self.features.chunk(2), strict=True)
        first, second = (Scores(*pair, slots) for pair in pairs)
        return first, second

    def index(self, actions: Tensor) -> Tensor:
        """Index among the m candidates of each row's action, int64 (batch,)."""
        position = self.slots.new_zeros(self.log_policy.numel())
        position[self.slots] = torch.arange(len(self.slots), device=self.slots.device)
        return position.view(self.log_policy.shape).gather(1, actions[:, None]).squeeze(1)


def score_candidates(
    backbone: Backbone, adapter: str, states: PackedBatch, score: str = "logit_sum"
) -> Scores:
    """Score all candidates of each state (Gaven et al. 2025, appendix on SAC-GLAM).

    The score of an action is the sum over its tokens of the raw logit (`logit_sum`, as released) or
    of the log-probability (`log_prob_sum`); the policy is their softmax over the candidates.
    """
    total, features, slots = total_scores(backbone, adapter, states, score)
    return Scores(torch.log_softmax(total, dim=1), features, slots)


def total_scores(
    backbone: Backbone, adapter: str, states: PackedBatch, score: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Score of each candidate, (batch, candidates), -inf where there is none; features and slots
    as in `Scores`."""
    if backbone.fast_pass is None:
        scored = _score_by_library(backbone, adapter, states, score)
    else:
        score_tokens = partial(_token_scores, backbone, score)
        scored = backbone.fast_pass.score(backbone.weights(adapter), states, score_tokens)
    token, token_slots, features, slots = scored
    shape = len(states), states.candidates
    total = token.new_zeros(shape[0] * shape[1]).index_add(0, token_slots, token).view(shape)
    valid = torch.zeros(shape[0] * shape[1], dtype=torch.bool, device=token.device)
    valid[slots] = True
    return total.masked_fill(~valid.view(shape), float("-inf")), features, slots


def candidate_features(backbone: Backbone, adapter: str, states: PackedBatch) -> Tensor:
    """Hidden state of the last token of each state's only candidate, (batch, width)."""
    if backbone.fast_pass is None:
        _, _, features, slots = _score_by_library(backbone, adapter, states, "logit_sum")
        return features[slots.argsort()]
    return backbone.fast_pass.candidate_features(backbone.weights(adapter), states)


def prompt_features(
    backbone: Backbone, adapter: str, prompts: PackedBatch, at_once: int = 512
) -> Tensor:
    """Last hidden state of each prompt, (batch, width).

    Decoder-only: that of the prompt's last token. Encoder-decoder: that of the decoder's start
    token, as released. `at_once` bounds the prompts per pass of `transformers`; written-out passes
    use pieces.
    """
    prompts = prompts.prompts()
    if backbone.fast_pass is not None:
        return backbone.fast_pass.prompt_features(backbone.weights(adapter), prompts)
    features, rows = [], []
    for part_rows, part in prompts.parts(at_once):
        features.append(_prompts_by_library(backbone, adapter, part))
        rows.append(backbone.tensor(part_rows))
    return torch.cat(features).index_select(0, torch.cat(rows).argsort())


@torch.no_grad()
def frozen_features(backbone: Backbone, prompts: PackedBatch) -> np.ndarray:
    """`prompt_features` of the frozen model, float32 (batch, width): sets an adapter to zero.

    Raises:
        InputError: the model changes outside this package.
    """
    if backbone.nonstationary:
        raise InputError(
            "embed: one that changes (`nonstationary`) is not allowed, as this sampler needs "
            "features of goals that stay; allowed: a language model by name, or a function that "
            "stays the same"
        )
    name = "competence_delayed"
    saved = {key: values.clone() for key, values in backbone.adapter(name).items()}
    backbone.load_adapter(name, {key: torch.zeros_like(values) for key, values in saved.items()})
    try:
        return prompt_features(backbone, name, prompts).cpu().numpy()
    finally:
        backbone.load_adapter(name, saved)


def _prompts_by_library(backbone: Backbone, adapter: str, prompts: PackedBatch) -> Tensor:
    if backbone.is_encoder_decoder:
        encoded, mask = _encode(backbone, adapter, prompts)
        no_tokens = prompts.tokens.new_zeros(len(encoded), 1, 0)
        exists = torch.ones(len(encoded), 1, dtype=torch.bool, device=mask.device)
        return backbone.decode(adapter, no_tokens, exists, encoded, mask)[:, 0, 0]
    hidden = backbone.hidden_states(adapter, prompts.tokens, prompts.positions, prompts.mask)
    last = (prompts.segments == PROMPT).sum(dim=1) - 1
    return hidden[torch.arange(len(hidden), device=hidden.device), last]


def _token_scores(
    backbone: Backbone, score: str, hidden: Tensor, before: Tensor, tokens: Tensor
) -> Tensor:
    """Logit or log-probability of each token given `hidden[before]` of it, (tokens,)."""
    if score == "logit_sum":
        return (embedding(before, hidden) * backbone.token_embeddings(tokens)).sum(dim=-1)
    distinct, index = torch.unique(before, return_inverse=True)
    embeddings = backbone.token_embeddings()
    logits = hidden.index_select(0, distinct) @ embeddings.T
    chosen = index * len(embeddings) + tokens
    total = torch.logsumexp(logits, dim=-1)
    return logits.flatten().index_select(0, chosen) - total.index_select(0, index)


def _score_by_library(
    backbone: Backbone, adapter: str, states: PackedBatch, score: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Score of every candidate token and its slot; feature of every candidate and its slot.

    In one padded pass of the modules of `transformers`.
    """
    branches = _branches(states)
    read = _encoder_decoder_states if backbone.is_encoder_decoder else _decoder_states
    before, features = read(backbone, adapter, states, branches)
    tokens = states.tokens[branches.row, branches.column]
    index = torch.arange(len(tokens), device=tokens.device)
    token = _token_scores(backbone, score, before, index, tokens)
    token_slots = branches.row * states.candidates + branches.candidate
    slots = torch.unique(token_slots)
    return token, token_slots, features.flatten(0, 1).index_select(0, slots), slots


@dataclass(frozen=True)
class _Branches:
    """All candidate tokens of a batch, each field (tokens,): row and column in the batch, candidate
    and place in the candidate; `prompt`, (batch,), is the length of each prompt."""

    row: Tensor
    column: Tensor
    candidate: Tensor
    place: Tensor
    prompt: Tensor


def _branches(states: PackedBatch) -> _Branches:
    row, column = (states.segments > PROMPT).nonzero(as_tuple=True)
    prompt = (states.segments == PROMPT).sum(dim=1)
    place = states.positions[row, column] - prompt[row]
    return _Branches(row, column, states.segments[row, column] - 1, place, prompt)


def _decoder_states(
    backbone: Backbone, adapter: str, states: PackedBatch, branches: _Branches
) -> tuple[Tensor, Tensor]:
    """Hidden state before each token (tokens, width), and features (batch, candidates, width)."""
    hidden = backbone.hidden_states(adapter, states.tokens, states.positions, states.mask)
    row, column = branches.row, branches.column
    previous = torch.where(branches.place == 0, branches.prompt[row] - 1, column - 1)
    last = _largest(branches, column, states)
    return hidden[row, previous], hidden[
        torch.arange(len(hidden), device=row.device)[:, None], last
    ]


def _encoder_decoder_states(
    backbone: Backbone, adapter: str, states: PackedBatch, branches: _Branches
) -> tuple[Tensor, Tensor]:
    """`_decoder_states` from one encoding of each prompt and one decoding of its candidates."""
    encoded, mask = _encode(backbone, adapter, states)
    rows, width = len(states), states.candidates
    longest = states.rounded(int(branches.place.max()) + 2) - 1  # the decoder adds the start token
    tokens = states.tokens.new_zeros(rows, width, longest)
    tokens[branches.row, branches.candidate, branches.place] = states.tokens[
        branches.row, branches.column
    ]
    exists = torch.zeros(rows, width, dtype=torch.bool, device=tokens.device)
    exists[branches.row, branches.candidate] = True
    hidden = backbone.decode(adapter, tokens, exists, encoded, mask)
    before = hidden[branches.row, branches.candidate, branches.place]
    length = _largest(branches, branches.place + 1, states)
    row = torch.arange(rows, device=tokens.device)[:, None]
    return before, hidden[row, torch.arange(width, device=tokens.device), length]


def _encode(backbone: Backbone, adapter: str, states: PackedBatch) -> tuple[Tensor, Tensor]:
    """Encoder states of the prompts, without candidates, and their mask."""
    mask = states.segments == PROMPT
    longest = states.rounded(int(mask.sum(dim=1).max()))
    mask = mask[:, :longest]
    return backbone.encode(adapter, states.tokens[:, :longest] * mask, mask), mask


def _largest(branches: _Branches, values: Tensor, states: PackedBatch) -> Tensor:
    """Maximum of each candidate's values, int64 (batch, candidates); 0 where there is none."""
    rows, width = len(states), states.candidates
    largest = values.new_zeros(rows * width)
    largest.scatter_reduce_(0, branches.row * width + branches.candidate, values, "amax")
    return largest.view(rows, width)
