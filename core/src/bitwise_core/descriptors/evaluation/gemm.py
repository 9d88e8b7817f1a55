"""Evaluation of a GEMMDesc, C = A B, on bit patterns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from bitwise_core.descriptors import Cut, DescriptorError, GEMMDesc
from bitwise_core.descriptors.evaluation.matrix_units import unit_of
from bitwise_core.descriptors.evaluation.operands import add, convert, fp32, patterns, zeros
from bitwise_core.descriptors.hardware import IEEE, Hardware
from bitwise_core.descriptors.k_axis import FILL, Part, innermost_parts, instructions, parts_of, tile_number
from bitwise_core.numerics import FLOAT_FORMATS, Bits, operation, storage
from bitwise_core.numerics.mma import MmaSpec, chains_in_c, multiply_accumulate

ELEMENTS = 1 << 22
"""The number of accumulators in memory at once, over all parts of the k axis."""


def evaluate_gemm(
    desc: GEMMDesc,
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    *,
    hardware: Hardware = IEEE,
    scale_a: float | None = None,
    scale_b: float | None = None,
    start: Bits | None = None,
) -> Bits:
    """Return the patterns of C (m, n) for A (m, k) and B (k, n), in the descriptor's output type.

    `scale_a` and `scale_b` are required with `operand_scales` and refused without.  `start` gives initial accumulators
    (m, n) instead of +0, where the axis is not cut.  Raises DescriptorError.
    """
    left = patterns("a", a, desc.left_dtype, (None, desc.k))
    right = patterns("b", b, desc.right_dtype, (desc.k, None))
    scale = _scale(desc, scale_a, scale_b)
    unit = unit_of(desc, hardware.matrix_units)
    if start is not None and desc.k_cuts:
        raise DescriptorError("initial accumulators need a k axis without cuts: leave k_cuts out")
    axis = parts_of(desc)
    count = sum(1 for _ in innermost_parts(axis))
    result = np.empty((left.shape[0], right.shape[1]), dtype=zeros(desc.output_dtype, ()).dtype)
    for rows, columns in _blocks(desc, *result.shape, count):
        tile = tile_number(desc, rows.start, columns.start)
        begin = None if start is None else start[rows, columns]
        values = _accumulators(desc, unit, axis, left[rows], right[:, columns], tile, begin)
        dtype, value = _merged(desc, axis, values)
        result[rows, columns] = _stored(desc, dtype, value, scale)
    return result


def _scale(desc: GEMMDesc, scale_a: float | None, scale_b: float | None) -> Bits | None:
    """Return the factor of the final value as a pattern of fp32; None for no scaling."""
    if not desc.operand_scales:
        if scale_a is not None or scale_b is not None:
            raise DescriptorError("this descriptor has no scales of operands: leave scale_a and scale_b out")
        return fp32("alpha", desc.alpha) if desc.scaled else None
    if scale_a is None or scale_b is None:
        raise DescriptorError("this descriptor scales its operands: give scale_a and scale_b")
    return operation("mul.rn.fp32").evaluate(fp32("scale_a", scale_a), fp32("scale_b", scale_b))


def _blocks(desc: GEMMDesc, m: int, n: int, count: int) -> Iterator[tuple[slice, slice]]:
    """Yield rows and columns whose elements share the order of iterations, few enough for ELEMENTS accumulators."""
    rotation = desc.iteration_rotation
    height = rotation.tile if rotation is not None and rotation.axis == "rows" else m
    width = rotation.tile if rotation is not None and rotation.axis == "columns" else n
    columns = max(1, min(n, ELEMENTS // count))
    rows = max(1, ELEMENTS // (count * columns))
    for row in _ranges(m, rows, height):
        for column in _ranges(n, columns, width):
            yield row, column


def _ranges(length: int, size: int, tile: int) -> Iterator[slice]:
    """Yield slices of at most `size` that cross no multiple of `tile`."""
    low = 0
    while low < length:
        high = min(low + size, length, (low // tile + 1) * tile)
        yield slice(low, high)
        low = high


def _accumulators(
    desc: GEMMDesc, unit: MmaSpec | None, axis: Part, a: Bits, b: Bits, tile: int, start: Bits | None
) -> list[Bits]:
    """Return the accumulators of all innermost parts, in order; parts with equally many instructions run together."""
    loops = [instructions(desc, part, tile) for part in innermost_parts(axis)]
    found: list[Bits | None] = [None] * len(loops)
    by_length: dict[int, list[int]] = defaultdict(list)
    for place, steps in enumerate(loops):
        by_length[len(steps)].append(place)
    shape = a.shape[0], b.shape[1]
    for length, places in by_length.items():
        begin = zeros(desc.accumulator_dtype, (len(places), *shape))
        minus = FLOAT_FORMATS[desc.accumulator_dtype].negative_zero
        if desc.accumulator_start == "negative-zero" and minus is not None:
            begin |= begin.dtype.type(minus)
        if start is not None:
            begin = begin | start
        if length:
            taken = np.stack([loops[place].reshape(-1) for place in places])
            begin = _accumulate(desc, unit, _taken(a, taken, 1), _taken(b, taken, 0), begin)
        for place, value in zip(places, begin, strict=True):
            found[place] = value
    return [each for each in found if each is not None]


def _taken(operand: Bits, positions: npt.NDArray[np.int64], axis: int) -> Bits:
    """Return the left operand as (parts, m, k) or the right one as (parts, k, n), in loop order, with +0 for FILL."""
    chosen = np.moveaxis(np.take(operand, positions, axis=axis), 1, 0) if axis else operand[positions]
    if (positions == FILL).any():
        filled = positions[:, None, :] == FILL if axis else positions[:, :, None] == FILL
        chosen = np.where(filled, operand.dtype.type(0), chosen)
    return chosen


def _accumulate(desc: GEMMDesc, unit: MmaSpec | None, a: Bits, b: Bits, total: Bits) -> Bits:
    """Return the accumulators (parts, m, n) after the loop over k, for a (parts, m, k) and b (parts, k, n)."""
    dtype = desc.accumulator_dtype
    types = desc.factor_dtypes
    left, right = convert(a, desc.left_dtype, types[0]), convert(b, desc.right_dtype, types[1])
    if unit is not None:
        if desc.use_fast_accum:
            return multiply_accumulate(unit, left, right, total)
        begin = np.zeros_like(total)
        for low in range(0, a.shape[2], unit.k):
            result = multiply_accumulate(unit, left[:, :, low : low + unit.k], right[:, low : low + unit.k], begin)
            total = add(total, dtype, result, dtype, dtype)
        return total
    if desc.path == "fma" and dtype == "fp32" and chains_in_c.available():
        return chains_in_c.multiply_adds(left, right, total)
    fused, product, plus = (operation(f"{verb}.rn.{dtype}") for verb in ("fma", "mul", "add"))
    for k in range(a.shape[2]):
        factors = left[:, :, k, None], right[:, k, None]
        if desc.path == "fma":
            total = fused.evaluate(*factors, total)
        else:
            total = plus.evaluate(total, product.evaluate(*factors))
    return total


def _merged(desc: GEMMDesc, axis: Part, values: list[Bits]) -> tuple[str, Bits]:
    """Return the type and value of the whole axis, for the accumulators of its innermost parts, in order."""
    dtype = desc.accumulator_dtype if axis.cut is None else axis.cut.merge_dtype
    return dtype, _merged_parts(desc, [axis], np.stack(values), dtype)[0]


def _merged_parts(desc: GEMMDesc, parts: Sequence[Part], values: Bits, target: str) -> Bits:
    """Return the values of parts of one level in a type; parts with equally many parts of their own run together.

    `values` are the accumulators of all their innermost parts, in order.
    """
    result = np.empty((len(parts), *values.shape[1:]), dtype=storage(FLOAT_FORMATS[target].bits))
    sizes = [sum(1 for _ in innermost_parts(each)) for each in parts]
    starts = np.cumsum([0, *sizes])
    groups: dict[int, list[int]] = defaultdict(list)
    for place, each in enumerate(parts):
        groups[len(each.parts)].append(place)
    for count, places in groups.items():
        cut = parts[places[0]].cut
        chosen = np.concatenate([np.arange(starts[place], starts[place + 1]) for place in places])
        if cut is None:
            result[places] = convert(values[chosen], desc.accumulator_dtype, target)
            continue
        children = [child for place in places for child in parts[place].parts]
        partial = _merged_parts(desc, children, values[chosen], cut.partial_dtype)
        partial = partial.reshape(len(places), count, *values.shape[1:])
        found = [(cut.partial_dtype, partial[:, index]) for index in range(count)]
        zero = cut.partial_dtype, zeros(cut.partial_dtype, found[0][1].shape)
        dtype, value = cut.merge_steps(count).run(found, zero, _plus(cut))
        result[places] = convert(convert(value, dtype, cut.merge_dtype), cut.merge_dtype, target)
    return result


def _plus(cut: Cut) -> Callable[[tuple[str, Bits], tuple[str, Bits]], tuple[str, Bits]]:
    """Return the addition of two parts of a cut, each a type and a value, in the type of its merge."""

    def plus(left: tuple[str, Bits], right: tuple[str, Bits]) -> tuple[str, Bits]:
        total = convert(left[1], left[0], cut.merge_dtype)
        return cut.merge_dtype, add(total, cut.merge_dtype, right[1], right[0], cut.merge_dtype)

    return plus


def _stored(desc: GEMMDesc, dtype: str, value: Bits, scale: Bits | None) -> Bits:
    if scale is not None:
        value = operation("mul.rn.fp32").evaluate(convert(value, dtype, "fp32"), scale)
        dtype = "fp32"
    if desc.output_nan_for_infinity:
        value = operation(f"add.rn.{dtype}").evaluate(value, _zero_or_nan(dtype, value))
    return convert(value, dtype, desc.output_dtype, desc.output_satfinite)


def _zero_or_nan(dtype: str, value: Bits) -> Bits:
    """Return -0, which changes no number when it is added, for a finite number, and a NaN for any other value."""
    return operation(f"neg.{dtype}").evaluate(operation(f"sub.rn.{dtype}").evaluate(value, value))
