"""YAML as configuration: plain values only, every key once, errors that name the place."""

from __future__ import annotations

from typing import Any

import yaml

from magellan.errors import InputError, shown


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which by itself lets the last of two equal keys win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {shown(key.value)} stands twice", key.start_mark
                )
            seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


def parse_yaml(text: str, where: str) -> Any:
    """Value of a YAML text; `where` says in an error what the text is.

    Raises:
        InputError: one line with the place and the reason.
    """
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506  # a SafeLoader
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
