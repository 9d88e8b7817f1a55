"""Predicates of a reading for every launch: conjunctions of integers that must not be negative."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np

from bitwise_core import numeric
from bitwise_core.engine import polynomial as P
from bitwise_core.engine.polynomial import Polynomial
from bitwise_core.engine.symbolic import Equality, Predicate, plain
from bitwise_core.machine import hashing
from bitwise_core.machine import lanes as L
from bitwise_core.machine.lane_hash import full_hash
from bitwise_core.machine.lanes import Array, Lanes, Value
from bitwise_core.numeric import Operation

if TYPE_CHECKING:
    from bitwise_core.engine.symbolic_domain import SymbolicDomain

_NOT_NEGATIVE = hashing.constant("not negative")
_ALL_OF = hashing.constant("all of")


def compare(
    domain: SymbolicDomain, operation: Operation, operands: Sequence[Value], opposite: Callable[[Value], Value]
) -> Value | None:
    """A comparison of two integers; None where nothing is known of one.  `opposite` negates a predicate."""
    base, kind = operation.verb, operation.operands[0].name
    left, right = (domain.polynomial(each, L.width(each)) for each in operands)
    if left is None or right is None:
        return None
    if base == "eq":
        return _equality(domain, left, right)
    if kind[0] == "s" or (not_below_zero(domain, left) and not_below_zero(domain, right)):
        if left.bits < 64:
            first, second = domain.widened(left, 64), domain.widened(right, 64)
        else:
            first, second = left, right
            domain.wraps_assumed = True
        if first is not None and second is not None:
            difference = P.subtract(second, first)
            return not_negative(domain, P.shifted(difference, -1) if base == "lt" else difference)
    if base == "le":
        swapped = compare(domain, numeric.operation(f"lt.{kind}"), operands[::-1], opposite)
        return None if swapped is None else opposite(swapped)
    hashed = [
        hashing.finalise(domain.words_of(each) * hashing.multiplier(31 + index))
        for index, each in enumerate((left, right))
    ]
    return Lanes(1, hashing.finalise(hashed[0] + hashed[1] + hashing.constant(operation.name)), L.TERM)


def _equality(domain: SymbolicDomain, left: Polynomial, right: Polynomial) -> Value:
    difference = domain.canonical(P.subtract(left, right))
    if not difference.terms:
        found = difference.constant
        return np.full((1, 1), found == 0) if isinstance(found, int) else found == 0
    tag = hashing.constant(f"zero of {left.bits} bits")
    for each in (difference, P.negate(difference)):
        tag = tag + hashing.finalise(P.words(domain.atoms, each) * hashing.multiplier(14))
    return Equality(hashing.finalise(tag), P.subtract(left, right))


def not_negative(domain: SymbolicDomain, value: Polynomial) -> Value:
    """Whether the integer is 0 or more."""
    return predicate(domain, (domain.coordinates.rewritten(_multiplied_out(domain, value)),), (), None)


def _multiplied_out(domain: SymbolicDomain, value: Polynomial) -> Polynomial:
    """x / c - r >= 0 is x - c * r >= 0 where r is at least 1, and x + c - 1 >= 0 where r is 0.

    The quotient is rounded toward zero.
    """
    for monomial, coefficient in value.terms.items():
        definition = domain.atoms[monomial[0]].definition if len(monomial) == 1 and P.is_one(coefficient) else None
        if definition is None or definition[0] != "quotient":
            continue
        rest = Polynomial(64, {m: c for m, c in value.terms.items() if m != monomial}, value.constant)
        inner = domain.widened(definition[1], 64)
        if inner is not None and _at_most_minus_one(domain, rest):
            return P.add(inner, P.scale(rest, definition[2]))
        if inner is not None and not rest.terms and P.is_zero(rest.constant):
            return P.shifted(inner, definition[2] - 1)
    return value


def not_below_zero(domain: SymbolicDomain, value: Polynomial) -> bool:
    """Whether an integer is seen not to be negative, as long as it does not wrap: as a sum, or by a branch before."""
    numbers = [value.constant, *value.terms.values()]
    if set().union(*value.terms) <= domain.naturals and all(np.all(P.signed(n, value.bits) >= 0) for n in numbers):
        return True
    wide = value if value.bits == 64 else domain.widened(value, 64)
    return wide is not None and any(implies(fact, wide) for fact in domain.facts)


def implies(known: Polynomial, wanted: Polynomial) -> bool:
    """Whether one condition is another with the same symbols and no smaller a constant."""
    difference = P.subtract(wanted, known)
    return not difference.terms and bool(np.all(P.signed(difference.constant, 64) >= 0))


def _at_most_minus_one(domain: SymbolicDomain, value: Polynomial) -> bool:
    for monomial, coefficient in value.terms.items():
        negative = isinstance(coefficient, int) and P.signed(coefficient, 64) <= 0
        if not negative or not set(monomial) <= domain.naturals:
            return False
    return bool(np.all(P.signed(value.constant, 64) <= -1))


def tightened(value: Polynomial) -> Polynomial:
    """The condition that an integer is not negative, divided by what all its coefficients share."""
    shared: Any = 0
    for coefficient in value.terms.values():
        number = P.signed(coefficient, 64)
        both = isinstance(number, int) and isinstance(shared, int)
        shared = gcd(shared, number) if both else np.gcd(shared, number)
    if isinstance(shared, int):
        if shared <= 1:
            return value
        terms = {m: P.quotient(c, shared, 64) for m, c in value.terms.items()}
        return Polynomial(64, terms, P.quotient(value.constant, shared, 64))
    shared = np.maximum(shared, np.int64(1))
    if (shared == 1).all():
        return value
    terms = {m: P.unsigned(np.asarray(P.signed(c, 64)) // shared, 64) for m, c in value.terms.items()}
    return Polynomial(64, terms, P.unsigned(np.asarray(P.signed(value.constant, 64)) // shared, 64))


def predicate(
    domain: SymbolicDomain,
    polynomials: Sequence[Polynomial],
    opaque: Sequence[Lanes],
    known: Array | None,
) -> Value:
    """All of these conditions, and the known one."""
    total: Any = hashing.constant("all of")
    failed: Any = False if known is None else ~known
    undecided: Any = False
    for value in map(tightened, map(domain.canonical, polynomials)):
        hashed = hashing.finalise(P.words(domain.atoms, value) * hashing.multiplier(13) + _NOT_NEGATIVE)
        decided, truth = _decided(domain, value)
        if decided is not False:
            failed = failed | (decided & ~truth)
            hashed = np.where(decided, np.uint64(0), hashed)
            undecided = undecided | ~np.asarray(decided)
        else:
            undecided = True
        total = total + hashed
    for lanes in opaque:
        hashed = hashing.finalise(full_hash(lanes) * hashing.multiplier(15) + _ALL_OF)
        settled = L.known_where(lanes)
        if settled is False:
            undecided = True
        else:
            failed = failed | (settled & (lanes.words[0] == 0))
            hashed = np.where(settled, np.uint64(0), hashed)
            undecided = undecided | ~np.asarray(settled)
        total = total + hashed
    words = hashing.finalise(total + _ALL_OF)
    if failed is False and undecided is True:
        return Predicate(domain, tuple(polynomials), tuple(opaque), Lanes(1, words, L.TERM | _sticky(opaque)))
    failed = np.atleast_2d(np.asarray(failed))
    settled = np.atleast_2d(np.asarray(failed | ~np.asarray(undecided)))
    if settled.all():
        return np.atleast_2d(~failed)
    words = np.where(settled, (~failed).astype(np.uint64), words)
    meta = np.where(settled, np.uint32(L.KNOWN), np.uint32(L.TERM)) | np.uint32(_sticky(opaque))
    lanes = Lanes(1, words, L.uniform(np.broadcast_to(meta, words.shape[1:])))
    if known is None:
        return Predicate(domain, tuple(polynomials), tuple(opaque), lanes)
    return lanes


def _decided(domain: SymbolicDomain, value: Polynomial) -> tuple[Any, Any]:
    """The lanes in which the polynomial's sign is known (False: none), and whether it is not negative there."""
    constant = np.asarray(P.signed(value.constant, 64))
    free = domain.natural
    lanes: Any = True
    rising: Any = True
    falling: Any = True
    for monomial, coefficient in value.terms.items():
        if monomial == (free,):
            number = np.asarray(P.signed(coefficient, 64))
            rising, falling = number >= 0, number <= 0
            continue
        if isinstance(coefficient, int):
            return False, False
        lanes = lanes & (coefficient == 0)
    lanes = lanes & ((rising & (constant >= 0)) | (falling & (constant < 0)))
    return (lanes, constant >= 0) if np.any(lanes) else (False, False)


def all_of(domain: SymbolicDomain, values: Sequence[Value]) -> Value:
    """The conjunction of predicates."""
    if len(values) == 1:
        return values[0]
    polynomials: list[Polynomial] = []
    opaque: list[Lanes] = []
    known: Array | None = None
    for value in values:
        if isinstance(value, np.ndarray):
            known = value if known is None else known & value
        elif isinstance(value, Predicate):
            for each in value.polynomials:
                _merge(polynomials, domain.coordinates.rewritten(each))
            opaque.extend(each for each in value.opaque if not any(each.words is other.words for other in opaque))
        else:
            opaque.append(plain(value))
    if known is not None and known.all():
        known = None
    return predicate(domain, polynomials, opaque, known)


def inverse(domain: SymbolicDomain, value: Predicate) -> Value | None:
    """The opposite where it is a predicate too, else None."""
    if value.single is None:
        return None
    return not_negative(domain, P.shifted(P.negate(value.single), -1))


def _merge(polynomials: list[Polynomial], new: Polynomial) -> None:
    """Adds a condition; of two that differ in their constants only, the stronger one stays."""
    for index, old in enumerate(polynomials):
        if old.terms.keys() == new.terms.keys() and all(_equal(old.terms[m], new.terms[m]) for m in new.terms):
            least = np.minimum(P.signed(old.constant, 64), P.signed(new.constant, 64))
            polynomials[index] = Polynomial(64, old.terms, P.unsigned(int(least) if np.ndim(least) == 0 else least, 64))
            return
    polynomials.append(new)


def _equal(left: P.Coefficient, right: P.Coefficient) -> bool:
    if isinstance(left, int) and isinstance(right, int):
        return left == right
    return bool(np.all(P.wide(left) == P.wide(right)))


def _sticky(opaque: Sequence[Lanes]) -> int:
    found = 0
    for each in opaque:
        found |= int(np.bitwise_or.reduce(np.atleast_1d(np.asarray(each.meta)), axis=None)) & L.STICKY
    return found
