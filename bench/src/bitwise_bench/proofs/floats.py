"""Floating-point arithmetic as expressions over bit-vectors, for every format of the vocabulary.

A number has a sign, the exponent of its leading bit, and a significand whose highest bit is set, or which is zero.
Exact results carry a sticky lowest bit, and `rounded` rounds once.  The expressions of a sum and of a product do not
depend on the order of the operands: the operands of `ordered` are sorted, which `lemmas` justifies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bitwise_bench.proofs import bitvectors as bv
from bitwise_bench.proofs.bitvectors import Bits, constant
from bitwise_core.numerics import FloatFormat

_LEAST_EXPONENT_BITS = 9


@dataclass(frozen=True, slots=True)
class Number:
    """(-1)**sign * significand * 2**(exponent - width of the significand + 1), a NaN, or an infinity."""

    sign: Bits
    exponent: Bits
    significand: Bits
    nan: Bits
    infinite: Bits

    @property
    def zero(self) -> Bits:
        """Whether the number is a zero of either sign."""
        none = bv.equal(self.significand, constant(0, self.significand.width))
        return bv.all_of((none, bv.invert(self.nan), bv.invert(self.infinite)))


def exponent_width(*formats: FloatFormat) -> int:
    """Return a width in which exponents of products and differences of exponents do not wrap."""
    return max(_LEAST_EXPONENT_BITS, *((4 * (each.bias + each.precision)).bit_length() + 1 for each in formats))


def exponent_of_zero(width: int) -> Bits:
    """Return the exponent of zeros, infinities and NaNs: below that of every number."""
    return constant(1 << width - 1, width)


def is_zero(bits: Bits) -> Bits:
    """Return whether no bit is set."""
    return bv.equal(bits, constant(0, bits.width))


# -- fields -----------------------------------------------------------------------------------------------------------


def magnitude_of(bits: Bits, form: FloatFormat) -> Bits:
    """Return the exponent and mantissa fields as one number."""
    return bv.extract(bits, form.padding, form.magnitude_bits)


def sign_of(bits: Bits, form: FloatFormat) -> Bits:
    """Return the sign bit."""
    return bv.top(bits) if form.signed else bv.false()


def nan_of(bits: Bits, form: FloatFormat) -> Bits:
    """Return whether a pattern is a NaN."""
    magnitude = magnitude_of(bits, form)
    width = magnitude.width
    if form.nan == "exponent":
        return bv.below(constant(form.largest_exponent_field << form.mantissa_bits, width), magnitude)
    if form.nan == "all_ones":
        return bv.equal(magnitude, constant(-1, width))
    if form.nan == "negative_zero":
        return bv.both(sign_of(bits, form), is_zero(magnitude))
    return bv.false()


def finite(bits: Bits, form: FloatFormat) -> Bits:
    """Return whether a pattern is neither an infinity nor a NaN."""
    found = bv.invert(nan_of(bits, form))
    if form.infinities:
        infinity = constant(form.largest_exponent_field << form.mantissa_bits, form.magnitude_bits)
        found = bv.both(found, bv.invert(bv.equal(magnitude_of(bits, form), infinity)))
    return found


def joined(sign: Bits, magnitude: Bits, nan: Bits, form: FloatFormat) -> Bits:
    """Return the pattern of fields; the canonical NaN where `nan` holds."""
    packed = bv.join(magnitude, constant(0, form.padding)) if form.padding else magnitude
    if form.signed:
        packed = bv.join(sign, packed)
        if form.nan == "negative_zero":
            packed = bv.choose(is_zero(magnitude), constant(0, form.bits), packed)
    if form.canonical_nan is not None:
        packed = bv.choose(nan, constant(form.canonical_nan, form.bits), packed)
    return packed


def flushed(bits: Bits, form: FloatFormat) -> Bits:
    """Return a pattern with subnormal numbers replaced by the zero of their sign."""
    magnitude, nan = magnitude_of(bits, form), nan_of(bits, form)
    small = bv.both(bv.below(magnitude, constant(1 << form.mantissa_bits, magnitude.width)), bv.invert(nan))
    return joined(sign_of(bits, form), bv.choose(small, constant(0, magnitude.width), magnitude), nan, form)


# -- numbers ----------------------------------------------------------------------------------------------------------


def normalised(significand: Bits, exponent: Bits) -> tuple[Bits, Bits]:
    """Shift a significand left until its highest bit is set, and adjust the exponent."""
    width = significand.width
    steps = [1 << place for place in reversed(range((width - 1).bit_length()))]
    for step in steps:
        low = is_zero(bv.extract(significand, width - step, step))
        shifted = bv.join(bv.extract(significand, 0, width - step), constant(0, step))
        significand = bv.choose(low, shifted, significand)
        exponent = bv.choose(low, bv.sub(exponent, constant(step, exponent.width)), exponent)
    return significand, bv.choose(is_zero(significand), exponent_of_zero(exponent.width), exponent)


def number(bits: Bits, form: FloatFormat, width: int) -> Number:
    """Return a pattern as a number with an exponent of `width` bits."""
    sign, magnitude, nan = sign_of(bits, form), magnitude_of(bits, form), nan_of(bits, form)
    field = bv.extract(magnitude, form.mantissa_bits, form.exponent_bits)
    infinite = bv.false()
    if form.infinities:
        infinite = bv.equal(magnitude, constant(form.largest_exponent_field << form.mantissa_bits, magnitude.width))
    if form.subnormals:
        subnormal = is_zero(field)
        fraction = bv.extract(magnitude, 0, form.mantissa_bits)
        significand = bv.join(bv.invert(subnormal), fraction)
        from_one = bv.choose(subnormal, constant(1, form.exponent_bits), field)
        exponent = bv.sub(bv.widen(from_one, width), constant(form.bias, width))
    else:
        significand = constant(1, 1)
        exponent = bv.sub(bv.widen(field, width), constant(form.bias, width))
    special = bv.either(nan, infinite)
    significand = bv.choose(special, constant(0, significand.width), significand)
    significand, exponent = normalised(significand, exponent)
    return Number(sign, exponent, significand, nan, infinite)


def negated(value: Number) -> Number:
    """Return the number with the opposite sign."""
    return Number(bv.invert(value.sign), value.exponent, value.significand, value.nan, value.infinite)


def with_precision(value: Number, width: int) -> Number:
    """Return the number with a significand of `width` bits, at least those it has."""
    more = width - value.significand.width
    significand = bv.join(value.significand, constant(0, more)) if more else value.significand
    return Number(value.sign, value.exponent, significand, value.nan, value.infinite)


def shifted_right_sticky(bits: Bits, amount: Bits) -> Bits:
    """Return bits shifted right; the lowest bit is also set where a set bit was shifted out."""
    width = bits.width
    room = max(width, amount.width)
    far = bv.below(constant(width, room), bv.widen(amount, room))
    inside = bv.choose(far, constant(width, width), bv.resize(amount, width))
    if (1 << width) <= width:
        raise ValueError(f"{width} bits do not hold their own number")
    kept = bv.shift_right(bits, inside)
    lost = bv.invert(bv.equal(bv.shift_left(kept, inside), bits))
    return bv.either(kept, bv.widen(lost, width))


# -- rounding ---------------------------------------------------------------------------------------------------------


def increment(rounding: str, sign: Bits, odd: Bits, half: Bits, rest: Bits) -> Bits:
    """Return whether a kept magnitude is incremented; `half` is the first dropped bit, `rest` whether more is set."""
    if rounding == "rn":
        return bv.both(half, bv.either(rest, odd))
    if rounding == "rna":
        return half
    inexact = bv.either(half, rest)
    if rounding == "ru":
        return bv.both(inexact, bv.invert(sign))
    if rounding == "rd":
        return bv.both(inexact, sign)
    return bv.false()


def _split(significand: Bits, kept: int) -> tuple[Bits, Bits, Bits]:
    """Return the highest `kept` bits, the bit below them, and whether a further bit is set."""
    width = significand.width
    high = bv.extract(significand, width - kept, kept)
    half = bv.extract(significand, width - kept - 1, 1)
    return high, half, bv.invert(is_zero(bv.extract(significand, 0, width - kept - 1)))


def rounded(value: Number, form: FloatFormat, rounding: str, saturate: bool = False, flush_tiny: bool = False) -> Bits:
    """Return the pattern of a number in a format; the arguments are those of `softfloat.pack`."""
    precision = form.precision
    value = with_precision(value, max(value.significand.width, precision + 2))
    width = value.exponent.width
    least = constant(form.smallest_exponent, width)
    under = bv.signed_below(value.exponent, least)
    missing = bv.choose(under, bv.sub(least, value.exponent), constant(0, width))
    kept, half, rest = _split(shifted_right_sticky(value.significand, missing), precision)
    up = increment(rounding, value.sign, bv.extract(kept, 0, 1), half, rest)
    above = bv.sub(value.exponent, least)
    most = form.largest_exponent_field
    over = bv.both(bv.invert(under), bv.below(constant(most, width), above))
    field = bv.choose(under, constant(0, width), bv.choose(over, constant(most + 1, width), above))
    room = form.magnitude_bits + 2
    high = bv.resize(field, form.exponent_bits + 2)
    magnitude = bv.add(
        bv.join(high, constant(0, form.mantissa_bits)) if form.mantissa_bits else high,
        bv.add(bv.widen(kept, room), bv.widen(up, room)),
    )
    if flush_tiny:
        full, first, further = _split(value.significand, precision)
        raised = increment(rounding, value.sign, bv.extract(full, 0, 1), first, further)
        carried = bv.all_of((raised, bv.equal(full, constant(-1, precision)), bv.equal(missing, constant(1, width))))
        magnitude = bv.choose(bv.both(under, bv.invert(carried)), constant(0, room), magnitude)
    largest = constant(form.largest_magnitude, room)
    finite_ = bv.invert(value.infinite)
    overflow = bv.both(bv.below(largest, magnitude), finite_)
    nan = value.nan
    if saturate:
        magnitude = bv.choose(bv.either(overflow, value.infinite), largest, magnitude)
    else:
        toward_zero = {"rz": bv.true(), "ru": value.sign, "rd": bv.invert(value.sign)}.get(rounding, bv.false())
        stays = bv.both(overflow, toward_zero)
        away = bv.either(bv.both(overflow, bv.invert(toward_zero)), value.infinite)
        magnitude = bv.choose(stays, largest, magnitude)
        magnitude = bv.choose(away, constant(most << form.mantissa_bits, room), magnitude)
        if not form.infinities:
            nan = bv.either(nan, away)
    return joined(value.sign, bv.extract(magnitude, 0, form.magnitude_bits), nan, form)


def widened(value: Number, form: FloatFormat) -> Bits:
    """Return the pattern of a number in a format that holds it as a normal number, an infinity or a zero."""
    value = with_precision(value, form.precision)
    field = bv.add(value.exponent, constant(form.bias, value.exponent.width))
    field = bv.choose(is_zero(value.significand), constant(0, field.width), field)
    exponent = bv.choose(
        value.infinite, constant(form.largest_exponent_field, form.exponent_bits), bv.resize(field, form.exponent_bits)
    )
    magnitude = bv.join(exponent, bv.extract(value.significand, 0, form.mantissa_bits))
    return joined(value.sign, magnitude, value.nan, form)


# -- exact arithmetic -------------------------------------------------------------------------------------------------


def ordered(one: Bits, other: Bits) -> bool:
    """Whether two expressions are in the order in which symmetric expressions take them."""
    return one.number <= other.number


def _key(value: Number) -> Bits:
    """Return a number in the order of magnitudes."""
    width = value.exponent.width
    return bv.join(bv.xor(value.exponent, constant(1 << width - 1, width)), value.significand)


def _trimmed(value: Number) -> Number:
    """Return the number without zeros at the end of its significand that are constants."""
    significand = value.significand
    zeros = bv.trailing_zeros(significand)
    if not 0 < zeros < significand.width:
        return value
    kept = bv.extract(significand, zeros, significand.width - zeros)
    return Number(value.sign, value.exponent, kept, value.nan, value.infinite)


def add(left: Number, right: Number, rounding: str) -> Number:
    """Return the exact sum, sticky in its lowest bit; the rounding decides the sign of an exact zero."""
    left, right = _trimmed(left), _trimmed(right)
    width = max(left.significand.width, right.significand.width)
    left, right = with_precision(left, width), with_precision(right, width)
    if not ordered(_key(left), _key(right)):
        left, right = right, left
    less = bv.below(_key(left), _key(right))
    large = bv.choose(less, right.significand, left.significand)
    small = bv.choose(less, left.significand, right.significand)
    exponent = bv.choose(less, right.exponent, left.exponent)
    distance = bv.sub(exponent, bv.choose(less, left.exponent, right.exponent))
    opposite = bv.xor(left.sign, right.sign)
    aligned = shifted_right_sticky(bv.join(small, constant(0, 3)), distance)
    wide, narrow = bv.widen(bv.join(large, constant(0, 3)), width + 4), bv.widen(aligned, width + 4)
    total = bv.choose(opposite, bv.sub(wide, narrow), bv.add(wide, narrow))
    cancelled = bv.choose(opposite, bv.true() if rounding == "rd" else bv.false(), bv.both(left.sign, right.sign))
    sign = bv.choose(bv.equal(_key(left), _key(right)), cancelled, bv.choose(less, right.sign, left.sign))
    infinite = bv.either(left.infinite, right.infinite)
    sign_of_infinity = bv.either(bv.both(left.infinite, left.sign), bv.both(right.infinite, right.sign))
    invalid = bv.all_of((left.infinite, right.infinite, opposite))
    nan = bv.any_of(left.nan, right.nan, invalid)
    total = bv.choose(infinite, constant(0, width + 4), total)
    significand, scale = normalised(total, bv.add(exponent, constant(1, exponent.width)))
    return Number(
        bv.choose(infinite, sign_of_infinity, sign), scale, significand, nan, bv.both(infinite, bv.invert(nan))
    )


def multiply(left: Number, right: Number) -> Number:
    """Return the exact product."""
    width = left.significand.width + right.significand.width
    product = bv.mul(bv.widen(left.significand, width), bv.widen(right.significand, width))
    exponent = bv.add(bv.add(left.exponent, right.exponent), constant(1, left.exponent.width))
    nan = bv.any_of(
        bv.either(left.nan, right.nan),
        bv.either(bv.both(left.infinite, right.zero), bv.both(left.zero, right.infinite)),
    )
    infinite = bv.both(bv.either(left.infinite, right.infinite), bv.invert(nan))
    significand, exponent = _one_step(product, exponent)
    return Number(bv.xor(left.sign, right.sign), exponent, significand, nan, infinite)


def _one_step(significand: Bits, exponent: Bits) -> tuple[Bits, Bits]:
    """Normalise a significand that is zero or has one of its two highest bits set."""
    width = significand.width
    low = bv.invert(bv.top(significand))
    shifted = bv.join(bv.extract(significand, 0, width - 1), constant(0, 1))
    none = is_zero(significand)
    exponent = bv.choose(low, bv.sub(exponent, constant(1, exponent.width)), exponent)
    return bv.choose(low, shifted, significand), bv.choose(none, exponent_of_zero(exponent.width), exponent)


def divide(left: Number, right: Number) -> Number:
    """Return the quotient, sticky in its lowest bit."""
    precision = left.significand.width
    width = 2 * precision + 2
    dividend = bv.join(left.significand, constant(0, precision + 2))
    divisor = bv.widen(right.significand, width)
    sticky = bv.invert(is_zero(bv.urem(dividend, divisor)))
    quotient = bv.join(bv.extract(bv.udiv(dividend, divisor), 0, precision + 3), sticky)
    is_none = bv.any_of(left.zero, right.infinite, left.infinite, right.zero)
    quotient = bv.choose(is_none, constant(0, quotient.width), quotient)
    significand, exponent = _one_step(quotient, bv.sub(left.exponent, right.exponent))
    nan = bv.any_of(
        bv.either(left.nan, right.nan), bv.both(left.infinite, right.infinite), bv.both(left.zero, right.zero)
    )
    infinite = bv.both(bv.either(left.infinite, right.zero), bv.invert(nan))
    # Special values have no significand, so only their flags decide.
    significand = bv.choose(bv.either(nan, infinite), constant(0, significand.width), significand)
    return Number(bv.xor(left.sign, right.sign), exponent, significand, nan, infinite)


def square_root(value: Number) -> Number:
    """Return the square root, sticky in its lowest bit."""
    precision, width = value.significand.width, value.exponent.width
    odd = bv.extract(value.exponent, 0, 1)
    doubled = bv.join(value.significand, constant(0, 1))
    radicand = bv.choose(odd, doubled, bv.widen(value.significand, precision + 1))
    wide = bv.join(radicand, constant(0, precision + 5))
    root = bv.square_root(wide)
    sticky = bv.invert(bv.equal(bv.mul(root, root), wide))
    significand = bv.join(bv.extract(root, 0, precision + 3), sticky)
    exponent = bv.shift_right_signed(bv.sub(value.exponent, bv.widen(odd, width)), constant(1, width))
    exponent = bv.choose(is_zero(value.significand), exponent_of_zero(width), exponent)
    nan = bv.either(value.nan, bv.both(value.sign, bv.invert(value.zero)))
    return Number(value.sign, exponent, significand, nan, bv.both(value.infinite, bv.invert(nan)))


# -- operations on patterns -------------------------------------------------------------------------------------------


def clamped(result: Bits, form: FloatFormat, sat: bool, relu: bool) -> Bits:
    """Return a result after `sat` or `relu`."""
    if not (sat or relu):
        return result
    sign, magnitude, nan = sign_of(result, form), magnitude_of(result, form), nan_of(result, form)
    none = constant(0, magnitude.width)
    magnitude = bv.choose(bv.both(sign, bv.invert(nan)), none, magnitude)
    if sat:
        one = constant(form.bias << form.mantissa_bits, magnitude.width)
        magnitude = bv.choose(bv.below(one, magnitude), one, magnitude)
        magnitude = bv.choose(nan, none, magnitude)
        nan = bv.false()
    return joined(bv.false(), magnitude, nan, form)


def arithmetic(
    verb: str, form: FloatFormat, rounding: str, modifiers: tuple[str, ...], operands: tuple[Bits, ...]
) -> Bits:
    """Return the result of a rounded operation."""
    if verb == "rcp":
        return arithmetic("div", form, rounding, modifiers, (constant(form.one, form.bits), *operands))
    ftz = "ftz" in modifiers
    if ftz:
        operands = tuple(flushed(each, form) for each in operands)
    width = exponent_width(form)
    first, *others = (number(each, form, width) for each in operands)
    exact = first
    if verb == "add":
        exact = add(first, others[0], rounding)
    elif verb == "sub":
        exact = add(first, negated(others[0]), rounding)
    elif verb == "mul":
        exact = multiply(first, others[0])
    elif verb in ("fma", "fnma"):
        product = multiply(first, others[0])
        exact = add(negated(product) if verb == "fnma" else product, others[1], rounding)
    elif verb == "div":
        exact = divide(first, others[0])
    else:
        exact = square_root(first)
    result = rounded(exact, form, rounding, flush_tiny=ftz)
    return clamped(result, form, "sat" in modifiers, "relu" in modifiers)


def extremum(verb: str, form: FloatFormat, modifiers: tuple[str, ...], left: Bits, right: Bits) -> Bits:
    """Return the result of `min` or `max`, -0 below +0."""
    if "ftz" in modifiers:
        left, right = flushed(left, form), flushed(right, form)
    nans = nan_of(left, form), nan_of(right, form)
    keys = []
    for each in (left, right):
        magnitude = bv.widen(magnitude_of(each, form), form.magnitude_bits + 1)
        keys.append(bv.choose(sign_of(each, form), bv.invert(magnitude), magnitude))
    larger = bv.signed_below(keys[1], keys[0])
    take_left = larger if verb == "max" else bv.invert(larger)
    take_left = bv.either(bv.both(take_left, bv.invert(nans[0])), nans[1])
    chosen = bv.choose(take_left, left, right)
    nan = bv.either(*nans) if "nan" in modifiers else bv.both(*nans)
    result = joined(sign_of(chosen, form), magnitude_of(chosen, form), nan, form)
    return clamped(result, form, "sat" in modifiers, "relu" in modifiers)


def change_sign(verb: str, form: FloatFormat, modifiers: tuple[str, ...], operand: Bits) -> Bits:
    """Return the result of `neg` or `abs`."""
    if "ftz" in modifiers:
        operand = flushed(operand, form)
    sign = bv.invert(sign_of(operand, form)) if verb == "neg" else bv.false()
    return joined(sign, magnitude_of(operand, form), nan_of(operand, form), form)


def guard(form: FloatFormat, operand: Bits, difference: Bits) -> Bits:
    """Return the operand, or NaN where the difference is NaN."""
    nan = bv.either(nan_of(operand, form), nan_of(difference, form))
    return joined(sign_of(operand, form), magnitude_of(operand, form), nan, form)


def compare(verb: str, form: FloatFormat, modifiers: tuple[str, ...], left: Bits, right: Bits) -> Bits:
    """Return a comparison; +0 and -0 are equal."""
    if "ftz" in modifiers:
        left, right = flushed(left, form), flushed(right, form)
    unordered = bv.either(nan_of(left, form), nan_of(right, form))
    if verb in ("ord", "unord"):
        return unordered if verb == "unord" else bv.invert(unordered)
    x, y = (_signed_magnitude(each, form) for each in (left, right))
    relation = verb.removesuffix("u")
    answers = {
        "eq": lambda: bv.equal(x, y), "ne": lambda: bv.invert(bv.equal(x, y)),
        "lt": lambda: bv.signed_below(x, y), "gt": lambda: bv.signed_below(y, x),
        "le": lambda: bv.invert(bv.signed_below(y, x)), "ge": lambda: bv.invert(bv.signed_below(x, y)),
    }  # fmt: skip
    answer = answers[relation]()
    return bv.either(unordered, answer) if verb.endswith("u") else bv.both(bv.invert(unordered), answer)


def _signed_magnitude(bits: Bits, form: FloatFormat) -> Bits:
    magnitude = bv.widen(magnitude_of(bits, form), form.magnitude_bits + 1)
    return bv.choose(sign_of(bits, form), bv.neg(magnitude), magnitude)


def classify(verb: str, form: FloatFormat, operand: Bits) -> Bits:
    """Return a test of the class of a value, for a format whose NaNs are at the highest exponent."""
    magnitude = magnitude_of(operand, form)
    smallest = constant(1 << form.mantissa_bits, magnitude.width)
    infinity = constant(form.largest_magnitude + 1, magnitude.width)
    small = bv.below(magnitude, smallest)
    answers = {
        "isfinite": bv.below(magnitude, infinity), "isinfinite": bv.equal(magnitude, infinity),
        "isnumber": bv.invert(bv.below(infinity, magnitude)), "isnan": bv.below(infinity, magnitude),
        "isnormal": bv.both(bv.invert(small), bv.below(magnitude, infinity)),
        "issubnormal": bv.both(bv.invert(is_zero(magnitude)), small),
    }  # fmt: skip
    return answers[verb]


# -- lemmas -----------------------------------------------------------------------------------------------------------


def lemmas(width: int) -> Iterator[Bits]:
    """Yield predicates that hold for all values: exchanging the operands that `add` sorts changes nothing.

    They state for keys k, l and signs s, t that the greater key, the lesser key and the sign of the greater key are the
    same in either order.
    """
    k, m = bv.variable("k", width), bv.variable("l", width)
    s, t = bv.variable("s", 1), bv.variable("t", 1)
    less, greater, same = bv.below(k, m), bv.below(m, k), bv.equal(k, m)
    yield bv.equal(bv.choose(less, m, k), bv.choose(greater, k, m))
    yield bv.equal(bv.choose(less, k, m), bv.choose(greater, m, k))
    yield bv.either(same, bv.equal(bv.choose(less, t, s), bv.choose(greater, s, t)))
