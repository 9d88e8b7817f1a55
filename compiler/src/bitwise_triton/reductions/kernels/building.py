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
    """A tuple of tensors reduced along `axis` in the order `text`: step one by `first`, the others by `later`."""
    values = _tuple(values)
    at = _axis(axis, values[0])
    steps = orders.Order(plain(text)).steps(_shape(values[0])[at])
    values = _run(values, at, steps, plain(first), plain(later), _semantic, _generator)
    return tl.tuple(_without(values, at, _semantic))


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
    values = _run(values, at, steps, plain(first), plain(later), _semantic, _generator)
    shape = _shape(values[0])
    length = _shape(totals[0])[at]
    kept = chunk >> early
    if length != kept:
        raise ValueError(
            f"The totals of the order {order.text!r} have {kept} elements along axis {at}, not {length}; make them "
            f"with negative_zeros([..., {kept}, ...], ...)."
        )
    combine = plain(later) if early else plain(first)
    for piece in _pieces(values, at, shape[at] // kept, kept, _semantic, _generator):
        totals = _call(combine, totals, piece, _generator)
    return tl.tuple(totals)


@tl.core.builtin
def fold_end(totals, axis, text, combine, _semantic=None, _generator=None):
    """The result of totals that `fold_into` made: the steps that come after the chain."""
    totals = _tuple(totals)
    at = _axis(axis, totals[0])
    order = orders.Order(plain(text))
    early, chunk = order.chunked()
    steps = order.steps(chunk)[early:]
    totals = _run(totals, at, steps, plain(combine), plain(combine), _semantic, _generator)
    return tl.tuple(_without(totals, at, _semantic))


def _run(values, at, steps, first, later, semantic, generator):
    for number, step in enumerate(steps):
        combine = later if number else first
        shape = _shape(values[0])
        low = 1 << step.position
        if isinstance(step, orders.Chain):
            values = _chain(values, at, 1 << step.bits, low, combine, semantic, generator)
            continue
        split = [*shape[:at], shape[at] // (2 * low), 2, low, *shape[at + 1 :]]
        joined = [*shape[:at], shape[at] // 2, *shape[at + 1 :]]
        values = [tl.reshape(value, split, _semantic=semantic) for value in values]
        values = tl.reduce(tuple(values), at + 1, combine, _semantic=semantic, _generator=generator)
        values = [tl.reshape(value, joined, _semantic=semantic) for value in values]
    return values


def _chain(values, at, count, low, combine, semantic, generator):
    total = None
    for piece in _pieces(values, at, count, low, semantic, generator):
        total = piece if total is None else _call(combine, total, piece, generator)
    return total


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


def _call(combine, left, right, generator):
    found = generator.call_JitFunction(combine, [*left, *right], kwargs={})
    return [found] if isinstance(found, tl.tensor) else list(found)


def _without(values, at, semantic):
    """The values without axis `at`, which has one element."""
    shape = _shape(values[0])
    rest = [*shape[:at], *shape[at + 1 :]]
    if rest:
        return [tl.reshape(value, rest, _semantic=semantic) for value in values]
    return [semantic.unsplat(value) for value in values]


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
