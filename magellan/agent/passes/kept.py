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

from magellan.agent.places import Rows, Tree


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
        rows, result = tree.rows, None
        for row in range(len(rows.nodes)):
            nodes = rows.nodes[row]
            if rows.filled is not None:
                nodes = nodes[rows.filled[row]]
            state = self._state(tree, row, nodes)
            if result is None:
                result = state.new_empty(len(tree), state.shape[1])
            result[nodes] = state
        assert result is not None
        return result

    def _state(self, tree: Tree, row: int, nodes: Tensor) -> Tensor:
        tokens = tree.tokens[nodes]
        visible = tree.visible[min(row, len(tree.visible) - 1)][: len(nodes), : len(nodes)]
        key = tokens.numpy().tobytes(), np.packbits(visible.numpy()).tobytes()
        if key in self._kept:
            self.found += 1
            self._kept.move_to_end(key)
            return self._kept[key]
        self.computed += 1
        hidden = self._compute(
            OneState(tokens, tree.positions[nodes], _bias(visible), _in_a_row(len(nodes)))
        )
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


def _bias(visible: Tensor) -> Tensor:
    hidden = torch.zeros(visible.shape).masked_fill_(~visible, float("-inf"))
    return hidden[None, None]


def _in_a_row(length: int) -> Rows:
    every = torch.arange(length)
    return Rows(every[None], every, None)
