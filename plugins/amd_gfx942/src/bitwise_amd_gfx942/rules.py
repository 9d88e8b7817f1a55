"""Canonical rules over the operations that gfx942 declares, part of the one table of rules (`bitwise_core.ir.rules`)."""

from __future__ import annotations

from bitwise_amd_gfx942.target_operations import ARCHITECTURE
from bitwise_core.ir.rules.rule import Rule, over

_FORMATS = ("fp16", "fp32", "fp64")

POWERS = (
    Rule(
        "power_of_two_times_zero",
        "ldexp.rn.{f}@{target}({zero}, n)",
        "{zero}",
        over(f=_FORMATS, zero=("+0", "-0"), target=ARCHITECTURE),
        "A zero times a power of two is that zero.",
    ),
    Rule(
        "guard_out_of_power_of_two",
        "ldexp.rn.fp32@{target}(guard.fp32(x, d), n)",
        "guard.fp32(ldexp.rn.fp32@{target}(x, n), d)",
        over(target=ARCHITECTURE),
        "A NaN times a power of two is NaN.",
    ),
    Rule(
        "guard_of_condition_in_power_of_two",
        "ldexp.rn.fp32@{target}(guard.fp32(x, d), select({relation}.fp32(guard.fp32(y, d), k), a, b))",
        "ldexp.rn.fp32@{target}(guard.fp32(x, d), select({relation}.fp32(y, k), a, b))",
        over(relation=("lt", "le", "eq", "ne"), target=ARCHITECTURE),
        "Where the guard makes the compared value NaN, the number is NaN too, whatever is selected.",
    ),
)

RULES = POWERS
