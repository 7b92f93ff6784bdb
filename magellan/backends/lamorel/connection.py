"""Bring trainer and servers together, in processes that lamorel's launcher has started."""

from __future__ import annotations

import atexit
from collections.abc import Mapping, Sequence
from typing import Any

import lamorel
from lamorel.server.dispatcher import Dispatcher
from omegaconf import OmegaConf
from torch import distributed

from magellan.backends.lamorel.remote import READING, LamorelBackend
from magellan.backends.lamorel.section import OLDER, Servers, with_model
from magellan.backends.lamorel.server import Adopting, Changing, Reading
from magellan.backends.lamorel.serving import Served, Serving
from magellan.model.files import check_backbone
from magellan.model.loading import load_tokenizer
from magellan.model.transformers4 import readable

_DISPATCH = "_Dispatcher__dispatch_batches"


def connect(lamorel_args: Mapping[str, Any], servers: Servers, served: Served) -> LamorelBackend:
    """The backend, in lamorel's RL process; in the others this serves until the end of it.

    Args:
        lamorel_args: lamorel's own section of its configuration.
        servers: what that says of the processes that hold the model.
        served: what they are to hold.

    Raises:
        InputError: the servers cannot use the model.
        SystemExit: in a server, when it is told to end.
    """
    atexit.register(leave_groups)
    serving = Serving(served, servers.number)
    reading = Reading(serving)
    places: list[Any] = [Changing(serving), {READING: reading}, Adopting(serving, reading)]
    if servers.layout == OLDER:
        lamorel.lamorel_init()
        remember_instructions(Dispatcher)
    else:
        places = [{servers.name: place} for place in places]
    with readable(check_backbone(served.backbone.model)) as folder:
        section = with_model(lamorel_args, servers, str(folder))
        caller = lamorel.Caller(OmegaConf.create(section), *places)
        tokenizer = load_tokenizer(served.backbone.model)
        return LamorelBackend(caller, tokenizer, servers.number)


def leave_groups() -> None:
    """Leave the groups of processes, while Python still runs.

    lamorel leaves none of its own. A thread of gloo may then hold the last message when Python is
    taken down, which aborts a process that has done its work (seen by others with PyTorch 2.x).
    On GPUs only the groups that lamorel makes are of gloo; the one of all processes is NCCL's,
    which may wait for the others when it is left, and stays.
    """
    if not distributed.is_initialized():
        return
    if distributed.get_backend() == distributed.Backend.GLOO:
        distributed.destroy_process_group()  # all of them
        return
    for group in list(distributed.distributed_c10d._world.pg_map):
        if distributed.get_backend(group) == distributed.Backend.GLOO:
            distributed.destroy_process_group(group)


def remember_instructions(dispatcher: type) -> None:
    """Have lamorel's dispatcher note what kind of call it shares out among several servers.

    It looks that up when it gathers the answers, and has never written it down: with more servers
    than callers every call ends in a KeyError. A dispatcher that does write it keeps what it wrote.
    """
    share_out = getattr(dispatcher, _DISPATCH, None)
    if share_out is None or hasattr(share_out, "remembers"):
        return

    def remembering(self: Any, calls: Sequence[Mapping[str, Any]]) -> Any:
        shared = share_out(self, calls)
        for note, call in zip(self._current_calls_infos, calls, strict=False):
            note.setdefault("instruction", call["instruction"])
        return shared

    remembering.remembers = True  # type: ignore[attr-defined]
    setattr(dispatcher, _DISPATCH, remembering)
