"""Expressions over bit-vectors: the language in which obligations are stated.

The kinds are those of the theory of fixed-size bit-vectors of SMT-LIB, and the integer square root.  A predicate has
one bit.  Expressions are interned, constants are folded, and operands of commutative kinds are sorted, so that equal
expressions are mostly one object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from math import isqrt
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

COMMUTATIVE = frozenset(("add", "mul", "and", "or", "xor", "eq"))
WORD = 64
"""Up to this width arrays of patterns are words; beyond it they hold Python's integers."""


@dataclass(frozen=True, slots=True, eq=False)
class Bits:
    """An expression of `width` bits; `value` is that of a constant, or the lowest bit of an extract."""

    kind: str
    width: int
    operands: tuple[Bits, ...]
    value: int
    name: str
    number: int


_INTERNED: dict[tuple[Any, ...], Bits] = {}
_ASSUMED: dict[int, Bits] = {}
_NUMBERS = count()


def forget() -> None:
    """Release every expression.  Expressions made before must not be combined with later ones."""
    _INTERNED.clear()


def _node(kind: str, width: int, operands: tuple[Bits, ...] = (), value: int = 0, name: str = "") -> Bits:
    key = (kind, width, tuple(each.number for each in operands), value, name)
    found = _INTERNED.get(key)
    if found is None:
        found = _INTERNED[key] = Bits(kind, width, operands, value, name, next(_NUMBERS))
    return _ASSUMED.get(found.number, found)


@contextmanager
def assuming(values: Mapping[Bits, int]) -> Iterator[None]:
    """Make constants in place of these expressions, in everything that is made inside."""
    _ASSUMED.update({each.number: constant(value, each.width) for each, value in values.items()})
    try:
        yield
    finally:
        _ASSUMED.clear()


def constant(value: int, width: int) -> Bits:
    """Return a constant, modulo 2**width."""
    return _node("constant", width, value=value & (1 << width) - 1)


def variable(name: str, width: int) -> Bits:
    """Return the variable of that name."""
    return _node("variable", width, name=name)


def true() -> Bits:
    """Return the predicate that holds."""
    return constant(1, 1)


def false() -> Bits:
    """Return the predicate that does not hold."""
    return constant(0, 1)


def make(kind: str, width: int, *operands: Bits, value: int = 0) -> Bits:
    """Return an expression; constants are folded."""
    if all(each.kind == "constant" for each in operands):
        return constant(_integer(kind, width, operands, value, [each.value for each in operands]), width)
    if kind in COMMUTATIVE and operands[0].number > operands[1].number:
        operands = operands[::-1]
    return _node(kind, width, operands, value)


def _same_width(a: Bits, b: Bits) -> None:
    if a.width != b.width:
        raise ValueError(f"operands of {a.width} and {b.width} bits")


def add(a: Bits, b: Bits) -> Bits:
    """Return a + b modulo the width."""
    _same_width(a, b)
    if a.kind == "constant":
        a, b = b, a
    if b.kind == "constant":
        if b.value == 0:
            return a
        if a.kind == "add":
            for one, other in (a.operands, a.operands[::-1]):
                if one.kind == "constant":
                    return add(other, constant(one.value + b.value, a.width))
    return make("add", a.width, a, b)


def sub(a: Bits, b: Bits) -> Bits:
    """Return a - b modulo the width."""
    _same_width(a, b)
    return add(a, constant(-b.value, b.width)) if b.kind == "constant" else make("sub", a.width, a, b)


def mul(a: Bits, b: Bits) -> Bits:
    """Return a * b modulo the width."""
    _same_width(a, b)
    for one, other in ((a, b), (b, a)):
        if one.kind == "constant" and one.value.bit_count() == 1:
            place = one.value.bit_length() - 1
            return join(extract(other, 0, a.width - place), constant(0, place)) if place else other
    zeros = trailing_zeros(a), trailing_zeros(b)
    if 0 < sum(zeros) < a.width:
        width = a.width - sum(zeros)
        factors = [_resized(extract(each, low, a.width - low), width) for each, low in zip((a, b), zeros, strict=True)]
        return join(mul(*factors), constant(0, sum(zeros)))
    return make("mul", a.width, a, b)


def _resized(a: Bits, width: int) -> Bits:
    return extract(a, 0, width) if width <= a.width else widen(a, width)


def udiv(a: Bits, b: Bits) -> Bits:
    """Return the quotient of unsigned numbers; all ones for b = 0."""
    _same_width(a, b)
    return make("udiv", a.width, a, b)


def urem(a: Bits, b: Bits) -> Bits:
    """Return the remainder of unsigned numbers; a for b = 0."""
    _same_width(a, b)
    return make("urem", a.width, a, b)


def neg(a: Bits) -> Bits:
    """Return -a modulo the width."""
    return sub(constant(0, a.width), a)


def both(a: Bits, b: Bits) -> Bits:
    """Return a and b, bit by bit."""
    _same_width(a, b)
    for one, other in ((a, b), (b, a)):
        if one.kind == "constant" and one.value == 0:
            return one
        if one.kind == "constant" and one.value == _mask(a.width):
            return other
        if other.kind == "and" and one in other.operands:
            return other
        if other.kind == "or" and one in other.operands:
            return one
        if other.kind == "or" and invert(one) in other.operands:
            first, second = other.operands
            return both(one, second if first is invert(one) else first)
    if a is invert(b):
        return constant(0, a.width)
    return a if a is b else make("and", a.width, a, b)


def either(a: Bits, b: Bits) -> Bits:
    """Return a or b, bit by bit."""
    _same_width(a, b)
    for one, other in ((a, b), (b, a)):
        if one.kind == "constant" and one.value == 0:
            return other
        if one.kind == "constant" and one.value == _mask(a.width):
            return one
        if other.kind == "or" and one in other.operands:
            return other
        if other.kind == "and" and one in other.operands:
            return one
        if other.kind == "and" and invert(one) in other.operands:
            first, second = other.operands
            return either(one, second if first is invert(one) else first)
    if a is invert(b):
        return constant(-1, a.width)
    return a if a is b else make("or", a.width, a, b)


def xor(a: Bits, b: Bits) -> Bits:
    """Return the exclusive or of a and b, bit by bit."""
    _same_width(a, b)
    for one, other in ((a, b), (b, a)):
        if one.kind == "constant" and one.value == 0:
            return other
        if one.kind == "not":
            return invert(xor(one.operands[0], other))
        if one.kind == "constant" and one.value == _mask(a.width):
            return invert(other)
    return constant(0, a.width) if a is b else make("xor", a.width, a, b)


def invert(a: Bits) -> Bits:
    """Return the complement of every bit."""
    return a.operands[0] if a.kind == "not" else make("not", a.width, a)


def all_of(predicates: Iterable[Bits]) -> Bits:
    """Return whether all predicates hold."""
    found = true()
    for each in predicates:
        found = both(found, each)
    return found


def any_of(*predicates: Bits) -> Bits:
    """Return whether one of the predicates holds."""
    found = false()
    for each in predicates:
        found = either(found, each)
    return found


def equal(a: Bits, b: Bits) -> Bits:
    """Return whether a = b."""
    _same_width(a, b)
    if a is b:
        return true()
    if a.kind == "constant":
        a, b = b, a
    if b.kind == "constant":
        if a.width == 1:
            return a if b.value else invert(a)
        if a.kind == "concat":
            high, low = a.operands
            return both(
                equal(high, constant(b.value >> low.width, high.width)), equal(low, constant(b.value, low.width))
            )
        if _has_constant(a):
            return choose(a.operands[0], equal(a.operands[1], b), equal(a.operands[2], b))
    return make("eq", 1, a, b)


def _has_constant(a: Bits) -> bool:
    """Whether an expression chooses a constant."""
    return a.kind == "ite" and any(each.kind == "constant" for each in a.operands[1:])


def _below(kind: str, a: Bits, b: Bits) -> Bits:
    _same_width(a, b)
    if a is b:
        return false()
    if a.kind == "constant" and _has_constant(b):
        return choose(b.operands[0], _below(kind, a, b.operands[1]), _below(kind, a, b.operands[2]))
    if b.kind == "constant" and _has_constant(a):
        return choose(a.operands[0], _below(kind, a.operands[1], b), _below(kind, a.operands[2], b))
    return make(kind, 1, a, b)


def below(a: Bits, b: Bits) -> Bits:
    """Return whether a < b, unsigned."""
    return _below("ult", a, b)


def signed_below(a: Bits, b: Bits) -> Bits:
    """Return whether a < b, signed."""
    return _below("slt", a, b)


def choose(condition: Bits, a: Bits, b: Bits) -> Bits:
    """Return a where the condition holds, else b."""
    _same_width(a, b)
    if condition.kind == "not":
        condition, a, b = condition.operands[0], b, a
    if condition.kind == "constant":
        return a if condition.value else b
    if a.kind == "ite" and a.operands[0] is condition:
        a = a.operands[1]
    if b.kind == "ite" and b.operands[0] is condition:
        b = b.operands[2]
    if a is b:
        return a
    if a.width == 1:
        if a.kind == "constant":
            return either(condition, b) if a.value else both(invert(condition), b)
        if b.kind == "constant":
            return either(invert(condition), a) if b.value else both(condition, a)
    zeros = min(trailing_zeros(a), trailing_zeros(b))
    if 0 < zeros < a.width:
        high = [extract(each, zeros, each.width - zeros) for each in (a, b)]
        return join(choose(condition, *high), constant(0, zeros))
    return make("ite", a.width, condition, a, b)


def trailing_zeros(a: Bits) -> int:
    """Return how many of the lowest bits are zeros whatever the variables are, as far as the form of a shows it."""
    if a.kind == "constant":
        return (a.value & -a.value).bit_length() - 1 if a.value else a.width
    if a.kind == "concat":
        low = trailing_zeros(a.operands[1])
        return low if low < a.operands[1].width else low + trailing_zeros(a.operands[0])
    return 0


def extract(a: Bits, low: int, width: int) -> Bits:
    """Return `width` bits from bit `low` up."""
    if low < 0 or low + width > a.width or width < 1:
        raise ValueError(f"{width} bits from bit {low} of {a.width} bits")
    if width == a.width:
        return a
    if a.kind == "extract":
        return extract(a.operands[0], a.value + low, width)
    if a.kind == "concat":
        high, bottom = a.operands
        if low >= bottom.width:
            return extract(high, low - bottom.width, width)
        if low + width <= bottom.width:
            return extract(bottom, low, width)
        return join(extract(high, 0, low + width - bottom.width), extract(bottom, low, bottom.width - low))
    if a.kind == "ite" and any(each.kind in ("constant", "concat") for each in a.operands[1:]):
        return choose(a.operands[0], *(extract(each, low, width) for each in a.operands[1:]))
    if a.kind == "not":
        return invert(extract(a.operands[0], low, width))
    return make("extract", width, a, value=low)


def top(a: Bits) -> Bits:
    """Return the highest bit."""
    return extract(a, a.width - 1, 1)


def join(high: Bits, low: Bits) -> Bits:
    """Return the concatenation."""
    if low.kind == "concat" and high.kind == low.operands[0].kind == "constant":
        return join(join(high, low.operands[0]), low.operands[1])
    if high.kind == "concat" and low.kind == high.operands[1].kind == "constant":
        return join(high.operands[0], join(high.operands[1], low))
    if high.kind == low.kind == "extract" and high.operands == low.operands and high.value == low.value + low.width:
        return extract(high.operands[0], low.value, high.width + low.width)
    return make("concat", high.width + low.width, high, low)


def widen(a: Bits, width: int) -> Bits:
    """Return a with zeros in front."""
    return a if width == a.width else join(constant(0, width - a.width), a)


def widen_signed(a: Bits, width: int) -> Bits:
    """Return a with copies of its highest bit in front."""
    return a if width == a.width else make("sext", width, a)


def resize(a: Bits, width: int) -> Bits:
    """Return a with zeros in front, or its lowest bits."""
    return widen(a, width) if width >= a.width else extract(a, 0, width)


def shift_left(a: Bits, amount: Bits) -> Bits:
    """Return a shifted left; 0 from an amount of the width on."""
    _same_width(a, amount)
    return make("shl", a.width, a, amount)


def shift_right(a: Bits, amount: Bits) -> Bits:
    """Return a shifted right with zeros; 0 from an amount of the width on."""
    _same_width(a, amount)
    return make("lshr", a.width, a, amount)


def shift_right_signed(a: Bits, amount: Bits) -> Bits:
    """Return a shifted right with copies of the sign."""
    _same_width(a, amount)
    return make("ashr", a.width, a, amount)


def square_root(a: Bits) -> Bits:
    """Return the integer part of the square root of an unsigned number of an even width."""
    return make("isqrt", a.width, a)


_MAKERS: Mapping[str, Callable[..., Bits]] = {
    "add": add, "sub": sub, "mul": mul, "udiv": udiv, "urem": urem, "and": both, "or": either, "xor": xor,
    "not": invert, "eq": equal, "ult": below, "slt": signed_below, "ite": choose, "concat": join, "shl": shift_left,
    "lshr": shift_right, "ashr": shift_right_signed, "isqrt": square_root,
}  # fmt: skip


def replaced(roots: Sequence[Bits], replacements: Mapping[int, Bits]) -> list[Bits]:
    """Return expressions with others in place of subexpressions, which are given by their numbers."""
    known: dict[int, Bits] = {}
    for each in subexpressions(*roots):
        given = replacements.get(each.number)
        operands = [known[below_.number] for below_ in each.operands]
        if given is not None:
            known[each.number] = given
        elif all(one is other for one, other in zip(operands, each.operands, strict=True)):
            known[each.number] = each
        elif each.kind == "extract":
            known[each.number] = extract(operands[0], each.value, each.width)
        elif each.kind == "sext":
            known[each.number] = widen_signed(operands[0], each.width)
        else:
            known[each.number] = _MAKERS[each.kind](*operands)
    return [known[root.number] for root in roots]


# -- evaluation -------------------------------------------------------------------------------------------------------


def _signed(value: int, width: int) -> int:
    return value - (1 << width) if value >> width - 1 else value


def _integer(kind: str, width: int, operands: tuple[Bits, ...], low: int, values: list[int]) -> int:
    """Return the value of an expression of constants; the caller reduces it modulo 2**width."""
    a = values[0]
    b = values[1] if len(values) > 1 else 0
    w = operands[0].width
    if kind == "ite":
        return b if a else values[2]
    if kind in ("shl", "lshr", "ashr"):
        amount = min(b, w)
        if kind == "shl":
            return a << amount
        return (_signed(a, w) if kind == "ashr" else a) >> amount
    if kind == "udiv":
        return a // b if b else -1
    if kind == "urem":
        return a % b if b else a
    if kind == "concat":
        return a << operands[1].width | b
    plain = {
        "add": a + b, "sub": a - b, "mul": a * b, "and": a & b, "or": a | b, "xor": a ^ b, "not": ~a, "eq": a == b,
        "ult": a < b, "slt": _signed(a, w) < _signed(b, operands[-1].width), "extract": a >> low,
        "sext": _signed(a, w), "isqrt": isqrt(a) if kind == "isqrt" else 0,
    }  # fmt: skip
    return int(plain[kind])


def subexpressions(*roots: Bits) -> Iterator[Bits]:
    """Yield every expression below the roots once, operands first."""
    seen: set[int] = set()
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        found, expanded = stack.pop()
        if expanded:
            yield found
        elif found.number not in seen:
            seen.add(found.number)
            stack.append((found, True))
            stack.extend((each, False) for each in found.operands if each.number not in seen)


def variables(*roots: Bits) -> dict[str, int]:
    """Return the widths of the variables below the roots."""
    return {each.name: each.width for each in subexpressions(*roots) if each.kind == "variable"}


def _mask(width: int) -> int:
    return (1 << width) - 1


def _array(width: int, values: Array) -> Array:
    """Return values in the type of arrays of a width: words, or Python's integers."""
    return values.astype(np.uint64) if width <= WORD else values.astype(object)


def evaluate(root: Bits, values: Mapping[str, Array]) -> Array:
    """Return the values of an expression for arrays of patterns of its variables, all of one length."""
    size = len(next(iter(values.values()))) if values else 1
    known: dict[int, Array] = {}
    for each in subexpressions(root):
        if each.kind == "constant":
            known[each.number] = _array(each.width, np.full(size, each.value, dtype=object))
        elif each.kind == "variable":
            known[each.number] = _array(each.width, values[each.name])
        else:
            known[each.number] = _apply(each, [known[below_.number] for below_ in each.operands])
    return known[root.number]


def _apply(each: Bits, given: list[Array]) -> Array:
    width, kind, wide = each.width, each.kind, each.operands[0].width
    if kind == "ite":
        return np.where(given[0] != 0, given[1], given[2])
    if kind == "eq":
        return np.asarray(given[0] == given[1]).astype(np.uint64)
    if kind == "ult":
        return np.asarray(given[0] < given[1]).astype(np.uint64)
    simple = kind in ("add", "sub", "mul", "and", "or", "xor", "not", "extract", "concat")
    if not simple or max(width, wide, *(below_.width for below_ in each.operands)) > WORD:
        lists = [np.asarray(array).astype(object) for array in given]
        found = [
            _integer(kind, width, each.operands, each.value, list(row)) & _mask(width)
            for row in zip(*lists, strict=True)
        ]
        return _array(width, np.array(found, dtype=object))
    a = given[0]
    mask = np.uint64(_mask(width))
    if kind == "extract":
        return np.asarray((a >> np.uint64(each.value)) & mask)
    if kind == "not":
        return np.asarray(~a & mask)
    b = given[1]
    if kind == "concat":
        return np.asarray(a << np.uint64(each.operands[1].width) | b)
    results: Array = {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "and": np.bitwise_and, "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }[kind](a, b)  # fmt: skip
    return results & mask
