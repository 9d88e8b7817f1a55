"""Choice of lanes: values that each thread or block reads from another one.  No bit of a lane is changed."""

from __future__ import annotations

import numpy as np

from bitwise_core.execution.values import hashing
from bitwise_core.execution.values.packing import as_symbolic_vector, concat
from bitwise_core.execution.values.symbolic_vector import (
    Array,
    Origin,
    PackedVector,
    SymbolicVector,
    Value,
    lazy_integers,
    uniform_flags,
)


def take_threads(value: Value, index: Array) -> Value:
    """Return the value that each thread reads from thread `index` of its own block.

    `index` has the shape (1, threads) or (blocks, threads).
    """
    if isinstance(value, np.ndarray):
        return take(value, index)
    if isinstance(value, PackedVector):
        moved = concat([take_threads(part, index) for part in value.parts])
        if value.whole is not None and isinstance(moved, PackedVector):
            joined = take_threads(as_symbolic_vector(value), index)
            assert isinstance(joined, SymbolicVector)
            moved.whole, moved.joined = take(value.whole, index), joined
        return moved
    lazy = lazy_integers(value)
    if lazy is not None:
        return lazy.take_threads(index)
    flags = value.flags
    words = _words_of_threads(value.words, index)
    result = SymbolicVector(value.bits, words, flags if isinstance(flags, int) else uniform_flags(take(flags, index)))
    result.recorder, result.maximum = value.recorder, value.maximum
    if value.origins:
        result.origins = tuple(
            Origin(
                each.name,
                tuple(_taken(operand, index) for operand in each.operands),
                each.lanes if each.lanes is True else take(each.lanes, index),
            )
            for each in value.origins
        )
    return value.taken(index, result)


def _words_of_threads(words: hashing.Words, index: Array) -> hashing.Words:
    """See `take_threads`: for the words of a value."""
    if words.shape[2] == 1:
        return words
    return words[:, :, index[0]] if index.shape[0] == 1 else np.stack([take(each, index) for each in words])


def take_blocks(value: Value, rows: Array) -> Value:
    """Return the value that each block of a batch takes from block `rows[block]`; `rows` has the shape (blocks,)."""
    if isinstance(value, np.ndarray):
        return value if value.shape[0] == 1 else value[rows]
    if isinstance(value, PackedVector):
        return concat([take_blocks(part, rows) for part in value.parts])
    flags = value.flags
    words = value.words if value.words.shape[1] == 1 else value.words[:, rows]
    moved = flags if isinstance(flags, int) or flags.shape[0] == 1 else flags[rows]
    result = SymbolicVector(value.bits, words, moved)
    result.recorder, result.maximum = value.recorder, value.maximum
    return result


def _taken(value: SymbolicVector, index: Array) -> SymbolicVector:
    """Return `take_threads` of a value; the slices of one value share the result."""
    key = index.tobytes()
    if value.last_take is None or value.last_take[0] != key:
        other = take_threads(value, index)
        assert isinstance(other, SymbolicVector)
        value.last_take = (key, other)
    return value.last_take[1]


def take(array: Array, index: Array) -> Array:
    """See `take_threads`: for one array whose second axis is the threads."""
    if array.shape[1] == 1:
        return array
    if index.shape[0] == 1:
        return array[:, index[0]]
    return np.take_along_axis(np.broadcast_to(array, (index.shape[0], array.shape[1])), index, axis=1)
