"""User-defined samplers, estimators, worlds, backends, figures, ...: the files under `modules`.

These files are executed: use only files that you trust.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from magellan.competence import ESTIMATORS
from magellan.core.errors import InputError, not_allowed, shown
from magellan.core.registry import REGISTRIES, is_built_in
from magellan.samplers import SAMPLERS

Name = tuple[str, str]
"""(kind, name) of a registered entry."""


@dataclass(frozen=True)
class _File:
    """A loaded file: SHA-256 of its bytes, and the entries that it registered."""

    sha256: str
    added: Mapping[Name, Any]


_LOADED: dict[Path, _File] = {}


def load_modules(paths: Any) -> None:
    """Run each file once, in order, to register its entries.

    paths: of Python files, relative to the working folder.

    Raises:
        InputError: not a list of paths, no such file, or the file cannot be run.
    """
    if not isinstance(paths, list | tuple):
        raise not_allowed("modules", paths, "a list of paths")
    for path in paths:
        _load(path)


def forget_modules() -> None:
    """Unregister what user files have registered, until one is loaded again.

    Two experiments in one process, as modules of one workflow, have each their own.
    """
    for file in _LOADED.values():
        _unregister(set(file.added))


def resolve_paths(paths: Any, file: Path) -> Any:
    """Resolve the `modules` of a configuration file, which are relative to its folder.

    Paths below the working folder stay relative; invalid values are left to `load_modules`.
    """
    if not isinstance(paths, list):
        return paths
    below = os.path.join(os.getcwd(), "")
    return [
        os.path.abspath(file.parent / path).removeprefix(below) if isinstance(path, str) else path
        for path in paths
    ]


def refuse_modules(paths: Any) -> None:
    """Refuse a configuration with modules, without running them.

    Raises:
        InputError: lists the modules.
    """
    if paths:
        names = paths if isinstance(paths, list) else [paths]
        raise InputError(
            f"modules: {', '.join(map(shown, names))}: not run, so the file is not checked; "
            "allowed: none, or read them and check again with --run-modules"
        )


def _load(name: Any) -> _File:
    """Run a file, unless these very bytes of it were run before."""
    path, content = _read(name)
    digest = hashlib.sha256(content).hexdigest()
    if path in _LOADED and _LOADED[path].sha256 == digest:
        for registry in REGISTRIES:
            for (kind, entry_name), entry in _LOADED[path].added.items():
                if kind == registry.kind and entry_name not in registry:
                    registry.add(entry)  # after `forget_modules`
        return _LOADED[path]
    _LOADED.pop(path, None)  # if the new version fails, none is loaded
    old = _registered_entries()
    try:
        _run(path, content)
        for kind, entry_name in _registered_entries().keys() - old:
            driver = SAMPLERS[entry_name].estimator if kind == SAMPLERS.kind else None
            if driver is not None:
                ESTIMATORS.find(driver, f"{entry_name}: estimator")
    except (Exception, SystemExit) as error:  # a user's file may raise anything
        _unregister(_registered_entries().keys() - old)
        if isinstance(error, InputError):
            raise InputError(f"modules: {shown(name)}: {error}") from None
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"modules: {shown(name)} cannot be loaded ({reason[:200]})") from error
    entries = _registered_entries().items()
    added = {name: entry for name, entry in entries if entry is not old.get(name)}
    _LOADED[path] = _File(digest, added)
    return _LOADED[path]


def _registered_entries() -> dict[Name, Any]:
    return {(registry.kind, name): registry[name] for registry in REGISTRIES for name in registry}


def _unregister(added: set[Name]) -> None:
    """Remove the entries of a file that failed, except those of this package that it imported."""
    for registry in REGISTRIES:
        for name in list(registry):
            if (registry.kind, name) in added and not is_built_in(registry[name]):
                registry.remove(name)


def _read(name: Any) -> tuple[Path, bytes]:
    """Return the absolute path of a file under `modules`, and its content."""
    if not isinstance(name, str) or not name.endswith(".py") or "\0" in name:
        raise not_allowed("modules", name, "paths of .py files")
    path = Path(name)
    try:
        if not path.is_file():
            raise InputError(f"modules: {shown(name)} is missing; allowed: paths of .py files")
        return path.resolve(), path.read_bytes()
    except OSError as error:
        raise InputError(f"modules: {shown(name)} cannot be read ({error.strerror})") from None


def _run(path: Path, content: bytes) -> None:
    """Run exactly these bytes: the file may have changed, or a stale compiled version may exist."""
    name = f"magellan_user_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    exec(compile(content, path, "exec", dont_inherit=True), module.__dict__)


def own_code(paths: tuple[str, ...], used: Collection[Name]) -> dict[str, dict[str, str]]:
    """Describe a run's user files as they were loaded, even if they changed since.

    used: registered entries that the run uses.

    Returns:
        `modules`: SHA-256 by path; `uses`: path of the file by the entry that the run uses. A file
        that registers nothing is an entry itself; runs never use statistics or figures.
    """
    files = {path: _LOADED.get(Path(path).resolve()) or _load(path) for path in paths}
    uses = {}
    for path, file in files.items():
        if not file.added:
            uses[f"file {path}"] = path
        uses |= {" ".join(name): path for name in sorted(file.added.keys() & set(used))}
    return {"modules": {path: file.sha256 for path, file in files.items()}, "uses": uses}


def in_use(code: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the user files that a run used: (path, SHA-256) by name of the entry and of the file.

    code: `modules` and `uses` as from `own_code`, possibly read from a file. Without `uses`, as in
        earlier versions, every file counts.
    """
    modules, uses = _strings(code.get("modules")), _strings(code.get("uses"))
    paths = modules if code.get("uses") is None else uses.values()
    uses |= {f"file {path}": path for path in paths}
    return {name: (path, modules[path]) for name, path in uses.items() if path in modules}


def _strings(values: Any) -> dict[str, str]:
    items = values.items() if isinstance(values, Mapping) else ()
    return {key: value for key, value in items if isinstance(value, str)}
