"""Whether blocks enumerate every tile exactly once, evaluated for small grids.

A kernel whose blocks skip or repeat tiles is not the function of output coordinates that its elements define.
Therefore, coordinates that are computed from one block index are evaluated for every grid of up to LARGEST x LARGEST
tiles.  Where they do not enumerate all tiles exactly once, or contain an operation that is not evaluated here, they
remain tied to their definitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np

from bitwise_core.checker.parametric.coordinates import Coordinate
from bitwise_core.checker.parametric.integers import ParametricIntegers
from bitwise_core.checker.parametric.polynomial import Polynomial
from bitwise_core.execution.values.distinct import sorted_distinct
from bitwise_core.numerics import modular

LARGEST = 12


class _NotEvaluated(Exception):
    """An operation that is not evaluated here."""


def enumerates_all_tiles(
    integers: ParametricIntegers, coordinates: Sequence[Coordinate], block: int
) -> Mapping[int, int] | None:
    """Check that coordinates which depend on one block symbol (an atom) enumerate all tiles, each exactly once.

    If they do, returns for each scalar of the definitions the coordinate whose elements it counts; else None.
    """
    tiles = integers.tiles
    persistent = tiles is not None and tiles.symbol == block
    if len(coordinates) == 1:
        definition = coordinates[0].definition
        if dict(definition.terms) != {(block,): coordinates[0].extent} or not modular.is_zero(definition.constant):
            return None
        if not persistent:
            return {}
    elif len(coordinates) != 2:
        return None
    conditions = {} if tiles is None or not persistent else {"condition": tiles.condition}
    definitions = [*(each.definition for each in coordinates), *conditions.values()]
    sizes = sorted(_scalars(integers, definitions, {each.symbol for each in coordinates}) - {block})
    if len(sizes) > len(coordinates):
        return None
    for chosen in permutations(range(len(coordinates))):
        found = dict(zip(sizes, chosen, strict=False))
        if _bijective(integers, coordinates, block, found, conditions.get("condition")):
            return found
    return None


def _scalars(integers: ParametricIntegers, definitions: Sequence[Polynomial], own: set[int]) -> set[int]:
    """The atoms without a definition, other than `own`, on which these integers depend."""
    found: set[int] = set()
    stack = [number for each in definitions for number in each.atoms()]
    seen: set[int] = set()
    while stack:
        number = stack.pop()
        if number in seen or number in own:
            continue
        seen.add(number)
        definition = integers.atoms[number].definition
        if definition is None:
            found.add(number)
            continue
        stack.extend(
            atom
            for part in definition
            for each in (part if isinstance(part, tuple) else (part,))
            if isinstance(each, Polynomial)
            for atom in each.atoms()
        )
    return found


def are_distinct_tiles(
    integers: ParametricIntegers, coordinates: Sequence[Coordinate], atoms: Sequence[int], block: int, largest: int
) -> bool:
    """Whether coordinates and atoms that depend on the block alone differ for all blocks from 0 to `largest`."""
    values: dict[int, Any] = {block: np.arange(largest + 1, dtype=np.int64)}
    try:
        for each in coordinates:
            values[each.symbol] = _evaluate(integers, each.definition, values)
        found = [values[each.symbol] for each in coordinates] + [_atom(integers, each, values) for each in atoms]
    except _NotEvaluated:
        return False
    tiles = np.stack([np.broadcast_to(each, largest + 1) for each in found], axis=1)
    return len(np.unique(tiles, axis=0)) == largest + 1


def _bijective(
    integers: ParametricIntegers,
    coordinates: Sequence[Coordinate],
    block: int,
    sizes: Mapping[int, int],
    condition: Polynomial | None,
) -> bool:
    """Whether the map from block index to tiles is bijective on all small grids.

    `sizes` maps each scalar to the coordinate whose elements it counts; `condition` is that of `Tiles`.
    """
    largest = (LARGEST, LARGEST if len(coordinates) == 2 else 1)
    counts = [(rows, columns) for rows in range(1, largest[0] + 1) for columns in range(1, largest[1] + 1)]
    total = np.array([rows * columns for rows, columns in counts], dtype=np.int64)
    tiles = np.repeat(np.array(counts, dtype=np.int64), total, axis=0)
    number = np.concatenate([np.arange(each, dtype=np.int64) for each in total])
    for missing in (0, 1):
        values: dict[int, Any] = {block: number}
        for symbol, along in sizes.items():
            values[symbol] = tiles[:, along] * coordinates[along].extent - missing * (coordinates[along].extent - 1)
        try:
            found = []
            for each in coordinates:
                start = _evaluate(integers, each.definition, values)
                values[each.symbol] = start
                if (start % each.extent).any():
                    return False
                found.append(start // each.extent)
            if condition is not None and not _ends_after_all_tiles(
                integers, condition, values, block, tiles.prod(axis=1)
            ):
                return False
        except _NotEvaluated:
            return False
        inside = [(each >= 0) & (each < tiles[:, along]) for along, each in enumerate(found)]
        if not np.all(inside):
            return False
        codes = np.cumsum(number == 0) * 10_000 + sum(each * 100**along for along, each in enumerate(found))
        if len(sorted_distinct(codes)) != len(codes):
            return False
    return True


def _ends_after_all_tiles(
    integers: ParametricIntegers, condition: Polynomial, values: Mapping[int, Any], block: int, total: Any
) -> bool:
    """Whether the condition, which decreases with the tile index, holds for all tiles and for no index after them."""
    coordinates = {each.symbol for each in integers.coordinates.created}
    scalars = {number: value for number, value in values.items() if integers.atoms[number].definition is None}
    own = {number: value for number, value in scalars.items() if number not in coordinates}
    after_last = own | {block: total}
    return bool(
        (_evaluate(integers, condition, own) >= 0).all() and (_evaluate(integers, condition, after_last) < 0).all()
    )


def _evaluate(integers: ParametricIntegers, value: Polynomial, values: dict[int, Any]) -> Any:
    total = np.asarray(modular.signed(value.constant, value.bits))
    if total.size != 1:
        raise _NotEvaluated
    total = total.reshape(())
    for monomial, coefficient in value.terms.items():
        if not isinstance(coefficient, int):
            raise _NotEvaluated
        product: Any = modular.signed(coefficient, value.bits)
        for number in monomial:
            product = product * _atom(integers, number, values)
        total = total + product
    return total


def _atom(integers: ParametricIntegers, number: int, values: dict[int, Any]) -> Any:
    found = values.get(number)
    if found is None:
        definition = integers.atoms[number].definition
        if definition is None:
            raise _NotEvaluated
        found = values[number] = _operation(integers, definition, values)
    return found


def _operation(integers: ParametricIntegers, definition: tuple[Any, ...], values: dict[int, Any]) -> Any:
    if definition[0] == "quotient":
        return _quotient(_evaluate(integers, definition[1], values), np.asarray(definition[2]))
    if definition[0] != "operation":
        raise _NotEvaluated
    _, name, operands = definition
    found = [np.asarray(_evaluate(integers, each, values)) for each in operands]
    if name in ("div.s32", "rem.s32", "div.u32", "rem.u32"):
        left, right = np.broadcast_arrays(*found)
        if (right == 0).any() or (name[-3] == "u" and ((left < 0).any() or (right < 0).any())):
            raise _NotEvaluated
        whole = _quotient(left, right)
        return whole if name.startswith("div") else left - whole * right
    if name in ("and.b32", "shr.u32"):
        left, right = np.broadcast_arrays(*found)
        if (left < 0).any() or (right < 0).any() or (left >> 31).any() or (right >> 31).any():
            raise _NotEvaluated
        return left & right if name == "and.b32" else left >> np.minimum(right, 32)
    if name in ("min.s32", "max.s32"):
        return (np.minimum if name.startswith("min") else np.maximum)(*found)
    raise _NotEvaluated


def _quotient(left: Any, right: Any) -> Any:
    whole = np.abs(left) // np.abs(right)
    return np.where((left < 0) != (right < 0), -whole, whole)
