"""Sums of 64 bits that are made in two halves, low and then high with the carry: read as the one sum that they are."""

from __future__ import annotations

import numpy as np

from bitwise_amd_gfx942.opcodes.bases import remember_base
from bitwise_core.machine.lanes import Value
from bitwise_core.machine.pieces import concat, cut
from bitwise_core.machine.state import Machine
from bitwise_core.machine.steps import apply_integer

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
    if found is None or found[0] is not carry:
        return None
    _, low_left, low_right, low = found
    sides = [concat([low_left, left]), concat([low_right, right])]
    whole = apply_integer(machine, "add.b64", sides, 64, np.add, gathers=True)
    remember_base(machine, whole, *sides)
    for name, value in machine.registers.items():
        if value is low:
            machine.registers[name] = cut(whole, 0, 32)
    return cut(whole, 32, 32)
