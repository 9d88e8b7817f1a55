"""Operations on patterns by exact rational arithmetic, independent of the code under test."""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from bitwise_core.numerics import operation, storage

# name: (exponent bits, mantissa bits, bias, padding), repeated here so that a wrong row of core does not pass.
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
    "e2m3": (2, 3, 1, 0),
    "e3m2": (3, 2, 3, 0),
}
WIDTH = {name: 1 + sum(row[:2]) + row[3] for name, row in LAYOUT.items()}
LARGEST = {
    "e4m3": Fraction(448),
    "e4m3fnuz": Fraction(240),
    "e5m2fnuz": Fraction(57344),
    "e2m1": Fraction(6),
    "e2m3": Fraction(15, 2),
    "e3m2": Fraction(28),
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
ARITY = {"add": 2, "sub": 2, "mul": 2, "div": 2, "fma": 3, "sqrt": 1, "rcp": 1}
ROUNDINGS = ("rn", "rz", "ru", "rd", "rna")
ARITHMETIC_FORMATS = ("fp64", "fp32", "tf32", "fp16", "bf16", "e5m2", "e4m3", "e4m3fnuz")

Number: TypeAlias = tuple[bool, Fraction | None]
"""A sign and a size (None for infinity); NaN is None instead of a tuple."""


@cache
def power_of_two(exponent: int) -> Fraction:
    return Fraction(2) ** exponent


@cache
def largest(name: str) -> Fraction:
    exponent_bits, mantissa_bits, bias, _ = LAYOUT[name]
    if name in LARGEST:
        return LARGEST[name]
    return (2 - Fraction(1, 1 << mantissa_bits)) * power_of_two((1 << exponent_bits) - 2 - bias)


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
        return sign, (1 + fraction) * power_of_two(field - bias)
    return sign, fraction * power_of_two(1 - bias)


def whole(size: Fraction, sign: bool, rounding: str) -> int:
    low, rest = divmod(size.numerator, size.denominator)
    half = 2 * rest - size.denominator
    up = {
        "rn": half > 0 or (half == 0 and low % 2 == 1),
        "rna": half >= 0,
        "rz": False,
        "ru": rest > 0 and not sign,
        "rd": rest > 0 and sign,
    }[rounding]
    return low + up


def encode(name: str, number: Number | None, rounding: str, saturate: bool = False) -> int:
    exponent_bits, mantissa_bits, bias, padding = LAYOUT[name]
    if number is None:
        return NAN.get(name, 7 if name == "e2m1" else 0x1F)
    sign, size = number
    infinite = ((1 << exponent_bits) - 1) << mantissa_bits
    top = (
        (infinite - 1) if name not in LARGEST else {"e4m3": 0x7E, "e2m1": 7, "e2m3": 0x1F, "e3m2": 0x1F}.get(name, 0x7F)
    )
    if size is None:
        magnitude = top if saturate else infinite
    elif size == 0:
        magnitude = 0
    else:
        exponent = size.numerator.bit_length() - size.denominator.bit_length()
        exponent -= power_of_two(exponent) > size
        exponent = max(exponent, 1 - bias)
        unit = power_of_two(exponent - mantissa_bits)
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
    # Irrational: any number strictly between the neighbours of 3,000 bits rounds like the root.
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


def drawn(name: str, count: int, random: np.random.Generator) -> Any:
    """Special, arbitrary, and patterns whose exponents are close enough for cancellation and truncation."""
    _, mantissa_bits, bias, padding = LAYOUT[name]
    width = WIDTH[name]
    anything = random.integers(0, 1 << width, count, dtype=np.uint64, endpoint=False)
    field = random.integers(max(bias - mantissa_bits - 3, 0), bias + 4, count).astype(np.uint64)
    ends = np.array([0, 1, (1 << mantissa_bits) - 1, 1 << mantissa_bits >> 1], dtype=np.uint64)
    fraction = random.integers(0, 1 << mantissa_bits, count, dtype=np.uint64)
    fraction = np.where(random.integers(0, 2, count) == 0, fraction, random.choice(ends, count))
    near = (field << np.uint64(mantissa_bits) | fraction) << np.uint64(padding)
    near |= random.integers(0, 2, count, dtype=np.uint64) << np.uint64(width - 1)
    special = random.choice(np.array(specials(name), dtype=np.uint64), count)
    found = np.choose(random.integers(0, 3, count), [special, anything, near & np.uint64((1 << width) - 1)])
    return found.astype(storage(width))


def array(name: str, values: Any) -> Any:
    return np.array(values, dtype=storage(WIDTH[name]))


def drawn_rows(verb: str, name: str, count: int, random: np.random.Generator) -> list[tuple[int, ...]]:
    """Operands of an operation."""
    return list(zip(*(drawn(name, count, random).tolist() for _ in range(ARITY[verb])), strict=True))


def agree(verb: str, name: str, rounding: str, rows: list[tuple[int, ...]]) -> None:
    columns = [array(name, column) for column in zip(*rows, strict=True)]
    got = operation(f"{verb}.{rounding}.{name}").evaluate(*columns)
    for row, answer in zip(rows, got.tolist(), strict=True):
        wanted = expected(verb, name, rounding, row)
        assert answer == wanted, f"{verb}.{rounding}.{name} {[hex(p) for p in row]}: {answer:#x}, not {wanted:#x}"


def rank(number: Number) -> tuple[Any, ...]:
    sign, size = number
    if size is None:
        return (-1 if sign else 1, 0, 0)
    return (0, -size if sign else size, -int(sign))
