"""Floating-point formats of random inputs, and doubles computed from raw 64-bit words by exact arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from bitwise_bench.corpus.cases import DTYPE_BYTES

Bits: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Format:
    """A floating-point format: widths of its fields in bits, and the exponent range of `wide` draws."""

    exponent: int
    mantissa: int
    low: int
    high: int
    infinite: bool = True

    @property
    def bias(self) -> int:
        """The exponent bias."""
        return (1 << (self.exponent - 1)) - 1

    @property
    def sign(self) -> int:
        """The sign bit, which is also the pattern of -0."""
        return 1 << (self.exponent + self.mantissa)

    @property
    def infinity(self) -> int:
        """The pattern with all exponent bits set: infinity, where the format has infinities."""
        return ((1 << self.exponent) - 1) << self.mantissa

    @property
    def quiet_nan(self) -> int:
        """The pattern that represents every NaN."""
        return self.infinity | (1 << (self.mantissa - 1)) if self.infinite else self.sign - 1

    @property
    def signalling_nan(self) -> int:
        """A signalling NaN; the quiet one where the format does not distinguish them."""
        return self.infinity | 1 if self.infinite else self.quiet_nan


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


def round_to_format(values: Bits, dtype: str) -> Bits:
    """Round finite doubles of any shape to nearest-even in `dtype`; return unsigned bit patterns of its width.

    Values beyond the largest finite number saturate, so that no infinity arises.
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


def log_uniform(low: int, high: int, first: Bits, second: Bits) -> Bits:
    """Return doubles of both signs with exponents uniform from `low` to `high`."""
    exponent = ((first >> np.uint64(8)) % np.uint64(high - low + 1)).astype(np.int64) + low
    significand = 1.0 + (second >> np.uint64(12)).astype(np.float64) * 2.0**-52
    return np.asarray(np.ldexp(np.where(first & np.uint64(1), -significand, significand), exponent))


def bell(first: Bits, second: Bits) -> Bits:
    """Return bell-shaped doubles of variance about 1.3 with 48 fraction bits: exact sums of four 16-bit words."""
    pieces = np.ascontiguousarray(first).view(np.uint16).reshape(-1, 4).astype(np.int64).sum(axis=1)
    fraction = (second >> np.uint64(34)).astype(np.float64) * 2.0**-30
    bell: Bits = (pieces - 131070 + fraction - 0.5) * 2.0**-15
    return bell
