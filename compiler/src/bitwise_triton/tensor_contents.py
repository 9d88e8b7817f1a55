"""The contents of a launch's tensors, as far as verdicts may depend on them.

Page tables, sequence lengths, offsets, ids and flags are as much a part of a launch as its grid: control flow and
addresses depend on them. Tensors of integers and booleans are recorded by default, up to a size; tensors of floats only
by name. A tensor that cannot be read, or is too large, stays symbolic: verdicts then hold for all its contents.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from bitwise_triton.arguments import Buffer, TensorMap, element_dtype, item_bytes
from bitwise_triton.compilation import CompiledKernel
from bitwise_triton.errors import CaptureError
from bitwise_triton.pointer_tables import with_named_pointers
from bitwise_triton.tensor_stand_ins import TensorGroup, storage_of, tensor_groups

if TYPE_CHECKING:
    from bitwise_core.execution.tensor_contents import TensorContents

Tensors: TypeAlias = bool | Collection[str]
"""Which tensors are recorded: True those of integers and booleans, False none, names of arguments these in addition."""

MAXIMUM_BYTES = 1 << 20
"""The default limit on the bytes of one tensor; a larger one stays symbolic."""


def recorded_tensors(
    values: Mapping[str, Any],
    tensors: Tensors = True,
    maximum_bytes: int = MAXIMUM_BYTES,
    without: Collection[str] = (),
) -> dict[str, TensorContents]:
    """The contents of the arguments `values`, by the name of their buffer, and those that a `Buffer` states.

    Arguments `without` and those that share memory with them are omitted. In a tensor that holds nothing but addresses
    of tensors, these are pointers to them. Raises CaptureError for an unknown name in `tensors`, and for values of a
    `Buffer` that do not fit it.
    """
    names = (tensors,) if isinstance(tensors, str) else tensors
    floats = () if isinstance(names, bool) else tuple(names)
    unknown = sorted(set(floats) - values.keys())
    if unknown:
        raise CaptureError(f"The arguments have no tensor {unknown[0]!r} to record; they have {', '.join(values)}.")
    found = dict(_stated(values))
    if tensors is False:
        return found
    for group in tensor_groups(values).values():
        chosen = _are_integers(group) or any(name in floats for name in group.arguments)
        if chosen and not any(name in without for name in group.arguments):
            contents = _contents(group, maximum_bytes)
            if contents is not None:
                found[group.name] = contents
    return with_named_pointers(found, tensor_groups(values).values())


def give_tensors(compiled: CompiledKernel, recorded: Mapping[str, TensorContents]) -> CompiledKernel:
    """The compiled kernel, with these contents in the launch of its manifest entry where it has none yet."""
    arguments = [_given(argument, recorded) for argument in compiled.manifest_entry["args"]]
    return replace(compiled, manifest_entry={**compiled.manifest_entry, "args": arguments})


def buffer_bytes(values: Mapping[str, Any]) -> dict[str, int]:
    """The sizes in bytes of the arguments' buffers whose lowest pointer is the start of their memory."""
    found: dict[str, int] = {}
    for group in tensor_groups(values).values():
        storage = storage_of(group.tensors[0])
        if storage is not None and int(storage.data_ptr()) == group.lowest:
            found[group.name] = int(storage.nbytes())
    return found


def state_sizes(compiled: CompiledKernel, sizes: Mapping[str, int]) -> CompiledKernel:
    """The compiled kernel, with these sizes in bytes of buffers in the launch of its manifest entry."""
    arguments = [_sized(argument, sizes) for argument in compiled.manifest_entry["args"]]
    return replace(compiled, manifest_entry={**compiled.manifest_entry, "args": arguments})


def _sized(argument: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
    from bitwise_core.execution.tensor_contents import FLOATS, INTEGERS

    size, dtype = sizes.get(argument.get("buffer") or ""), argument.get("dtype")
    if size is None or (dtype not in INTEGERS and dtype not in FLOATS) or size % item_bytes(str(dtype)):
        return dict(argument)
    return {**argument, "elements": size // item_bytes(str(dtype))}


def write_tensors(entry: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The manifest entry with each tensor's contents written to a .npy file in `folder` and named by it."""
    return {**entry, "args": [_with_file(argument, folder) for argument in entry["args"]]}


def _given(argument: Mapping[str, Any], recorded: Mapping[str, TensorContents]) -> dict[str, Any]:
    if "tensor_map" in argument:
        return {"tensor_map": _given(argument["tensor_map"], recorded)}
    contents = recorded.get(argument.get("buffer") or "")
    return {**({} if contents is None else {"values": contents}), **argument}


def _with_file(argument: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    import numpy as np

    if "tensor_map" in argument:
        return {"tensor_map": _with_file(argument["tensor_map"], folder)}
    contents = argument.get("values")
    if contents is None or isinstance(contents, str | list):
        return dict(argument)
    if contents.pointers:  # a file holds numbers only
        return {**argument, "values": contents.manifest_form()}
    # One file for the same contents in all launches of the folder.
    name = f"{re.sub(r'[^A-Za-z0-9_]', '_', argument['buffer'])}.{contents.digest[:12]}.npy"
    np.save(folder / name, contents.numbers)
    return {**argument, "values": name}


def _stated(values: Mapping[str, Any]) -> Iterator[tuple[str, TensorContents]]:
    """The contents that descriptions of buffers state."""
    from bitwise_core.execution.tensor_contents import tensor_contents

    seen: dict[str, TensorContents] = {}
    for buffer in _described(list(values.values())):
        if buffer.name is None or buffer.values is None:
            continue
        try:
            contents = tensor_contents(buffer.values, element_dtype(buffer.dtype), None)
        except ValueError as error:
            raise CaptureError(f"The values of buffer {buffer.name!r} {error}.") from None
        if seen.setdefault(buffer.name, contents) != contents:
            raise CaptureError(f"Two arguments give buffer {buffer.name!r} different values; give them once.")
        yield buffer.name, contents


def _described(values: list[Any]) -> Iterator[Buffer]:
    for value in values:
        if isinstance(value, Buffer):
            yield value
        elif isinstance(value, TensorMap):
            yield value.buffer
        elif isinstance(value, tuple):
            yield from _described(list(value))


def _are_integers(group: TensorGroup) -> bool:
    from bitwise_core.execution.tensor_contents import INTEGERS

    return all(_dtype(tensor) in INTEGERS for tensor in group.tensors)


def _dtype(tensor: Any) -> str:
    try:
        return element_dtype(tensor.dtype)
    except CaptureError:
        return ""


def _contents(group: TensorGroup, maximum_bytes: int) -> TensorContents | None:
    """The bytes from the lowest address of a group to the end of its memory, or of its tensors if that is too long."""
    from bitwise_core.execution.tensor_contents import FLOATS, INTEGERS, TensorContents

    dtype, first = _dtype(group.tensors[0]), group.tensors[0]
    if dtype not in INTEGERS and dtype not in FLOATS:
        return None
    storage = storage_of(first)
    if storage is None:
        return None
    start = group.lowest - int(storage.data_ptr())
    whole = int(storage.nbytes()) - start
    length = whole if whole <= maximum_bytes else max(_end(each) for each in group.tensors) - group.lowest
    length -= length % item_bytes(dtype)
    if start < 0 or not 0 < length <= min(whole, maximum_bytes):
        return None
    data = read_storage(storage, start, length)
    # A boolean that is neither 0 nor 1 is memory that nothing was written to, such as that of an output.
    if data is None or (dtype == "i1" and max(data) > 1):
        return None
    return TensorContents(data, dtype)


def _end(tensor: Any) -> int:
    """The address after the last element of a tensor."""
    strides = tensor.stride()
    last = sum((int(extent) - 1) * int(stride) for extent, stride in zip(tensor.shape, strides, strict=True))
    return int(tensor.data_ptr()) + (last + 1) * item_bytes(_dtype(tensor))


def read_storage(storage: Any, start: int, length: int) -> bytes | None:
    """`length` bytes of a torch storage from byte `start`, on whatever device; None for one without data."""
    try:
        import torch

        whole = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
        part = whole[start : start + length]
        return None if part.is_meta else bytes(part.cpu().numpy().tobytes())
    except (ImportError, AttributeError, RuntimeError, NotImplementedError, TypeError):
        return None
