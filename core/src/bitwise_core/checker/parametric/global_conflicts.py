"""Whether the threads and blocks of every launch store at different addresses, or equal values.

The address of a stored element is a polynomial.  Its terms are grouped by their products of scalar arguments, which are
the strides of the buffer: the remaining factors of each group are one index of the element.  Elements with different
indices have different addresses, by the assumption that the signature names.  If two blocks store at one address, their
indices are therefore equal.  An index that is a multiple of one block coordinate plus an offset determines the
coordinate, if no two offsets differ by a multiple of the factor.  The coordinates that are determined in this way
include all on which the stored values depend, or the kernel is rejected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import gcd
from typing import Any, TypeAlias

import numpy as np

from bitwise_core.checker.parametric.accessed_elements import LoadedElement, StoredElement
from bitwise_core.checker.parametric.atom_bounds import AtomBounds, as_numbers
from bitwise_core.checker.parametric.coordinates import EXTENT, STRIDES, TILE, Coordinate
from bitwise_core.checker.parametric.integers import ParametricIntegers
from bitwise_core.checker.parametric.polynomial import Monomial, Polynomial
from bitwise_core.checker.parametric.tile_enumeration import are_distinct_tiles, enumerates_all_tiles
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.time_limit import check_time
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values.distinct import sorted_distinct
from bitwise_core.execution.values.symbolic_vector import Array
from bitwise_core.numerics import modular

NOT_DETERMINED = "the result is not proved to be determined"
ONE_BLOCK_ALONG_OTHER_AXES = "a grid has one block along each axis that a kernel which updates a buffer does not use"


MAXIMUM_VALUES = 1 << 20
"""The largest number of values of an index that are enumerated."""

_PIECE = np.uint64(0x9E3779B97F4A7C15)
"""The factor by which the hashes of the pieces of one element differ."""

Strides: TypeAlias = Monomial
"""A product of scalar arguments."""


@dataclass(frozen=True, slots=True)
class _Address:
    """An address by strides: the terms in block coordinates, and the offsets of the threads."""

    blocks: Mapping[Strides, Mapping[Monomial, int]]
    offsets: Mapping[Strides, Array]


@dataclass(slots=True)
class _Equation:
    """A sum of terms in block coordinates, plus one of several offsets, that is equal for two blocks."""

    terms: Mapping[Monomial, int]
    offsets: Array = field(default_factory=lambda: np.zeros(1, dtype=np.int64))


def check_conflicts(
    stored: Sequence[StoredElement], loaded: Sequence[LoadedElement], integers: ParametricIntegers
) -> tuple[str, ...]:
    """Check that the elements of every buffer have one value at the end of every launch.

    Returns the notes of the assumptions.  Raises Unsupported with the line of a store where it is not proved.
    """
    notes: dict[str, None] = {}
    for pointer in dict.fromkeys(each.pointer for each in stored):
        stores = [each for each in stored if each.pointer == pointer]
        loads = [each for each in loaded if each.pointer == pointer]
        if any(each.operation != "store" for each in stores):
            if loads:
                raise Unsupported("a buffer that atomic operations change is read", loads[0].line)
            continue
        check = _BufferCheck(integers, stores, loads)
        check.check()
        notes.update(check.notes)
        if loads:
            notes[ONE_BLOCK_ALONG_OTHER_AXES] = None
    return tuple(notes)


class _BufferCheck:
    """The check of one buffer."""

    def __init__(
        self, integers: ParametricIntegers, stores: Sequence[StoredElement], loads: Sequence[LoadedElement]
    ) -> None:
        self.integers, self.table, self.loads = integers, integers.table, loads
        self.coordinates = integers.coordinates
        self.bounds = AtomBounds(integers)
        self.stores = [self.bounds.possible(each) for each in stores]
        self.accesses: tuple[StoredElement | LoadedElement, ...] = (*self.stores, *loads)
        self.line = stores[-1].line
        self.notes: dict[str, None] = {}
        """The assumptions about the extents of the grid."""
        self.granule = 0
        for each in self.accesses:
            self.granule = gcd(self.granule, each.bits // 8)
        if not self.granule:
            raise self._fail("an element of less than a byte is stored")

    def _fail(self, reason: str, line: int | None = None) -> Unsupported:
        return Unsupported(f"{NOT_DETERMINED}: {reason}", line or self.line)

    def check(self) -> None:
        """Raise Unsupported unless every element has one value."""
        accesses = [self._split(each) for each in self.accesses]
        blocks = accesses[0].blocks
        for access, each in zip(accesses, self.accesses, strict=True):
            check_time(each.line)
            if dict(access.blocks) != dict(blocks):
                raise self._fail("the accesses to one buffer depend on the block in different ways", each.line)
        places = np.concatenate([_offsets(each, ()).ravel() for each in accesses])
        if ((places - places[:1]) % self.granule).any():
            raise self._fail("elements at one buffer may overlap in part")
        strides = sorted({key for each in accesses for key in (*each.blocks, *each.offsets)})
        equations = [
            _Equation(
                blocks.get(key, {}), sorted_distinct(np.concatenate([_offsets(each, key).ravel() for each in accesses]))
            )
            for key in strides
        ]
        determined = self._determined(equations, self._zeros())
        for assumed in (False, True):
            for key in strides:
                bounded = self._bounded(accesses, key, determined, assumed)
                if bounded:
                    determined = self._determined(equations, determined | bounded)
        if not all(self._is_known(monomial, determined) for terms in blocks.values() for monomial in terms):
            raise self._fail("blocks may store different values at one address")
        if self._check_dependence(determined):
            self._check_contents(accesses[: len(self.stores)], strides)
        self._check_threads(accesses, strides)

    # -- addresses ----------------------------------------------------------------------------------------------------

    def _split(self, access: StoredElement | LoadedElement) -> _Address:
        """The address by strides; elements wider than the granule have several offsets in each thread."""
        value = self.coordinates.rewrite(access.address)
        blocks: dict[Strides, dict[Monomial, int]] = {}
        offsets: dict[Strides, Array] = {}
        count = access.threads.size
        parts = access.bits // 8 // self.granule
        check_time(access.line)
        pieces = np.tile(np.arange(parts, dtype=np.int64) * self.granule, count)
        for monomial, coefficient in (*value.terms.items(), ((), value.constant)):
            if any(self.table.atoms[number].pointer is not None for number in monomial):
                if len(monomial) > 1:
                    raise self._fail("an address is a multiple of a pointer", access.line)
                continue
            numbers = np.asarray(modular.signed(coefficient, value.bits), dtype=np.int64)
            numbers = np.atleast_2d(numbers)[0]
            numbers = numbers[access.threads] if numbers.size > 1 else np.broadcast_to(numbers, count)
            if monomial and (numbers % self.granule).any():
                raise self._fail("elements of different widths may overlap", access.line)
            strides, rest = self._factors(monomial, access.line)
            if not rest:
                own = np.repeat(numbers, parts) + (pieces if not monomial else 0)
                offsets[strides] = offsets[strides] + own if strides in offsets else own
                continue
            if not count:
                continue
            if (numbers != numbers[0]).any():
                raise self._fail("the dependence of an address on the block differs between threads", access.line)
            terms = blocks.setdefault(strides, {})
            terms[rest] = terms.get(rest, 0) + int(numbers[0])
        return _Address(blocks, offsets)

    def _factors(self, monomial: Monomial, line: int) -> tuple[Strides, Monomial]:
        """The scalar factors and the other factors of a term.

        Scalars on which the block-dependent factors depend by their definitions belong to the other factors.
        """
        kinds = {number: self._is_scalar(number, line) for number in monomial}
        scalars = tuple(number for number in monomial if kinds[number])
        rest = tuple(number for number in monomial if not kinds[number])
        used = set().union(*(self._operands(number) for number in rest))
        kept = tuple(number for number in scalars if number not in used)
        return kept, tuple(sorted((*rest, *(number for number in scalars if number in used)))) if rest else ()

    def _is_scalar(self, number: int, line: int) -> bool:
        """Whether an atom is the same in all blocks; False for one that depends on the block alone."""
        atom = self.table.atoms[number]
        if atom.words.shape[2] > 1:
            raise self._fail("an address is not affine in the thread", line)
        leaves = self._leaves(number)
        if leaves <= self.table.launch_atoms:
            return True
        if leaves <= self.table.launch_atoms | self._block_atoms():
            return False
        raise self._fail("an address depends on data", line)

    def _block_atoms(self) -> set[int]:
        coordinates = (each.symbol for each in self.coordinates.created)
        return {*self.table.block_symbols.values(), *self.table.iteration_atoms, *coordinates}

    def _leaves(self, number: int) -> set[int]:
        """The atoms without a definition on which an atom depends."""
        definition = self.table.atoms[number].definition
        if definition is None:
            return {number}
        return set().union(*(self._leaves(each) for value in _operands(definition) for each in value.atoms()))

    def _operands(self, number: int) -> set[int]:
        """All atoms on which an atom with a definition depends; for coordinates and block symbols none."""
        definition = self.table.atoms[number].definition
        if definition is None:
            return set()
        own = {each for value in _operands(definition) for each in value.atoms()}
        return own.union(*(self._operands(each) for each in own))

    # -- blocks -------------------------------------------------------------------------------------------------------

    def _determined(self, equations: list[_Equation], known: set[int]) -> set[int]:
        """The block-dependent atoms that are equal in two blocks for which these equations hold, and `known` ones."""
        known, used = set(known), set[int]()
        changed = True
        while changed:
            changed = False
            for equation in equations:
                unknown = [m for m in equation.terms if not self._is_known(m, known)]
                if len(unknown) == 1 and len(unknown[0]) == 1 and self._separates(equation, unknown[0]):
                    known.add(unknown[0][0])
                    changed = True
            for coordinate in self.coordinates.created:
                if coordinate.symbol in known and coordinate.symbol not in used:
                    used.add(coordinate.symbol)
                    equations.append(_Equation(as_numbers(coordinate.definition)))
                    changed = True
                if coordinate.symbol not in known and self._is_known(tuple(coordinate.definition.atoms()), known):
                    known.add(coordinate.symbol)
                    changed = True
            changed = self._divisions(known, used, equations) or changed
            changed = self._enumerations(known) or changed
        return known

    def _is_known(self, monomial: Monomial, known: set[int]) -> bool:
        return all(number in known or self._leaves(number) <= self.table.launch_atoms for number in monomial)

    def _separates(self, equation: _Equation, unknown: Monomial) -> bool:
        """Whether equal sums have equal values of the unknown atom: no two offsets differ by a multiple of its term.

        A coordinate is a multiple of the extent of its tiles.
        """
        extents = {each.symbol: each.extent for each in self.coordinates.created}
        factor = abs(equation.terms[unknown]) * extents.get(unknown[0], 1)
        offsets = sorted_distinct(equation.offsets)
        return factor != 0 and len(sorted_distinct(offsets % factor)) == len(offsets)

    def _bounded(self, accesses: Sequence[_Address], strides: Strides, known: set[int], assumed: bool) -> set[int]:
        """The unknown atoms of one index, if conditions bound all of them but one, and all values differ.

        `assumed`: block coordinates that no condition bounds are bounded by assumption, see `_assumed_bounds`.
        """
        terms = accesses[0].blocks.get(strides, {})
        unknown = [monomial for monomial in terms if not self._is_known(monomial, known)]
        if len(unknown) < 2 or any(len(monomial) != 1 for monomial in unknown) or self.loads:
            return set()
        atoms = [monomial[0] for monomial in unknown]
        bounds = {number: [self.bounds.upper_bound(number, each) for each in self.stores] for number in atoms}
        free = [number for number in atoms if any(each is None for each in bounds[number])]
        extents = {each.symbol: each.extent for each in self.coordinates.created}
        steps = {number: terms[(number,)] * extents.get(number, 1) for number in free}
        limits = self._assumed_bounds(steps) if assumed else {}
        for number, limit in limits.items():
            bounds[number] = [np.full(each.threads.size, limit) for each in self.stores]
        free = [number for number in free if number not in limits]
        if len(free) > 1:
            return set()
        found = []
        for place, (access, each) in enumerate(zip(accesses, self.stores, strict=True)):
            parts = each.bits // 8 // self.granule
            columns = [np.broadcast_to(_offsets(access, strides), each.threads.size * parts)]
            lanes = np.arange(each.threads.size * parts)
            for number in atoms:
                bound = bounds[number][place]
                if number in free or bound is None:
                    continue
                extent = extents.get(number, 1)
                counts = np.maximum(np.repeat(bound, parts)[lanes] // extent + 1, 0)
                total = int(counts.sum())
                if total > MAXIMUM_VALUES:
                    return set()
                first = np.repeat(np.cumsum(counts) - counts, counts)
                lanes = np.repeat(lanes, counts)
                columns = [np.repeat(column, counts) for column in columns]
                columns.append((np.arange(total) - first) * extent)
            found.append(np.stack(columns, axis=1))
        rows = np.unique(np.concatenate(found), axis=0)
        factors = [1, *(terms[(number,)] for number in atoms if number not in free)]
        sums = rows @ np.array(factors, dtype=np.int64)
        if free:
            sums = sums % abs(terms[(free[0],)] * extents.get(free[0], 1))
        if len(sorted_distinct(sums)) != len(sums):
            return set()
        axes = self._axes()
        for number, limit in limits.items():
            count = limit // extents.get(number, 1) + 1
            self.notes[f"{axes[number]} is less than {count}"] = None
        return set(atoms)

    def _assumed_bounds(self, steps: Mapping[int, int]) -> dict[int, int]:
        """The largest values of these atoms, by their steps in an index; the atom of the largest step has none.

        All others number the blocks along an axis of the grid, or there are no bounds.  The step of an axis is a
        multiple of that of the axis before it, by the number of blocks along that axis.  If a grid has more blocks
        along it, blocks store at the elements of other blocks.
        """
        axes, extents = self._axes(), {each.symbol: each.extent for each in self.coordinates.created}
        order = sorted(steps, key=lambda number: steps[number])
        found = {}
        for inner, outer in pairwise(order):
            count, rest = divmod(steps[outer], steps[inner]) if steps[inner] > 0 else (0, 1)
            if rest or count < 2 or inner not in axes:
                return {}
            found[inner] = (count - 1) * extents.get(inner, 1)
        return found

    def _axes(self) -> dict[int, str]:
        """The names of the axes of the grid: of their block coordinates, and of the multiples that are coordinates."""
        symbols = self.table.block_symbols.items()
        axes = {
            each: name for name, each in symbols if name in self.coordinates.renaming and name not in (EXTENT, TILE)
        }
        for each in self.coordinates.created:
            definition = each.definition
            if definition.constant == 0 and definition.terms == {(each.tile_index,): each.extent}:
                axes.update({each.symbol: axes[each.tile_index]} if each.tile_index in axes else {})
        return axes

    def _zeros(self) -> set[int]:
        """The coordinates that are 0 wherever an element is stored."""
        found = set()
        for each in self.coordinates.created:
            bounds = [self.bounds.upper_bound(each.symbol, store) for store in self.stores]
            if not self.loads and all(bound is not None and (bound < each.extent).all() for bound in bounds):
                found.add(each.symbol)
        return found

    def _divisions(self, known: set[int], used: set[int], equations: list[_Equation]) -> bool:
        """Add the operand of a quotient and a remainder that are both known."""
        found: dict[tuple[str, int], Polynomial] = {}
        changed = False
        for number in known - used:
            definition = self.table.atoms[number].definition
            if definition is None or definition[0] != "operation" or definition[1][:4] not in ("div.", "rem."):
                continue
            key = definition[1][4:]
            for other in known:
                pair = self.table.atoms[other].definition
                opposite = {"div.": "rem.", "rem.": "div."}[definition[1][:4]] + key
                if pair is None or pair[0] != "operation" or pair[1] != opposite:
                    continue
                if all(self.integers.equal(a, b) for a, b in zip(definition[2], pair[2], strict=True)) and all(
                    self._is_known((each,), set()) for each in definition[2][1].atoms()
                ):
                    found[(key, number)] = definition[2][0]
                    used.add(number)
        for value in found.values():
            if all(isinstance(each, int) for each in value.terms.values()):
                equations.append(_Equation(as_numbers(value)))
                changed = True
        return changed

    def _enumerations(self, known: set[int]) -> bool:
        """Add a block symbol whose tile coordinates are all known and enumerate the tiles, each once."""
        changed = False
        for block in self.table.block_symbols.values():
            if block in known or block in self.table.launch_atoms:
                continue
            group = [each for each in self.coordinates.created if block in self._all_symbols(each)]
            if not group or not all(each.symbol in known for each in group):
                continue
            largest = None if self.loads else self._largest_block(block, group)
            if enumerates_all_tiles(self.integers, group, block) is not None or (
                largest is not None
                and are_distinct_tiles(self.integers, group, self._functions_of(block, known), block, largest)
            ):
                known.add(block)
                changed = True
        return changed

    def _functions_of(self, block: int, atoms: set[int]) -> list[int]:
        """The atoms, among these, that are operations on the block coordinate alone."""
        own = {each.symbol for each in self.coordinates.created} | {block}
        return [each for each in sorted(atoms - own) if self._leaves(each) == {block}]

    def _largest_block(self, block: int, group: Sequence[Coordinate]) -> int | None:
        """The largest block coordinate for which an element is stored, by the bounds of the terms of coordinates.

        Such a term is the coordinate itself, its upper bits, or a multiple of these.
        """
        found: int | None = None
        for atom in {number for each in group for number in each.definition.atoms()}:
            bounds = [self.bounds.upper_bound(atom, store) for store in self.stores]
            limit = max((int(each.max(initial=-1)) for each in bounds if each is not None), default=-1)
            own = None if any(each is None for each in bounds) else self.bounds.largest_operand(atom, limit, block)
            if own is not None:
                found = own if found is None else min(found, own)
        return found if found is not None and found < MAXIMUM_VALUES else None

    def _all_symbols(self, coordinate: Coordinate) -> set[int]:
        own = set().union(*(self._leaves(each) for each in coordinate.definition.atoms()))
        nested = [each for each in self.coordinates.created if each.symbol in own and each is not coordinate]
        return own.union(*(self._all_symbols(each) for each in nested))

    def _check_dependence(self, known: set[int]) -> bool:
        """Check that the stored values depend on determined coordinates only; where data is updated, on all axes.

        Return whether it depends on other coordinates where elements are stored.
        """
        depends = False
        for name, row in self.coordinates.renaming.items():
            block = self.table.block_symbols.get(name)
            if name == EXTENT or block is None or block in known:
                continue
            if self.loads and block in self._used_symbols():
                raise self._fail(f"blocks that differ in {name} may update one element", self.loads[-1].line)
            for each in self.stores:
                if _changes(each.value, row):
                    raise self._fail(f"blocks that differ in {name} may store different values at one address")
                depends |= _changes(each.element, row)
        for each in self.stores:
            if not set(each.iterations) <= known:
                raise self._fail("iterations of a loop may store different values at one address", each.line)
        for coordinate in self.coordinates.created:
            if coordinate.symbol in known:
                continue
            for each in self.stores:
                for stride in range(len(STRIDES)):
                    row = self.coordinates.row(coordinate, stride)
                    if _changes(each.value, row):
                        raise self._fail("blocks may store different values at one address", each.line)
                    depends |= _changes(each.element, row)
        return depends

    def _check_contents(self, accesses: Sequence[_Address], strides: Sequence[Strides]) -> None:
        """Check that all stores to an element have one content, since blocks decide which of them are executed."""
        if len({each.bits for each in self.stores}) > 1:
            raise self._fail("blocks may store different values at one address")
        rows, hashes = [], []
        for access, each in zip(accesses, self.stores, strict=True):
            parts = each.bits // 8 // self.granule
            offsets = [np.broadcast_to(_offsets(access, key), each.threads.size * parts)[::parts] for key in strides]
            rows.append(np.stack([*offsets, np.zeros(each.threads.size, dtype=np.int64)], axis=1))
            hashes.append(np.broadcast_to(each.value[:, 0], (2, each.threads.size)))
        content = np.concatenate(hashes, axis=1)
        _, first, place = np.unique(np.concatenate(rows), axis=0, return_index=True, return_inverse=True)
        if (content != content[:, first[place.ravel()]]).any():
            raise self._fail("blocks may store different values at one address")

    def _used_symbols(self) -> set[int]:
        return set(self.table.block_symbols.values()) - self.table.launch_atoms

    # -- threads ------------------------------------------------------------------------------------------------------

    def _check_threads(self, accesses: Sequence[_Address], strides: Sequence[Strides]) -> None:
        """Check that the threads of one block store equal values at one address, and update their own elements."""
        count = len(self.stores)
        if not self.loads and len({each.bits for each in self.stores}) == 1:
            return  # equal addresses have equal hashes, which the memory compares
        rows, owners, hashes = [], [], []
        for access, each in zip(accesses, self.accesses, strict=True):
            parts = each.bits // 8 // self.granule
            size = each.threads.size * parts
            offsets = [np.broadcast_to(_offsets(access, key), size) for key in strides]
            rows.append(np.stack(offsets, axis=1))
            owners.append(np.repeat(each.threads, parts))
            if isinstance(each, StoredElement):
                words = np.broadcast_to(each.element[:, 0], (2, each.threads.size))
                piece = np.tile(np.arange(parts, dtype=np.uint64), each.threads.size)
                hashes.append(np.repeat(words[0] + words[1] * np.uint64(3), parts) + piece * _PIECE)
        place = np.concatenate(rows[:count])
        owner, content = np.concatenate(owners[:count]), np.concatenate(hashes)
        _, inverse = np.unique(np.concatenate(rows), axis=0, return_inverse=True)
        inverse = inverse.ravel()
        stored, read = inverse[: len(place)], inverse[len(place) :]
        total = int(inverse.max(initial=-1)) + 1
        first = np.full(total, -1, dtype=np.int64)
        first[stored[::-1]] = np.arange(len(place))[::-1]
        if (content != content[first[stored]]).any():
            raise self._fail("elements of different widths or values are stored at one address")
        if self.loads and read.size:
            writer = np.full(total, -1, dtype=np.int64)
            writer[stored] = owner
            several = np.zeros(total, dtype=bool)
            np.logical_or.at(several, stored, owner != writer[stored])
            reader = np.concatenate(owners[count:])
            if ((writer[read] >= 0) & ((writer[read] != reader) | several[read])).any():
                raise self._fail("a thread reads an element that another thread may have written", self.loads[-1].line)


def _changes(words: hashing.Words, row: int) -> bool:
    """Return whether the hash of a store is another one where a coordinate is renamed, whose row is given."""
    return bool((words[:, row] != words[:, 0]).any())


def _offsets(address: _Address, strides: Strides) -> Array:
    found = address.offsets.get(strides)
    return np.zeros(1, dtype=np.int64) if found is None else found


def _operands(definition: tuple[Any, ...]) -> Iterable[Polynomial]:
    for part in definition:
        for each in part if isinstance(part, tuple) else (part,):
            if isinstance(each, Polynomial):
                yield each
