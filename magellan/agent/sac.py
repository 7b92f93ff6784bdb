"""Discrete soft actor-critic over candidate actions (SAC-GLAM; Gaven et al. 2025, appendix).

One language model with the `policy` adapter gives the policy (token scores) and, through a head on
each candidate's last hidden state, the critic. A target critic with its own head and adapter
follows by Polyak averaging.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from magellan.agent.learning import (
    Adam,
    Kept,
    Part,
    blend,
    frozen_copy,
    mlp,
    optimizer_step,
    parts_of,
    value,
)
from magellan.agent.replay import Batch
from magellan.core.codec import PackedState, stack
from magellan.model.packing import PackedBatch
from magellan.model.scoring import Scores, candidate_features, score_candidates
from magellan.model.settings import AgentConfig

if TYPE_CHECKING:
    from magellan.model.backbone import Backbone

ACTIVATIONS: Mapping[str, type[nn.Module]] = {"relu": nn.ReLU, "silu": nn.SiLU, "tanh": nn.Tanh}
"""By `agent.critic_activation`."""
DORMANT = 0.025
"""Threshold tau of Sokar et al. 2023 (ReDo)."""


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
            mlp(
                backbone.width,
                config.critic_hidden,
                ACTIVATIONS[config.critic_activation],
                generator,
                config.critic_norm,
            ).to(backbone.device)
            for _ in range(2)
        )
        self.critic, self.target = critic, frozen_copy(target)
        if config.target_init == "copy":
            blend(self.critic, self.target)
            backbone.blend_adapter("policy", "critic_target")
        log_alpha = torch.tensor(config.temperature_initial).log()
        self.log_alpha = log_alpha.to(backbone.device).requires_grad_()
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
        scores = self._score("policy", self.backbone.batch(*stack(states)))
        return scores.log_policy.exp().cpu().numpy().astype(np.float64)

    @torch.no_grad()
    def values(self, states: list[PackedState]) -> np.ndarray:
        """The critic's Q of each candidate, float64 (batch, candidates), 0 past the last."""
        scores = self._score("policy", self.backbone.batch(*stack(states)))
        values = scores.spread(self._q(self.critic, scores.features))
        return values.cpu().numpy().astype(np.float64)

    @torch.no_grad()
    def critic_statistics(self, states: list[PackedState]) -> dict[str, float]:
        """How alive the critic is on these states, over all their candidates.

        Returns:
            `value`: mean Q. `dormant`: share of the critic's hidden units whose mean activation is
            at most `DORMANT` of its layer's (Sokar et al. 2023, tau-dormant neurons). `spread`:
            root mean square of the features' distance from their mean over that of their length,
            0 where all candidates of all states lie on one point, at most 1.
        """
        features = self._score("policy", self.backbone.batch(*stack(states))).features
        around = (features - features.mean(dim=0)).square().sum()
        hidden, asleep = features, []
        for layer in self.critic:
            hidden = layer(hidden)
            if isinstance(layer, ACTIVATIONS[self.config.critic_activation]):
                activity = hidden.abs().mean(dim=0)
                asleep.append(activity <= DORMANT * activity.mean())
        return {
            "value": float(self._q(self.critic, features).mean()),
            "dormant": float(torch.cat(asleep).float().mean()),
            "spread": float((around / features.square().sum()).sqrt()),
        }

    def update(self, transitions: Batch) -> dict[str, float]:
        """One update from a batch: critic, actor and temperature, then the target critic.

        Returns:
            losses, mean policy entropy and temperature; actor and temperature rest during the
            warm-up.
        """
        states = self.backbone.batch(transitions.tokens, transitions.segments)
        actions = self.backbone.tensor(transitions.actions)
        target = self._bootstrap_target(transitions, states)
        actor_learns = self.updates >= self.config.actor_warmup_updates
        step = self._joint_step if self.config.joint_update else self._separate_steps
        seen = step(states, actions, target, actor_learns)
        if actor_learns and self.config.temperature != "fixed":
            self._temperature_step(seen.entropy, seen.candidates)
        blend(self.critic, self.target, self.config.polyak)
        self.backbone.blend_adapter("policy", "critic_target", self.config.polyak)
        self.updates += 1
        return {
            "critic_loss": float(seen.critic_loss),
            "actor_loss": float(seen.actor_loss),
            "entropy": float(seen.entropy.mean()),
            "temperature": self.temperature,
        }

    def probe(self, states: PackedBatch) -> None:
        """A pass with gradients over all candidates, as an update has them, that moves nothing."""
        scores = self._score("policy", states)
        target = torch.zeros(len(scores.features), device=self.backbone.device)
        loss = self._actor_loss(scores) + self._critic_loss(scores.features, target)
        loss.backward()
        for optimizer in self.optimizers.values():
            optimizer.zero_grad()

    def _score(self, adapter: str, states: PackedBatch) -> Scores:
        return score_candidates(self.backbone, adapter, states, self.config.score)

    @torch.no_grad()
    def _bootstrap_target(self, transitions: Batch, states: PackedBatch) -> Tensor:
        """R_n + gamma^n sum_a' pi(a'|s') (Q_target(s', a') - alpha log pi(a'|s')), (batch,).

        Only rows that have not ended need the next state at all.
        """
        target = self.backbone.tensor(transitions.returns)
        continuing = np.flatnonzero(transitions.discounts)
        if len(continuing) == 0:
            return target
        following = self._following(transitions, continuing)
        soft = target.new_empty(len(following))
        for part in parts_of(self.backbone, following):
            soft[part.rows if part.rows is not None else slice(None)] = self._judged(part.states)
        rows = self.backbone.tensor(continuing)
        discount = self.backbone.tensor(transitions.discounts[continuing])
        return target.index_add(0, rows, discount * soft)

    def _judged(self, following: PackedBatch) -> Tensor:
        """What the target critic expects of the policy from these states on, (n,)."""
        scores = self._score("policy", following)
        own = self.config.target_adapter == "own"
        judged = self._score("critic_target", following) if own else scores
        values = judged.spread(self._q(self.target, judged.features))
        return soft_value(scores, values, self.log_alpha.exp())

    def _following(self, transitions: Batch, rows: np.ndarray) -> PackedBatch:
        tokens, segments = transitions.next_tokens[rows], transitions.next_segments[rows]
        if self.config.next_candidates == "current":
            tokens, segments = with_candidates_of(
                (tokens, segments), (transitions.tokens[rows], transitions.segments[rows])
            )
        return self.backbone.batch(tokens, segments)

    def _joint_step(
        self, states: PackedBatch, actions: Tensor, target: Tensor, actor_learns: bool
    ) -> _Seen:
        def loss_of(part: Part) -> tuple[Tensor, _Seen]:
            scores = self._score("policy", part.states)
            taken = scores.features.index_select(0, scores.index(part.of(actions)))
            critic_loss = self._critic_loss(taken, part.of(target))
            actor_loss = self._actor_loss(scores)
            loss = critic_loss + actor_loss if actor_learns else critic_loss
            return loss, _seen(part, critic_loss, actor_loss, scores)

        return _together(self._descend("joint", states, loss_of))

    def _separate_steps(
        self, states: PackedBatch, actions: Tensor, target: Tensor, actor_learns: bool
    ) -> _Seen:
        def critic_loss_of(part: Part) -> tuple[Tensor, Tensor]:
            taken = candidate_features(self.backbone, "policy", part.states)
            loss = self._critic_loss(taken, part.of(target))
            return loss, part.weigh(loss.detach())

        def actor_loss_of(part: Part) -> tuple[Tensor, _Seen]:
            scores = self._score("policy", part.states)
            loss = self._actor_loss(scores)
            return loss, _seen(part, torch.zeros_like(loss), loss, scores)

        only_taken = states.with_one_candidate(actions.cpu().numpy())
        critic_loss = sum(self._descend("critic", only_taken, critic_loss_of))
        if actor_learns:
            seen = self._descend("actor", states, actor_loss_of)
        else:
            with torch.no_grad():
                seen = [actor_loss_of(part)[1] for part in parts_of(self.backbone, states)]
        return _together(seen)._replace(critic_loss=critic_loss)

    def _critic_loss(self, taken: Tensor, target: Tensor) -> Tensor:
        """How far Q(s, a) is off for the actions taken, features (batch, width)."""
        features = taken if self.config.critic_trains_adapter else taken.detach()
        said = value(self.critic, features)
        if self.config.critic_loss == "cross_entropy":
            wanted = target.clamp(0.0, 1.0)
            return nn.functional.binary_cross_entropy_with_logits(said, wanted)
        return nn.functional.mse_loss(said, target)

    def _q(self, head: nn.Module, features: Tensor) -> Tensor:
        """Q of candidates, features (n, width) to (n,): what the head says, or its chance."""
        said = value(head, features)
        return said.sigmoid() if self.config.critic_loss == "cross_entropy" else said

    def _actor_loss(self, scores: Scores) -> Tensor:
        """mean_s sum_a pi(a|s) (alpha log pi(a|s) - Q(s, a)), exact over the candidates."""
        with torch.no_grad():
            values = scores.spread(self._q(self.critic, scores.features))
        return -soft_value(scores, values, self.log_alpha.detach().exp()).mean()

    def _temperature_step(self, entropy: Tensor, candidates: Tensor) -> None:
        """Move log alpha by the gap between the policy's entropy and its target, (batch,) both.

        candidates: how many there are, float.
        """
        wanted = self._target_entropy(candidates)
        optimizer = self.optimizers["temperature"]
        optimizer.zero_grad()
        (self.log_alpha.exp() * (entropy - wanted).mean()).backward()
        optimizer.step()

    def _target_entropy(self, candidates: Tensor) -> Tensor:
        """Wanted entropy of each state, (batch,), in nats."""
        if self.config.temperature == "released":
            return -candidates.log()  # the sign of the released code: alpha can only fall (B3)
        if self.config.temperature == "target_entropy":
            return torch.full_like(candidates, self.config.target_entropy)
        return self.config.target_entropy_scale * candidates.log()

    def _descend(
        self, name: str, states: PackedBatch, loss_of: Callable[[Part], tuple[Tensor, Kept]]
    ) -> list[Kept]:
        optimizer, largest_norm = self.optimizers[name], self.config.gradient_clip
        kept = optimizer_step(self.backbone, optimizer, states, loss_of, largest_norm)
        self.backbone.adapter_changed("policy")
        return kept

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


class _Seen(NamedTuple):
    """What an update reports of a batch, or of a part, whose losses are then its share in it.

    entropy, candidates: of each state, float (n,): of the policy, and how many there are.
    """

    critic_loss: Tensor | float
    actor_loss: Tensor
    entropy: Tensor
    candidates: Tensor


def _seen(part: Part, critic_loss: Tensor, actor_loss: Tensor, scores: Scores) -> _Seen:
    return _Seen(
        critic_loss=part.weigh(critic_loss.detach()),
        actor_loss=part.weigh(actor_loss.detach()),
        entropy=_entropy(scores),
        candidates=scores.valid.sum(dim=1).float(),
    )


def _together(parts: list[_Seen]) -> _Seen:
    """Of a whole batch; its states are in the order of the parts."""
    if len(parts) == 1:
        return parts[0]
    critic_losses, actor_losses, entropies, candidates = zip(*parts, strict=True)
    return _Seen(sum(critic_losses), sum(actor_losses), torch.cat(entropies), torch.cat(candidates))


def _entropy(scores: Scores) -> Tensor:
    log_policy = scores.log_policy.detach().masked_fill(~scores.valid, 0.0)
    return -(scores.log_policy.detach().exp() * log_policy).sum(dim=1)


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
