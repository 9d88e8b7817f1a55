"""Global memory during a launch: loads of initial content, and the stores that make up the result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from bitwise_core.machine import hashing
from bitwise_core.machine import lanes as L
from bitwise_core.machine.domain import Domain, Unreadable
from bitwise_core.machine.lane_hash import full_hash, term
from bitwise_core.machine.lanes import Array, Lanes, Pieces, Value
from bitwise_core.machine.launch import POINTER_SHIFT
from bitwise_core.machine.pieces import as_lanes, choose, cut

ANY = -1
"""Stands for a buffer that is not known."""

COMPUTED = 0
"""The place in the outputs of what went to computed addresses, whatever the buffer."""


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


def _parts(value: Value) -> list[tuple[int, Lanes]]:
    """The elements of a stored value with their byte offsets."""
    if isinstance(value, Pieces):
        result: list[tuple[int, Lanes]] = []
        offset = 0
        for part in value.parts:
            result.extend((offset + inner, lanes) for inner, lanes in _parts(part))
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

    def gather(self, address: Value, bits: int, mask: Array | None, line: int, buffers: Iterable[int] | None = None) -> Value:
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
        parts = _parts(value)
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


@dataclass(frozen=True, slots=True)
class Output:
    """What a launch leaves in one buffer: sorted addresses, widths in bytes, full hashes, properties, lines, threads.

    A thread is numbered as in `Access`; of an element made by atomic operations it says nothing.
    """

    address: Array
    size: Array
    words: hashing.Words
    meta: Array
    line: Array
    thread: Array


def _columns(events: list[Access]) -> tuple[Array, Array, Array, hashing.Words, Array, Array, Array]:
    address = np.concatenate([e.address for e in events])
    thread = np.concatenate([e.thread for e in events])
    size = np.concatenate([np.full(e.address.size, e.bits // 8, dtype=np.uint64) for e in events])
    line = np.concatenate([np.full(e.address.size, e.line, dtype=np.int64) for e in events])
    epoch = np.concatenate([np.full(e.address.size, e.epoch, dtype=np.int64) for e in events])
    words, metas = [], []
    for event in events:
        assert event.value is not None
        hashed, meta = stored_hash(event.value)
        words.append(np.broadcast_to(hashed, (2, 1, event.address.size))[:, 0])
        metas.append(np.broadcast_to(np.uint32(meta) if isinstance(meta, int) else meta[0], event.address.shape))
    return address, thread, size, np.concatenate(words, axis=1), np.concatenate(metas), line, epoch


def stored_hash(value: Lanes) -> tuple[hashing.Words, L.Meta]:
    """The hash by which a stored element is compared."""
    return full_hash(value), value.meta


def _narrow(events: list[Access]) -> list[Access]:
    """Elements cut to the least width stored in the buffer, known numbers and leaves to halves: packing does not show."""
    least = min(event.bits for event in events)
    copies = min(least, 16)
    result: list[Access] = []
    for event in events:
        assert event.value is not None
        meta = event.value.meta
        form = meta & L.FORM if isinstance(meta, int) else meta & np.uint32(L.FORM)
        exact = (form == L.LEAF) | (form == L.KNOWN)
        if event.bits <= copies:
            result.append(event)
            continue
        chosen = np.broadcast_to(exact if isinstance(exact, np.ndarray) else np.bool_(exact), (1, event.address.size))[
            0
        ]
        for keep, narrow in ((~chosen, False), (chosen, True)):
            if not keep.any():
                continue
            lanes = Lanes(event.bits, np.broadcast_to(event.value.words, (2, 1, keep.size))[:, :, keep],
                          meta if isinstance(meta, int) else meta[:, keep])  # fmt: skip
            base = Access(event.address[keep], event.thread[keep], event.epoch, lanes, event.bits, event.line)
            width = copies if narrow else least
            for low in range(0, event.bits, width):
                piece = as_lanes(cut(lanes, low, width))
                place = base.address + np.uint64(low // 8)
                result.append(Access(place, base.thread, base.epoch, piece, width, base.line))
    return result


def final_events(memory: GlobalMemory, buffer: int) -> list[Access]:
    """The stores into a buffer in their order, or what atomic operations leave there.  Raises Unreadable."""
    events = list(memory.stores.get(buffer, ()))
    atomics = memory.atomics.get(buffer, [])
    if atomics and events:
        raise Unreadable("a buffer receives both plain stores and atomic operations", atomics[0][1].line)
    return [_accumulated(memory.domain, atomics)] if atomics else events


def outputs(memory: GlobalMemory) -> dict[int, Output]:
    """The final content of every buffer that the launch wrote.  Raises Unreadable on a race."""
    result: dict[int, Output] = {}
    memory.check_gathers()
    for buffer in sorted(memory.stores.keys() | memory.atomics.keys()):
        events = final_events(memory, buffer)
        address, thread, size, words, meta, line, epoch = _columns(_narrow(events))
        order = np.argsort(address, kind="stable")
        address, thread, size, words, meta, line, epoch = (
            address[order], thread[order], size[order], words[:, order], meta[order], line[order], epoch[order],
        )  # fmt: skip
        same = address[1:] == address[:-1]
        if (address[:-1] + size[:-1] > address[1:])[~same].any() or (size[1:] != size[:-1])[same].any():
            raise Unreadable("stores of different widths overlap", int(line[0]))
        clash = same & (thread[1:] != thread[:-1]) & (words[:, 1:] != words[:, :-1]).any(axis=0)
        clash &= (thread[1:] >> 20 != thread[:-1] >> 20) | (epoch[1:] <= epoch[:-1])
        if clash.any():
            raise Unreadable("two threads store different values at one address (a race)", int(line[1:][clash][0]))
        last = np.append(~same, True)
        result[buffer] = Output(address[last], size[last], words[:, last], meta[last], line[last], thread[last])
        _check_loads(memory, buffer, address, thread, size, epoch)
    if memory.scattered:
        total = np.sum([words for _, words, _ in memory.scattered], axis=0, dtype=np.uint64)
        words = hashing.finalise(total.reshape(2, 1, 1) + hashing.constant("contributions " + memory.scattered[0][0]))
        one = np.zeros(1, dtype=np.uint64)
        line = np.array([memory.scattered[0][2]])
        result[COMPUTED] = Output(
            one, one, words[:, 0], np.full(1, L.TERM, dtype=np.uint32), line, np.zeros(1, dtype=np.int64)
        )
    return result


def _check_loads(memory: GlobalMemory, buffer: int, address: Array, thread: Array, size: Array, epoch: Array) -> None:
    """No load may meet a store of another block, or one of another thread that no barrier orders.  Raises Unreadable."""
    for load in memory.loads.get(buffer, ()):
        first = np.searchsorted(address, load.address, side="right") - 1
        for step in range(1 + load.bits // 8):
            place = np.clip(first + step, 0, address.size - 1)
            met = (first + step >= 0) & (first + step < address.size)
            met &= (address[place] < load.address + np.uint64(load.bits // 8)) & (address[place] + size[place] > load.address)
            other = met & (thread[place] != load.thread)
            if (other & (thread[place] >> 20 != load.thread >> 20)).any():
                raise Unreadable("a block reads global memory that another block of the launch writes", load.line)
            if (other & (epoch[place] == load.epoch)).any():
                raise Unreadable("a thread reads global memory that another writes with no barrier between (a race)", load.line)


def _accumulated(domain: Domain, atomics: list[tuple[str, Access]]) -> Access:
    """What atomic operations leave: exact where order cannot matter, else undetermined."""
    names = {name for name, _ in atomics}
    if len(names) != 1:
        raise Unreadable("different atomic operations meet in one buffer", atomics[0][1].line)
    name = names.pop()
    events = [event for _, event in atomics]
    bits = events[0].bits
    if any(event.bits != bits for event in events):
        raise Unreadable("atomic operations of different widths meet in one buffer", events[0].line)
    address = np.concatenate([e.address for e in events])
    lanes = []
    for event in events:
        assert event.value is not None
        meta = event.value.meta
        words = np.broadcast_to(event.value.words, (2, 1, event.address.size))
        lanes.append(
            (words, np.broadcast_to(np.uint32(meta) if isinstance(meta, int) else meta, (1, event.address.size)))
        )
    words = np.concatenate([w for w, _ in lanes], axis=2)
    meta = np.concatenate([m for _, m in lanes], axis=1)
    order = np.argsort(address, kind="stable")
    address, words, meta = address[order], words[:, :, order], meta[:, order]
    unique, start, count = np.unique(address, return_index=True, return_counts=True)
    total: Value = domain.load(unique[None], bits)
    for turn in range(int(count.max())):
        present = count > turn
        index = np.minimum(start + turn, address.size - 1)
        value = Lanes(bits, words[:, :, index], meta[:, index])
        total = choose(present[None], combine(domain, name, total, value, bits), total)
        if turn == 0 and not exact(name) and (count > 1).any():
            many = Lanes(
                bits,
                np.broadcast_to(hashing.constant("undetermined sum"), (2, 1, unique.size)),
                L.TERM | L.UNDETERMINED,
            )
            total = choose((count > 1)[None], many, total)
            break
    return Access(unique, np.zeros(unique.size, dtype=np.int64), 0, as_lanes(total), bits, events[0].line)


def exact(name: str) -> bool:
    """Whether an atomic operation's result is the same in every order."""
    verb, last = name.split(".")[0], name.split(".")[-1]
    return verb in ("max", "min", "and", "or", "xor") or (verb == "add" and not last.startswith(("fp", "bf")))


def combine(domain: Domain, name: str, left: Value, right: Value, bits: int) -> Value:
    """One atomic operation's result."""
    if name.split(".")[-1].startswith(("fp", "bf")):
        return domain.floating(name, [left, right], bits)

    def evaluate(*operands: Array) -> Array:
        raise Unreadable("an atomic operation on known numbers only")

    return domain.integer(name, [left, right], bits, evaluate, gathers=True)
