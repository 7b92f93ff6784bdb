"""A recording: the predicted competence of every goal at every refresh of a MAGELLAN run."""

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
"""Files of a recording; `CHECKSUMS` holds their checksums."""
FORMAT = 1
MOMENTS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.98)
"""Fractions of a run: hidden states are recorded at the first refresh after each."""


class Predictions:
    """Predictions at each refresh, held in memory until the run ends.

    Args:
        config: of the run, in which the estimator scores all goals.
        goals: the goal space.
        estimator: drives the sampler.
        backend: its language model.
    """

    def __init__(
        self, config: RunConfig, goals: GoalSet, estimator: CompetenceEstimator, backend: Backend
    ) -> None:
        self._config, self._goals = config, goals
        self._estimator, self._backend = estimator, backend
        self._prompts = PromptTokens(backend.codec)
        self._updates: list[int] = []
        self._competences: list[np.ndarray] = []  # float16 (2, goals) each: now, delayed
        self._vectors: dict[str, np.ndarray] = {}  # by update, float16 (goals, width)

    def record(self, update: int, spent: int) -> None:
        """Record the predictions, if the last update refreshed them.

        spent: length of the run so far, in the unit of its budget.
        """
        goals = self._estimator.changed()
        if not len(goals):
            return
        self._updates.append(update)
        self._competences.append(np.stack(self._estimator.competence(goals)).astype(np.float16))
        moment = len(self._vectors)
        if moment < len(MOMENTS) and spent >= MOMENTS[moment] * self._config.budget.end:
            vectors = self._backend.representation(self._prompts.pack(self._goals, goals))
            self._vectors[str(update)] = vectors.astype(np.float16)

    def write(self, folder: Path) -> None:
        """Write the recording and its checksums; the tables must have been written."""
        metadata = {"recording": json.dumps(self._metadata())}  # one key: order is undefined
        write_atomically(folder / PREDICTIONS, save(self._arrays(), metadata))
        sums = (f"{_sha256(folder / name)}  {name}\n" for name in RECORDED)
        write_atomically(folder / CHECKSUMS, "".join(sums).encode())

    def _arrays(self) -> dict[str, np.ndarray]:
        positions = np.arange(len(self._goals))
        now, delayed = np.stack(self._competences, axis=1)
        return {
            "updates": np.array(self._updates, np.int64),
            "now": np.ascontiguousarray(now),
            "delayed": np.ascontiguousarray(delayed),
            "codes": self._goals.codes_at(positions).astype(np.int64),
            "categories": self._goals.categories_at(positions).astype(np.int8),
            **{f"vectors_{update}": values for update, values in self._vectors.items()},
        }

    def _metadata(self) -> dict[str, Any]:
        """Identity of the run and the threshold of its weights; the same for equal runs."""
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
        """Return the whole recording."""
        competences = np.stack(self._competences)
        return {"updates": self._updates, "said": competences, "vectors": self._vectors}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`."""
        updates, size = checked_numbers(state["updates"], "updates", (None,)), len(self._goals)
        competences = checked_numbers(state["said"], "said", (len(updates), 2, size), 0, 1)
        self._updates, self._competences = updates.tolist(), list(competences)
        self._vectors = {
            str(int(update)): checked_numbers(vectors, "vectors", (size, None), -np.inf, np.inf)
            for update, vectors in state["vectors"].items()
        }


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
