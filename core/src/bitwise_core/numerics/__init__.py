"""Scalar formats and their operations on bit patterns, exact to the last bit.

Operands and results are patterns in unsigned NumPy arrays.  Every NaN result is its format's canonical NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitwise_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from bitwise_core.numerics.formats import (
        FLOAT_FORMATS,
        FORMATS,
        INTEGER_FORMATS,
        FloatFormat,
        Format,
        IntegerFormat,
        float_format,
    )
    from bitwise_core.numerics.operations import UnknownOperation, declare, operation, verbs, vocabulary
    from bitwise_core.numerics.record import Operation, Unevaluable
    from bitwise_core.numerics.softfloat import ROUNDINGS, nan_of
    from bitwise_core.numerics.word_arithmetic import Bits, storage

__all__ = [
    "FLOAT_FORMATS",
    "FORMATS",
    "INTEGER_FORMATS",
    "ROUNDINGS",
    "Bits",
    "FloatFormat",
    "Format",
    "IntegerFormat",
    "Operation",
    "Unevaluable",
    "UnknownOperation",
    "declare",
    "float_format",
    "nan_of",
    "operation",
    "storage",
    "verbs",
    "vocabulary",
]

if not TYPE_CHECKING:  # the names are loaded when they are first used
    __getattr__ = lazy_names(
        __name__,
        {
            "formats": (
                "FLOAT_FORMATS",
                "FORMATS",
                "INTEGER_FORMATS",
                "FloatFormat",
                "Format",
                "IntegerFormat",
                "float_format",
            ),
            "operations": ("UnknownOperation", "declare", "operation", "verbs", "vocabulary"),
            "record": ("Operation", "Unevaluable"),
            "softfloat": ("ROUNDINGS", "nan_of"),
            "word_arithmetic": ("Bits", "storage"),
        },
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
