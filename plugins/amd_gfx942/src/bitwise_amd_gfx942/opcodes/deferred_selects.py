"""Selects that are computed when something reads them, in the domain of terms.

An instruction under an execution mask that depends on data leaves its destination unchanged in the other lanes.  Most
of these registers are temporary: the lanes of the same mask read them, and no select is needed.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from bitwise_core.execution.domains.domain import Domain
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector, extract
from bitwise_core.execution.values.symbolic_vector import Origin, PackedVector, SymbolicVector, Value, width

_MAXIMUM_DEPTH = 16
"""How many selects of selects are deferred."""

_Words: TypeAlias = npt.NDArray[np.uint64]

_NO_WORDS: _Words = np.zeros((2, 1, 1), dtype=np.uint64)


class DeferredSelect(SymbolicVector):
    """A select whose payload, flags and origins are computed when they are read."""

    __slots__ = ("_computed", "_domain", "_operands", "depth")

    def __init__(self, domain: Domain, predicate: Value, if_true: Value, if_false: Value) -> None:
        self._computed: Value | None = None
        self._domain, self._operands = domain, (predicate, if_true, if_false)
        self.depth = 1 + max(_depth(if_true), _depth(if_false))
        super().__init__(width(if_true), _NO_WORDS, 0)

    @property
    def is_computed(self) -> bool:
        """Whether something has read the select."""
        return self._computed is not None

    @property
    def value(self) -> Value:
        """What the domain returns for the select."""
        if self._computed is None:
            predicate, if_true, if_false = self._operands
            self._computed = self._domain.select(predicate, L.settled(if_true), L.settled(if_false))
            del self._operands
        return self._computed

    def settled(self) -> Value:
        """See `SymbolicVector.settled`."""
        return self.value

    def part(self, low: int, bits: int) -> Value:
        """See `SymbolicVector.part`."""
        return extract(self.value, low, bits)

    @property
    def words(self) -> _Words:
        """The payload."""
        return as_symbolic_vector(self.value).words

    @words.setter
    def words(self, words: _Words) -> None:
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


def is_value_of(value: Value, register: Value | None) -> bool:
    """Return whether a value is what an instruction reads of a register that holds `register`."""
    if isinstance(register, DeferredSelect) and register.is_computed and value is register.value:
        return True
    return value is register


def _depth(value: Value) -> int:
    return value.depth if isinstance(value, DeferredSelect) and not value.is_computed else 0


def deferred_select(machine: Machine, predicate: Value, if_true: Value, if_false: Value) -> Value:
    """Return a select by a predicate that depends on data, deferred where matrix steps are (`StepsInOrder`).

    A select of two numbers is none to defer: it may be one number, or have a form of its own.
    """
    domain, kinds = machine.domain, (type(if_true), type(if_false))
    if (
        getattr(domain, "defers_steps", False)
        and kinds[0] in _PLAIN
        and kinds[1] in _PLAIN
        and kinds != (np.ndarray, np.ndarray)
        and max(_depth(if_true), _depth(if_false)) < _MAXIMUM_DEPTH
    ):
        return DeferredSelect(domain, predicate, if_true, if_false)
    return domain.select(predicate, if_true, if_false)


_PLAIN = (SymbolicVector, DeferredSelect, PackedVector, np.ndarray)
