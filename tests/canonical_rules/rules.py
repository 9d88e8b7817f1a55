"""The table of canonical rules.  Each has its reason, its operation families and its condition.

A rule's two sides are equal for all patterns of the variables that satisfy its condition.  Where `up_to_nan` is set,
the sides may be different NaNs: then one may replace the other only under operations that do not depend on
NaN patterns (`numeric.Operation.sees_nan_patterns`), and not under slices, concatenations or addresses.
`refuted` names families for which the rule is known to fail; the tests check that.
"""

from __future__ import annotations

from bitwise_core.numerics import FLOAT_FORMATS
from canonical_rules.conditions import ASSUMPTIONS, Requires, Rule, ZeroProducts, make_rule
from canonical_rules.families import BF16_IN_FP32, from_integers, of_widenings, to_integers, widened
from canonical_rules.guard_rules import GUARDS
from canonical_rules.integer_step_rules import INTEGER_STEPS
from canonical_rules.order_rules import INTEGERS, LINEAR, extremum
from canonical_rules.patterns import Family
from canonical_rules.sum_rules import PRODUCTS, SUMS, ZERO_FACTORS

__all__ = ["ASSUMPTIONS", "RULES", "Requires", "Rule", "ZeroProducts", "rule"]

_CONVERSIONS = (
    make_rule(
        "narrow_of_widened",
        "narrow(widen(x))",
        "x",
        widened(("fp16", "fp32"), ("bf16", "fp32"), ("fp32", "fp64"), ("fp16", "fp64"), ("bf16", "fp64")),
        "Widening is exact, and a number that the narrow format holds is not rounded.",
        up_to_nan=True,
    ),
    make_rule(
        "widened_bf16_is_its_bits",
        "widen(x)",
        "concat(zero16, x)",
        (Family("fp32.bf16", BF16_IN_FP32, "fp32", 16, {"x": "bf16"}),),
        "bf16 is the upper half of fp32: subnormal numbers and infinities too.",
        up_to_nan=True,
    ),
    make_rule(
        "widened_neg",
        "widen(neg_narrow(x))",
        "neg(widen(x))",
        of_widenings("x"),
        "Widening keeps signs and sizes.",
        up_to_nan=True,
    ),
    make_rule(
        "abs_of_widened",
        "abs(widen(x))",
        "widen(abs_narrow(x))",
        of_widenings("x"),
        "Widening keeps signs and sizes.",
    ),
    *(
        make_rule(
            f"{verb}_of_widened",
            f"{verb}(widen(x), widen(y))",
            f"widen({verb}_narrow(x, y))",
            of_widenings("x", "y"),
            "Widening keeps the order of numbers, zeros too, and NaN.",
        )
        for verb in ("max", "min", "max_nan", "min_nan")
    ),
    make_rule(
        "narrow_integer_is_widened_first",
        "convert(x)",
        "convert_wide(widen(x))",
        from_integers(),
        "An integer with its sign or zeros in front is the same number.",
    ),
    make_rule(
        "narrow_number_is_widened_before_it_is_an_integer",
        "convert(x)",
        "convert_wide(widen(x))",
        to_integers(),
        "Widening is exact, infinities are clamped as large numbers are, and NaN gives one integer for both.",
    ),
    make_rule(
        "narrow_of_bf16_bits",
        "narrow(concat(zero16, x))",
        "x",
        widened(("bf16", "fp32")),
        "The value is a bf16 number already, so nothing is rounded.",
        up_to_nan=True,
    ),
)

_MATRIX_FAMILIES = tuple(
    Family(name, {"matrix": f"matrix.{name}"}, name, FLOAT_FORMATS[name].bits) for name in ("fp16", "tf32")
)
_MATRIX = (
    make_rule(
        "matrix_step_of_zeros",
        "matrix(c, a*, b*)",
        "c",
        _MATRIX_FAMILIES,
        "A matrix step whose products are all exact zeros adds +0 to its accumulator, which changes only -0.",
        condition=ZeroProducts("c", "a*", "b*", other_finite=True),
        up_to_nan=True,
        evidence="measured",
    ),
    make_rule(
        "matrix_step_of_zeros_and_finite_numbers",
        "matrix(c, a*, b*)",
        "c",
        _MATRIX_FAMILIES,
        "A zero times a finite number is a zero, and a step of zeros adds +0.",
        condition=ZeroProducts("c", "a*", "b*", other_finite=False),
        assumption="finite",
        evidence="measured",
    ),
)

RULES: tuple[Rule, ...] = (
    *SUMS,
    *PRODUCTS,
    *extremum("max", "-inf"),
    *extremum("min", "+inf"),
    *INTEGERS,
    *LINEAR,
    *_CONVERSIONS,
    *ZERO_FACTORS,
    *_MATRIX,
    *INTEGER_STEPS,
    *GUARDS,
)


def rule(name: str) -> Rule:
    """The rule of that name.  Raises KeyError with a sentence."""
    for found in RULES:
        if found.name == name:
            return found
    raise KeyError(f"no canonical rule is called {name!r}; there are {', '.join(found.name for found in RULES)}")
