"""Stores by which lanes of one warp send different values to one address in one instruction.

The CUDA C++ Programming Guide leaves open which lane's value remains.  Under the assumption `LOWEST_LANE` it is that of
the lowest active lane: each lane then stores this value, so that the order of the lanes no longer matters.  The
accesses themselves remain those of all lanes.
"""

from __future__ import annotations

import numpy as np

from bitwise_core.execution.active_lanes import whole_mask
from bitwise_core.execution.assumptions import LOWEST_LANE
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values.packing import take_threads
from bitwise_core.execution.values.symbolic_vector import Array, Value


def lanes_are_together(machine: Machine) -> bool:
    """Return whether the active lanes of each warp are known and execute the current instruction together.

    They are not after a branch that may have split a warp, nor under a condition on data.
    """
    return machine.condition is None and not machine.splits_warps


def value_of_lowest_lanes(machine: Machine, address: Array, value: Value) -> Value:
    """Return what each lane stores at its address, of shape (1 or blocks, 1 or threads), by one store of one element.

    Under `LOWEST_LANE` it is the value of the lowest active lane of its warp with the same address, else its own.
    """
    if not machine.domain.assumes(LOWEST_LANE) or not lanes_are_together(machine):
        return value
    source = lowest_lanes(machine, address)
    return value if source is None else take_threads(value, source)


def lowest_lanes(machine: Machine, address: Array) -> Array | None:
    """Return for each thread the lowest active one of its warp with the same address, itself for an inactive one.

    The shape is (1 or blocks, threads).  None if no two active lanes of a warp have one address.
    """
    threads, warp = machine.threads, machine.warp
    rows = address.shape[0] if machine.mask is None else max(address.shape[0], machine.mask.shape[0])
    warps = -(-threads // warp)
    active = np.zeros((rows, warps * warp), dtype=bool)
    active[:, :threads] = whole_mask(machine.mask, (rows, threads))
    where = np.zeros((rows, warps * warp), dtype=np.uint64)
    where[:, :threads] = address
    active, where = active.reshape(-1, warp), where.reshape(-1, warp)
    # Active lanes come first, by address and then by number: the sort is stable.
    order = np.lexsort((where, ~active), axis=1)
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


def collide_within_warps(machine: Machine, cells: Array, clashing: Array) -> bool:
    """Return whether the threads of each block that share a cell with a clashing one are lanes of its warp.

    `cells` and `clashing` have shapes that broadcast to (blocks, threads).  Inactive lanes do not count.
    """
    shape = (machine.blocks, machine.threads)
    active, where = whole_mask(machine.mask, shape), np.broadcast_to(cells, shape)
    warp = np.broadcast_to(np.arange(machine.threads) // machine.warp, shape)
    block = np.broadcast_to(np.arange(machine.blocks)[:, None], shape)
    lanes = np.stack([block[active], where[active].astype(np.int64)])
    _, place = np.unique(lanes, axis=1, return_inverse=True)
    place = place.reshape(-1)
    count = int(place.max(initial=-1)) + 1
    least, most = np.full(count, machine.threads), np.full(count, -1)
    np.minimum.at(least, place, warp[active])
    np.maximum.at(most, place, warp[active])
    affected = place[np.broadcast_to(clashing, shape)[active]]
    return bool((least[affected] == most[affected]).all())
