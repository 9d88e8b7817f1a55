"""Loads and stores at known addresses, in the widths that the address allows; sizes and fills of narrow accesses."""

from __future__ import annotations

import re

import numpy as np

from bitwise_amd_gfx942.opcodes.forms import form
from bitwise_amd_gfx942.opcodes.selected_parts import widened
from bitwise_core.assembly.module import Instruction
from bitwise_core.execution.architecture import UnknownInstruction
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.memory.access import load_global, store_global
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import concat, extract
from bitwise_core.execution.values.symbolic_vector import Array, PackedVector, SymbolicVector, Value

_SIZES = {
    "ubyte": (8, False), "sbyte": (8, True), "byte": (8, False), "ushort": (16, False), "sshort": (16, True),
    "short": (16, False), "dword": (32, False), "dwordx2": (64, False), "dwordx3": (96, False), "dwordx4": (128, False),
}  # fmt: skip
_NAME = re.compile(r"\w+?_(?:load|store)_(\w+?)(_d16|_d16_hi)?")


class Width:
    """What an access moves: `bits`, with its sign where it is loaded into more, into (or from) half a register."""

    __slots__ = ("bits", "half", "high", "signed")

    def __init__(self, instruction: Instruction) -> None:
        """Raises UnknownInstruction for a name that says no width."""
        found = _NAME.fullmatch(form(instruction.opcode).name)
        if found is None or found[1] not in _SIZES:
            raise UnknownInstruction(instruction)
        self.bits, self.signed = _SIZES[found[1]]
        self.half, self.high = found[2] is not None, found[2] == "_d16_hi"

    @property
    def register_bits(self) -> int:
        """The width of the registers that are written."""
        return 16 if self.half else max(self.bits, 32)

    def extended(self, machine: Machine, value: Value) -> Value:
        """What a load leaves in its registers."""
        return (
            value
            if self.bits >= self.register_bits
            else widened(machine, value, self.bits, self.register_bits, self.signed)
        )

    def stored(self, value: Value) -> Value:
        """What a store takes of its registers."""
        return extract(value, 16 if self.high else 0, self.bits) if self.bits < 32 else value


def unit(machine: Machine, address: Array, bits: int, most: int = 32) -> int:
    """The widest access of at most so many bits to which the address is aligned in every active lane."""
    size = min(bits, most)
    while size > 8:
        astray = (address & np.uint64(size // 8 - 1)) != 0
        if machine.mask is not None:
            astray = astray & machine.mask
        if not astray.any():
            break
        size //= 2
    return size


def load_words(machine: Machine, address: Array, bits: int, line: int) -> Value:
    """So many bits of global memory from each active lane's address on.  Raises Unsupported."""
    size = unit(machine, address, bits)
    parts = []
    for low in range(0, bits, size):
        place = address + np.uint64(low // 8) if low else address
        parts.append(load_global(machine, place, size, line))
    return concat(parts)


def is_one(value: Value) -> bool:
    """Whether two registers hold, in some lanes, one computed value of 64 bits, such as a number of fp64."""
    if isinstance(value, PackedVector):
        return value.whole is not None and bool(value.whole.any())
    if not isinstance(value, SymbolicVector):
        return False
    kind = value.flags & L.KIND
    return bool(np.any((kind == L.TERM) | (kind == L.AC_TERMS)) and not np.any(kind == L.LOAD))


def store_words(machine: Machine, address: Array, value: Value, bits: int, line: int) -> None:
    """Stores so many bits from each active lane's address on.  Raises Unsupported."""
    size = unit(machine, address, bits)
    if (
        bits % 64 == 0
        and size == 32
        and unit(machine, address, 64, 64) == 64
        and all(is_one(extract(value, low, 64)) for low in range(0, bits, 64))
    ):
        size = 64
    for low in range(0, bits, size):
        place = address + np.uint64(low // 8) if low else address
        store_global(machine, place, extract(value, low, size), size, line)
