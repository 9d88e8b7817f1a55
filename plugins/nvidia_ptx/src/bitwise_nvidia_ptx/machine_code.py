"""SASS listings: the instructions of a function, with the registers that each reads and writes.

All comes from nvdisasm, which prints the live ranges of all registers (`--print-life-ranges`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

_LINE = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(\S.*?)\s*;\s*/\* 0x([0-9a-f]{16}) \*/\s*//(.*)$")
_SCHEDULE = re.compile(r"(?: [&?]\S+)+$")
"""What nvdisasm prints for sm_120 after an instruction: the barriers that it sets and waits for, and its delay."""
_SECOND_LINE = re.compile(r"\s*/\* 0x([0-9a-f]{16}) \*/\s*//(.*)$")
_GUARDED = re.compile(r"@(!?U?P(?:\d+|T))\s+(.*)")
_SECTION = re.compile(r'\s*\.section\s+\.text\.([^,\s]+),"ax"')
_OTHER_SECTION = re.compile(r"\s*\.section\s")
_LABEL = re.compile(r"(\S+):\s*(?://.*)?$")
_TEXT_LINE = re.compile(r'//## File "\.nv_debug_ptx_txt", line (\d+)')
_OPERATION = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z]\S*)\s+([^;]*);")
_FUSED = frozenset({"FFMA", "FFMA2", "DFMA", "HFMA2"})
_PRODUCTS = frozenset({"FMUL", "FMUL2", "DMUL", "HMUL2"})
_UNITS = frozenset({"1", "-1"})
_NOP = 0x918
_FILES = {"GPR": "R", "PRED": "P", "UGPR": "UR", "UPRED": "UP"}


@dataclass(frozen=True)
class MachineInstruction:
    """One SASS instruction: its address, its text without register-reuse hints, and its 128-bit encoding.

    `reads` and `writes` are the names of the registers that it reads and writes: R0, P0, UR0, UP0.  `moved` holds its
    relocations.
    """

    address: int
    text: str
    bits: int
    reads: frozenset[str]
    writes: frozenset[str]
    moved: tuple[str, ...] = ()

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
class MachineFunction:
    """The instructions of a function, and the address of each label.

    `imports` are the offsets in constant bank 4 of the addresses of functions outside of the object file.
    """

    instructions: tuple[MachineInstruction, ...]
    labels: Mapping[str, int]
    imports: frozenset[int] = frozenset()


def parse_listing(text: str) -> Mapping[str, MachineFunction]:
    """Return the functions in the output of `nvdisasm --print-life-ranges --life-range-mode=narrow -hex`, by name.

    Raises ValueError for a line of code that does not parse.
    """
    functions: dict[str, tuple[list[MachineInstruction], dict[str, int]]] = {}
    instructions: list[MachineInstruction] = []
    labels: dict[str, int] = {}
    header: list[str] = []
    columns: Mapping[str, Mapping[int, str]] = {}
    lines = iter(text.splitlines())
    name = None
    for line in lines:
        if _OTHER_SECTION.match(line):
            section = _SECTION.match(line)
            name = section[1] if section else None
            instructions, labels, header, columns = [], {}, [], {}
        elif label := _LABEL.match(line):
            labels[label[1]] = 16 * len(instructions)
        elif re.match(r"\s*/\*[0-9a-f]{4,}\*/", line):
            first, second = _LINE.match(line), _SECOND_LINE.match(next(lines, ""))
            if first is None or second is None or name is None or int(first[1], 16) != 16 * len(instructions):
                raise ValueError(f"this line of a SASS listing does not parse: {line.strip()}")
            columns = columns or _columns(header)
            reads, writes = _registers(columns, second[2])
            code = _SCHEDULE.sub("", " ".join(first[2].replace(".reuse", "").split()))
            bits = int(first[3], 16) | int(second[1], 16) << 64
            instructions.append(MachineInstruction(int(first[1], 16), code, bits, reads, writes))
            functions[name] = (instructions, labels)
        else:
            before, mark, ranges = line.partition("//")
            if mark and not before.strip() and ranges.lstrip().startswith("|") and not columns:
                header.append(ranges)
    return {name: MachineFunction(tuple(code), labels) for name, (code, labels) in functions.items()}


@dataclass(frozen=True)
class ArithmeticLines:
    """The lines of a PTX text for which the machine code fuses a product, and those for which it multiplies alone."""

    fused: frozenset[int]
    multiplied: frozenset[int]


def arithmetic_lines(listing: str) -> ArithmeticLines:
    """Return the lines in the output of `nvdisasm --print-line-info-ptx` for a text assembled with `-lineinfo`.

    A fused multiply-add by 1 or -1 is a sum.
    """
    fused, multiplied = set[int](), set[int]()
    line = 0
    for row in listing.splitlines():
        if marked := _TEXT_LINE.search(row):
            line = int(marked[1])
        elif found := _OPERATION.match(row):
            opcode = found[1].partition(".")[0]
            if opcode in _PRODUCTS:
                multiplied.add(line)
            elif opcode in _FUSED and not _UNITS.intersection(each.strip() for each in found[2].split(",")):
                fused.add(line)
    return ArithmeticLines(frozenset(fused), frozenset(multiplied))


def only_padding(code: bytes) -> bool:
    """Return whether code consists of NOP, which nvdisasm does not list at the end of a function."""
    words = [int.from_bytes(code[at : at + 2], "little") for at in range(0, len(code), 16)]
    return len(code) % 16 == 0 and all(word & 0xFFF == _NOP for word in words)


def _columns(header: list[str]) -> Mapping[str, Mapping[int, str]]:
    """Return, for each part of the table of live ranges, the register of each column."""
    parts = [line.split("|")[1:-1] for line in header]
    names = [part.strip() for part in parts[0]]
    found: dict[str, Mapping[int, str]] = {}
    for place, name in enumerate(names):
        file = _FILES.get(name)
        rows = [part[place] for part in parts[1:] if len(part) == len(names)]
        if file is None or not rows:
            raise ValueError(f"the table of live ranges has a part {name!r} that is not known")
        digits: dict[int, str] = {}
        count = max((row.find("#") for row in rows), default=-1)
        for row in rows:
            for column, letter in enumerate(row):
                if letter.isdigit() and column > count:
                    digits[column] = digits.get(column, "") + letter
        found[str(place)] = {column: f"{file}{int(number)}" for column, number in digits.items()}
    return found


def _registers(columns: Mapping[str, Mapping[int, str]], ranges: str) -> tuple[frozenset[str], frozenset[str]]:
    parts = ranges.split("|")[1:-1]
    if len(parts) != len(columns):
        raise ValueError("a SASS listing has no table of live ranges")
    reads, writes = set(), set()
    for names, part in zip(columns.values(), parts, strict=True):
        for column, letter in enumerate(part):
            if letter not in "v^x":
                continue
            if column not in names:
                raise ValueError("a register in the table of live ranges has no name")
            if letter in "vx":
                reads.add(names[column])
            if letter in "^x":
                writes.add(names[column])
    return frozenset(reads), frozenset(writes)
