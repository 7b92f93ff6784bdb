"""Typed settings: groups of keys with defaults, ranges and descriptions.

The constants of a sampler, an estimator or the agent are a `Section`. No torch here: the workflow
imports this module.
"""

from __future__ import annotations

import typing
from collections import Counter
from typing import Annotated, Any, ClassVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from magellan.core.errors import InputError, shown, suggestion

Validated = typing.TypeVar("Validated", bound=BaseModel)


class Section(BaseModel):
    """A group of keys: immutable, without unknown keys, NaN or infinity.

    operational: keys that change no number of a run and do not count for its identity.
    """

    operational: ClassVar[tuple[str, ...]] = ()

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_bool_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        values = value if isinstance(value, list | tuple) else [value]
        annotation = cls.model_fields[str(info.field_name)].annotation
        if any(isinstance(item, bool) for item in values) and _takes_numbers(annotation):
            raise ValueError("Input should be a number, not true or false")
        return value


class NoSettings(Section):
    """No constants."""


def _takes_numbers(annotation: Any) -> bool:
    return annotation in (int, float) or any(map(_takes_numbers, typing.get_args(annotation)))


# Upper limits fit arrays, random generators and memory.
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
StepSize = Annotated[float, Field(gt=0.0, le=1e3)]
Width = Annotated[int, Field(ge=1, le=65_536)]
BatchSize = Annotated[int, Field(ge=1, le=10**6)]
Count = Annotated[int, Field(ge=1, le=10**9)]
LARGEST_SEED = 2**32 - 1
Seed = Annotated[int, Field(ge=0, le=LARGEST_SEED)]


def without_duplicates(values: list) -> list:
    """Return the values, or raise ValueError if one is listed twice; for validators."""
    duplicates = sorted(value for value, count in Counter(values).items() if count > 1)
    if duplicates:
        raise ValueError(f"{duplicates[0]!r} is listed twice; each value may be listed once")
    return values


def validated(model: type[Validated], values: Any, where: str = "") -> Validated:
    """Validate values as a typed model; `where` precedes the key in the error.

    Raises:
        InputError: names the key, the value and what is allowed.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise InputError(where + _one_line(error, model)) from None


def _one_line(error: ValidationError, model: type[BaseModel]) -> str:
    """First problem of a validation error as `key: value ...; allowed: ...`."""
    problem = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        allowed = _keys_at(model, problem["loc"][:-1])
        hint = suggestion(problem["loc"][-1], allowed)
        return f"{key}: unknown key; allowed here: {', '.join(allowed)}{hint}"
    if problem["type"] == "missing":
        return f"{key}: key is missing"
    if problem["loc"][-1:] == ("[key]",):  # pydantic shows the key True as 1
        key = ".".join(map(str, (*problem["loc"][:-2], "name")))
    message = str(problem["msg"]).removeprefix("Value error, ")
    if problem["type"] == "string_type" and not isinstance(problem["input"], list | tuple | dict):
        message += "; YAML reads on, no, 1e3 and such as other values: quote the word"
    inner = problem.get("ctx", {}).get("error")
    if isinstance(inner, InputError):
        return str(inner)
    if problem["type"] in ("model_type", "dict_type"):
        message = "Input should be a mapping of keys to values"
    return f"{key}: {shown(problem['input'])} is not allowed: {message}"


def _keys_at(model: type[BaseModel], location: tuple) -> list[str]:
    for part in location:
        if isinstance(part, int):  # index in a list of models
            continue
        annotation = model.model_fields[part].annotation if part in model.model_fields else None
        kinds = [
            kind for kind in (annotation, *typing.get_args(annotation)) if isinstance(kind, type)
        ]
        models = [kind for kind in kinds if issubclass(kind, BaseModel)]
        if not models:
            return []
        model = models[0]
    return list(model.model_fields)
