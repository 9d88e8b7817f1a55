"""What a proof may assume: the one definition of each assumption, and what it asks of bit patterns.

`FINITE`: no input and no intermediate value is infinite or NaN, but for numbers that are known whatever memory holds.

- An input is an element of a buffer of a floating-point type before the launch.
- An intermediate value is the result of a floating-point operation, of a conversion to a floating-point format, or of a
  step of a matrix unit.
- A known number is a constant of the text, or what follows from constants and finite numbers alone: a mask's -inf, the
  -inf that it gives added to a number, the +0 that is its power of two.
- Integers, predicates, and operations that only move or choose bits are not constrained.

Over terms, rules may then take whatever is not a known number for a finite one (`machine.float_rules`, `machine.terms`,
`machine.matrix`, `machine.winners`); guarded values (`machine.guards`) are not needed.  A run on bit patterns cannot
know which of its numbers are known ones.  Its inputs are `made_finite`, and it is refused where an operation makes an
infinity or a NaN of finite operands, or a NaN of operands that are no NaNs (`machine.finiteness`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from bitwise_core.numerics import Bits, FloatFormat, nan_of, storage

FINITE = "finite"

ASSUMPTIONS: Mapping[str, str] = MappingProxyType(
    {FINITE: "no input and no intermediate value is infinite or NaN, but for numbers that are known"}
)
"""The assumptions that a proof may be asked for, each in words."""


def not_finite(patterns: Bits, form: FloatFormat) -> Bits:
    """Which patterns are infinities or NaNs."""
    found = nan_of(patterns, form)
    if form.infinity is not None:
        sign = patterns.dtype.type(1 << (form.bits - 1))
        found = found | ((patterns & ~sign) == patterns.dtype.type(form.infinity))
    return np.asarray(found)


def replace_non_finite(content: Bits, form: FloatFormat) -> Bits:
    """Bytes of elements of a format, the largest number in the place of each infinity and each NaN."""
    patterns = content[: content.size // (form.bits // 8) * (form.bits // 8)].view(storage(form.bits)).copy()
    sign = patterns.dtype.type(1 << (form.bits - 1))
    largest = patterns.dtype.type(form.largest_magnitude << form.padding)
    found: Bits = np.where(not_finite(patterns, form), patterns & sign | largest, patterns).view(np.uint8)
    return found
