"""Arithmetic on patterns against exact rational arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from exact_numbers import (
    ARITHMETIC_FORMATS,
    ARITY,
    LAYOUT,
    ROUNDINGS,
    WIDTH,
    agree,
    array,
    decode,
    drawn_rows,
    encode,
    rank,
    specials,
)

from bitwise_core.numerics import FLOAT_FORMATS, native_floats, operation, storage


@pytest.mark.parametrize("name", ARITHMETIC_FORMATS)
@pytest.mark.parametrize("verb", ARITY)
def test_arithmetic(name: str, verb: str) -> None:
    random = np.random.default_rng(5)
    for rounding in ROUNDINGS:
        agree(verb, name, rounding, drawn_rows(verb, name, 100, random))


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("name", ["fp32", "fp64", "fp16"])
@pytest.mark.parametrize("verb", ["add", "mul", "div", "sqrt", "fma"])
def test_arithmetic_of_special_values(verb: str, name: str, rounding: str) -> None:
    values = specials(name)
    rows = [(pattern,) for pattern in values]
    if ARITY[verb] >= 2:
        rows = [(left, right) for left in values for right in values]
    if ARITY[verb] == 3:
        rows = [(*row, values[(7 * index) % len(values)]) for index, row in enumerate(rows)]
    agree(verb, name, rounding, rows)


@pytest.mark.parametrize("verb", ["add", "mul"])
def test_all_pairs_of_e4m3(verb: str) -> None:
    agree(verb, "e4m3", "rn", [(left, right) for left in range(256) for right in range(0, 256, 3)])


@pytest.mark.parametrize("verb", ["add", "sub", "mul", "div", "sqrt", "fma"])
@pytest.mark.parametrize("name", ["fp32", "fp64"])
def test_native_arithmetic_agrees_with_softfloat(verb: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the operands share their exponents, so that sums and products with addends cancel."""
    if not native_floats.supports(verb, FLOAT_FORMATS[name]):
        pytest.skip("always done with integers")
    generator = np.random.default_rng(7)
    columns = [
        generator.integers(0, 1 << 64, 40_000, dtype=np.uint64).astype(storage(WIDTH[name])) for _ in range(ARITY[verb])
    ]
    mantissa = (1 << LAYOUT[name][1]) - 1
    for column in columns:
        column[:20_000] = (column[:20_000] & column.dtype.type(mantissa)) | column.dtype.type(
            LAYOUT[name][2] << LAYOUT[name][1]
        )
        column[:10_000] ^= (generator.integers(0, 2, 10_000) << (WIDTH[name] - 1)).astype(column.dtype)
    fast = operation(f"{verb}.rn.{name}").evaluate(*columns)
    monkeypatch.setattr(native_floats, "trusted", lambda: False)
    assert np.array_equal(fast, operation(f"{verb}.rn.{name}").evaluate(*columns))


@pytest.mark.parametrize("name", ARITHMETIC_FORMATS)
@pytest.mark.parametrize("nan", [False, True])
@pytest.mark.parametrize("verb", ["min", "max"])
def test_extrema_of_special_values(verb: str, nan: bool, name: str) -> None:
    rows = [(left, right) for left in specials(name) for right in specials(name)]
    columns = [array(name, column) for column in zip(*rows, strict=True)]
    got = operation(f"{verb}{'.nan' * nan}.{name}").evaluate(*columns).tolist()
    for (left, right), answer in zip(rows, got, strict=True):
        numbers = [decode(name, pattern) for pattern in (left, right)]
        known = [number for number in numbers if number is not None]
        chosen = None if not known or (nan and len(known) < 2) else (max if verb == "max" else min)(known, key=rank)
        assert answer == encode(name, chosen, "rz")


@pytest.mark.parametrize("verb", ["eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu"])
@pytest.mark.parametrize("name", ["fp32", "bf16", "e4m3"])
def test_comparisons_of_special_values(verb: str, name: str) -> None:
    rows = [(left, right) for left in specials(name) for right in specials(name)]
    columns = [array(name, column) for column in zip(*rows, strict=True)]
    got = operation(f"{verb}.{name}").evaluate(*columns).tolist()
    for (left, right), answer in zip(rows, got, strict=True):
        first, second = decode(name, left), decode(name, right)
        if first is None or second is None:
            wanted = len(verb) == 3
        else:
            a, b = rank(first)[:2], rank(second)[:2]
            wanted = {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[verb[:2]]
        assert answer == wanted
