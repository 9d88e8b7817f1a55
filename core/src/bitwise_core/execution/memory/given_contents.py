"""Loads from buffers whose contents the launch gives: known numbers, in words of any width at any address."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bitwise_core.execution.domains.domain import DataDependent
from bitwise_core.execution.element_types import element_type
from bitwise_core.execution.launch import BUFFER_REACH, POINTER_SHIFT, Launch, buffers_at
from bitwise_core.execution.tensor_contents import TensorContents
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Array

_OFFSET, _REACH = np.uint64((1 << POINTER_SHIFT) - 1), np.uint64(BUFFER_REACH)
_WIDEST = 8


class GivenContents:
    """The given contents of a launch by the number of their buffer; nothing of it changes.

    A load beyond the given values has no number: it raises Unsupported and is never zero.
    """

    def __init__(self, launch: Launch, buffers: Mapping[str, int]) -> None:
        self._contents = {buffers[name]: (name, each) for name, each in launch.given().items() if name in buffers}
        self.buffers = frozenset(self._contents)
        """The numbers of the buffers whose contents are given."""
        self._padded = {
            number: np.concatenate([each.patterns, np.zeros(_WIDEST, dtype=np.uint8)])
            for number, (_, each) in self._contents.items()
        }

    def read(self, address: Array, bits: int, active: Array, line: int | None) -> Array:
        """Return `bits` bits at each address; 0 where `active`, which broadcasts to more lanes, is false.

        An address outside of the given buffers reads as 0.  Raises Unsupported for an active lane that is beyond the
        values of its buffer.
        """
        size = bits // 8
        where = buffers_at(address)
        place = (address + _REACH & _OFFSET).astype(np.int64) - BUFFER_REACH
        result: Array = np.zeros(address.shape, dtype=L.UNSIGNED[bits])
        for number, (name, contents) in self._contents.items():
            mine = where == number
            if not mine.any():
                continue
            beyond = mine & ((place < 0) | (place + size > len(contents.data)))
            if (beyond & active).any():
                first = int(np.broadcast_to(place, np.broadcast_shapes(place.shape, active.shape))[beyond & active][0])
                # Under a condition on data, what decides it may be what is missing.
                raise DataDependent(_beyond(name, contents, first, size), line)
            result = np.where(mine & ~beyond, _words(self._padded[number], place, size), result)
        return result


def _words(padded: Array, place: Array, size: int) -> Array:
    """Return the little-endian words of `size` bytes that start at each place; arbitrary ones beyond the end."""
    place = np.clip(place, 0, padded.size - _WIDEST)
    kind = L.UNSIGNED[8 * size]
    found = np.zeros(place.shape, dtype=kind)
    for byte in range(size):
        found |= padded[place + byte].astype(kind) << kind(8 * byte)
    return found


def _beyond(name: str, contents: TensorContents, place: int, size: int) -> str:
    width = element_type(contents.dtype).bytes
    return (
        f"the buffer {name} is read at element {place // width} ({size} bytes at byte {place}), beyond the "
        f"{len(contents)} values that the launch gives; give all values that the kernel reads"
    )


def none_given() -> GivenContents:
    """Return the contents of a launch that gives none."""
    return _NONE


_NONE = GivenContents(Launch(file="", grid=(1, 1, 1)), {})
