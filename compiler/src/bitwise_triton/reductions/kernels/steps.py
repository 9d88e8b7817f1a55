"""The steps of an order as operations of Triton IR.

A step over one bit is a reduction over an axis of two elements, which has a unique result in every layout.
`apply_steps` emits them while a kernel is traced, and when a placeholder is lowered.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-untyped-call"

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import triton.language as tl

from bitwise_triton.reductions import order as orders
from bitwise_triton.reductions.kernels.arithmetic import absolute_difference, rounded, unwrap_constexpr

# Combines the values of the left and of the right side of a step, given its number.
Combine: TypeAlias = Callable[[int, list[Any], list[Any]], list[Any]]

# Kinds of `combine_function`. In the first step of "sum" and "welford" the operands may be products, so that step is
# rounded explicitly.
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
        # Rounding to float32 first does not change the result: float32 has more than twice the digits.
        a, b = (side[0].to(tl.float32, _semantic=semantic) for side in (left, right))
        return [rounded(name, a, b, _semantic=semantic).to(tl.bfloat16, _semantic=semantic)]

    return combine


def _welford(number: int, left: list[Any], right: list[Any], semantic: Any) -> list[Any]:
    """Combine two sets of 2**number elements, each as its sum and its sum of squared deviations from the mean.

    The term d * d / (2 * 2**number) of the difference d of the sums takes an exact product and a fused multiply-add.
    """
    half = tl.tensor(semantic.builder.get_fp32(0.5 / (1 << number)), tl.float32)
    if number == 0:
        # The operands of the first step may be products, which must not be contracted with these operations.
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
    """`values` after `steps` along axis `at`, which is removed if `ends`. `first` is the number of the first step."""
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
    """A function that fills the region of the two-element reduction of step `number`."""
    return combine_region(values, lambda left, right: combine(number, left, right), semantic)


def emit_reduce(values: Sequence[Any], axis: int, region: Callable[[Any], None], semantic: Any) -> list[Any]:
    """The values reduced over an axis by a region. They are verified with the kernel, which takes less time."""
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
    """A function that fills the region of a reduction of `values` with `combine`, of the values of either side."""

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
    """The values in another shape; scalars if it has no axis."""
    if shape == shape_of(values[0]):
        return values
    if not shape:
        return [semantic.unsplat(value) for value in values]
    if not shape_of(values[0]):
        values = [semantic.splat(value, [1]) for value in values]
    return [tl.reshape(value, shape, _semantic=semantic) for value in values]


def split_axis(values: list[Any], at: int, count: int, low: int, semantic: Any, generator: Any) -> list[list[Any]]:
    """`values` split along axis `at`, whose index is (high, count, low), into `count` parts of index (high, low)."""
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
