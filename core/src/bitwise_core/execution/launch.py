"""A launch: the grid, the block, and the value of each kernel parameter; reading and writing of manifests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from bitwise_core.errors import BitwiseError

POINTER_SHIFT = 40
"""Buffer i starts at address i * 2**40, so an address identifies its buffer; address 0 is the null pointer."""

_WIDTHS = {
    "i1": 1, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "i32": 4, "u32": 4, "i64": 8, "u64": 8,
    "fp16": 2, "bf16": 2, "fp32": 4, "fp64": 8,
}  # fmt: skip


class ManifestError(BitwiseError, ValueError):
    """A manifest is incomplete or wrong; the message names the file and what to change."""


class TensorMap(BaseModel):
    """A tensor map made by the host: shape and strides in elements, innermost dimension last."""

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


class Argument(BaseModel):
    """One kernel argument: a buffer (null if `buffer` is None), a scalar, or a tensor map."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    buffer: str | None = None
    dtype: str | None = None
    offset: int = 0
    value: int | float | bool | None = None
    tensor_map: TensorMap | None = None

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
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
            extra = {key: value for key, value in (("dtype", self.dtype), ("offset", self.offset or None)) if value}
            return {"buffer": self.buffer, **extra}
        if self.kind == "tensor_map":
            return {"tensor_map": self.tensor_map.model_dump() if self.tensor_map else None}
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
    grid counts every block of a cluster.
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


class Manifest(BaseModel):
    """The launches of a folder of kernels; `configurations` may describe its files for human readers."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kernels: tuple[Launch, ...]
    configurations: Any = None


def read_manifest(path: Path) -> Manifest:
    """Read a manifest.  Raises ManifestError with the file and the place."""
    try:
        return Manifest.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ManifestError(f"{path}: cannot be read ({error.strerror})") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ManifestError(f"{path}: is not JSON ({error})") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ManifestError(f"{path}: {place}: {first['msg']}") from None


def scalar_bits(argument: Argument) -> tuple[int, int]:
    """Return a scalar argument's bit pattern and its width in bytes.  Raises ManifestError."""
    import struct

    kind, value = argument.kind, argument.value
    size = _WIDTHS[kind]
    if value is None:
        raise ManifestError(f"the scalar argument {kind} has no value")
    try:
        if kind == "fp64":
            return int.from_bytes(struct.pack("<d", value), "little"), 8
        if kind == "fp32":
            return int.from_bytes(struct.pack("<f", value), "little"), 4
        if kind == "fp16":
            return int.from_bytes(struct.pack("<e", value), "little"), 2
        if kind == "bf16":
            bits = int.from_bytes(struct.pack("<f", value), "little")
            return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 if value == value else 0x7FC0, 2
    except OverflowError:
        raise ManifestError(f"the value {value!r} does not fit {kind}") from None
    if value != value or value in (float("inf"), float("-inf")):
        raise ManifestError(f"the value {value!r} does not fit {kind}")
    number = int(value)
    bits = 8 * size
    if not -(1 << (bits - 1)) <= number < 1 << bits:
        raise ManifestError(f"the value {number} does not fit {kind}")
    return number & ((1 << bits) - 1), size
