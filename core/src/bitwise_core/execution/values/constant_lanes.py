"""Operands whose constant lanes do not matter, since an operation on constants is folded there.

Under a mask, some lanes of a value hold a number and all others terms of one form.  Where the operands of an operation
are constant in the same lanes, its results are folded in these (`constant_folding`).  So the other lanes decide, and
flags that all of them share let the rules treat the value as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Array, Origin, SymbolicVector
from bitwise_core.numerics import Operation

_VERBS = frozenset({"add", "sub", "mul", "fma", "div", "convert"})
"""Operations that compute each lane by itself, and of which nothing else is kept."""


def without_constant_lanes(info: Operation, values: Sequence[SymbolicVector]) -> list[SymbolicVector] | None:
    """Return the operands with arbitrary contents in the lanes where all of them are constant, None for no such lanes.

    An operand is one number in every lane, or the flags of its other lanes are one int from now on.  None is also
    returned where these differ, and where the operation keeps more than its results.
    """
    if info.function is None or info.verb not in _VERBS:
        return None
    known: Array | None = None
    for value in values:
        lanes = L.constant_mask(value)
        if lanes is True:
            continue
        if lanes is False or value.maximum is not None:
            return None
        if known is None:
            known = lanes
        elif lanes is not known and not np.array_equal(lanes, known):
            return None
    if known is None:
        return None
    found: dict[int, SymbolicVector] = {}
    for value in values:
        if id(value) in found:
            continue
        if isinstance(value.flags, int):
            found[id(value)] = value
            continue
        flags: int = value.flags.item(int(known.argmin()))
        if flags & L.KIND == L.CONST or not L.every((value.flags == flags) | known):
            return None
        reduced = SymbolicVector(value.bits, value.words, flags)
        if value.origins:
            reduced.origins = tuple(_in_all_lanes(each, known) for each in value.origins)
        found[id(value)] = reduced
    return [found[id(value)] for value in values]


def _in_all_lanes(origin: Origin, known: Array) -> Origin:
    """Return the operation that made a value in all lanes but the known ones as one that made it in every lane."""
    if origin.lanes is True or not L.every(origin.lanes | known):
        return origin
    return Origin(origin.name, origin.operands)
