"""Loads from buffers whose contents the launch gives: known numbers, in words of any width at any address."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bitwise_core.execution.domains.domain import DataDependent, Unsupported
from bitwise_core.execution.element_types import element_type
from bitwise_core.execution.launch import BUFFER_REACH, POINTER_SHIFT, Launch, buffers_at, is_like_address
from bitwise_core.execution.tensor_contents import POINTER_TYPES, TensorContents
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
        starts = {name: number << POINTER_SHIFT for name, number in buffers.items()}
        self._padded = {
            number: np.concatenate([each.placed(starts), np.zeros(_WIDEST, dtype=np.uint8)])
            for number, (_, each) in self._contents.items()
        }
        self._like_addresses = {
            number: like_addresses(each, len(buffers)) for number, (_, each) in self._contents.items()
        }
        self._pointers = {
            number: np.array(sorted(pointer.index for pointer in each.pointers), dtype=np.int64)
            for number, (_, each) in self._contents.items()
            if each.pointers
        }

    @property
    def has_pointers(self) -> bool:
        """Whether the launch gives a pointer in the contents of some buffer."""
        return bool(self._pointers)

    def words_of_pointers(self, address: Array) -> tuple[Array, Array]:
        """Return which addresses are those of the lower, and of the upper, 32-bit word of a pointer."""
        where = buffers_at(address)
        place = (address + _REACH & _OFFSET).astype(np.int64) - BUFFER_REACH
        lower, upper = np.zeros(address.shape, dtype=bool), np.zeros(address.shape, dtype=bool)
        for number, indices in self._pointers.items():
            mine = where == number
            lower |= mine & np.isin(place, indices * _WIDEST)
            upper |= mine & np.isin(place, indices * _WIDEST + _WIDEST // 2)
        return lower, upper

    def read(
        self,
        address: Array,
        bits: int,
        active: Array,
        line: int | None,
        *,
        checked: bool = True,
        follows_pointers: bool = False,
    ) -> Array:
        """Return `bits` bits at each address; 0 where `active`, which broadcasts to more lanes, is false.

        An address outside of the given buffers reads as 0.  Raises Unsupported for an active lane that is beyond the
        values of its buffer, and if `checked`, for a number that could be taken for an address of the launch.  Unless
        the reader `follows_pointers`, and reads a whole one, a pointer is refused in the same way: its bytes are no
        number that the launch gives.
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
            pointers = self._pointers.get(number)
            if pointers is not None:
                read = (mine & active, place, size, pointers, follows_pointers)
                self._check_pointers(name, *read, line)
            result = np.where(mine & ~beyond, _words(self._padded[number], place, size), result)
            if checked and size == _WIDEST and self._like_addresses[number].size:
                self._check_numbers(name, contents, place[mine & ~beyond], self._like_addresses[number], line)
        return result

    def where_like_addresses(self, address: Array, bits: int, active: Array) -> tuple[Array, str] | None:
        """Return the lanes that read a number that could be taken for an address of the launch, and a sentence on it.

        None if no active lane does.
        """
        if bits != 8 * _WIDEST or not any(each.size for each in self._like_addresses.values()):
            return None
        where = buffers_at(address)
        place = (address + _REACH & _OFFSET).astype(np.int64) - BUFFER_REACH
        result: Array = np.zeros(address.shape, dtype=bool)
        words = ""
        for number, (name, contents) in self._contents.items():
            indices = self._like_addresses[number]
            mine = (where == number) & np.isin(place, indices * _WIDEST)
            if (mine & active).any():
                index = int(np.broadcast_to(place, np.broadcast_shapes(place.shape, active.shape))[mine & active][0])
                words = _like_address(name, int(contents.numbers[index // _WIDEST]), index // _WIDEST)
                result |= mine
        return (result, words) if words else None

    def _check_pointers(
        self, name: str, lanes: Array, place: Array, size: int, pointers: Array, follows: bool, line: int | None
    ) -> None:
        """Raise Unsupported for a pointer of which these lanes read a part, or read it as a number."""
        where = np.broadcast_to(place, lanes.shape)[lanes]
        number = np.searchsorted(pointers * _WIDEST, where - _WIDEST, side="right")
        first = pointers[np.minimum(number, pointers.size - 1)] * _WIDEST
        touched = (first > where - _WIDEST) & (first < where + size)
        if follows and size == _WIDEST:
            touched &= first != where
        if touched.any():
            index = int(first[touched][0]) // _WIDEST
            raise Unsupported(
                f"the pointer at element {index} of the buffer {name} is read in parts or as a number, and the launch "
                "does not give the address of a buffer",
                line,
            )

    def _check_numbers(
        self, name: str, contents: TensorContents, place: Array, indices: Array, line: int | None
    ) -> None:
        """Raise Unsupported for a number that is read and could be taken for an address of the launch."""
        found = indices[np.isin(indices * _WIDEST, place)]
        if found.size:
            raise Unsupported(_like_address(name, int(contents.numbers[found[0]]), int(found[0])), line)


def placed_pointers(given: Mapping[str, TensorContents], buffers: Mapping[str, int]) -> dict[int, Array]:
    """Return the bytes of the contents that have pointers, by the number of their buffer, with these as addresses."""
    starts = {name: number << POINTER_SHIFT for name, number in buffers.items()}
    return {buffers[name]: each.placed(starts) for name, each in given.items() if each.pointers and name in buffers}


def like_addresses(contents: TensorContents, buffers: int) -> Array:
    """Return the indices of 64-bit numbers that the analysis would take for addresses of a launch with some buffers.

    Pointers are none: they are such addresses.
    """
    if contents.dtype not in POINTER_TYPES:
        return np.zeros(0, dtype=np.int64)
    found = np.flatnonzero(is_like_address(contents.numbers.view(np.uint64), buffers))
    return found[~np.isin(found, [each.index for each in contents.pointers])]


def _like_address(name: str, number: int, index: int) -> str:
    return (
        f"the buffer {name} holds {number:#x} at element {index}, which cannot be told from an address of the "
        "analysis; if it is a pointer, give the name of the buffer that it points to"
    )


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
