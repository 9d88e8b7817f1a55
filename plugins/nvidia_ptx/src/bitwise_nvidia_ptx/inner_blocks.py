"""Where the inner blocks of a function open and close, read off the names that the parser gave to what is in them.

A place is 2 i before instruction i, where its labels stand, and 2 i + 1 at the instruction.
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
    """An inner block: its number in the order in which blocks open, and the places of the first and last name in it."""

    number: int
    first: int
    last: int


def split(name: str) -> tuple[str, int]:
    """The name that a block declares, and the block's number: 0 for the function's own."""
    found = _INNER.fullmatch(name)
    return (name, 0) if found is None else (found["name"], int(found["block"]))


def declared(register: str, kernel: Kernel) -> tuple[str, str]:
    """The name under which a register is declared, and its number in that family, if it is of one."""
    if register not in kernel.registers and (found := _NUMBERED.fullmatch(register)) is not None:
        return found["family"], found["number"]
    return register, ""


def spelling(register: str) -> str:
    """A register's name inside the block that declares it."""
    return _SUFFIXES.sub("", register) if "$" in register else register


def inner_blocks(kernel: Kernel) -> list[Block]:
    """The inner blocks that hold names, in the order of their numbers."""
    found: dict[int, tuple[int, int]] = {}
    for number, place in _uses(kernel):
        first, last = found.get(number, (place, place))
        found[number] = min(first, place), max(last, place)
    ordered: list[Block] = []
    for number in sorted(found, reverse=True):
        first, last = found[number]
        # A block opens before every later one, and closes after every later one that opens inside it.
        first = min([first, *(each.first for each in ordered)])
        for each in reversed(ordered):
            if each.first <= last:
                last = max(last, each.last)
        ordered.append(Block(number, first, last))
    return ordered[::-1]


def _uses(kernel: Kernel) -> Iterator[tuple[int, int]]:
    """The numbers of blocks, each with the place of a name that it declares."""
    for name, place in kernel.labels.items():
        yield split(name)[1], 2 * place
    for place, instruction in enumerate(kernel.instructions):
        names: list[object] = [each for operand in instruction.operands for each in parts(operand)]
        if instruction.guard is not None:
            names.append(Register(instruction.guard.register))
        for each in names:
            if isinstance(each, Register):
                yield split(declared(each.name, kernel)[0])[1], 2 * place + 1
            elif isinstance(each, Symbol):
                yield split(each.name)[1], 2 * place + 1
