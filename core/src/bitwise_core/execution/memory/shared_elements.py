"""Lanes of one step that access the same element of memory."""

from __future__ import annotations

import numpy as np

from bitwise_core.execution.active_lanes import active_lanes, active_values
from bitwise_core.execution.memory.store_forwarding import hashes_of_lanes
from bitwise_core.execution.thread_numbers import block_of
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value


def lanes_in_order(value: SymbolicVector, lanes: Array, order: Array) -> SymbolicVector:
    """Return the values of some lanes in an order, of shape (1, lanes)."""
    found = L.chosen_lanes(value, lanes)
    flags = found.flags if isinstance(found.flags, int) else found.flags[:, order]
    return SymbolicVector(value.bits, found.words[:, :, order], flags)


def placed(value: SymbolicVector, lanes: Array, block: Array, lane: Array) -> SymbolicVector:
    """Return values of shape (1, elements) at their blocks and lanes, of a mask of the lanes that hold one."""
    words = np.zeros((2, *lanes.shape), dtype=np.uint64)
    flags = np.zeros(lanes.shape, dtype=np.uint32)
    words[:, block, lane] = np.broadcast_to(value.words, (2, 1, block.size))[:, 0]
    flags[block, lane] = L.flags_of_lanes(value.flags, (1, block.size))[0]
    return SymbolicVector(value.bits, words, L.uniform_flags(flags))


def contended_lanes(address: Array, old: Value, new: Value, mask: Array | None, thread: Array) -> Array | None:
    """Return the lanes whose element other lanes change in the same step, None if there are none."""
    values = [as_symbolic_vector(each) for each in (old, new)]
    active = active_lanes(mask, address, thread, *(each.words[0] for each in values))
    _, element, count = np.unique(active_values(address, active), return_inverse=True, return_counts=True)
    if not (count > 1).any():
        return None
    before, after = (hashes_of_lanes(each, active) for each in values)
    changed = np.zeros(count.size, dtype=bool)
    changed[element[(before != after).any(axis=0)]] = True
    lanes = np.zeros(active.shape, dtype=bool)
    lanes[active] = (changed & (count > 1))[element]
    return lanes if lanes.any() else None


def differing_lanes(address: Array, value: Value, lanes: Array) -> Array:
    """Return which of these lanes have another value than some other of them with the same address."""
    hashes = hashes_of_lanes(as_symbolic_vector(value), lanes)
    _, first, element = np.unique(address[lanes], return_index=True, return_inverse=True)
    unequal = np.zeros(first.size, dtype=bool)
    unequal[element[(hashes != hashes[:, first[element]]).any(axis=0)]] = True
    found = np.zeros(lanes.shape, dtype=bool)
    found[lanes] = unequal[element]
    return found


def two_of_each_block(address: Array, thread: Array, lanes: Array) -> Array:
    """Return at most two of these lanes for each address and block.

    They stand for all: their values are equal, or equal to no others, and each thread conflicts with one of two others.
    """
    where, who = address[lanes], thread[lanes]
    order = np.lexsort((who, where))
    same = np.zeros(order.size, dtype=bool)
    same[2:] = (where[order][2:] == where[order][:-2]) & (block_of(who[order][2:]) == block_of(who[order][:-2]))
    kept = np.empty(order.size, dtype=bool)
    kept[order] = ~same
    found = np.zeros(lanes.shape, dtype=bool)
    found[lanes] = kept
    return found
