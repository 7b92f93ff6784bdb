"""An ensemble of logistic heads on frozen features of goals; they disagree where data are few.

The estimator of value disagreement sampling (VDS, Zhang, Abbeel and Pinto 2020, arXiv 2006.09641).
Cheap: the language model reads each goal once, the heads need numpy only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from pydantic import Field

from magellan.competence.base import CompetenceEstimator, Outcomes
from magellan.competence.prompt_tokens import GoalFeatures
from magellan.competence.registry import EstimatorParts, register_estimator
from magellan.core.parsing import checked_numbers
from magellan.core.settings import BatchSize, Section, StepSize
from magellan.worlds import GoalSet

BETAS = np.array([0.9, 0.999])[:, None, None]
"""Of Adam's two moments."""
LARGEST = 1e300
"""Largest absolute value allowed in a saved state."""


class EnsembleSettings(Section):
    """The estimator `ensemble`."""

    heads: int = Field(3, ge=2, le=100, description="Logistic heads.")
    learning_rate: StepSize = Field(1e-3, description="Adam step size.")
    batch_size: BatchSize = Field(256, description="Episodes per update, drawn for each head.")
    buffer: int = Field(5_000, ge=1, le=10**6, description="Most recent episodes kept.")
    delay: int = Field(
        100, ge=1, le=10**4, description="Updates from delayed to current competence."
    )


class Ensemble(CompetenceEstimator):
    """Mean and standard deviation over heads, each with its own initial values and batches.

    goals: the training goal space.
    features: (goals, positions (n,) or None: all) -> float32 (n, width), constant.
    rng: stream of initial values and batches.
    """

    def __init__(
        self,
        goals: GoalSet,
        features: Callable[..., np.ndarray],
        settings: EnsembleSettings,
        rng: np.random.Generator,
    ) -> None:
        self._goals, self._features, self._settings, self._rng = goals, features, settings, rng
        raw = features(goals)
        # Squares of larger ones overflow in float32.
        self._scale = np.float32(max(1.0, float(np.abs(raw).max()) / 1e15))
        scaled = raw / self._scale
        self._mean, std = scaled.mean(axis=0), scaled.std(axis=0)
        self._std = np.where(std > 0, std, 1.0)
        self._inputs = self._standardise(raw)
        shape = settings.heads, self._inputs.shape[1]
        self._weights = rng.standard_normal(shape) / np.sqrt(shape[1])
        self._past = np.repeat(self._weights[None], settings.delay, axis=0)
        self._moments = np.zeros((2, *shape))
        self._buffer = np.zeros(
            (settings.buffer, 2)
        )  # goal and success; goal -1: no longer in the space
        self._episodes = self._steps = self._updates = 0
        self._predictions: tuple[np.ndarray, ...] | None = None

    def _standardise(self, raw: np.ndarray) -> np.ndarray:
        """Features standardised over the first goal space, and a 1: float32 (n, width + 1)."""
        standard = (raw / self._scale - self._mean) / self._std
        return np.column_stack([standard, np.ones(len(raw))]).astype(np.float32)

    def update(self, outcomes: Outcomes) -> None:
        """Store the heads as a past version, then take a gradient step of each."""
        for episode in zip(outcomes.goals.tolist(), outcomes.success.tolist(), strict=True):
            self._buffer[self._episodes % len(self._buffer)] = episode
            self._episodes += 1
        self._past[self._updates % len(self._past)] = self._weights
        self._updates += 1
        episodes = self._buffer[: self._episodes]
        episodes = episodes[episodes[:, 0] >= 0]
        if len(episodes):
            self._learn(episodes)
        self._predictions = None

    def _learn(self, episodes: np.ndarray) -> None:
        """One Adam step on the binary cross-entropy of episodes (m, 2)."""
        config = self._settings
        batch = episodes[self._rng.integers(len(episodes), size=(config.heads, config.batch_size))]
        inputs = self._inputs[batch[..., 0].astype(np.int64)]  # (heads, batch, width + 1)
        errors = _sigmoid((inputs @ self._weights[..., None])[..., 0]) - batch[..., 1]
        gradient = (errors[:, None] @ inputs)[:, 0] / config.batch_size
        self._steps += 1
        self._moments += (1.0 - BETAS) * (np.stack([gradient, gradient**2]) - self._moments)
        first, second = self._moments / (1.0 - BETAS**self._steps)
        self._weights -= config.learning_rate * first / (np.sqrt(second) + 1e-8)

    def known(self) -> np.ndarray:
        """All goals."""
        return np.arange(len(self._inputs))

    def competence(self, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean of the heads, now and `delay` updates ago."""
        now, delayed, _ = self._all()
        return now[which], delayed[which]

    def uncertainty(self, which: np.ndarray) -> np.ndarray:
        """Standard deviation over the heads, now."""
        return self._all()[2][which]

    def _all(self) -> tuple[np.ndarray, ...]:
        """Now, delayed and uncertainty of all goals."""
        if self._predictions is None:
            self._predictions = self._predict(self._inputs)
        return self._predictions

    def _predict(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        past = self._past[self._updates % len(self._past)]
        heads = np.concatenate([self._weights, past]).astype(np.float32)
        now, delayed = np.split(_sigmoid((heads @ inputs.T).astype(np.float64)), 2)
        return now.mean(axis=0), delayed.mean(axis=0), now.std(axis=0)

    def predict(self, goals: GoalSet, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if goals is self._goals:
            return self.competence(np.asarray(positions))
        now, delayed, _ = self._predict(self._standardise(self._features(goals, positions)))
        return now, delayed

    def set_goal_space(self, goals: GoalSet) -> None:
        """Keep the heads, and episodes of goals in both spaces."""
        episodes = self._buffer[: self._episodes]
        rows = np.flatnonzero(episodes[:, 0] >= 0)
        episodes[rows, 0] = goals.positions_in(self._goals, episodes[rows, 0].astype(np.int64))
        self._goals, self._predictions = goals, None
        self._inputs = self._standardise(self._features(goals))

    def state_dict(self) -> dict[str, Any]:
        """Heads, past heads, Adam moments, episodes, counts and random state; no features."""
        return {
            **{name: array.copy() for name, array in self._arrays().items()},
            "counts": np.array([self._episodes, self._steps, self._updates]),
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
        last = np.array([len(self._inputs) - 1, 1])
        checked_numbers(self._buffer, "buffer", self._buffer.shape, [-1, 0], last)
        counts = checked_numbers(state["counts"], "counts", (3,))
        self._episodes, self._steps, self._updates = counts.tolist()
        self._rng.bit_generator.state = state["rng"]
        self._predictions = None


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    return 0.5 * (1.0 + np.tanh(0.5 * logits))


@register_estimator("ensemble", "Ensemble", EnsembleSettings, needs_features=True, arms="goals")
def build(parts: EstimatorParts, settings: EnsembleSettings) -> Ensemble:
    """Build on features of the run's language model."""
    assert parts.backend is not None
    stream = parts.stream("ensemble")
    return Ensemble(parts.goals, GoalFeatures(parts.backend), settings, stream)
