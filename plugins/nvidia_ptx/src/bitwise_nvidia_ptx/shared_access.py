"""Loads and stores of shared memory by threads, with the race detector told."""

from __future__ import annotations

import numpy as np

from bitwise_core.machine.domain import Unreadable
from bitwise_core.machine.lanes import Array, Value, width
from bitwise_core.machine.state import Machine


def touched(machine: Machine, cells: Array, count: int) -> tuple[Array, Array]:
    """The cells of every active thread (in its first active block) and the threads, flat."""
    threads = np.arange(machine.threads)
    if machine.mask is None:
        row = np.broadcast_to(cells[0], (machine.threads,))
    else:
        mask = np.broadcast_to(machine.mask, (machine.mask.shape[0], machine.threads))
        active = mask.any(axis=0)
        threads = threads[active]
        if cells.shape[0] == 1:
            row = np.broadcast_to(cells[0], (machine.threads,))[active]
        else:
            full = np.broadcast_to(mask, (cells.shape[0], machine.threads))
            first = np.argmax(full, axis=0)[active]
            row = np.broadcast_to(cells, full.shape)[first, threads]
    if count == 1:
        return row, threads
    return (row[:, None] + np.arange(count)).ravel(), np.repeat(threads, count)


def read_shared(machine: Machine, address: Array, bits: int) -> Value:
    """`bits` bits at each active thread's shared address."""
    shared = machine.shared
    cells = shared.cells(address, machine.mask)
    where = touched(machine, cells, max(1, bits // 8 // shared.granule))
    for races in machine.races.acting(machine.mask):
        races.reads(*where)
    return shared.load(cells, bits)


def write_shared(machine: Machine, address: Array, value: Value) -> None:
    """Stores the value at each active thread's shared address."""
    shared = machine.shared
    cells = shared.cells(np.broadcast_to(address, (address.shape[0], machine.threads)), machine.mask)
    bits = width(value)
    if machine.condition is not None:
        raise Unreadable("shared memory is written under a condition over data")
    where = touched(machine, cells, max(1, bits // 8 // shared.granule))
    apart = cells.shape[0] == 1
    for races in machine.races.acting(machine.mask):
        races.writes(*where)
        watched = races.writer.size > int(where[0].max(initial=0))
        apart = apart and not (watched and (races.writer[where[0]] != where[1]).any())
    shared.store(cells, value, machine.mask)
    if not apart and not shared.kept(cells, value, machine.mask):
        raise Unreadable("threads write different values to one place of shared memory at once (a race)")
