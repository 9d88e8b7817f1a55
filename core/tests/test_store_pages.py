"""Stores by pages: a load finds every store that may decide what it returns, however many of them are reduced."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitwise_core.execution.memory.store_forwarding import Access, LoadRaces, StoredRows, forward_stores
from bitwise_core.execution.memory.store_pages import StorePages
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from covering import drawn_params

PAGE = 4096
BASE = 3 << 40

WIDTHS = st.sampled_from([8, 16, 32, 64])
PLACES = st.lists(
    st.one_of(st.integers(0, 40), st.integers(PAGE - 20, PAGE + 20), st.integers(0, 3 * PAGE)), min_size=1, max_size=6
)
STRIDED = st.builds(
    lambda start, stride, count: list(range(start, start + stride * count, stride)),
    st.integers(0, PAGE),
    st.sampled_from([8, 16, PAGE - 4, PAGE, 3 * PAGE]),
    st.integers(1, 300),
)
ACCESSES = st.tuples(st.one_of(PLACES, STRIDED), WIDTHS)


def store(places: Sequence[int], bits: int, line: int = 0, number: int = 0) -> Access:
    """A store of a number in each of some places, by one thread."""
    address = np.array(places, dtype=np.uint64) + np.uint64(BASE)
    value = as_symbolic_vector(np.full((1, address.size), number, dtype=L.UNSIGNED[bits]))
    return Access(address, np.zeros(address.size, dtype=np.int64), 0, value, bits, line)


def touched(places: Sequence[int], bits: int) -> set[int]:
    return {place + byte for place in places for byte in range(bits // 8)}


def lines(found: StoredRows | None) -> list[int]:
    return [] if found is None else sorted(set(found.line.tolist()))


@given(st.lists(ACCESSES, max_size=8), ACCESSES)
def test_every_store_that_shares_a_byte_is_near(
    stores: list[tuple[list[int], int]], load: tuple[list[int], int]
) -> None:
    pages = StorePages()
    pages.update([store(*each, line) for line, each in enumerate(stores)])
    found = pages.near(store(*load))
    sharing = {line for line, each in enumerate(stores) if touched(*each) & touched(*load)}
    assert sharing <= set(lines(found))


def test_stores_of_other_pages_are_not_near() -> None:
    lanes = range(0, PAGE, 4)
    stores = [store([each + number * PAGE for each in lanes], 32, number) for number in range(100)]
    pages = StorePages()
    pages.update(stores)
    assert pages.near(store([each + 100 * PAGE for each in lanes], 32)) is None
    assert lines(pages.near(store([each + 7 * PAGE for each in lanes], 32))) == [7]
    assert lines(pages.near(store([8 * PAGE - 2], 32))) == [7, 8]


def test_an_access_of_many_pages_is_compared_with_every_store() -> None:
    pages, column = StorePages(), range(0, 1000 * PAGE, PAGE)
    pages.update([store(column, 32, 0), store([5000 * PAGE], 32, 1), store([900 * PAGE], 32, 2)])
    assert lines(pages.near(store([900 * PAGE], 32))) == [0, 2]
    assert lines(pages.near(store(column, 32))) == [0, 2]


@pytest.mark.parametrize("rounds", [40, 400])
@pytest.mark.parametrize("barriers", [False, True])
def test_a_load_is_compared_with_few_of_many_stores_to_its_element(rounds: int, barriers: bool) -> None:
    pages, stores = StorePages(), list[Access]()
    for number in range(rounds):
        stores.append(replace(store([0, 4], 32, number, number), epoch=number if barriers else 0))
        load = replace(store([0, 4], 32), epoch=stores[-1].epoch)
        pages.update(stores)
        found = pages.near(load)
        assert found is not None
        assert found.address.size <= 2 * 24


THREADS = [0, 1, 2, 1 << 20, (1 << 20) + 1, 2 << 20]


@pytest.mark.parametrize("part", drawn_params(range(3), lambda part: part == 0))
@pytest.mark.parametrize("between_blocks", [False, True])
@pytest.mark.parametrize("size", [4, 2])
def test_reduced_stores_decide_as_all_stores_do(between_blocks: bool, size: int, part: int) -> None:
    """Values, races, and the lines of their causes are those of a comparison with every store."""
    for seed in range(10 * part, 10 * part + 10):
        compare_with_all_stores(random.Random(seed), between_blocks, size)


def compare_with_all_stores(choose: random.Random, between_blocks: bool, size: int) -> None:
    """Execute random stores, loads and barriers; some stores are removed, and in some runs an epoch comes again.

    The elements are `size` bytes apart; those of loads are as wide, those of stores 4 bytes.
    """
    pages, stores, epoch = StorePages(between_blocks=between_blocks), list[Access](), 3
    threads, places = choose.sample(THREADS, choose.randint(1, 4)), choose.choice([1, 2, 4])
    numbers, chosen_stores, returns = choose.choice([1, 2, 3]), choose.random() < 0.2, choose.random() < 0.3

    def order(thread: Array, at: Array, later: Array, later_at: Array) -> Array:
        found: Array = (thread >> 20 < later >> 20) & (at < 5) & (later_at > 3)
        return found

    between = order if between_blocks else None
    for line in range(120):
        kind = choose.choices(["store", "load", "barrier", "remove"], [60, 20, 15, 1])[0]
        if kind == "barrier":
            epoch = max(0, epoch + (-1 if returns and choose.random() < 0.2 else 1))
            continue
        if kind == "remove":
            del stores[max(0, len(stores) - choose.randint(1, 20)) :]
            continue
        lanes = choose.randint(1, 3)
        address = np.array([BASE + size * choose.randrange(places) for _ in range(lanes)], dtype=np.uint64)
        thread = np.array(choose.choices(threads, k=lanes), dtype=np.int64)
        bits = 32 if kind == "store" else 8 * size
        value = as_symbolic_vector(np.full((1, lanes), choose.randrange(numbers), dtype=L.UNSIGNED[bits]))
        access = Access(address, thread, epoch, value, bits, line, chosen=chosen_stores and choose.random() < 0.05)
        if kind == "store":
            stores.append(access)
            continue
        if not stores:
            continue
        pages.update(stores)
        initial, active = np.full((1, lanes), 1, dtype=L.UNSIGNED[bits]), np.ones((1, lanes), dtype=bool)
        near = pages.near(access)
        expected = forward_stores(initial, StoredRows.of(stores), access, active, order=between)
        found = (initial, ()) if near is None else forward_stores(initial, near, access, active, order=between)
        assert contents(found[0]) == contents(expected[0])
        assert described(found[1]) == described(expected[1])


def contents(value: Value) -> list[int]:
    vector = as_symbolic_vector(value)
    assert isinstance(vector, SymbolicVector)
    return vector.words[0].reshape(-1).tolist()


def described(races: Sequence[LoadRaces]) -> list[tuple[list[int], str]]:
    return [(each.place.tolist(), str(each.cause)) for each in races]
