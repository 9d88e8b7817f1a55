"""Decimals of bit patterns read back to the same pattern, and distances count numbers."""

from __future__ import annotations

import struct
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitwise_core.numerics import FLOAT_FORMATS
from bitwise_core.numerics.decimals import decimal, ulps

TYPES = {"fp16": np.float16, "fp32": np.float32, "fp64": np.float64}


@pytest.mark.parametrize("name", TYPES)
@given(data=st.data())
def test_a_decimal_reads_back_to_its_pattern(name: str, data: st.DataObject) -> None:
    form, kind = FLOAT_FORMATS[name], TYPES[name]
    pattern = data.draw(st.integers(0, (1 << form.bits) - 1))
    text = decimal(form, pattern)
    if form.is_nan(pattern):
        assert text == "nan"
    else:
        assert int(kind(text).view(f"u{form.bits // 8}")) == pattern


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "bf16", "fp16"])
def test_every_pattern_of_a_narrow_format_has_a_decimal_of_its_own(name: str) -> None:
    form = FLOAT_FORMATS[name]
    numbers = [each for each in range(1 << form.bits) if not form.is_nan(each)]
    texts = [decimal(form, each) for each in numbers]
    assert len(set(texts)) == len(texts)
    finite = sorted((Decimal(text), number) for text, number in zip(texts, numbers, strict=True) if "inf" not in text)
    for (smaller, one), (larger, other) in pairwise(finite):
        assert ulps(form, one, other) == (0 if smaller == larger == 0 else 1)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("fp32", 0.1, "0.100000001"), ("fp32", -149.6, "-149.600006"), ("fp32", 300.0, "300"), ("fp32", -0.0, "-0"),
        ("fp32", 1e-45, "1.40129846e-45"), ("fp32", 3.4028234663852886e38, "3.40282347e+38"),
        ("fp64", 0.1, "0.10000000000000001"),
        ("fp32", 999999999.0, "1e+09"), ("fp32", float("-inf"), "-inf"),
    ],
)  # fmt: skip
def test_decimals(name: str, value: float, text: str) -> None:
    code = {"fp32": "f", "fp64": "d"}[name]
    pattern = int.from_bytes(struct.pack(f"<{code}", value), "little")
    assert decimal(FLOAT_FORMATS[name], pattern) == text


def test_distances() -> None:
    form = FLOAT_FORMATS["fp32"]
    assert ulps(form, 0x3F800000, 0x3F800001) == 1
    assert ulps(form, 0x00000001, 0x80000001) == 2
    assert ulps(form, 0x00000000, 0x80000000) == 0
    assert ulps(form, 0x7FC00000, 0x3F800000) is None
    assert ulps(form, 0x7F7FFFFF, 0x7F800000) == 1
