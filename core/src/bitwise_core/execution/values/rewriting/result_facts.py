"""What an operation leaves beside its term: facts of its result as flags, and the operation itself, for rules.

A fact follows from the inferences of an operation's plan (`rule_plans`).  An origin is the operation that made a value,
with its operands to the depth to which rules look at them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from bitwise_core.execution.term_recorder import TermContext
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.integers.linear_hash import CONSTANT
from bitwise_core.execution.values.rewriting.rule_matching import Known, inference_lanes, same_operands
from bitwise_core.execution.values.rewriting.rule_plans import (
    WIDENING_BF16,
    Plan,
    derivations,
    kept_depths,
    needed_numbers,
)
from bitwise_core.execution.values.symbolic_vector import Origin, SymbolicVector


def with_facts(flags: L.Flags, plan: Plan, values: Sequence[SymbolicVector], context: TermContext) -> L.Flags:
    """Return the flags with the facts that the inferences derive from the operands."""
    if not plan.inferences:
        return flags
    keys = () if context.finite else tuple(map(_key_of_facts, values))
    if not keys or None in keys:
        return flags | _facts(plan, values, context)
    key = (plan.squares and same_operands(values), *keys)
    facts = plan.facts.get(key)
    if facts is None:
        facts = plan.facts[key] = _facts(plan, values, context)
    return flags | facts


def _facts(plan: Plan, values: Sequence[SymbolicVector], context: TermContext) -> L.Flags:
    flags: L.Flags = 0
    known: Known = {}
    for inference in plan.inferences:
        lanes = inference_lanes(inference, values, context, known)
        if lanes is False:
            continue
        fact = inference.flag | (L.NOT_MINUS_ZERO if inference.flag == L.NOT_NEGATIVE else 0)
        flags = flags | (fact if lanes is True else np.where(lanes, np.uint32(fact), np.uint32(0)))
    return flags


def with_origin(
    name: str, result: SymbolicVector, values: Sequence[SymbolicVector], context: TermContext
) -> SymbolicVector:
    """Return a result with the operation that made it, where a rule may look at that."""
    depths = kept_depths(context.finite).get(name)
    needed = needed_numbers(context.finite).get(name)
    if needed and all(L.equals_constant(values[place], number) is False for place, number in needed):
        depths = None
    if depths is None and _derives_fact(name, values, context):
        depths = (0,) * len(values)
    if depths is not None and not any(result is value for value in values):
        kept = tuple(_to_depth(value, depth) for value, depth in zip(values, depths, strict=True))
        result.origins = (Origin(name, kept),)
    return result


def _derives_fact(name: str, values: Sequence[SymbolicVector], context: TermContext) -> bool:
    """Return whether a result has a fact without a flag, which follows from constants among the operands."""
    inferences = derivations(name, context.finite)
    if not inferences or all(L.constant_mask(value) is False for value in values):
        return False
    return any(inference_lanes(each, values, context) is not False for each in inferences)


def with_second_origin(
    name: str, result: SymbolicVector, values: Sequence[SymbolicVector], context: TermContext
) -> SymbolicVector:
    """Return a result that a rule made, with the operation that it replaced beside the one that made it."""
    first = result.origins
    copied = L.with_flags(result, 0)
    copied.cached_hash = result.cached_hash
    replaced = with_origin(name, copied, values, context)
    replaced.origins = (*first, *(each for each in replaced.origins if each not in first))
    return replaced


def _key_of_facts(value: SymbolicVector) -> Hashable | None:
    """Return what decides the facts of a value in all lanes: its flags, and its number if it is one constant.

    None where lanes differ, and for the widening of a bf16, which is a number if the bf16 is one.
    """
    flags = value.flags
    if not isinstance(flags, int) or any(origin.name == WIDENING_BF16 for origin in value.origins):
        return None
    if flags & L.KIND != L.CONST:
        return flags
    numbers = L.constant_numbers(value)
    return (flags, *numbers) if numbers and value.words.size == 2 else None


def _to_depth(value: SymbolicVector, depth: int) -> SymbolicVector:
    """Return the value with the operations that made it to a depth only."""
    if not value.origins or type(value) is not SymbolicVector:
        return value  # a joined value has its own parts
    result = SymbolicVector(value.bits, value.words, value.flags)
    result.cached_hash, result.recorder, result.maximum = value.cached_hash, value.recorder, value.maximum
    if depth > 0:
        result.origins = tuple(
            Origin(each.name, tuple(_to_depth(operand, depth - 1) for operand in each.operands), each.lanes)
            for each in value.origins
        )
    else:
        result.origins = tuple(each for each in value.origins if each.name == CONSTANT)
    return result


def common_not_minus_zero(left: L.Flags, right: L.Flags) -> L.Flags:
    """Return NOT_MINUS_ZERO where both of two values cannot be -0."""
    closed = L.NOT_MINUS_ZERO | L.PLUS_ZERO
    if isinstance(left, int) and isinstance(right, int):
        return L.NOT_MINUS_ZERO if left & closed and right & closed else 0
    both = ((left & closed) != 0) & ((right & closed) != 0)
    return np.where(both, np.uint32(L.NOT_MINUS_ZERO), np.uint32(0))
