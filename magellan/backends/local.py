"""The model in this process, on a CPU or a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from magellan.agent.competence_head import CompetenceHead
from magellan.agent.grpo import GRPO
from magellan.agent.replay import Batch, Episodes
from magellan.agent.sac import SAC
from magellan.backends.base import (
    AS_BEFORE,
    CURRENT,
    MICRO_BATCH,
    Backend,
    Which,
    convert,
    describe,
)
from magellan.backends.memory import find_micro_batch, longest_state
from magellan.core.codec import Codec, Packed, PackedState, stack
from magellan.model.devices import device_name
from magellan.model.packing import PackedBatch
from magellan.model.scoring import frozen_features
from magellan.model.settings import AgentConfig, GrpoConfig
from magellan.worlds import DEFAULT_WORLD, WORLDS, World

if TYPE_CHECKING:
    from magellan.competence.learned import LearnedSettings
    from magellan.model.backbone import Backbone


class LocalBackend(Backend):
    """A backbone, and the policy, critic and estimator trained on it.

    Args:
        backbone: the language model with its adapters.
        world: whose states are tried for `backend.micro_batch: auto`.
    """

    def __init__(self, backbone: Backbone, world: World | None = None) -> None:
        self.backbone, self._world = backbone, world or WORLDS[DEFAULT_WORLD]
        self.codec = Codec(backbone.tokenizer)
        self.passes, self.nonstationary = backbone.passes, backbone.nonstationary
        self.device = device_name(backbone.device)
        self.dtype = str(backbone.dtype).removeprefix("torch.")
        self._learners: dict[str, SAC | CompetenceHead | GRPO] = {}
        self._held: dict[int, PackedBatch] = {}
        self._handles = 0

    def start_policy(self, settings: AgentConfig, seed: int) -> None:
        self._learners["sac"] = SAC(self.backbone, settings, seed)
        if self.backbone.sizes_itself and self.backbone.fast_pass is None:
            self._choose_micro_batch(settings.batch_size)

    def start_competence(self, settings: LearnedSettings, seed: int) -> None:
        self._learners["competence"] = CompetenceHead(self.backbone, settings, seed)

    def start_writing(self, settings: GrpoConfig) -> None:
        from magellan.model.loading import load_model  # imports `transformers`
        from magellan.model.scoring_check import check_writing

        name, device = self.backbone.config.model, self.backbone.device
        model, _ = load_model(name, self._world, device)
        writer = self._learners["grpo"] = GRPO(model.to(device), settings)
        check_writing(name, writer)

    @property
    def writer(self) -> GRPO:
        """The agent that writes."""
        return cast(GRPO, self._learners["grpo"])

    def write(self, prompts: list[np.ndarray], draws: np.ndarray) -> tuple[np.ndarray, float]:
        return self.writer.write(prompts, draws)

    def update_writing(
        self, prompts: list[np.ndarray], answers: np.ndarray, rewards: np.ndarray, longest: int
    ) -> float:
        return self.writer.update_writing(prompts, answers, rewards, longest)

    def _choose_micro_batch(self, batch: int) -> None:
        """Set the largest micro-batch that runs; `memory` gives the reason."""
        state = longest_state(self.codec, self._world)

        def work(states: int) -> None:
            self.agent.probe(self.backbone.batch(*stack([state] * states)))

        size = find_micro_batch(work, batch, self.device)
        self.set_micro_batch(0 if size == batch else size, f"tried on {self.device}")

    def set_micro_batch(self, micro_batch: int, reason: str) -> None:
        """Set the states per pass of an update, 0 being the whole batch."""
        self.backbone.micro_batch = micro_batch
        self.memory = describe(micro_batch, reason)

    @property
    def agent(self) -> SAC:
        """Policy and critic."""
        return cast(SAC, self._learners["sac"])

    @property
    def head(self) -> CompetenceHead:
        """The competence estimator."""
        return cast(CompetenceHead, self._learners["competence"])

    def probabilities(self, states: list[PackedState]) -> np.ndarray:
        return self.agent.probabilities(states)

    def values(self, states: list[PackedState]) -> np.ndarray:
        return self.agent.values(states)

    def critic_statistics(self, states: list[PackedState]) -> dict[str, float]:
        return self.agent.critic_statistics(states)

    def cache_prompts(self, prompts: Packed) -> int:
        held, self._handles = self._handles, self._handles + 1
        self._held[held] = self.backbone.batch(*prompts)
        return held

    def free_prompts(self, held: int) -> None:
        del self._held[held]

    def competence(self, prompts: Packed | int, which: Sequence[Which] = (CURRENT,)) -> np.ndarray:
        states = self._states(prompts)
        return np.stack([self.head.predict(estimator, states) for estimator in which])

    def representation(self, prompts: Packed | int, space: str = "read") -> np.ndarray:
        states = self._states(prompts)
        if space == "frozen":
            return frozen_features(self.backbone, states)
        return self.head.representation(states)

    def _states(self, prompts: Packed | int) -> PackedBatch:
        return self._held[prompts] if isinstance(prompts, int) else self.backbone.batch(*prompts)

    def update_policy(self, transitions: Batch) -> dict[str, float]:
        return self.agent.update_policy(transitions)

    def update_competence(self, episodes: Episodes) -> float:
        return self.head.update_competence(episodes)

    def snapshot(self, keep: int) -> None:
        self.head.snapshot(keep)

    def state_dict(self) -> dict[str, Any]:
        state = {
            name: convert(part.state_dict(), _as_array) for name, part in self._learners.items()
        }
        return state | ({MICRO_BATCH: self.backbone.micro_batch} if self.memory else {})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, learner in self._learners.items():
            learner.load_state_dict(convert(state[name], _as_tensor))
        if self.memory and MICRO_BATCH in state:  # another one would round differently
            self.set_micro_batch(int(state[MICRO_BATCH]), AS_BEFORE)

    def close(self) -> None:
        self._learners.clear()
        self._held.clear()
        if self.backbone.device.type == "cuda":
            torch.cuda.empty_cache()


def _as_array(value: Any) -> Any:
    """A tensor as an array, which shares memory on a CPU; other values as they are."""
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value


def _as_tensor(value: Any) -> Any:
    """An array as a tensor on the CPU, which shares memory; other values as they are."""
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value
