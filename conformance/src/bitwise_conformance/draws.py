"""Inputs for recorded launches, as raw bits, and hashes of what a launch returned.

Everything rests on the raw 64-bit stream of PCG64 and on exact double arithmetic, so one seed gives the same
bits on every machine and with every NumPy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from bitwise_conformance.cases import DTYPE_BYTES, FLOAT_DTYPES, Array, Case

Bits: TypeAlias = np.ndarray[Any, np.dtype[Any]]

DRAWS: tuple[str, ...] = (
    *("normal", "wide", "zeros", "negative_zero", "subnormal", "special"),
    *("wide.2", "wide.3", "wide.4", "cancelling", "cancelling.2", "few", "tiny", "opposed", "infinite", "infinite.2"),
    "huge",
)
"""The kinds of input: every record holds one hash per output for each.  A number after a point is another seed."""

NOT_FINITE: frozenset[str] = frozenset({"special", "infinite", "infinite.2", "huge"})
"""Kinds with infinities or NaNs, in the input or in a sum that overflows."""

PATTERN = 0xA5
"""The byte that fills an output before the launch, so that an element left unwritten compares equal."""


@dataclass(frozen=True, slots=True)
class Format:
    """A float format: widths in bits, and the exponents between which wide draws lie."""

    exponent: int
    mantissa: int
    low: int
    high: int
    infinite: bool = True

    @property
    def bias(self) -> int:
        """What is added to an exponent before it is stored."""
        return (1 << (self.exponent - 1)) - 1

    @property
    def sign(self) -> int:
        """The sign bit, which is also the pattern of -0."""
        return 1 << (self.exponent + self.mantissa)

    @property
    def infinity(self) -> int:
        """All exponent bits: infinity where the format has one."""
        return ((1 << self.exponent) - 1) << self.mantissa

    @property
    def quiet_nan(self) -> int:
        """The one pattern that stands for every NaN."""
        return self.infinity | (1 << (self.mantissa - 1)) if self.infinite else self.sign - 1


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        "fp8e4nv": Format(4, 3, -6, 5, infinite=False),
        "fp8e5": Format(5, 2, -10, 6),
        "fp16": Format(5, 10, -13, 4),
        "bf16": Format(8, 7, -14, 14),
        "fp32": Format(8, 23, -14, 14),
        "fp64": Format(11, 52, -30, 30),
    }
)


def seed_of(group: str, buffer: str, draw: str) -> int:
    """The seed of one buffer of one draw: equal for all cases of a group."""
    return int.from_bytes(hashlib.sha256(f"{group}\0{buffer}\0{draw}".encode()).digest()[:16], "little")


def round_to_format(values: Bits, dtype: str) -> Bits:
    """Doubles (finite, any shape) rounded to nearest-even in `dtype`, as unsigned bit patterns of its width.

    Values beyond the largest finite number become that number, so that a draw never holds an infinity unasked.
    """
    form = FORMATS[dtype]
    if dtype == "fp64":
        bits: Bits = np.ascontiguousarray(values, dtype=np.float64).view(np.uint64)
        return bits
    magnitude = np.abs(values)
    _, exponent = np.frexp(magnitude)
    lowest = 1 - form.bias
    step = np.maximum(exponent - 1, lowest) - form.mantissa
    quanta = np.rint(np.ldexp(magnitude, -step))  # at most 2 ** (mantissa + 1), so exact
    base = (np.maximum(exponent - 1, lowest) - lowest).astype(np.int64) << form.mantissa
    pattern = base + quanta.astype(np.int64)
    largest = form.infinity - 1 if form.infinite else form.quiet_nan - 1
    pattern = np.where(magnitude == 0, 0, np.minimum(pattern, largest))
    signed: Bits = pattern | np.where(np.signbit(values), form.sign, 0)
    return signed.astype(f"u{DTYPE_BYTES[dtype]}")


def draw(array: Array, group: str, kind: str, place: int = 0) -> Bits:
    """The bits that `array` holds before a launch of a case of `group`, flat, unsigned, of its element width.

    `kind` is one of `DRAWS`; integers and indices ignore it but for the seed.  `place` counts the inputs before this
    one: the factors of a product are of other kinds where a draw wants it so.
    """
    width = f"u{DTYPE_BYTES[array.dtype]}"
    if array.role == "output":
        return np.full(array.elements * DTYPE_BYTES[array.dtype], PATTERN, dtype=np.uint8).view(width)
    if array.role == "scratch" or array.kind == "zero":
        return np.zeros(array.elements, dtype=width)
    stream = np.random.PCG64(seed_of(group, array.name, kind))
    raw = stream.random_raw(2 * array.elements).reshape(2, -1)
    if array.kind == "index":
        bits: Bits = raw[0] % np.uint64(array.below)
    elif array.dtype not in FLOAT_DTYPES:
        bits = raw[0] & np.uint64(1) if array.dtype == "i1" else raw[0]
    else:
        bits = _float_bits(array.dtype, raw, kind.split(".")[0], place)
    if array.kind == "positive":
        bits = bits & np.array(FORMATS[array.dtype].sign - 1, dtype=width)
    return bits.astype(width)


def _float_bits(dtype: str, raw: Bits, kind: str, place: int) -> Bits:
    if kind in _PLANNED:
        return round_to_format(_PLANNED[kind](FORMATS[dtype], raw[0], raw[1], place), dtype)
    form = FORMATS[dtype]
    width = f"u{DTYPE_BYTES[dtype]}"
    first, second = raw
    if kind == "normal":
        return round_to_format(_bell(first, second), dtype)
    if kind == "wide":
        return round_to_format(_between(form.low, form.high, first, second), dtype)
    # The sign as an array of the element's width: NumPy refuses 2 ** 63 as a plain Python number.
    signs = np.where(first & np.uint64(1), np.array(form.sign, dtype=width), np.array(0, dtype=width))
    if kind == "zeros":
        small = round_to_format(_bell(second, first) * 2.0**-5, dtype)
        return np.where((first >> np.uint64(60)) < 3, small, signs).astype(width)
    if kind == "negative_zero":
        return np.full(first.shape, form.sign, dtype=width)
    if kind == "subnormal":
        fractions: Bits = ((second >> np.uint64(8)) & np.uint64((1 << form.mantissa) - 1)).astype(width)
        both: Bits = signs | fractions
        return both
    if kind in ("special", "infinite"):  # three of 4096 elements, or of 64 each
        normal = round_to_format(_bell(first, second), dtype)
        dice = (first ^ second) >> np.uint64(52 if kind == "special" else 58)
        odd = np.where(dice == 0, form.quiet_nan, form.infinity if form.infinite else form.quiet_nan - 1)
        return np.where(dice < 3, odd.astype(width) | signs, normal).astype(width)
    raise ValueError(f"there is no draw called {kind!r}; use one of {', '.join(DRAWS)}")


def _between(low: int, high: int, first: Bits, second: Bits) -> Bits:
    """Doubles of both signs with exponents from `low` to `high`, each as often."""
    exponent = ((first >> np.uint64(8)) % np.uint64(high - low + 1)).astype(np.int64) + low
    significand = 1.0 + (second >> np.uint64(12)).astype(np.float64) * 2.0**-52
    return np.asarray(np.ldexp(np.where(first & np.uint64(1), -significand, significand), exponent))


def _cancelling(form: Format, first: Bits, second: Bits, place: int) -> Bits:
    """Large numbers of alternating signs (Thue-Morse), whose sums leave what was rounded; later factors near 1."""
    noise = _bell(first, second)
    if place:
        return np.asarray(1.0 + np.abs(noise) * 2.0**-4)
    index = np.arange(len(first), dtype=np.uint64)
    for shift in (32, 16, 8, 4, 2, 1):
        index = index ^ (index >> np.uint64(shift))
    return np.asarray(np.where(index & np.uint64(1), -1.0, 1.0) * 2.0**form.high + noise)


def _few(form: Format, first: Bits, second: Bits, place: int) -> Bits:
    """Eight values only, zeros of both signs among them: many ties."""
    return np.asarray([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0])[(first >> np.uint64(60)).astype(np.int64) % 8]


def _tiny(form: Format, first: Bits, second: Bits, place: int) -> Bits:
    """Numbers at the lower end of the format, seven of eight elements zero: products and sums that underflow."""
    return np.where(second & np.uint64(7), 0.0, _between(1 - form.bias, 3 - form.bias, first, second))


def _opposed(form: Format, first: Bits, second: Bits, place: int) -> Bits:
    """-0 in every second input, positive numbers in the others: every product is -0."""
    return np.full(len(first), -0.0) if place % 2 else np.abs(_bell(first, second)) + 1.0


def _huge(form: Format, first: Bits, second: Bits, place: int) -> Bits:
    """Numbers at the upper end of the format: some orders of a sum overflow on their way."""
    highest = form.bias if form.infinite else form.bias + 1
    return _between(highest - 3, highest - 1, first, second)


_PLANNED: Mapping[str, Callable[[Format, Bits, Bits, int], Bits]] = MappingProxyType(
    {"cancelling": _cancelling, "few": _few, "tiny": _tiny, "opposed": _opposed, "huge": _huge}
)


def _bell(first: Bits, second: Bits) -> Bits:
    """Bell-shaped doubles of variance about 1.3 with 48 bits below the point: four 16-bit pieces, added exactly."""
    pieces = np.ascontiguousarray(first).view(np.uint16).reshape(-1, 4).astype(np.int64).sum(axis=1)
    fraction = (second >> np.uint64(34)).astype(np.float64) * 2.0**-30
    bell: Bits = (pieces - 131070 + fraction - 0.5) * 2.0**-15
    return bell


def canonical(bits: Bits, dtype: str) -> Bits:
    """`bits` with every NaN of `dtype` replaced by one pattern; integers as they are."""
    if dtype not in FLOAT_DTYPES:
        return bits
    form = FORMATS[dtype]
    magnitude = bits & np.array(form.sign - 1, dtype=bits.dtype)
    limit = np.array(form.infinity if form.infinite else form.quiet_nan - 1, dtype=bits.dtype)
    return np.where(magnitude > limit, np.array(form.quiet_nan, dtype=bits.dtype), bits)


def digest_of(bits: Bits, dtype: str) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of the canonical little-endian bytes."""
    return hashlib.sha256(np.ascontiguousarray(canonical(bits, dtype)).tobytes()).hexdigest()[:16]


def inputs_of(case: Case, kind: str) -> dict[str, Bits]:
    """The bits of every buffer of `case` before its launch, by buffer name."""
    group = f"{case.family}/{case.group}"
    return {array.name: draw(array, group, kind, place) for array, place in places(case)}


def places(case: Case) -> list[tuple[Array, int]]:
    """Every buffer of a case with the number of floating-point inputs before it."""
    found, place = [], 0
    for array in case.arrays:
        found.append((array, place))
        place += array.read and array.dtype in FLOAT_DTYPES
    return found
