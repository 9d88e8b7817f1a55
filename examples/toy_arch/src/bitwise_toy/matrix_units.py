"""The arithmetic of the matrix unit of toy1."""

from __future__ import annotations

from bitwise_core.numerics.mma import FusedSum, MmaSpec

MAC = MmaSpec(
    architecture="toy1", family="mac", left="fp16", right="fp16", accumulator="fp32", result="fp32", k=2,
    arithmetic=FusedSum(products=2, fraction_bits=25, mantissa_bits=23, rounding="rz"),
    status="published only", source="https://example.org/toy1",
)  # fmt: skip
