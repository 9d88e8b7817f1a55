"""The pages of stores: every store that shares a byte with a load is found, and stores of other pages are not."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bitwise_core.execution.memory.store_pages import StorePages
from bitwise_core.execution.values.symbolic_vector import Array

PAGE = 4096
BASE = 3 << 40

WIDTHS = st.sampled_from([8, 16, 32, 64, 128])
PLACES = st.lists(
    st.one_of(st.integers(0, 40), st.integers(PAGE - 20, PAGE + 20), st.integers(0, 3 * PAGE)), min_size=0, max_size=6
)
STRIDED = st.builds(
    lambda start, stride, count: list(range(start, start + stride * count, stride)),
    st.integers(0, PAGE),
    st.sampled_from([4, 16, PAGE - 4, PAGE, 3 * PAGE]),
    st.integers(1, 200),
)
ACCESSES = st.tuples(st.one_of(PLACES, STRIDED), WIDTHS)


def addresses(places: list[int]) -> Array:
    return np.array(places, dtype=np.uint64) + np.uint64(BASE)


def touched(places: list[int], bits: int) -> set[int]:
    return {place + byte for place in places for byte in range(bits // 8)}


@given(st.lists(ACCESSES, max_size=8), ACCESSES)
def test_every_store_that_shares_a_byte_is_near(
    stores: list[tuple[list[int], int]], load: tuple[list[int], int]
) -> None:
    pages = StorePages()
    for places, bits in stores:
        pages.add(addresses(places), bits)
    near = pages.near(addresses(load[0]), load[1])
    assert near == sorted(set(near))
    sharing = [number for number, each in enumerate(stores) if touched(*each) & touched(*load)]
    assert set(sharing) <= set(near) <= set(range(len(stores)))


def test_stores_of_other_pages_are_not_near() -> None:
    pages, lanes = StorePages(), np.arange(1024, dtype=np.uint64) * np.uint64(4)
    for number in range(100):
        pages.add(lanes + np.uint64(BASE + number * PAGE), 32)
    assert pages.near(lanes + np.uint64(BASE + 100 * PAGE), 32) == []
    assert pages.near(lanes + np.uint64(BASE + 7 * PAGE), 32) == [7]
    assert pages.near(np.array([BASE + 8 * PAGE - 2], dtype=np.uint64), 32) == [7, 8]
    two_rows = np.concatenate([lanes + np.uint64(BASE), lanes + np.uint64(BASE + 99 * PAGE)])
    assert pages.near(two_rows, 32) == [0, 99]


def test_an_access_of_many_pages_is_near_every_store() -> None:
    pages, column = StorePages(), np.arange(1000, dtype=np.uint64) * np.uint64(PAGE) + np.uint64(BASE)
    pages.add(column, 32)
    pages.add(np.array([BASE + 5000 * PAGE], dtype=np.uint64), 32)
    assert pages.near(np.array([BASE + 900 * PAGE], dtype=np.uint64), 32) == [0]
    assert pages.near(column, 32) == [0, 1]
