"""The seam between the trainer and the model: only arrays and plain values cross it.

`base` defines the interface, `local` implements it in this process, `lamorel` behind lamorel's
servers; `registry` finds them, and users' own backends, by name. Importing this package imports no
torch; making a backend does.
"""

from __future__ import annotations

from typing import Any

from magellan.backends.base import CURRENT, DELAYED, Backend, Which
from magellan.backends.registry import (
    BACKENDS,
    BackendParts,
    BackendSpec,
    check_local,
    make_local,
    register_backend,
)
from magellan.core.errors import InputError, shown
from magellan.model.settings import BackboneConfig, BackendConfig
from magellan.worlds import World


def make_backend(
    backbone: BackboneConfig,
    settings: BackendConfig,
    seed: int = 0,
    world: World | None = None,
    own: Any = None,
) -> Backend:
    """Build the backend that the settings name, with the model at the start of a run.

    Args:
        backbone: which model, and the shape of its adapters.
        settings: kind of backend, device, number format, micro-batches.
        seed: of the adapters' initial values.
        world: whose texts the model reads; None: the default one.
        own: constants of this kind of backend; None: their defaults.

    Raises:
        InputError: there is no such backend, or a user's builder returns something else; the model
            is missing, or cannot be read as configured.
    """
    spec = BACKENDS.find(settings.kind, "backend.kind")
    parts = BackendParts(backbone, settings, seed, world)
    backend: Any = spec.build(parts, spec.settings() if own is None else own)
    if not isinstance(backend, Backend):
        raise InputError(
            f"backend.kind: {spec.name!r} of {spec.source} gave {shown(backend)}; allowed: a "
            "magellan.backends.Backend"
        )
    return backend


def check_backend(settings: BackendConfig, backbone: BackboneConfig | None = None) -> None:
    """Check for what the backend needs, such as the device, before any work.

    Args:
        settings: kind of backend, device, number format, micro-batches.
        backbone: which model; None: only the backend itself is checked.

    Raises:
        InputError: there is no such backend; the device, or a library, is absent; or the model
            needs servers that are not running.
        OutOfMemoryError: the weights alone are larger than the free memory.
    """
    BACKENDS.find(settings.kind, "backend.kind").check(settings, backbone)


__all__ = [
    "BACKENDS",
    "CURRENT",
    "DELAYED",
    "Backend",
    "BackendParts",
    "BackendSpec",
    "Which",
    "check_backend",
    "check_local",
    "make_backend",
    "make_local",
    "register_backend",
]
