"""Rules of the sign of a zero in sums: values that are equal but for it have equal sums with a number that is not -0.

`values.floats.zero_signs` follows such values through sums.  The select stands for a value without the sign of a zero.
"""

from __future__ import annotations

from bitwise_core.ir.rules.rule import IEEE, NEAREST_OR_ZERO, Rule, pairs
from bitwise_core.numerics.formats import float_format

_SIGNS = pairs(
    "f", "sign", *((form.name, f"{1 << form.bits - 1:#x}") for form in map(float_format, IEEE)), r=NEAREST_OR_ZERO
)


def _unsigned(term: str) -> str:
    return f"select(eq.b{{b}}({term}, {{sign}}), +0, {term})"


ZERO_SIGNS = (
    Rule(
        "sum_without_sign_of_zero",
        "add.{r}.{f}(x, y)",
        f"add.{{r}}.{{f}}({_unsigned('x')}, y)",
        _SIGNS,
        "A zero of either sign changes no number but -0.",
        where={"y": ("not_minus_zero",)},
        execution="representation",
    ),
    Rule(
        "sign_of_zero_stays_in_sum",
        _unsigned("add.{r}.{f}(x, y)"),
        _unsigned(f"add.{{r}}.{{f}}({_unsigned('x')}, y)"),
        _SIGNS,
        "The sign of a zero affects a sum only where the sum is a zero, and then its sign only.",
        execution="representation",
    ),
    Rule(
        "fused_product_with_plus_zero",
        _unsigned("fma.{r}.{f}(x, y, +0)"),
        _unsigned("mul.{r}.{f}(x, y)"),
        _SIGNS,
        "Both round the exact product once; they differ where it is a zero, of which +0 takes the sign.",
        execution="representation",
    ),
    Rule(
        "fused_product_that_is_not_minus_zero",
        "select(eq.b{b}(mul.{r}.{f}(x, y), {sign}), mul.{r}.{f}(x, y), fma.{r}.{f}(x, y, +0))",
        "mul.{r}.{f}(x, y)",
        _SIGNS,
        "A product that is not -0 is no zero of which +0 changes the sign.",
        execution="representation",
    ),
)
