"""Global memory during a launch: loads of initial content, and the stores that make up the result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from bitwise_core.machine import hashing
from bitwise_core.machine import lanes as L
from bitwise_core.machine.domain import Domain, Unreadable
from bitwise_core.machine.lane_hash import term
from bitwise_core.machine.lanes import Array, Lanes, Pieces, Value
from bitwise_core.machine.launch import POINTER_SHIFT
from bitwise_core.machine.pieces import as_lanes

ANY = -1
"""Stands for a buffer that is not known."""


class Undetermined(Unreadable):
    """The kernel's own result is not determined: it is equal to nothing, itself included."""


@dataclass(frozen=True, slots=True)
class Access:
    """One access of a batch: flat arrays over the active lanes, in thread order."""

    address: Array
    thread: Array
    """Number of the thread in the whole launch."""
    epoch: int
    value: Lanes | None
    bits: int
    line: int


def _flat(value: Lanes, shape: tuple[int, int], active: Array) -> Lanes:
    words = np.broadcast_to(value.words, (2, *shape))[:, active][:, None, :]
    meta = value.meta if isinstance(value.meta, int) else np.broadcast_to(value.meta, shape)[active][None]
    return Lanes(value.bits, words, meta)


def elements(value: Value) -> list[tuple[int, Lanes]]:
    """The elements of a stored value with their byte offsets."""
    if isinstance(value, Pieces):
        result: list[tuple[int, Lanes]] = []
        offset = 0
        for part in value.parts:
            result.extend((offset + inner, lanes) for inner, lanes in elements(part))
            offset += L.width(part) // 8
        return result
    return [(0, as_lanes(value))]


class GlobalMemory:
    """The loads and stores of a launch, over all its batches."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.stores: dict[int, list[Access]] = {}
        self.loads: dict[int, list[Access]] = {}
        self.atomics: dict[int, list[tuple[str, Access]]] = {}
        self.watched: frozenset[int] = frozenset()
        self.gathered: dict[int, int] = {}
        self.scattered: list[tuple[str, hashing.Words, int]] = []
        self.seen: set[int] = set()

    def load(self, address: Array, bits: int, mask: Array | None, thread: Array, epoch: int, line: int) -> Value:
        """The content of memory at each active lane's address.  Raises Unreadable."""
        shape = np.broadcast_shapes(address.shape, mask.shape if mask is not None else (1, 1))
        buffers = self._buffers(address, mask)
        self.seen |= buffers
        value = self.domain.load(address.astype(np.uint64, copy=False), bits)
        if not buffers & (self.stores.keys() | self.watched | self.atomics.keys()):
            return value
        full = np.broadcast_shapes(shape, thread.shape)
        active = np.ones(full, dtype=bool) if mask is None else np.broadcast_to(mask, full)
        where = np.broadcast_to(address, full)[active]
        who = np.broadcast_to(thread, full)[active]
        for buffer in buffers:
            if self.atomics.get(buffer):
                raise Unreadable("global memory is read after an atomic operation on the same buffer", line)
            self.loads.setdefault(buffer, []).append(Access(where, who, epoch, None, bits, line))
            for store in self.stores.get(buffer, ()):
                value = self._forward(value, store, where, who, active, epoch, bits, line)
        return value

    def _buffers(self, address: Array, mask: Array | None) -> set[int]:
        if mask is not None:
            full = np.broadcast_shapes(address.shape, mask.shape)
            address = np.broadcast_to(address, full)[np.broadcast_to(mask, full)]
        if not address.size:
            return set()
        low, high = int(address.min()) >> POINTER_SHIFT, int(address.max()) >> POINTER_SHIFT
        if low == high:
            return {low}
        return {int(each) for each in np.unique(address >> np.uint64(POINTER_SHIFT))}

    def _forward(
        self, value: Value, store: Access, where: Array, who: Array, active: Array, epoch: int, bits: int, line: int
    ) -> Value:
        """The loaded value with what an earlier store of this launch put there."""
        size, stored = bits // 8, store.bits // 8
        low, high = int(where.min(initial=2**62)), int(where.max(initial=0))
        if int(store.address.max(initial=0)) + stored <= low or high + size <= int(store.address.min(initial=2**62)):
            return value
        order = np.argsort(store.address, kind="stable")
        keys = store.address[order]
        place = np.searchsorted(keys, where, side="right") - 1
        hit = (place >= 0) & (keys[np.maximum(place, 0)] == where)
        before = (place >= 0) & (keys[np.maximum(place, 0)] + np.uint64(stored) > where)
        after = np.searchsorted(keys, where + np.uint64(size), side="left") - 1
        if not (hit | before | (after > place)).any():
            return value
        if stored != size or (hit != (before | (after > place))).any():
            raise Unreadable("global memory is read back in another width than it was written", line)
        source = order[np.maximum(place, 0)]
        writer = store.thread[source]
        if not (~hit | (writer == who) | (store.epoch < epoch)).all():
            raise Unreadable("a thread reads global memory that another thread of the launch writes (a race)", line)
        if (hit & ((writer >> 20) != (who >> 20))).any():
            raise Unreadable("a block reads global memory that another block of the launch writes", line)
        assert store.value is not None
        lanes = as_lanes(value)
        words = np.broadcast_to(lanes.words, (2, *active.shape)).copy()
        meta = np.broadcast_to(
            np.uint32(lanes.meta) if isinstance(lanes.meta, int) else lanes.meta, active.shape
        ).copy()
        block, lane = (axis[hit] for axis in np.nonzero(active))
        taken = source[hit]
        words[:, block, lane] = (
            store.value.words[:, 0, :][:, taken] if store.value.words.shape[2] > 1 else store.value.words[:, 0, :]
        )
        meta[block, lane] = store.value.meta if isinstance(store.value.meta, int) else store.value.meta[0][taken]
        return L.settle(Lanes(bits, words, meta))

    def gather(
        self, address: Value, bits: int, mask: Array | None, line: int, buffers: Iterable[int] | None = None
    ) -> Value:
        """The initial content at addresses that depend on data, in one of `buffers` (None: in any).

        No store of the launch may reach them.  Raises Unreadable.
        """
        if buffers is None and (self.stores or self.atomics):
            raise Unreadable("memory is read at a computed address after the kernel has stored", line)
        for buffer in buffers or (ANY,):
            self.gathered.setdefault(buffer, line)
        return self.domain.gather(address, bits, mask)

    def check_gathers(self) -> None:
        """No buffer that is read at computed addresses may be written by the launch.  Raises Unreadable."""
        written = self.stores.keys() | self.atomics.keys()
        for buffer, line in self.gathered.items():
            if buffer in written or (buffer == ANY and written):
                raise Unreadable("memory that the launch writes is read at a computed address", line)

    def scatter(self, machine: object, address: Value, value: Value, line: int, operation: str = "store") -> None:
        """A store at addresses that depend on data."""
        raise Unreadable("memory is written at a computed address", line)

    def copied(self, machine: object, address: Value, bits: int, count: Value | None, line: int) -> Value:
        """What an asynchronous copy reads at an address that depends on data: `count` bytes, and zeros."""
        raise Unreadable("an asynchronous copy at a computed address", line)

    def store(self, address: Array, value: Value, mask: Array | None, thread: Array, epoch: int, line: int) -> None:
        """Stores the value at each active lane's address."""
        parts = elements(value)
        shape = np.broadcast_shapes(
            address.shape,
            thread.shape,
            mask.shape if mask is not None else (1, 1),
            *(p.words.shape[1:] for _, p in parts),
        )
        active = np.ones(shape, dtype=bool) if mask is None else np.broadcast_to(mask, shape)
        where = np.broadcast_to(address, shape)[active].astype(np.uint64, copy=False)
        who = np.broadcast_to(thread, shape)[active]
        if not where.size:
            return
        buffers = np.unique(where >> np.uint64(POINTER_SHIFT))
        for offset, lanes in parts:
            flat = _flat(lanes, (shape[0], shape[1]), active)
            if len(buffers) == 1:
                access = Access(where + np.uint64(offset), who, epoch, flat, lanes.bits, line)
                self.stores.setdefault(int(buffers[0]), []).append(access)
                continue
            for buffer in buffers:
                chosen = where >> np.uint64(POINTER_SHIFT) == buffer
                part = Lanes(flat.bits, np.broadcast_to(flat.words, (2, 1, chosen.size))[:, :, chosen],
                             flat.meta if isinstance(flat.meta, int) else flat.meta[:, chosen])  # fmt: skip
                access = Access(where[chosen] + np.uint64(offset), who[chosen], epoch, part, lanes.bits, line)
                self.stores.setdefault(int(buffer), []).append(access)

    def contribute(
        self, name: str, parts: Sequence[Value], mask: Array | None, shape: tuple[int, int], line: int
    ) -> None:
        """Contributions by the operation `name` whose address, value or condition depends on data.

        Where the operation is exact in any order, what they leave is a function of the multiset of contributions.
        Raises Unreadable where it is not, or where operations mix.
        """
        if not exact(name):
            raise Undetermined("a floating-point sum at computed addresses may have several contributors", line)
        if any(other != name for other, _, _ in self.scattered):
            raise Unreadable("different atomic operations at computed addresses", line)
        contribution = term(64, "contribution " + name, [as_lanes(part) for part in parts], exact=True)
        active = np.ones(shape, dtype=bool) if mask is None else np.broadcast_to(mask, shape)
        words = np.broadcast_to(contribution.words, (2, *shape))[:, active].sum(axis=1, dtype=np.uint64)
        meta = (
            contribution.meta
            if isinstance(contribution.meta, int)
            else int(np.bitwise_or.reduce(np.broadcast_to(contribution.meta, shape)[active], initial=np.uint32(0)))
        )
        if meta & L.STICKY:
            raise Unreadable("a contribution depends on something that is not determined", line)
        self.scattered.append((name, words, line))

    def atomic(
        self, name: str, address: Array, value: Value, mask: Array | None, thread: Array, epoch: int, line: int
    ) -> None:
        """Contributes `value` to each active lane's address by the operation `name`."""
        before = {buffer: len(events) for buffer, events in self.stores.items()}
        self.store(address, value, mask, thread, epoch, line)
        for buffer in list(self.stores):
            events = self.stores[buffer]
            fresh = events[before.get(buffer, 0) :]
            if fresh:
                self.atomics.setdefault(buffer, []).extend((name, event) for event in fresh)
                del events[before.get(buffer, 0) :]
                if not events:
                    del self.stores[buffer]


def exact(name: str) -> bool:
    """Whether an atomic operation's result is the same in every order."""
    verb, last = name.split(".")[0], name.split(".")[-1]
    return verb in ("max", "min", "and", "or", "xor") or (verb == "add" and not last.startswith(("fp", "bf")))
