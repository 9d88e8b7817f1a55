"""v_cmp_class: equivalent masks have one canonical form, and every form selects the classes of its mask."""

from __future__ import annotations

import numpy as np
import pytest

from gfx942_kernels import reading, run

CLASS_TEST = "s_movk_i32 s20, {:#x}\nv_cmp_class_f32_e64 vcc, {}, s20\nv_cndmask_b32_e64 v5, 0, 1, vcc"
ABSOLUTE = "v_and_b32_e32 v6, 0x7fffffff, v2\n"
COMPARED = "s_mov_b32 s20, 0x7f800000\nv_cmp_lg_f32_e64 vcc, |v2|, s20\nv_cndmask_b32_e64 v5, 0, 1, vcc"
PATTERNS = [0x7F800001, 0x7FC00000, 0xFF800000, 0xBF800000, 0x80000001, 0x80000000, 0, 1, 0x3F800000, 0x7F800000]
"""One pattern per class, in the order of the mask's bits."""


def class_test(mask: int, operand: str = "v2") -> str:
    return CLASS_TEST.format(mask, operand)


def signature(body: str) -> str:
    found = reading(body).signature
    assert found is not None
    return found.hex()


@pytest.mark.parametrize("mask", [0x264, 0x204, 0x108, 0x090, 0x060, 0x1F8, 0x267, 0x3FC])
def test_symmetric_mask_tests_the_absolute_value(mask: int) -> None:
    assert signature(class_test(mask)) == signature(ABSOLUTE + class_test(mask & ~0x3C, "v6"))
    assert signature(class_test(mask)) == signature(ABSOLUTE + class_test(mask, "v6"))
    assert signature(class_test(mask)) != signature(class_test(mask & ~0x3C))


def test_negative_classes_of_an_absolute_value_are_ignored() -> None:
    assert signature(ABSOLUTE + class_test(0x278, "v6")) == signature(ABSOLUTE + class_test(0x240, "v6"))
    assert signature(ABSOLUTE + class_test(0x278, "v6")) != signature(ABSOLUTE + class_test(0x241, "v6"))


def test_finite_mask_is_a_comparison_with_infinity() -> None:
    assert signature(class_test(0x1F8)) == signature(COMPARED)
    assert signature(class_test(0x1FA)) != signature(COMPARED)
    assert signature(class_test(0x1F8)) != signature(COMPARED.replace("lg", "neq"))
    assert run(COMPARED, PATTERNS)[:10].tolist() == run(class_test(0x1F8), PATTERNS)[:10].tolist()


def test_results_are_the_classes_of_the_mask() -> None:
    """Masks on one pattern per class, for the number and for its absolute value."""
    absolute_classes = [0, 1, 9, 8, 7, 6, 6, 7, 8, 9]
    for mask in (*(1 << each for each in range(10)), *range(0, 1 << 10, 37), 0x264, 0x1F8, 0x1C0, 0x3FF):
        plain, of_absolute = run(class_test(mask), PATTERNS)[:10], run(ABSOLUTE + class_test(mask, "v6"), PATTERNS)[:10]
        assert plain.tolist() == [mask >> each & 1 for each in range(10)]
        assert of_absolute.tolist() == [mask >> each & 1 for each in absolute_classes]


def test_symmetric_masks_give_equal_results_for_both_signs() -> None:
    """The rule on random patterns: a mask that is symmetric in the sign has the same result for x and |x|."""
    random = np.random.default_rng(11)
    words = random.integers(0, 1 << 32, 64, dtype=np.uint64).astype(np.uint32)
    words[:10] = PATTERNS
    for half in range(1 << 4):
        mask = half << 6 | sum((half >> each & 1) << 5 - each for each in range(4)) | int(random.integers(0, 4))
        assert (run(class_test(mask), words) == run(class_test(mask & ~0x3C), words & np.uint32(0x7FFFFFFF))).all()
