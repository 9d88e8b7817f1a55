"""Values that are equal except for the sign of a zero.

A fused a b + (+0) is the product a b rounded once, except that an exact zero becomes +0.  The sign of a zero affects a
sum only where the sum is a zero too, and then its sign only; in a sum with a number that is not -0 it has no effect
(`ir.rules.zero_signs`).  So a fused product and the sums with it keep their counterpart, without the addend +0, as an
origin, and a sum in which the sign has no effect is that of the counterpart.

If the zeros of a matrix step have no sign (`MmaStep.signed_zeros` is False), the sign of a zero operand does not affect
the result: each of its products is a zero or NaN with either sign, and adding a zero of either sign changes a sum only
if the sum is itself a zero.  Memory keeps no origins, so `ZeroSigns` has the pairs of operands of 16 bits by their
hashes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.hash_table import HashTable
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Array, Origin, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import full_hash
from bitwise_core.numerics import Operation, operation

COUNTERPART = "equal but for the sign of a zero"
"""The name of the origin with the counterpart of a value."""

_SUMS = {f"add.{way}.{form}" for way in ("rn", "rz") for form in ("fp64", "fp32", "fp16", "bf16")}
_PRODUCTS = {f"fma.{each[4:]}": f"mul.{each[4:]}" for each in _SUMS}
FOLLOWED = frozenset({*_SUMS, *_PRODUCTS})
"""The operations whose results may have a counterpart."""

_NOT_MINUS_ZERO = L.NOT_MINUS_ZERO | L.PLUS_ZERO

Apply = Callable[[Operation, Sequence[Value]], Value]


def without_zero_signs(info: Operation, operands: Sequence[Value], result: Value, apply: Apply) -> Value:
    """Return the result of an operation of `FOLLOWED`: that of counterparts where both are equal, else with its own.

    `apply` returns the result of an operation.
    """
    if info.name in _PRODUCTS:
        return _fused(info, operands, result, apply)
    pair = [_counterpart(each) for each in operands]
    if all(each is None for each in pair):
        return result
    values = [as_symbolic_vector(each) for each in operands]
    others, unsigned = [], np.zeros((1, 1), dtype=bool)
    for value, found in zip(values, pair, strict=True):
        other, lanes = (value, False) if found is None else found
        others.append(other)
        unsigned = unsigned | (L.has_flag(value, _NOT_MINUS_ZERO) & np.logical_not(lanes))
    both = as_symbolic_vector(apply(info, others))
    signed = as_symbolic_vector(result)
    if unsigned.any():
        signed = both if unsigned.all() else L.blend(unsigned, both, signed)
    return _with_counterpart(signed, both, ~unsigned)


def _fused(info: Operation, operands: Sequence[Value], result: Value, apply: Apply) -> Value:
    """Return a fused product with the addend +0: the product where that is not -0, else with it as counterpart."""
    if not isinstance(result, SymbolicVector) or L.lazy_integers(operands[2]) is not None:
        return result
    lanes = L.equals_constant(as_symbolic_vector(operands[2]), 0)
    if lanes is False or not np.any(_plain(result) & lanes):
        return result
    product = as_symbolic_vector(apply(operation(_PRODUCTS[info.name]), operands[:2]))
    unsigned = np.asarray(L.has_flag(product, L.NOT_MINUS_ZERO) & lanes)
    found = L.blend(unsigned, product, result) if unsigned.any() else result
    return _with_counterpart(found, product, lanes & ~unsigned)


def _plain(value: SymbolicVector) -> Array:
    """Return where a value is a payload without wrappers, and no constant."""
    found: Array = np.asarray((value.flags & L.WRAPPERS) == 0) & ~np.asarray(L.constant_mask(value))
    return found


def _with_counterpart(value: SymbolicVector, other: SymbolicVector, lanes: Array) -> SymbolicVector:
    """Return a value with its counterpart in some lanes: a wrapper would change the value, but not its origins."""
    chosen = _plain(value) & lanes
    if not chosen.any():
        return value
    found = L.with_flags(value, 0)
    found.maximum = value.maximum
    found.origins = (*value.origins, Origin(COUNTERPART, (other,), True if chosen.all() else chosen))
    return found


def _counterpart(value: Value) -> tuple[SymbolicVector, Array] | None:
    """Return a value with its counterpart in the lanes that have one, and these lanes; None where none has."""
    if not isinstance(value, SymbolicVector):
        return None
    found, known = value, np.zeros((1, 1), dtype=bool)
    for origin in value.origins:
        if origin.name == COUNTERPART:
            lanes = _plain(value) & origin.lanes
            if lanes.any():
                found, known = L.blend(lanes, origin.operands[0], found), known | lanes
    return (found, known) if known.any() else None


class ZeroSigns:
    """Hashes of values, and the hashes of the values that they equal except for the sign of a zero."""

    def __init__(self) -> None:
        self._others = HashTable()
        self.has_loads = False
        """Whether a value that is a load may be recorded."""

    def note(self, value: SymbolicVector, other: SymbolicVector) -> None:
        """Record that each lane of `value` equals that of `other`, or that both are zeros."""
        shape = (2, *np.broadcast_shapes(value.words.shape[1:], other.words.shape[1:]))
        self.has_loads = self.has_loads or bool(np.any((value.flags & L.NUMBER_FORM) == L.LOAD))
        self._others.add(*(np.broadcast_to(full_hash(each), shape).reshape(2, -1).copy() for each in (value, other)))

    def without(self, hashed: hashing.Words) -> hashing.Words:
        """Return the hashes with that of every recorded value replaced by that of its counterpart."""
        found = self._others.find(hashed)
        return hashed if found is None else np.where(found[0], found[1][0], hashed)
