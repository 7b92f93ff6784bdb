"""The training loop: collect, update, look, save."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from magellan.agent.backbone import Backbone
from magellan.agent.packing import Codec
from magellan.agent.replay import Replay
from magellan.agent.sac import SAC
from magellan.competence.base import Outcomes
from magellan.competence.learned import LearnedCompetence
from magellan.config import RunConfig
from magellan.littlezoo import GoalSpace
from magellan.samplers import SamplerSettings, make_sampler
from magellan.training.collect import Collector
from magellan.training.evaluate import (
    EvaluationSet,
    MeanCompetence,
    evaluation_sets,
    mean_competence,
    mean_competence_of_space,
    play,
)
from magellan.training.finite import check_losses
from magellan.training.randomness import streams
from magellan.training.record import Record


class Trainer:
    """One run: an agent practises the goals that a sampler chooses.

    `advance` does one round (collection, one policy update, one competence update); the caller
    repeats it until `done` and saves `state_dict` when it likes. Everything random comes from the
    run's seed, so a run that was stopped and resumed gives the same tables as one that was not.

    Raises:
        InputError: unknown goal space, missing backbone.
    """

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.episodes = self.steps = 0
        self._next_evaluation = 0
        rngs = streams(config.seed)
        seeds = [int(seed) for seed in rngs["init"].integers(2**31, size=3)]
        self.goals = GoalSpace.named(config.goal_space, config.goals.seed)
        self.backbone = Backbone(config.backbone, seeds[0])
        self.codec = Codec(self.backbone.tokenizer)
        self.agent = SAC(self.backbone, config.agent, seeds[1])
        self.learned = self._make_learned(rngs["competence"], rngs["pool"], seeds[2])
        self.sampler = make_sampler(
            config.sampler, self.goals, rngs["sampler"], _settings(config), self.learned
        )
        agent = config.agent
        self.replay = Replay(agent.replay_capacity, rngs["replay"], agent.success_fraction)
        self.collector = Collector(
            self.goals, self.sampler, self.agent, self.replay, self.codec, agent, rngs
        )
        self.record = Record(config.budget.practice_window, config.budget.episodes)
        self._pending: list[Outcomes] = []
        self._evaluation = evaluation_sets(
            self.goals, config.budget.evaluation_goals, config.budget.evaluation_seed
        )

    def _make_learned(
        self, rng: np.random.Generator, pool_rng: np.random.Generator, seed: int
    ) -> LearnedCompetence | None:
        if self.config.sampler != "magellan":
            return None
        return LearnedCompetence(
            self.backbone, self.codec, self.goals, self.config.competence, rng, pool_rng, seed
        )

    @property
    def updates(self) -> int:
        """Policy updates so far."""
        return self.agent.updates

    @property
    def done(self) -> bool:
        """Whether the budget is spent and the last evaluation made."""
        return self._next_evaluation > self.config.budget.episodes

    def advance(self) -> None:
        """One round; evaluates first when a planned evaluation is due."""
        self._evaluate_when_due()
        if self.episodes >= self.config.budget.episodes:
            return
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

    def _learn(self) -> None:
        losses = self.agent.update(self.replay.sample(self.config.agent.batch_size))
        check_losses(self.updates, losses)
        self.sampler.update(_joined(self._pending))
        self._pending = []
        competence = self.learned.last_loss if self.learned else float("nan")
        if self.learned and self.episodes:  # before the first outcome there is no loss
            check_losses(self.updates, {"competence_loss": competence})
        self.record.losses({**losses, "competence_loss": competence})
        if self.updates % self.config.budget.record_every == 0:
            self.record.close_losses(
                **self._where(self.episodes),
                temperature=self.agent.temperature,
                epsilon=self.sampler.epsilon,
            )

    def _evaluate_when_due(self) -> None:
        budget = self.config.budget
        while self.episodes >= self._next_evaluation and not self.done:
            for split, goals in self._evaluation.items():
                self._evaluate(split, goals, self._next_evaluation)
            last = self._next_evaluation == budget.episodes
            following = min(self._next_evaluation + budget.evaluate_every, budget.episodes)
            self._next_evaluation = budget.episodes + 1 if last else following

    def _evaluate(self, split: str, goals: EvaluationSet, episode: int) -> None:
        seed = self.config.budget.evaluation_seed
        where = {**self._where(episode), "split": split}
        for category, (n, success) in play(self.agent, self.codec, goals, seed).items():
            self.record.add(
                "evaluation", {**where, "category": category, "n": n, "success": success}
            )
        for means in self._competence(split, goals):
            row = {
                "category": means.category,
                "n": means.n,
                "competence": means.now,
                "delayed_competence": means.delayed,
                "learning_progress": means.progress,
            }
            self.record.add("competence", {**where, **row})

    def _competence(self, split: str, goals: EvaluationSet) -> list[MeanCompetence]:
        """Of the evaluated goals where a prediction can be made for any; else of the goal space."""
        if self.learned is not None:
            predicted = self.learned.predict(goals.goals, range(len(goals.goals)))
            return mean_competence(goals.goals.categories, *predicted)
        return mean_competence_of_space(self.sampler, self.goals) if split == "train" else []

    def _where(self, episode: int) -> dict[str, int]:
        return {"update": self.updates, "step": self.steps, "episode": episode}

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed run needs."""
        return {
            "episodes": self.episodes,
            "steps": self.steps,
            "next_evaluation": self._next_evaluation,
            "pending": [vars(outcomes) for outcomes in self._pending],
            "agent": self.agent.state_dict(),
            "sampler": self.sampler.state_dict(),
            "replay": self.replay.state_dict(),
            "collector": self.collector.state_dict(),
            "record": self.record.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` gave."""
        self.episodes, self.steps = int(state["episodes"]), int(state["steps"])
        self._next_evaluation = int(state["next_evaluation"])
        self._pending = [Outcomes(**outcomes) for outcomes in state["pending"]]
        self.agent.load_state_dict(state["agent"])
        self.sampler.load_state_dict(state["sampler"])
        self.replay.load_state_dict(state["replay"])
        self.collector.load_state_dict(state["collector"])
        self.record.load_state_dict(state["record"])


def _settings(config: RunConfig) -> SamplerSettings:
    samplers = config.samplers
    return SamplerSettings(
        epsilon_start=samplers.epsilon_start,
        epsilon_end=samplers.epsilon_end,
        epsilon_decay=samplers.epsilon_decay,
        window=samplers.window,
        threshold=config.competence.lp_threshold,
        drop_standing_starts=samplers.drop_standing_starts,
    )


def _joined(parts: list[Outcomes]) -> Outcomes:
    """Several outcomes as one, oldest first."""
    if not parts:
        return Outcomes(np.zeros(0, np.int64), np.zeros(0))
    return Outcomes(
        np.concatenate([part.goals for part in parts]),
        np.concatenate([part.success for part in parts]),
        np.concatenate([part.standing_on for part in parts]),
    )
