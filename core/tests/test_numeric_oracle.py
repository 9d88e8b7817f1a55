"""Operations on patterns against exact rational arithmetic, which shares no code with them."""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitwise_core.numeric import FLOAT_FORMATS, INTEGER_FORMATS, native, operation, storage

# name: (exponent bits, mantissa bits, bias, padding), written down again so that a wrong row cannot agree with itself.
LAYOUT = {
    "fp64": (11, 52, 1023, 0),
    "fp32": (8, 23, 127, 0),
    "tf32": (8, 10, 127, 13),
    "fp16": (5, 10, 15, 0),
    "bf16": (8, 7, 127, 0),
    "e4m3": (4, 3, 7, 0),
    "e5m2": (5, 2, 15, 0),
    "e4m3fnuz": (4, 3, 8, 0),
    "e5m2fnuz": (5, 2, 16, 0),
    "e2m1": (2, 1, 1, 0),
}
WIDTH = {name: 1 + sum(row[:2]) + row[3] for name, row in LAYOUT.items()}
LARGEST = {
    "e4m3": Fraction(448),
    "e4m3fnuz": Fraction(240),
    "e5m2fnuz": Fraction(57344),
    "e2m1": Fraction(6),
}
NAN = {
    "fp64": 0x7FFFFFFFFFFFFFFF,
    "fp32": 0x7FFFFFFF,
    "tf32": 0x7FFFE000,
    "fp16": 0x7FFF,
    "bf16": 0x7FFF,
    "e4m3": 0x7F,
    "e5m2": 0x7F,
    "e4m3fnuz": 0x80,
    "e5m2fnuz": 0x80,
}
ROUNDINGS = ("rn", "rz", "ru", "rd", "rna")
ARITHMETIC_FORMATS = ("fp64", "fp32", "tf32", "fp16", "bf16", "e5m2", "e4m3", "e4m3fnuz")

Number = tuple[bool, Fraction | None]
"""A sign and a size (None for infinity); NaN is None instead of a tuple."""


def largest(name: str) -> Fraction:
    exponent_bits, mantissa_bits, bias, _ = LAYOUT[name]
    if name in LARGEST:
        return LARGEST[name]
    return (2 - Fraction(1, 1 << mantissa_bits)) * Fraction(2) ** ((1 << exponent_bits) - 2 - bias)


def decode(name: str, pattern: int) -> Number | None:
    if name in ("fp64", "fp32", "fp16"):
        code, word = {"fp64": ("d", "Q"), "fp32": ("f", "I"), "fp16": ("e", "H")}[name]
        value = struct.unpack(f"<{code}", struct.pack(f"<{word}", pattern))[0]
        if math.isnan(value):
            return None
        return math.copysign(1, value) < 0, None if math.isinf(value) else abs(Fraction(value))
    if name == "bf16":
        return decode("fp32", pattern << 16)
    if name == "tf32":
        return decode("fp32", pattern >> 13 << 13)
    if name == "e5m2":
        return decode("fp16", pattern << 8)
    exponent_bits, mantissa_bits, bias, _ = LAYOUT[name]
    if (name == "e4m3" and pattern & 0x7F == 0x7F) or (name.endswith("fnuz") and pattern == 0x80):
        return None
    sign = bool(pattern >> (WIDTH[name] - 1))
    field = pattern >> mantissa_bits & ((1 << exponent_bits) - 1)
    fraction = Fraction(pattern & ((1 << mantissa_bits) - 1), 1 << mantissa_bits)
    if field:
        return sign, (1 + fraction) * Fraction(2) ** (field - bias)
    return sign, fraction * Fraction(2) ** (1 - bias)


def whole(size: Fraction, sign: bool, rounding: str) -> int:
    low = size.numerator // size.denominator
    rest = size - low
    up = {
        "rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and low % 2 == 1),
        "rna": rest >= Fraction(1, 2),
        "rz": False,
        "ru": rest > 0 and not sign,
        "rd": rest > 0 and sign,
    }[rounding]
    return low + up


def encode(name: str, number: Number | None, rounding: str, saturate: bool = False) -> int:
    exponent_bits, mantissa_bits, bias, padding = LAYOUT[name]
    if number is None:
        return NAN.get(name, 7)
    sign, size = number
    infinite = ((1 << exponent_bits) - 1) << mantissa_bits
    top = (infinite - 1) if name not in LARGEST else {"e4m3": 0x7E, "e2m1": 7}.get(name, 0x7F)
    if size is None:
        magnitude = top if saturate else infinite
    elif size == 0:
        magnitude = 0
    else:
        exponent = size.numerator.bit_length() - size.denominator.bit_length()
        exponent -= Fraction(2) ** exponent > size
        exponent = max(exponent, 1 - bias)
        unit = Fraction(2) ** (exponent - mantissa_bits)
        kept = whole(size / unit, sign, rounding)
        value = kept * unit
        if value > largest(name):
            finite = saturate or rounding == "rz" or (rounding == "ru" and sign) or (rounding == "rd" and not sign)
            magnitude = top if finite else infinite
        else:
            if kept >= 2 << mantissa_bits:
                kept, exponent = kept // 2, exponent + 1
            normal = kept >= 1 << mantissa_bits
            magnitude = ((exponent + bias) << mantissa_bits) + kept - (1 << mantissa_bits) if normal else kept
    if magnitude == infinite and name in ("e4m3", "e4m3fnuz", "e5m2fnuz") and (size is None or size > largest(name)):
        return NAN[name]
    if magnitude == 0 and name.endswith("fnuz"):
        return 0
    return (int(sign) << (WIDTH[name] - 1)) | magnitude << padding


def value(number: Number) -> Fraction:
    sign, size = number
    assert size is not None
    return -size if sign else size


def exact_sum(left: Number | None, right: Number | None, rounding: str) -> Number | None:
    if left is None or right is None:
        return None
    if left[1] is None or right[1] is None:
        if left[1] is None and right[1] is None and left[0] != right[0]:
            return None
        return left if left[1] is None else right
    total = value(left) + value(right)
    if total == 0:
        return (left[0] if left[0] == right[0] else rounding == "rd"), Fraction(0)
    return total < 0, abs(total)


def exact_product(left: Number | None, right: Number | None) -> Number | None:
    if left is None or right is None:
        return None
    sign = left[0] != right[0]
    if left[1] is None or right[1] is None:
        return None if 0 in (left[1], right[1]) else (sign, None)
    return sign, left[1] * right[1]


def exact_quotient(left: Number | None, right: Number | None) -> Number | None:
    if left is None or right is None:
        return None
    sign = left[0] != right[0]
    if left[1] is None:
        return None if right[1] is None else (sign, None)
    if right[1] is None:
        return sign, Fraction(0)
    if right[1] == 0:
        return None if left[1] == 0 else (sign, None)
    return sign, left[1] / right[1]


def exact_root(number: Number | None) -> Number | None:
    if number is None or number[1] == 0:
        return number
    sign, size = number
    if sign or size is None:
        return None if sign else number
    scale = 1 << 3000
    shifted = size.numerator * scale * scale // size.denominator
    root = math.isqrt(shifted)
    if root * root == shifted and shifted * size.denominator == size.numerator * scale * scale:
        return False, Fraction(root, scale)
    # Irrational: any number strictly between the neighbours of 3,000 bits rounds as the root does.
    return False, Fraction(2 * root + 1, 2 * scale)


def negated(number: Number | None) -> Number | None:
    return None if number is None else (not number[0], number[1])


def expected(verb: str, name: str, rounding: str, patterns: tuple[int, ...]) -> int:
    numbers = [decode(name, pattern) for pattern in patterns]
    if verb == "add":
        result = exact_sum(numbers[0], numbers[1], rounding)
    elif verb == "sub":
        result = exact_sum(numbers[0], negated(numbers[1]), rounding)
    elif verb == "mul":
        result = exact_product(numbers[0], numbers[1])
    elif verb == "fma":
        result = exact_sum(exact_product(numbers[0], numbers[1]), numbers[2], rounding)
    elif verb == "div":
        result = exact_quotient(numbers[0], numbers[1])
    elif verb == "rcp":
        result = exact_quotient((False, Fraction(1)), numbers[0])
    else:
        result = exact_root(numbers[0])
    return encode(name, result, rounding)


def specials(name: str) -> list[int]:
    _, mantissa_bits, bias, padding = LAYOUT[name]
    magnitudes = {0, 1, 2, (1 << mantissa_bits) - 1, 1 << mantissa_bits, (1 << mantissa_bits) + 1}
    magnitudes |= {bias << mantissa_bits, (bias << mantissa_bits) + 1, (bias << mantissa_bits) - 1}
    top = 1 << (WIDTH[name] - 1 - padding)
    infinite = top - (1 << mantissa_bits)
    magnitudes |= {infinite, infinite - 1, infinite - 2, infinite + 1, top - 1, top - 2}
    return sorted({sign | (magnitude % top) << padding for magnitude in magnitudes for sign in (0, top << padding)})


def patterns(name: str) -> st.SearchStrategy[int]:
    """Special patterns, any patterns, and patterns whose exponents are close enough to cancel or to cut."""
    _, mantissa_bits, bias, padding = LAYOUT[name]
    width = WIDTH[name]
    near = st.builds(
        lambda sign, field, fraction: (
            (sign << (width - 1) | (field << mantissa_bits | fraction) << padding) & ((1 << width) - 1)
        ),
        st.integers(0, 1),
        st.integers(max(bias - mantissa_bits - 3, 0), bias + 3),
        st.one_of(
            st.integers(0, (1 << mantissa_bits) - 1),
            st.sampled_from([0, 1, (1 << mantissa_bits) - 1, 1 << mantissa_bits >> 1]),
        ),
    )
    return st.one_of(st.sampled_from(specials(name)), st.integers(0, (1 << width) - 1), near)


def array(name: str, values: Any) -> Any:
    return np.array(values, dtype=storage(WIDTH[name]))


def agree(verb: str, name: str, rounding: str, rows: list[tuple[int, ...]]) -> None:
    columns = [array(name, column) for column in zip(*rows, strict=True)]
    got = operation(f"{verb}.{rounding}.{name}").evaluate(*columns)
    for row, answer in zip(rows, got.tolist(), strict=True):
        wanted = expected(verb, name, rounding, row)
        assert answer == wanted, f"{verb}.{rounding}.{name} {[hex(p) for p in row]}: {answer:#x}, not {wanted:#x}"


ARITY = {"add": 2, "sub": 2, "mul": 2, "div": 2, "fma": 3, "sqrt": 1, "rcp": 1}


@pytest.mark.parametrize("name", ARITHMETIC_FORMATS)
@pytest.mark.parametrize("verb", ARITY)
@settings(max_examples=12)
@given(data=st.data())
def test_arithmetic(name: str, verb: str, data: st.DataObject) -> None:
    rounding = data.draw(st.sampled_from(ROUNDINGS))
    rows = data.draw(st.lists(st.tuples(*[patterns(name)] * ARITY[verb]), min_size=20, max_size=60))
    agree(verb, name, rounding, rows)


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
def test_the_processor_agrees_with_the_integers(verb: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the operands share their exponents, so that sums cancel and products meet addends."""
    if not native.supports(verb, FLOAT_FORMATS[name]):
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
    monkeypatch.setattr(native, "trusted", lambda: False)
    assert np.array_equal(fast, operation(f"{verb}.rn.{name}").evaluate(*columns))


PAIRS = [(target, source) for target in LAYOUT for source in LAYOUT]


@pytest.mark.parametrize(("target", "source"), PAIRS)
@settings(max_examples=6)
@given(data=st.data())
def test_conversions(target: str, source: str, data: st.DataObject) -> None:
    rounding = data.draw(st.sampled_from(ROUNDINGS))
    saturate = target == "e2m1" or data.draw(st.booleans())
    drawn = data.draw(st.lists(patterns(source), min_size=20, max_size=60))
    found = operation(f"convert.{rounding}{'.satfinite' * saturate}.{target}.{source}")
    got = found.evaluate(array(source, drawn))
    for pattern, answer in zip(drawn, got.tolist(), strict=True):
        wanted = encode(target, decode(source, pattern), rounding, saturate)
        assert answer == wanted, f"{found.name} {pattern:#x}: {answer:#x}, not {wanted:#x}"


@pytest.mark.parametrize("target", ["e4m3", "e5m2", "e2m1", "e4m3fnuz", "e5m2fnuz", "bf16"])
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


def rank(number: Number) -> tuple[Any, ...]:
    sign, size = number
    if size is None:
        return (-1 if sign else 1, 0, 0)
    return (0, -size if sign else size, -int(sign))


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


def exact(verb: str, name: str, rounding: str, patterns: tuple[int, ...]) -> Number | None:
    numbers = [decode(name, pattern) for pattern in patterns]
    if verb == "add":
        return exact_sum(numbers[0], numbers[1], rounding)
    product = exact_product(numbers[0], numbers[1])
    return product if verb == "mul" else exact_sum(product, numbers[2], rounding)


def is_tiny(name: str, number: Number | None, rounding: str) -> bool:
    """Whether a result rounded with exponents unbounded is below every normal number."""
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
@settings(max_examples=12)
@given(data=st.data())
def test_flushing_clamping_and_relu(name: str, flag: str, data: st.DataObject) -> None:
    verb, rounding = data.draw(st.sampled_from(["add", "mul", "fma"])), data.draw(st.sampled_from(ROUNDINGS))
    rows = data.draw(st.lists(st.tuples(*[patterns(name)] * ARITY[verb]), min_size=20, max_size=60))
    columns = [array(name, column) for column in zip(*rows, strict=True)]
    got = operation(f"{verb}.{rounding}.{flag}.{name}").evaluate(*columns).tolist()
    assert got == [clamped(verb, name, rounding, flag, row) for row in rows]


def test_flushing_near_the_smallest_normal_number() -> None:
    """What is decided after rounding with exponents unbounded; an H200 returns these bits."""
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
