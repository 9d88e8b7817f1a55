"""PTX text to tokens: size limit, decoding, comments, and a function's body as a flat list of items.

Every pattern is possessive where it repeats and the first failure ends the
parse, so the time is linear in the text whatever it holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, NoReturn

from bitwise_core.assembly.module import AssemblyError

SIZE_LIMIT = 32 * 1024 * 1024
"""The largest text that is read: bytes, or characters of a str."""

MAX_DEPTH = 64
"""How deep `{ }` blocks may nest in a body."""

NAME = r"[A-Za-z_$%][\w$]*+"
STRING = r'"(?:[^"\\\n]++|\\.)*+"'


class ParseError(Exception):
    """A piece of text that is not PTX; whoever knows its line turns it into an `AssemblyError`."""


def snippet(text: str) -> str:
    """The piece of text that an error message shows: one line, quoted, at most 60 characters."""
    short = " ".join(text[:200].split())
    return f"'{short[:57]}...'" if len(short) > 60 else f"'{short}'"


class Cursor:
    """A place in the text that moves forward only and knows its line."""

    def __init__(self, text: str, file: str) -> None:
        self.text, self.file = text, file
        self.position, self.line = 0, 1

    def move(self, position: int) -> None:
        """Go forward to `position`."""
        self.line += self.text.count("\n", self.position, position)
        self.position = position

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """The match of `pattern` here, leaving the cursor behind it; None, and no move, where there is none."""
        match = pattern.match(self.text, self.position)
        if match is not None:
            self.move(match.end())
        return match

    def fail(self, reason: str, line: int | None = None) -> NoReturn:
        """Raise the `AssemblyError` for the current line, or for `line`."""
        raise AssemblyError(self.file, self.line if line is None else line, reason)

    @contextmanager
    def refusing(self, line: int) -> Iterator[None]:
        """Turn a `RefusedError` within into the `AssemblyError` for `line`."""
        try:
            yield
        except ParseError as refusal:
            self.fail(str(refusal), line)

    def rest(self) -> str:
        """What comes next, for a message."""
        return snippet(self.text[self.position : self.position + 200]) if self.position < len(self.text) else "the end"


def decode(text: str | bytes, file: str) -> str:
    """The text as a str.  Raises AssemblyError where it is too long, empty or not UTF-8."""
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
    """The text with spaces in place of every comment, so that lines and offsets stay; strings stay.

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
"""The kinds of item, each the number of its last group in the pattern."""

# Every alternative consumes the space behind it, so that a match starts where its item does.
_ITEM = re.compile(
    rf"""(?:
      (?:@\s*+(!?+)\s*+({NAME})\s++)?+ ([a-z]\w*+(?:(?:\.|::)\w++)*+) ((?:[\s\[{{(][^;:]*+)?+) ;
    | \.loc\s++(\d{{1,9}}+)\s++(\d{{1,9}}+)\s++(\d{{1,9}}+)(?!\w)
      (?:\s*+,\s*+function_name\s++[\w$.%]++(?:\s*+\+\s*+\d++)?+\s*+,\s*+inlined_at\s++\d++\s++\d++\s++\d++(?!\w))?+
    | ({NAME})\s*+:\s*+\.(branchtargets|calltargets|callprototype)(?!\w)([^;:]*+);
    | ({NAME})\s*+:(?!:)
    | (\{{)
    | (\}})
    | \.(reg|param|local|shared)(?!\w)([^;:]*+);
    | (\.pragma)\s++{STRING}(?:\s*+,\s*+{STRING})*+\s*+;
    )\s*+""",
    re.ASCII | re.VERBOSE,
)


class Item(NamedTuple):
    """One item of a body.  `fields` are the groups of its kind, as text.

    `start` and `end` are the offsets at which the item starts and its last field ends: for an instruction, at the
    semicolon.

    Instruction: negation mark, guard, opcode, operands.  Location: file, line, column.  Table: name, kind,
    entries.  Label: name.  Declaration: state space, the rest.  Blocks and pragmas: nothing of use.
    """

    kind: int
    line: int
    fields: tuple[str, ...]
    start: int
    end: int


class Body(NamedTuple):
    """A function's body between its braces, and the labels and tables of each block.

    `span` are the offsets of the text between the braces.  Blocks are numbered in the order they open, the body
    itself is 0; `labels` holds name, line and whether the label names a table rather than a place.
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
    """The items of the body that opens just before the cursor, which is left behind its closing brace.

    `name` is the function's, for messages.  Raises AssemblyError at the first text that is no item.
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
        cursor.fail(f"the body of {name} opened here is never closed; the text may be cut off", opened)
    cursor.fail(
        f"{cursor.rest()} is not an instruction ending in ';', a label, a declaration or a block; "
        "a semicolon may be missing, or the text is damaged"
    )
