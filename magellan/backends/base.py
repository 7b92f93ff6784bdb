"""What the trainer and the estimators ask of the model, wherever it lives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from magellan.agent.replay import Batch, Episodes
from magellan.core.codec import Codec, Packed, PackedState
from magellan.core.errors import InputError
from magellan.model.settings import AgentConfig

if TYPE_CHECKING:
    from magellan.agent.competence_head import HeadSettings

CURRENT, DELAYED = "current", "delayed"
Which = str | int
"""An estimator of competence: `CURRENT`, `DELAYED`, or the number of a snapshot."""


class Backend(ABC):
    """A language model that acts, judges, predicts its own success, and learns.

    Whoever calls it cannot tell whether the model is in this process, on a GPU or behind servers:
    arrays and plain values go in and come out.

    Attributes:
        codec: text to tokens.
        passes: what computes the model's passes, in words.
        device: where, in words.
        dtype: number format of the model's weights; heads, adapters and optimizers have float32.
        memory: how much of a batch is computed at once, and why, in words; empty where nothing
            was measured.
    """

    codec: Codec
    passes: str
    device: str
    dtype: str
    memory: str = ""

    @abstractmethod
    def start_policy(self, settings: AgentConfig, seed: int) -> None:
        """Make policy and critic anew; `probabilities`, `values` and `update_policy` need them.

        seed: of the initial values.
        """

    @abstractmethod
    def start_competence(self, settings: HeadSettings, seed: int) -> None:
        """Make the estimator of competence anew, with no snapshot.

        seed: of the initial values.
        """

    @abstractmethod
    def probabilities(self, states: list[PackedState]) -> np.ndarray:
        """Policy over each state's candidates, float64 (batch, candidates), 0 past the last."""

    @abstractmethod
    def values(self, states: list[PackedState]) -> np.ndarray:
        """The critic's Q of each candidate, float64 (batch, candidates), 0 past the last."""

    def critic_statistics(self, states: list[PackedState]) -> dict[str, float]:
        """How alive the critic is on these states: `value`, `dormant` and `spread` as
        `magellan.agent.sac.SAC.critic_statistics` gives them; NaN where a backend does not tell.
        """
        return dict.fromkeys(("value", "dormant", "spread"), float("nan"))

    @abstractmethod
    def hold(self, prompts: Packed) -> int:
        """Keep prompts that will be asked for again, so that they travel once; gives a handle."""

    @abstractmethod
    def release(self, held: int) -> None:
        """Forget prompts that `hold` took."""

    @abstractmethod
    def competence(self, prompts: Packed | int, which: Sequence[Which] = (CURRENT,)) -> np.ndarray:
        """Predicted success, float64 (len(which), n).

        Args:
            prompts: n packed prompts, or what `hold` gave for them.
            which: estimators that are asked; asking two at once costs less than one by one.
        """

    def representation(self, prompts: Packed | int, space: str = "read") -> np.ndarray:
        """How the current estimator of competence sees n prompts, float32 (n, width).

        Args:
            prompts: n packed prompts, or what `hold` gave for them.
            space: `read`, what its head reads of them; `hidden`, the head's hidden layer; or
                `frozen`, what the model makes of them without any adapter, which needs no
                estimator.

        Raises:
            InputError: this backend does not tell.
        """
        raise InputError(
            f"this backend ({type(self).__name__}) does not tell how it reads; allowed: "
            "backend.kind local"
        )

    @abstractmethod
    def update_policy(self, transitions: Batch) -> dict[str, float]:
        """One update of policy and critic.

        Returns:
            `critic_loss`, `actor_loss`, `entropy`, `temperature`.
        """

    @abstractmethod
    def update_competence(self, episodes: Episodes) -> float:
        """One update of the current estimator of competence; gives its loss."""

    @abstractmethod
    def snapshot(self) -> int:
        """Keep the current estimator of competence as it is; gives its number."""

    @abstractmethod
    def restore(self, snapshot: int) -> None:
        """Make a snapshot the delayed estimator."""

    @abstractmethod
    def discard(self, snapshot: int) -> None:
        """Forget a snapshot, which must not be the delayed estimator."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """All that learning changes, by what was started: arrays and JSON-able values.

        Arrays may be views of what the next update moves: write or copy them before it.
        """

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` gave, after the same was started."""

    def close(self) -> None:  # noqa: B027  # most have nothing to end
        """Free what the backend holds outside this process's memory; the last call to it."""
