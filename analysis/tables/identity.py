"""Check that runs are the ones that their experiment declares.

A run's manifest has its identity, a hash of the values that count (`counted`). They are checked
against the run's configuration, the experiment and its plan, without the files that define a user's
own samplers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from analysis.tables.grid import Run, run_name, unit_of
from magellan.competence import ESTIMATORS
from magellan.config import RunConfig, counted, flat_keys, hash_of
from magellan.config.grid import given_keys
from magellan.config.identity import MATTERS_IF, NAMED, OPERATIONAL
from magellan.config.modules import in_use
from magellan.core.errors import InputError, shown
from magellan.samplers import SAMPLERS

Manifest = Mapping[str, Any]
# Counted keys that are not configuration keys, or have another form there.
OWN_WORDS = ("generation", "observers", "phases")
ABSENT = "absent"
EPISODES = "budget.episodes"
"""Counts only if no other unit ends the run."""


def check_consistent(manifest: Manifest, source: str) -> None:
    """Check that identity, counted values, configuration and name of a run agree.

    Raises:
        InputError: one line with the key and its two values.
    """
    name = " ".join(f"{key} {manifest[key]!r}" for key in NAMED)
    computed = hash_of(manifest["counted"])
    if computed != manifest["identity"]:
        raise InputError(
            f"{source}: identity is {shown(manifest['identity'])}, and {computed!r} by the values "
            f"that count, for {name}; allowed: the same"
        )
    config = flat_keys(manifest["config"])
    for key in (*NAMED, "preset"):
        if not same(manifest[key], config.get(key)):
            raise _mismatch(source, key, config.get(key), "config", manifest[key], "manifest", name)
    for key, value in manifest["counted"].items():
        if key not in OWN_WORDS and not (key in config and same(value, config[key])):
            raise _mismatch(
                source, key, config.get(key, ABSENT), "config", value, "counted values", name
            )


def check_matches_experiment(
    manifest: Manifest, run: Run, experiment: Mapping[str, Any], source: str
) -> None:
    """Check that a run has the values that its experiment gives it.

    Keys that cannot matter for the run are ignored: the run may be older than their values.

    Raises:
        InputError: one line with the key and its two values.
    """
    name = run_name(run)
    config = flat_keys(manifest["config"])
    for key, value in given_keys(experiment, run.variant).items():
        if key == "observers":
            expected = sorted(set(value) - {manifest["driver"]})
            actual = manifest["counted"].get("observers", [])
            if expected != actual:
                raise _mismatch(source, key, actual, "run", expected, "experiment", name)
        elif matters(key, manifest) and not (key in config and same(config[key], value)):
            actual = config.get(key, ABSENT)
            raise _mismatch(source, key, actual, "run", value, "experiment", name)


def _mismatch(
    source: str, key: str, first: Any, first_place: str, second: Any, second_place: str, name: str
) -> InputError:
    return InputError(
        f"{source}: {key} is {shown(first)} in the {first_place} and {shown(second)} in the "
        f"{second_place}, for {name}"
    )


def same(first: Any, second: Any) -> bool:
    """Whether two JSON values are equal: 1 and 1.0 are, 1 and true are not."""
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return isinstance(first, bool) == isinstance(second, bool) and bool(first == second)


def matters(key: str, manifest: Manifest) -> bool:
    """Whether a configuration key can change this run's numbers."""
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


def difference(manifest: Manifest, planned: RunConfig) -> str:
    """The first key in which a run differs from the planned one, in words; may be empty."""
    actual, expected = manifest["counted"], counted(planned)
    keys = sorted(key for key in {*actual, *expected} if actual.get(key) != expected.get(key))
    if not keys:
        return ""
    key, more = keys[0], len(keys) - 1
    value = actual.get(key, flat_keys(manifest["config"]).get(key, ABSENT))
    wanted = expected.get(key, flat_keys(planned.model_dump(mode="json")).get(key, ABSENT))
    rest = f" (and {more} more)" if more else ""
    return f"{key} is {shown(value)} in the run and {shown(wanted)} in the experiment{rest}"


# --- differences outside the configuration: code, libraries, formats, models ---


UNKNOWN = "unknown"
DIRTY = "dirty"
SHORT = 12
"""Letters of a digest in a note."""
ALIKE = {"code": ("code_version", UNKNOWN), "device": ("device", UNKNOWN)}
# Rounding differs between devices and passes, and far more between number formats.
ALIKE |= {"number format": ("dtype", "float32"), "passes": ("passes", UNKNOWN)}
"""What should be alike: its key in a manifest, and the default."""


def notes(runs: Sequence[Manifest]) -> list[str]:
    """Sentences on code, libraries, devices, formats and module files that differ.

    They may differ between runs, or have changed during one.
    """
    starts = ["another run's" if run.get("started_from") else "its own" for run in runs]
    histories: dict[str, list[tuple[str, ...]]] = {"beginning": [(start,) for start in starts]}
    values = [[_made_with(attempt) for attempt in _attempts(run)] for run in runs]
    names = {name for each in values for one in each for name in one}
    libraries, modules = (
        sorted(name for name in names - ALIKE.keys() if name.startswith("module ") == of_modules)
        for of_modules in (False, True)
    )
    code, *others = ALIKE
    for name in (code, *libraries, *others, *modules):
        default = ALIKE.get(name, ("", "absent" if name in modules else UNKNOWN))[1]
        histories[name] = [
            tuple(dict.fromkeys(one[name] for one in each if one.get(name))) or (default,)
            for each in values
        ]
    return [note for name, each in histories.items() if (note := _note(name, each))]


def _made_with(attempt: Manifest) -> dict[str, str]:
    """What an attempt was made with, by name: values of `ALIKE`, libraries, digests of modules."""
    found = {name: str(attempt.get(key) or "") for name, (key, _) in ALIKE.items()}
    found |= {library: str(version) for library, version in _inner(attempt, "versions").items()}
    modules = _inner(attempt, "modules").items()
    return found | {f"module {path}": str(digest)[:SHORT] for path, digest in modules}


def _inner(attempt: Manifest, key: str) -> Mapping[str, Any]:
    value = attempt.get(key)
    return value if isinstance(value, Mapping) else {}


def _attempts(run: Manifest) -> list[Manifest]:
    """The attempts of the run that it started from, its own, and its manifest."""
    started_from = (run.get("started_from") or {}).get("made_with", ())
    return [*started_from, *run.get("attempt_log", ()), run]


def _note(key: str, histories: list[tuple[str, ...]]) -> str:
    """`key: first (3 runs), second then third (5 runs)`; empty if all runs have one value."""
    dirty = key == "code" and any(DIRTY in value for history in histories for value in history)
    counts = Counter(histories)
    if len(counts) == 1 and not dirty and all(len(history) == 1 for history in counts):
        return ""
    parts = [f"{' then '.join(each)} ({n} run{'s' if n > 1 else ''})" for each, n in counts.items()]
    ending = "; dirty: with uncommitted changes" if dirty else ""
    return f"{key}: {', '.join(parts)}{ending}"


def check_modules(runs: Iterable[Manifest]) -> None:
    """Check that all runs use one version of each of a user's files.

    Raises:
        InputError: two runs, or a run and its origin, used different bytes.
    """
    first_uses: dict[str, tuple[str, Manifest]] = {}
    for run in runs:
        uses = (use for attempt in _attempts(run) for use in in_use(attempt).items())
        for name, (path, digest) in uses:
            first_digest, first = first_uses.setdefault(name, (digest, run))
            if first_digest != digest:
                raise InputError(
                    f"modules: {path!r} with {name} had SHA-256 "
                    f"{_both((first_digest, first), (digest, run))}; allowed: one version in all "
                    "runs; remove the folders of one of the two and train them again, or let the "
                    "new version register another name"
                )


def _both(*uses: tuple[str, Manifest]) -> str:
    return " and ".join(
        f"{digest[:SHORT]} for sampler {run['sampler']!r}, seed {run['seed']}"
        for digest, run in uses
    )


def check_backbones(runs: Iterable[Manifest]) -> None:
    """Check that each name of a language model stands for the same files and token ids.

    Raises:
        InputError: two runs had different weights, or read a text as different tokens, under the
            same name.
    """
    first_uses: dict[tuple[str, str], tuple[str, Manifest]] = {}
    for run in runs:
        backbone = run.get("backbone") or {}
        of_weights, of_tokens = backbone.get("sha256"), backbone and run.get("tokens")
        for what, now in (("weights", of_weights), ("token ids", of_tokens)):
            if not now:  # older runs record less
                continue
            digest, first = first_uses.setdefault((backbone["model"], what), (now, run))
            if digest != now:
                uses = _both((digest, first), (now, run))
                raise InputError(
                    f"backbone.model: {backbone['model']!r} has {what} with SHA-256 {uses}; "
                    f"allowed: the same {what} in all runs"
                )
