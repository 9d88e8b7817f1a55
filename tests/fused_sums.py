"""An oracle of matrix units in integers: a truncating fused sum as it is published, written without the package.

One step aligns exact products and the accumulator to the largest of their exponents, truncates each toward zero,
adds, and rounds the sum once.  An instruction is a chain of steps over ascending k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LAYOUTS = {"fp16": (5, 10), "bf16": (8, 7), "tf32": (8, 23), "fp32": (8, 23), "e4m3": (4, 3), "e5m2": (5, 2)}
"""Exponent and mantissa bits; a tf32 operand is an fp32 pattern whose 13 low bits are ignored."""


@dataclass(frozen=True, slots=True)
class Unit:
    """`products` a step, aligned terms of `fraction` bits, and results of `kept` bits, rounded toward zero."""

    kind: str
    products: int
    fraction: int
    kept: int = 23


def decode(pattern: int, kind: str) -> tuple[int, int]:
    """Return (significand, exponent) of a finite pattern; its value is significand * 2**(exponent - mantissa bits)."""
    exponent_bits, mantissa = LAYOUTS[kind]
    if kind == "tf32":
        pattern &= 0xFFFFE000
    field = pattern >> mantissa & (1 << exponent_bits) - 1
    fraction = pattern & (1 << mantissa) - 1
    significand = fraction + (1 << mantissa if field else 0)
    negative = pattern >> exponent_bits + mantissa & 1
    return (-significand if negative else significand), max(field, 1) - (1 << exponent_bits - 1) + 1


def step(unit: Unit, left: Sequence[int], right: Sequence[int], accumulator: int) -> int:
    """Return the fp32 pattern of one step; operands and results are finite, and the result is normal or a zero."""
    mantissa = LAYOUTS[unit.kind][1]
    terms = [(*decode(accumulator, "fp32"), 23)]
    for a, b in zip(left, right, strict=True):
        (s, e), (t, f) = decode(a, unit.kind), decode(b, unit.kind)
        terms.append((s * t, e + f, 2 * mantissa))
    terms = [each for each in terms if each[0]]
    if not terms:
        return 0
    top = max(exponent for _, exponent, _ in terms)
    total = 0
    for significand, exponent, scale in terms:
        shift = exponent - scale - top + unit.fraction
        size = abs(significand) << shift if shift >= 0 else abs(significand) >> -shift
        total += size if significand > 0 else -size
    if not total:
        return 0
    size = abs(total)
    length = size.bit_length() - 1
    exponent = length - unit.fraction + top
    size = size << 23 - length if length <= 23 else size >> length - 23
    size &= -1 << 23 - unit.kept
    assert -126 <= exponent <= 127
    return (total < 0) << 31 | exponent + 127 << 23 | size & (1 << 23) - 1


def product(unit: Unit, left: NDArray[np.unsignedinteger], right: NDArray[np.unsignedinteger]) -> NDArray[np.uint32]:
    """Return the fp32 patterns of a product of matrices of patterns, accumulated from +0."""
    out = np.zeros((left.shape[0], right.shape[1]), dtype=np.uint32)
    for row, column in np.ndindex(*out.shape):
        total = 0
        for start in range(0, left.shape[1], unit.products):
            part = slice(start, start + unit.products)
            total = step(unit, left[row, part].tolist(), right[part, column].tolist(), total)
        out[row, column] = total
    return out
