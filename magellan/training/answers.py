"""Training in worlds whose agent writes: groups of answers to prompts, by GRPO.

An episode is an answer, a step is a token of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from magellan.backends import Backend
from magellan.competence import Outcomes
from magellan.competence.groups import advantages_of, grouped
from magellan.config import RunConfig
from magellan.core.columns import CRITIC
from magellan.core.errors import not_allowed
from magellan.samplers import GoalSampler
from magellan.training.collect import Evaluator, drawn
from magellan.training.evaluate import EvaluationSet
from magellan.training.loop import Trainer
from magellan.worlds import WORLDS, GoalSet


@dataclass(frozen=True)
class Answers:
    """Answers to the goals at `positions` (n,).

    tokens: see `Backend.write`, (n, at most the longest).
    rewards: 1 for a right answer, otherwise 0: float64 (n,).
    entropy: mean of the tokens', in nats.
    """

    positions: np.ndarray
    prompts: list[np.ndarray]
    tokens: np.ndarray
    rewards: np.ndarray
    entropy: float


class Writer:
    """Lets the agent answer prompts, and rewards right answers.

    goals, sampler: the training goal space, and what chooses the prompts in it to train on.
    rng: the stream `policy`.
    evaluator: rewards answers that train.
    """

    def __init__(
        self,
        goals: GoalSet,
        sampler: GoalSampler,
        backend: Backend,
        rng: np.random.Generator,
        evaluator: Evaluator,
    ) -> None:
        self._backend, self._rng, self._evaluator = backend, rng, evaluator
        self.restart(goals, sampler)

    def restart(self, goals: GoalSet, sampler: GoalSampler, seed: int | None = None) -> None:
        """Take prompts of these goals, from this sampler, from now on."""
        self._goals, self.sampler = goals, sampler

    def use(self, sampler: GoalSampler) -> None:
        """Take prompts from another sampler, over the same goals."""
        self.sampler = sampler

    def practise(self, prompts: int, answers: int) -> tuple[Answers, Outcomes]:
        """Draw prompts, with `answers` answers to each; an outcome is an answer."""
        goals, flags = drawn(self.sampler, prompts)
        written = self.write(self._goals, np.repeat(goals, answers), self._rng)
        rewards = self._evaluator.judged(
            written.rewards, np.ones(len(written.rewards), bool), lambda: self._texts(written)
        )
        written = replace(written, rewards=rewards)
        outcomes = Outcomes(written.positions, written.rewards, explored=np.repeat(flags, answers))
        return written, outcomes

    def _texts(self, written: Answers) -> list[str]:
        """Prompts with their answers, (n,)."""
        answers = self._backend.codec.decode(written.tokens)
        prompts = (self._goals.prompt(int(position)) for position in written.positions)
        return [f"{prompt}\nAnswer: {text}" for prompt, text in zip(prompts, answers, strict=True)]

    def write(self, goals: GoalSet, positions: np.ndarray, rng: np.random.Generator) -> Answers:
        """Write an answer to each of the goals at `positions` (n,)."""
        codec, world = self._backend.codec, goals.world
        prompts = codec.encode([goals.prompt(int(position)) for position in positions])
        draws = rng.random((len(positions), world.answer_tokens))
        tokens, entropy = self._backend.write(prompts, draws)
        texts = codec.decode(tokens)
        pairs = zip(positions.tolist(), texts, strict=True)
        right = [world.is_right(goals.goal(position), text) for position, text in pairs]
        for value in right:
            if value not in (0, 1):
                raise not_allowed(f"world {world.name}: is_right", value, "True or False")
        return Answers(positions, prompts, tokens, np.array(right, float), entropy)

    def state_dict(self) -> dict[str, Any]:
        """The stream; between two updates there is nothing else."""
        return {"policy_rng": self._rng.bit_generator.state, **self._evaluator.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`."""
        self._rng.bit_generator.state = state["policy_rng"]
        self._evaluator.load_state_dict(state)


class WritingTrainer(Trainer):
    """A run whose agent writes; see `Trainer`. A round is an update."""

    collector: Writer  # type: ignore[assignment]  # uses of a Collector alone are overridden

    def _start_agent(self) -> None:
        self.backend.start_writing(self.config.grpo)

    def _start_practice(self) -> None:
        rng = self._rngs["policy"]
        self.collector = Writer(self.goals, self.sampler, self.backend, rng, self.evaluator)

    def _collect(self) -> None:
        settings = self.config.grpo
        self._written, outcomes = self.collector.practise(settings.prompts, settings.answers)
        self.steps += int((self._written.tokens >= 0).sum())
        self._count(outcomes)

    @property
    def _can_learn(self) -> bool:
        return True

    def _update_agent(self) -> dict[str, float]:
        written, settings = self._written, self.config.grpo
        rewards = written.rewards.reshape(-1, settings.answers)
        admitted = np.ones(len(rewards), bool)
        if settings.gate == "spread":
            admitted = rewards.min(1) < rewards.max(1)
        loss, rows = 0.0, np.flatnonzero(np.repeat(admitted, settings.answers))
        if len(rows):
            prompts = [written.prompts[row] for row in rows]
            longest = self.goals.world.answer_tokens
            tokens, kept = written.tokens[rows], rewards[admitted]
            loss = self.backend.update_writing(prompts, tokens, kept, longest)
        temperature = settings.temperature
        return {"actor_loss": loss, "entropy": written.entropy, "temperature": temperature}

    def _told(self, outcomes: Outcomes) -> Outcomes:
        """All answers to a goal as one outcome, as in a curriculum."""
        answers = outcomes.goals, outcomes.success
        advantage = advantages_of(*answers) if self.sampler.wants_advantage else None
        return grouped(*answers, advantage=advantage, explored=outcomes.explored)

    def _play(self, goals: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return self.collector.write(self.goals, goals, rng).rewards

    def _evaluated(self, goals: EvaluationSet) -> tuple[np.ndarray, dict[str, dict[str, float]]]:
        rng = np.random.default_rng(self.config.budget.evaluation_seed)
        written = self.collector.write(goals.space, goals.positions[goals.feasible], rng)
        no_critic = dict.fromkeys(CRITIC, float("nan"))
        return written.rewards, dict.fromkeys(goals.kinds.names, no_critic)

    def _practice_state(self) -> dict[str, Any]:
        return {"collector": self.collector.state_dict()}

    def _load_practice(self, state: Mapping[str, Any]) -> None:
        self.collector.load_state_dict(state["collector"])


def make_trainer(
    config: RunConfig, backend: Backend | None = None, transcript: Path | None = None
) -> Trainer:
    """Make the trainer of a run at its start; arguments as those of `Trainer`."""
    kind = WritingTrainer if WORLDS[config.world].answer_tokens else Trainer
    return kind(config, backend, transcript)
