"""The canonical rules, as a table.  Each says why the bits stay, for which operations, and under which condition.

A rule's two sides are equal for all patterns of the variables that meet its condition.  Where `up_to_nan` is set, one
side may be another NaN than the other: then they may take each other's place only under operations that do not see
NaN patterns (`numeric.Operation.sees_nan_patterns`), and not under slices, concatenations or addresses.
`refuted` names families for which the rule is known to fail; the tests show it.
"""

from __future__ import annotations

from bitwise_core.numeric import FLOAT_FORMATS
from bitwise_core.tree.conditions import ASSUMPTIONS, Requires, Rule, ZeroProducts
from bitwise_core.tree.families import (
    ALL,
    BF16_IN_FP32,
    EXTREMA,
    NOT_DOWN,
    SYMMETRIC,
    choosing,
    integers,
    named,
    of_widenings,
    rings,
    rounded,
    signs,
    widened,
    widening,
)
from bitwise_core.tree.patterns import Family, Pattern

__all__ = ["ASSUMPTIONS", "RULES", "Requires", "Rule", "ZeroProducts", "rule"]


def _rule(name: str, left: str, right: str, families: tuple[Family, ...], reason: str, **more: object) -> Rule:
    return Rule(name, reason, Pattern(left), Pattern(right), families, **more)  # type: ignore[arg-type]


_SUMS = (
    _rule(
        "add_minus_zero",
        "add(x, -0)",
        "x",
        rounded(NOT_DOWN),
        "-0 is the neutral element: it changes no number, and +0 + (-0) is +0 unless rounded down.",
        up_to_nan=True,
        refuted=rounded(("rd",)) + rounded(("rn",), flush=True),
    ),
    _rule(
        "add_minus_zero_flushed",
        "add(x, -0)",
        "x",
        rounded(NOT_DOWN, flush=True),
        "As add_minus_zero, for numbers that flushing leaves alone.",
        condition=Requires("x", ("never_subnormal",)),
        up_to_nan=True,
    ),
    _rule(
        "add_plus_zero",
        "add(x, +0)",
        "x",
        rounded(NOT_DOWN),
        "+0 changes only -0, which becomes +0.",
        condition=Requires("x", ("never_minus_zero",)),
        up_to_nan=True,
        refuted=rounded(("rn",), flush=True),
    ),
    _rule(
        "add_plus_zero_flushed",
        "add(x, +0)",
        "x",
        rounded(NOT_DOWN, flush=True),
        "As add_plus_zero, for numbers that flushing leaves alone.",
        condition=Requires("x", ("never_minus_zero", "never_subnormal")),
        up_to_nan=True,
    ),
    _rule(
        "add_plus_zero_down",
        "add(x, +0)",
        "x",
        rounded(("rd",)),
        "Rounded down, zeros of both signs add up to -0, so +0 is neutral.",
        up_to_nan=True,
        refuted=rounded(("rn", "rz", "ru")),
    ),
    _rule(
        "add_plus_zero_outward",
        "add(add(x, +0), y)",
        "add(add(x, y), +0)",
        rounded(ALL),
        "+0 only turns -0 into +0, and a sum is -0 only if both operands are: sums do not underflow.",
        refuted=rounded(("rn", "rz", "ru"), flush=True),
    ),
    _rule(
        "add_plus_zero_twice",
        "add(add(x, +0), +0)",
        "add(x, +0)",
        rounded(ALL) + rounded(ALL, flush=True),
        "After one +0 there is nothing left to change.",
    ),
    _rule(
        "sub_is_add",
        "sub(x, y)",
        "add(x, neg(y))",
        rounded(ALL) + rounded(ALL, flush=True),
        "IEEE 754 defines the difference as this sum; flushing keeps signs.",
    ),
    _rule(
        "add_commutes",
        "add(x, y)",
        "add(y, x)",
        rounded(ALL) + rounded(ALL, flush=True),
        "The exact sum is commutative, and so is the rule for the sign of a zero.",
        rewrites=False,
    ),
)

_PRODUCTS = (
    _rule(
        "neg_neg",
        "neg(neg(x))",
        "x",
        signs(),
        "Turning the sign twice turns it back.",
        up_to_nan=True,
    ),
    _rule(
        "mul_neg",
        "mul(neg(x), y)",
        "neg(mul(x, y))",
        rounded(SYMMETRIC) + rounded(SYMMETRIC, flush=True),
        "A rounding that does not see the sign treats a product and its negative alike.",
        up_to_nan=True,
        refuted=rounded(("ru", "rd")),
    ),
    _rule(
        "mul_one",
        "mul(x, +1)",
        "x",
        rounded(ALL),
        "The exact product is x, which the format holds.",
        up_to_nan=True,
        refuted=rounded(("rn",), flush=True),
    ),
    _rule(
        "mul_one_flushed",
        "mul(x, +1)",
        "x",
        rounded(ALL, flush=True),
        "As mul_one, for numbers that flushing leaves alone.",
        condition=Requires("x", ("never_subnormal",)),
        up_to_nan=True,
    ),
    _rule(
        "mul_minus_one",
        "mul(x, -1)",
        "neg(x)",
        rounded(ALL),
        "The exact product is -x, which the format holds.",
        up_to_nan=True,
        refuted=rounded(("rn",), flush=True),
    ),
    _rule(
        "fma_signs_cancel",
        "fma(neg(x), neg(y), z)",
        "fma(x, y, z)",
        rounded(ALL) + rounded(ALL, flush=True),
        "The exact product is the same.",
    ),
    _rule(
        "fma_sign_moves",
        "fma(neg(x), y, z)",
        "fma(x, neg(y), z)",
        rounded(ALL) + rounded(ALL, flush=True),
        "The exact product is the same.",
        rewrites=False,
    ),
    _rule(
        "fma_of_zeros",
        "fma(+0, +0, z)",
        "add(z, +0)",
        rounded(ALL) + rounded(ALL, flush=True),
        "The product is +0.",
    ),
    _rule(
        "fma_of_exact_product",
        "fma(widen(x), widen(y), z)",
        "add(mul(widen(x), widen(y)), z)",
        widening("fp16", "fp32", ALL, "x", "y") + widening("fp32", "fp64", ALL, "x", "y"),
        "The wide format holds the product of two narrow numbers, so nothing is rounded in between.",
        refuted=widening("bf16", "fp32", ("rn",), "x", "y"),
    ),
    _rule(
        "mul_commutes",
        "mul(x, y)",
        "mul(y, x)",
        rounded(ALL) + rounded(ALL, flush=True),
        "The exact product is commutative.",
        rewrites=False,
    ),
    _rule(
        "fma_factors_commute",
        "fma(x, y, z)",
        "fma(y, x, z)",
        rounded(ALL) + rounded(ALL, flush=True),
        "The exact product is commutative.",
        rewrites=False,
    ),
)


def _extremum(verb: str, neutral: str) -> tuple[Rule, ...]:
    """Rules of the maximum and -inf, or of the minimum and +inf; the patterns say `max` for both."""
    dropping = choosing(verb, "", ".ftz")
    plain, propagating = choosing(verb, ""), choosing(verb, ".nan")
    every = choosing(verb, *EXTREMA)
    return (
        _rule(
            f"{verb}_commutes",
            "max(x, y)",
            "max(y, x)",
            every,
            "Numbers, with -0 below +0, are totally ordered, and NaN is treated alike on both sides.",
            rewrites=False,
        ),
        _rule(
            f"{verb}_associates",
            "max(max(x, y), z)",
            "max(x, max(y, z))",
            every,
            "The outermost of totally ordered numbers; NaN is the neutral or the absorbing element.",
            rewrites=False,
            refuted=() if verb == "min" else named("add.rn.fp32", "mul.rn.fp32"),
        ),
        _rule(
            f"{verb}_idempotent",
            "max(x, x)",
            "x",
            plain + propagating,
            "The result is one of its operands.",
            up_to_nan=True,
            refuted=choosing(verb, ".ftz"),
        ),
        _rule(
            f"{verb}_nan_neutral",
            f"max(x, {neutral})",
            "x",
            propagating,
            f"{neutral} is on the far side of every number, and a NaN stays.",
            up_to_nan=True,
            refuted=plain,
        ),
        _rule(
            f"{verb}_neutral",
            f"max(x, {neutral})",
            "x",
            plain,
            f"{neutral} is on the far side of every number; it would take the place of a NaN.",
            condition=Requires("x", ("never_nan",)),
        ),
        _rule(
            f"{verb}_neutral_twice",
            f"max(max(x, {neutral}), {neutral})",
            f"max(x, {neutral})",
            every,
            f"One {neutral} is enough: it stands for the case in which all else is NaN.",
        ),
        _rule(
            f"{verb}_neutral_outward",
            f"max(max(x, {neutral}), y)",
            f"max(max(x, y), {neutral})",
            every,
            f"Order does not matter, so {neutral} may come last.",
        ),
        _rule(
            f"{verb}_neutral_absorbed",
            f"max(max(x, y), {neutral})",
            "max(x, y)",
            dropping,
            f"Where one operand is not NaN, {neutral} is never the result.",
            condition=Requires("y", ("never_nan",)),
        ),
    )


_SET_VERBS = ("add", "mul", "and", "or", "xor", "min", "max")
_INTEGERS = (
    _rule(
        "integers_associate",
        "op(op(x, y), z)",
        "op(x, op(y, z))",
        integers(*_SET_VERBS),
        "Arithmetic modulo a power of two is a ring; bits and ordered integers are lattices.",
        rewrites=False,
        refuted=named("sub.b32", "mulhi.u32"),
    ),
    _rule(
        "integers_commute",
        "op(x, y)",
        "op(y, x)",
        integers(*_SET_VERBS),
        "Arithmetic modulo a power of two is a commutative ring; bits and ordered integers are lattices.",
        rewrites=False,
        refuted=named("sub.b32", "shl.b32"),
    ),
)

_LINEAR = (
    _rule(
        "integer_sub_is_add",
        "sub(x, y)",
        "add(x, neg(y))",
        rings(),
        "Arithmetic modulo a power of two is a ring.",
    ),
    _rule(
        "integer_mul_distributes",
        "mul(add(x, y), z)",
        "add(mul(x, z), mul(y, z))",
        rings(),
        "Arithmetic modulo a power of two is a ring.",
    ),
    _rule(
        "integer_shl_distributes",
        "shl(add(x, y), z)",
        "add(shl(x, z), shl(y, z))",
        rings(),
        "A shift to the left is a product with a power of two, or with zero.",
    ),
    _rule(
        "integer_neg_distributes",
        "neg(add(x, y))",
        "add(neg(x), neg(y))",
        rings(),
        "Arithmetic modulo a power of two is a ring.",
    ),
)

_CONVERSIONS = (
    _rule(
        "narrow_of_widened",
        "narrow(widen(x))",
        "x",
        widened(("fp16", "fp32"), ("bf16", "fp32"), ("fp32", "fp64"), ("fp16", "fp64"), ("bf16", "fp64")),
        "Widening is exact, and a number that the narrow format holds is not rounded.",
        up_to_nan=True,
    ),
    _rule(
        "widened_bf16_is_its_bits",
        "widen(x)",
        "concat(zero16, x)",
        (Family("fp32.bf16", BF16_IN_FP32, "fp32", 16, {"x": "bf16"}),),
        "bf16 is the upper half of fp32: subnormal numbers and infinities too.",
        up_to_nan=True,
    ),
    _rule(
        "widened_neg",
        "widen(neg_narrow(x))",
        "neg(widen(x))",
        of_widenings("x"),
        "Widening keeps signs and sizes.",
        up_to_nan=True,
    ),
    _rule(
        "abs_of_widened",
        "abs(widen(x))",
        "widen(abs_narrow(x))",
        of_widenings("x"),
        "Widening keeps signs and sizes.",
    ),
    *(
        _rule(
            f"{verb}_of_widened",
            f"{verb}(widen(x), widen(y))",
            f"widen({verb}_narrow(x, y))",
            of_widenings("x", "y"),
            "Widening keeps the order of numbers, zeros too, and NaN.",
        )
        for verb in ("max", "min", "max_nan", "min_nan")
    ),
    _rule(
        "narrow_of_bf16_bits",
        "narrow(concat(zero16, x))",
        "x",
        widened(("bf16", "fp32")),
        "The value is a bf16 number already, so nothing is rounded.",
        up_to_nan=True,
    ),
)

_ZERO_FACTORS = (
    _rule(
        "product_with_zero",
        "mul(x, +0)",
        "+0",
        rounded(ALL) + rounded(ALL, flush=True),
        "A finite number times zero is zero, of the number's sign.",
        condition=Requires("x", ("never_negative",)),
        assumption="finite",
    ),
    _rule(
        "sum_with_zero_product",
        "add(mul(x, +0), y)",
        "y",
        rounded(NOT_DOWN),
        "The product is a zero of some sign, which changes no number but -0.",
        condition=Requires("y", ("never_minus_zero",)),
        assumption="finite",
    ),
    _rule(
        "fma_with_zero_product",
        "fma(x, +0, y)",
        "y",
        rounded(NOT_DOWN),
        "The product is a zero of some sign, which changes no number but -0.",
        condition=Requires("y", ("never_minus_zero",)),
        assumption="finite",
    ),
    _rule(
        "size_of_zero_product",
        "abs(mul(x, +0))",
        "+0",
        rounded(ALL) + rounded(ALL, flush=True),
        "The product is a zero of some sign.",
        assumption="finite",
    ),
)

_MATRIX_FAMILIES = tuple(
    Family(name, {"matrix": f"matrix.{name}"}, name, FLOAT_FORMATS[name].bits) for name in ("fp16", "tf32")
)
_MATRIX = (
    _rule(
        "matrix_step_of_zeros",
        "matrix(c, a*, b*)",
        "c",
        _MATRIX_FAMILIES,
        "A matrix step whose products are all exact zeros returns its accumulator, -0 too.",
        condition=ZeroProducts("a*", "b*", other_finite=True),
        up_to_nan=True,
        evidence="measured",
    ),
    _rule(
        "matrix_step_of_zeros_and_finite_numbers",
        "matrix(c, a*, b*)",
        "c",
        _MATRIX_FAMILIES,
        "A zero times a finite number is a zero, and zeros return the accumulator.",
        condition=ZeroProducts("a*", "b*", other_finite=False),
        assumption="finite",
        evidence="measured",
    ),
)

RULES: tuple[Rule, ...] = (
    *_SUMS,
    *_PRODUCTS,
    *_extremum("max", "-inf"),
    *_extremum("min", "+inf"),
    *_INTEGERS,
    *_LINEAR,
    *_CONVERSIONS,
    *_ZERO_FACTORS,
    *_MATRIX,
)


def rule(name: str) -> Rule:
    """The rule of that name.  Raises KeyError with a sentence."""
    for found in RULES:
        if found.name == name:
            return found
    raise KeyError(f"no canonical rule is called {name!r}; there are {', '.join(found.name for found in RULES)}")
