"""Code blocks of the documentation, files, imports, programs and scripts, failing calls."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"<!-- file: (\S+) -->\n```(?:python|yaml)\n(.*?)```\n", re.DOTALL)


def write_files(page: str, folder: Path) -> dict[str, str]:
    """Write the named code blocks of a page into a folder; their paths by name."""
    blocks = dict(BLOCK.findall((ROOT / page).read_text()))
    assert blocks
    for name, text in blocks.items():
        (folder / name).write_text(text)
    return {name: str(folder / name) for name in blocks}


def parts(name: str, text: str) -> tuple[str, str, str]:
    """What stands before a block, in it and after it, with its markers outside."""
    begin, end = f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->"
    before, marker, rest = text.partition(begin)
    block, _, after = rest.partition(end)
    return before + marker, block, end + after


def raising(error: BaseException) -> Callable[..., Any]:
    """A function that raises this error whatever it is called with."""

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def imported(path: Path) -> set[str]:
    """Full names of what a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def contents(folder: Path) -> dict[str, bytes]:
    """Contents of every file below a folder, except the lock."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def run_program(program: str, *arguments: str, cwd: Path = ROOT, **environment: str) -> str:
    """Run a Python program in another process, with this repository's code; what it prints."""
    process = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()
