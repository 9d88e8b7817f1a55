"""A value packed from known numbers and others has one term, however its known numbers were cut."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from bitwise_core.execution.values import hashing
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import INTEGER, TERM, UNSIGNED, Array, PackedVector, SymbolicVector

NUMBER = 0x0123456789ABCDEF


def cuts(size: int) -> Iterator[tuple[int, ...]]:
    """Yield all sequences of widths in bytes with this sum."""
    if size == 0:
        yield ()
    for first in (1, 2, 4):
        if first <= size:
            yield from ((first, *rest) for rest in cuts(size - first))


def known(low: int, widths: tuple[int, ...], number: int) -> list[Array]:
    parts = []
    for count in widths:
        part = number >> 8 * low & ((1 << 8 * count) - 1)
        parts.append(np.full((1, 1), part, dtype=UNSIGNED[8 * count]))
        low += count
    return parts


def words(low: int, before: tuple[int, ...], after: tuple[int, ...], number: int = NUMBER) -> tuple[int, int]:
    """Return the hash of 64 bits whose byte `low` is unknown, and whose other bytes are those of a number."""
    unknown = SymbolicVector(8, hashing.constant("byte").reshape(2, 1, 1), TERM | INTEGER)
    parts = (*known(0, before, number), unknown, *known(low + 1, after, number))
    first, second = as_symbolic_vector(PackedVector(parts)).words.ravel().tolist()
    return first, second


@pytest.mark.parametrize("low", range(8))
def test_the_cut_of_known_numbers_does_not_matter(low: int) -> None:
    found = {words(low, before, after) for before in cuts(low) for after in cuts(7 - low)}
    assert len(found) == 1
    for place in range(8):
        changed = words(low, (1,) * low, (1,) * (7 - low), NUMBER ^ 1 << 8 * place)
        assert (changed in found) is (place == low)


def test_terms_of_different_places_are_different() -> None:
    found = {words(low, (1,) * low, (1,) * (7 - low), 0) for low in range(8)}
    assert len(found) == 8
