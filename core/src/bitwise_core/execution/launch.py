"""A launch: the grid, the block, the value of each kernel parameter, the given tensors; reading of manifests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    PlainSerializer,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from bitwise_core.errors import BitwiseError
from bitwise_core.execution.tensor_contents import FLOATS, TensorContents, float_pattern, tensor_contents
from bitwise_core.execution.values.symbolic_vector import Array

POINTER_SHIFT = 40
"""Buffer i starts at address i * 2**40, so an address identifies its buffer; address 0 is the null pointer."""

BUFFER_REACH = 1 << POINTER_SHIFT - 1
"""How many bytes below and above its start belong to a buffer: a pointer may point into a tensor, not at its start."""


def buffer_at(address: int) -> int:
    """Return the number of the buffer at an address; 0 for an address outside every buffer."""
    return address + BUFFER_REACH >> POINTER_SHIFT


def buffers_at(address: Array) -> Array:
    """Return the number of the buffer at each address (unsigned)."""
    found: Array = address + np.uint64(BUFFER_REACH) >> np.uint64(POINTER_SHIFT)
    return found


def offset_at(address: int) -> int:
    """Return the number of bytes from the start of its buffer to an address; negative below it."""
    return address - (buffer_at(address) << POINTER_SHIFT)


_WIDTHS = {
    "i1": 1, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "i32": 4, "u32": 4, "i64": 8, "u64": 8,
    "fp16": 2, "bf16": 2, "fp32": 4, "fp64": 8,
}  # fmt: skip


class ManifestError(BitwiseError, ValueError):
    """A manifest is incomplete or wrong; the message names the file and what to change."""


Contents = Annotated[InstanceOf[TensorContents], PlainSerializer(TensorContents.manifest_form)]

FOLDER = "folder"
"""The key of a validation's context under which the folder of the manifest is, in which contents are files."""


def _with_contents(data: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    """Return an argument's fields with its `values` read.  Raises ValueError."""
    values = data.get("values")
    if values is None:
        return data
    buffer = data.get("buffer")
    if not isinstance(buffer, str):
        raise ValueError("the null pointer has no contents: remove `values`, or name a buffer")
    dtype = data.get("dtype")
    try:
        found = tensor_contents(values, dtype if isinstance(dtype, str) else None, (info.context or {}).get(FOLDER))
    except ValueError as error:
        raise ValueError(f"the values of the buffer {buffer} {error}") from None
    return {**data, "values": found}


class TensorMap(BaseModel):
    """A tensor map made by the host: shape and strides in elements, innermost dimension last.

    `values` are the contents of the buffer before the launch, see `Argument`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    buffer: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block: tuple[int, ...]
    swizzle: int = 0
    padding: str = "zero"
    offset: int = 0
    element_bytes: int | None = None
    values: Contents | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_values(cls, data: Any, info: ValidationInfo) -> Any:
        return _with_contents(data, info) if isinstance(data, dict) else data


class Argument(BaseModel):
    """One kernel argument: a buffer (null if `buffer` is None), a scalar, or a tensor map.

    `values` are the contents of the buffer before the launch, from its first byte whatever the `offset`; None: any.
    `elements` is the number of elements of `dtype` that the buffer has from its first byte; None: not stated.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    buffer: str | None = None
    dtype: str | None = None
    offset: int = 0
    value: int | float | bool | None = None
    tensor_map: TensorMap | None = None
    values: Contents | None = None
    elements: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _has_type_of_elements(self) -> Argument:
        if self.elements is not None and (self.buffer is None or self.dtype not in _WIDTHS):
            known = ", ".join(_WIDTHS)
            raise ValueError(f"`elements` needs a buffer and the `dtype` of its elements, one of {known}")
        return self

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, data: Any, info: ValidationInfo) -> Any:
        if not isinstance(data, dict):
            return data
        if "buffer" in data:
            data = _with_contents(data, info)
        if "kind" in data:
            if data["kind"] not in ("buffer", "tensor_map", *_WIDTHS):
                raise ValueError(
                    f"unknown argument kind {data['kind']!r}; use buffer, tensor_map or one of {', '.join(_WIDTHS)}"
                )
            return data
        if "buffer" in data:
            return {"kind": "buffer", **data}
        if "tensor_map" in data:
            return {"kind": "tensor_map", **data}
        names = [name for name in data if name in _WIDTHS]
        if len(names) != 1 or len(data) != 1:
            raise ValueError(
                f"an argument is a buffer, a tensor_map or one scalar of {', '.join(_WIDTHS)}; this one is {data!r}"
            )
        return {"kind": names[0], "value": data[names[0]]}

    def short(self) -> dict[str, Any]:
        """Return the form that a manifest has."""
        if self.kind == "buffer":
            given = None if self.values is None else self.values.manifest_form()
            extra = {"dtype": self.dtype, "offset": self.offset, "values": given}
            if self.elements is not None:
                extra["elements"] = self.elements
            return {
                "buffer": self.buffer,
                **{key: value for key, value in extra.items() if value or key == "elements"},
            }
        if self.kind == "tensor_map":
            return {"tensor_map": self.tensor_map.model_dump(exclude_none=True) if self.tensor_map else None}
        return {self.kind: self.value}


def _triple(value: Any) -> Any:
    if isinstance(value, int):
        value = [value]
    if isinstance(value, list | tuple) and 1 <= len(value) <= 3:
        return tuple(value) + (1,) * (3 - len(value))
    return value


Extent = Annotated[int, Field(ge=1, le=2**31 - 1)]
Triple = Annotated[tuple[Extent, Extent, Extent], BeforeValidator(_triple)]


class Launch(BaseModel):
    """One launch of a kernel: the grid in blocks and the block in threads, both (x, y, z), and the arguments.

    `cluster` is the shape of the clusters that the launch requests, in blocks (x, y, z), None if it requests none.  The
    grid counts every block of a cluster.  A buffer has at most one contents, whichever of its arguments gives them.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    file: str
    entry: str | None = None
    grid: Triple
    block: Triple | None = None
    args: tuple[Argument, ...] = ()
    shared: int | None = Field(default=None, ge=0, le=1 << 20)
    cluster: Triple | None = None

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    def buffers(self) -> tuple[str, ...]:
        """Return the names of the buffers that the arguments point to."""
        names = [a.buffer for a in self.args if a.kind == "buffer" and a.buffer is not None]
        names += [a.tensor_map.buffer for a in self.args if a.tensor_map is not None]
        return tuple(dict.fromkeys(names))

    def given(self) -> dict[str, TensorContents]:
        """Return the contents before the launch of each buffer for which an argument gives them."""
        described = [a.tensor_map if a.tensor_map is not None else a for a in self.args]
        return {str(each.buffer): each.values for each in described if each.values is not None}

    def sizes(self) -> dict[str, int]:
        """Return the size in bytes of each buffer for which an argument states the number of elements."""
        stated = [each for each in self.args if each.elements is not None]
        return {str(each.buffer): (each.elements or 0) * _WIDTHS[str(each.dtype)] for each in stated}

    @model_validator(mode="after")
    def _state_each_size_once(self) -> Launch:
        sizes = self.sizes()
        for each in self.args:
            if each.elements is not None and each.elements * _WIDTHS[str(each.dtype)] != sizes[str(each.buffer)]:
                raise ValueError(f"two arguments state different numbers of elements of the buffer {each.buffer}")
        return self

    @model_validator(mode="after")
    def _give_each_buffer_once(self) -> Launch:
        given = self.given()
        for each in (a.tensor_map if a.tensor_map is not None else a for a in self.args):
            if each.values is not None and each.values != given[str(each.buffer)]:
                raise ValueError(
                    f"two arguments give the buffer {each.buffer} different values: give them once, or give buffers of "
                    "different contents different names"
                )
        return self


class Manifest(BaseModel):
    """The launches of a folder of kernels; `configurations` may describe its files for human readers."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kernels: tuple[Launch, ...]
    configurations: Any = None


def read_manifest(path: Path) -> Manifest:
    """Read a manifest and the contents of tensors beside it.  Raises ManifestError with the file and the place."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return Manifest.model_validate(document, context={FOLDER: path.parent})
    except OSError as error:
        raise ManifestError(f"{path}: cannot be read ({error.strerror})") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ManifestError(f"{path}: is not JSON ({error})") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ManifestError(f"{path}: {place}: {first['msg'].removeprefix('Value error, ')}") from None


def scalar_bits(argument: Argument) -> tuple[int, int]:
    """Return a scalar argument's bit pattern and its width in bytes.  Raises ManifestError."""
    kind, value = argument.kind, argument.value
    size = _WIDTHS[kind]
    if value is None:
        raise ManifestError(f"the scalar argument {kind} has no value")
    if kind in FLOATS:
        pattern = float_pattern(value, kind)
        if pattern is None:
            raise ManifestError(f"the value {value!r} does not fit {kind}")
        return pattern, size
    if value != value or value in (float("inf"), float("-inf")):
        raise ManifestError(f"the value {value!r} does not fit {kind}")
    number = int(value)
    bits = 8 * size
    if not -(1 << (bits - 1)) <= number < 1 << bits:
        raise ManifestError(f"the value {number} does not fit {kind}")
    return number & ((1 << bits) - 1), size
