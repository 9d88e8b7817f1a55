"""What a launch leaves in global memory: the last store at every address, and the results of atomic operations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitwise_core import numeric
from bitwise_core.machine import hashing
from bitwise_core.machine import lanes as L
from bitwise_core.machine.domain import Domain, Unreadable
from bitwise_core.machine.global_memory import Access, GlobalMemory, Stored, exact, pairs
from bitwise_core.machine.lane_hash import full_hash
from bitwise_core.machine.lanes import Array, Lanes, Value
from bitwise_core.machine.pieces import as_lanes, choose, cut

_LOADS = 1 << 14
"""So many loaded elements are compared with stores at once."""

COMPUTED = 0
"""The place in the outputs of what went to computed addresses, whatever the buffer."""


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
    """Elements cut to the least width stored, known numbers and leaves to halves: packing does not show."""
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
        last = np.append(~same, True)
        row = np.arange(address.size)
        clash = Stored(address, thread, epoch, words).after(row, _final(last))
        if clash.any():
            raise Unreadable("two threads store different values at one address (a race)", int(line[clash][0]))
        result[buffer] = Output(address[last], size[last], words[:, last], meta[last], line[last], thread[last])
        _check_loads(memory, buffer, address, thread, size, epoch)
    if memory.scattered:
        first = memory.scattered[0]
        if any(memory.stores.values()) or any(
            other != first.name for each in memory.atomics.values() for other, _ in each
        ):
            raise Unreadable("atomic operations at computed addresses beside stores that they may meet", first.line)
        total = np.sum([each.words for each in memory.scattered], axis=0, dtype=np.uint64)
        words = hashing.finalise(total.reshape(2, 1, 1) + hashing.constant("contributions " + first.name))
        one = np.zeros(1, dtype=np.uint64)
        line = np.array([first.line])
        result[COMPUTED] = Output(
            one, one, words[:, 0], np.full(1, L.TERM, dtype=np.uint32), line, np.zeros(1, dtype=np.int64)
        )
    return result


def _final(last: Array) -> Array:
    """The row of the last store at each row's address, from the rows that are the last of theirs."""
    rows = np.flatnonzero(last)
    found: Array = rows[np.cumsum(last) - last]
    return found


def _check_loads(memory: GlobalMemory, buffer: int, address: Array, thread: Array, size: Array, epoch: Array) -> None:
    """No load may meet a store of another block, or another thread's that no barrier orders.  Raises Unreadable."""
    atomic = bool(memory.atomics.get(buffer))
    for load in memory.loads.get(buffer, ()):
        # Elements do not overlap in part, so that their ends are sorted as their beginnings are.
        low = np.searchsorted(address + size, load.address, side="right")
        high = np.searchsorted(address, load.address + np.uint64(load.bits // 8), side="left")
        if atomic and (high > low).any():
            raise Unreadable("global memory is read that the launch updates by atomic operations", load.line)
        for start in range(0, load.address.size, _LOADS):
            place, row = pairs(low[start : start + _LOADS], high[start : start + _LOADS])
            place += start
            other = thread[row] != load.thread[place]
            if (other & (thread[row] >> 20 != load.thread[place] >> 20)).any():
                raise Unreadable("a block reads global memory that another block of the launch writes", load.line)
            if (other & (epoch[row] == load.epoch)).any():
                raise Unreadable(
                    "a thread reads global memory that another writes with no barrier between (a race)", load.line
                )


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
        total = choose(present[None], _combine(domain, name, total, value, bits), total)
        if turn == 0 and not exact(name) and (count > 1).any():
            many = Lanes(
                bits,
                np.broadcast_to(hashing.constant("undetermined sum"), (2, 1, unique.size)),
                L.TERM | L.UNDETERMINED,
            )
            total = choose((count > 1)[None], many, total)
            break
    return Access(unique, np.zeros(unique.size, dtype=np.int64), 0, as_lanes(total), bits, events[0].line)


def _combine(domain: Domain, name: str, left: Value, right: Value, bits: int) -> Value:
    """One atomic operation's result."""
    if name.split(".")[-1].startswith(("fp", "bf")):
        return domain.floating(name, [left, right], bits)

    def evaluate(*operands: Array) -> Array:
        return numeric.operation(name).evaluate(*operands)

    return domain.integer(name, [left, right], bits, evaluate, gathers=True)
