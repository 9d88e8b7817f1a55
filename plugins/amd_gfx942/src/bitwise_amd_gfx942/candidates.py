"""Numbers known up to the error of an approximation: each of the values that it may have is followed.

An integer division is a reciprocal, which the machine gives to less than one unit in its last place, and
corrections that make the quotient exact whatever the error was.  So the reciprocal of a known number stands here for
all floats that it may be, everything computed from it lane by lane is computed for each, and where all agree
the number is known again.  Among data the reciprocal is the operation that it is.

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
from bitwise_core.execution.values.packing import as_symbolic_vector, blend_values, concat, extract, take
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import poison

_KEYS = count()


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """One reciprocal: its number among all, and the known numbers of which it was taken."""

    key: int
    number: Array


_MOST = 3
"""So many reciprocals meet in one number at most."""


class Candidates(L.LazyIntegers):
    """Known numbers for each assignment of an option to every source (a reciprocal); `fallback` gives them as data."""

    __slots__ = ("fallback", "options", "sources")

    def __init__(
        self,
        sources: tuple[Source, ...],
        options: Mapping[tuple[int, ...], Array],
        fallback: Callable[[], SymbolicVector] | None,
    ) -> None:
        self.sources, self.options, self.fallback = sources, options, fallback

    @property
    def bits(self) -> int:
        """The width; 1 for a predicate."""
        return L.width(next(iter(self.options.values())))

    def known_numbers(self) -> Array | None:
        """See `LazyIntegers.known_numbers`: nothing is known while the options differ."""
        return None

    def symbolic_vector(self) -> SymbolicVector:
        """See `LazyIntegers.symbolic_vector`."""
        return poison(self.bits, "computed from an approximation") if self.fallback is None else self.fallback()

    def apply(self, values: Sequence[Any], evaluate: Callable[..., Array]) -> Any:
        """See `LazyIntegers.apply`."""
        return applied(values, evaluate, None)

    def extract(self, low: int, bits: int) -> Value:
        """See `LazyIntegers.extract`."""

        def part(number: Array) -> Array:
            found = extract(number, low, bits)
            assert isinstance(found, np.ndarray)
            return found

        found: Value = applied([self], part, lambda: as_symbolic_vector(extract(self.symbolic_vector(), low, bits)))
        return found

    def blend(self, mask: Array, new: Any, old: Any) -> Value:
        """See `LazyIntegers.blend`."""

        def one(left: Array, right: Array) -> Array:
            return np.where(mask, left, right)

        found: Value | None = applied([new, old], one, None)
        return blend_values(mask, as_symbolic_vector(new), as_symbolic_vector(old)) if found is None else found

    def concat(self, parts: Sequence[Any]) -> Any:
        """See `LazyIntegers.concat`."""

        def together(*numbers: Array) -> Array:
            found = concat(numbers)
            assert isinstance(found, np.ndarray)
            return found

        return applied(parts, together, None)

    def take_threads(self, index: Array) -> Value:
        """See `LazyIntegers.take_threads`: a lane's options are another's only where both took the same reciprocal."""
        for source in self.sources:
            if not np.array_equal(take(source.number, index), np.broadcast_to(source.number, _shape(source, index))):
                return poison(self.bits, "an approximation of another lane")
        options = {chosen: take(number, index) for chosen, number in self.options.items()}
        return Candidates(self.sources, options, None)  # type: ignore[return-value]


def _shape(source: Source, index: Array) -> tuple[int, int]:
    rows, columns = source.number.shape
    return (max(rows, index.shape[0]) if columns > 1 else rows, columns)


def applied(
    values: Sequence[Any], evaluate: Callable[..., Array], fallback: Callable[[], SymbolicVector] | None
) -> Any:
    """The function for each assignment of options; a plain array where all agree.

    None where a value is data, or too many sources meet.  `fallback` gives the result as data (None: it has none).
    """
    if not all(isinstance(each, np.ndarray | Candidates) for each in values):
        return None
    met = {source.key: source for each in values if isinstance(each, Candidates) for source in each.sources}
    sources = tuple(met[key] for key in sorted(met))
    if len(sources) > _MOST:
        return None
    options: dict[tuple[int, ...], Array] = {}
    for chosen in assignments(range(2), repeat=len(sources)):
        of = dict(zip(sorted(met), chosen, strict=True))
        numbers = [
            each.options[tuple(of[source.key] for source in each.sources)] if isinstance(each, Candidates) else each
            for each in values
        ]
        options[chosen] = evaluate(*numbers)
    first = next(iter(options.values()))
    if all(np.array_equal(first, each) for each in options.values()):
        return first
    return Candidates(sources, options, fallback)


def reciprocal(number: Array, data: Callable[[], SymbolicVector]) -> Value:
    """What the machine's reciprocal of known fp32 numbers may be: the floats less than a unit from it.

    They are its neighbours on both sides, and where it is a power of two that float and the one below.
    `data` gives it as an operation among data.  Zeros, infinities and NaNs have exact reciprocals.
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
    found: dict[tuple[int, ...], Array] = {(place,): each.view(np.uint32) for place, each in enumerate((low, high))}
    if np.array_equal(found[0,], found[1,]):
        return found[0,]
    return Candidates((Source(next(_KEYS), number),), found, data)  # type: ignore[return-value]
