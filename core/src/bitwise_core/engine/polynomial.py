"""Integers of every launch: polynomials over symbols, with a coefficient for every lane.

A `Polynomial` of w bits is a sum of coefficient times monomial plus a constant, modulo 2**w.  A monomial is a sorted
tuple of atoms; an atom is a value that is not taken apart (a scalar argument, a block coordinate, the result of an
operation that is not linear).  Coefficients are numbers where all lanes agree, else arrays of shape
(rows or 1, threads or 1), where the rows are instances of the launch (see `instances`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bitwise_core.machine import hashing

Coefficient: TypeAlias = int | npt.NDArray[np.uint64]
Monomial: TypeAlias = tuple[int, ...]
FULL = (1 << 64) - 1
MAXIMUM_TERMS = 24


@dataclass(frozen=True, slots=True, eq=False)
class Atom:
    """A value that is not taken apart: its hash (2, rows or 1, threads or 1), and what is known of it.

    `block` says that it may depend on the block's coordinates; `pointer` is the parameter's number of a pointer;
    `definition` tells the operation and operands of a result that rules look into; `alignment` is a power of two
    that divides the value.
    """

    number: int
    words: hashing.Words
    block: bool = False
    pointer: int | None = None
    definition: tuple[Any, ...] | None = None
    alignment: int = 1


def wide(value: Coefficient) -> Any:
    """A coefficient as NumPy's unsigned number or array."""
    return np.uint64(value) if isinstance(value, int) else value


def reduced(value: Any, bits: int) -> Coefficient:
    """A coefficient modulo 2**bits; an array of one number becomes that number."""
    if isinstance(value, int):
        return value & ((1 << bits) - 1)
    if bits < 64:
        value = value & np.uint64((1 << bits) - 1)
    if value.size == 1:
        return int(value.reshape(())[()]) & FULL
    return value  # type: ignore[no-any-return]


def is_zero(value: Coefficient) -> bool:
    """Whether the coefficient vanishes in every lane."""
    return value == 0 if isinstance(value, int) else not value.any()


def is_one(value: Coefficient) -> bool:
    """Whether the coefficient is 1 in all lanes alike."""
    return isinstance(value, int) and value == 1


def plus(left: Coefficient, right: Coefficient, bits: int) -> Coefficient:
    """The sum modulo 2**bits."""
    if isinstance(left, int) and isinstance(right, int):
        return (left + right) & ((1 << bits) - 1)
    return reduced(wide(left) + wide(right), bits)


def times(left: Coefficient, right: Coefficient, bits: int) -> Coefficient:
    """The product modulo 2**bits."""
    if isinstance(left, int) and isinstance(right, int):
        return (left * right) & ((1 << bits) - 1)
    return reduced(wide(left) * wide(right), bits)


def signed(value: Coefficient, bits: int) -> Any:
    """The coefficient as a signed number or int64 array."""
    if isinstance(value, int):
        return value - (1 << bits) if value >> (bits - 1) else value
    shift = np.uint64(64 - bits)
    return (value << shift).view(np.int64) >> np.int64(64 - bits)


def unsigned(value: Any, bits: int) -> Coefficient:
    """A signed number or int64 array as a coefficient of `bits` bits."""
    if isinstance(value, int):
        return value & ((1 << bits) - 1)
    return reduced(np.ascontiguousarray(value).view(np.uint64), bits)


@dataclass(frozen=True, slots=True)
class Polynomial:
    """See the module; `terms` never holds a coefficient that vanishes in every lane."""

    bits: int
    terms: Mapping[Monomial, Coefficient] = field(default_factory=dict)
    constant: Coefficient = 0

    @property
    def is_constant(self) -> bool:
        """Whether no symbol occurs."""
        return not self.terms

    def atoms(self) -> set[int]:
        """The numbers of the atoms that occur."""
        return {number for monomial in self.terms for number in monomial}


def constant_of(value: npt.NDArray[Any], bits: int) -> Polynomial:
    """A known number or array of numbers."""
    return Polynomial(bits, {}, reduced(value.astype(np.uint64), bits))


def of_atom(number: int, bits: int) -> Polynomial:
    """One atom."""
    return Polynomial(bits, {(number,): 1})


def _collect(bits: int, pieces: Iterable[tuple[Monomial, Coefficient]], constant: Coefficient) -> Polynomial:
    terms: dict[Monomial, Coefficient] = {}
    for monomial, coefficient in pieces:
        before = terms.get(monomial)
        terms[monomial] = coefficient if before is None else plus(before, coefficient, bits)
    return Polynomial(bits, {m: c for m, c in terms.items() if not is_zero(c)}, constant)


def add(left: Polynomial, right: Polynomial) -> Polynomial:
    """The sum."""
    if not right.terms:
        return Polynomial(left.bits, left.terms, plus(left.constant, right.constant, left.bits))
    if not left.terms:
        return Polynomial(left.bits, right.terms, plus(left.constant, right.constant, left.bits))
    return _collect(
        left.bits, (*left.terms.items(), *right.terms.items()), plus(left.constant, right.constant, left.bits)
    )


def scale(value: Polynomial, factor: Coefficient) -> Polynomial:
    """A multiple."""
    bits = value.bits
    pieces = ((monomial, times(coefficient, factor, bits)) for monomial, coefficient in value.terms.items())
    return _collect(bits, pieces, times(value.constant, factor, bits))


def negate(value: Polynomial) -> Polynomial:
    """The negative."""
    return scale(value, (1 << value.bits) - 1)


def subtract(left: Polynomial, right: Polynomial) -> Polynomial:
    """The difference."""
    return add(left, negate(right))


def shifted(value: Polynomial, amount: int) -> Polynomial:
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
    pieces: list[tuple[Monomial, Coefficient]] = []
    for first, a in (*left.terms.items(), ((), left.constant)):
        for second, b in (*right.terms.items(), ((), right.constant)):
            if first or second:
                pieces.append((tuple(sorted(first + second)), times(a, b, bits)))
    return _collect(bits, pieces, times(left.constant, right.constant, bits))


def resized(value: Polynomial, bits: int) -> Polynomial:
    """The polynomial modulo a smaller 2**bits: exact."""
    return _collect(bits, ((m, reduced(c, bits)) for m, c in value.terms.items()), reduced(value.constant, bits))


SMALL = 1 << 30
"""Coefficients below this are those of an index; larger ones are meant to wrap around."""


def widened(value: Polynomial, bits: int) -> Polynomial | None:
    """The same integer in more bits, if it does not wrap around; None where coefficients are not those of an index."""
    terms: dict[Monomial, Coefficient] = {}
    for monomial, coefficient in (*value.terms.items(), ((), value.constant)):
        number = signed(coefficient, value.bits)
        if value.bits < 64 and np.any(np.abs(number) > SMALL):
            return None
        terms[monomial] = unsigned(number, bits)
    return Polynomial(bits, {m: c for m, c in terms.items() if m}, terms[()])


def divisible(value: Coefficient, by: int, bits: int) -> bool:
    """Whether the signed coefficient is a multiple of `by` in every lane."""
    number = signed(value, bits)
    return number % by == 0 if isinstance(number, int) else not (number % np.int64(by)).any()


def quotient(value: Coefficient, by: int, bits: int) -> Coefficient:
    """The signed coefficient divided by `by`, rounded down."""
    number = signed(value, bits)
    return unsigned(number // by if isinstance(number, int) else number // np.int64(by), bits)


def pick(mask: npt.NDArray[np.bool_], new: Polynomial, old: Polynomial) -> Polynomial:
    """Lane by lane: `new` where the mask is set."""
    pieces = []
    for monomial in {**new.terms, **old.terms}:
        chosen = np.where(mask, wide(new.terms.get(monomial, 0)), wide(old.terms.get(monomial, 0)))
        pieces.append((monomial, reduced(chosen, new.bits)))
    return _collect(new.bits, pieces, reduced(np.where(mask, wide(new.constant), wide(old.constant)), new.bits))


def taken(value: Polynomial, index: npt.NDArray[np.int64]) -> Polynomial:
    """What each thread gets from thread `index`, shape (1, threads); atoms must be the same in all threads."""

    def move(coefficient: Coefficient) -> Coefficient:
        if isinstance(coefficient, int) or coefficient.shape[1] == 1:
            return coefficient
        return coefficient[:, index[0]]

    return Polynomial(value.bits, {m: move(c) for m, c in value.terms.items()}, move(value.constant))


@cache
def _factor() -> hashing.Words:
    return hashing.multiplier(21)


def product_words(atoms: list[Atom], monomial: Monomial) -> hashing.Words:
    """The hash of a monomial."""
    if len(monomial) == 1:
        return atoms[monomial[0]].words
    total = hashing.constant(f"product of {len(monomial)}")
    for number in monomial:
        total = total + atoms[number].words * hashing.multiplier(22)
    return hashing.finalise(total)


def words(atoms: list[Atom], value: Polynomial) -> hashing.Words:
    """The hash of a polynomial, linear in its constant: shape (2, rows or 1, threads or 1)."""
    total: Any = wide(value.constant)
    total = np.full((2, 1, 1), total, dtype=np.uint64) if total.ndim == 0 else np.broadcast_to(total, (2, *total.shape))
    for monomial, coefficient in value.terms.items():
        hashed = product_words(atoms, monomial)
        if isinstance(coefficient, int):
            total = total + hashing.finalise(hashed + np.uint64(coefficient) * _factor())
            continue
        part = hashing.finalise(hashed + coefficient[None] * _factor())
        total = total + np.where(coefficient == 0, np.uint64(0), part)
    found: hashing.Words = total
    return found
