"""Values of a reading for every launch: integers over symbols, predicates over them, and choices by such predicates.

They are lanes whose hash is that of the polynomial or of the predicate: code that does not know them uses the hash, and
loses precision only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bitwise_core import numerics
from bitwise_core.checker.parametric import polynomial as P
from bitwise_core.checker.parametric.integers import ParametricIntegers, tightened
from bitwise_core.checker.parametric.polynomial import Polynomial
from bitwise_core.execution.domains.domain import Domain
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector, extract, extract_vector, take_threads
from bitwise_core.execution.values.symbolic_vector import Array, PackedVector, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import exact_hash, full_hash
from bitwise_core.numerics import Operation, modular


def plain(value: Value) -> SymbolicVector:
    """The value as lanes without its structure."""
    lanes = as_symbolic_vector(value)
    return SymbolicVector(lanes.bits, lanes.words, lanes.flags)


class ParametricInteger(SymbolicVector, L.LazyIntegers):
    """An integer over symbols."""

    __slots__ = ("_words", "integers", "polynomial")

    def __init__(self, integers: ParametricIntegers, polynomial: Polynomial) -> None:
        self.integers, self.polynomial, self.bits = integers, polynomial, polynomial.bits
        self.flags = L.TERM
        self.slice_of = self.partial_slice_of = self.last_selection = self.guarded_alternative = None
        self.bundle = None
        self.cached_hash = None
        self._words: hashing.Words | None = None

    @property
    def words(self) -> hashing.Words:  # type: ignore[override]
        """The hash of the integer as data."""
        if self._words is None:
            raw = self.integers.words_of(self.polynomial)
            self._words = hashing.mix(raw * hashing.multiplier(12) + hashing.constant(f"integer of {self.bits} bits"))
        return self._words

    def known_numbers(self) -> Any:
        """None: a symbol is not a known number."""
        return None

    def symbolic_vector(self) -> SymbolicVector:
        """Itself."""
        return self

    def extract(self, low: int, bits: int) -> Any:
        """The low bits of an integer are exact; others are a term."""
        if low == 0:
            return integer_of(self.integers, P.resized(self.polynomial, bits))
        return extract_vector(plain(self), low, bits)

    def blend(self, mask: Array, new: Any, old: Any) -> Any:
        """Lane by lane."""
        if isinstance(new, ParametricInteger | np.ndarray) and isinstance(old, ParametricInteger | np.ndarray):
            left, right = (polynomial_of(self.integers, each, self.bits) for each in (new, old))
            if left is not None and right is not None:
                return integer_of(self.integers, P.pick(mask, left, right))
        return _choose_plain(mask, new, old)

    def concat(self, parts: Sequence[Any]) -> Any:
        """Zeros above an integer widen it; other parts stay side by side."""
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
            return integer_of(self.integers, P.taken(self.polynomial, index))
        return take_threads(plain(self), index)


def _choose_plain(mask: Array, new: Any, old: Any) -> SymbolicVector:
    left, right = plain(new), plain(old)
    flags = L.select_flags(mask, left.flags, right.flags)
    return SymbolicVector(left.bits, np.where(mask, left.words, right.words), L.uniform_flags(flags))


def polynomial_of(integers: ParametricIntegers, value: Value, bits: int) -> Polynomial | None:
    """Any value as a polynomial; data is an atom.  None for a value that nothing wrote."""
    if isinstance(value, np.ndarray):
        return P.constant_of(value, bits)
    if isinstance(value, ParametricInteger):
        return value.polynomial
    lanes = as_symbolic_vector(value)
    if np.any(np.bitwise_and(lanes.flags, L.STICKY)):
        return None
    words = hashing.mix(exact_hash(lanes) + hashing.constant(f"data as an integer of {bits} bits"))
    return P.of_atom(integers.table.atom(words), bits)


def integer_of(integers: ParametricIntegers, value: Polynomial) -> Value:
    """A value for the polynomial: a plain array where no symbol occurs.  May create an output coordinate."""
    if value.terms:
        value = integers.coordinates.noticed(value)
    if value.terms:
        return ParametricInteger(integers, value)
    number = value.constant
    dtype = L.UNSIGNED[value.bits]
    return np.full((1, 1), number, dtype=dtype) if isinstance(number, int) else number.astype(dtype)


class Chosen(SymbolicVector):
    """`if_true` where a predicate holds, else `if_false`: a choice whose parts are choices.

    A leaf chosen against zero is a leaf of its own: the content of memory that the predicate masks.
    """

    __slots__ = ("domain", "if_false", "if_true", "predicate")

    def __init__(
        self, domain: Domain, lanes: SymbolicVector, predicate: Value, if_true: Value, if_false: Value
    ) -> None:
        super().__init__(lanes.bits, lanes.words, lanes.flags)
        self.domain, self.predicate, self.if_true, self.if_false = domain, predicate, if_true, if_false

    def part(self, low: int, bits: int) -> Any:
        """The choice between the parts."""
        return self.domain.select(self.predicate, extract(self.if_true, low, bits), extract(self.if_false, low, bits))


class Predicate(SymbolicVector, L.LazyIntegers):
    """A conjunction: each factor a polynomial that must not be negative, or an opaque condition.

    `meta` marks the lanes in which it is known.
    """

    __slots__ = ("opaque", "polynomials")

    def __init__(
        self, polynomials: tuple[Polynomial, ...], opaque: tuple[SymbolicVector, ...], lanes: SymbolicVector
    ) -> None:
        super().__init__(1, lanes.words, lanes.flags)
        self.polynomials, self.opaque = polynomials, opaque

    @property
    def single(self) -> Polynomial | None:
        """The polynomial, where the predicate says no more than that it is not negative."""
        return self.polynomials[0] if len(self.polynomials) == 1 and not self.opaque else None

    def known_numbers(self) -> Any:
        """The truths where every lane is known."""
        known = L.constant_mask(self)
        return L.constants_of(self) if known is True or (known is not False and np.all(known)) else None

    def symbolic_vector(self) -> SymbolicVector:
        """Itself."""
        return self

    def extract(self, low: int, bits: int) -> Any:
        """A predicate has one bit."""
        return self

    def blend(self, mask: Array, new: Any, old: Any) -> Any:
        """Lane by lane; the structure is lost."""
        return L.as_array_if_constant(_choose_plain(mask, new, old))

    def concat(self, parts: Sequence[Any]) -> Any:
        """Predicates are not put side by side."""
        return PackedVector(tuple(parts))

    def take_threads(self, index: Array) -> Any:
        """The value of thread `index` in each thread; the structure is lost."""
        return take_threads(plain(self), index)


class Equality(SymbolicVector):
    """Whether a difference of two integers is zero, or (`unequal`) is not."""

    __slots__ = ("difference", "unequal")

    def __init__(self, words: hashing.Words, difference: Polynomial, unequal: bool = False) -> None:
        super().__init__(1, words, L.TERM | (L.NEGATED if unequal else 0))
        self.difference, self.unequal = difference, unequal

    def inverse(self) -> Equality:
        """The opposite condition."""
        return Equality(self.words, self.difference, not self.unequal)


# -- predicates -------------------------------------------------------------------------------------------------------

_NOT_NEGATIVE = hashing.constant("not negative")
_ALL_OF = hashing.constant("all of")


def compare(
    integers: ParametricIntegers, operation: Operation, operands: Sequence[Value], opposite: Callable[[Value], Value]
) -> Value | None:
    """A comparison of two integers; None where nothing is known of one. `opposite` negates a predicate."""
    base, kind = operation.verb, operation.operands[0].name
    left, right = (polynomial_of(integers, each, L.width(each)) for each in operands)
    if left is None or right is None:
        return None
    if base == "eq":
        return _equality(integers, left, right)
    if kind[0] == "s" or (integers.not_below_zero(left) and integers.not_below_zero(right)):
        if left.bits < 64:
            first, second = integers.widened(left, 64), integers.widened(right, 64)
        else:
            first, second = left, right
            integers.wraps_assumed = True
        if first is not None and second is not None:
            difference = P.subtract(second, first)
            return not_negative(integers, P.shifted(difference, -1) if base == "lt" else difference)
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


def not_negative(integers: ParametricIntegers, value: Polynomial) -> Value:
    """Whether the integer is 0 or more."""
    return predicate(integers, (integers.coordinates.rewritten(integers.multiplied_out(value)),), (), None)


def predicate(
    integers: ParametricIntegers,
    polynomials: Sequence[Polynomial],
    opaque: Sequence[SymbolicVector],
    known: Array | None,
) -> Value:
    """All of these conditions, and the known one."""
    total: Any = hashing.constant("all of")
    failed: Any = False if known is None else ~known
    undecided: Any = False
    for value in map(tightened, map(integers.canonical, polynomials)):
        hashed = hashing.mix(P.words(integers.atoms, value) * hashing.multiplier(13) + _NOT_NEGATIVE)
        decided, truth = _decided(integers, value)
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
        return Predicate(tuple(polynomials), tuple(opaque), SymbolicVector(1, words, L.TERM | _sticky(opaque)))
    failed = np.atleast_2d(np.asarray(failed))
    settled = np.atleast_2d(np.asarray(failed | ~np.asarray(undecided)))
    if settled.all():
        return np.atleast_2d(~failed)
    words = np.where(settled, (~failed).astype(np.uint64), words)
    flags = np.where(settled, np.uint32(L.CONST), np.uint32(L.TERM)) | np.uint32(_sticky(opaque))
    lanes = SymbolicVector(1, words, L.uniform_flags(np.broadcast_to(flags, words.shape[1:])))
    if known is None:
        return Predicate(tuple(polynomials), tuple(opaque), lanes)
    return lanes


def _decided(integers: ParametricIntegers, value: Polynomial) -> tuple[Any, Any]:
    """The lanes in which the polynomial's sign is known (False: none), and whether it is not negative in them."""
    constant = np.asarray(modular.signed(value.constant, 64))
    free = integers.natural
    lanes: Any = True
    rising: Any = True
    falling: Any = True
    for monomial, coefficient in value.terms.items():
        if monomial == (free,):
            number = np.asarray(modular.signed(coefficient, 64))
            rising, falling = number >= 0, number <= 0
            continue
        if isinstance(coefficient, int):
            return False, False
        lanes = lanes & (coefficient == 0)
    lanes = lanes & ((rising & (constant >= 0)) | (falling & (constant < 0)))
    return (lanes, constant >= 0) if np.any(lanes) else (False, False)


def all_of(integers: ParametricIntegers, values: Sequence[Value]) -> Value:
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
                _merge(polynomials, integers.coordinates.rewritten(each))
            opaque.extend(each for each in value.opaque if not any(each.words is other.words for other in opaque))
        else:
            opaque.append(plain(value))
    if known is not None and known.all():
        known = None
    return predicate(integers, polynomials, opaque, known)


def inverse(integers: ParametricIntegers, value: Predicate) -> Value | None:
    """The opposite where it is a predicate too, else None."""
    if value.single is None:
        return None
    return not_negative(integers, P.shifted(P.negate(value.single), -1))


def _merge(polynomials: list[Polynomial], new: Polynomial) -> None:
    """Adds a condition; of two that differ in their constants only, the stronger one stays."""
    for index, old in enumerate(polynomials):
        if old.terms.keys() == new.terms.keys() and all(_equal(old.terms[m], new.terms[m]) for m in new.terms):
            least = np.minimum(modular.signed(old.constant, 64), modular.signed(new.constant, 64))
            polynomials[index] = Polynomial(
                64, old.terms, modular.unsigned(int(least) if np.ndim(least) == 0 else least, 64)
            )
            return
    polynomials.append(new)


def _equal(left: modular.Residue, right: modular.Residue) -> bool:
    if isinstance(left, int) and isinstance(right, int):
        return left == right
    return bool(np.all(modular.wide(left) == modular.wide(right)))


def _sticky(opaque: Sequence[SymbolicVector]) -> int:
    found = 0
    for each in opaque:
        found |= int(np.bitwise_or.reduce(np.atleast_1d(np.asarray(each.flags)), axis=None)) & L.STICKY
    return found
