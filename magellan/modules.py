"""A user's own samplers, estimators, worlds, backends, figures ...: files named under `modules`.

Such a file is run as any program is: use only files that you trust.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from magellan.errors import InputError, shown
from magellan.registry import REGISTRIES, is_built_in

_LOADED: dict[Path, bytes] = {}


def load_modules(paths: Any) -> None:
    """Run each file once, in order; what it registers can then be named.

    Args:
        paths: paths of Python files, relative to the working folder.

    Raises:
        InputError: not a list of paths, no such file, or the file cannot be run.
    """
    if not isinstance(paths, list | tuple):
        raise InputError(f"modules: {shown(paths)} is not allowed; allowed: a list of paths")
    for path in paths:
        _load(path)


def _load(name: Any) -> None:
    path = _checked(name)
    content = path.read_bytes()
    if _LOADED.get(path) == content:
        return
    before = _registered()
    try:
        _run(path)
        _check_drivers(_registered() - before)
    except Exception as error:  # whatever a user's file raises
        _forget(_registered() - before)
        if isinstance(error, InputError):
            raise InputError(f"modules: {shown(name)}: {error}") from None
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"modules: {shown(name)} cannot be loaded ({reason[:200]})") from error
    _LOADED[path] = content


def _registered() -> set[tuple[str, str]]:
    """(kind, name) of everything that is registered."""
    return {(registry.kind, name) for registry in REGISTRIES for name in registry}


def _check_drivers(added: set[tuple[str, str]]) -> None:
    """Refuse samplers whose estimator is unknown."""
    from magellan.competence import ESTIMATORS
    from magellan.samplers import SAMPLERS

    for kind, name in added:
        driver = SAMPLERS[name].estimator if kind == SAMPLERS.kind else None
        if driver is not None:
            ESTIMATORS.find(driver, f"{name}: estimator")


def _forget(added: set[tuple[str, str]]) -> None:
    """Take back what a file that failed has added; not what it imported from here."""
    for registry in REGISTRIES:
        for name in list(registry):
            if (registry.kind, name) in added and not is_built_in(registry[name]):
                registry.remove(name)


def _checked(name: Any) -> Path:
    if not isinstance(name, str) or not name.endswith(".py") or "\0" in name:
        raise InputError(f"modules: {shown(name)} is not allowed; allowed: paths of .py files")
    path = Path(name)
    if not path.is_file():
        raise InputError(f"modules: {shown(name)} is missing; allowed: paths of .py files")
    return path.resolve()


def _run(path: Path) -> None:
    name = f"magellan_user_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def module_digests(paths: tuple[str, ...]) -> dict[str, str]:
    """SHA-256 of each file, by path."""
    return {path: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in paths}
