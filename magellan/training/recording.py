"""A recording: what MAGELLAN's estimator said of every goal, at every refresh of a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save

from magellan.competence.prompt_tokens import PromptTokens
from magellan.config import RunConfig, counted, identity
from magellan.core.files import write_atomically
from magellan.core.parsing import checked_numbers
from magellan.samplers import SAMPLERS

if TYPE_CHECKING:
    from magellan.backends import Backend
    from magellan.competence import CompetenceEstimator
    from magellan.worlds import GoalSet

PREDICTIONS, CHECKSUMS = "predictions.safetensors", "recording.sha256"
RECORDED = (PREDICTIONS, "outcomes.csv")
"""Files of a recording, whose checksums stand in another one."""
FORMAT = 1
MOMENTS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.98)
"""Shares of a run: hidden states are of the first refresh after each."""


class Predictions:
    """What the estimator says at each refresh, in memory until the run ends.

    Args:
        config: of the run, in which the estimator scores all goals.
        goals: the goal space.
        estimator: which drives the sampler.
        backend: its language model.
    """

    def __init__(
        self, config: RunConfig, goals: GoalSet, estimator: CompetenceEstimator, backend: Backend
    ) -> None:
        self._config, self._goals = config, goals
        self._estimator, self._backend = estimator, backend
        self._prompts = PromptTokens(backend.codec)
        self._updates: list[int] = []
        self._said: list[np.ndarray] = []  # float16 (2, goals) each: now, delayed
        self._vectors: dict[str, np.ndarray] = {}  # by update, float16 (goals, width)

    def record(self, update: int, spent: int) -> None:
        """Write down what the estimator says, where its last update has refreshed it.

        spent: length of the run, in what its budget counts.
        """
        every = self._estimator.changed()
        if not len(every):
            return
        self._updates.append(update)
        self._said.append(np.stack(self._estimator.competence(every)).astype(np.float16))
        read = len(self._vectors)
        if read < len(MOMENTS) and spent >= MOMENTS[read] * self._config.budget.end:
            prompts = self._prompts.pack(self._goals, every)
            found = self._backend.representation(prompts)
            self._vectors[str(update)] = found.astype(np.float16)

    def write(self, folder: Path) -> None:
        """Write the recording of a run whose tables are there, and its checksums."""
        metadata = {"recording": json.dumps(self._about())}  # one key: several have no order
        write_atomically(folder / PREDICTIONS, save(self._arrays(), metadata))
        sums = (f"{_sha256(folder / name)}  {name}\n" for name in RECORDED)
        write_atomically(folder / CHECKSUMS, "".join(sums).encode())

    def _arrays(self) -> dict[str, np.ndarray]:
        every = np.arange(len(self._goals))
        now, delayed = np.stack(self._said, axis=1)
        return {
            "updates": np.array(self._updates, np.int64),
            "now": np.ascontiguousarray(now),
            "delayed": np.ascontiguousarray(delayed),
            "codes": self._goals.codes_at(every).astype(np.int64),
            "categories": self._goals.categories_at(every).astype(np.int8),
            **{f"vectors_{update}": values for update, values in self._vectors.items()},
        }

    def _about(self) -> dict[str, Any]:
        """What the run is and how it weighs; nothing that differs between two equal runs."""
        config = self._config
        sampler = config.section(SAMPLERS[config.sampler].section)
        return {
            "format": FORMAT,
            "identity": identity(config),
            "counted": counted(config),
            "categories": list(self._goals.world.categories.names),
            "threshold": getattr(sampler, "lp_threshold", 0.0),
        }

    def state_dict(self) -> dict[str, Any]:
        """All of it."""
        return {"updates": self._updates, "said": np.stack(self._said), "vectors": self._vectors}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` gave."""
        updates, size = checked_numbers(state["updates"], "updates", (None,)), len(self._goals)
        said = checked_numbers(state["said"], "said", (len(updates), 2, size), 0, 1)
        self._updates, self._said = updates.tolist(), list(said)
        self._vectors = {
            str(int(update)): checked_numbers(each, "vectors", (size, None), -np.inf, np.inf)
            for update, each in state["vectors"].items()
        }


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
