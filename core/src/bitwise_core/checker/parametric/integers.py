"""Integers of the launch-parametric analysis: normal form, known facts, operations.

An integer is a `Polynomial` over the atoms of one analysis.  Its normal form expresses tile indices by output
coordinates (`coordinates`).  Sums, products and left shifts are exact modulo 2**bits.  Where a 32-bit index is widened,
compared or divided, the integer is assumed to equal its polynomial without wrap-around: this is the assumption
WITHOUT_WRAPPING, recorded in `wraps_assumed`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

from bitwise_core.checker.parametric import polynomial as P
from bitwise_core.checker.parametric.coordinates import Coordinates
from bitwise_core.checker.parametric.polynomial import AtomTable, Polynomial
from bitwise_core.execution.values import hashing
from bitwise_core.numerics import Operation, modular

WITHOUT_WRAPPING = (
    "32-bit integers of indices and launch arguments do not wrap around where they are widened, compared or divided,"
    " nor those of block coordinates where they are shifted right"
)


@dataclass(frozen=True, slots=True)
class Tiles:
    """The tile index of one iteration of a persistent loop, which replaces a block index.

    `symbol` is its atom and `block` the name of the block coordinate.  The tiles are those for which `condition` is
    nonnegative.
    """

    symbol: int
    block: str
    condition: Polynomial


class ParametricIntegers:
    """The integers of one analysis: atoms, output coordinates and known facts."""

    def __init__(self, coordinates: Coordinates) -> None:
        self.table: AtomTable = coordinates.table
        self.coordinates = coordinates
        self.atoms = self.table.atoms
        self.wraps_assumed = False
        self.tiles: Tiles | None = None
        self.facts: list[Polynomial] = []
        """64-bit integers that are nonnegative at the current instruction."""
        self.nonnegative_symbol = self.table.atom(hashing.constant("an integer that is not negative"))
        """An atom for an arbitrary nonnegative integer."""

    def canonical(self, value: Polynomial) -> Polynomial:
        """The polynomial over the output coordinates created so far, in every instance of the launch."""
        return self.coordinates.instantiate(value)

    def words_of(self, value: Polynomial) -> hashing.Words:
        """The hash of a polynomial, linear in its constant."""
        return P.words(self.atoms, self.canonical(value))

    def equal(self, left: Polynomial, right: Polynomial) -> bool:
        """Whether two polynomials of one width have the same normal form."""
        return self.coordinates.rewrite(P.subtract(left, right)).is_zero

    def counts(self, atom: int) -> bool:
        """Whether an atom is a block coordinate or the number of an iteration."""
        return atom in self.table.iteration_atoms or atom in self.table.block_symbols.values()

    def widened(self, value: Polynomial, bits: int) -> Polynomial | None:
        """The same integer in more bits, under WITHOUT_WRAPPING; None as for `polynomial.widened`."""
        found = P.widened(value, bits)
        if found is not None and value.terms:
            self.wraps_assumed = True
        return found

    def opaque(
        self,
        name: str,
        operands: Sequence[Polynomial],
        bits: int,
        *,
        commutes: bool = False,
        definition: tuple[Any, ...] | None = None,
        alignment: int = 1,
    ) -> Polynomial:
        """The result of an operation that is not polynomial, as an atom identified by name and operands."""
        total = hashing.constant(f"{name} to {bits}")
        for position, operand in enumerate(operands):
            hashed = hashing.mix(
                self.words_of(operand) * hashing.multiplier(31) + hashing.constant(f"operand of {operand.bits}")
            )
            total = total + (hashed if commutes else hashed * hashing.multiplier(position + 1))
        block = any(self.atoms[number].block for operand in operands for number in operand.atoms())
        if definition is None:
            definition = ("operation", name, tuple(operands))
        number = self.table.atom(hashing.mix(total), block=block, definition=definition, alignment=alignment)
        return P.atom_polynomial(number, bits)

    def quotient(self, value: Polynomial, by: int) -> Polynomial | None:
        """The 32-bit quotient by a positive number, rounded toward zero, under WITHOUT_WRAPPING.

        None where a coefficient is too large for an index.
        """
        if P.widened(value, 64) is None:
            return None
        self.wraps_assumed = True
        return self.opaque(f"quotient by {by} of", [value], 32, definition=("quotient", value, by))

    def apply(self, operation: Operation, values: Sequence[Polynomial]) -> Polynomial:
        """The result of an integer operation: by a rule if one applies, else an atom."""
        verb, bits = operation.verb, operation.bits
        rule = None if operation.modifiers else _RULES.get(verb)
        found = None if rule is None else rule(self, operation, values, bits)
        if found is not None:
            return found
        commutes = operation.commutative and operation.arity == 2
        return self.opaque(operation.name, values, bits, commutes=commutes, alignment=_mask_alignment(verb, values))

    # -- conditions ---------------------------------------------------------------------------------------------------

    def is_nonnegative(self, value: Polynomial) -> bool:
        """Whether an integer is known to be nonnegative, from its terms or from a fact, under WITHOUT_WRAPPING."""
        if value.bits < P.INDEX_BITS and value.terms:
            return False
        numbers = [value.constant, *value.terms.values()]
        if set().union(*value.terms) <= self.table.nonnegative_atoms and all(
            np.all(modular.signed(n, value.bits) >= 0) for n in numbers
        ):
            return True
        wide = value if value.bits == 64 else self.widened(value, 64)
        return wide is not None and any(implies(fact, wide) for fact in self.facts)

    def without_quotient(self, value: Polynomial) -> Polynomial:
        """A 64-bit polynomial without a quotient that is nonnegative exactly where `value` is.

        x / c - r >= 0 is equivalent to x - c * r >= 0 where r >= 1, and to x + c - 1 >= 0 where r = 0, because the
        quotient is rounded toward zero.
        """
        for monomial, coefficient in value.terms.items():
            definition = self.table.definition(monomial, coefficient)
            if definition is None or definition[0] != "quotient":
                continue
            rest = Polynomial(64, {m: c for m, c in value.terms.items() if m != monomial}, value.constant)
            inner = self.widened(definition[1], 64)
            if inner is not None and self._at_most_minus_one(rest):
                return P.add(inner, P.scale(rest, definition[2]))
            if inner is not None and rest.is_zero:
                return P.add_constant(inner, definition[2] - 1)
        return value

    def _at_most_minus_one(self, value: Polynomial) -> bool:
        for monomial, coefficient in value.terms.items():
            negative = isinstance(coefficient, int) and modular.signed(coefficient, 64) <= 0
            if not negative or not set(monomial) <= self.table.nonnegative_atoms:
                return False
        return bool(np.all(modular.signed(value.constant, 64) <= -1))


def implies(known: Polynomial, wanted: Polynomial) -> bool:
    """Whether `known` >= 0 implies `wanted` >= 0: the same terms, and a constant that is at least as large."""
    difference = P.subtract(wanted, known)
    return not difference.terms and bool(np.all(modular.signed(difference.constant, 64) >= 0))


def tighten(value: Polynomial) -> Polynomial:
    """The condition that an integer is nonnegative, divided by the greatest common divisor of its coefficients."""
    shared: Any = 0
    for coefficient in value.terms.values():
        number = modular.signed(coefficient, 64)
        both = isinstance(number, int) and isinstance(shared, int)
        shared = gcd(shared, number) if both else np.gcd(shared, number)
    if isinstance(shared, int):
        if shared <= 1:
            return value
        terms = {m: modular.quotient(c, shared, 64) for m, c in value.terms.items()}
        return Polynomial(64, terms, modular.quotient(value.constant, shared, 64))
    shared = np.maximum(shared, np.int64(1))
    if (shared == 1).all():
        return value
    terms = {m: modular.unsigned(np.asarray(modular.signed(c, 64)) // shared, 64) for m, c in value.terms.items()}
    return Polynomial(64, terms, modular.unsigned(np.asarray(modular.signed(value.constant, 64)) // shared, 64))


# -- operations -------------------------------------------------------------------------------------------------------


def _multiply_wide(
    integers: ParametricIntegers, operation: Operation, values: Sequence[Polynomial], bits: int
) -> Polynomial | None:
    left, right = integers.widened(values[0], bits), integers.widened(values[1], bits)
    return None if left is None or right is None else P.multiply(left, right)


def _shift_left(
    integers: ParametricIntegers, operation: Operation, values: Sequence[Polynomial], bits: int
) -> Polynomial | None:
    amount = values[1].number
    if amount is None:
        return None
    return P.scale(values[0], 1 << amount) if amount < bits else Polynomial(bits)


def _shift_right(
    integers: ParametricIntegers, operation: Operation, values: Sequence[Polynomial], bits: int
) -> Polynomial | None:
    """(2**s * q + c) >> s = q + floor(c / 2**s) if the integer does not wrap around.

    Of block coordinates and numbers of iterations, this is assumed, with coefficients that are less than 2**16.  Other
    integers may be shifted left and right in order to lose their high bits.  A logical shift takes an integer that may
    be negative for another one.
    """
    amount = values[1].number
    if bits == 32 and amount is not None:
        found = _sign_mask(integers, operation, values[0], amount)
        if found is not None:
            return found
    if amount is None or not 0 < amount < bits - 1:
        return None
    value, by = values[0], 1 << amount
    if bits == 32 and _is_signed(operation):
        whole = _rounded_toward_zero(integers, value, amount)
        if whole is not None:
            return whole
    if P.widened(value, 64) is None or not all(modular.divisible(c, by, bits) for c in value.terms.values()):
        return None
    if not _is_signed(operation) and not integers.is_nonnegative(value):
        return None
    if not all(integers.counts(number) for monomial in value.terms for number in monomial):
        return None
    if any(np.any(np.abs(modular.signed(each, bits)) >= _NARROWED) for each in value.terms.values()):
        return None
    integers.wraps_assumed = True
    return Polynomial(
        bits,
        {m: modular.quotient(c, by, bits) for m, c in value.terms.items()},
        modular.quotient(value.constant, by, bits),
    )


_NARROWED = 1 << 16
"""The least factor by which a left shift narrows an integer, to 16 bits or fewer."""


def _is_signed(operation: Operation) -> bool:
    return operation.operands[0].name[0] == "s"


def _sign_mask(integers: ParametricIntegers, operation: Operation, value: Polynomial, amount: int) -> Polynomial | None:
    """x >> 31, or a logical right shift of that: 2**s - 1 for negative x, else 0."""
    if _is_signed(operation) and amount == 31:
        return integers.opaque("sign of", [value], 32, definition=("sign", value))
    if not _is_signed(operation) and len(value.terms) == 1 and modular.is_zero(value.constant):
        ((monomial, coefficient),) = value.terms.items()
        definition = integers.table.definition(monomial, coefficient)
        if definition is not None and definition[0] == "sign":
            bits = 32 - amount
            return integers.opaque(
                f"{bits} bits of the sign of", [definition[1]], 32, definition=("sign bits", definition[1], bits)
            )
    return None


def _rounded_toward_zero(integers: ParametricIntegers, value: Polynomial, amount: int) -> Polynomial | None:
    """(x + (x < 0 ? 2**s - 1 : 0)) >> s, which compilers emit for x / 2**s, is that quotient."""
    for monomial, coefficient in value.terms.items():
        definition = integers.table.definition(monomial, coefficient)
        if definition is None or definition[0] != "sign bits" or definition[2] != amount:
            continue
        rest = Polynomial(32, {m: c for m, c in value.terms.items() if m != monomial}, value.constant)
        if P.subtract(rest, definition[1]).is_zero:
            return integers.quotient(rest, 1 << amount)
    return None


def _divide(
    integers: ParametricIntegers, operation: Operation, values: Sequence[Polynomial], bits: int
) -> Polynomial | None:
    by = values[1].number
    if operation.name != "div.s32" or by is None or not 1 < by < P.MAXIMUM_INDEX_COEFFICIENT:
        return None
    return integers.quotient(values[0], by)


def _alignment(integers: ParametricIntegers, value: Polynomial) -> int:
    """The largest power of two, at most 2**bits, that divides every term except the constant."""
    least = value.bits
    for monomial, coefficient in value.terms.items():
        bits = coefficient if isinstance(coefficient, int) else int(np.bitwise_or.reduce(coefficient, axis=None))
        zeros = (bits & -bits).bit_length() - 1
        least = min(least, zeros + sum(integers.atoms[number].alignment.bit_length() - 1 for number in monomial))
    return 1 << least


def _bitwise(
    integers: ParametricIntegers, operation: Operation, values: Sequence[Polynomial], bits: int
) -> Polynomial | None:
    """With a constant whose set bits (for `and`: clear bits) are below the alignment of the symbols."""
    value, mask = values if not values[1].terms else values[::-1]
    if mask.terms:
        return None
    verb = operation.verb
    step = _alignment(integers, value)
    full = (1 << bits) - 1
    number, low = (
        np.atleast_2d(modular.wide(mask.constant)),
        np.atleast_2d(modular.wide(value.constant)) & np.uint64((step - 1) & modular.FULL),
    )
    if verb == "and":
        above = number & np.uint64(full & ~(step - 1) & modular.FULL)
        if not np.any(above):
            return Polynomial(bits, {}, modular.reduced(low & number, bits))
        if not np.all(above == np.uint64(full & ~(step - 1))):
            return None
        change = (low & number) - low
    else:
        if step <= full and np.any(number >= np.uint64(step)):
            return None
        change = ((low | number) if verb == "or" else (low ^ number)) - low
    constant = modular.reduced(np.atleast_2d(modular.wide(value.constant)) + change, bits)
    return Polynomial(bits, value.terms, constant)


def _convert(
    integers: ParametricIntegers, operation: Operation, values: Sequence[Polynomial], bits: int
) -> Polynomial | None:
    if operation.is_float:
        return None
    value = values[0]
    return P.truncated(value, bits) if bits <= value.bits else integers.widened(value, bits)


Rule = Callable[[ParametricIntegers, Operation, Sequence[Polynomial], int], Polynomial | None]
"""A function from operation, operands and width to the result; None where the rule does not apply."""


def _always(function: Callable[..., Polynomial | None]) -> Rule:
    """A rule that applies a function of polynomials to any operands."""
    return lambda integers, operation, values, bits: function(*values)


_RULES: dict[str, Rule] = {
    "add": _always(P.add), "sub": _always(P.subtract), "neg": _always(P.negate), "mul": _always(P.multiply),
    "not": _always(lambda value: P.add_constant(P.negate(value), -1)), "mulwide": _multiply_wide, "shl": _shift_left,
    "shr": _shift_right, "div": _divide, "and": _bitwise, "or": _bitwise, "xor": _bitwise, "convert": _convert,
}  # fmt: skip


def _mask_alignment(verb: str, values: Sequence[Polynomial]) -> int:
    """A power of two that divides the result: for `and`, the lowest set bit of the mask."""
    masks = [each.number for each in values if each.number is not None]
    return masks[0] & -masks[0] if verb == "and" and masks and masks[0] else 1
