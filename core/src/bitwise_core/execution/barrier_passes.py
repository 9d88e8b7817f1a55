"""Lanes that pass a barrier of their block: the order of accesses that follows, and what it leaves out."""

from __future__ import annotations

import numpy as np

from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values.symbolic_vector import Array


def meet(machine: Machine, number: int, lanes: Array) -> None:
    """These lanes, shape (blocks, threads), meet at a barrier of their block."""
    starts = np.arange(0, machine.threads, machine.warp)
    warps = np.logical_or.reduceat(lanes, starts, axis=1)
    for chosen in np.unique(warps[warps.any(axis=1)], axis=0):
        for races in machine.races.of_blocks((warps == chosen).all(axis=1)):
            races.barrier(np.flatnonzero(chosen), number)


def pass_without(machine: Machine, ended: Array) -> bool:
    """Return whether whole warps that have ended have stored in global memory: no barrier orders what they did."""
    if not ended.any():
        return False
    starts = np.arange(0, machine.threads, machine.warp)
    gone = np.repeat(np.logical_and.reduceat(ended, starts, axis=1), machine.warp, axis=1)[:, : machine.threads]
    return bool(gone.any()) and machine.memory.pass_without(np.broadcast_to(machine.thread, gone.shape)[gone])


def are_parts_of_warps(present: Array, everyone: Array, warp: int) -> bool:
    """Return whether some lanes of a warp are present and others, of those that have not exited, are not."""
    starts = np.arange(0, present.shape[1], warp)
    some, others = (np.logical_or.reduceat(each, starts, axis=1) for each in (present, everyone & ~present))
    return bool((some & others).any())
