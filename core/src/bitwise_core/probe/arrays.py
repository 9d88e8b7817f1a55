"""The operands of an instrument and what comes back: NumPy arrays, PyTorch tensors, or patterns of bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bitwise_core.numeric import FLOAT_FORMATS, Bits, operation, storage

Doubles = npt.NDArray[np.float64]

TYPES = {
    "float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
}  # fmt: skip
"""Our names of the types that NumPy and PyTorch name."""


@dataclass(frozen=True, slots=True)
class Arrays:
    """NumPy arrays, or PyTorch tensors on a device, or, with `patterns`, the output's type, unsigned integers."""

    device: str | None = None
    patterns: str | None = None

    def of_patterns(self, bits: Bits, dtype: str) -> Any:
        """An operand of these bits; NumPy has no arrays of bfloat16 or of 8 bits."""
        if self.patterns is not None:
            return bits
        if self.device is None:
            return bits.view(dtype)
        import torch

        size = bits.dtype.itemsize
        whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
        signed = np.ascontiguousarray(bits).view("u1" if size == 1 else f"i{size}")
        return torch.from_numpy(signed).to(self.device).view(whole).view(getattr(torch, dtype))

    def to_patterns(self, array: Any) -> Bits:
        """The bits of what a function returned."""
        if self.patterns is None and self.device is not None:
            import torch

            size = array.element_size()
            whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
            array = array.detach().contiguous().view(whole).cpu().numpy()
        array = np.ascontiguousarray(array)
        found: Bits = array.view(f"u{array.dtype.itemsize}")
        return found

    def of_doubles(self, values: Doubles, dtype: str) -> Any:
        """An operand of these numbers, rounded to its type."""
        return self.of_patterns(patterns_of(values, dtype), dtype)

    def dense(self, array: Any) -> Any:
        """The same numbers, row after row."""
        return array.contiguous() if self.device is not None and self.patterns is None else np.ascontiguousarray(array)

    def doubles(self, array: Any, dtype: str) -> Doubles:
        """The numbers of what a function returned."""
        if self.patterns is not None:
            return widened(np.asarray(array), dtype)
        if self.device is not None:
            array = array.double().cpu().numpy()
        return np.asarray(array, dtype=np.float64)

    def name(self, array: Any) -> str:
        """The type of what a function returned, as PyTorch and NumPy call it."""
        return self.patterns or str(array.dtype).removeprefix("torch.")

    def output_type(
        self, function: Callable[[Any, Any], Any], a: tuple[int, int], b: tuple[int, int], dtype: str, b_type: str,
        transpose_b: bool,
    ) -> str:  # fmt: skip
        """The type of the products that a function returns."""
        right = self.of_doubles(np.ones(b[::-1]), b_type).T
        left = self.of_doubles(np.ones(a), dtype)
        return self.name(function(left, right if transpose_b else self.dense(right)))


def patterns_of(values: Doubles, dtype: str) -> Bits:
    """Numbers as the patterns of a type, each rounded once to nearest even."""
    kind = TYPES[dtype]
    native = {"fp64": np.float64, "fp32": np.float32, "fp16": np.float16}.get(kind)
    if native is not None:
        with np.errstate(over="ignore"):
            return values.astype(native).view(storage(FLOAT_FORMATS[kind].bits))
    # Rounded to fp32 toward zero, with what was cut off kept in the last bit, so that the second rounding is right.
    wide = values.view(np.uint64)
    sticky = (wide & ~np.uint64((1 << 29) - 1)) | np.where(wide & np.uint64((1 << 29) - 1), np.uint64(1 << 29), 0)
    single = sticky.astype(np.uint64).view(np.float64).astype(np.float32).view(np.uint32)
    return operation(f"convert.rn.{kind}.fp32").evaluate(single)


def widened(bits: Bits, dtype: str) -> Doubles:
    """Patterns of a type as numbers."""
    kind = TYPES[dtype]
    bits = np.ascontiguousarray(bits)
    native = {"fp64": np.float64, "fp32": np.float32, "fp16": np.float16}.get(kind)
    if native is not None:
        return bits.view(native).astype(np.float64)
    return operation(f"convert.rn.fp32.{kind}").evaluate(bits).view(np.float32).astype(np.float64)
