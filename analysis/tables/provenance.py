"""What runs and attempts differ in beside the configuration: code, libraries, formats, models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from magellan.config.modules import in_use
from magellan.core.errors import InputError

Manifest = Mapping[str, Any]
Says = Callable[[Manifest], Any]
CODE = "code"
THEN = " then "
UNKNOWN = "unknown"
DIRTY = "dirty"
SHORT = 12
"""Letters of a digest in a note."""


def notes(runs: Sequence[Manifest]) -> list[str]:
    """Sentences on code, libraries, devices, formats and module files that are not always the same.

    They may differ between the runs, or have changed on the way of one.
    """
    found = [_note("beginning", [(_beginning(run),) for run in runs])]
    for what, asked in _differences(runs).items():
        found.append(_note(what, [_in_turn(run, *asked) for run in runs]))
    return [note for note in found if note]


def changes(run: Manifest) -> list[str]:
    """What changed on the way of a run, and from what to what."""
    told = {what: _in_turn(run, *asked) for what, asked in _differences([run]).items()}
    return [f"{what}: {THEN.join(values)}" for what, values in told.items() if len(values) > 1]


def _differences(runs: Sequence[Manifest]) -> dict[str, tuple[Says, str]]:
    """What may differ: where an attempt says it, and what a run has where none does."""
    parts = [part for run in runs for part in _parts(run)]
    found: dict[str, tuple[Says, str]] = {CODE: (partial(_value, "code_version"), UNKNOWN)}
    for library in _names(parts, "versions"):
        found[library] = partial(_inner, "versions", library), UNKNOWN
    # Rounding differs between devices and passes, and far more between number formats.
    found["device"] = partial(_value, "device"), UNKNOWN
    found["number format"] = partial(_value, "dtype"), "float32"
    found["passes"] = partial(_value, "passes"), UNKNOWN
    for path in _names(parts, "modules"):
        found[f"module {path}"] = partial(_inner, "modules", path), "absent"
    return found


def _names(parts: Iterable[Manifest], key: str) -> list[str]:
    found = (part.get(key) for part in parts)
    return sorted({name for names in found if isinstance(names, Mapping) for name in names})


def _value(key: str, part: Manifest) -> Any:
    return part.get(key)


def _inner(key: str, name: str, part: Manifest) -> str | None:
    """What an attempt says of one library or file; a digest by its first letters."""
    values = part.get(key)
    found = values.get(name) if isinstance(values, Mapping) else None
    return str(found)[: SHORT if key == "modules" else None] if found else None


def _parts(run: Manifest) -> list[Manifest]:
    """What says how a run was made: the attempts of what it started from, its own, the last."""
    begun = (run.get("started_from") or {}).get("made_with", ())
    return [*begun, *run.get("attempt_log", ()), run]


def _beginning(run: Manifest) -> str:
    return "another run's" if run.get("started_from") else "its own"


def _in_turn(run: Manifest, says: Says, untold: str) -> tuple[str, ...]:
    """What a run was made with; several where it changed on the way."""
    found = [says(part) for part in _parts(run)]
    return tuple(dict.fromkeys(str(each) for each in found if each)) or (untold,)


def _note(what: str, values: list[tuple[str, ...]]) -> str:
    """`what: one (3 runs), other then third (5 runs)`; empty if one value is that of all."""
    dirty = what == CODE and any(DIRTY in each for told in values for each in told)
    counts = Counter(values)
    if len(counts) == 1 and not dirty and all(len(told) == 1 for told in counts):
        return ""
    parts = [f"{THEN.join(told)} ({n} run{'s' if n > 1 else ''})" for told, n in counts.items()]
    ending = "; dirty: with changes that no commit has" if dirty else ""
    return f"{what}: {', '.join(parts)}{ending}"


def check_modules(runs: Iterable[Manifest]) -> None:
    """Check that what the runs use of a user's files comes from one version of each.

    Raises:
        InputError: two runs, or a run and what it started from, used other bytes.
    """
    known: dict[str, tuple[str, Manifest]] = {}
    for run in runs:
        for name, (path, digest) in (one for part in _parts(run) for one in in_use(part).items()):
            there, first = known.setdefault(name, (digest, run))
            if there != digest:
                names = [f"sampler {r['sampler']!r}, seed {r['seed']}" for r in (first, run)]
                raise InputError(
                    f"modules: {path!r} with {name} had SHA-256 {there[:SHORT]} for {names[0]} and "
                    f"{digest[:SHORT]} for {names[1]}; allowed: one version in all runs; remove "
                    "the folders of one of the two and train them anew, or let the new version "
                    "register another name"
                )


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
