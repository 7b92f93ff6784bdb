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
    hidden = backbone.hidden_states(adapter, states.tokens, states.positions, states.mask)
    in_branch = states.segments > PROMPT
    row, column = in_branch.nonzero(as_tuple=True)
    candidate = states.segments[row, column] - 1
    token = _token_scores(backbone, hidden, states, row, column, score)
    shape = (len(states.tokens), states.candidates)
    total = torch.zeros(shape).index_put((row, candidate), token, accumulate=True)
    valid = torch.zeros(shape, dtype=torch.bool).index_put(
        (row, candidate), torch.ones_like(candidate, dtype=torch.bool)
    )
    log_policy = torch.log_softmax(total.masked_fill(~valid, float("-inf")), dim=1)
    return Scores(log_policy, _last_hidden(hidden, row, column, candidate, shape), valid)


def prompt_features(backbone: Backbone, adapter: str, prompts: PackedBatch) -> Tensor:
    """Hidden state of each prompt's last token, (batch, width)."""
    hidden = backbone.hidden_states(adapter, prompts.tokens, prompts.positions, prompts.mask)
    last = (prompts.segments == PROMPT).sum(dim=1) - 1
    return hidden[torch.arange(len(hidden)), last]


def _token_scores(
    backbone: Backbone, hidden: Tensor, states: PackedBatch, row: Tensor, column: Tensor, score: str
) -> Tensor:
    """Logit or log-probability of each branch token given what stands before it, (tokens,)."""
    last_of_prompt = (states.segments == PROMPT).sum(dim=1)[row] - 1
    first = states.segments[row, column] != states.segments[row, column - 1]
    before = hidden[row, torch.where(first, last_of_prompt, column - 1)]
    embeddings = backbone.token_embeddings()
    logit = (before * embeddings[states.tokens[row, column]]).sum(dim=-1)
    if score == "logit_sum":
        return logit
    return logit - torch.logsumexp(before @ embeddings.T, dim=-1)


def _last_hidden(
    hidden: Tensor, row: Tensor, column: Tensor, candidate: Tensor, shape: tuple[int, int]
) -> Tensor:
    """Hidden state of each candidate's last token; the prompt's first where there is none."""
    last = torch.zeros(shape[0] * shape[1], dtype=torch.int64)
    last.scatter_reduce_(0, row * shape[1] + candidate, column, "amax")
    return hidden[torch.arange(shape[0])[:, None], last.view(shape)]
