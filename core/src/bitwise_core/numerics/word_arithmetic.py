"""Arithmetic on arrays of 64-bit words that NumPy does not provide."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Bits: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
"""Bit patterns, in the smallest unsigned type that holds the format."""
Words: TypeAlias = npt.NDArray[np.uint64]
Integers: TypeAlias = npt.NDArray[np.int64]
Booleans: TypeAlias = npt.NDArray[np.bool_]

LEADING_BIT = 62
"""The position of the highest set bit of a normalised significand; the bit above it is free for a carry."""
EXPONENT_OF_ZERO = -(1 << 20)
"""Below every exponent that occurs, so that the alignment with a zero never shifts the other operand."""

_ONE = np.uint64(1)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def storage(bits: int) -> np.dtype[np.unsignedinteger[Any]]:
    """Return the unsigned type that holds patterns of `bits` bits.  Raises ValueError above 64."""
    for width in (8, 16, 32, 64):
        if bits <= width:
            return np.dtype(f"uint{width}")
    raise ValueError(f"patterns of {bits} bits do not fit a machine word; at most 64 do")


def words(values: npt.NDArray[Any]) -> Words:
    """Return the same patterns as 64-bit words."""
    return values.astype(np.uint64)


def shift_left(values: Words, amount: Integers) -> Words:
    """Shift left by 0 to 63, elementwise."""
    return np.left_shift(values, amount.astype(np.uint64))


def shift_right_sticky(values: Words, amount: Integers) -> Words:
    """Shift right by 0 or more; the lowest bit is also set where any set bit was shifted out."""
    inside = np.minimum(amount, 63).astype(np.uint64)
    kept = np.where(amount < 64, values >> inside, np.uint64(0))
    lost = np.where(amount < 64, values & ((_ONE << inside) - _ONE), values)
    return np.asarray(kept | (lost != 0), dtype=np.uint64)


def normalise(values: Words, exponent: Integers) -> tuple[Words, Integers]:
    """Shift each value below 2**63 left until its highest set bit is at LEADING_BIT, and adjust the exponent."""
    for step in (32, 16, 8, 4, 2, 1):
        low = values < np.uint64(1 << (LEADING_BIT + 1 - step))
        values = np.where(low, values << np.uint64(step), values)
        exponent = exponent - low * np.int64(step)
    return values, np.where(values == 0, np.int64(EXPONENT_OF_ZERO), exponent)


def multiply_high_low(left: Words, right: Words) -> tuple[Words, Words]:
    """Return the 128-bit product as its high and low words."""
    left_high, left_low = left >> _HALF, left & _LOW
    right_high, right_low = right >> _HALF, right & _LOW
    low = left_low * right_low
    middle = left_high * right_low + (low >> _HALF)
    cross = left_low * right_high + (middle & _LOW)
    high = left_high * right_high + (middle >> _HALF) + (cross >> _HALF)
    return high, (cross << _HALF) | (low & _LOW)


def divide_sticky(dividend: Words, divisor: Words) -> Words:
    """Return the quotient of two significands of at most 53 bits, times 2**60, with the remainder as a sticky bit.

    A zero divisor gives an arbitrary quotient.
    """
    divisor = np.where(divisor == 0, _ONE, divisor)
    quotient, rest = dividend // divisor, dividend % divisor
    for _ in range(6):
        rest = rest << np.uint64(10)
        quotient = (quotient << np.uint64(10)) | (rest // divisor)
        rest = rest % divisor
    return np.asarray(quotient | (rest != 0), dtype=np.uint64)


def square_root_sticky(values: Words) -> Words:
    """Return the square root of values below 2**64, times 2**28, rounded down, with the remainder as a sticky bit."""
    root, rest = np.zeros_like(values), np.zeros_like(values)
    for step in range(60):
        digits = (values >> np.uint64(62 - 2 * step)) & np.uint64(3) if step < 32 else np.uint64(0)
        rest = (rest << np.uint64(2)) | digits
        trial = (root << np.uint64(2)) | _ONE
        fits = rest >= trial
        rest = np.where(fits, rest - trial, rest)
        root = (root << _ONE) | fits
    return np.asarray(root | (rest != 0), dtype=np.uint64)
