"""The training loop: collect, update, estimate, evaluate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from magellan.agent.replay import Replay
from magellan.backends import Backend
from magellan.competence import Outcomes
from magellan.config import UNIT_COLUMNS, Phase, RunConfig, phases_of
from magellan.config.phases import goals_of
from magellan.core.errors import InputError, not_allowed
from magellan.core.finite import check_losses
from magellan.core.parsing import checked_numbers
from magellan.core.randomness import STREAMS, Streams, initial_seeds
from magellan.model.chat import JUDGED, WORLD
from magellan.training.collect import Collector, Evaluator
from magellan.training.estimators import Estimators, estimator_parts
from magellan.training.evaluate import (
    EvaluationSet,
    by_category,
    competence_rows,
    critic_by_category,
    evaluate,
    evaluated_goals,
    goal_rows,
    play_many,
)
from magellan.training.record import Record


class Trainer:
    """One run: an agent practises the goals that a sampler chooses, in one or more phases.

    `advance` runs one round (collection, policy update, competence update); the caller repeats it
    until `done` and may save `state_dict` after any round. All randomness derives from the run's
    seed: a stopped and resumed run gives the same tables as an uninterrupted one.

    backend: the language model at its start; None: built from the configuration.
    transcript: file for what a chat model is asked and answers; None: kept in memory.

    Raises:
        InputError: unknown goal space, missing backbone, or an estimator that cannot continue with
            the goals of a later phase.
    """

    def __init__(
        self, config: RunConfig, backend: Backend | None = None, transcript: Path | None = None
    ) -> None:
        self.config = config
        self.phases = phases_of(config)
        self.phase = self.phases[0]
        self.episodes = self.steps = self.updates = 0
        self._next_evaluation = 0
        self._streams = Streams(self.phase.seed)
        rngs = self._rngs = {name: self._streams(name) for name in STREAMS}
        parts = estimator_parts(config, self._streams, backend=backend)
        assert parts.backend is not None
        self.goals, self.backend = parts.goals, parts.backend
        self._start_agent()
        self.evaluator = Evaluator(
            config.rewards, rngs, transcript and transcript.with_name(JUDGED)
        )
        self.estimators = Estimators(config, parts, transcript)
        name, rng = self.phase.sampler, rngs["sampler"]
        self.sampler = self.estimators.start_sampler(name, self.goals, rng)
        self.estimators.check_phases(self.phases)
        self._start_practice()
        self._unit = UNIT_COLUMNS[config.budget.unit]
        self.record = Record(config)
        self._pending: list[Outcomes] = []
        self._evaluation = evaluated_goals(config, self.phase, self.goals)

    def _start_agent(self) -> None:
        """Make policy and critic."""
        self.backend.start_policy(self.config.agent, initial_seeds(self.phase.seed)[1])

    def _start_practice(self) -> None:
        """Make what plays episodes and remembers them."""
        agent, rngs = self.config.agent, self._rngs
        self.replay = Replay(agent.replay_capacity, rngs["replay"], agent.success_fraction)
        self.collector = Collector(
            self.goals, self.sampler, self.backend, self.replay, agent, rngs, self.evaluator
        )

    @property
    def spent(self) -> int:
        """Budget consumed so far, in its own unit: episodes, steps or updates."""
        return self._counters()[self._unit]

    @property
    def done(self) -> bool:
        """Whether the budget is spent and the last evaluation done."""
        return self._phase_done and self.phase == self.phases[-1]

    @property
    def _phase_done(self) -> bool:
        return self._next_evaluation > self.phase.ends

    def advance(self) -> None:
        """Run one round, after any evaluation that is due; or begin the next phase."""
        self._evaluate_when_due()
        if self._phase_done:
            if not self.done:
                self._begin_phase(self.phases[self.phase.number])
            return
        self.estimators.play_wanted(self.episodes, self._play)
        self._collect()
        if self._can_learn:
            self._learn()

    @property
    def _can_learn(self) -> bool:
        return len(self.replay) >= self.config.agent.batch_size

    def _collect(self) -> None:
        """Take `steps_per_update` steps, rounded up to a multiple of the environments."""
        for _ in range(math.ceil(self.config.agent.steps_per_update / self.collector.num_envs)):
            at_random = self.steps < self.config.agent.random_steps
            outcomes = self.collector.step(at_random)
            self.steps += self.collector.num_envs
            if len(outcomes):
                self._count(outcomes)

    def _count(self, outcomes: Outcomes) -> None:
        """Count finished episodes; those with impossible goals fail, unless rewards may err."""
        rewards, categories = self.config.rewards, self.goals.categories_at(outcomes.goals)
        won = (outcomes.success > 0) & ~self.goals.feasible[categories]
        if won.any() and not rewards.false_positive and rewards.model == WORLD:
            name = self.goals.world.categories[int(categories[won][0])].name
            raise InputError(
                f"world {self.config.world}: success at a goal of {name}, which is not `feasible`; "
                "allowed: none"
            )
        self.episodes += len(outcomes)
        self._pending.append(outcomes)
        self.record.practise(categories, outcomes.success)

    def _play(self, goals: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Play one episode per goal, only to estimate competence; return success."""
        return play_many(self.backend, self.goals, goals, rng, self.collector.evaluation_env)

    def _learn(self) -> None:
        losses = self._update_agent()
        self.updates += 1
        check_losses(self.updates, losses)
        temperature = losses.pop("temperature")
        outcomes = _concatenate(self._pending)
        self._pending = []
        told = self._told(outcomes)
        self.sampler.update(told)
        self.estimators.update(told)
        self.record.record_outcomes(self.updates, self.goals, outcomes)
        self.record.losses({**losses, **self.estimators.check(self.updates)})
        if self.updates % self.config.budget.record_every == 0:
            epsilon = self.sampler.epsilon
            self.record.close_losses(**self._counters(), temperature=temperature, epsilon=epsilon)

    def _update_agent(self) -> dict[str, float]:
        """Update the agent once; returns losses and `temperature`."""
        return self.backend.update_policy(self.replay.sample(self.config.agent.batch_size))

    def _told(self, outcomes: Outcomes) -> Outcomes:
        """What sampler and estimators are told of the episodes of an update."""
        return outcomes

    def _begin_phase(self, phase: Phase) -> None:
        """Switch to the next phase; what both phases share continues.

        With other goals, the phase is evaluated at its start. Finished episodes that are not part
        of an update yet are dropped with other goals, and where only the new sampler wants
        advantages.
        """
        previous, self.phase = self.phase, phase
        self.record.phase = phase.number
        reseeded = phase.seed != previous.seed
        if reseeded:
            self._streams.restart(phase.seed)
        self._next_evaluation = self._next_point(phase.begins)
        if not phase.has_goals_of(previous):
            self._pending = []
            self.goals = goals_of(self.config, phase)
            self.estimators.set_goal_space(self.goals)
            self._evaluation = evaluated_goals(self.config, phase, self.goals)
            self._next_evaluation = phase.begins
        if phase.sampler != previous.sampler or not phase.has_goals_of(previous):
            former, rng = self.sampler, self._rngs["sampler"]
            self.sampler = self.estimators.start_sampler(phase.sampler, self.goals, rng)
            self.sampler.inherit_state(former)  # epsilon continues, or restarts
        if phase.explore_anew:
            self.sampler.step = 0
        if reseeded or not phase.has_goals_of(previous):  # unfinished episodes are dropped
            seed = int(self._rngs["world"].integers(2**31)) if reseeded else None
            self.collector.restart(self.goals, self.sampler, seed)
        else:
            if self.sampler.wants_advantage and not self.collector.sampler.wants_advantage:
                self._pending = []
            self.collector.use(self.sampler)

    def _next_point(self, planned: int) -> int:
        """Evaluation point after `planned` in this phase, at most its end."""
        return min(planned + self.config.budget.evaluate_every, self.phase.ends)

    def _evaluate_when_due(self) -> None:
        while self.spent >= self._next_evaluation and not self._phase_done:
            for split, goals in self._evaluation.items():
                self._evaluate(split, goals, self._next_evaluation)
            if self._next_evaluation < self.phase.ends:
                self._next_evaluation = self._next_point(self._next_evaluation)
            else:
                self._next_evaluation += 1
                self.record.finish()

    def _evaluate(self, split: str, goals: EvaluationSet, planned: int) -> None:
        played = goals.feasible
        success, critic = self._evaluated(goals)
        point = {**self._counters(), self._unit: planned, "split": split}
        success_by_category = by_category(goals.kinds, goals.categories[played], success)
        for category, (n, rate) in success_by_category.items():
            row = {"category": category, "n": n, "success": rate, **critic[category]}
            self.record.add("evaluation", {**point, **row})
        outcomes = np.zeros(len(goals.positions))
        outcomes[played] = success
        for name, estimator in self.estimators.by_name.items():
            now, delayed = _checked(
                name, estimator.predict(goals.space, goals.positions), len(outcomes)
            )
            for row in competence_rows(goals, now, delayed):
                self.record.add("competence", {**point, "estimator": name, **row})
            self._record_goals({**point, "estimator": name}, goals, outcomes, now, delayed)
        if not self.estimators.by_name:
            missing = np.full(len(outcomes), np.nan)
            self._record_goals({**point, "estimator": ""}, goals, outcomes, missing, missing)

    def _evaluated(self, goals: EvaluationSet) -> tuple[np.ndarray, dict[str, dict[str, float]]]:
        """Success of an episode for each feasible goal, (k,); critic's columns by category."""
        seed, make_env = self.config.budget.evaluation_seed, self.collector.evaluation_env
        success = evaluate(self.backend, goals, seed, make_env)
        return success, critic_by_category(self.backend, goals, seed, make_env)

    def _record_goals(
        self, point: dict[str, Any], goals: EvaluationSet, *values: np.ndarray
    ) -> None:
        """Add a row per evaluated goal, if `record_goals`; values: see `goal_rows`."""
        if self.config.budget.record_goals:
            for row in goal_rows(goals, *values):
                self.record.add("goals", {**point, **row})

    def _counters(self) -> dict[str, int]:
        return {"update": self.updates, "step": self.steps, "episode": self.episodes}

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a resumed run needs."""
        return {
            "phase": self.phase.number,
            "episodes": self.episodes,
            "steps": self.steps,
            "updates": self.updates,
            "next_evaluation": self._next_evaluation,
            "pending": [vars(outcomes) for outcomes in self._pending],
            "backend": self.backend.state_dict(),
            "sampler": self.sampler.state_dict(),
            "estimators": self.estimators.state_dict(),
            **self._practice_state(),
            "record": self.record.state_dict(),
        }

    def _practice_state(self) -> dict[str, Any]:
        return {"replay": self.replay.state_dict(), "collector": self.collector.state_dict()}

    def _load_practice(self, state: Mapping[str, Any]) -> None:
        self.replay.load_state_dict(state["replay"])
        self.collector.load_state_dict(state["collector"])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict` of this run, or of the run that is its beginning."""
        for phase in self.phases[1 : int(state["phase"])]:
            self._begin_phase(phase)
        names = ("episodes", "steps", "updates", "next_evaluation")
        counts = (int(checked_numbers(state[name], name, ())) for name in names)
        self.episodes, self.steps, self.updates, self._next_evaluation = counts
        self._pending = [Outcomes(**outcomes) for outcomes in state["pending"]]
        for outcomes in self._pending:
            checked_numbers(outcomes.goals, "pending", (None,), 0, len(self.goals) - 1)
        self.backend.load_state_dict(state["backend"])
        self.sampler.load_state_dict(state["sampler"])
        self.estimators.load_state_dict(state["estimators"])
        self._load_practice(state)
        self.record.load_state_dict(state["record"])


def _checked(name: str, predicted: Sequence[Any], n: int) -> tuple[np.ndarray, np.ndarray]:
    """Predictions of n goals, now and delayed; InputError if they are no chances."""
    arrays = [np.asarray(values) for values in predicted]
    right = (array.shape == (n,) and ((array >= 0) & (array <= 1)).all() for array in arrays)
    if len(arrays) != 2 or not all(right):
        allowed = f"now and delayed, one number from 0 to 1 for each of {n} goals"
        raise not_allowed(f"estimator {name}: competence", predicted, allowed)
    return arrays[0], arrays[1]


def _concatenate(parts: list[Outcomes]) -> Outcomes:
    """Concatenate outcomes, oldest first; with advantages only if all parts have them."""
    if not parts:
        return Outcomes(np.zeros(0, np.int64), np.zeros(0))
    advantages = [part.advantage for part in parts if part.advantage is not None]
    return Outcomes(
        np.concatenate([part.goals for part in parts]),
        np.concatenate([part.success for part in parts]),
        np.concatenate([part.standing_on for part in parts]),
        np.concatenate([part.explored for part in parts]),
        np.concatenate(advantages) if len(advantages) == len(parts) else None,
    )
