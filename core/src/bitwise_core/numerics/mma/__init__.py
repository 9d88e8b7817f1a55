"""Bit-exact arithmetic of matrix units: rows of data, and one evaluation for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitwise_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from bitwise_core.numerics.mma.block_scaled import OpenArithmetic, scaled_multiply_accumulate, step_results
    from bitwise_core.numerics.mma.block_scaled_spec import BlockScaledSpec, MatrixUnit, ScaleFormat
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

if not TYPE_CHECKING:  # the names are loaded when they are first used
    __getattr__ = lazy_names(
        __name__,
        {
            "block_scaled": ("OpenArithmetic", "scaled_multiply_accumulate", "step_results"),
            "block_scaled_spec": ("BlockScaledSpec", "MatrixUnit", "ScaleFormat"),
            "evaluation": ("multiply_accumulate",),
            "spec": (
                "Arithmetic",
                "FlooredSum",
                "FusedSum",
                "IntegerSum",
                "MatrixError",
                "MmaSpec",
                "SequentialMultiplyAdd",
            ),
        },
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
