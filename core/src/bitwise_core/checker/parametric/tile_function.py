"""The function from output coordinates to stored values that the elements of one block define.

A coordinate is free if the instances of the launch prove that the element at every offset of a tile is the same
function of the coordinate, masks included.  The function is then independent of the extent of the tile.  Other
coordinates are tied: their definitions are part of the signature.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bitwise_core.checker.parametric import polynomial as P
from bitwise_core.checker.parametric.coordinates import EXTENT, STRIDES, TILE, Coordinate, Coordinates
from bitwise_core.checker.parametric.integers import ParametricIntegers
from bitwise_core.checker.parametric.memory import Elements
from bitwise_core.checker.parametric.tile_enumeration import LARGEST, enumerates_all_tiles
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.values import hashing


def signature_of(elements: Elements, integers: ParametricIntegers) -> tuple[hashing.Words, tuple[str, ...]]:
    """The hash of the function from output coordinates to stored values, with notes.  Raises Unsupported."""
    coordinates = integers.coordinates
    keys, first = _distinct(elements.element_hash[:, 0])
    element_hash, address = elements.element_hash[:, :, first], elements.address[:, :, first]
    renamed = {
        name: bool((element_hash[:, row] != element_hash[:, 0]).any()) for name, row in coordinates.renaming.items()
    }
    tiles = integers.tiles
    if tiles is not None and renamed.get(tiles.block):
        raise Unsupported("the values stored by an iteration of a persistent loop depend on the block that executes it")
    free: dict[int, tuple[int | None, Any]] = {}
    for coordinate in coordinates.created:
        steps = _find_stride(element_hash, address, keys, coordinate, coordinates)
        if steps is not None:
            free[coordinate.index] = steps
    counted_coordinate = _remove_incomplete_enumerations(free, integers)
    tied = {c.index: _axes(c, coordinates) for c in coordinates.created if c.index not in free}
    changed = True
    while changed:
        changed = False
        for coordinate in coordinates.created:
            if coordinate.index not in free:
                continue
            axes = _axes(coordinate, coordinates)
            depends_on_block = any(renamed[axis] for axis in axes) or renamed.get(EXTENT, False)
            if depends_on_block or any(axes & other for other in tied.values()):
                del free[coordinate.index]
                tied[coordinate.index] = axes
                changed = True
    starts = np.ones(element_hash.shape[2], dtype=bool)
    notes = []
    for coordinate in coordinates.created:
        if coordinate.index in free:
            stride, chain_starts = free[coordinate.index]
            starts &= chain_starts
            if stride is not None:
                notes.append(f"the tile size of an output coordinate is any multiple of {STRIDES[stride]}")
    if len([each for each in coordinates.created if each.index in free]) > 1:
        notes.append(f"the enumeration of tiles was evaluated for grids of up to {LARGEST} x {LARGEST} tiles")
    single_coordinate = _single_block_coordinate(element_hash, address, coordinates, free, renamed)
    rows = [(0, False), (coordinates.exchanged, True)]
    if single_coordinate is not None:
        rows = [(coordinates.naming_rows[1], False), (coordinates.naming_rows[0], True)]
    variants = [
        _function_hash(element_hash, starts, coordinates, free, row, exchanged, single_coordinate)
        + _tile_set_hash(free, counted_coordinate, integers, row, exchanged)
        for row, exchanged in rows
    ]
    return min(variants, key=lambda words: words.tobytes()), tuple(notes)


def _single_block_coordinate(
    element_hash: hashing.Words,
    address: hashing.Words,
    coordinates: Coordinates,
    free: Mapping[int, tuple[int | None, Any]],
    renamed: Mapping[str, bool],
) -> str | None:
    """The only block coordinate that is itself an output coordinate, with tiles of one element, or None.

    At most one other coordinate may exist, which must be free.
    """
    used = [name for name, depends in renamed.items() if depends]
    others = [each for each in coordinates.created if free.get(each.index, (0, None))[0] is not None]
    if len(used) != 1 or used[0] == EXTENT or len(others) > 1 or any(each.index not in free for each in others):
        return None
    if any(each.index != 0 for each in others):
        return None
    row = coordinates.renaming[used[0]]
    changed = (element_hash[:, row] != element_hash[:, 0]).any(axis=0)
    moved = (address[:, row] != address[:, 0]).any(axis=0)
    return used[0] if bool((moved | ~changed).all()) else None


def _remove_incomplete_enumerations(
    free: dict[int, tuple[int | None, Any]], integers: ParametricIntegers
) -> Mapping[int, int]:
    """Remove from `free` the coordinates whose tiles are not enumerated exactly once.

    Returns, for a persistent loop, the coordinate whose elements each scalar of its bound counts.
    """
    coordinates = integers.coordinates
    counted_coordinate: dict[int, int] = {}
    by_axes: dict[frozenset[str], list[Coordinate]] = {}
    for coordinate in coordinates.created:
        by_axes.setdefault(frozenset(_axes(coordinate, coordinates)), []).append(coordinate)
    for axes, group in by_axes.items():
        block = integers.table.block_symbols.get(next(iter(axes))) if len(axes) == 1 else None
        sizes = None if block is None else enumerates_all_tiles(integers, group, block)
        if sizes is None:
            for coordinate in group:
                free.pop(coordinate.index, None)
        elif integers.tiles is not None and block == integers.tiles.symbol:
            counted_coordinate = {symbol: group[along].index for symbol, along in sizes.items()}
    return counted_coordinate


def _tile_set_hash(
    free: Mapping[int, tuple[int | None, Any]],
    counted_coordinate: Mapping[int, int],
    integers: ParametricIntegers,
    row: int,
    exchanged: bool,
) -> hashing.Words:
    """The hash of the set of tiles of a persistent loop: by the sizes that it covers, or else by its condition."""
    coordinates, tiles, total = integers.coordinates, integers.tiles, np.zeros((2, 1, 1), dtype=np.uint64)
    if tiles is None:
        return total
    along = [each for each in coordinates.created if TILE in _axes(each, coordinates)]
    if along and all(each.index in free for each in along):
        for symbol, index in counted_coordinate.items():
            words = integers.atoms[symbol].words
            tag = hashing.constant(f"tiles reach along coordinate {coordinates.name(index, exchanged)}")
            total = total + hashing.mix(words[:, min(row, words.shape[1] - 1)][:, None] + tag)
        return total
    words = integers.words_of(tiles.condition)
    return hashing.mix(words[:, min(row, words.shape[1] - 1)][:, None] + hashing.constant("tiles are those of"))


def _function_hash(
    element_hash: hashing.Words,
    starts: Any,
    coordinates: Coordinates,
    free: Mapping[int, tuple[int | None, Any]],
    row: int,
    exchanged: bool,
    single_coordinate: str | None,
) -> hashing.Words:
    """The hash of the function, with the names of the first two coordinates exchanged or not."""
    total = hashing.constant("function of every launch")
    for coordinate in coordinates.created:
        name = coordinates.name(coordinate.index, exchanged)
        if coordinate.index in free:
            stride, _ = free[coordinate.index]
            if stride is not None:
                total = total + hashing.constant(f"coordinate {name} by {STRIDES[stride]}")
        elif not all(
            (element_hash[:, coordinates.row(coordinate, s)] == element_hash[:, 0]).all() for s in range(len(STRIDES))
        ):
            definition = P.words(coordinates.table.atoms, coordinate.definition)
            definition = definition[:, min(row, definition.shape[1] - 1)][:, None]
            total = total + hashing.mix(definition + hashing.constant(f"coordinate {name} is"))
    if single_coordinate is not None:
        total = total + hashing.constant(f"coordinate {0 if exchanged else 1} by {STRIDES[0]}")
    chosen = element_hash[:, row, starts]
    members = hashing.mix(chosen[:, :, None] * hashing.multiplier(41) + hashing.constant("stored element"))
    return hashing.mix(total + members.sum(axis=1, dtype=np.uint64)[:, :, None])


def _axes(coordinate: Coordinate, coordinates: Coordinates) -> set[str]:
    """The block symbols on which the definition of a coordinate depends."""
    words = P.words(coordinates.table.atoms, coordinate.definition)
    nested = [each for each in coordinates.created if each.symbol in coordinate.definition.atoms()]
    found = {name for each in nested for name in _axes(each, coordinates)}
    if words.shape[1] == 1:
        return found
    return found | {name for name, row in coordinates.renaming.items() if (words[:, row] != words[:, 0]).any()}


def _distinct(words: hashing.Words) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The distinct hashes in sorted order (as pairs of words), and the first index of each."""
    pairs = np.ascontiguousarray(words.T).view([("high", np.uint64), ("low", np.uint64)]).ravel()
    found = np.unique(pairs, return_index=True)
    return found[0], found[1]


def _positions_of(keys: np.ndarray[Any, Any], words: hashing.Words) -> np.ndarray[Any, Any]:
    """The position of each hash among the sorted keys, -1 where it is not one of them."""
    pairs = np.ascontiguousarray(words.T).view([("high", np.uint64), ("low", np.uint64)]).ravel()
    place = np.minimum(np.searchsorted(keys, pairs), len(keys) - 1)
    return np.where(keys[place] == pairs, place, -1)


def _find_stride(
    element_hash: hashing.Words,
    address: hashing.Words,
    keys: np.ndarray[Any, Any],
    coordinate: Coordinate,
    coordinates: Coordinates,
) -> tuple[int | None, Any] | None:
    """The stride by which all elements form complete chains along a coordinate, and the first elements of the chains.

    None where there is no such stride.  A stride of None means that no element depends on the coordinate.
    """
    all_elements = np.ones(element_hash.shape[2], dtype=bool)
    if all((element_hash[:, coordinates.row(coordinate, s)] == element_hash[:, 0]).all() for s in range(len(STRIDES))):
        return None, all_elements
    for stride, amount in enumerate(STRIDES):
        if coordinate.extent % amount:
            continue
        row = coordinates.row(coordinate, stride)
        successor = _positions_of(keys, element_hash[:, row])
        own_position = np.arange(len(keys))
        constant = successor == own_position
        moved = (address[:, row] != address[:, 0]).any(axis=0)
        if (~moved & ~constant).any():
            return None
        successor = np.where(constant, -1, successor)
        chain_starts = np.ones(len(keys), dtype=bool)
        chain_starts[successor[successor >= 0]] = False
        if _are_complete_chains(successor, chain_starts & ~constant, constant, coordinate.extent // amount):
            return stride, chain_starts | constant
    return None


def _are_complete_chains(
    successor: np.ndarray[Any, Any], chain_starts: np.ndarray[Any, Any], constant: np.ndarray[Any, Any], length: int
) -> bool:
    """Whether the chains from these elements have exactly this length and contain every element not constant."""
    current = np.flatnonzero(chain_starts)
    if current.size * length != int((~constant).sum()):
        return False
    for _ in range(length - 1):
        current = successor[current]
        if (current < 0).any():
            return False
    return bool((successor[current] < 0).all())
