"""Integer operations as expressions over bit-vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bitwise_bench.proofs import bitvectors as bv
from bitwise_bench.proofs.bitvectors import Bits, constant
from bitwise_core.numerics import IntegerFormat


def _less(form: IntegerFormat, a: Bits, b: Bits) -> Bits:
    return bv.signed_below(a, b) if form.signed else bv.below(a, b)


def _wide(form: IntegerFormat, a: Bits, width: int) -> Bits:
    return bv.widen_signed(a, width) if form.signed else bv.widen(a, width)


def _product(form: IntegerFormat, a: Bits, b: Bits) -> Bits:
    width = 2 * a.width
    return bv.mul(_wide(form, a, width), _wide(form, b, width))


def _extremum(verb: str, form: IntegerFormat, a: Bits, b: Bits) -> Bits:
    return bv.choose(_less(form, a, b) if verb == "min" else bv.invert(_less(form, a, b)), a, b)


def _extremum_by_sign(verb: str, a: Bits, b: Bits) -> Bits:
    sign = constant(1 << a.width - 1, a.width)
    x, y = (bv.choose(bv.top(each), bv.invert(each), bv.either(each, sign)) for each in (a, b))
    greater = bv.below(y, x)
    return bv.choose(greater if verb == "max" else bv.invert(greater), a, b)


def _shift(verb: str, form: IntegerFormat, a: Bits, amount: Bits) -> Bits:
    width = max(a.width, amount.width)
    wide = _wide(form, a, width) if verb == "shr" else bv.widen(a, width)
    count = bv.widen(amount, width)
    if verb == "shl":
        return bv.extract(bv.shift_left(wide, count), 0, a.width)
    moved = bv.shift_right_signed(wide, count) if form.signed else bv.shift_right(wide, count)
    return bv.extract(moved, 0, a.width)


def _sum(a: Bits, b: Bits, carry: Bits | None = None) -> Bits:
    """Return a + b + carry with one bit more than the operands."""
    width = a.width + 1
    total = bv.add(bv.widen(a, width), bv.widen(b, width))
    return total if carry is None else bv.add(total, bv.widen(carry, width))


def _overflow(a: Bits, b: Bits) -> Bits:
    width = a.width + 1
    total = bv.add(bv.widen_signed(a, width), bv.widen_signed(b, width))
    return bv.xor(bv.top(total), bv.extract(total, a.width - 1, 1))


def _difference_overflows(a: Bits, b: Bits) -> Bits:
    width = a.width + 1
    total = bv.sub(bv.widen_signed(a, width), bv.widen_signed(b, width))
    return bv.xor(bv.top(total), bv.extract(total, a.width - 1, 1))


def _borrow(a: Bits, b: Bits, borrow: Bits) -> Bits:
    width = a.width + 1
    return bv.top(bv.sub(bv.sub(bv.widen(a, width), bv.widen(b, width)), bv.widen(borrow, width)))


def _distance(form: IntegerFormat, a: Bits, b: Bits) -> Bits:
    return bv.choose(_less(form, a, b), bv.sub(b, a), bv.sub(a, b))


Encoder = Callable[..., Bits]

_FUNCTIONS: Mapping[str, Encoder] = {
    "add": lambda form, a, b: bv.add(a, b),
    "sub": lambda form, a, b: bv.sub(a, b),
    "mul": lambda form, a, b: bv.mul(a, b),
    "and": lambda form, a, b: bv.both(a, b),
    "or": lambda form, a, b: bv.either(a, b),
    "xor": lambda form, a, b: bv.xor(a, b),
    "not": lambda form, a: bv.invert(a),
    "neg": lambda form, a: bv.neg(a),
    "abs": lambda form, a: bv.choose(bv.top(a), bv.neg(a), a),
    "eq": lambda form, a, b: bv.equal(a, b),
    "ne": lambda form, a, b: bv.invert(bv.equal(a, b)),
    "lt": _less,
    "le": lambda form, a, b: bv.invert(_less(form, b, a)),
    "gt": lambda form, a, b: _less(form, b, a),
    "ge": lambda form, a, b: bv.invert(_less(form, a, b)),
    "min": lambda form, a, b: _extremum("min", form, a, b),
    "max": lambda form, a, b: _extremum("max", form, a, b),
    "minbysign": lambda form, a, b: _extremum_by_sign("min", a, b),
    "maxbysign": lambda form, a, b: _extremum_by_sign("max", a, b),
    "shl": lambda form, a, b: _shift("shl", form, a, b),
    "shr": lambda form, a, b: _shift("shr", form, a, b),
    "mulhi": lambda form, a, b: bv.extract(_product(form, a, b), a.width, a.width),
    "mulwide": _product,
    "addc": lambda form, a, b, c: bv.extract(_sum(a, b, c), 0, a.width),
    "subc": lambda form, a, b, c: bv.sub(bv.sub(a, b), bv.widen(c, a.width)),
    "carry": lambda form, a, b: bv.top(_sum(a, b)),
    "carryc": lambda form, a, b, c: bv.top(_sum(a, b, c)),
    "borrow": lambda form, a, b: bv.below(a, b),
    "borrowc": lambda form, a, b, c: _borrow(a, b, c),
    "addoverflow": lambda form, a, b: _overflow(a, b),
    "suboverflow": lambda form, a, b: _difference_overflows(a, b),
    "addsat": lambda form, a, b: bv.choose(bv.top(_sum(a, b)), constant(-1, a.width), bv.add(a, b)),
    "subsat": lambda form, a, b: bv.choose(bv.below(a, b), constant(0, a.width), bv.sub(a, b)),
    "low24": lambda form, a: _wide(form, bv.extract(a, 0, 24), 32),
    "copysign": lambda form, a, b: bv.join(bv.top(a), bv.extract(b, 0, a.width - 1)),
    "sad": lambda form, a, b, c: bv.add(c, _distance(form, a, b)),
}


def encoder_of(verb: str) -> Encoder | None:
    """Return the expression of an integer verb as a function of its format and operands; None where it has none."""
    return _FUNCTIONS.get(verb)
