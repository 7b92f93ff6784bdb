"""Code, libraries and hardware behind the numbers of a run."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from magellan import __version__
from magellan.backends import Backend
from magellan.backends.machine import core_speed, cpu_model
from magellan.config import RunConfig, own_code_of
from magellan.core.errors import InputError
from magellan.model.files import model_digest

LIBRARIES = ("torch", "transformers", "peft", "numpy", "gymnasium", "safetensors", "tokenizers")
PACKAGE = Path(__file__).resolve().parents[1]
GIT_SECONDS = 20.0
# Set in hooks, for instance: they may point to another repository than the package's.
GIT_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR")


@dataclass(frozen=True)
class Origin:
    """Code, libraries, language model and hardware of an attempt, read when it begins.

    Attributes:
        code_version: of this package, see `code_version`.
        versions: of Python and the libraries.
        backbone: `model` as the configuration names it, and the `sha256` of its files.
        tokens: SHA-256 of the token ids of a fixed text.
        modules, uses: hashes of the user's files, and what the run uses of them.
        passes, device, dtype: what computes the backbone's passes, where and in which number
            format; set once the backbone is loaded.
        cpu: name of the processor.
        matmul_gflop_per_second: of one core, measured when the attempt begins; None: not measured.
    """

    code_version: str
    versions: dict[str, str]
    backbone: dict[str, str]
    tokens: str = ""
    modules: Mapping[str, str] = field(default_factory=dict)
    uses: Mapping[str, str] = field(default_factory=dict)
    passes: str = ""
    device: str = ""
    dtype: str = ""
    cpu: str = ""
    matmul_gflop_per_second: float | None = None

    @classmethod
    def now(cls, config: RunConfig, folder: Path) -> Origin:
        """Return the current origin, with the backbone's files in `folder`.

        The user's files are those loaded for `config`.

        Raises:
            InputError: a file of the backbone cannot be read.
        """
        from magellan.model.loading import load_tokenizer  # the rest needs no torch
        from magellan.model.tokenizers import digest

        backbone = {"model": config.backbone.model, "sha256": model_digest(folder)}
        tokens, own = digest(load_tokenizer(config.backbone.model)), own_code_of(config)
        code, libraries = code_version(), library_versions()
        return cls(code, libraries, backbone, tokens, own["modules"], own["uses"])

    def on(self, backend: Backend) -> Origin:
        """Return a copy with the backend and the speed of this machine."""
        return replace(
            self,
            **{name: getattr(backend, name) for name in ("passes", "device", "dtype")},
            cpu=cpu_model(),
            matmul_gflop_per_second=round(core_speed(), 1),
        )

    def check_reads_alike(self, earlier: Sequence[Mapping[str, Any]], place: str) -> None:
        """Refuse to continue what another `transformers`, or another tokenizer, has read.

        Args:
            earlier: the attempts behind a state, see `ancestry`; older ones record less.
            place: of the state, for the error.

        Raises:
            InputError: the last one had another version of `transformers`, or other token ids.
        """
        last = earlier[-1] if earlier else {}
        version, tokens = self.versions["transformers"], self.tokens
        other = last.get("versions", {}).get("transformers", version)
        difference = ""
        if other != version:
            difference = f"transformers {other}, here is {version}"
        elif last.get("tokens", tokens) != tokens:
            difference = (
                f"other token ids: those of a fixed text have SHA-256 {last['tokens'][:12]} there "
                f"and {tokens[:12]} here"
            )
        if difference:
            raise InputError(
                f"{place} was made with {difference}; allowed: what it was made with, as another "
                "one may read texts and weights otherwise; or train it from its start elsewhere"
            )


def code_version(package: Path = PACKAGE) -> str:
    """Return the package version; in a clone also the commit, and `.dirty` if the code differs.

    Code: the package's tracked files and untracked Python files. Only the version if the package is
    not in its own repository, or if git is absent, slow or fails.
    """
    try:
        top = _git(package, "rev-parse", "--show-toplevel").removesuffix("\n")
        if not (Path(top) / package.name).samefile(package):
            return __version__
        commit = _git(package, "rev-parse", "--short=12", "HEAD").strip()
        status = _git(package, "status", "--porcelain", "-z", "--untracked-files=all", "--", ".")
    except (OSError, ValueError, subprocess.SubprocessError):
        return __version__
    entries = filter(None, status.split("\0"))
    changed = any(not entry.startswith("??") or entry.endswith(".py") for entry in entries)
    return f"{__version__}+{commit}{'.dirty' if changed else ''}"


def _git(package: Path, *arguments: str) -> str:
    """Run git in the package's repository and return its output."""
    environment = {key: value for key, value in os.environ.items() if key not in GIT_VARIABLES}
    return subprocess.run(
        ["git", *arguments],
        cwd=package,
        capture_output=True,
        text=True,
        check=True,
        timeout=GIT_SECONDS,
        # Jobs that start together must not wait for each other's lock of the index.
        env={**environment, "GIT_OPTIONAL_LOCKS": "0"},
    ).stdout


def library_versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that affect the numbers."""
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "absent"
    return versions
