"""Values of many columns of tensor memory at once: columns, or registers of threads, as one value and apart again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.lane_selection import take_threads
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_nvidia_sm100.tensor_memory.places import LANES, QUARTER


def same_of_threads(values: Sequence[Value], some: Array, others: Array) -> bool:
    """Return whether these values are equal between some threads and others, in every block."""
    for value in values:
        vector = as_symbolic_vector(value)
        parts = [vector.words] if isinstance(vector.flags, int) else [vector.words, vector.flags]
        for part in parts:
            if part.shape[-1] > 1 and not np.array_equal(part[..., some], part[..., others]):
                return False
    return True


def moved(value: Value, index: Array, size: int) -> Value:
    """Return `take_threads` of a value of `size` threads or lanes, the value itself where nothing moves."""
    if index.size == size and np.array_equal(index, identity(size)):
        return value
    return take_threads(value, index[None])


@lru_cache(maxsize=16)
def identity(size: int) -> Array:
    """Return the numbers from 0 on."""
    return np.arange(size)


def stacked(values: Sequence[Value], lanes: int = LANES) -> SymbolicVector:
    """Return columns, or registers of threads, as one value with words of the shape (2, blocks, columns, lanes)."""
    whole = _whole_of(values, lanes)
    if whole is not None:
        return whole
    vectors = [as_symbolic_vector(value) for value in values]
    blocks = max(_blocks(each) for each in vectors)
    words = np.empty((2, blocks, len(vectors), lanes), dtype=np.uint64)
    for index, each in enumerate(vectors):
        words[:, :, index] = each.words
    first = vectors[0].flags
    if all(isinstance(each.flags, int) and each.flags == first for each in vectors):
        return SymbolicVector(vectors[0].bits, words, first)
    flags = np.empty((blocks, len(vectors), lanes), dtype=np.uint32)
    for index, each in enumerate(vectors):
        flags[:, index] = each.flags
    return SymbolicVector(vectors[0].bits, words, flags)


def _blocks(value: SymbolicVector) -> int:
    own: int = value.words.shape[1]
    return own if isinstance(value.flags, int) else max(own, value.flags.shape[0])


def _whole_of(values: Sequence[Value], lanes: int) -> SymbolicVector | None:
    """Return the value of which these are all elements in order, None if there is none."""
    bundles = [value.bundle if isinstance(value, SymbolicVector) else None for value in values]
    first = bundles[0]
    if first is None or first[0].words.shape[2] != len(values) or first[0].words.shape[3] != lanes:
        return None
    whole = first[0]
    alike = all(each is not None and each[0] is whole and each[1] == index for index, each in enumerate(bundles))
    return whole if alike else None


def side_by_side(parts: Sequence[SymbolicVector]) -> SymbolicVector:
    """Return columns of the same lanes one after the other, with words (2, blocks, columns, lanes)."""
    if len(parts) == 1:
        return parts[0]
    blocks, lanes = max(_blocks(each) for each in parts), parts[0].words.shape[3]
    words = np.concatenate(
        [np.broadcast_to(each.words, (2, blocks, each.words.shape[2], lanes)) for each in parts], axis=2
    )
    first = parts[0].flags
    if all(isinstance(each.flags, int) and each.flags == first for each in parts):
        return SymbolicVector(parts[0].bits, words, first)
    spread = [np.broadcast_to(np.uint32(each.flags), (blocks, *each.words.shape[2:])) for each in parts]
    return SymbolicVector(parts[0].bits, words, np.concatenate(spread, axis=1))


def interleaved(parts: Sequence[SymbolicVector]) -> SymbolicVector:
    """Return the first column of each part, then the second one of each, and so on; see `side_by_side`."""
    columns = parts[0].words.shape[2]
    if len(parts) == 1:
        return parts[0]
    whole = side_by_side(parts)
    order = np.arange(len(parts) * columns).reshape(len(parts), columns).T.reshape(-1)
    flags = whole.flags if isinstance(whole.flags, int) else whole.flags[:, order]
    return SymbolicVector(whole.bits, whole.words[:, :, order], flags)


def unstacked(value: SymbolicVector) -> Mapping[int, SymbolicVector]:
    """Return the columns of a value with words of the shape (2, blocks, columns, lanes), by number."""
    found = {}
    for index in range(value.words.shape[2]):
        flags = value.flags if isinstance(value.flags, int) else L.uniform_flags(value.flags[:, index])
        each = SymbolicVector(value.bits, value.words[:, :, index], flags)
        each.bundle = (value, index)
        found[index] = each
    return found


def first_copies(parts: Sequence[Value], rows: int) -> SymbolicVector:
    """Return the lanes of the first quarter of columns, one column after another, with words (2, blocks, rows).

    Raises Unsupported unless each quarter of the lanes holds the same values in the lanes that rows use.
    """
    whole = stacked(parts)
    blocks, count = whole.words.shape[1:3]
    quarters = LANES // QUARTER
    words = whole.words.reshape(2, blocks, count, quarters, QUARTER)
    used = np.arange(count * QUARTER).reshape(count, QUARTER) < rows
    differ = ((words != words[..., :1, :]).any(axis=(0, 3)) & used).any()
    flags = whole.flags
    if not isinstance(flags, int):
        split = np.broadcast_to(flags, (flags.shape[0], count, LANES)).reshape(-1, count, quarters, QUARTER)
        differ |= ((split != split[..., :1, :]).any(axis=2) & used).any()
        flags = split[..., 0, :].reshape(-1, count * QUARTER)[:, :rows]
    if differ:
        raise Unsupported("the quarters of the lanes of tensor memory do not hold the same scales")
    chosen = words[..., 0, :].reshape(2, blocks, count * QUARTER)[..., :rows]
    return SymbolicVector(whole.bits, chosen, flags if isinstance(flags, int) else L.uniform_flags(flags))


def of_both_blocks(half: SymbolicVector, blocks: int) -> SymbolicVector:
    """Return rows of words (2, blocks, rows, k): those of the even block of each pair, then those of the odd one."""
    even = np.arange(blocks) // 2 * 2
    words = np.broadcast_to(half.words, (2, blocks, *half.words.shape[2:]))
    flags = half.flags
    if not isinstance(flags, int):
        whole = np.broadcast_to(flags, (blocks, *half.words.shape[2:]))
        flags = np.concatenate([whole[even], whole[even + 1]], axis=1)
    return SymbolicVector(half.bits, np.concatenate([words[:, even], words[:, even + 1]], axis=2), flags)


def differ_in_pairs(value: SymbolicVector, blocks: Array) -> bool:
    """Return whether the two blocks of a pair, of those in a boolean array, hold different words or flags."""
    parts = [value.words] if isinstance(value.flags, int) else [value.words, value.flags[None]]
    pairs = blocks[::2]
    return any(part.shape[1] > 1 and (part[:, ::2] != part[:, 1::2])[:, pairs].any() for part in parts)


def joined_vectors(vectors: SymbolicVector, more: Sequence[SymbolicVector]) -> SymbolicVector:
    """Return vectors of words (2, blocks, rows, k) with further elements of words (2, blocks, rows) at their ends."""
    parts = [vectors, *(_widened(each) for each in more)]
    rows = vectors.words.shape[2]
    blocks = max(_blocks(each) for each in parts)
    words = np.concatenate(
        [np.broadcast_to(each.words, (2, blocks, rows, each.words.shape[3])) for each in parts], axis=3
    )
    if all(isinstance(each.flags, int) and each.flags == vectors.flags for each in parts):
        return SymbolicVector(vectors.bits, words, vectors.flags)
    flags = np.concatenate(
        [np.broadcast_to(np.asarray(each.flags, dtype=np.uint32), (blocks, *each.words.shape[2:])) for each in parts],
        axis=2,
    )
    return SymbolicVector(vectors.bits, words, flags)


def _widened(value: SymbolicVector) -> SymbolicVector:
    flags = value.flags if isinstance(value.flags, int) else value.flags[..., None]
    return SymbolicVector(value.bits, value.words[..., None], flags)


def of_lanes(value: SymbolicVector, lanes: Array) -> SymbolicVector:
    """Return some lanes of a value with words of the shape (2, blocks, columns, lanes)."""
    if lanes.size == LANES:
        return value
    flags = value.flags if isinstance(value.flags, int) else value.flags[..., lanes]
    return SymbolicVector(value.bits, value.words[..., lanes], flags)


def replaced(whole: SymbolicVector, new: SymbolicVector, lanes: Array, blocks: Array) -> SymbolicVector:
    """Return a value of all lanes in which some lanes of some blocks are replaced."""
    count, rows = whole.words.shape[2], max(whole.words.shape[1], new.words.shape[1])
    shape = (rows, count, lanes.size)
    words = np.broadcast_to(new.words, (2, *shape))
    flags = new.flags if isinstance(new.flags, int) else np.broadcast_to(new.flags, shape)
    if lanes.size == LANES and blocks.all():
        return SymbolicVector(new.bits, words, flags)
    rows = rows if blocks.all() else len(blocks)
    full = (rows, count, LANES)
    chosen = np.zeros((rows, LANES), dtype=bool)
    chosen[np.ix_(np.ones(rows, dtype=bool) if blocks.all() else blocks, lanes)] = True
    spread = np.zeros(LANES, dtype=np.int64)
    spread[lanes] = np.arange(lanes.size)
    moved = SymbolicVector(
        new.bits,
        np.broadcast_to(words[..., spread], (2, *full)),
        flags if isinstance(flags, int) else flags[..., spread],
    )
    found = L.blend(
        np.broadcast_to(chosen[:, None], full),
        moved,
        SymbolicVector(whole.bits, np.broadcast_to(whole.words, (2, *full)), whole.flags),
    )
    return found
