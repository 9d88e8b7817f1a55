"""Selects that are computed when something reads them, in the domain of terms.

What runs under a condition on data leaves its destination unchanged in the other lanes.  Much of it is temporary: it is
read under the same condition only, or written again before it is read, and no select is needed.
"""

from __future__ import annotations

import numpy as np

from bitwise_core.execution.domains.domain import Domain
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.deferred_values import DeferredValue
from bitwise_core.execution.values.symbolic_vector import PackedVector, SymbolicVector, Value, width

_MAXIMUM_DEPTH = 16
"""How many selects of selects are deferred."""


class DeferredSelect(DeferredValue):
    """A select whose payload, flags and origins are computed when they are read."""

    __slots__ = ("_domain", "_operands")

    def __init__(self, domain: Domain, predicate: Value, if_true: Value, if_false: Value) -> None:
        self._domain, self._operands = domain, (predicate, if_true, if_false)
        super().__init__(width(if_true), 1 + max(_depth(if_true), _depth(if_false)))

    def compute(self) -> Value:
        """Return what the domain returns for the select."""
        self._compute_operands()
        predicate, if_true, if_false = self._operands
        found = self._domain.select(predicate, L.settled(if_true), L.settled(if_false))
        del self._operands
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
