"""Scalar formats as rows of data, checked when they are built.

A pattern is, from its highest bit: the sign where the format has one, the exponent field, the mantissa, and
`padding` low bits that are ignored when read and zero when written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

NanPatterns: TypeAlias = Literal["exponent", "all_ones", "negative_zero", "none"]
"""Which patterns are NaN: the highest exponent with a nonzero mantissa, all ones below the sign, minus zero, none."""


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """A binary floating-point format.  Raises ValueError for an inconsistent row.

    `subnormals` False means that exponent field 0 is an ordinary exponent and that the format has no zero.
    `canonical_nan` is the pattern of every NaN that an operation returns, None where the format has no NaN.
    """

    name: str
    bits: int
    exponent_bits: int
    mantissa_bits: int
    bias: int
    infinities: bool
    nan: NanPatterns
    canonical_nan: int | None
    signed: bool = True
    subnormals: bool = True
    padding: int = 0

    def __post_init__(self) -> None:
        if self.bits != self.signed + self.exponent_bits + self.mantissa_bits + self.padding:
            raise ValueError(f"format {self.name}: its fields do not add up to {self.bits} bits")
        if not 0 <= self.bias < 1 << self.exponent_bits:
            raise ValueError(f"format {self.name}: bias {self.bias} is outside the exponent field")
        if self.infinities and self.nan != "exponent":
            raise ValueError(f"format {self.name}: a format with infinities has its NaNs at the highest exponent too")
        if (self.canonical_nan is None) != (self.nan == "none"):
            raise ValueError(f"format {self.name}: it needs a canonical NaN exactly where it has NaN patterns")
        if self.canonical_nan is not None and not self.is_nan(self.canonical_nan):
            raise ValueError(f"format {self.name}: its canonical NaN {self.canonical_nan:#x} is not a NaN")
        if not self.subnormals and (self.signed or self.mantissa_bits):
            raise ValueError(f"format {self.name}: only an unsigned power-of-two scale may lack subnormals")

    @property
    def precision(self) -> int:
        """The number of bits of a normal significand, including the implicit one."""
        return self.mantissa_bits + 1

    @property
    def magnitude_bits(self) -> int:
        """The number of bits of the exponent and mantissa fields."""
        return self.exponent_bits + self.mantissa_bits

    @property
    def largest_exponent_field(self) -> int:
        """The exponent field with all bits set."""
        return (1 << self.exponent_bits) - 1

    @property
    def smallest_exponent(self) -> int:
        """The exponent of the smallest normal number, 2**smallest_exponent."""
        return 1 - self.bias if self.subnormals else -self.bias

    @property
    def smallest_bit(self) -> int:
        """The exponent of the lowest bit: every finite value is a multiple of 2**smallest_bit."""
        return self.smallest_exponent - self.mantissa_bits

    @property
    def largest_exponent(self) -> int:
        """The exponent of the largest finite number."""
        return (self.largest_magnitude >> self.mantissa_bits) - self.bias

    @property
    def largest_magnitude(self) -> int:
        """The largest finite number, as exponent and mantissa fields without sign and padding."""
        if self.nan == "exponent":
            return (self.largest_exponent_field << self.mantissa_bits) - 1
        return (1 << self.magnitude_bits) - (2 if self.nan == "all_ones" else 1)

    @property
    def negative_zero(self) -> int | None:
        """The pattern of minus zero, None where the format has none."""
        if not self.signed or self.nan == "negative_zero":
            return None
        return 1 << (self.bits - 1)

    @property
    def one(self) -> int:
        """The pattern of 1."""
        return self.bias << (self.mantissa_bits + self.padding)

    @property
    def infinity(self) -> int | None:
        """The pattern of plus infinity, None where the format has none."""
        if not self.infinities:
            return None
        return self.largest_exponent_field << (self.mantissa_bits + self.padding)

    def is_nan(self, pattern: int) -> bool:
        """Whether a pattern is a NaN."""
        field = pattern >> self.padding
        magnitude = field & ((1 << self.magnitude_bits) - 1)
        if self.nan == "exponent":
            return magnitude > self.largest_exponent_field << self.mantissa_bits
        if self.nan == "all_ones":
            return magnitude == (1 << self.magnitude_bits) - 1
        return self.nan == "negative_zero" and field == 1 << self.magnitude_bits

    def holds(self, other: FloatFormat) -> bool:
        """Whether every value of `other` has an exact pattern here (special values and minus zero included)."""
        return (
            self.signed >= other.signed
            and self.subnormals >= other.subnormals
            and self.precision >= other.precision
            and self.smallest_bit <= other.smallest_bit
            and self.largest_exponent >= other.largest_exponent
            and self.infinities >= other.infinities
            and (self.nan != "none" or other.nan == "none")
            and (self.negative_zero is not None or other.negative_zero is None)
        )


@dataclass(frozen=True, slots=True)
class IntegerFormat:
    """An integer format; `signed` is None for operations that do not depend on the sign (`b32`)."""

    name: str
    bits: int
    signed: bool | None

    def __post_init__(self) -> None:
        letter = {True: "s", False: "u", None: "b"}[self.signed]
        if self.name != f"{letter}{self.bits}":
            raise ValueError(f"integer format {self.name} should be named {letter}{self.bits}")

    @property
    def smallest(self) -> int:
        """The smallest value."""
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def largest(self) -> int:
        """The largest value."""
        return (1 << (self.bits - bool(self.signed))) - 1


Format: TypeAlias = FloatFormat | IntegerFormat

FLOAT_FORMATS: dict[str, FloatFormat] = {
    row.name: row
    for row in (
        FloatFormat("fp64", 64, 11, 52, 1023, True, "exponent", 0x7FFFFFFFFFFFFFFF),
        FloatFormat("fp32", 32, 8, 23, 127, True, "exponent", 0x7FFFFFFF),
        FloatFormat("tf32", 32, 8, 10, 127, True, "exponent", 0x7FFFE000, padding=13),
        FloatFormat("fp16", 16, 5, 10, 15, True, "exponent", 0x7FFF),
        FloatFormat("bf16", 16, 8, 7, 127, True, "exponent", 0x7FFF),
        FloatFormat("e4m3", 8, 4, 3, 7, False, "all_ones", 0x7F),
        FloatFormat("e5m2", 8, 5, 2, 15, True, "exponent", 0x7F),
        FloatFormat("e4m3fnuz", 8, 4, 3, 8, False, "negative_zero", 0x80),
        FloatFormat("e5m2fnuz", 8, 5, 2, 16, False, "negative_zero", 0x80),
        FloatFormat("e2m1", 4, 2, 1, 1, False, "none", None),
        FloatFormat("e2m3", 6, 2, 3, 1, False, "none", None),
        FloatFormat("e3m2", 6, 3, 2, 3, False, "none", None),
        FloatFormat("ue8m0", 8, 8, 0, 127, False, "all_ones", 0xFF, signed=False, subnormals=False),
    )
}

INTEGER_FORMATS: dict[str, IntegerFormat] = {
    row.name: row
    for row in (
        IntegerFormat("b1", 1, None),
        *(IntegerFormat(f"s{bits}", bits, True) for bits in (8, 16, 32, 64)),
        *(IntegerFormat(f"u{bits}", bits, False) for bits in (8, 16, 32, 64)),
        *(IntegerFormat(f"b{bits}", bits, None) for bits in (8, 16, 32, 64)),
    )
}

FORMATS: dict[str, Format] = {**FLOAT_FORMATS, **INTEGER_FORMATS}


def float_format(name: str) -> FloatFormat:
    """Return the floating-point format of that name.  Raises KeyError, which lists the known names."""
    try:
        return FLOAT_FORMATS[name]
    except KeyError:
        raise KeyError(f"no floating-point format {name!r}; there are {', '.join(FLOAT_FORMATS)}") from None
