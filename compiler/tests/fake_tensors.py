"""Tensors with the attributes that are used of torch's, over memory of this process."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bitwise_triton.arguments import DtypeStandIn


class Storage:
    """The attributes of a torch storage that are used, over an array in this process."""

    def __init__(self, memory: npt.NDArray[np.uint8], address: int) -> None:
        self.memory, self.address = memory, address

    def data_ptr(self) -> int:
        return self.address

    def nbytes(self) -> int:
        return self.memory.nbytes


class Tensor:
    """The attributes of a tensor that are used: elements of a storage from a byte on, with strides."""

    def __init__(
        self, dtype: str, storage: Storage, start: int, shape: tuple[int, ...], stride: tuple[int, ...] = (1,)
    ):
        self.dtype, self.storage, self.start = DtypeStandIn(dtype), storage, start
        self.shape, self.strides = shape, stride

    def data_ptr(self) -> int:
        return self.storage.address + self.start

    def untyped_storage(self) -> Storage:
        return self.storage

    def stride(self) -> tuple[int, ...]:
        return self.strides


_ADDRESSES = iter(range(1 << 32, 1 << 40, 1 << 24))


def new_address() -> int:
    """The address of memory that no other tensor uses."""
    return next(_ADDRESSES)


def tensor(array: npt.NDArray[Any], dtype: str) -> Tensor:
    """A tensor over the memory of an array."""
    return Tensor(dtype, Storage(array.reshape(-1).view(np.uint8), new_address()), 0, (array.size,))
