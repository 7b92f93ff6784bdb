"""What a run of the paper needs on GPUs that are not at hand: arithmetic, not a measurement.

Operations that the model needs (`benchmarks.model_flops`), divided by shares of the peak in a GPU's
data sheet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.models import steps_per_update
from benchmarks.peaks import PEAKS
from benchmarks.rows import number
from magellan.config import RunConfig, resolve_run

if TYPE_CHECKING:
    from benchmarks.device import Missing, Part

EPISODES, EPISODE_STEPS = 500_000, 5.0
"""Of the paper's runs; steps of an episode in the reference study, 4 to 6.4 by sampler."""
UTILISATIONS = (0.1, 0.2, 0.35)
"""Shares of a peak for which hours are given."""


@dataclass(frozen=True)
class Length:
    """How long a run of the paper is.

    steps: environment steps of an update; updates: of the run.
    looks: evaluations; played: episodes of all of them.
    """

    steps: int
    updates: int
    looks: int
    played: int


def length_of(config: RunConfig) -> Length:
    """With this configuration's schedule of updates and the paper's evaluations."""
    paper = resolve_run("paper", []).budget
    steps = steps_per_update(config)
    looks = EPISODES // paper.evaluate_every + 1
    return Length(
        steps=steps,
        updates=math.ceil(EPISODES * EPISODE_STEPS / steps),
        looks=looks,
        played=looks * 2 * 4 * paper.evaluation_goals,  # splits, categories that can succeed
    )


@dataclass(frozen=True)
class Need:
    """10^9 operations of one update with all that belongs to it, and of a whole run."""

    update: float
    run: float

    def hours(self, tflops: float, share: float) -> float:
        """On a device with this peak (10^12 operations per second), at this share of it."""
        return self.run / (1e3 * tflops * share) / 3600


def need_of(parts: Sequence[Part | Missing], config: RunConfig) -> Need | None:
    """Of `EPISODES` episodes with evaluations; None where a part is not counted."""
    counted = {(part.row, part.size): getattr(part, "gflop", None) for part in parts}
    wanted = (("acting", ""), ("SAC update", ""), ("competence update", ""), ("refresh", "25k"))
    found = [counted.get(key) for key in wanted]
    acting, sac, competence, refresh = found
    if acting is None or sac is None or competence is None or refresh is None:
        return None
    length = length_of(config)
    update = acting + sac + competence + refresh / config.section("competence").refresh
    looking = length.played * EPISODE_STEPS * acting / length.steps
    return Need(update, length.updates * update + looking)


def to_markdown(need: Need | None) -> str:
    """A table of hours, a row for each GPU of `benchmarks.peaks`."""
    if need is None:
        return "Operations of 500,000 episodes: not counted."
    shares = [f"{share:.0%}" for share in UTILISATIONS]
    rows = [
        [name, f"{peak:g}", *(number(need.hours(peak, share)) for share in UTILISATIONS)]
        for name, (peak, _) in PEAKS.items()
    ]
    lines = [["GPU", "TFLOP/s", *(f"hours at {share}" for share in shares)]]
    lines += [["---", *["---:"] * (1 + len(shares))], *rows]
    return (
        f"What this model needs for 500,000 episodes: **{need.run / 1e9:.3g} EFLOP** (10^18 "
        f"operations), {number(need.update / 1e3)} TFLOP per update with its acting and its share "
        "of a refresh. Hours on a GPU if so much of its dense bfloat16 peak (data sheet) were "
        "reached; arithmetic, nothing in this table is measured:\n\n"
    ) + "\n".join(f"| {' | '.join(line)} |" for line in lines)
