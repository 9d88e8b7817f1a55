"""Kernel arguments described without a GPU, and the stand-ins on which Triton specialises.

Triton specialises on a pointer's address modulo 16, an integer's value and, on AMD, the size of the memory behind a
pointer. `Buffer` describes these properties without allocating memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from bitwise_triton.errors import CaptureError

# Arbitrary multiple of a large power of two: only the address modulo 16 matters.
_BASE_ADDRESS = 1 << 40

_ITEM_BYTES = {"1": 1, "8": 1, "16": 2, "32": 4, "64": 8}


@dataclass(frozen=True, slots=True)
class Buffer:
    """A pointer argument.

    `name` identifies the memory: two arguments with one name point into one buffer. None is the null pointer.
    `dtype` is a scalar type as spelled by Triton or torch ("fp16", "float16", "bf16", "fp8e4nv", "i32").
    `offset` is the distance in bytes from the start of the buffer to the pointer.
    `alignment` is the alignment of the start of the buffer in bytes; 16 or more lets Triton assume divisibility.
    `size_bytes` is the size of the whole buffer; None means at most 2 GiB, which matters on AMD only.
    `values` are the contents of the buffer from its start before the launch, as a list of numbers or a NumPy array;
    None means any. A verdict for the launch holds for these values.
    """

    name: str | None
    dtype: str
    offset: int = 0
    alignment: int = 16
    size_bytes: int | None = None
    values: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A host-side tensor descriptor over `buffer`: `shape` and `strides` in elements, `block_shape` in elements.

    `padding` is the value of loads outside the shape, "zero" or "nan".
    `layout` is the layout in shared memory (NVMMASharedLayout), which a Gluon kernel needs; None for a Triton kernel.
    """

    buffer: Buffer
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block_shape: tuple[int, ...]
    padding: str = "zero"
    round_f32_to_tf32: bool = False
    layout: Any = None


Scalar: TypeAlias = bool | int | float
Argument: TypeAlias = Buffer | TensorMap | Scalar | tuple[Any, ...] | None


def canonical_dtype(dtype: object) -> str:
    """Triton's name of a scalar type ("torch.float16" and "float16" are "fp16"). Raises CaptureError."""
    from triton._utils import canonicalize_dtype

    try:
        name: str = canonicalize_dtype(str(dtype))
    except KeyError:
        raise CaptureError(
            f"Triton has no scalar type {str(dtype)!r}; use for example 'fp16', 'bf16' or 'i32'."
        ) from None
    return name


def element_dtype(dtype: object) -> str:
    """The name in a manifest of the type of a buffer's elements, from Triton's or torch's name. Raises CaptureError."""
    name = canonical_dtype(dtype)
    return {"u1": "i1"}.get(name, name)


def item_bytes(dtype: str) -> int:
    """Bytes of one element of a canonical scalar type."""
    digits = dtype[2:] if dtype.startswith(("fp", "bf")) else dtype[1:]
    return 1 if digits.startswith("8") else _ITEM_BYTES[digits]


def pointer_address(buffer: Buffer) -> int:
    """An address with exactly the described alignment, as Triton's launcher sees it."""
    if buffer.name is None:
        return 0
    if buffer.alignment < 1:
        raise CaptureError(f"Buffer {buffer.name!r} has alignment {buffer.alignment}; give 1 or more bytes.")
    return _BASE_ADDRESS + math.gcd(buffer.alignment, buffer.offset) % 16


class DtypeStandIn:
    """The attributes of a tensor's `dtype` that Triton uses: its name, item size, and equality."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.itemsize = item_bytes(name)
        self.is_floating_point = name.startswith(("fp", "bf"))

    def __str__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DtypeStandIn) and other.name == self.name


class PointerStandIn:
    """The attributes of a tensor argument that Triton uses to specialise a kernel."""

    def __init__(self, buffer: Buffer, address: int | None = None) -> None:
        self.buffer = buffer
        self.address = pointer_address(buffer) if address is None else address
        self.dtype = DtypeStandIn(canonical_dtype(buffer.dtype))

    def __repr__(self) -> str:
        return f"PointerStandIn({self.buffer!r}, address={self.address})"

    def data_ptr(self) -> int:
        """The address that Triton tests for divisibility."""
        return self.address

    def ptr_range(self) -> int:
        """Size of the memory in bytes, which Triton compares with 2 GiB on AMD."""
        size = self.buffer.size_bytes
        return 0 if size is None else size


def to_triton(name: str, argument: object) -> object:
    """The object to pass to Triton's specialisation for `argument`. `name` is the parameter's name, for messages."""
    if isinstance(argument, Buffer):
        return PointerStandIn(argument)
    if isinstance(argument, TensorMap):
        return _descriptor(name, argument)
    if isinstance(argument, tuple):
        parts: list[Any] = [to_triton(name, part) for part in argument]
        return type(argument)(*parts) if hasattr(argument, "_fields") else tuple(parts)
    return argument


def _descriptor(name: str, argument: TensorMap) -> object:
    extra: dict[str, object] = {"padding": argument.padding}
    if argument.layout is None:
        from triton.tools.tensor_descriptor import TensorDescriptor
    else:
        from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

        extra["layout"] = argument.layout
    if argument.round_f32_to_tf32:
        if "round_f32_to_tf32" not in TensorDescriptor.__dataclass_fields__:
            raise CaptureError(f"Argument {name!r}: this Triton has no round_f32_to_tf32; use 3.7.1 or later.")
        extra["round_f32_to_tf32"] = True
    try:
        return TensorDescriptor(
            PointerStandIn(argument.buffer),
            list(argument.shape),
            list(argument.strides),
            list(argument.block_shape),
            **extra,
        )
    except (AssertionError, ValueError, TypeError) as error:
        raise CaptureError(f"Argument {name!r} is not a tensor descriptor that Triton accepts: {error}.") from None
