"""Splits lines of LLVM assembly into mnemonic, operands and modifiers, without comments."""

from __future__ import annotations

import re

_WORD = re.compile(r"[a-z][a-z0-9_]*")
_FLAT = re.compile(r"[^()\[\]]*(?:\[[^()\[\],\s]*\][^()\[\]]*)*")
"""A text without nested brackets and without commas or blanks inside brackets."""
_MODIFIER = re.compile(r"[a-z][a-z_0-9]*:\S+")
FLAGS = frozenset(
    {
        "offen", "idxen", "glc", "slc", "dlc", "sc0", "sc1", "nt", "lds", "gds", "clamp", "tfe", "scc", "bound_ctrl",
        "row_mirror", "row_half_mirror",
    }
)  # fmt: skip
"""Modifiers that have no value."""


class LineError(ValueError):
    """The line is not an instruction; the message says why."""


def without_comment(line: str) -> str:
    """The line without the comment that starts with `;` or `//` outside a string."""
    if '"' not in line:
        position = line.find(";")
        if position >= 0:
            line = line[:position]
        position = line.find("//")
        return (line[:position] if position >= 0 else line).strip()
    quoted = False
    for position, character in enumerate(line):
        if character == '"' and (position == 0 or line[position - 1] != "\\"):
            quoted = not quoted
        elif not quoted and (character == ";" or line.startswith("//", position)):
            return line[:position].strip()
    return line.strip()


def split_instruction(line: str) -> tuple[str, list[str], list[str]]:
    """Split an instruction's line into mnemonic, operands and modifiers.  Raises LineError."""
    mnemonic, _, rest = line.partition(" ")
    if not _WORD.fullmatch(mnemonic):
        raise LineError(f"{line!r} is not an instruction")
    if not rest:
        return mnemonic, [], []
    operands: list[str] = []
    modifiers: list[str] = []
    for part in _split_outside_brackets(rest.strip(), ","):
        part = part.strip()
        if part and " " not in part and ":" not in part and part not in FLAGS:
            # As most parts are.
            if modifiers and mnemonic != "s_waitcnt":
                raise LineError(f"{part!r} is not a modifier of {mnemonic}")
            operands.append(part)
            continue
        words = _split_outside_brackets(part, " ") if " " in part else [part]
        if not part or not words:
            raise LineError("an operand is missing")
        for position, word in enumerate(words):
            if word in FLAGS or (":" in word and _MODIFIER.fullmatch(word)):
                modifiers.append(word)
            elif (position == 0 and not modifiers) or mnemonic == "s_waitcnt":
                operands.append(word)
            else:
                raise LineError(f"{word!r} is not a modifier of {mnemonic}")
    return mnemonic, operands, modifiers


def _split_outside_brackets(text: str, separator: str) -> list[str]:
    """Split the text at separators outside brackets; a blank as separator yields no empty parts."""
    if "(" not in text and ("[" not in text or _FLAT.fullmatch(text)):
        return text.split(separator) if separator != " " else text.split()
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        if character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
            if depth < 0:
                raise LineError("a bracket is closed that was not opened")
        elif character == separator and not depth:
            parts.append(text[start:position])
            start = position + 1
    if depth:
        raise LineError("a bracket is not closed")
    parts.append(text[start:])
    return [part for part in parts if part] if separator == " " else parts
