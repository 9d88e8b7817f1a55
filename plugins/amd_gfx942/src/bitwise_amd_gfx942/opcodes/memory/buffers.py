"""Accesses through a resource descriptor of four scalar registers, with range checking; buffer_store_.

Source: AMD Instinct MI300 ISA, "Vector memory buffer instructions": the descriptor's fields, raw buffers, and range
checking.  Out of bounds a load returns 0 and a store does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bitwise_amd_gfx942.opcodes.forms import Table, check_modifiers, immediate_offset
from bitwise_amd_gfx942.opcodes.memory.flat import CACHE, STORES, add_address, tuple_reader, zero_extend
from bitwise_amd_gfx942.opcodes.memory.memory_access import AccessWidth, load_words, store_words
from bitwise_amd_gfx942.opcodes.memory.pointer_provenance import provenance_of
from bitwise_amd_gfx942.opcodes.memory.select_provenance import split_out_of_bounds
from bitwise_amd_gfx942.opcodes.memory.selected_offsets import SelectedOffset
from bitwise_amd_gfx942.opcodes.operands.execution_mask import vector_opcode
from bitwise_amd_gfx942.opcodes.operands.operand_access import reader
from bitwise_core.assembly.module import Immediate, Instruction, Operand, Register, Symbol, Vector
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.domains.domain import DataDependent, Unsupported
from bitwise_core.execution.instruction_info import NO_DESTINATION, Effect
from bitwise_core.execution.launch import POINTER_SHIFT, buffer_at
from bitwise_core.execution.machine import Machine, Step, conjunction, literal
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values.integers.comparisons import compare_as_integers
from bitwise_core.execution.values.packing import blend_values, concat, extract, slices_of
from bitwise_core.execution.values.symbolic_vector import Array, Value
from bitwise_core.numerics import operation

TABLE = Table()

_RAW = 0x27000
"""The last word of a raw buffer's descriptor: 32-bit data, no thread index added.

Source: AMD Instinct MI300 ISA, "Buffer resource descriptor"; LLVM and Triton write no other value for this machine.
"""


@dataclass(frozen=True, slots=True)
class BufferAccess:
    """The address of an access: the known base (64 bits), each lane's offset (32 bits), the buffer's size in bytes.

    `condition` is a predicate that depends on data, of the lanes in which the access happens if it is in bounds.
    """

    base: Array
    offset: Value
    bound: Array
    condition: Value | None
    offset_terms: tuple[Value, int] | None = None
    """An offset that depends on data as its two summands: the sum may wrap, so both are compared with the bound."""
    data_base: Value | None = None
    """The base where it depends on data; `base` is then a pointer to its buffer."""
    lanes: Array | None = None
    """The lanes whose offset is `offset`, None for all; that of the others is out of bounds."""


def access_reader(
    instruction: Instruction, operands: tuple[Operand, ...], *, by_data: bool = False, further: tuple[str, ...] = ()
) -> Callable[[Machine], BufferAccess]:
    """The function of the machine that returns the address of an access.

    `by_data`: the base may depend on data.  `further` are further modifiers that the access may have.  Raises
    UnknownInstruction.
    """
    found = check_modifiers(instruction, "offen", "offset", *CACHE, *further)
    modifiers = found.modifiers
    varying, resource, scalar = operands
    if not isinstance(resource, Vector) or len(resource.items) != 4:
        raise UnknownInstruction(instruction, "takes a resource of four scalar registers")
    words = tuple_reader(resource, instruction)
    offset = immediate_offset(instruction, found, 12)
    read_varying = None
    if "offen" in modifiers:
        read_varying = reader(varying, "b32", instruction)
    elif varying != Symbol("off"):
        raise UnknownInstruction(instruction, "has an offset register without the modifier offen")
    read_scalar = None
    if scalar != Immediate(0):
        read_scalar = reader(scalar, "b32", instruction)
    line = instruction.line

    def read(machine: Machine) -> BufferAccess:
        descriptor = words(machine)
        low, high = machine.known(extract(descriptor, 0, 64)), machine.known(extract(descriptor, 64, 64))
        data_base = None
        if low is None and by_data and read_scalar is None:
            data_base, low = _data_dependent_base(machine, extract(descriptor, 0, 64))
        if low is None or high is None:
            raise DataDependent("a buffer's descriptor depends on data", line)
        if _in_any_active_lane(machine, (low >> np.uint64(48)) != 0):
            raise Unsupported("a buffer's descriptor has a stride or swizzles, which is not modelled", line)
        if _in_any_active_lane(machine, (high >> np.uint64(32)) != _RAW):
            raise Unsupported("a buffer's descriptor is not of the raw kind that compilers make", line)
        base, bound = low, high.astype(np.uint32)
        start = None if read_scalar is None else machine.known(read_scalar(machine))
        if start is not None:
            if _in_any_active_lane(machine, start > bound):
                raise Unsupported("a buffer's scalar offset lies outside of it", line)
            base, bound = base + start.astype(np.uint64), bound - start
        elif read_scalar is not None:
            raise DataDependent("a buffer's scalar offset depends on data", line)
        value: Value = literal(offset, 32)
        condition = lanes = None
        if read_varying is not None:
            held: Any = machine.registers.get(varying.name) if isinstance(varying, Register) else None
            if type(held) is SelectedOffset:
                value, lanes = held.within(bound)
            else:
                value = read_varying(machine)
            if machine.known(value) is None:
                value, condition = split_out_of_bounds(machine, value, bound)
            if offset:
                terms = None if machine.known(value) is not None else (value, offset)
                total = _add_offset(machine, value, offset)
                return BufferAccess(base, total, bound, condition, terms, data_base, lanes)
        return BufferAccess(base, value, bound, condition, data_base=data_base, lanes=lanes)

    return read


def _data_dependent_base(machine: Machine, word: Value) -> tuple[Value | None, Array | None]:
    """A base that depends on data, its upper 16 bits restored, and a pointer to the buffer that it points into.

    Compilers clear these bits, since the descriptor has other fields there; they are 0 in every address in a buffer.
    (None, None) where the buffer is unknown.
    """
    upper = machine.known(extract(word, 48, 16))
    middle = extract(word, 32, 16)
    high: Value | None = None
    for each in slices_of(middle):
        if each.lanes is True and (each.low, each.whole.bits) == (32, 64):
            high = extract(each.whole, 32, 32)
        elif each.lanes is True and (each.low, each.whole.bits) == (0, 32):
            high = each.whole
    if high is None or upper is None or upper.any():
        return None, None
    whole = concat([extract(word, 0, 32), high])  # the low word may be another one than that of the source
    found = provenance_of(machine, whole)
    if found is None or len(found.buffers) != 1:
        return None, None
    return whole, literal(found.buffers[0] << POINTER_SHIFT, 64)


def _in_any_active_lane(machine: Machine, lanes: Array) -> bool:
    """Whether any of these lanes is active."""
    return bool(lanes.any()) and (machine.mask is None or bool((lanes & machine.mask).any()))


def _add_offset(machine: Machine, value: Value, offset: int) -> Value:
    known = machine.known(value)
    if known is not None:
        # A sum that exceeds 32 bits is clamped; it is out of bounds either way, since no buffer is that large.
        total = known.astype(np.uint64) + np.uint64(offset)
        result: Value = np.minimum(total, np.uint64((1 << 32) - 1)).astype(np.uint32)
        return result
    return apply_integer(machine, operation("add.b32"), [value, literal(offset, 32)])


def lanes_in_bounds(machine: Machine, access: BufferAccess, bits: int, line: int) -> Array:
    """The lanes whose access is in bounds.  Raises Unsupported where an access is partly in bounds."""
    known = machine.known(access.offset)
    assert known is not None
    wide, bound = known.astype(np.uint64), access.bound.astype(np.uint64)
    inside, whole = wide < bound, wide + np.uint64(bits // 8) <= bound
    if access.lanes is not None:
        inside, whole = inside & access.lanes, whole & access.lanes
    if _in_any_active_lane(machine, inside & ~whole):
        raise Unsupported("an access is partly inside the bounds of a buffer's descriptor", line)
    return whole


def _mask_within(machine: Machine, lanes: Array) -> Array | None:
    """The active lanes among these, in the form of `Machine.mask` (None: all)."""
    if machine.mask is None:
        return None if lanes.all() else lanes
    return machine.mask & lanes


def zero(bits: int) -> Value:
    """Zeros of this width."""
    return concat([literal(0, min(bits, 32)) for _ in range(0, bits, min(bits, 32))])


def loaded(machine: Machine, access: BufferAccess, bits: int, line: int) -> Value:
    """The value of a load at an address; 0 out of bounds."""
    known = machine.known(access.offset)
    if known is None:
        return _gathered(machine, access, bits, line)
    inside = lanes_in_bounds(machine, access, bits, line)
    outer = machine.mask
    lanes = _mask_within(machine, inside)
    if lanes is not None and not lanes.any():
        return zero(bits)
    machine.mask = lanes
    try:
        if access.data_base is not None:
            value = _gather_words(
                machine, add_address(machine, access.data_base, known.astype(np.uint64)), access, bits, line
            )
        else:
            value = load_words(machine, access.base + known.astype(np.uint64), bits, line)
    finally:
        machine.mask = outer
    return value if inside.all() else blend_values(inside, value, zero(bits))


def _gathered(machine: Machine, access: BufferAccess, bits: int, line: int) -> Value:
    """The value at an offset that depends on data; 0 where that is out of bounds."""
    start = add_address(
        machine, access.base if access.data_base is None else access.data_base, zero_extend(access.offset)
    )
    value = _gather_words(machine, start, access, bits, line)
    varying, constant = access.offset_terms or (access.offset, 0)
    size = constant + bits // 8
    if _in_any_active_lane(machine, access.bound < size):
        raise DataDependent("a buffer has fewer bytes than one access at an offset that depends on data", line)
    inside = compare_as_integers(machine, "le", "u32", varying, (access.bound - np.uint32(size)).astype(np.uint32))
    return machine.domain.select(inside, value, zero(bits))


def _gather_words(machine: Machine, address: Value, access: BufferAccess, bits: int, line: int) -> Value:
    """`bits` bits at an address that depends on data."""
    size = min(bits, 32)
    buffers = sorted({buffer_at(int(each)) for each in access.base.flat})
    return concat(
        [
            machine.memory.gather(
                add_address(machine, address, literal(low // 8, 64)) if low else address,
                size,
                machine.mask,
                line,
                buffers,
            )
            for low in range(0, bits, size)
        ]
    )


@vector_opcode(TABLE, *(f"buffer_store_{kind}" for kind in STORES), operands=NO_DESTINATION, effects=Effect.STORE)
def store(instruction: Instruction, context: Context) -> Step:
    """Stores of 8 to 128 bits; none out of bounds."""
    width = AccessWidth(instruction)
    if len(instruction.operands) != 4:
        raise UnknownInstruction(instruction, "does not take these operands")
    source = instruction.operands[0]
    value_of = width.stored_reader(source, instruction) if width.bits <= 32 else tuple_reader(source, instruction)
    find = access_reader(instruction, instruction.operands[1:])
    line = instruction.line

    def step(machine: Machine) -> None:
        access = find(machine)
        value = value_of(machine)
        known = machine.known(access.offset)
        if known is None:
            raise DataDependent("memory is written at a computed address", line)
        lanes = _mask_within(machine, lanes_in_bounds(machine, access, width.bits, line))
        if lanes is not None and not lanes.any():
            return
        mask, condition = machine.mask, machine.condition
        machine.mask = lanes
        if access.condition is not None:
            machine.condition = conjunction(machine.domain, condition, access.condition)
        try:
            store_words(machine, access.base + known.astype(np.uint64), value, width.bits, line)
        finally:
            machine.mask, machine.condition = mask, condition

    return step
