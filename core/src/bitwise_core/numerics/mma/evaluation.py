"""Evaluation of d = a b + c on bit patterns, for one row of a matrix unit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bitwise_core.numerics import FLOAT_FORMATS, Bits, FloatFormat, IntegerFormat, operation, storage
from bitwise_core.numerics.mma import chains_in_c
from bitwise_core.numerics.mma.exact_values import Values, decode, encode, values_of
from bitwise_core.numerics.mma.fused_multiply_add import multiply_add
from bitwise_core.numerics.mma.native_steps import Factors, add_last, floored_step, fused_step
from bitwise_core.numerics.mma.spec import (
    FlooredSum,
    FusedSum,
    IntegerSum,
    MatrixError,
    MmaSpec,
    SequentialMultiplyAdd,
)

Slices: TypeAlias = tuple[slice, slice, slice]
Evaluator: TypeAlias = Callable[[MmaSpec, Bits, Bits, Bits], Bits]

LANES = 8192
"""The number of results computed at once: three arrays of so many float64 fit in a core's cache."""
DEPTH = 1024
"""The number of k decoded at once."""


def multiply_accumulate(spec: MmaSpec, a: npt.ArrayLike, b: npt.ArrayLike, c: npt.ArrayLike) -> Bits:
    """Return the bits that the unit returns for c + a b, by instructions chained over k in ascending order.

    a (..., m, k), b (..., k, n) and c (..., m, n) are patterns, unsigned integers of the width of the row's formats;
    leading axes broadcast.  k is a positive multiple of the row's k, and each instruction rounds into the next one's
    accumulator.  Every NaN result is its format's canonical NaN, unless the row says which operand it comes from.
    Raises MatrixError for operands that do not fit the row or each other.
    """
    left, right, accumulator = (
        _checked(spec, name, values) for name, values in (("left", a), ("right", b), ("accumulator", c))
    )
    (m, depth), (inner, n) = left.shape[-2:], right.shape[-2:]
    if depth != inner or accumulator.shape[-2:] != (m, n):
        raise MatrixError(
            f"{spec.name}: a (..., m, k), b (..., k, n) and c (..., m, n) do not fit: "
            f"{left.shape}, {right.shape}, {accumulator.shape}"
        )
    if depth < spec.k or depth % spec.k:
        raise MatrixError(
            f"{spec.name}: k = {depth} is not a positive multiple of the instruction's {spec.k}; "
            "pad both operands with zeros"
        )
    try:
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2], accumulator.shape[:-2])
    except ValueError:
        raise MatrixError(
            f"{spec.name}: the leading axes of {left.shape}, {right.shape} and {accumulator.shape} do not broadcast"
        ) from None
    count = int(np.prod(batch))
    flat = [
        np.broadcast_to(each, (*batch, *each.shape[-2:])).reshape(count, *each.shape[-2:])
        for each in (left, right, accumulator)
    ]
    evaluator = _EVALUATORS[type(spec.arithmetic)]
    result = np.empty((count, m, n), dtype=storage(spec.form("result").bits))
    with np.errstate(all="ignore"):
        for batches, rows, columns in result_blocks(count, m, n):
            result[batches, rows, columns] = evaluator(
                spec, flat[0][batches, rows], flat[1][batches, :, columns], flat[2][batches, rows, columns]
            )
    return result.reshape(*batch, m, n)


def _checked(spec: MmaSpec, operand: Any, values: npt.ArrayLike) -> Bits:
    array = np.asarray(values)
    form = spec.form(operand)
    width = storage(form.bits)
    if array.dtype != width:
        raise MatrixError(
            f"{spec.name}: the {operand} operand holds patterns of {form.name}, "
            f"an array of {width}, not of {array.dtype}"
        )
    if array.ndim < 2:
        raise MatrixError(f"{spec.name}: the {operand} operand has two axes at least, not shape {array.shape}")
    return array


def result_blocks(count: int, m: int, n: int) -> list[Slices]:
    """Return slices that cover (count, m, n) in blocks of about LANES results."""
    columns = max(1, min(n, max(128, LANES // max(m, 1))))
    rows = max(1, min(m, LANES // max(columns, 1)))
    batches = max(1, LANES // max(rows * columns, 1))
    return [
        (slice(i, min(i + batches, count)), slice(j, min(j + rows, m)), slice(k, min(k + columns, n)))
        for i in range(0, count, batches)
        for j in range(0, m, rows)
        for k in range(0, n, columns)
    ]


def _factors(bits: Bits, form: Any, wide: str | None, zeros: bool, right: bool) -> Factors:
    """Return operands with k first: left (batch, m, k) as (k, batch, m, 1), right (batch, k, n) as (k, batch, 1, n)."""
    if wide is not None:
        bits, form = operation(f"convert.{wide}.{form.name}").evaluate(bits), FLOAT_FORMATS[wide]
    moved = np.ascontiguousarray(bits.transpose((1, 0, 2) if right else (2, 0, 1)))
    values, exponents = decode(moved, form, zeros)
    return (
        Factors(values[:, :, None], exponents[:, :, None])
        if right
        else Factors(values[..., None], exponents[..., None])
    )


def _chain(spec: MmaSpec, a: Bits, b: Bits, c: Bits) -> Bits:
    """Evaluate fused and floored sums, step by step."""
    arithmetic = spec.arithmetic
    assert isinstance(arithmetic, FusedSum | FlooredSum)
    result = spec.form("result")
    assert isinstance(result, FloatFormat)
    zeros = isinstance(arithmetic, FusedSum) and arithmetic.zero_products
    last = isinstance(arithmetic, FusedSum) and arithmetic.accumulator_last
    wide = arithmetic.widened if isinstance(arithmetic, FusedSum) else None
    accumulator = values_of(np.ascontiguousarray(c), result)
    depth, span = a.shape[-1], max(spec.k, DEPTH // spec.k * spec.k)
    if isinstance(arithmetic, FusedSum) and chains_in_c.serves(arithmetic):
        for low in range(0, depth, span):
            rows, columns = a[..., low : low + span], b[:, low : low + span].transpose(0, 2, 1)
            factors = [
                decode(np.ascontiguousarray(bits), form, zeros)
                for bits, form in ((rows, spec.form("left")), (columns, spec.form("right")))
                if isinstance(form, FloatFormat)
            ]
            chains_in_c.fused_sums(arithmetic, result, factors[0], factors[1], accumulator)
        return encode(accumulator, result)
    for low in range(0, depth, span):
        left = _factors(a[..., low : low + span], spec.form("left"), wide, zeros, right=False)
        right = _factors(b[:, low : low + span], spec.form("right"), wide, zeros, right=True)
        for start in range(0, min(span, depth - low), spec.k):
            total = np.zeros_like(accumulator) if last else accumulator
            for group in spec.groups:
                ks = tuple(start + k for k in group)
                pair = left.at(ks), right.at(ks)
                if isinstance(arithmetic, FusedSum):
                    total = fused_step(arithmetic, result, *pair, total)
                else:
                    total = floored_step(arithmetic, result, *pair, total)
            accumulator = add_last(result, total, accumulator) if last else total
    return encode(accumulator, result)


def _multiply_adds(spec: MmaSpec, a: Bits, b: Bits, c: Bits) -> Bits:
    """One fused multiply-add for every k."""
    shape = c.shape
    assert isinstance(spec.arithmetic, SequentialMultiplyAdd)
    if spec.arithmetic.nan_order:
        return _multiply_adds_with_nans(spec, spec.arithmetic, a, b, c)
    if spec.result == "fp64":
        left, right = (np.ascontiguousarray(each).view(np.float64) for each in (a, b))
        total = np.ascontiguousarray(c).view(np.float64)
        for k in range(a.shape[-1]):
            factors = (left[:, :, k, None], right[:, k, None])
            one, other = (np.ascontiguousarray(np.broadcast_to(each, shape)) for each in factors)
            total = multiply_add(one, other, total)
        canonical = spec.form("result")
        assert isinstance(canonical, FloatFormat)
        return np.where(np.isnan(total), np.uint64(canonical.canonical_nan or 0), total.view(np.uint64))
    fma, bits = operation(f"fma.rn.{spec.result}"), np.ascontiguousarray(c)
    for k in range(a.shape[-1]):
        bits = fma.evaluate(*(np.broadcast_to(each, shape) for each in (a[:, :, k, None], b[:, k, None])), bits)
    return bits


def _multiply_adds_with_nans(spec: MmaSpec, rule: SequentialMultiplyAdd, a: Bits, b: Bits, c: Bits) -> Bits:
    """Evaluate fused multiply-adds that propagate NaN operands in the order of the rule."""
    form = spec.form("result")
    assert isinstance(form, FloatFormat)
    quiet = c.dtype.type(1 << (form.mantissa_bits - 1))
    inner = replace(spec, arithmetic=SequentialMultiplyAdd())
    total = c
    for k in range(a.shape[-1]):
        left, right = a[:, :, k, None], b[:, k, None]
        result = _multiply_adds(inner, left, b[:, k : k + 1], total)
        if (made := _is_nan(result, form)).any():
            operands = {"left": left, "right": right, "accumulator": total}
            result = np.where(made, c.dtype.type(rule.made_nan), result)
            for name in reversed(rule.nan_order):
                result = np.where(_is_nan(operands[name], form), operands[name] | quiet, result)
        total = result
    return total


def _is_nan(bits: Bits, form: FloatFormat) -> npt.NDArray[np.bool_]:
    assert form.infinity is not None
    return np.asarray(bits & bits.dtype.type((1 << form.magnitude_bits) - 1) > form.infinity)


def _integers(spec: MmaSpec, a: Bits, b: Bits, c: Bits) -> Bits:
    """Evaluate exact sums of 8-bit products; float64 holds every partial sum exactly, in any order of the additions."""
    arithmetic = spec.arithmetic
    assert isinstance(arithmetic, IntegerSum)
    left, right = _signed(a, spec.form("left")), _signed(b, spec.form("right"))
    total = _signed(c, spec.form("accumulator")).astype(np.int64)
    depth = a.shape[-1]
    span = spec.k if arithmetic.saturate else depth
    for low in range(0, depth, span):
        products = np.matmul(left[..., low : low + span], right[:, low : low + span])
        total = total + products.astype(np.int64)
        if arithmetic.saturate:
            total = np.clip(total, -(1 << 31), (1 << 31) - 1)
    return total.astype(np.uint32)


def _signed(bits: Bits, form: Any) -> Values:
    assert isinstance(form, IntegerFormat)
    value = bits.astype(np.float64)
    return np.where(value > form.largest, value - 2.0**form.bits, value) if form.signed else value


_EVALUATORS: dict[type, Evaluator] = {
    FusedSum: _chain,
    FlooredSum: _chain,
    SequentialMultiplyAdd: _multiply_adds,
    IntegerSum: _integers,
}
