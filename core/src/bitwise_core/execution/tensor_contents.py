"""The contents of a buffer that a launch gives: page tables, lengths, offsets, ids, masks, scales.

A manifest names a `.npy` file beside it, or lists the numbers.  The contents are bytes, never an array that could be
changed, so that a launch stays a value: it is compared and hashed with them, and passed between processes.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from tokenize import TokenError
from typing import Any

from bitwise_core.execution.element_types import Array, ElementType, array_mismatch, element_type

MAXIMUM_BYTES = 1 << 24
"""The largest size of given contents."""

INTEGERS = {
    "i1": (0, 1), "i8": (-(1 << 7), (1 << 7) - 1), "u8": (0, (1 << 8) - 1),
    "i16": (-(1 << 15), (1 << 15) - 1), "u16": (0, (1 << 16) - 1), "i32": (-(1 << 31), (1 << 31) - 1),
    "u32": (0, (1 << 32) - 1), "i64": (-(1 << 63), (1 << 63) - 1), "u64": (0, (1 << 64) - 1),
}  # fmt: skip
"""The least and the greatest number of each integer type."""
FLOATS = ("fp16", "bf16", "fp32", "fp64")
MAXIMUM_OFFSET = 1 << 39
"""No pointer points further from the start of its buffer, in bytes."""
POINTER_TYPES = ("i64", "u64")
"""The types of elements that may be pointers."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """A pointer among the elements of a tensor, by its index: `offset` bytes behind the start of a buffer.

    `dtype` and `elements` describe the buffer as those of an argument do; None: not stated.
    """

    index: int
    buffer: str
    offset: int = 0
    dtype: str | None = None
    elements: int | None = None

    def manifest_form(self) -> dict[str, str | int]:
        """Return the form that a manifest has."""
        stated = {"offset": self.offset or None, "dtype": self.dtype, "elements": self.elements}
        return {"buffer": self.buffer, **{name: each for name, each in stated.items() if each is not None}}


@dataclass(frozen=True, slots=True)
class TensorContents:
    """The bytes of a buffer before a launch, from its first byte, and the type of its elements.

    Two contents are equal if their bytes and their pointers are.  The bytes of a pointer are zeros: `placed` replaces
    them.  `file` is the file beside the manifest that the contents were read from.
    """

    data: bytes = field(repr=False)
    dtype: str = field(compare=False)
    file: str | None = field(default=None, compare=False)
    pointers: tuple[Pointer, ...] = ()

    def __repr__(self) -> str:
        return f"TensorContents({len(self)} {self.dtype}, digest {self.digest})"

    def __len__(self) -> int:
        return len(self.data) // element_type(self.dtype).bytes

    @property
    def digest(self) -> str:
        """The BLAKE2b digest of the bytes and the pointers, 32 bytes in hexadecimal."""
        found = blake2b(self.data, digest_size=32)
        for each in self.pointers:
            found.update(f"{each.index} {each.buffer!r} {each.offset}".encode())
        return found.hexdigest()

    @property
    def patterns(self) -> Array:
        """The bytes as an array that cannot be written, shape (bytes,)."""
        import numpy as np

        return np.frombuffer(self.data, dtype=np.uint8)

    @property
    def numbers(self) -> Array:
        """The elements as an array that cannot be written, in the type of `element_type`, on one axis."""
        import numpy as np

        return np.frombuffer(self.data, dtype=element_type(self.dtype).kind)

    def placed(self, addresses: Mapping[str, int]) -> Array:
        """Return the bytes with the pointers to buffers that start at these addresses."""
        found = self.patterns
        if self.pointers:
            import numpy as np

            words = found.copy().view(np.uint64)
            for each in self.pointers:
                words[each.index] = addresses[each.buffer] + each.offset
            found = words.view(np.uint8)
        return found

    def fault_of(self, array: Array) -> str | None:
        """Return why an array is not these contents, as the end of a sentence; None if it is."""
        import numpy as np

        if np.ascontiguousarray(array).tobytes() == self.data:
            return None
        return "is not what the launch gives for this buffer; omit it, or change the manifest"

    def manifest_form(self) -> str | list[Any]:
        """Return the form that a manifest has: the name of the file, or the numbers and pointers."""
        if self.file is not None:
            return self.file
        numbers = self.numbers
        if self.dtype == "bf16":
            import numpy as np

            numbers = (numbers.astype(np.uint32) << np.uint32(16)).view(np.float32)
        found: list[Any] = [number_form(each) for each in numbers.tolist()]
        for each in self.pointers:
            found[each.index] = each.manifest_form()
        return found


def tensor_contents(values: Any, dtype: str | None, folder: Path | None) -> TensorContents:
    """Return contents from the name of a file in `folder`, from numbers, or from a NumPy array.

    Raises ValueError with the end of a sentence about the contents.
    """
    if isinstance(values, TensorContents):
        return values
    form = element_type(dtype)
    if dtype is None or form.kind is None or dtype not in (*INTEGERS, *FLOATS):
        stated = "have no dtype" if dtype is None else f"have the dtype {dtype}"
        raise ValueError(f"{stated}; state one of {', '.join((*INTEGERS, *FLOATS))}")
    if isinstance(values, str):
        if folder is None:
            raise ValueError(f"are named as the file {values}, but no manifest says in which folder; give an array")
        return TensorContents(_bytes_of_file(folder, values, form), dtype, values)
    if isinstance(values, list | tuple):
        pointers = _pointers_of(values, dtype)
        numbers = [0 if isinstance(each, dict) else each for each in values]
        return TensorContents(_bytes_of_numbers(numbers, dtype), dtype, pointers=pointers)
    import numpy as np

    if isinstance(values, np.ndarray):
        return TensorContents(_bytes_of_array(values, form), dtype)
    raise ValueError(f"are of the type {type(values).__name__}; give the name of a .npy file or a list of numbers")


def _bytes_of_array(array: Array, form: ElementType) -> bytes:
    if array.nbytes > MAXIMUM_BYTES:
        raise ValueError(f"have {array.nbytes >> 20} MiB; the limit is {MAXIMUM_BYTES >> 20} MiB")
    fault = array_mismatch(array, form)
    if fault is not None:
        raise ValueError(f"do not fit: the array {fault}")
    data = array.tobytes()
    if form.name == "i1" and max(data) > 1:
        raise ValueError(f"do not fit: the array holds {max(data)}, and an i1 is 0 or 1")
    return data


def _bytes_of_file(folder: Path, name: str, form: ElementType) -> bytes:
    if not name.endswith(".npy") or "\0" in name:
        raise ValueError(f"are named as {name!r}, which is no .npy file; write them with numpy.save")
    path = folder / name
    try:
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"are named as {name}, which lies outside the manifest's folder; copy the file into it")
        if not path.is_file():
            what = "is not a file" if path.exists() else "does not exist"
            raise ValueError(f"are named as {name}, which {what} in the manifest's folder")
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > MAXIMUM_BYTES + 4096:
                raise ValueError(f"are in {name}, which has {size >> 20} MiB; the limit is {MAXIMUM_BYTES >> 20} MiB")
            array = _array_of(name, file, size)
    except (OSError, RuntimeError) as error:
        raise ValueError(f"cannot be read from {name} ({getattr(error, 'strerror', None) or error})") from None
    try:
        return _bytes_of_array(array, form)
    except ValueError as error:
        raise ValueError(f"in {name} {error}") from None


def _array_of(name: str, file: Any, size: int) -> Array:
    """Return the elements of a `.npy` file on one axis.  Nothing of the file is executed or believed unchecked."""
    import numpy as np

    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        version = np.lib.format.read_magic(file)
        if version not in headers:
            raise ValueError(f"version {version[0]}.{version[1]} of the format")
        shape, column_by_column, kind = headers[version](file)
    except (ValueError, TypeError, SyntaxError, TokenError, RecursionError, MemoryError) as error:
        words = str(error).split("\n")[0]
        raise ValueError(f"are in {name}, which is no .npy file of plain numbers ({words}); use numpy.save") from None
    if kind.hasobject or kind.fields is not None or kind.subdtype is not None:
        raise ValueError(f"are in {name}, which holds {kind}, not plain numbers; convert them before numpy.save")
    if column_by_column:
        raise ValueError(
            f"are in {name}, which is stored column by column (Fortran order); save numpy.ascontiguousarray of it"
        )
    rest, stated = size - file.tell(), math.prod(shape) * kind.itemsize
    if rest != stated or min(shape, default=0) < 0:
        raise ValueError(f"are in {name}, which holds {rest} bytes of elements where its header says {stated}")
    return np.frombuffer(file.read(stated), dtype=kind)


def _pointers_of(values: Sequence[Any], dtype: str) -> tuple[Pointer, ...]:
    found = []
    for index, given in enumerate(values):
        if not isinstance(given, dict):
            continue
        where = f"hold a pointer at index {index}"
        if dtype not in POINTER_TYPES:
            raise ValueError(f"{where}, and are of the type {dtype}; pointers are i64 or u64")
        unknown = sorted(map(str, given.keys() - {"buffer", "offset", "dtype", "elements"}))
        if unknown or not isinstance(given.get("buffer"), str) or not given["buffer"].isprintable():
            raise ValueError(
                f"{where}, which has `buffer`, and if needed `offset`, `dtype` and `elements`, not {given!r}"
            )
        stated = given.get("dtype")
        if stated is not None and (not isinstance(stated, str) or element_type(stated).kind is None):
            raise ValueError(f"{where} to elements of the type {stated!r}, which does not exist")
        for name, least in (("offset", -MAXIMUM_OFFSET), ("elements", 0)):
            number = given.get(name, 0)
            if isinstance(number, bool) or not isinstance(number, int) or not least <= number < MAXIMUM_OFFSET:
                raise ValueError(
                    f"{where} whose `{name}` is {number!r}, no integer from {least} to {MAXIMUM_OFFSET - 1}"
                )
        if "elements" in given and stated not in (*INTEGERS, *FLOATS):
            known = ", ".join((*INTEGERS, *FLOATS))
            raise ValueError(f"{where} with `elements` and no `dtype` of these, one of {known}")
        found.append(Pointer(index, given["buffer"], given.get("offset", 0), given.get("dtype"), given.get("elements")))
    return tuple(found)


def _bytes_of_numbers(values: Sequence[Any], dtype: str) -> bytes:
    import numpy as np

    if not values:
        raise ValueError("are an empty list; omit them")
    width = element_type(dtype).bytes
    if len(values) * width > MAXIMUM_BYTES:
        raise ValueError(f"have more than {MAXIMUM_BYTES >> 20} MiB")
    parts = []
    for index, given in enumerate(values):
        value = as_number(given) if dtype in FLOATS else given
        if not isinstance(value, bool | int | float | np.integer | np.floating | np.bool_):
            raise ValueError(f"hold {value!r} at index {index}, which is no number; give one flat list of numbers")
        pattern = _integer_pattern(value, dtype) if dtype in INTEGERS else float_pattern(value, dtype)
        if pattern is None:
            raise ValueError(f"hold {value!r} at index {index}, which does not fit {dtype}")
        parts.append(pattern.to_bytes(width, "little"))
    return b"".join(parts)


def _integer_pattern(value: Any, dtype: str) -> int | None:
    least, greatest = INTEGERS[dtype]
    if not math.isfinite(value) or value != int(value) or not least <= int(value) <= greatest:
        return None
    return int(value) & ((1 << 8 * element_type(dtype).bytes) - 1)


def number_form(value: bool | int | float) -> bool | int | float | str:
    """Return the form of a number in a manifest: infinities and NaN, which JSON lacks, are text."""
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def as_number(value: Any) -> Any:
    """Return the number that is "inf", "-inf" or "nan" in a manifest; anything else as it is."""
    return float(value) if isinstance(value, str) and value in ("inf", "-inf", "nan") else value


def float_pattern(value: Any, dtype: str) -> int | None:
    """Return the bits of a number rounded to a type of `FLOATS`; None if it is finite and overflows the type."""
    code = {"fp64": "<d", "fp32": "<f", "bf16": "<f", "fp16": "<e"}[dtype]
    try:
        bits = int.from_bytes(struct.pack(code, float(value)), "little")
    except OverflowError:
        return None
    if dtype != "bf16":
        return bits
    if value != value:
        return 0x7FC0
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return None if bits & 0x7FFF == 0x7F80 and math.isfinite(value) else bits
