"""Descriptors on one line: `gemm(k=4096 left_dtype=fp16 ... k_cuts=[cut(span=1024)])`; defaults are left out."""

from __future__ import annotations

import json
import re
from typing import Any

from bitwise_core.descriptors.attention import AttentionDesc
from bitwise_core.descriptors.cuts import Cut, Group
from bitwise_core.descriptors.gemm import GEMMDesc, Instruction, Rotation
from bitwise_core.descriptors.record import DescriptorError, Record
from bitwise_core.descriptors.reduction import Digit, Fold, ReductionDesc

NAMES: dict[str, type[Record]] = {
    "gemm": GEMMDesc,
    "reduction": ReductionDesc,
    "attention": AttentionDesc,
    "cut": Cut,
    "group": Group,
    "instruction": Instruction,
    "rotation": Rotation,
    "fold": Fold,
    "digit": Digit,
}
_WORDS = {record: name for name, record in NAMES.items()}
_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[()\[\]=]|[^\s()\[\]="]+)')
_PLAIN = re.compile(r"[A-Za-z_][\w.-]*\Z", re.ASCII)
_CONSTANTS = {"true": True, "false": False, "none": None}


def write(record: Record) -> str:
    """A descriptor on one line."""
    fields = type(record).model_fields
    given = [(name, getattr(record, name)) for name in fields if getattr(record, name) != fields[name].default]
    return f"{_WORDS[type(record)]}({' '.join(f'{name}={_value(value)}' for name, value in given)})"


def _value(value: Any) -> str:
    if isinstance(value, Record):
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

    def record(self, word: str) -> Record:
        kind = NAMES.get(word)
        if kind is None:
            raise self.error(f"there is no descriptor {word!r}; there are {', '.join(NAMES)}")
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


def read(line: str) -> Record:
    """The descriptor that `write` wrote.  Raises DescriptorError with what stands where it should not."""
    reader = _Reader(line)
    found = reader.record(reader.take("a descriptor such as gemm(...)"))
    if reader.tokens:
        raise reader.error(f"nothing follows a descriptor, and {reader.tokens[-1]!r} does")
    return found
