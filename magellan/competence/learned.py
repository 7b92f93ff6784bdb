"""MAGELLAN's competence estimator: the language model predicts its own success.

Here stands what it remembers and when it learns. The model, the head and their copies are behind
the backend (`magellan.agent.competence_head`): no torch here.

Gaven et al. 2025, section 4.
A head on the hidden state of the goal prompt, with its own LoRA adapter, is trained by binary
cross-entropy on (initial prompt, success) of recent episodes. A copy from some N updates ago gives
the delayed competence, so that |now - delayed| is the absolute learning progress.

The paper scores the whole goal space at each refresh. A space with more goals than `pool` is known
by samples instead: each refresh draws goals anew and scores them with both estimators, which costs
as much as one estimator on a space of `pool` goals.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from magellan.agent.replay import Episodes
from magellan.backends import CURRENT, DELAYED, Backend
from magellan.competence.base import CompetenceEstimator, Outcomes
from magellan.competence.prompt_tokens import PromptTokens
from magellan.competence.registry import EstimatorParts, register_estimator
from magellan.core.codec import PackedState, stack
from magellan.core.errors import InputError, shown
from magellan.core.parsing import checked_numbers
from magellan.core.settings import BatchSize, Count, Section, StepSize, Width
from magellan.worlds import NOTHING, GoalSet

REMEMBERED = 20_000
"""Packed prompts that are kept before the memory is emptied."""


class LearnedSettings(Section):
    """The estimator `learned`, MAGELLAN's competence head."""

    learning_rate: StepSize = Field(1e-4, description="Adam step size of head and adapter.")
    adapter: Literal["own", "shared", "policy", "frozen", "ignored"] = Field(
        "own",
        description="Adapter that the head reads with: `own` (A in the paper's Figure 9); the "
        "policy's, which both train (`shared`, B) or the policy alone (`policy`, C); none "
        "(`frozen`, D). `ignored`: it trains its own, but predicts with the policy's (defect B1 of "
        "the released code with the public lamorel).",
    )
    hidden: Width = Field(128, description="Width of the head's hidden layer (tanh).")
    buffer: Count = Field(5_000, description="Most recent episodes kept.")
    batch_size: BatchSize = Field(256, description="Episodes per update, drawn by recency rank.")
    delay: Count = Field(
        100, description="N: updates between the current and the delayed estimate."
    )
    update_every: Count = Field(
        1,
        description="Policy updates between two gradient steps: 1 as released; by the paper's text "
        "32.",
    )
    refresh: Count = Field(32, description="Updates between two evaluations of the goal space.")
    pool: int = Field(
        25_000,
        ge=2,
        le=10**9,
        description="Predictions per refresh, at most. A goal space with more goals is sampled: "
        "half as many goals, drawn anew, each predicted now and delayed.",
    )
    refresh_batch: Count = Field(512, description="Goals per forward pass of a refresh.")
    regions: int = Field(48, ge=2, le=10_000, description="Groups of `learned_groups`, at most.")
    regroup: Count = Field(8, description="Refreshes between two draws of its groups.")
    space: Literal["read", "hidden", "frozen"] = Field(
        "read",
        description="Where goals of a group are near each other: in what the head reads; in its "
        "hidden layer; or in what the frozen model makes of them.",
    )
    within: Literal["uniform", "progress"] = Field(
        "uniform",
        description="Goals of a chosen group: all alike, or in proportion to their own learning "
        "progress.",
    )

    @model_validator(mode="after")
    def _old_enough_snapshots(self) -> LearnedSettings:
        if self.delay < self.refresh:
            raise InputError(
                f"competence.delay: {self.delay} is not allowed: snapshots are taken every "
                f"competence.refresh = {self.refresh} updates, so learning progress would stay 0; "
                f"allowed: {self.refresh} or more"
            )
        return self


class LearnedCompetence(CompetenceEstimator):
    """Every goal is an arm; the same head also speaks of goals never practised.

    Args:
        backend: the language model; `competence` is started on it.
        goals: the training goal space; as a whole the candidates, or where the pool is drawn from.
        config: constants of the head.
        rng: stream of the batches.
        pool_rng: stream of the pools.
        seed: seed of the head's initial values.
        sampled: false where no sampler asks for candidates: there are none then, and a refresh
            only moves the delayed copy on.
    """

    def __init__(
        self,
        backend: Backend,
        goals: GoalSet,
        config: LearnedSettings,
        rng: np.random.Generator,
        pool_rng: np.random.Generator,
        seed: int,
        sampled: bool = True,
    ) -> None:
        self.backend = backend
        self.config = config
        self.updates = 0
        self.last_loss: float | None = None  # of the last update, where it made a gradient step
        self._former: list[GoalSet] = []  # goal spaces of earlier phases, oldest first
        self._rng, self._pool_rng = rng, pool_rng
        backend.start_competence(config, seed)
        # Number of the goal space, goal, start and success of recent episodes.
        self._buffer: deque[tuple[int, int, int, float]] = deque(maxlen=config.buffer)
        # As released: int(N / refresh + 1) snapshots, the oldest of which is the delayed estimator,
        # so the delay grows to the largest multiple of `refresh` not above N.
        # Each is its number in the backend, and what it said of the whole goal space.
        self._snapshots: deque[dict[str, Any]] = deque()
        self._kept = config.delay // config.refresh + 1
        self._prompts = PromptTokens(backend.codec)
        self._packed: dict[tuple[int, int, int], PackedState] = {}
        self._sampled = sampled
        self._whole: int | None = None
        self._look_at(goals)
        self._refresh()

    def _look_at(self, goals: GoalSet) -> None:
        """Have a goal space as candidates, as a whole where it is small enough."""
        self._goals = goals
        if self._whole is not None:
            self.backend.release(self._whole)
        whole = self._sampled and len(goals) <= self.config.pool
        self._whole = None
        if whole:
            self._whole = self.backend.hold(self._prompts.pack(goals, np.arange(len(goals))))
        self._pool: np.ndarray | None = None if whole else np.zeros(0, np.int64)
        self._now = self._delayed = np.zeros(0)

    def set_goal_space(self, goals: GoalSet) -> None:
        """The model stays as it is, with its episodes, and says what it makes of the new goals.

        So do the snapshots, so that learning progress of new goals is known at once.
        """
        self._former.append(self._goals)
        self._look_at(goals)
        self._refreshed = True
        if self._whole is not None:
            numbers = [snapshot["number"] for snapshot in self._snapshots]
            said = self.backend.competence(self._whole, numbers)
            for snapshot, of_all in zip(self._snapshots, said, strict=True):
                snapshot["goals"] = of_all
            self._ask_delayed()
            self._recall()
        else:
            for snapshot in self._snapshots:
                snapshot["goals"] = None
            self._draw_pool()

    def update(self, outcomes: Outcomes) -> None:
        """Remember the outcomes; a gradient step and a refresh each when it is their turn."""
        self._buffer.extend(
            zip(
                itertools.repeat(len(self._former), len(outcomes)),
                outcomes.goals.tolist(),
                outcomes.standing_on.tolist(),
                outcomes.success.tolist(),
                strict=True,
            )
        )
        due = self._buffer and (self.updates + 1) % self.config.update_every == 0
        self.last_loss = self._learn() if due else None
        self.updates += 1
        self._refreshed = self.updates % self.config.refresh == 0
        if self._refreshed:
            self._refresh()

    def losses(self) -> dict[str, float]:
        """`competence_loss` of the last update's gradient step, where it made one."""
        return {} if self.last_loss is None else {"competence_loss": self.last_loss}

    def _learn(self) -> float:
        """One step of binary cross-entropy on episodes drawn by recency rank; gives the loss."""
        episodes = [self._buffer[i] for i in self._recent(self.config.batch_size)]
        tokens, segments = stack([self._prompt(*start) for *start, _ in episodes])
        success = np.array([outcome for *_, outcome in episodes], np.float32)
        return self.backend.update_competence(Episodes(tokens, segments, success))

    def _prompt(self, space: int, goal: int, standing_on: int) -> PackedState:
        """An episode's first prompt; those of late are drawn again and again."""
        key = space, goal, standing_on
        if key not in self._packed:
            if len(self._packed) >= REMEMBERED:
                self._packed.clear()
            goals = [*self._former, self._goals][space]
            prompt = goals.prompt(goal, standing_on)
            self._packed[key] = self.backend.codec.pack([prompt], [()])[0]
        return self._packed[key]

    def _recent(self, size: int) -> np.ndarray:
        """Positions in the buffer by rank 1..n, newest n, with replacement, (size,)."""
        cumulative = np.cumsum(np.arange(1, len(self._buffer) + 1, dtype=np.float64))
        draws = self._rng.random(size) * cumulative[-1]
        return np.searchsorted(cumulative, draws, side="right")

    def candidates(self) -> np.ndarray | None:
        """All goals, or the pool: positions int64 (pool // 2,), none before the second snapshot."""
        return self._pool

    def known(self) -> np.ndarray:
        """All candidates."""
        return np.arange(len(self._now))

    def changed(self) -> np.ndarray:
        """All candidates after a refresh, none in between."""
        return self.known() if self._refreshed else np.zeros(0, np.int64)

    def competence(self, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Competence of candidates at the last refresh, now and delayed."""
        return self._now[which], self._delayed[which]

    def predict(
        self, goals: GoalSet, positions: Sequence[int] | np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Competence now and delayed of any goals, also unseen ones; two float64 (len(positions),).

        The current head is used as it is, the delayed one as of the last refresh.
        """
        prompts = self._prompts.pack(goals, positions)
        now, delayed = self.backend.competence(prompts, (CURRENT, DELAYED))
        return now, delayed

    def _refresh(self) -> None:
        """Take a snapshot, make the oldest one the delayed copy, and score candidates anew."""
        self._refreshed = True
        self._snapshots.append({"number": self.backend.snapshot(), "goals": None})
        past = self._snapshots.popleft() if len(self._snapshots) > self._kept else None
        self.backend.restore(self._snapshots[0]["number"])
        if past is not None:
            self.backend.discard(past["number"])
        if self._whole is not None:
            # What a past refresh said of the whole space is remembered, not computed again.
            self._snapshots[-1]["goals"] = self.backend.competence(self._whole)[0]
            self._ask_delayed()
            self._recall()
        else:
            self._draw_pool()

    def _draw_pool(self) -> None:
        """Candidates drawn anew; with one snapshot now and delayed are equal: none progresses."""
        if self._sampled and len(self._snapshots) > 1:
            size = self.config.pool // 2
            self._pool = self._pool_rng.choice(len(self._goals), size, replace=False, shuffle=False)
            self._now, self._delayed = self.predict(self._goals, self._pool)

    def _ask_delayed(self) -> None:
        """What a snapshot once said holds no more where it reads with the policy's adapter."""
        if self.config.adapter == "ignored":
            assert self._whole is not None
            said = self.backend.competence(self._whole, (DELAYED,))[0]
            self._snapshots[-1]["delayed"] = said

    def _recall(self) -> None:
        newest, oldest = self._snapshots[-1], self._snapshots[0]
        self._now, self._delayed = newest["goals"], newest.get("delayed", oldest["goals"])

    def state_dict(self) -> dict[str, Any]:
        """Recent episodes, numbers of the snapshots and what they said, pool and streams.

        Weights are in the state of the backend.
        """
        pool = {"goals": self._pool, "now": self._now, "delayed": self._delayed}
        return {
            "updates": self.updates,
            "last_loss": self.last_loss,
            "rng": self._rng.bit_generator.state,
            "pool_rng": self._pool_rng.bit_generator.state,
            "buffer": np.asarray(self._buffer, np.float64).reshape(-1, 4),
            "snapshots": {str(i): snapshot for i, snapshot in enumerate(self._snapshots)},
            "pool": None if self._pool is None else pool,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` gave, after the state of the backend.

        Raises:
            InputError: episodes, snapshots or a pool that no estimator has kept.
        """
        self.updates = int(checked_numbers(state["updates"], "updates", ()))
        self.last_loss = state["last_loss"]
        self._rng.bit_generator.state = state["rng"]
        self._pool_rng.bit_generator.state = state["pool_rng"]
        self._buffer.clear()
        self._buffer.extend(self._checked_episodes(state["buffer"]))
        self._snapshots.clear()
        self._snapshots.extend(state["snapshots"][str(i)] for i in range(len(state["snapshots"])))
        self._check_snapshots()
        if self._whole is not None:
            self._recall()
        elif self._pool is not None:
            pool = state["pool"]
            drawn = checked_numbers(pool["goals"], "pool", (None,), 0, len(self._goals) - 1)
            self._pool = drawn.astype(np.int64)
            self._now = checked_numbers(pool["now"], "pool, now", drawn.shape, 0, 1)
            self._delayed = checked_numbers(pool["delayed"], "pool, delayed", drawn.shape, 0, 1)

    def _checked_episodes(self, saved: Any) -> list[tuple[int, int, int, float]]:
        """Episodes of the buffer; the last goal of each space and start has a prompt."""
        spaces = [*self._former, self._goals]
        largest = [len(spaces) - 1, max(map(len, spaces)) - 1, 127, 1]
        checked = checked_numbers(saved, "buffer", (None, 4), [0, 0, NOTHING, 0], largest)
        found = [(int(n), int(g), int(s), float(o)) for n, g, s, o in checked]
        for start in {(n, s): (n, g, s) for n, g, s, _ in sorted(found)}.values():
            self._prompt(*start)
        return found

    def _check_snapshots(self) -> None:
        """The backend has all of them, and each said something of every goal."""
        numbers = [snapshot["number"] for snapshot in self._snapshots]
        if not numbers or sorted(set(numbers)) != numbers:
            raise InputError(f"snapshots: {shown(numbers)} is not allowed; allowed: rising numbers")
        self.backend.competence(self._prompts.pack(self._goals, [0]), numbers)
        size = len(self._goals)
        for said in self._snapshots if self._whole is not None else ():
            for name in ("goals", *({"delayed"} & said.keys())):
                checked_numbers(said[name], f"snapshots, {name}", (size,), 0, 1)


@register_estimator("learned", "Learned", LearnedSettings, section="competence", reads=True)
def build(parts: EstimatorParts, settings: LearnedSettings) -> LearnedCompetence:
    """Head, adapter and delayed copy on the run's language model."""
    assert parts.backend is not None
    streams = parts.stream("competence"), parts.stream("pool")
    return LearnedCompetence(
        parts.backend, parts.goals, settings, *streams, parts.seed, parts.sampled
    )
