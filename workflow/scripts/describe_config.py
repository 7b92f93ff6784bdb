"""Write the tables of config/README.md from the typed configuration."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from magellan.config import RunConfig, resolve_run, run_model  # noqa: E402
from magellan.config.presets import PRESETS  # noqa: E402
from magellan.config.resolve import experiment_schema  # noqa: E402

README = ROOT / "config" / "README.md"
BEGIN, END = "<!-- begin: {name} -->", "<!-- end: {name} -->"
# Keys of the grid, or described in the text.
GRID_KEYS = (
    "sampler",
    "world",
    "goal_space",
    "seed",
    "preset",
    "threads",
    "modules",
    "observers",
    "phases",
)
LIMITS = {
    "minimum": ">= {}",
    "exclusiveMinimum": "> {}",
    "maximum": "<= {}",
    "exclusiveMaximum": "< {}",
}


HEADER = ("key", "allowed", "presets", "meaning")
REGISTERED = (
    "Estimators and samplers: sections have their names, but `competence` is for `learned` "
    "(MAGELLAN's head) and `learned_groups`."
)
MANY = 10
"""More names than this are not listed in a cell: the samplers have a table of their own."""
HUGE = 1_000_000
"""Limits of at least this size only catch typos: they are left out."""


def main() -> None:
    """Update the tables between the markers of the README."""
    README.write_text(updated(README.read_text(encoding="utf-8")), encoding="utf-8")


def updated(text: str) -> str:
    """The README with updated tables."""
    for name, table in (("experiment", experiment_table()), ("run", run_tables())):
        begin, end = BEGIN.format(name=name), END.format(name=name)
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n{table}\n{end}{after}"
    return text


def experiment_table() -> str:
    """Keys of an experiment file: allowed values, default, meaning."""
    schema = experiment_schema()
    rows = [
        (f"`{key}`", allowed(rule, schema), _value(default), rule.get("description", ""))
        for key, rule, default in _leaves(schema, schema, "")
    ]
    return _table(("key", "allowed", "default", "meaning"), rows)


def run_tables() -> str:
    """Keys of `overrides`: a table per section, and one for estimators and samplers."""
    schema = run_model().model_json_schema()
    presets = [resolve_run(name, []).model_dump(mode="json") for name in PRESETS]
    parts: list[str] = []
    registered: dict[tuple[str, ...], list[str]] = {}  # equal keys of several sections: one row
    for section, reference in schema["properties"].items():
        if section in GRID_KEYS:
            continue
        rules = _resolve(reference, schema)
        rows = {
            key: (
                allowed(_resolve(rule, schema), schema),
                _in_presets([values[section][key] for values in presets]),
                rule.get("description", ""),
            )
            for key, rule in rules["properties"].items()
        }
        if section in RunConfig.model_fields:
            table = _table(HEADER, [(f"`{key}`", *cells) for key, cells in rows.items()])
            parts.append(f"`{section}`: {rules.get('description', '')}\n\n{table}")
            continue
        for key, cells in rows.items():
            registered.setdefault(cells, []).append(f"`{section}.{key}`")
    others = _table(HEADER, [(", ".join(keys), *cells) for cells, keys in registered.items()])
    return "\n\n".join([*parts, f"{REGISTERED}\n\n{others}"])


def _in_presets(values: list[Any]) -> str:
    """The value of a key in each preset, once if it is the same in all."""
    texts = [_value(value) for value in values]
    return texts[0] if len(set(texts)) == 1 else " / ".join(texts)


def _leaves(rules: dict, schema: dict, prefix: str) -> Iterator[tuple[str, dict, Any]]:
    for key, rule in rules["properties"].items():
        inner = _resolve(rule, schema)
        if "properties" in inner:
            yield from _leaves(inner, schema, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", inner, rule.get("default")


def _resolve(rule: dict, schema: dict) -> dict:
    if "$ref" not in rule:
        return rule
    return {**schema["$defs"][rule["$ref"].rsplit("/", 1)[-1]], **rule}


def allowed(rule: dict, schema: dict) -> str:
    """What a schema rule allows, in words."""
    if "anyOf" in rule:
        return " or ".join(allowed(option, schema) for option in rule["anyOf"])
    if "const" in rule:
        return f"`{rule['const']}`"
    if "enum" in rule:
        return ", ".join(f"`{value}`" for value in rule["enum"])
    if rule.get("type") == "array":
        items = allowed(rule["items"], schema) if isinstance(rule.get("items"), dict) else "values"
        return f"list of: {items}"
    if len(rule.get("examples", ())) > MANY:
        return "[names](#samplers), or one from `modules`"
    if "examples" in rule:
        return ", ".join(f"`{value}`" for value in rule["examples"]) + ", or one from `modules`"
    templates = {key: text for key, text in LIMITS.items() if key in rule and rule[key] < HUGE}
    limits = [text.format(_limit(rule[key])) for key, text in templates.items()]
    if templates.keys() == {"minimum", "maximum"}:
        limits = [f"{_limit(rule['minimum'])} to {_limit(rule['maximum'])}"]
    names = {"object": "mapping", "string": "text", "boolean": "true, false"}
    kind = names.get(rule.get("type", ""), rule.get("type", "any"))
    return ", ".join(limits) or kind


def _limit(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(str(item) for item in value)}]"
    return "" if value is None else f"{value}"


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
