"""MAGELLAN's competence head: the language model predicts its own success (Gaven et al. 2025).

A head on the hidden state of the goal prompt, with an adapter of its own or another (`READERS`),
trained by binary cross-entropy. The estimator (`magellan.competence.learned`) decides when to
update, which episodes to keep and when to take a snapshot; it holds no tensor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from magellan.agent.learning import (
    adam,
    adam_state,
    apply_head,
    frozen_copy,
    load_adam,
    micro_batches,
    mlp,
)
from magellan.agent.replay import Episodes
from magellan.model.packing import PackedBatch
from magellan.model.scoring import prompt_features

if TYPE_CHECKING:
    from magellan.competence.learned import LearnedSettings
    from magellan.model.backbone import Backbone

NOW, DELAYED, POLICY = "competence", "competence_delayed", "policy"
"""Adapters of the current estimator, the delayed estimator and the policy."""


class AdapterRoles(NamedTuple):
    """Adapters with which the model encodes prompts for the head.

    learning: in an update.
    trains_adapter: whether the update trains this adapter too, or the head alone.
    now, delayed: in a prediction by the current or the delayed estimator.
    """

    learning: str
    trains_adapter: bool
    now: str
    delayed: str


READERS: Mapping[str, AdapterRoles] = {
    "own": AdapterRoles(NOW, True, NOW, DELAYED),
    "shared": AdapterRoles(POLICY, True, POLICY, DELAYED),
    "policy": AdapterRoles(POLICY, False, POLICY, DELAYED),
    "frozen": AdapterRoles(NOW, False, NOW, DELAYED),
    "ignored": AdapterRoles(NOW, True, POLICY, POLICY),
}
"""By `competence.adapter`. The first four are the paper's architectures A to D (Figure 9); the last
is defect B1 of the released code: without gradients the name of the adapter is lost."""


class CompetenceHead:
    """The current estimator and its snapshots, the oldest of which is the delayed estimator.

    Args:
        backbone: language model with the adapters `competence` and `competence_delayed`.
        config: constants of the head.
        seed: seed of the head's initial values.
    """

    def __init__(self, backbone: Backbone, config: LearnedSettings, seed: int) -> None:
        self.backbone, self.config = backbone, config
        self.readers = READERS[config.adapter]
        generator = torch.Generator().manual_seed(seed)
        self.head = mlp(backbone.width, (config.hidden,), nn.Tanh, generator).to(backbone.device)
        if config.initial is not None:
            *_, bias = self.head.parameters()
            nn.init.constant_(bias, math.log(config.initial / (1 - config.initial)))
        self.delayed_head = frozen_copy(self.head)
        backbone.blend_adapter(self.readers.learning, DELAYED)
        trained = self._adapter().values() if self.readers.trains_adapter else ()
        self.optimizer = adam([*trained, *self.head.parameters()], config.learning_rate)
        self.snapshots: list[dict[str, dict[str, Tensor]]] = []  # oldest first

    def update_competence(self, episodes: Episodes) -> float:
        """Take one step on the binary cross-entropy of success; returns the loss."""
        success = self.backbone.tensor(episodes.success)
        adapter, trains_adapter, *_ = self.readers

        losses = []
        self.optimizer.zero_grad()
        states = self.backbone.batch(episodes.tokens, episodes.segments)
        for micro_batch in micro_batches(self.backbone, states):
            with torch.set_grad_enabled(trains_adapter):
                features = prompt_features(self.backbone, adapter, micro_batch.states)
            logits = apply_head(self.head, features)
            labels = micro_batch.select(success)
            loss = nn.functional.binary_cross_entropy_with_logits(logits, labels)
            share = micro_batch.weigh(loss)
            share.backward()
            losses.append(share.detach())
        self.optimizer.step()
        if trains_adapter:
            self.backbone.adapter_changed(adapter)
        return float(sum(losses))

    @torch.no_grad()
    def predict(self, which: str | int, prompts: PackedBatch) -> np.ndarray:
        """P(success | prompt) by the current or the delayed estimator, or a snapshot: float64 (n,).

        which: "current", "delayed", or the snapshot's place, the oldest being 0.
        """
        if isinstance(which, int):
            self._load_delayed(which)
            try:
                return self.predict("delayed", prompts)
            finally:
                self._load_delayed(0)
        adapter, head = self.readers.now, cast(nn.Module, self.head)
        if which == "delayed":
            adapter, head = self.readers.delayed, self.delayed_head
        features = self._features(adapter, prompts)
        return torch.sigmoid(apply_head(head, features)).cpu().numpy().astype(np.float64)

    @torch.no_grad()
    def representation(self, prompts: PackedBatch) -> np.ndarray:
        """Input features of the head, of each prompt: float32 (n, width)."""
        return self._features(self.readers.now, prompts).cpu().numpy()

    def _features(self, adapter: str, prompts: PackedBatch) -> Tensor:
        return prompt_features(self.backbone, adapter, prompts, self.config.refresh_batch)

    def snapshot(self, keep: int) -> None:
        """Copy the current estimator, and forget all but the newest `keep` copies."""
        copied = {"adapter": _copy(self._adapter()), "head": _copy(self.head.state_dict())}
        self.snapshots = [*self.snapshots, copied][-keep:]
        self._load_delayed(0)

    def _adapter(self) -> Mapping[str, Tensor]:
        """Parameters of the adapter that updates read with."""
        return self.backbone.adapter(self.readers.learning)

    def _load_delayed(self, place: int) -> None:
        snapshot = self.snapshots[place]
        self.backbone.load_adapter(DELAYED, snapshot["adapter"])
        self.delayed_head.load_state_dict(snapshot["head"])

    def state_dict(self) -> dict[str, Any]:
        """Head, adapter, optimizer and snapshots."""
        return {
            "head": self.head.state_dict(),
            "adapter": dict(self._adapter()),
            "optimizer": adam_state(self.optimizer),
            "snapshots": {str(place): copied for place, copied in enumerate(self.snapshots)},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.head.load_state_dict(state["head"])
        self.backbone.load_adapter(self.readers.learning, state["adapter"])
        load_adam(self.optimizer, state["optimizer"])
        saved = state["snapshots"]
        self.snapshots = [saved[str(place)] for place in range(len(saved))]
        for place in reversed(range(len(saved) or 1)):  # all must fit the model; 0, the last, stays
            self._load_delayed(place)


def _copy(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: values.detach().clone() for name, values in parameters.items()}
