"""Sums of 64 bits that are made in two halves, low and then high with the carry: read as the one sum that they are."""

from __future__ import annotations

import numpy as np

from bitwise_amd_gfx942.opcodes.bases import remember_base
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values.packing import blend_values, concat, extract
from bitwise_core.execution.values.symbolic_vector import SymbolicVector, Value
from bitwise_core.execution.values.term_hash import full_hash
from bitwise_core.numerics import operation

_KEY = "low half of a sum"


def low_sum(machine: Machine, carry: Value, left: Value, right: Value, result: Value) -> None:
    """Notes a low half that depends on data, with the carry that tells it from others."""
    if not isinstance(result, np.ndarray):
        machine.extra[_KEY] = (carry, left, right, result)


def high_sum(machine: Machine, carry: Value, left: Value, right: Value) -> Value | None:
    """The high half as part of the whole sum, where the carry is that of the low half made last; None elsewhere.

    Registers that hold the low half hold it as part of the sum afterwards: the same value, so that both are one again
    where they are used together.
    """
    found = machine.extra.get(_KEY)
    if found is None or not _same(machine, found[0], carry):
        return None
    _, low_left, low_right, low = found
    sides = [concat([low_left, left]), concat([low_right, right])]
    whole = apply_integer(machine, operation("add.b64"), sides)
    remember_base(machine, whole, *sides)
    part = extract(whole, 0, 32)
    for name, value in machine.registers.items():
        if value is low:
            machine.registers[name] = part
        elif machine.mask is not None and isinstance(value, SymbolicVector) and _same(machine, value, low):
            machine.registers[name] = blend_values(machine.mask, part, value)
    return extract(whole, 32, 32)


def _same(machine: Machine, left: Value, right: Value) -> bool:
    """Whether two values are one in every active lane."""
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
