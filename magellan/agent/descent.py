"""One step of an optimizer; its gradient is a sum over parts of a batch too large for one pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import torch
from torch import Tensor

from magellan.agent.optimizers import Adam
from magellan.model.packing import PackedBatch

if TYPE_CHECKING:
    from magellan.model.backbone import Backbone

Kept = TypeVar("Kept")


class Part(NamedTuple):
    """Some states of a batch.

    states: these.
    rows: int64 (n,), where they stand in the batch; None: they are the whole batch.
    share: of the batch, so that means over parts add up to the mean over the batch.
    """

    states: PackedBatch
    rows: Tensor | None
    share: float

    def of(self, values: Tensor) -> Tensor:
        """Values of the batch, (batch,), for these states: (n,)."""
        return values if self.rows is None else values[self.rows]

    def weigh(self, mean: Tensor) -> Tensor:
        """What a mean over these states adds to that over the batch."""
        return mean if self.rows is None else mean * self.share


def parts_of(backbone: Backbone, states: PackedBatch) -> list[Part]:
    """A batch in parts of `backend.micro_batch` states, the longest with the longest.

    The whole batch where that is 0, and where a written-out pass reads, which has pieces of its
    own.
    """
    size = backbone.micro_batch
    if backbone.reader is not None or not 0 < size < len(states):
        return [Part(states, None, 1.0)]
    return [
        Part(some, backbone.tensor(rows), len(some) / len(states))
        for rows, some in states.parts(size)
    ]


def descend(
    backbone: Backbone,
    optimizer: Adam,
    states: PackedBatch,
    loss_of: Callable[[Part], tuple[Tensor, Kept]],
    largest_norm: float = 0.0,
) -> list[Kept]:
    """Move an optimizer's parameters once, along the gradient of the mean loss of a batch.

    Args:
        backbone: whose micro-batches are taken.
        optimizer: of the parameters.
        states: the batch.
        loss_of: mean loss of a part's states, and what is to be kept of them.
        largest_norm: gradients are scaled down to this norm; 0 is no limit.

    Returns:
        what is kept of each part.
    """
    optimizer.zero_grad()
    kept = []
    for part in parts_of(backbone, states):
        loss, keep = loss_of(part)
        part.weigh(loss).backward()
        kept.append(keep)
    if largest_norm > 0:
        torch.nn.utils.clip_grad_norm_(optimizer.parameters, largest_norm)
    optimizer.step()
    return kept
