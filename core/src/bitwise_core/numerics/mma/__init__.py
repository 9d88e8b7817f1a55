"""Bit-exact arithmetic of matrix units: rows of data, and one evaluation for all of them."""

from __future__ import annotations

from bitwise_core.numerics.mma.block_scaled import (
    BlockScaledSpec,
    MatrixUnit,
    OpenArithmetic,
    ScaleFormat,
    scaled_multiply_accumulate,
    step_results,
)
from bitwise_core.numerics.mma.evaluation import multiply_accumulate
from bitwise_core.numerics.mma.spec import (
    Arithmetic,
    FlooredSum,
    FusedSum,
    IntegerSum,
    MatrixError,
    MmaSpec,
    SequentialMultiplyAdd,
)

__all__ = [
    "Arithmetic",
    "BlockScaledSpec",
    "FlooredSum",
    "FusedSum",
    "IntegerSum",
    "MatrixError",
    "MatrixUnit",
    "MmaSpec",
    "OpenArithmetic",
    "ScaleFormat",
    "SequentialMultiplyAdd",
    "multiply_accumulate",
    "scaled_multiply_accumulate",
    "step_results",
]
