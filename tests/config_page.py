"""Tables of config/README.md, from the typed configuration (`tests/pages.py` writes them)."""

from collections.abc import Iterable
from typing import Any

from magellan.config import RunConfig, resolve_run, run_model
from magellan.config.resolve import experiment_schema

# Keys of the grid, or described in the text.
GRID_KEYS = ("sampler", "world", "goal_space", "seed", "preset", "threads", "modules")
GRID_KEYS += ("observers", "phases")
REGISTERED = (
    "Sections of estimators and samplers; `competence` is MAGELLAN's head, of the estimators "
    "`learned` and `learned_groups`:"
)
OTHERS = (
    "Constants of the others, in sections of their names: [API](../docs/api.md), or the settings "
    "at the top of their files in `magellan/samplers` and `magellan/competence`."
)
DESCRIBED = ("competence", "ek_online", "magellan", "scripted")
"""Sections of estimators and samplers whose constants are described."""
LISTED = ("reference", "paper")
"""Presets whose values are listed."""


def experiment_table() -> str:
    """Keys of an experiment file, those of a section behind its name: default, meaning."""
    schema, rows = experiment_schema(), []
    for section, rule in schema["properties"].items():
        inner = _resolve(rule, schema)
        for name, leaf in inner.get("properties", {"": inner}).items():
            value, key = _value(leaf.get("default")), f"{section}.{name}".rstrip(".")
            rows.append((key, value, meaning(_resolve(leaf, schema), value)))
    return _listed(rows)


def run_tables() -> str:
    schema = run_model().model_json_schema()
    presets = [resolve_run(name, []).model_dump(mode="json") for name in LISTED]
    common, registered = [], [REGISTERED]
    for section, reference in schema["properties"].items():
        own = section in RunConfig.model_fields
        if section in GRID_KEYS or not (own or section in DESCRIBED):
            continue
        rules = _resolve(reference, schema)
        rows = [
            (key, value, meaning(_resolve(rule, schema), value))
            for key, rule in rules["properties"].items()
            for value in [", ".join({_value(values[section][key]): 0 for values in presets})]
        ]
        if own:
            common.append(f"`{section}`: {rules.get('description', '')}\n\n{_listed(rows)}")
        else:
            registered.append(_listed((f"{section}.{key}", *cells) for key, *cells in rows))
    registered[1:] = ["\n".join(registered[1:])]
    return "\n\n".join([*common, *registered, OTHERS])


def meaning(rule: dict, value: str) -> str:
    """A key's description, with its options where neither it nor the listed value names them."""
    text, options = rule.get("description", ""), [*rule.get("enum", ()), *rule.get("examples", ())]
    names = [f"`{option}`" for option in options if option not in value.split(", ")]
    if all(name in text for name in names):
        return text
    names += ["or one from `modules`"] * ("examples" in rule)
    return f"{text} Allowed: {', '.join(names)}."


def _resolve(rule: dict, schema: dict) -> dict:
    if "$ref" not in rule:
        return rule
    return {**schema["$defs"][rule["$ref"].rsplit("/", 1)[-1]], **rule}


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(str(item) for item in value)}]"
    return "" if value is None else f"{value}"


def _listed(rows: Iterable[tuple[str, ...]]) -> str:
    """A line for each key, with its values and its meaning."""
    return "\n".join(f"- `{key}`{value and f' ({value})'}: {text}" for key, value, text in rows)
