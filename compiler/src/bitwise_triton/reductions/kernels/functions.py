"""Pinned reductions for use in any `@triton.jit` kernel. Importing this module imports Triton.

    @triton.jit
    def row_sum(x, y, columns, BLOCK: tl.constexpr):
        row, column = tl.program_id(0), tl.arange(0, BLOCK)
        value = tl.load(x + row * columns + column, mask=column < columns, other=negative_zero())
        tl.store(y + row, tree_sum(value, 0, "inner_tree"))  # the same bits for any BLOCK, warps and layout

Every function has one result for one `order` (see `bitwise_triton.reductions.order`), whatever the layout, the number
of warps, the tile or the vendor: a step over one bit of the index is a reduction over two elements. A `combine` gets
its two operands in either order, so it must be bitwise commutative after compilation; those of this module are. In
other combines, `add_rounded` and `mul_rounded` prevent contraction of a product and a sum on one side only.

Extents are powers of two, as Triton's tensors are. Elements from `extent` on are replaced by the neutral element: -0.0
for sums, which changes no number, -0.0 included (the sum of no elements is -0.0). A sum of one element is that element.
Integers are added as in `tl.sum`, exactly modulo their width. A reduction stays inside one block: with num_ctas above 1
these functions raise an error.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-untyped-call"

from __future__ import annotations

import triton
import triton.language as tl

from bitwise_triton.reductions.kernels.arithmetic import (
    absolute_difference,
    constant,
    negative_zero_constant,
    opaque,
    promoted,
    quiet,
    rounded,
)
from bitwise_triton.reductions.kernels.builtins import (
    FINGERPRINT,
    fill_padding,
    fold,
    fold_end,
    fold_into,
    fold_welford,
)

# Triton wraps default values of constexpr parameters in `constexpr` if they are numbers, not if they are strings.
_INNER_TREE = tl.constexpr("inner_tree")


@triton.jit
def add_rounded(a, b):
    """`a + b`, rounded once and never contracted with a product."""
    return rounded("add", a, b)


@triton.jit
def mul_rounded(a, b):
    """`a * b`, rounded once and never contracted with a sum."""
    return rounded("mul", a, b)


@triton.jit
def quiet_nans(x):
    """`x` with quiet NaNs, as an operand of a maximum or minimum: AMD's distinguish signalling NaNs and so depend on
    the order.
    """
    tl.static_assert(FINGERPRINT != "")
    return quiet(x)


@triton.jit
def negative_zero(dtype: tl.constexpr = tl.float32):
    """-0.0, the neutral element of a sum (`other` of a load). A literal -0.0 is 0.0 in Triton."""
    tl.static_assert(FINGERPRINT != "")
    return negative_zero_constant(dtype)


@triton.jit
def negative_zeros(shape: tl.constexpr, dtype: tl.constexpr = tl.float32):
    """A tensor of -0.0, the initial totals of a sum."""
    return tl.full(shape, constant(-0.0, dtype), dtype)


@triton.jit
def tree_sum(x, axis: tl.constexpr, order: tl.constexpr = _INNER_TREE, extent=None):
    """The sum of `x` along `axis` in `order`, of the first `extent` elements. bfloat16 is added as float32."""
    tl.static_assert(FINGERPRINT != "")
    filled = fill_padding(promoted(x, "tree_sum"), axis, extent, -0.0)
    return fold(filled, axis, order, "sum")[0]


@triton.jit
def tree_dot(a, b, axis: tl.constexpr, order: tl.constexpr = _INNER_TREE):
    """The sum along `axis` of the products `a * b` (broadcast), each product rounded, then added as in `tree_sum`."""
    return tree_sum(mul_rounded(promoted(a, "tree_dot"), promoted(b, "tree_dot")), axis, order)


@triton.jit
def tree_reduce(values, axis: tl.constexpr, combine, order: tl.constexpr = _INNER_TREE, extent=None, neutral=None):
    """A tuple of tensors reduced together along `axis`: `combine` takes the values of one side, then of the other.

    Returns a tuple. `neutral`, a tuple of constants, replaces the elements from `extent` on.
    """
    tl.static_assert(FINGERPRINT != "")
    return fold(fill_padding(values, axis, extent, neutral), axis, order, combine)


@triton.jit
def sum_into(totals, x, axis: tl.constexpr, order: tl.constexpr):
    """`totals` plus one more tile of a long axis: a pinned accumulation, independent of the tile size.

    `order` has one open chain, as in `chain(7:), inner_tree`. The tile has a multiple of its chunk (here 128) of
    elements along `axis`, and `totals` as many as the chain leaves (here 128; with `inner_tree(:7), chain(7:)` one).
    Start from `negative_zeros`, add the tiles in order, pad the last with `negative_zero()`, and finish with `sum_end`.
    """
    tl.static_assert(FINGERPRINT != "")
    return fold_into(totals, promoted(x, "sum_into"), axis, order, "sum")[0]


@triton.jit
def sum_end(totals, axis: tl.constexpr, order: tl.constexpr):
    """The sum of totals from `sum_into`, without `axis`."""
    tl.static_assert(FINGERPRINT != "")
    return fold_end(totals, axis, order, "totals")[0]


@triton.jit
def reduce_into(totals, values, axis: tl.constexpr, combine, order: tl.constexpr):
    """`sum_into` for a tuple of totals, a tuple of values and any combine."""
    tl.static_assert(FINGERPRINT != "")
    return fold_into(totals, values, axis, order, combine)


@triton.jit
def reduce_end(totals, axis: tl.constexpr, combine, order: tl.constexpr):
    """The tuple of totals from `reduce_into`, without `axis`."""
    tl.static_assert(FINGERPRINT != "")
    return fold_end(totals, axis, order, combine)


@triton.jit
def welford(sum_a, squares_a, count_a, sum_b, squares_b, count_b):
    """Combine (sum, sum of squared deviations from the mean, count) of two sets; the mean is the sum over the count.

    Start from (x, 0, 1); (-0.0, 0, 0) is neutral. Counts are float32, exact below 2**24. Sets of equal counts that are
    powers of two combine as in `tree_welford`.
    """
    least, greatest = tl.minimum(count_a, count_b), tl.maximum(count_a, count_b)
    count = add_rounded(count_a, count_b)
    alone = least == 0
    # Scale the larger set's sum to the smaller count; with equal counts the factor is exactly 1.
    share = tl.div_rn(least, tl.where(alone, 1.0, greatest))
    left = tl.where(count_a > count_b, mul_rounded(sum_a, share), sum_a)
    right = tl.where(count_b > count_a, mul_rounded(sum_b, share), sum_b)
    apart = absolute_difference(left, right)
    weight = tl.div_rn(greatest, tl.where(alone, 1.0, mul_rounded(least, count)))
    both = add_rounded(squares_a, squares_b)
    squares = tl.where(alone, both, tl.fma(mul_rounded(apart, weight), apart, both))
    return add_rounded(sum_a, sum_b), squares, count


@triton.jit
def tree_welford(x, axis: tl.constexpr, order: tl.constexpr = _INNER_TREE, extent=None):
    """The sum of `x` along `axis`, the sum of its squared deviations from the mean, and the count, in float32.

    Of the first `extent` elements, or all; the bits do not depend on the number of padding elements. Without `extent`
    every step combines sets of equal, known counts, which takes no division. `order` is a tree.
    """
    tl.static_assert(FINGERPRINT != "")
    value = x.to(tl.float32)
    # A single return: code after a return inside a condition is compiled too.
    if extent is None:
        total, squares = fold_welford(value, axis, order)
        found = (total, squares, tl.full(total.shape, x.shape[axis], tl.float32))
    else:
        start = (value, tl.zeros_like(value), tl.full(value.shape, 1.0, tl.float32))
        found = tree_reduce(start, axis, welford, order, extent, (-0.0, 0.0, 0.0))
    return found


@triton.jit
def maximum_with_index(value_a, index_a, value_b, index_b):
    """The greater value and its index, the lowest of equal values. NaN is the greatest, and +0 is greater than -0.

    Indices are nonnegative integers. The neutral element is -inf with a high index.
    """
    value = tl.maximum(value_a, value_b, propagate_nan=tl.PropagateNan.ALL)
    here_a = (value_a == value) | (value_a != value_a)
    here_b = (value_b == value) | (value_b != value_b)
    # With a known constant the compiler would move the minimum into one side's select.
    last = opaque(0x7FFFFFFF)
    return value, tl.minimum(tl.where(here_a, index_a, last), tl.where(here_b, index_b, last))


@triton.jit
def index_range(length: tl.constexpr):
    """`tl.arange(0, length)` as the index of `maximum_with_index`; hidden from the compiler, which would rewrite the
    steps.
    """
    tl.static_assert(FINGERPRINT != "")
    return opaque(tl.arange(0, length))


@triton.jit
def logsumexp(maximum_a, sum_a, maximum_b, sum_b):
    """Combine (maximum, sum of exp(x - maximum)) of two sets; (-inf, 0) is neutral. Start from (x, 1)."""
    maximum = tl.maximum(maximum_a, maximum_b)
    scale_a = tl.where(maximum_a == maximum, 1.0, tl.exp(maximum_a - maximum))
    scale_b = tl.where(maximum_b == maximum, 1.0, tl.exp(maximum_b - maximum))
    return maximum, add_rounded(mul_rounded(sum_a, scale_a), mul_rounded(sum_b, scale_b))
