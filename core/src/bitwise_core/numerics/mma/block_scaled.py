"""The evaluation of matrix instructions with block scales on bit patterns; see `block_scaled_spec`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from bitwise_core.numerics import FLOAT_FORMATS, Bits
from bitwise_core.numerics.mma.block_scaled_spec import BlockScaledSpec, MatrixUnit, ScaleFormat
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
from bitwise_core.numerics.mma.spec import FusedSum, MatrixError

_RESULT = FLOAT_FORMATS["fp32"]
_OPEN = (
    "a group of products with the sum 0 has scales so large that its exponent would decide which bits of the other "
    "terms are kept; the published models of this instruction disagree here"
)


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
