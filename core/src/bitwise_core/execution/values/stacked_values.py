"""Several values side by side as one value, so that one operation computes all of them.

An operation that computes every lane by itself takes most of its time for the calls that it makes, not for the lanes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Array, Origin, PackedVector, SymbolicVector, Value


def form_of(value: Value) -> Hashable | None:
    """Return what several values must have in common to be put side by side; None for a value that cannot be.

    Each fact holds in all lanes of every one of them, in some, or in none, and the same operations are kept as origins,
    so that an operation does with all lanes together what it does with those of each value.
    """
    if type(value) is np.ndarray:
        return value.dtype.str
    if type(value) is PackedVector:
        if value.whole is not None or value.joined is not None:
            return None
        parts = tuple(map(form_of, value.parts))
        return None if None in parts else parts
    return _form_of_vector(value) if type(value) is SymbolicVector else None


def _form_of_vector(value: SymbolicVector) -> Hashable | None:
    if type(value) is not SymbolicVector or value.recorder is not None:
        return None
    origins = []
    for origin in value.origins:
        operands = tuple(map(_form_of_vector, origin.operands))
        if None in operands:
            return None
        origins.append((origin.name, operands))
    facts = L.flags_of_some_lane(value), L.flags_of_every_lane(value)
    return value.bits, facts, value.maximum, tuple(origins)


def stacked(values: Sequence[Value], blocks: int, threads: int) -> Value:
    """Return values of one form (`form_of`), of at most this many blocks and threads, one after the other."""
    first = values[0]
    if type(first) is np.ndarray:
        return _side_by_side([each for each in values if isinstance(each, np.ndarray)], blocks, threads)
    if isinstance(first, PackedVector):
        packed = [each for each in values if isinstance(each, PackedVector)]
        parts = [stacked(same, blocks, threads) for same in zip(*[each.parts for each in packed], strict=True)]
        return PackedVector(tuple(each for each in parts if not isinstance(each, PackedVector)))
    return _stacked_vectors([each for each in values if isinstance(each, SymbolicVector)], blocks, threads)


def _stacked_vectors(vectors: Sequence[SymbolicVector], blocks: int, threads: int) -> SymbolicVector:
    first = vectors[0]
    words = _side_by_side([each.words for each in vectors], blocks, threads)
    flags: L.Flags = L.flags_of_some_lane(first)
    if flags != L.flags_of_every_lane(first):
        flags = _side_by_side(
            [np.atleast_2d(np.asarray(each.flags, dtype=np.uint32)) for each in vectors], blocks, threads
        )
    result = SymbolicVector(first.bits, words, flags)
    hashes = [each.cached_hash for each in vectors if each.cached_hash is not None]
    if len(hashes) == len(vectors):
        result.cached_hash = _side_by_side(hashes, blocks, threads)
    result.maximum = first.maximum
    result.origins = tuple(
        _stacked_origins(same, blocks, threads) for same in zip(*[each.origins for each in vectors], strict=True)
    )
    return result


def _stacked_origins(origins: Sequence[Origin], blocks: int, threads: int) -> Origin:
    operands = tuple(
        _stacked_vectors(same, blocks, threads) for same in zip(*[each.operands for each in origins], strict=True)
    )
    if all(each.lanes is True for each in origins):
        return Origin(origins[0].name, operands)
    lanes = [np.atleast_2d(np.asarray(each.lanes)) for each in origins]
    return Origin(origins[0].name, operands, _side_by_side(lanes, blocks, threads))


def _side_by_side(arrays: Sequence[Array], blocks: int, threads: int) -> Array:
    """Return arrays whose last axes are blocks and threads one after the other, in the blocks of the largest one."""
    rows = max(each.shape[-2] for each in arrays)
    shape = (*arrays[0].shape[:-2], rows, threads)
    return np.concatenate([each if each.shape == shape else np.broadcast_to(each, shape) for each in arrays], axis=-1)


def split(value: Value, count: int, threads: int) -> list[Value] | None:
    """Return the values of this many threads that lie side by side in a value; None for a value of another form."""
    if isinstance(value, np.ndarray):
        return [value] * count if value.shape[1] == 1 else [value[:, each] for each in _places(count, threads)]
    if type(value) is PackedVector:
        return _split_parts(value, count, threads)
    if type(value) is not SymbolicVector:
        return None
    found = _split_vector(value, count, threads)
    return None if found is None else [L.as_array_if_constant(each) for each in found]


def _places(count: int, threads: int) -> list[slice]:
    return [slice(start, start + threads) for start in range(0, count * threads, threads)]


def _split_parts(value: PackedVector, count: int, threads: int) -> list[Value] | None:
    if value.whole is not None or value.joined is not None:
        return None
    parts = [split(each, count, threads) for each in value.parts]
    found: list[Value] = []
    for place in range(count):
        own = [each[place] for each in parts if each is not None]
        plain = [each for each in own if isinstance(each, np.ndarray | SymbolicVector)]
        if len(plain) < len(value.parts):
            return None
        found.append(PackedVector(tuple(plain)))
    return found


def _split_vector(value: SymbolicVector, count: int, threads: int) -> list[SymbolicVector] | None:
    if value.recorder is not None:
        return None
    if value.words.shape[2] == 1 and isinstance(value.flags, int) and not value.origins:
        return [value] * count
    found = []
    operands: dict[int, list[SymbolicVector] | None] = {}
    for origin in value.origins:
        for each in origin.operands:
            if id(each) not in operands:
                operands[id(each)] = _split_vector(each, count, threads) if type(each) is SymbolicVector else None
            if operands[id(each)] is None:
                return None
    for number, place in enumerate(_places(count, threads)):
        words, flags = _own(value.words, place), value.flags
        if not isinstance(flags, int):
            flags = L.uniform_flags(_own(flags, place))
        result = SymbolicVector(value.bits, words, flags)
        if value.cached_hash is not None:
            result.cached_hash = _own(value.cached_hash, place)
        result.maximum = value.maximum
        origins = []
        for origin in value.origins:
            lanes = origin.lanes if origin.lanes is True else L.nonempty(_own(origin.lanes, place))
            if lanes is not False:
                own = [operands[id(each)] for each in origin.operands]
                origins.append(Origin(origin.name, tuple(each[number] for each in own if each is not None), lanes))
        result.origins = tuple(origins)
        found.append(result)
    return found


def _own(array: Array, place: slice) -> Array:
    return array if array.shape[-1] == 1 else array[..., place]
