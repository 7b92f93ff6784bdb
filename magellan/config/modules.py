"""A user's own samplers, estimators, worlds, backends, figures ...: files named under `modules`.

Such a file is run as any program is: use only files that you trust.
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
from magellan.core.errors import InputError, refused, shown
from magellan.core.registry import REGISTRIES, is_built_in
from magellan.samplers import SAMPLERS

Name = tuple[str, str]
"""(kind, name) of something that is registered."""


@dataclass(frozen=True)
class _File:
    """A file as it was loaded: SHA-256 of its bytes, and what it has registered."""

    sha256: str
    added: frozenset[Name]


_LOADED: dict[Path, _File] = {}


def load_modules(paths: Any) -> None:
    """Run each file once, in order; what it registers can then be named.

    Args:
        paths: paths of Python files, relative to the working folder.

    Raises:
        InputError: not a list of paths, no such file, or the file cannot be run.
    """
    if not isinstance(paths, list | tuple):
        raise refused("modules", paths, "a list of paths")
    for path in paths:
        _load(path)


def beside(paths: Any, file: Path) -> Any:
    """What a file has under `modules`: its paths, relative to its own folder, as seen from here.

    Those below the working folder stay relative; what is no list of texts is for `load_modules`.
    """
    if not isinstance(paths, list):
        return paths
    return [_seen_from_here(path, file) if isinstance(path, str) else path for path in paths]


def _seen_from_here(path: str, file: Path) -> str:
    whole = Path(os.path.abspath(file.parent / path))
    return str(whole.relative_to(Path.cwd()) if whole.is_relative_to(Path.cwd()) else whole)


def refuse_modules(paths: Any) -> None:
    """Name the files instead of running them, for a configuration that is not trusted yet.

    Raises:
        InputError: there are some.
    """
    if paths:
        names = paths if isinstance(paths, list) else [paths]
        raise InputError(
            f"modules: {', '.join(map(shown, names))}: programs, which were not run, so the file "
            "is not checked; allowed: none, or read them and check again with --run-modules"
        )


def _load(name: Any) -> None:
    path = _checked(name)
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if path in _LOADED and _LOADED[path].sha256 == digest:
        return
    _LOADED.pop(path, None)  # should the new version fail, none is loaded
    before = _registered()
    try:
        _run(path, content)
        _check_drivers(_registered().keys() - before)
    except Exception as error:  # whatever a user's file raises
        _forget(_registered().keys() - before)
        if isinstance(error, InputError):
            raise InputError(f"modules: {shown(name)}: {error}") from None
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"modules: {shown(name)} cannot be loaded ({reason[:200]})") from error
    added = {name for name, entry in _registered().items() if entry is not before.get(name)}
    _LOADED[path] = _File(digest, frozenset(added))


def _registered() -> dict[Name, Any]:
    """Everything that is registered."""
    return {(each.kind, name): each[name] for each in REGISTRIES for name in each}


def _check_drivers(added: set[Name]) -> None:
    """Refuse samplers whose estimator is unknown."""
    for kind, name in added:
        driver = SAMPLERS[name].estimator if kind == SAMPLERS.kind else None
        if driver is not None:
            ESTIMATORS.find(driver, f"{name}: estimator")


def _forget(added: set[Name]) -> None:
    """Take back what a file that failed has added; not what it imported from here."""
    for registry in REGISTRIES:
        for name in list(registry):
            if (registry.kind, name) in added and not is_built_in(registry[name]):
                registry.remove(name)


def _checked(name: Any) -> Path:
    if not isinstance(name, str) or not name.endswith(".py") or "\0" in name:
        raise refused("modules", name, "paths of .py files")
    path = Path(name)
    if not path.is_file():
        raise InputError(f"modules: {shown(name)} is missing; allowed: paths of .py files")
    return path.resolve()


def _run(path: Path, content: bytes) -> None:
    """Run these very bytes: the file may be another one by now, or compiled from an earlier one."""
    name = f"magellan_user_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    exec(compile(content, path, "exec", dont_inherit=True), module.__dict__)


def own_code(paths: tuple[str, ...], used: Collection[Name]) -> dict[str, dict[str, str]]:
    """A run's files of its user as they were loaded, whatever has become of them since.

    Args:
        paths: of the files.
        used: what the run uses of all that is registered.

    Returns:
        `modules`: SHA-256 by path; `uses`: path of the file by what the run uses of it. A file that
        registers nothing is used as such; statistics and figures are never used by a run.
    """
    files = {path: _loaded(path) for path in paths}
    uses = {}
    for path, file in files.items():
        if not file.added:
            uses[f"file {path}"] = path
        uses |= {" ".join(name): path for name in sorted(file.added.intersection(used))}
    return {"modules": {path: file.sha256 for path, file in files.items()}, "uses": uses}


def _loaded(name: str) -> _File:
    path = Path(name).resolve()
    if path not in _LOADED:
        _load(name)
    return _LOADED[path]


def in_use(made: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """What a run used of its user's files: (path, SHA-256) by its name, and by the file's.

    made: with `modules` and `uses`, as `own_code` gives them and a file may hold them. Runs of
        earlier versions had no `uses`: there every file counts.
    """
    modules, uses = _texts(made.get("modules")), _texts(made.get("uses"))
    paths = modules if made.get("uses") is None else uses.values()
    uses |= {f"file {path}": path for path in paths}
    return {name: (path, modules[path]) for name, path in uses.items() if path in modules}


def _texts(found: Any) -> dict[str, str]:
    """The texts in a mapping that a file holds."""
    whole = found if isinstance(found, Mapping) else {}
    return {key: value for key, value in whole.items() if isinstance(value, str)}
