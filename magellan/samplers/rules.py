"""Rules that see more than competence: how often an arm was tried, how lately, what came of it.

A rule gives every arm a weight. What turns scores into weights (softmax, ranks, nearest to a
target) is in `magellan.samplers.selection`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from magellan.competence.base import CompetenceEstimator, Outcomes
from magellan.core.errors import InputError, NotFiniteError
from magellan.core.parsing import checked_numbers
from magellan.samplers.choice import Choice

LOWEST = -1e300
"""Of what a rule remembers."""


@dataclass(frozen=True)
class Seen:
    """What a rule is told of its arms; arrays are (n_arms,).

    step: policy updates so far.
    tries: episodes so far, int64.
    age: policy updates since the last of them, `step` where there was none, int64.
    now, delayed: competence by the sampler's estimator, float64; None without one.
    uncertainty: standard deviation of `now`, float64; None where the estimator does not tell.
    """

    step: int
    tries: np.ndarray
    age: np.ndarray
    now: np.ndarray | None = None
    delayed: np.ndarray | None = None
    uncertainty: np.ndarray | None = None


class Rule:
    """Weighs arms. A subclass has `weights`; `start` and `hear`, if it remembers outcomes itself.

    settings: its constants, as `self.settings`.

    Attributes:
        wants_advantage: whether `hear` needs the advantage of an episode.
    """

    wants_advantage: ClassVar[bool] = False

    def __init__(self, settings: Any = None) -> None:
        self.settings = settings

    def start(self, n_arms: int) -> None:
        """Begin with arms that nothing is known of.

        What the rule remembers are arrays that are made here, as attributes: they are part of every
        checkpoint, and those of length n_arms follow goals that stay where other goals come.
        """

    def hear(self, arm: int, success: float, advantage: float) -> None:
        """Learn from one episode; a policy update tells of all of its episodes, oldest first.

        advantage: |return - value| at its start; NaN where no rule of the run wants it.
        """

    def weights(self, seen: Seen) -> np.ndarray:
        """Not negative, finite, (n_arms,); draws are in proportion. All 0: draws are uniform."""
        raise NotImplementedError

    def memory(self) -> dict[str, np.ndarray]:
        """The arrays that `start` made, by name."""
        return {name: array for name, array in vars(self).items() if isinstance(array, np.ndarray)}


class RuleChoice(Choice):
    """Draws arms by the weights of a rule.

    rule: started here.
    estimator: that the rule is told of; None: of none.
    n_arms: how many there are.
    exploited: arms that the rule knows, int64, as 0, 1, ...; None: all.

    Raises:
        InputError: the estimator knows samples of the goals only, or the rule wants the advantage
            of an episode and is not told.
        NotFiniteError: a weight is negative or not finite.
    """

    def __init__(
        self,
        rule: Rule,
        estimator: CompetenceEstimator | None,
        n_arms: int,
        exploited: np.ndarray | None,
    ) -> None:
        self._rule, self._estimator, self._n_arms = rule, estimator, n_arms
        self._arms = np.arange(n_arms) if exploited is None else exploited
        if estimator is not None and estimator.candidates() is not None:
            raise InputError(
                f"competence.pool: smaller than {n_arms} goals is not allowed, this rule needs "
                "predictions of all of them"
            )
        self._number = np.full(n_arms, -1)
        self._number[self._arms] = np.arange(len(self._arms))
        self._step = 0
        self._tries, self._last = np.zeros((2, len(self._arms)), np.int64)
        rule.start(len(self._arms))
        self._cumulative: np.ndarray | None = None  # of the weights, once they are asked for

    def update(self, arms: np.ndarray, outcomes: Outcomes) -> None:
        self._step += 1
        advantage = outcomes.advantage
        if advantage is None:
            if self._rule.wants_advantage and len(outcomes):
                raise InputError(
                    "advantage: none told, this rule wants |return - value| of each episode"
                )
            advantage = np.full(len(outcomes), np.nan)
        numbers = self._number[arms]
        for number, success, each in zip(
            numbers.tolist(), outcomes.success.tolist(), advantage.tolist(), strict=True
        ):
            if number >= 0:
                self._rule.hear(number, success, each)
        heard = numbers[numbers >= 0]
        np.add.at(self._tries, heard, 1)
        self._last[heard] = self._step
        self._cumulative = None

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray | None:
        cumulative = self._weighed()
        total = cumulative[-1]
        if total == 0.0:
            return None
        # "right" steps past equal sums, so that a weight of 0 is never drawn.
        return self._arms[np.searchsorted(cumulative, rng.random(n) * total, side="right")]

    def probabilities(self) -> np.ndarray | None:
        cumulative = self._weighed()
        if cumulative[-1] == 0.0:
            return None
        chosen = np.zeros(self._n_arms)
        chosen[self._arms] = np.diff(cumulative, prepend=0.0) / cumulative[-1]
        return chosen

    def _weighed(self) -> np.ndarray:
        """Cumulative sum of the rule's weights, made once for each policy update."""
        if self._cumulative is None:
            weights = np.asarray(self._rule.weights(self._seen()), np.float64)
            if weights.shape != self._tries.shape:
                raise InputError(
                    f"weights of shape {weights.shape} are not allowed; allowed: one for each of "
                    f"{len(self._tries)} arms"
                )
            wrong = ~(np.isfinite(weights) & (weights >= 0))
            if wrong.any():
                raise NotFiniteError(
                    "goal weights must be finite and not negative: the rule gives "
                    f"{weights[wrong][0]:g}"
                )
            self._cumulative = np.cumsum(weights)
        return self._cumulative

    def _seen(self) -> Seen:
        age = self._step - self._last
        if self._estimator is None:
            return Seen(self._step, self._tries, age)
        told = self._estimator.competence(self._arms)
        return Seen(self._step, self._tries, age, *told, self._estimator.uncertainty(self._arms))

    def carry_on(self, former: Choice, numbers: np.ndarray) -> None:
        if not isinstance(former, RuleChoice) or type(former._rule) is not type(self._rule):
            return
        self._step, self._cumulative = former._step, None
        before = np.where(numbers >= 0, former._number[numbers], -1)[self._arms]
        stay = before >= 0
        pairs = [(self._tries, former._tries), (self._last, former._last)]
        mine, theirs = self._rule.memory(), former._rule.memory()
        pairs += [(mine[name], theirs[name]) for name in mine if len(mine[name]) == len(stay)]
        for new, old in pairs:
            new[stay] = old[before[stay]]

    def state_dict(self) -> dict[str, Any]:
        return {
            "step": self._step,
            "tries": self._tries.copy(),
            "last": self._last.copy(),
            "rule": {name: array.copy() for name, array in self._rule.memory().items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._step = int(checked_numbers(state["step"], "step", ()))
        self._tries[:] = checked_numbers(state["tries"], "tries", self._tries.shape)
        self._last[:] = checked_numbers(state["last"], "last", self._last.shape, 0, self._step)
        for name, array in self._rule.memory().items():
            array[:] = checked_numbers(state["rule"][name], name, array.shape, LOWEST, -LOWEST)
        self._cumulative = None
