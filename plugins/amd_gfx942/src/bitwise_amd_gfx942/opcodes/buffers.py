"""buffer_ loads and stores through a resource descriptor of four scalar registers, with its bounds.

Source: AMD Instinct MI300 ISA, "Vector memory buffer instructions": the descriptor's fields, raw buffers, and range
checking.  Beyond the bounds a load gives 0 and a store does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bitwise_amd_gfx942.opcodes.acting import vector
from bitwise_amd_gfx942.opcodes.addressing import Width, load_words, store_words
from bitwise_amd_gfx942.opcodes.bases import base_of
from bitwise_amd_gfx942.opcodes.flat import CACHE, LOADS, STORES, plus, unsigned, wide_reader
from bitwise_amd_gfx942.opcodes.forms import Table, check_modifiers, offset_of
from bitwise_amd_gfx942.opcodes.selections import without_choice
from bitwise_amd_gfx942.opcodes.sources import Reader, half_writer, reader, writer
from bitwise_core.assembly.module import Immediate, Instruction, Operand, Symbol, Vector
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, NO_DESTINATION, Effect
from bitwise_core.execution.launch import POINTER_SHIFT
from bitwise_core.execution.machine import Machine, Step, conjunction, literal
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values.comparisons import compare_as_integers
from bitwise_core.execution.values.packing import blend_values, concat, extract
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.numerics import operation

TABLE = Table()

_RAW = 0x27000
"""The last word of a raw buffer's descriptor: data of 32 bits, no thread added to an index.

Source: AMD Instinct MI300 ISA, "Buffer resource descriptor"; LLVM and Triton write no other one for this machine.
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an access goes: the known base (64 bits), the offset of each lane, how many bytes the buffer has for it.

    `condition` says in which lanes the access happens where that depends on data, beside the bounds.
    """

    base: Array
    offset: Value
    bound: Array
    condition: Value | None
    moved: tuple[Value, int] | None = None
    """An offset that depends on data as a sum of two: it may wrap, and the bound is held against the parts."""
    start: Value | None = None
    """The base where that depends on data; `base` is then a pointer to its buffer."""


def place_reader(
    instruction: Instruction, operands: tuple[Operand, ...], *, by_data: bool = False
) -> Callable[[Machine], Place]:
    """A function of the machine that gives the Place of an access; `by_data`: its base may depend on data.

    Raises UnknownInstruction.
    """
    found = check_modifiers(instruction, "offen", "offset", *CACHE)
    modifiers = found.modifiers
    varying, resource, scalar = operands
    if not isinstance(resource, Vector) or len(resource.items) != 4:
        raise UnknownInstruction(instruction, "takes a resource of four scalar registers")
    words = wide_reader(resource, instruction)
    offset = offset_of(instruction, found, 12)
    more = None
    if "offen" in modifiers:
        more = reader(varying, "b32", instruction)
    elif varying != Symbol("off"):
        raise UnknownInstruction(instruction, "has a register and does not say what for")
    added = None
    if scalar != Immediate(0):
        added = reader(scalar, "b32", instruction)
    line = instruction.line

    def read(machine: Machine) -> Place:
        descriptor = words(machine)
        low, high = machine.known(extract(descriptor, 0, 64)), machine.known(extract(descriptor, 64, 64))
        begins = None
        if low is None and by_data and added is None:
            begins, low = _by_data(machine, extract(descriptor, 0, 64))
        if low is None or high is None:
            raise Unsupported("a buffer's descriptor depends on data", line)
        if _somewhere(machine, (low >> np.uint64(48)) != 0):
            raise Unsupported("a buffer's descriptor has a stride or swizzles, which is not modelled", line)
        if _somewhere(machine, (high >> np.uint64(32)) != _RAW):
            raise Unsupported("a buffer's descriptor is not of the raw kind that compilers make", line)
        base, bound = low, high.astype(np.uint32)
        start = None if added is None else machine.known(added(machine))
        if start is not None:
            if _somewhere(machine, start > bound):
                raise Unsupported("a buffer's scalar offset lies outside of it", line)
            base, bound = base + start.astype(np.uint64), bound - start
        elif added is not None:
            raise Unsupported("a buffer's scalar offset depends on data", line)
        value: Value = literal(offset, 32)
        condition = None
        if more is not None:
            value = more(machine)
            if machine.known(value) is None:
                value, condition = without_choice(machine, value, bound)
            if offset:
                moved = None if machine.known(value) is not None else (value, offset)
                return Place(base, _beyond(machine, value, offset, line), bound, condition, moved, begins)
        return Place(base, value, bound, condition, start=begins)

    return read


def _by_data(machine: Machine, word: Value) -> tuple[Value | None, Array | None]:
    """A base that depends on data, with its upper 16 bits, and a pointer to the buffer it was made from.

    Compilers clear these bits, which no address has that lies in a buffer; a descriptor keeps other things there.
    """
    upper = machine.known(extract(word, 48, 16))
    middle = extract(word, 32, 16)
    if upper is None or upper.any() or not isinstance(middle, SymbolicVector) or middle.slice_of is None:
        return None, None
    high, place = middle.slice_of
    if place == 32 and high.bits == 64:
        above = extract(high, 32, 32)
    elif place == 0 and high.bits == 32:
        above = high
    else:
        return None, None
    whole = concat([extract(word, 0, 32), above])  # the low word may have been changed since
    found = base_of(machine, whole)
    if found is None or len(found.buffers) != 1:
        return None, None
    return whole, literal(found.buffers[0] << POINTER_SHIFT, 64)


def _somewhere(machine: Machine, lanes: Array) -> bool:
    """Whether an active lane is among these."""
    return bool(lanes.any()) and (machine.mask is None or bool((lanes & machine.mask).any()))


def _beyond(machine: Machine, value: Value, offset: int, line: int) -> Value:
    known = machine.known(value)
    if known is not None:
        # A sum that leaves 32 bits is out of bounds whatever becomes of it: no buffer has so many bytes.
        total = known.astype(np.uint64) + np.uint64(offset)
        result: Value = np.minimum(total, np.uint64((1 << 32) - 1)).astype(np.uint32)
        return result
    return apply_integer(machine, operation("add.b32"), [value, literal(offset, 32)])


def within(machine: Machine, place: Place, bits: int, line: int) -> Array:
    """The lanes whose access lies inside the bounds, all of it.  Raises Unsupported where one lies inside in part."""
    known = machine.known(place.offset)
    assert known is not None
    wide, bound = known.astype(np.uint64), place.bound.astype(np.uint64)
    inside, whole = wide < bound, wide + np.uint64(bits // 8) <= bound
    if _somewhere(machine, inside & ~whole):
        raise Unsupported("an access lies inside the bounds of a buffer's descriptor in part", line)
    return whole


def _under(machine: Machine, lanes: Array) -> Array | None:
    """The active lanes among those."""
    if machine.mask is None:
        return None if lanes.all() else lanes
    return machine.mask & lanes


@vector(TABLE, *(f"buffer_load_{kind}" for kind in LOADS), operands=DESTINATION_FIRST, effects=Effect.LOAD)
def load(instruction: Instruction, context: Context) -> Step:
    """Loads of 8 to 128 bits; 0 outside of the bounds."""
    width = Width(instruction)
    if len(instruction.operands) != 4:
        raise UnknownInstruction(instruction, "does not take these operands")
    target = instruction.operands[0]
    find = place_reader(instruction, instruction.operands[1:], by_data=True)
    line = instruction.line
    write = (
        half_writer(target, width.high, instruction, loads=True)
        if width.half
        else writer(target, width.register_bits, instruction)
    )

    def step(machine: Machine) -> None:
        place = find(machine)
        value = _loaded(machine, place, width.bits, line)
        if place.condition is not None:
            value = machine.domain.select(place.condition, value, _zero(width.bits))
        write(machine, width.extended(machine, value))

    return step


def _zero(bits: int) -> Value:
    return concat([literal(0, min(bits, 32)) for _ in range(0, bits, min(bits, 32))])


def _loaded(machine: Machine, place: Place, bits: int, line: int) -> Value:
    known = machine.known(place.offset)
    if known is None:
        return _gathered(machine, place, bits, line)
    inside = within(machine, place, bits, line)
    outer = machine.mask
    lanes = _under(machine, inside)
    if lanes is not None and not lanes.any():
        return _zero(bits)
    machine.mask = lanes
    try:
        if place.start is not None:
            value = _words_at(machine, plus(machine, place.start, known.astype(np.uint64)), place, bits, line)
        else:
            value = load_words(machine, place.base + known.astype(np.uint64), bits, line)
    finally:
        machine.mask = outer
    return value if inside.all() else blend_values(inside, value, _zero(bits))


def _gathered(machine: Machine, place: Place, bits: int, line: int) -> Value:
    """What lies at an offset that depends on data, and 0 where that is out of bounds."""
    start = plus(machine, place.base if place.start is None else place.start, unsigned(place.offset))
    value = _words_at(machine, start, place, bits, line)
    first, more = place.moved or (place.offset, 0)
    beside = more + bits // 8
    if _somewhere(machine, place.bound < beside):
        raise Unsupported("a buffer has fewer bytes than one access at an offset that depends on data", line)
    inside = compare_as_integers(machine, "le", "u32", first, (place.bound - np.uint32(beside)).astype(np.uint32))
    return machine.domain.select(inside, value, _zero(bits))


def _words_at(machine: Machine, address: Value, place: Place, bits: int, line: int) -> Value:
    """So many bits from an address that depends on data."""
    size = min(bits, 32)
    buffers = sorted({int(each) >> POINTER_SHIFT for each in place.base.flat})
    return concat(
        [
            machine.memory.gather(
                plus(machine, address, literal(low // 8, 64)) if low else address, size, machine.mask, line, buffers
            )
            for low in range(0, bits, size)
        ]
    )


@vector(TABLE, *(f"buffer_store_{kind}" for kind in STORES), operands=NO_DESTINATION, effects=Effect.STORE)
def store(instruction: Instruction, context: Context) -> Step:
    """Stores of 8 to 128 bits; nothing outside of the bounds."""
    width = Width(instruction)
    if len(instruction.operands) != 4:
        raise UnknownInstruction(instruction, "does not take these operands")
    source = instruction.operands[0]
    value_of: Reader = reader(source, "b32", instruction) if width.bits <= 32 else wide_reader(source, instruction)
    find = place_reader(instruction, instruction.operands[1:])
    line = instruction.line

    def step(machine: Machine) -> None:
        place = find(machine)
        value = width.stored(value_of(machine))
        known = machine.known(place.offset)
        if known is None:
            raise Unsupported("memory is written at a computed address", line)
        lanes = _under(machine, within(machine, place, width.bits, line))
        if lanes is not None and not lanes.any():
            return
        mask, condition = machine.mask, machine.condition
        machine.mask = lanes
        if place.condition is not None:
            machine.condition = conjunction(machine.domain, condition, place.condition)
        try:
            store_words(machine, place.base + known.astype(np.uint64), value, width.bits, line)
        finally:
            machine.mask, machine.condition = mask, condition

    return step
