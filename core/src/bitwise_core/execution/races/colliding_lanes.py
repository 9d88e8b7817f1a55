"""Stores by which lanes of one warp send different values to one address in one instruction.

The CUDA C++ Programming Guide leaves open which lane's value remains.  Where `LOWEST_LANE` holds, as an architecture
measured it or a request assumes it, a store serves as many lanes at once as move 128 bytes together: the whole warp, or
groups of 16 or 8 consecutive lanes one after another.  Of each group the value of the lowest active lane remains, so
that of the last group with a lane at the address is left.  Each lane then stores this value, so that the order of the
lanes has no effect.  The accesses themselves remain those of all lanes.

It is a statement on a machine instruction of at most 128 bits in a lane.  An assembler may join stores of a thread
to neighbouring bytes, at a distance that is the same in every thread, in a wider one, of which another lane's value
remains.  It may also let a lane load what it has stored itself.  Only a barrier of whole warps keeps it from both.
Before the next barrier, no such store may be beside a colliding one, and no lane may load what colliding lanes have
stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from bitwise_core.execution.active_lanes import active_lanes, active_values, whole_mask
from bitwise_core.execution.alternatives import Alternative, Ways
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.races.epochs import Epoch, later_epoch
from bitwise_core.execution.races.undetermined import BESIDE_LANES_RACE, Cause, Kind, Race
from bitwise_core.execution.values.lane_selection import take_threads
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value, width


class StoreBesideLanes(Race):
    """A store beside lanes that collide, or a load from them, before the next barrier: an assembler may join them."""


CHUNK = 16
"""The most bytes that a lane stores or loads by one machine instruction; its address is a multiple of their number."""

MAXIMUM_BITS = 8 * CHUNK
"""How many bits a store of a lane has at most of which one lane's are assumed to remain together."""

BYTES_AT_ONCE = 128
"""How many bytes the lanes move at most that a store serves at once."""


MAXIMUM_RECENT = 64
"""How many stores since a barrier are kept; where there are more, later ones that collide are not settled."""


def lanes_are_together(machine: Machine) -> bool:
    """Return whether the active lanes of each warp are known and execute the current instruction together.

    They are not after a branch that may have split a warp, up to an aligned barrier that all threads pass or to an
    exchange between all lanes of all warps, nor under a condition on data.
    """
    return machine.condition is None and not machine.parted_lanes


def may_be_settled(machine: Machine) -> bool:
    """Return whether `LOWEST_LANE`, which does not hold, would settle colliding lanes of the current store.

    It does if no store beside it and no load from it follows before the next barrier.  It settles nothing for every
    launch.
    """
    return _executes(machine) and machine.lowest_lane is None and lanes_are_together(machine)


def _executes(machine: Machine) -> bool:
    """Return whether the run is an execution of a given launch that keeps what lanes store."""
    return machine.domain.name in ("terms", "bits")


def _settles(machine: Machine) -> bool:
    """Return whether `LOWEST_LANE` holds in a run that keeps what lanes store."""
    return machine.lowest_lane is not None and _executes(machine)


def values_of_lowest_lanes(
    machine: Machine, space: str, address: Array, values: list[Value], *, measured: bool
) -> list[Value]:
    """Return the values that each lane stores by one instruction, one after another from its address on.

    The address, of shape (1 or blocks, 1 or threads), is a multiple of what a lane stores, so that two lanes store to
    the same bytes or to no common one.  With `LOWEST_LANE` they are the values of the lane of its warp that remains at
    the same address (`remaining_lanes`), if the instruction is one that was `measured`.  Raises StoreBesideLanes.
    """
    if not _settles(machine):
        return values
    recent, size = _recent(machine, space), sum(map(width, values)) // 8
    address = address.astype(np.uint64, copy=False)
    source = remaining_lanes(machine, address, size) if measured and lanes_are_together(machine) else None
    if source is None:
        recent.add(machine, address, size, None)
        return values
    lowest = [take_threads(each, source) for each in values]
    differing = np.zeros(source.shape, dtype=bool)
    for old, new in zip(values, lowest, strict=True):
        differing = differing | _differing(as_symbolic_vector(old), as_symbolic_vector(new))
    differing &= whole_mask(machine.mask, differing.shape)
    if not differing.any():
        recent.add(machine, address, size, None)
        return values
    if not recent.add(machine, address, size, _groups_of(differing, source)):
        return values
    if machine.lowest_lane:
        machine.used.add(machine.lowest_lane)
    return lowest


def _differing(old: SymbolicVector, new: SymbolicVector) -> Array:
    """Return which lanes are not known to have the same value in both."""
    words = (old.words != new.words).any(axis=0)
    found: Array = words | (np.asarray(old.flags) != np.asarray(new.flags))
    return found


def _groups_of(differing: Array, source: Array) -> Array:
    """Return the lanes whose source is that of a differing lane, shape (blocks, threads)."""
    chosen = np.zeros(differing.shape, dtype=bool)
    block, lane = np.nonzero(differing)
    shared = np.broadcast_to(source, differing.shape)
    chosen[block, shared[block, lane]] = True
    return np.take_along_axis(chosen, shared, axis=1)


def check_load(machine: Machine, space: str, address: Array, size: int) -> None:
    """The active lanes load some bytes at their addresses.  Raises StoreBesideLanes for what colliding lanes stored."""
    if _settles(machine):
        _recent(machine, space).check_load(machine, address.astype(np.uint64, copy=False), size)


def pass_barrier_of_warps(machine: Machine) -> None:
    """All lanes of every warp of all blocks pass a barrier of their warp."""
    for key in [key for key in machine.extra if key.startswith(_KEY)]:
        del machine.extra[key]


_KEY = "recent stores to "


def _recent(machine: Machine, space: str) -> RecentStores:
    found: RecentStores = machine.extra.setdefault(_KEY + space, RecentStores())
    return found


@dataclass(frozen=True, slots=True)
class _Store:
    """A store of `size` bytes: its addresses, the active lanes, and those that collide, shape (1 or blocks, lanes)."""

    address: Array
    active: Array
    together: Array
    size: int
    epoch: Epoch
    line: int

    def since_barriers(self, epoch: Epoch) -> _Store | None:
        """Return the store of the blocks that have passed no barrier after it up to an epoch, None if all have."""
        recent = np.asarray(self.epoch) >= np.asarray(epoch)
        if not (recent & self.active).any():
            return None
        if recent.all():
            return self
        together = self.together if self.together is _NO_LANES else self.together & recent
        return replace(self, active=self.active & recent, together=together)

    def beside(self, other: _Store) -> Array:
        """Return in which lanes an assembler may join this store and another one.

        It knows their distance, which is the same in every lane, and both are in the bytes of one wide store.
        """
        both, distance = self.active & other.active, other.address - self.address
        if not both.any():
            return both
        first = np.broadcast_to(distance, both.shape)[both][0]
        neighbours = first in (np.uint64(self.size), np.uint64(-other.size & (1 << 64) - 1))
        if not neighbours or (both & (distance != first)).any():
            return np.zeros((1, 1), dtype=bool)
        found: Array = both & ((self.address ^ other.address) < np.uint64(CHUNK))
        return found


_NO_LANES = np.zeros((1, 1), dtype=bool)


@dataclass(slots=True)
class RecentStores(Alternative):
    """The stores to one memory that blocks have made since their last barrier."""

    made: list[_Store] = field(default_factory=list)
    dropped: Epoch = -1
    """The epoch of the last store that was not kept."""
    seen: Epoch = -1
    """The epoch of the last look at these stores."""

    def copy(self) -> RecentStores:
        """See `Alternative.copy`."""
        return RecentStores(list(self.made), self.dropped, self.seen)

    def joined(self, other: RecentStores, ways: Ways) -> RecentStores:
        """See `Alternative.joined`: the stores of both ways."""
        further = [each for each in other.made if all(each is not mine for mine in self.made)]
        return RecentStores([*self.made, *further], later_epoch(self.dropped, other.dropped))

    def add(self, machine: Machine, address: Array, size: int, colliding: Array | None) -> bool:
        """Add a store; `colliding` are the lanes that share an address and differ.  Return whether none is beside them.

        Raises StoreBesideLanes where it is beside a colliding one.
        """
        rows = address.shape[0] if machine.mask is None else max(address.shape[0], machine.mask.shape[0])
        shape = rows, machine.threads
        together = _NO_LANES if colliding is None else colliding
        active = whole_mask(machine.mask, shape)
        fresh = _Store(np.broadcast_to(address, shape), active, together, size, machine.epoch, machine.line)
        self._forget(machine)
        settled = colliding is None or bool(np.all(np.asarray(self.dropped) < np.asarray(machine.epoch)))
        for each in self.made:
            if colliding is None and each.together is _NO_LANES:
                continue
            beside = each.beside(fresh)
            if (beside & each.together).any():
                raise _beside(each.line, fresh.line)
            settled = settled and not (beside & fresh.together).any()
        if len(self.made) < MAXIMUM_RECENT or (settled and colliding is not None):
            self.made.append(fresh if settled else replace(fresh, together=_NO_LANES))
        else:
            self.dropped = machine.epoch
        return settled

    def check_load(self, machine: Machine, address: Array, size: int) -> None:
        """See `check_load`."""
        if not self.made:
            return
        self._forget(machine)
        if all(each.together is _NO_LANES for each in self.made):
            return
        loaded = np.unique(active_values(address, active_lanes(machine.mask, address)))
        for each in self.made:
            stored = np.unique(active_values(each.address, each.together)) if each.together.any() else loaded[:0]
            first = np.searchsorted(loaded + np.uint64(size), stored, side="right")
            if (np.searchsorted(loaded, stored + np.uint64(each.size), side="left") > first).any():
                raise _beside(each.line, machine.line)

    def _forget(self, machine: Machine) -> None:
        """Forget the stores of each block after which it has passed a barrier."""
        if self.seen is machine.epoch:
            return
        self.seen = machine.epoch
        self.made = [kept for each in self.made if (kept := each.since_barriers(machine.epoch)) is not None]


def _beside(line: int, other: int) -> StoreBesideLanes:
    return StoreBesideLanes(BESIDE_LANES_RACE, line, (Cause(Kind.SHARED, BESIDE_LANES_RACE, line, other),))


def _all_apart(machine: Machine, address: Array) -> bool:
    """Return whether all lanes of each warp have different addresses, whether they are active or not."""
    if address.shape[1] % machine.warp:
        return False
    where = address.reshape(-1, machine.warp)
    if (where[:, 1:] > where[:, :-1]).all():
        return True
    where = np.sort(where, axis=1)
    return bool((where[:, 1:] != where[:, :-1]).all())


def remaining_lanes(machine: Machine, address: Array, size: int) -> Array | None:
    """Return for each thread the one of its warp whose value remains at its address, itself for an inactive one.

    It is the lowest active lane of the last group with an active lane at this address, of a store of `size` bytes.  The
    shape is (1 or blocks, threads).  None if no two active lanes of a warp have one address.
    """
    if _all_apart(machine, address):
        return None
    threads, warp = machine.threads, machine.warp
    rows = address.shape[0] if machine.mask is None else max(address.shape[0], machine.mask.shape[0])
    warps = -(-threads // warp)
    active = np.zeros((rows, warps * warp), dtype=bool)
    active[:, :threads] = whole_mask(machine.mask, (rows, threads))
    where = np.zeros((rows, warps * warp), dtype=np.uint64)
    where[:, :threads] = address
    active, where = active.reshape(-1, warp), where.reshape(-1, warp)
    # Active lanes come first, by address, and then the one that remains: by group from the last one on, and by number.
    group = np.arange(warp) // max(1, min(warp, BYTES_AT_ONCE // size))
    order = np.lexsort((np.broadcast_to(-group, where.shape), where, ~active), axis=1)
    active, where = (np.take_along_axis(each, order, axis=1) for each in (active, where))
    alike = (where[:, 1:] == where[:, :-1]) & active[:, 1:]
    if not alike.any():
        return None
    first = np.where(np.pad(~alike, ((0, 0), (1, 0)), constant_values=True), np.arange(warp), 0)
    lowest = np.take_along_axis(order, np.maximum.accumulate(first, axis=1), axis=1)
    found = np.empty_like(order)
    np.put_along_axis(found, order, lowest, axis=1)
    found = found.reshape(rows, warps, warp) + np.arange(warps)[:, None] * warp
    return found.reshape(rows, warps * warp)[:, :threads]


def would_agree(machine: Machine, cells: Array, value: Value) -> bool:
    """Return whether `LOWEST_LANE`, which does not hold, would make the values in each cell of shared memory agree.

    `cells` are those where the store of each lane begins, of shape (1 or blocks, threads).
    """
    source = remaining_lanes(machine, cells, width(value) // 8) if may_be_settled(machine) else None
    if source is None:
        return False
    shared, lowest = machine.shared.copy(), take_threads(value, source)
    shared.store(cells, lowest, machine.mask)
    held = shared.holds(cells, lowest, machine.mask)
    return bool((held if machine.mask is None else held | ~machine.mask).all())
