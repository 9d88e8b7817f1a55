"""Output coordinates, and the instances of a launch that are analysed together.

A block computes the elements at `extent * tile + offset`.  When such a sum first occurs, its product becomes a new
symbol, a coordinate, and the tile index is expressed by it wherever that is exact.  `tile_function` then proves that
the kernel is a function of the coordinates alone, which is the same for every offset.  The proof compares instances of
the launch, which are the rows of every hash.  In row 0 every symbol is itself.  In other rows a coordinate is larger by
1 or by 16, a block coordinate is renamed, or the names of two coordinates are exchanged.
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
"""The amounts that are added to a coordinate in its instances.  Masks may be for vectors of up to 16 elements."""
LARGEST_TILE = 1 << 14
_MOST_REPLACED = 64
"""How many monomials of a polynomial are expressed by one coordinate at most."""
TILE = "tile of a block"
"""The symbol of the tile of a persistent loop, and the axis by which it is renamed."""
EXTENT = "extent of the grid"
"""The axis by which all extents of the grid are renamed together."""


@dataclass(frozen=True, slots=True)
class Coordinate:
    """An output coordinate: `symbol` = `definition` = `extent` * `tile_index` + other terms.

    `tile_index` is the atom of the tile index, `extent` the number of elements of a tile.
    """

    index: int
    symbol: int
    definition: Polynomial
    tile_index: int
    extent: int


@dataclass(frozen=True, slots=True)
class Substitution:
    """A substitution for a symbol in each instance: `factor` (0 or 1 for each row) times the symbol, plus `addend`."""

    symbol: int
    factor: modular.Residue
    addend: Polynomial

    def apply(self, value: Polynomial, monomial: Monomial) -> Polynomial:
        """The polynomial with the symbol replaced in one of its monomials.  Raises Unsupported."""
        other_atoms = list(monomial)
        other_atoms.remove(self.symbol)
        if self.symbol in other_atoms:
            raise Unsupported("a symbol that differs between instances is squared")
        coefficient = value.terms[monomial]
        rest = {m: c for m, c in value.terms.items() if m != monomial}
        kept = modular.times(coefficient, self.factor, value.bits)
        base = Polynomial(value.bits, rest if modular.is_zero(kept) else {**rest, monomial: kept}, value.constant)
        other = P.truncated(self.addend, value.bits) if value.bits < 64 else self.addend
        added = P.multiply_by_term(other, coefficient, tuple(other_atoms))
        if added is None:
            raise Unsupported("an index has too many terms")
        return P.add(base, added)


class Coordinates:
    """The coordinates created so far, and the rows of their instances."""

    def __init__(
        self, table: AtomTable, block_symbols: Sequence[str], maximum_coordinates: int, loop_instances: int = 0
    ) -> None:
        self.table = table
        self.renaming = {name: 1 + index for index, name in enumerate(block_symbols)}
        self.first_stride_row, self.maximum_coordinates = 1 + len(block_symbols), maximum_coordinates
        self.exchanged = self.first_stride_row + maximum_coordinates * len(STRIDES)
        """The row in which the names of the first two coordinates are exchanged."""
        self.naming_rows = (self.exchanged + 1, self.exchanged + 2)
        """The rows in which a block coordinate has the name of output coordinate 0 (the others exchanged) or 1."""
        self.loop_rows = self.exchanged + 3
        self.rows = self.loop_rows + loop_instances
        self.substitutions: list[Substitution] = []
        self.created: list[Coordinate] = []
        self.loop_positions: list[Coordinate] = []
        """Positions in loops, expressed by the number of elements of k before them."""
        self._tile_indices: set[int] = set()
        self._extents: dict[int, int] = {}

    def row(self, coordinate: Coordinate, stride: int) -> int:
        """The row in which STRIDES[stride] is added to a coordinate."""
        return self.first_stride_row + coordinate.index * len(STRIDES) + stride

    def with_new_coordinate(self, value: Polynomial) -> Polynomial:
        """Rewrite a polynomial; the start of a tile plus an offset in the tile creates a new coordinate."""
        value = self.rewrite(value)
        if (
            value.bits == 32
            and len(self.created) < self.maximum_coordinates
            and not modular.is_zero(value.constant)
            and self._create_coordinate(value)
        ):
            value = self.rewrite(value)
        return value

    def rewrite(self, value: Polynomial) -> Polynomial:
        """Express tile indices in a polynomial by coordinates, wherever that is exact."""
        if not self._tile_indices and not self.loop_positions:
            return value
        for coordinate in (*self.created, *self.loop_positions):
            # A definition whose other terms have the tile index too brings it back; what is left is exact.
            for _ in range(_MOST_REPLACED):
                found = self._find_tile_index(value, coordinate)
                if found is None:
                    break
                monomial, coefficient = found
                other_atoms = list(monomial)
                other_atoms.remove(coordinate.tile_index)
                factor = modular.quotient(coefficient, coordinate.extent, value.bits)
                product = P.multiply_by_term(self._tile_start(coordinate, value.bits), factor, tuple(other_atoms))
                if product is None:
                    return value
                rest = {m: c for m, c in value.terms.items() if m != monomial}
                value = P.add(Polynomial(value.bits, rest, value.constant), product)
        return value

    def _find_tile_index(self, value: Polynomial, coordinate: Coordinate) -> tuple[Monomial, modular.Residue] | None:
        for monomial, coefficient in value.terms.items():
            if coordinate.tile_index in monomial and modular.divisible(coefficient, coordinate.extent, value.bits):
                return monomial, coefficient
        return None

    def _tile_start(self, coordinate: Coordinate, bits: int) -> Polynomial:
        """`extent * lead` as the symbol minus the other terms of its definition."""
        rest = {m: c for m, c in coordinate.definition.terms.items() if m != (coordinate.tile_index,)}
        other = Polynomial(32, rest, coordinate.definition.constant)
        moved = other if bits == 32 else P.widened(other, bits)
        assert moved is not None
        return P.subtract(Polynomial(bits, {(coordinate.symbol,): 1}), moved)

    def instantiate(self, value: Polynomial) -> Polynomial:
        """The polynomial with the substitutions of every instance; for hashing only."""
        value = self.rewrite(value)
        for environment in self.substitutions:
            for monomial in [m for m in value.terms if environment.symbol in m]:
                value = environment.apply(value, monomial)
        return value

    def _create_coordinate(self, value: Polynomial) -> bool:
        """Create a coordinate for a sum of multiples of an extent in block coordinates, plus an offset.

        Of a sum over several axes of the grid, only one axis is used: a definition over two axes would not enumerate
        its tiles in the order of either axis.
        """
        terms = self._block_terms(value)
        if terms is None:
            return False
        axes = [m for m in terms if len(m) == 1 and m[0] in self.table.block_symbols.values()]
        made = self._tile_definition(terms, value.constant) if len(axes) < 2 else None
        if made is None:
            alone = [m for m in axes if abs(modular.signed(terms[m], 32)) > 1 and m[0] not in self._tile_indices]
            least = min(alone, key=lambda m: abs(modular.signed(terms[m], 32)), default=None)
            made = None if least is None else self._tile_definition({least: terms[least]}, value.constant)
        if made is None:
            return False
        definition, tile_index, extent = made
        index = len(self.created)
        words = np.repeat(hashing.constant(f"output coordinate {index}"), self.rows, axis=1)
        for row in (self.exchanged, self.naming_rows[0]):
            words[:, row] = hashing.constant(f"output coordinate {self.name(index, True)}")[:, 0]
        symbol = self.table.atom(words, block=True, alignment=extent & -extent)
        if set(definition.atoms()) <= self.table.nonnegative_atoms and all(
            modular.signed(c, 32) >= 0 for c in definition.terms.values()
        ):
            self.table.nonnegative_atoms.add(symbol)
        self._extents[symbol] = extent
        self.created.append(Coordinate(index, symbol, definition, tile_index, extent))
        self._tile_indices.add(tile_index)
        shift = np.zeros((self.rows, 1), dtype=np.uint64)
        for stride, amount in enumerate(STRIDES):
            shift[self.row(self.created[-1], stride)] = amount
        self.substitutions.insert(0, Substitution(symbol, 1, Polynomial(64, {}, shift)))
        return True

    def _block_terms(self, value: Polynomial) -> dict[Monomial, int] | None:
        """The terms that depend on block coordinates; None where they differ between threads."""
        found: dict[Monomial, int] = {}
        for monomial, coefficient in value.terms.items():
            if any(self.table.atoms[number].block for number in monomial):
                if not isinstance(coefficient, int) or any(self._varies_between_threads(number) for number in monomial):
                    return None
                found[monomial] = coefficient
        return found

    def _tile_definition(
        self, terms: Mapping[Monomial, int], offset: modular.Residue
    ) -> tuple[Polynomial, int, int] | None:
        """These terms as the start of a tile, with the atom of the tile index and the extent of the tile; or None."""
        extent, tile_index = 0, None
        for monomial, coefficient in terms.items():
            number = modular.signed(coefficient, 32)
            extent = gcd(extent, number * self._known_divisor(monomial))
            if (
                len(monomial) == 1
                and monomial[0] not in self._extents
                and (tile_index is None or abs(number) < abs(modular.signed(terms[(tile_index,)], 32)))
            ):
                tile_index = monomial[0]
        if tile_index is None or not 2 <= extent <= LARGEST_TILE or modular.divisible(offset, extent, 32):
            return None
        if modular.signed(terms[(tile_index,)], 32) == -extent:
            terms = {m: -c & 0xFFFFFFFF for m, c in terms.items()}
        definition = Polynomial(32, terms)
        if modular.signed(terms[(tile_index,)], 32) != extent or P.widened(definition, 64) is None:
            return None
        return definition, tile_index, extent

    @staticmethod
    def name(index: int, exchanged: bool) -> int:
        """The index in the name of a coordinate; `exchanged` swaps 0 and 1."""
        return 1 - index if exchanged and index < 2 else index

    def _known_divisor(self, monomial: Monomial) -> int:
        """The product of the extents of the coordinates in a monomial, which divides the monomial."""
        divisor = 1
        for number in monomial:
            divisor *= self._extents.get(number, 1)
        return divisor

    def _varies_between_threads(self, number: int) -> bool:
        threads: int = self.table.atoms[number].words.shape[2]
        return threads > 1
