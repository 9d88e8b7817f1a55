"""Global memory of an execution on bit patterns: the caller's buffers, bounds checks, and the bytes after a launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bitwise_core.execution.active_lanes import active_values
from bitwise_core.execution.domains.bits import undefined_lanes
from bitwise_core.execution.domains.domain import Domain, Unsupported
from bitwise_core.execution.launch import POINTER_SHIFT, buffers_at
from bitwise_core.execution.memory.global_memory import GlobalMemory
from bitwise_core.execution.memory.outputs import final_events
from bitwise_core.execution.memory.store_forwarding import Access
from bitwise_core.execution.races.epochs import Epoch
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Array, Value

_OFFSET = np.uint64((1 << POINTER_SHIFT) - 1)
_WIDEST = 8

LAUNCH_SHIFT = 52
"""An access of launch i has its address plus i * 2**LAUNCH_SHIFT."""
_BUFFER = np.uint64((1 << LAUNCH_SHIFT - POINTER_SHIFT) - 1)


class BufferContents:
    """The initial content of every buffer, by its number, in each of several launches, readable in words of any width.

    A buffer has the same size in all launches.  Raises ValueError for other contents.
    """

    def __init__(self, launches: Sequence[Mapping[int, Array]]) -> None:
        self.launches = len(launches)
        self.sizes = {number: each.size for number, each in launches[0].items()}
        if any({number: each.size for number, each in one.items()} != self.sizes for one in launches):
            raise ValueError("launches that run together must have buffers of the same sizes")
        if self.launches > 1 << 64 - LAUNCH_SHIFT or max(self.sizes, default=0) > int(_BUFFER):
            raise ValueError("too many launches or buffers run together: addresses cannot encode them")
        self._words: dict[tuple[int, int], Array] = {}
        for number, bytes_of in self.sizes.items():
            padded = np.zeros((self.launches, -(-bytes_of // _WIDEST) * _WIDEST + _WIDEST), dtype=np.uint8)
            for row, one in zip(padded, launches, strict=True):
                row[:bytes_of] = one[number]
            for size in (1, 2, 4, 8):
                self._words[number, size] = padded.view(L.UNSIGNED[8 * size])

    def read(self, address: Array, bits: int) -> Value:
        """See `domains.bits.Contents`; a buffer without content, which is scratch memory, reads as undefined."""
        size = bits // 8
        buffer = buffers_at(address) & _BUFFER
        place = ((address & _OFFSET) // np.uint64(size)).astype(np.int64)
        launch = (address >> np.uint64(LAUNCH_SHIFT)).astype(np.int64) if self.launches > 1 else None
        first = int(buffer.flat[0]) if buffer.size else 0
        if (buffer == first).all():
            words = self._words.get((first, size))
            return undefined_lanes(bits, L.POISON) if words is None else _words_at(words, launch, place)
        result: Array = np.zeros(address.shape, dtype=L.UNSIGNED[bits])
        defined: Array = np.zeros(address.shape, dtype=bool)
        for number in np.unique(buffer):
            words = self._words.get((int(number), size))
            if words is not None:
                mine = buffer == number
                result = np.where(mine, _words_at(words, launch, place), result)
                defined |= mine
        if defined.all():
            return result
        return L.blend(defined, L.constant_vector(result), undefined_lanes(bits, L.POISON))


def _words_at(words: Array, launch: Array | None, place: Array) -> Array:
    """Return the words at these places of a launch's row; arbitrary ones beyond its end."""
    if launch is not None:
        place = np.minimum(place, words.shape[1] - 1) + launch * words.shape[1]
    found: Array = words.reshape(-1).take(place, mode="clip")
    return found


MAXIMUM_BYTES = 1 << 28
"""The largest extent in bytes up to which an open-ended buffer may be accessed."""


class BitsMemory(GlobalMemory):
    """Loads and stores on bit patterns, of one launch or of several independent ones.

    `launch` holds the launch of each block of the batch, shape (blocks, 1); None if there is only one.  No access may
    be outside its buffer.  If `open_ended`, buffers continue with zeros beyond their content, except for those in
    `closed`, and `extent` records how far each was accessed by any of the launches.
    """

    def __init__(
        self,
        domain: Domain,
        buffers: BufferContents,
        names: Mapping[int, str],
        open_ended: bool = False,
        closed: frozenset[int] = frozenset(),
    ) -> None:
        super().__init__(domain)
        self.buffers, self.names, self.open_ended, self.closed = buffers, names, open_ended, closed
        self.launch: Array | None = None
        self.scratch: frozenset[int] = frozenset()
        self.extent = dict.fromkeys(names, 0)

    def load(self, address: Array, bits: int, mask: Array | None, thread: Array, epoch: Epoch, line: int) -> Value:
        """See `GlobalMemory.load`."""
        self._check(address, bits, mask, "read", line)
        return super().load(self.in_own_launch(address), bits, mask, thread, epoch, line)

    def store(self, address: Array, value: Value, mask: Array | None, thread: Array, epoch: Epoch, line: int) -> None:
        """See `GlobalMemory.store`."""
        self._check(address, L.width(value), mask, "written", line)
        super().store(self.in_own_launch(address), value, mask, thread, epoch, line)

    def buffer_of(self, address: Array) -> Array:
        """See `GlobalMemory.buffer_of`: the same in all launches."""
        found: Array = super().buffer_of(address) & _BUFFER
        return found

    def in_own_launch(self, address: Array) -> Array:
        """See `GlobalMemory.in_own_launch`."""
        if self.launch is None:
            return address
        moved: Array = address + (self.launch.astype(np.uint64) << np.uint64(LAUNCH_SHIFT))
        return moved

    def merge_float_extrema(self) -> None:
        """Merge pairs of integer atomics that together are one maximum or minimum of floats, which commutes.

        Compilers choose the integer operation by the sign of the operand. max.s32 of patterns without the sign bit and
        min.u32 of patterns with it both take the greater float, whatever memory held. min.s32 and max.u32 of the same
        patterns take the smaller one.
        """
        for number, events in self.atomics.items():
            joined = [_float_extremum_of(name, event) for name, event in events]
            names = {name for name, _ in events}
            if len(names) > 1 and None not in joined and len(set(joined)) == 1:
                self.atomics[number] = [(str(name), event) for name, (_, event) in zip(joined, events, strict=True)]

    def _check(self, address: Array, bits: int, mask: Array | None, what: str, line: int) -> None:
        """Raise Unsupported unless every active lane's access lies in a buffer."""
        address = active_values(address, mask)
        if not address.size:
            return
        buffer = buffers_at(address)
        low, high = int(buffer.min()), int(buffer.max())
        for number in [low] if low == high else [int(each) for each in np.unique(buffer)]:
            if number in self.scratch:
                continue
            size = self.buffers.sizes.get(number)
            if size is None:
                raise Unsupported(f"memory outside every buffer of the launch is {what}", line)
            mine = address if low == high else address[buffer == number]
            if int(mine.min()) < number << POINTER_SHIFT:
                raise Unsupported(f"the buffer {self.names[number]} is {what} below its first byte", line)
            last = int((mine & _OFFSET).max())
            if self.open_ended and number not in self.closed and last < MAXIMUM_BYTES:
                self.extent[number] = max(self.extent[number], last + bits // 8)
            elif last + bits // 8 > size:
                raise Unsupported(
                    f"the buffer {self.names[number]} holds {size} bytes and is {what} at byte {last}"
                    f" ({bits // 8} bytes wide), out of its bounds",
                    line,
                )


def _float_extremum_of(name: str, event: Access) -> str | None:
    """Return the maximum or minimum of floats of which an integer atomic is one half, or None."""
    verb, kind = name.split(".")[0], name.split(".")[-1]
    value = event.value
    if verb not in ("max", "min") or kind not in ("s32", "u32", "s64", "u64") or value is None:
        return None
    signs = (value.words[0] >> np.uint64(event.bits - 1)) & np.uint64(1)
    if not np.all(L.constant_mask(value)) or (signs != (kind[0] == "u")).any():
        return None
    return f"{verb if kind[0] == 's' else {'max': 'min', 'min': 'max'}[verb]}bysign.b{event.bits}"


def bytes_after(memory: BitsMemory, launches: Sequence[Mapping[int, Array]]) -> list[dict[int, Array]]:
    """Return the bytes of every buffer after each launch; the stores must have been checked for races before."""
    after: dict[int, Array] = {}
    for number, size in memory.buffers.sizes.items():
        after[number] = np.zeros((len(launches), max(size, memory.extent[number])), dtype=np.uint8)
        for row, one in zip(after[number], launches, strict=True):
            row[:size] = one[number]
    for number in memory.stores.keys() | memory.atomics.keys():
        if number in memory.scratch:
            continue
        content = after[number]
        flat = content.reshape(-1)
        for event in final_events(memory, number):
            assert event.value is not None
            if not np.all(L.constant_mask(event.value)):
                raise Unsupported("a value without a bit pattern is stored", event.line)
            numbers = np.broadcast_to(event.value.words[0, 0], event.address.shape).astype(np.uint64)
            launch = (event.address >> np.uint64(LAUNCH_SHIFT)).astype(np.int64)
            place = (event.address & _OFFSET).astype(np.int64) + launch * content.shape[1]
            for byte in range(event.bits // 8):
                flat[place + byte] = (numbers >> np.uint64(8 * byte)).astype(np.uint8)
    return [{number: content[index] for number, content in after.items()} for index in range(len(launches))]
