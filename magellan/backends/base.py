"""Interface of the model for the trainer and the estimators, wherever the model runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from magellan.agent.replay import Batch, Episodes
from magellan.core.codec import Codec, Packed, PackedState
from magellan.core.errors import InputError
from magellan.model.settings import AgentConfig, GrpoConfig

if TYPE_CHECKING:
    from magellan.competence.learned import LearnedSettings

CURRENT, DELAYED = "current", "delayed"
Which = str | int
"""A competence estimator: `CURRENT`, `DELAYED`, or the place of a snapshot, 0 the oldest, which is
the delayed one."""
MICRO_BATCH, AS_BEFORE = "micro_batch", "as this run began"
"""Key of a backend's state; reason of the micro-batch that it holds."""


def describe(micro_batch: int, reason: str) -> str:
    """A chosen micro-batch, 0 being the whole batch, and the reason, as text for the log."""
    return f"micro-batch {micro_batch or 'of the whole batch'} (auto: {reason})"


def convert(tree: Any, leaf: Callable[[Any], Any] = lambda value: value) -> Any:
    """A tree of mappings as dicts, with `leaf` applied to all that is no mapping."""
    if isinstance(tree, Mapping):
        return {key: convert(inner, leaf) for key, inner in tree.items()}
    return leaf(tree)


class Backend(ABC):
    """A language model with policy, critic and competence estimator, and their training.

    Callers pass and receive arrays and plain values, whether the model is in this process, on a GPU
    or behind servers.

    Attributes:
        codec: text to tokens.
        passes: implementation of the model's passes, as text.
        device: where it runs, as text.
        dtype: number format of the model's weights; heads, adapters and optimizers have float32.
        memory: chosen micro-batch and the reason, as text; empty where none was chosen.
        nonstationary: whether the model changes outside this package, so that past predictions
            cannot be computed again.
    """

    codec: Codec
    passes: str
    device: str
    dtype: str
    memory: str = ""
    nonstationary: bool = False

    @abstractmethod
    def start_policy(self, settings: AgentConfig, seed: int) -> None:
        """Create policy and critic; `probabilities`, `values` and `update_policy` need them.

        seed: of the initial values.
        """

    @abstractmethod
    def start_competence(self, settings: LearnedSettings, seed: int) -> None:
        """Create the competence estimator, with no snapshot.

        seed: of the initial values.
        """

    @abstractmethod
    def probabilities(self, states: list[PackedState]) -> np.ndarray:
        """Policy over each state's candidates, float64 (batch, candidates), 0 past the last."""

    @abstractmethod
    def values(self, states: list[PackedState]) -> np.ndarray:
        """The critic's Q of each candidate, float64 (batch, candidates), 0 past the last."""

    def critic_statistics(self, states: list[PackedState]) -> dict[str, float]:
        """`value`, `dormant` and `spread` of the critic on these states, as defined in
        `magellan.agent.sac.SAC.critic_statistics`; NaN where a backend does not support it.
        """
        return dict.fromkeys(("value", "dormant", "spread"), float("nan"))

    @abstractmethod
    def cache_prompts(self, prompts: Packed) -> int:
        """Store prompts for repeated predictions, so that they are sent once; returns a handle."""

    @abstractmethod
    def free_prompts(self, held: int) -> None:
        """Free prompts stored by `cache_prompts`."""

    @abstractmethod
    def competence(self, prompts: Packed | int, which: Sequence[Which] = (CURRENT,)) -> np.ndarray:
        """Predicted success, float64 (len(which), n).

        Args:
            prompts: n packed prompts, or their handle from `cache_prompts`.
            which: estimators; two in one call cost less than two calls.
        """

    def representation(self, prompts: Packed | int, space: str = "read") -> np.ndarray:
        """Representation of n prompts in the current competence estimator, float32 (n, width).

        Args:
            prompts: n packed prompts, or their handle from `cache_prompts`.
            space: `read`, the input of its head; or `frozen`, the model's hidden state without
                any adapter, which needs no estimator.

        Raises:
            InputError: this backend does not support it.
        """
        raise InputError(
            f"this backend ({type(self).__name__}) gives no representations; allowed: "
            "backend.kind local"
        )

    @abstractmethod
    def update_policy(self, transitions: Batch) -> dict[str, float]:
        """Update policy and critic once.

        Returns:
            `critic_loss`, `actor_loss`, `entropy`, `temperature`.
        """

    def start_writing(self, settings: GrpoConfig) -> None:
        """Create an agent that writes answers; `write` and `update_writing` need it.

        Raises:
            InputError: this backend, or the model, does not support it.
        """
        raise InputError(
            f"this backend ({type(self).__name__}) writes no answers; allowed: backend.kind local"
        )

    def write(self, prompts: list[np.ndarray], draws: np.ndarray) -> tuple[np.ndarray, float]:
        """Write an answer to each of n prompts; see `magellan.agent.grpo.GRPO.write`."""
        raise NotImplementedError

    def update_writing(
        self, prompts: list[np.ndarray], answers: np.ndarray, rewards: np.ndarray, longest: int
    ) -> float:
        """Update the writing agent once and return the loss; see `magellan.agent.grpo.GRPO`."""
        raise NotImplementedError

    @abstractmethod
    def update_competence(self, episodes: Episodes) -> float:
        """Update the current competence estimator once; returns its loss."""

    @abstractmethod
    def snapshot(self, keep: int) -> None:
        """Copy the current competence estimator, and forget all but the newest `keep` copies.

        The oldest copy is the delayed estimator.
        """

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """All trained state, of policy and estimator as started: arrays and JSON-able values.

        Arrays may share memory with the parameters: write or copy them before the next update.
        """

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned, after the same `start_...` calls."""

    def close(self) -> None:  # noqa: B027  # most have nothing to free
        """Free what the backend holds outside this process's memory; the last call to it."""
