"""The seam between the trainer and the model: what is said across it is arrays and numbers.

`base` says what a backend does, `local` does it in this process, `lamorel` behind lamorel's
servers; `updates` names what it learns by.
Importing this package imports no torch; making a backend does.
"""

from __future__ import annotations

from magellan.agent.settings import BackboneConfig, BackendConfig
from magellan.backends.base import CURRENT, DELAYED, Backend, Which
from magellan.errors import InputError
from magellan.worlds import DEFAULT_WORLD, WORLDS, World


def make_backend(
    backbone: BackboneConfig, settings: BackendConfig, seed: int = 0, world: World | None = None
) -> Backend:
    """The model in this process, on the device that the settings name, whatever their `kind`.

    Args:
        backbone: which model, and the shape of its adapters.
        settings: device, number format, micro-batches.
        seed: of the adapters' initial values.
        world: whose texts the model is to read; None: the default one.

    Raises:
        InputError: the model is missing, or cannot be read as configured.
    """
    from magellan.agent.backbone import Backbone
    from magellan.agent.trial import check_scores
    from magellan.backends.local import LocalBackend

    made = Backbone(backbone, seed, world, settings)
    check_scores(made, world or WORLDS[DEFAULT_WORLD])
    return LocalBackend(made)


def check_backend(settings: BackendConfig) -> None:
    """Look for the device before any work.

    Raises:
        InputError: it is absent, or the model is to be behind servers that nobody has started.
    """
    from magellan.agent.devices import find_device

    if settings.kind == "lamorel":
        raise InputError(
            "backend.kind: 'lamorel' is not allowed here: the servers are started by "
            "`python -m lamorel_launcher.launch` (docs/lamorel.md); allowed: local"
        )
    find_device(settings.device)


__all__ = ["CURRENT", "DELAYED", "Backend", "Which", "check_backend", "make_backend"]
