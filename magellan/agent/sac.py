"""Discrete soft actor-critic over candidate actions (SAC-GLAM; Gaven et al. 2025, appendix).

One language model with the `policy` adapter gives the policy (token scores) and, through a head on
each candidate's last hidden state, the critic. A target critic with its own head and adapter
follows by Polyak averaging.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Adam

from magellan.agent.learning import (
    MicroBatch,
    adam,
    adam_state,
    apply_head,
    blend,
    frozen_copy,
    load_adam,
    micro_batches,
    mlp,
)
from magellan.agent.replay import Batch
from magellan.core.codec import PackedState, stack
from magellan.model.packing import PAIR, PackedBatch
from magellan.model.scoring import Scores, candidate_features, score_candidates
from magellan.model.settings import AgentConfig

if TYPE_CHECKING:
    from magellan.model.backbone import Backbone

DORMANT = 0.025
"""Threshold tau of dormant neurons (ReDo; Sokar et al. 2023)."""


Result = TypeVar("Result")


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
        critic, target = (
            mlp(backbone.width, config.critic_hidden, nn.ReLU, generator).to(backbone.device)
            for _ in range(2)
        )
        self.critic, self.target_critic = critic, frozen_copy(target)
        if config.target_init == "copy":
            blend(self.critic, self.target_critic)
            backbone.blend_adapter("policy", "critic_target")
        log_alpha = torch.tensor(config.temperature_initial).log()
        self.log_alpha = log_alpha.to(backbone.device).requires_grad_()
        self.optimizers = self._make_optimizers()

    def _make_optimizers(self) -> dict[str, Adam]:
        rate = self.config.learning_rate
        adapter = list(self.backbone.adapter("policy").values())
        critic = list(self.critic.parameters())
        temperature = adam([self.log_alpha], self.config.temperature_learning_rate)
        if self.config.joint_update:
            return {"joint": adam(adapter + critic, rate), "temperature": temperature}
        return {
            "critic": adam(adapter + critic, rate),
            "actor": adam(adapter, rate),
            "temperature": temperature,
        }

    @property
    def temperature(self) -> float:
        """Entropy temperature alpha."""
        return float(self.log_alpha.detach().exp())

    @torch.no_grad()
    def probabilities(self, states: list[PackedState]) -> np.ndarray:
        """pi(a|s) of each candidate, float64 (batch, candidates), 0 past the last."""
        scores = self._score("policy", self.backbone.batch(*stack(states)))
        return scores.log_policy.exp().cpu().numpy().astype(np.float64)

    @torch.no_grad()
    def values(self, states: list[PackedState]) -> np.ndarray:
        """Q(s, a) of each candidate, float64 (batch, candidates), 0 past the last."""
        scores = self._score("policy", self.backbone.batch(*stack(states)))
        values = scores.spread(apply_head(self.critic, scores.features))
        return values.cpu().numpy().astype(np.float64)

    @torch.no_grad()
    def critic_statistics(self, states: list[PackedState]) -> dict[str, float]:
        """Signs of a collapsed critic, over all candidates of these states.

        Returns:
            `value`: mean Q. `dormant`: share of the critic's hidden units whose mean activation is
            at most `DORMANT` of its layer's (Sokar et al. 2023, tau-dormant neurons). `spread`:
            RMS distance of the features from their mean over their RMS norm, from 0 (all features
            equal) to 1.
        """
        features = self._score("policy", self.backbone.batch(*stack(states))).features
        deviation = (features - features.mean(dim=0)).square().sum()
        hidden, dormant = features, []
        for layer in self.critic:
            hidden = layer(hidden)
            if isinstance(layer, nn.ReLU):
                activity = hidden.abs().mean(dim=0)
                dormant.append(activity <= DORMANT * activity.mean())
        return {
            "value": float(apply_head(self.critic, features).mean()),
            "dormant": float(torch.cat(dormant).float().mean()),
            "spread": float((deviation / features.square().sum()).sqrt()),
        }

    def update_policy(self, transitions: Batch) -> dict[str, float]:
        """Update critic, actor and temperature on a batch, then the target critic.

        During the warm-up actor and temperature are not updated.

        Returns:
            losses, mean policy entropy and temperature.
        """
        states = self.backbone.batch(transitions.tokens, transitions.segments)
        actions = self.backbone.tensor(transitions.actions)
        target = self._bootstrap_target(transitions)
        train_actor = self.updates >= self.config.actor_warmup_updates
        step = self._joint_step if self.config.joint_update else self._separate_steps
        statistics = step(states, actions, target, train_actor)
        if train_actor and self.config.temperature != "fixed":
            self._temperature_step(statistics.entropy, statistics.candidates)
        blend(self.critic, self.target_critic, self.config.polyak)
        self.backbone.blend_adapter("policy", "critic_target", self.config.polyak)
        self.updates += 1
        return {
            "critic_loss": float(statistics.critic_loss),
            "actor_loss": float(statistics.actor_loss),
            "entropy": float(statistics.entropy.mean()),
            "temperature": self.temperature,
        }

    def probe(self, states: PackedBatch) -> None:
        """Run the passes of an update and discard them; measures memory."""
        with torch.no_grad():
            self._target_value(states)
        scores = self._score("policy", states)
        target = torch.zeros(len(scores.features), device=self.backbone.device)
        loss = self._actor_loss(scores) + self._critic_loss(scores.features, target)
        loss.backward()
        for optimizer in self.optimizers.values():
            optimizer.zero_grad()

    def _score(self, adapter: str, states: PackedBatch) -> Scores:
        return score_candidates(self.backbone, adapter, states, self.config.score)

    @torch.no_grad()
    def _bootstrap_target(self, transitions: Batch) -> Tensor:
        """y = R_n + gamma^n V(s'), (batch,); s' is scored only where gamma^n > 0."""
        returns = self.backbone.tensor(transitions.returns)
        continuing = np.flatnonzero(transitions.discounts)
        if len(continuing) == 0:
            return returns
        next_states = self._next_states(transitions, continuing)
        next_values = returns.new_empty(len(next_states))
        for part in micro_batches(self.backbone, next_states):
            rows = part.rows if part.rows is not None else slice(None)
            next_values[rows] = self._target_value(part.states)
        discounts = self.backbone.tensor(transitions.discounts[continuing])
        return returns.index_add(0, self.backbone.tensor(continuing), discounts * next_values)

    def _target_value(self, states: PackedBatch) -> Tensor:
        """V(s) = sum_a pi(a|s) (Q_target(s, a) - alpha log pi(a|s)), (n,)."""
        own = self.config.target_adapter == "own"
        if own and self.backbone.reads_pairs:
            policy, target = self._score(PAIR, states.twice()).halves()
        else:
            policy = self._score("policy", states)
            target = self._score("critic_target", states) if own else policy
        values = target.spread(apply_head(self.target_critic, target.features))
        return soft_value(policy, values, self.log_alpha.exp())

    def _next_states(self, transitions: Batch, rows: np.ndarray) -> PackedBatch:
        tokens, segments = transitions.next_tokens[rows], transitions.next_segments[rows]
        if self.config.next_candidates == "current":
            tokens, segments = with_candidates_of(
                (tokens, segments), (transitions.tokens[rows], transitions.segments[rows])
            )
        return self.backbone.batch(tokens, segments)

    def _joint_step(
        self, states: PackedBatch, actions: Tensor, target: Tensor, train_actor: bool
    ) -> _Statistics:
        def loss_of(part: MicroBatch) -> tuple[Tensor, _Statistics]:
            scores = self._score("policy", part.states)
            taken = scores.features.index_select(0, scores.index(part.select(actions)))
            critic_loss = self._critic_loss(taken, part.select(target))
            actor_loss = self._actor_loss(scores)
            loss = critic_loss + actor_loss if train_actor else critic_loss
            return loss, _statistics(part, critic_loss, actor_loss, scores)

        return _combine(self._minimize("joint", states, loss_of))

    def _separate_steps(
        self, states: PackedBatch, actions: Tensor, target: Tensor, train_actor: bool
    ) -> _Statistics:
        def critic_loss_of(part: MicroBatch) -> tuple[Tensor, Tensor]:
            taken = candidate_features(self.backbone, "policy", part.states)
            loss = self._critic_loss(taken, part.select(target))
            return loss, part.weigh(loss.detach())

        def actor_loss_of(part: MicroBatch) -> tuple[Tensor, _Statistics]:
            scores = self._score("policy", part.states)
            loss = self._actor_loss(scores)
            return loss, _statistics(part, torch.zeros_like(loss), loss, scores)

        only_taken = states.with_one_candidate(actions.cpu().numpy())
        critic_loss = sum(self._minimize("critic", only_taken, critic_loss_of))
        if train_actor:
            parts = self._minimize("actor", states, actor_loss_of)
        else:
            with torch.no_grad():
                parts = [actor_loss_of(part)[1] for part in micro_batches(self.backbone, states)]
        return _combine(parts)._replace(critic_loss=critic_loss)

    def _critic_loss(self, taken: Tensor, target: Tensor) -> Tensor:
        """mean_s (Q(s, a) - y)^2, from features of the actions taken.

        Args:
            taken: (batch, width), hidden state of the last token of each action.
            target: y, (batch,).
        """
        features = taken if self.config.critic_trains_adapter else taken.detach()
        return nn.functional.mse_loss(apply_head(self.critic, features), target)

    def _actor_loss(self, scores: Scores) -> Tensor:
        """mean_s sum_a pi(a|s) (alpha log pi(a|s) - Q(s, a)), exact over the candidates."""
        with torch.no_grad():
            values = scores.spread(apply_head(self.critic, scores.features))
        return -soft_value(scores, values, self.log_alpha.detach().exp()).mean()

    def _temperature_step(self, entropy: Tensor, candidates: Tensor) -> None:
        """Step log alpha along mean_s alpha (H(pi(.|s)) - H_target(s)).

        entropy, candidates: H and number of actions of each state, float (batch,).
        """
        target = self._target_entropy(candidates)
        optimizer = self.optimizers["temperature"]
        optimizer.zero_grad()
        (self.log_alpha.exp() * (entropy - target).mean()).backward()
        optimizer.step()

    def _target_entropy(self, candidates: Tensor) -> Tensor:
        """H_target of each state, (batch,), in nats."""
        if self.config.temperature == "released":
            return -candidates.log()  # sign of the released code: alpha can only fall (B3)
        if self.config.temperature == "target_entropy":
            return torch.full_like(candidates, self.config.target_entropy)
        return self.config.target_entropy_scale * candidates.log()

    def _minimize(
        self, name: str, states: PackedBatch, loss_of: Callable[[MicroBatch], tuple[Tensor, Result]]
    ) -> list[Result]:
        """One optimizer step on the mean loss of a batch; returns each micro-batch's result.

        loss_of: micro-batch -> mean loss of its states, and a result.
        """
        optimizer, results = self.optimizers[name], []
        optimizer.zero_grad()
        for micro_batch in micro_batches(self.backbone, states):
            loss, result = loss_of(micro_batch)
            micro_batch.weigh(loss).backward()
            results.append(result)
        if self.config.gradient_clip > 0:
            parameters = optimizer.param_groups[0]["params"]
            torch.nn.utils.clip_grad_norm_(parameters, self.config.gradient_clip)
        optimizer.step()
        self.backbone.adapter_changed("policy")
        return results

    def state_dict(self) -> dict[str, Any]:
        """Heads, adapters, temperature, optimizers and counters."""
        return {
            "updates": self.updates,
            "critic": self.critic.state_dict(),
            "target": self.target_critic.state_dict(),
            "log_alpha": self.log_alpha.detach(),
            "adapters": {
                name: dict(self.backbone.adapter(name)) for name in ("policy", "critic_target")
            },
            "optimizers": {name: adam_state(value) for name, value in self.optimizers.items()},
        }

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.updates = int(state["updates"])
        self.critic.load_state_dict(state["critic"])
        self.target_critic.load_state_dict(state["target"])
        self.log_alpha.copy_(state["log_alpha"])
        for name, parameters in state["adapters"].items():
            self.backbone.load_adapter(name, parameters)
        for name, optimizer_state in state["optimizers"].items():
            load_adam(self.optimizers[name], optimizer_state)


def soft_value(scores: Scores, values: Tensor, alpha: Tensor) -> Tensor:
    """V(s) = sum_a pi(a|s) (Q(s, a) - alpha log pi(a|s)): (batch, candidates) -> (batch,)."""
    log_policy = scores.log_policy.masked_fill(~scores.valid, 0.0)
    policy = scores.log_policy.exp()
    return (policy * (values - alpha * log_policy)).sum(dim=1)


class _Statistics(NamedTuple):
    """Statistics of an update, of a batch or of a micro-batch.

    critic_loss, actor_loss: of a micro-batch, weighted by its share of the batch.
    entropy, candidates: H(pi(.|s)) and number of actions of each state, float (n,).
    """

    critic_loss: Tensor | float
    actor_loss: Tensor
    entropy: Tensor
    candidates: Tensor


def _statistics(
    part: MicroBatch, critic_loss: Tensor, actor_loss: Tensor, scores: Scores
) -> _Statistics:
    log_policy = scores.log_policy.detach()
    return _Statistics(
        critic_loss=part.weigh(critic_loss.detach()),
        actor_loss=part.weigh(actor_loss.detach()),
        entropy=-(log_policy.exp() * log_policy.masked_fill(~scores.valid, 0.0)).sum(dim=1),
        candidates=scores.valid.sum(dim=1).float(),
    )


def _combine(parts: list[_Statistics]) -> _Statistics:
    """Statistics of the batch from those of its micro-batches."""
    if len(parts) == 1:
        return parts[0]
    critic_losses, actor_losses, entropies, candidates = zip(*parts, strict=True)
    return _Statistics(
        sum(critic_losses), sum(actor_losses), torch.cat(entropies), torch.cat(candidates)
    )


def with_candidates_of(
    prompts: tuple[np.ndarray, np.ndarray], candidates: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Prompts of some states with candidates of others (defect B4 of the released code)."""
    packed = []
    for tokens, segments, actions, numbers in zip(*prompts, *candidates, strict=True):
        prompt, action = segments == 0, numbers > 0
        packed.append(
            PackedState(
                np.concatenate([tokens[prompt], actions[action]]),
                np.concatenate([segments[prompt], numbers[action]]),
            )
        )
    return stack(packed)
