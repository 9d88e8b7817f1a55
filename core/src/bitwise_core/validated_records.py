"""Records whose fields are validated when they are made, with errors as sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

from bitwise_core.errors import InputError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_SHOWN = 200
"""The characters of a wrong value in a sentence."""

_EXPECTED = {
    "tuple_type": "a list", "list_type": "a list", "dict_type": "an object", "mapping_type": "an object",
    "model_type": "an object", "model_attributes_type": "an object",
}  # fmt: skip
"""What a field takes by the type of pydantic's error, in words of JSON, where pydantic names a type of Python."""


class ValidatedRecord(BaseModel):
    """A frozen record that refuses unknown fields.  Its constructor raises `fault`, a ValueError, for invalid fields.

    Validation of a document (`model_validate`) raises pydantic's ValidationError, which has the place of each fault.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    fault: ClassVar[type[ValueError]] = InputError

    def __init__(self, /, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise self.fault(sentences(error, type(self).__name__)) from None

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        cls.__pydantic_custom_init__ = False  # a record inside of another one is made without `__init__`


def sentences(error: ValidationError, name: str) -> str:
    """Return the errors of a validation, one sentence for each field."""
    found = []
    for detail in error.errors():
        place, message = _place_of(detail), _message_of(detail)
        found.append(f"{name}: {place}: {message}" if place else message if name in message else f"{name}: {message}")
    return "; ".join(found)


def first_fault(error: ValidationError) -> str:
    """Return the first error of the validation of a document, after the place of its field, such as `grid.0`."""
    detail = error.errors()[0]
    place, message = _place_of(detail), _message_of(detail)
    return f"{place}: {message}" if place else message


def _place_of(detail: ErrorDetails) -> str:
    return ".".join(map(str, detail["loc"]))


def _message_of(detail: ErrorDetails) -> str:
    message = str(detail["msg"]).removeprefix("Value error, ")
    if detail["type"] == "extra_forbidden":
        return "there is no such field"
    if detail["type"] == "missing":
        return "is missing: give it"
    if detail["type"] == "value_error":
        return message
    if detail["type"] in _EXPECTED:
        message = f"input should be {_EXPECTED[detail['type']]}"
    given = repr(detail["input"])
    shown = given if len(given) <= _SHOWN else f"{given[:_SHOWN]}..."
    return f"{message[:1].lower()}{message[1:]}, not {shown}"
