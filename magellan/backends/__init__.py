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
    return LocalBackend(made, world)


def check_backend(settings: BackendConfig, backbone: BackboneConfig | None = None) -> None:
    """Look for the device, and for what the model needs there, before any work.

    Args:
        settings: device, number format, micro-batches.
        backbone: which model; None: only the device is looked for.

    Raises:
        InputError: the device, or a library, is absent, or the model is to be behind servers that
            nobody has started.
        OutOfMemoryError: the weights alone are larger than the free memory.
    """
    from magellan.agent.devices import find_device

    if settings.kind == "lamorel":
        raise InputError(
            "backend.kind: 'lamorel' is not allowed here: the servers are started by "
            "`python -m lamorel_launcher.launch` (docs/lamorel.md); allowed: local"
        )
    device = find_device(settings.device)
    if backbone is not None:
        from magellan.agent.loading import check_four_bits
        from magellan.backends.memory import check_room

        check_four_bits(backbone.quantization)
        check_room(backbone, settings, device)


__all__ = ["CURRENT", "DELAYED", "Backend", "Which", "check_backend", "make_backend"]
