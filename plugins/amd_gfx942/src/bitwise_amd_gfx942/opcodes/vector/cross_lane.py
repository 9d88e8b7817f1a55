"""Cross-lane operations of a wave: permutes, swizzles, v_readlane and v_writelane, bit counts below a lane.

Source: AMD Instinct MI300 ISA, "LDS: ds_permute, ds_bpermute, ds_swizzle", "v_readlane", "v_mbcnt".
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from bitwise_amd_gfx942.opcodes.forms import Table, check_modifiers, immediate_offset
from bitwise_amd_gfx942.opcodes.operands.deferred_lanes import is_deferred, read_lanes
from bitwise_amd_gfx942.opcodes.operands.execution_mask import active_lanes, vector_opcode
from bitwise_amd_gfx942.opcodes.operands.implicit_registers import EXECUTION_MASK, with_implicit
from bitwise_amd_gfx942.opcodes.operands.operand_access import Reader, Writer, is_vector, reader, writer
from bitwise_amd_gfx942.opcodes.operands.spilled_masks import mask_word, note_words, words_in_lanes, write_mask_word
from bitwise_amd_gfx942.opcodes.vector.lanewise import lanewise
from bitwise_amd_gfx942.opcodes.vector.vector_integers import wrapping_add
from bitwise_amd_gfx942.registers import WAVE, lane_mask_key, lowest_lane, uniform_if_equal
from bitwise_core.assembly.module import Instruction, Register
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.domains.domain import DataDependent
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, UPDATED_FIRST, Effect
from bitwise_core.execution.machine import Machine, Step, literal
from bitwise_core.execution.values.lane_selection import take_threads
from bitwise_core.execution.values.packing import blend_values
from bitwise_core.execution.values.symbolic_vector import Array, Value, as_array_if_constant
from bitwise_core.execution.values.term_hash import poison
from bitwise_core.numerics import operation

TABLE = Table()

_SWIZZLE = re.compile(r"swizzle\((\w+),\s*(.*)\)")


def first_thread_of_wave(machine: Machine) -> Array:
    """The index of the first thread of each thread's wave, shape (1, threads)."""
    found: Array = (np.arange(machine.threads) & ~(WAVE - 1))[None]
    return found


def take_from_lanes(machine: Machine, value: Value, lane: Array, line: int) -> Value:
    """The value of the given lane of the wave, for each lane; 0 where that lane is inactive.

    Raises Unsupported under an execution mask that depends on data.
    """
    if machine.condition is not None:
        raise DataDependent("lanes exchange values under an execution mask that depends on data", line)
    index = np.broadcast_to(first_thread_of_wave(machine) + lane, (lane.shape[0], machine.threads))
    taken = take_threads(value, index)
    if machine.mask is None:
        return taken
    rows = max(machine.mask.shape[0], index.shape[0])
    active = np.take_along_axis(
        np.broadcast_to(machine.mask, (rows, machine.threads)), np.broadcast_to(index, (rows, machine.threads)), axis=1
    )
    return taken if (active | ~machine.mask).all() else blend_values(active, taken, literal(0, 32))


_DATA_DEPENDENT = "lanes exchange values by an address that depends on data"


def _permute_operands(instruction: Instruction) -> tuple[Callable[[Machine], Array | None], Reader, Writer]:
    """The reader of lane indices (None: they depend on data), the reader of the source, the writer of the result.

    The address of each lane is 4 times a lane index.
    """
    offset = immediate_offset(instruction, check_modifiers(instruction, "offset"), 16)
    target, address_operand, source = instruction.operands
    read_address = reader(address_operand, "b32", instruction)

    def addressed(machine: Machine) -> Array | None:
        address = machine.known(read_address(machine))
        return (
            None
            if address is None
            else ((address + np.uint32(offset)) >> np.uint32(2) & np.uint32(63)).astype(np.int64)
        )

    return addressed, reader(source, "b32", instruction), writer(target, 32, instruction)


@vector_opcode(TABLE, "ds_bpermute_b32", operands=DESTINATION_FIRST, effects=Effect.CROSS_LANE)
def bpermute(instruction: Instruction, context: Context) -> Step:
    """Each lane reads the value of the lane whose index is its address / 4."""
    addressed, value_of, write = _permute_operands(instruction)
    line = instruction.line

    def step(machine: Machine) -> None:
        lane = addressed(machine)
        if lane is None:
            raise DataDependent(_DATA_DEPENDENT, line)
        write(machine, take_from_lanes(machine, value_of(machine), lane, line))

    return step


@vector_opcode(TABLE, "ds_permute_b32", operands=DESTINATION_FIRST, effects=Effect.CROSS_LANE)
def permute_lanes(instruction: Instruction, context: Context) -> Step:
    """Each lane sends its value to the lane whose index is its address / 4; a lane that receives none reads 0."""
    addressed, value_of, write = _permute_operands(instruction)
    line = instruction.line

    def step(machine: Machine) -> None:
        lane = addressed(machine)
        if lane is None or machine.condition is not None:
            raise DataDependent(_DATA_DEPENDENT, line)
        rows = max(lane.shape[0], 1 if machine.mask is None else machine.mask.shape[0])
        shape = (rows, machine.threads)
        lane = np.broadcast_to(lane, shape)
        to = lane + first_thread_of_wave(machine)
        active = np.broadcast_to(np.True_ if machine.mask is None else machine.mask, shape)
        sender = np.full(shape, -1, dtype=np.int64)
        row, thread = np.nonzero(active)
        sender[row, to[row, thread]] = thread
        count = np.zeros(shape, dtype=np.int64)
        np.add.at(count, (row, to[row, thread]), 1)
        taken = take_threads(value_of(machine), np.maximum(sender, 0))
        if not (sender >= 0).all():
            taken = blend_values(sender >= 0, taken, literal(0, 32))
        if (count > 1).any():  # which of several senders wins is not documented
            taken = blend_values(count > 1, poison(32, "one of several values"), taken)
        write(machine, taken)

    return step


def swizzled_lanes(text: str) -> Array:
    """The lane that each of 64 lanes reads under a swizzle, which acts within groups of 32.

    Raises ValueError for a pattern that is not modelled.
    """
    lane = np.arange(WAVE)
    found = _SWIZZLE.fullmatch(text)
    if found is None:
        return _lanes_of_pattern(int(text, 0))
    kind, values = found[1], found[2].split(",")
    if kind == "QUAD_PERM":
        order = [int(each) for each in values]
        if len(order) == 4 and set(order) <= {0, 1, 2, 3}:
            result: Array = (lane & ~3) + np.array(order)[lane & 3]
            return result
    elif kind == "BITMASK_PERM":
        pattern = values[0].strip().strip('"')
        if len(pattern) == 5 and set(pattern) <= set("01pi"):
            result = np.zeros(WAVE, dtype=np.int64)
            for position, letter in enumerate(reversed(pattern)):
                bit = lane >> position & 1
                selected = {"0": 0 * bit, "1": 0 * bit + 1, "p": bit, "i": 1 - bit}[letter]
                result = result | selected << position
            return (lane & 32) | result
    elif kind in ("SWAP", "REVERSE") and len(values) == 1:
        size = int(values[0])
        if size in (1, 2, 4, 8, 16, 32):
            return lane ^ (size if kind == "SWAP" else size - 1)
    elif kind == "BROADCAST" and len(values) == 2:
        size, which = (int(each) for each in values)
        if size in (2, 4, 8, 16, 32) and 0 <= which < size:
            return (lane & ~(size - 1)) + which
    raise ValueError(text)


def _lanes_of_pattern(offset: int) -> Array:
    lane = np.arange(WAVE)
    if offset >> 15 == 1 and offset >> 8 == 0x80:
        return (lane & ~3) + (offset >> 2 * (lane & 3) & 3)
    if offset >> 15 == 0:
        within = ((lane & 31) & (offset & 31) | offset >> 5 & 31) ^ (offset >> 10 & 31)
        return (lane & 32) | within
    raise ValueError(offset)


@vector_opcode(TABLE, "ds_swizzle_b32", operands=DESTINATION_FIRST, effects=Effect.CROSS_LANE)
def swizzle(instruction: Instruction, context: Context) -> Step:
    """A fixed permutation within groups of 32 lanes."""
    modifiers = check_modifiers(instruction, "offset").modifiers
    target, source = instruction.operands
    try:
        lanes = swizzled_lanes(modifiers.get("offset", ""))
    except ValueError:
        raise UnknownInstruction(instruction, "has a swizzle pattern that is not modelled") from None
    value_of, write = reader(source, "b32", instruction), writer(target, 32, instruction)
    line = instruction.line

    def step(machine: Machine) -> None:
        lane = np.tile(lanes, machine.threads // WAVE)[None]
        write(machine, take_from_lanes(machine, value_of(machine), lane, line))

    return step


@TABLE.opcode("v_readlane_b32", operands=DESTINATION_FIRST, effects=Effect.CROSS_LANE)
def read_lane(instruction: Instruction, context: Context) -> Step:
    """The value of one lane, active or not, as a scalar."""
    check_modifiers(instruction)
    target, source, which = instruction.operands
    if not is_vector(source) or is_vector(target):
        raise UnknownInstruction(instruction, "takes a vector register and writes a scalar one")
    value_of, lane_of = reader(source, "b32", instruction), reader(which, "b32", instruction)
    write = writer(target, 32, instruction)
    line, name = instruction.line, target.name if isinstance(target, Register) else ""
    source_name = source.name if isinstance(source, Register) else ""

    def step(machine: Machine) -> None:
        lane = machine.known(lane_of(machine))
        if lane is None:
            raise DataDependent("the lane that is read depends on data", line)
        held = machine.registers.get(source_name)
        value = held if held is not None and is_deferred(held) else value_of(machine)
        word = words_in_lanes(machine, value).get(int(lane.flat[0]) & 63) if lane.size == 1 else None
        if word is not None and machine.written_lanes is None and lane_mask_key(name) is not None:
            write_mask_word(machine, name, word)
            return
        index = first_thread_of_wave(machine) + (lane & np.uint32(63)).astype(np.int64)
        write(machine, uniform_if_equal(as_array_if_constant(read_lanes(machine, value, index)), machine.threads))

    return step


@TABLE.opcode("v_readfirstlane_b32", operands=with_implicit(DESTINATION_FIRST, Effect.CROSS_LANE, reads=EXECUTION_MASK))
def read_first_lane(instruction: Instruction, context: Context) -> Step:
    """The value of the first active lane as a scalar; of lane 0 where no lane is active."""
    check_modifiers(instruction)
    target, source = instruction.operands
    if is_vector(target):
        raise UnknownInstruction(instruction, "writes a scalar register")
    value_of, write = reader(source, "b32", instruction), writer(target, 32, instruction)
    line = instruction.line

    def step(machine: Machine) -> None:
        value = value_of(machine)
        if is_uniform_constant(value):
            write(machine, value)
            return
        try:
            active = active_lanes(machine)
        except TypeError:
            raise DataDependent("which lane is the first active one depends on data", line) from None
        index = first_thread_of_wave(machine) if active is None else lowest_lane(active, machine.threads)
        write(machine, uniform_if_equal(as_array_if_constant(take_threads(value, index)), machine.threads))

    return step


def is_uniform_constant(value: Value) -> bool:
    """Whether a value is a constant with a single element for all lanes."""
    return isinstance(value, np.ndarray) and value.shape[1] == 1


@TABLE.opcode("v_writelane_b32", operands=UPDATED_FIRST, effects=Effect.CROSS_LANE)
def write_lane(instruction: Instruction, context: Context) -> Step:
    """Replace the value of one lane, active or not."""
    check_modifiers(instruction)
    target, source, which = instruction.operands
    value_of, lane_of = reader(source, "b32", instruction), reader(which, "b32", instruction)
    old, write = reader(target, "b32", instruction), writer(target, 32, instruction)
    line, name = instruction.line, source.name if isinstance(source, Register) else ""

    def step(machine: Machine) -> None:
        lane = machine.known(lane_of(machine))
        if lane is None:
            raise DataDependent("the lane that is written depends on data", line)
        is_lane = np.arange(machine.threads)[None] - first_thread_of_wave(machine) == (lane & np.uint32(63)).astype(
            np.int64
        )
        before = old(machine)
        number = int(lane.flat[0]) & 63 if lane.size == 1 else None
        words = words_in_lanes(machine, before)
        word = mask_word(machine, name) if number is not None and machine.written_lanes is None else None
        value = value_of(machine) if word is None else poison(32, "a word of a lane mask as a number")
        result = blend_values(is_lane, value, before)
        write(machine, result)
        if number is not None and machine.written_lanes is None:
            kept = {place: each for place, each in words.items() if place != number}
            note_words(machine, result, kept if word is None else {**kept, number: word})

    return step


@vector_opcode(TABLE, "v_mbcnt_lo_u32_b32", "v_mbcnt_hi_u32_b32", operands=DESTINATION_FIRST, effects=Effect.NONE)
def masked_bit_count(instruction: Instruction, context: Context) -> Step:
    """The number of ones below the lane's own bit in the low or high word of a lane mask, plus the second source."""
    high = "_hi_" in instruction.opcode
    lane = np.arange(WAVE)
    below = np.clip(lane - 32, 0, 32) if high else np.minimum(lane, 32)
    masks = ((np.uint64(1) << below.astype(np.uint64)) - np.uint64(1)).astype(np.uint32)

    ones = operation("popc.b32").function
    assert ones is not None

    def count_below(machine: Machine, word: Value, start: Value) -> Value:
        if isinstance(word, np.ndarray):
            word = np.broadcast_to(word, (word.shape[0], machine.threads))
        else:
            raise DataDependent("lanes are counted in a set that depends on data", instruction.line)
        below_own = word & np.tile(masks, max(1, machine.threads // WAVE))[None]
        return wrapping_add(machine, ones(below_own), start)

    return lanewise(instruction, ("b32", "b32"), 32, count_below)
