"""Integers of a parametric launch: polynomials over symbols, with one coefficient for each lane.

A `Polynomial` of w bits is a sum of coefficient times monomial plus a constant, modulo 2**w; most are affine.  A
monomial is a sorted tuple of atoms.  An atom is an opaque value: a scalar argument, a block coordinate, or the result
of an operation that is not polynomial.  A coefficient is an int where all lanes agree, else an array of shape
(rows or 1, threads or 1), where a row is an instance of the launch (see `coordinates`).

For integers of a known launch, whose value in every block is a number, see `block_symmetry.block_affine`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bitwise_core.execution.values import hashing
from bitwise_core.numerics.modular import Residue, is_one, is_zero, plus, reduced, signed, times, unsigned, wide

Monomial: TypeAlias = tuple[int, ...]
MAXIMUM_TERMS = 24


@dataclass(frozen=True, slots=True, eq=False)
class Atom:
    """An opaque value: its hash, of shape (2, rows or 1, threads or 1), and its known properties.

    `block`: it may depend on the block coordinates.  `pointer`: the index of the parameter, for a pointer.
    `definition`: operation and operands, for a result whose operation a rule uses.  `alignment`: a power of two that
    divides the value.
    """

    words: hashing.Words
    block: bool = False
    pointer: int | None = None
    definition: tuple[Any, ...] | None = None
    alignment: int = 1


class AtomTable:
    """The atoms of one analysis; monomials refer to them by index.

    `nonnegative_atoms` are the indices of nonnegative atoms, `launch_atoms` those of numbers that are equal in all
    blocks of a launch, `iteration_atoms` those that number the periods of a loop, `block_symbols` those of the block
    coordinates by name.
    """

    def __init__(self) -> None:
        self.atoms: list[Atom] = []
        self.nonnegative_atoms: set[int] = set()
        self.launch_atoms: set[int] = set()
        self.iteration_atoms: set[int] = set()
        self.block_symbols: dict[str, int] = {}
        self._numbers = 0
        self._interned: dict[tuple[Any, ...], int] = {}

    def atom(
        self,
        words: hashing.Words,
        *,
        block: bool = False,
        pointer: int | None = None,
        definition: tuple[Any, ...] | None = None,
        alignment: int = 1,
    ) -> int:
        """The index of the atom with this hash; its other properties are those of the first call."""
        key = (words.shape, words.tobytes())
        found = self._interned.get(key)
        if found is None:
            found = self._interned[key] = len(self.atoms)
            self.atoms.append(Atom(words, block, pointer, definition, alignment))
        return found

    def next_number(self) -> int:
        """A number that no earlier call has returned."""
        self._numbers += 1
        return self._numbers

    def definition(self, monomial: Monomial, coefficient: Residue) -> tuple[Any, ...] | None:
        """The definition of a term that is one atom with coefficient 1; None for other terms."""
        return self.atoms[monomial[0]].definition if len(monomial) == 1 and is_one(coefficient) else None


@dataclass(frozen=True, slots=True)
class Polynomial:
    """A polynomial modulo 2**bits, see the module; no coefficient in `terms` is zero in all lanes."""

    bits: int
    terms: Mapping[Monomial, Residue] = field(default_factory=dict)
    constant: Residue = 0

    @property
    def is_zero(self) -> bool:
        """Whether it is the zero polynomial in all lanes."""
        return not self.terms and is_zero(self.constant)

    @property
    def number(self) -> int | None:
        """The number if no symbol occurs and all lanes agree, else None."""
        return self.constant if not self.terms and isinstance(self.constant, int) else None

    def atoms(self) -> set[int]:
        """The indices of the atoms that occur."""
        return {number for monomial in self.terms for number in monomial}


def constant_of(value: npt.NDArray[Any], bits: int) -> Polynomial:
    """The polynomial of an array of numbers."""
    return Polynomial(bits, {}, reduced(value.astype(np.uint64), bits))


def atom_polynomial(number: int, bits: int) -> Polynomial:
    """The polynomial that is one atom."""
    return Polynomial(bits, {(number,): 1})


def _sum_of_terms(bits: int, terms_to_add: Iterable[tuple[Monomial, Residue]], constant: Residue) -> Polynomial:
    terms: dict[Monomial, Residue] = {}
    for monomial, coefficient in terms_to_add:
        before = terms.get(monomial)
        terms[monomial] = coefficient if before is None else plus(before, coefficient, bits)
    return Polynomial(bits, {m: c for m, c in terms.items() if not is_zero(c)}, constant)


def add(left: Polynomial, right: Polynomial) -> Polynomial:
    """The sum."""
    if not right.terms:
        return Polynomial(left.bits, left.terms, plus(left.constant, right.constant, left.bits))
    if not left.terms:
        return Polynomial(left.bits, right.terms, plus(left.constant, right.constant, left.bits))
    return _sum_of_terms(
        left.bits, (*left.terms.items(), *right.terms.items()), plus(left.constant, right.constant, left.bits)
    )


def scale(value: Polynomial, factor: Residue) -> Polynomial:
    """The product with a number."""
    bits = value.bits
    terms_to_add = ((monomial, times(coefficient, factor, bits)) for monomial, coefficient in value.terms.items())
    return _sum_of_terms(bits, terms_to_add, times(value.constant, factor, bits))


def negate(value: Polynomial) -> Polynomial:
    """The negation."""
    return scale(value, (1 << value.bits) - 1)


def subtract(left: Polynomial, right: Polynomial) -> Polynomial:
    """The difference."""
    return add(left, negate(right))


def add_constant(value: Polynomial, amount: int) -> Polynomial:
    """The sum with a number."""
    return Polynomial(value.bits, value.terms, plus(value.constant, amount & ((1 << value.bits) - 1), value.bits))


def multiply(left: Polynomial, right: Polynomial) -> Polynomial | None:
    """The product, or None where it has too many terms."""
    if not right.terms:
        return scale(left, right.constant)
    if not left.terms:
        return scale(right, left.constant)
    if (len(left.terms) + 1) * (len(right.terms) + 1) > MAXIMUM_TERMS:
        return None
    bits = left.bits
    terms_to_add: list[tuple[Monomial, Residue]] = []
    for first, a in (*left.terms.items(), ((), left.constant)):
        for second, b in (*right.terms.items(), ((), right.constant)):
            if first or second:
                terms_to_add.append((tuple(sorted(first + second)), times(a, b, bits)))
    return _sum_of_terms(bits, terms_to_add, times(left.constant, right.constant, bits))


def multiply_by_term(value: Polynomial, coefficient: Residue, monomial: Monomial) -> Polynomial | None:
    """The product with one term (the monomial may be empty), or None where it has too many terms."""
    if not monomial:
        return scale(value, coefficient)
    return multiply(value, Polynomial(value.bits, {monomial: coefficient}))


def truncated(value: Polynomial, bits: int) -> Polynomial:
    """The polynomial modulo a smaller 2**bits, which is exact."""
    return _sum_of_terms(bits, ((m, reduced(c, bits)) for m, c in value.terms.items()), reduced(value.constant, bits))


INDEX_BITS = 32
"""The least width of an index."""
MAXIMUM_INDEX_COEFFICIENT = 1 << 30
"""The largest coefficient of an index; integers with larger ones are assumed to wrap around."""


def widened(value: Polynomial, bits: int) -> Polynomial | None:
    """The same integer in more bits, valid if it does not wrap around; None where a coefficient is too large.

    None for symbols in fewer than 32 bits, too: programs narrow integers in order to wrap them.
    """
    if value.bits < INDEX_BITS and value.terms:
        return None
    terms: dict[Monomial, Residue] = {}
    for monomial, coefficient in (*value.terms.items(), ((), value.constant)):
        number = signed(coefficient, value.bits)
        if value.bits < 64 and np.any(np.abs(number) > MAXIMUM_INDEX_COEFFICIENT):
            return None
        terms[monomial] = unsigned(number, bits)
    return Polynomial(bits, {m: c for m, c in terms.items() if m}, terms[()])


def select_lanes(mask: npt.NDArray[np.bool_], new: Polynomial, old: Polynomial) -> Polynomial:
    """Lane by lane: `new` where the mask is set."""
    terms_to_add = []
    for monomial in {**new.terms, **old.terms}:
        chosen = np.where(mask, wide(new.terms.get(monomial, 0)), wide(old.terms.get(monomial, 0)))
        terms_to_add.append((monomial, reduced(chosen, new.bits)))
    return _sum_of_terms(
        new.bits, terms_to_add, reduced(np.where(mask, wide(new.constant), wide(old.constant)), new.bits)
    )


def take_threads(value: Polynomial, index: npt.NDArray[np.int64]) -> Polynomial:
    """In each thread, the value of thread `index`, of shape (1, threads); all atoms must be uniform over threads."""

    def take(coefficient: Residue) -> Residue:
        if isinstance(coefficient, int) or coefficient.shape[1] == 1:
            return coefficient
        return coefficient[:, index[0]]

    return Polynomial(value.bits, {m: take(c) for m, c in value.terms.items()}, take(value.constant))


@cache
def _coefficient_multiplier() -> hashing.Words:
    return hashing.multiplier(21)


def product_words(atoms: list[Atom], monomial: Monomial) -> hashing.Words:
    """The hash of a monomial."""
    if len(monomial) == 1:
        return atoms[monomial[0]].words
    total = hashing.constant(f"product of {len(monomial)}")
    for number in monomial:
        total = total + atoms[number].words * hashing.multiplier(22)
    return hashing.mix(total)


def words(atoms: list[Atom], value: Polynomial) -> hashing.Words:
    """The hash of a polynomial, linear in its constant: shape (2, rows or 1, threads or 1)."""
    total: Any = wide(value.constant)
    total = np.full((2, 1, 1), total, dtype=np.uint64) if total.ndim == 0 else np.broadcast_to(total, (2, *total.shape))
    for monomial, coefficient in value.terms.items():
        hashed = product_words(atoms, monomial)
        if isinstance(coefficient, int):
            total = total + hashing.mix(hashed + np.uint64(coefficient) * _coefficient_multiplier())
            continue
        part = hashing.mix(hashed + coefficient[None] * _coefficient_multiplier())
        total = total + np.where(coefficient == 0, np.uint64(0), part)
    found: hashing.Words = total
    return found
