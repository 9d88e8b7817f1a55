"""Selects that are computed when something reads them, in the domain of terms.

An instruction under an execution mask that depends on data leaves its destination unchanged in the other lanes.  Most
of these registers are temporary: the lanes of the same mask read them, and no select is needed.
"""

from __future__ import annotations

from bitwise_core.execution.domains.domain import Domain, StepsInOrder
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Origin, SymbolicVector, Value

_MAXIMUM_DEPTH = 16
"""How many selects of selects are deferred."""

_NO_WORDS = hashing.constant("a deferred select")


class DeferredSelect(SymbolicVector):
    """A select between two vectors, whose parts are computed when they are read."""

    __slots__ = ("_computed", "_domain", "_operands", "depth")

    def __init__(self, domain: Domain, predicate: Value, if_true: SymbolicVector, if_false: SymbolicVector) -> None:
        self._computed: Value | None = None
        self._domain, self._operands = domain, (predicate, if_true, if_false)
        self.depth = 1 + max(_depth(if_true), _depth(if_false))
        super().__init__(if_true.bits, _NO_WORDS, 0)

    @property
    def is_computed(self) -> bool:
        """Whether something has read the select."""
        return self._computed is not None

    @property
    def value(self) -> Value:
        """What the domain returns for the select."""
        if self._computed is None:
            predicate, if_true, if_false = self._operands
            self._computed = self._domain.select(predicate, computed(if_true), computed(if_false))
            del self._operands
        return self._computed

    @property
    def words(self) -> hashing.Words:
        """The payload."""
        return as_symbolic_vector(self.value).words

    @words.setter
    def words(self, words: hashing.Words) -> None:
        """Nothing is kept: the payload is that of the select."""

    @property
    def flags(self) -> L.Flags:
        """The flags."""
        return as_symbolic_vector(self.value).flags

    @flags.setter
    def flags(self, flags: L.Flags) -> None:
        """Nothing is kept: the flags are those of the select."""

    @property
    def origins(self) -> tuple[Origin, ...]:
        """The operations that made the select."""
        return as_symbolic_vector(self.value).origins

    @origins.setter
    def origins(self, origins: tuple[Origin, ...]) -> None:
        """Nothing is kept: the origins are those of the select."""

    @property
    def maximum(self) -> int | None:
        """The number that no lane exceeds."""
        return as_symbolic_vector(self.value).maximum

    @maximum.setter
    def maximum(self, maximum: int | None) -> None:
        """Nothing is kept: the number is that of the select."""


def _depth(value: Value) -> int:
    return value.depth if isinstance(value, DeferredSelect) and not value.is_computed else 0


def computed(value: Value) -> Value:
    """Return the value, computed if it is a deferred select."""
    return value.value if isinstance(value, DeferredSelect) else value


def deferred_select(machine: Machine, predicate: Value, if_true: Value, if_false: Value) -> Value:
    """Return a select by a predicate that depends on data, deferred where both values are plain vectors."""
    domain = machine.domain
    if (
        isinstance(domain, StepsInOrder)
        and domain.defers_steps
        and type(if_true) in _PLAIN
        and type(if_false) in _PLAIN
        and max(_depth(if_true), _depth(if_false)) < _MAXIMUM_DEPTH
    ):
        assert isinstance(if_true, SymbolicVector)
        assert isinstance(if_false, SymbolicVector)
        return DeferredSelect(domain, predicate, if_true, if_false)
    return domain.select(predicate, computed(if_true), computed(if_false))


_PLAIN = (SymbolicVector, DeferredSelect)
