"""What the functions for kernels are built of: Triton builtins that run while a kernel is compiled.

A step over one bit is a reduction over an axis of two elements, which has one possible result whatever the layout.
The bodies of builtins are no part of a compiled kernel's cache key, so `FINGERPRINT`, a hash of this module and of
the orders, is a global value of every function for kernels.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-untyped-call"

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import triton.language as tl

from bitwise_triton.reductions import order as orders

FINGERPRINT = tl.constexpr(hashlib.sha256(Path(__file__).read_bytes() + Path(orders.__file__).read_bytes()).hexdigest())

_FLOATS = {"fp16": ("f16", "h"), "fp32": ("f32", "r"), "fp64": ("f64", "d")}


def plain(value: Any) -> Any:
    """A value without Triton's wrapping of constants."""
    return value.value if isinstance(value, tl.constexpr) else value


@tl.core.builtin
def rounded(name, a, b, _semantic=None, _generator=None):
    """`a + b` or `a * b` (name "add" or "mul"), rounded once; nothing may contract it with another operation."""
    name, a, b = plain(name), _semantic.to_tensor(a), _semantic.to_tensor(b)
    scalar = a.type.scalar
    if not scalar.is_floating():
        return a.__add__(b, _semantic=_semantic) if name == "add" else a.__mul__(b, _semantic=_semantic)
    if scalar.name not in _FLOATS:
        raise ValueError(f"A pinned {name} takes fp16, fp32 or fp64, not {scalar.name}; convert the operands first.")
    kind, register = _FLOATS[scalar.name]
    if _semantic.builder.options.backend_name == "hip":
        text, constraint = f"v_{name}_{kind} $0, $1, $2", "v"
    else:
        text, constraint = f"{name}.rn.{kind} $0, $1, $2;", register
    constraints = ",".join([f"={constraint}", constraint, constraint])
    return tl.inline_asm_elementwise(text, constraints, [a, b], scalar, True, 1, _semantic=_semantic)


@tl.core.builtin
def distance(a, b, _semantic=None, _generator=None):
    """The greater of two less the smaller, NaN for NaN: one operation whichever side is `a`."""
    nan = tl.PropagateNan.ALL
    greater = tl.maximum(a, b, propagate_nan=nan, _semantic=_semantic)
    smaller = tl.minimum(a, b, propagate_nan=nan, _semantic=_semantic)
    return greater.__sub__(smaller, _semantic=_semantic)


@tl.core.builtin
def constant(value, dtype, _semantic=None):
    """A scalar constant with its sign: Triton's own constants turn -0.0 into 0.0."""
    value, dtype = plain(value), plain(dtype)
    if value != 0 or math.copysign(1, value) > 0 or not dtype.is_floating():
        return _semantic.scalar_constant(value, dtype)
    single = tl.tensor(_semantic.builder.get_fp32(-0.0), tl.float32)
    return single.to(dtype, _semantic=_semantic)


@tl.core.builtin
def opaque(x, _semantic=None, _generator=None):
    """`x`, of 32-bit integers, by a move that hides from the compiler which numbers they are."""
    x = _semantic.to_tensor(x)
    hip = _semantic.builder.options.backend_name == "hip"
    text, constraints = ("v_mov_b32 $0, $1", "=v,v") if hip else ("mov.b32 $0, $1;", "=r,r")
    return tl.inline_asm_elementwise(text, constraints, [x], x.type.scalar, True, 1, _semantic=_semantic)


@tl.core.builtin
def checked(x, what, _semantic=None):
    """`x` as it is added: bfloat16 as float32, and small integers as 32 bits, as `tl.sum` does."""
    scalar = x.type.scalar
    if scalar.is_bf16():
        return x.to(tl.float32, _semantic=_semantic)
    if scalar.is_int() and scalar.int_bitwidth < 32:
        return x.to(tl.int32 if scalar.is_int_signed() else tl.uint32, _semantic=_semantic)
    if scalar.is_floating() and scalar.name not in _FLOATS:
        raise ValueError(f"{plain(what)} takes fp16, bf16, fp32 or fp64, not {scalar.name}; convert the operand first.")
    return x


@tl.core.builtin
def fill_beyond(values, axis, extent, neutral, _semantic=None):
    """A tuple of tensors with the elements from `extent` on along `axis` replaced by those of the tuple `neutral`."""
    values, neutral = _tuple(values), _tuple(neutral)
    if plain(extent) is None:
        return tl.tuple(values)
    at = _axis(axis, values[0])
    shape = _shape(values[0])
    index = tl.arange(0, shape[at], _semantic=_semantic)
    index = tl.reshape(index, [n if i == at else 1 for i, n in enumerate(shape)], _semantic=_semantic)
    inside = index.__lt__(_semantic.to_tensor(extent), _semantic=_semantic)
    filled = []
    for value, number in zip(values, neutral, strict=True):
        fill = constant(number, value.dtype, _semantic=_semantic)
        filled.append(tl.where(inside, value, fill, _semantic=_semantic))
    return tl.tuple(filled)


@tl.core.builtin
def fold(values, axis, text, first, later, _semantic=None, _generator=None):
    """A tuple of tensors reduced along `axis` in the order `text`: step one by `first`, the others by `later`.

    Either is a jit function, or "add" (rounded and contracted with nothing) or "+", for which no function is called.
    """
    values = _tuple(values)
    at = _axis(axis, values[0])
    steps = orders.Order(plain(text)).steps(_shape(values[0])[at])
    combine = _combine(plain(first), plain(later), _semantic, _generator)
    return tl.tuple(_run(values, at, steps, combine, _semantic, _generator, ends=True))


@tl.core.builtin
def fold_into(totals, values, axis, text, first, later, _semantic=None, _generator=None):
    """`totals` after the tile `values` of an axis that is read tile by tile in the order `text`."""
    values, totals = _tuple(values), _tuple(totals)
    at = _axis(axis, values[0])
    order = orders.Order(plain(text))
    early, chunk = order.chunked()
    extent = _shape(values[0])[at]
    if extent < chunk:
        raise ValueError(
            f"The order {order.text!r} has chunks of {chunk} and the tile has {extent} elements along axis {at}; use "
            f"tiles of {chunk} or more."
        )
    steps = order.steps(extent)[:early]
    combine = _combine(plain(first), plain(later), _semantic, _generator)
    values = _run(values, at, steps, combine, _semantic, _generator)
    shape = _shape(values[0])
    length = _shape(totals[0])[at]
    kept = chunk >> early
    if length != kept:
        raise ValueError(
            f"The totals of the order {order.text!r} have {kept} elements along axis {at}, not {length}; make them "
            f"with negative_zeros([..., {kept}, ...], ...)."
        )
    for piece in _pieces(values, at, shape[at] // kept, kept, _semantic, _generator):
        totals = combine(early, totals, piece)
    return tl.tuple(totals)


@tl.core.builtin
def fold_end(totals, axis, text, combine, _semantic=None, _generator=None):
    """The result of totals that `fold_into` made: the steps that come after the chain."""
    totals = _tuple(totals)
    at = _axis(axis, totals[0])
    order = orders.Order(plain(text))
    early, chunk = order.chunked()
    steps = order.steps(chunk)[early:]
    each = _combine(plain(combine), plain(combine), _semantic, _generator)
    return tl.tuple(_run(totals, at, steps, each, _semantic, _generator, ends=True))


@tl.core.builtin
def fold_welford(x, axis, text, _semantic=None, _generator=None):
    """Sum and sum of squared deviations of `x`, a tensor of float32, along `axis` in the order `text`, a tree.

    Both sides of a step have the same number n of elements, a power of two known here, so that the term of the two
    sums' difference d, d * d / (2 * n), takes one product that is exact and one fused addition.
    """
    at = _axis(axis, x)
    steps = orders.Order(plain(text)).steps(_shape(x)[at])
    if not all(isinstance(step, orders.Pair) for step in steps):
        raise ValueError(f"The order {plain(text)!r} has a chain; tree_welford takes a tree.")

    def combine(number, left, right):
        half = tl.tensor(_semantic.builder.get_fp32(0.5 / (1 << number)), tl.float32)
        if number == 0:
            # What a step begins with may be a product, which nothing may contract with these operations.
            apart = distance(left[1], right[1], _semantic=_semantic)
            scaled = rounded("mul", apart, half, _semantic=_semantic)
            squares = rounded("mul", scaled, apart, _semantic=_semantic)
            return [rounded("add", left[0], right[0], _semantic=_semantic), squares]
        apart = distance(left[0], right[0], _semantic=_semantic)
        scaled = apart.__mul__(half, _semantic=_semantic)
        both = left[1].__add__(right[1], _semantic=_semantic)
        squares = tl.math.fma(scaled, apart, both, _semantic=_semantic)
        return [left[0].__add__(right[0], _semantic=_semantic), squares]

    values = [x, x] if steps else [x, tl.full(_shape(x), 0.0, tl.float32, _semantic=_semantic)]
    return tl.tuple(_run(values, at, steps, combine, _semantic, _generator, ends=True))


def _combine(first, later, semantic, generator):
    """What a step with a number does with the values of its left side and of its right side."""

    def combine(number, left, right):
        function = later if number else first
        if function == "add":
            return [rounded("add", left[0], right[0], _semantic=semantic)]
        if function == "+":
            return [left[0].__add__(right[0], _semantic=semantic)]
        found = generator.call_JitFunction(function, [*left, *right], kwargs={})
        return [found] if isinstance(found, tl.tensor) else list(found)

    return combine


def _run(values, at, steps, combine, semantic, generator, ends=False):
    """`values` after `steps` along axis `at`, which has gone where `ends`."""
    shape = _shape(values[0])
    length = shape[at]
    for number, part in orders.groups(steps):
        before, after = shape[:at], shape[at + 1 :]
        if number + len(part) < len(steps):
            before, after = orders.joined(before), orders.joined(after)
        if isinstance(part[0], orders.Chain):
            step = part[0]
            values = _reshaped(values, [*before, length, *after], semantic)
            pieces = _pieces(values, len(before), 1 << step.bits, 1 << step.position, semantic, generator)
            values = pieces[0]
            for piece in pieces[1:]:
                values = combine(number, values, piece)
            length >>= step.bits
            continue
        extents, places = orders.axes(part, length)
        values = _reshaped(values, [*before, *extents, *after], semantic)
        for later, place in enumerate(places):
            values = _paired(values, len(before) + place, number + later, combine, semantic)
        length >>= len(part)
    rest = [*shape[:at], *([] if ends else [length]), *shape[at + 1 :]]
    return _reshaped(values, rest, semantic)


def _paired(values, axis, number, combine, semantic):
    """The step `number` over `axis`, which has two elements, as one reduction."""

    def region(reduction):
        builder = semantic.builder
        types = [value.type.scalar for value in values] * 2
        with tl.core._insertion_guard(builder):
            block = builder.create_block_with_parent(reduction.get_region(0), [type.to_ir(builder) for type in types])
            sides = [tl.tensor(block.arg(place), type) for place, type in enumerate(types)]
            results = combine(number, sides[: len(values)], sides[len(values) :])
            builder.create_reduce_ret(*[result.handle for result in results])

    return list(semantic.reduction(tuple(values), axis, region))


def _reshaped(values, shape, semantic):
    """The values in another shape; without any axis they are scalars."""
    if shape == _shape(values[0]):
        return values
    if not shape:
        return [semantic.unsplat(value) for value in values]
    if not _shape(values[0]):
        values = [semantic.splat(value, [1]) for value in values]
    return [tl.reshape(value, shape, _semantic=semantic) for value in values]


def _pieces(values, at, count, low, semantic, generator):
    """`values` cut along axis `at`, whose index is (high, count, low), into `count` pieces of index (high, low)."""
    shape = _shape(values[0])
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
    return [piece for half in halves for piece in _pieces(half, at, count // 2, low, semantic, generator)]


def _tuple(values: Any) -> list[Any]:
    values = plain(values)
    return list(values) if isinstance(values, (tuple, list, tl.tuple)) else [values]


def _shape(value: Any) -> list[int]:
    return [int(plain(extent)) for extent in value.shape]


def _axis(axis: Any, value: Any) -> int:
    at, rank = int(plain(axis)), len(value.shape)
    if not -rank <= at < rank:
        raise ValueError(f"Axis {at} of a pinned reduction is not one of the {rank} axes of its operand.")
    return at % rank
