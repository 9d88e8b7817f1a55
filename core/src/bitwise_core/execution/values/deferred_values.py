"""Values whose payload, flags and origins are computed when something reads them."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector, extract
from bitwise_core.execution.values.symbolic_vector import Origin, SymbolicVector, Value

_Words: TypeAlias = npt.NDArray[np.uint64]
_NO_WORDS: _Words = np.zeros((2, 1, 1), dtype=np.uint64)


class DeferredValue(SymbolicVector):
    """A value that `compute` returns when something reads it first; `depth` counts the values it is computed from."""

    __slots__ = ("_computed", "depth")

    def __init__(self, bits: int, depth: int) -> None:
        self._computed: Value | None = None
        self.depth = depth
        super().__init__(bits, _NO_WORDS, 0)

    def compute(self) -> Value:
        """Return the value, and drop what it is computed from."""
        raise NotImplementedError

    @property
    def is_computed(self) -> bool:
        """Whether something has read the value."""
        return self._computed is not None

    @property
    def value(self) -> Value:
        """The whole value."""
        if self._computed is None:
            self._computed = self.compute()
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
        """Nothing is kept: the payload is that of the value."""

    @property
    def flags(self) -> L.Flags:
        """The flags."""
        return as_symbolic_vector(self.value).flags

    @flags.setter
    def flags(self, flags: L.Flags) -> None:
        """Nothing is kept: the flags are those of the value."""

    @property
    def origins(self) -> tuple[Origin, ...]:
        """The operations that made the value."""
        return as_symbolic_vector(self.value).origins

    @origins.setter
    def origins(self, origins: tuple[Origin, ...]) -> None:
        """Nothing is kept: the origins are those of the value."""

    @property
    def maximum(self) -> int | None:
        """The number that no lane exceeds."""
        return as_symbolic_vector(self.value).maximum

    @maximum.setter
    def maximum(self, maximum: int | None) -> None:
        """Nothing is kept: the number is that of the value."""
