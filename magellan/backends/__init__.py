"""The seam between the trainer and the model: what is said across it is arrays and numbers.

`base` says what a backend does, `local` does it in this process, `lamorel` behind lamorel's
servers; `registry` knows them by name, and those of users beside them. Importing this package
imports no torch; making a backend does.
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
    """The model at the start of a run, by the backend that the settings name.

    Args:
        backbone: which model, and the shape of its adapters.
        settings: kind of backend, device, number format, micro-batches.
        seed: of the adapters' initial values.
        world: whose texts the model is to read; None: the default one.
        own: constants of this kind of backend; None: their defaults.

    Raises:
        InputError: there is no such backend, or a user's gives something else; the model is
            missing, or cannot be read as configured.
    """
    spec = BACKENDS.find(settings.kind, "backend.kind")
    parts = BackendParts(backbone, settings, seed, world)
    made: Any = spec.build(parts, spec.settings() if own is None else own)
    if not isinstance(made, Backend):
        raise InputError(
            f"backend.kind: {spec.name!r} of {spec.source} gave {shown(made)}; allowed: a "
            "magellan.backends.Backend"
        )
    return made


def check_backend(settings: BackendConfig, backbone: BackboneConfig | None = None) -> None:
    """Look for what the backend needs, such as the device, before any work.

    Args:
        settings: kind of backend, device, number format, micro-batches.
        backbone: which model; None: only the backend itself is looked at.

    Raises:
        InputError: there is no such backend; the device, or a library, is absent; or the model is
            to be behind servers that nobody has started.
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
