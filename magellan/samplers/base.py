"""The goal sampler: a selection rule, its competence estimator and an exploration schedule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from magellan.competence.arms import Arms, EachCategory, EachGoal
from magellan.competence.base import CompetenceEstimator, Outcomes
from magellan.core.errors import InputError, NotFiniteError
from magellan.core.parsing import checked_numbers
from magellan.samplers.choice import Choice, Signal, SignalChoice
from magellan.samplers.rules import Rule, RuleChoice
from magellan.worlds import GoalSet


@dataclass(frozen=True)
class ExponentialEpsilon:
    """end + (start - end) exp(-step / decay), step: sampler updates; defaults as released."""

    start: float = 1.0
    end: float = 0.2
    decay: float = 320.0

    def __call__(self, step: int) -> float:
        return self.end + (self.start - self.end) * math.exp(-step / self.decay)


@dataclass(frozen=True)
class ConstantEpsilon:
    """The same epsilon at every step; 1: only explore."""

    value: float

    def __call__(self, step: int) -> float:
        return self.value


NEVER = ConstantEpsilon(0.0)
"""No exploration, for rules that explore by themselves."""

Schedule = Callable[[int], float]
"""Number of sampler updates -> epsilon in [0, 1]."""

ARMS: Mapping[str, Callable[[GoalSet], Arms]] = {"goals": EachGoal, "categories": EachCategory}


class GoalSampler:
    """Draws the goals of training episodes (Gaven et al. 2025).

    With probability epsilon an arm is drawn uniformly from the explored ones, otherwise from the
    exploited ones in proportion to the rule's weights, uniformly if all are 0. The goal is uniform
    within the arm.

    goals: the goal space.
    estimator: predicts competence per arm; None if not needed. Its competence may change only in
        its `update`, which the sampler calls.
    rule: a signal, (now, delayed) -> weights; or a `Rule`; None: no preference.
    schedule: epsilon by number of updates.
    rng: owned by the sampler, and part of its state.
    arms: "goals", one arm per goal; "categories", one per category, of which the impossible one is
        only explored; or another partition. None: the estimator's arms, or goals.
    explore: exploration is uniform over "arms" or over "goals".

    Attributes:
        step: updates so far, including those of the samplers it replaced.
        origin: prefix of error messages, sampler name and file; set by `make_sampler`.
        explored: whether each goal of the last `sample` was drawn to explore, bool (n,); None where
            a subclass overrides `sample` and does not set it.
        wants_advantage: whether outcomes should include the advantage of their episode.

    Raises:
        NotFiniteError: a weight is negative or not finite; also from sampling and updating.
    """

    origin = ""
    explored: np.ndarray | None = None

    def __init__(
        self,
        goals: GoalSet,
        estimator: CompetenceEstimator | None,
        rule: Signal | Rule | None,
        schedule: Schedule,
        rng: np.random.Generator,
        arms: Literal["goals", "categories"] | Arms | None = None,
        explore: Literal["arms", "goals"] = "arms",
    ) -> None:
        self._goals, self._explore = goals, explore
        self.estimator = estimator
        arms = arms or ("goals" if estimator is None else estimator.arms)
        self.arms: Arms = ARMS[arms](goals) if isinstance(arms, str) else arms
        self._schedule = schedule
        self._rng = rng
        self.step = 0
        self.wants_advantage = isinstance(rule, Rule) and rule.wants_advantage
        self._choice = self._make_choice(rule)

    def _make_choice(self, rule: Signal | Rule | None) -> Choice | None:
        if isinstance(rule, Rule):
            return RuleChoice(rule, self.estimator, len(self.arms), self.arms.exploited)
        if rule is None or self.estimator is None:
            return None
        return SignalChoice(self.estimator, rule, len(self.arms), self.arms.exploited)

    @property
    def epsilon(self) -> float:
        """Probability that the next draw explores."""
        return self._schedule(self.step)

    def inherit_state(self, former: GoalSampler) -> None:
        """Take over the step of another sampler, and its rule's memory of goals in both spaces.

        The memory only if arms and rule are of the same type.
        """
        self.step = former.step
        if self._choice is None or former._choice is None:
            return
        if type(self.arms) is type(former.arms):
            self._choice.inherit_state(former._choice, self.arms.index_in(former.arms))

    def sample(self, n: int) -> np.ndarray:
        """Draw `n` goals with replacement: positions in the goal space, int64 (n,)."""
        exploring = self.explored = self._rng.random(n) < self.epsilon
        explored = int(exploring.sum())
        arms = np.empty(n, dtype=np.int64)
        if self._explore == "goals":
            goals = self._rng.integers(len(self._goals), size=explored)
            arms[exploring] = self.arms.arms_of(goals)
        else:
            arms[exploring] = self._draw_uniform(self.arms.explored, explored)
        with self._errors_with_origin():
            drawn = None if self._choice is None else self._choice.draw(self._rng, n - explored)
        if drawn is None:
            drawn = self._draw_uniform(self.arms.exploited, n - explored)
        arms[~exploring] = drawn
        return self.arms.draw_goals(arms, self._rng)

    def _draw_uniform(self, arms: np.ndarray | None, n: int) -> np.ndarray:
        size = len(self.arms) if arms is None else len(arms)
        drawn = self._rng.integers(size, size=n)
        return drawn if arms is None else arms[drawn]

    def probabilities(self) -> np.ndarray:
        """Probability of each goal at the next draw, float64 (n_goals,), sums to one."""
        with self._errors_with_origin():
            exploited = None if self._choice is None else self._choice.probabilities()
        if exploited is None:
            exploited = self._uniform_over(self.arms.exploited)
        return self.arms.spread((1.0 - self.epsilon) * exploited, self._explored_arms())

    def unbiased(self) -> np.ndarray:
        """What exploitation gives each goal while it prefers no arm, float64 (n_goals,)."""
        return self.arms.spread(self._uniform_over(self.arms.exploited))

    def exploration(self) -> np.ndarray:
        """The part of `probabilities` that explores, float64 (n_goals,), sums to epsilon."""
        return self.arms.spread(self._explored_arms())

    def _explored_arms(self) -> np.ndarray:
        """Probability of exploring each arm, (n_arms,)."""
        if self._explore == "goals":
            arm_of_goal = self.arms.arms_of(np.arange(len(self._goals)))
            explored = np.bincount(arm_of_goal, minlength=len(self.arms)) / len(arm_of_goal)
        else:
            explored = self._uniform_over(self.arms.explored)
        return self.epsilon * explored

    def _uniform_over(self, arms: np.ndarray | None) -> np.ndarray:
        """Equal probabilities for `arms` (None: all), 0 for the others, (n_arms,)."""
        probabilities = np.zeros(len(self.arms))
        probabilities[slice(None) if arms is None else arms] = 1.0
        return probabilities / probabilities.sum()

    def update(self, outcomes: Outcomes) -> None:
        """Learn from the episodes finished since the last policy update; call once per update.

        Raises:
            InputError: the rule wants the advantage of an episode and outcomes lack it.
        """
        if self.wants_advantage and outcomes.advantage is None and len(outcomes):
            raise InputError(
                f"{self.origin}advantage: missing; this rule needs |return - value| of each episode"
            )
        self.step += 1
        if self.estimator is not None:
            self.estimator.update(outcomes)
        if self._choice is not None:
            with self._errors_with_origin():
                self._choice.update(self.arms.arms_of(outcomes.goals), outcomes)

    @contextmanager
    def _errors_with_origin(self) -> Iterator[None]:
        """Prefix errors of the rule with `origin`."""
        try:
            yield
        except (InputError, NotFiniteError) as error:
            raise type(error)(f"{self.origin}{error}") from None

    def facts(self) -> dict[str, Any]:
        """What a run's manifest says about it, as JSON values by key."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Step, random state, estimator and rule, as numpy arrays and JSON-serialisable values."""
        estimator = {} if self.estimator is None else self.estimator.state_dict()
        choice = {} if self._choice is None else self._choice.state_dict()
        return {
            "step": self.step,
            "rng": self._rng.bit_generator.state,
            "estimator": estimator,
            **({"choice": choice} if choice else {}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`; later draws are as if never interrupted."""
        self.step = int(checked_numbers(state["step"], "step", ()))
        self._rng.bit_generator.state = state["rng"]
        if self.estimator is not None:
            self.estimator.load_state_dict(state["estimator"])
        if self._choice is not None:
            self._choice.load_state_dict(state.get("choice", {}))
