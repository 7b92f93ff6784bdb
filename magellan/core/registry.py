"""Named things: samplers, estimators, worlds, backends, updates; the analysis' tables and figures.

A user's own file adds to the same registries as the built-in ones (`magellan.config.modules`);
schema, documentation and figures take names, labels and looks from here.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from magellan.core.errors import InputError, meant, shown
from magellan.core.settings import NoSettings, Section

NAME = re.compile(r"[a-z][a-z0-9_]*")
PACKAGES = tuple(Path(__file__).parents[2] / name for name in ("magellan", "analysis"))


@dataclass(frozen=True)
class Look:
    """How the lines of something are drawn: colour, matplotlib line style, marker."""

    color: str
    dash: Any = "-"
    marker: str = "o"


class Named(Protocol):
    """What every registered thing has."""

    @property
    def name(self) -> str: ...

    @property
    def source(self) -> str: ...


EntryT = TypeVar("EntryT", bound=Named)
BuilderT = TypeVar("BuilderT", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Spec:
    """Something that a builder makes when a run names it.

    Attributes:
        name: in configurations and tables.
        build: its builder.
        settings: its own constants.
        section: where their keys stand in a run's configuration; the name, unless told otherwise.
        source: file that it comes from.
    """

    name: str
    build: Callable[..., Any]
    settings: type[Section] = NoSettings
    section: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "section", self.section or self.name)


class Registry(Mapping[str, EntryT], Generic[EntryT]):
    """Entries by name, in the order in which they were added.

    Args:
        kind: what it holds, for messages.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, EntryT] = {}
        REGISTRIES.append(self)

    def add(self, entry: EntryT) -> EntryT:
        """Add an entry; the same file may add it again, as when it is loaded anew.

        Raises:
            InputError: the name is malformed, or another file has taken it.
        """
        if not isinstance(entry.name, str) or not NAME.fullmatch(entry.name):
            raise InputError(
                f"{self.kind}: name {shown(entry.name)} is not allowed; allowed: lower-case "
                "letters, digits and underscores, a letter first"
            )
        present = self._entries.get(entry.name)
        if present is not None and present.source != entry.source:
            raise InputError(
                f"{self.kind}: name {entry.name!r} is taken by {present.source}; "
                "allowed: another name"
            )
        self._entries[entry.name] = entry
        return entry

    def adding(
        self, spec: Callable[..., EntryT], name: str, **fields: Any
    ) -> Callable[[BuilderT], BuilderT]:
        """Decorator of a builder: adds what `spec` makes of it."""

        def add(build: BuilderT) -> BuilderT:
            self.add(spec(name=name, build=build, source=source_of(build), **fields))
            return build

        return add

    def remove(self, name: str) -> None:
        """Forget an entry, as when the file that added it failed."""
        self._entries.pop(name, None)

    def __getitem__(self, name: str) -> EntryT:
        try:
            return self._entries[name]
        except (KeyError, TypeError):
            raise KeyError(name) from None

    def find(self, name: object, key: str | None = None) -> EntryT:
        """Entry of this name; InputError with the names that exist, after `key`."""
        if not isinstance(name, str) or name not in self._entries:
            raise InputError(
                f"{key or self.kind}: {shown(name)} is unknown; allowed: {', '.join(self)}"
                f"{meant(name, self)}"
            )
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


REGISTRIES: list[Registry[Any]] = []
"""All that there are."""


def as_registered(registry: Registry[Any], names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Label and look of a user's own entries, as manifests have them: JSON values by name."""
    own = [registry[name] for name in names if not is_built_in(registry[name])]
    return {
        entry.name: {"label": entry.label, **({"look": asdict(entry.look)} if entry.look else {})}
        for entry in own
    }


def source_of(function: Callable[..., Any]) -> str:
    """File that a function or class was written in, as entries name it."""
    written = inspect.unwrap(function)
    module = sys.modules.get(written.__module__)
    file = getattr(module, "__file__", None) or written.__module__
    return str(getattr(getattr(written, "__code__", None), "co_filename", file))


def is_built_in(entry: Named) -> bool:
    """Whether an entry is the package's own, and not a user's."""
    return any(Path(entry.source).is_relative_to(package) for package in PACKAGES)
