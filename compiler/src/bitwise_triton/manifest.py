"""Manifest arguments of a compiled kernel: one for each parameter of its assembly, in order.

Triton's launcher omits constexprs and arguments specialised to one, flattens tuples, and expands a tensor descriptor
into several parameters. This module does the same and checks the result against the assembly.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bitwise_triton.arguments import Buffer, PointerStandIn, item_bytes
from bitwise_triton.errors import CaptureError

# Bytes of a swizzled row by CUtensorMapSwizzle of the CUDA driver API.
_SWIZZLE_BYTES = {0: 0, 1: 32, 2: 64, 3: 128}
_SCRATCH_POINTERS = 2
_PTX_BITS = re.compile(r"\.[busf](\d+)$")


def manifest_arguments(
    signature: Mapping[str, Any], values: Mapping[str, object], tensor_maps: Sequence[Mapping[str, Any]] | None
) -> list[dict[str, Any]]:
    """Manifest arguments for `signature` (Triton's types by parameter) and the bound `values` of the same names.

    `tensor_maps` is the compiled kernel's `tensordesc_meta`: empty or None if descriptors became plain pointers.
    Raises CaptureError for a value that its type cannot represent.
    """
    metadata = iter(tensor_maps or ())
    found: list[dict[str, Any]] = []
    for name, kind in signature.items():
        found.extend(_expand(name, kind, values[name], metadata, bool(tensor_maps)))
    return found


def _expand(
    name: str, kind: Any, value: Any, metadata: Iterator[Mapping[str, Any]], mapped: bool
) -> list[dict[str, Any]]:
    if isinstance(kind, tuple):
        parts = [_expand(name, inner, part, metadata, mapped) for inner, part in zip(kind, value, strict=True)]
        return [entry for part in parts for entry in part]
    if kind == "constexpr":
        return []
    if kind.startswith("tensordesc"):
        return _descriptor(name, value, next(metadata) if mapped else None)
    if kind.startswith("*"):
        return [_pointer(value.buffer, kind)]
    return [scalar(name, kind, value)]


def _pointer(buffer: Buffer, kind: str) -> dict[str, Any]:
    if buffer.name is None:
        return {"buffer": None}
    dtype = kind.removeprefix("*k").removeprefix("*")
    # Triton's name of a boolean is that of a manifest's i1.
    entry: dict[str, Any] = {"buffer": buffer.name, "dtype": "i1" if dtype == "u1" else dtype}
    if buffer.offset:
        entry["offset"] = buffer.offset
    return entry


def _descriptor(name: str, value: Any, metadata: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    base = value.base
    assert isinstance(base, PointerStandIn)
    shape, strides = [int(extent) for extent in value.shape], [int(stride) for stride in value.strides]
    tail = [scalar(name, "i32", extent) for extent in shape] + [scalar(name, "i64", stride) for stride in strides]
    if metadata is None:
        # Without a tensor map the kernel takes shape and strides twice: from the frontend's decomposition of the
        # descriptor, and from the launcher's.
        head = [_pointer(base.buffer, "*" + base.dtype.name)]
        head += [scalar(name, "i64", number) for number in (*shape, *strides)]
        head.append({"i1": int(value.padding == "nan")})
        if hasattr(value, "round_f32_to_tf32"):
            head.append({"i1": int(value.round_f32_to_tf32)})
        return head + tail
    if metadata.get("is_im2col"):
        raise CaptureError(f"Argument {name!r} is an im2col tensor map, which the manifest cannot describe.")
    if base.buffer.name is None:
        raise CaptureError(f"Argument {name!r} is a tensor descriptor over a null pointer; give it a buffer.")
    padded = bool(metadata.get("fp4_padded"))
    mapped: dict[str, Any] = {
        "buffer": base.buffer.name,
        "dtype": base.dtype.name,
        "shape": [*shape[:-1], shape[-1] * 2] if padded else shape,
        "strides": strides,
        "block": list(metadata["block_size"]),
        "swizzle": _SWIZZLE_BYTES[metadata["swizzle"]],
        "padding": value.padding,
    }
    if base.buffer.offset:
        mapped["offset"] = base.buffer.offset
    if padded:
        mapped["fp4_padded"] = True
    if getattr(value, "round_f32_to_tf32", False):
        mapped["round_f32_to_tf32"] = True
    return [{"tensor_map": mapped}, *tail]


def scalar(name: str, kind: str, value: Any) -> dict[str, Any]:
    """One scalar of Triton type `kind` as the launcher passes it: floats are rounded to the type, bf16 is truncated.

    Infinities and NaN, which JSON lacks, are text.
    """
    kind = {"u1": "i1", "f32": "fp32"}.get(kind, kind)
    if kind.startswith(("fp", "bf")):
        number = _packed_float(name, kind, float(value))
        return {kind: number if math.isfinite(number) else repr(number)}
    bits = int(kind[1:])
    integer = int(value)
    if kind == "i1":
        return {"i1": int(bool(integer))}
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind.startswith("i") else (0, (1 << bits) - 1)
    if not low <= integer <= high:
        raise CaptureError(f"Argument {name!r} is {integer}, which its type {kind} cannot hold.")
    return {kind: integer}


def _packed_float(name: str, kind: str, value: float) -> float:
    if kind == "fp64":
        return value
    try:
        if kind == "fp16":
            return float(struct.unpack("<e", struct.pack("<e", value))[0])
        single = struct.pack("<f", value)
    except OverflowError:
        if kind == "fp16":
            raise CaptureError(f"Argument {name!r} is {value}, which its type fp16 cannot hold.") from None
        single = struct.pack("<f", math.copysign(math.inf, value))
    if kind == "bf16":
        # Triton's launchers keep the upper half of the single-precision pattern, without rounding.
        single = b"\0\0" + single[2:]
    return float(struct.unpack("<f", single)[0])


def argument_bytes(entry: Mapping[str, Any]) -> int:
    """Size in bytes of the parameter of a manifest argument."""
    if "buffer" in entry:
        return 8
    if "tensor_map" in entry:
        return 128
    return item_bytes(next(iter(entry)))


def ptx_parameter_bytes(text: str, entry: str) -> list[int]:
    """Sizes in bytes of the parameters of `entry` in PTX `text`, in order. Raises CaptureError if there is no such
    entry.
    """
    match = re.search(rf"\.entry\s+{re.escape(entry)}\s*\(([^)]*)\)", text)
    if match is None:
        raise CaptureError(f"The PTX has no entry point {entry!r}.")
    sizes = []
    for declaration in filter(None, (part.strip() for part in match.group(1).split(","))):
        words = declaration.split()
        bits = next(found for found in map(_PTX_BITS.fullmatch, words) if found)
        count = re.search(r"\[(\d+)\]$", declaration)
        sizes.append(int(bits.group(1)) // 8 * (int(count.group(1)) if count else 1))
    return sizes


def amdgcn_parameter_bytes(text: str, entry: str) -> list[int]:
    """Sizes in bytes of the explicit arguments of `entry` in the metadata of AMDGCN `text`, in order.

    Raises CaptureError if the metadata does not describe it.
    """
    block = re.search(r"^\s+\.args:\s*\n(.*?)^\s+\.group_segment_fixed_size:", text, re.S | re.M)
    if block is None or re.search(rf"^\s+\.name:\s+{re.escape(entry)}$", text, re.M) is None:
        raise CaptureError(f"The AMDGCN metadata does not describe the kernel {entry!r}.")
    pairs = re.findall(r"\.size:\s+(\d+)\s+\.value_kind:\s+(\w+)", block.group(1))
    return [int(size) for size, kind in pairs if not kind.startswith("hidden_")]


def check_parameters(what: str, arguments: Sequence[Mapping[str, Any]], sizes: Sequence[int]) -> None:
    """Raise CaptureError unless `arguments` match the parameter `sizes`, except for trailing scratch pointers."""
    expected = [argument_bytes(entry) for entry in arguments]
    rest = list(sizes[len(expected) :])
    if list(sizes[: len(expected)]) != expected or len(rest) > _SCRATCH_POINTERS or any(size != 8 for size in rest):
        raise CaptureError(
            f"{what}: the assembly takes parameters of {list(sizes)} bytes and its arguments fill {expected}; "
            "this version of Triton passes arguments in an unsupported way."
        )
