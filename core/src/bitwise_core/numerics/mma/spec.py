"""One instruction of a matrix unit as a row of data that checks itself.

A row says which bits d = a b + c has, for one native step of `k` products of one architecture.  The records of
arithmetic below are the rules that units are known to follow; each is a small set of numbers, never code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from bitwise_core.errors import BitwiseError
from bitwise_core.numerics import FLOAT_FORMATS, FORMATS, FloatFormat, Format, IntegerFormat

Status: TypeAlias = Literal["checked on vectors", "measured by us", "published only"]
"""How far a row is established: public vectors of the hardware, our own measurement, or a public statement alone."""
STATUSES: tuple[Status, ...] = ("checked on vectors", "measured by us", "published only")

GroupOrder: TypeAlias = Literal["ascending", "alternate pairs"]
"""Which products share a step: consecutive k, or first the k with k mod 4 in {0, 1} and then those in {2, 3}."""

EXACT_BITS = 53
"""Sums of aligned terms are kept as integers of at most this many bits, so that every one is exact."""


class MatrixError(BitwiseError, ValueError):
    """A row or an operand that makes no sense: the message says what, where, and what to do."""


@dataclass(frozen=True, slots=True)
class FusedSum:
    """A truncating fused sum: `products` exact products and the accumulator enter one sum, in no order.

    Every term, the accumulator included, is aligned to the largest exponent among them and cut toward zero at
    `fraction_bits` bits below it.  The exponent of a product is that of its two factors' leading places, not
    renormalised; a subnormal has its format's smallest exponent.  The exact sum is rounded once, by `rounding`, to
    `mantissa_bits`; a zero is +0, and what is too large is an infinity.

    `least_exponent` is the smallest exponent that terms are aligned to, None where there is none.
    `zero_exponent` is the exponent with which an accumulator of zero takes part, None where it takes none; a product
    with a zero factor takes part with its factors' exponents where `zero_products` says so.
    `widened` is the format to which operands are brought first, exactly, and whose exponents count then.
    Where `accumulator_last`, the steps of an instruction start from +0 and the accumulator is added once at the end,
    as an IEEE addition rounded to nearest even in the result's format.
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
                f"a fused sum cut at {self.fraction_bits} bits has no {self.mantissa_bits} bits to be rounded to"
            )
        if self.fraction_bits + 2 + self.products.bit_length() > EXACT_BITS:
            raise MatrixError(
                f"{self.products} products cut at {self.fraction_bits} bits need more than {EXACT_BITS} bits"
            )


@dataclass(frozen=True, slots=True)
class FlooredSum:
    """Products first, the accumulator after: the products of a step are aligned among themselves, cut toward zero at
    `product_bits` and summed; that sum and the accumulator are aligned to the larger of their exponents, rounded down
    (toward -inf) at `sum_bits` and `accumulator_bits`, added, and rounded once to nearest even.

    Where `parity_split`, even and odd k are summed apart, and both sums are aligned, rounded down at `product_bits` and
    added; there the accumulator is left out where it lies more than `accumulator_bits` + 1 below.
    A product of 2**128 or more is an infinity; an accumulator of zero has the smallest exponent of fp32.
    """

    products: int
    product_bits: int
    sum_bits: int
    accumulator_bits: int
    parity_split: bool = False

    def __post_init__(self) -> None:
        if self.products < 1 or (self.parity_split and self.products % 2):
            raise MatrixError(f"{self.products} products are not a step, or not one that parts into even and odd k")
        if self.sum_bits + 3 + self.products.bit_length() > EXACT_BITS:
            raise MatrixError(f"{self.products} products kept to {self.sum_bits} bits need more than {EXACT_BITS} bits")
        if max(self.product_bits, self.accumulator_bits) > self.sum_bits:
            raise MatrixError("the sum of a step is kept to at least as many bits as what goes into it")


@dataclass(frozen=True, slots=True)
class SequentialMultiplyAdd:
    """One IEEE fused multiply-add for every k, ascending, from the accumulator, rounded to nearest even.

    A NaN is the canonical one, or, with `nan_order`, the first NaN operand in that order with its quiet bit set;
    `made_nan` is then the pattern of a NaN that no operand is.
    """

    nan_order: tuple[Literal["left", "right", "accumulator"], ...] = ()
    made_nan: int = 0

    def __post_init__(self) -> None:
        if self.nan_order and set(self.nan_order) != {"left", "right", "accumulator"}:
            raise MatrixError(f"the order of NaN operands names each of the three once, not {self.nan_order}")


@dataclass(frozen=True, slots=True)
class IntegerSum:
    """Exact integer products and sums, modulo 2**32; with `saturate` each instruction's result is clamped."""

    saturate: bool = False


Arithmetic: TypeAlias = FusedSum | FlooredSum | SequentialMultiplyAdd | IntegerSum


@dataclass(frozen=True, slots=True)
class MmaSpec:
    """A row: one instruction of one matrix unit.  Raises MatrixError where it contradicts itself.

    `architecture` and `family` are the plugin's words (an architecture's name; the mnemonic's family), the formats are
    names of `bitwise_core.numerics`, `k` is what one native step contracts.  `source` is the address of the public
    statement or of the vectors.
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

    def __post_init__(self) -> None:
        for word in (self.architecture, self.family):
            if not word or any(not (each.isalnum() or each in "._-") for each in word):
                raise MatrixError(f"architecture and family of a matrix unit are words of letters and digits: {word!r}")
        for name in (self.left, self.right, self.accumulator, self.result):
            if name not in FORMATS:
                raise MatrixError(f"{self.name}: there is no format {name!r}; there are {', '.join(FORMATS)}")
        if self.status not in STATUSES:
            raise MatrixError(f"{self.name}: the status {self.status!r} is none of {', '.join(STATUSES)}")
        if not self.source.startswith("https://"):
            raise MatrixError(f"{self.name}: its source {self.source!r} is no https address")
        if self.k < 1 or self.k % self.products:
            raise MatrixError(f"{self.name}: k = {self.k} does not part into steps of {self.products} products")
        self._check_formats()

    def _check_formats(self) -> None:
        arithmetic, result = self.arithmetic, FORMATS[self.result]
        if self.accumulator != self.result:
            raise MatrixError(f"{self.name}: an instruction's result is the next one's accumulator: give one format")
        forms = [FORMATS[name] for name in (self.left, self.right, self.accumulator, self.result)]
        if isinstance(arithmetic, IntegerSum):
            if not all(isinstance(form, IntegerFormat) and form.signed is not None for form in forms):
                raise MatrixError(f"{self.name}: an integer unit takes and gives integers of a known sign")
            if max(form.bits for form in forms[:2]) > 8 or {self.accumulator, self.result} != {"s32"}:
                raise MatrixError(f"{self.name}: an integer unit sums products of at most 8 bits in s32")
            return
        if not all(isinstance(form, FloatFormat) and form.signed and form.subnormals for form in forms):
            raise MatrixError(f"{self.name}: its formats are not all of floating-point numbers with a sign")
        if isinstance(arithmetic, SequentialMultiplyAdd):
            if len({self.left, self.right, self.accumulator, self.result}) != 1:
                raise MatrixError(f"{self.name}: a chain of multiply-adds has one format")
            assert isinstance(result, FloatFormat)
            if arithmetic.nan_order and not result.is_nan(arithmetic.made_nan):
                raise MatrixError(f"{self.name}: {arithmetic.made_nan:#x} is no NaN of {self.result}")
            return
        if max(form.precision for form in forms if isinstance(form, FloatFormat)) > 24:
            raise MatrixError(f"{self.name}: a fused sum takes operands and accumulators of at most 24 bits")
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
                    f"{self.name}: pairs alternate between two steps; {self.products} products are not half"
                )

    @property
    def name(self) -> str:
        """What decides the bits, in one word: family, native k, types (result, left, right, accumulator), unit."""
        types = "_".join((self.result, self.left, self.right, self.accumulator))
        options = "_satfinite" if isinstance(self.arithmetic, IntegerSum) and self.arithmetic.saturate else ""
        return f"{self.family}_k{self.k}_{types}{options}_{self.architecture}"

    @property
    def products(self) -> int:
        """How many products one rounding takes in; all of them where nothing is rounded."""
        if isinstance(self.arithmetic, FusedSum | FlooredSum):
            return self.arithmetic.products
        return 1 if isinstance(self.arithmetic, SequentialMultiplyAdd) else self.k

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The k of one instruction, step by step."""
        if isinstance(self.arithmetic, FusedSum) and self.arithmetic.order == "alternate pairs":
            return tuple(tuple(k for k in range(self.k) if k % 4 // 2 == half) for half in (0, 1))
        return tuple(tuple(range(low, low + self.products)) for low in range(0, self.k, self.products))

    def form(self, operand: Literal["left", "right", "accumulator", "result"]) -> Format:
        """The format of an operand."""
        return FORMATS[str(getattr(self, operand))]
