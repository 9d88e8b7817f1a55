"""The steps of an order over tensors, as operations of Triton's IR.

A step over one bit is a reduction over an axis of two elements, which has one possible result whatever the layout.
`run` makes them while a kernel's source is read, and again when a marked reduction is given its place.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-untyped-call"

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import triton.language as tl

from bitwise_triton.reductions import order as orders
from bitwise_triton.reductions.kernels.arithmetic import absolute_difference, rounded, unwrap_constexpr

# What a step, by its number, makes of the values of its left side and of its right side.
Combine: TypeAlias = Callable[[int, list[Any], list[Any]], list[Any]]

# What `combiner` knows by name; "sum" and "welford" round their first step's operands, which may be products, alone.
KINDS = ("sum", "totals", "rounded", "product", "welford")


def combine_function(kind: str, semantic: Any) -> Combine:
    """The combine of a kind: a sum, a sum of sums ("totals"), a sum or product of rounded steps, or "welford"."""
    if kind == "welford":
        return lambda number, left, right: _welford(number, left, right, semantic)

    def combine(number: int, left: list[Any], right: list[Any]) -> list[Any]:
        if kind == "totals" or (kind == "sum" and number):
            return [left[0].__add__(right[0], _semantic=semantic)]
        name = "mul" if kind == "product" else "add"
        if not left[0].type.scalar.is_bf16():
            return [rounded(name, left[0], right[0], _semantic=semantic)]
        # Rounded to float32 and again, which is the same: float32 has more than twice as many digits.
        a, b = (side[0].to(tl.float32, _semantic=semantic) for side in (left, right))
        return [rounded(name, a, b, _semantic=semantic).to(tl.bfloat16, _semantic=semantic)]

    return combine


def _welford(number: int, left: list[Any], right: list[Any], semantic: Any) -> list[Any]:
    """Joins two sets of 2**number elements, each as its sum and its sum of squared deviations from the mean.

    The term of the two sums' difference d, d * d / (2 * 2**number), takes a product that is exact and a fused addition.
    """
    half = tl.tensor(semantic.builder.get_fp32(0.5 / (1 << number)), tl.float32)
    if number == 0:
        # What a step begins with may be a product, which nothing may contract with these operations.
        apart = absolute_difference(left[1], right[1], _semantic=semantic)
        scaled = rounded("mul", apart, half, _semantic=semantic)
        squares = rounded("mul", scaled, apart, _semantic=semantic)
        return [rounded("add", left[0], right[0], _semantic=semantic), squares]
    apart = absolute_difference(left[0], right[0], _semantic=semantic)
    scaled = apart.__mul__(half, _semantic=semantic)
    both = left[1].__add__(right[1], _semantic=semantic)
    squares = tl.math.fma(scaled, apart, both, _semantic=semantic)
    return [left[0].__add__(right[0], _semantic=semantic), squares]


def apply_steps(
    values: Sequence[Any],
    at: int,
    steps: Sequence[orders.Step],
    combine: Combine,
    semantic: Any,
    generator: Any = None,
    *,
    ends: bool = False,
    first: int = 0,
) -> list[Any]:
    """`values` after `steps` along axis `at`, which has gone where `ends`; `first` is the first step's number."""
    values = list(values)
    shape = shape_of(values[0])
    length = shape[at]
    for number, part in orders.reshape_groups(steps):
        before, after = shape[:at], shape[at + 1 :]
        if number + len(part) < len(steps):
            before, after = orders.merged_extents(before), orders.merged_extents(after)
        if isinstance(part[0], orders.Chain):
            step = part[0]
            values = reshape_all(values, [*before, length, *after], semantic)
            cut = split_axis(values, len(before), 1 << step.bits, 1 << step.position, semantic, generator)
            values = cut[0]
            for piece in cut[1:]:
                values = combine(first + number, values, piece)
            length >>= step.bits
            continue
        extents, places = orders.split_extents(part, length)
        values = reshape_all(values, [*before, *extents, *after], semantic)
        for later, place in enumerate(places):
            region = _pair(values, first + number + later, combine, semantic)
            values = emit_reduce(values, len(before) + place, region, semantic)
        length >>= len(part)
    rest = [*shape[:at], *([] if ends else [length]), *shape[at + 1 :]]
    return reshape_all(values, rest, semantic)


def _pair(values: Sequence[Any], number: int, combine: Combine, semantic: Any) -> Callable[[Any], None]:
    """What fills the region of the reduction over two elements that is step `number`."""
    return combine_region(values, lambda left, right: combine(number, left, right), semantic)


def emit_reduce(values: Sequence[Any], axis: int, region: Callable[[Any], None], semantic: Any) -> list[Any]:
    """The values reduced over an axis by a region; they are verified with the kernel, which takes less time."""
    operation = semantic.builder.create_reduce([value.handle for value in values], axis)
    region(operation)
    shape = [extent for place, extent in enumerate(shape_of(values[0])) if place != axis]
    return [
        semantic.wrap_tensor(operation.get_result(number), value.type.scalar, shape)
        for number, value in enumerate(values)
    ]


def combine_region(
    values: Sequence[Any], combine: Callable[[list[Any], list[Any]], list[Any]], semantic: Any
) -> Callable[[Any], None]:
    """What fills the region of a reduction of `values` with `combine`, of the values of one side and of the other."""

    def region(reduction: Any) -> None:
        builder = semantic.builder
        types = [value.type.scalar for value in values] * 2
        with tl.core._insertion_guard(builder):
            block = builder.create_block_with_parent(reduction.get_region(0), [type.to_ir(builder) for type in types])
            sides = [tl.tensor(block.arg(place), type) for place, type in enumerate(types)]
            results = combine(sides[: len(values)], sides[len(values) :])
            builder.create_reduce_ret(*[result.handle for result in results])

    return region


def reshape_all(values: list[Any], shape: list[int], semantic: Any) -> list[Any]:
    """The values in another shape; without any axis they are scalars."""
    if shape == shape_of(values[0]):
        return values
    if not shape:
        return [semantic.unsplat(value) for value in values]
    if not shape_of(values[0]):
        values = [semantic.splat(value, [1]) for value in values]
    return [tl.reshape(value, shape, _semantic=semantic) for value in values]


def split_axis(values: list[Any], at: int, count: int, low: int, semantic: Any, generator: Any) -> list[list[Any]]:
    """`values` cut along axis `at`, whose index is (high, count, low), into `count` pieces of index (high, low)."""
    shape = shape_of(values[0])
    high = shape[at] // (count * low)
    if count == 1:
        return [values]
    halves: list[list[Any]] = [[], []]
    rank = len(shape) + 3
    last = [axis for axis in range(rank) if axis != at + 1] + [at + 1]
    for value in values:
        cut = tl.reshape(value, [*shape[:at], high, 2, count // 2, low, *shape[at + 1 :]], _semantic=semantic)
        cut = tl.permute(cut, last, _semantic=semantic)
        for half, side in zip(halves, tl.split(cut, _semantic=semantic, _generator=generator), strict=True):
            half.append(tl.reshape(side, [*shape[:at], shape[at] // 2, *shape[at + 1 :]], _semantic=semantic))
    return [piece for half in halves for piece in split_axis(half, at, count // 2, low, semantic, generator)]


def shape_of(value: Any) -> list[int]:
    """The extents of a tensor."""
    return [int(unwrap_constexpr(extent)) for extent in value.shape]
