"""global_ and flat_ loads and stores: an address of 64 bits, or a scalar base and an offset of 32 bits.

Source: AMD Instinct MI300 ISA, "Flat memory instructions".  Cache modifiers do not change what is read or written.
"""

from __future__ import annotations

import numpy as np

from bitwise_amd_gfx942.opcodes.acting import vector
from bitwise_amd_gfx942.opcodes.addressing import Width, load_words, store_words
from bitwise_amd_gfx942.opcodes.bases import buffers_of, remember_base
from bitwise_amd_gfx942.opcodes.forms import Table, check_modifiers, form, offset_of
from bitwise_amd_gfx942.opcodes.sources import Reader, half_writer, reader, side_by_side, word_reader, writer
from bitwise_core.assembly.module import Instruction, Operand, Register, Symbol, Vector
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, NO_DESTINATION, Effect
from bitwise_core.execution.machine import Machine, Step, literal
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values.packing import concat
from bitwise_core.execution.values.symbolic_vector import Value
from bitwise_core.numerics import operation

TABLE = Table()

CACHE = ("sc0", "sc1", "nt", "glc", "slc")
"""Modifiers that speak of caches alone."""

LOADS = (
    "ubyte", "sbyte", "ushort", "sshort", "dword", "dwordx2", "dwordx3", "dwordx4", "ubyte_d16", "ubyte_d16_hi",
    "sbyte_d16", "sbyte_d16_hi", "short_d16", "short_d16_hi",
)  # fmt: skip
STORES = ("byte", "short", "dword", "dwordx2", "dwordx3", "dwordx4", "byte_d16_hi", "short_d16_hi")


def address_reader(instruction: Instruction, address: Operand, base: Operand | None) -> Reader:
    """The address of 64 bits that the operands and the offset mean.  Raises UnknownInstruction."""
    offset = offset_of(instruction, check_modifiers(instruction, "offset", *CACHE), 13, signed=True)
    if base is None or base == Symbol("off"):
        whole = reader(address, "b64", instruction)
        return lambda machine: plus(machine, whole(machine), literal(offset, 64)) if offset else whole(machine)
    scalar, varying = reader(base, "b64", instruction), reader(address, "b32", instruction)

    def read(machine: Machine) -> Value:
        start = scalar(machine)
        if offset:
            start = plus(machine, start, literal(offset, 64))
        return plus(machine, start, unsigned(varying(machine)))

    return read


def plus(machine: Machine, left: Value, right: Value) -> Value:
    """A sum of 64 bits."""
    result = apply_integer(machine, operation("add.b64"), [left, right])
    remember_base(machine, result, left, right)
    return result


def unsigned(value: Value) -> Value:
    """32 bits as 64."""
    if isinstance(value, np.ndarray):
        return value.astype(np.uint64)
    return concat([value, literal(0, 32)])


@vector(
    TABLE,
    *(f"{space}_load_{kind}" for space in ("global", "flat") for kind in LOADS),
    operands=DESTINATION_FIRST,
    effects=Effect.LOAD,
)
def load(instruction: Instruction, context: Context) -> Step:
    """Loads of 8 to 128 bits; the narrow ones are widened, or go to half a register."""
    width = Width(instruction)
    flat = form(instruction.opcode).name.startswith("flat")
    if len(instruction.operands) != (2 if flat else 3):
        raise UnknownInstruction(instruction, "does not take these operands")
    target, address, *rest = instruction.operands
    base = rest[0] if rest else None
    read = address_reader(instruction, address, base)
    line = instruction.line
    write = (
        half_writer(target, width.high, instruction, loads=True)
        if width.half
        else writer(target, width.register_bits, instruction)
    )

    def step(machine: Machine) -> None:
        place = read(machine)
        known = machine.known(place)
        if known is not None:
            value = load_words(machine, known, width.bits, line)
        else:
            buffers = buffers_of(machine, place)
            size = min(width.bits, 32)
            parts = [
                machine.memory.gather(
                    plus(machine, place, literal(low // 8, 64)) if low else place, size, machine.mask, line, buffers
                )
                for low in range(0, width.bits, size)
            ]
            value = concat(parts)
        write(machine, width.extended(machine, value))

    return step


@vector(
    TABLE,
    *(f"{space}_store_{kind}" for space in ("global", "flat") for kind in STORES),
    operands=NO_DESTINATION,
    effects=Effect.STORE,
)
def store(instruction: Instruction, context: Context) -> Step:
    """Stores of 8 to 128 bits."""
    width = Width(instruction)
    flat = form(instruction.opcode).name.startswith("flat")
    if len(instruction.operands) != (2 if flat else 3):
        raise UnknownInstruction(instruction, "does not take these operands")
    address, source, *rest = instruction.operands
    read = address_reader(instruction, address, rest[0] if rest else None)
    kind = f"b{max(width.bits, 32)}"
    value_of = reader(source, kind, instruction) if kind in ("b32", "b64") else wide_reader(source, instruction)
    line = instruction.line

    def step(machine: Machine) -> None:
        place = read(machine)
        value = width.stored(value_of(machine))
        known = machine.known(place)
        if known is None:
            machine.memory.scatter(machine, place, value, line)
            return
        store_words(machine, known, value, width.bits, line)

    return step


def wide_reader(operand: Operand, instruction: Instruction) -> Reader:
    """Registers side by side, however many."""
    if not isinstance(operand, Vector):
        raise UnknownInstruction(instruction, "takes several registers")
    parts = [word_reader(each.name, instruction) for each in operand.items if isinstance(each, Register)]
    return lambda machine: side_by_side(machine, parts)
