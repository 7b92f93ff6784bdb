"""A few logistic heads on frozen features of goals, which differ where they have seen little.

What value disagreement (VDS, Zhang, Abbeel and Pinto 2020, arXiv 2006.09641) needs, and cheap: the
language model reads each goal once. numpy alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from pydantic import Field

from magellan.competence.base import CompetenceEstimator, Outcomes
from magellan.competence.features import GoalFeatures
from magellan.competence.registry import EstimatorParts, register_estimator
from magellan.core.parsing import checked_numbers
from magellan.core.settings import BatchSize, Section, StepSize
from magellan.worlds import GoalSet

BETAS = np.array([0.9, 0.999])[:, None, None]
LARGEST = 1e300


class EnsembleSettings(Section):
    """The estimator `ensemble`."""

    heads: int = Field(3, ge=2, le=100, description="Logistic heads.")
    learning_rate: StepSize = Field(1e-3, description="Adam step size.")
    batch_size: BatchSize = Field(256, description="Episodes per update, drawn for each head.")
    buffer: int = Field(5_000, ge=1, le=10**6, description="Most recent episodes kept.")
    delay: int = Field(100, ge=1, le=10**4, description="Updates back to delayed competence.")


class Ensemble(CompetenceEstimator):
    """Mean and standard deviation of what the heads predict; each has its own start and batches.

    goals: the training goal space.
    features: (goals, positions (n,) or None for all) to float32 (n, width), always the same.
    rng: of initial values and batches.
    """

    def __init__(
        self,
        goals: GoalSet,
        features: Callable[..., np.ndarray],
        settings: EnsembleSettings,
        rng: np.random.Generator,
    ) -> None:
        self._goals, self._features, self._settings, self._rng = goals, features, settings, rng
        read = features(goals)
        self._mean, spread = read.mean(axis=0), read.std(axis=0)
        self._spread = np.where(spread > 0, spread, 1.0)
        self._read = self._prepared(read)
        shape = settings.heads, self._read.shape[1]
        self._weights = rng.standard_normal(shape) / np.sqrt(shape[1])
        self._past = np.repeat(self._weights[None], settings.delay, axis=0)
        self._moments = np.zeros((2, *shape))
        self._buffer = np.zeros((settings.buffer, 2))  # goal and success; goal -1: gone
        self._heard = self._steps = self._updates = 0
        self._said: tuple[np.ndarray, ...] | None = None

    def _prepared(self, read: np.ndarray) -> np.ndarray:
        """Features standardised over the first goal space, and 1: float32 (n, width + 1)."""
        standard = (read - self._mean) / self._spread
        return np.column_stack([standard, np.ones(len(read))]).astype(np.float32)

    def update(self, outcomes: Outcomes) -> None:
        """A gradient step of each head; what they were goes to the past."""
        for episode in zip(outcomes.goals.tolist(), outcomes.success.tolist(), strict=True):
            self._buffer[self._heard % len(self._buffer)] = episode
            self._heard += 1
        self._past[self._updates % len(self._past)] = self._weights
        self._updates += 1
        held = self._buffer[: self._heard]
        held = held[held[:, 0] >= 0]
        if len(held):
            self._learn(held)
        self._said = None

    def _learn(self, held: np.ndarray) -> None:
        """Binary cross-entropy on episodes (m, 2), by Adam."""
        config = self._settings
        drawn = held[self._rng.integers(len(held), size=(config.heads, config.batch_size))]
        read = self._read[drawn[..., 0].astype(np.int64)]  # (heads, batch, width + 1)
        errors = _sigmoid((read @ self._weights[..., None])[..., 0]) - drawn[..., 1]
        gradient = (errors[:, None] @ read)[:, 0] / config.batch_size
        self._steps += 1
        self._moments += (1.0 - BETAS) * (np.stack([gradient, gradient**2]) - self._moments)
        first, second = self._moments / (1.0 - BETAS**self._steps)
        self._weights -= config.learning_rate * first / (np.sqrt(second) + 1e-8)

    def known(self) -> np.ndarray:
        """All goals."""
        return np.arange(len(self._read))

    def competence(self, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean of the heads, now and `delay` updates ago."""
        now, delayed, _ = self._all()
        return now[which], delayed[which]

    def uncertainty(self, which: np.ndarray) -> np.ndarray:
        """Standard deviation over the heads, now."""
        return self._all()[2][which]

    def _all(self) -> tuple[np.ndarray, ...]:
        """Now, delayed and uncertainty of all goals."""
        if self._said is None:
            self._said = self._predicted(self._read)
        return self._said

    def _predicted(self, read: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        past = self._past[self._updates % len(self._past)]
        heads = np.concatenate([self._weights, past]).astype(np.float32)
        said = _sigmoid((heads @ read.T).astype(np.float64))
        now, delayed = np.split(said, 2)
        return now.mean(axis=0), delayed.mean(axis=0), now.std(axis=0)

    def predict(self, goals: GoalSet, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if goals is self._goals:
            return self.competence(np.asarray(positions))
        now, delayed, _ = self._predicted(self._prepared(self._features(goals, positions)))
        return now, delayed

    def set_goal_space(self, goals: GoalSet) -> None:
        """Heads stay, and so do episodes of goals that stay."""
        held = self._buffer[: self._heard]
        kept = np.flatnonzero(held[:, 0] >= 0)
        held[kept, 0] = goals.positions_in(self._goals, held[kept, 0].astype(np.int64))
        self._goals, self._said = goals, None
        self._read = self._prepared(self._features(goals))

    def state_dict(self) -> dict[str, Any]:
        """Heads, past ones, moments of Adam, episodes, counts and stream; no features."""
        return {
            **{name: array.copy() for name, array in self._arrays().items()},
            "counts": np.array([self._heard, self._steps, self._updates]),
            "rng": self._rng.bit_generator.state,
        }

    def _arrays(self) -> dict[str, np.ndarray]:
        return {
            "weights": self._weights,
            "past": self._past,
            "moments": self._moments,
            "buffer": self._buffer,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, array in self._arrays().items():
            array[:] = checked_numbers(state[name], name, array.shape, -LARGEST, LARGEST)
        last = np.array([len(self._read) - 1, 1])
        checked_numbers(self._buffer, "buffer", self._buffer.shape, [-1, 0], last)
        counts = checked_numbers(state["counts"], "counts", (3,))
        self._heard, self._steps, self._updates = counts.tolist()
        self._rng.bit_generator.state = state["rng"]
        self._said = None


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    return 0.5 * (1.0 + np.tanh(0.5 * logits))


@register_estimator("ensemble", "Ensemble", EnsembleSettings, reads=True)
def build(parts: EstimatorParts, settings: EnsembleSettings) -> Ensemble:
    """On features of the run's language model."""
    assert parts.backend is not None
    stream = parts.stream("ensemble")
    return Ensemble(parts.goals, GoalFeatures(parts.backend), settings, stream)
