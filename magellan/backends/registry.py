"""Registry of backends by name, and the arguments of their builders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from magellan.backends.base import Backend
from magellan.core.errors import InputError
from magellan.core.registry import Registry, Spec
from magellan.core.settings import NoSettings, Section
from magellan.model.settings import BackboneConfig, BackendConfig
from magellan.worlds import DEFAULT_WORLD, WORLDS, World

if TYPE_CHECKING:
    from magellan.backends.local import LocalBackend


@dataclass(frozen=True)
class BackendParts:
    """Arguments of the builder of a backend.

    Attributes:
        backbone: which model, and the shape of its adapters.
        settings: the section `backend`: device, number format, micro-batches.
        seed: of the adapters' initial values.
        world: whose texts the model reads; None: the default one.
    """

    backbone: BackboneConfig
    settings: BackendConfig
    seed: int = 0
    world: World | None = None


Builder = Callable[[BackendParts, Any], Backend]
"""(parts, settings of the backend's own section) -> backend at the start of a run."""
Check = Callable[[BackendConfig, BackboneConfig | None], None]
"""(section `backend`, model or None): raises InputError where something is absent."""


def no_check(settings: BackendConfig, backbone: BackboneConfig | None) -> None:
    """Check nothing: the builder reports what is absent."""


@dataclass(frozen=True, kw_only=True)
class BackendSpec(Spec):
    """A backend that `backend.kind` can name.

    Its constants, like those of `backend` but `dtype`, say how a job runs and are no part of a
    run's identity.

    Attributes:
        check: checks, before any work, for what the backend needs.
    """

    check: Check = no_check


BACKENDS: Registry[BackendSpec] = Registry("backend")


def register_backend(
    name: str, settings: type[Section] = NoSettings, check: Check = no_check
) -> Callable[[Builder], Builder]:
    """Decorate a builder so that `backend.kind` can name it; arguments as in `BackendSpec`."""
    return BACKENDS.adding(BackendSpec, name, settings=settings, check=check)


def check_local(settings: BackendConfig, backbone: BackboneConfig | None) -> None:
    """Check for the device, and for what the model needs there.

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


@register_backend("local", check=check_local)
def make_local(parts: BackendParts, settings: NoSettings | None = None) -> LocalBackend:
    """Build the model in this process, on the device of `parts.settings`, whatever their `kind`.

    Raises:
        InputError: the model is missing, or cannot be read as configured.
    """
    from magellan.backends.local import LocalBackend
    from magellan.model.backbone import Backbone
    from magellan.model.scoring_check import check_scores

    backbone = Backbone(parts.backbone, parts.seed, parts.world, parts.settings)
    check_scores(backbone, parts.world or WORLDS[DEFAULT_WORLD])
    return LocalBackend(backbone, parts.world)


def refuse_lamorel(settings: BackendConfig, backbone: BackboneConfig | None) -> NoReturn:
    """Raise InputError: only lamorel's launcher starts its servers and makes this backend."""
    raise InputError(
        "backend.kind: 'lamorel' is not allowed here: the servers are started by "
        "`python -m lamorel_launcher.launch` (docs/lamorel.md); allowed: local"
    )


@register_backend("lamorel", check=refuse_lamorel)
def lamorel(parts: BackendParts, settings: NoSettings) -> Backend:
    """Behind lamorel's servers: made by `magellan.launcher`, never from here."""
    refuse_lamorel(parts.settings, parts.backbone)
