"""Contributions of atomic operations to elements: whether their order matters, and their combination in one order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitwise_core.execution.domains.domain import Domain
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import blend_values
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.numerics import FloatFormat, Operation


@dataclass(frozen=True, slots=True)
class ScatteredAtomics:
    """Contributions of an atomic operation at addresses that depend on data.

    `words` is the sum of their hashes.  `buffers` are the buffers that they may reach; None means any.
    """

    name: str
    words: hashing.Words
    line: int
    buffers: frozenset[int] | None


def is_order_independent(operation: Operation) -> bool:
    """Return whether an atomic operation has the same result in every order."""
    return operation.associative or operation.verb in ("max", "min", "maxbysign", "minbysign")


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


def kept_contributions(added: Operation, address: Array, words: Array, flags: Array) -> Array:
    """Return which contributions to elements, sorted by their `address`, decide the element's content.

    Known zeros do not, in a sum of floats whose contributions are all known, where another one is large enough: a sum
    with a number c is never -0, nor is it flushed to -0, if the last bit of every number near c is a normal number.  So
    a zero added before or after it changes nothing.  `words` has the shape (2, contributions).
    """
    every = np.ones(address.size, dtype=bool)
    form = added.result
    if added.verb != "add" or "rn" not in added.modifiers or not isinstance(form, FloatFormat):
        return every
    known = (flags & np.uint32(L.FORM | L.STICKY)) == L.CONST
    magnitude = words[0] & np.uint64((1 << form.bits - 1) - 1)
    exponent = magnitude >> np.uint64(form.mantissa_bits)
    finite = exponent < (1 << form.bits - 1 - form.mantissa_bits) - 1
    large = known & finite & (exponent >= form.mantissa_bits + 3)
    zero = known & (magnitude == 0)
    if not (zero.any() and large.any()):
        return every
    start = np.flatnonzero(np.append(True, address[1:] != address[:-1]))
    count = np.diff(np.append(start, address.size))
    settled = np.logical_and.reduceat(large | zero, start) & np.logical_or.reduceat(large, start)
    found: Array = ~(zero & np.repeat(settled, count))
    return found
