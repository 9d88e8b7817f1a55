"""Conversions of patterns against exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from exact_numbers import LAYOUT, ROUNDINGS, WIDTH, array, decode, encode, patterns, whole
from hypothesis import given, settings
from hypothesis import strategies as st

from bitwise_core.numerics import INTEGER_FORMATS, operation, storage

PAIRS = [(target, source) for target in LAYOUT for source in LAYOUT]


@pytest.mark.parametrize(("target", "source"), PAIRS)
@settings(max_examples=6)
@given(data=st.data())
def test_conversions(target: str, source: str, data: st.DataObject) -> None:
    rounding = data.draw(st.sampled_from(ROUNDINGS))
    saturate = target in ("e2m1", "e2m3", "e3m2") or data.draw(st.booleans())
    drawn = data.draw(st.lists(patterns(source), min_size=20, max_size=60))
    found = operation(f"convert.{rounding}{'.satfinite' * saturate}.{target}.{source}")
    got = found.evaluate(array(source, drawn))
    for pattern, answer in zip(drawn, got.tolist(), strict=True):
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


@pytest.mark.parametrize("target", ["e4m3", "e5m2", "e2m1", "e2m3", "e3m2", "e4m3fnuz", "e5m2fnuz", "bf16"])
def test_every_fp16_converts(target: str) -> None:
    drawn = np.arange(1 << 16, dtype=np.uint16)
    got = operation(f"convert.rn.satfinite.{target}.fp16").evaluate(drawn).tolist()
    assert got == [encode(target, decode("fp16", pattern), "rn", True) for pattern in drawn.tolist()]


INTEGER_ROUNDING = {"rni": "rn", "rzi": "rz", "rmi": "rd", "rpi": "ru"}
INTEGERS = [name for name, form in INTEGER_FORMATS.items() if form.signed is not None]


@pytest.mark.parametrize("source", ["fp64", "fp32", "fp16", "bf16"])
@pytest.mark.parametrize("target", INTEGERS)
@settings(max_examples=8)
@given(data=st.data())
def test_float_to_integer(target: str, source: str, data: st.DataObject) -> None:
    _, mantissa_bits, bias, _ = LAYOUT[source]
    fields = st.integers(bias - 2, min(bias + 66, 2 * bias))
    near = st.builds(
        lambda sign, field, fraction: sign << (WIDTH[source] - 1) | field << mantissa_bits | fraction,
        st.integers(0, 1),
        fields,
        st.integers(0, (1 << mantissa_bits) - 1),
    )
    rounding = data.draw(st.sampled_from(list(INTEGER_ROUNDING)))
    drawn = data.draw(st.lists(st.one_of(near, patterns(source)), min_size=20, max_size=60))
    got = operation(f"convert.{rounding}.{target}.{source}").evaluate(array(source, drawn)).tolist()
    bits, signed = int(target[1:]), target[0] == "s"
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    for pattern, answer in zip(drawn, got, strict=True):
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
@settings(max_examples=8)
@given(data=st.data())
def test_integer_to_float(target: str, source: str, data: st.DataObject) -> None:
    bits, signed = int(source[1:]), source[0] == "s"
    rounding = data.draw(st.sampled_from(ROUNDINGS))
    edge = st.sampled_from([0, 1, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1])
    drawn = data.draw(st.lists(st.one_of(edge, st.integers(0, (1 << bits) - 1)), min_size=20, max_size=60))
    got = operation(f"convert.{rounding}.{target}.{source}").evaluate(np.array(drawn, dtype=storage(bits))).tolist()
    for pattern, answer in zip(drawn, got, strict=True):
        number = pattern - (1 << bits) if signed and pattern >> (bits - 1) else pattern
        assert answer == encode(target, (number < 0, Fraction(abs(number))), rounding), f"{rounding} {pattern:#x}"


@pytest.mark.parametrize("name", ["fp64", "fp32", "fp16", "bf16"])
@settings(max_examples=20)
@given(data=st.data())
def test_rounding_to_an_integral_number(name: str, data: st.DataObject) -> None:
    rounding = data.draw(st.sampled_from(list(INTEGER_ROUNDING)))
    drawn = data.draw(st.lists(patterns(name), min_size=20, max_size=60))
    got = operation(f"convert.{rounding}.{name}.{name}").evaluate(array(name, drawn)).tolist()
    for pattern, answer in zip(drawn, got, strict=True):
        number = decode(name, pattern)
        if number is not None and number[1] is not None:
            number = number[0], Fraction(whole(number[1], number[0], INTEGER_ROUNDING[rounding]))
        assert answer == encode(name, number, "rz")
