"""The server's side: a `LocalBackend` around the model that lamorel has loaded."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import torch

from magellan.backends.base import Which
from magellan.backends.lamorel.remote import Failure
from magellan.backends.local import LocalBackend
from magellan.backends.machine import configure_torch
from magellan.core.codec import Packed, PackedState
from magellan.model.backbone import Backbone
from magellan.model.loading import checked_model
from magellan.model.scoring_check import check_scores
from magellan.model.settings import AgentConfig, BackboneConfig, BackendConfig
from magellan.worlds import World


@dataclass(frozen=True)
class Served:
    """The model that the servers hold.

    Attributes:
        backbone: which model, and the shape of its adapters.
        settings: device, number format, micro-batches.
        seed: of the adapters' initial values.
        world: whose texts the model reads.
        threads: of the numerical libraries in every process.
    """

    backbone: BackboneConfig
    settings: BackendConfig
    seed: int
    world: World
    threads: int


class Serving:
    """One server's model, which reads this server's share of the data.

    Args:
        served: the model, and how it runs.
        servers: how many there are.
    """

    def __init__(self, served: Served, servers: int) -> None:
        self._served = served
        self._servers, self._number = servers, 0
        self._backend: LocalBackend | None = None
        self._failure: Failure | None = None

    def adopt(self, model: Any, tokenizer: Any, device: Any = None) -> None:
        """Make the backend around a model that lamorel has loaded.

        An error is reported at the first call; raised here it would be a page of traceback.

        device: GPU that lamorel assigned to this server; None: PyTorch's default.
        """
        served = self._served
        try:
            configure_torch(served.threads, served.settings.deterministic)
            if device is not None and served.settings.device != "cpu":
                torch.cuda.set_device(device)
            config, world = served.backbone, served.world
            loaded = checked_model(config.model, model.float(), tokenizer, world)
            backbone = Backbone(config, served.seed, world, served.settings, loaded)
            check_scores(backbone, world)
            self._backend = LocalBackend(backbone, world)
        except Exception as error:  # noqa: BLE001  # the trainer's process raises it
            self._failure = Failure(error)

    def answer(self, contexts: list[str], call: str, arguments: tuple[Any, ...]) -> Any:
        """Result of the method called `call`; a `Failure` instead of an error.

        contexts: this server's number, as text.
        """
        self._number = int(contexts[0])
        if self._failure is not None:
            return self._failure
        try:
            method = getattr(self, f"_{call}", None) or getattr(self.backend, call)
            return method(*arguments)
        except Exception as error:  # noqa: BLE001  # the trainer's process raises it
            return Failure(error)

    @property
    def backend(self) -> LocalBackend:
        """The model, and what is trained on it."""
        assert self._backend is not None
        return self._backend

    def _describe(self) -> dict[str, str]:
        backend, servers = self.backend, self._servers
        number = "1 server" if servers == 1 else f"{servers} servers"
        return {
            "passes": f"{backend.passes}, lamorel {_version()}",
            "device": f"{backend.device}, lamorel with {number}",
            "dtype": backend.dtype,
        }

    def _start_policy(self, settings: AgentConfig, seed: int) -> tuple[int, str]:
        """Micro-batch of this server, 0 being the whole batch, and the reason."""
        self.backend.start_policy(settings, seed)
        return self.backend.backbone.micro_batch, self.backend.memory

    def _probabilities(self, states: list[PackedState]) -> np.ndarray:
        shared = states[self._share(len(states))]
        return self.backend.probabilities(shared) if shared else np.zeros((0, 0))

    def _values(self, states: list[PackedState]) -> np.ndarray:
        shared = states[self._share(len(states))]
        return self.backend.values(shared) if shared else np.zeros((0, 0))

    def _competence(self, prompts: Packed | int, which: tuple[Which, ...]) -> np.ndarray:
        if isinstance(prompts, int):
            return self.backend.competence(prompts, which)
        tokens, segments = self._own_share(prompts)
        if not len(tokens):
            return np.zeros((len(which), 0))
        return self.backend.competence((tokens, segments), which)

    def _cache_prompts(self, prompts: Packed) -> int:
        return self.backend.cache_prompts(self._own_share(prompts))

    def _own_share(self, prompts: Packed) -> Packed:
        share = self._share(len(prompts[0]))
        return prompts[0][share], prompts[1][share]

    def _share(self, n: int) -> slice:
        """Rows of n that this server reads."""
        ends = [n * number // self._servers for number in range(self._servers + 1)]
        return slice(ends[self._number], ends[self._number + 1])

    def _state_dict(self) -> dict[str, Any] | None:
        """The backend's state from the first server; None from the others."""
        return self.backend.state_dict() if self._number == 0 else None


def _version() -> str:
    try:
        return version("lamorel")
    except PackageNotFoundError:
        return "(absent)"
