"""Canonical rules of padding: sums that are NaN where the maximum of a row is NaN or -inf.

div(+1, sub(-inf, m)) is -0, or NaN where m is NaN or -inf: adding it to a value makes the value NaN there, and has no
other effect.
"""

from __future__ import annotations

from bitwise_core.numerics import FLOAT_FORMATS
from canonical_rules.conditions import make_rule
from canonical_rules.patterns import Family

_GUARD = "div(+1, sub(-inf, m))"


def _families(*roundings: str) -> tuple[Family, ...]:
    families = []
    for rounding in roundings:
        verbs = {verb: f"{verb}.{rounding}.fp32" for verb in ("mul", "fma")} | {"sum": f"add.{rounding}.fp32"}
        exact = {verb: f"{verb}.rn.fp32" for verb in ("add", "sub", "div")} | {"lt": "lt.fp32"}
        families.append(Family(f"{rounding}.fp32", verbs | exact, "fp32", FLOAT_FORMATS["fp32"].bits))
    return tuple(families)


_EVERY = _families("rn", "rz", "ru", "rd")

GUARDS = (
    make_rule(
        "padding_is_guarded",
        "sub(-inf, m)",
        f"add(-inf, {_GUARD})",
        _EVERY[:1],
        "-inf minus a number or +inf is -inf.",
    ),
    make_rule(
        "guard_moves_out_of_a_sum",
        f"sum(add(x, {_GUARD}), y)",
        f"add(sum(x, y), {_GUARD})",
        _EVERY,
        "A NaN makes every sum NaN, and -0 changes none.",
    ),
    make_rule(
        "guard_moves_out_of_a_product",
        f"mul(add(x, {_GUARD}), y)",
        f"add(mul(x, y), {_GUARD})",
        _EVERY,
        "A NaN makes every product NaN, and -0 changes no sum.",
    ),
    make_rule(
        "guard_moves_out_of_a_fused_product",
        f"fma(add(x, {_GUARD}), y, z)",
        f"add(fma(x, y, z), {_GUARD})",
        _EVERY,
        "A NaN makes every fused product NaN, and -0 changes no sum.",
    ),
    make_rule(
        "guard_moves_out_of_a_fused_sum",
        f"fma(x, y, add(z, {_GUARD}))",
        f"add(fma(x, y, z), {_GUARD})",
        _EVERY,
        "A NaN makes every fused product NaN, and -0 changes no sum.",
    ),
    make_rule(
        "guard_is_idempotent",
        f"add(add(x, {_GUARD}), {_GUARD})",
        f"add(x, {_GUARD})",
        _EVERY[:1],
        "A second guard has no effect.",
    ),
    make_rule(
        "guard_of_the_condition_is_redundant_in_a_sum",
        f"sum(add(x, {_GUARD}), choose(lt(add(y, {_GUARD}), k), a, b))",
        f"sum(add(x, {_GUARD}), choose(lt(y, k), a, b))",
        _EVERY,
        "Where the guard makes the compared value NaN, the same guard makes the sum NaN, so the choice has no effect.",
    ),
    make_rule(
        "guard_of_the_condition_is_redundant_in_a_fused_product",
        f"fma(add(x, {_GUARD}), z, choose(lt(add(y, {_GUARD}), k), a, b))",
        f"fma(add(x, {_GUARD}), z, choose(lt(y, k), a, b))",
        _EVERY,
        "Where the guard makes the compared value NaN, the same guard makes the result NaN, so the choice has no "
        "effect.",
    ),
)
