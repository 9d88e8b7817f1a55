"""The function from output coordinates to stored values that the elements of one block define.

A coordinate is free if the instances of the launch prove that every offset of its tile holds the same function of it,
masks included.  The function is then independent of the tile's extent.  Any other coordinate is tied: its definition is
part of the signature.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bitwise_core.checker.parametric import polynomial as P
from bitwise_core.checker.parametric.coordinates import EXTENT, STRIDES, TILE, Coordinate, Coordinates
from bitwise_core.checker.parametric.integers import ParametricIntegers
from bitwise_core.checker.parametric.memory import Elements
from bitwise_core.checker.parametric.tile_enumeration import LARGEST, reaches_all
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.values import hashing


def signature_of(elements: Elements, integers: ParametricIntegers) -> tuple[hashing.Words, tuple[str, ...]]:
    """The hash of the function from output coordinates to stored values, with notes.  Raises Unsupported."""
    coordinates = integers.coordinates
    keys, first = _distinct(elements.whole[:, 0])
    whole, address = elements.whole[:, :, first], elements.address[:, :, first]
    renamed = {name: bool((whole[:, row] != whole[:, 0]).any()) for name, row in coordinates.renaming.items()}
    tiles = integers.tiles
    if tiles is not None and renamed.get(tiles.block):
        raise Unsupported("what an iteration of a persistent loop stores depends on the block that runs it")
    free: dict[int, tuple[int | None, Any]] = {}
    for coordinate in coordinates.found:
        steps = _steps(whole, address, keys, coordinate, coordinates)
        if steps is not None:
            free[coordinate.index] = steps
    reached = _untie_enumerations(free, integers)
    tied = {c.index: _axes(c, coordinates) for c in coordinates.found if c.index not in free}
    changed = True
    while changed:
        changed = False
        for coordinate in coordinates.found:
            if coordinate.index not in free:
                continue
            axes = _axes(coordinate, coordinates)
            raw = any(renamed[axis] for axis in axes) or renamed.get(EXTENT, False)
            if raw or any(axes & other for other in tied.values()):
                del free[coordinate.index]
                tied[coordinate.index] = axes
                changed = True
    starts = np.ones(whole.shape[2], dtype=bool)
    notes = []
    for coordinate in coordinates.found:
        if coordinate.index in free:
            stride, begins = free[coordinate.index]
            starts &= begins
            if stride is not None:
                notes.append(f"an output coordinate in tiles of any multiple of {STRIDES[stride]}")
    if len([each for each in coordinates.found if each.index in free]) > 1:
        notes.append(f"the numbering of tiles was evaluated for grids of up to {LARGEST} x {LARGEST} tiles")
    alone = _lone_symbol(whole, address, coordinates, free, renamed)
    rows = [(0, False), (coordinates.exchanged, True)]
    if alone is not None:
        rows = [(coordinates.plain_names[1], False), (coordinates.plain_names[0], True)]
    variants = [
        _total(whole, starts, coordinates, free, row, exchanged, alone)
        + _reach(free, reached, integers, row, exchanged)
        for row, exchanged in rows
    ]
    return min(variants, key=lambda words: words.tobytes()), tuple(notes)


def _lone_symbol(
    whole: hashing.Words,
    address: hashing.Words,
    coordinates: Coordinates,
    free: Mapping[int, tuple[int | None, Any]],
    renamed: Mapping[str, bool],
) -> str | None:
    """The one block coordinate that is an output coordinate, in tiles of one element, beside at most one free one."""
    used = [name for name, depends in renamed.items() if depends]
    others = [each for each in coordinates.found if free.get(each.index, (0, None))[0] is not None]
    if len(used) != 1 or used[0] == EXTENT or len(others) > 1 or any(each.index not in free for each in others):
        return None
    if any(each.index != 0 for each in others):
        return None
    row = coordinates.renaming[used[0]]
    changed = (whole[:, row] != whole[:, 0]).any(axis=0)
    moved = (address[:, row] != address[:, 0]).any(axis=0)
    return used[0] if bool((moved | ~changed).all()) else None


def _untie_enumerations(free: dict[int, tuple[int | None, Any]], integers: ParametricIntegers) -> Mapping[int, int]:
    """Ties the coordinates whose tiles are not enumerated exactly once.

    Returns, for a persistent loop, the coordinate along which each scalar of its bound counts elements.
    """
    coordinates = integers.coordinates
    reached: dict[int, int] = {}
    by_axes: dict[frozenset[str], list[Coordinate]] = {}
    for coordinate in coordinates.found:
        by_axes.setdefault(frozenset(_axes(coordinate, coordinates)), []).append(coordinate)
    for axes, group in by_axes.items():
        block = integers.table.block_symbols.get(next(iter(axes))) if len(axes) == 1 else None
        sizes = None if block is None else reaches_all(integers, group, block)
        if sizes is None:
            for coordinate in group:
                free.pop(coordinate.index, None)
        elif integers.tiles is not None and block == integers.tiles.symbol:
            reached = {symbol: group[along].index for symbol, along in sizes.items()}
    return reached


def _reach(
    free: Mapping[int, tuple[int | None, Any]],
    reached: Mapping[int, int],
    integers: ParametricIntegers,
    row: int,
    exchanged: bool,
) -> hashing.Words:
    """The hash of how many tiles a persistent loop computes: the sizes that it covers, or else its condition."""
    coordinates, tiles, total = integers.coordinates, integers.tiles, np.zeros((2, 1, 1), dtype=np.uint64)
    if tiles is None:
        return total
    along = [each for each in coordinates.found if TILE in _axes(each, coordinates)]
    if along and all(each.index in free for each in along):
        for symbol, index in reached.items():
            words = integers.atoms[symbol].words
            tag = hashing.constant(f"tiles reach along coordinate {coordinates.name(index, exchanged)}")
            total = total + hashing.mix(words[:, min(row, words.shape[1] - 1)][:, None] + tag)
        return total
    words = integers.words_of(tiles.condition)
    return hashing.mix(words[:, min(row, words.shape[1] - 1)][:, None] + hashing.constant("tiles are those of"))


def _total(
    whole: hashing.Words,
    starts: Any,
    coordinates: Coordinates,
    free: Mapping[int, tuple[int | None, Any]],
    row: int,
    exchanged: bool,
    alone: str | None,
) -> hashing.Words:
    """The hash of the function, with the first two coordinates named either way."""
    total = hashing.constant("function of every launch")
    for coordinate in coordinates.found:
        name = coordinates.name(coordinate.index, exchanged)
        if coordinate.index in free:
            stride, _ = free[coordinate.index]
            if stride is not None:
                total = total + hashing.constant(f"coordinate {name} by {STRIDES[stride]}")
        elif not all((whole[:, coordinates.row(coordinate, s)] == whole[:, 0]).all() for s in range(len(STRIDES))):
            definition = P.words(coordinates.table.atoms, coordinate.definition)
            definition = definition[:, min(row, definition.shape[1] - 1)][:, None]
            total = total + hashing.mix(definition + hashing.constant(f"coordinate {name} is"))
    if alone is not None:
        total = total + hashing.constant(f"coordinate {0 if exchanged else 1} by {STRIDES[0]}")
    chosen = whole[:, row, starts]
    members = hashing.mix(chosen[:, :, None] * hashing.multiplier(41) + hashing.constant("stored element"))
    return hashing.mix(total + members.sum(axis=1, dtype=np.uint64)[:, :, None])


def _axes(coordinate: Coordinate, coordinates: Coordinates) -> set[str]:
    """The block symbols that a coordinate's definition depends on."""
    words = P.words(coordinates.table.atoms, coordinate.definition)
    inner = [each for each in coordinates.found if each.symbol in coordinate.definition.atoms()]
    found = {name for each in inner for name in _axes(each, coordinates)}
    if words.shape[1] == 1:
        return found
    return found | {name for name, row in coordinates.renaming.items() if (words[:, row] != words[:, 0]).any()}


def _distinct(words: hashing.Words) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Sorted keys (as pairs of words) and the first index of each."""
    pairs = np.ascontiguousarray(words.T).view([("high", np.uint64), ("low", np.uint64)]).ravel()
    found = np.unique(pairs, return_index=True)
    return found[0], found[1]


def _places(keys: np.ndarray[Any, Any], words: hashing.Words) -> np.ndarray[Any, Any]:
    """For each hash its place among the sorted keys, or -1."""
    pairs = np.ascontiguousarray(words.T).view([("high", np.uint64), ("low", np.uint64)]).ravel()
    place = np.minimum(np.searchsorted(keys, pairs), len(keys) - 1)
    return np.where(keys[place] == pairs, place, -1)


def _steps(
    whole: hashing.Words,
    address: hashing.Words,
    keys: np.ndarray[Any, Any],
    coordinate: Coordinate,
    coordinates: Coordinates,
) -> tuple[int | None, Any] | None:
    """The stride by which all elements form full chains along a coordinate, and the chains' first elements, or None.

    A stride of None says that no element depends on the coordinate.
    """
    everywhere = np.ones(whole.shape[2], dtype=bool)
    if all((whole[:, coordinates.row(coordinate, s)] == whole[:, 0]).all() for s in range(len(STRIDES))):
        return None, everywhere
    for stride, amount in enumerate(STRIDES):
        if coordinate.extent % amount:
            continue
        row = coordinates.row(coordinate, stride)
        following = _places(keys, whole[:, row])
        itself = np.arange(len(keys))
        constant = following == itself
        moved = (address[:, row] != address[:, 0]).any(axis=0)
        if (~moved & ~constant).any():
            return None
        following = np.where(constant, -1, following)
        begins = np.ones(len(keys), dtype=bool)
        begins[following[following >= 0]] = False
        if _full(following, begins & ~constant, constant, coordinate.extent // amount):
            return stride, begins | constant
    return None


def _full(
    following: np.ndarray[Any, Any], begins: np.ndarray[Any, Any], constant: np.ndarray[Any, Any], length: int
) -> bool:
    """Whether the chains from these elements have exactly this length and hold every element that is not constant."""
    current = np.flatnonzero(begins)
    if current.size * length != int((~constant).sum()):
        return False
    for _ in range(length - 1):
        current = following[current]
        if (current < 0).any():
            return False
    return bool((following[current] < 0).all())
