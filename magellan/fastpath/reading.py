"""What every pass does with packed states: pieces of similar ones, their scores and features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding

from magellan.core.codec import PROMPT
from magellan.fastpath.trie import Tree, build_tree

if TYPE_CHECKING:
    from magellan.model.packing import PackedBatch

PIECE = 256
"""States per pass: their activations fit the caches."""


@dataclass(frozen=True)
class Piece:
    """Some states of a batch and their distinct tokens.

    states: int64 (n,), their rows in the batch.
    tree: tokens for the decoder.
    prompts: tokens for the encoder; None in a decoder-only model.
    """

    states: Tensor
    tree: Tree
    prompts: Tree | None


class FastPass(ABC):
    """A model's written-out pass over the distinct tokens of packed states.

    Attributes:
        start_token: the decoder's first token; None in a decoder-only model.
        own_backward: whether it computes gradients itself, and so takes adapters as they are, adds
            up the gradients of tokens that states share, and needs no padding.
    """

    start_token: int | None = None
    own_backward = False

    def __init__(self) -> None:
        self._pieces: WeakKeyDictionary[PackedBatch, dict[bool, list[Piece]]] = WeakKeyDictionary()

    @abstractmethod
    def prepare(self, changed: Mapping[str, Any]) -> Any:
        """Weights of every layer, for `read`.

        Args:
            changed: by full name: weights merged with an adapter; with `own_backward` its A, B and
                scaling.
        """

    @abstractmethod
    def read(self, weights: Any, piece: Piece, nodes: Tensor) -> Tensor:
        """Last hidden states of distinct nodes, int64 (w,), of the decoder: (w, width)."""

    def score(
        self,
        weights: Any,
        states: PackedBatch,
        score_tokens: Callable[[Tensor, Tensor, Tensor], Tensor],
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Score of every candidate token and its slot; feature of every candidate and its slot.

        Args:
            weights: from `prepare`.
            states: the batch.
            score_tokens: hidden states, index among them of the one before each token, tokens ->
                score of each token.
        """
        results: list[tuple[Tensor, ...]] = []
        for piece in self.pieces(states):
            tree = piece.tree
            nodes, before, last = tree.scored
            hidden = self.read(weights, piece, nodes)
            token = score_tokens(hidden, before, tree.tokens[tree.after])
            results.append(
                (
                    token.index_select(0, tree.parts),
                    _to_batch_slots(tree.slots, piece, states),
                    embedding(last, hidden),
                    _to_batch_slots(tree.last_slots, piece, states),
                )
            )
        token, token_slots, features, slots = (
            torch.cat(part) for part in zip(*results, strict=True)
        )
        return token, token_slots, features, slots

    def candidate_features(self, weights: Any, states: PackedBatch) -> Tensor:
        """Hidden state of the last token of each state's only candidate, (batch, width)."""
        return self._features(states, lambda piece: self.read(weights, piece, piece.tree.last))

    def prompt_features(self, weights: Any, prompts: PackedBatch) -> Tensor:
        """Last hidden state of each prompt, (batch, width)."""

        def features(piece: Piece) -> Tensor:
            nodes, index = piece.tree.distinct_ends
            return self.read(weights, piece, nodes).index_select(0, index)

        return self._features(prompts, features)

    def _features(self, states: PackedBatch, features: Callable[[Piece], Tensor]) -> Tensor:
        pieces = self.pieces(states)
        rows = torch.cat([piece.states for piece in pieces])
        return torch.cat([features(piece) for piece in pieces]).index_select(0, rows.argsort())

    def pieces(self, states: PackedBatch) -> list[Piece]:
        """The pieces of a batch; cached, as a batch is read repeatedly.

        In a causal model prompts share the computation of common prefixes: with gradients only if
        those are computed here.
        """
        share = self.own_backward or (self.start_token is None and not torch.is_grad_enabled())
        cached = self._pieces.setdefault(states, {})
        if share not in cached:
            cached[share] = [
                self._piece(rows, part, share)
                for rows, part in states.parts(PIECE, ragged=self.own_backward)
            ]
        return cached[share]

    def _piece(self, rows: np.ndarray, part: PackedBatch, share_prompts: bool) -> Piece:
        states = torch.from_numpy(rows)
        if self.start_token is None:
            tree = build_tree(part.token_array, part.segment_array, share_prompts)
            return Piece(states, tree, None)
        tokens, segments = part.selected(part.segment_array > PROMPT)
        tokens = np.pad(tokens, ((0, 0), (1, 0)), constant_values=self.start_token)
        segments = np.pad(segments, ((0, 0), (1, 0)), constant_values=PROMPT)
        prompts = build_tree(*part.selected(part.segment_array == PROMPT))
        return Piece(states, build_tree(tokens, segments), prompts)


def _to_batch_slots(slots: Tensor, piece: Piece, states: PackedBatch) -> Tensor:
    """Convert slots of a piece to slots of the batch."""
    row, candidate = slots // piece.tree.candidates, slots % piece.tree.candidates
    return piece.states[row] * states.candidates + candidate
