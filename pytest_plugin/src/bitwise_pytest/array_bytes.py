"""Equality of the bytes of two arrays, with a message that names the first element that differs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bitwise_core.numerics import FLOAT_FORMATS, FloatFormat, nan_of, storage
from bitwise_core.numerics.decimals import apart, decimal

_FORMATS = {
    "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64", "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2", "float8_e4m3fnuz": "e4m3fnuz", "float8_e5m2fnuz": "e5m2fnuz", "float8_e8m0fnu": "ue8m0",
}  # fmt: skip
"""Formats by the names that NumPy and PyTorch give to types."""

_WHOLE = tuple(name for name, form in FLOAT_FORMATS.items() if form.bits in (8, 16, 32, 64))
"""The formats whose patterns are whole bytes."""


def assert_bytes_equal(a: Any, b: Any, *, dtype: str | None = None, any_nan: bool = False) -> None:
    """Fail unless two arrays, tensors or byte strings have the same type, shape and bytes.

    `dtype` names the format of arrays of unsigned integers that hold bit patterns, such as "bf16", and of byte strings.
    With `any_nan` all NaNs of a floating-point type are one value.  Raises TypeError for other objects and for an
    unknown dtype.
    """
    __tracebackhide__ = True
    (left, name), (right, other) = _patterns(a, dtype), _patterns(b, dtype)
    if name != other:
        raise AssertionError(f"the types differ: {name} and {other}")
    if left.shape != right.shape:
        raise AssertionError(f"the shapes differ: {left.shape} and {right.shape}")
    form = FLOAT_FORMATS.get(_FORMATS.get(name, name))
    unequal = left != right
    if any_nan and form is not None:
        unequal &= ~(nan_of(left, form) & nan_of(right, form))
    if unequal.any():
        raise AssertionError(_message(left, right, unequal, form, name))


def _message(
    left: npt.NDArray[Any], right: npt.NDArray[Any], unequal: npt.NDArray[np.bool_], form: FloatFormat | None, name: str
) -> str:
    count = int(np.count_nonzero(unequal))
    first = np.unravel_index(int(np.argmax(unequal.reshape(-1))), unequal.shape)
    index = f"element [{', '.join(str(int(each)) for each in first)}]" if first else "the only one"
    one, other = int(left[first]), int(right[first])
    digits = 2 * left.dtype.itemsize
    values = [f"0x{each:0{digits}x}" for each in (one, other)]
    distance = ""
    if form is not None:
        values = [f"{decimal(form, each)} ({shown})" for each, shown in zip((one, other), values, strict=True)]
        distance = apart(form, one, other)
    elements = f"{count} of {unequal.size} elements of {name} differ"
    return f"{elements}; the first is {index}: {values[0]} and {values[1]}{distance and f', {distance}'}"


def _patterns(value: Any, dtype: str | None) -> tuple[npt.NDArray[Any], str]:
    """Return the bit patterns as unsigned integers, and the name of the type."""
    found, name = _bits_of(value, dtype)
    if dtype is not None and found.dtype.itemsize * 8 != FLOAT_FORMATS[dtype].bits:
        wanted = storage(FLOAT_FORMATS[dtype].bits)
        raise TypeError(f"an array of {found.dtype} does not hold patterns of {dtype}: give {np.dtype(wanted)}")
    return found, name


def _bits_of(value: Any, dtype: str | None) -> tuple[npt.NDArray[Any], str]:
    if dtype is not None and dtype not in _WHOLE:
        raise TypeError(f"there is no format {dtype!r}; there are {', '.join(_WHOLE)}")
    if isinstance(value, bytes | bytearray | memoryview):
        width = 1 if dtype is None else FLOAT_FORMATS[dtype].bits // 8
        content = bytes(value)
        if len(content) % width:
            raise TypeError(f"{len(content)} bytes are no whole number of elements of {dtype}")
        return np.frombuffer(content, storage(8 * width)), dtype or "bytes"
    if hasattr(value, "detach") and hasattr(value, "element_size"):
        return _of_tensor(value), dtype or str(value.dtype).removeprefix("torch.")
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype.hasobject or array.dtype.itemsize not in (1, 2, 4, 8):
            raise TypeError(f"an array of {array.dtype} has no elements of 1, 2, 4 or 8 bytes")
        native = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
        return native.view(storage(8 * array.dtype.itemsize)).reshape(array.shape), dtype or array.dtype.name
    raise TypeError(f"a {type(value).__name__} has no bytes to compare: give an array, a tensor or bytes")


def _of_tensor(tensor: Any) -> npt.NDArray[Any]:
    import torch

    size = tensor.element_size()
    if size not in (1, 2, 4, 8) or tensor.is_complex():
        raise TypeError(f"a tensor of {tensor.dtype} has no elements of 1, 2, 4 or 8 bytes")
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
    dense = tensor.detach().resolve_neg().contiguous()
    found: npt.NDArray[Any] = dense.view(integers).cpu().numpy().view(storage(8 * size))
    return found
