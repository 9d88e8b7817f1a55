"""Comparisons in few canonical forms: what one instruction set calls greater, another writes as less."""

from __future__ import annotations

import numpy as np

from bitwise_core import numeric
from bitwise_core.machine.lanes import Array, Value
from bitwise_core.machine.state import Machine, invert
from bitwise_core.machine.steps import apply_integer

INTEGER_COMPARISONS = {
    "eq": ("eq", False, False), "ne": ("eq", False, True), "lt": ("lt", False, False), "le": ("le", False, False),
    "gt": ("lt", True, False), "ge": ("le", True, False),
}  # fmt: skip
"""Comparison of integers -> (base, swap the operands, negate)."""

FLOAT_COMPARISONS = {
    "eq": ("eq", False, False), "lt": ("lt", False, False), "le": ("le", False, False), "gt": ("lt", True, False),
    "ge": ("le", True, False), "neu": ("eq", False, True), "geu": ("lt", False, True), "gtu": ("le", False, True),
    "leu": ("lt", True, True), "ltu": ("le", True, True), "num": ("num", False, False), "nan": ("num", False, True),
    "ne": ("ne", False, False), "equ": ("ne", False, True),
}  # fmt: skip
"""The same of floating-point numbers; those that end in u hold for NaNs too, num and nan ask for NaNs alone."""

_FLOAT_TYPES = {"fp16": np.float16, "fp32": np.float32, "fp64": np.float64}
_SIGNED = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


def compare_floats(base: str, form: str, left: Array, right: Array) -> Array:
    """One of the base comparisons (eq, ne, lt, le, num; ordered) on bit patterns."""
    if form == "bf16":
        wide = [each.astype(np.uint32) << np.uint32(16) for each in (left, right)]
        return compare_floats(base, "fp32", wide[0], wide[1])
    x, y = left.view(_FLOAT_TYPES[form]), right.view(_FLOAT_TYPES[form])
    ordered = ~(np.isnan(x) | np.isnan(y))
    with np.errstate(invalid="ignore"):
        results: dict[str, Array] = {
            "eq": x == y,
            "ne": (x != y) & ordered,
            "lt": x < y,
            "le": x <= y,
            "num": ordered,
        }
    return results[base]


def compare_as_integers(machine: Machine, operator: str, kind: str, left: Value, right: Value) -> Value:
    """The predicate `left operator right` for a kind such as s32, u64 or b16 (eq and ne look at no sign)."""
    base, swap, negate = INTEGER_COMPARISONS[operator]
    tag = f"{base}.{kind if base != 'eq' else 'b' + kind[1:]}"

    def evaluate(a: Array, b: Array) -> Array:
        x, y = (each.view(_SIGNED[each.dtype.itemsize]) for each in (a, b)) if kind[0] == "s" else (a, b)
        return x == y if base == "eq" else x < y if base == "lt" else x <= y

    pair = (right, left) if swap else (left, right)
    result = apply_integer(machine, f"compare.{tag}", pair, 1, evaluate)
    return invert(machine.domain, result) if negate else result


def compare_as_floats(
    machine: Machine, operator: str, form: str, left: Value, right: Value, *, flush: bool = False
) -> Value:
    """The predicate `left operator right` of two numbers of a format, subnormal ones as zeros where `flush`."""
    base, swap, negate = FLOAT_COMPARISONS[operator]

    def evaluate(a: Array, b: Array) -> Array:
        if flush:
            flushed = numeric.operation(f"add.rn.ftz.{form}").evaluate
            zero = np.zeros((1, 1), dtype=a.dtype)
            a, b = flushed(a, zero), flushed(b, zero)
        return compare_floats(base, form, a, b)

    pair = (right, left) if swap else (left, right)
    result = apply_integer(machine, f"compare.{base}{'.ftz' if flush else ''}.{form}", pair, 1, evaluate)
    return invert(machine.domain, result) if negate else result
