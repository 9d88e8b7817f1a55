"""Tensors of pointers: the addresses that a tensor of integers holds, as names of buffers with offsets.

Foreach kernels, grouped products and adapters take the addresses of tensors in a tensor. An address has no meaning in
another process, so each is replaced by the tensor at this address.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bitwise_triton.arguments import element_dtype, item_bytes
from bitwise_triton.errors import CaptureError
from bitwise_triton.tensor_stand_ins import TensorGroup, storage_of

if TYPE_CHECKING:
    from bitwise_core.execution.tensor_contents import Pointer, TensorContents

LOWEST_ADDRESS = 1 << 16
"""No tensor lies below this address: smaller numbers are sizes, indices and flags."""

MAXIMUM_ENTRIES = 1 << 16
"""A larger tensor is no table of pointers."""


@dataclass(frozen=True, slots=True)
class _Memory:
    """Some memory: its buffer's name if that is an argument, where the buffer starts, and the tensors in it."""

    name: str | None
    start: int
    end: int
    tensors: tuple[Any, ...]


def with_named_pointers(
    recorded: Mapping[str, TensorContents], groups: Iterable[TensorGroup], live: Iterable[Any] | None = None
) -> dict[str, TensorContents]:
    """The contents, with pointers in the place of the addresses of tensors in those that hold nothing but addresses.

    `groups` are the arguments, and `live` further tensors: by default, those of torch that this process holds.
    """
    tables = [name for name, contents in recorded.items() if _may_be_table(contents)]
    found = dict(recorded)
    if not tables:
        return found
    memories = _memories(groups, _live_tensors() if live is None else live)
    for name in tables:
        pointers = _pointers(name, recorded[name], memories, recorded.keys())
        if pointers is not None:
            found[name] = replace(recorded[name], data=bytes(len(recorded[name].data)), pointers=pointers)
    return found


def _may_be_table(contents: TensorContents) -> bool:
    from bitwise_core.execution.tensor_contents import POINTER_TYPES

    if contents.dtype not in POINTER_TYPES or contents.pointers or len(contents) > MAXIMUM_ENTRIES:
        return False
    numbers = contents.numbers.view(np.uint64)
    return bool(numbers.any() and ((numbers == 0) | (numbers >= np.uint64(LOWEST_ADDRESS))).all())


def _memories(groups: Iterable[TensorGroup], live: Iterable[Any]) -> list[_Memory]:
    """The memory of all tensors, by address."""
    found: dict[int, _Memory] = {}
    for group in groups:
        span = _span(group.tensors[0])
        if span is not None:
            found[span[0]] = _Memory(group.name, group.lowest, span[1], group.tensors)
    for tensor in live:
        span = _span(tensor)
        if span is None:
            continue
        known = found.get(span[0], _Memory(None, span[0], span[1], ()))
        found[span[0]] = replace(known, tensors=(*known.tensors, tensor))
    return [found[start] for start in sorted(found)]


def _pointers(
    table: str, contents: TensorContents, memories: list[_Memory], taken: Iterable[str]
) -> tuple[Pointer, ...] | None:
    """The pointers of a table; None if it holds a number that is no address of a known tensor."""
    from bitwise_core.execution.tensor_contents import FLOATS, INTEGERS, Pointer

    starts = [each.start for each in memories]
    names: dict[int, str] = {}
    used = {*taken, *(each.name for each in memories if each.name is not None)}
    found = []
    for index, address in enumerate(contents.numbers.view(np.uint64).tolist()):
        if not address:
            continue
        place = int(np.searchsorted(starts, address, side="right")) - 1
        if place < 0 or address >= memories[place].end:
            return None
        memory = memories[place]
        if place not in names:
            names[place] = memory.name if memory.name is not None else _free_name(f"{table}_{index}", used)
            used.add(names[place])
        dtype = _element_type(memory, address)
        counted = memory.name is None and (dtype in INTEGERS or dtype in FLOATS)
        elements = (memory.end - memory.start) // item_bytes(str(dtype)) if counted else None
        found.append(Pointer(index, names[place], address - memory.start, dtype, elements))
    return tuple(found)


def _free_name(name: str, used: set[str]) -> str:
    while name in used:
        name += "_"
    return name


def _element_type(memory: _Memory, address: int) -> str | None:
    """The element type of the tensor at an address, or of another one in its memory."""
    for tensor in sorted(memory.tensors, key=lambda each: int(each.data_ptr()) != address):
        try:
            return element_dtype(tensor.dtype)
        except CaptureError:
            continue
    return None


def _span(tensor: Any) -> tuple[int, int] | None:
    """The addresses of the first byte of a tensor's memory and of the first one behind it."""
    try:
        storage = storage_of(tensor)
        start, size = int(storage.data_ptr()), int(storage.nbytes())
    except (AttributeError, RuntimeError, NotImplementedError, TypeError):
        return None
    return (start, start + size) if start and size else None


def _live_tensors() -> Iterator[Any]:
    torch = sys.modules.get("torch")
    if torch is None:
        return
    for each in gc.get_objects():
        if issubclass(type(each), torch.Tensor):
            yield each
