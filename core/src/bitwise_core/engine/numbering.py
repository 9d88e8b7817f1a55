"""Whether the numbering of tiles reaches every tile once: the tile numbers evaluated for small grids.

A kernel whose blocks skip or repeat tiles is not the function of output coordinates that its elements suggest.  Two
coordinates made from one block number are therefore evaluated for every grid of up to LARGEST x LARGEST tiles; where
they do not go through all tiles exactly once, or contain what is not evaluated here, they stay tied to their
definitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np

from bitwise_core.engine import polynomial as P
from bitwise_core.engine.polynomial import Polynomial

if TYPE_CHECKING:
    from bitwise_core.engine.symbolic_domain import SymbolicDomain
    from bitwise_core.engine.tiles import Coordinate

LARGEST = 12


class _NotEvaluated(Exception):
    """An operation that has no numbers here."""


def reaches_all(domain: SymbolicDomain, coordinates: Sequence[Coordinate], block: int) -> bool:
    """Whether coordinates that depend on one block symbol (an atom) go through all their tiles, each once."""
    if len(coordinates) == 1:
        only = coordinates[0].definition
        return dict(only.terms) == {(block,): coordinates[0].extent} and P.is_zero(only.constant)
    if len(coordinates) != 2:
        return False
    sizes = sorted(_scalars(domain, coordinates) - {block})
    if len(sizes) > 2:
        return False
    return any(
        _bijective(domain, coordinates, block, dict(zip(sizes, chosen, strict=False)))
        for chosen in permutations((0, 1))
    )


def _scalars(domain: SymbolicDomain, coordinates: Sequence[Coordinate]) -> set[int]:
    """The symbols without a definition that the coordinates are made of."""
    found: set[int] = set()
    own = {each.symbol for each in coordinates}
    stack = [number for each in coordinates for number in each.definition.atoms()]
    seen: set[int] = set()
    while stack:
        number = stack.pop()
        if number in seen or number in own:
            continue
        seen.add(number)
        definition = domain.atoms[number].definition
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


def _bijective(domain: SymbolicDomain, coordinates: Sequence[Coordinate], block: int, sizes: Mapping[int, int]) -> bool:
    """`sizes` says along which of the two coordinates each scalar counts elements."""
    counts = [(rows, columns) for rows in range(1, LARGEST + 1) for columns in range(1, LARGEST + 1)]
    tiles = np.array([pair for pair in counts for _ in range(pair[0] * pair[1])], dtype=np.int64)
    number = np.concatenate([np.arange(rows * columns, dtype=np.int64) for rows, columns in counts])
    for missing in (0, 1):
        values: dict[int, Any] = {block: number}
        for symbol, along in sizes.items():
            values[symbol] = tiles[:, along] * coordinates[along].extent - missing * (coordinates[along].extent - 1)
        try:
            found = []
            for each in coordinates:
                start = _evaluate(domain, each.definition, values)
                values[each.symbol] = start
                if (start % each.extent).any():
                    return False
                found.append(start // each.extent)
        except _NotEvaluated:
            return False
        inside = (found[0] >= 0) & (found[0] < tiles[:, 0]) & (found[1] >= 0) & (found[1] < tiles[:, 1])
        if not inside.all():
            return False
        which = np.cumsum(number == 0) * 10_000 + found[0] * 100 + found[1]
        if len(np.unique(which)) != len(which):
            return False
    return True


def _evaluate(domain: SymbolicDomain, value: Polynomial, values: dict[int, Any]) -> Any:
    total = np.asarray(P.signed(value.constant, value.bits))
    if total.size != 1:
        raise _NotEvaluated
    total = total.reshape(())
    for monomial, coefficient in value.terms.items():
        if not isinstance(coefficient, int):
            raise _NotEvaluated
        product: Any = P.signed(coefficient, value.bits)
        for number in monomial:
            product = product * _atom(domain, number, values)
        total = total + product
    return total


def _atom(domain: SymbolicDomain, number: int, values: dict[int, Any]) -> Any:
    found = values.get(number)
    if found is None:
        definition = domain.atoms[number].definition
        if definition is None:
            raise _NotEvaluated
        found = values[number] = _operation(domain, definition, values)
    return found


def _operation(domain: SymbolicDomain, definition: tuple[Any, ...], values: dict[int, Any]) -> Any:
    if definition[0] == "quotient":
        return _quotient(_evaluate(domain, definition[1], values), np.asarray(definition[2]))
    if definition[0] != "operation":
        raise _NotEvaluated
    _, name, operands = definition
    found = [np.asarray(_evaluate(domain, each, values)) for each in operands]
    if name in ("div.s32", "rem.s32", "div.u32", "rem.u32"):
        left, right = np.broadcast_arrays(*found)
        if (right == 0).any() or (name[-3] == "u" and ((left < 0).any() or (right < 0).any())):
            raise _NotEvaluated
        whole = _quotient(left, right)
        return whole if name.startswith("div") else left - whole * right
    if name in ("min.s32", "max.s32"):
        return (np.minimum if name.startswith("min") else np.maximum)(*found)
    raise _NotEvaluated


def _quotient(left: Any, right: Any) -> Any:
    whole = np.abs(left) // np.abs(right)
    return np.where((left < 0) != (right < 0), -whole, whole)
