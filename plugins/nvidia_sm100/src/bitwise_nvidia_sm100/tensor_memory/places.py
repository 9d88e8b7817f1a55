"""Places of tensor memory: 512 columns of 128 lanes of 32 bits for each block, and the shapes of its loads and stores.

Source: PTX ISA 8.8, "Tensor Memory" and "Data Movement Shape".
An address holds the lane in its upper and the column in its lower 16 bits.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from bitwise_core.execution.values.symbolic_vector import Array

LANES, COLUMNS = 128, 512
UNIT = 32
"""Columns are allocated in units of this number."""
_GROUP = 16
"""The detector of races distinguishes groups of this number of lanes: no access takes a part of one."""
NAME = "tensor memory"
PIPELINE, LOADS, STORES, ALLOCATION = range(1, 5)
"""The agents: the pipeline of a thread, and the loads, the stores and the allocations of a warp."""
QUARTER = 32
"""The number of lanes that one warp of four accesses."""


def are_among(lanes: Array, others: Array) -> bool:
    """Return whether all of some lanes are among others."""
    return others.size == LANES or np.array_equal(lanes, others) or bool(np.isin(lanes, others).all())


def race_cells(lanes: Array, columns: Array) -> Array:
    """Return the cells of the race detector that hold these places of tensor memory."""
    present = np.zeros(COLUMNS * (LANES // _GROUP), dtype=bool)
    present[columns * (LANES // _GROUP) + lanes // _GROUP] = True
    return np.flatnonzero(present)


@lru_cache(maxsize=256)
def fragment(shape: str, count: int, packed: bool) -> tuple[Array, Array] | None:
    """Return the lanes and columns, from the address on, that registers stand for, each of shape (32, registers).

    `count` is the number after x in the opcode.  `packed`: a register stands for the low halves of two columns, of
    which the first is given.  None: the ISA has no such shape.  In the shape 16x32bx2, threads from 16 on access the
    same places from a second address on.
    """
    if count & (count - 1) or not 1 <= count <= 128:
        return None
    thread = np.arange(32, dtype=np.int64)[:, None]
    quad, within = thread // 4, thread % 4
    if shape == "32x32b":
        register = np.arange(count, dtype=np.int64)[None]
        lanes, columns = thread + 0 * register, register + 0 * thread
    elif shape == "16x32bx2":
        register = np.arange(count, dtype=np.int64)[None]
        lanes, columns = thread % 16 + 0 * register, register + 0 * thread
    elif shape == "16x64b":
        register = np.arange(count, dtype=np.int64)[None]
        lanes, columns = quad + 8 * (thread % 2) + 0 * register, 2 * register + thread // 2 % 2
    elif shape == "16x128b" and count <= 64:
        register = np.arange(2 * count, dtype=np.int64)[None]
        lanes, columns = quad + 8 * (register % 2), 4 * (register // 2) + within
    elif shape == "16x256b" and count <= 32:
        register = np.arange(4 * count, dtype=np.int64)[None]
        lanes, columns = quad + 8 * (register // 2 % 2), 8 * (register // 4) + 2 * within + register % 2
    else:
        return None
    return lanes, columns * 2 if packed else columns
