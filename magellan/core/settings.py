"""Typed settings: groups of keys with defaults, ranges and a sentence each.

Everything that brings constants of its own (a sampler, an estimator, the agent) states them as a
`Section`. No torch here: the workflow imports this.
"""

from __future__ import annotations

import typing
from collections import Counter
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from magellan.core.errors import InputError, meant, shown

Validated = typing.TypeVar("Validated", bound=BaseModel)


class Section(BaseModel):
    """A group of keys: immutable; an unknown key is an error, and so are NaN and infinity."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_value_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        values = value if isinstance(value, list | tuple) else [value]
        wanted = cls.model_fields[str(info.field_name)].annotation
        if any(isinstance(item, bool) for item in values) and _takes_numbers(wanted):
            raise ValueError("Input should be a number, not true or false")
        return value


class NoSettings(Section):
    """No constants of its own."""


def _takes_numbers(annotation: Any) -> bool:
    return annotation in (int, float) or any(map(_takes_numbers, typing.get_args(annotation)))


# Upper limits keep numbers within what arrays, random generators and memory can hold.
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
StepSize = Annotated[float, Field(gt=0.0, le=1e3)]
Width = Annotated[int, Field(ge=1, le=65_536)]
BatchSize = Annotated[int, Field(ge=1, le=10**6)]
Count = Annotated[int, Field(ge=1, le=10**9)]
LARGEST_SEED = 2**32 - 1
Seed = Annotated[int, Field(ge=0, le=LARGEST_SEED)]


def without_duplicates(values: list) -> list:
    """The values, if each stands once; for use in validators."""
    twice = sorted(value for value, times in Counter(values).items() if times > 1)
    if twice:
        raise ValueError(f"{twice[0]!r} is listed twice; each value may stand once")
    return values


def validated(model: type[Validated], values: Any, where: str = "") -> Validated:
    """Values as a typed model; `where` goes before the key in the error.

    Raises:
        InputError: one line naming the key, the value and what is allowed.
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
        known = _keys_at(model, problem["loc"][:-1])
        near = meant(problem["loc"][-1], known)
        return f"{key}: unknown key; allowed here: {', '.join(known)}{near}"
    if problem["type"] == "missing":
        return f"{key}: key is missing"
    message = str(problem["msg"]).removeprefix("Value error, ")
    inner = problem.get("ctx", {}).get("error")
    if isinstance(inner, InputError):
        return str(inner)
    if problem["type"] in ("model_type", "dict_type"):
        message = "Input should be a mapping of keys to values"
    return f"{key}: {shown(problem['input'])} is not allowed: {message}"


def _keys_at(model: type[BaseModel], location: tuple) -> list[str]:
    for part in location:
        if isinstance(part, int):  # an entry of a list of models, which the key before gave
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
