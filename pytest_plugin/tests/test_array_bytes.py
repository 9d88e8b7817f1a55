"""Arrays with other bytes fail with the first element, both values and their distance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bitwise_pytest import assert_bytes_equal

ONES = np.ones((2, 3), np.float32)


def changed(array: Any, place: tuple[int, ...], value: Any) -> Any:
    found = array.copy()
    found[place] = value
    return found


@pytest.mark.parametrize(
    ("a", "b", "options", "sentence"),
    [
        (
            ONES, changed(ONES, (1, 2), np.nextafter(np.float32(1), np.float32(2))), {},
            "1 of 6 elements of float32 differ; the first is element [1, 2]: 1 (0x3f800000) and 1.00000012 "
            "(0x3f800001), 1 ulp apart",
        ),
        (
            ONES, changed(ONES, (0,), -1), {},
            "3 of 6 elements of float32 differ; the first is element [0, 0]: 1 (0x3f800000) and -1 (0xbf800000), "
            "2130706432 ulps apart",
        ),
        (np.zeros(1), -np.zeros(1), {}, "1 of 1 elements of float64 differ; the first is element [0]: 0 (0x000000000000"
         "0000) and -0 (0x8000000000000000), 0 ulps apart"),
        (
            np.float16(np.inf), np.float16(np.nan), {},
            "1 of 1 elements of float16 differ; the first is the only one: inf (0x7c00) and nan (0x7e00)",
        ),
        (
            np.array([0x3F80], np.uint16), np.array([0x3F81], np.uint16), {"dtype": "bf16"},
            "1 of 1 elements of bf16 differ; the first is element [0]: 1 (0x3f80) and 1.008 (0x3f81), 1 ulp apart",
        ),
        (
            np.array([7, 8], np.int32), np.array([7, -8], np.int32), {},
            "1 of 2 elements of int32 differ; the first is element [1]: 0x00000008 and 0xfffffff8",
        ),
        (b"abc", b"abd", {}, "1 of 3 elements of bytes differ; the first is element [2]: 0x63 and 0x64"),
        (ONES, ONES.astype(np.float16), {}, "the types differ: float32 and float16"),
        (ONES, ONES.T, {}, "the shapes differ: (2, 3) and (3, 2)"),
        (np.array([np.nan, 1.0]), np.array([np.nan, 2.0]), {"any_nan": True}, "1 of 2 elements of float64 differ; the "
         "first is element [1]: 1 (0x3ff0000000000000) and 2 (0x4000000000000000), 4503599627370496 ulps apart"),
    ],
)  # fmt: skip
def test_the_message_names_the_first_element(a: Any, b: Any, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AssertionError) as raised:
        assert_bytes_equal(a, b, **options)
    assert str(raised.value) == sentence


def test_equal_bytes_pass() -> None:
    nan = np.array([0x7E00, 0x3C00], np.uint16)
    other = np.array([0xFE01, 0x3C00], np.uint16)
    assert_bytes_equal(ONES, ONES.copy(order="F"))
    assert_bytes_equal(ONES, ONES.astype(">f4"))
    assert_bytes_equal(np.zeros(0), np.zeros(0))
    assert_bytes_equal(nan, other, dtype="fp16", any_nan=True)
    with pytest.raises(AssertionError):
        assert_bytes_equal(nan, other, dtype="fp16")


@pytest.mark.parametrize(
    ("value", "dtype", "sentence"),
    [
        ([1, 2], None, "a list has no bytes to compare: give an array, a tensor or bytes"),
        (np.zeros(1, complex), None, "an array of complex128 has no elements of 1, 2, 4 or 8 bytes"),
        (np.array([None]), None, "an array of object has no elements of 1, 2, 4 or 8 bytes"),
        (b"abc", "fp16", "3 bytes are no whole number of elements of fp16"),
        (b"abc", "fp61", "there is no format 'fp61'; there are "),
        (np.zeros(3, np.uint8), "fp16", "an array of uint8 does not hold patterns of fp16: give uint16"),
    ],
)
def test_what_has_no_bytes_is_refused(value: Any, dtype: str | None, sentence: str) -> None:
    with pytest.raises(TypeError) as raised:
        assert_bytes_equal(value, value, dtype=dtype)
    assert str(raised.value).startswith(sentence)


def test_tensors_are_compared_by_their_bits() -> None:
    torch = pytest.importorskip("torch")
    left = torch.ones(4, dtype=torch.bfloat16)
    right = left.clone()
    assert_bytes_equal(left, right)
    right[2] = 1.0078125
    with pytest.raises(AssertionError, match=r"bfloat16 differ; the first is element \[2\]: 1 \(0x3f80\)"):
        assert_bytes_equal(left, right)
