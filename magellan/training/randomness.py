"""One root seed, named streams; none of them is a global generator."""

from __future__ import annotations

import numpy as np

STREAMS = ("world", "policy", "sampler", "replay", "competence", "init", "pool")


def streams(seed: int) -> dict[str, np.random.Generator]:
    """Independent generators of a run by name.

    A stream depends on the seed and its own name only, so adding one never changes another.
    """
    return {name: np.random.default_rng([seed, *name.encode()]) for name in STREAMS}


def choose(probabilities: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw one column per row in proportion to probabilities (batch, candidates), int64 (batch,).

    A column of probability 0 is never drawn.
    """
    cumulative = np.cumsum(probabilities, axis=1)
    thresholds = rng.random((len(probabilities), 1)) * cumulative[:, -1:]
    return (cumulative <= thresholds).sum(axis=1)
