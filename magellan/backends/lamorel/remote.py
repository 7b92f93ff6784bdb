"""A backend whose model is behind lamorel's servers, as the trainer's process sees it.

What is asked travels as arrays. What only reads goes through lamorel's module functions, and is
shared out among the servers; what changes something goes through its updater, to all of them.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from magellan.agent.replay import Batch, Episodes
from magellan.backends.base import CURRENT, Backend, Which
from magellan.core.codec import Codec, Packed, PackedState
from magellan.core.errors import InputError, JobError, ServersDiffer, is_out_of_memory
from magellan.model.settings import AgentConfig

if TYPE_CHECKING:
    from magellan.agent.competence_head import HeadSettings

READING = "magellan"
"""Name of the module function."""


class ServerError(RuntimeError):
    """Something that went wrong in a server; what it was stands in the message."""


class Caller(Protocol):
    """What is used of `lamorel.Caller`."""

    def custom_module_fns(
        self, module_function_keys: list[str], contexts: list[str], **arguments: Any
    ) -> list[Any]:
        """Answers of a module function, one for each context."""

    def update(
        self, contexts: list[str], candidates: list[list[str]], **arguments: Any
    ) -> list[Any]:
        """Answers of the updater, one from each server."""

    def close(self) -> None:
        """End the servers."""


class Failure:
    """What a server answers instead of raising, which would leave the caller waiting."""

    def __init__(self, error: Exception) -> None:
        self.kind, self.text = type(error).__name__, str(error)
        # A library's error may not say so in its text; the trainer's process asks that.
        self.text += " (out of memory)" if is_out_of_memory(error) else ""
        same = type(error) is KeyError or isinstance(error, InputError | JobError)
        self.same = type(error) if same else None

    def raised(self) -> Exception:
        """The error, as the trainer's process raises it."""
        if self.same is not None:
            return self.same(self.text)
        return ServerError(f"{self.kind} in a server of lamorel: {self.text}")


class LamorelBackend(Backend):
    """The trainer's end of the line.

    Args:
        caller: of lamorel, in its RL process.
        tokenizer: of the model that the servers hold.
        servers: how many there are.
    """

    def __init__(self, caller: Caller, tokenizer: Callable[..., Any], servers: int) -> None:
        self.codec = Codec(tokenizer)
        self._caller: Caller | None = caller
        # One context for each server: lamorel deals contexts out, evenly and in order.
        self._contexts = [str(number) for number in range(servers)]
        try:
            told = self._tell("describe")[0]
        except BaseException:  # nobody else would end the servers
            self.close()
            raise
        self.passes, self.device, self.dtype = told["passes"], told["device"], told["dtype"]

    @property
    def _line(self) -> Caller:
        assert self._caller is not None, "the servers have ended"
        return self._caller

    def _read(self, call: str, *arguments: Any) -> list[np.ndarray]:
        """What each server reads for its share."""
        with self._lost_with_a_server():
            answers = self._line.custom_module_fns(
                [READING], self._contexts, call=call, arguments=arguments
            )
        return _checked([answer[READING] for answer in answers])

    def _tell(self, call: str, *arguments: Any) -> list[Any]:
        """Have every server do the same; gives what each answers."""
        candidates: list[list[str]] = [[] for _ in self._contexts]
        with self._lost_with_a_server():
            answers = self._line.update(self._contexts, candidates, call=call, arguments=arguments)
        return _checked(answers)

    @contextlib.contextmanager
    def _lost_with_a_server(self) -> Iterator[None]:
        """Between the processes an error says that one of them has gone; then none can be asked."""
        try:
            yield
        except RuntimeError as error:
            self._caller = None
            reason = " ".join(str(error).split())[:160]
            raise JobError(
                f"a server of lamorel has ended or does not answer ({reason}); what it said last "
                "stands above; --resume goes on from the last checkpoint"
            ) from error

    def start_policy(self, settings: AgentConfig, seed: int) -> None:
        self._agree(self._tell("start_policy", settings, seed))

    def start_competence(self, settings: HeadSettings, seed: int) -> None:
        self._tell("start_competence", settings, seed)

    def _agree(self, chosen: list[tuple[int, str]]) -> None:
        """One micro-batch in all servers, the smallest that one of them has chosen, 0 being all.

        Sums over other parts of a batch differ by rounding, and servers must not.
        """
        least, self.memory = min(chosen, key=lambda each: each[0] or math.inf)
        if any(size != least for size, _ in chosen):
            self._tell("take", least)
            self.memory += f", the least of {len(chosen)} servers"

    def probabilities(self, states: list[PackedState]) -> np.ndarray:
        return _stacked(self._read("probabilities", states))

    def values(self, states: list[PackedState]) -> np.ndarray:
        return _stacked(self._read("values", states))

    def critic_statistics(self, states: list[PackedState]) -> dict[str, float]:
        """From the first server: each reads all, so that the numbers are those of one."""
        told: dict[str, float] = self._tell("critic_statistics", states)[0]
        return told

    def hold(self, prompts: Packed) -> int:
        return int(self._tell("hold", prompts)[0])

    def release(self, held: int) -> None:
        self._tell("release", held)

    def competence(self, prompts: Packed | int, which: Sequence[Which] = (CURRENT,)) -> np.ndarray:
        return np.concatenate(self._read("competence", prompts, tuple(which)), axis=1)

    def update_policy(self, transitions: Batch) -> dict[str, float]:
        losses: dict[str, float] = self._told_alike("update_policy", transitions)
        return losses

    def update_competence(self, episodes: Episodes) -> float:
        return float(self._told_alike("update_competence", episodes))

    def _told_alike(self, call: str, data: Batch | Episodes) -> Any:
        """What every server answers; ServersDiffer where one answers something else."""
        first, *others = self._tell(call, data)
        if any(other != first for other in others):
            raise ServersDiffer(
                f"lamorel's servers differ after {call}: {[first, *others]}; "
                "--resume goes on from the last checkpoint"
            )
        return first

    def snapshot(self) -> int:
        return int(self._tell("snapshot")[0])

    def restore(self, snapshot: int) -> None:
        self._tell("restore", snapshot)

    def discard(self, snapshot: int) -> None:
        self._tell("discard", snapshot)

    def state_dict(self) -> dict[str, Any]:
        """Copies, from the first server: all hold the same."""
        found: dict[str, Any] = self._tell("state_dict")[0]
        return found

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._tell("load_state_dict", _plain(state))

    def close(self) -> None:
        """End the servers; once they have ended there is nothing left to do."""
        caller, self._caller = self._caller, None
        if caller is not None:
            caller.close()


def _checked(answers: list[Any]) -> list[Any]:
    """The answers, unless one of them is that something went wrong."""
    for answer in answers:
        if isinstance(answer, Failure):
            raise answer.raised()
    return answers


def _stacked(shares: list[np.ndarray]) -> np.ndarray:
    """Rows of all servers, (batch, candidates), with 0 past the last candidate."""
    shares = [share for share in shares if len(share)]
    width = max(share.shape[1] for share in shares)
    return np.concatenate(
        [np.pad(share, ((0, 0), (0, width - share.shape[1]))) for share in shares]
    )


def _plain(value: Any) -> Any:
    """A tree without the classes that only this process knows."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return value
