"""What the runs of an experiment differ in beside their configuration: code, libraries, models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from magellan.errors import InputError

Manifest = Mapping[str, Any]
DIRTY = "dirty"
SHORT = 12
"""Letters of a digest in a note."""


def notes(runs: Sequence[Manifest]) -> list[str]:
    """Sentences on code, libraries, devices and module files that differ between the runs."""
    code = [_over_attempts(run, lambda at: at.get("code_version")) for run in runs]
    found = [_note("code", code, always=any(DIRTY in text for text in code))]
    found += [_note(library, _of_library(runs, library)) for library in _names(runs, "versions")]
    # Rounding differs between devices, and far more between number formats.
    found += [
        _note("device", [str(run.get("device", "unknown")) for run in runs]),
        _note("number format", [str(run.get("dtype", "float32")) for run in runs]),
    ]
    for path in _names(runs, "modules"):
        digests = [run.get("modules", {}).get(path, "absent")[:SHORT] for run in runs]
        found.append(_note(f"module {path}", digests))
    return [note for note in found if note]


def _names(runs: Iterable[Manifest], key: str) -> list[str]:
    return sorted({name for run in runs for name in run.get(key, {})})


def _versions(attempt: Manifest) -> Manifest:
    versions = attempt.get("versions")
    return versions if isinstance(versions, Mapping) else {}


def _of_library(runs: Iterable[Manifest], library: str) -> list[str]:
    return [_over_attempts(run, lambda part: _versions(part).get(library)) for run in runs]


def _over_attempts(run: Manifest, version: Callable[[Manifest], Any]) -> str:
    """A version that a run was made with; several where it changed between its attempts."""
    found = [version(part) for part in (*run.get("attempt_log", ()), run)]
    return " then ".join(dict.fromkeys(str(each) for each in found if each)) or "unknown"


def _note(what: str, values: list[str], always: bool = False) -> str:
    """`what: one (3 runs), other (5 runs)`; empty if all are the same."""
    counts = {value: values.count(value) for value in dict.fromkeys(values)}
    if len(counts) == 1 and not always:
        return ""
    parts = [f"{value} ({count} run{'s' if count > 1 else ''})" for value, count in counts.items()]
    ending = "; dirty: with changes that no commit has" if always else ""
    return f"{what}: {', '.join(parts)}{ending}"


def check_backbones(runs: Iterable[Manifest]) -> None:
    """Check that one name of a language model stands for one file of weights.

    Raises:
        InputError: two runs had other weights under the same name.
    """
    known: dict[str, tuple[str, Manifest]] = {}
    for run in runs:
        backbone = run.get("backbone")
        if not backbone:
            continue
        digest, first = known.setdefault(backbone["model"], (backbone["sha256"], run))
        if digest != backbone["sha256"]:
            names = [f"sampler {r['sampler']!r}, seed {r['seed']}" for r in (first, run)]
            raise InputError(
                f"backbone.model: {backbone['model']!r} has SHA-256 {digest[:SHORT]} for "
                f"{names[0]} and {backbone['sha256'][:SHORT]} for {names[1]}; allowed: the same "
                "weights in all runs"
            )
