"""Integers modulo 2**bits, for widths up to 64: a Python int where all lanes agree, else an array of uint64.

Signed values are in two's complement.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from bitwise_core.numerics.word_arithmetic import Words

Residue: TypeAlias = int | Words
"""An integer from 0 to 2**bits - 1, or one for each lane."""

FULL = (1 << 64) - 1


def wide(value: Residue) -> Any:
    """Return a number as a NumPy uint64, scalar or array."""
    return np.uint64(value) if isinstance(value, int) else value


def reduced(value: Any, bits: int) -> Residue:
    """Return a number modulo 2**bits; an array of one element becomes an int."""
    if isinstance(value, int):
        return value & ((1 << bits) - 1)
    if bits < 64:
        value = value & np.uint64((1 << bits) - 1)
    if value.size == 1:
        return int(value.reshape(())[()]) & FULL
    return value  # type: ignore[no-any-return]


def is_zero(value: Residue) -> bool:
    """Whether the number is 0 in every lane."""
    return value == 0 if isinstance(value, int) else not value.any()


def is_one(value: Residue) -> bool:
    """Whether the number is the int 1, equal in all lanes."""
    return isinstance(value, int) and value == 1


def plus(left: Residue, right: Residue, bits: int) -> Residue:
    """Return the sum modulo 2**bits."""
    if isinstance(left, int) and isinstance(right, int):
        return (left + right) & ((1 << bits) - 1)
    return reduced(wide(left) + wide(right), bits)


def times(left: Residue, right: Residue, bits: int) -> Residue:
    """Return the product modulo 2**bits."""
    if isinstance(left, int) and isinstance(right, int):
        return (left * right) & ((1 << bits) - 1)
    return reduced(wide(left) * wide(right), bits)


def signed(value: Residue, bits: int) -> Any:
    """Return the number as a signed int or int64 array."""
    if isinstance(value, int):
        return value - (1 << bits) if value >> (bits - 1) else value
    shift = np.uint64(64 - bits)
    return (value << shift).view(np.int64) >> np.int64(64 - bits)


def unsigned(value: Any, bits: int) -> Residue:
    """Return a signed int or int64 array modulo 2**bits."""
    if isinstance(value, int):
        return value & ((1 << bits) - 1)
    return reduced(np.ascontiguousarray(value).view(np.uint64), bits)


def divisible(value: Residue, by: int, bits: int) -> bool:
    """Whether the signed number is a multiple of `by` in every lane."""
    number = signed(value, bits)
    return number % by == 0 if isinstance(number, int) else not (number % np.int64(by)).any()


def quotient(value: Residue, by: int, bits: int) -> Residue:
    """Return the signed number divided by `by`, rounded down."""
    number = signed(value, bits)
    return unsigned(number // by if isinstance(number, int) else number // np.int64(by), bits)
