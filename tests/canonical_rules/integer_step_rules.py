"""Canonical rules of integer matrix units."""

from __future__ import annotations

from canonical_rules.conditions import SmallSums, ZeroFactors, make_rule
from canonical_rules.patterns import Family

_LARGEST = {"s8": 128, "u8": 255}
_UNITS = {
    (left, right): Family(
        f"{left}.{right}",
        {word: f"{word}.k32.s32.{left}.{right}.s32" for word in ("matrix", "clamped")},
        None,
        32,
        {"a*": left, "b*": right, "d*": left, "e*": right},
    )
    for left in _LARGEST
    for right in _LARGEST
}

INTEGER_STEPS = (
    make_rule(
        "integer_steps_commute",
        "matrix(matrix(c, a*, b*), d*, e*)",
        "matrix(matrix(c, d*, e*), a*, b*)",
        tuple(_UNITS.values()),
        "Products of bytes and their sums are exact modulo 2**32.",
        rewrites=False,
    ),
    make_rule(
        "integer_step_of_zeros",
        "matrix(c, a*, b*)",
        "c",
        tuple(_UNITS.values()),
        "Integers times zero are zero.",
        condition=ZeroFactors("b*"),
    ),
    *(
        make_rule(
            f"integer_step_not_clamped_{left}_{right}",
            "clamped(c, a*, b*)",
            "matrix(c, a*, b*)",
            (unit,),
            "Every partial sum is within the range to which a step's result is clamped.",
            condition=SmallSums("c", "a*", _LARGEST[left] * _LARGEST[right]),
        )
        for (left, right), unit in _UNITS.items()
    ),
)
