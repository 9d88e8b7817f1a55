"""Which fp32 numbers fp16 holds: the quick rounding agrees with the exact one on every kind of pattern."""

from __future__ import annotations

import numpy as np

from bitwise_core import numerics
from bitwise_core.execution.values.constant_folding import rounded_to_half

NARROW = numerics.operation("convert.rn.fp16.fp32").evaluate
WIDEN = numerics.operation("convert.fp32.fp16").evaluate


def test_rounding_to_half_agrees_with_the_exact_conversion() -> None:
    halves = WIDEN(np.arange(1 << 16, dtype=np.uint16))
    ties = [halves + np.uint32(each) for each in (1, 0x0FFF, 0x1000, 0x1001, 0x1FFF)]
    exponents = (np.arange(1 << 9, dtype=np.uint32) << np.uint32(23))[:, None] + np.arange(3, dtype=np.uint32)
    drawn = np.random.default_rng(0).integers(0, 1 << 32, 1 << 16, dtype=np.uint32)
    for numbers in (halves, halves - np.uint32(1), *ties, exponents, ~exponents, drawn):
        half, kept = rounded_to_half(numbers)
        assert half.dtype == np.uint64
        assert (half == NARROW(numbers)).all()
        assert (kept == (WIDEN(NARROW(numbers)) == numbers)).all()


def test_fp16_holds_what_it_widens_to_but_for_nans_of_other_patterns() -> None:
    patterns = np.arange(1 << 16, dtype=np.uint16)
    half, kept = rounded_to_half(WIDEN(patterns))
    numbers = (patterns & 0x7FFF) <= 0x7C00
    assert kept[numbers].all()
    assert (half == patterns)[numbers].all()
