"""Triton builtins that implement the functions for kernels; they run while a kernel is compiled.

The bodies of builtins are not part of a compiled kernel's cache key. `FINGERPRINT`, a hash of this module and of those
it uses, is therefore a global value of every function for kernels.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-untyped-call"

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import triton.language as tl

from bitwise_triton.reductions import order as orders
from bitwise_triton.reductions.kernels.arithmetic import constant, unwrap_constexpr
from bitwise_triton.reductions.kernels.placeholder_ops import can_defer, placeholder_op
from bitwise_triton.reductions.kernels.steps import apply_steps, combine_function, shape_of, split_axis
from bitwise_triton.reductions.placeholder import Placeholder

_SOURCES = ("order.py", "placeholder.py", "kernels/arithmetic.py", "kernels/steps.py", "kernels/placeholder_ops.py")
FINGERPRINT = tl.constexpr(
    hashlib.sha256(
        b"".join(path.read_bytes() for path in (Path(__file__), *(Path(orders.__file__).parent / n for n in _SOURCES)))
    ).hexdigest()
)

# Functions of this package whose combine has a kind, by their name.
_NAMED = {"add_rounded": "rounded", "mul_rounded": "product"}


@tl.core.builtin
def fill_padding(values, axis, extent, neutral, _semantic=None):
    """A tuple of tensors with the elements from `extent` on along `axis` replaced by those of the tuple `neutral`."""
    values, neutral = _tuple(values), _tuple(neutral)
    if unwrap_constexpr(extent) is None:
        return tl.tuple(values)
    at = _axis(axis, values[0], _semantic)
    shape = shape_of(values[0])
    index = tl.arange(0, shape[at], _semantic=_semantic)
    index = tl.reshape(index, [n if i == at else 1 for i, n in enumerate(shape)], _semantic=_semantic)
    inside = index.__lt__(_semantic.to_tensor(extent), _semantic=_semantic)
    filled = []
    for value, number in zip(values, neutral, strict=True):
        fill = constant(number, value.dtype, _semantic=_semantic)
        filled.append(tl.where(inside, value, fill, _semantic=_semantic))
    return tl.tuple(filled)


@tl.core.builtin
def fold(values, axis, text, combine, _semantic=None, _generator=None):
    """A tuple of tensors reduced along `axis` in the order `text` by `combine`, a jit function or a kind's name."""
    values = _tuple(values)
    at = _axis(axis, values[0], _semantic)
    order = _order(text, values[0], at)
    return tl.tuple(_ended(values, at, order, order.steps(shape_of(values[0])[at]), combine, _semantic, _generator))


@tl.core.builtin
def fold_into(totals, values, axis, text, combine, _semantic=None, _generator=None):
    """`totals` after the tile `values` of an axis that is read tile by tile in the order `text`."""
    values, totals = _tuple(values), _tuple(totals)
    at = _axis(axis, values[0], _semantic)
    order = orders.Order(unwrap_constexpr(text))
    early, chunk = order.chunking()
    extent = shape_of(values[0])[at]
    if extent < chunk:
        raise ValueError(
            f"The order {order.text!r} has chunks of {chunk} and the tile has {extent} elements along axis {at}; use "
            f"tiles of {chunk} or more."
        )
    steps = order.steps(extent)[:early]
    combine = _combine(combine, _semantic, _generator)
    values = apply_steps(values, at, steps, combine, _semantic, _generator)
    shape = shape_of(values[0])
    length = shape_of(totals[0])[at]
    kept = chunk >> early
    if length != kept:
        raise ValueError(
            f"The totals of the order {order.text!r} have {kept} elements along axis {at}, not {length}; make them "
            f"with negative_zeros([..., {kept}, ...], ...)."
        )
    for piece in split_axis(values, at, shape[at] // kept, kept, _semantic, _generator):
        totals = combine(early, totals, piece)
    return tl.tuple(totals)


@tl.core.builtin
def fold_end(totals, axis, text, combine, _semantic=None, _generator=None):
    """The result of totals from `fold_into`: the steps after the chain."""
    totals = _tuple(totals)
    at = _axis(axis, totals[0], _semantic)
    order = orders.Order(unwrap_constexpr(text))
    early, chunk = order.chunking()
    return tl.tuple(_ended(totals, at, order, order.steps(chunk)[early:], combine, _semantic, _generator))


@tl.core.builtin
def fold_welford(x, axis, text, _semantic=None, _generator=None):
    """Sum and sum of squared deviations of `x`, a tensor of float32, along `axis` in the order `text`, a tree.

    Both sides of a step have the same number of elements, a known power of two.
    """
    at = _axis(axis, x, _semantic)
    order = _order(text, x, at)
    steps = order.steps(shape_of(x)[at])
    if not all(isinstance(step, orders.Pair) for step in steps):
        raise ValueError(f"The order {order.text!r} has a chain; tree_welford takes a tree.")

    values = [x, x] if steps else [x, tl.full(shape_of(x), 0.0, tl.float32, _semantic=_semantic)]
    return tl.tuple(_ended(values, at, order, steps, "welford", _semantic, _generator))


def _combine(function, semantic, generator):
    """The combine function of a step by its number: of a kind's name, or of a jit function."""
    function = unwrap_constexpr(function)
    if isinstance(function, str):
        return combine_function(function, semantic)

    def combine(number, left, right):
        found = generator.call_JitFunction(function, [*left, *right], kwargs={})
        return [found] if isinstance(found, tl.tensor) else list(found)

    return combine


def _ended(values, at, order, steps, function, semantic, generator):
    """The values after `steps`, which end axis `at`, or a placeholder for that."""
    kind = _kind(unwrap_constexpr(function))
    if can_defer(kind, steps):
        return placeholder_op(values, Placeholder(kind, at, tuple(steps), order.text), semantic)
    return apply_steps(
        values, at, steps, _combine(kind or function, semantic, generator), semantic, generator, ends=True
    )


def _kind(function):
    """The name of a kind, or the kind that a jit function of this package implements; None for other functions."""
    if isinstance(function, str):
        return function
    own: Any = getattr(function, "fn", None)
    return _NAMED.get(own.__name__) if getattr(own, "__module__", "") == f"{__package__}.functions" else None


def _order(text: Any, value: Any, at: int) -> orders.Order:
    shape, size = shape_of(value), value.type.scalar.primitive_bitwidth // 8
    return orders.Order(unwrap_constexpr(text)).resolved(shape[at], size, last=at == len(shape) - 1)


def _tuple(values: Any) -> list[Any]:
    values = unwrap_constexpr(values)
    return list(values) if isinstance(values, (tuple, list, tl.tuple)) else [values]


def _axis(axis: Any, value: Any, semantic: Any) -> int:
    at, rank, blocks = int(unwrap_constexpr(axis)), len(value.shape), semantic.builder.options.num_ctas
    if blocks > 1:
        raise ValueError(f"A pinned reduction runs inside one block, not in {blocks}; compile with num_ctas=1.")
    if not -rank <= at < rank:
        raise ValueError(f"Axis {at} of a pinned reduction is not one of the {rank} axes of its operand.")
    return at % rank
