"""Atomic operations on global memory: contributions whose order is not determined.

Source: AMD Instinct MI300 ISA, "Flat memory instructions" and "Vector memory buffer instructions".  The treatment of
subnormal numbers by floating-point additions in memory is not documented for fp32, fp16 and bf16, so these additions
are named operations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from bitwise_amd_gfx942.opcodes.forms import Table, form
from bitwise_amd_gfx942.opcodes.memory.buffers import BufferAccess, access_reader, lanes_in_bounds
from bitwise_amd_gfx942.opcodes.memory.flat import add_address, address_reader, tuple_reader, zero_extend
from bitwise_amd_gfx942.opcodes.memory.pointer_provenance import buffers_of
from bitwise_amd_gfx942.opcodes.memory.shared_memory import order_wave_accesses, shared_address
from bitwise_amd_gfx942.opcodes.memory.shared_reads import read_offset
from bitwise_amd_gfx942.opcodes.operands.execution_mask import vector_opcode
from bitwise_amd_gfx942.opcodes.operands.implicit_registers import EXECUTION_MASK, with_implicit
from bitwise_amd_gfx942.opcodes.operands.operand_access import Reader, reader, writer
from bitwise_core.assembly.module import Instruction, Operand, Vector, registers_of
from bitwise_core.execution.active_lanes import active_lanes, active_values
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.domains.domain import DataDependent, Unsupported
from bitwise_core.execution.instruction_info import (
    DESTINATION_FIRST,
    NO_DESTINATION,
    UPDATED_FIRST,
    Effect,
    InstructionInfo,
)
from bitwise_core.execution.launch import buffer_at
from bitwise_core.execution.machine import Machine, Step, conjunction
from bitwise_core.execution.memory.access import check_in_buffer, update_global, update_shared
from bitwise_core.execution.memory.atomic_changes import ONE_OPERAND, compare_and_exchange
from bitwise_core.execution.values.packing import as_symbolic_vector, blend_values, extract
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value, constant_mask
from bitwise_core.execution.values.term_hash import poison
from bitwise_core.numerics import Operation, operation

TABLE = Table()

_KINDS: Mapping[str, tuple[str, int]] = {
    **{
        f"{word}{ending}": (f"{verb}{bits}", 1)
        for word, verb in (
            ("add", "add.b"), ("and", "and.b"), ("or", "or.b"), ("xor", "xor.b"), ("smin", "min.s"),
            ("smax", "max.s"), ("umin", "min.u"), ("umax", "max.u"),
        )
        for ending, bits in (("", 32), ("_x2", 64))
    },
    "add_f32": ("add.rn.atomic.fp32@{}", 1),
    "add_f64": ("add.rn.fp64", 1),
    "pk_add_f16": ("add.rn.atomic.fp16@{}", 2),
    "pk_add_bf16": ("add.rn.atomic.bf16@{}", 2),
}  # fmt: skip
"""By the end of the mnemonic: the operation, with a place for the architecture, and the number of packed elements."""

_SHARED_UPDATES: Mapping[str, str] = {
    f"ds_{verb}_{kind}{bits}": f"{verb}.{operands}{bits}"
    for verbs, kinds in (("add", {"u": "b"}), ("min max", {"i": "s", "u": "u"}), ("and or xor", {"b": "b"}))
    for verb in verbs.split()
    for kind, operands in kinds.items()
    for bits in (32, 64)
}
"""The operations on integers in shared memory whose order does not matter, by the mnemonic without a result."""
_NAME = re.compile(r"(global|flat|buffer)_atomic_(\w+)")

_UNBOUNDED = (1 << 31) - (1 << 13)
"""2**31 bytes less the largest constant offset: a smaller bound is one that the kernel computes for masking."""


def _atomic_info(instruction: Instruction) -> InstructionInfo:
    """The declaration of an atomic operation: sc0 returns the old value, which buffer forms write to the source."""
    found = form(instruction.opcode)
    if "sc0" not in found.modifiers:
        return NO_DESTINATION.info(instruction, Effect.STORE)
    operands = UPDATED_FIRST if found.name.startswith("buffer") else DESTINATION_FIRST
    return replace(
        operands.info(instruction, Effect.LOAD | Effect.STORE),
        nondeterministic_result="an atomic operation gives back a value that depends on the order of threads",
    )


@vector_opcode(
    TABLE,
    *(f"{space}_atomic_{kind}" for space in ("global", "flat", "buffer") for kind in _KINDS),
    operands=_atomic_info,
)
def atomic(instruction: Instruction, context: Context) -> Step:
    """An atomic operation by each active lane; with sc0 it returns the old value, which depends on thread order."""
    found = _NAME.fullmatch(form(instruction.opcode).name)
    assert found is not None
    name, count = _KINDS[found[2]]
    meaning = operation(name.format(context.arch.name))
    bits = meaning.bits
    modifiers = form(instruction.opcode).modifiers
    if "glc" in modifiers:
        raise UnknownInstruction(instruction, "has the modifier glc, which this machine does not have")
    returns = "sc0" in modifiers
    operands = instruction.operands
    line = instruction.line
    if found[1] == "buffer":
        return _buffer_atomic(instruction, meaning, count, returns)
    target: Operand | None = None
    if returns:
        target, *rest = operands
    else:
        rest = list(operands)
    if len(rest) not in (2, 3) or (found[1] == "global") != (len(rest) == 3):
        raise UnknownInstruction(instruction, "does not take these operands")
    base = rest[2] if len(rest) == 3 else None
    read_address = address_reader(instruction, rest[0], base)
    value_of = reader(rest[1], f"b{max(32, bits * count)}", instruction)
    finish = _old_value_writer(target, bits * count, instruction)

    def step(machine: Machine) -> None:
        address, value = read_address(machine), value_of(machine)
        known = machine.known(address)
        if known is None or machine.condition is not None:
            _contribute(machine, meaning, address, value, count, line, buffers_of(machine, address))
        else:
            _add(machine, meaning, known, value, count, line)
        finish(machine)

    return step


_UPDATES = {"swap": "exchange", "cmpswap": "", "inc": "increment", "dec": "decrement"}
"""The operations whose order decides the content: the change by one operand; a comparison and exchange has two."""

_UPDATE_NAME = re.compile(r"(global|flat|buffer)_atomic_(swap|cmpswap|inc|dec)(_x2)?")


def _update_info(instruction: Instruction) -> InstructionInfo:
    info = _atomic_info(instruction)
    found = form(instruction.opcode)
    if "cmpswap" in found.name and found.name.startswith("buffer") and "sc0" in found.modifiers:
        info = replace(info, writes=frozenset(registers_of(_returned(instruction.operands[0]))))
    return replace(
        info,
        nondeterminism="an atomic operation's result depends on the order of threads",
    )


@vector_opcode(
    TABLE,
    *(
        f"{space}_atomic_{kind}{wide}"
        for space in ("global", "flat", "buffer")
        for kind in _UPDATES
        for wide in ("", "_x2")
    ),
    operands=_update_info,
)
def update(instruction: Instruction, context: Context) -> Step:
    """Exchanges, comparisons and exchanges, increments and decrements by each active lane.

    The data of a comparison and exchange holds the value in its lower half and the expected content in the upper one.
    """
    found = _UPDATE_NAME.fullmatch(form(instruction.opcode).name)
    assert found is not None
    space, kind, bits = found[1], found[2], 64 if found[3] else 32
    modifiers = form(instruction.opcode).modifiers
    if "glc" in modifiers:
        raise UnknownInstruction(instruction, "has the modifier glc, which this machine does not have")
    returns = "sc0" in modifiers
    size = 2 * bits if kind == "cmpswap" else bits

    def change_by(machine: Machine, data: Value) -> Callable[[Value], Value]:
        if kind == "cmpswap":
            return compare_and_exchange(machine.domain, extract(data, bits, bits), extract(data, 0, bits))
        return ONE_OPERAND[_UPDATES[kind]](machine.domain, data)

    if space == "buffer":
        return _buffer_update(instruction, change_by, bits, size, returns)
    target, rest = (instruction.operands[0] if returns else None), instruction.operands[1 if returns else 0 :]
    if len(rest) not in (2, 3) or (space == "global") != (len(rest) == 3):
        raise UnknownInstruction(instruction, "does not take these operands")
    read_address = address_reader(instruction, rest[0], rest[2] if len(rest) == 3 else None)
    data_of = _data_reader(rest[1], size, instruction)
    write = None if target is None else writer(target, bits, instruction)
    line = instruction.line

    def step(machine: Machine) -> None:
        old = update_global(machine, read_address(machine), bits, change_by(machine, data_of(machine)), line)
        if write is not None:
            write(machine, old)

    return step


def _returned(data: Operand) -> Operand:
    """The first half of the data of a comparison and exchange, which buffer forms replace by the old value."""
    if not isinstance(data, Vector) or len(data.items) < 2:
        return data
    half = data.items[: len(data.items) // 2]
    return half[0] if len(half) == 1 else Vector(half)


def _data_reader(operand: Operand, size: int, instruction: Instruction) -> Reader:
    return tuple_reader(operand, instruction) if size == 128 else reader(operand, f"b{size}", instruction)


def _buffer_update(
    instruction: Instruction,
    change_by: Callable[[Machine, Value], Callable[[Value], Value]],
    bits: int,
    size: int,
    returns: bool,
) -> Step:
    """An update in a buffer: none out of bounds.  The old value replaces the first registers of the data."""
    if len(instruction.operands) != 4:
        raise UnknownInstruction(instruction, "does not take these operands")
    source = instruction.operands[0]
    data_of = _data_reader(source, size, instruction)
    find = access_reader(instruction, instruction.operands[1:])
    write = writer(_returned(source) if size > bits else source, bits, instruction)
    line = instruction.line

    def step(machine: Machine) -> None:
        access, data = find(machine), data_of(machine)
        known = machine.known(access.offset)
        if known is None:
            raise DataDependent("an atomic operation at an offset that depends on data may lie out of bounds", line)
        outer = machine.mask, machine.condition
        inside = lanes_in_bounds(machine, access, bits, line)
        old: Value = poison(bits)
        try:
            if access.condition is not None:
                machine.condition = conjunction(machine.domain, machine.condition, access.condition)
            machine.mask = inside if machine.mask is None else machine.mask & inside
            if machine.mask.any():
                address = access.base + known.astype(np.uint64)
                changed = update_global(machine, address, bits, change_by(machine, data), line)
                old = blend_values(machine.mask, changed, old)
        finally:
            machine.mask, machine.condition = outer
        if returns:
            write(machine, old)

    return step


def _shared_atomic_info(instruction: Instruction) -> InstructionInfo:
    operands = DESTINATION_FIRST if "_rtn_" in instruction.opcode else NO_DESTINATION
    return with_implicit(operands, Effect.LOAD | Effect.STORE, reads=EXECUTION_MASK)(instruction)


@vector_opcode(TABLE, *_SHARED_UPDATES, operands=NO_DESTINATION, effects=Effect.LOAD | Effect.STORE)
def update_in_shared_memory(instruction: Instruction, context: Context) -> Step:
    """Operations on integers in shared memory whose order does not matter, and that return nothing."""
    if len(instruction.operands) != 2:
        raise UnknownInstruction(instruction, "takes two operands")
    address_operand, source = instruction.operands
    meaning = operation(_SHARED_UPDATES[form(instruction.opcode).name])
    read_address, offset = reader(address_operand, "b32", instruction), read_offset(instruction)
    value_of, line = reader(source, f"b{meaning.bits}", instruction), instruction.line

    def step(machine: Machine) -> None:
        order_wave_accesses(machine)
        address = shared_address(machine, read_address(machine), offset, line)
        if (active_values(address, active_lanes(machine.mask, address)) % np.uint64(meaning.bits // 8)).any():
            raise Unsupported("an atomic operation on shared memory is not aligned", line)
        update_shared(machine, address, meaning, value_of(machine))

    return step


@TABLE.opcode(
    *sorted(
        {f"ds_{verb}{back}_{kind}" for verb in ("add", "sub", "min", "max", "and", "or", "xor", "inc", "dec")
         for back in ("", "_rtn") for kind in ("u32", "u64", "i32", "i64", "b32", "b64", "f32", "f64")}
        - _SHARED_UPDATES.keys()
    ),
    *(f"ds_{verb}_rtn_b{bits}" for verb in ("wrxchg", "cmpst") for bits in (32, 64)), operands=_shared_atomic_info
)  # fmt: skip
def in_shared_memory(instruction: Instruction, context: Context) -> Step:
    """Other atomic operations on shared memory, which are not modelled.  Raises UnknownInstruction."""
    raise UnknownInstruction(instruction, "is an atomic operation on shared memory, which is not modelled")


def _buffer_atomic(instruction: Instruction, meaning: Operation, count: int, returns: bool) -> Step:
    bits = meaning.bits
    if len(instruction.operands) != 4:
        raise UnknownInstruction(instruction, "does not take these operands")
    source = instruction.operands[0]
    value_of = reader(source, f"b{max(32, bits * count)}", instruction)
    find = access_reader(instruction, instruction.operands[1:])
    finish = _old_value_writer(source if returns else None, bits * count, instruction)
    line = instruction.line

    def step(machine: Machine) -> None:
        access, value = find(machine), value_of(machine)
        outer = machine.mask, machine.condition
        if access.condition is not None:
            machine.condition = conjunction(machine.domain, machine.condition, access.condition)
        try:
            known = machine.known(access.offset)
            if known is not None:
                inside = lanes_in_bounds(machine, access, bits * count, line)
                machine.mask = inside if machine.mask is None else machine.mask & inside
            if known is None:
                machine.mask = _mask_in_bounds(machine, access)
            if known is None and (access.bound < _UNBOUNDED).any():
                raise DataDependent("an atomic operation at an offset that depends on data may lie out of bounds", line)
            if known is None or machine.condition is not None:
                address = add_address(machine, access.base, zero_extend(access.offset))
                _contribute(machine, meaning, address, value, count, line, _buffers(access))
            elif machine.mask is None or machine.mask.any():
                _add(machine, meaning, access.base + known.astype(np.uint64), value, count, line)
        finally:
            machine.mask, machine.condition = outer
        finish(machine)

    return step


def _mask_in_bounds(machine: Machine, access: BufferAccess) -> Array | None:
    """The active lanes, less those at a known offset out of bounds, by which compilers mask lanes off."""
    offset = access.offset
    if not isinstance(offset, SymbolicVector):
        return machine.mask
    known = constant_mask(offset)
    if known is False:
        return machine.mask
    inside: Array = np.logical_not(known & (offset.words[0] >= access.bound.astype(np.uint64)))
    if inside.all():
        return machine.mask
    return inside if machine.mask is None else machine.mask & inside


def _buffers(access: BufferAccess) -> list[int]:
    return sorted({buffer_at(int(each)) for each in access.base.flat})


def _old_value_writer(target: Operand | None, bits: int, instruction: Instruction) -> Callable[[Machine], None]:
    """The step that writes the old value, which is not determined, to the target, if there is one."""
    if target is None:
        return lambda machine: None
    write = writer(target, max(32, bits), instruction)
    line = instruction.line

    def finish(machine: Machine) -> None:
        write(machine, machine.memory.old_value(max(32, bits), (machine.blocks, machine.threads), line))

    return finish


def _elements(value: Value, bits: int, count: int) -> Sequence[Value]:
    return [extract(value, bits * each, bits) for each in range(count)] if count > 1 else [value]


def _add(machine: Machine, meaning: Operation, address: Array, value: Value, count: int, line: int) -> None:
    check_in_buffer(machine, address, line)
    bits = meaning.bits
    for index, part in enumerate(_elements(value, bits, count)):
        element_address = address + np.uint64(index * bits // 8) if index else address
        machine.memory.atomic(meaning, element_address, part, machine.mask, machine.thread, machine.epoch, line)


def _contribute(
    machine: Machine,
    meaning: Operation,
    address: Value,
    value: Value,
    count: int,
    line: int,
    buffers: list[int] | None,
) -> None:
    shape = (machine.blocks, machine.threads)
    parts: list[Value] = [address, *_elements(value, meaning.bits, count)]
    if machine.condition is not None:
        parts.append(as_symbolic_vector(machine.condition))
    machine.memory.contribute(meaning, parts, machine.mask, shape, line, buffers)
