"""Which files of this package a module depends on: inputs of the workflow's rules.

Found in the text of the files, nothing is imported. A module counts with everything that it
imports from the package, also inside functions, and so on from there.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "analysis"
ROOT = Path(__file__).parents[2]


def sources(module: str) -> list[str]:
    """Files of a module and of all that it imports from the package, sorted.

    Args:
        module: for instance `analysis.figures.calibration`.

    Returns:
        Paths relative to the repository where that is the working folder; else absolute ones.

    Raises:
        ModuleNotFoundError: the package has no such module.
    """
    if not _files(module):
        raise ModuleNotFoundError(f"{module} is no module of the package {PACKAGE}")
    return _with_imports(_files(module))


def sources_of_file(path: str) -> list[str]:
    """A user's own file, and files of the package that it imports, sorted."""
    own = Path(path)
    return sorted({path, *_with_imports([f for name in _imported(own) for f in _files(name)])})


def _with_imports(waiting: list[Path]) -> list[str]:
    """Files of the package and all that they import from it."""
    found: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _imported_files(path)
    # A checkout that moves stays what it is; from other folders the files are found all the same.
    here = ROOT.samefile(Path.cwd())
    return sorted((path.relative_to(ROOT) if here else path).as_posix() for path in found)


@functools.cache
def _imported_files(path: Path) -> tuple[Path, ...]:
    """Files of the package that one of them imports; read once, as no process changes them."""
    return tuple(file for name in _imported(path) for file in _files(name))


def _files(module: str) -> list[Path]:
    """Files that importing a module runs: its own, and those of the packages that it is in."""
    parts = module.split(".")
    if parts[0] != PACKAGE:
        return []
    place = ROOT.joinpath(*parts)
    own = [path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()]
    if not own:
        return []
    packages = [ROOT.joinpath(*parts[:end]) / "__init__.py" for end in range(1, len(parts))]
    return own + packages


def _imported(path: Path) -> Iterator[str]:
    """Modules that a file names in imports; `from x import y` may mean the module x.y.

    Imports that are for type checkers only change nothing that the code does.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    idle = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and _names_type_checking(node.test)
        for part in node.body
        for inner in ast.walk(part)
    }
    for node in ast.walk(tree):
        if id(node) in idle:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _base(node, path)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _names_type_checking(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def _base(node: ast.ImportFrom, path: Path) -> str:
    """Module after `from`, also of a relative import."""
    if not node.level:
        return node.module or ""
    if not path.is_relative_to(ROOT):
        return ""  # a user's file is in no package
    package = path.relative_to(ROOT).with_suffix("").parts
    package = package[: len(package) - node.level]
    return ".".join([*package, *([node.module] if node.module else [])])
