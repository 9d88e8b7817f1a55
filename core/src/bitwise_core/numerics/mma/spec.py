"""One instruction of a matrix unit as a row of data, checked when it is built.

A row determines the bits of d = a b + c, for one native step of `k` products of one architecture.  The records of
arithmetic below are the rules that units are known to follow; each is a few parameters, never code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from bitwise_core.errors import BitwiseError
from bitwise_core.numerics import FLOAT_FORMATS, FORMATS, FloatFormat, Format, IntegerFormat

Status: TypeAlias = Literal["checked on vectors", "measured by us", "published only"]
"""The evidence for a row: public test vectors of the hardware, our own measurement, or a public statement only."""
STATUSES: tuple[Status, ...] = ("checked on vectors", "measured by us", "published only")

GroupOrder: TypeAlias = Literal["ascending", "alternate pairs"]
"""Which products share a step: consecutive k, or first the k with k mod 4 in {0, 1} and then those in {2, 3}."""

EXACT_BITS = 53
"""The largest number of bits of a sum of aligned terms: as integers in float64 such sums are exact."""


class MatrixError(BitwiseError, ValueError):
    """A row or an operand is invalid: the message says what, where, and what to do."""


@dataclass(frozen=True, slots=True)
class FusedSum:
    """A truncating fused sum: `products` exact products and the accumulator enter one unordered sum.

    Every term, the accumulator included, is aligned to the largest exponent among them and truncated toward zero at
    `fraction_bits` bits below it.  The exponent of a product is the sum of its factors' exponents, not renormalised; a
    subnormal has its format's smallest exponent.  The exact sum of the terms is rounded once, by `rounding`, to
    `mantissa_bits`; a zero is +0, and an overflow is an infinity.

    `least_exponent` is a lower bound of the exponent that terms are aligned to, None for no bound.
    `zero_exponent` is the exponent of a zero accumulator in the alignment, None where it takes no part in it; with
    `zero_products` a product with a zero factor takes part in it with the sum of its factors' exponents.
    `widened` is the format to which operands are first converted, exactly, and whose exponents are used then.
    With `accumulator_last`, the steps of an instruction start from +0 and the accumulator is added once at the end, by
    an IEEE addition rounded to nearest even in the result's format.
    """

    products: int
    fraction_bits: int
    mantissa_bits: int
    rounding: Literal["rz", "rn"]
    order: GroupOrder = "ascending"
    accumulator_last: bool = False
    least_exponent: int | None = None
    zero_exponent: int | None = None
    zero_products: bool = False
    widened: str | None = None

    def __post_init__(self) -> None:
        if self.products < 1:
            raise MatrixError(f"a fused sum has at least one product, not {self.products}")
        if self.mantissa_bits > self.fraction_bits:
            raise MatrixError(
                f"a fused sum truncated at {self.fraction_bits} bits cannot be rounded to {self.mantissa_bits} bits"
            )
        if self.fraction_bits + 2 + self.products.bit_length() > EXACT_BITS:
            raise MatrixError(
                f"{self.products} products truncated at {self.fraction_bits} bits need more than {EXACT_BITS} bits"
            )


@dataclass(frozen=True, slots=True)
class FlooredSum:
    """A sum of products, and then a floored sum with the accumulator.

    The products of a step are aligned to each other, truncated toward zero at `product_bits` and summed.  That sum and
    the accumulator are aligned to the larger of their exponents, rounded down (toward -inf) at `sum_bits` and
    `accumulator_bits`, added, and rounded once to nearest even.

    With `parity_split`, even and odd k are summed separately, and both sums are aligned, rounded down at `product_bits`
    and added; the accumulator is then dropped where its exponent is more than `accumulator_bits` + 1 below the larger
    one.  A product of 2**128 or more is an infinity; an accumulator of zero has the smallest exponent of fp32.
    """

    products: int
    product_bits: int
    sum_bits: int
    accumulator_bits: int
    parity_split: bool = False

    def __post_init__(self) -> None:
        if self.products < 1 or (self.parity_split and self.products % 2):
            raise MatrixError(
                f"a step cannot have {self.products} products: give at least 1, and an even number with parity_split"
            )
        if self.sum_bits + 3 + self.products.bit_length() > EXACT_BITS:
            raise MatrixError(
                f"{self.products} products with sum_bits = {self.sum_bits} need more than {EXACT_BITS} bits"
            )
        if max(self.product_bits, self.accumulator_bits) > self.sum_bits:
            raise MatrixError("sum_bits must be at least product_bits and accumulator_bits")


@dataclass(frozen=True, slots=True)
class SequentialMultiplyAdd:
    """One IEEE fused multiply-add for every k, ascending, from the accumulator, rounded to nearest even.

    A NaN result is the canonical NaN or, with `nan_order`, the first NaN operand in that order with its quiet bit set;
    `made_nan` is then the pattern of a NaN result without a NaN operand.
    """

    nan_order: tuple[Literal["left", "right", "accumulator"], ...] = ()
    made_nan: int = 0

    def __post_init__(self) -> None:
        if self.nan_order and set(self.nan_order) != {"left", "right", "accumulator"}:
            raise MatrixError(f"nan_order must name each of left, right and accumulator once, not {self.nan_order}")


@dataclass(frozen=True, slots=True)
class IntegerSum:
    """Exact integer products and sums, modulo 2**32; with `saturate` each instruction's result is clamped."""

    saturate: bool = False


Arithmetic: TypeAlias = FusedSum | FlooredSum | SequentialMultiplyAdd | IntegerSum


@dataclass(frozen=True, slots=True)
class MmaSpec:
    """A row: one instruction of one matrix unit.  Raises MatrixError for an inconsistent row.

    `architecture` and `family` are chosen by the plugin (the architecture's name; the mnemonic's family), the formats
    are names of `bitwise_core.numerics`, `k` is the number of products that one native step contracts.  `source` is the
    URL of the public statement or of the test vectors.
    """

    architecture: str
    family: str
    left: str
    right: str
    accumulator: str
    result: str
    k: int
    arithmetic: Arithmetic
    status: Status
    source: str

    @property
    def keeps_accumulator(self) -> bool:
        """Whether a step of zeros returns every finite accumulator as it is, except -0, for which it may return +0."""
        arithmetic, result = self.arithmetic, FORMATS[self.result]
        if not isinstance(result, FloatFormat) or not isinstance(arithmetic, FusedSum | FlooredSum):
            return True
        if isinstance(arithmetic, FlooredSum):
            return arithmetic.accumulator_bits >= result.mantissa_bits
        return arithmetic.accumulator_last or arithmetic.mantissa_bits >= result.mantissa_bits

    @property
    def arithmetic_name(self) -> str:
        """What decides the bits of a step, whichever unit computes it: the types, k and the arithmetic."""
        types = f"{self.result} {self.left} {self.right} {self.accumulator}"
        return f"k{self.k} {types} {self.arithmetic!r}"

    def __post_init__(self) -> None:
        for word in (self.architecture, self.family):
            if not word or any(not (each.isalnum() or each in "._-") for each in word):
                raise MatrixError(
                    f"architecture and family of a matrix unit must consist of letters, digits and . _ -, not {word!r}"
                )
        for name in (self.left, self.right, self.accumulator, self.result):
            if name not in FORMATS:
                raise MatrixError(f"{self.name}: there is no format {name!r}; there are {', '.join(FORMATS)}")
        if self.status not in STATUSES:
            raise MatrixError(f"{self.name}: the status {self.status!r} is not one of {', '.join(STATUSES)}")
        if not self.source.startswith("https://"):
            raise MatrixError(f"{self.name}: its source {self.source!r} is not an https address")
        if self.k < 1 or self.k % self.products:
            raise MatrixError(
                f"{self.name}: k = {self.k} is not a positive multiple of the {self.products} products of a step"
            )
        self._check_formats()

    def _check_formats(self) -> None:
        arithmetic, result = self.arithmetic, FORMATS[self.result]
        if self.accumulator != self.result:
            raise MatrixError(f"{self.name}: an instruction's result is the next one's accumulator: give one format")
        forms = [FORMATS[name] for name in (self.left, self.right, self.accumulator, self.result)]
        if isinstance(arithmetic, IntegerSum):
            if not all(isinstance(form, IntegerFormat) and form.signed is not None for form in forms):
                raise MatrixError(f"{self.name}: the formats of an integer unit must be integers of a known sign")
            if max(form.bits for form in forms[:2]) > 8 or {self.accumulator, self.result} != {"s32"}:
                raise MatrixError(f"{self.name}: an integer unit sums products of at most 8 bits in s32")
            return
        if not all(isinstance(form, FloatFormat) and form.signed and form.subnormals for form in forms):
            raise MatrixError(f"{self.name}: its formats must all be signed floating-point formats")
        if isinstance(arithmetic, SequentialMultiplyAdd):
            if len({self.left, self.right, self.accumulator, self.result}) != 1:
                raise MatrixError(f"{self.name}: a chain of multiply-adds has one format for all operands")
            assert isinstance(result, FloatFormat)
            if arithmetic.nan_order and not result.is_nan(arithmetic.made_nan):
                raise MatrixError(f"{self.name}: {arithmetic.made_nan:#x} is not a NaN of {self.result}")
            return
        if max(form.precision for form in forms if isinstance(form, FloatFormat)) > 24:
            raise MatrixError(f"{self.name}: a sum of products takes significands of at most 24 bits")
        if isinstance(arithmetic, FusedSum):
            assert isinstance(result, FloatFormat)
            if arithmetic.mantissa_bits > result.mantissa_bits:
                raise MatrixError(f"{self.name}: {self.result} does not hold {arithmetic.mantissa_bits} fraction bits")
            wide = FLOAT_FORMATS.get(arithmetic.widened or self.left)
            if wide is None or (
                arithmetic.widened and not all(isinstance(each, FloatFormat) and wide.holds(each) for each in forms[:2])
            ):
                raise MatrixError(f"{self.name}: operands cannot be widened to {arithmetic.widened!r}")
            if arithmetic.order == "alternate pairs" and 2 * arithmetic.products != self.k:
                raise MatrixError(
                    f"{self.name}: pairs alternate between two steps, so products must be k / 2, not {self.products}"
                )

    @property
    def name(self) -> str:
        """The name, which determines the bits: family, k, types (result, left, right, accumulator), architecture."""
        types = "_".join((self.result, self.left, self.right, self.accumulator))
        options = "_satfinite" if isinstance(self.arithmetic, IntegerSum) and self.arithmetic.saturate else ""
        return f"{self.family}_k{self.k}_{types}{options}_{self.architecture}"

    @property
    def products(self) -> int:
        """The number of products in one rounded sum; all k where nothing is rounded."""
        if isinstance(self.arithmetic, FusedSum | FlooredSum):
            return self.arithmetic.products
        return 1 if isinstance(self.arithmetic, SequentialMultiplyAdd) else self.k

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The indices of k in each step of one instruction."""
        if isinstance(self.arithmetic, FusedSum) and self.arithmetic.order == "alternate pairs":
            return tuple(tuple(k for k in range(self.k) if k % 4 // 2 == half) for half in (0, 1))
        return tuple(tuple(range(low, low + self.products)) for low in range(0, self.k, self.products))

    def form(self, operand: Literal["left", "right", "accumulator", "result"]) -> Format:
        """Return the format of an operand."""
        return FORMATS[str(getattr(self, operand))]
