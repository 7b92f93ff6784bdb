"""Backends by name, and what they are built from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from magellan.backends.base import Backend
from magellan.core.registry import Registry, source_of
from magellan.core.settings import NoSettings, Section
from magellan.model.settings import BackboneConfig, BackendConfig
from magellan.worlds import World


@dataclass(frozen=True)
class BackendParts:
    """What a run gives to the builder of a backend.

    Attributes:
        backbone: which model, and the shape of its adapters.
        settings: the section `backend`: device, number format, micro-batches.
        seed: of the adapters' initial values.
        world: whose texts the model is to read; None: the default one.
    """

    backbone: BackboneConfig
    settings: BackendConfig
    seed: int = 0
    world: World | None = None


Builder = Callable[[BackendParts, Any], Backend]
"""(parts, settings of the backend's own section) to the model at the start of a run."""
Check = Callable[[BackendConfig, BackboneConfig | None], None]
"""(section `backend`, model) to an InputError where something is absent; None: no model yet."""


def nothing(settings: BackendConfig, backbone: BackboneConfig | None) -> None:
    """Of a backend that finds out what is absent when it is built."""


@dataclass(frozen=True)
class BackendSpec:
    """A backend that `backend.kind` can name.

    Attributes:
        name: there.
        build: its builder.
        settings: its own constants; their keys stand in the section of its name. They say how a
            job is run, like those of `backend`, and are no part of what the run is.
        check: looks, before any work, for what it needs.
        source: file that it comes from.
    """

    name: str
    build: Builder
    settings: type[Section] = NoSettings
    check: Check = nothing
    source: str = ""

    @property
    def section(self) -> str:
        """Section of its own constants."""
        return self.name


BACKENDS: Registry[BackendSpec] = Registry("backend")


def register_backend(
    name: str, settings: type[Section] = NoSettings, check: Check = nothing
) -> Callable[[Builder], Builder]:
    """Decorator of a builder: `backend.kind` can then name it.

    Args: see `BackendSpec`.
    """

    def add(build: Builder) -> Builder:
        BACKENDS.add(BackendSpec(name, build, settings, check, source_of(build)))
        return build

    return add
