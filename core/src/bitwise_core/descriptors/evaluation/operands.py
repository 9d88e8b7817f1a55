"""Helpers on bit patterns: operands checked, formats converted, numbers added."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bitwise_core.descriptors.record import DescriptorError, wider
from bitwise_core.numerics import FLOAT_FORMATS, Bits, operation, storage

_NATIVE = {"fp16": "float16", "fp32": "float32", "tf32": "float32", "fp64": "float64"}


def patterns(name: str, values: npt.ArrayLike, dtype: str, shape: tuple[int | None, ...]) -> Bits:
    """Return an operand as patterns of `dtype`, of the shape given (None for any length, at least 1), C-contiguous.

    Accepts unsigned integers of the type's width, and NumPy's own floats for fp16, fp32, tf32 and fp64, with any
    strides.  Raises DescriptorError.
    """
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DescriptorError(f"{name} is not an array: {error}") from None
    form = FLOAT_FORMATS[dtype]
    width = storage(form.bits)
    if array.dtype.name == _NATIVE.get(dtype):
        array = np.ascontiguousarray(array).view(width)
    if array.dtype != width:
        also = f" or {_NATIVE[dtype]}" if dtype in _NATIVE else ""
        raise DescriptorError(
            f"{name} holds {dtype}: give its patterns as an array of {width}{also}, not of {array.dtype}"
        )
    fits = array.ndim == len(shape) and all(
        have >= 1 if want is None else have == want for have, want in zip(array.shape, shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("any" if want is None else str(want) for want in shape)
        raise DescriptorError(f"{name} must have the shape ({wanted}) here, not {array.shape}")
    return np.ascontiguousarray(array)


def convert(bits: Bits, source: str, target: str, satfinite: bool = False) -> Bits:
    """Return patterns converted to another format, rounded to nearest even where it does not hold them."""
    name = conversion(source, target, satfinite)
    return bits if name is None else operation(name).evaluate(bits)


def conversion(source: str, target: str, satfinite: bool = False) -> str | None:
    """Return the name of the operation that converts; None where the conversion is the identity."""
    if source == target and not satfinite:
        return None
    return operation(f"convert.rn.{'satfinite.' * satfinite}{target}.{source}").name


def add(left: Bits, left_dtype: str, right: Bits, right_dtype: str, target: str) -> Bits:
    """Return left + right in the wider of their types, to nearest even, then rounded to `target`."""
    wide = wider(left_dtype, right_dtype)
    total = operation(f"add.rn.{wide}").evaluate(convert(left, left_dtype, wide), convert(right, right_dtype, wide))
    return convert(total, wide, target)


def zeros(dtype: str, shape: tuple[int, ...]) -> Bits:
    """Return an array of +0."""
    return np.zeros(shape, dtype=storage(FLOAT_FORMATS[dtype].bits))


def fp32(name: str, value: float) -> Bits:
    """Return a scale as a pattern of fp32, of shape ().  Raises DescriptorError where it is not finite."""
    with np.errstate(over="ignore"):
        number = np.float32(value)
    if not np.isfinite(number):
        raise DescriptorError(f"{name} is {value}: a scale is a finite number of fp32")
    return np.asarray(number).view(np.uint32)
