"""The training loop: collect, update, look, save."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from magellan.agent.replay import Replay
from magellan.backends import Backend
from magellan.competence import CompetenceEstimator, Outcomes
from magellan.config import UNIT_COLUMNS, RunConfig
from magellan.training.collect import Collector
from magellan.training.evaluate import (
    EvaluationSet,
    by_category,
    evaluate,
    evaluation_sets,
    play_many,
)
from magellan.training.finite import check_losses
from magellan.training.parts import estimator_parts
from magellan.training.randomness import initial_seeds, streams
from magellan.training.record import Record
from magellan.training.rows import competence_rows, goal_rows
from magellan.training.watchers import Estimators


class Trainer:
    """One run: an agent practises the goals that a sampler chooses.

    `advance` does one round (collection, one policy update, one competence update); the caller
    repeats it until `done` and saves `state_dict` when it likes. Everything random comes from the
    run's seed, so a run that was stopped and resumed gives the same tables as one that was not.

    Args:
        config: of the run.
        backend: the language model at its start; None: the one of the configuration is made.

    Attributes:
        updates: policy updates so far.

    Raises:
        InputError: unknown goal space, missing backbone.
    """

    def __init__(self, config: RunConfig, backend: Backend | None = None) -> None:
        self.config = config
        self.episodes = self.steps = self.updates = 0
        self._next_evaluation = 0
        rngs = streams(config.seed)
        parts = estimator_parts(config, backend=backend)
        assert parts.backend is not None
        self.goals, self.backend = parts.goals, parts.backend
        self.backend.start("sac", config.agent, initial_seeds(config.seed)[1])
        self.estimators = Estimators(config, parts)
        self.sampler = self.estimators.driven_sampler(config, self.goals, rngs["sampler"])
        agent = config.agent
        self.replay = Replay(agent.replay_capacity, rngs["replay"], agent.success_fraction)
        self.collector = Collector(self.goals, self.sampler, self.backend, self.replay, agent, rngs)
        budget = config.budget
        self._unit = UNIT_COLUMNS[budget.unit]
        counted = budget.episodes if budget.unit == "episodes" else None
        self.record = Record(
            self.goals.world.categories.names,
            budget.practice_window,
            counted,
            budget.record_goals,
            budget.record_outcomes,
        )
        self._pending: list[Outcomes] = []
        self._evaluation = evaluation_sets(
            self.goals, budget.evaluation_goals, budget.evaluation_seed
        )

    @property
    def spent(self) -> int:
        """What there was so far of that which ends the run: episodes, steps or updates."""
        return self._where()[self._unit]

    @property
    def done(self) -> bool:
        """Whether the budget is spent and the last evaluation made."""
        return self._next_evaluation > self.config.budget.end

    def advance(self) -> None:
        """One round; evaluates first when a planned evaluation is due."""
        self._evaluate_when_due()
        if self.spent >= self.config.budget.end:
            return
        self.estimators.ask(self.episodes, self._play)
        self._collect()
        if len(self.replay) >= self.config.agent.batch_size:
            self._learn()

    def _collect(self) -> None:
        """`steps_per_update` environment steps, rounded up to whole steps of all environments."""
        for _ in range(math.ceil(self.config.agent.steps_per_update / self.collector.num_envs)):
            at_random = self.steps < self.config.agent.random_steps
            outcomes = self.collector.step(at_random)
            self.steps += self.collector.num_envs
            if len(outcomes):
                self.episodes += len(outcomes)
                self._pending.append(outcomes)
                categories = self.goals.categories_at(outcomes.goals)
                self.record.practise(categories, outcomes.success)

    def _play(self, goals: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Success of one episode for each goal, played only to estimate competence."""
        codec, aside = self.backend.codec, self.collector.aside
        return play_many(self.backend, codec, self.goals, goals, rng, aside)

    def _learn(self) -> None:
        losses = self.backend.update("sac", self.replay.sample(self.config.agent.batch_size))
        self.updates += 1
        check_losses(self.updates, losses)
        temperature = losses.pop("temperature")
        outcomes = _joined(self._pending)
        self._pending = []
        self.sampler.update(outcomes)
        self.estimators.update(outcomes)
        self.record.hear(self.updates, self.goals, outcomes)
        competence = self.estimators.check(self.updates).get("competence_loss", float("nan"))
        self.record.losses({**losses, "competence_loss": competence})
        if self.updates % self.config.budget.record_every == 0:
            self.record.close_losses(
                **self._where(),
                temperature=temperature,
                epsilon=self.sampler.epsilon,
            )

    def _evaluate_when_due(self) -> None:
        budget = self.config.budget
        while self.spent >= self._next_evaluation and not self.done:
            for split, goals in self._evaluation.items():
                self._evaluate(split, goals, self._next_evaluation)
            last = self._next_evaluation == budget.end
            following = min(self._next_evaluation + budget.evaluate_every, budget.end)
            self._next_evaluation = budget.end + 1 if last else following
        if self.done:
            self.record.finish()

    def _evaluate(self, split: str, goals: EvaluationSet, planned: int) -> None:
        played = goals.feasible
        seed = self.config.budget.evaluation_seed
        success = evaluate(self.backend, self.backend.codec, goals, seed, self.collector.aside)
        where = {**self._where(), self._unit: planned, "split": split}
        found = by_category(goals.kinds, goals.categories[played], success)
        for category, (n, rate) in found.items():
            self.record.add("evaluation", {**where, "category": category, "n": n, "success": rate})
        outcomes = np.zeros(len(goals.positions))
        outcomes[played] = success
        for name, estimator in self.estimators.by_name.items():
            now, delayed = estimator.predict(goals.space, goals.positions)
            for row in competence_rows(goals, now, delayed):
                self.record.add("competence", {**where, "estimator": name, **row})
            self._record_goals({**where, "estimator": name}, goals, outcomes, now, delayed)
        if not self.estimators.by_name:
            nothing = np.full(len(outcomes), np.nan)
            self._record_goals({**where, "estimator": ""}, goals, outcomes, nothing, nothing)

    def _record_goals(
        self, where: dict[str, Any], goals: EvaluationSet, *of_each: np.ndarray
    ) -> None:
        """A row for each evaluated goal, where the run keeps them; see `goal_rows`."""
        if self.config.budget.record_goals:
            for row in goal_rows(goals, *of_each):
                self.record.add("goals", {**where, **row})

    @property
    def learned(self) -> CompetenceEstimator | None:
        """The learned estimator, if the run has it."""
        return self.estimators.by_name.get("learned")

    def _where(self) -> dict[str, int]:
        return {"update": self.updates, "step": self.steps, "episode": self.episodes}

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed run needs."""
        return {
            "episodes": self.episodes,
            "steps": self.steps,
            "updates": self.updates,
            "next_evaluation": self._next_evaluation,
            "pending": [vars(outcomes) for outcomes in self._pending],
            "backend": self.backend.state_dict(),
            "sampler": self.sampler.state_dict(),
            "estimators": self.estimators.state_dict(),
            "replay": self.replay.state_dict(),
            "collector": self.collector.state_dict(),
            "record": self.record.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` gave."""
        self.episodes, self.steps = int(state["episodes"]), int(state["steps"])
        self.updates = int(state["updates"])
        self._next_evaluation = int(state["next_evaluation"])
        self._pending = [Outcomes(**outcomes) for outcomes in state["pending"]]
        self.backend.load_state_dict(state["backend"])
        self.sampler.load_state_dict(state["sampler"])
        self.estimators.load_state_dict(state["estimators"])
        self.replay.load_state_dict(state["replay"])
        self.collector.load_state_dict(state["collector"])
        self.record.load_state_dict(state["record"])


def _joined(parts: list[Outcomes]) -> Outcomes:
    """Several outcomes as one, oldest first."""
    if not parts:
        return Outcomes(np.zeros(0, np.int64), np.zeros(0))
    return Outcomes(
        np.concatenate([part.goals for part in parts]),
        np.concatenate([part.success for part in parts]),
        np.concatenate([part.standing_on for part in parts]),
    )
