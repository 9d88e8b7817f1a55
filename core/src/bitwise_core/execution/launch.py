"""A launch: the grid, the block, the value of each kernel parameter, the given tensors; reading of manifests."""

from __future__ import annotations

import os
from pathlib import Path, PurePath
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
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
from bitwise_core.execution.element_types import ELEMENT_TYPES, Array
from bitwise_core.execution.tensor_contents import (
    FLOATS,
    Pointer,
    TensorContents,
    as_number,
    float_pattern,
    number_form,
    tensor_contents,
)
from bitwise_core.input_files import read_bytes
from bitwise_core.json_text import parse_json
from bitwise_core.validated_records import ValidatedRecord, first_fault

POINTER_SHIFT = 40
"""Buffer i starts at address i * 2**40, so an address identifies its buffer; address 0 is the null pointer."""

BUFFER_REACH = 1 << POINTER_SHIFT - 1
"""How many bytes below and above its start belong to a buffer: a pointer may point into a tensor, not at its start."""


def buffer_at(address: int) -> int:
    """Return the number of the buffer at an address; 0 for an address outside every buffer."""
    return address + BUFFER_REACH >> POINTER_SHIFT


def buffers_at(address: Array) -> Array:
    """Return the number of the buffer at each address (unsigned)."""
    import numpy as np

    found: Array = address + np.uint64(BUFFER_REACH) >> np.uint64(POINTER_SHIFT)
    return found


def offset_at(address: int) -> int:
    """Return the number of bytes from the start of its buffer to an address; negative below it."""
    return address - (buffer_at(address) << POINTER_SHIFT)


SCRATCH_BUFFERS = 64
"""More than the number of buffers that an analysis adds to those of a launch."""


def is_like_address(numbers: Array, buffers: int) -> Array:
    """Return which unsigned numbers lie within the reach of a buffer of a launch with so many buffers."""
    import numpy as np

    end = np.uint64((buffers + SCRATCH_BUFFERS << POINTER_SHIFT) + BUFFER_REACH)
    found: Array = (numbers >= np.uint64(BUFFER_REACH)) & (numbers < end)
    return found


_WIDTHS = {
    "i1": 1, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "i32": 4, "u32": 4, "i64": 8, "u64": 8,
    "fp16": 2, "bf16": 2, "fp32": 4, "fp64": 8,
}  # fmt: skip


def _exact_integer(value: Any) -> int:
    """Return an integer as it is given: neither a boolean nor a float nor text.  Raises ValueError."""
    if type(value) is int:
        return value
    import numpy as np

    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ValueError(f"{value!r} is no integer")
    return int(value)


Integer = Annotated[int, BeforeValidator(_exact_integer)]


def _plain_number(value: Any) -> Any:
    """Return a number or a boolean as it is given.  Raises ValueError."""
    if type(value) in (bool, int, float):
        return value
    import numpy as np

    found = value.item() if isinstance(value, np.generic) else value
    if not isinstance(found, bool | int | float):
        raise ValueError(f"{value!r} is no number")
    return found


Number = Annotated[bool | int | float, BeforeValidator(_plain_number)]


def _known_type(name: str) -> str:
    """Check the name of an element type.  Raises ValueError."""
    if name not in ELEMENT_TYPES:
        raise ValueError(f"there is no element type {name!r}; there are {', '.join(ELEMENT_TYPES)}")
    return name


Type = Annotated[str, AfterValidator(_known_type)]


def _printable_name(name: str) -> str:
    """Check a name that reports print: it has no escapes of terminals.  Raises ValueError."""
    if not name.isprintable():
        raise ValueError(f"the name {name!r} has characters that cannot be printed")
    return name


Name = Annotated[str, AfterValidator(_printable_name)]


class ManifestError(BitwiseError, ValueError):
    """A manifest is incomplete or wrong; the message names the file and what to change."""


Contents = Annotated[InstanceOf[TensorContents], PlainSerializer(TensorContents.manifest_form)]

MAXIMUM_ARGUMENTS = 4096
"""No entry takes more: parameters of one byte would fill the parameter memory of known architectures."""

OUTSIDE_VARIABLE = "BITWISE_OUTSIDE_FILES"
"""The environment variable that lets manifests name files outside of their folders."""

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


class TensorMap(ValidatedRecord):
    """A tensor map made by the host: shape and strides in elements, innermost dimension last.

    `values` are the contents of the buffer before the launch, see `Argument`.  `fp4_padded`: elements have 4 bits, two
    in a byte, a copy puts 16 of them into each 16 bytes of shared memory, and strides are in bytes.
    `round_f32_to_tf32`: copies round elements.
    """

    fault = ManifestError

    buffer: Name
    dtype: Type
    shape: tuple[Integer, ...]
    strides: tuple[Integer, ...]
    block: tuple[Integer, ...]
    swizzle: Integer = 0
    padding: str = "zero"
    offset: Integer = 0
    element_bytes: Integer | None = None
    fp4_padded: bool = False
    round_f32_to_tf32: bool = False
    values: Contents | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_values(cls, data: Any, info: ValidationInfo) -> Any:
        return _with_contents(data, info) if isinstance(data, dict) else data


class Argument(ValidatedRecord):
    """One kernel argument: a buffer (null if `buffer` is None), a scalar, or a tensor map.

    `values` are the contents of the buffer before the launch, from its first byte whatever the `offset`; None: any.
    `elements` is the number of elements of `dtype` that the buffer has from its first byte; None: not stated.
    """

    fault = ManifestError

    kind: str
    buffer: Name | None = None
    dtype: Type | None = None
    offset: Integer = 0
    value: Number | None = None
    tensor_map: TensorMap | None = None
    values: Contents | None = None
    elements: Annotated[Integer, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _value_is_of_the_kind(self) -> Argument:
        if self.kind in _WIDTHS and self.value is not None:
            try:
                scalar_bits(self)
            except ManifestError as error:
                raise ValueError(str(error)) from None
        return self

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
        value = data[names[0]]
        return {"kind": names[0], "value": as_number(value) if names[0] in FLOATS else value}

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
        return {self.kind: None if self.value is None else number_form(self.value)}


def _triple(value: Any) -> Any:
    """Return a shape with three extents.  Raises ValueError."""
    if not isinstance(value, list | tuple):
        import numpy as np

        value = [value] if isinstance(value, int | np.integer) else value
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= 3:
        raise ValueError(f"{value!r} is not a shape: give one to three integers, such as [64, 1, 1]")
    return tuple(value) + (1,) * (3 - len(value))


Extent = Annotated[Integer, Field(ge=1, le=2**31 - 1)]
Triple = Annotated[tuple[Extent, Extent, Extent], BeforeValidator(_triple)]


class Launch(ValidatedRecord):
    """One launch of a kernel: the grid in blocks and the block in threads, both (x, y, z), and the arguments.

    `cluster` is the shape of the clusters that the launch requests, in blocks (x, y, z), None if it requests none.  The
    grid counts every block of a cluster.  A buffer has at most one contents, whichever of its arguments gives them.
    """

    fault = ManifestError

    file: Name
    entry: Name | None = None
    grid: Triple
    block: Triple | None = None
    args: Annotated[tuple[Argument, ...], Field(max_length=MAXIMUM_ARGUMENTS)] = ()
    shared: Annotated[Integer, Field(ge=0, le=1 << 20)] | None = None
    cluster: Triple | None = None

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    def buffers(self) -> tuple[str, ...]:
        """Return the names of the buffers that the arguments, and pointers in given contents, point to."""
        names = [a.buffer for a in self.args if a.kind == "buffer" and a.buffer is not None]
        names += [a.tensor_map.buffer for a in self.args if a.tensor_map is not None]
        names += [each.buffer for each in self.pointers()]
        return tuple(dict.fromkeys(names))

    def pointers(self) -> tuple[Pointer, ...]:
        """Return the pointers among the given contents."""
        return tuple([pointer for each in self.given().values() for pointer in each.pointers])

    def _stated(self) -> list[Argument | Pointer]:
        """Return the arguments and pointers that state the number of elements of a buffer."""
        described: list[Argument | Pointer] = [*self.args, *self.pointers()]
        return [each for each in described if each.elements is not None]

    def described(self) -> tuple[Argument | TensorMap | Pointer, ...]:
        """Return whatever may state the element type of a buffer: arguments, tensor maps and pointers."""
        return (*(a.tensor_map if a.tensor_map is not None else a for a in self.args), *self.pointers())

    def given(self) -> dict[str, TensorContents]:
        """Return the contents before the launch of each buffer for which an argument gives them."""
        described = [a.tensor_map if a.tensor_map is not None else a for a in self.args]
        return {str(each.buffer): each.values for each in described if each.values is not None}

    def sizes(self) -> dict[str, int]:
        """Return the size in bytes of each buffer for which an argument states the number of elements."""
        return {str(each.buffer): (each.elements or 0) * _WIDTHS[str(each.dtype)] for each in self._stated()}

    @model_validator(mode="after")
    def _state_each_size_once(self) -> Launch:
        sizes = self.sizes()
        for each in self._stated():
            if (each.elements or 0) * _WIDTHS[str(each.dtype)] != sizes[str(each.buffer)]:
                raise ValueError(f"different numbers of elements of the buffer {each.buffer} are stated")
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

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    kernels: tuple[Launch, ...]
    configurations: Any = None


def read_manifest(path: Path) -> Manifest:
    """Read a manifest and the contents of tensors beside it.  Raises ManifestError with the file and the place."""
    content = read_bytes(path, ManifestError)
    try:
        document = parse_json(content.decode())
        found = Manifest.model_validate(document, context={FOLDER: path.parent})
    except ValidationError as error:
        if not error.errors()[0]["loc"]:
            raise ManifestError(f"{path}: is no object of JSON with the key `kernels`") from None
        raise ManifestError(f"{path}: {first_fault(error)}") from None
    except ValueError as error:  # of the text and of its encoding
        raise ManifestError(f"{path}: is not JSON ({error})") from None
    for launch in found.kernels:
        file = PurePath(launch.file)
        if (file.is_absolute() or ".." in file.parts) and not os.environ.get(OUTSIDE_VARIABLE):
            raise ManifestError(
                f"{path}: names {launch.file}, which may lie outside its folder; copy the file into it, or set "
                f"{OUTSIDE_VARIABLE}=1 if you trust the manifest"
            )
    return found


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
    if isinstance(value, float) or (isinstance(value, bool) and kind != "i1"):
        raise ManifestError(f"the value {value!r} does not fit {kind}: it is no integer")
    number = int(value)
    bits = 8 * size
    if kind == "i1" and number not in (0, 1, -1):
        raise ManifestError(f"the value {number} does not fit i1: it is 0 or 1")
    if not -(1 << (bits - 1)) <= number < 1 << bits:
        raise ManifestError(f"the value {number} does not fit {kind}")
    return number & ((1 << bits) - 1), size
