"""Facts about values: predicates over the bit pattern of a value in a format, stated as patterns.

Rules use facts as conditions, and inferences derive them.  `{f}` is the format, `{b}` its width in bits.
"""

from __future__ import annotations

from functools import cache

from bitwise_core.ir.rules.patterns import Term, parse
from bitwise_core.numerics import INTEGER_FORMATS, Format

FACTS: dict[str, str] = {
    "not_minus_zero": "ne.b{b}(x, {sign})",
    "not_negative": "or.b1(unord.{f}(x, x), le.u{b}(x, {largest}))",
    "not_nan": "ord.{f}(x, x)",
    "finite": "lt.{f}(abs.{f}(x), +inf)",
    "zero": "eq.{f}(x, +0)",
    "not_zero": "neu.{f}(x, +0)",
    "holds_fp16": "eq.b{b}(convert.fp32.fp16(convert.rz.fp16.fp32(x)), x)",
    "has_normal_reciprocal": "and.b1(le.fp32(0x20000000, x), le.fp32(x, 0x5f000000))",
    "at_least_2_to_minus_96": "or.b1(unord.fp32(x, x), le.fp32(0x0f800000, x))",
    "below_half": "le.u{b}(x, {largest})",
    "fits_low_half": "le.u{b}(x, {low_half})",
    "quiet": "or.b1(ord.{f}(x, x), ne.b{b}(and.b{b}(x, {quiet_bit}), {zero}))",
}
"""Names of facts, and when they hold for a value x.

not_minus_zero: x is not -0.  not_negative: x is NaN or its sign bit is clear.  not_zero: x is NaN, or a number other
than zero.  holds_fp16: x is the widening of an fp16 number (or its canonical NaN).  at_least_2_to_minus_96: x is NaN
or not below 2^-96.  below_half and fits_low_half: x is an integer without its highest bit, or without its high half.
quiet: x is not a signalling NaN.
"""


@cache
def fact(name: str, form: Format) -> Term:
    """Return the predicate of a fact over the variable x of a format.  Raises KeyError for an unknown fact."""
    bits = form.bits
    mantissa = getattr(form, "mantissa_bits", 0)
    text = FACTS[name].format(
        f=form.name,
        b=bits,
        largest=f"{(1 << bits - 1) - 1:#x}",
        low_half=f"{(1 << bits // 2) - 1:#x}",
        sign=f"{1 << bits - 1:#x}",
        quiet_bit=f"{1 << max(0, mantissa - 1):#x}",
        zero="0x0",
    )
    return parse(text, INTEGER_FORMATS["b1"], {"x": form})
