"""Integer operations on polynomials: what each does where it is exact, else None.

Rules that look at an integer's size (shifts to the right, widening) hold under the condition that indices do not wrap
around; the others hold modulo the width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from bitwise_core.engine import polynomial as P
from bitwise_core.engine.polynomial import Polynomial
from bitwise_core.numeric import Operation

if TYPE_CHECKING:
    from bitwise_core.engine.symbolic_domain import SymbolicDomain

Rule = Callable[["SymbolicDomain", Operation, list[Polynomial], int], "Polynomial | None"]


def _add(domain: SymbolicDomain, operation: Operation, values: list[Polynomial], bits: int) -> Polynomial | None:
    return P.add(values[0], values[1])


def _subtract(domain: SymbolicDomain, operation: Operation, values: list[Polynomial], bits: int) -> Polynomial | None:
    return P.subtract(values[0], values[1])


def _negate(domain: SymbolicDomain, operation: Operation, values: list[Polynomial], bits: int) -> Polynomial | None:
    return P.negate(values[0])


def _complement(domain: SymbolicDomain, operation: Operation, values: list[Polynomial], bits: int) -> Polynomial | None:
    return P.shifted(P.negate(values[0]), -1)


def _multiply(domain: SymbolicDomain, operation: Operation, values: list[Polynomial], bits: int) -> Polynomial | None:
    return P.multiply(values[0], values[1])


def _multiply_wide(
    domain: SymbolicDomain, operation: Operation, values: list[Polynomial], bits: int
) -> Polynomial | None:
    left, right = domain.widened(values[0], bits), domain.widened(values[1], bits)
    return None if left is None or right is None else P.multiply(left, right)


def _amount(value: Polynomial) -> int | None:
    return value.constant if not value.terms and isinstance(value.constant, int) else None


def _shift_left(domain: SymbolicDomain, operation: Operation, values: list[Polynomial], bits: int) -> Polynomial | None:
    amount = _amount(values[1])
    if amount is None:
        return None
    return P.scale(values[0], 1 << amount) if amount < bits else Polynomial(bits)


def _shift_right(
    domain: SymbolicDomain, operation: Operation, values: list[Polynomial], bits: int
) -> Polynomial | None:
    """2**s * q + c shifted by s is q + floor(c / 2**s), for a number that does not wrap around."""
    amount = _amount(values[1])
    if bits == 32 and amount is not None:
        found = _sign(domain, operation, values[0], amount)
        if found is not None:
            return found
    if amount is None or not 0 < amount < bits - 1:
        return None
    value, by = values[0], 1 << amount
    if bits == 32 and _is_signed(operation):
        whole = _rounded_toward_zero(domain, value, amount)
        if whole is not None:
            return whole
    if P.widened(value, 64) is None or not all(P.divisible(c, by, bits) for c in value.terms.values()):
        return None
    domain.wraps_assumed = True
    return Polynomial(
        bits, {m: P.quotient(c, by, bits) for m, c in value.terms.items()}, P.quotient(value.constant, by, bits)
    )


def _is_signed(operation: Operation) -> bool:
    return operation.operands[0].name[0] == "s"


def _sign(domain: SymbolicDomain, operation: Operation, value: Polynomial, amount: int) -> Polynomial | None:
    """x >> 31, and that shifted on to the low bits: 2**s - 1 for a negative number, else 0."""
    if _is_signed(operation) and amount == 31:
        return domain.defined("sign of", value, ("sign", value))
    if not _is_signed(operation) and len(value.terms) == 1 and P.is_zero(value.constant):
        ((monomial, coefficient),) = value.terms.items()
        definition = domain.atoms[monomial[0]].definition if len(monomial) == 1 and P.is_one(coefficient) else None
        if definition is not None and definition[0] == "sign":
            return domain.defined(
                f"{32 - amount} bits of the sign of", definition[1], ("sign bits", definition[1], 32 - amount)
            )
    return None


def _rounded_toward_zero(domain: SymbolicDomain, value: Polynomial, amount: int) -> Polynomial | None:
    """(x + (x < 0 ? 2**s - 1 : 0)) >> s, as compilers write the quotient x / 2**s, is that quotient."""
    for monomial, coefficient in value.terms.items():
        definition = domain.atoms[monomial[0]].definition if len(monomial) == 1 and P.is_one(coefficient) else None
        if definition is None or definition[0] != "sign bits" or definition[2] != amount:
            continue
        rest = Polynomial(32, {m: c for m, c in value.terms.items() if m != monomial}, value.constant)
        if _equal(rest, definition[1]):
            return quotient_of(domain, rest, 1 << amount)
    return None


def _equal(left: Polynomial, right: Polynomial) -> bool:
    difference = P.subtract(left, right)
    return not difference.terms and P.is_zero(difference.constant)


def quotient_of(domain: SymbolicDomain, value: Polynomial, by: int) -> Polynomial | None:
    """value / by toward zero, as a symbol that knows what it is."""
    if P.widened(value, 64) is None:
        return None
    domain.wraps_assumed = True
    return domain.quotient(value, by)


def _divide(domain: SymbolicDomain, operation: Operation, values: list[Polynomial], bits: int) -> Polynomial | None:
    by = _amount(values[1])
    if operation.name != "div.s32" or by is None or not 1 < by < P.SMALL:
        return None
    return quotient_of(domain, values[0], by)


def _alignment(domain: SymbolicDomain, value: Polynomial) -> int:
    """The largest power of two that divides every symbol's term, modulo the width."""
    least = value.bits
    for monomial, coefficient in value.terms.items():
        bits = coefficient if isinstance(coefficient, int) else int(np.bitwise_or.reduce(coefficient, axis=None))
        zeros = (bits & -bits).bit_length() - 1
        least = min(least, zeros + sum(domain.atoms[number].alignment.bit_length() - 1 for number in monomial))
    return 1 << least


def _bitwise(domain: SymbolicDomain, operation: Operation, values: list[Polynomial], bits: int) -> Polynomial | None:
    """With a known number below what the symbols are multiples of (for and: whose clear bits lie below)."""
    value, mask = values if not values[1].terms else values[::-1]
    if mask.terms:
        return None
    verb = operation.verb
    step = _alignment(domain, value)
    full = (1 << bits) - 1
    number, low = (
        np.atleast_2d(P.wide(mask.constant)),
        np.atleast_2d(P.wide(value.constant)) & np.uint64((step - 1) & P.FULL),
    )
    if verb == "and":
        above = number & np.uint64(full & ~(step - 1) & P.FULL)
        if not np.any(above):
            return Polynomial(bits, {}, P.reduced(low & number, bits))
        if not np.all(above == np.uint64(full & ~(step - 1))):
            return None
        change = (low & number) - low
    else:
        if step <= full and np.any(number >= np.uint64(step)):
            return None
        change = ((low | number) if verb == "or" else (low ^ number)) - low
    constant = P.reduced(np.atleast_2d(P.wide(value.constant)) + change, bits)
    return Polynomial(bits, value.terms, constant)


def _convert(domain: SymbolicDomain, operation: Operation, values: list[Polynomial], bits: int) -> Polynomial | None:
    if operation.modifiers or operation.is_float:
        return None
    value = values[0]
    return P.resized(value, bits) if bits <= value.bits else domain.widened(value, bits)


OPERATIONS: dict[str, Rule] = {
    "add": _add, "sub": _subtract, "neg": _negate, "not": _complement, "mul": _multiply, "mulwide": _multiply_wide,
    "shl": _shift_left,
    "shr": _shift_right, "div": _divide, "and": _bitwise, "or": _bitwise, "xor": _bitwise, "convert": _convert,
}  # fmt: skip
