"""and, or and xor of registers and of predicates; packed registers are processed part by part where possible."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bitwise_core.execution.machine import Machine
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.integers.predicate_bits import combined
from bitwise_core.execution.values.packing import blend_values, concat, extract, part_ends
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.numerics import operation

_FUNCTIONS: dict[str, Callable[..., Array]] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


def combine(machine: Machine, verb: str, left: Value, right: Value, bits: int) -> Value:
    """Return `left verb right`, part by part if a register is packed or a constant mask covers whole bytes."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return _FUNCTIONS[verb](left, right)
    if L.lazy_integers(left) is not None or L.lazy_integers(right) is not None:
        return apply_integer(machine, operation(f"{verb}.b{bits}"), [left, right])
    if bits == 1:
        return _predicates(machine, verb, left, right)
    for mask, value in ((left, right), (right, left)):
        changed = _with_mask(machine, verb, mask, value, bits)
        if changed is not None:
            return changed
    whole = any(_is_result_of(f"{verb}.b{bits}", each) for each in (left, right))
    if not whole and (isinstance(left, L.PackedVector) or isinstance(right, L.PackedVector)):
        ends = sorted(set(part_ends(left)) | set(part_ends(right)))
        spans = list(zip([0, *ends[:-1]], ends, strict=True))
        if len(spans) > 1:
            return concat(
                [
                    combine(machine, verb, extract(left, low, high - low), extract(right, low, high - low), high - low)
                    for low, high in spans
                ]
            )
    return apply_integer(machine, operation(f"{verb}.b{bits}"), [left, right])


def _is_result_of(name: str, value: Value) -> bool:
    """Return whether a value, which is not packed, is the result of an operation in some lane, so that rules apply."""
    return isinstance(value, SymbolicVector) and any(each.name == name for each in value.origins)


def _predicates(machine: Machine, verb: str, left: Value, right: Value) -> Value:
    return combined(verb, left, right, lambda name, operands: apply_integer(machine, operation(name), operands))


def _with_mask(machine: Machine, verb: str, mask: Value, value: Value, bits: int) -> Value | None:
    """Apply a uniform constant mask to whole bytes, or to a sign bit, without making a term of it.

    So is a mask that in each lane keeps the value or replaces it by the mask, as a compiler selects between a value and
    0 by a known predicate.  Return None if the mask has another form.
    """
    if not isinstance(mask, np.ndarray):
        return None
    full = (1 << bits) - 1
    neutral = full if verb == "and" else 0
    if mask.size != 1:
        keeps = mask == mask.dtype.type(neutral)
        decides = (mask == mask.dtype.type(full - neutral)) & (verb != "xor")
        return blend_values(keeps, value, mask) if np.all(keeps | decides) else None
    number = int(mask.reshape(())[()])
    if number == neutral:
        return value
    if (verb, number) in (("and", 0), ("or", full)):
        return mask
    if isinstance(value, SymbolicVector) and _changes_sign(verb, number, bits):
        return machine.domain.integer(operation(f"{verb}.b{bits}"), [value, mask])
    for size in (32, 16, 8):
        if size >= bits:
            continue
        parts = [(number >> low) & ((1 << size) - 1) for low in range(0, bits, size)]
        whole = (1 << size) - 1
        useful = (
            all(part in (0, whole) for part in parts) if verb in ("and", "or") else isinstance(value, L.PackedVector)
        )
        if useful or (isinstance(value, L.PackedVector) and size in {L.width(part) for part in value.parts}):
            return concat(
                [
                    combine(
                        machine,
                        verb,
                        np.full((1, 1), part, dtype=L.UNSIGNED[size]),
                        extract(value, index * size, size),
                        size,
                    )
                    for index, part in enumerate(parts)
                ]
            )
    return None


def _changes_sign(verb: str, number: int, bits: int) -> bool:
    """Return whether an operation with a constant flips or clears the sign bit of a floating-point number."""
    sign = 1 << (bits - 1)
    return bits in (16, 32, 64) and (verb, number) in (("xor", sign), ("and", sign - 1))
