"""Groups of lanes that hold the same are found, and what is computed of one of each is what all lanes hold."""

from __future__ import annotations

import numpy as np
import pytest

from bitwise_core.execution.values import packing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector, extract
from bitwise_core.execution.values.repeated_lanes import GROUP, repeated_lanes
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector
from bitwise_core.execution.values.term_hash import exact_hash, term

BLOCKS, THREADS = 6, 2 * GROUP


def tiled(rng: np.random.Generator, kinds: int) -> Array:
    """Return an address for each lane, of `kinds` different groups."""
    tiles = rng.integers(0, 1 << 20, (kinds, GROUP)).astype(np.uint64) * np.uint64(8) + np.uint64(1 << 44)
    order = np.arange(BLOCKS * THREADS // GROUP) % kinds
    return tiles[rng.permutation(order)].reshape(BLOCKS, THREADS)


def value(rng: np.random.Generator, kind: str, kinds: int = 3) -> SymbolicVector:
    """Return loads, loads beside zeros or numbers, or terms."""
    words = tiled(rng, kinds)
    loads = SymbolicVector(32, L.both_words(words), L.LOAD)
    if kind == "loads":
        return loads
    if kind == "terms":
        return term(32, "a term", [loads], 0)
    odd = (words >> np.uint64(3)) % np.uint64(2) == 1
    number = words & np.uint64(0xFF) if kind == "numbers" else np.zeros_like(words)
    flags = np.where(odd, L.constant_flags(number, 32), np.uint32(L.LOAD)).astype(np.uint32)
    return SymbolicVector(32, L.both_words(np.where(odd, number, words)), flags)


def same(left: SymbolicVector, right: SymbolicVector) -> bool:
    """Return whether two values hold the same in every lane."""
    shape = left.words.shape[1:]
    flags = [L.flags_of_lanes(each.flags, shape) for each in (left, right)]
    return left.bits == right.bits and np.array_equal(left.words, right.words) and np.array_equal(*flags)


KINDS = ("loads", "zeros", "numbers", "terms")


@pytest.mark.parametrize("kind", KINDS)
def test_the_lanes_of_one_of_each_group_are_those_of_all(kind: str) -> None:
    whole = value(np.random.default_rng(1), kind)
    found = repeated_lanes([whole])
    assert found is not None
    assert len(found.chosen) == 3
    reduced = found.reduced(whole)
    assert reduced.words.shape == (2, 3, GROUP)
    assert same(found.whole(reduced), whole)


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_of_one_of_each_group_is_that_part_of_all(kind: str) -> None:
    whole = value(np.random.default_rng(2), kind)
    found = repeated_lanes([whole])
    assert found is not None
    for low in (0, 8, 16, 24):
        few = as_symbolic_vector(extract(found.reduced(whole), low, 8))
        every = as_symbolic_vector(extract(whole, low, 8))
        assert np.array_equal(exact_hash(found.whole(few)), exact_hash(every))


def test_groups_of_several_values_hold_the_same_in_all_of_them() -> None:
    rng = np.random.default_rng(3)
    one, other = value(rng, "loads", 2), value(rng, "terms", 2)
    found = repeated_lanes([one, other])
    assert found is not None
    assert 2 < len(found.chosen) <= 4
    for each in (one, other):
        assert same(found.whole(found.reduced(each)), each)


def test_groups_that_differ_between_their_ends_are_not_repeated() -> None:
    whole = value(np.random.default_rng(4), "loads")
    words = np.array(whole.words[0])
    words[BLOCKS - 1, THREADS - 2] += np.uint64(8)
    assert repeated_lanes([SymbolicVector(32, L.both_words(words), L.LOAD)]) is None
    flags = np.full((BLOCKS, THREADS), L.LOAD, dtype=np.uint32)
    flags[0, 1] |= np.uint32(L.NONDETERMINISTIC)
    assert repeated_lanes([SymbolicVector(32, whole.words, flags)]) is None


def test_few_groups_and_other_shapes_are_not_compared() -> None:
    whole = value(np.random.default_rng(5), "loads")
    assert repeated_lanes([value(np.random.default_rng(6), "loads", BLOCKS * THREADS // GROUP)]) is None
    narrow = SymbolicVector(32, whole.words[..., : GROUP - 1], L.LOAD)
    assert repeated_lanes([narrow]) is None
    assert repeated_lanes([whole, SymbolicVector(32, whole.words[:, :1], L.LOAD)]) is None


@pytest.mark.parametrize("kind", ["loads", "zeros", "numbers", "undetermined"])
@pytest.mark.parametrize("low", [0, 8, 16, 24])
@pytest.mark.parametrize("planes", [1, 2])
def test_parts_of_loads_beside_zeros_are_those_of_each_form(kind: str, low: int, planes: int) -> None:
    rng = np.random.default_rng(7)
    whole = value(rng, "numbers" if kind == "numbers" else "zeros")
    if kind == "undetermined":
        flags = np.asarray(whole.flags) | np.where(rng.random((BLOCKS, THREADS)) < 0.5, L.NONDETERMINISTIC, 0)
        whole = SymbolicVector(32, whole.words, flags.astype(np.uint32))
    if kind == "loads":
        whole = SymbolicVector(32, L.both_words(tiled(rng, 3)), np.full((BLOCKS, THREADS), L.LOAD, dtype=np.uint32))
    if planes == 2:
        whole = SymbolicVector(32, np.array(whole.words), whole.flags)
    flags = np.asarray(whole.flags, dtype=np.uint32)
    found = packing._extract_loads_and_zeros(whole, flags, low, 8)
    assert (found is None) == (kind == "numbers")
    if found is not None:
        assert same(found, packing._extract_by_form(whole, flags, low, 8))
    assert packing._extract_loads_and_zeros(whole, flags, 4, 8) is None
