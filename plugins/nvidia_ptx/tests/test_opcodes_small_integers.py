"""The low half of a 64-bit sum of small numbers is the sum; of greater numbers it is not."""

from __future__ import annotations

import pytest

from ptx_programs import hashes, store

LOADS = "ld.global.b64 %d5, [%d1]; ld.global.b64 %d6, [%d1+8];"
WIDENED = "cvt.u32.u64 %r1, %d9; cvt.u64.u32 %d9, %r1;"
OTHER_LANE = "shfl.sync.bfly.b32 %r1, %r1, 1, 31, -1;"


def body(*lines: str) -> str:
    return " ".join((LOADS, *lines, store("%d9", 64)))


SMALL = {
    "a field": "and.b64 %d9, %d5, 4095;",
    "all of the low half": "and.b64 %d9, %d5, 4294967295;",
    "a sum that fills the low half": "and.b64 %d7, %d5, 4294967294; and.b64 %d8, %d6, 1; add.s64 %d9, %d7, %d8;",
    "a sum of bytes": "and.b64 %d7, %d5, 255; shr.u64 %d8, %d6, 56; add.s64 %d9, %d7, %d8;",
    "a product": "and.b64 %d7, %d5, 65535; and.b64 %d8, %d6, 65535; mul.lo.s64 %d9, %d7, %d8;",
    "a count": "popc.b64 %r1, %d5; cvt.u64.u32 %d7, %r1; and.b64 %d8, %d6, 255; add.s64 %d9, %d7, %d8;",
}
GREAT = {
    "a loaded number": "mov.b64 %d9, %d5;",
    "one more bit": "and.b64 %d9, %d5, 8589934591;",
    "a sum that may not fit": "and.b64 %d7, %d5, 4294967295; and.b64 %d8, %d6, 1; add.s64 %d9, %d7, %d8;",
    "a product that may not fit": "and.b64 %d7, %d5, 65535; and.b64 %d8, %d6, 131071; mul.lo.s64 %d9, %d7, %d8;",
    "a difference": "and.b64 %d7, %d5, 255; and.b64 %d8, %d6, 255; sub.s64 %d9, %d7, %d8;",
    "a sum with a negative number": "and.b64 %d7, %d5, 255; add.s64 %d9, %d7, -1;",
}


@pytest.mark.parametrize("made", SMALL.values(), ids=SMALL)
def test_the_low_half_of_a_small_number_is_the_number(made: str) -> None:
    assert hashes(body(made, WIDENED)) == hashes(body(made))


@pytest.mark.parametrize("made", GREAT.values(), ids=GREAT)
def test_the_low_half_of_another_number_is_not(made: str) -> None:
    assert hashes(body(made, WIDENED)) != hashes(body(made))


@pytest.mark.parametrize(("mask", "alike"), [(255, True), (0x1FFFFFFFF, False)])
def test_a_sum_over_lanes_of_small_numbers_is_the_same_in_both(mask: int, alike: bool) -> None:
    each = "mad.wide.u32 %d5, %r0, 8, %d1; ld.global.b64 %d5, [%d5];"
    total = f"and.b64 %d7, %d5, {mask}; cvt.u32.u64 %r1, %d7; {OTHER_LANE} cvt.u64.u32 %d8, %r1; add.s64 %d9, %d7, %d8;"
    found = hashes(" ".join((each, total, store("%d9", 64))), threads=2)
    assert (found[0] == found[8]) is alike
