"""Records whose fields are validated when they are made, with errors as sentences."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

from bitwise_core.errors import InputError

_SHOWN = 200
"""The characters of a wrong value in a sentence."""


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
        place = ".".join(map(str, detail["loc"]))
        message = str(detail["msg"]).removeprefix("Value error, ")
        if detail["type"] == "extra_forbidden":
            message = "there is no such field"
        elif detail["type"] == "missing":
            message = "is missing: give it"
        elif detail["type"] != "value_error":
            given = repr(detail["input"])
            shown = given if len(given) <= _SHOWN else f"{given[:_SHOWN]}..."
            message = f"{message[:1].lower()}{message[1:]}, not {shown}"
        found.append(f"{name}: {place}: {message}" if place else message if name in message else f"{name}: {message}")
    return "; ".join(found)
