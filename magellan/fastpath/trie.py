"""Prefix trees of packed states, in which each distinct token is computed once.

Two candidates with a common prefix ("Go to lion", "Go to water") share its hidden states, and in a
causal model so do two prompts. A `Tree` numbers the distinct tokens of a batch, its *nodes*, and
maps each place of each state's row to a node. Layers work on nodes, a flat tensor without padding;
attention works on rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from magellan.core.codec import PADDING, PROMPT


@dataclass(frozen=True)
class Rows:
    """Layout of nodes in one row per state.

    nodes: int64 (states, length), the node in each place; padded places repeat a node of the row.
    owners: int64 (n,), the flat place of each of n nodes that computes it.
    filled: bool (states, length), False where a place is padding; None where every place is filled.
    """

    nodes: Tensor
    owners: Tensor
    filled: Tensor | None
    _indices: dict[tuple[str, int], Tensor] = field(default_factory=dict, repr=False, compare=False)

    @property
    def single(self) -> bool:
        """Whether every state has exactly one node."""
        return self.nodes.shape[1] == 1 and self.filled is None

    @property
    def states(self) -> Tensor:
        """The state of each of the n nodes: int64 (n,)."""
        return self.owners // self.nodes.shape[1]

    def lay_out(self, values: Tensor, heads: int) -> Tensor:
        """Gather values of nodes, (n, heads * d), in rows: (states * heads, length, d)."""
        width = values.shape[1] // heads
        index = self._index(heads, self._places_of_heads)
        rows = values.reshape(-1, width).index_select(0, index)
        return rows.view(-1, self.nodes.shape[1], width)

    def pick_up(self, rows: Tensor, heads: int) -> Tensor:
        """Gather values of nodes, (n, heads * d), from rows: (states * heads, length, d)."""
        width = rows.shape[2]
        index = self._index(heads, self._heads_of_owners)
        return rows.reshape(-1, width).index_select(0, index).view(-1, heads * width)

    def relabeled(self, labels: Tensor) -> Rows:
        """These rows with `labels[node]` in place of each node."""
        return Rows(labels[self.nodes], self.owners, self.filled)

    def _index(self, heads: int, make: Callable[[int], Tensor]) -> Tensor:
        key = make.__name__, heads
        if key not in self._indices:
            self._indices[key] = make(heads).flatten()
        return self._indices[key]

    def _places_of_heads(self, heads: int) -> Tensor:
        return self.nodes[:, None, :] * heads + torch.arange(heads)[:, None]

    def _heads_of_owners(self, heads: int) -> Tensor:
        length = self.nodes.shape[1]
        state, column = self.owners // length, self.owners % length
        return (state[:, None] * heads + torch.arange(heads)) * length + column[:, None]


Selection = tuple[Rows, tuple[Tensor, Tensor]]
"""Rows of some nodes; state and column in the tree's rows of each of their places."""


@dataclass(frozen=True)
class Tree:
    """The distinct tokens of a batch of packed states.

    tokens, positions: int64 (n,), of each node; positions from the start of its sequence.
    rows: the nodes of each state, prompt first.
    visible: bool (states or 1, length, length), True where a place attends to another.
    before: int64 (t,), the node before each distinct candidate token.
    after: int64 (t,), that token's own node.
    slots: int64 (u,), row * candidates + candidate of every candidate token, repeats included.
    parts: int64 (u,), index of each among the t distinct tokens.
    last: int64 (m,), the node of the last token of each candidate that exists, in order of rows.
    last_slots: int64 (m,), row * candidates + candidate of each of these.
    candidates: the largest number of candidates of a state.
    ends: int64 (states,), the node of each prompt's last token.
    """

    tokens: Tensor
    positions: Tensor
    rows: Rows
    visible: Tensor
    before: Tensor
    after: Tensor
    slots: Tensor
    parts: Tensor
    last: Tensor
    last_slots: Tensor
    ends: Tensor
    candidates: int
    _selections: dict[int, tuple[Tensor, Selection]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def length(self) -> int:
        """Largest position, plus one."""
        return int(self.positions.max()) + 1

    @cached_property
    def bias(self) -> Tensor:
        """`visible` as an attention bias: float (states or 1, 1, length, length)."""
        bias = torch.zeros(self.visible.shape)
        return bias.masked_fill_(~self.visible, float("-inf"))[:, None]

    @cached_property
    def token_rows(self) -> Rows:
        """`rows` with each node's token in place of the node."""
        return self.rows.relabeled(self.tokens)

    @cached_property
    def scored(self) -> tuple[Tensor, Tensor, Tensor]:
        """Nodes that scoring reads, and indices of `before` and `last` among them.

        Returns:
            int64 (w,), sorted; int64 (t,); int64 (m,).
        """
        nodes, index = torch.unique(torch.cat([self.before, self.last]), return_inverse=True)
        return nodes, index[: len(self.before)], index[len(self.before) :]

    @cached_property
    def distinct_ends(self) -> tuple[Tensor, Tensor]:
        """Distinct nodes of `ends`, int64 (w,), and the index of each prompt's, int64 (states,)."""
        return torch.unique(self.ends, return_inverse=True)

    def select(self, nodes: Tensor) -> Selection:
        """Rows of some distinct nodes; cached by the identity of the tensor.

        Returns:
            rows of indices into `nodes`, and of each of their places the state, int64 (states, 1),
            and the column in the tree's rows, int64 (states, width).
        """
        if id(nodes) not in self._selections:
            self._selections[id(nodes)] = nodes, self._select(nodes)
        return self._selections[id(nodes)][1]

    def _select(self, nodes: Tensor) -> Selection:
        length = self.rows.nodes.shape[1]
        state, column = np.divmod(self.rows.owners[nodes].numpy(), length)
        order = np.lexsort((column, state))
        counts = np.bincount(state, minlength=len(self.rows.nodes))
        first = np.cumsum(counts) - counts
        width = int(counts.max())
        place = np.empty(len(nodes), np.int64)
        place[order] = np.arange(len(nodes)) - first[state[order]]
        indices = np.zeros((len(counts), width), np.int64)
        columns = np.zeros_like(indices)
        filled = np.arange(width) < counts[:, None]
        indices[state, place] = np.arange(len(nodes))
        columns[state, place] = column
        rows = Rows(
            torch.from_numpy(indices),
            torch.from_numpy(state * width + place),
            None if filled.all() else torch.from_numpy(filled),
        )
        return rows, (torch.arange(len(counts))[:, None], torch.from_numpy(columns))


def build_tree(tokens: np.ndarray, segments: np.ndarray, share_prompts: bool = False) -> Tree:
    """Number the distinct tokens of packed states.

    Args:
        tokens: int (states, length), prompt then candidates, right-padded.
        segments: int (states, length): 0 prompt, k candidate k, -1 padding.
        share_prompts: whether neighbouring rows share the common prefix of their prompts (causal
            models without gradients; sort the rows first).
    """
    segments = segments.astype(np.int64)
    states, length = tokens.shape
    is_prompt, is_branch = segments == PROMPT, segments > PROMPT
    prompt = is_prompt.sum(axis=1)
    row, column = np.nonzero(is_branch)
    candidate = segments[row, column] - 1
    place = _places(row, candidate)
    first = _first_with_prefix(tokens[row, column], row, candidate, place, column, states)
    distinct = first == column

    keep = is_prompt.copy()
    keep[row[distinct], column[distinct]] = True
    compact = np.cumsum(keep, axis=1) - 1  # column of a place after duplicates are removed
    width = int(keep.sum(axis=1).max())
    owner_row = _prompt_owners(tokens, is_prompt) if share_prompts else np.arange(states)[:, None]
    computed = keep & (~is_prompt | (owner_row == np.arange(states)[:, None]))
    number = (np.cumsum(computed) - 1).reshape(states, length)
    owner_row = np.where(is_prompt, owner_row, np.arange(states)[:, None])
    node = number[owner_row, np.arange(length)]  # of every place in `keep`

    nodes = np.repeat(node[:, :1], width, axis=1)
    places = np.nonzero(keep)
    nodes[places[0], compact[places]] = node[places]
    filled = np.arange(width) < keep.sum(axis=1)[:, None]
    depth = np.tile(np.arange(length), (states, 1))
    depth[row, column] = prompt[row] + place

    own = node[row, first]
    previous = np.where(place == 0, node[row, prompt[row] - 1], np.roll(own, 1))
    parts = np.searchsorted((row * length + column)[distinct], row * length + first)
    is_last = np.append(place[1:] == 0, True)[: len(row)]
    count = int(segments.max())
    owners = np.nonzero(computed)
    return Tree(
        tokens=_tensor(tokens[computed]),
        positions=_tensor(depth[computed]),
        rows=Rows(
            _tensor(nodes),
            _tensor(owners[0] * width + compact[owners]),
            None if filled.all() else torch.from_numpy(filled),
        ),
        visible=torch.from_numpy(_visible(row, place, compact[row, first], prompt, width)),
        before=_tensor(previous[distinct]),
        after=_tensor(own[distinct]),
        slots=_tensor(row * count + candidate),
        parts=_tensor(parts),
        last=_tensor(own[is_last]),
        last_slots=_tensor((row * count + candidate)[is_last]),
        ends=_tensor(node[np.arange(states), prompt - 1]),
        candidates=count,
    )


def _tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.int64))


def _places(row: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """Place of each token in its candidate, from 0; the tokens of a candidate are consecutive."""
    begins = (np.diff(row, prepend=-1) != 0) | (np.diff(candidate, prepend=-1) != 0)
    start = np.maximum.accumulate(np.where(begins, np.arange(len(row)), 0))
    return np.arange(len(row)) - start


def _first_with_prefix(
    token: np.ndarray,
    row: np.ndarray,
    candidate: np.ndarray,
    place: np.ndarray,
    column: np.ndarray,
    states: int,
) -> np.ndarray:
    """Column of the first token in the row whose candidate has the same prefix including it."""
    if len(row) == 0:
        return column
    shape = states, int(candidate.max()) + 1, int(place.max()) + 1
    table = np.full(shape, PADDING, np.int64)
    columns = np.zeros(shape, np.int64)
    table[row, candidate, place] = token
    columns[row, candidate, place] = column
    same = np.logical_and.accumulate(table[:, :, None] == table[:, None, :], axis=3)
    first = same.argmax(axis=2)  # (states, candidates, places)
    return columns[row, first[row, candidate, place], place]


def _prompt_owners(tokens: np.ndarray, is_prompt: np.ndarray) -> np.ndarray:
    """Row that computes each place of a prompt: the first of consecutive rows with its prefix."""
    states, length = tokens.shape
    shared = np.zeros((states, length), bool)
    same = (tokens[1:] == tokens[:-1]) & is_prompt[1:] & is_prompt[:-1]
    shared[1:] = np.logical_and.accumulate(same, axis=1)
    return np.maximum.accumulate(np.where(shared, 0, np.arange(states)[:, None]), axis=0)


def _visible(
    row: np.ndarray, place: np.ndarray, column: np.ndarray, prompt: np.ndarray, width: int
) -> np.ndarray:
    """bool (states or 1, width, width): the prompt, and the own candidate up to each token."""
    causal = np.tri(width, dtype=bool)[None]
    if len(row) == 0:
        return causal
    places = np.arange(width)
    visible = causal & (places[None, None, :] < prompt[:, None, None])
    for back in range(int(place.max()) + 1):
        later = np.flatnonzero(place >= back)
        visible[row[later], column[later], column[later - back]] = True
    return visible
