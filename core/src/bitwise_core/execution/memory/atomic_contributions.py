"""Contributions of atomic operations to elements, combined in one order."""

from __future__ import annotations

import numpy as np

from bitwise_core.execution.domains.domain import Domain
from bitwise_core.execution.values.packing import blend_values
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.numerics import Operation


def combined(
    domain: Domain, operation: Operation, first: Value | None, contributions: SymbolicVector, start: Array, count: Array
) -> Value:
    """Return, for each element, its first value and then its contributions, combined one after another.

    `contributions` has the shape (1, contributions), sorted by element: those of an element begin at its `start`.
    `first` has the shape (1, elements); None: the first contribution.
    """
    act = domain.floating if operation.is_float else domain.integer
    last = contributions.words.shape[2] - 1
    words, flags = contributions.words, contributions.flags
    total = first
    for contributor in range(int(count.max(initial=0))):
        present = count > contributor
        index = np.minimum(start + contributor, last)
        value = SymbolicVector(
            contributions.bits, words[:, :, index], flags if isinstance(flags, int) else flags[:, index]
        )
        total = value if total is None else blend_values(present[None], act(operation, [total, value]), total)
    assert total is not None
    return total


def identity_of(operation: Operation) -> int | None:
    """Return the pattern of an integer that leaves every content as it is, None for another operation."""
    if operation.is_float or operation.result.name[0] not in "bsu":
        return None
    bits = operation.result.bits
    ones, top = (1 << bits) - 1, 1 << bits - 1
    signed = operation.result.name[0] == "s"
    return {
        "add": 0,
        "or": 0,
        "xor": 0,
        "and": ones,
        "max": top if signed else 0,
        "min": top - 1 if signed else ones,
        "maxbysign": ones,
        "minbysign": top - 1,
    }.get(operation.verb)
