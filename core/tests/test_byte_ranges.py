"""Byte ranges held against sets of bytes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bitwise_core.checker.block_symmetry.byte_ranges import Runs, covers, intersection, merged, owners

RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 6)), max_size=8)


def bytes_of(ranges: list[tuple[int, int]]) -> set[int]:
    return {byte for start, size in ranges for byte in range(start, start + size)}


def runs_of(ranges: list[tuple[int, int]]) -> Runs:
    start = np.array([start for start, _ in ranges], dtype=np.int64)
    return merged(start, start + np.array([size for _, size in ranges], dtype=np.int64))


def held(runs: Runs) -> set[int]:
    return {
        byte for start, end in zip(runs.start.tolist(), runs.end.tolist(), strict=True) for byte in range(start, end)
    }


@given(RANGES)
def test_merged_runs_hold_the_same_bytes_and_do_not_touch(ranges: list[tuple[int, int]]) -> None:
    runs = runs_of(ranges)
    assert held(runs) == bytes_of(ranges)
    assert runs.bytes == len(bytes_of(ranges))
    assert (runs.start[1:] > runs.end[:-1]).all()


@given(RANGES, RANGES)
def test_intersection_holds_the_bytes_in_both(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    assert held(intersection(runs_of(left), runs_of(right))) == bytes_of(left) & bytes_of(right)


@given(RANGES)
def test_covers_tells_each_byte(ranges: list[tuple[int, int]]) -> None:
    found = covers(runs_of(ranges), np.arange(50))
    assert {int(byte) for byte in np.flatnonzero(found)} == bytes_of(ranges)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.lists(st.integers(0, 3), min_size=8, max_size=8), RANGES)
def test_ranges_of_another_block_are_found(sizes: list[int], blocks: list[int], asked: list[tuple[int, int]]) -> None:
    ends = np.cumsum(np.array(sizes) + 1)
    starts = ends - np.array(sizes)
    block = np.array(blocks[: len(sizes)])
    own = owners(starts[::-1], ends[::-1], block[::-1])
    assert own.overlap() is None
    owner = {byte: int(b) for s, e, b in zip(starts, ends, block, strict=True) for byte in range(s, e)}
    start = np.array([each[0] for each in asked], dtype=np.int64)
    end = start + np.array([each[1] for each in asked], dtype=np.int64)
    expected = [any(owner.get(byte, 2) != 2 for byte in range(s, e)) for s, e in zip(start, end, strict=True)]
    assert own.foreign(start, end, np.full(len(asked), 2)).tolist() == expected


def test_overlapping_ranges_are_found() -> None:
    assert owners(np.array([8, 0]), np.array([12, 9]), np.array([1, 0])).overlap() == 8
