"""The goal sampler: a competence estimator, a signal, and an exploration schedule."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from magellan.competence.base import CompetenceEstimator, Outcomes
from magellan.core.errors import InputError, NotFiniteError
from magellan.core.parsing import checked_numbers
from magellan.samplers.arms import Arms, EachCategory, EachGoal, Goals


@dataclass(frozen=True)
class ExponentialEpsilon:
    """end + (start - end) exp(-step / decay), the step counting sampler updates.

    The defaults are the released code's.
    """

    start: float = 1.0
    end: float = 0.2
    decay: float = 320.0

    def __call__(self, step: int) -> float:
        return self.end + (self.start - self.end) * math.exp(-step / self.decay)


@dataclass(frozen=True)
class ConstantEpsilon:
    """The same epsilon at every step; 1 is a sampler that only explores."""

    value: float

    def __call__(self, step: int) -> float:
        return self.value


LARGEST_BLOCK = 1_024


class WeightedChoice:
    """Weights over n positions, with cumulative sums over blocks of about sqrt(n) and inside them.

    Changing k weights costs O(k sqrt(n)) and a draw O(sqrt(n)); one flat cumulative sum would cost
    O(n) after every change. Only blocks that ever had a positive weight are stored. Block sums are
    summed afresh from the weights, never added to, so that a resumed run, which sets all weights
    at once, draws the same as one that never stopped.
    """

    def __init__(self, n: int) -> None:
        self._block = min(math.isqrt(max(n - 1, 0)) + 1, LARGEST_BLOCK)
        n_blocks = -(-n // self._block)
        self._row_of = np.zeros(n_blocks, dtype=np.int64)  # 0: a block without weights
        self._rows = np.zeros((1, self._block))
        self._n_rows = 1
        self._sums = np.zeros(n_blocks)
        self._cumulative = np.zeros(n_blocks)
        self._n = n

    @property
    def weights(self) -> np.ndarray:
        """(n,) float64, a copy: for looking at, all n are written down."""
        return self._rows[self._row_of].reshape(-1)[: self._n]

    @property
    def size(self) -> int:
        """n."""
        return self._n

    @property
    def total(self) -> float:
        return float(self._cumulative[-1]) if self._n else 0.0

    def set(self, positions: np.ndarray, weights: np.ndarray) -> None:
        """Put new weights at `positions`; NotFiniteError if one is negative or not finite."""
        if not (np.isfinite(weights).all() and (weights >= 0).all()):
            raise NotFiniteError("goal weights must be finite and not negative")
        blocks, columns = np.divmod(positions, self._block)
        self._store(blocks[weights > 0])
        rows = self._row_of[blocks]
        stored = rows > 0
        self._rows[rows[stored], columns[stored]] = weights[stored]
        touched = np.unique(blocks[stored])
        self._sums[touched] = self._rows[self._row_of[touched]].sum(axis=1)
        self._cumulative = np.cumsum(self._sums)

    def _store(self, blocks: np.ndarray) -> None:
        """Give these blocks a row where they have none; storage doubles when it is full."""
        new = np.unique(blocks[self._row_of[blocks] == 0])
        self._row_of[new] = np.arange(self._n_rows, self._n_rows + len(new))
        self._n_rows += len(new)
        if self._n_rows > len(self._rows):
            more = max(self._n_rows, 2 * len(self._rows)) - len(self._rows)
            self._rows = np.pad(self._rows, ((0, more), (0, 0)))

    def draw(self, rng: np.random.Generator, size: int) -> np.ndarray:
        """Positions (size,) int64, with replacement, in proportion to the weights; total > 0.

        A weight of exactly 0 is never drawn: "right" steps past equal cumulative sums.
        """
        blocks = np.searchsorted(self._cumulative, rng.random(size) * self.total, side="right")
        inside = np.cumsum(self._rows[self._row_of[blocks]], axis=1)
        columns = (inside <= rng.random((size, 1)) * inside[:, -1:]).sum(axis=1)
        return blocks * self._block + columns


Signal = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(now, delayed), float64 (n,) each, to non-negative weights (n,); (0, 0) has weight 0."""

Schedule = Callable[[int], float]
"""Number of sampler updates so far, to epsilon in [0, 1]."""


class GoalSampler:
    """Draws the goals of training episodes (Gaven et al. 2025).

    With probability epsilon an arm is drawn uniformly among the explored ones; otherwise among
    the estimator's candidates in proportion to signal(now, delayed), and uniformly among the
    exploited arms while all these weights are 0. The goal is uniform inside the arm.

    goals: the goal space.
    estimator: gives competence per arm; None if the sampler learns nothing (weights stay 0). Its
        competence may change in its own update only, which the sampler calls.
    signal: competence to weights; unused without estimator.
    schedule: epsilon by number of updates.
    rng: owned by the sampler from here on, and part of its state.
    arms: "goals", each goal is an arm, or "categories", each category is one, and the impossible
        one is only explored.
    explore: "arms", exploration is uniform over them, or "goals", it is uniform over all goals.

    Attributes:
        origin: what errors begin with: its name and file, once `make_sampler` has made it.
        explored: of the goals of the last `sample`, whether each was drawn to explore, bool (n,);
            None where a sampler has a `sample` of its own and does not tell.

    Raises:
        NotFiniteError: a weight is negative or not finite; from `update` and `load_state_dict` too.
    """

    origin = ""
    explored: np.ndarray | None = None

    def __init__(
        self,
        goals: Goals,
        estimator: CompetenceEstimator | None,
        signal: Signal,
        schedule: Schedule,
        rng: np.random.Generator,
        arms: Literal["goals", "categories"] = "goals",
        explore: Literal["arms", "goals"] = "arms",
    ) -> None:
        self._goals, self._explore = goals, explore
        self.estimator = estimator
        self.arms: Arms = EachGoal(goals) if arms == "goals" else EachCategory(goals)
        self._signal = signal
        self._schedule = schedule
        self._rng = rng
        self._step = 0
        self._weigh_all()

    @property
    def epsilon(self) -> float:
        """Probability that the next draw explores."""
        return self._schedule(self._step)

    @property
    def step(self) -> int:
        """Updates so far, those of samplers before it included."""
        return self._step

    def set_step(self, step: int) -> None:
        """Take over from another sampler: epsilon goes on where that one was."""
        self._step = step

    def sample(self, n: int) -> np.ndarray:
        """`n` goals with replacement: positions in the goal space, (n,) int64."""
        exploring = self.explored = self._rng.random(n) < self.epsilon
        n_exploring = int(exploring.sum())
        arms = np.empty(n, dtype=np.int64)
        arms[exploring] = self._explored(n_exploring)
        arms[~exploring] = self._exploit(n - n_exploring)
        return self.arms.draw_goals(arms, self._rng)

    def _exploit(self, n: int) -> np.ndarray:
        if self._choice.total > 0.0:
            return _pick(self._candidates, self._choice.draw(self._rng, n))
        return self._uniform(self.arms.exploited, n)

    def _explored(self, n: int) -> np.ndarray:
        if self._explore == "goals":
            return self.arms.arms_of(self._rng.integers(len(self._goals), size=n))
        return self._uniform(self.arms.explored, n)

    def _uniform(self, arms: np.ndarray | None, n: int) -> np.ndarray:
        size = len(self.arms) if arms is None else len(arms)
        return _pick(arms, self._rng.integers(size, size=n))

    def probabilities(self) -> np.ndarray:
        """Probability of each goal at the next draw, (n_goals,) float64, sums to one."""
        chosen = np.zeros(len(self.arms))
        if self._choice.total > 0.0:
            chosen[_index(self._candidates)] = self._choice.weights / self._choice.total
        else:
            chosen[_index(self.arms.exploited)] = 1.0
        explored = np.zeros(len(self.arms))
        explored[_index(self.arms.explored)] = 1.0
        if self._explore == "goals":
            every = self.arms.arms_of(np.arange(len(self._goals)))
            explored = np.bincount(every, minlength=len(self.arms)).astype(np.float64)
        per_arm = (1.0 - self.epsilon) * chosen / chosen.sum()
        return self.arms.spread(per_arm + self.epsilon * explored / explored.sum())

    def update(self, outcomes: Outcomes) -> None:
        """Once per policy update, with the episodes finished since: epsilon moves a step on."""
        self._step += 1
        if self.estimator is None:
            return
        self.estimator.update(outcomes)
        if self.estimator.candidates() is self._candidates:
            self._weigh(self.estimator.changed())
        else:
            self._weigh_all()

    def _weigh_all(self) -> None:
        """Weights of the candidates, when these or the estimator are new; unknown ones weigh 0."""
        self._candidates = None if self.estimator is None else self.estimator.candidates()
        self._choice = WeightedChoice(
            len(self.arms) if self._candidates is None else len(self._candidates)
        )
        if self.estimator is not None:
            self._weigh(self.estimator.known())

    def _weigh(self, which: np.ndarray) -> None:
        """Weights of the candidates `which` from their competence; others keep theirs."""
        assert self.estimator is not None
        now, delayed = self.estimator.competence(which)
        weights = self._signal(now, delayed)
        wrong = ~(np.isfinite(weights) & (weights >= 0))
        if wrong.any():
            self._refuse(*(float(each[wrong][0]) for each in (weights, now, delayed)))
        if self.arms.exploited is not None:
            allowed = np.isin(_pick(self._candidates, which), self.arms.exploited)
            weights = np.where(allowed, weights, 0.0)
        self._choice.set(which, weights)

    def _refuse(self, weight: float, now: float, delayed: float) -> None:
        raise NotFiniteError(
            f"{self.origin}goal weights must be finite and not negative: the signal gives "
            f"{weight:g} for competence {now:g} now and {delayed:g} delayed"
        )

    def check_untried(self) -> None:
        """InputError: the signal wants untried goals, of which the estimator tells nothing."""
        if self.estimator is None or len(self.estimator.known()) == self._choice.size:
            return
        weight = float(self._signal(np.zeros(1), np.zeros(1))[0])
        if weight > 0.0:
            raise InputError(
                f"{self.origin}its signal gives weight {weight:g} to (0, 0), but of untried goals "
                f"the estimator {type(self.estimator).__name__} tells nothing, so none of them "
                "would ever be exploited; allowed: 0 there, or an estimator that knows all goals"
            )

    def state_dict(self) -> dict[str, Any]:
        """Step, generator and estimator, as numpy arrays and JSON-able values."""
        estimator = {} if self.estimator is None else self.estimator.state_dict()
        return {"step": self._step, "rng": self._rng.bit_generator.state, "estimator": estimator}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` gave; the draws go on as if never interrupted."""
        self._step = int(checked_numbers(state["step"], "step", ()))
        self._rng.bit_generator.state = state["rng"]
        if self.estimator is not None:
            self.estimator.load_state_dict(state["estimator"])
        self._weigh_all()


def _pick(arms: np.ndarray | None, numbers: np.ndarray) -> np.ndarray:
    """Members of a list of arms by number; None lists all arms."""
    return numbers if arms is None else arms[numbers]


def _index(arms: np.ndarray | None) -> np.ndarray | slice:
    return slice(None) if arms is None else arms
