"""The operands of a probed callable and its results: NumPy arrays, bit patterns, or another distribution's tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bitwise_core.numerics import FLOAT_FORMATS, Bits, operation, storage

Doubles = npt.NDArray[np.float64]

TYPES = {
    "float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
}  # fmt: skip
"""Format names by the names that NumPy and PyTorch use."""


class OperandArrays(ABC):
    """How operands are made for a callable, and how its results are read.

    Types have the names that NumPy and PyTorch use (`TYPES`).  A distribution offers arrays of its own in the
    entry-point group `bitwise.operands`, as a function from a device's name to an instance.
    """

    @abstractmethod
    def of_patterns(self, bits: Bits, dtype: str) -> Any:
        """Return an operand with these bit patterns."""

    @abstractmethod
    def to_patterns(self, array: Any) -> Bits:
        """Return the bit patterns of a result."""

    @abstractmethod
    def dense(self, array: Any) -> Any:
        """Return the same numbers in row-major order."""

    @abstractmethod
    def doubles(self, array: Any, dtype: str) -> Doubles:
        """Return the numbers of a result of type `dtype`."""

    @abstractmethod
    def name(self, array: Any) -> str:
        """Return the type of a result."""

    def of_doubles(self, values: Doubles, dtype: str) -> Any:
        """Return an operand with these numbers, rounded to its type."""
        return self.of_patterns(patterns_of(values, dtype), dtype)

    def output_type(
        self, function: Callable[[Any, Any], Any], a: tuple[int, int], b: tuple[int, int], dtype: str, b_type: str,
        transpose_b: bool,
    ) -> str:  # fmt: skip
        """Return the type of the products that a function computes, from one call with ones."""
        right = self.of_doubles(np.ones(b[::-1]), b_type).T
        left = self.of_doubles(np.ones(a), dtype)
        return self.name(function(left, right if transpose_b else self.dense(right)))


@dataclass(frozen=True, slots=True)
class NumpyArrays(OperandArrays):
    """NumPy arrays.  NumPy has no bfloat16 and no 8-bit floating-point type."""

    def of_patterns(self, bits: Bits, dtype: str) -> Any:
        """Return an array of `dtype`."""
        return bits.view(dtype)

    def to_patterns(self, array: Any) -> Bits:
        """Return the array as unsigned integers of its width."""
        array = np.ascontiguousarray(array)
        found: Bits = array.view(f"u{array.dtype.itemsize}")
        return found

    def dense(self, array: Any) -> Any:
        """Return a C-contiguous array."""
        return np.ascontiguousarray(array)

    def doubles(self, array: Any, dtype: str) -> Doubles:
        """Return the array in float64."""
        return np.asarray(array, dtype=np.float64)

    def name(self, array: Any) -> str:
        """Return the name of the array's dtype."""
        return str(array.dtype)


@dataclass(frozen=True, slots=True)
class PatternArrays(NumpyArrays):
    """Unsigned integers that hold bit patterns, for a callable whose result has the type `output`."""

    output: str

    def of_patterns(self, bits: Bits, dtype: str) -> Any:
        """Return the patterns themselves."""
        return bits

    def doubles(self, array: Any, dtype: str) -> Doubles:
        """Return the numbers that the patterns encode."""
        return widened(np.asarray(array), dtype)

    def name(self, array: Any) -> str:
        """Return the declared output type."""
        return self.output


NUMPY = NumpyArrays()


def patterns_of(values: Doubles, dtype: str) -> Bits:
    """Return numbers as bit patterns of a type, each rounded once to nearest even."""
    kind = TYPES[dtype]
    native = {"fp64": np.float64, "fp32": np.float32, "fp16": np.float16}.get(kind)
    if native is not None:
        with np.errstate(over="ignore"):
            return values.astype(native).view(storage(FLOAT_FORMATS[kind].bits))
    # Round to fp32 by truncation with a sticky last bit, so that the second rounding is correct (round to odd).
    wide = values.view(np.uint64)
    sticky = (wide & ~np.uint64((1 << 29) - 1)) | np.where(wide & np.uint64((1 << 29) - 1), np.uint64(1 << 29), 0)
    single = sticky.astype(np.uint64).view(np.float64).astype(np.float32).view(np.uint32)
    return operation(f"convert.rn.{kind}.fp32").evaluate(single)


def widened(bits: Bits, dtype: str) -> Doubles:
    """Return bit patterns of a type as numbers."""
    kind = TYPES[dtype]
    bits = np.ascontiguousarray(bits)
    native = {"fp64": np.float64, "fp32": np.float32, "fp16": np.float16}.get(kind)
    if native is not None:
        return bits.view(native).astype(np.float64)
    return operation(f"convert.rn.fp32.{kind}").evaluate(bits).view(np.float32).astype(np.float64)
