"""Conversions of patterns against exact rational arithmetic."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from exact_numbers import LAYOUT, ROUNDINGS, WIDTH, decode, drawn, encode, whole

from bitwise_core.numerics import INTEGER_FORMATS, native_floats, operation, storage

PAIRS = [(target, source) for target in LAYOUT for source in LAYOUT]


@pytest.mark.parametrize(("target", "source"), PAIRS)
def test_conversions(target: str, source: str) -> None:
    random = np.random.default_rng(5)
    for rounding, saturate in itertools.product(ROUNDINGS, (False, True)):
        if not saturate and target in ("e2m1", "e2m3", "e3m2"):
            continue
        given = drawn(source, 24, random)
        found = operation(f"convert.{rounding}{'.satfinite' * saturate}.{target}.{source}")
        for pattern, answer in zip(given.tolist(), found.evaluate(given).tolist(), strict=True):
            number = decode(source, pattern)
            wanted = encode(target, number, rounding, saturate)
            if number is None and (target, source, rounding) == ("tf32", "fp32", "rna"):
                wanted = (pattern & ~0x1FFF) - 0x2000 * saturate
            assert answer == wanted, f"{found.name} {pattern:#x}: {answer:#x}, not {wanted:#x}"


@pytest.mark.parametrize(
    ("options", "results"),
    [
        ("", {0x7FC00000: 0x7FC00000, 0xFF800001: 0xFF800000, 0x7FFFFFFF: 0x7FFFE000, 0x7FCFBAB4: 0x7FCFA000}),
        (".satfinite", {0x7FC00000: 0x7FBFE000, 0xFF800001: 0xFF7FE000, 0x7FFFFFFF: 0x7FFFC000}),
    ],
)
def test_nan_rounded_to_tf32_with_ties_away_as_on_an_h100(options: str, results: dict[int, int]) -> None:
    given = np.array(list(results), dtype=np.uint32)
    assert operation(f"convert.rna{options}.tf32.fp32").evaluate(given).tolist() == list(results.values())


def nearest(target: str, source: str, given: Any) -> Any:
    """Patterns rounded to the nearest of all numbers of a format, to the even one of two, with the largest as limit."""
    top = 1 << (WIDTH[target] - 1)
    decoded = [decode(target, pattern) for pattern in range(top)]
    numbers = np.array([float(each[1]) for each in decoded if each is not None and each[1] is not None])
    assert (np.diff(numbers) > 0).all(), "patterns of positive numbers ascend"
    between = (numbers[:-1] + numbers[1:]) / 2
    read = [decode(source, pattern) for pattern in given.tolist()]
    sizes = np.array([0.0 if each is None else np.inf if each[1] is None else float(each[1]) for each in read])
    place = np.searchsorted(between, sizes)
    place += (place < between.size) & (sizes == np.append(between, np.inf)[place]) & (place % 2 == 1)
    negative = np.array([each is not None and each[0] for each in read])
    found = place + np.where(negative & ~(target.endswith("fnuz") & (place == 0)), top, 0)
    unknown = np.array([each is None for each in read])
    return np.where(unknown, encode(target, None, "rn"), found)


@pytest.mark.parametrize("target", ["e4m3", "e5m2", "e2m1", "e2m3", "e3m2", "e4m3fnuz", "e5m2fnuz", "bf16"])
def test_every_fp16_converts(target: str) -> None:
    given = np.arange(1 << 16, dtype=np.uint16)
    found = operation(f"convert.rn.satfinite.{target}.fp16").evaluate(given)
    assert np.array_equal(found, nearest(target, "fp16", given))


@pytest.mark.parametrize(
    ("target", "source"),
    [("bf16", "fp32"), ("fp32", "bf16"), ("fp16", "fp32"), ("fp32", "fp16"), ("fp32", "fp64"), ("fp64", "fp32")],
)
def test_conversions_by_the_processor_are_those_by_integers(
    target: str, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every pattern of 16 bits, and wider ones around every tie between these and at the ends of exponents."""
    bits = WIDTH[source]
    high = np.arange(1 << 16, dtype=np.uint64) << np.uint64(bits - 16)
    low = [0] if bits == 16 else [0, 1, 0xFFF, 0x1000, 0x1001, 0x2000, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF]
    if bits == 64:
        low = [each << shift | one for each in (0, 1, 0x8000, 0xFFFF) for shift in (12, 13, 28, 32) for one in (0, 1)]
    given = np.concatenate([*(high | np.uint64(each) for each in low), drawn(source, 20000, np.random.default_rng(5))])
    given = given.astype(storage(bits))
    convert = operation(f"convert.rn.{target}.{source}").evaluate
    # Rows that are not contiguous, and one pattern.
    shapes = given[:20000].reshape(100, 200)[:, ::3], given[-1].reshape(())
    assert native_floats.trusted()
    found = [convert(each) for each in (given, *shapes)]
    monkeypatch.setattr(native_floats, "trusted", lambda: False)
    for one, each in zip(found, (given, *shapes), strict=True):
        other = convert(each)
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        assert np.array_equal(one, other)


INTEGER_ROUNDING = {"rni": "rn", "rzi": "rz", "rmi": "rd", "rpi": "ru"}
INTEGERS = [name for name, form in INTEGER_FORMATS.items() if form.signed is not None]


@pytest.mark.parametrize("source", ["fp64", "fp32", "fp16", "bf16"])
@pytest.mark.parametrize("target", INTEGERS)
def test_float_to_integer(target: str, source: str) -> None:
    _, mantissa_bits, bias, _ = LAYOUT[source]
    random = np.random.default_rng(5)
    bits, signed = int(target[1:]), target[0] == "s"
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    for rounding in INTEGER_ROUNDING:
        field = random.integers(bias - 2, min(bias + 66, 2 * bias) + 1, 40).astype(np.uint64)
        near = field << np.uint64(mantissa_bits) | random.integers(0, 1 << mantissa_bits, 40, dtype=np.uint64)
        near |= random.integers(0, 2, 40, dtype=np.uint64) << np.uint64(WIDTH[source] - 1)
        given = np.append(near.astype(storage(WIDTH[source])), drawn(source, 40, random))
        got = operation(f"convert.{rounding}.{target}.{source}").evaluate(given).tolist()
        for pattern, answer in zip(given.tolist(), got, strict=True):
            number = decode(source, pattern)
            if number is None:
                wanted = 0 if bits <= 32 and source != "fp64" else 1 << (bits - 1)
            elif number[1] is None:
                wanted = low if number[0] else high
            else:
                size = whole(number[1], number[0], INTEGER_ROUNDING[rounding])
                wanted = min(max(-size if number[0] else size, low), high)
            assert answer == wanted % (1 << bits), f"{rounding} {target} {source} {pattern:#x}"


@pytest.mark.parametrize("target", ["fp64", "fp32", "fp16", "bf16", "tf32"])
@pytest.mark.parametrize("source", INTEGERS)
def test_integer_to_float(target: str, source: str) -> None:
    bits, signed = int(source[1:]), source[0] == "s"
    random = np.random.default_rng(5)
    edges = np.array([0, 1, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1], dtype=np.uint64)
    for rounding in ROUNDINGS:
        anything = random.integers(0, (1 << bits) - 1, 40, dtype=np.uint64, endpoint=True)
        # Numbers of few bits as well, most of which a format has.
        few = anything >> random.integers(0, bits, 40).astype(np.uint64)
        given = np.concatenate([edges, anything, few]).astype(storage(bits))
        got = operation(f"convert.{rounding}.{target}.{source}").evaluate(given).tolist()
        for pattern, answer in zip(given.tolist(), got, strict=True):
            number = pattern - (1 << bits) if signed and pattern >> (bits - 1) else pattern
            assert answer == encode(target, (number < 0, Fraction(abs(number))), rounding), f"{rounding} {pattern:#x}"


@pytest.mark.parametrize("name", ["fp64", "fp32", "fp16", "bf16"])
def test_rounding_to_an_integral_number(name: str) -> None:
    random = np.random.default_rng(5)
    for rounding in INTEGER_ROUNDING:
        given = drawn(name, 200, random)
        got = operation(f"convert.{rounding}.{name}.{name}").evaluate(given).tolist()
        for pattern, answer in zip(given.tolist(), got, strict=True):
            number = decode(name, pattern)
            if number is not None and number[1] is not None:
                number = number[0], Fraction(whole(number[1], number[0], INTEGER_ROUNDING[rounding]))
            assert answer == encode(name, number, "rz")
