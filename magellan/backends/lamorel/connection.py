"""Connect trainer and servers, in processes that lamorel's launcher has started.

The classes are lamorel's three extension points: a model initializer, which adds adapters to the
model that lamorel has loaded; a module function, which reads; an updater, which changes.
"""

from __future__ import annotations

import atexit
import signal
from collections.abc import Mapping, Sequence
from typing import Any

import lamorel
from lamorel import BaseModelInitializer, BaseModuleFunction, BaseUpdater
from lamorel.server.dispatcher import Dispatcher
from omegaconf import OmegaConf
from torch import distributed, nn

from magellan.backends.lamorel.remote import READING, LamorelBackend
from magellan.backends.lamorel.section import Servers
from magellan.backends.lamorel.serving import Served, Serving
from magellan.model.files import check_backbone
from magellan.model.loading import load_tokenizer
from magellan.model.transformers4 import readable

_DISPATCH = "_Dispatcher__dispatch_batches"


def connect(lamorel_args: Mapping[str, Any], servers: Servers, served: Served) -> LamorelBackend:
    """Return the backend in lamorel's RL process; in a server, serve until the run ends.

    Args:
        lamorel_args: lamorel's own section of its configuration.
        servers: the processes that hold the model, read from that section.
        served: the model that they hold.

    Raises:
        InputError: the servers cannot use the model.
        SystemExit: in a server, at its end.
    """
    atexit.register(leave_groups)
    serving = Serving(served, servers.number)
    reading = Reading(serving)
    hooks = (Changing(serving), {READING: reading}, Adopting(serving, reading))
    lamorel.lamorel_init()
    record_instructions(Dispatcher)
    with readable(check_backbone(served.backbone.model)) as folder:
        model = {**lamorel_args["llm_args"], "model_path": str(folder)}
        section = OmegaConf.create({**lamorel_args, "llm_args": model})
        caller = lamorel.Caller(section, *hooks)
        tokenizer = load_tokenizer(served.backbone.model)
        return LamorelBackend(caller, tokenizer, servers.number)


def leave_groups() -> None:
    """Destroy the process groups of gloo before the interpreter exits.

    lamorel destroys none of its own. A gloo thread may then hold the last message at exit, which
    aborts a process that has finished its work (reported with PyTorch 2.x). On GPUs only the groups
    that lamorel makes use gloo; the default group is NCCL's, whose destruction may wait for other
    processes, and stays.
    """
    if not distributed.is_initialized():
        return
    if distributed.get_backend() == distributed.Backend.GLOO:
        distributed.destroy_process_group()  # all of them
        return
    for group in list(distributed.distributed_c10d._world.pg_map):
        if distributed.get_backend(group) == distributed.Backend.GLOO:
            distributed.destroy_process_group(group)


def record_instructions(dispatcher: type) -> None:
    """Patch lamorel's dispatcher to record the instruction of a call that several servers share.

    It reads the instruction when it gathers the answers but never stores it: with more servers than
    callers every call ends in a KeyError. A dispatcher that stores it is left as it is.
    """
    dispatch = getattr(dispatcher, _DISPATCH, None)
    if dispatch is None or hasattr(dispatch, "records_instructions"):
        return

    def recording(self: Any, calls: Sequence[Mapping[str, Any]]) -> Any:
        batches = dispatch(self, calls)
        for info, call in zip(self._current_calls_infos, calls, strict=False):
            info.setdefault("instruction", call["instruction"])
        return batches

    recording.records_instructions = True  # type: ignore[attr-defined]
    setattr(dispatcher, _DISPATCH, recording)


class Reading(BaseModuleFunction):
    """lamorel's module function: calls that only read the model."""

    def __init__(self, serving: Serving) -> None:
        super().__init__()
        self._serving = serving

    def initialize(self) -> None:
        """Do nothing: `start_policy` and `start_competence` make the heads."""

    def forward(self, contexts: list[str], call: str, arguments: tuple[Any, ...]) -> Any:
        """The answer of `Serving`."""
        return self._serving.answer(contexts, call, arguments)


class Answering(nn.Module):
    """lamorel's model, with a `forward` that only calls our module function.

    lamorel's own `forward` runs the model on texts, every action with a copy of its prompt, ignores
    the requested adapter, and passes the result to the module function. Ours runs its own passes on
    arrays, so lamorel's would be wasted.
    """

    def __init__(self, llm: nn.Module, reading: Reading) -> None:
        super().__init__()
        self.llm, self.reading = llm, reading

    def forward(
        self,
        module_function_keys: list[str],
        contexts: list[str],
        call: str,
        arguments: tuple[Any, ...],
        **_: Any,
    ) -> list[Mapping[str, Any]]:
        """The answer for the one context of this server."""
        return [{READING: self.reading(contexts, call, arguments)} for _ in contexts]


class Adopting(BaseModelInitializer):
    """lamorel's model initializer: adds adapters and bypasses lamorel's own pass."""

    def __init__(self, serving: Serving, reading: Reading) -> None:
        super().__init__()
        self._serving, self._reading = serving, reading

    def initialize_model(self, model: nn.Module) -> nn.Module:
        """Add adapters in place; returns the model for lamorel to call."""
        # On a signal the trainer saves, then stops the servers.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        self._serving.adopt(model._LLM_model, model._LLM_tokenizer, model.device)
        return Answering(model, self._reading)


class Changing(BaseUpdater):
    """lamorel's updater: calls that change the model, its heads or their snapshots."""

    def __init__(self, serving: Serving) -> None:
        super().__init__()
        self._serving = serving

    def perform_update(
        self,
        contexts: list[str],
        candidates: list[list[str]],
        _current_batch_ids: list[int],
        call: str,
        arguments: tuple[Any, ...],
    ) -> Any:
        """The answer of `Serving`."""
        return self._serving.answer(contexts, call, arguments)
