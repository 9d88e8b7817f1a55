"""The natural logarithm of fp32 in operations of IEEE 754 alone, so that every machine computes the same bits."""

from __future__ import annotations

import numpy as np

from bitwise_core.numerics import Bits, operation

ROOT_OF_HALF = 0x3F3504F3
LN_2 = 0.6931471805599453
SERIES = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
    2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
"""The coefficients of Cephes' logf, from the highest power to the lowest."""


def natural_logarithm(x: Bits) -> Bits:
    """Return log(x) for patterns of positive normal numbers, +infinity and NaNs; other patterns have no meaning.

    x = 2^e (1 + z) with sqrt(1/2) <= 1 + z < sqrt(2).  The result is e ln(2) + (z + (z^2 (-1/2) + (p(z) z) z^2)), where
    p is a chain of multiply-adds over SERIES and both other products of a sum are multiply-adds.
    """
    plus, times, fused = (operation(f"{name}.rn.fp32").evaluate for name in ("add", "mul", "fma"))

    def constant(value: float) -> Bits:
        return np.full(x.shape, np.asarray(np.float32(value)).view(np.uint32))

    bits = x.astype(np.int64)
    exponent = bits - ROOT_OF_HALF >> 23
    z = plus((bits - (exponent << 23)).astype(np.uint32), constant(-1.0))
    y = constant(SERIES[0])
    for each in SERIES[1:]:
        y = fused(y, z, constant(each))
    square = times(z, z)
    y = fused(square, constant(-0.5), times(times(y, z), square))
    found = fused(exponent.astype(np.float32).view(np.uint32), constant(LN_2), plus(z, y))
    return np.where(x < 0x7F800000, found, x)
