"""global_ and flat_ loads and stores: a 64-bit address, or a scalar base and a 32-bit offset.

Source: AMD Instinct MI300 ISA, "Flat memory instructions".  Cache modifiers do not change what is read or written.
"""

from __future__ import annotations

import numpy as np

from bitwise_amd_gfx942.addresses.address_words import note_loaded_pointers
from bitwise_amd_gfx942.opcodes.forms import Table, check_modifiers, form, immediate_offset
from bitwise_amd_gfx942.opcodes.memory.memory_access import AccessWidth, load_words, store_words
from bitwise_amd_gfx942.opcodes.memory.pointer_provenance import buffers_of, record_pointer_sum
from bitwise_amd_gfx942.opcodes.operands.execution_mask import vector_opcode
from bitwise_amd_gfx942.opcodes.operands.operand_access import Reader, join_registers, reader, word_reader
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
"""Modifiers that affect only caches."""

LOADS = (
    "ubyte", "sbyte", "ushort", "sshort", "dword", "dwordx2", "dwordx3", "dwordx4", "ubyte_d16", "ubyte_d16_hi",
    "sbyte_d16", "sbyte_d16_hi", "short_d16", "short_d16_hi",
)  # fmt: skip
STORES = ("byte", "short", "dword", "dwordx2", "dwordx3", "dwordx4", "byte_d16_hi", "short_d16_hi")


def address_reader(instruction: Instruction, address: Operand, base: Operand | None) -> Reader:
    """The reader of the 64-bit address given by the operands and the offset.  Raises UnknownInstruction."""
    offset = immediate_offset(instruction, check_modifiers(instruction, "offset", *CACHE), 13, signed=True)
    if base is None or base == Symbol("off"):
        whole = reader(address, "b64", instruction)
        return lambda machine: add_address(machine, whole(machine), literal(offset, 64)) if offset else whole(machine)
    scalar, varying = reader(base, "b64", instruction), reader(address, "b32", instruction)

    def read(machine: Machine) -> Value:
        start = scalar(machine)
        if offset:
            start = add_address(machine, start, literal(offset, 64))
        return add_address(machine, start, zero_extend(varying(machine)))

    return read


def add_address(machine: Machine, left: Value, right: Value) -> Value:
    """A 64-bit sum, with its pointer provenance recorded."""
    result = apply_integer(machine, operation("add.b64"), [left, right])
    record_pointer_sum(machine, result, left, right)
    return result


def zero_extend(value: Value) -> Value:
    """32 bits zero-extended to 64."""
    if isinstance(value, np.ndarray):
        return value.astype(np.uint64)
    return concat([value, literal(0, 32)])


@vector_opcode(
    TABLE,
    *(f"{space}_load_{kind}" for space in ("global", "flat") for kind in LOADS),
    operands=DESTINATION_FIRST,
    effects=Effect.LOAD,
)
def load(instruction: Instruction, context: Context) -> Step:
    """Loads of 8 to 128 bits; narrow ones are extended, or written to half a register."""
    width = AccessWidth(instruction)
    flat = form(instruction.opcode).name.startswith("flat")
    if len(instruction.operands) != (2 if flat else 3):
        raise UnknownInstruction(instruction, "does not take these operands")
    target, address_operand, *rest = instruction.operands
    base = rest[0] if rest else None
    read = address_reader(instruction, address_operand, base)
    line = instruction.line
    write = width.register_writer(target, instruction)

    def step(machine: Machine) -> None:
        address = read(machine)
        known = machine.known(address)
        if known is not None:
            note_loaded_pointers(machine, instruction, known, width.bits // 32)
            value = load_words(machine, known, width.bits, line, follows_pointers=True)
        else:
            buffers = buffers_of(machine, address)
            size = min(width.bits, 32)
            parts = [
                machine.memory.gather(
                    add_address(machine, address, literal(low // 8, 64)) if low else address,
                    size,
                    machine.mask,
                    line,
                    buffers,
                )
                for low in range(0, width.bits, size)
            ]
            value = concat(parts)
        write(machine, width.to_register(machine, value))

    return step


@vector_opcode(
    TABLE,
    *(f"{space}_store_{kind}" for space in ("global", "flat") for kind in STORES),
    operands=NO_DESTINATION,
    effects=Effect.STORE,
)
def store(instruction: Instruction, context: Context) -> Step:
    """Stores of 8 to 128 bits."""
    width = AccessWidth(instruction)
    flat = form(instruction.opcode).name.startswith("flat")
    if len(instruction.operands) != (2 if flat else 3):
        raise UnknownInstruction(instruction, "does not take these operands")
    address_operand, source, *rest = instruction.operands
    read = address_reader(instruction, address_operand, rest[0] if rest else None)
    value_of: Reader
    if width.bits <= 32:
        value_of = width.stored_reader(source, instruction)
    else:
        value_of = reader(source, "b64", instruction) if width.bits == 64 else tuple_reader(source, instruction)
    line = instruction.line

    def step(machine: Machine) -> None:
        address = read(machine)
        value = value_of(machine)
        known = machine.known(address)
        if known is None:
            machine.memory.scatter(machine, address, value, line)
            return
        store_words(machine, known, value, width.bits, line)

    return step


def tuple_reader(operand: Operand, instruction: Instruction) -> Reader:
    """The reader of several registers, joined into one value.  Raises UnknownInstruction for any other operand."""
    if not isinstance(operand, Vector):
        raise UnknownInstruction(instruction, "takes several registers")
    parts = [word_reader(each.name, instruction) for each in operand.items if isinstance(each, Register)]
    return lambda machine: join_registers(machine, parts)
