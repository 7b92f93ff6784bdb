"""The goal sampler: a rule, the competence estimator that tells it, and an exploration schedule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from magellan.competence.arms import Arms, EachCategory, EachGoal, Goals
from magellan.competence.base import CompetenceEstimator, Outcomes
from magellan.core.errors import InputError, NotFiniteError
from magellan.core.parsing import checked_numbers
from magellan.samplers.choice import Choice, Signal, SignalChoice
from magellan.samplers.rules import Rule, RuleChoice


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


NEVER = ConstantEpsilon(0.0)
"""No exploration, for rules that see to it themselves."""

Schedule = Callable[[int], float]
"""Number of sampler updates so far, to epsilon in [0, 1]."""

ARMS: Mapping[str, Callable[[Goals], Arms]] = {"goals": EachGoal, "categories": EachCategory}


class GoalSampler:
    """Draws the goals of training episodes (Gaven et al. 2025).

    With probability epsilon an arm is drawn uniformly among the explored ones; otherwise the rule
    chooses among the exploited ones, uniformly while it has no preference. The goal is uniform
    inside the arm, unless a partition prefers some when exploiting.

    goals: the goal space.
    estimator: gives competence per arm; None if the sampler needs none. Its competence may change
        in its own update only, which the sampler calls.
    rule: a function of competence, (now, delayed) to weights; or a `Rule`; None: no preference.
    schedule: epsilon by number of updates.
    rng: owned by the sampler from here on, and part of its state.
    arms: "goals", each goal is an arm, "categories", each category is one, and the impossible one
        is only explored, or another partition; None: what the estimator speaks of, or goals.
    explore: "arms", exploration is uniform over them, or "goals", it is uniform over all goals.

    Attributes:
        origin: what errors begin with: its name and file, once `make_sampler` has made it.
        explored: of the goals of the last `sample`, whether each was drawn to explore, bool (n,);
            None where a sampler has a `sample` of its own and does not tell.
        wants_advantage: whether outcomes should carry the advantage of their episode.

    Raises:
        NotFiniteError: a weight is negative or not finite; from all that draw or hear, too.
    """

    origin = ""
    explored: np.ndarray | None = None

    def __init__(
        self,
        goals: Goals,
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
        self._step = 0
        self.wants_advantage = isinstance(rule, Rule) and rule.wants_advantage
        self._choice = self._chooses_by(rule)

    def _chooses_by(self, rule: Signal | Rule | None) -> Choice | None:
        which = len(self.arms), self.arms.exploited
        if isinstance(rule, Rule):
            return RuleChoice(rule, self.estimator, *which)
        if rule is None or self.estimator is None:
            return None
        return SignalChoice(self.estimator, rule, *which)

    @property
    def epsilon(self) -> float:
        """Probability that the next draw explores."""
        return self._schedule(self._step)

    @property
    def step(self) -> int:
        """Updates so far, those of samplers before it included."""
        return self._step

    def set_step(self, step: int) -> None:
        """Go on at another step: epsilon is what it is then."""
        self._step = step

    def carry_on(self, former: GoalSampler) -> None:
        """Take over from a sampler of other goals, or of another kind: its step, and what its rule
        remembers of goals that stay, where the rule is of the same kind.
        """
        self._step = former.step
        if self._choice is None or former._choice is None:
            return
        if type(self.arms) is type(former.arms):
            self._choice.carry_on(former._choice, self.arms.numbers_in(former.arms))

    def sample(self, n: int) -> np.ndarray:
        """`n` goals with replacement: positions in the goal space, (n,) int64."""
        exploring = self.explored = self._rng.random(n) < self.epsilon
        n_exploring = int(exploring.sum())
        arms = np.empty(n, dtype=np.int64)
        arms[exploring] = self._explored(n_exploring)
        arms[~exploring] = self._exploited(n - n_exploring)
        return self.arms.draw_goals(arms, self._rng, exploring)

    def _exploited(self, n: int) -> np.ndarray:
        with self._named():
            drawn = None if self._choice is None else self._choice.draw(self._rng, n)
        return self._uniform(self.arms.exploited, n) if drawn is None else drawn

    def _explored(self, n: int) -> np.ndarray:
        if self._explore == "goals":
            return self.arms.arms_of(self._rng.integers(len(self._goals), size=n))
        return self._uniform(self.arms.explored, n)

    def _uniform(self, arms: np.ndarray | None, n: int) -> np.ndarray:
        size = len(self.arms) if arms is None else len(arms)
        drawn = self._rng.integers(size, size=n)
        return drawn if arms is None else arms[drawn]

    def probabilities(self) -> np.ndarray:
        """Probability of each goal at the next draw, (n_goals,) float64, sums to one."""
        with self._named():
            chosen = None if self._choice is None else self._choice.probabilities()
        if chosen is None:
            chosen = self._evenly(self.arms.exploited)
        if self._explore == "goals":
            every = self.arms.arms_of(np.arange(len(self._goals)))
            explored = np.bincount(every, minlength=len(self.arms)) / len(every)
        else:
            explored = self._evenly(self.arms.explored)
        return self.arms.spread((1.0 - self.epsilon) * chosen, self.epsilon * explored)

    def _evenly(self, arms: np.ndarray | None) -> np.ndarray:
        """The same probability for these arms and 0 for others, (n_arms,); None: for all."""
        chances = np.zeros(len(self.arms))
        chances[slice(None) if arms is None else arms] = 1.0
        return chances / chances.sum()

    def update(self, outcomes: Outcomes) -> None:
        """Once per policy update, with the episodes finished since: epsilon moves a step on."""
        self._step += 1
        if self.estimator is not None:
            self.estimator.update(outcomes)
        if self._choice is not None:
            with self._named():
                self._choice.update(self.arms.arms_of(outcomes.goals), outcomes)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Errors of the rule begin with the sampler's name and file."""
        try:
            yield
        except (InputError, NotFiniteError) as error:
            raise type(error)(f"{self.origin}{error}") from None

    def state_dict(self) -> dict[str, Any]:
        """Step, generator, estimator and rule, as numpy arrays and JSON-able values."""
        estimator = {} if self.estimator is None else self.estimator.state_dict()
        choice = {} if self._choice is None else self._choice.state_dict()
        return {
            "step": self._step,
            "rng": self._rng.bit_generator.state,
            "estimator": estimator,
            **({"choice": choice} if choice else {}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` gave; the draws go on as if never interrupted."""
        self._step = int(checked_numbers(state["step"], "step", ()))
        self._rng.bit_generator.state = state["rng"]
        if self.estimator is not None:
            self.estimator.load_state_dict(state["estimator"])
        if self._choice is not None:
            self._choice.load_state_dict(state.get("choice", {}))
