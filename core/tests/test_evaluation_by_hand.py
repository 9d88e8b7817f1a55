"""Families of products and reduction trees against sums that are written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from toy_units import HARDWARE, MMA, UNITS, chain, normal

from bitwise_core.descriptors import (
    Cut,
    GEMMDesc,
    Rotation,
    Share,
    Tail,
    contiguous_slice_gemv,
    index_bits,
    lane_tree_gemv,
    per_mma,
    single_pass,
    split_k,
    split_k_per_mma,
    three_level_chain,
    workspace_gemv,
)
from bitwise_core.descriptors.evaluation import evaluate
from bitwise_core.numerics import Bits
from bitwise_core.numerics.mma import multiply_accumulate


def test_a_tail_and_a_rotation_by_hand() -> None:
    """Two contiguous slices of 2 and 1 iterations, each of two lanes; the tail of 5 in both lanes of the last slice."""
    generator = np.random.default_rng(15)
    a, b = normal(generator, 4, 29), normal(generator, 29, 2)
    row = UNITS["mma_k4_fp32_fp16_fp16_fp32_toy_1"]
    desc = GEMMDesc(
        k=29, left_dtype="fp16", right_dtype="fp16", output_dtype="fp32", path="matrix", instruction=MMA,
        instruction_k=2, k_loop_step=4, iteration_permutation=(2, 3, 0, 1),
        iteration_rotation=Rotation(axis="rows", tile=2, period=2, halved=True),
        k_cuts=(
            Cut(count=2, tile=8, remainder="spread", start="zero"), Cut(layout="strided", count=2, tile=4),
        ),
        tail=Tail(length=5, shares=(Share(part=1), Share(tile=2))),
    )  # fmt: skip

    def steps(rows: slice, places: list[list[int]]) -> Bits:
        total = np.zeros((2, 2), dtype=np.uint32)
        for group in places:
            left, right = np.zeros((2, 4), dtype=np.uint16), np.zeros((4, 2), dtype=np.uint16)
            left[:, : len(group)], right[: len(group)] = a[rows][:, group], b[group]
            total = multiply_accumulate(row, left, right, total)
        return total

    def plus(left: Bits, right: Bits) -> Bits:
        return chain("add.rn.fp32", left, right)

    expected = []
    for tile in (0, 1):
        rows = slice(2 * tile, 2 * tile + 2)
        begin = [[2, 3], [0, 1]], [[10, 11], [8, 9]]
        first = begin[::-1] if tile else begin
        lane = [each for half in first for each in half]
        other = [[k + 4 for k in each] for each in lane]
        slices = [
            plus(steps(rows, lane), steps(rows, other)),
            # Only the first slice has two iterations, so that the second one starts at its first iteration in any tile.
            plus(
                steps(rows, [[18, 19], [16, 17], [24, 25], [28]]),
                steps(rows, [[22, 23], [20, 21], [26, 27], []]),
            ),
        ]
        expected.append(plus(plus(np.zeros_like(slices[0]), slices[0]), slices[1]))
    assert np.array_equal(evaluate(desc, a, b, hardware=HARDWARE), np.concatenate(expected))


def test_families_by_hand() -> None:
    """Compare each family with sums written out with the unit and fp32 additions."""
    generator = np.random.default_rng(5)
    k = 45
    a, b = normal(generator, 2, k), normal(generator, k, 3)
    row = UNITS["mma_k4_fp32_fp16_fp16_fp32_toy_1"]
    zero = np.zeros((2, 3), dtype=np.uint32)

    def steps(places: list[list[int]], start: Bits = zero) -> Bits:
        total = start
        for group in places:
            left, right = np.zeros((2, 4), dtype=np.uint16), np.zeros((4, 3), dtype=np.uint16)
            left[:, : len(group)], right[: len(group)] = a[:, group], b[group]
            total = multiply_accumulate(row, left, right, total)
        return total

    def fours(low: int, high: int, group: int = 4) -> list[list[int]]:
        return [list(range(k, min(k + group, high))) for k in range(low, high, group)]

    def plus(left: Bits, right: Bits) -> Bits:
        return chain("add.rn.fp32", left, right)

    def check(desc: GEMMDesc, expected: Bits) -> None:
        assert np.array_equal(evaluate(desc, a, b, hardware=HARDWARE), expected)

    check(single_pass(k, "fp16", MMA, output_dtype="fp32"), steps(fours(0, 45)))
    slices = [steps(fours(low, min(low + 16, 45))) for low in (0, 16, 32)]
    check(
        split_k(k, "fp16", MMA, slices=3, tile=8, output_dtype="fp32"),
        plus(plus(slices[0], slices[1]), slices[2]),
    )
    narrow = [chain("convert.rn.fp16.fp32", each) for each in slices]
    serial = chain("convert.rn.fp16.fp32", plus(chain("convert.fp32.fp16", narrow[0]), slices[1]))
    serial = chain("convert.rn.fp16.fp32", plus(chain("convert.fp32.fp16", serial), slices[2]))
    check(split_k(k, "fp16", MMA, slices=3, tile=8, merge_dtype="fp16"), serial)
    wide = [chain("convert.fp32.fp16", each) for each in narrow]
    check(
        split_k(k, "fp16", MMA, slices=3, tile=8, partial_dtype="fp16"),
        chain("convert.rn.fp16.fp32", plus(plus(wide[0], wide[1]), wide[2])),
    )
    check(
        per_mma(k, "fp16", MMA, k_loop_step=16, instruction_k=3, output_dtype="fp32"),
        steps(fours(0, 13, 3) + fours(13, 29, 3) + fours(29, 45, 3)),
    )
    own = [
        steps(fours(low, low + short, 4) + fours(low + short, high)) for low, short, high in ((0, 0, 24), (24, 5, 45))
    ]
    check(
        split_k_per_mma(k, "fp16", MMA, slices=2, tile=8, k_loop_step=8, output_dtype="fp32"),
        plus(own[0], own[1]),
    )
    check(
        split_k(k, "fp16", MMA, slices=2, tile=8, k_dropped=13, output_dtype="fp32"),
        plus(steps(fours(0, 16)), steps(fours(16, 32))),
    )
    check(
        single_pass(k, "fp16", MMA, output_dtype="fp32", use_fast_accum=False),
        (lambda totals: plus(*totals))(_pairwise([steps([group]) for group in fours(0, 45)], plus)),
    )


def _pairwise(parts: list[Bits], plus: Any) -> tuple[Bits, Bits]:
    total = np.zeros_like(parts[0])
    for each in parts[:-1]:
        total = plus(total, each)
    return total, parts[-1]


def test_scalar_families_by_hand() -> None:
    generator = np.random.default_rng(6)
    k = 45
    a, b = normal(generator, 1, k), normal(generator, k, 1)
    left, right = (chain("convert.fp32.fp16", each.reshape(-1)) for each in (a, b))

    def accumulate(places: list[int]) -> Bits:
        total = np.zeros(1, dtype=np.uint32)
        for place in places:
            total = chain("fma.rn.fp32", left[place : place + 1], right[place : place + 1], total)
        return total

    def plus(one: Bits, other: Bits) -> Bits:
        return chain("add.rn.fp32", one, other)

    def value(desc: GEMMDesc) -> Bits:
        return evaluate(desc, a, b).reshape(-1)

    def lane(number: int, count: int, tile: int) -> list[int]:
        return [place for place in range(k) if place // tile % count == number]

    lanes = [accumulate(lane(number, 4, 2)) for number in range(4)]
    assert value(lane_tree_gemv(k, "fp16", lanes=4, tile=2, output_dtype="fp32")) == plus(
        plus(lanes[0], lanes[2]), plus(lanes[1], lanes[3])
    )
    assert value(lane_tree_gemv(k, "fp16", lanes=4, tile=2, count_down=False, output_dtype="fp32")) == plus(
        plus(lanes[0], lanes[1]), plus(lanes[2], lanes[3])
    )
    places = [lane(number, 4, 2) for number in range(4)]
    closed = []
    for owned in places:
        total = accumulate(owned[:6])
        for low in range(6, len(owned), 6):
            total = plus(total, accumulate(owned[low : low + 6]))
        closed.append(total)
    assert value(lane_tree_gemv(k, "fp16", lanes=4, tile=2, chunk_tiles=3, output_dtype="fp32")) == plus(
        plus(closed[0], closed[2]), plus(closed[1], closed[3])
    )
    # Slices of 24 and 21 k, with a new accumulator every 8 k.
    slices = []
    for low, high in ((0, 24), (24, 45)):
        total = accumulate(list(range(low, min(low + 8, high))))
        for start in range(low + 8, high, 8):
            total = plus(total, accumulate(list(range(start, min(start + 8, high)))))
        slices.append(total)
    assert value(contiguous_slice_gemv(k, "fp16", lanes=2, chunk=8, output_dtype="fp32")) == plus(*slices)
    chunks = [accumulate(list(range(low, min(low + 12, 45)))) for low in (0, 12, 24, 36)]
    assert value(three_level_chain(k, "fp16", chunks=4, tile=4, output_dtype="fp32")) == plus(
        plus(plus(chunks[0], chunks[1]), chunks[2]), chunks[3]
    )
    parts = []
    for low, high in ((0, 24), (24, 45)):
        inner = [accumulate([place for place in range(low, high) if (place - low) % 2 == number]) for number in (0, 1)]
        parts.append(plus(*inner))
    assert value(workspace_gemv(k, "fp16", slices=2, slice_tile=8, lanes=2, output_dtype="fp32")) == plus(*parts)


@pytest.mark.parametrize("k", [1, 31, 64, 100, 259])
def test_a_lane_tree_equals_nested_cuts_of_two(k: int) -> None:
    generator = np.random.default_rng(k)
    a, b = normal(generator, 2, k), normal(generator, k, 1)
    down = lane_tree_gemv(k, "fp16", lanes=8, tile=3, output_dtype="fp32")
    rounds = tuple(Cut(layout="strided", count=2, tile=3) for _ in range(3))
    nested = GEMMDesc(**{**dict(down), "k_cuts": rounds})
    assert np.array_equal(evaluate(down, a, b), evaluate(nested, a, b))
    up = lane_tree_gemv(k, "fp16", lanes=8, tile=3, count_down=False, output_dtype="fp32")
    rounds = tuple(Cut(layout="strided", count=2, tile=tile) for tile in (12, 6, 3))
    nested = GEMMDesc(**{**dict(up), "k_cuts": rounds})
    assert np.array_equal(evaluate(up, a, b), evaluate(nested, a, b))


def test_reduction_trees_by_hand() -> None:
    x = np.array([1.0, 2.0**-24, 2.0**-24, -1.0], dtype=np.float32)
    bits = x.view(np.uint32)
    assert evaluate(index_bits(4), x) == chain(
        "add.rn.fp32", chain("add.rn.fp32", bits[:1], bits[1:2]), chain("add.rn.fp32", bits[2:3], bits[3:4])
    )
    outer = chain("add.rn.fp32", chain("add.rn.fp32", bits[:1], bits[2:3]), chain("add.rn.fp32", bits[1:2], bits[3:4]))
    assert evaluate(index_bits(4, (1, 0)), x) == outer
    # Chunks of two: elementwise from +0, then the tree; or each chunk, then a chain from +0.
    x = np.arange(5, dtype=np.float32) - np.float32(2.5)
    assert evaluate(index_bits(5, chunk=2, padding="zero"), x).view(np.float32) == np.float32(-2.5)
    minus = np.array([-0.0], dtype=np.float32)
    assert evaluate(index_bits(1), minus) == 0x80000000
    three = np.array([-0.0, -0.0, -0.0], dtype=np.float32)
    paddings = ("absent", "negative-zero", "zero")
    found = [evaluate(index_bits(3, padding=padding), three) for padding in paddings]  # type: ignore[arg-type]
    assert found == [0x80000000, 0x80000000, 0]
