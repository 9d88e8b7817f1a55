"""Shifts; a shift by whole bytes moves the parts of packed registers."""

from __future__ import annotations

import numpy as np

from bitwise_core.execution.machine import Machine
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import concat, extract
from bitwise_core.execution.values.symbolic_vector import Value
from bitwise_core.numerics import operation


def shifted(machine: Machine, verb: str, value: Value, by: Value, bits: int, *, is_signed: bool = False) -> Value:
    """Return `value` of `bits` bits shifted (`verb` is shl or shr) by an amount of 32 bits.

    An amount of `bits` or more clears the value, or fills it with the sign if `is_signed`.
    """
    shift = operation(f"{verb}.{'s' if is_signed else 'u'}{bits}")
    assert shift.function is not None
    number, count = machine.known(value), machine.known(by)
    if number is not None and count is not None:
        return shift.function(number, count)
    lazy = L.lazy_integers(value) is not None
    moved = None if lazy or is_signed else _move_bytes(value, by, bits, verb == "shl")
    if moved is None:
        moved = apply_integer(machine, shift, [value, by])
        if is_signed and not lazy:
            moved = _with_kept_bytes(moved, value, by, bits)
    return moved


def _with_kept_bytes(result: Value, value: Value, by: Value, bits: int) -> Value:
    """Return the result of a signed shift, with the bytes that it keeps as they are in `value`."""
    count = int(by.reshape(())[()]) if isinstance(by, np.ndarray) and by.size == 1 else 0
    kept = bits - count
    if not {count, kept} <= {8, 16, 32}:
        return result
    return concat([extract(value, count, kept), extract(result, kept, count)])


def _move_bytes(value: Value, by: Value, bits: int, left: bool) -> Value | None:
    if not isinstance(by, np.ndarray) or by.size != 1:
        return None
    count = int(by.reshape(())[()])
    if count % 8 or count >= bits or count == 0:
        return value if count == 0 else None
    kept = bits - count
    if not {count, kept} <= {8, 16, 24, 32, 40, 48, 56}:
        return None
    fill = _zeros(count)
    part = _bytes(value, 0 if left else count, kept)
    return concat([*fill, *part] if left else [*part, *fill])


def _zeros(bits: int) -> list[Value]:
    return [np.zeros((1, 1), dtype=L.UNSIGNED[size]) for size in _sizes(bits)]


def _sizes(bits: int) -> list[int]:
    return {8: [8], 16: [16], 24: [8, 16], 32: [32], 40: [8, 32], 48: [16, 32], 56: [8, 16, 32]}[bits]


def _bytes(value: Value, low: int, bits: int) -> list[Value]:
    if bits in (8, 16, 32):
        return [extract(value, low, bits)]
    parts: list[Value] = []
    for size in _sizes(bits) if low % 16 else _sizes(bits)[::-1]:
        parts.append(extract(value, low, size))
        low += size
    return parts
