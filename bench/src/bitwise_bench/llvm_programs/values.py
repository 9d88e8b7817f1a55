"""Values of LLVM's types in all lanes, as bit patterns, and arithmetic on them that NumPy does not have.

A vector of two elements has the shape (lanes, 2), any other value (lanes,); a predicate is a boolean array.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

LANES, WAVE = 128, 64
"""The lanes of a program, and those of a wave."""
FLOATS: Mapping[str, tuple[type[Any], int, int]] = MappingProxyType(
    {"half": (np.float16, 10, 15), "float": (np.float32, 23, 127), "double": (np.float64, 52, 1023)}
)
"""The type of NumPy, the bits of the significand, and the bias of each floating-point type."""
INTEGERS = ("i8", "i16", "i32", "i64")
PAIRS = ("<2 x half>", "<2 x i16>", "<2 x float>")
TYPES = (*INTEGERS, *FLOATS, *PAIRS)
"""The types of values in memory."""


def element_of(kind: str) -> str:
    """Return the type of an element of a type."""
    return kind[5:-1] if kind.startswith("<") else kind


def bits_of(kind: str) -> int:
    """Return the width of an element of a type."""
    element = element_of(kind)
    return int(element[1:]) if element[0] == "i" else np.dtype(FLOATS[element][0]).itemsize * 8


def pattern_type(kind: str) -> np.dtype[Any]:
    """Return the type of the patterns of a type."""
    return np.dtype(bool) if kind == "i1" else np.dtype(f"u{bits_of(kind) // 8}")


def numbers(patterns: Array, kind: str) -> Array:
    """Return patterns as numbers of a floating-point type."""
    return np.ascontiguousarray(patterns).view(FLOATS[element_of(kind)][0])


def signed(patterns: Array) -> Array:
    """Return patterns as signed integers."""
    return np.ascontiguousarray(patterns).view(f"i{patterns.dtype.itemsize}")


def patterns_of(values: Array, kind: str) -> Array:
    """Return floats, which are rounded to a type, as patterns."""
    found: Array = np.asarray(values, FLOATS[element_of(kind)][0]).view(pattern_type(kind))
    return found


def wrapped(integers: list[int], kind: str) -> Array:
    """Return the low bits of integers."""
    mask = (1 << bits_of(kind)) - 1
    return np.array([each & mask for each in integers], np.uint64).astype(pattern_type(kind))


def rounded(number: Fraction, kind: str) -> int:
    """Return the pattern of a number that is rounded to nearest even; +0 for a zero."""
    _, digits, bias = FLOATS[element_of(kind)]
    if not number:
        return 0
    size = abs(number)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent = max(exponent - (Fraction(2) ** exponent > size), 1 - bias)
    scaled = size / Fraction(2) ** (exponent - digits)
    whole = scaled.numerator // scaled.denominator
    rest = 2 * (scaled - whole)
    whole += rest > 1 or (rest == 1 and whole % 2)
    # A carry out of the significand is one into the exponent.
    pattern = min(((exponent + bias - 1) << digits) + whole, (2 * bias + 1) << digits)
    return pattern | (number < 0) << (bits_of(kind) - 1)


def fused(one: Array, other: Array, addend: Array, kind: str) -> Array:
    """Return fused products and sums of patterns of a type."""
    sign = 1 << bits_of(kind) - 1
    found = np.empty(one.shape, pattern_type(kind))
    triples = zip(*(numbers(each, kind).ravel().tolist() for each in (one, other, addend)), strict=True)
    for place, (x, y, z) in enumerate(triples):
        if np.isfinite([x, y, z]).all():
            exact = Fraction(x) * Fraction(y)
            negative = not exact and not z and np.signbit(z) and np.signbit(x) != np.signbit(y)
            found.flat[place] = rounded(exact + Fraction(z), kind) or (sign if negative else 0)
        else:
            product = np.float64(x) * np.float64(y) if not np.isfinite([x, y]).all() else np.float64(0)
            found.flat[place] = patterns_of(np.asarray(product + np.float64(z)), kind)
    return found


def same(left: Array, right: Array, kind: str) -> Array:
    """Return where two values agree, with all NaNs of a floating-point type as one."""
    found: Array = left == right
    if element_of(kind) in FLOATS:
        found = found | (np.isnan(numbers(left, kind)) & np.isnan(numbers(right, kind)))
    return found


def drawn(kind: str, dice: np.random.Generator) -> Array:
    """Return a value: ordinary and special patterns, and NaNs of one pattern only."""
    shape = (LANES, 2) if kind in PAIRS else (LANES,)
    bits, element = bits_of(kind), element_of(kind)
    limits = [0, 1, 2, 31, 32, 0x80, 0xFF, (1 << bits - 1) - 1, 1 << bits - 1, (1 << bits) - 1]
    found = dice.integers(0, 1 << bits - 1, shape, dtype=np.uint64) << np.uint64(1) | dice.integers(
        0, 2, shape, dtype=np.uint64
    )
    chosen = dice.random(shape)
    found = np.where(chosen < 0.2, dice.choice(np.array(limits, np.uint64), shape), found)
    found = np.where(chosen > 0.8, found & np.uint64(0xFF), found)
    patterns = (found & np.uint64((1 << bits) - 1)).astype(pattern_type(kind))
    if element in FLOATS:
        ordinary = patterns_of(dice.standard_normal(shape) * 2.0 ** dice.integers(-6, 7, shape), kind)
        special = patterns_of(dice.choice(np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 0.5]), shape), kind)
        patterns = np.where(chosen < 0.6, ordinary, np.where(chosen < 0.8, special, patterns))
        patterns = np.where(np.isnan(numbers(patterns, kind)), patterns_of(np.array(np.nan), kind), patterns)
    return np.ascontiguousarray(patterns)
