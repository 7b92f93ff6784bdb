"""Registries: samplers, estimators, worlds, backends, updates; tables and figures of the analysis.

User files add to the same registries as built-in ones (`magellan.config.modules`); schema,
documentation and figures take names, labels and looks from them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from magellan.core.errors import InputError, not_allowed, shown, unknown
from magellan.core.settings import NoSettings, Section

NAME = re.compile(r"[a-z][a-z0-9_]*")
PACKAGES = tuple(Path(__file__).parents[2] / name for name in ("magellan", "analysis"))


@dataclass(frozen=True)
class Look:
    """Style of an entry's lines in figures: colour, matplotlib line style, marker."""

    color: str
    dash: Any = "-"
    marker: str = "o"


class Named(Protocol):
    """Attributes of every registry entry."""

    @property
    def name(self) -> str: ...

    @property
    def source(self) -> str: ...


EntryT = TypeVar("EntryT", bound=Named)
BuilderT = TypeVar("BuilderT", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A registry entry that a run names and a builder builds.

    Attributes:
        name: in configurations and tables.
        build: the builder.
        label: its name in figures; by default the name.
        settings: its constants.
        section: their section in a run's configuration; by default the name.
        look: colour and line style in figures; None: a spare one.
        source: file that defines it.
    """

    name: str
    build: Callable[..., Any]
    label: str = ""
    settings: type[Section] = NoSettings
    section: str = ""
    look: Look | None = None
    source: str = ""

    def __post_init__(self) -> None:
        # Figures take what is between two $ as a formula.
        if not isinstance(self.label, str) or "$" in self.label or not self.label.isprintable():
            raise not_allowed(f"{self.name}: label", self.label, "text in one line, without $")
        if not isinstance(self.look, Look | None):
            raise not_allowed(f"{self.name}: look", self.look, "a Look")
        is_section = isinstance(self.settings, type) and issubclass(self.settings, Section)
        if not is_section or any(key.is_required() for key in self.settings.model_fields.values()):
            allowed = "a subclass of Section, with a default for each key"
            raise not_allowed(f"{self.name}: settings", self.settings, allowed)
        object.__setattr__(self, "section", self.section or self.name)
        object.__setattr__(self, "label", self.label or self.name)


class Registry(dict[str, EntryT]):
    """Entries by name, in the order of adding; `kind`: of the entries, for messages."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        REGISTRIES.append(self)

    def add(self, entry: EntryT) -> EntryT:
        """Add an entry; the same file may add it again when it is reloaded.

        Raises:
            InputError: the name is malformed, or another file has taken it.
        """
        if not isinstance(entry.name, str) or not NAME.fullmatch(entry.name):
            allowed = "lower-case letters, digits and underscores, a letter first"
            name = shown(entry.name)
            raise InputError(f"{self.kind}: name {name} is not allowed; allowed: {allowed}")
        present = self.get(entry.name, entry)
        if present.source != entry.source:
            taken = f"name {entry.name!r} is taken by {present.source}"
            raise InputError(f"{self.kind}: {taken}; allowed: another name")
        self[entry.name] = entry
        return entry

    def adding(
        self, spec: Callable[..., EntryT], name: str, **fields: Any
    ) -> Callable[[BuilderT], BuilderT]:
        """Return a decorator that registers a builder as a `spec`."""

        def add(build: BuilderT) -> BuilderT:
            self.add(spec(name=name, build=build, source=calling_file(), **fields))
            return build

        return add

    def remove(self, name: str) -> None:
        """Remove an entry, such as one from a file that failed to load."""
        self.pop(name, None)

    def find(self, name: object, key: str | None = None) -> EntryT:
        """Return the entry; InputError with the allowed names if there is none, for `key`."""
        if not isinstance(name, str) or name not in self:
            raise unknown(key or self.kind, name, self)
        return self[name]


REGISTRIES: list[Registry[Any]] = []
"""All registries."""


def calling_file() -> str:
    """Return the file that calls the caller of this function, such as one with a decorator."""
    return sys._getframe(2).f_code.co_filename


def is_built_in(entry: Named) -> bool:
    """Whether an entry is from this package, not from a user file."""
    return any(Path(entry.source).is_relative_to(package) for package in PACKAGES)
