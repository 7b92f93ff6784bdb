"""YAML and JSON as input: plain values only, every key once, errors that name the place."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import ArrayLike

from magellan.core.errors import InputError, shown

MOST_MERGED = 1000
"""Keys of a mapping with others merged into it (`<<`): merges of merges grow without end."""
# Whole numbers in base 8 or 60, and numbers in base 60, which YAML 1.2 no longer has.
_OLD_NUMBER = re.compile(r"[-+]?(0[0-9_]+|[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)")


def _refused(node: yaml.Node, reason: str) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, reason, node.start_mark)


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, with three refusals.

    By itself it lets the last of two equal keys win, follows merges however large they grow, and
    reads 010 and 1:40 as YAML 1.1 did.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in seen:
                raise _refused(key, f"key {shown(key.value)} stands twice")
            seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        own = len(node.value)
        super().flatten_mapping(node)
        keys = len(node.value)
        if keys > max(own, MOST_MERGED):
            raise _refused(node, f"<< makes {keys} keys; at most {MOST_MERGED}")

    def construct_number(self, node: yaml.ScalarNode) -> float:
        read = self.construct_yaml_float if node.tag.endswith("float") else self.construct_yaml_int
        value: float = read(node)
        if _OLD_NUMBER.fullmatch(node.value):
            raise _refused(
                node,
                f"{shown(node.value)} is {shown(value)} in YAML 1.1 and something else in YAML "
                "1.2; write a decimal number without zeros before it, or quotes around a text",
            )
        return value


for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _Loader.construct_number)


def parse_yaml(text: str, where: str) -> Any:
    """Value of a YAML text; `where` says in an error what the text is.

    Raises:
        InputError: one line with the place and the reason.
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
    """Value of a JSON text; `where` says in an error what the text is.

    Raises:
        InputError: one line with the place and the reason.
    """
    try:
        return json.loads(text, object_pairs_hook=_with_every_key_once)
    except json.JSONDecodeError as error:
        place, reason = f" at line {error.lineno}, column {error.colno}", error.msg
    except RecursionError:
        place, reason = "", "nested too deeply"
    except ValueError as error:  # a key that stands twice, a number of thousands of digits
        place, reason = "", str(error)
    raise InputError(f"{where} is not valid JSON{place} ({reason})")


def _with_every_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"key {shown(twice)} stands twice")
    return values


def checked_numbers(
    values: Any,
    where: str,
    shape: tuple[int | None, ...],
    lowest: ArrayLike = 0,
    largest: ArrayLike = 2**62,
) -> np.ndarray:
    """A copy of an array of a saved state, in which somebody may have changed something.

    Args:
        values: the array, or lists.
        where: says in an error what they are.
        shape: theirs; None stands for any length.
        lowest, largest: bounds that are allowed themselves; numbers, or an array that broadcasts.

    Raises:
        InputError: another shape, no numbers, or one that is out of bounds or NaN.
    """
    found = np.array(values)
    fits = len(shape) == found.ndim and all(
        wanted in (None, length) for wanted, length in zip(shape, found.shape, strict=True)
    )
    if fits and found.dtype.kind in "iuf" and ((found >= lowest) & (found <= largest)).all():
        return found
    sizes = ", ".join("any" if length is None else str(length) for length in shape)
    bounds = f"{shown(np.asarray(lowest).tolist())} to {shown(np.asarray(largest).tolist())}"
    raise InputError(
        f"{where}: {shown(found.tolist())} is not allowed; allowed: numbers of shape ({sizes}), "
        f"{bounds}"
    )


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        InputError: one line with the file and the reason, when it is absent or malformed.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():
            raise InputError(f"{path}: cannot be read (it may have no end); allowed: a file")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{path}: file is missing") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not valid JSON (byte {error.start} is not UTF-8)") from None
    values = parse_json(text, str(path))
    if not isinstance(values, dict):
        raise InputError(f"{path}: holds {shown(values)}; allowed: a JSON object")
    return values
