"""Output coordinates, and the instances of a launch that are run side by side.

A block computes the elements at `extent * tile + offset`.  When such a sum first occurs, its product becomes a symbol
of its own, a coordinate, and the tile's index is expressed by it wherever that is exact.  `tile_function` then proves
that the kernel is a function of the coordinates alone, the same for every offset.  The proof compares instances of the
launch, which are rows of every hash: in row 0 every symbol is itself; in others a coordinate is larger by 1 or by 16,
a block coordinate has another name, or the names of two coordinates are exchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np

from bitwise_core.checker.parametric import polynomial as P
from bitwise_core.checker.parametric.polynomial import AtomTable, Monomial, Polynomial
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.values import hashing
from bitwise_core.numerics import modular

STRIDES = (1, 16)
"""By how much a coordinate is larger in its instances.  Masks may be for vectors of up to 16 elements."""
LARGEST_TILE = 1 << 14
TILE = "tile of a block"
"""The symbol for the tile of a persistent loop, and the axis by which it is renamed."""
EXTENT = "extent of the grid"
"""The axis by which the grid's extents are renamed, all together."""


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
    """A substitution in the instances: `kept` (0 or 1 for each row) times the symbol, plus another integer."""

    symbol: int
    kept: modular.Residue
    plus: Polynomial

    def applied(self, value: Polynomial, monomial: Monomial) -> Polynomial:
        """The polynomial with the symbol replaced in one of its monomials.  Raises Unsupported."""
        others = list(monomial)
        others.remove(self.symbol)
        if self.symbol in others:
            raise Unsupported("a symbol that differs between instances is squared")
        coefficient = value.terms[monomial]
        rest = {m: c for m, c in value.terms.items() if m != monomial}
        kept = modular.times(coefficient, self.kept, value.bits)
        base = Polynomial(value.bits, rest if modular.is_zero(kept) else {**rest, monomial: kept}, value.constant)
        other = P.resized(self.plus, value.bits) if value.bits < 64 else self.plus
        added = P.multiply_by_term(other, coefficient, tuple(others))
        if added is None:
            raise Unsupported("an index has too many terms")
        return P.add(base, added)


class Coordinates:
    """The coordinates found so far, and the rows of their instances."""

    def __init__(self, table: AtomTable, block_symbols: Sequence[str], slots: int, others: int = 0) -> None:
        self.table = table
        self.renaming = {name: 1 + index for index, name in enumerate(block_symbols)}
        self.first, self.slots = 1 + len(block_symbols), slots
        self.exchanged = self.first + slots * len(STRIDES)
        """The row in which the names of the first two coordinates are exchanged."""
        self.plain_names = (self.exchanged + 1, self.exchanged + 2)
        """The rows in which a block coordinate is named as output coordinate 0 (the others exchanged) or 1."""
        self.others = self.exchanged + 3
        self.rows = self.others + others
        self.environments: list[Environment] = []
        self.found: list[Coordinate] = []
        self.scaled: list[Coordinate] = []
        """Positions in loops, expressed by the elements of k before them."""
        self._leads: set[int] = set()
        self._symbols: dict[int, int] = {}

    def row(self, coordinate: Coordinate, stride: int) -> int:
        """The row in which a coordinate is larger by STRIDES[stride]."""
        return self.first + coordinate.index * len(STRIDES) + stride

    def noticed(self, value: Polynomial) -> Polynomial:
        """The polynomial rewritten; the start of a tile plus an offset inside the tile makes a new coordinate."""
        value = self.rewritten(value)
        if (
            value.bits == 32
            and len(self.found) < self.slots
            and not modular.is_zero(value.constant)
            and self._create(value)
        ):
            value = self.rewritten(value)
        return value

    def rewritten(self, value: Polynomial) -> Polynomial:
        """The polynomial with tile indices expressed by coordinates, wherever that is exact."""
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
                factor = modular.quotient(coefficient, coordinate.extent, value.bits)
                product = P.multiply_by_term(self._substitute(coordinate, value.bits), factor, tuple(others))
                if product is None:
                    return value
                rest = {m: c for m, c in value.terms.items() if m != monomial}
                value = P.add(Polynomial(value.bits, rest, value.constant), product)
        return value

    def _occurrence(self, value: Polynomial, coordinate: Coordinate) -> tuple[Monomial, modular.Residue] | None:
        for monomial, coefficient in value.terms.items():
            if coordinate.lead in monomial and modular.divisible(coefficient, coordinate.extent, value.bits):
                return monomial, coefficient
        return None

    def _substitute(self, coordinate: Coordinate, bits: int) -> Polynomial:
        """`extent * lead`: the symbol minus the other terms of its definition."""
        rest = {m: c for m, c in coordinate.definition.terms.items() if m != (coordinate.lead,)}
        other = Polynomial(32, rest, coordinate.definition.constant)
        moved = other if bits == 32 else P.widened(other, bits)
        assert moved is not None
        return P.subtract(Polynomial(bits, {(coordinate.symbol,): 1}), moved)

    def instanced(self, value: Polynomial) -> Polynomial:
        """The polynomial in every instance, by the environments.  For hashing only."""
        value = self.rewritten(value)
        for environment in self.environments:
            for monomial in [m for m in value.terms if environment.symbol in m]:
                value = environment.applied(value, monomial)
        return value

    def _create(self, value: Polynomial) -> bool:
        """Creates a coordinate for a sum of multiples of an extent in the block's coordinates, plus another offset.

        Of a sum over several axes of the grid one axis alone is used: a definition over two axes would not enumerate
        its tiles in the order of either.
        """
        terms = self._of_blocks(value)
        if terms is None:
            return False
        axes = [m for m in terms if len(m) == 1 and m[0] in self.table.block_symbols.values()]
        made = self._definition(terms, value.constant) if len(axes) < 2 else None
        if made is None:
            alone = [m for m in axes if abs(modular.signed(terms[m], 32)) > 1 and m[0] not in self._leads]
            least = min(alone, key=lambda m: abs(modular.signed(terms[m], 32)), default=None)
            made = None if least is None else self._definition({least: terms[least]}, value.constant)
        if made is None:
            return False
        definition, lead, extent = made
        index = len(self.found)
        words = np.repeat(hashing.constant(f"output coordinate {index}"), self.rows, axis=1)
        for row in (self.exchanged, self.plain_names[0]):
            words[:, row] = hashing.constant(f"output coordinate {self.name(index, True)}")[:, 0]
        symbol = self.table.atom(words, block=True, alignment=extent & -extent)
        if set(definition.atoms()) <= self.table.naturals and all(
            modular.signed(c, 32) >= 0 for c in definition.terms.values()
        ):
            self.table.naturals.add(symbol)
        self._symbols[symbol] = extent
        self.found.append(Coordinate(index, symbol, definition, lead, extent))
        self._leads.add(lead)
        shift = np.zeros((self.rows, 1), dtype=np.uint64)
        for stride, amount in enumerate(STRIDES):
            shift[self.row(self.found[-1], stride)] = amount
        self.environments.insert(0, Environment(symbol, 1, Polynomial(64, {}, shift)))
        return True

    def _of_blocks(self, value: Polynomial) -> dict[Monomial, int] | None:
        """The terms that depend on the block's coordinates; None where they differ between threads."""
        found: dict[Monomial, int] = {}
        for monomial, coefficient in value.terms.items():
            if any(self.table.atoms[number].block for number in monomial):
                if not isinstance(coefficient, int) or any(self._varies(number) for number in monomial):
                    return None
                found[monomial] = coefficient
        return found

    def _definition(self, terms: Mapping[Monomial, int], offset: modular.Residue) -> tuple[Polynomial, int, int] | None:
        """These terms as the start of a tile, with the atom of the tile's index and the extent of the tile; or None."""
        extent, lead = 0, None
        for monomial, coefficient in terms.items():
            number = modular.signed(coefficient, 32)
            extent = gcd(extent, number * self._multiple(monomial))
            if (
                len(monomial) == 1
                and monomial[0] not in self._symbols
                and (lead is None or abs(number) < abs(modular.signed(terms[(lead,)], 32)))
            ):
                lead = monomial[0]
        if lead is None or not 2 <= extent <= LARGEST_TILE or modular.divisible(offset, extent, 32):
            return None
        if modular.signed(terms[(lead,)], 32) == -extent:
            terms = {m: -c & 0xFFFFFFFF for m, c in terms.items()}
        definition = Polynomial(32, terms)
        if modular.signed(terms[(lead,)], 32) != extent or P.widened(definition, 64) is None:
            return None
        return definition, lead, extent

    @staticmethod
    def name(index: int, exchanged: bool) -> int:
        """The index by which a coordinate is named."""
        return 1 - index if exchanged and index < 2 else index

    def _multiple(self, monomial: Monomial) -> int:
        """The product of the extents of the coordinates in a monomial, which divides it."""
        found = 1
        for number in monomial:
            found *= self._symbols.get(number, 1)
        return found

    def _varies(self, number: int) -> bool:
        threads: int = self.table.atoms[number].words.shape[2]
        return threads > 1
