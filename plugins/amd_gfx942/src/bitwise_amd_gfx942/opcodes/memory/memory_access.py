"""Loads and stores at known addresses, in units of the alignment; the widths of accesses by mnemonic."""

from __future__ import annotations

import re

import numpy as np

from bitwise_amd_gfx942.opcodes.forms import form
from bitwise_amd_gfx942.opcodes.operands.operand_access import Reader, Writer, half_writer, part_reader, writer
from bitwise_amd_gfx942.opcodes.operands.sdwa import widened
from bitwise_core.assembly.module import Instruction, Operand
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


class AccessWidth:
    """The width of an access.

    `bits` in memory; `signed`: a load sign-extends; `half`: a load writes half a register; `high`: the high half, also
    of a store.
    """

    __slots__ = ("bits", "half", "high", "signed")

    def __init__(self, instruction: Instruction) -> None:
        """Raises UnknownInstruction for a mnemonic without a width."""
        found = _NAME.fullmatch(form(instruction.opcode).name)
        if found is None or found[1] not in _SIZES:
            raise UnknownInstruction(instruction)
        self.bits, self.signed = _SIZES[found[1]]
        self.half, self.high = found[2] is not None, found[2] == "_d16_hi"

    @property
    def register_bits(self) -> int:
        """The width in bits of the register, or half register, that a load writes."""
        return 16 if self.half else max(self.bits, 32)

    def register_writer(self, target: Operand, instruction: Instruction) -> Writer:
        """Return what writes a loaded value of `register_bits` to the registers of a load."""
        if self.half:
            return half_writer(target, self.high, instruction, from_memory=True)
        return writer(target, self.register_bits, instruction)

    def to_register(self, machine: Machine, value: Value) -> Value:
        """The loaded value extended to the width of its registers."""
        return (
            value
            if self.bits >= self.register_bits
            else widened(machine, value, self.bits, self.register_bits, self.signed)
        )

    def stored_reader(self, source: Operand, instruction: Instruction) -> Reader:
        """Return the reader of what a store of at most 32 bits writes: the low or the high bits of its register."""
        return part_reader(source, 16 if self.high else 0, self.bits, instruction)


def aligned_access_bits(machine: Machine, address: Array, bits: int, limit: int = 32) -> int:
    """The widest access, at most `bits` and `limit` bits, to which the address is aligned in every active lane."""
    size = min(bits, limit)
    while size > 8:
        misaligned = (address & np.uint64(size // 8 - 1)) != 0
        if machine.mask is not None:
            misaligned = misaligned & machine.mask
        if not misaligned.any():
            break
        size //= 2
    return size


def load_words(machine: Machine, address: Array, bits: int, line: int, *, follows_pointers: bool = False) -> Value:
    """Load `bits` bits of global memory at the address of each active lane.  Raises Unsupported.

    `follows_pointers`: the registers with words of a pointer that the launch gives there are noted.
    """
    pairs = follows_pointers and machine.memory.given.has_pointers and bits % 64 == 0
    size = aligned_access_bits(machine, address, bits, 64 if pairs else 32)
    parts = []
    for low in range(0, bits, size):
        part_address = address + np.uint64(low // 8) if low else address
        parts.append(load_global(machine, part_address, size, line))
    return concat(parts)


def is_64_bit_value(value: Value) -> bool:
    """Whether two registers hold, in some lanes, one computed value of 64 bits, such as an fp64 number."""
    if isinstance(value, PackedVector):
        return value.whole is not None and bool(value.whole.any())
    if not isinstance(value, SymbolicVector):
        return False
    kind = value.flags & L.KIND
    return bool(np.any((kind == L.TERM) | (kind == L.AC_TERMS)) and not np.any(kind == L.LOAD))


def store_words(machine: Machine, address: Array, value: Value, bits: int, line: int) -> None:
    """Store `bits` bits at the address of each active lane.  Raises Unsupported."""
    size = aligned_access_bits(machine, address, bits)
    if (
        bits % 64 == 0
        and size == 32
        and aligned_access_bits(machine, address, 64, 64) == 64
        and all(is_64_bit_value(extract(value, low, 64)) for low in range(0, bits, 64))
    ):
        size = 64
    for low in range(0, bits, size):
        part_address = address + np.uint64(low // 8) if low else address
        store_global(machine, part_address, extract(value, low, size), size, line)
