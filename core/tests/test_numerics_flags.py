"""Flushing, clamping and relu of patterns against exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from exact_numbers import (
    LAYOUT,
    NAN,
    ROUNDINGS,
    WIDTH,
    Number,
    array,
    decode,
    drawn_rows,
    encode,
    exact_product,
    exact_sum,
    whole,
)

from bitwise_core.numerics import operation


def exact(verb: str, name: str, rounding: str, patterns: tuple[int, ...]) -> Number | None:
    numbers = [decode(name, pattern) for pattern in patterns]
    if verb == "add":
        return exact_sum(numbers[0], numbers[1], rounding)
    product = exact_product(numbers[0], numbers[1])
    return product if verb == "mul" else exact_sum(product, numbers[2], rounding)


def is_tiny(name: str, number: Number | None, rounding: str) -> bool:
    """Whether a result, rounded with unbounded exponents, is below every normal number."""
    if number is None or not number[1]:
        return False
    _, mantissa_bits, bias, _ = LAYOUT[name]
    smallest = Fraction(2) ** (1 - bias)
    if number[1] >= smallest:
        return False
    unit = smallest / (2 << mantissa_bits)
    return number[1] < smallest / 2 or whole(number[1] / unit, number[0], rounding) * unit < smallest


def clamped(verb: str, name: str, rounding: str, flag: str, row: tuple[int, ...]) -> int:
    smallest, top = 1 << LAYOUT[name][1], 1 << (WIDTH[name] - 1)
    one = LAYOUT[name][2] << LAYOUT[name][1]
    if flag == "ftz":
        row = tuple(pattern & top if pattern % top < smallest else pattern for pattern in row)
        number = exact(verb, name, rounding, row)
        pattern = encode(name, number, rounding)
        return pattern & top if is_tiny(name, number, rounding) else pattern
    wanted = encode(name, exact(verb, name, rounding, row), rounding)
    if flag == "sat":
        return 0 if wanted == NAN[name] or wanted & top else min(wanted, one)
    return 0 if wanted & top else wanted


@pytest.mark.parametrize("name", ["fp32", "fp16", "fp64"])
@pytest.mark.parametrize("flag", ["ftz", "sat", "relu"])
@pytest.mark.parametrize("verb", ["add", "mul", "fma"])
def test_flushing_clamping_and_relu(verb: str, flag: str, name: str) -> None:
    random = np.random.default_rng(5)
    for rounding in ROUNDINGS:
        rows = drawn_rows(verb, name, 40, random)
        columns = [array(name, column) for column in zip(*rows, strict=True)]
        got = operation(f"{verb}.{rounding}.{flag}.{name}").evaluate(*columns).tolist()
        assert got == [clamped(verb, name, rounding, flag, row) for row in rows]


def test_flushing_near_the_smallest_normal_number() -> None:
    """Flushing is decided after rounding with unbounded exponents; an H200 returns these bits."""
    fma = operation("fma.rn.ftz.fp32")
    mul = operation("mul.rn.ftz.fp32")
    rows = [(0x00800000, 0x80800000, 0x00800000), (0x925B7F, 0x925B7F, 0x80800000), (0x3F7FFFFF, 0x00800000, 0)]
    got = [hex(int(fma.evaluate(*(np.array([p], dtype=np.uint32) for p in row))[0])) for row in rows]
    assert got == ["0x800000", "0x80800000", "0x0"]
    assert mul.evaluate(np.array([0x3F7FFFFF], np.uint32), np.array([0x80800000], np.uint32)).tolist() == [0x80000000]
    assert operation("mul.rn.fp32").evaluate(
        np.array([0x3F7FFFFF], np.uint32), np.array([0x80800000], np.uint32)
    ).tolist() == [0x80800000]


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("verb", ["mul", "fma"])
def test_flushing_of_many_products_near_the_smallest_normal_number(verb: str, rounding: str) -> None:
    generator = np.random.default_rng(3)
    count = 600
    left = generator.integers(0x3F000000, 0x40000000, count).astype(np.uint32)
    # A right factor whose product with the left one is 2**-126, more or less.
    target = np.full(count, 0x20000000, dtype=np.uint32)
    quotient = operation("div.rn.fp32").evaluate(target, left)
    right = (quotient - np.uint32(0x20000000 - 0x00800000)).astype(np.uint32)
    right = (right + generator.integers(-2, 3, count)).astype(np.uint32)
    rows = [(int(a), int(b)) for a, b in zip(left, right, strict=True)]
    if verb == "fma":
        rows = [(a, b, (0x80000000, 0, 0x00800000, 0x80800000)[index % 4]) for index, (a, b) in enumerate(rows)]
    columns = [array("fp32", column) for column in zip(*rows, strict=True)]
    got = operation(f"{verb}.{rounding}.ftz.fp32").evaluate(*columns).tolist()
    wanted = [clamped(verb, "fp32", rounding, "ftz", row) for row in rows]
    assert got == wanted
    assert len(set(wanted)) > 2
