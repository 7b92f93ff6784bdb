"""One root seed, named streams; none of them is a global generator."""

from __future__ import annotations

import numpy as np

STREAMS = ("world", "policy", "sampler", "replay", "init")
"""Streams that every run has; estimators ask for more by names of their own."""


def stream(seed: int, name: str) -> np.random.Generator:
    """One of the independent generators of a run.

    It depends on the seed and its own name only, so adding one never changes another.
    """
    return np.random.default_rng([seed, *name.encode()])


class Streams:
    """The streams of a run, each by its name, until they begin anew with another seed.

    seed: root seed.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._given: list[tuple[str, np.random.Generator]] = []

    def __call__(self, name: str) -> np.random.Generator:
        """A generator at the beginning of the stream of this name."""
        rng = stream(self.seed, name)
        self._given.append((name, rng))
        return rng

    def restart(self, seed: int) -> None:
        """Take another root seed; every generator that was given begins anew."""
        self.seed = seed
        for name, rng in self._given:
            rng.bit_generator.state = stream(seed, name).bit_generator.state


def initial_seeds(seed: int) -> list[int]:
    """Seeds of a run's initial values: of the adapters, of the agent, of the estimators."""
    return [int(part) for part in stream(seed, "init").integers(2**31, size=3)]


def choose(probabilities: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw one column per row in proportion to probabilities (batch, candidates), int64 (batch,).

    A column of probability 0 is never drawn.
    """
    cumulative = np.cumsum(probabilities, axis=1)
    thresholds = rng.random((len(probabilities), 1)) * cumulative[:, -1:]
    return (cumulative <= thresholds).sum(axis=1)
