"""Addresses in the shared memory of the blocks of a cluster.

An address holds the offset in the memory of a block in its lower 24 bits, and the rank of the block in its cluster
above them.  It is the same in the windows shared::cta and shared::cluster.  In clusters of one block, which have the
rank 0, an address is an offset.

Source: PTX ISA 8.7, "State Spaces: Shared"; the place of the rank is that in the machine code of ptxas for `mapa` and
for the address of an array.
"""

from __future__ import annotations

import numpy as np

from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.memory.cluster_memory import cluster_state
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Array
from bitwise_nvidia_ptx.special_registers import RANK_SHIFT, SHARED_WINDOW

_SIZE = np.uint64(1 << RANK_SHIFT)


def own_offset(machine: Machine, address: Array) -> Array:
    """Return addresses in shared::cta as offsets in the memory of the own block.

    Raises Unsupported if an active thread's address holds the rank of another block.
    """
    window = machine.special.get(SHARED_WINDOW)
    if window is None:
        return address
    offset = address.astype(np.uint64) - window
    outside = offset >= _SIZE
    if (outside if machine.mask is None else outside & machine.mask).any():
        raise Unsupported(
            "an access to the shared memory of the own block has the address of another block of the cluster; bits 24 "
            "and above of an address hold the rank of its block"
        )
    return _of_all_blocks(offset)


def place_of(machine: Machine, address: Array) -> tuple[Array, Array]:
    """Return addresses in shared::cluster as offsets in a block and the rank of that block in the thread's cluster.

    Raises Unsupported if an active thread's address belongs to no block of its cluster.
    """
    state, _ = cluster_state(machine)
    where = address.astype(np.uint64)
    ranks = where >> np.uint64(RANK_SHIFT)
    outside = ranks >= state.size
    if (outside if machine.mask is None else outside & machine.mask).any():
        raise Unsupported("a shared-memory address lies outside the cluster")
    return _of_all_blocks(where & (_SIZE - np.uint64(1))), ranks.astype(np.int64)


def address_in(offset: Array, rank: Array) -> Array:
    """Return the address in shared::cluster of an offset in the block of a rank, in 64 bits."""
    found: Array = offset.astype(np.uint64) + (rank.astype(np.uint64) << np.uint64(RANK_SHIFT))
    return found


def _of_all_blocks(offset: Array) -> Array:
    """Return offsets that are the same in all blocks as one row, with which accesses to memory are faster."""
    if offset.shape[0] == 1 or L.lazy_integers(offset) is not None or (offset != offset[:1]).any():
        return offset
    return offset[:1]
