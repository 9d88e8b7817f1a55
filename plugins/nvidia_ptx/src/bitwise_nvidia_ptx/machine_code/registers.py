"""The machine code of a function, with the registers that each instruction reads and writes.

All comes from nvdisasm, which prints the live ranges of all registers (`--print-life-ranges`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bitwise_nvidia_ptx.machine_code.sass_listing import SassInstruction, listed_functions

_FUSED = frozenset({"FFMA", "FFMA2", "DFMA", "HFMA2"})
_PRODUCTS = frozenset({"FMUL", "FMUL2", "DMUL", "HMUL2"})
_UNITS = frozenset({"1", "-1"})
_NOP = 0x918
_FILES = {"GPR": "R", "PRED": "P", "UGPR": "UR", "UPRED": "UP"}


@dataclass(frozen=True)
class MachineInstruction(SassInstruction):
    """One SASS instruction with its 128-bit encoding.

    `reads` and `writes` are the names of the registers that it reads and writes: R0, P0, UR0, UP0.  `moved` holds its
    relocations.
    """

    bits: int
    reads: frozenset[str]
    writes: frozenset[str]
    moved: tuple[str, ...] = ()


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
    functions = {}
    for name, function in listed_functions(text).items():
        columns = _columns(function.header)
        code = []
        for each in function.instructions:
            if each.bits is None:
                raise ValueError(f"this line of a SASS listing has no encoding: {each.text}")
            code.append(MachineInstruction(each.address, each.text, each.bits, *_registers(columns, each.ranges)))
        functions[name] = MachineFunction(tuple(code), function.labels)
    return functions


@dataclass(frozen=True)
class ArithmeticLines:
    """The lines of a PTX text for which the machine code fuses a product, and those for which it multiplies alone."""

    fused: frozenset[int]
    multiplied: frozenset[int]


def arithmetic_lines(listing: str) -> ArithmeticLines:
    """Return the lines in the output of `nvdisasm --print-line-info-ptx` for a text assembled with `-lineinfo`.

    A fused multiply-add by 1 or -1 is a sum.  Raises ValueError for a line of code that does not parse.
    """
    fused, multiplied = set[int](), set[int]()
    for function in listed_functions(listing).values():
        for each in function.instructions:
            if each.opcode in _PRODUCTS:
                multiplied.add(each.line)
            elif each.opcode in _FUSED and not _UNITS.intersection(each.operands):
                fused.add(each.line)
    return ArithmeticLines(frozenset(fused), frozenset(multiplied))


def only_padding(code: bytes) -> bool:
    """Return whether code consists of NOP, which nvdisasm does not list at the end of a function."""
    words = [int.from_bytes(code[at : at + 2], "little") for at in range(0, len(code), 16)]
    return len(code) % 16 == 0 and all(word & 0xFFF == _NOP for word in words)


def _columns(header: Sequence[str]) -> Mapping[str, Mapping[int, str]]:
    """Return, for each part of the table of live ranges, the register of each column."""
    parts = [line.split("|")[1:-1] for line in header]
    names = [part.strip() for part in parts[0]] if parts else []
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
    if not columns or len(parts) != len(columns):
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
