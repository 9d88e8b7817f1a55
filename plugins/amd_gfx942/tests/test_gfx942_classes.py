"""One question for a number's class has one form, and each form gives the set that the mask names."""

from __future__ import annotations

import numpy as np
import pytest

from gfx942_kernels import reading, run

ASKED = "s_movk_i32 s20, {:#x}\nv_cmp_class_f32_e64 vcc, {}, s20\nv_cndmask_b32_e64 v5, 0, 1, vcc"
SIZE = "v_and_b32_e32 v6, 0x7fffffff, v2\n"
COMPARED = "s_mov_b32 s20, 0x7f800000\nv_cmp_lg_f32_e64 vcc, |v2|, s20\nv_cndmask_b32_e64 v5, 0, 1, vcc"
PATTERNS = [0x7F800001, 0x7FC00000, 0xFF800000, 0xBF800000, 0x80000001, 0x80000000, 0, 1, 0x3F800000, 0x7F800000]
"""One for each class, in the order of the mask's bits."""


def asked(mask: int, operand: str = "v2") -> str:
    return ASKED.format(mask, operand)


def signature(body: str) -> str:
    found = reading(body).signature
    assert found is not None
    return found.hex()


@pytest.mark.parametrize("mask", [0x264, 0x204, 0x108, 0x090, 0x060, 0x1F8, 0x267, 0x3FC])
def test_a_mask_of_both_signs_asks_for_the_size(mask: int) -> None:
    assert signature(asked(mask)) == signature(SIZE + asked(mask & ~0x3C, "v6"))
    assert signature(asked(mask)) == signature(SIZE + asked(mask, "v6"))
    assert signature(asked(mask)) != signature(asked(mask & ~0x3C))


def test_the_negative_half_of_a_size_tells_nothing() -> None:
    assert signature(SIZE + asked(0x278, "v6")) == signature(SIZE + asked(0x240, "v6"))
    assert signature(SIZE + asked(0x278, "v6")) != signature(SIZE + asked(0x241, "v6"))


def test_finite_is_apart_from_infinity() -> None:
    assert signature(asked(0x1F8)) == signature(COMPARED)
    assert signature(asked(0x1FA)) != signature(COMPARED)
    assert signature(asked(0x1F8)) != signature(COMPARED.replace("lg", "neq"))
    assert run(COMPARED, PATTERNS)[:10].tolist() == run(asked(0x1F8), PATTERNS)[:10].tolist()


def test_every_form_gives_what_the_mask_names() -> None:
    """Each mask on one pattern of each class, of the number and of its size."""
    sizes = [0, 1, 9, 8, 7, 6, 6, 7, 8, 9]
    for mask in (*(1 << each for each in range(10)), *range(0, 1 << 10, 37), 0x264, 0x1F8, 0x1C0, 0x3FF):
        plain, of_size = run(asked(mask), PATTERNS)[:10], run(SIZE + asked(mask, "v6"), PATTERNS)[:10]
        assert plain.tolist() == [mask >> each & 1 for each in range(10)]
        assert of_size.tolist() == [mask >> each & 1 for each in sizes]


def test_exchanging_signs_in_a_mask_of_both_changes_no_answer() -> None:
    """The rule itself, on random patterns: x and |x| are of a class of a mask of both signs alike."""
    random = np.random.default_rng(11)
    words = random.integers(0, 1 << 32, 64, dtype=np.uint64).astype(np.uint32)
    words[:10] = PATTERNS
    for half in range(1 << 4):
        mask = half << 6 | sum((half >> each & 1) << 5 - each for each in range(4)) | int(random.integers(0, 4))
        assert (run(asked(mask), words) == run(asked(mask & ~0x3C), words & np.uint32(0x7FFFFFFF))).all()
