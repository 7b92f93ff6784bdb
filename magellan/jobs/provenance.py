"""Where a run's numbers come from: its attempts, and their code, libraries, model and machine.

attempts.jsonl has every start and end of a run. An attempt without an end was killed.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path
from typing import Any

from magellan import __version__
from magellan.backends import Backend
from magellan.backends.machine import core_speed, cpu_model
from magellan.config import RunConfig, own_code_of
from magellan.core.errors import InputError, NotFiniteError
from magellan.core.files import append_line
from magellan.jobs.log import utc_now
from magellan.model.files import model_digest

NAME = "attempts.jsonl"
KILLED = "killed"
FINAL = {error.exit_status: error for error in (InputError, NotFiniteError)}
"""Errors that a retry would meet again, by exit status."""
PROVENANCE = ("code_version", "versions", "tokens", "modules", "uses", "passes", "device", "dtype")
"""What an attempt's numbers depend on and may change between attempts."""
# What the manifest reports for every attempt.
LOGGED = (
    *("attempt", *PROVENANCE, "cpu", "matmul_gflop_per_second"),
    *("started", "resumed_from", "reason"),
)
LARGEST = 10**9  # upper bound of attempt numbers, process ids, seconds and MiB
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

        earlier: the attempts behind a state, see `ancestry`; older ones record less.
        place: of the state, for the error.

        Raises:
            InputError: the last one had another version of `transformers`, or other token ids.
        """
        last = earlier[-1] if earlier else {}
        here, tokens = self.versions["transformers"], self.tokens
        there, then = last.get("versions", {}).get("transformers", here), last.get("tokens", tokens)
        if (there, then) == (here, tokens):
            return
        difference = f"transformers {there}, here is {here}"
        if there == here:
            ids = "other token ids: those of a fixed text have SHA-256"
            difference = f"{ids} {then[:12]} there and {tokens[:12]} here"
        raise InputError(
            f"{place} was made with {difference}; allowed: what it was made with, as another one "
            "may read texts and weights otherwise; or train it from its start elsewhere"
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


class Attempts:
    """The attempts of one run, in an append-only file.

    folder: the run's folder; its file may also list attempts with other configurations.

    Raises:
        StorageError: from `begin` and `end`, if the file cannot be written.
    """

    def __init__(self, folder: Path, identity: str) -> None:
        self._path = folder / NAME
        self._identity = identity
        self._start_time = time.monotonic()
        self._number = 0

    def begin(self, resumed_from: str | None, origin: Mapping[str, Any] | None = None) -> int:
        """Record the start of this attempt, with code and libraries; return its number, from 1."""
        self._start_time = time.monotonic()
        taken = {row["attempt"] for row in self.read()}
        self._number = next(number for number in count(len(taken) + 1) if number not in taken)
        self._append(
            started=utc_now(),
            host=socket.gethostname(),
            machine=host_description(),
            pid=os.getpid(),
            identity=self._identity,
            resumed_from=resumed_from,
            **(origin or {}),
        )
        return self._number

    def end(self, reason: str, status: int = 0) -> None:
        """Record why this attempt ended, and its exit status."""
        self._append(
            ended=utc_now(),
            reason=reason,
            status=status,
            seconds=round(time.monotonic() - self._start_time, 1),
            peak_memory_mb=peak_memory_mb(),
        )

    def _append(self, **values: Any) -> None:
        append_line(self._path, json.dumps({"attempt": self._number, **values}))

    def read(self) -> list[dict[str, Any]]:
        """Return one row per attempt, oldest first; `reason` is `killed` if it has no end.

        Skips truncated lines and values that no trainer writes; never raises.
        """
        try:
            # Not from a device that never ends.
            text = self._path.read_text("utf-8", "replace") if self._path.is_file() else ""
        except OSError:
            text = ""
        attempts: dict[int, dict[str, Any]] = {}
        for line in text.splitlines():
            try:
                values = json.loads(line)
            except (ValueError, RecursionError):
                continue  # truncated by a kill or a full disk, or not written by a trainer
            if not isinstance(values, dict):
                continue
            event = {key: value for key, value in values.items() if _is_valid(key, value)}
            if "attempt" in event:
                attempts.setdefault(event["attempt"], {"reason": KILLED}).update(event)
        return list(attempts.values())

    def summary(self) -> dict[str, Any]:
        """Summarise this run's attempts for the manifest, when the current one completes it."""
        rows = [row for row in self.read() if row.get("identity") == self._identity]
        earlier = [row for row in rows if row["attempt"] != self._number]
        current = [{**row, "reason": "complete"} for row in rows if row["attempt"] == self._number]
        peaks = [row["peak_memory_mb"] for row in earlier if "peak_memory_mb" in row]
        return {
            "started": rows[0].get("started") if rows else None,
            "restarts": sum(row.get("resumed_from") is not None for row in rows),
            "attempts": len(rows),
            "stop_reasons": [*(row["reason"] for row in earlier), "complete"],
            "attempt_log": [{key: row.get(key) for key in LOGGED} for row in (*earlier, *current)],
            "peak_memory_mb": max([peak_memory_mb(), *peaks]),
        }


def check_worth_trying(folder: Path, identity: str) -> None:
    """Raise the error of a run's last attempt again if a retry would meet it too."""
    rows = Attempts(folder, identity).read()
    last = rows[-1] if rows else {}
    error = FINAL.get(last.get("status", 0))
    if error is not None and last.get("identity") == identity:
        raise error(last["reason"].removeprefix(f"{error.label}: "))


def provenance(state: Any) -> list[dict[str, Any]]:
    """Return the `PROVENANCE` of the attempts behind a checkpoint, one row per change.

    state: of a checkpoint, or a run's `started_from`; earlier versions wrote none.
    """
    rows = state.get("made_with") if isinstance(state, Mapping) else None
    rows = [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
    return [{key: row[key] for key in PROVENANCE if _is_valid(key, row.get(key))} for row in rows]


def ancestry(state: Any) -> list[dict[str, Any]]:
    """Return the `provenance` of a state, after that of the run it started from."""
    start = state.get("started_from") if isinstance(state, Mapping) else None
    return [*provenance(start), *provenance(state)]


def _is_valid(key: str, value: Any) -> bool:
    """Whether a trainer writes such a value under this key."""
    if key in ("versions", "backbone", "modules", "uses"):
        return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
    if key in ("attempt", "pid", "status", "peak_memory_mb"):
        return type(value) is int and 0 <= value <= LARGEST
    if key in ("seconds", "matmul_gflop_per_second"):
        return type(value) in (int, float) and 0 <= value <= LARGEST
    return isinstance(value, str) or (key == "resumed_from" and value is None)


def peak_memory_mb() -> int:
    """Largest resident memory of this process so far, MiB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def host_description() -> str:
    """Architecture, cores and system of this machine, without its name."""
    return f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}"
