"""SASS listings as nvdisasm prints them: the instructions and labels of each function.

The options of nvdisasm say what a listing has besides: the PTX line of each instruction (`--print-line-info-ptx`), its
encoding (`-hex`), and the live ranges of all registers (`--print-life-ranges`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

_SECTION = re.compile(r"\s*\.section\s")
_CODE_SECTION = re.compile(r'\s*\.section\s+\.text\.([^,\s]+),"ax"')
_LABEL = re.compile(r"(\S+):\s*(?://.*)?$")
_TEXT_LINE = re.compile(r'\s*//## File "\.nv_debug_ptx_txt", line (\d+)')
_ADDRESS = re.compile(r"\s*/\*[0-9a-f]{4,}\*/")
_INSTRUCTION = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(\S.*?)\s*;\s*(?:/\* 0x([0-9a-f]{16}) \*/\s*)?(?://.*)?$")
_SECOND_HALF = re.compile(r"\s*/\* 0x([0-9a-f]{16}) \*/\s*(?://(.*))?$")
_SCHEDULE = re.compile(r"(?: [&?]\S+)+$")
"""What nvdisasm prints for sm_120 after an instruction: the barriers that it sets and waits for, and its delay."""
_GUARDED = re.compile(r"@(!?U?P(?:\d+|T))\s+(.*)")


@dataclass(frozen=True)
class SassInstruction:
    """One SASS instruction: its address, and its text without register-reuse hints."""

    address: int
    text: str

    @cached_property
    def guard(self) -> str | None:
        """The guard as written: a predicate, which may be negated."""
        match = _GUARDED.match(self.text)
        return match[1] if match else None

    @cached_property
    def operation(self) -> str:
        """The text without its guard."""
        match = _GUARDED.match(self.text)
        return match[2] if match else self.text

    @cached_property
    def mnemonic(self) -> str:
        """The mnemonic with its modifiers."""
        return self.operation.partition(" ")[0]

    @cached_property
    def opcode(self) -> str:
        """The mnemonic without modifiers."""
        return self.mnemonic.partition(".")[0]

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """The operands as written."""
        _, _, rest = self.operation.partition(" ")
        return tuple(each.strip() for each in rest.split(",")) if rest.strip() else ()


@dataclass(frozen=True)
class ListedInstruction(SassInstruction):
    """An instruction of a listing: the PTX line that it translates, its 128-bit encoding, and its live ranges.

    Without these options of nvdisasm they are 0, None and "".
    """

    line: int
    bits: int | None
    ranges: str


@dataclass(frozen=True)
class ListedFunction:
    """The instructions of a function, the address of each label, and the head of its table of live ranges."""

    instructions: tuple[ListedInstruction, ...]
    labels: Mapping[str, int]
    header: tuple[str, ...]


def listed_functions(listing: str) -> Mapping[str, ListedFunction]:
    """Return the functions of a listing by name.

    Raises ValueError for a line of code that does not parse.
    """
    functions: dict[str, tuple[list[ListedInstruction], dict[str, int], list[str]]] = {}
    instructions: list[ListedInstruction] = []
    labels: dict[str, int] = {}
    header: list[str] = []
    name: str | None = None
    line = 0
    rows = iter(listing.splitlines())
    for row in rows:
        if _SECTION.match(row):
            section = _CODE_SECTION.match(row)
            name, line = section[1] if section else None, 0
            instructions, labels, header = [], {}, []
        elif label := _LABEL.match(row):
            labels[label[1]] = 16 * len(instructions)
        elif _ADDRESS.match(row):
            first = _INSTRUCTION.match(row)
            second = _SECOND_HALF.match(next(rows, "")) if first is not None and first[3] else None
            complete = first is not None and (second is not None or first[3] is None)
            if first is None or not complete or name is None or int(first[1], 16) != 16 * len(instructions):
                raise ValueError(f"this line of a SASS listing does not parse: {row.strip()}")
            text = _SCHEDULE.sub("", " ".join(first[2].replace(".reuse", "").split()))
            bits = None if second is None else int(first[3], 16) | int(second[1], 16) << 64
            ranges = (second[2] or "") if second is not None else ""
            instructions.append(ListedInstruction(16 * len(instructions), text, line, bits, ranges))
            functions[name] = (instructions, labels, header)
        elif marked := _TEXT_LINE.match(row):
            line = int(marked[1])
        elif not instructions:
            before, mark, ranges = row.partition("//")
            if mark and not before.strip() and ranges.lstrip().startswith("|"):
                header.append(ranges)
    return {
        name: ListedFunction(tuple(code), labels, tuple(header)) for name, (code, labels, header) in functions.items()
    }
