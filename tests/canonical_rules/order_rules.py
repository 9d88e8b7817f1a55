"""Canonical rules of maxima, minima and integers."""

from __future__ import annotations

from canonical_rules.conditions import Requires, Rule, make_rule
from canonical_rules.families import EXTREMA, choosing, integers, named, rings


def extremum(verb: str, neutral: str) -> tuple[Rule, ...]:
    """Rules of the maximum and -inf, or of the minimum and +inf; the patterns say `max` for both."""
    dropping = choosing(verb, "", ".ftz")
    plain, propagating = choosing(verb, ""), choosing(verb, ".nan")
    every = choosing(verb, *EXTREMA)
    return (
        make_rule(
            f"{verb}_commutes",
            "max(x, y)",
            "max(y, x)",
            every,
            "Numbers, with -0 below +0, are totally ordered, and NaN is treated alike on both sides.",
            rewrites=False,
        ),
        make_rule(
            f"{verb}_associates",
            "max(max(x, y), z)",
            "max(x, max(y, z))",
            every,
            "The outermost of totally ordered numbers; NaN is the neutral or the absorbing element.",
            rewrites=False,
            refuted=() if verb == "min" else named("add.rn.fp32", "mul.rn.fp32"),
        ),
        make_rule(
            f"{verb}_idempotent",
            "max(x, x)",
            "x",
            plain + propagating,
            "The result is one of its operands.",
            up_to_nan=True,
            refuted=choosing(verb, ".ftz"),
        ),
        make_rule(
            f"{verb}_nan_neutral",
            f"max(x, {neutral})",
            "x",
            propagating,
            f"{neutral} is on the far side of every number, and a NaN stays.",
            up_to_nan=True,
            refuted=plain,
        ),
        make_rule(
            f"{verb}_neutral",
            f"max(x, {neutral})",
            "x",
            plain,
            f"{neutral} is never selected over a number, but would replace a NaN.",
            condition=Requires("x", ("never_nan",)),
        ),
        make_rule(
            f"{verb}_neutral_twice",
            f"max(max(x, {neutral}), {neutral})",
            f"max(x, {neutral})",
            every,
            f"One {neutral} is enough: it is the result where all other operands are NaN.",
        ),
        make_rule(
            f"{verb}_neutral_outward",
            f"max(max(x, {neutral}), y)",
            f"max(max(x, y), {neutral})",
            every,
            f"Order does not matter, so {neutral} may come last.",
        ),
        make_rule(
            f"{verb}_neutral_absorbed",
            f"max(max(x, y), {neutral})",
            "max(x, y)",
            dropping,
            f"Where one operand is not NaN, {neutral} is never the result.",
            condition=Requires("y", ("never_nan",)),
        ),
    )


_SET_VERBS = ("add", "mul", "and", "or", "xor", "min", "max")
INTEGERS = (
    make_rule(
        "integers_associate",
        "op(op(x, y), z)",
        "op(x, op(y, z))",
        integers(*_SET_VERBS),
        "Arithmetic modulo a power of two is a ring; bits and ordered integers are lattices.",
        rewrites=False,
        refuted=named("sub.b32", "mulhi.u32"),
    ),
    make_rule(
        "integers_commute",
        "op(x, y)",
        "op(y, x)",
        integers(*_SET_VERBS),
        "Arithmetic modulo a power of two is a commutative ring; bits and ordered integers are lattices.",
        rewrites=False,
        refuted=named("sub.b32", "shl.b32"),
    ),
)

LINEAR = (
    make_rule(
        "integer_sub_is_add",
        "sub(x, y)",
        "add(x, neg(y))",
        rings(),
        "Arithmetic modulo a power of two is a ring.",
    ),
    make_rule(
        "integer_mul_distributes",
        "mul(add(x, y), z)",
        "add(mul(x, z), mul(y, z))",
        rings(),
        "Arithmetic modulo a power of two is a ring.",
    ),
    make_rule(
        "integer_shl_distributes",
        "shl(add(x, y), z)",
        "add(shl(x, z), shl(y, z))",
        rings("z"),
        "A shift to the left is a product with a power of two, or with zero.",
    ),
    make_rule(
        "integer_neg_distributes",
        "neg(add(x, y))",
        "add(neg(x), neg(y))",
        rings(),
        "Arithmetic modulo a power of two is a ring.",
    ),
)
