"""Whether the runs of an experiment are those that it asks for.

A run says in its manifest what it is: its identity, a hash of the values that count (`counted`).
Here that is held against the run's own configuration, the experiment and its plan. Nothing of it
needs the files that define a user's own samplers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from analysis.tables.grid import Run, run_name, unit_of
from magellan.competence import ESTIMATORS
from magellan.config import OPERATIONAL, RunConfig, flat_keys, hash_of
from magellan.config.grid import given_keys
from magellan.config.identity import MATTERS_IF
from magellan.config.modules import in_use
from magellan.core.errors import InputError, shown
from magellan.samplers import SAMPLERS

Manifest = Mapping[str, Any]
NAMED = ("sampler", "goal_space", "seed")
# Counted keys that are no keys of the configuration, or not as they stand there.
OWN_WORDS = ("generation", "observers", "phases")
ABSENT = "absent"
EPISODES = "budget.episodes"
"""Counts only where no other unit ends the run."""


def check_whole(manifest: Manifest, place: str) -> None:
    """Check that identity, counted values, configuration and name of a run agree.

    Args:
        manifest: of the run.
        place: its folder or file, for the message.

    Raises:
        InputError: one line with the key and its two values.
    """
    name = " ".join(f"{key} {manifest[key]!r}" for key in NAMED)
    found = hash_of(manifest["counted"])
    if found != manifest["identity"]:
        raise InputError(
            f"{place}: identity is {shown(manifest['identity'])}, and {found!r} by the values that "
            f"count, for {name}; allowed: the same"
        )
    config = flat_keys(manifest["config"])
    for key in (*NAMED, "preset"):
        if not same(manifest[key], config.get(key)):
            raise _differs(place, key, config.get(key), "config", manifest[key], "manifest", name)
    for key, value in manifest["counted"].items():
        if key not in OWN_WORDS and not (key in config and same(value, config[key])):
            raise _differs(
                place, key, config.get(key, ABSENT), "config", value, "counted values", name
            )


def check_asked(manifest: Manifest, run: Run, experiment: Mapping[str, Any], place: str) -> None:
    """Check that a run has the values that its experiment gives it.

    Keys that cannot matter for the run are left out: it may have been made before they changed.

    Raises:
        InputError: one line with the key and its two values.
    """
    name = run_name(run)
    if manifest["preset"] != experiment["preset"]:
        values = manifest["preset"], "run", experiment["preset"], "experiment"
        raise _differs(place, "preset", *values, name)
    config = flat_keys(manifest["config"])
    for key, asked in given_keys(experiment, run.variant).items():
        if key == "observers":
            _check_observers(manifest, asked, place, name)
        elif matters(key, manifest) and not (key in config and same(config[key], asked)):
            has = config.get(key, ABSENT)
            raise _differs(place, key, has, "run", asked, "experiment", name)


def _check_observers(manifest: Manifest, asked: list[str], place: str, name: str) -> None:
    watchers = sorted(set(asked) - {manifest["driver"]})
    found = manifest["counted"].get("observers", [])
    if watchers != found:
        raise _differs(place, "observers", found, "run", watchers, "experiment", name)


def _differs(
    place: str, key: str, one: Any, where: str, other: Any, elsewhere: str, name: str
) -> InputError:
    return InputError(
        f"{place}: {key} is {shown(one)} in the {where} and {shown(other)} in the {elsewhere}, "
        f"for {name}"
    )


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal: 1 and 1.0 are, 1 and true are not."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def matters(key: str, manifest: Manifest) -> bool:
    """Whether a key of the configuration can change this run's numbers."""
    if key in manifest["counted"]:
        return True
    section, dot, _ = key.partition(".")
    if key == EPISODES:
        return unit_of(manifest["config"]) == "episodes"
    if key in OPERATIONAL or key in MATTERS_IF or not dot:
        return False
    if section == "samplers":
        sampler = SAMPLERS.get(manifest["sampler"])
        return sampler is not None and sampler.epsilon
    used = {manifest["sampler"]}
    used |= {
        ESTIMATORS[name].section for name in manifest["estimation_episodes"] if name in ESTIMATORS
    }
    return section in RunConfig.model_fields or section in used


def difference(manifest: Manifest, counted: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """In which key a run differs from what was asked for, in words.

    Args:
        manifest: of the run that is there.
        counted: what counts in the run that was asked for.
        config: its flat configuration.
    """
    theirs, flat = manifest["counted"], flat_keys(manifest["config"])
    keys = sorted(key for key in {*theirs, *counted} if theirs.get(key) != counted.get(key))
    if not keys:
        return ""
    key, more = keys[0], len(keys) - 1
    has = theirs.get(key, flat.get(key, ABSENT))
    asked = counted.get(key, config.get(key, ABSENT))
    others = f" (and {more} more)" if more else ""
    return f"{key} is {shown(has)} in the run and {shown(asked)} in the experiment{others}"


# --- what runs and attempts differ in beside it: code, libraries, formats, models ---


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
