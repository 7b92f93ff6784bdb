"""What came back from each goal, what went silent, and what there is to log."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from magellan.competence import Outcomes
from magellan.core.parsing import checked_numbers

SILENT, LOSS = 8, 4
"""A goal or group is silent when drawn before so many updates without a reward; a loss counts 4."""
SILENT_SHARE = 0.01
"""Most of what uniform draws would give silent goals, for samplers that do not explore."""
ENOUGH = 32
"""Answers after which a threshold that none has reached is worth a warning."""


class Heard:
    """What came back from each goal: arrays (n,), and (groups,) of the last two.

    answers, won: answers and successes so far.
    last, spread: share of successes and spread of rewards of the last answers.
    silence: signs of silence since the last reward.
    drawn: whether it was drawn since the last update.
    quiet: signs of silence of a group since the last reward of any of its goals.
    missed: its signs since the last update.
    """

    ARRAYS = ("answers", "won", "last", "spread", "silence", "drawn")
    BY_GROUP = ("quiet", "missed")

    def __init__(self, groups: np.ndarray, n_groups: int) -> None:
        n, self._groups = len(groups), groups
        self.quiet, self.missed = np.zeros((2, n_groups), np.int64)
        self.answers, self.won, self.silence = np.zeros((3, n), np.int64)
        self.last, self.spread = np.zeros((2, n))
        self.drawn = np.zeros(n, bool)
        self.n_lost, self.warned = 0, False
        self.least, self.largest = math.inf, -math.inf

    def extend(self, groups: np.ndarray) -> None:
        """Add goals of these groups."""
        self._groups = np.concatenate([self._groups, groups])
        for name in self.ARRAYS:
            setattr(self, name, np.pad(getattr(self, name), (0, len(groups))))

    def draw(self, goals: np.ndarray) -> None:
        """Note that goals were drawn."""
        self.drawn[goals] = True
        groups = self._groups[goals]
        self.missed[groups] = np.maximum(self.missed[groups], 1)

    def update(self, outcomes: Outcomes, lost: np.ndarray) -> None:
        """Note the outcomes of an update, and the goal of each of its lost answers."""
        rows = outcomes.goals
        self.answers[rows] += outcomes.answers
        self.won[rows] += np.rint(outcomes.success * outcomes.answers).astype(np.int64)
        self.last[rows], self.spread[rows] = outcomes.success, outcomes.spread
        self.drawn[rows] = False
        self.lose(lost[~np.isin(lost, rows)])
        self.n_lost += int(np.isin(lost, rows).sum())
        self.silence += self.drawn
        self.silence[rows], self.drawn[:] = 0, False
        self.quiet += self.missed
        self.quiet[self._groups[rows]], self.missed[:] = 0, 0

    def lose(self, goals: np.ndarray) -> None:
        """Note draws whose rewards will not come."""
        self.n_lost += len(goals)
        self.silence[np.unique(goals)] += LOSS
        self.missed[self._groups[goals]] = LOSS
        self.drawn[goals] = False

    def silent(self) -> np.ndarray:
        """Whether no rewards come from a goal, or from any of its group, bool (n,)."""
        return (self.silence >= SILENT) | (self.quiet >= SILENT)[self._groups]

    def warn_if_out_of_reach(self, rewards: np.ndarray, solved: float) -> None:
        """Warn once if enough graded rewards have come, and none was a success."""
        if len(rewards):
            self.least = min(self.least, rewards.min())
            self.largest = max(self.largest, rewards.max())
        out_of_reach = self.won.sum() == 0 and self.least < self.largest
        if out_of_reach and self.answers.sum() >= ENOUGH and not self.warned:
            self.warned = True
            warnings.warn(
                f"solved: {solved:g} was reached by none of {self.answers.sum()} answers; their "
                f"largest reward is {self.largest:g}",
                stacklevel=3,
            )

    def limited(self, chances: np.ndarray, exploration: np.ndarray) -> np.ndarray:
        """Probabilities (n,) that give silent goals no more than exploration, or than a little."""
        silent = self.silent()
        if not silent.any() or silent.all():
            return chances
        most = np.maximum(exploration, SILENT_SHARE / len(chances))
        limited = np.where(silent, np.minimum(chances, most), 0.0)
        others = np.where(silent, 0.0, chances)
        if others.sum() == 0.0:
            others = (~silent).astype(np.float64)
        return limited + (1.0 - limited.sum()) * (others / others.sum())

    def metrics(self) -> dict[str, float]:
        """Shares of goals by what came back, see `Curriculum.metrics`."""
        tried = self.answers > 0

        def share(which: np.ndarray) -> float:
            return float(which[tried].mean()) if tried.any() else 0.0

        return {
            "coverage": float(tried.mean()),
            "mastered": share(self.last == 1.0),
            "dead": share(self.won == 0),
            "informative": share(self.spread > 0.0),
            "silent": float(self.silent().mean()),
            "lost": float(self.n_lost),
        }

    def state_dict(self) -> dict[str, Any]:
        """Arrays and the number of lost answers."""
        arrays = {name: getattr(self, name) for name in (*self.ARRAYS, *self.BY_GROUP)}
        return {"n_lost": self.n_lost} | arrays

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`."""
        self.n_lost = int(state["n_lost"])
        for name in (*self.ARRAYS, *self.BY_GROUP):
            own = getattr(self, name)
            most = np.inf if name == "spread" else 2**62
            saved = np.asarray(state[name]) + 0.0
            saved = checked_numbers(saved, name, own.shape, 0, most)
            setattr(self, name, saved.astype(own.dtype))
