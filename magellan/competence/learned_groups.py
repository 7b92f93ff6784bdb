"""Groups that nobody gave: regions of the model's own representation of the goals.

MAGELLAN's estimator underneath predicts each goal; a region's competence is the mean over its own,
so that a kind of goals is chosen by how much is learned on it, not by how many goals it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from magellan.competence.arms import Regions
from magellan.competence.learned import LearnedCompetence, LearnedSettings
from magellan.competence.registry import EstimatorParts, register_estimator
from magellan.core.errors import InputError
from magellan.core.parsing import checked_numbers
from magellan.worlds import GoalSet

LEAST = 0.2
"""Variance of a direction that counts, as a share of the largest; lesser ones are mostly noise."""
ROUNDS = 10
"""Of k-means."""


class LearnedGroups(LearnedCompetence):
    """Every region is an arm; `predict` speaks of goals.

    Args: see `LearnedCompetence`. InputError if there are more goals than `competence.pool`, or the
        backend does not tell how it reads.
    """

    def _look_at(self, goals: GoalSet) -> None:
        if self._sampled and len(goals) > self.config.pool:
            raise InputError(
                f"competence.pool: {self.config.pool} is not allowed for {len(goals)} goals with "
                f"learned_groups, which reads all of them; allowed: {len(goals)} or more"
            )
        super()._look_at(goals)
        n = len(goals) if self._sampled else 1  # nobody chooses in a replay
        self.arms: Regions = Regions(n, min(self.config.regions, n))

    def set_goal_space(self, goals: GoalSet) -> None:
        """Regions are drawn anew among the new goals."""
        super().set_goal_space(goals)
        self._draw_regions()
        self._tell()

    def known(self) -> np.ndarray:
        """All regions."""
        return np.arange(len(self.arms))

    def competence(self, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means over regions at the last refresh, now and delayed."""
        return self._means[0][which], self._means[1][which]

    def _refresh(self) -> None:
        super()._refresh()
        if self.updates // self.config.refresh % self.config.regroup == 0:
            self._draw_regions()
        self._tell()

    def _draw_regions(self) -> None:
        """New regions take the numbers of those that they share most goals with."""
        if self._whole is not None:
            seen = self.backend.representation(self._whole, self.config.space)
            self.arms.assign(renamed(regions_of(whitened(seen), len(self.arms)), self.arms.region))

    def _tell(self) -> None:
        """Competence of regions, and which of their goals are preferred, from that of goals."""
        if self._whole is None:
            return
        self._means = self.arms.mean_of(self._now), self.arms.mean_of(self._delayed)
        if self.config.within == "progress":
            self.arms.prefer(np.abs(self._now - self._delayed))

    def state_dict(self) -> dict[str, Any]:
        """And the region of each goal."""
        return {**super().state_dict(), "regions": self.arms.region.astype(np.int32)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        n = len(self.arms)
        found = checked_numbers(state["regions"], "regions", self.arms.region.shape, 0, n - 1)
        if len(np.unique(found)) < n:
            raise InputError("regions: one without goals is not allowed; allowed: all with")
        self.arms.assign(found.astype(np.int64))
        self._tell()


def whitened(seen: np.ndarray) -> np.ndarray:
    """Vectors (n, width) along the directions in which they differ most, scaled to variance 1."""
    centred = seen.astype(np.float64) - seen.mean(axis=0, dtype=np.float64)
    variance, directions = np.linalg.eigh(centred.T @ centred / len(centred))
    kept = variance > LEAST * max(variance[-1], np.finfo(np.float64).tiny)
    return centred @ (directions[:, kept] / np.sqrt(variance[kept]))


def regions_of(points: np.ndarray, n: int) -> np.ndarray:
    """Region 0..n-1 of each point, int64 (points,); each has a point.

    k-means from spread-out centres (k-center, Gonzalez 1985): the first is the point nearest to the
    mean, each next one that farthest from all before.
    """
    squares = (points**2).sum(axis=1)
    centres = [points[squares.argmin()]]
    nearest = np.full(len(points), np.inf)
    for _ in range(1, n):
        nearest = np.minimum(nearest, ((points - centres[-1]) ** 2).sum(axis=1))
        centres.append(points[nearest.argmax()])
    middle = np.stack(centres)
    for _ in range(ROUNDS):
        distance = squares[:, None] - 2 * points @ middle.T + (middle**2).sum(axis=1)
        region = distance.argmin(axis=1)
        _fill(region, distance)
        middle = np.stack([points[region == each].mean(axis=0) for each in range(n)])
    return region


def _fill(region: np.ndarray, distance: np.ndarray) -> None:
    """Give each region without points the one farthest from its centre, of those with several."""
    sizes = np.bincount(region, minlength=distance.shape[1])
    for empty in np.flatnonzero(sizes == 0):
        own = np.take_along_axis(distance, region[:, None], axis=1)[:, 0]
        point = np.where(sizes[region] > 1, own, -np.inf).argmax()
        sizes[region[point]] -= 1
        region[point], sizes[empty] = empty, 1


def renamed(regions: np.ndarray, former: np.ndarray) -> np.ndarray:
    """The same regions, int64 (goals,), numbered as those in `former` that share most with them."""
    n = int(regions.max()) + 1
    shared = np.zeros((n, n), np.int64)
    np.add.at(shared, (regions, former), 1)
    number = np.full(n, -1)
    for _ in range(n):
        new, old = np.unravel_index(shared.argmax(), shared.shape)
        number[new], shared[new], shared[:, old] = old, -1, -1
    return number[regions]


@register_estimator(
    "learned_groups", "Learned groups", LearnedSettings, section="competence", reads=True
)
def build(parts: EstimatorParts, settings: LearnedSettings) -> LearnedGroups:
    """MAGELLAN's estimator of the run's language model, and regions of what it reads."""
    assert parts.backend is not None
    streams = parts.stream("competence"), parts.stream("pool")
    return LearnedGroups(parts.backend, parts.goals, settings, *streams, parts.seed, parts.sampled)
