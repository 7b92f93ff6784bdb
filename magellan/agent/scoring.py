"""One forward pass per state: score and feature of every candidate action."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from magellan.agent.backbone import Backbone
from magellan.agent.packing import PROMPT, PackedBatch


@dataclass(frozen=True)
class Scores:
    """What one pass says of the candidates of a batch.

    Shapes: `log_policy` (batch, candidates), -inf where there is no candidate; `features` (batch,
    candidates, width), the hidden state of each candidate's last token; `valid` bool (batch,
    candidates).
    """

    log_policy: Tensor
    features: Tensor
    valid: Tensor


def score_candidates(
    backbone: Backbone, adapter: str, states: PackedBatch, score: str = "logit_sum"
) -> Scores:
    """Score all candidates of each state (Gaven et al. 2025, appendix on SAC-GLAM).

    The score of an action is the sum over its tokens of the raw logit (`logit_sum`, as released) or
    of the log-probability (`log_prob_sum`); the policy is their softmax over the candidates.
    """
    branches = _branches(states)
    read = _encoder_decoder_states if backbone.is_encoder_decoder else _decoder_states
    before, features = read(backbone, adapter, states, branches)
    where = branches.row, branches.candidate
    shape = len(states.tokens), states.candidates
    token = _token_scores(backbone, before, states.tokens[branches.row, branches.column], score)
    total = torch.zeros(shape).index_put(where, token, accumulate=True)
    valid = torch.zeros(shape, dtype=torch.bool).index_put(where, torch.tensor(True))
    log_policy = torch.log_softmax(total.masked_fill(~valid, float("-inf")), dim=1)
    return Scores(log_policy, features, valid)


def prompt_features(backbone: Backbone, adapter: str, prompts: PackedBatch) -> Tensor:
    """What the model makes of each prompt, (batch, width).

    Decoder-only: the hidden state of the prompt's last token. Encoder-decoder: that of the
    decoder's start token, as released.
    """
    if backbone.is_encoder_decoder:
        encoded, mask = _encode(backbone, adapter, prompts)
        nothing = torch.zeros(len(encoded), 0, dtype=torch.int64)
        return backbone.decode(adapter, nothing, encoded, mask)[:, 0]
    hidden = backbone.hidden_states(adapter, prompts.tokens, prompts.positions, prompts.mask)
    last = (prompts.segments == PROMPT).sum(dim=1) - 1
    return hidden[torch.arange(len(hidden)), last]


@dataclass(frozen=True)
class _Branches:
    """Every candidate token of a batch, each (tokens,): its row and column in the batch, its
    candidate, and its place in the candidate; `prompt` (batch,) is the length of each prompt."""

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
    return hidden[row, previous], hidden[torch.arange(len(hidden))[:, None], last]


def _encoder_decoder_states(
    backbone: Backbone, adapter: str, states: PackedBatch, branches: _Branches
) -> tuple[Tensor, Tensor]:
    """The same from one encoding of each prompt and one decoding of all its candidates."""
    encoded, mask = _encode(backbone, adapter, states)
    rows, width = len(states.tokens), states.candidates
    tokens = torch.zeros(rows, width, int(branches.place.max()) + 1, dtype=torch.int64)
    tokens[branches.row, branches.candidate, branches.place] = states.tokens[
        branches.row, branches.column
    ]
    exists = torch.zeros(rows, width, dtype=torch.bool)
    exists[branches.row, branches.candidate] = True
    owner = exists.nonzero()[:, 0]
    hidden = backbone.decode(adapter, tokens[exists], encoded[owner], mask[owner])
    number = (exists.flatten().cumsum(0) - 1).view(rows, width)  # candidate -> its row in `hidden`
    before = hidden[number[branches.row, branches.candidate], branches.place]
    length = _largest(branches, branches.place + 1, states)
    return before, hidden[number.clamp(min=0), length]


def _encode(backbone: Backbone, adapter: str, states: PackedBatch) -> tuple[Tensor, Tensor]:
    """Encoder states of the prompts alone, and their mask."""
    mask = states.segments == PROMPT
    longest = int(mask.sum(dim=1).max())
    mask = mask[:, :longest]
    return backbone.encode(adapter, states.tokens[:, :longest] * mask, mask), mask


def _largest(branches: _Branches, values: Tensor, states: PackedBatch) -> Tensor:
    """Largest of each candidate's values, int64 (batch, candidates); 0 where there is none."""
    rows, width = len(states.tokens), states.candidates
    largest = torch.zeros(rows * width, dtype=torch.int64)
    largest.scatter_reduce_(0, branches.row * width + branches.candidate, values, "amax")
    return largest.view(rows, width)


def _token_scores(backbone: Backbone, before: Tensor, tokens: Tensor, score: str) -> Tensor:
    """Logit or log-probability of each token given the hidden state before it, (tokens,)."""
    embeddings = backbone.token_embeddings()
    logit = (before * embeddings[tokens]).sum(dim=-1)
    if score == "logit_sum":
        return logit
    return logit - torch.logsumexp(before @ embeddings.T, dim=-1)
