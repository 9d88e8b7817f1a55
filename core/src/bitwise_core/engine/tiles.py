"""Output coordinates: what a tile's number times its extent plus an offset inside the tile stands for.

A block computes the elements `extent * number + offset`.  As soon as such a sum is met, the product becomes a symbol of
its own, a coordinate, and the block's number is expressed through it wherever that is exact.  Whether the kernel is a
function of the coordinates alone, the same for every offset, is then proved by running instances of the launch
side by side: one in which the coordinate is larger by 1 (or by 16), and one in which the block's number has another
name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np

from bitwise_core.engine import polynomial as P
from bitwise_core.engine.numbering import LARGEST, reaches_all
from bitwise_core.engine.polynomial import Monomial, Polynomial
from bitwise_core.machine import hashing
from bitwise_core.machine.domain import Unreadable

if TYPE_CHECKING:
    from bitwise_core.engine.symbolic_domain import SymbolicDomain

STRIDES = (1, 16)
"""By how much a coordinate is larger in its instances: elements may be masked in vectors of up to 16."""
LARGEST_TILE = 1 << 14
EXTENT = "extent of the grid"
"""The name under which the grid's extents, along all axes, are renamed together."""


@dataclass(frozen=True, slots=True)
class Coordinate:
    """`symbol` = `definition` = `extent` * `lead` + the rest."""

    index: int
    symbol: int
    definition: Polynomial
    lead: int
    extent: int


@dataclass(frozen=True, slots=True)
class Environment:
    """What a symbol is in the instances: `kept` times itself (0 or 1 a row) plus another integer."""

    symbol: int
    kept: P.Coefficient
    plus: Polynomial

    def applied(self, value: Polynomial, monomial: Monomial) -> Polynomial:
        """The polynomial with the symbol replaced in one of its monomials."""
        others = list(monomial)
        others.remove(self.symbol)
        if self.symbol in others:
            raise Unreadable("a symbol that differs between instances is squared")
        coefficient = value.terms[monomial]
        rest = {m: c for m, c in value.terms.items() if m != monomial}
        kept = P.times(coefficient, self.kept, value.bits)
        base = Polynomial(value.bits, rest if P.is_zero(kept) else {**rest, monomial: kept}, value.constant)
        other = P.resized(self.plus, value.bits) if value.bits < 64 else self.plus
        added = (
            P.multiply(other, Polynomial(value.bits, {tuple(others): coefficient}))
            if others
            else P.scale(other, coefficient)
        )
        if added is None:
            raise Unreadable("an index has too many terms")
        return P.add(base, added)


class Coordinates:
    """The coordinates met so far, and the instances (rows) that belong to them."""

    def __init__(self, block_symbols: Sequence[str], slots: int, others: int = 0) -> None:
        self.renaming = {name: 1 + index for index, name in enumerate(block_symbols)}
        self.first, self.slots = 1 + len(block_symbols), slots
        self.exchanged = self.first + slots * len(STRIDES)
        """The instance in which the first two coordinates have each other's names."""
        self.plain_names = (self.exchanged + 1, self.exchanged + 2)
        """The instances in which a block symbol itself is named as coordinate 0 (the others exchanged) or 1."""
        self.others = self.exchanged + 3
        self.rows = self.others + others
        self.environments: list[Environment] = []
        self.found: list[Coordinate] = []
        self.scaled: list[Coordinate] = []
        """Positions in loops, expressed through the elements that a turn goes through."""
        self._leads: set[int] = set()
        self._symbols: dict[int, int] = {}

    def attach(self, domain: SymbolicDomain) -> None:
        """The domain whose atoms the coordinates are made of."""
        self.domain = domain

    def row(self, coordinate: Coordinate, stride: int) -> int:
        """The instance in which a coordinate is larger by STRIDES[stride]."""
        return self.first + coordinate.index * len(STRIDES) + stride

    def noticed(self, value: Polynomial) -> Polynomial:
        """The polynomial rewritten; a tile's start plus an offset inside the tile makes a new coordinate."""
        value = self.rewritten(value)
        if value.bits == 32 and len(self.found) < self.slots and not P.is_zero(value.constant) and self._create(value):
            value = self.rewritten(value)
        return value

    def rewritten(self, value: Polynomial) -> Polynomial:
        """Tile numbers expressed through coordinates, wherever that is exact."""
        if not self._leads and not self.scaled:
            return value
        for coordinate in (*self.found, *self.scaled):
            while True:
                found = self._occurrence(value, coordinate)
                if found is None:
                    break
                monomial, coefficient = found
                others = list(monomial)
                others.remove(coordinate.lead)
                factor = P.quotient(coefficient, coordinate.extent, value.bits)
                replaced = self._substitute(coordinate, value.bits)
                product = (
                    P.multiply(replaced, Polynomial(value.bits, {tuple(others): factor}))
                    if others
                    else P.scale(replaced, factor)
                )
                if product is None:
                    return value
                rest = {m: c for m, c in value.terms.items() if m != monomial}
                value = P.add(Polynomial(value.bits, rest, value.constant), product)
        return value

    def _occurrence(self, value: Polynomial, coordinate: Coordinate) -> tuple[Monomial, P.Coefficient] | None:
        for monomial, coefficient in value.terms.items():
            if coordinate.lead in monomial and P.divisible(coefficient, coordinate.extent, value.bits):
                return monomial, coefficient
        return None

    def _substitute(self, coordinate: Coordinate, bits: int) -> Polynomial:
        """extent * lead: the symbol less the definition's other terms."""
        rest = {m: c for m, c in coordinate.definition.terms.items() if m != (coordinate.lead,)}
        other = Polynomial(32, rest, coordinate.definition.constant)
        moved = other if bits == 32 else P.widened(other, bits)
        assert moved is not None
        return P.subtract(Polynomial(bits, {(coordinate.symbol,): 1}), moved)

    def instanced(self, value: Polynomial) -> Polynomial:
        """The polynomial in every instance: each symbol as its environments say.  For hashing only."""
        value = self.rewritten(value)
        for environment in self.environments:
            for monomial in [m for m in value.terms if environment.symbol in m]:
                value = environment.applied(value, monomial)
        return value

    def _create(self, value: Polynomial) -> bool:
        """A sum of multiples of some extent in the block's coordinates, and an offset that is none."""
        atoms = self.domain.atoms
        extent, lead, terms = 0, None, {}
        for monomial, coefficient in value.terms.items():
            if not any(atoms[number].block for number in monomial):
                continue
            if not isinstance(coefficient, int) or any(self._varies(number) for number in monomial):
                return False
            number = P.signed(coefficient, 32)
            extent = gcd(extent, number * self._multiple(monomial))
            terms[monomial] = coefficient
            if (
                len(monomial) == 1
                and monomial[0] not in self._symbols
                and (lead is None or abs(number) < abs(P.signed(terms[(lead,)], 32)))
            ):
                lead = monomial[0]
        if lead is None or not 2 <= extent <= LARGEST_TILE or P.divisible(value.constant, extent, 32):
            return False
        if P.signed(terms[(lead,)], 32) == -extent:
            terms = {m: -c & 0xFFFFFFFF for m, c in terms.items()}
        definition = Polynomial(32, terms)
        if P.signed(terms[(lead,)], 32) != extent or P.widened(definition, 64) is None:
            return False
        index = len(self.found)
        words = np.repeat(hashing.constant(f"output coordinate {index}"), self.rows, axis=1)
        for row in (self.exchanged, self.plain_names[0]):
            words[:, row] = hashing.constant(f"output coordinate {self.name(index, True)}")[:, 0]
        symbol = self.domain.atom(words, block=True, alignment=extent & -extent)
        self._symbols[symbol] = extent
        self.found.append(Coordinate(index, symbol, definition, lead, extent))
        self._leads.add(lead)
        shift = np.zeros((self.rows, 1), dtype=np.uint64)
        for stride, amount in enumerate(STRIDES):
            shift[self.row(self.found[-1], stride)] = amount
        self.environments.insert(0, Environment(symbol, 1, Polynomial(64, {}, shift)))
        return True

    @staticmethod
    def name(index: int, exchanged: bool) -> int:
        """The number by which a coordinate is named."""
        return 1 - index if exchanged and index < 2 else index

    def _multiple(self, monomial: Monomial) -> int:
        """What the coordinates in a monomial are multiples of."""
        found = 1
        for number in monomial:
            found *= self._symbols.get(number, 1)
        return found

    def _varies(self, number: int) -> bool:
        threads: int = self.domain.atoms[number].words.shape[2]
        return threads > 1


@dataclass(frozen=True, slots=True)
class Elements:
    """What a block stores: hashes (2, rows, elements) of address, condition and value together, and of addresses."""

    whole: hashing.Words
    address: hashing.Words


def signature_of(elements: Elements, coordinates: Coordinates) -> tuple[hashing.Words, tuple[str, ...]]:
    """The hash of the function from output coordinates to stored values, and what it says of tiles.

    A coordinate whose instances prove that every offset of the tile holds the same function of it drops out with its
    extent.  Any other stays tied to its definition.
    """
    keys, first = _distinct(elements.whole[:, 0])
    whole, address = elements.whole[:, :, first], elements.address[:, :, first]
    renamed = {name: bool((whole[:, row] != whole[:, 0]).any()) for name, row in coordinates.renaming.items()}
    free: dict[int, tuple[int | None, Any]] = {}
    for coordinate in coordinates.found:
        steps = _steps(whole, address, keys, coordinate, coordinates)
        if steps is not None:
            free[coordinate.index] = steps
    _untie_numberings(free, coordinates)
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
    variants = [_total(whole, starts, coordinates, free, row, exchanged, alone) for row, exchanged in rows]
    return min(variants, key=lambda words: words.tobytes()), tuple(notes)


def _lone_symbol(
    whole: hashing.Words,
    address: hashing.Words,
    coordinates: Coordinates,
    free: Mapping[int, tuple[int | None, Any]],
    renamed: Mapping[str, bool],
) -> str | None:
    """The one block symbol that is a coordinate itself, in tiles of one element, beside at most one free coordinate."""
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


def _untie_numberings(free: dict[int, tuple[int | None, Any]], coordinates: Coordinates) -> None:
    """Coordinates whose block numbers do not go through all tiles once are not free."""
    by_axes: dict[frozenset[str], list[Coordinate]] = {}
    for coordinate in coordinates.found:
        by_axes.setdefault(frozenset(_axes(coordinate, coordinates)), []).append(coordinate)
    for axes, group in by_axes.items():
        block = coordinates.domain.block_symbols.get(next(iter(axes))) if len(axes) == 1 else None
        if block is None or not reaches_all(coordinates.domain, group, block):
            for coordinate in group:
                free.pop(coordinate.index, None)


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
            definition = P.words(coordinates.domain.atoms, coordinate.definition)
            definition = definition[:, min(row, definition.shape[1] - 1)][:, None]
            total = total + hashing.finalise(definition + hashing.constant(f"coordinate {name} is"))
    if alone is not None:
        total = total + hashing.constant(f"coordinate {0 if exchanged else 1} by {STRIDES[0]}")
    chosen = whole[:, row, starts]
    members = hashing.finalise(chosen[:, :, None] * hashing.multiplier(41) + hashing.constant("stored element"))
    return hashing.finalise(total + members.sum(axis=1, dtype=np.uint64)[:, :, None])


def _axes(coordinate: Coordinate, coordinates: Coordinates) -> set[str]:
    """The block symbols that a coordinate's definition depends on."""
    words = P.words(coordinates.domain.atoms, coordinate.definition)
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
