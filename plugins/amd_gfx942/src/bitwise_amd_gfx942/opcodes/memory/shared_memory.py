"""ds_ reads and writes of shared memory (LDS).

Source: AMD Instinct MI300 ISA, "Local data share (LDS)".  The lanes of a wave run in lockstep, and its accesses happen
in program order: only accesses of different waves need a barrier.
"""

from __future__ import annotations

import numpy as np

from bitwise_amd_gfx942.opcodes.forms import Table, form
from bitwise_amd_gfx942.opcodes.memory.flat import tuple_reader
from bitwise_amd_gfx942.opcodes.memory.memory_access import is_64_bit_value
from bitwise_amd_gfx942.opcodes.memory.shared_reads import element_bits_and_stride, read_offset, reads_of_runs
from bitwise_amd_gfx942.opcodes.memory.shared_writes import writes_of_runs
from bitwise_amd_gfx942.opcodes.operands.execution_mask import vector_opcode
from bitwise_amd_gfx942.opcodes.operands.operand_access import half_writer, part_reader, reader, writer
from bitwise_amd_gfx942.opcodes.operands.sdwa import widened
from bitwise_core.assembly.module import Instruction
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.domains.domain import DataDependent
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, NO_DESTINATION, Effect
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.memory.access import read_shared, write_shared
from bitwise_core.execution.values.packing import concat, extract
from bitwise_core.execution.values.symbolic_vector import Array, Value

TABLE = Table()

_NARROW = {"u8": (8, False), "i8": (8, True), "u16": (16, False), "i16": (16, True)}


def order_wave_accesses(machine: Machine) -> None:
    """Order the wave's earlier accesses before its next one."""
    warps = machine.active_warps()
    for races in machine.races.acting(machine.mask):
        races.warp_barrier(warps)


def shared_address(machine: Machine, value: Value, offset: int, line: int) -> Array:
    """The address plus the offset, wrapped to 32 bits.  Raises Unsupported where it depends on data."""
    known = machine.known(value)
    if known is None:
        raise DataDependent("shared memory is accessed at an address that depends on data", line)
    return (known + np.uint32(offset)).astype(np.uint64)


def _read(machine: Machine, address: Array, bits: int) -> Value:
    sizes = {96: (64, 32), 128: (64, 64)}.get(bits, (bits,))
    parts, start = [], 0
    for size in sizes:
        parts.append(read_shared(machine, address + np.uint64(start) if start else address, size))
        start += size // 8
    return concat(parts)


def _write(machine: Machine, address: Array, value: Value, bits: int) -> None:
    parts, low = [], 0
    while low < bits:
        size = min(32, bits - low)
        if bits - low >= 64 and is_64_bit_value(extract(value, low, 64)):
            size = 64
        parts.append(extract(value, low, size))
        low += size
    write_shared(machine, address, *parts)


_READS = {f"ds_read_b{bits}": bits for bits in (32, 64, 96, 128)}


@vector_opcode(
    TABLE,
    *_READS,
    *(f"ds_read_{kind}{half}" for kind in _NARROW for half in ("", "_d16", "_d16_hi")),
    operands=DESTINATION_FIRST,
    effects=Effect.LOAD,
)
def read(instruction: Instruction, context: Context) -> Step:
    """Reads of 8 to 128 bits; narrow ones are extended, or written to half a register."""
    name = form(instruction.opcode).name
    if len(instruction.operands) != 2:
        raise UnknownInstruction(instruction, "takes two operands")
    kind, _, half = name.removeprefix("ds_read_").partition("_")
    bits, is_signed = (_READS[name], False) if name in _READS else _NARROW[kind]
    if half and bits != 16 and not half.startswith("d16"):
        raise UnknownInstruction(instruction)
    out = 16 if half else max(bits, 32)
    target, source = instruction.operands
    offset, read_address = read_offset(instruction), reader(source, "b32", instruction)
    write = (
        half_writer(target, half == "d16_hi", instruction, from_memory=True)
        if half
        else writer(target, out, instruction)
    )
    line, together = instruction.line, reads_of_runs(context.kernel, context.arch.opcodes).get(id(instruction))

    def step(machine: Machine) -> None:
        order_wave_accesses(machine)
        parts = None if together is None else together.parts(machine)
        if parts is None:
            value = _read(machine, shared_address(machine, read_address(machine), offset, line), bits)
        else:
            value = concat(parts)
        write(machine, value if bits >= out else widened(machine, value, bits, out, is_signed))

    return step


@vector_opcode(
    TABLE,
    *(f"ds_read2{stride}_b{bits}" for stride in ("", "st64") for bits in (32, 64)),
    operands=DESTINATION_FIRST,
    effects=Effect.LOAD,
)
def read_element_bits_and_stride(instruction: Instruction, context: Context) -> Step:
    """Two reads at one base; the offsets are in elements, or in units of 64 elements (st64)."""
    found = element_bits_and_stride(form(instruction.opcode).name)
    assert found is not None
    bits, factor = found
    if len(instruction.operands) != 2:
        raise UnknownInstruction(instruction, "takes two operands")
    target, source = instruction.operands
    offsets = [factor * read_offset(instruction, name) for name in ("offset0", "offset1")]
    read_base, write = reader(source, "b32", instruction), writer(target, 2 * bits, instruction)
    line, together = instruction.line, reads_of_runs(context.kernel, context.arch.opcodes).get(id(instruction))

    def step(machine: Machine) -> None:
        order_wave_accesses(machine)
        parts = None if together is None else together.parts(machine)
        if parts is None:
            base = read_base(machine)
            parts = [_read(machine, shared_address(machine, base, each, line), bits) for each in offsets]
        write(machine, concat(parts))

    return step


_WRITES = {"b8": 8, "b16": 16, "b32": 32, "b64": 64, "b96": 96, "b128": 128, "b8_d16_hi": 8, "b16_d16_hi": 16}


@vector_opcode(TABLE, *(f"ds_write_{kind}" for kind in _WRITES), operands=NO_DESTINATION, effects=Effect.STORE)
def write_one(instruction: Instruction, context: Context) -> Step:
    """Writes of 8 to 128 bits; narrow ones from the low or the high half of a register."""
    kind = form(instruction.opcode).name.removeprefix("ds_write_")
    bits, low = _WRITES[kind], 16 if kind.endswith("_hi") else 0
    if len(instruction.operands) != 2:
        raise UnknownInstruction(instruction, "takes two operands")
    address_operand, source = instruction.operands
    read_address, offset = reader(address_operand, "b32", instruction), read_offset(instruction)
    value_of = tuple_reader(source, instruction) if bits > 32 else part_reader(source, low, bits, instruction)
    line, together = instruction.line, writes_of_runs(context.kernel, context.arch.opcodes).get(id(instruction))

    def step(machine: Machine) -> None:
        if together is not None and together.was_made(machine):
            return
        order_wave_accesses(machine)
        if together is not None and together.make_all(machine):
            return
        value = value_of(machine)
        address = shared_address(machine, read_address(machine), offset, line)
        _write(machine, address, value, bits)

    return step


@vector_opcode(
    TABLE,
    *(f"ds_write2{stride}_b{bits}" for stride in ("", "st64") for bits in (32, 64)),
    operands=NO_DESTINATION,
    effects=Effect.STORE,
)
def write_element_bits_and_stride(instruction: Instruction, context: Context) -> Step:
    """Two writes at one base; the offsets are in elements, or in units of 64 elements (st64)."""
    found = element_bits_and_stride(form(instruction.opcode).name)
    assert found is not None
    bits, factor = found
    if len(instruction.operands) != 3:
        raise UnknownInstruction(instruction, "takes three operands")
    address_operand, *sources = instruction.operands
    read_base = reader(address_operand, "b32", instruction)
    offsets = [factor * read_offset(instruction, name) for name in ("offset0", "offset1")]
    values = [reader(each, f"b{bits}", instruction) for each in sources]
    line = instruction.line
    if offsets[0] == offsets[1]:
        raise UnknownInstruction(instruction, "writes two values to one place, in an order that is not documented")

    def step(machine: Machine) -> None:
        order_wave_accesses(machine)
        stored = [each(machine) for each in values]
        base = read_base(machine)
        for value, offset in zip(stored, offsets, strict=True):
            _write(machine, shared_address(machine, base, offset, line), value, bits)

    return step
