"""Matching of 64-bit additions that are computed in two halves, the low one and then the high one with the carry."""

from __future__ import annotations

import numpy as np

from bitwise_amd_gfx942.opcodes.pointer_provenance import record_pointer_sum
from bitwise_core.execution.deferred_blends import deferred_blend
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values.packing import concat, extract
from bitwise_core.execution.values.symbolic_vector import SymbolicVector, Value
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
            held = value.in_lanes(machine.mask)
            if _equal_in_active_lanes(machine, held, low):
                machine.registers[name] = deferred_blend(machine, machine.mask, part, value)
    return extract(whole, 32, 32)


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
    same = (full_hash(left) == full_hash(right)).all(axis=0) & (left.flags == right.flags)
    return bool(np.broadcast_to(same, shape)[mask].all())
