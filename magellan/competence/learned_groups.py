"""Learned groups of goals: regions of the model's own representation of them.

MAGELLAN's estimator predicts each goal; a region's competence is the mean over its goals, so that a
kind of goals is chosen by its learning progress, not by its number of goals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from magellan.competence.arms import Regions
from magellan.competence.learned import LearnedCompetence, LearnedSettings
from magellan.competence.registry import register_estimator
from magellan.core.errors import InputError, not_allowed
from magellan.core.parsing import checked_numbers
from magellan.worlds import GoalSet

MIN_VARIANCE = 0.2
"""Smallest variance of a direction used, relative to the largest; the rest is mostly noise."""
ITERATIONS = 10
"""Of k-means."""


@register_estimator(
    "learned_groups", "Learned groups", LearnedSettings, section="competence", needs_features=True
)
class LearnedGroups(LearnedCompetence):
    """Every region is an arm; `predict` predicts single goals.

    There are as many regions as configured, or as distinct vectors of goals at the beginning.
    Arguments are those of `LearnedCompetence`.

    Raises:
        InputError: there are more goals than `competence.pool`, or the backend has no
            representations.
    """

    def _set_candidates(self, goals: GoalSet) -> None:
        if self._scores_candidates and len(goals) > self.config.pool:
            why = f" for {len(goals)} goals with learned_groups, which reads all of them"
            raise not_allowed("competence.pool", self.config.pool, f"{len(goals)} or more", why)
        super()._set_candidates(goals)
        n = len(goals) if self._scores_candidates else 1  # in a replay regions are not used
        self.arms: Regions = Regions(n, min(self.config.regions, n))

    def set_goal_space(self, goals: GoalSet) -> None:
        """Also group the new goals."""
        super().set_goal_space(goals)
        self._regroup(first=True)
        self._update_regions()

    def known(self) -> np.ndarray:
        """All regions."""
        return np.arange(len(self.arms))

    def competence(self, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means over regions at the last refresh, now and delayed."""
        return self._means[0][which], self._means[1][which]

    def _refresh(self) -> None:
        super()._refresh()
        if self.updates // self.config.refresh % self.config.regroup == 0:
            self._regroup(first=self.updates == 0)
        self._update_regions()

    def _regroup(self, first: bool) -> None:
        """Recompute the regions; each keeps the number of the former one it overlaps most.

        first: of these goals, so that the number of regions may change.
        """
        if self._whole is None:
            return
        points = whitened(self.backend.representation(self._whole), MIN_VARIANCE)
        regions = kmeans(points, len(self.arms))
        n = int(regions.max()) + 1
        if first and n < len(self.arms):
            self.arms = Regions(len(regions), n)
        if n == len(self.arms):
            self.arms.assign(renumbered(regions, self.arms.region))

    def _update_regions(self) -> None:
        """Set competence of regions from that of their goals."""
        if self._whole is not None:
            self._means = self.arms.mean_of(self._now), self.arms.mean_of(self._delayed)

    def state_dict(self) -> dict[str, Any]:
        """That of the base class, and the region of each goal."""
        return {**super().state_dict(), "regions": self.arms.region.astype(np.int32)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        n = len(self.arms)
        regions = checked_numbers(state["regions"], "regions", self.arms.region.shape, 0, n - 1)
        if len(np.unique(regions)) < n:
            raise InputError("regions: one without goals is not allowed; allowed: none empty")
        self.arms.assign(regions.astype(np.int64))
        self._update_regions()


def whitened(vectors: np.ndarray, least: float, most: int = 0) -> np.ndarray:
    """Principal components of vectors (n, width), scaled to variance 1: float64 (n, components).

    least: smallest variance of a component, relative to the largest; what float32 rounds is none.
    most: maximum number of components; 0: all.
    """
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    few = len(centred) < centred.shape[1]  # as of a large model: the smaller matrix is enough
    products = centred @ centred.T if few else centred.T @ centred
    variance, directions = np.linalg.eigh(products / len(centred))
    rounding = (float(np.abs(vectors).max()) * float(np.finfo(np.float32).eps)) ** 2
    enough = variance > max(least * variance[-1], rounding)
    top = np.flatnonzero(enough)[-most:]
    if few:
        return directions[:, top] * np.sqrt(len(centred))
    return centred @ (directions[:, top] / np.sqrt(variance[top]))


def kmeans(points: np.ndarray, n: int) -> np.ndarray:
    """Cluster 0..n-1 of each point, int64 (points,); none is empty.

    Fewer than n clusters if fewer points are distinct.

    Initial centres by k-center (Gonzalez 1985): first the point nearest to the mean, then always
    the one farthest from all centres so far.
    """
    n = min(n, len(np.unique(points.round(6), axis=0))) if points.shape[1] else 1
    squares = (points**2).sum(axis=1)
    centres = [points[squares.argmin()]]
    nearest = np.full(len(points), np.inf)
    for _ in range(1, n):
        nearest = np.minimum(nearest, ((points - centres[-1]) ** 2).sum(axis=1))
        centres.append(points[nearest.argmax()])
    means = np.stack(centres)
    for _ in range(ITERATIONS):
        distance = squares[:, None] - 2 * points @ means.T + (means**2).sum(axis=1)
        cluster = distance.argmin(axis=1)
        _fill_empty(cluster, distance)
        means = np.stack([points[cluster == i].mean(axis=0) for i in range(n)])
    return cluster


def _fill_empty(cluster: np.ndarray, distance: np.ndarray) -> None:
    """Move to each empty cluster the point farthest from its centre, from clusters of several."""
    sizes = np.bincount(cluster, minlength=distance.shape[1])
    for empty in np.flatnonzero(sizes == 0):
        own = np.take_along_axis(distance, cluster[:, None], axis=1)[:, 0]
        point = np.where(sizes[cluster] > 1, own, -np.inf).argmax()
        sizes[cluster[point]] -= 1
        cluster[point], sizes[empty] = empty, 1


def renumbered(regions: np.ndarray, former: np.ndarray) -> np.ndarray:
    """The same regions, int64 (goals,), each numbered as the one in `former` it overlaps most."""
    n = int(regions.max()) + 1
    shared = np.zeros((n, n), np.int64)
    np.add.at(shared, (regions, former), 1)
    number = np.full(n, -1)
    for _ in range(n):
        new, old = np.unravel_index(shared.argmax(), shared.shape)
        number[new], shared[new], shared[:, old] = old, -1, -1
    return number[regions]
