"""Elements of global memory that the threads of a block access, with symbolic addresses."""

from __future__ import annotations

from dataclasses import dataclass

from bitwise_core.checker.parametric.polynomial import Polynomial
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values.symbolic_vector import Array


@dataclass(frozen=True, slots=True)
class StoredElement:
    """One element that each thread of a block stores to the buffer of a pointer parameter.

    `bits` is its width, `threads` the threads that may store it, `value` the hash of its value in them, of shape
    (2, rows, threads), and `element` that of address, condition and value.
    """

    pointer: int
    address: Polynomial
    bits: int
    threads: Array
    value: hashing.Words
    element: hashing.Words
    operation: str
    line: int
    conditions: tuple[Polynomial, ...] = ()
    """Integers that are not negative where the element is stored."""
    iterations: tuple[int, ...] = ()
    """The atoms that number the iterations of the loops in which the element is stored."""


@dataclass(frozen=True, slots=True)
class LoadedElement:
    """One element that each thread of a block loads from the buffer of a pointer parameter."""

    pointer: int
    address: Polynomial
    bits: int
    threads: Array
    line: int
