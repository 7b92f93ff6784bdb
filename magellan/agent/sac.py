"""Discrete soft actor-critic over candidate actions (SAC-GLAM; Gaven et al. 2025, appendix).

One language model with the `policy` adapter gives the policy (token scores) and, through a head on
each candidate's last hidden state, the critic. A target critic with its own head and adapter
follows by Polyak averaging.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from magellan.agent.backbone import Backbone
from magellan.agent.codec import PackedState, stack
from magellan.agent.heads import blend, frozen_copy, mlp, value
from magellan.agent.optimizers import Adam
from magellan.agent.packing import PackedBatch, batch
from magellan.agent.replay import Batch
from magellan.agent.scoring import Scores, candidate_features, score_candidates
from magellan.agent.settings import AgentConfig


class SAC:
    """Policy, critic, target critic and temperature.

    Args:
        backbone: language model with the adapters `policy` and `critic_target`.
        config: constants of the agent.
        seed: seed of the heads' initial values.
    """

    def __init__(self, backbone: Backbone, config: AgentConfig, seed: int) -> None:
        self.backbone = backbone
        self.config = config
        self.updates = 0
        generator = torch.Generator().manual_seed(seed)
        self.critic = mlp(backbone.width, config.critic_hidden, nn.ReLU, generator)
        self.target = frozen_copy(mlp(backbone.width, config.critic_hidden, nn.ReLU, generator))
        if config.target_init == "copy":
            blend(self.critic, self.target)
            backbone.blend_adapter("policy", "critic_target")
        self.log_alpha = torch.tensor(config.temperature_initial).log().requires_grad_()
        self.optimizers = self._make_optimizers()

    def _make_optimizers(self) -> dict[str, Adam]:
        rate = self.config.learning_rate
        adapter = list(self.backbone.adapter("policy").values())
        critic = list(self.critic.parameters())
        temperature = Adam([self.log_alpha], self.config.temperature_learning_rate)
        if self.config.joint_update:
            return {"joint": Adam(adapter + critic, rate), "temperature": temperature}
        return {
            "critic": Adam(adapter + critic, rate),
            "actor": Adam(adapter, rate),
            "temperature": temperature,
        }

    @property
    def temperature(self) -> float:
        """Entropy temperature alpha."""
        return float(self.log_alpha.detach().exp())

    @torch.no_grad()
    def probabilities(self, states: list[PackedState]) -> np.ndarray:
        """Policy over each state's candidates, float64 (batch, candidates), 0 past the last."""
        scores = self._score("policy", batch(*stack(states)))
        return scores.log_policy.exp().numpy().astype(np.float64)

    def update(self, transitions: Batch) -> dict[str, float]:
        """One update from a batch: critic, actor and temperature, then the target critic.

        Returns:
            losses and mean policy entropy; actor and temperature rest during the warm-up.
        """
        states = batch(transitions.tokens, transitions.segments)
        actions = torch.from_numpy(transitions.actions)
        target = self._bootstrap_target(transitions, states)
        actor_learns = self.updates >= self.config.actor_warmup_updates
        step = self._joint_step if self.config.joint_update else self._separate_steps
        losses, entropy, valid = step(states, actions, target, actor_learns)
        if actor_learns and self.config.temperature != "fixed":
            self._temperature_step(entropy, valid)
        blend(self.critic, self.target, self.config.polyak)
        self.backbone.blend_adapter("policy", "critic_target", self.config.polyak)
        self.updates += 1
        return {**losses, "entropy": float(entropy.mean())}

    def _score(self, adapter: str, states: PackedBatch) -> Scores:
        return score_candidates(self.backbone, adapter, states, self.config.score)

    @torch.no_grad()
    def _bootstrap_target(self, transitions: Batch, states: PackedBatch) -> Tensor:
        """R_n + gamma^n sum_a' pi(a'|s') (Q_target(s', a') - alpha log pi(a'|s')), (batch,).

        Only rows that have not ended need the next state at all.
        """
        target = torch.from_numpy(transitions.returns)
        discount = torch.from_numpy(transitions.discounts)
        rows = discount.nonzero().squeeze(1)
        if len(rows) == 0:
            return target
        following = self._following(transitions, rows.numpy())
        scores = self._score("policy", following)
        judged = self._score("critic_target", following)
        values = judged.spread(value(self.target, judged.features))
        soft = soft_value(scores, values, self.log_alpha.exp())
        return target.index_add(0, rows, discount[rows] * soft)

    def _following(self, transitions: Batch, rows: np.ndarray) -> PackedBatch:
        tokens, segments = transitions.next_tokens[rows], transitions.next_segments[rows]
        if self.config.next_candidates == "current":
            tokens, segments = with_candidates_of(
                (tokens, segments), (transitions.tokens[rows], transitions.segments[rows])
            )
        return batch(tokens, segments)

    def _joint_step(
        self, states: PackedBatch, actions: Tensor, target: Tensor, actor_learns: bool
    ) -> tuple[dict[str, float], Tensor, Tensor]:
        scores = self._score("policy", states)
        taken = scores.features.index_select(0, scores.index(actions))
        critic_loss = self._critic_loss(taken, target)
        actor_loss = self._actor_loss(scores)
        loss = critic_loss + actor_loss if actor_learns else critic_loss
        self._step("joint", loss)
        return _report(critic_loss, actor_loss), _entropy(scores), scores.valid

    def _separate_steps(
        self, states: PackedBatch, actions: Tensor, target: Tensor, actor_learns: bool
    ) -> tuple[dict[str, float], Tensor, Tensor]:
        only_taken = states.with_one_candidate(actions.numpy())
        taken = candidate_features(self.backbone, "policy", only_taken)
        critic_loss = self._critic_loss(taken, target)
        self._step("critic", critic_loss)
        with torch.set_grad_enabled(actor_learns):
            scores = self._score("policy", states)
            actor_loss = self._actor_loss(scores)
        if actor_learns:
            self._step("actor", actor_loss)
        return _report(critic_loss, actor_loss), _entropy(scores), scores.valid

    def _critic_loss(self, taken: Tensor, target: Tensor) -> Tensor:
        """Mean squared error of Q(s, a) for the actions taken, features (batch, width)."""
        features = taken if self.config.critic_trains_adapter else taken.detach()
        return nn.functional.mse_loss(value(self.critic, features), target)

    def _actor_loss(self, scores: Scores) -> Tensor:
        """mean_s sum_a pi(a|s) (alpha log pi(a|s) - Q(s, a)), exact over the candidates."""
        with torch.no_grad():
            values = scores.spread(value(self.critic, scores.features))
        return -soft_value(scores, values, self.log_alpha.detach().exp()).mean()

    def _temperature_step(self, entropy: Tensor, valid: Tensor) -> None:
        """Move log alpha by the gap between the policy's entropy and its target."""
        candidates = valid.sum(dim=1).float()
        if self.config.temperature == "released":
            wanted = -candidates.log()  # the sign of the released code: alpha can only fall (B3)
        else:
            wanted = self.config.target_entropy_scale * candidates.log()
        self._step("temperature", self.log_alpha.exp() * (entropy.detach() - wanted).mean())

    def _step(self, name: str, loss: Tensor) -> None:
        optimizer = self.optimizers[name]
        optimizer.zero_grad()
        loss.backward()
        if self.config.gradient_clip > 0 and name != "temperature":
            torch.nn.utils.clip_grad_norm_(optimizer.parameters, self.config.gradient_clip)
        optimizer.step()
        self.backbone.adapter_changed("policy")

    def state_dict(self) -> dict[str, Any]:
        """Heads, adapters, temperature, optimizers and counters."""
        return {
            "updates": self.updates,
            "critic": self.critic.state_dict(),
            "target": self.target.state_dict(),
            "log_alpha": self.log_alpha.detach(),
            "adapters": {
                name: dict(self.backbone.adapter(name)) for name in ("policy", "critic_target")
            },
            "optimizers": {name: each.state() for name, each in self.optimizers.items()},
        }

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` gave."""
        self.updates = int(state["updates"])
        self.critic.load_state_dict(state["critic"])
        self.target.load_state_dict(state["target"])
        self.log_alpha.copy_(state["log_alpha"])
        for name, parameters in state["adapters"].items():
            self.backbone.load_adapter(name, parameters)
        for name, saved in state["optimizers"].items():
            self.optimizers[name].load(saved)


def soft_value(scores: Scores, values: Tensor, alpha: Tensor) -> Tensor:
    """sum_a pi(a|s) (Q(s, a) - alpha log pi(a|s)): (batch, candidates) -> (batch,)."""
    log_policy = scores.log_policy.masked_fill(~scores.valid, 0.0)
    policy = scores.log_policy.exp()
    return (policy * (values - alpha * log_policy)).sum(dim=1)


def _entropy(scores: Scores) -> Tensor:
    log_policy = scores.log_policy.detach().masked_fill(~scores.valid, 0.0)
    return -(scores.log_policy.detach().exp() * log_policy).sum(dim=1)


def _report(critic_loss: Tensor, actor_loss: Tensor) -> dict[str, float]:
    return {"critic_loss": float(critic_loss.detach()), "actor_loss": float(actor_loss.detach())}


def with_candidates_of(
    heads: tuple[np.ndarray, np.ndarray], branches: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Prompts of `heads` with the candidates of `branches` (defect B4 of the released code)."""
    packed = []
    for tokens, segments, other, parts in zip(*heads, *branches, strict=True):
        prompt, branch = segments == 0, parts > 0
        packed.append(
            PackedState(
                np.concatenate([tokens[prompt], other[branch]]),
                np.concatenate([segments[prompt], parts[branch]]),
            )
        )
    return stack(packed)
