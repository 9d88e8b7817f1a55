"""Selects that are computed when something reads them, in the domain of terms.

What runs under a condition on data leaves its destination unchanged in the other lanes.  Much of it is temporary: it is
read under the same condition only, or written again before it is read, and no select is needed.

A select between values in parts is computed part by part.  A number of 16 bits in a register of 32 bits has a high
half, which nothing reads.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bitwise_core.execution.domains.domain import Domain
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.deferred_values import DeferredValue
from bitwise_core.execution.values.packing import extract, is_number_beside_widened, part_ends
from bitwise_core.execution.values.symbolic_vector import PackedVector, SymbolicVector, Value, width

_MAXIMUM_DEPTH = 16
"""How many selects of selects are deferred."""


class DeferredSelect(DeferredValue):
    """A select whose payload, flags and origins are computed when they are read."""

    __slots__ = ("_domain", "_operands", "_parts", "ends")

    def __init__(
        self, domain: Domain, predicate: Value, if_true: Value, if_false: Value, ends: frozenset[int] = frozenset()
    ) -> None:
        """Make a select whose parts end at the bits `ends`; none where it is computed as a whole."""
        self._domain, self._operands, self.ends = domain, (predicate, if_true, if_false), ends
        self._parts: dict[tuple[int, int], Value] = {}
        super().__init__(width(if_true), 1 + max(_depth(if_true), _depth(if_false)))

    def compute(self) -> Value:
        """Return what the domain returns for the select."""
        self._compute_operands()
        predicate, if_true, if_false = self._operands
        found = self._domain.select(predicate, L.settled(if_true), L.settled(if_false))
        del self._operands
        self._parts.clear()
        return found

    def part(self, low: int, bits: int) -> Value:
        """See `SymbolicVector.part`: of a select by parts, only those that are read are computed."""
        if self.is_computed or low + bits not in self.ends or (low and low not in self.ends):
            return super().part(low, bits)
        found = self._parts.get((low, bits))
        if found is None:
            predicate, *operands = self._operands
            if_true, if_false = (part_of(each, low, bits) for each in operands)
            found = self._parts[low, bits] = self._domain.select(predicate, if_true, if_false)
        return found

    def _compute_operands(self) -> None:
        """Compute the selects below, the innermost ones first: a chain of them may be longer than Python's stack."""
        pending = list(self._below())
        while pending:
            each = pending[-1]
            below = [] if each.is_computed else list(each._below())
            if below:
                pending += below
            else:
                pending.pop().settled()

    def _below(self) -> list[DeferredSelect]:
        """The operands that are selects which nothing has read."""
        return [each for each in self._operands[1:] if isinstance(each, DeferredSelect) and not each.is_computed]


def part_of(value: Value, low: int, bits: int) -> Value:
    """Return the `bits` bits of a value from bit `low` up; of a select that nothing has read, only these."""
    return value.part(low, bits) if type(value) is DeferredSelect else extract(value, low, bits)


def is_unread_by_parts(value: object) -> bool:
    """Return whether a value is a select by parts that nothing has read as a whole."""
    return type(value) is DeferredSelect and bool(value.ends) and not value.is_computed


def selected_by_parts(machine: Machine, predicate: Value, if_true: Value, if_false: Value) -> Value:
    """Return a select by a predicate that depends on data; its parts are computed when they are read.

    The operands are values, or selects that nothing has read.
    """
    domain = machine.domain
    operands = (if_true, if_false)
    defers = getattr(domain, "defers_steps", False) and machine.condition is None and if_true is not if_false
    if defers and max(map(_depth, operands)) < _MAXIMUM_DEPTH:
        kinds = [is_unread_by_parts(each) or isinstance(each, PackedVector) for each in operands]
        held = [isinstance(each, PackedVector) for each in operands]
        # One number beside a bf16 that was widened is selected as a whole.
        numbers_apart = kinds == held and not (
            is_number_beside_widened(if_true, if_false) or is_number_beside_widened(if_false, if_true)
        )
        if all(kinds) or (any(kinds) and numbers_apart):
            ends = frozenset(end for each in operands for end in _ends(each))
            return DeferredSelect(domain, predicate, if_true, if_false, ends)
    return domain.select(predicate, L.settled(if_true), L.settled(if_false))


def _ends(value: Value) -> Iterable[int]:
    return value.ends if isinstance(value, DeferredSelect) and not value.is_computed else part_ends(value)


def _depth(value: Value) -> int:
    return value.depth if isinstance(value, DeferredSelect) and not value.is_computed else 0


def deferred_select(
    machine: Machine, predicate: Value, if_true: Value, if_false: Value, depth: int = _MAXIMUM_DEPTH
) -> Value:
    """Return a select by a predicate that depends on data, deferred where matrix steps are (`StepsInOrder`).

    A select of two numbers is none to defer: it may be one number, or have a form of its own.  At most `depth` selects
    of selects are deferred.
    """
    domain, kinds = machine.domain, (type(if_true), type(if_false))
    if (
        getattr(domain, "defers_steps", False)
        and kinds[0] in _PLAIN
        and kinds[1] in _PLAIN
        and kinds != (np.ndarray, np.ndarray)
        and max(_depth(if_true), _depth(if_false)) < depth
    ):
        return DeferredSelect(domain, predicate, if_true, if_false)
    return domain.select(predicate, L.settled(if_true), L.settled(if_false))


_PLAIN = (SymbolicVector, DeferredSelect, PackedVector, np.ndarray)
