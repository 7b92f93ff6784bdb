"""Independent named random streams derived from one root seed."""

from __future__ import annotations

import numpy as np

STREAMS = ("world", "policy", "sampler", "replay", "init", "evaluator")
"""Streams of every run; estimators use additional names."""


def stream(seed: int, name: str) -> np.random.Generator:
    """Return a generator that depends only on the seed and its name."""
    return np.random.default_rng([seed, *name.encode()])


class Streams:
    """The random streams of a run, by name; `seed`: root seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._generators: list[tuple[str, np.random.Generator]] = []

    def __call__(self, name: str) -> np.random.Generator:
        """Return a new generator at the start of the stream of this name."""
        rng = stream(self.seed, name)
        self._generators.append((name, rng))
        return rng

    def restart(self, seed: int) -> None:
        """Switch to another root seed, resetting all generators returned so far."""
        self.seed = seed
        for name, rng in self._generators:
            rng.bit_generator.state = stream(seed, name).bit_generator.state


def initial_seeds(seed: int) -> list[int]:
    """Return the seeds of a run's initial weights: adapters, agent, estimators."""
    return [int(part) for part in stream(seed, "init").integers(2**31, size=3)]


def choose(probabilities: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw one column per row in proportion to probabilities (batch, candidates), int64 (batch,).

    A column of probability 0 is never drawn.
    """
    cumulative = np.cumsum(probabilities, axis=1)
    thresholds = rng.random((len(probabilities), 1)) * cumulative[:, -1:]
    return (cumulative <= thresholds).sum(axis=1)
