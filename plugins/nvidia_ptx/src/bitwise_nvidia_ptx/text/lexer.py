"""The lexer of PTX: size limit, decoding, comments, and the body of a function as a flat list of items.

Every repetition in a pattern is possessive and the first failure ends the parse, so that the time is linear in the text
for any input.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, NoReturn

from bitwise_core.assembly.module import AssemblyError

SIZE_LIMIT = 32 * 1024 * 1024
"""The largest supported text, in bytes, or characters of a str."""

MAX_DEPTH = 64
"""The largest nesting depth of `{ }` blocks in a body."""

NAME = r"[A-Za-z_$%][\w$]*+"
STRING = r'"(?:[^"\\\n]++|\\.)*+"'


class ParseError(Exception):
    """Text that is not valid or supported PTX.  The caller that has the line converts it into an `AssemblyError`."""


def snippet(text: str) -> str:
    """Return text for an error message: quoted, on one line, at most 60 characters."""
    short = " ".join(text[:200].split())
    return f"'{short[:57]}...'" if len(short) > 60 else f"'{short}'"


class Cursor:
    """A position in the text, with its line, that moves forward only."""

    def __init__(self, text: str, file: str) -> None:
        self.text, self.file = text, file
        self.position, self.line = 0, 1

    def move(self, position: int) -> None:
        """Move forward to `position`."""
        self.line += self.text.count("\n", self.position, position)
        self.position = position

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Match `pattern` here and move behind the match.  Returns None, without moving, if it does not match."""
        match = pattern.match(self.text, self.position)
        if match is not None:
            self.move(match.end())
        return match

    def fail(self, reason: str, line: int | None = None) -> NoReturn:
        """Raise the `AssemblyError` for the current line, or for `line`."""
        raise AssemblyError(self.file, self.line if line is None else line, reason)

    @contextmanager
    def errors_at(self, line: int) -> Iterator[None]:
        """Convert a `ParseError` raised within into an `AssemblyError` for `line`."""
        try:
            yield
        except ParseError as refusal:
            self.fail(str(refusal), line)

    def rest(self) -> str:
        """Return the next text, for a message."""
        return snippet(self.text[self.position : self.position + 200]) if self.position < len(self.text) else "the end"


def decode(text: str | bytes, file: str) -> str:
    """Return the text as a str.  Raises AssemblyError if it is too long, empty or not UTF-8."""
    if len(text) > SIZE_LIMIT:
        unit = "bytes" if isinstance(text, bytes) else "characters"
        raise AssemblyError(file, 1, f"the text has {len(text)} {unit}; the parser reads at most {SIZE_LIMIT}")
    if isinstance(text, bytes):
        encoded = text
        try:
            text = encoded.decode("utf-8")
        except UnicodeDecodeError as error:
            line = encoded.count(b"\n", 0, error.start) + 1
            raise AssemblyError(file, line, "this is not text in UTF-8; give the PTX, not a binary") from None
    if not text.strip():
        raise AssemblyError(file, 1, "the text is empty; PTX starts with .version")
    return text


_NOT_NEWLINE = re.compile(r"[^\n]")
_COMMENT = re.compile(rf'//[^\n]*+|{STRING}|/\*(?:[^*]++|\*(?!/))*+(?:\*/)?+|"', re.ASCII | re.DOTALL)


def without_comments(text: str, file: str) -> str:
    """Replace comments outside strings by spaces, so that lines and offsets do not change.

    Raises AssemblyError for a comment or a string that is not closed.
    """

    def blank(match: re.Match[str]) -> str:
        found = match[0]
        if found.startswith("//"):
            return " " * len(found)
        if found.startswith("/*"):
            if not found.endswith("*/") or len(found) < 4:
                line = text.count("\n", 0, match.start()) + 1
                raise AssemblyError(file, line, "this comment is never closed; end it with */")
            return _NOT_NEWLINE.sub(" ", found)
        if found == '"':
            line = text.count("\n", 0, match.start()) + 1
            raise AssemblyError(file, line, 'this string is never closed; end it with " on its line')
        return found

    return _COMMENT.sub(blank, text)


INSTRUCTION, LOCATION, TABLE, LABEL, OPEN, CLOSE, DECLARATION, PRAGMA = 4, 7, 10, 11, 12, 13, 15, 16
"""The kinds of items.  Each is the number of the last group of its alternative in `_ITEM`."""

# Each alternative consumes trailing space, so that a match starts at the start of its item.
_ITEM = re.compile(
    rf"""(?:
      (?:@\s*+(!?+)\s*+({NAME})\s++)? ([a-z]\w*+(?:(?:\.|::)\w++)*+) ((?:[\s\[{{(][^;:]*+)?+) ;
    | \.loc\s++(\d{{1,9}}+)\s++(\d{{1,9}}+)\s++(\d{{1,9}}+)(?!\w)
      (?:\s*+,\s*+function_name\s++[\w$.%]++(?:\s*+\+\s*+\d++)?+\s*+,\s*+inlined_at\s++\d++\s++\d++\s++\d++(?!\w))?+
    | ({NAME})\s*+:\s*+\.(branchtargets|calltargets|callprototype)(?!\w)([^;:]*+);
    | ({NAME})\s*+:(?!:)
    | (\{{)
    | (\}})
    | \.(reg|param|local|shared)(?!\w)([^;:]*+);
    | (\.pragma\s++{STRING}(?:\s*+,\s*+{STRING})*+)\s*+;
    )\s*+""",
    re.ASCII | re.VERBOSE,
)


class Item(NamedTuple):
    """One item of a body.

    `fields` are the texts of the groups of its kind.  Instruction: negation mark, guard, opcode, operands.  Location:
    file, line, column.  Table: name, kind, entries.  Label: name.  Declaration: state space, the rest.  Pragma: the
    text.  The fields of blocks are not used.  `start` is the offset at which the item starts, `end` the offset at which
    its last field ends: for an instruction, the semicolon.
    """

    kind: int
    line: int
    fields: tuple[str, ...]
    start: int
    end: int


class Body(NamedTuple):
    """The items of a function's body, and the labels and tables of each block.

    `span` are the offsets of the text between the braces.  Blocks are numbered in the order in which they open; the
    body itself is 0.  `labels` holds, by block, name, line, and whether the label names a jump table.
    """

    items: list[Item]
    labels: dict[int, list[tuple[str, int, bool]]]
    span: tuple[int, int]


_FIELDS = {
    INSTRUCTION: (1, 2, 3, 4),
    LOCATION: (5, 6, 7),
    TABLE: (8, 9, 10),
    LABEL: (11,),
    OPEN: (12,),
    CLOSE: (13,),
    DECLARATION: (14, 15),
    PRAGMA: (16,),
}


def split_body(cursor: Cursor, name: str) -> Body:
    """Split the body whose opening brace is just before the cursor into items; move behind its closing brace.

    `name` is the name of the function, for messages.  Raises AssemblyError at the first text that is not an item.
    """
    opened, opened_at = cursor.line, cursor.position
    items: list[Item] = []
    labels: dict[int, list[tuple[str, int, bool]]] = {}
    blocks, current, count = [0], 0, 0
    text, match_item, append = cursor.text, _ITEM.match, items.append
    position = start = cursor.position
    while position < len(text) and text[position].isspace():
        position += 1
    line = cursor.line
    while (match := match_item(text, position)) is not None:
        line += text.count("\n", start, position)
        start, position = position, match.end()
        kind = match.lastindex
        assert kind is not None
        fields = match.group(*_FIELDS[kind]) if len(_FIELDS[kind]) > 1 else (match[kind],)
        append(Item(kind, line, fields, start, match.end(kind)))
        if kind in (LABEL, TABLE):
            labels.setdefault(current, []).append((items[-1].fields[0], line, kind == TABLE))
        elif kind == OPEN:
            if len(blocks) == MAX_DEPTH:
                cursor.fail(f"blocks nest deeper than {MAX_DEPTH} here", line)
            count += 1
            blocks.append(count)
            current = count
        elif kind == CLOSE:
            blocks.pop()
            if not blocks:
                items.pop()
                cursor.move(position)
                return Body(items, labels, (opened_at, start))
            current = blocks[-1]
    cursor.move(position)
    if position >= len(text):
        cursor.fail(f"the body of {name} opened here is never closed; the text may be truncated", opened)
    cursor.fail(
        f"{cursor.rest()} is not an instruction ending in ';', a label, a declaration or a block; "
        "a semicolon may be missing, or the text is damaged"
    )
