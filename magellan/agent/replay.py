"""Replay memory of n-step transitions, stored as integers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from magellan.core.codec import PADDING, Codec, PackedState
from magellan.core.errors import InputError


@dataclass(frozen=True)
class Step:
    """One environment step as collected: the state, the candidate taken, and the reward."""

    state: PackedState
    action: int
    reward: float


@dataclass(frozen=True)
class Transition:
    """An n-step transition.

    `returns` = sum of gamma^i r_i over the n steps; `discount` = gamma^n of the bootstrap, 0 at the
    end of an episode; `next_state` is the state after the last step.
    """

    state: PackedState
    action: int
    returns: float
    discount: float
    next_state: PackedState


class NStepWindow:
    """Folds the steps of one environment into n-step transitions (Sutton & Barto, section 7.1).

    During an episode a full window of n steps yields its oldest transition, with discount gamma^n.
    The end of the episode yields every remaining suffix with discount 0: truncation counts as
    termination, as in the released code.
    """

    def __init__(self, n_step: int, gamma: float) -> None:
        self._n_step = n_step
        self._gamma = gamma
        self.steps: list[Step] = []

    def add(self, step: Step, next_state: PackedState, ended: bool) -> list[Transition]:
        """Add one step; returns the transitions that it completes."""
        self.steps.append(step)
        transitions = []
        if ended:
            while self.steps:
                transitions.append(self._fold(next_state, 0.0))
        elif len(self.steps) == self._n_step:
            transitions.append(self._fold(next_state, self._gamma**self._n_step))
        return transitions

    def _fold(self, next_state: PackedState, discount: float) -> Transition:
        returns = sum(self._gamma**i * step.reward for i, step in enumerate(self.steps))
        oldest = self.steps.pop(0)
        return Transition(oldest.state, oldest.action, returns, discount, next_state)


@dataclass(frozen=True)
class Batch:
    """A batch of transitions as arrays; tokens and segments are (batch, length)."""

    tokens: np.ndarray
    segments: np.ndarray
    actions: np.ndarray
    returns: np.ndarray
    discounts: np.ndarray
    next_tokens: np.ndarray
    next_segments: np.ndarray


@dataclass(frozen=True)
class Episodes:
    """First prompt, tokens and segments (n, length), and success, float32 (n,), of episodes."""

    tokens: np.ndarray
    segments: np.ndarray
    success: np.ndarray


class Replay:
    """Ring buffer of transitions; sampling is uniform without replacement.

    With `success_fraction` > 0 that share of a batch comes from episodes that reached their goal
    (fewer when there are fewer), the rest from all transitions.

    Args:
        capacity: most transitions stored.
        rng: random stream of the draws.
        success_fraction: share of a batch drawn from successful episodes.
    """

    def __init__(
        self, capacity: int, rng: np.random.Generator, success_fraction: float = 0.0
    ) -> None:
        self.capacity = capacity
        self.added = 0
        self._rng = rng
        self._success_fraction = success_fraction
        self._fields: dict[str, np.ndarray] = {
            "actions": np.zeros(0, np.int64),
            "returns": np.zeros(0, np.float32),
            "discounts": np.zeros(0, np.float32),
            "success": np.zeros(0, bool),
            "tokens": np.zeros((0, 1), np.int32),
            "segments": np.full((0, 1), PADDING, np.int8),
            "next_tokens": np.zeros((0, 1), np.int32),
            "next_segments": np.full((0, 1), PADDING, np.int8),
        }

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(self, transition: Transition) -> int:
        """Store a transition in place of the oldest one; returns its serial number."""
        self._make_room(transition)
        row = self.added % self.capacity
        self._fields["actions"][row] = transition.action
        self._fields["returns"][row] = transition.returns
        self._fields["discounts"][row] = transition.discount
        self._fields["success"][row] = False
        self._write_state(row, "", transition.state)
        # The end of an episode has no bootstrap, so its last state is not stored.
        if transition.discount > 0:
            self._write_state(row, "next_", transition.next_state)
        self.added += 1
        return self.added - 1

    def mark_success(self, serials: list[int]) -> None:
        """Mark transitions as part of an episode that reached its goal."""
        rows = [
            serial % self.capacity for serial in serials if serial >= self.added - self.capacity
        ]
        self._fields["success"][rows] = True

    def sample(self, size: int) -> Batch:
        """Draw `size` transitions, at most `len(self)`."""
        quota = min(round(self._success_fraction * size), size)
        successes = np.flatnonzero(self._fields["success"][: len(self) if quota else 0])
        quota = min(quota, len(successes))
        drawn = [
            self._rng.choice(successes, quota, replace=False),
            self._rng.choice(len(self), size - quota, replace=False),
        ]
        rows = np.concatenate(drawn)
        return Batch(**{name: self._fields[name][rows] for name in Batch.__dataclass_fields__})

    def state_dict(self) -> dict[str, Any]:
        """All transitions, and the state of the random stream."""
        fields = {name: values[: len(self)] for name, values in self._fields.items()}
        return {"added": self.added, "rng": self._rng.bit_generator.state, "fields": fields}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned.

        Raises:
            InputError: a field has another type or another number of rows.
        """
        self.added = int(state["added"])
        self._rng.bit_generator.state = state["rng"]
        fields = {name: np.array(state["fields"][name]) for name in self._fields}
        for name, values in fields.items():
            field = self._fields[name]
            if (values.dtype, values.ndim, len(values)) != (field.dtype, field.ndim, len(self)):
                raise InputError(
                    f"replay: {name} of {values.dtype} {values.shape} is not allowed; allowed: "
                    f"{len(self)} rows of {field.dtype}"
                )
        self._fields = fields

    def check(self, codec: Codec) -> None:
        """Check restored states and actions.

        Raises:
            InputError: a state that the codec cannot have packed, or an action without a candidate.
        """
        fields = self._fields
        codec.check(fields["tokens"], fields["segments"])
        codec.check(fields["next_tokens"], fields["next_segments"])
        check_actions(fields["actions"], fields["segments"])
        next_segments = fields["next_segments"][fields["discounts"] > 0]
        check_actions(np.zeros(len(next_segments), np.int64), next_segments)

    def _write_state(self, row: int, prefix: str, state: PackedState) -> None:
        length = len(state.tokens)
        self._fields[f"{prefix}tokens"][row, :length] = state.tokens
        self._fields[f"{prefix}segments"][row, :length] = state.segments
        self._fields[f"{prefix}segments"][row, length:] = PADDING

    def _make_room(self, transition: Transition) -> None:
        """Grow rows by doubling up to the capacity, and columns to the longest state seen."""
        rows = len(self._fields["actions"])
        if self.added >= rows and rows < self.capacity:
            for name in self._fields:
                self._pad(name, rows=min(self.capacity, max(1024, 2 * rows)) - rows)
        for prefix, state in (("", transition.state), ("next_", transition.next_state)):
            columns = len(state.tokens) - self._fields[f"{prefix}tokens"].shape[1]
            if columns > 0:
                self._pad(f"{prefix}tokens", columns=columns)
                self._pad(f"{prefix}segments", columns=columns)

    def _pad(self, name: str, rows: int = 0, columns: int = 0) -> None:
        values, fill = self._fields[name], PADDING if "segments" in name else 0
        padding = [(0, rows), (0, columns)][: values.ndim]
        self._fields[name] = np.pad(values, padding, constant_values=fill)


def check_actions(actions: np.ndarray, segments: np.ndarray) -> None:
    """Raise InputError if an action (n,) is no candidate of its state, segments (n, length)."""
    candidates = segments.max(axis=1, initial=0)
    for action in actions[(actions < 0) | (actions >= candidates)][:1].tolist():
        raise InputError(f"states: action {action} is not allowed; allowed: one of the candidates")
