"""Whether the runs of an experiment are those that it asks for.

A run says in its manifest what it is: its identity, a hash of the values that count (`counted`).
Here that is held against the run's own configuration, the experiment and its plan. Nothing of it
needs the files that define a user's own samplers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.tables.grid import Run, run_name
from analysis.tables.units import unit_of
from magellan.competence import ESTIMATORS
from magellan.config import OPERATIONAL, RunConfig, flat_keys, hash_of
from magellan.config.grid import given_keys
from magellan.config.identity import MATTERS_IF
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
