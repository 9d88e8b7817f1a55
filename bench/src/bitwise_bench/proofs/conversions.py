"""Conversions between formats as expressions over bit-vectors."""

from __future__ import annotations

from bitwise_bench.proofs import bitvectors as bv
from bitwise_bench.proofs import floats
from bitwise_bench.proofs.bitvectors import Bits, constant
from bitwise_core.numerics import FloatFormat, Format, IntegerFormat

_ROUNDINGS = {"rni": "rn", "rzi": "rz", "rmi": "rd", "rpi": "ru"}
_FLUSHED = "fp32"
_WORD = 64


class Unencoded(ValueError):
    """An operation has no expression: the message names it."""


def convert(name: str, target: Format, source: Format, modifiers: tuple[str, ...], operand: Bits) -> Bits:
    """Return the result of a conversion.  Raises Unencoded for a rounding to an integral number of a format."""
    rounding = next((each for each in modifiers if each in ("rn", "rz", "ru", "rd", "rna", *_ROUNDINGS)), "rn")
    if isinstance(target, IntegerFormat) and isinstance(source, IntegerFormat):
        return _between_integers(target, source, "sat" in modifiers, operand)
    if isinstance(source, FloatFormat) and "ftz" in modifiers and source.name == _FLUSHED:
        operand = floats.flushed(operand, source)
    if isinstance(source, IntegerFormat):
        assert isinstance(target, FloatFormat)
        result = floats.rounded(_number(operand, source, target), target, rounding)
        return floats.clamped(result, target, "sat" in modifiers, "relu" in modifiers)
    if isinstance(target, IntegerFormat):
        return _to_integer(target, source, _ROUNDINGS[rounding], operand)
    if rounding in _ROUNDINGS:
        raise Unencoded(f"the operation {name} has no expression over bit-vectors")
    value = floats.number(operand, source, floats.exponent_width(target, source))
    if (
        target.holds(source)
        and target.smallest_exponent <= source.smallest_bit
        and not {"ftz", "satfinite"} & set(modifiers)
    ):
        return floats.clamped(floats.widened(value, target), target, "sat" in modifiers, "relu" in modifiers)
    flush = "ftz" in modifiers and target.name == _FLUSHED
    result = floats.rounded(value, target, rounding, "satfinite" in modifiers, flush)
    if target.canonical_nan is None:
        result = bv.choose(value.nan, constant(target.largest_magnitude << target.padding, target.bits), result)
    if rounding == "rna" and (target.name, source.name) == ("tf32", "fp32"):
        cut = bv.join(bv.extract(operand, target.padding, target.bits - target.padding), constant(0, target.padding))
        if "satfinite" in modifiers:
            cut = bv.sub(cut, constant(1 << target.padding, target.bits))
        result = bv.choose(value.nan, cut, result)
    return floats.clamped(result, target, "sat" in modifiers, "relu" in modifiers)


def _number(operand: Bits, source: IntegerFormat, target: FloatFormat) -> floats.Number:
    """Return an integer as a number whose exponent fits the format."""
    width = floats.exponent_width(target)
    negative = bv.top(operand) if source.signed else bv.false()
    magnitude = bv.choose(negative, bv.neg(operand), operand)
    significand, exponent = floats.normalised(magnitude, constant(source.bits - 1, width))
    return floats.Number(negative, exponent, significand, bv.false(), bv.false())


def _to_integer(target: IntegerFormat, source: FloatFormat, rounding: str, operand: Bits) -> Bits:
    width = floats.exponent_width(source)
    value = floats.number(operand, source, width)
    precision = value.significand.width
    point = constant(precision - 1, width)
    left = bv.invert(bv.signed_below(value.exponent, point))
    distance = bv.choose(left, bv.sub(value.exponent, point), bv.sub(point, value.exponent))
    shifted = floats.shifted_right_sticky(bv.join(value.significand, constant(0, 2)), distance)
    kept = bv.extract(shifted, 2, precision)
    half, rest = bv.extract(shifted, 1, 1), bv.extract(shifted, 0, 1)
    up = floats.increment(rounding, value.sign, bv.extract(kept, 0, 1), half, rest)
    near = bv.add(bv.widen(kept, _WORD), bv.widen(up, _WORD))
    far = bv.shift_left(bv.widen(value.significand, _WORD), bv.widen(distance, _WORD))
    magnitude = bv.choose(left, far, near)
    huge = bv.either(value.infinite, bv.signed_below(constant(_WORD - 1, width), value.exponent))

    def limited(limit: int) -> Bits:
        most = constant(limit, _WORD)
        return bv.choose(bv.either(huge, bv.below(most, magnitude)), most, magnitude)

    result = bv.choose(value.sign, bv.neg(limited(-target.smallest)), limited(target.largest))
    nan = constant(0 if max(target.bits, source.bits) <= 32 else 1 << (target.bits - 1), target.bits)
    return bv.choose(value.nan, nan, bv.resize(result, target.bits))


def _between_integers(target: IntegerFormat, source: IntegerFormat, saturate: bool, operand: Bits) -> Bits:
    if not saturate:
        if source.signed and target.bits > source.bits:
            return bv.widen_signed(operand, target.bits)
        return bv.resize(operand, target.bits)
    room = _WORD + 2
    value = bv.widen_signed(operand, room) if source.signed else bv.widen(operand, room)
    least, most = constant(target.smallest, room), constant(target.largest, room)
    value = bv.choose(bv.signed_below(value, least), least, value)
    value = bv.choose(bv.signed_below(most, value), most, value)
    return bv.resize(value, target.bits)
