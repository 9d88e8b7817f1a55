"""Whether a predicate on data has one value in all active lanes of each block, or of each warp."""

from __future__ import annotations

import numpy as np

from bitwise_core.execution.machine import Machine
from bitwise_core.execution.program import Program
from bitwise_core.execution.program_analyses import decision_at
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Array, Value, width
from bitwise_core.execution.values.term_hash import exact_hash, nan_bits

_VARYING = L.STICKY | L.UNSPECIFIED_NAN
"""Flags of values that may differ between lanes although their terms are equal."""


def is_uniform(machine: Machine, value: Value, lanes: int, *, from_one_place: bool = False) -> bool:
    """Return whether a value is proved equal in all active lanes of each group of `lanes` consecutive threads.

    `from_one_place`: nothing but loads and exact functions of bits made it (`decided_by_loads`).  Where it is kept once
    for all lanes, these loads read one place, whose bits are the same for all threads, those of a NaN included.
    """
    if L.lazy_integers(value) is not None or isinstance(value, L.PackedVector):
        return False
    vector = as_symbolic_vector(value)
    words = exact_hash(vector)
    is_kept_once = _is_kept_once(vector)
    varying = np.asarray(L.has_flag(vector, L.STICKY if is_kept_once and from_one_place else _VARYING))
    if varying.any() and (varying & machine.active()).any():
        return False
    if is_kept_once:
        return True
    count = -(-machine.threads // lanes) * lanes
    shape = (machine.blocks, machine.threads)
    active = _grouped(machine.active(shape), count, lanes)
    first = np.argmax(active, axis=2)[:, :, None]
    for half in words:
        grouped = _grouped(np.broadcast_to(half, shape), count, lanes)
        if ((grouped != np.take_along_axis(grouped, first, axis=2)) & active).any():
            return False
    return True


def _is_kept_once(vector: L.SymbolicVector) -> bool:
    """Return whether a value is one for all threads of a block: they read it at one place, or compute it of such."""
    return vector.words.shape[2] == 1 and (isinstance(vector.flags, int) or vector.flags.shape[1] == 1)


def decided_by_loads(machine: Machine, program: Program, branch: int) -> bool:
    """Return whether the condition of a branch is made of loads by functions of bits that an assembler cannot change.

    These are comparisons, moves and operations on integers in the basic block of the branch.  Threads that execute
    different copies of them, such as the warps of two programs in one text, find one result for one content.  What the
    block reads else must have no bits of a NaN that an assembler decides.  All that it reads must be kept once,
    addresses and guards too: a choice between two loads of equal terms may differ between threads.
    """
    decision = decision_at(program, branch)
    if decision is None:
        return False
    for name in decision.compared:
        value = machine.registers.get(name)
        if value is None or width(value) != 1:
            return False
    for name in decision.read:
        value = machine.registers.get(name, machine.special.get(name))
        if value is None or not _is_kept_once(as_symbolic_vector(value)):
            return False
    for name in decision.outside:
        value = machine.registers.get(name)
        if value is None:
            if name not in machine.special:
                return False
            continue
        vector = as_symbolic_vector(value)
        if np.any(np.bitwise_or(vector.flags, nan_bits(vector)) & np.uint32(L.UNSPECIFIED_NAN)):
            return False
    return True


def _grouped(lanes: Array, count: int, size: int) -> Array:
    """Return an array of shape (blocks, threads) as (blocks, groups, size), padded with zeros."""
    padded = np.zeros((lanes.shape[0], count), dtype=lanes.dtype)
    padded[:, : lanes.shape[1]] = lanes
    return padded.reshape(lanes.shape[0], -1, size)


def of_blocks(machine: Machine, value: Value) -> Value:
    """Return a value that is uniform in each block, as one lane for each block: that of its first active lane."""
    vector = as_symbolic_vector(value)
    if vector.words.shape[2] == 1 and (isinstance(vector.flags, int) or vector.flags.shape[1] == 1):
        return vector
    shape = (machine.blocks, machine.threads)
    rows = np.arange(machine.blocks)
    first = np.argmax(machine.active(shape), axis=1)
    words = np.broadcast_to(vector.words, (2, *shape))[:, rows, first][:, :, None]
    flags = vector.flags
    if not isinstance(flags, int):
        flags = np.broadcast_to(flags, shape)[rows, first][:, None]
    found = L.SymbolicVector(vector.bits, words, flags)
    found.recorder = vector.recorder
    return found
