"""Strict parsing of YAML and JSON: plain values, no duplicate keys, errors with the position."""

from __future__ import annotations

import json
import math
import re
import stat
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import ArrayLike

from magellan.core.errors import InputError, not_allowed, shown

MOST_MERGED = 1000
"""Maximum number of keys after merges (`<<`), which could grow exponentially."""
# Octal integers and sexagesimal numbers of YAML 1.1, dropped in YAML 1.2.
_OLD_NUMBER = re.compile(r"[-+]?(0[0-9_]+|[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)")


def is_old_number(text: str) -> bool:
    """Whether a text is a number of YAML 1.1 that YAML 1.2 reads otherwise, such as 010."""
    return _OLD_NUMBER.fullmatch(text) is not None


def _yaml_error(node: yaml.Node, reason: str) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, reason, node.start_mark)


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader that also refuses duplicate keys, large merges and old numbers."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if not isinstance(key, yaml.ScalarNode):
                continue
            merges = key.tag.endswith(":merge")
            value = key.value if merges else self.construct_object(key)
            forms = {value, str(value)}  # 1, 1.0 and "1" are the same where keys are numbers
            if forms & seen:
                raise _yaml_error(key, f"key {shown(key.value)} appears twice")
            seen |= forms
        return super().construct_mapping(node, deep)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        own = len(node.value)
        super().flatten_mapping(node)
        keys = len(node.value)
        if keys > max(own, MOST_MERGED):
            raise _yaml_error(node, f"<< makes {keys} keys; at most {MOST_MERGED}")

    def construct_number(self, node: yaml.ScalarNode) -> float:
        read = self.construct_yaml_float if node.tag.endswith("float") else self.construct_yaml_int
        value: float = read(node)
        if is_old_number(node.value):
            raise _yaml_error(
                node,
                f"{shown(node.value)} is {shown(value)} in YAML 1.1 and something else in YAML "
                "1.2; write a decimal number without leading zeros, or a quoted string",
            )
        return value


for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _Loader.construct_number)


def parse_yaml(text: str, where: str) -> Any:
    """Parse a YAML text; `where` names it in errors.

    Raises:
        InputError: names the position and the reason.
    """
    try:
        return _Loader(text).get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        reason = error.problem or error.context or "malformed"
    except yaml.reader.ReaderError as error:
        place, reason = f" at character {error.position + 1}", str(error.reason)
    except RecursionError:
        place, reason = "", "nested too deeply"
    except ValueError as error:  # a date or a number that does not exist
        place, reason = "", str(error)
    raise InputError(f"{where} is not valid YAML{place} ({reason}); allowed: plain YAML values")


def parse_json(text: str, where: str) -> Any:
    """Parse a JSON text; `where` names it in errors.

    Raises:
        InputError: names the position and the reason.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique_keys)
    except json.JSONDecodeError as error:
        place, reason = f" at line {error.lineno}, column {error.colno}", error.msg
    except RecursionError:
        place, reason = "", "nested too deeply"
    except ValueError as error:  # a duplicate key, a number of thousands of digits
        place, reason = "", str(error)
    raise InputError(f"{where} is not valid JSON{place} ({reason})")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ValueError(f"key {shown(key)} appears twice")
        values[key] = value
    return values


def checked_numbers(
    values: Any,
    where: str,
    shape: tuple[int | None, ...],
    lowest: ArrayLike = 0,
    largest: ArrayLike = 2**62,
) -> np.ndarray:
    """Validate and copy an array of an untrusted saved state.

    Args:
        values: the array, or lists.
        where: names the array in errors.
        shape: expected shape; None: any length.
        lowest, largest: inclusive bounds; numbers, or arrays that broadcast.

    Raises:
        InputError: another shape, not numbers, or a number that is out of bounds or NaN.
    """
    array = np.array(values)
    fits = len(shape) == array.ndim and all(
        expected in (None, length) for expected, length in zip(shape, array.shape, strict=True)
    )
    if fits and array.dtype.kind in "iuf" and ((array >= lowest) & (array <= largest)).all():
        return array
    sizes = ", ".join("any" if length is None else str(length) for length in shape)
    bounds = f"{shown(np.asarray(lowest).tolist())} to {shown(np.asarray(largest).tolist())}"
    raise not_allowed(where, array.tolist(), f"numbers of shape ({sizes}), {bounds}")


def is_whole(value: Any, least: float = -math.inf) -> bool:
    """Whether this is a whole number of Python or numpy, at least `least`; True is none."""
    number = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return number and bool(value >= least)


def read_json_text(path: Path) -> str:
    """Read a text file that should hold JSON.

    Raises:
        InputError: the file is absent, not regular, or not UTF-8.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():
            raise InputError(f"{path}: cannot be read (not a regular file); allowed: a file")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{path}: file is missing") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not valid JSON (byte {error.start} is not UTF-8)") from None


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        InputError: the file is absent or malformed.
    """
    values = parse_json(read_json_text(path), str(path))
    if not isinstance(values, dict):
        raise InputError(f"{path}: holds {shown(values)}; allowed: a JSON object")
    return values


def plain(values: Any) -> Any:
    """Numbers without autograd, device or half precision; None as NaN; lists as lists."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        return (values.double() if values.is_floating_point() else values).numpy()
    if isinstance(values, list | tuple) or (
        isinstance(values, np.ndarray) and values.dtype.kind == "O"
    ):
        return [plain(value) for value in values]
    if isinstance(values, np.ma.MaskedArray):
        return np.ma.filled(values.astype(np.float64), math.nan)
    if str(getattr(values, "dtype", "")).startswith(("bfloat16", "float8")):  # of ml_dtypes
        return values.astype(np.float64)
    return math.nan if values is None else values
