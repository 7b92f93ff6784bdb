"""MAGELLAN's competence estimator: the language model predicts its own success.

This module holds the memory and the schedule of learning. The model, the head and their copies are
behind the backend (`magellan.agent.competence_head`): no torch here.

Gaven et al. 2025, section 4. A head on the hidden state of the goal prompt, with its own LoRA
adapter, is trained by binary cross-entropy on (initial prompt, success) of recent episodes. A copy
from about N updates ago gives the delayed competence, so that |now - delayed| is the absolute
learning progress.

The paper scores the whole goal space at each refresh. A space with more goals than `pool` is
sampled instead: each refresh draws new goals and scores them with both estimators, which costs as
much as one estimator on a space of `pool` goals.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from magellan.agent.replay import Episodes
from magellan.backends import CURRENT, DELAYED
from magellan.competence.base import CompetenceEstimator, Outcomes
from magellan.competence.prompt_tokens import PromptTokens
from magellan.competence.registry import EstimatorParts, register_estimator
from magellan.core.codec import PackedState, stack
from magellan.core.errors import not_allowed
from magellan.core.parsing import checked_numbers
from magellan.core.settings import BatchSize, Count, Section, StepSize, Width
from magellan.worlds import NOTHING, GoalSet

CACHED_PROMPTS = 20_000
"""Packed prompts that are kept, those that were used last."""


class LearnedSettings(Section):
    """The estimator `learned`, MAGELLAN's competence head."""

    learning_rate: StepSize = Field(1e-4, description="Adam step size of head and adapter.")
    adapter: Literal["own", "shared", "policy", "frozen", "ignored"] = Field(
        "own",
        description="Adapter that the head reads with, A to D in the paper's Figure 9: its own, "
        "the policy's, trained by both (`shared`) or by the policy alone (`policy`), or none "
        "(`frozen`). `ignored`: defect B1.",
    )
    hidden: Width = Field(128, description="Width of the head's hidden layer.")
    initial: float | None = Field(
        None,
        gt=0.0,
        lt=1.0,
        description="Chance of success that predictions begin near; null: even, as released.",
    )
    buffer: Count = Field(5_000, description="Most recent episodes kept.")
    batch_size: BatchSize = Field(256, description="Episodes per update, by recency rank.")
    delay: Count = Field(100, description="N: updates between current and delayed estimate.")
    update_every: Count = Field(
        1,
        description="Policy updates between gradient steps; 32 in the paper's text.",
    )
    refresh: Count = Field(32, description="Updates between scorings of the goal space.")
    pool: int = Field(
        25_000,
        ge=2,
        le=10**9,
        description="Maximum predictions per refresh; of more goals half as many are drawn.",
    )
    refresh_batch: Count = Field(512, description="Goals per pass of a refresh.")
    regions: int = Field(48, ge=2, le=10_000, description="Maximum groups of `learned_groups`.")
    regroup: Count = Field(8, description="Refreshes between regroupings.")

    @model_validator(mode="after")
    def _check_delay(self) -> LearnedSettings:
        if self.delay < self.refresh:
            every = f"snapshots are taken every competence.refresh = {self.refresh} updates"
            why = f": {every}, so learning progress would stay 0"
            raise not_allowed("competence.delay", self.delay, f"{self.refresh} or more", why)
        return self


@register_estimator(
    "learned", "Learned", LearnedSettings, section="competence", needs_features=True, arms="goals"
)
class LearnedCompetence(CompetenceEstimator):
    """Every goal is an arm; the same head also predicts goals never practised.

    Args:
        parts: `goals` are the candidates, or the space that the pool is drawn from; the head is
            started on `backend`. Without `scores_candidates` there are no candidates, and a refresh
            only advances the delayed copy.
        config: constants of the head.
    """

    def __init__(self, parts: EstimatorParts, config: LearnedSettings) -> None:
        assert parts.backend is not None
        self.backend, self.config = parts.backend, config
        self.updates = 0
        self.last_loss: float | None = None  # None if the last update made no gradient step
        self._former: list[GoalSet] = []  # goal spaces of earlier phases, oldest first
        self._rng, self._pool_rng = parts.stream("competence"), parts.stream("pool")
        self.backend.start_competence(config, parts.seed)
        # (goal space, goal, standing_on, success) of recent episodes.
        self._buffer: deque[tuple[int, int, int, float]] = deque(maxlen=config.buffer)
        # As released: int(N / refresh + 1) snapshots, the oldest of which is the delayed estimator,
        # so the delay grows to the largest multiple of `refresh` not above N. The backend has the
        # snapshots; here are the predictions of each for the whole goal space, None for a pool.
        self._predictions: deque[np.ndarray | None] = deque(
            maxlen=config.delay // config.refresh + 1
        )
        self._prompts = PromptTokens(self.backend.codec)
        self._packed_prompt = functools.lru_cache(CACHED_PROMPTS)(self._pack_prompt)
        self._scores_candidates = parts.scores_candidates
        self._whole: int | None = None  # handle of the prompts of the whole space
        self._set_candidates(parts.goals)
        self._refresh()

    def _set_candidates(self, goals: GoalSet) -> None:
        """Make the whole goal space the candidates if it fits, else start with an empty pool."""
        self._goals = goals
        if self._whole is not None:
            self.backend.free_prompts(self._whole)
        whole = self._scores_candidates and len(goals) <= self.config.pool
        if self.backend.nonstationary and self._scores_candidates and not whole:
            changes = "an `embed` that changes, whose past predictions are stored"
            why = f" for {len(goals)} goals with {changes}"
            raise not_allowed("competence.pool", self.config.pool, f"{len(goals)} or more", why)
        self._whole = None
        if whole:
            prompts = self._prompts.pack(goals, np.arange(len(goals)))
            self._whole = self.backend.cache_prompts(prompts)
        self._pool: np.ndarray | None = None if whole else np.zeros(0, np.int64)
        self._now = self._delayed = np.zeros(0)

    def set_goal_space(self, goals: GoalSet) -> None:
        """Keep model, episodes and snapshots; predict the new goals with all of them.

        So learning progress of new goals is known at once. With a model that changes outside this
        package past predictions of goals in both spaces are kept.
        """
        self._former.append(self._goals)
        self._set_candidates(goals)
        self._refreshed = True
        if self._whole is not None:
            predictions = [*self.backend.competence(self._whole, range(len(self._predictions)))]
            if self.backend.nonstationary:
                former = self._former[-1]
                places = goals.positions_in(former, np.arange(len(former)))
                for before, new in zip(self._predictions, predictions, strict=True):
                    assert before is not None
                    new[places[places >= 0]] = before[places >= 0]
        else:
            predictions = [None] * len(self._predictions)
        self._predictions.clear()
        self._predictions.extend(predictions)
        self._predict_candidates()

    def update(self, outcomes: Outcomes) -> None:
        """Store the outcomes; make a gradient step and a refresh, each when due."""
        columns = outcomes.goals, outcomes.standing_on, outcomes.success
        for episode in zip(*(column.tolist() for column in columns), strict=True):
            self._buffer.append((len(self._former), *episode))
        due = self._buffer and (self.updates + 1) % self.config.update_every == 0
        self.last_loss = self._learn() if due else None
        self.updates += 1
        self._refreshed = self.updates % self.config.refresh == 0
        if self._refreshed:
            self._refresh()

    def losses(self) -> dict[str, float]:
        """`competence_loss` of the last update's gradient step, if any."""
        return {} if self.last_loss is None else {"competence_loss": self.last_loss}

    def _learn(self) -> float:
        """One step of binary cross-entropy on episodes drawn by recency rank; returns the loss."""
        episodes = [self._buffer[i] for i in self._draw_by_recency(self.config.batch_size)]
        tokens, segments = stack([self._packed_prompt(*start) for *start, _ in episodes])
        success = np.array([outcome for *_, outcome in episodes], np.float32)
        return self.backend.update_competence(Episodes(tokens, segments, success))

    def _pack_prompt(self, space: int, goal: int, standing_on: int) -> PackedState:
        """First prompt of an episode, packed; cached, since recent ones are drawn repeatedly."""
        prompt = [*self._former, self._goals][space].prompt(goal, standing_on)
        return self.backend.codec.pack([prompt], [()])[0]

    def _draw_by_recency(self, size: int) -> np.ndarray:
        """Positions in the buffer, (size,), with probability rank / sum; the newest has rank n."""
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
        """Competence of candidates as of the last refresh, now and delayed."""
        return self._now[which], self._delayed[which]

    def predict(
        self, goals: GoalSet, positions: Sequence[int] | np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Competence now and delayed of any goals, unseen ones included; float64 (n,) each.

        Now is by the present head, not that of the last refresh. With a model that changes outside
        this package the delayed competence of candidates is the stored one.
        """
        prompts = self._prompts.pack(goals, positions)
        if self.backend.nonstationary and goals is self._goals:
            return self.backend.competence(prompts)[0], self._delayed[np.asarray(positions)]
        now, delayed = self.backend.competence(prompts, (CURRENT, DELAYED))
        return now, delayed

    def _refresh(self) -> None:
        """Take a snapshot, make the oldest one the delayed copy, and predict the candidates."""
        self._refreshed = True
        assert self._predictions.maxlen is not None
        self.backend.snapshot(self._predictions.maxlen)
        whole = self._whole
        self._predictions.append(None if whole is None else self.backend.competence(whole)[0])
        self._predict_candidates()

    def _predict_candidates(self) -> None:
        """Set competence now and delayed; of a newly drawn pool if the space is not whole.

        Predictions of older snapshots are stored, not recomputed, except with adapter `ignored`,
        where the policy's changes outdate them. No pool is drawn with a single snapshot, where now
        equals delayed.
        """
        newest, oldest = self._predictions[-1], self._predictions[0]
        if self._whole is not None:
            assert newest is not None
            assert oldest is not None
            self._now, self._delayed = newest, oldest
            if self.config.adapter == "ignored":
                self._delayed = self.backend.competence(self._whole, (DELAYED,))[0]
        elif self._scores_candidates and len(self._predictions) > 1:
            size = self.config.pool // 2
            self._pool = self._pool_rng.choice(len(self._goals), size, replace=False, shuffle=False)
            self._now, self._delayed = self.predict(self._goals, self._pool)

    def state_dict(self) -> dict[str, Any]:
        """Recent episodes, predictions of snapshots and of candidates, and streams.

        Weights are in the state of the backend.
        """
        return {
            "updates": self.updates,
            "last_loss": self.last_loss,
            "rng": self._rng.bit_generator.state,
            "pool_rng": self._pool_rng.bit_generator.state,
            "buffer": np.asarray(self._buffer, np.float64).reshape(-1, 4),
            "snapshots": {str(i): values for i, values in enumerate(self._predictions)},
            "pool": self._pool,
            "now": None if self._pool is None else self._now,
            "delayed": self._delayed,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`; the backend's state must be restored first.

        Raises:
            InputError: invalid episodes, snapshots or predictions.
        """
        self.updates = int(checked_numbers(state["updates"], "updates", ()))
        self.last_loss = state["last_loss"]
        self._rng.bit_generator.state = state["rng"]
        self._pool_rng.bit_generator.state = state["pool_rng"]
        spaces = [*self._former, self._goals]
        bounds = [0, 0, NOTHING, 0], [len(spaces) - 1, max(map(len, spaces)) - 1, 127, 1]
        saved = checked_numbers(state["buffer"], "buffer", (None, 4), *bounds)
        self._buffer.clear()
        self._buffer.extend((int(n), int(g), int(s), float(o)) for n, g, s, o in saved)
        # The last goal of each space and start must have a prompt.
        for start in {(n, s): (n, g, s) for n, g, s, _ in sorted(self._buffer)}.values():
            self._packed_prompt(*start)
        self._load_predictions(state)

    def _load_predictions(self, state: Mapping[str, Any]) -> None:
        """Restore predictions; the backend must have as many snapshots, and each be of all goals.

        Predictions of the newest snapshot are also those of candidates that are a whole space.
        """
        saved, size = state["snapshots"], len(self._goals)
        if not 1 <= len(saved) <= (self._predictions.maxlen or 0):
            raise not_allowed("snapshots", len(saved), f"1 to {self._predictions.maxlen}")
        self.backend.competence(self._prompts.pack(self._goals, [0]), range(len(saved)))
        predictions = [saved[str(place)] for place in range(len(saved))]
        if self._whole is not None:
            for values in predictions:
                checked_numbers(values, "snapshots", (size,), 0, 1)
        self._predictions.clear()
        self._predictions.extend(predictions)
        now = predictions[-1]
        if self._pool is not None:
            pool = checked_numbers(state["pool"], "pool", (None,), 0, size - 1)
            self._pool, size, now = pool.astype(np.int64), len(pool), state["now"]
        self._now = checked_numbers(now, "now", (size,), 0, 1)
        self._delayed = checked_numbers(state["delayed"], "delayed", (size,), 0, 1)
