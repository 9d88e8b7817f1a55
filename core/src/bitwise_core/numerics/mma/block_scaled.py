"""Matrix instructions with block scales: rows of data, and their evaluation on bit patterns.

An operand vector of such an instruction is bytes: its elements, packed without gaps from the lowest bit on, and then
one byte for each scale, which multiplies the elements of one block.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from bitwise_core.numerics import FLOAT_FORMATS, Bits
from bitwise_core.numerics.mma.evaluation import multiply_accumulate, result_blocks
from bitwise_core.numerics.mma.exact_values import (
    ABSENT,
    Exponents,
    Values,
    decode,
    encode,
    overflowed,
    power,
    quantise,
    values_of,
)
from bitwise_core.numerics.mma.native_steps import LOWEST, Factors, accumulator_exponent, fused_step
from bitwise_core.numerics.mma.spec import EXACT_BITS, STATUSES, FusedSum, MatrixError, MmaSpec, Status

ScaleFormat: TypeAlias = Literal["ue8m0", "ue4m3"]
"""A power of two (255 is NaN); e4m3 without a sign (127 is NaN, and the highest bit is ignored)."""
SCALE_FORMATS: tuple[ScaleFormat, ...] = ("ue8m0", "ue4m3")

_RESULT = FLOAT_FORMATS["fp32"]
_GROUP_BITS = 12
"""The bits of the integer part of a group's sum, significands of its scales included: 16 products of e2m1."""
_OPEN = (
    "a group of products with the sum 0 has scales so large that its exponent would decide which bits of the other "
    "terms are kept; the published models of this instruction disagree here"
)


@dataclass(frozen=True, slots=True)
class BlockScaledSpec:
    """A row: one instruction of a matrix unit with block scales and fp32 results.  Raises MatrixError if inconsistent.

    An instruction contracts `k` products; `block` consecutive elements share a scale.  The sums of `group` products
    enter one sum with the accumulator.  Every term is cut towards zero at `fraction_bits` bits below the largest
    exponent, and the exact sum is rounded towards zero to fp32.  The exponent of a single product (`group` 1) is the
    sum of the exponents of its elements and scales; that of a group, whose products are summed exactly, is the sum of
    the exponents of its scales.
    """

    architecture: str
    family: str
    left: str
    right: str
    k: int
    block: int
    scale: ScaleFormat
    group: int
    fraction_bits: int
    status: Status
    source: str

    def __post_init__(self) -> None:
        for name in (self.left, self.right):
            form = FLOAT_FORMATS.get(name)
            if form is None or form.bits > 8 or not form.signed:
                raise MatrixError(f"{self.name}: elements with block scales have signed formats of at most 8 bits")
            if self.k * form.bits % 8:
                raise MatrixError(f"{self.name}: {self.k} elements of {name} do not fill bytes")
        if self.scale not in SCALE_FORMATS:
            raise MatrixError(f"{self.name}: scales are {' or '.join(SCALE_FORMATS)}, not {self.scale!r}")
        if self.status not in STATUSES:
            raise MatrixError(f"{self.name}: the status {self.status!r} is not one of {', '.join(STATUSES)}")
        if self.block < 1 or self.k % self.block or self.group < 1 or self.block % self.group:
            raise MatrixError(f"{self.name}: k must be a multiple of the block, and the block one of the group")
        if self.group > 1 and ({self.left, self.right} != {"e2m1"} or self.group > 16):
            raise MatrixError(f"{self.name}: only groups of at most 16 products of e2m1 are summed exactly")
        if self.group == 1 and self.scale != "ue8m0":
            raise MatrixError(f"{self.name}: single products are scaled by powers of two only")
        terms = self.k // self.group + 1
        if self.fraction_bits + (2 if self.group == 1 else _GROUP_BITS) + terms.bit_length() > EXACT_BITS:
            raise MatrixError(f"{self.name}: a sum at {self.fraction_bits} bits needs more than {EXACT_BITS} bits")

    @property
    def name(self) -> str:
        """The name, which determines the bits."""
        types = f"fp32_{self.left}_{self.right}_fp32"
        return f"{self.family}_k{self.k}_{types}_{self.scale}_block{self.block}_{self.architecture}"

    @property
    def scales(self) -> int:
        """The number of scales of an operand vector."""
        return self.k // self.block

    def operand_bytes(self, side: Literal["left", "right"]) -> int:
        """Return the number of bytes of an operand vector."""
        return self.k * FLOAT_FORMATS[self.left if side == "left" else self.right].bits // 8 + self.scales


MatrixUnit: TypeAlias = MmaSpec | BlockScaledSpec
"""A row of a matrix unit, with or without block scales."""


class OpenArithmetic(MatrixError):
    """The published models of an instruction give different results for some operands."""


def step_results(unit: MatrixUnit, a: npt.ArrayLike, b: npt.ArrayLike, c: npt.ArrayLike) -> Bits:
    """Return the bits of c + a b, for a (..., m, vector), b (..., vector, n) and c (..., m, n).

    Vectors are elements, or bytes for a row with block scales, which evaluates one instruction.  Raises MatrixError.
    """
    if isinstance(unit, BlockScaledSpec):
        return scaled_multiply_accumulate(unit, a, b, c)
    return multiply_accumulate(unit, a, b, c)


def scaled_multiply_accumulate(spec: BlockScaledSpec, a: npt.ArrayLike, b: npt.ArrayLike, c: npt.ArrayLike) -> Bits:
    """Return the fp32 patterns of one instruction, for operand vectors of bytes; see `step_results`.

    Raises MatrixError for operands that do not fit, and OpenArithmetic where the published models disagree.
    """
    left, right, accumulator = np.asarray(a), np.asarray(b), np.asarray(c)
    widths = spec.operand_bytes("left"), spec.operand_bytes("right")
    if left.dtype != np.uint8 or right.dtype != np.uint8 or accumulator.dtype != np.uint32:
        raise MatrixError(f"{spec.name}: operands are arrays of uint8, and accumulators of uint32")
    fits = left.ndim > 1 and right.ndim > 1 and (left.shape[-1], right.shape[-2]) == widths
    if not fits or accumulator.shape[-2:] != (left.shape[-2], right.shape[-1]):
        raise MatrixError(
            f"{spec.name}: a (..., m, {widths[0]}), b (..., {widths[1]}, n) and c (..., m, n) do not fit: "
            f"{left.shape}, {right.shape}, {accumulator.shape}"
        )
    (m, n), batch = (
        accumulator.shape[-2:],
        np.broadcast_shapes(*(each.shape[:-2] for each in (left, right, accumulator))),
    )
    count = int(np.prod(batch))
    flat = [
        np.broadcast_to(each, (*batch, *each.shape[-2:])).reshape(count, *each.shape[-2:])
        for each in (left, right, accumulator)
    ]
    result = np.empty((count, m, n), dtype=np.uint32)
    with np.errstate(all="ignore"):
        for batches, rows, columns in result_blocks(count, m, n):
            one = _operand(flat[0][batches, rows], spec.left, spec)
            other = _operand(flat[1][batches, :, columns].swapaxes(-1, -2), spec.right, spec)
            total = values_of(np.ascontiguousarray(flat[2][batches, rows, columns]), _RESULT)
            step = _single_products if spec.group == 1 else _groups
            result[batches, rows, columns] = encode(step(spec, one, other, total), _RESULT)
    return result.reshape(*batch, m, n)


@dataclass(frozen=True, slots=True)
class _Operand:
    """Elements and scales of operand vectors, with k first: shapes (k, batch, rows) and (scales, batch, rows)."""

    elements: Factors
    scales: Factors


def _operand(vectors: Bits, form: str, spec: BlockScaledSpec) -> _Operand:
    """Decode operand vectors of shape (batch, rows, bytes)."""
    size = vectors.shape[-1] - spec.scales
    elements, scales = vectors[..., :size], vectors[..., size:]
    values, exponents = decode(unpacked(elements, FLOAT_FORMATS[form].bits), FLOAT_FORMATS[form])
    of_scales, exponents_of_scales = _scale_tables(spec.scale)
    return _Operand(
        Factors(np.moveaxis(values, -1, 0), np.moveaxis(exponents, -1, 0)),
        Factors(np.moveaxis(of_scales[scales], -1, 0), np.moveaxis(exponents_of_scales[scales], -1, 0)),
    )


def unpacked(packed: Bits, bits: int) -> Bits:
    """Return the elements of `bits` bits that bytes (..., count) hold from the lowest bit on, as uint8."""
    if bits == 8:
        return packed
    single = np.unpackbits(np.ascontiguousarray(packed), axis=-1, bitorder="little")
    places = single.reshape(*packed.shape[:-1], -1, bits)
    found: Bits = (places << np.arange(bits, dtype=np.uint8)).sum(axis=-1, dtype=np.uint8)
    return found


@cache
def _scale_tables(scale: ScaleFormat) -> tuple[Values, Exponents]:
    """Return the value and the exponent of each byte as a scale; NaN and zero are ABSENT."""
    pattern = np.arange(256)
    if scale == "ue4m3":
        return decode((pattern & 0x7F).astype(np.uint8), FLOAT_FORMATS["e4m3"])
    exponents = np.where(pattern == 255, ABSENT, pattern - 127).astype(np.int16)
    return np.where(pattern == 255, np.nan, power(np.where(pattern == 255, 0, pattern - 127))), exponents


def _single_products(spec: BlockScaledSpec, left: _Operand, right: _Operand, accumulator: Values) -> Values:
    rule = FusedSum(spec.k, spec.fraction_bits, _RESULT.mantissa_bits, "rz")
    factors = []
    for side, axis in ((left, -1), (right, -2)):
        values = side.elements.values * np.repeat(side.scales.values, spec.block, axis=0)
        exponents = np.maximum(
            side.elements.exponents + np.repeat(side.scales.exponents, spec.block, axis=0), ABSENT
        ).astype(np.int16)
        factors.append(Factors(np.expand_dims(values, axis), np.expand_dims(exponents, axis)))
    return fused_step(rule, _RESULT, factors[0], factors[1], accumulator)


def _groups(spec: BlockScaledSpec, left: _Operand, right: _Operand, accumulator: Values) -> Values:
    terms, exponents = [], []
    for start in range(0, spec.k, spec.group):
        here, scale = slice(start, start + spec.group), start // spec.block
        rows, columns = (np.moveaxis(side.elements.values[here], 0, -1) for side in (left, right))
        products: Values = np.matmul(rows, columns.swapaxes(-1, -2))  # exact in any order
        factor = left.scales.values[scale][..., None] * right.scales.values[scale][..., None, :]
        joint = left.scales.exponents[scale][..., None].astype(np.int64) + right.scales.exponents[scale][..., None, :]
        terms.append(products * factor)
        exponents.append(joint)
    beginning = accumulator_exponent(accumulator, _RESULT.smallest_exponent, None).astype(np.int64)
    tops = [np.maximum(beginning, LOWEST), np.maximum(beginning, LOWEST)]
    for term, exponent in zip(terms, exponents, strict=True):
        tops[0] = np.maximum(tops[0], np.where(term == 0, LOWEST, exponent))
        tops[1] = np.maximum(tops[1], exponent)
    result = _cut_and_added(spec, terms, accumulator, tops[0])
    if (tops[0] != tops[1]).any():
        other = _cut_and_added(spec, terms, accumulator, tops[1])
        if not np.array_equal(result, other, equal_nan=True):
            raise OpenArithmetic(f"{spec.name}: {_OPEN}")
    return result


def _cut_and_added(
    spec: BlockScaledSpec, terms: list[Values], accumulator: Values, top: npt.NDArray[np.int64]
) -> Values:
    scale = power(spec.fraction_bits - top)
    total = np.trunc(accumulator * scale)
    for each in terms:
        total = total + np.trunc(each * scale)
    total = total * power(top - spec.fraction_bits)
    rounded = quantise(total, _RESULT.mantissa_bits, _RESULT.smallest_exponent, "rz")
    return overflowed(np.where(rounded == 0, 0.0, rounded), _RESULT)
