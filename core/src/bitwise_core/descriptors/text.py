"""The text form of descriptors, one line without defaults: `gemm(k=4096 left_dtype=fp16 ... k_cuts=[cut(span=1024)])`.

A record with a text form is a class with a `word`, such as `class Cut(TextRecord, word="cut")`.  `MODULES` states where
each word's class is.
"""

from __future__ import annotations

import json
import re
from importlib import import_module
from typing import Any, ClassVar, TypeVar

from bitwise_core.descriptors.record import DescriptorError, Record
from bitwise_core.json_text import parse_json

D = TypeVar("D", bound="Descriptor")

_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[()\[\]=]|[^\s()\[\]="]+)')
_PLAIN = re.compile(r"[A-Za-z_][\w.-]*\Z", re.ASCII)
_CONSTANTS = {"true": True, "false": False, "none": None}


MODULES = {
    "attention": "attention",
    "attention_gradient": "attention_gradient",
    "cut": "cuts",
    "digit": "reduction",
    "epilogue": "epilogue",
    "fold": "reduction",
    "gemm": "gemm",
    "group": "cuts",
    "instruction": "gemm",
    "reduction": "reduction",
    "rotation": "gemm",
    "share": "gemm",
    "step": "epilogue",
    "tail": "gemm",
}
"""The words of the text form, and the modules of this package that define their classes."""

_KINDS: dict[str, type[TextRecord]] = {}
"""The classes of the modules that are imported, by their words."""


class TextRecord(Record):
    """A record with a text form, which is `word` and the fields in parentheses."""

    word: ClassVar[str]

    def __init_subclass__(cls, *, word: str = "", **options: Any) -> None:
        super().__init_subclass__(**options)
        if word:
            cls.word = word
            _KINDS[word] = cls


class Descriptor(TextRecord):
    """A record of everything that determines a computation's bits."""

    def to_text(self) -> str:
        """Return the descriptor on one line; `from_text` returns an equal record."""
        return write(self)

    @classmethod
    def from_text(cls: type[D], line: str) -> D:
        """Return the descriptor that `to_text` wrote.  Raises DescriptorError."""
        found = read(line)
        if not isinstance(found, cls):
            raise DescriptorError(
                f"this line holds a {type(found).__name__} where a {cls.__name__} is expected: {line!r}"
            )
        return found

    def __str__(self) -> str:
        return self.to_text()


def _kind(word: str) -> type[TextRecord]:
    """Return the class of a word of `MODULES`, whose module is imported where it is not yet."""
    if word not in _KINDS:
        import_module(f"{__package__}.{MODULES[word]}")
    return _KINDS[word]


def write(record: TextRecord) -> str:
    """Return a descriptor on one line."""
    fields = type(record).model_fields
    given = [(name, getattr(record, name)) for name in fields if getattr(record, name) != fields[name].default]
    return f"{record.word}({' '.join(f'{name}={_value(value)}' for name, value in given)})"


def _value(value: Any) -> str:
    if isinstance(value, TextRecord):
        return write(value)
    if isinstance(value, tuple):
        return f"[{' '.join(map(_value, value))}]"
    if isinstance(value, str):
        return value if _PLAIN.match(value) and value not in _CONSTANTS else json.dumps(value)
    return "none" if value is None else repr(value).lower()


class _Reader:
    """A recursive-descent parser of one line."""

    def __init__(self, line: str) -> None:
        if not isinstance(line, str):
            raise DescriptorError(f"a value of type {type(line).__name__} is not a descriptor's text: give a string")
        self.line, self.tokens, position = line, [], 0
        text = line.strip()
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None:
                raise self.error(f"the text from {text[position : position + 20]!r} on is not valid")
            self.tokens.append(found.group(1))
            position = found.end()
        self.tokens.reverse()

    def error(self, reason: str) -> DescriptorError:
        return DescriptorError(f"{reason}, in the descriptor {self.line.strip()[:200]!r}")

    def take(self, what: str) -> str:
        if not self.tokens:
            raise self.error(f"the line ends where {what} is expected")
        return self.tokens.pop()

    def expect(self, token: str) -> None:
        found = self.take(f"{token!r}")
        if found != token:
            raise self.error(f"found {found!r} where {token!r} is expected")

    def record(self, word: str) -> TextRecord:
        if word not in MODULES:
            raise self.error(f"there is no descriptor {word!r}; there are {', '.join(MODULES)}")
        self.expect("(")
        fields: dict[str, Any] = {}
        while (name := self.take("a field or ')'")) != ")":
            if name in fields:
                raise self.error(f"{name} is given twice")
            self.expect("=")
            fields[name] = self.value()
        return _kind(word)(**fields)

    def value(self) -> Any:
        token = self.take("a value")
        if token == "[":
            values = []
            while self.tokens and self.tokens[-1] != "]":
                values.append(self.value())
            self.expect("]")
            return tuple(values)
        if token in _CONSTANTS:
            return _CONSTANTS[token]
        if token in ("(", ")", "]", "="):
            raise self.error(f"found {token!r} where a value is expected")
        if token.startswith('"'):
            try:
                return parse_json(token)
            except ValueError as error:
                raise self.error(f"{token!r} is no text of JSON ({error})") from None
        if _PLAIN.match(token):
            return self.record(token) if self.tokens and self.tokens[-1] == "(" else token
        try:
            return int(token)
        except ValueError:
            pass
        try:
            return float(token)
        except ValueError:
            raise self.error(f"{token!r} is not a value") from None


def read(line: str) -> TextRecord:
    """Return the descriptor that `write` wrote.  Raises DescriptorError, which names the unexpected token."""
    reader = _Reader(line)
    try:
        found = reader.record(reader.take("a descriptor such as gemm(...)"))
    except RecursionError:
        raise reader.error("the values are nested too deeply") from None
    if reader.tokens:
        raise reader.error(f"found {reader.tokens[-1]!r} after the descriptor, which must end the line")
    return found
