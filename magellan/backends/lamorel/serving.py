"""One server's end of the line: a `LocalBackend` around the model that lamorel has loaded there."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import torch

from magellan.backends.base import Which
from magellan.backends.lamorel.remote import Failure
from magellan.backends.local import LocalBackend
from magellan.backends.machine import settle
from magellan.core.codec import Packed, PackedState
from magellan.model.backbone import Backbone
from magellan.model.loading import checked_model
from magellan.model.scoring_check import check_scores
from magellan.model.settings import AgentConfig, BackboneConfig, BackendConfig
from magellan.worlds import World


@dataclass(frozen=True)
class Served:
    """The model that the servers are to hold.

    Attributes:
        backbone: which model, and the shape of its adapters.
        settings: device, number format, micro-batches.
        seed: of the adapters' initial values.
        world: whose texts the model is to read.
        threads: of the numerical libraries, in every process.
    """

    backbone: BackboneConfig
    settings: BackendConfig
    seed: int
    world: World
    threads: int


class Serving:
    """One server's model, and its share of the reading.

    Args:
        served: the model, and how it is computed.
        servers: how many there are.
    """

    def __init__(self, served: Served, servers: int) -> None:
        self._served = served
        self._servers, self._number = servers, 0
        self._backend: LocalBackend | None = None
        self._refused: Failure | None = None

    def adopt(self, model: Any, tokenizer: Any, device: Any = None) -> None:
        """Make the backend around a model that lamorel has loaded.

        What cannot be used is told at the first call: an error here would be a page of traceback.

        device: GPU that lamorel gave this server; None: the one that PyTorch takes.
        """
        served = self._served
        try:
            settle(served.threads, served.settings.deterministic)
            if device is not None and served.settings.device != "cpu":
                torch.cuda.set_device(device)
            config, world = served.backbone, served.world
            loaded = checked_model(config.model, model.float(), tokenizer, world)
            made = Backbone(config, served.seed, world, served.settings, loaded)
            check_scores(made, world)
            self._backend = LocalBackend(made, world)
        except Exception as error:  # noqa: BLE001  # the trainer's process raises it
            self._refused = Failure(error)

    def answer(self, contexts: list[str], call: str, arguments: tuple[Any, ...]) -> Any:
        """What the method of this name gives; a `Failure` instead of an error.

        contexts: this server's number, as text.
        """
        self._number = int(contexts[0])
        if self._refused is not None:
            return self._refused
        try:
            return getattr(self, f"_{call}", self._by_backend(call))(*arguments)
        except Exception as error:  # noqa: BLE001  # the trainer's process raises it
            return Failure(error)

    @property
    def backend(self) -> LocalBackend:
        """The model, and what its updates move."""
        assert self._backend is not None
        return self._backend

    def _by_backend(self, call: str) -> Any:
        return getattr(self.backend, call, None)

    def _describe(self) -> dict[str, str]:
        backend, servers = self.backend, self._servers
        number = "1 server" if servers == 1 else f"{servers} servers"
        return {
            "passes": f"{backend.passes}, lamorel {_version()}",
            "device": f"{backend.device}, lamorel with {number}",
            "dtype": backend.dtype,
        }

    def _start_policy(self, settings: AgentConfig, seed: int) -> tuple[int, str]:
        """Micro-batch of this server, and why it is that; 0 is the whole batch."""
        self.backend.start_policy(settings, seed)
        return self.backend.backbone.micro_batch, self.backend.memory

    def _take(self, micro_batch: int) -> None:
        """The micro-batch of all servers, instead of this one's own."""
        self.backend.backbone.micro_batch = micro_batch

    def _probabilities(self, states: list[PackedState]) -> np.ndarray:
        mine = states[self._share(len(states))]
        return self.backend.probabilities(mine) if mine else np.zeros((0, 0))

    def _values(self, states: list[PackedState]) -> np.ndarray:
        mine = states[self._share(len(states))]
        return self.backend.values(mine) if mine else np.zeros((0, 0))

    def _competence(self, prompts: Packed | int, which: tuple[Which, ...]) -> np.ndarray:
        if isinstance(prompts, int):
            return self.backend.competence(prompts, which)
        tokens, segments = self._mine(prompts)
        if not len(tokens):
            return np.zeros((len(which), 0))
        return self.backend.competence((tokens, segments), which)

    def _hold(self, prompts: Packed) -> int:
        return self.backend.hold(self._mine(prompts))

    def _mine(self, prompts: Packed) -> Packed:
        share = self._share(len(prompts[0]))
        return prompts[0][share], prompts[1][share]

    def _share(self, n: int) -> slice:
        """Rows of n that this server reads."""
        ends = [n * number // self._servers for number in range(self._servers + 1)]
        return slice(ends[self._number], ends[self._number + 1])

    def _state_dict(self) -> dict[str, Any] | None:
        """What the backend's gives; only the first server is asked to send it."""
        return self.backend.state_dict() if self._number == 0 else None


def _version() -> str:
    try:
        return version("lamorel")
    except PackageNotFoundError:
        return "(absent)"
