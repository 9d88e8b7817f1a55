"""Shifts; those by whole bytes move the pieces of packed registers."""

from __future__ import annotations

import numpy as np

from bitwise_core.machine import lanes as L
from bitwise_core.machine.lanes import Array, Value
from bitwise_core.machine.pieces import concat, cut
from bitwise_core.machine.state import Machine
from bitwise_core.machine.steps import apply_integer

_SIGNED = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


def shifted(machine: Machine, root: str, value: Value, by: Value, bits: int, *, is_signed: bool = False) -> Value:
    """`value` of `bits` bits shifted (root shl or shr) by an amount of 32 bits.

    An amount of the width or more clears, or fills with the sign where `is_signed`.
    """

    def evaluate(a: Array, b: Array) -> Array:
        large = b >= np.uint32(bits)
        count = np.where(large, np.uint32(bits - 1), b).astype(a.dtype)
        moved: Array
        if is_signed:
            kind = _SIGNED[a.dtype.itemsize]
            moved = a.view(kind) >> count.view(kind)
            return moved.view(a.dtype)
        moved = np.where(large, a.dtype.type(0), a << count if root == "shl" else a >> count)
        return moved

    number, count = machine.known(value), machine.known(by)
    if number is not None and count is not None:
        return evaluate(number, count)
    exact = is_signed or L.other_form(value) is not None
    moved = None if exact else _move_bytes(value, by, bits, root == "shl")
    if moved is None:
        name = f"{root}.s{bits}" if is_signed else f"{root}.b{bits}"
        moved = apply_integer(machine, name, [value, by], bits, evaluate)
    return moved


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
        return [cut(value, low, bits)]
    parts: list[Value] = []
    for size in _sizes(bits) if low % 16 else _sizes(bits)[::-1]:
        parts.append(cut(value, low, size))
        low += size
    return parts
