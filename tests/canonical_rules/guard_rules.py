"""Canonical rules of padding: sums that are NaN where the maximum of a row is NaN or -inf.

div(+1, sub(-inf, m)) is -0, or NaN where m is NaN or -inf: adding it to a value makes the value NaN there, and has no
other effect.
"""

from __future__ import annotations

from bitwise_core.numerics import FLOAT_FORMATS
from canonical_rules.conditions import stated
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
    stated(
        "padding_is_guarded",
        "sub(-inf, m)",
        f"add(-inf, {_GUARD})",
        _EVERY[:1],
        "-inf less a number or +inf is -inf.",
    ),
    stated(
        "guard_leaves_a_sum",
        f"sum(add(x, {_GUARD}), y)",
        f"add(sum(x, y), {_GUARD})",
        _EVERY,
        "A NaN makes every sum NaN, and -0 changes none.",
    ),
    stated(
        "guard_leaves_a_product",
        f"mul(add(x, {_GUARD}), y)",
        f"add(mul(x, y), {_GUARD})",
        _EVERY,
        "A NaN makes every product NaN, and -0 changes no sum.",
    ),
    stated(
        "guard_leaves_a_fused_product",
        f"fma(add(x, {_GUARD}), y, z)",
        f"add(fma(x, y, z), {_GUARD})",
        _EVERY,
        "A NaN makes every fused product NaN, and -0 changes no sum.",
    ),
    stated(
        "guard_leaves_a_fused_sum",
        f"fma(x, y, add(z, {_GUARD}))",
        f"add(fma(x, y, z), {_GUARD})",
        _EVERY,
        "A NaN makes every fused product NaN, and -0 changes no sum.",
    ),
    stated(
        "guard_counts_once",
        f"add(add(x, {_GUARD}), {_GUARD})",
        f"add(x, {_GUARD})",
        _EVERY[:1],
        "After one guard there is nothing left to change.",
    ),
    stated(
        "guard_decides_beside_itself_in_a_sum",
        f"sum(add(x, {_GUARD}), choose(lt(add(y, {_GUARD}), k), a, b))",
        f"sum(add(x, {_GUARD}), choose(lt(y, k), a, b))",
        _EVERY,
        "Where a comparison sees the NaN of a guard, the sum is NaN by the same guard, whatever was chosen.",
    ),
    stated(
        "guard_decides_beside_itself_in_a_fused_product",
        f"fma(add(x, {_GUARD}), z, choose(lt(add(y, {_GUARD}), k), a, b))",
        f"fma(add(x, {_GUARD}), z, choose(lt(y, k), a, b))",
        _EVERY,
        "Where a comparison sees the NaN of a guard, the result is NaN by the same guard, whatever was chosen.",
    ),
)
