"""The inner `{ }` blocks of a function, recovered from the unique names that the parser gave to their declarations.

Position 2 i + 1 is instruction i.  The labels before it have positions from 2 i on, see `labels_before`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from bitwise_core.assembly.module import Kernel, Register, Symbol, parts

_INNER = re.compile(r"(?P<name>.+)\$(?P<block>\d+)\$?", re.DOTALL)
_SUFFIXES = re.compile(r"\$.*\$|\$\d+")
_NUMBERED = re.compile(r"(?P<family>.*?)(?P<number>\d+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """An inner block: its number, in the order in which blocks open, and the positions of its first and last name."""

    number: int
    first: float
    last: float


def split(name: str) -> tuple[str, int]:
    """Split a unique name into the declared name and the number of the block that declares it, 0 for the outermost."""
    found = _INNER.fullmatch(name)
    return (name, 0) if found is None else (found["name"], int(found["block"]))


def declared(register: str, kernel: Kernel) -> tuple[str, str]:
    """Return the unique name under which a register is declared, and its number within a family, else ""."""
    if register not in kernel.registers and (found := _NUMBERED.fullmatch(register)) is not None:
        return found["family"], found["number"]
    return register, ""


def spelling(register: str) -> str:
    """Return the name of a register as written in the block that declares it."""
    return _SUFFIXES.sub("", register) if "$" in register else register


def inner_blocks(kernel: Kernel) -> list[Block]:
    """Return the inner blocks that contain names, in the order of their numbers."""
    found: dict[int, tuple[float, float]] = {}
    for number, position in _uses(kernel):
        first, last = found.get(number, (position, position))
        found[number] = min(first, position), max(last, position)
    ordered: list[Block] = []
    for number in sorted(found, reverse=True):
        first, last = found[number]
        # A block opens before every block of higher number, and closes after every one that opens inside it.
        first = min([first, *(each.first for each in ordered)])
        for each in reversed(ordered):
            if each.first <= last:
                last = max(last, each.last)
        ordered.append(Block(number, first, last))
    return ordered[::-1]


def labels_before(kernel: Kernel) -> dict[int, list[tuple[str, float]]]:
    """Return the labels before each instruction and before the end, in the order of the text, with their positions.

    The positions of the labels between two instructions lie between theirs.
    """
    found: dict[int, list[str]] = {}
    for name, index in kernel.labels.items():
        found.setdefault(index, []).append(name)
    return {
        index: [(name, 2 * index + place / len(names)) for place, name in enumerate(names)]
        for index, names in found.items()
    }


def _uses(kernel: Kernel) -> Iterator[tuple[int, float]]:
    """Yield, for each name, the number of the block that declares it and the position of the name."""
    for labels in labels_before(kernel).values():
        for name, position in labels:
            yield split(name)[1], position
    for position, instruction in enumerate(kernel.instructions):
        names: list[object] = [each for operand in instruction.operands for each in parts(operand)]
        if instruction.guard is not None:
            names.append(Register(instruction.guard.register))
        for each in names:
            if isinstance(each, Register):
                yield split(declared(each.name, kernel)[0])[1], 2 * position + 1
            elif isinstance(each, Symbol):
                yield split(each.name)[1], 2 * position + 1
