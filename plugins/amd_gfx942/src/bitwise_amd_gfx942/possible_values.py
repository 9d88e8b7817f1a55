"""Sets of possible values: known numbers up to the error of a hardware approximation.

An integer division is a reciprocal, with an error below 1 ulp, and corrections that make the quotient exact for every
such error.  The reciprocal of a known number is therefore represented by all floats that it may be.  Elementwise
operations on it are computed for each of them, and where all results agree the number is known again.  The reciprocal
of a value that depends on data is an operation of the expression DAG.

Source of the bound: AMD Instinct MI300 ISA, V_RCP_F32 and V_RCP_IFLAG_F32, "less than 1 ulp".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from itertools import product as assignments
from typing import Any

import numpy as np

from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.lane_selection import take
from bitwise_core.execution.values.packing import as_symbolic_vector, blend_values, concat, extract
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import poison

_KEYS = count()


@dataclass(frozen=True, slots=True, eq=False)
class ApproximateReciprocal:
    """One reciprocal: a unique key, and its known operand."""

    key: int
    operand: Array


_MAX_SOURCES = 3
"""The maximum number of reciprocals that one value may depend on."""


class PossibleValues(L.LazyIntegers):
    """The value for each choice of one option per source (a reciprocal).

    `options` maps a choice, one index per source, to an array.  `fallback` returns the value as a term; None if it has
    none.
    """

    __slots__ = ("fallback", "options", "sources")

    def __init__(
        self,
        sources: tuple[ApproximateReciprocal, ...],
        options: Mapping[tuple[int, ...], Array],
        fallback: Callable[[], SymbolicVector] | None,
    ) -> None:
        self.sources, self.options, self.fallback = sources, options, fallback

    @property
    def bits(self) -> int:
        """The width; 1 for a predicate."""
        return L.width(next(iter(self.options.values())))

    def known_numbers(self, active: Array | None = None) -> Array | None:
        """See `LazyIntegers.known_numbers`: the options differ, but perhaps not in the active lanes."""
        if active is None:
            return None
        first, *others = self.options.values()
        return None if any(((each != first) & active).any() for each in others) else first

    def symbolic_vector(self) -> SymbolicVector:
        """See `LazyIntegers.symbolic_vector`."""
        return poison(self.bits, "computed from an approximation") if self.fallback is None else self.fallback()

    def apply(self, values: Sequence[Any], evaluate: Callable[..., Array]) -> Any:
        """See `LazyIntegers.apply`."""
        return apply_to_possible_values(values, evaluate, None)

    def extract(self, low: int, bits: int) -> Value:
        """See `LazyIntegers.extract`."""

        def extracted(number: Array) -> Array:
            found = extract(number, low, bits)
            assert isinstance(found, np.ndarray)
            return found

        found: Value = apply_to_possible_values(
            [self], extracted, lambda: as_symbolic_vector(extract(self.symbolic_vector(), low, bits))
        )
        return found

    def blend(self, mask: Array, new: Any, old: Any) -> Value:
        """See `LazyIntegers.blend`."""

        def selected(left: Array, right: Array) -> Array:
            return np.where(mask, left, right)

        found: Value | None = apply_to_possible_values([new, old], selected, None)
        return blend_values(mask, as_symbolic_vector(new), as_symbolic_vector(old)) if found is None else found

    def concat(self, parts: Sequence[Any]) -> Any:
        """See `LazyIntegers.concat`."""

        def joined(*numbers: Array) -> Array:
            found = concat(numbers)
            assert isinstance(found, np.ndarray)
            return found

        return apply_to_possible_values(parts, joined, None)

    def take_threads(self, index: Array) -> Value:
        """See `LazyIntegers.take_threads`: options are shared only by lanes with the same operand of the reciprocal."""
        for source in self.sources:
            if not np.array_equal(
                take(source.operand, index), np.broadcast_to(source.operand, _shape_of_threads(source, index))
            ):
                return poison(self.bits, "an approximation of another lane")
        options = {chosen: take(number, index) for chosen, number in self.options.items()}
        return PossibleValues(self.sources, options, None)  # type: ignore[return-value]


def _shape_of_threads(source: ApproximateReciprocal, index: Array) -> tuple[int, int]:
    rows, columns = source.operand.shape
    return (max(rows, index.shape[0]) if columns > 1 else rows, columns)


def apply_to_possible_values(
    values: Sequence[Any], evaluate: Callable[..., Array], fallback: Callable[[], SymbolicVector] | None
) -> Any:
    """Apply a function for each choice of options; return a plain array where all results agree.

    Return None where a value depends on data or the values have too many sources.  `fallback` returns the result as a
    term; None if it has none.
    """
    if not all(isinstance(each, np.ndarray | PossibleValues) for each in values):
        return None
    by_key = {source.key: source for each in values if isinstance(each, PossibleValues) for source in each.sources}
    sources = tuple(by_key[key] for key in sorted(by_key))
    if len(sources) > _MAX_SOURCES:
        return None
    options: dict[tuple[int, ...], Array] = {}
    for chosen in assignments(range(2), repeat=len(sources)):
        choice = dict(zip(sorted(by_key), chosen, strict=True))
        numbers = [
            each.options[tuple(choice[source.key] for source in each.sources)]
            if isinstance(each, PossibleValues)
            else each
            for each in values
        ]
        options[chosen] = evaluate(*numbers)
    first = next(iter(options.values()))
    if all(np.array_equal(first, each) for each in options.values()):
        return first
    return PossibleValues(sources, options, fallback)


def possible_reciprocals(number: Array, data: Callable[[], SymbolicVector]) -> Value:
    """The possible results of the hardware reciprocal of known fp32 patterns: the floats within 1 ulp of 1 / x.

    They are the two floats around the exact reciprocal, or, where that is a power of two, the float itself and the one
    below it.  Zeros, infinities and NaNs have exact reciprocals.  Where the reciprocal is not between 2^-125 and 2^126
    in magnitude, the result is `data()`, the operation as a term.
    """
    wide = number.view(np.float32).astype(np.float64)
    with np.errstate(all="ignore"):
        exact = 1.0 / wide
        nearest = exact.astype(np.float32)
        special = ~np.isfinite(exact) | (exact == 0)
        if (~special & ~((np.abs(exact) > 2.0**-125) & (np.abs(exact) < 2.0**126))).any():
            return data()
        size = np.abs(nearest)
        below, above = np.nextafter(size, np.float32(0)), np.nextafter(size, np.float32(np.inf))
        power = np.frexp(size)[0] == 0.5
        product = size.astype(np.float64) * np.abs(wide)  # exact: both have 24 bits
        low = np.where((product > 1) | power, below, size)
        high = np.where(product < 1, above, size)
        low, high = (np.where(special, nearest, np.copysign(each, nearest)).astype(np.float32) for each in (low, high))
    found: dict[tuple[int, ...], Array] = {(option,): each.view(np.uint32) for option, each in enumerate((low, high))}
    if np.array_equal(found[0,], found[1,]):
        return found[0,]
    return PossibleValues((ApproximateReciprocal(next(_KEYS), number),), found, data)  # type: ignore[return-value]
