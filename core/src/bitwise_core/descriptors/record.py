"""The base class of descriptors: a frozen pydantic record with errors as sentences and lossless JSON."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from bitwise_core.errors import BitwiseError
from bitwise_core.json_text import parse_json
from bitwise_core.numerics import FLOAT_FORMATS
from bitwise_core.validated_records import sentences

R = TypeVar("R", bound="Record")


class DescriptorError(BitwiseError, ValueError):
    """A descriptor, or an operand of one, is invalid: the message says what, where, and what to change."""


class Record(BaseModel):
    """A frozen, hashable record that refuses unknown fields.  Raises DescriptorError for invalid fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings", defer_build=True)

    def __init__(self, /, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise DescriptorError(sentences(error, type(self).__name__)) from None

    def to_json(self) -> str:
        """Return the record as JSON without the fields at their defaults; `from_json` returns an equal record."""
        return self.model_dump_json(exclude_defaults=True)

    @classmethod
    def from_json(cls: type[R], text: str) -> R:
        """Return the record that `to_json` wrote.  Raises DescriptorError."""
        if not isinstance(text, str):
            raise DescriptorError(f"{cls.__name__}: a value of type {type(text).__name__} is not JSON: give a string")
        try:
            fields = parse_json(text)
        except ValueError as error:
            raise DescriptorError(f"{cls.__name__}: this is not JSON ({error})") from None
        if not isinstance(fields, dict):
            raise DescriptorError(
                f"{cls.__name__}: the JSON of a descriptor is an object, not a {type(fields).__name__}"
            )
        return cls(**fields)

    def __str__(self) -> str:
        return repr(self)


def float_name(value: str) -> str:
    """Check that a field names a signed floating-point format of `bitwise_core.numerics`.  Raises ValueError."""
    form = FLOAT_FORMATS.get(value)
    if form is None or not form.signed:
        known = ", ".join(name for name, each in FLOAT_FORMATS.items() if each.signed)
        raise ValueError(f"there is no floating-point type {value!r}; there are {known}")
    return value


def single(value: float) -> float:
    """Check that a field is a number of fp32 and not -0, which equals +0 but has other bits.  Raises ValueError."""
    with np.errstate(over="ignore"):
        if float(np.float32(value)) != value:
            raise ValueError(f"{value!r} is not a number of fp32: round it first")
    if value == 0 and math.copysign(1.0, value) < 0:
        raise ValueError("-0.0 equals 0.0 but has other bits, so records of different bits would be equal: give 0.0")
    return value


def wider(left: str, right: str) -> str:
    """Return the one of two types that holds the other's values.  Raises DescriptorError where neither does."""
    one, other = FLOAT_FORMATS[left], FLOAT_FORMATS[right]
    if one.holds(other):
        return left
    if other.holds(one):
        return right
    raise DescriptorError(f"neither {left} nor {right} holds the other's values: they cannot be added")
