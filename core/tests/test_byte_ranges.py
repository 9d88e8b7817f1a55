"""Byte ranges compared with sets of bytes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bitwise_core.checker.block_symmetry.byte_ranges import ByteRanges, covers, intersection, owners, union

RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 6)), max_size=8)


def bytes_of(ranges: list[tuple[int, int]]) -> set[int]:
    return {byte for start, size in ranges for byte in range(start, start + size)}


def ranges_of(ranges: list[tuple[int, int]]) -> ByteRanges:
    start = np.array([start for start, _ in ranges], dtype=np.int64)
    return union(start, start + np.array([size for _, size in ranges], dtype=np.int64))


def bytes_in(byte_ranges: ByteRanges) -> set[int]:
    return {
        byte
        for start, end in zip(byte_ranges.start.tolist(), byte_ranges.end.tolist(), strict=True)
        for byte in range(start, end)
    }


@given(RANGES)
def test_union_has_the_same_bytes_and_no_adjacent_ranges(ranges: list[tuple[int, int]]) -> None:
    byte_ranges = ranges_of(ranges)
    assert bytes_in(byte_ranges) == bytes_of(ranges)
    assert byte_ranges.bytes == len(bytes_of(ranges))
    assert (byte_ranges.start[1:] > byte_ranges.end[:-1]).all()


@given(RANGES, RANGES)
def test_intersection_has_the_common_bytes(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    assert bytes_in(intersection(ranges_of(left), ranges_of(right))) == bytes_of(left) & bytes_of(right)


@given(RANGES)
def test_covers_is_exact_for_each_byte(ranges: list[tuple[int, int]]) -> None:
    found = covers(ranges_of(ranges), np.arange(50))
    assert {int(byte) for byte in np.flatnonzero(found)} == bytes_of(ranges)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.lists(st.integers(0, 3), min_size=8, max_size=8), RANGES)
def test_overlap_with_ranges_of_another_block(
    sizes: list[int], blocks: list[int], queried: list[tuple[int, int]]
) -> None:
    ends = np.cumsum(np.array(sizes) + 1)
    starts = ends - np.array(sizes)
    block = np.array(blocks[: len(sizes)])
    own = owners(starts[::-1], ends[::-1], block[::-1])
    assert own.overlap() is None
    owner = {byte: int(b) for s, e, b in zip(starts, ends, block, strict=True) for byte in range(s, e)}
    start = np.array([each[0] for each in queried], dtype=np.int64)
    end = start + np.array([each[1] for each in queried], dtype=np.int64)
    expected = [any(owner.get(byte, 2) != 2 for byte in range(s, e)) for s, e in zip(start, end, strict=True)]
    assert own.overlaps_other_block(start, end, np.full(len(queried), 2)).tolist() == expected


def test_the_first_overlapping_byte() -> None:
    assert owners(np.array([8, 0]), np.array([12, 9]), np.array([1, 0])).overlap() == 8
