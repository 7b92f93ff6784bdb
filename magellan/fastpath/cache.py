"""What frozen layers make of a state, computed once.

Layers without adapters never change, so what they make of a state can be kept. Each state is
computed alone, never together with others, so that its numbers do not depend on when it came or on
what was kept: the room for keeping changes the speed and nothing else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from magellan.fastpath.trie import Rows, Tree


@dataclass(frozen=True)
class OneState:
    """The nodes of one state, in the order of their places.

    tokens, positions: int64 (n,).
    bias: float (1, 1, n, n), -inf where a node does not see another.
    rows: the nodes in one row.
    """

    tokens: Tensor
    positions: Tensor
    bias: Tensor
    rows: Rows


class KeptStates:
    """Hidden states of nodes behind the frozen layers.

    Args:
        compute: the frozen layers: hidden states float (n, width) of one state's nodes.
        room: bytes that may be kept; those not asked for longest go first.

    Attributes:
        computed, found: how many states were computed, and how many were at hand.
    """

    def __init__(self, compute: Callable[[OneState], Tensor], room: int) -> None:
        self._compute, self._room = compute, room
        self._kept: OrderedDict[tuple[bytes, bytes], Tensor] = OrderedDict()
        self.bytes = self.computed = self.found = 0

    @torch.no_grad()
    def of(self, tree: Tree) -> Tensor:
        """Hidden states of all nodes of a tree, float (nodes, width); the caller's own memory."""
        rows = tree.rows
        every = list(rows.nodes)
        if rows.filled is not None:
            every = [nodes[there] for nodes, there in zip(every, rows.filled, strict=True)]
        states = [self._state(tree, row, nodes) for row, nodes in enumerate(every)]
        result = states[0].new_empty(len(tree), states[0].shape[1])
        for nodes, state in zip(every, states, strict=True):
            result[nodes] = state
        return result

    def _state(self, tree: Tree, row: int, nodes: Tensor) -> Tensor:
        tokens, length = tree.tokens[nodes], len(nodes)
        at = min(row, len(tree.visible) - 1)  # one for all states that are prompts alone
        visible = tree.visible[at, :length, :length]
        key = tokens.numpy().tobytes(), np.packbits(visible.numpy()).tobytes()
        if key in self._kept:
            self.found += 1
            self._kept.move_to_end(key)
            return self._kept[key]
        self.computed += 1
        bias = tree.bias[at : at + 1, :, :length, :length]
        hidden = self._compute(OneState(tokens, tree.positions[nodes], bias, _in_a_row(length)))
        self._keep(key, hidden)
        return hidden

    def _keep(self, key: tuple[bytes, bytes], hidden: Tensor) -> None:
        size = hidden.nbytes
        if size > self._room:
            return
        while self.bytes + size > self._room:
            _, oldest = self._kept.popitem(last=False)
            self.bytes -= oldest.nbytes
        self._kept[key] = hidden
        self.bytes += size


def _in_a_row(length: int) -> Rows:
    every = torch.arange(length)
    return Rows(every[None], every, None)
