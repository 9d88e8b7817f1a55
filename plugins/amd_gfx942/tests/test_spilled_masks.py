"""Lane masks that depend on data, whose words a compiler keeps in lanes of vector registers."""

from __future__ import annotations

import numpy as np
import pytest

from gfx942_kernels import reading, run

MASKS = "v_cmp_gt_f32_e64 s[20:21], v2, v3\nv_cmp_gt_f32_e64 s[22:23], v3, v4\n"
CLOBBERED = "v_cmp_eq_u32_e64 s[20:21], 7, v0\nv_cmp_eq_u32_e64 s[22:23], 8, v0\n"
SELECT = "v_cndmask_b32_e64 v5, v2, v4, s[24:25]"
SPILLED = """v_writelane_b32 v10, s20, 3
v_writelane_b32 v10, s21, 4
v_writelane_b32 v10, s22, 5
v_writelane_b32 v10, s23, 63
"""
BACK = "v_readlane_b32 s24, v10, {low}\nv_readlane_b32 s25, v10, {high}\n"
DIRECT = MASKS + "s_mov_b64 s[24:25], s[20:21]\n" + SELECT
OTHER = MASKS + "s_mov_b64 s[24:25], s[22:23]\n" + SELECT


def spilled(low: int, high: int, between: str = "") -> str:
    """The select by a mask that is read back from these lanes."""
    return MASKS + SPILLED + CLOBBERED + between + BACK.format(low=low, high=high) + SELECT


def test_a_mask_that_is_read_back_is_the_mask() -> None:
    whole = [reading(each).signature for each in (DIRECT, OTHER)]
    assert None not in whole
    assert whole[0] != whole[1]
    assert [reading(spilled(*lanes)).signature for lanes in ((3, 4), (5, 63))] == whole
    reverse = "v_readlane_b32 s25, v10, 4\nv_readlane_b32 s24, v10, 3\n"
    assert reading(MASKS + SPILLED + CLOBBERED + reverse + SELECT).signature == whole[0]
    moved = "v_accvgpr_write_b32 a1, v10\nv_mov_b32_e32 v10, 0\nv_accvgpr_read_b32 v10, a1\n"
    assert reading(spilled(3, 4, moved)).signature == whole[0]
    numbers = "s_movk_i32 s26, 9\nv_writelane_b32 v10, s26, 7\nv_readlane_b32 s27, v10, 7\n"
    assert reading(spilled(3, 4, numbers)).signature == whole[0]
    again = BACK.format(low=3, high=4) + "v_writelane_b32 v11, s24, 0\nv_writelane_b32 v11, s25, 1\n"
    again += "s_mov_b64 s[24:25], 0\n" + BACK.format(low=0, high=1).replace("v10", "v11")
    assert reading(MASKS + SPILLED + CLOBBERED + again + SELECT).signature == whole[0]


@pytest.mark.parametrize(
    ("lanes", "between"),
    [
        ((4, 3), ""),
        ((3, 63), ""),
        ((5, 4), ""),
        ((3, 3), ""),
        ((3, 8), ""),
        ((3, 4), "v_writelane_b32 v10, s20, 4\n"),
        ((3, 4), "v_writelane_b32 v10, s22, 3\n"),
        ((3, 4), "v_add_u32_e32 v10, 1, v10\n"),
        ((3, 4), "v_mov_b32_e32 v10, v4\n"),
    ],
    ids=["exchanged words", "words of two masks", "words of others", "one word twice", "an empty lane",
         "a number in a lane", "another number", "a sum", "a copy of data"],
)  # fmt: skip
def test_other_words_are_no_mask(lanes: tuple[int, int], between: str) -> None:
    found = reading(spilled(*lanes, between))
    assert found.signature is None, found


@pytest.mark.parametrize("lane", [3, 4])
def test_one_word_in_both_places_is_no_mask(lane: int) -> None:
    """Whichever place is written first."""
    for places in (("s24", "s25"), ("s25", "s24")):
        back = "".join(f"v_readlane_b32 {place}, v10, {lane}\n" for place in places)
        assert reading(MASKS + SPILLED + CLOBBERED + back + SELECT).signature is None


def test_a_half_that_is_replaced_leaves_no_mask() -> None:
    for half in ("s24", "s25"):
        body = MASKS + SPILLED + CLOBBERED + BACK.format(low=3, high=4) + f"s_mov_b32 {half}, 0\n" + SELECT
        assert reading(body).signature is None
    # Both halves are those of the other mask after all.
    body = MASKS + SPILLED + CLOBBERED + BACK.format(low=3, high=4) + BACK.format(low=5, high=63) + SELECT
    assert reading(body).signature == reading(OTHER).signature


def test_the_bytes_of_a_mask_that_is_read_back() -> None:
    rng = np.random.default_rng(2)
    values = [rng.standard_normal(64).astype(np.float32).view(np.uint32).tolist() for _ in range(3)]
    assert run(spilled(3, 4), *values).tolist() == run(DIRECT, *values).tolist()
    assert run(spilled(5, 63), *values).tolist() == run(OTHER, *values).tolist()
