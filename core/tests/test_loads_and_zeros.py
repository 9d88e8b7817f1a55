"""Loads and zeros as one address for each lane are the values that they were taken from."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.loads_and_zeros import (
    ZERO,
    alike_blocks,
    elements_of,
    loads_and_zeros,
    parts_of_registers,
)
from bitwise_core.execution.values.packing import as_symbolic_vector, concat, extract
from bitwise_core.execution.values.symbolic_vector import Array, PackedVector, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import exact_hash

BLOCKS, THREADS = 4, 6


def addresses(rng: np.random.Generator) -> Array:
    """Return an address for each lane."""
    return (rng.integers(0, 1 << 20, (BLOCKS, THREADS)) * 8 + (1 << 48)).astype(np.uint64)


def value(rng: np.random.Generator, kind: str, bits: int) -> SymbolicVector:
    """Return loads, loads beside zeros, or what is neither in some lane."""
    start, some = addresses(rng), rng.random((BLOCKS, THREADS)) < 0.5
    if kind == "loads":
        return SymbolicVector(bits, L.both_words(start), L.LOAD)
    flags = np.where(some, np.uint32(L.CONST), np.uint32(L.LOAD))
    words = np.where(some, np.uint64(0), start)
    if kind == "a number":
        words = np.where(some, np.uint64(1), start)
    elif kind == "a term":
        flags = np.where(some, np.uint32(L.TERM), np.uint32(L.LOAD))
    elif kind == "an undetermined zero":
        flags = np.where(some, np.uint32(L.CONST | L.NONDETERMINISTIC), np.uint32(L.LOAD))
    elif kind == "a high address":
        words = np.where(some, np.uint64(0), ZERO)
    return SymbolicVector(bits, L.both_words(words), flags)


@pytest.mark.parametrize("size", [16, 32])
@pytest.mark.parametrize("kind", ["loads", "loads and zeros"])
def test_elements_are_those_of_the_value(kind: str, size: int) -> None:
    rng = np.random.default_rng(size)
    whole = value(rng, kind, size)
    found = loads_and_zeros(whole)
    assert found is not None
    elements = elements_of(found.addresses[..., None], found.zeros, 8, size)
    for place in range(size // 8):
        part = as_symbolic_vector(extract(whole, 8 * place, 8))
        own = elements.flags if isinstance(elements.flags, int) else elements.flags[..., place]
        one = SymbolicVector(8, elements.words[..., place], own)
        assert np.array_equal(exact_hash(one), exact_hash(part))
        assert np.array_equal(
            np.broadcast_to(L.constant_mask(one), (BLOCKS, THREADS)), L.constant_mask(part) | (one.words[0] < 0)
        )


@pytest.mark.parametrize("kind", ["a number", "a term", "an undetermined zero", "a high address"])
def test_other_values_are_none(kind: str) -> None:
    assert loads_and_zeros(value(np.random.default_rng(1), kind, 32)) is None
    assert loads_and_zeros(np.array([[0, 1]], dtype=np.uint32)) is None
    assert loads_and_zeros(np.zeros((1, 1), dtype=np.uint32)) is not None


def test_registers_have_parts_of_one_width() -> None:
    rng = np.random.default_rng(2)
    halves: Value = concat([value(rng, "loads", 16), value(rng, "loads and zeros", 16)])
    assert isinstance(halves, PackedVector)
    found = parts_of_registers([halves, halves], 16)
    assert found is not None
    assert (found[0], len(found[1])) == (16, 4)
    assert parts_of_registers([halves, value(rng, "loads", 32)], 16) is None
    assert parts_of_registers([halves], 32) is None
    high = SymbolicVector(16, L.both_words(np.full((BLOCKS, THREADS), ZERO)), L.LOAD)
    assert parts_of_registers([concat([high, high])], 16) is not None
    assert parts_of_registers([concat([high, value(rng, "loads and zeros", 16)])], 16) is None


@pytest.mark.parametrize("pattern", ["in turn", "together", "mixed", "one", "all apart"])
def test_blocks_that_are_alike_have_equal_rows(pattern: str) -> None:
    rng = np.random.default_rng(3)
    place = {
        "in turn": [0, 1, 0, 1], "together": [0, 0, 1, 1], "mixed": [0, 1, 1, 0], "one": [0, 0, 0, 0],
        "all apart": [0, 1, 2, 3],
    }[pattern]  # fmt: skip
    lanes = [addresses(rng)[place] for _ in range(3)] + [addresses(rng)[:1]]
    found = alike_blocks(lanes, BLOCKS)
    if pattern == "all apart":
        assert found is None
        return
    assert found is not None
    assert len(found[0]) == len(set(place))
    for each in lanes[:3]:
        assert np.array_equal(each, each[found[0]][found[1]])
    changed = [each.copy() for each in lanes]
    changed[2][3, 5] += np.uint64(8)
    assert alike_blocks(changed, BLOCKS) is None
    assert [each.tolist() for each in alike_blocks(lanes[3:], BLOCKS) or ()] == [[0], [0] * BLOCKS]
