"""Bring trainer and servers together, in processes that lamorel's launcher has started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lamorel import Caller, lamorel_init
from lamorel.server.dispatcher import Dispatcher
from omegaconf import DictConfig, OmegaConf

from magellan.agent.loading import load_tokenizer
from magellan.agent.older import readable
from magellan.backends.lamorel.remote import READING, LamorelBackend
from magellan.backends.lamorel.server import Adopting, Changing, Reading
from magellan.backends.lamorel.serving import Served, Serving
from magellan.model_files import check_backbone

_DISPATCH = "_Dispatcher__dispatch_batches"


def connect(lamorel_args: Mapping[str, Any], served: Served) -> LamorelBackend:
    """The backend, in lamorel's RL process; in the others this serves until the end of it.

    Args:
        lamorel_args: lamorel's own section of its configuration.
        served: what the servers are to hold.

    Raises:
        InputError: the servers cannot use the model.
        SystemExit: in a server, when it is told to end.
    """
    servers = int(lamorel_args["distributed_setup_args"]["n_llm_processes"])
    lamorel_init()
    remember_instructions(Dispatcher)
    serving = Serving(served, servers)
    reading = Reading(serving)
    with readable(check_backbone(served.backbone.model)) as folder:
        caller = Caller(
            _with_model(lamorel_args, folder),
            custom_updater=Changing(serving),
            custom_module_functions={READING: reading},
            custom_model_initializer=Adopting(serving, reading),
        )
        return LamorelBackend(caller, load_tokenizer(served.backbone.model), servers)


def _with_model(lamorel_args: Mapping[str, Any], folder: Path) -> DictConfig:
    """lamorel's configuration with the model's folder."""
    language_model = {**lamorel_args["llm_args"], "model_path": str(folder)}
    return OmegaConf.create({**lamorel_args, "llm_args": language_model})


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
