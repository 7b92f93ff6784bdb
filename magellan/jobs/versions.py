"""What the numbers of a run depend on besides its configuration."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from magellan import __version__
from magellan.backends import Backend
from magellan.backends.machine import core_speed, cpu_model
from magellan.config import RunConfig, own_code_of
from magellan.model.files import model_digest

LIBRARIES = ("torch", "transformers", "peft", "numpy", "gymnasium", "safetensors", "tokenizers")
PACKAGE = Path(__file__).resolve().parents[1]
GIT_SECONDS = 20.0
# Set in hooks, for instance: they would name another repository than the one around the package.
ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR")


@dataclass(frozen=True)
class Origin:
    """What an attempt rests on; read once, when it begins.

    Attributes:
        code_version: of this package, see `code_version`.
        versions: of Python and the libraries.
        backbone: `model` as the configuration names it, and the `sha256` of its files.
        modules, uses: the user's files as they were loaded, and what the run uses of them.
        passes, device, dtype: what computes the backbone's passes, where and in which number
            format; known once it is loaded.
        cpu: name of the processor.
        matmul_gflop_per_second: of one core, measured as the attempt begins; None: not measured.
    """

    code_version: str
    versions: dict[str, str]
    backbone: dict[str, str]
    modules: Mapping[str, str] = field(default_factory=dict)
    uses: Mapping[str, str] = field(default_factory=dict)
    passes: str = ""
    device: str = ""
    dtype: str = ""
    cpu: str = ""
    matmul_gflop_per_second: float | None = None

    @classmethod
    def now(cls, config: RunConfig, folder: Path) -> Origin:
        """The present state of code, libraries and a backbone's files in `folder`.

        The user's files are those that were loaded for `config`.

        Raises:
            InputError: a file of the backbone cannot be read.
        """
        backbone = {"model": config.backbone.model, "sha256": model_digest(folder)}
        own = own_code_of(config)
        return cls(code_version(), library_versions(), backbone, own["modules"], own["uses"])

    def on(self, backend: Backend) -> Origin:
        """With what computes, and how fast this machine is now."""
        return replace(
            self,
            **{name: getattr(backend, name) for name in ("passes", "device", "dtype")},
            cpu=cpu_model(),
            matmul_gflop_per_second=round(core_speed(), 1),
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def code_version(package: Path = PACKAGE) -> str:
    """Package version; in a clone also the commit, and `.dirty` where the code differs from it.

    Code is what git tracks in the package, and Python files that it does not track. A package that
    lies in another project's repository, or in none, has its version alone, as it has where git is
    absent, slow or refuses.
    """
    try:
        top = _git(package, "rev-parse", "--show-toplevel").removesuffix("\n")
        if not (Path(top) / package.name).samefile(package):
            return __version__
        commit = _git(package, "rev-parse", "--short=12", "HEAD").strip()
        status = _git(package, "status", "--porcelain", "-z", "--untracked-files=all", "--", ".")
    except (OSError, ValueError, subprocess.SubprocessError):
        return __version__
    changed = any(not line.startswith("??") or line.endswith(".py") for line in _entries(status))
    return f"{__version__}+{commit}{'.dirty' if changed else ''}"


def _git(package: Path, *arguments: str) -> str:
    """What git prints; of the repository around the package, whatever the environment names."""
    environment = {key: value for key, value in os.environ.items() if key not in ELSEWHERE}
    return subprocess.run(
        ["git", *arguments],
        cwd=package,
        capture_output=True,
        text=True,
        check=True,
        timeout=GIT_SECONDS,
        # Jobs that begin together must not wait for each other's lock of the index.
        env={**environment, "GIT_OPTIONAL_LOCKS": "0"},
    ).stdout


def _entries(status: str) -> list[str]:
    return [entry for entry in status.split("\0") if entry]


def library_versions() -> dict[str, str]:
    """Versions of Python and of the libraries that the numbers depend on."""
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "absent"
    return versions
