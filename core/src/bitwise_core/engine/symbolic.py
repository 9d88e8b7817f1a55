"""Values of a reading for every launch: integers over symbols, predicates over them, and choices by such predicates.

They stand where lanes of data may.  Whatever does not know them takes their hash, which is that of the polynomial,
so nothing is lost but precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bitwise_core.engine import polynomial as P
from bitwise_core.engine.polynomial import Polynomial
from bitwise_core.machine import hashing
from bitwise_core.machine import lanes as L
from bitwise_core.machine.lanes import Array, Lanes, Pieces, Value
from bitwise_core.machine.pieces import as_lanes, cut, cut_lanes, take_threads

if TYPE_CHECKING:
    from bitwise_core.engine.symbolic_domain import SymbolicDomain


def plain(value: Value) -> Lanes:
    """The value as lanes without its structure."""
    lanes = as_lanes(value)
    return Lanes(lanes.bits, lanes.words, lanes.meta)


class Symbolic(Lanes, L.Numbers):
    """An integer over symbols."""

    __slots__ = ("_words", "domain", "polynomial")

    def __init__(self, domain: SymbolicDomain, polynomial: Polynomial) -> None:
        self.domain, self.polynomial, self.bits = domain, polynomial, polynomial.bits
        self.meta = L.TERM
        self.origin = self.partly = self.chosen = self.beside = None
        self.bundle = None
        self.hashed = None
        self._words: hashing.Words | None = None

    @property
    def words(self) -> hashing.Words:  # type: ignore[override]
        """The hash of the integer as data."""
        if self._words is None:
            raw = P.words(self.domain.atoms, self.domain.canonical(self.polynomial))
            self._words = hashing.finalise(
                raw * hashing.multiplier(12) + hashing.constant(f"integer of {self.bits} bits")
            )
        return self._words

    @property
    def uniform(self) -> bool:
        """Whether all threads agree, as far as the form tells."""
        found = self.words
        return bool(found.shape[2] == 1 or (found == found[:, :, :1]).all())

    def settled(self) -> Any:
        """Symbols are never a known array."""
        return None

    def lanes(self) -> Lanes:
        """Itself: it is lanes already."""
        return self

    def cut(self, low: int, bits: int) -> Any:
        """The low bits of an integer are exact; others are a term."""
        if low == 0:
            return self.domain.integer_of(P.resized(self.polynomial, bits))
        return cut_lanes(plain(self), low, bits)

    def choose(self, mask: Array, new: Any, old: Any) -> Any:
        """Lane by lane."""
        if isinstance(new, Symbolic | np.ndarray) and isinstance(old, Symbolic | np.ndarray):
            left, right = (self.domain.polynomial(each, self.bits) for each in (new, old))
            if left is not None and right is not None:
                return self.domain.integer_of(P.pick(mask, left, right))
        return _choose_plain(mask, new, old)

    def join(self, parts: Sequence[Any]) -> Any:
        """Zeros above an integer widen it; any other row stays a row."""
        return join(parts)

    def take_threads(self, index: Array) -> Any:
        """Each thread's from another."""
        uniform = all(self.domain.atoms[number].words.shape[2] == 1 for number in self.polynomial.atoms())
        if uniform and index.shape[0] == 1:
            return self.domain.integer_of(P.taken(self.polynomial, index))
        return take_threads(plain(self), index)


def _choose_plain(mask: Array, new: Any, old: Any) -> Lanes:
    left, right = plain(new), plain(old)
    meta = L.select_meta(mask, left.meta, right.meta)
    return Lanes(left.bits, np.where(mask, left.words, right.words), L.uniform(meta))


def join(parts: Sequence[Any]) -> Any:
    """Values side by side, least significant first."""
    first, rest = parts[0], parts[1:]
    if isinstance(first, Symbolic) and all(isinstance(each, np.ndarray) and not each.any() for each in rest):
        bits = sum(L.width(part) for part in parts)
        wide = first.domain.widened(first.polynomial, bits)
        if wide is not None:
            return first.domain.integer_of(wide)
    return Pieces(tuple(parts))


class Chosen(Lanes):
    """`if_true` where a predicate holds, else `if_false`: a choice whose parts are choices.

    A leaf chosen against zero is a leaf of its own: the content of memory that the predicate masks.
    """

    __slots__ = ("domain", "if_false", "if_true", "predicate")

    def __init__(self, domain: SymbolicDomain, lanes: Lanes, predicate: Value, if_true: Value, if_false: Value) -> None:
        super().__init__(lanes.bits, lanes.words, lanes.meta)
        self.domain, self.predicate, self.if_true, self.if_false = domain, predicate, if_true, if_false

    def part(self, low: int, bits: int) -> Any:
        """The choice between the parts."""
        return self.domain.select(self.predicate, cut(self.if_true, low, bits), cut(self.if_false, low, bits))


class Predicate(Lanes, L.Numbers):
    """A conjunction: each factor a polynomial that must not be negative, or an opaque condition.

    `meta` marks the lanes in which it is known.
    """

    __slots__ = ("domain", "opaque", "polynomials")

    def __init__(
        self, domain: SymbolicDomain, polynomials: tuple[Polynomial, ...], opaque: tuple[Lanes, ...], lanes: Lanes
    ) -> None:
        super().__init__(1, lanes.words, lanes.meta)
        self.domain, self.polynomials, self.opaque = domain, polynomials, opaque

    @property
    def single(self) -> Polynomial | None:
        """The polynomial, where the predicate says no more than that it is not negative."""
        return self.polynomials[0] if len(self.polynomials) == 1 and not self.opaque else None

    def settled(self) -> Any:
        """The truths where every lane is known."""
        known = L.known_where(self)
        return L.numbers_of(self) if known is True or (known is not False and np.all(known)) else None

    def lanes(self) -> Lanes:
        """Itself."""
        return self

    def cut(self, low: int, bits: int) -> Any:
        """A predicate has one bit."""
        return self

    def choose(self, mask: Array, new: Any, old: Any) -> Any:
        """Lane by lane; the structure is lost."""
        return L.settle(_choose_plain(mask, new, old))

    def join(self, parts: Sequence[Any]) -> Any:
        """Predicates are not put side by side."""
        return Pieces(tuple(parts))

    def take_threads(self, index: Array) -> Any:
        """Each thread's from another; the structure is lost."""
        return take_threads(plain(self), index)


class Equality(Lanes):
    """Whether a difference of two integers is zero, or (`unequal`) is not."""

    __slots__ = ("difference", "unequal")

    def __init__(self, words: hashing.Words, difference: Polynomial, unequal: bool = False) -> None:
        super().__init__(1, words, L.TERM | (L.NEGATED if unequal else 0))
        self.difference, self.unequal = difference, unequal

    def inverse(self) -> Equality:
        """The opposite condition."""
        return Equality(self.words, self.difference, not self.unequal)
