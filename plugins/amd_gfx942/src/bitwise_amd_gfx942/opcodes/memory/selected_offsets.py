"""Offsets of buffers that are out of bounds in some lanes: how compilers mask an access.

Where the index of the block is a number for all blocks at once, a select between such an offset and a constant has no
representation of that kind.  It is kept as a select until something other than a buffer access reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from bitwise_core.execution.values.lane_selection import take_threads
from bitwise_core.execution.values.packing import as_symbolic_vector, blend_values, concat, extract
from bitwise_core.execution.values.symbolic_vector import Array, LazyIntegers, SymbolicVector, Value, lazy_integers


class SelectedOffset(LazyIntegers):
    """`offset` in the lanes of a constant mask, and one number in the others, in 32 bits."""

    __slots__ = ("_blended", "lanes", "number", "offset")

    bits = 32

    def __init__(self, lanes: Array, offset: Value, number: Array) -> None:
        self.lanes, self.offset, self.number = lanes, offset, number
        self._blended: Value | None = None

    @property
    def blended(self) -> Value:
        """The select as any other value."""
        if self._blended is None:
            self._blended = blend_values(self.lanes, self.offset, self.number)
        return self._blended

    def within(self, bound: Value) -> tuple[Value, Array | None]:
        """Return the offset and its lanes, where the number in the others is not below the bound; else the select."""
        if isinstance(bound, np.ndarray) and bool((self.number >= bound).all()):
            return self.offset, self.lanes
        return self.blended, None

    # -- the interface `LazyIntegers` ---------------------------------------------------------------------------------

    def _replaced(self, value: Any) -> Any:
        return self.blended if value is self else value

    def known_numbers(self, active: Array | None = None) -> Array | None:
        """See `LazyIntegers.known_numbers`."""
        lazy = lazy_integers(self.blended)
        if lazy is not None:
            return lazy.known_numbers(active)
        return self.blended if isinstance(self.blended, np.ndarray) else None

    def symbolic_vector(self) -> SymbolicVector:
        """See `LazyIntegers.symbolic_vector`."""
        return as_symbolic_vector(self.blended)

    def extract(self, low: int, bits: int) -> Value:
        """See `LazyIntegers.extract`."""
        return extract(self.blended, low, bits)

    def blend(self, mask: Array, new: Any, old: Any) -> Value:
        """See `LazyIntegers.blend`."""
        return blend_values(mask, self._replaced(new), self._replaced(old))

    def concat(self, parts: Sequence[Any]) -> Any:
        """See `LazyIntegers.concat`."""
        return concat([self._replaced(each) for each in parts])

    def take_threads(self, index: Array) -> Value:
        """See `LazyIntegers.take_threads`."""
        return take_threads(self.blended, index)


def selected(lanes: Array, if_true: Value, if_false: Value) -> Value:
    """Return the select by a constant mask; one between an offset that differs between blocks and a number is kept."""
    if not (isinstance(if_true, np.ndarray) and isinstance(if_false, np.ndarray)):
        if lanes.all():
            return if_true
        if not lanes.any():
            return if_false
    for offset, number, chosen in ((if_true, if_false, lanes), (if_false, if_true, ~lanes)):
        if (
            lazy_integers(offset) is not None
            and isinstance(number, np.ndarray)
            and number.size == 1
            and number.dtype == np.uint32
        ):
            kept: Any = SelectedOffset(chosen, offset, number)
            return cast(Value, kept)
    return blend_values(lanes, if_true, if_false)
