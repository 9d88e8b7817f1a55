"""Canonical rules over the operations of gfx942 and gfx950, for the one table of rules (`bitwise_core.ir.rules`)."""

from __future__ import annotations

from pathlib import Path

from bitwise_amd_gfx942.target_operations import ARCHITECTURES
from bitwise_core.ir.rules.rule import Rule, over
from bitwise_core.numerics import FLOAT_FORMATS

_FORMATS = ("fp16", "fp32", "fp64")

POWERS = (
    Rule(
        "power_of_two_times_zero",
        "ldexp.rn.{f}@{target}({zero}, n)",
        "{zero}",
        over(f=_FORMATS, zero=("+0", "-0"), target=ARCHITECTURES),
        "A zero times a power of two is that zero.",
    ),
    Rule(
        "guard_out_of_power_of_two",
        "ldexp.rn.fp32@{target}(guard.fp32(x, d), n)",
        "guard.fp32(ldexp.rn.fp32@{target}(x, n), d)",
        over(target=ARCHITECTURES),
        "A NaN times a power of two is NaN.",
        keeps="number",
    ),
    Rule(
        "guard_of_condition_in_power_of_two",
        "ldexp.rn.fp32@{target}(guard.fp32(x, d), select({relation}.fp32(guard.fp32(y, d), k), a, b))",
        "ldexp.rn.fp32@{target}(guard.fp32(x, d), select({relation}.fp32(y, k), a, b))",
        over(relation=("lt", "le", "eq", "ne"), target=ARCHITECTURES),
        "Where the guard makes the compared value NaN, the number is NaN too, whatever is selected.",
        keeps="number",
    ),
)

_RECIPROCAL = "rsqrt.approx.fp32@{target}(x)"
_ROOT, _MIDDLE = f"mul.rn.fp32(x, {_RECIPROCAL})", f"mul.rn.fp32(+half, {_RECIPROCAL})"
_ERROR = f"fma.rn.fp32(neg.fp32({_MIDDLE}), {_ROOT}, +half)"
_BETTER_ROOT = f"fma.rn.fp32({_ROOT}, {_ERROR}, {_ROOT})"
_BETTER_MIDDLE = f"fma.rn.fp32({_MIDDLE}, {_ERROR}, {_MIDDLE})"
_REST = f"fma.rn.fp32(neg.fp32({_BETTER_ROOT}), {_BETTER_ROOT}, x)"

ROOTS = (
    Rule(
        "square_root_by_iteration",
        f"select(class.fp32@{{target}}(x, {{classes}}), x, fma.rn.fp32({_REST}, {_BETTER_MIDDLE}, {_BETTER_ROOT}))",
        "sqrt.rn.fp32(x)",
        over(classes=("0x260", "0x240", "0x220", "0x200"), target=ARCHITECTURES),
        "From 2^-96 on no step underflows and x - s s is exact: all significands of both parities of the exponent were "
        "tested with every approximation of the reciprocal root within one ulp, the bound that the ISA states.",
        where={"x": ("at_least_2_to_minus_96",)},
        evidence="measured",
    ),
)
"""The sequence of Triton's AMD backend for a square root; the classes are +infinity, and perhaps zeros."""

_PLACES = (("x", "l", "h"), ("x", "h", "l"), ("l", "x", "h"), ("h", "x", "l"), ("l", "h", "x"), ("h", "l", "x"))
_MEDIAN = over(operands=tuple(map(", ".join, _PLACES)), target=ARCHITECTURES)
_CLAMP = "min.fp32(max.fp32(x, min.fp32(l, h)), max.fp32(l, h))"
_NUMBER = ("not_nan", "not_zero")

MEDIANS = (
    Rule(
        "median_up_to_positive_bound",
        "med3.fp32@{target}({operands})",
        _CLAMP,
        _MEDIAN,
        "The median is x where x is between the bounds, and the nearer bound elsewhere, the lower one for a NaN.  The "
        "greater bound is above zero, so the median of two zeros is their maximum.",
        where={"x": ("quiet",), "l": ("not_nan",), "h": (*_NUMBER, "not_negative")},
    ),
    Rule(
        "median_between_nonzero_bounds",
        "med3.fp32@{target}({operands})",
        _CLAMP,
        _MEDIAN,
        "The median is x where x is between the bounds, and the nearer bound elsewhere, the lower one for a NaN.",
        where={"x": ("quiet",), "l": _NUMBER, "h": _NUMBER},
    ),
)
"""Medians as clamps."""

STATED_RULES = (*POWERS, *ROOTS, *MEDIANS)

PROOFS = Path(__file__).with_name("proofs.json")
"""The file of their proofs."""

_NAN = {form: hex(FLOAT_FORMATS[form].canonical_nan or 0) for form in ("fp16", "fp32", "fp64")}
_LARGEST = "max.fp32(max.fp32(a, b), c)"
_LEAST = "min.fp32(min.fp32(a, b), c)"
_WITHOUT_LARGEST = (
    f"select(eq.fp32({_LARGEST}, a), max.fp32(b, c), select(eq.fp32({_LARGEST}, b), max.fp32(a, c), max.fp32(a, b)))"
)
_QUIET_A, _QUIET_B, _QUIET_C = (
    f"or.b1(ord.fp32({each}, {each}), ne.b32(and.b32({each}, 0x400000), 0x0))" for each in "abc"
)
_ORDERED = "and.b1(ord.fp32(a, b), ord.fp32(c, c))"

DEFINITIONS = {
    **{
        f"ldexp.rn.{form}@{target}": (
            f"select(unord.{form}(a, a), {nan}, select(eq.{form}(a, +0), a, ldexp.rn.{form}@{target}(a, b)))"
        )
        for form, nan in _NAN.items()
        for target in ARCHITECTURES
    },
    **{
        f"med3.fp32@{target}": (
            f"select({_ORDERED}, {_WITHOUT_LARGEST}, "
            f"select(and.b1(and.b1({_QUIET_A}, {_QUIET_B}), {_QUIET_C}), {_LEAST}, med3.fp32@{target}(a, b, c)))"
        )
        for target in ARCHITECTURES
    },
}
"""Operations in terms of core's, as far as the rules need them; the operation itself stands for the rest."""
