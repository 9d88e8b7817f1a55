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

MAXIMUM_BITS = 32
"""How many bits a store of a lane has at most of which one lane's are assumed to remain together."""


def lanes_are_together(machine: Machine) -> bool:
    """Return whether the active lanes of each warp are known and execute the current instruction together.

    They are not after a branch that may have split a warp, nor under a condition on data.
    """
    return machine.condition is None and not machine.splits_warps


def value_of_lowest_lanes(machine: Machine, address: Array, value: Value) -> Value:
    """Return what each lane stores by one instruction, which begins at its address, shape (1 or blocks, 1 or threads).

    Addresses are multiples of what a lane stores, so that two lanes store to the same bytes or to no common one.
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


def would_agree(machine: Machine, cells: Array, value: Value) -> bool:
    """Return whether the values of the lowest lanes alone would agree in each cell of shared memory.

    `cells` are those where the store of each lane begins, of shape (1 or blocks, threads).
    """
    source = lowest_lanes(machine, cells) if lanes_are_together(machine) else None
    if source is None:
        return False
    shared, lowest = machine.shared.copy(), take_threads(value, source)
    shared.store(cells, lowest, machine.mask)
    held = shared.holds(cells, lowest, machine.mask)
    return bool((held if machine.mask is None else held | ~machine.mask).all())
