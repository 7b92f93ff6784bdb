"""Selection rules with a memory: they see tries, recency and outcomes besides competence.

A rule assigns a weight to every arm. Functions from scores to weights (softmax, ranks, nearest to
a target) are in `magellan.samplers.selection`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from magellan.competence.base import CompetenceEstimator, Group, Outcomes
from magellan.core.errors import InputError, NotFiniteError, not_allowed, shown
from magellan.core.parsing import checked_numbers
from magellan.samplers.choice import Choice


@dataclass(frozen=True)
class ArmStats:
    """Statistics of a rule's arms; arrays are (n_arms,).

    step: policy updates so far.
    tries: episodes, or answers, so far, int64.
    age: policy updates since the last one, `step` if there was none, int64.
    now, delayed: competence by the sampler's estimator, float64; None without one.
    uncertainty: standard deviation of `now`, float64; None if the estimator has none.
    """

    step: int
    tries: np.ndarray
    age: np.ndarray
    now: np.ndarray | None = None
    delayed: np.ndarray | None = None
    uncertainty: np.ndarray | None = None


class Rule:
    """Weighs arms. A subclass defines `weights`; `start` and `observe` if it has a memory.

    settings: its constants, as `self.settings`.

    Attributes:
        wants_advantage: whether `observe` needs the advantage of an episode.
        shared: arrays of the memory that belong to no arm, kept when the goal space changes.
    """

    wants_advantage: ClassVar[bool] = False
    shared: ClassVar[tuple[str, ...]] = ()

    def __init__(self, settings: Any = None) -> None:
        self.settings = settings

    def start(self, n_arms: int) -> None:
        """Create the rule's memory: arrays, as attributes.

        They are saved in every checkpoint. When the goal space changes, arrays of length n_arms
        keep their values for goals in both spaces, those of `shared` all, as do all others when
        goals are only added.
        """

    def observe(self, arm: int, success: float, advantage: float) -> None:
        """Learn from one episode; called for all episodes of a policy update, oldest first.

        In a curriculum called for each goal instead, with the share of its answers that succeeded
        and their mean advantage, unless the rule defines `observe_group`.

        advantage: |return - value| at its start; NaN unless a rule of the run wants it.
        """

    def observe_group(self, arm: int, group: Group) -> None:
        """Learn from all answers to a goal in one update, or from one episode."""
        self.observe(arm, group.success, group.advantage)

    def end_update(self, arms: ArmStats) -> None:
        """Learn from time: called once per policy update, after its outcomes."""

    def weights(self, arms: ArmStats) -> np.ndarray:
        """Return finite weights >= 0, (n_arms,), to draw in proportion to; all 0: uniformly."""
        raise NotImplementedError

    def memory(self) -> dict[str, np.ndarray]:
        """The arrays created by `start`, by name."""
        return {name: array for name, array in vars(self).items() if isinstance(array, np.ndarray)}


class BatchRule(Rule):
    """Collects episodes, or answers, over policy updates and learns from a batch of them.

    A step in the papers covers hundreds of episodes; a policy update here often has less than one
    per arm. A subclass defines `learn`, may extend `start`, and has a setting `batch`, the size.

    learns_from: the quantity summed over episodes.
    """

    learns_from: ClassVar[Literal["success", "advantage"]] = "success"

    def start(self, n_arms: int) -> None:
        self.count, self.total = np.zeros(n_arms), np.zeros(n_arms)

    def observe_group(self, arm: int, group: Group) -> None:
        self.count[arm] += group.answers
        of_advantage = self.learns_from == "advantage"
        self.total[arm] += group.answers * group.advantage if of_advantage else group.solved
        if self.count.sum() >= self.settings.batch:
            self.learn(self.count, self.total)
            self.count[:], self.total[:] = 0, 0

    def learn(self, count: np.ndarray, total: np.ndarray) -> None:
        """Learn from a batch: episodes and sum of `learns_from` per arm, float64 (n_arms,) each."""
        raise NotImplementedError


class RuleChoice(Choice):
    """Draws arms by the weights of a rule.

    estimator: source of competence for the rule, if any.
    exploited: arms that the rule weighs, int64; it numbers them 0, 1, ...; None: all.

    Raises:
        InputError: the estimator predicts only a sample of the goals.
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
        self._kept = _plain_values(rule)
        self._cumulative: np.ndarray | None = None  # sum of the weights; None: outdated

    def update(self, arms: np.ndarray, outcomes: Outcomes) -> None:
        self._step += 1
        numbers = self._number[arms]
        for number, group in zip(numbers.tolist(), outcomes.groups(), strict=True):
            if number >= 0:
                self._rule.observe_group(number, group)
        observed = numbers[numbers >= 0]
        np.add.at(self._tries, observed, outcomes.answers[numbers >= 0])
        self._last[observed] = self._step
        self._cumulative = None
        if type(self._rule).end_update is not Rule.end_update:
            self._rule.end_update(self._arm_stats())

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray | None:
        cumulative = self._cumulative_weights()
        total = cumulative[-1]
        if total == 0.0:
            return None
        # Side "right" skips equal sums, so that a weight of 0 is never drawn.
        return self._arms[np.searchsorted(cumulative, rng.random(n) * total, side="right")]

    def probabilities(self) -> np.ndarray | None:
        cumulative = self._cumulative_weights()
        if cumulative[-1] == 0.0:
            return None
        probabilities = np.zeros(self._n_arms)
        probabilities[self._arms] = np.diff(cumulative, prepend=0.0) / cumulative[-1]
        return probabilities

    def _cumulative_weights(self) -> np.ndarray:
        """Cumulative sum of the rule's weights, computed once per policy update."""
        if self._cumulative is None:
            weights = np.asarray(self._rule.weights(self._arm_stats()), np.float64)
            if weights.shape != self._tries.shape:
                raise InputError(
                    f"weights of shape {weights.shape} are not allowed; allowed: one for each of "
                    f"{len(self._tries)} arms"
                )
            invalid = weights[~(np.isfinite(weights) & (weights >= 0))]
            if len(invalid):
                raise NotFiniteError(
                    f"goal weights must be finite and not negative: the rule gives {invalid[0]:g}"
                )
            with np.errstate(over="ignore"):
                self._cumulative = np.cumsum(weights)
            if not np.isfinite(self._cumulative[-1:]).all():
                raise NotFiniteError("goal weights must have a finite sum: the rule's have not")
        return self._cumulative

    def _arm_stats(self) -> ArmStats:
        age = self._step - self._last
        if self._estimator is None:
            return ArmStats(self._step, self._tries, age)
        now, delayed = self._estimator.competence(self._arms)
        uncertainty = self._estimator.uncertainty(self._arms)
        return ArmStats(self._step, self._tries, age, now, delayed, uncertainty)

    def inherit_state(self, former: Choice, numbers: np.ndarray) -> None:
        if not isinstance(former, RuleChoice) or type(former._rule) is not type(self._rule):
            return
        self._step, self._cumulative = former._step, None
        source = np.where(numbers >= 0, former._number[numbers], -1)[self._arms]
        stay = source >= 0
        pairs = [(self._tries, former._tries), (self._last, former._last)]
        new, old = self._rule.memory(), former._rule.memory()
        whole, added = {*self._rule.shared}, np.array_equal(source[stay], range(len(former._tries)))
        for name in new.keys() - whole:
            if new[name].shape[:1] == stay.shape and old[name].shape[:1] == former._tries.shape:
                pairs.append((new[name], old[name]))
            elif added and new[name].shape == old[name].shape:
                whole.add(name)
        for new_array, old_array in pairs:
            new_array[stay] = old_array[source[stay]]
        for name in whole:
            new[name][...] = old[name]

    def state_dict(self) -> dict[str, Any]:
        for name, value in _plain_values(self._rule).items():
            kept = self._kept.get(name, value)
            if value is not kept and value != kept:
                why = f", after {shown(kept)}: a checkpoint keeps arrays only"
                raise not_allowed(f"rule: {name}", value, "an array, made in `start`", why)
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
            saved = np.asarray(state["rule"][name])
            if (saved.shape, saved.dtype.kind) != (array.shape, array.dtype.kind):
                raise InputError(
                    f"{name}: {saved.dtype} {saved.shape} is not allowed; allowed: {array.dtype} "
                    f"{array.shape}"
                )
            array[...] = saved
        self._cumulative = None


def _plain_values(rule: Rule) -> dict[str, Any]:
    """Attributes of a rule that are numbers or texts of Python."""
    return {
        name: value for name, value in vars(rule).items() if isinstance(value, int | float | str)
    }
