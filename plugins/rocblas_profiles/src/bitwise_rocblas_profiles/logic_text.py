"""A reader of the part of YAML that logic files of Tensile are written in.

Block sequences and mappings, flow lists and mappings, numbers, booleans, null, plain and quoted strings.  Anything else
is an error with its line: anchors, tags, multi-line strings, tabs.
"""

from __future__ import annotations

import math
import re
from typing import Any, TypeAlias

from bitwise_rocblas_profiles.errors import RocblasError

DEPTH = 32
"""The largest number of nested values."""

_INTEGER = re.compile(r"[-+]?\d{1,30}\Z", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\d{1,30}\.?\d{0,30}|\.\d{1,30})([eE][-+]?\d{1,4})?\Z", re.ASCII)
_KEY = re.compile(r"""('(?:[^']|'')*'|"[^"\\]*"|[^\s'"\[\]{}#&*!|>%@`,:-][^:#\[\]{},]*?|-?[\w.]+)\s*:(?:\s+|\Z)""")
_TOKEN = re.compile(
    r"""\s*('(?:[^']|'')*'|"[^"\\]*"|[\[\]{},]|:(?=[\s\[{'"]|\Z)|[^\s\[\]{},'"](?:[^\[\]{},:]|:(?=\S))*)"""
)
_WORDS: dict[str, Any] = {
    "true": True, "false": False, "null": None, "~": None, ".inf": math.inf, "-.inf": -math.inf, "": None,
}  # fmt: skip

_Line: TypeAlias = tuple[int, str, int]
"""The indentation, the text and the number of a line."""


def parse(text: str, name: str) -> Any:
    """Return the value of a logic file's text; `name` is the file in messages.  Raises RocblasError."""
    return _Reader(text, name).document()


class _Reader:
    def __init__(self, text: str, name: str) -> None:
        self.name, self.lines = name, list[_Line]()
        self.place = 0
        pending, begin, indent = "", 0, 0
        for number, line in enumerate(text.splitlines(), 1):
            content = line.strip()
            if not pending:
                if not content or content.startswith("#") or (content == "---" and not self.lines):
                    continue
                if "\t" in line[: len(line) - len(line.lstrip())]:
                    raise self.error(number, "a line is indented with tabs")
                begin, indent = number, len(line) - len(line.lstrip(" "))
            pending = f"{pending} {content}" if pending else content
            # A flow value may continue on the next lines.
            if _open_brackets(pending) <= 0:
                self.lines.append((indent, pending, begin))
                pending = ""
        if pending:
            raise self.error(begin, "a bracket is not closed")

    def error(self, number: int, fault: str) -> RocblasError:
        return RocblasError(f"{self.name}:{number}: {fault}; this is no logic file of Tensile, or a truncated one")

    def document(self) -> Any:
        if not self.lines:
            raise RocblasError(f"{self.name}: the file is empty")
        found = self.block(self.lines[0][0], 0)
        if self.place < len(self.lines):
            raise self.error(self.lines[self.place][2], f"{self.lines[self.place][1][:40]!r} is not expected here")
        return found

    def block(self, indent: int, depth: int) -> Any:
        """Return the value that begins at the current line."""
        found, text, number = self.lines[self.place]
        if depth > DEPTH:
            raise self.error(number, "values are nested too deeply")
        if found != indent:
            raise self.error(number, "the indentation fits no value before it")
        if text == "-" or text.startswith("- "):
            return self.sequence(indent, depth)
        if not text.startswith(("[", "{")) and _KEY.match(text):
            return self.mapping(indent, depth)
        self.place += 1
        return self.value(text, number)

    def sequence(self, indent: int, depth: int) -> list[Any]:
        items = []
        while self.place < len(self.lines):
            found, text, number = self.lines[self.place]
            if found != indent or not (text == "-" or text.startswith("- ")):
                break
            rest = text[1:].lstrip()
            if rest:
                inner = indent + len(text) - len(rest)
                self.lines[self.place] = (inner, rest, number)
                items.append(self.block(inner, depth + 1))
            else:
                self.place += 1
                items.append(self.nested(indent, depth, number, sequences=False))
        return items

    def mapping(self, indent: int, depth: int) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        while self.place < len(self.lines) and self.lines[self.place][0] == indent:
            _, text, number = self.lines[self.place]
            matched = _KEY.match(text)
            if matched is None:
                break
            key = self.scalar(matched.group(1), number)
            if key in found:
                raise self.error(number, f"the key {key!r} is given twice")
            rest = text[matched.end() :].strip()
            self.place += 1
            found[key] = self.value(rest, number) if rest else self.nested(indent, depth, number, sequences=True)
        return found

    def nested(self, indent: int, depth: int, number: int, *, sequences: bool) -> Any:
        """Return the value on the lines after a key or a dash; a sequence may be as far to the left as its key."""
        if self.place == len(self.lines):
            return None
        found, text, _ = self.lines[self.place]
        if found > indent or (sequences and found == indent and (text == "-" or text.startswith("- "))):
            return self.block(found, depth + 1)
        return None

    def value(self, text: str, number: int) -> Any:
        if not text.startswith(("[", "{")):
            return self.scalar(text, number)
        tokens = []
        position = 0
        while position < len(text):
            matched = _TOKEN.match(text, position)
            if matched is None:
                raise self.error(number, f"{text[position : position + 20]!r} is not a value")
            tokens.append(matched.group(1).strip())
            position = matched.end()
        tokens.reverse()
        found = self.flow(tokens, number, 0)
        if tokens:
            raise self.error(number, f"{tokens[-1]!r} comes after the value")
        return found

    def flow(self, tokens: list[str], number: int, depth: int) -> Any:
        if not tokens or depth > DEPTH:
            raise self.error(number, "a value is missing or nested too deeply")
        token = tokens.pop()
        if token == "[":
            items = []
            while self.next(tokens, number) != "]":
                items.append(self.flow(tokens, number, depth + 1))
                self.separator(tokens, number, "]")
            tokens.pop()
            return items
        if token == "{":
            found: dict[Any, Any] = {}
            while self.next(tokens, number) != "}":
                key = self.scalar(tokens.pop(), number)
                if self.next(tokens, number) != ":":
                    raise self.error(number, f"the key {key!r} has no value")
                tokens.pop()
                found[key] = self.flow(tokens, number, depth + 1)
                self.separator(tokens, number, "}")
            tokens.pop()
            return found
        if token in ("]", "}", ",", ":"):
            raise self.error(number, f"{token!r} is found where a value is expected")
        return self.scalar(token, number)

    def next(self, tokens: list[str], number: int) -> str:
        if not tokens:
            raise self.error(number, "a bracket is not closed")
        return tokens[-1]

    def separator(self, tokens: list[str], number: int, end: str) -> None:
        if self.next(tokens, number) == ",":
            tokens.pop()
        elif tokens[-1] != end:
            raise self.error(number, f"{tokens[-1]!r} is found where a comma or {end!r} is expected")

    def scalar(self, text: str, number: int) -> Any:
        if len(text) >= 2 and text[0] == text[-1] == "'":
            return text[1:-1].replace("''", "'")
        if len(text) >= 2 and text[0] == text[-1] == '"' and "\\" not in text:
            return text[1:-1]
        if text.lower() in _WORDS:
            return _WORDS[text.lower()]
        if _INTEGER.match(text):
            return int(text)
        if _FLOAT.match(text):
            return float(text)
        if text[0] in "&*!|>%@`'\"[]{}," or text.startswith(("- ", "? ")) or ": " in text or " #" in text:
            raise self.error(number, f"{text[:40]!r} is not supported")
        return text


def _open_brackets(text: str) -> int:
    """Return how many brackets of a flow value are open at the end of a line; 0 where the line has no flow value."""
    value = text
    while value.startswith("- "):
        value = value[2:].lstrip()
    matched = None if value.startswith(("[", "{")) else _KEY.match(value)
    if matched is not None:
        value = value[matched.end() :]
    if not value.startswith(("[", "{")):
        return 0
    bare = re.sub(r"""'(?:[^']|'')*'|"[^"\\]*\"""", "", value)
    return bare.count("[") + bare.count("{") - bare.count("]") - bare.count("}")
