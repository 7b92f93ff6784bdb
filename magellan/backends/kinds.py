"""The package's own backends. They import torch when they are built, not before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magellan.backends.base import Backend
from magellan.backends.registry import BackendParts, register_backend
from magellan.core.errors import InputError
from magellan.core.settings import NoSettings
from magellan.model.settings import BackboneConfig, BackendConfig
from magellan.worlds import DEFAULT_WORLD, WORLDS

if TYPE_CHECKING:
    from magellan.backends.local import LocalBackend


def check_local(settings: BackendConfig, backbone: BackboneConfig | None) -> None:
    """Look for the device, and for what the model needs there.

    Raises:
        InputError: the device, or a library, is absent.
        OutOfMemoryError: the weights alone are larger than the free memory.
    """
    from magellan.model.devices import check_format, find_device

    device = find_device(settings.device)
    check_format(device, settings.dtype)
    if backbone is not None:
        from magellan.backends.memory import check_room
        from magellan.model.loading import check_four_bits

        check_four_bits(backbone.quantization)
        check_room(backbone, settings, device)


def make_local(parts: BackendParts) -> LocalBackend:
    """The model in this process, on the device that the settings name, whatever their `kind`.

    Raises:
        InputError: the model is missing, or cannot be read as configured.
    """
    from magellan.backends.local import LocalBackend
    from magellan.model.backbone import Backbone
    from magellan.model.scoring_check import check_scores

    made = Backbone(parts.backbone, parts.seed, parts.world, parts.settings)
    check_scores(made, parts.world or WORLDS[DEFAULT_WORLD])
    return LocalBackend(made, parts.world)


@register_backend("local", check=check_local)
def local(parts: BackendParts, settings: NoSettings) -> Backend:
    """The model in this process."""
    return make_local(parts)


def not_by_itself(settings: BackendConfig, backbone: BackboneConfig | None) -> None:
    """A job cannot start lamorel's servers: their launcher gives the run its backend."""
    raise InputError(
        "backend.kind: 'lamorel' is not allowed here: the servers are started by "
        "`python -m lamorel_launcher.launch` (docs/lamorel.md); allowed: local"
    )


@register_backend("lamorel", check=not_by_itself)
def lamorel(parts: BackendParts, settings: NoSettings) -> Backend:
    """Behind lamorel's servers: made by `magellan.launcher`, never from here."""
    not_by_itself(parts.settings, parts.backbone)
    raise AssertionError("unreachable")
