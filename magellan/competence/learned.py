"""MAGELLAN's competence estimator: the language model predicts its own success.

Gaven et al. 2025, section 4.
A head on the hidden state of the goal prompt, with its own LoRA adapter, is trained by binary
cross-entropy on (initial prompt, success) of recent episodes. A copy from some N updates ago gives
the delayed competence, so that |now - delayed| is the absolute learning progress.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from magellan.agent.backbone import Backbone
from magellan.agent.heads import frozen_copy, mlp, value
from magellan.agent.optimizers import adam, load_optimizer_state, optimizer_state
from magellan.agent.packing import Codec, batch, stack
from magellan.agent.places import PADDING
from magellan.agent.scoring import prompt_features
from magellan.competence.base import CompetenceEstimator, Outcomes
from magellan.config import CompetenceConfig
from magellan.littlezoo.goals import GoalSpace

NOW, DELAYED = "competence", "competence_delayed"


class LearnedCompetence(CompetenceEstimator):
    """Every goal is an arm; the same head also speaks of goals never practised.

    Args:
        backbone: language model with the adapters `competence` and `competence_delayed`.
        codec: turns prompts into tokens.
        goals: the training goal space.
        config: constants of the head.
        rng: stream of the batches.
        seed: seed of the head's initial values.
    """

    def __init__(
        self,
        backbone: Backbone,
        codec: Codec,
        goals: GoalSpace,
        config: CompetenceConfig,
        rng: np.random.Generator,
        seed: int,
    ) -> None:
        self.backbone = backbone
        self.config = config
        self.updates = 0
        self.last_loss = float("nan")
        self._codec = codec
        self._goals = goals
        self._rng = rng
        generator = torch.Generator().manual_seed(seed)
        self.head = mlp(backbone.width, (config.hidden,), nn.Tanh, generator)
        self.delayed_head = frozen_copy(self.head)
        backbone.blend_adapter(NOW, DELAYED)
        self.optimizer = adam(
            [*backbone.adapter(NOW).values(), *self.head.parameters()], config.learning_rate
        )
        self._buffer: deque[tuple[int, int, float]] = deque(maxlen=config.buffer)
        # As released: int(N / refresh + 1) snapshots, the oldest of which is the delayed estimator,
        # so the delay grows to the largest multiple of `refresh` not above N.
        self._snapshots: deque[dict[str, Any]] = deque(maxlen=config.delay // config.refresh + 1)
        self._packed = self._pack(goals, range(len(goals)))
        self._refresh()

    def update(self, outcomes: Outcomes) -> None:
        """Remember the outcomes, take one gradient step, and refresh every `refresh` updates."""
        self._buffer.extend(
            zip(
                outcomes.goals.tolist(),
                outcomes.standing_on.tolist(),
                outcomes.success.tolist(),
                strict=True,
            )
        )
        if self._buffer:
            self.last_loss = self._learn()
        self.updates += 1
        self._refreshed = self.updates % self.config.refresh == 0
        if self._refreshed:
            self._refresh()

    def _learn(self) -> float:
        """One step of binary cross-entropy on episodes drawn by recency rank; gives the loss."""
        episodes = [self._buffer[i] for i in self._recent(self.config.batch_size)]
        prompts = [self._goals.prompt(goal, standing_on) for goal, standing_on, _ in episodes]
        states = batch(*stack(self._codec.pack(prompts, [()] * len(prompts))))
        success = torch.tensor([outcome for _, _, outcome in episodes])
        logits = value(self.head, prompt_features(self.backbone, NOW, states))
        loss = nn.functional.binary_cross_entropy_with_logits(logits, success)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.backbone.adapter_changed(NOW)
        return float(loss.detach())

    def _recent(self, size: int) -> np.ndarray:
        """Positions in the buffer by rank 1..n, newest n, with replacement, (size,)."""
        cumulative = np.cumsum(np.arange(1, len(self._buffer) + 1, dtype=np.float64))
        draws = self._rng.random(size) * cumulative[-1]
        return np.searchsorted(cumulative, draws, side="right")

    def competence(self) -> tuple[np.ndarray, np.ndarray]:
        """Competence of the goal space at the last refresh, now and delayed, float64 (n_goals,)."""
        return self._snapshots[-1]["goals"], self._snapshots[0]["goals"]

    def changed_arms(self) -> np.ndarray | slice:
        """All goals after a refresh, none in between."""
        return slice(None) if self._refreshed else np.zeros(0, np.int64)

    def predict(self, goals: GoalSpace, positions: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Competence now and delayed of any goals, also unseen ones; two float64 (len(positions),).

        The current head is used as it is, the delayed one as of the last refresh.
        """
        packed = self._pack(goals, positions)
        return self._evaluate(NOW, self.head, packed), self._evaluate(
            DELAYED, self.delayed_head, packed
        )

    def _pack(self, goals: GoalSpace, positions: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        prompts = [goals.prompt(int(position)) for position in positions]
        return stack(self._codec.pack(prompts, [()] * len(prompts)))

    @torch.no_grad()
    def _evaluate(
        self, adapter: str, head: nn.Module, packed: tuple[np.ndarray, np.ndarray]
    ) -> np.ndarray:
        """Predicted success of packed prompts, in batches of similar length, float64 (n,)."""
        tokens, segments = packed
        order = np.argsort((segments != PADDING).sum(axis=1), kind="stable")
        predicted = np.empty(len(tokens))
        for start in range(0, len(order), self.config.refresh_batch):
            rows = order[start : start + self.config.refresh_batch]
            features = prompt_features(self.backbone, adapter, batch(tokens[rows], segments[rows]))
            predicted[rows] = torch.sigmoid(value(head, features)).numpy()
        return predicted

    def _refresh(self) -> None:
        """Evaluate the goal space and take a snapshot; the oldest one becomes the delayed copy.

        The delayed competence of the goal space is what a past refresh said, so it is remembered
        rather than computed again.
        """
        self._refreshed = True
        self._snapshots.append(
            {
                "goals": self._evaluate(NOW, self.head, self._packed),
                "adapter": _copy(self.backbone.adapter(NOW)),
                "head": _copy(self.head.state_dict()),
            }
        )
        self._load_delayed()

    def _load_delayed(self) -> None:
        self.backbone.load_adapter(DELAYED, self._snapshots[0]["adapter"])
        self.delayed_head.load_state_dict(self._snapshots[0]["head"])

    def state_dict(self) -> dict[str, Any]:
        """Head, adapter, optimizer, recent episodes, snapshots and stream."""
        return {
            "updates": self.updates,
            "last_loss": self.last_loss if self._buffer else None,
            "rng": self._rng.bit_generator.state,
            "head": self.head.state_dict(),
            "adapter": _copy(self.backbone.adapter(NOW)),
            "optimizer": optimizer_state(self.optimizer),
            "buffer": np.asarray(self._buffer, np.float64).reshape(-1, 3),
            "snapshots": {str(i): snapshot for i, snapshot in enumerate(self._snapshots)},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` gave."""
        self.updates = int(state["updates"])
        self.last_loss = float("nan") if state["last_loss"] is None else state["last_loss"]
        self._rng.bit_generator.state = state["rng"]
        self.head.load_state_dict(state["head"])
        self.backbone.load_adapter(NOW, state["adapter"])
        load_optimizer_state(self.optimizer, state["optimizer"])
        self._buffer.clear()
        self._buffer.extend((int(g), int(s), float(o)) for g, s, o in state["buffer"])
        self._snapshots.clear()
        self._snapshots.extend(state["snapshots"][str(i)] for i in range(len(state["snapshots"])))
        self._load_delayed()


def _copy(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: values.detach().clone() for name, values in parameters.items()}
