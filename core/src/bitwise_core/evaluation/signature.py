"""Descriptors of products by what they compute: one signature where the same sums are made in the same order.

Records that cut the axis alike in other words have one signature: a span or a number of parts, turns that decide
nothing, a part of its own, instructions of other names and one arithmetic.  Equal signatures owe equal bytes; others
may still be one function.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np

from bitwise_core.descriptors import DescriptorError, GEMMDesc
from bitwise_core.descriptors.cuts import grouped, rounds
from bitwise_core.descriptors.walk import Part, instructions, parts_of
from bitwise_core.evaluation.units import unit_of
from bitwise_core.mma import FusedSum

Value = tuple[str, str]
"""A type, and the digest of how the value came about."""


@lru_cache(maxsize=65536)
def signature(desc: GEMMDesc) -> str:
    """The signature of a descriptor, as text of 32 digits."""
    unit, width = _unit(desc)
    dtype, value = _merged(desc, parts_of(desc), unit, width)
    return _digest(
        "stored", value, dtype, desc.output_dtype, desc.output_satfinite, desc.alpha, desc.operand_scales,
        desc.left_dtype, desc.right_dtype, repr(desc.turn_rotation),
    )  # fmt: skip


def same_sums(one: GEMMDesc, other: GEMMDesc) -> bool:
    """Whether two descriptors make the same sums in the same order, so that they owe equal bytes."""
    return one == other or signature(one) == signature(other)


def _digest(*what: object) -> str:
    return hashlib.sha256(repr(what).encode()).hexdigest()[:32]


def _unit(desc: GEMMDesc) -> tuple[str, int]:
    """What one step of a walk computes, in text, and how many values of k it takes."""
    types = f"{desc.factor_dtypes} in {desc.accumulator_dtype}"
    if desc.instruction is None:
        return f"{desc.path} {types}", 1
    try:
        row = unit_of(desc)
    except DescriptorError:
        row = None
    native = desc.instruction.k
    if row is None:
        return f"{desc.instruction!r} {types} {desc.use_fast_accum}", native
    arithmetic = row.arithmetic
    parted = isinstance(arithmetic, FusedSum) and arithmetic.order == "ascending" and not arithmetic.accumulator_last
    if parted and desc.use_fast_accum and isinstance(arithmetic, FusedSum) and native % arithmetic.products == 0:
        return f"{arithmetic!r} {types}", arithmetic.products
    return f"{arithmetic!r} {types} k {native} {desc.use_fast_accum}", native


def _merged(desc: GEMMDesc, part: Part, unit: str, width: int) -> Value:
    """As an evaluation adds, over digests instead of numbers."""
    if part.cut is None:
        walk = instructions(desc, part.positions) if len(part.positions) else np.zeros((0, width), dtype=np.int64)
        steps = np.ascontiguousarray(walk.reshape(-1, width))
        return desc.accumulator_dtype, _digest("walk", unit, hashlib.sha256(steps.tobytes()).hexdigest())
    cut = part.cut
    found = [_rounded(_merged(desc, each, unit, width), cut.partial_dtype) for each in part.parts]
    zero = _digest("zero")
    if cut.groups or cut.merge in ("neighbours", "halves"):
        if cut.groups:
            empty, additions, result = grouped(cut, len(found))
            found += [(cut.merge_dtype, zero)] * empty
        else:
            additions, result = rounds(cut.merge, len(found)), 0
        for into, other in additions:
            found[into] = _added(found[into], found[other], cut.merge_dtype)
        return found[result]
    order = found if cut.merge == "chain" else found[::-1]
    if cut.start == "zero":
        order = [(cut.partial_dtype, zero), *order]
    total = _rounded(order[0], cut.merge_dtype)
    for each in order[1:]:
        total = _added(total, each, cut.merge_dtype)
    return total


def _rounded(value: Value, dtype: str) -> Value:
    return value if value[0] == dtype else (dtype, _digest("rounded", *value, dtype))


def _added(one: Value, other: Value, dtype: str) -> Value:
    return dtype, _digest("added", *sorted((one, other)), dtype)
