"""Values of the launch-parametric analysis: integers over symbols, predicates over these, selections by predicates.

Each is a vector whose hash is that of the polynomial or of the predicate.  Code that does not know these classes uses
the hash, which is sound but less precise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bitwise_core import numerics
from bitwise_core.checker.parametric import polynomial as P
from bitwise_core.checker.parametric.integers import ParametricIntegers, tighten
from bitwise_core.checker.parametric.polynomial import Polynomial
from bitwise_core.execution.domains.domain import Domain
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.lane_selection import take_threads
from bitwise_core.execution.values.packing import as_symbolic_vector, extract, extract_vector
from bitwise_core.execution.values.symbolic_vector import Array, PackedVector, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import exact_hash, full_hash, nan_bits
from bitwise_core.numerics import Operation, modular


def without_structure(value: Value) -> SymbolicVector:
    """The value as a vector without its structure."""
    lanes = as_symbolic_vector(value)
    return SymbolicVector(lanes.bits, lanes.words, lanes.flags)


class ParametricInteger(SymbolicVector, L.LazyIntegers):
    """An integer that is a polynomial over symbols."""

    __slots__ = ("_words", "integers", "polynomial")

    def __init__(self, integers: ParametricIntegers, polynomial: Polynomial) -> None:
        self.integers, self.polynomial, self.bits = integers, polynomial, polynomial.bits
        self.flags = L.TERM
        self.bundle = self.last_take = self.recorder = None
        self.origins, self.cached_numbers = (), False
        self.cached_hash = self.cached_constants = self.cached_union = self.cached_intersection = None
        self.maximum = None
        self._words: hashing.Words | None = None

    @property
    def words(self) -> hashing.Words:  # type: ignore[override]
        """The hash of the integer as data."""
        if self._words is None:
            raw = self.integers.words_of(self.polynomial)
            self._words = hashing.mix(raw * hashing.multiplier(12) + hashing.constant(f"integer of {self.bits} bits"))
        return self._words

    def known_numbers(self, active: Array | None = None) -> Any:
        """None: the value is not a number."""
        return None

    def symbolic_vector(self) -> SymbolicVector:
        """Return this value, which is a vector already."""
        return self

    def extract(self, low: int, bits: int) -> Any:
        """The low bits of an integer are exact; other bits are a term."""
        if low == 0:
            return integer_of(self.integers, P.truncated(self.polynomial, bits))
        return extract_vector(without_structure(self), low, bits)

    def blend(self, mask: Array, new: Any, old: Any) -> Any:
        """Selection lane by lane; exact where both values are integers."""
        if isinstance(new, ParametricInteger | np.ndarray) and isinstance(old, ParametricInteger | np.ndarray):
            left, right = (polynomial_of(self.integers, each, self.bits) for each in (new, old))
            if left is not None and right is not None:
                return integer_of(self.integers, P.select_lanes(mask, left, right))
        return _select_lanes(mask, new, old)

    def concat(self, parts: Sequence[Any]) -> Any:
        """Zeros above an integer widen it; other parts are packed."""
        first, rest = parts[0], parts[1:]
        if isinstance(first, ParametricInteger) and all(isinstance(p, np.ndarray) and not p.any() for p in rest):
            wide = self.integers.widened(first.polynomial, sum(L.width(part) for part in parts))
            if wide is not None:
                return integer_of(self.integers, wide)
        return PackedVector(tuple(parts))

    def take_threads(self, index: Array) -> Any:
        """The value of thread `index` in each thread."""
        uniform = all(self.integers.atoms[number].words.shape[2] == 1 for number in self.polynomial.atoms())
        if uniform and index.shape[0] == 1:
            return integer_of(self.integers, P.take_threads(self.polynomial, index))
        return take_threads(without_structure(self), index)


def _select_lanes(mask: Array, new: Any, old: Any) -> SymbolicVector:
    left, right = without_structure(new), without_structure(old)
    flags = L.select_flags(mask, left.flags, right.flags)
    return SymbolicVector(left.bits, np.where(mask, left.words, right.words), L.uniform_flags(flags))


def polynomial_of(integers: ParametricIntegers, value: Value, bits: int) -> Polynomial | None:
    """A value as a polynomial; data is an atom.  None for an undefined value, and for bits of a NaN that are open."""
    if isinstance(value, np.ndarray):
        return P.constant_of(value, bits)
    if isinstance(value, ParametricInteger):
        return value.polynomial
    lanes = as_symbolic_vector(value)
    if np.any(np.bitwise_and(np.bitwise_or(lanes.flags, nan_bits(lanes)), L.STICKY | L.UNSPECIFIED_NAN)):
        return None
    words = hashing.mix(exact_hash(lanes) + hashing.constant(f"data as an integer of {bits} bits"))
    return P.atom_polynomial(integers.table.atom(words), bits)


def integer_of(integers: ParametricIntegers, value: Polynomial) -> Value:
    """The value of a polynomial: a plain array where no symbol occurs.  May create an output coordinate."""
    if value.terms:
        value = integers.coordinates.with_new_coordinate(value)
    if value.terms:
        return ParametricInteger(integers, value)
    number = value.constant
    dtype = L.UNSIGNED[value.bits]
    return np.full((1, 1), number, dtype=dtype) if isinstance(number, int) else number.astype(dtype)


class Selection(SymbolicVector):
    """`if_true` where a predicate is true, else `if_false`; parts of a selection are selections of the parts.

    A load selected against zero is a load of memory that is masked by the predicate.
    """

    __slots__ = ("domain", "if_false", "if_true", "predicate")

    def __init__(
        self, domain: Domain, lanes: SymbolicVector, predicate: Value, if_true: Value, if_false: Value
    ) -> None:
        super().__init__(lanes.bits, lanes.words, lanes.flags)
        self.domain, self.predicate, self.if_true, self.if_false = domain, predicate, if_true, if_false

    def part(self, low: int, bits: int) -> Any:
        """The selection between the parts."""
        return self.domain.select(self.predicate, extract(self.if_true, low, bits), extract(self.if_false, low, bits))


class Predicate(SymbolicVector, L.LazyIntegers):
    """A conjunction of conditions: polynomials that must be nonnegative, and opaque conditions.

    The flags mark the lanes in which it is constant.
    """

    __slots__ = ("opaque", "polynomials")

    def __init__(
        self, polynomials: tuple[Polynomial, ...], opaque: tuple[SymbolicVector, ...], lanes: SymbolicVector
    ) -> None:
        super().__init__(1, lanes.words, lanes.flags)
        self.polynomials, self.opaque = polynomials, opaque

    @property
    def single(self) -> Polynomial | None:
        """The polynomial, if the predicate is only that one polynomial is nonnegative, else None."""
        return self.polynomials[0] if len(self.polynomials) == 1 and not self.opaque else None

    def known_numbers(self, active: Array | None = None) -> Any:
        """The truth values if every lane is constant, else None."""
        known = L.constant_mask(self)
        return L.constants_of(self) if known is True or (known is not False and np.all(known)) else None

    def symbolic_vector(self) -> SymbolicVector:
        """Return this value, which is a vector already."""
        return self

    def extract(self, low: int, bits: int) -> Any:
        """A predicate has one bit."""
        return self

    def blend(self, mask: Array, new: Any, old: Any) -> Any:
        """Selection lane by lane; the structure is lost."""
        return L.as_array_if_constant(_select_lanes(mask, new, old))

    def concat(self, parts: Sequence[Any]) -> Any:
        """The packed parts."""
        return PackedVector(tuple(parts))

    def take_threads(self, index: Array) -> Any:
        """The value of thread `index` in each thread; the structure is lost."""
        return take_threads(without_structure(self), index)


class Equality(SymbolicVector):
    """The condition that a difference of two integers is zero, or nonzero if `unequal`."""

    __slots__ = ("difference", "unequal")

    def __init__(self, words: hashing.Words, difference: Polynomial, unequal: bool = False) -> None:
        super().__init__(1, words, L.TERM | (L.NEGATED if unequal else 0))
        self.difference, self.unequal = difference, unequal

    def negated(self) -> Equality:
        """The negated condition."""
        return Equality(self.words, self.difference, not self.unequal)


# -- predicates -------------------------------------------------------------------------------------------------------

_NOT_NEGATIVE = hashing.constant("not negative")
_ALL_OF = hashing.constant("all of")


def compare(
    integers: ParametricIntegers, operation: Operation, operands: Sequence[Value], opposite: Callable[[Value], Value]
) -> Value | None:
    """A comparison of two integers; None where one is undefined.  `opposite` negates a predicate."""
    base, kind = operation.verb, operation.operands[0].name
    left, right = (polynomial_of(integers, each, L.width(each)) for each in operands)
    if left is None or right is None:
        return None
    if base == "eq":
        return _equality(integers, left, right)
    if kind[0] == "s" or (integers.is_nonnegative(left) and integers.is_nonnegative(right)):
        if left.bits < 64:
            first, second = integers.widened(left, 64), integers.widened(right, 64)
        else:
            first, second = left, right
            integers.wraps_assumed = True
        if first is not None and second is not None:
            difference = P.subtract(second, first)
            return nonnegative(integers, P.add_constant(difference, -1) if base == "lt" else difference)
    if base == "le":
        swapped = compare(integers, numerics.operation(f"lt.{kind}"), operands[::-1], opposite)
        return None if swapped is None else opposite(swapped)
    hashed = [
        hashing.mix(integers.words_of(each) * hashing.multiplier(31 + index))
        for index, each in enumerate((left, right))
    ]
    return SymbolicVector(1, hashing.mix(hashed[0] + hashed[1] + hashing.constant(operation.name)), L.TERM)


def _equality(integers: ParametricIntegers, left: Polynomial, right: Polynomial) -> Value:
    difference = integers.canonical(P.subtract(left, right))
    if not difference.terms:
        found = difference.constant
        return np.full((1, 1), found == 0) if isinstance(found, int) else found == 0
    tag = hashing.constant(f"zero of {left.bits} bits")
    for each in (difference, P.negate(difference)):
        tag = tag + hashing.mix(P.words(integers.atoms, each) * hashing.multiplier(14))
    return Equality(hashing.mix(tag), P.subtract(left, right))


def nonnegative(integers: ParametricIntegers, value: Polynomial) -> Value:
    """The predicate that an integer is nonnegative."""
    return predicate(integers, (integers.coordinates.rewrite(integers.without_quotient(value)),), (), None)


def predicate(
    integers: ParametricIntegers,
    polynomials: Sequence[Polynomial],
    opaque: Sequence[SymbolicVector],
    known: Array | None,
) -> Value:
    """The conjunction of these conditions and of `known`, an array of truth values (None: true)."""
    total: Any = hashing.constant("all of")
    failed: Any = False if known is None else ~known
    undecided: Any = False
    for value in map(tighten, map(integers.canonical, polynomials)):
        hashed = hashing.mix(P.words(integers.atoms, value) * hashing.multiplier(13) + _NOT_NEGATIVE)
        decided, truth = _known_sign(integers, value)
        if decided is not False:
            failed = failed | (decided & ~truth)
            hashed = np.where(decided, np.uint64(0), hashed)
            undecided = undecided | ~np.asarray(decided)
        else:
            undecided = True
        total = total + hashed
    for lanes in opaque:
        hashed = hashing.mix(full_hash(lanes) * hashing.multiplier(15) + _ALL_OF)
        settled = L.constant_mask(lanes)
        if settled is False:
            undecided = True
        else:
            failed = failed | (settled & (lanes.words[0] == 0))
            hashed = np.where(settled, np.uint64(0), hashed)
            undecided = undecided | ~np.asarray(settled)
        total = total + hashed
    words = hashing.mix(total + _ALL_OF)
    if failed is False and undecided is True:
        return Predicate(tuple(polynomials), tuple(opaque), SymbolicVector(1, words, L.TERM | _inherited_flags(opaque)))
    failed = np.atleast_2d(np.asarray(failed))
    settled = np.atleast_2d(np.asarray(failed | ~np.asarray(undecided)))
    if settled.all():
        return np.atleast_2d(~failed)
    words = np.where(settled, (~failed).astype(np.uint64), words)
    flags = np.where(settled, np.uint32(L.CONST), np.uint32(L.TERM)) | np.uint32(_inherited_flags(opaque))
    lanes = SymbolicVector(1, words, L.uniform_flags(np.broadcast_to(flags, words.shape[1:])))
    if known is None:
        return Predicate(tuple(polynomials), tuple(opaque), lanes)
    return lanes


def _known_sign(integers: ParametricIntegers, value: Polynomial) -> tuple[Any, Any]:
    """The lanes in which the sign of a polynomial is known (False: none), and whether it is nonnegative there."""
    constant = np.asarray(modular.signed(value.constant, 64))
    free = integers.nonnegative_symbol
    lanes: Any = True
    nonnegative_coefficient: Any = True
    nonpositive_coefficient: Any = True
    for monomial, coefficient in value.terms.items():
        if monomial == (free,):
            number = np.asarray(modular.signed(coefficient, 64))
            nonnegative_coefficient, nonpositive_coefficient = number >= 0, number <= 0
            continue
        if isinstance(coefficient, int):
            return False, False
        lanes = lanes & (coefficient == 0)
    lanes = lanes & ((nonnegative_coefficient & (constant >= 0)) | (nonpositive_coefficient & (constant < 0)))
    return (lanes, constant >= 0) if np.any(lanes) else (False, False)


def conjunction(integers: ParametricIntegers, values: Sequence[Value]) -> Value:
    """The conjunction of predicates."""
    if len(values) == 1:
        return values[0]
    polynomials: list[Polynomial] = []
    opaque: list[SymbolicVector] = []
    known: Array | None = None
    for value in values:
        if isinstance(value, np.ndarray):
            known = value if known is None else known & value
        elif isinstance(value, Predicate):
            for each in value.polynomials:
                _add_condition(polynomials, integers.coordinates.rewrite(each))
            opaque.extend(each for each in value.opaque if not any(each.words is other.words for other in opaque))
        else:
            opaque.append(without_structure(value))
    if known is not None and known.all():
        known = None
    return predicate(integers, polynomials, opaque, known)


def negated(integers: ParametricIntegers, value: Predicate) -> Value | None:
    """The negation where it is a predicate too, else None."""
    if value.single is None:
        return None
    return nonnegative(integers, P.add_constant(P.negate(value.single), -1))


def _add_condition(polynomials: list[Polynomial], new: Polynomial) -> None:
    """Add a condition; of two that differ only in their constants, keep the stronger one."""
    for index, old in enumerate(polynomials):
        if old.terms.keys() == new.terms.keys() and all(_equal_residues(old.terms[m], new.terms[m]) for m in new.terms):
            least = np.minimum(modular.signed(old.constant, 64), modular.signed(new.constant, 64))
            polynomials[index] = Polynomial(
                64, old.terms, modular.unsigned(int(least) if np.ndim(least) == 0 else least, 64)
            )
            return
    polynomials.append(new)


def _equal_residues(left: modular.Residue, right: modular.Residue) -> bool:
    if isinstance(left, int) and isinstance(right, int):
        return left == right
    return bool(np.all(modular.wide(left) == modular.wide(right)))


def _inherited_flags(opaque: Sequence[SymbolicVector]) -> int:
    found = 0
    for each in opaque:
        found |= int(np.bitwise_or.reduce(np.atleast_1d(np.asarray(each.flags)), axis=None)) & (
            L.STICKY | L.UNSPECIFIED_NAN
        )
    return found
