"""Matching of the square root sequence of Triton's AMD backend, which is correctly rounded from 2^-96 on.

    r = v_rsq(x);  s = x r;  h = r / 2;  e = 1/2 - h s;  s' = s + s e;  h' = h + h e;  s'' = s' + (x - s' s') h'

and x itself where it is a zero or +infinity.  For x >= 2^-96, s'' is the correctly rounded square root for every result
of v_rsq within one ulp, which is the bound that the ISA states: no step underflows, x - s' s' is exact, and all
significands of both parities of the exponent were tested with every such reciprocal root.  Below 2^-96, x - s' s' is
rounded and the result may differ, so the sequence is left as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bitwise_amd_gfx942.opcodes.float_classes import in_float_class
from bitwise_amd_gfx942.opcodes.float_idioms import same_value
from bitwise_core.execution.machine import Machine, literal
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import SymbolicVector, Value
from bitwise_core.numerics import operation

_FMA, _MULTIPLY, _NEGATE, _ROOT = (
    operation(name) for name in ("fma.rn.fp32", "mul.rn.fp32", "neg.fp32", "sqrt.rn.fp32")
)
_TABLE_SIZE = 1024
_LEAST, _MOST = 0x0F800000, 0x7F7FFFFF
"""2^-96, and the largest number."""
_HALF = 0x3F000000
_CLASSES = (0x260, 0x240, 0x220, 0x200)
"""Masks of v_cmp_class: +infinity with both zeros, with one of them, and alone."""


def record_lower_bound(machine: Machine, verb: str, values: Sequence[Value], result: Value) -> None:
    """Record a result that is never below 2^-96: a sum or maximum with such a constant.

    The other summand is not negative; a maximum needs no such condition.
    """
    if machine.domain.name != "terms" or not isinstance(result, SymbolicVector):
        return
    *others, last = values
    if verb != "fma" and not isinstance(last, np.ndarray):
        others, last = [last], values[0]
    if not isinstance(last, np.ndarray) or not ((last >= _LEAST) & (last <= _MOST)).all():
        return
    if verb == "add":
        large = _not_negative(others[0])
    elif verb == "fma":
        large = same_value(others[0], others[1]) or all(_not_negative(each) for each in others)
    else:
        large = verb == "max"
    if large:
        known = machine.extra.setdefault("from 2^-96 on", {})
        if len(known) > _TABLE_SIZE:
            known.clear()
        known[id(result)] = result


def _not_negative(value: Value) -> bool:
    if isinstance(value, np.ndarray):
        return bool((value <= np.uint32(0x7F800000)).all())
    return isinstance(value, SymbolicVector) and bool(np.all(L.has_flag(value, L.NOT_NEGATIVE)))


def match_square_root(machine: Machine, predicate: Value, if_true: Value, if_false: Value, arch: str) -> Value | None:
    """The square root of `if_true` where the select ends this sequence; None for any other select."""
    if machine.extra.get("from 2^-96 on", {}).get(id(if_true)) is not if_true or not isinstance(
        if_false, SymbolicVector
    ):
        return None
    domain, x = machine.domain, if_true
    if not any(same_value(predicate, in_float_class(machine, "fp32", x, literal(each, 32))) for each in _CLASSES):
        return None

    def fused(left: Value, right: Value, addend: Value) -> Value:
        return domain.floating(_FMA, [left, right, addend])

    def negated(value: Value) -> Value:
        return domain.floating(_NEGATE, [value])

    half = literal(_HALF, 32)
    reciprocal_root = domain.floating(operation(f"rsqrt.approx.fp32@{arch}"), [x])
    root, middle = (domain.floating(_MULTIPLY, [each, reciprocal_root]) for each in (x, half))
    error = fused(negated(middle), root, half)
    root, middle = fused(root, error, root), fused(middle, error, middle)
    root = fused(fused(negated(root), root, x), middle, root)
    if not same_value(root, if_false):
        return None
    found = domain.floating(_ROOT, [x])
    return L.with_flags(found, L.QUIET) if isinstance(found, SymbolicVector) else found
