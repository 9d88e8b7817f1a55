"""Patterns in and out: operands checked, formats converted, numbers added."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bitwise_core.descriptors.record import DescriptorError, wider
from bitwise_core.numerics import FLOAT_FORMATS, Bits, operation, storage

_NATIVE = {"fp16": "float16", "fp32": "float32", "tf32": "float32", "fp64": "float64"}


def patterns(name: str, values: npt.ArrayLike, dtype: str, shape: tuple[int | None, ...]) -> Bits:
    """An operand as patterns of `dtype`, of the shape given (None for any length, at least 1), C-contiguous.

    Taken as they are: unsigned integers of the type's width; fp16, fp32 and fp64 may come as NumPy's own floats.  Any
    strides are read right.  Raises DescriptorError.
    """
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DescriptorError(f"{name} is no array: {error}") from None
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
        raise DescriptorError(f"{name} has the shape ({wanted}) here, not {array.shape}")
    return np.ascontiguousarray(array)


def convert(bits: Bits, source: str, target: str, satfinite: bool = False) -> Bits:
    """Patterns of another format, rounded to nearest even where it does not hold them."""
    name = conversion(source, target, satfinite)
    return bits if name is None else operation(name).evaluate(bits)


def conversion(source: str, target: str, satfinite: bool = False) -> str | None:
    """The operation that converts; None where nothing is to be done."""
    if source == target and not satfinite:
        return None
    return operation(f"convert.rn.{'satfinite.' * satfinite}{target}.{source}").name


def add(left: Bits, left_dtype: str, right: Bits, right_dtype: str, target: str) -> Bits:
    """left + right in the wider of their types, to nearest even, then rounded to `target`."""
    wide = wider(left_dtype, right_dtype)
    total = operation(f"add.rn.{wide}").evaluate(convert(left, left_dtype, wide), convert(right, right_dtype, wide))
    return convert(total, wide, target)


def zeros(dtype: str, shape: tuple[int, ...]) -> Bits:
    """+0."""
    return np.zeros(shape, dtype=storage(FLOAT_FORMATS[dtype].bits))


def fp32(name: str, value: float) -> Bits:
    """A scale as a pattern of fp32, of shape ().  Raises DescriptorError where it is no finite number."""
    with np.errstate(over="ignore"):
        number = np.float32(value)
    if not np.isfinite(number):
        raise DescriptorError(f"{name} is {value}: a scale is a finite number of fp32")
    return np.asarray(number).view(np.uint32)
