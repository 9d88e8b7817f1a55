"""Chains of steps over k in C, `chains.c`; where it cannot be compiled, the same is computed step by step in NumPy."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bitwise_core.caching.c_modules import c_module
from bitwise_core.numerics import FLOAT_FORMATS, Bits, FloatFormat
from bitwise_core.numerics.mma.exact_values import ABSENT, Exponents, Values
from bitwise_core.numerics.mma.native_steps import LOWEST
from bitwise_core.numerics.mma.spec import FusedSum
from bitwise_core.numerics.native_floats import trusted

_STEP = 2.0**-23
"""The distance of fp32 numbers above 1."""


@cache
def _compiled() -> Any:
    """The module, None where it cannot be compiled or its multiply-adds round twice."""
    found = c_module(Path(__file__).with_name("chains.c"))
    if found is None:
        return None
    left, right, total = (np.array([each], np.float32) for each in (1 + _STEP, (1 - _STEP) / 2**24, 1 + _STEP))
    found.multiply_adds(left, right, total, (1, 1, 1, 1))
    # The exact sum lies below the middle of this number and the next one, by 2**-70.
    return found if total[0] == np.float32(1 + _STEP) else None


def available() -> bool:
    """Return whether chains are computed in C by this thread on this machine."""
    return trusted() and _compiled() is not None


def serves(rule: FusedSum) -> bool:
    """Return whether `fused_sums` computes steps of a rule: of consecutive k, from the accumulator, not widened."""
    plain = rule.order == "ascending" and not rule.accumulator_last and rule.widened is None
    return plain and available()


def fused_sums(
    rule: FusedSum, form: FloatFormat, left: tuple[Values, Exponents], right: tuple[Values, Exponents], total: Values
) -> None:
    """Add the products of left (batch, m, k) and right (batch, n, k), values and exponents, to `total`, in place.

    `serves` holds for the rule.
    """
    (batch, m, k), n = left[0].shape, right[0].shape[1]
    _compiled().fused_sums(
        *left, *right, total, (batch, m, n, k),
        (
            rule.products, rule.fraction_bits, rule.mantissa_bits, rule.rounding == "rn",
            LOWEST if rule.least_exponent is None else rule.least_exponent,
            ABSENT if rule.zero_exponent is None else rule.zero_exponent,
            form.smallest_exponent, form.largest_exponent,
        ),
    )  # fmt: skip


def multiply_adds(left: Bits, right: Bits, total: Bits) -> Bits:
    """Return total (batch, m, n) plus left (batch, m, k) times right (batch, k, n), patterns of fp32, in ascending k.

    Every product is a fused multiply-add.  `available` holds.
    """
    (batch, m, k), n = left.shape, right.shape[2]
    result = np.array(np.broadcast_to(total, (batch, m, n)), dtype=np.uint32, order="C")
    across = np.ascontiguousarray(right.transpose(0, 2, 1))
    _compiled().multiply_adds(np.ascontiguousarray(left), across, result, (batch, m, n, k))
    nan = FLOAT_FORMATS["fp32"].canonical_nan
    assert nan is not None
    return np.where(np.isnan(result.view(np.float32)), np.uint32(nan), result)
