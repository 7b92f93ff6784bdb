"""The trainer's side of a backend whose model is behind lamorel's servers.

Requests are arrays. Those that only read go through lamorel's module functions, which split them
among the servers; those that change state go through its updater, to every server.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from magellan.agent.replay import Batch, Episodes
from magellan.backends.base import (
    AS_BEFORE,
    CURRENT,
    MICRO_BATCH,
    Backend,
    Which,
    convert,
    describe,
)
from magellan.core.codec import Codec, Packed, PackedState
from magellan.core.errors import InputError, JobError, ServersDiffer, is_out_of_memory
from magellan.model.settings import AgentConfig

if TYPE_CHECKING:
    from magellan.competence.learned import LearnedSettings

READING = "magellan"
"""Name of the module function."""


class ServerError(RuntimeError):
    """An error in a server; the message says which."""


class Caller(Protocol):
    """The part of `lamorel.Caller` that is used."""

    def custom_module_fns(
        self, module_function_keys: list[str], contexts: list[str], **arguments: Any
    ) -> list[Any]:
        """Answers of module functions, one per context."""

    def update(
        self, contexts: list[str], candidates: list[list[str]], **arguments: Any
    ) -> list[Any]:
        """Answers of the updater, one per server."""

    def close(self) -> None:
        """Stop the servers."""


class Failure:
    """An error as a server's answer: raising there would leave the caller waiting."""

    def __init__(self, error: Exception) -> None:
        self.kind, self.text = type(error).__name__, str(error)
        # The trainer's process recognises a lack of memory by the text alone.
        self.text += " (out of memory)" if is_out_of_memory(error) else ""
        same = type(error) in (KeyError, IndexError) or isinstance(error, InputError | JobError)
        self.same = type(error) if same else None

    def error(self) -> Exception:
        """The exception to raise in the trainer's process."""
        if self.same is not None:
            return self.same(self.text)
        return ServerError(f"{self.kind} in a server of lamorel: {self.text}")


class LamorelBackend(Backend):
    """The trainer's side.

    Args:
        caller: of lamorel, in its RL process.
        tokenizer: of the model that the servers hold.
        servers: how many there are.
    """

    def __init__(self, caller: Caller, tokenizer: Callable[..., Any], servers: int) -> None:
        self.codec = Codec(tokenizer)
        self._caller: Caller | None = caller
        self._ready = False  # before that there is no checkpoint to go on from
        # One context per server: lamorel distributes contexts evenly and in order.
        self._contexts = [str(number) for number in range(servers)]
        try:
            server = self._call_all("describe")[0]
        except BaseException:  # nothing else would stop the servers
            self.close()
            raise
        self._ready = True
        self.passes, self.device, self.dtype = server["passes"], server["device"], server["dtype"]

    @property
    def _open_caller(self) -> Caller:
        assert self._caller is not None, "the servers have ended"
        return self._caller

    def _read(self, call: str, *arguments: Any) -> list[np.ndarray]:
        """Answers of the servers, each for its share of the data."""
        with self._connection_errors():
            answers = self._open_caller.custom_module_fns(
                [READING], self._contexts, call=call, arguments=arguments
            )
        return _raise_failures([answer[READING] for answer in answers])

    def _call_all(self, call: str, *arguments: Any) -> list[Any]:
        """Make the same call on every server; returns their answers."""
        candidates: list[list[str]] = [[] for _ in self._contexts]
        with self._connection_errors():
            answers = self._open_caller.update(
                self._contexts, candidates, call=call, arguments=arguments
            )
        return _raise_failures(answers)

    @contextlib.contextmanager
    def _connection_errors(self) -> Iterator[None]:
        """Turn errors of the connection, after which no server can be called, into a JobError."""
        try:
            yield
        except RuntimeError as error:
            self._caller = None
            reason = " ".join(str(error).split())[:160]
            remedy = "; --resume goes on from the last checkpoint" if self._ready else ""
            raise JobError(
                f"a server of lamorel has ended or does not answer ({reason}); see its last output "
                f"above{remedy}"
            ) from error

    def start_policy(self, settings: AgentConfig, seed: int) -> None:
        self._agree_on_micro_batch(self._call_all("start_policy", settings, seed))

    def start_competence(self, settings: LearnedSettings, seed: int) -> None:
        self._call_all("start_competence", settings, seed)

    def _agree_on_micro_batch(self, choices: list[tuple[int, str]]) -> None:
        """Set the smallest micro-batch that a server has chosen in all of them; 0 is the batch.

        Sums over other micro-batches differ by rounding, and servers must not differ.
        """
        smallest, self.memory = min(choices, key=lambda choice: choice[0] or math.inf)
        if any(size != smallest for size, _ in choices):
            reason = f"the least of {len(choices)} servers"
            self._call_all("set_micro_batch", smallest, reason)
            self.memory = describe(smallest, reason)

    def probabilities(self, states: list[PackedState]) -> np.ndarray:
        return _stack(self._read("probabilities", states))

    def values(self, states: list[PackedState]) -> np.ndarray:
        return _stack(self._read("values", states))

    def critic_statistics(self, states: list[PackedState]) -> dict[str, float]:
        """From the first server; every server reads all states."""
        statistics: dict[str, float] = self._call_all("critic_statistics", states)[0]
        return statistics

    def cache_prompts(self, prompts: Packed) -> int:
        return int(self._call_all("cache_prompts", prompts)[0])

    def free_prompts(self, held: int) -> None:
        self._call_all("free_prompts", held)

    def competence(self, prompts: Packed | int, which: Sequence[Which] = (CURRENT,)) -> np.ndarray:
        return np.concatenate(self._read("competence", prompts, tuple(which)), axis=1)

    def update_policy(self, transitions: Batch) -> dict[str, float]:
        losses: dict[str, float] = self._call_all_alike("update_policy", transitions)
        return losses

    def update_competence(self, episodes: Episodes) -> float:
        return float(self._call_all_alike("update_competence", episodes))

    def _call_all_alike(self, call: str, data: Batch | Episodes) -> Any:
        """The answer that all servers give; raises ServersDiffer if they differ."""
        answers = self._call_all(call, data)
        if len({*map(repr, answers)}) > 1:  # NaN, which the trainer reports, is as NaN
            raise ServersDiffer(
                f"lamorel's servers differ after {call}: {answers}; "
                "--resume goes on from the last checkpoint"
            )
        return answers[0]

    def snapshot(self, keep: int) -> None:
        self._call_all("snapshot", keep)

    def state_dict(self) -> dict[str, Any]:
        """Copies from the first server; all hold the same state."""
        state: dict[str, Any] = self._call_all("state_dict")[0]
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._call_all("load_state_dict", convert(state))  # a server may lack the classes
        if self.memory and MICRO_BATCH in state:
            self.memory = describe(int(state[MICRO_BATCH]), AS_BEFORE)

    def close(self) -> None:
        """Stop the servers, unless they have ended."""
        caller, self._caller = self._caller, None
        if caller is not None:
            caller.close()


def _raise_failures(answers: list[Any]) -> list[Any]:
    """The answers, unless one is a `Failure`, which is raised."""
    for answer in answers:
        if isinstance(answer, Failure):
            raise answer.error()
    return answers


def _stack(shares: list[np.ndarray]) -> np.ndarray:
    """Concatenate the servers' rows, (batch, candidates), with 0 past the last candidate."""
    shares = [share for share in shares if len(share)]
    width = max(share.shape[1] for share in shares)
    return np.concatenate(
        [np.pad(share, ((0, 0), (0, width - share.shape[1]))) for share in shares]
    )
