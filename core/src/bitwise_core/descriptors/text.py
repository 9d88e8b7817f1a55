"""Descriptors on one line: `gemm(k=4096 left_dtype=fp16 ... k_cuts=[cut(span=1024)])`; defaults are left out.

A record that has a text is a class with a `word`, such as `class Cut(TextRecord, word="cut")`.
"""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar, TypeVar

from bitwise_core.descriptors.record import DescriptorError, Record

D = TypeVar("D", bound="Descriptor")

_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[()\[\]=]|[^\s()\[\]="]+)')
_PLAIN = re.compile(r"[A-Za-z_][\w.-]*\Z", re.ASCII)
_CONSTANTS = {"true": True, "false": False, "none": None}


_KINDS: dict[str, type[TextRecord]] = {}
"""The classes that have a text, by their words."""


class TextRecord(Record):
    """A record that has a text; `word` stands before its fields."""

    word: ClassVar[str]

    def __init_subclass__(cls, *, word: str = "", **options: Any) -> None:
        super().__init_subclass__(**options)
        if word:
            cls.word = word
            _KINDS[word] = cls


class Descriptor(TextRecord):
    """A record that holds all that decides a computation's bits."""

    def to_text(self) -> str:
        """The descriptor on one line; `from_text` reads it back to an equal record."""
        return write(self)

    @classmethod
    def from_text(cls: type[D], line: str) -> D:
        """The descriptor that `to_text` wrote.  Raises DescriptorError."""
        found = read(line)
        if not isinstance(found, cls):
            raise DescriptorError(
                f"this line holds a {type(found).__name__} where a {cls.__name__} is wanted: {line!r}"
            )
        return found

    def __str__(self) -> str:
        return self.to_text()


def write(record: TextRecord) -> str:
    """A descriptor on one line."""
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
    """The tokens of one line, taken one by one."""

    def __init__(self, line: str) -> None:
        self.line, self.tokens, position = line, [], 0
        text = line.strip()
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None:
                raise self.error(f"it cannot be read from {text[position : position + 20]!r} on")
            self.tokens.append(found.group(1))
            position = found.end()
        self.tokens.reverse()

    def error(self, reason: str) -> DescriptorError:
        return DescriptorError(f"{reason}, in the descriptor {self.line.strip()[:200]!r}")

    def take(self, what: str) -> str:
        if not self.tokens:
            raise self.error(f"the line ends where {what} should follow")
        return self.tokens.pop()

    def expect(self, token: str) -> None:
        found = self.take(f"{token!r}")
        if found != token:
            raise self.error(f"{found!r} stands where {token!r} should")

    def record(self, word: str) -> TextRecord:
        kind = _KINDS.get(word)
        if kind is None:
            raise self.error(f"there is no descriptor {word!r}; there are {', '.join(sorted(_KINDS))}")
        self.expect("(")
        fields: dict[str, Any] = {}
        while (name := self.take("a field or ')'")) != ")":
            if name in fields:
                raise self.error(f"{name} is given twice")
            self.expect("=")
            fields[name] = self.value()
        return kind(**fields)

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
            raise self.error(f"{token!r} stands where a value should")
        if token.startswith('"'):
            return json.loads(token)
        if _PLAIN.match(token):
            return self.record(token) if self.tokens and self.tokens[-1] == "(" else token
        try:
            return int(token)
        except ValueError:
            pass
        try:
            return float(token)
        except ValueError:
            raise self.error(f"{token!r} is no value") from None


def read(line: str) -> TextRecord:
    """The descriptor that `write` wrote.  Raises DescriptorError with what stands where it should not."""
    reader = _Reader(line)
    found = reader.record(reader.take("a descriptor such as gemm(...)"))
    if reader.tokens:
        raise reader.error(f"nothing follows a descriptor, and {reader.tokens[-1]!r} does")
    return found
