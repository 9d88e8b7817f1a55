"""Matching of 64-bit additions that are computed in two halves, the low one and then the high one with the carry."""

from __future__ import annotations

import numpy as np

from bitwise_amd_gfx942.opcodes.memory.pointer_provenance import record_pointer_sum
from bitwise_amd_gfx942.opcodes.operands.deferred_lanes import is_deferred, written_in
from bitwise_core.execution.deferred_blends import deferred_blend
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values.packing import concat, extract
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value, settled
from bitwise_core.execution.values.term_hash import full_hash
from bitwise_core.numerics import operation

_KEY = "low half of a sum"


def record_low_sum(machine: Machine, carry: Value, left: Value, right: Value, result: Value) -> None:
    """Record a low half that depends on data, under its carry."""
    if not isinstance(result, np.ndarray):
        machine.extra[_KEY] = (carry, left, right, result)


def match_high_sum(machine: Machine, carry: Value, left: Value, right: Value) -> Value | None:
    """The high half of the 64-bit sum where the carry is that of the latest low half; None for any other carry.

    Registers that hold the low half are set to the low half of the 64-bit sum, which is the same value, so that both
    halves join to the one sum where they are used together.
    """
    found = machine.extra.get(_KEY)
    if found is None or not _equal_in_active_lanes(machine, found[0], carry):
        return None
    _, low_left, low_right, low = found
    sides = [concat([low_left, left]), concat([low_right, right])]
    whole = apply_integer(machine, operation("add.b64"), sides)
    record_pointer_sum(machine, whole, *sides)
    part = extract(whole, 0, 32)
    for name, value in machine.registers.items():
        if value is low:
            machine.registers[name] = part
        elif machine.mask is not None and isinstance(value, SymbolicVector):
            held = _held(value, machine.mask)
            if held is not None and _equal_in_active_lanes(machine, held, low):
                machine.registers[name] = deferred_blend(machine, machine.mask, part, value)
    return extract(whole, 32, 32)


def _held(value: SymbolicVector, mask: Array) -> Value | None:
    """Return what a register holds in the lanes of a mask, None for the result of an exchange that nothing has read.

    Most of these lanes may never be read, and none is the low half of a sum.
    """
    if not is_deferred(value):
        return value.in_lanes(mask)
    found = written_in(value, mask)
    return None if found is None or is_deferred(found) else settled(found)


def _equal_in_active_lanes(machine: Machine, left: Value, right: Value) -> bool:
    """Whether two values are known to be equal in every active lane."""
    if left is right:
        return True
    if (
        not isinstance(left, SymbolicVector)
        or not isinstance(right, SymbolicVector)
        or left.bits != right.bits
        or machine.mask is None
    ):
        return False
    shape = np.broadcast_shapes(left.words.shape[1:], right.words.shape[1:], machine.mask.shape)
    mask = np.broadcast_to(machine.mask, shape)
    if not mask.any():
        return False
    block, thread = np.unravel_index(mask.argmax(), shape)
    one, other = (_lane(each, int(block), int(thread)) for each in (left, right))
    if one.flags != other.flags or (full_hash(one) != full_hash(other)).any():
        return False  # as nearly all registers are told apart
    same = (full_hash(left) == full_hash(right)).all(axis=0) & (left.flags == right.flags)
    return bool(np.broadcast_to(same, shape)[mask].all())


def _lane(value: SymbolicVector, block: int, thread: int) -> SymbolicVector:
    """Return one lane of a value whose shape broadcasts to that of the machine."""
    _, blocks, threads = value.words.shape
    block, thread = block if blocks > 1 else 0, thread if threads > 1 else 0
    flags = value.flags
    if not isinstance(flags, int):
        flags = int(flags[block if flags.shape[0] > 1 else 0, thread if flags.shape[1] > 1 else 0])
    return SymbolicVector(value.bits, value.words[:, block : block + 1, thread : thread + 1], flags)
