"""Rules of guards: the effect of padding a row with -inf, and of a row of one number, on sums of exponentials.

guard(x, d) is x, or NaN where d is NaN.  -inf - m is -inf, or NaN where m is NaN or -inf: it is -inf guarded by itself.
In the same way x - x is +0 guarded by itself.  An operation that returns NaN whenever an operand is NaN moves a guard
from its operand to its result.
"""

from __future__ import annotations

from bitwise_core.ir.rules.rule import IEEE, NEAREST_OR_ZERO, Rule, over

_SUMS = over(r=NEAREST_OR_ZERO)
_FUSED = over(op=("fma", "fnma"), r=NEAREST_OR_ZERO)

_CHOICE = "select({relation}.fp32([condition], k), a, b)"

# The rules of conditions come first: those that move a guard out of an operand would lose it.
GUARDS = (
    *(
        Rule(
            f"guard_of_condition_{where}",
            sides.replace("[condition]", "guard.fp32(y, d)"),
            sides.replace("[condition]", "y"),
            over(op=operations, r=NEAREST_OR_ZERO, relation=("lt", "le", "eq", "ne")),
            "Where the guard makes the compared value NaN, it makes the result NaN, so the selection has no effect.",
        )
        for where, operations, sides in (
            ("in_sum", "add", f"{{op}}.{{r}}.fp32(guard.fp32(x, d), {_CHOICE})"),
            ("in_product", "mul", f"{{op}}.{{r}}.fp32(guard.fp32(x, d), {_CHOICE})"),
            ("beside_product", ("fma", "fnma"), f"{{op}}.{{r}}.fp32(guard.fp32(x, d), z, {_CHOICE})"),
            ("in_fused_product", ("fma", "fnma"), f"{{op}}.{{r}}.fp32(guard.fp32(x, d), {_CHOICE}, z)"),
        )
    ),
    Rule(
        "padding_is_guarded",
        "add.{r}.fp32(-inf, y)",
        "guard.fp32(-inf, add.{r}.fp32(-inf, y))",
        _SUMS,
        "The sum of -inf and a number is -inf, unless it is NaN.",
    ),
    Rule(
        "opposite_numbers_are_guarded",
        "add.{r}.fp32(x, neg.fp32(x))",
        "guard.fp32(+0, add.{r}.fp32(x, neg.fp32(x)))",
        _SUMS,
        "The difference of a number and itself is +0, unless it is NaN.",
    ),
    Rule(
        "number_minus_its_maximum_is_guarded",
        "add.{r}.fp32(x, neg.fp32(max.fp32(x, -inf)))",
        "guard.fp32(+0, add.{r}.fp32(x, neg.fp32(max.fp32(x, -inf))))",
        _SUMS,
        "The maximum of a number and -inf is the number, so the sum is +0, unless it is NaN.",
    ),
    Rule(
        "opposite_numbers",
        "add.{r}.{f}(x, neg.{f}(x))",
        "+0",
        over(f=IEEE, r=NEAREST_OR_ZERO),
        "The difference of a number and itself is +0.",
        assumes="finite",
    ),
    Rule(
        "guard_out_of_sum",
        "add.{r}.fp32(guard.fp32(x, d), y)",
        "guard.fp32(add.{r}.fp32(x, y), d)",
        _SUMS,
        "A NaN makes every sum NaN.",
    ),
    Rule(
        "guard_out_of_product",
        "mul.{r}.fp32(guard.fp32(x, d), y)",
        "guard.fp32(mul.{r}.fp32(x, y), d)",
        _SUMS,
        "A NaN makes every product NaN.",
    ),
    Rule(
        "guard_out_of_fused_product",
        "{op}.{r}.fp32(guard.fp32(x, d), y, z)",
        "guard.fp32({op}.{r}.fp32(x, y, z), d)",
        _FUSED,
        "A NaN makes every fused product NaN.",
    ),
    Rule(
        "guard_out_of_fused_sum",
        "{op}.{r}.fp32(x, y, guard.fp32(z, d))",
        "guard.fp32({op}.{r}.fp32(x, y, z), d)",
        _FUSED,
        "A NaN makes every fused product NaN.",
    ),
    Rule(
        "guard_out_of_negation",
        "neg.fp32(guard.fp32(x, d))",
        "guard.fp32(neg.fp32(x), d)",
        over(),
        "The negation of a NaN is NaN.",
    ),
    Rule(
        "guard_twice",
        "guard.fp32(guard.fp32(x, d), d)",
        "guard.fp32(x, d)",
        over(),
        "A second guard has no effect.",
    ),
    Rule(
        "guards_commute",
        "guard.fp32(guard.fp32(x, d), e)",
        "guard.fp32(guard.fp32(x, e), d)",
        over(),
        "The result is NaN where either difference is NaN.",
        execution="order",
    ),
)
