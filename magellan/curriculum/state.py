"""States as values of JSON, and what a state was made with."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from magellan.core.errors import InputError, shown


def encoded(value: Any) -> Any:
    """A tree of arrays and plain values as values of JSON; arrays keep every bit."""
    if isinstance(value, np.ndarray):
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"array": data, "dtype": value.dtype.str, "shape": list(value.shape)}
    if isinstance(value, Mapping):
        return {key: encoded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [encoded(inner) for inner in value]
    return value.item() if isinstance(value, np.generic) else value


def decoded(value: Any) -> Any:
    """The tree that was `encoded`."""
    if isinstance(value, Mapping):
        if value.keys() == {"array", "dtype", "shape"}:
            array = np.frombuffer(base64.b64decode(value["array"]), np.dtype(value["dtype"]))
            return array.reshape(value["shape"]).copy()
        return {key: decoded(inner) for key, inner in value.items()}
    return [decoded(inner) for inner in value] if isinstance(value, list) else value


def digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:16]


def check_same(here: Mapping[str, Any], state: Any) -> None:
    """Check that a state was made with what this curriculum is made with.

    Raises:
        InputError: names what differs.
    """
    there = state.get("made") if isinstance(state, Mapping) else None
    if not isinstance(there, Mapping):
        raise InputError("curriculum: this is no state; allowed: one of `state_dict`")
    others = [key for key in here if not _alike(here[key], there.get(key))]
    if others:
        listed = ", ".join(
            f"{key} is {shown(here[key])} here and {shown(there.get(key))} there"
            for key in others[:3]
        )
        raise InputError(
            f"curriculum: a state of {there.get('sampler')} is not allowed: {listed}; allowed: "
            "one made with the same"
        )


def _alike(here: Any, there: Any) -> bool:
    """Whether two parts of what made a state are equal; vectors, as far as machines agree."""
    if here == there or not (isinstance(here, list) and isinstance(there, list)):
        return bool(here == there)
    return len(here) == len(there) and np.allclose(here, there, 0, 1e-3 * np.abs(here).max())
