"""Operations of this architecture on bit patterns, where their bits are documented."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from bitwise_core import numeric
from bitwise_core.machine.lanes import Array


def _signalling(pattern: Array, form: str) -> Array:
    bits, mantissa = {"fp16": (16, 10), "fp32": (32, 23), "fp64": (64, 52)}[form]
    size = pattern & pattern.dtype.type((1 << bits - 1) - 1)
    infinity = ((1 << bits - 1 - mantissa) - 1) << mantissa
    found: Array = (size > pattern.dtype.type(infinity)) & (pattern & pattern.dtype.type(1 << mantissa - 1) == 0)
    return found


def extremum(verb: str, form: str, *patterns: Array) -> Array:
    """The least or greatest number in IEEE mode: a NaN where an operand is a signalling one."""
    if len(patterns) == 3:
        signals = np.logical_or.reduce(np.broadcast_arrays(*(_signalling(each, form) for each in patterns)))
    else:
        signals = _signalling(patterns[0], form) | _signalling(patterns[1], form)
    function = numeric.operation(f"{verb}.{form}").evaluate
    result = patterns[0]
    for each in patterns[1:]:
        result = function(result, each)
    return np.where(
        signals, result.dtype.type({"fp16": 0x7E00, "fp32": 0x7FC00000, "fp64": 0x7FF8 << 48}[form]), result
    )


FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    f"{verb}{count}.signalling.{form}@gfx942": partial(extremum, verb, form)
    for verb in ("min", "max")
    for form in ("fp16", "fp32", "fp64")
    for count in ("", "3")
}
"""By the operation's full name."""
