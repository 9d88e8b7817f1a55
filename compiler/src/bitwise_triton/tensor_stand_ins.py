"""Stand-ins for the tensors of a launch, so that it can be compiled and compared without them.

A stand-in names the memory of its tensor: tensors of one storage share a buffer at their actual offsets. Objects
without a storage are assumed not to overlap unless their addresses are equal.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bitwise_triton.arguments import Buffer, PointerStandIn

_BASE_ADDRESS = 1 << 40
_UNBOUNDED_BYTES = 1 << 62


def stand_ins(values: Mapping[str, Any]) -> dict[str, Any]:
    """`values` by parameter name with a stand-in for each tensor, alone, in a tuple or in a descriptor."""
    groups = tensor_groups(values)
    return {name: _replace(name, value, groups) for name, value in values.items()}


@dataclass(frozen=True, slots=True)
class TensorGroup:
    """The tensors of one storage: the name of their buffer, its address, and the arguments that they belong to."""

    name: str
    lowest: int
    tensors: tuple[Any, ...]
    arguments: tuple[str, ...]


def tensor_groups(values: Mapping[str, Any]) -> dict[int, TensorGroup]:
    """The tensors of `values` by their storage."""
    groups: dict[int, TensorGroup] = {}
    for name, value in values.items():
        for tensor in _tensors(value):
            storage, address = _storage(tensor), int(tensor.data_ptr())
            old = groups.get(storage, TensorGroup(name, address, (), ()))
            tensors, arguments = (*old.tensors, tensor), (*old.arguments, name)
            groups[storage] = TensorGroup(old.name, min(old.lowest, address), tensors, arguments)
    return groups


def storage_of(tensor: Any) -> Any:
    """The memory of a tensor, or None for an object that does not say what it is."""
    # Triton's TensorWrapper reinterprets the tensor that owns the memory.
    owner = tensor.base if type(tensor).__name__ == "TensorWrapper" else tensor
    return owner.untyped_storage() if hasattr(owner, "untyped_storage") else None


def is_tensor(value: Any) -> bool:
    """Whether Triton passes `value` as a pointer."""
    return hasattr(value, "data_ptr") and hasattr(value, "dtype")


def is_descriptor(value: Any) -> bool:
    """Whether `value` is a host-side tensor descriptor."""
    return is_tensor(getattr(value, "base", None)) and hasattr(value, "block_shape")


def copy_descriptor(value: Any, base: Any) -> Any:
    """A copy of a descriptor, with its own lists, over another base."""
    found = copy.copy(value)
    for name, field in list(vars(found).items()):
        if isinstance(field, list):
            setattr(found, name, list(field))
    found.base = base
    return found


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple):
        for part in value:
            yield from _tensors(part)
    elif is_descriptor(value):
        yield from _tensors(value.base)
    elif is_tensor(value) and not _is_placeholder(value):
        yield value


def _is_placeholder(value: Any) -> bool:
    """Whether a tensor is Triton's MockTensor for ahead-of-time compilation; all of them have the null address."""
    return type(value).__name__ == "MockTensor"


def _is_torch_dtype(value: Any) -> bool:
    return type(value).__name__ == "dtype" and type(value).__module__ == "torch"


def _storage(tensor: Any) -> int:
    """A number that two tensors share only if they use the same memory."""
    storage = storage_of(tensor)
    return int((tensor if storage is None else storage).data_ptr())


def _size(tensor: Any) -> int:
    """Size of the memory in bytes as Triton's AMD backend measures it; an unknown size is unbounded."""
    if hasattr(tensor, "ptr_range"):
        return int(tensor.ptr_range())
    if hasattr(tensor, "untyped_storage"):
        return int(tensor.untyped_storage().nbytes())
    return _UNBOUNDED_BYTES


def _replace(name: str, value: Any, groups: Mapping[int, TensorGroup]) -> Any:
    if isinstance(value, tuple):
        parts: list[Any] = [_replace(name, part, groups) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if is_descriptor(value):
        return copy_descriptor(value, _replace(name, value.base, groups))
    if _is_torch_dtype(value):
        return PointerStandIn(Buffer(name, str(value)))
    if not is_tensor(value):
        return value
    if _is_placeholder(value):
        return PointerStandIn(Buffer(name, str(value.dtype)))
    address = int(value.data_ptr())
    if address == 0:
        return PointerStandIn(Buffer(None, str(value.dtype)), 0)
    group = groups[_storage(value)]
    # Triton only tests for 2 GiB; an exact size would distinguish equal launches.
    size = 0 if _size(value) < 1 << 31 else _UNBOUNDED_BYTES
    buffer = Buffer(group.name, str(value.dtype), offset=address - group.lowest, size_bytes=size)
    return PointerStandIn(buffer, _BASE_ADDRESS + address % 16)
