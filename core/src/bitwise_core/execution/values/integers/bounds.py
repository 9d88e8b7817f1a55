"""Greatest numbers that values may hold: a sum of few small numbers has no bits beyond those of its greatest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bitwise_core.execution.values.symbolic_vector import SymbolicVector, Value, constant_mask, lazy_integers, width
from bitwise_core.numerics import IntegerFormat, Operation, operation

BOUNDED = frozenset({"add", "mul", "and", "or", "xor", "shr", "popc", "min", "max"})
"""The verbs of operations whose results may have a bound."""


def maximum_of(value: Value) -> int | None:
    """Return a number that no lane of a value exceeds as an unsigned integer, None where nothing is known."""
    if isinstance(value, np.ndarray):
        return int(value.max(initial=0))
    if lazy_integers(value) is not None:  # also one that is a symbolic vector
        return None
    if isinstance(value, SymbolicVector):
        if value.maximum is None and constant_mask(value) is True:
            return int(value.words[0].max(initial=0))
        return value.maximum
    bits, parts = value.bits, list(value.parts)
    while isinstance(parts[-1], np.ndarray) and not parts[-1].any():
        bits -= width(parts.pop())
        if not parts:
            return 0
    if len(parts) == 1 and isinstance(parts[0], SymbolicVector) and parts[0].maximum is not None:
        return parts[0].maximum
    return (1 << bits) - 1 if bits < value.bits else None


def maximum_of_result(info: Operation, operands: Sequence[Value]) -> int | None:
    """Return a number that no lane of a result exceeds, None where nothing is known or the result may wrap."""
    if info.verb == "popc":
        return info.operands[0].bits
    if info.verb == "shr":
        bound = maximum_of(operands[0])
        if bound is None or bound >> info.bits - 1:
            return None  # a signed shift fills with the sign
        return bound >> min(_least(operands[1]), info.bits)
    if info.verb in ("min", "max"):
        return _maximum_of_extremum(info, operands)
    # Known numbers are looked at last: most results have an operand of which nothing is known.
    bounds = []
    for operand in sorted(operands, key=lambda each: isinstance(each, np.ndarray)):
        bound = maximum_of(operand)
        if bound is None:
            if info.verb != "and":
                return None
        else:
            bounds.append(bound)
    if info.verb == "and":
        return min(bounds, default=None)
    if info.verb in ("or", "xor"):
        return (1 << max(bounds).bit_length()) - 1
    found = bounds[0] + bounds[1] if info.verb == "add" else bounds[0] * bounds[1]
    return found if found < 1 << info.bits else None


def _maximum_of_extremum(info: Operation, operands: Sequence[Value]) -> int | None:
    bounds = [maximum_of(operand) for operand in operands]
    known = [bound for bound in bounds if bound is not None]
    if info.result.signed and any(bound >> info.bits - 1 for bound in known):
        return None
    if len(known) == len(bounds):
        return min(known) if info.verb == "min" else max(known)
    # The least of an unsigned number and others is none of the greater ones; a signed one may be negative.
    return min(known, default=None) if info.verb == "min" and not info.result.signed else None


def signed_extremum(info: Operation, operands: Sequence[Value]) -> Operation:
    """Return the extremum of signed integers for one of unsigned integers of which none has its highest bit set."""
    if info.verb not in ("min", "max") or not isinstance(info.result, IntegerFormat) or info.result.signed is not False:
        return info
    bounds = map(maximum_of, operands)
    if any(bound is None or bound >> info.bits - 1 for bound in bounds):
        return info
    return operation(f"{info.verb}.s{info.bits}")


def without_mask(info: Operation, operands: Sequence[Value]) -> Value | None:
    """Return the operand of a bitwise and that has no bits outside of the other one, None if neither is known to."""
    if info.verb != "and" or info.bits == 1:
        return None
    for value, mask in (operands, operands[::-1]):
        if isinstance(value, np.ndarray) or not isinstance(mask, np.ndarray) or not mask.size:
            continue
        number = int(mask.flat[0])
        bound = maximum_of(value) if number & (number + 1) == 0 and (mask == number).all() else None
        if bound is not None and bound <= number:
            return value
    return None


def _least(value: Value) -> int:
    """Return a number that every lane of a value reaches as an unsigned integer."""
    if isinstance(value, SymbolicVector) and constant_mask(value) is True:
        value = value.words[0]
    return int(value.min()) if isinstance(value, np.ndarray) and value.size else 0


def maximum_of_either(one: Value, other: Value) -> int | None:
    """Return a number that no lane of two values exceeds, None where nothing is known."""
    bound = 0
    for each in sorted((one, other), key=lambda value: isinstance(value, np.ndarray)):
        found = maximum_of(each)
        if found is None:
            return None
        bound = max(bound, found)
    return bound
