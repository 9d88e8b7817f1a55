"""The kernels of the benchmark: reductions in a fast plain form, and with a pinned order.

ORDER "" is the free order. A long axis is accumulated in TOTALS running totals; in the free order that is the width of
a loop iteration. Sums are computed in float32.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-untyped-call"

from __future__ import annotations

import triton
import triton.language as tl

from bitwise_triton.reductions.kernels.functions import (
    mul_rounded,
    negative_zero,
    negative_zeros,
    quiet_nans,
    reduce_end,
    reduce_into,
    sum_end,
    sum_into,
    tree_dot,
    tree_sum,
    tree_welford,
)


@triton.jit
def _start(shape: tl.constexpr, order: tl.constexpr):
    if order == "":  # noqa: SIM108
        total = tl.zeros(shape, tl.float32)
    else:
        total = negative_zeros(shape)
    return total


@triton.jit
def _into(total, value, axis: tl.constexpr, order: tl.constexpr):
    if order == "":  # noqa: SIM108
        total = total + value
    else:
        total = sum_into(total, value, axis, order)
    return total


@triton.jit
def _end(total, axis: tl.constexpr, order: tl.constexpr):
    if order == "":  # noqa: SIM108
        result = tl.sum(total, axis)
    else:
        result = sum_end(total, axis, order)
    return result


@triton.jit
def _sum(value, axis: tl.constexpr, order: tl.constexpr):
    if order == "":  # noqa: SIM108
        result = tl.sum(value, axis)
    else:
        result = tree_sum(value, axis, order)
    return result


@triton.jit
def _sum_of_squares(value, axis: tl.constexpr, order: tl.constexpr):
    if order == "":  # noqa: SIM108
        result = tl.sum(value * value, axis)
    else:
        result = tree_dot(value, value, axis, order)
    return result


@triton.jit
def row_sum(
    x, y, rows, columns, ROW_BLOCK: tl.constexpr, BLOCK: tl.constexpr, PIECE: tl.constexpr, TOTALS: tl.constexpr,
    ORDER: tl.constexpr,
):  # fmt: skip
    """Row sums, PIECE elements at a time, BLOCK in a loop iteration; one program has ROW_BLOCK rows."""
    row = tl.program_id(0) * ROW_BLOCK + tl.arange(0, ROW_BLOCK)
    start_of_row = row[:, None].to(tl.int64) * columns
    total = _start((ROW_BLOCK, TOTALS), ORDER)
    for start in range(0, columns, BLOCK):
        for piece in tl.static_range(BLOCK // PIECE):
            column = start + piece * PIECE + tl.arange(0, PIECE)
            inside = (row[:, None] < rows) & (column[None, :] < columns)
            value = tl.load(x + start_of_row + column[None, :], mask=inside, other=negative_zero()).to(tl.float32)
            total = _into(total, value, 1, ORDER)
    tl.store(y + row, _end(total, 1, ORDER), mask=row < rows)


@triton.jit
def column_sum(
    x, y, rows, columns, ROW_BLOCK: tl.constexpr, BLOCK: tl.constexpr, PIECE: tl.constexpr, TOTALS: tl.constexpr,
    ORDER: tl.constexpr,
):  # fmt: skip
    """Column sums of a stack of matrices, axis 1 of the grid, with BLOCK columns to a program.

    PIECE rows are read at a time, ROW_BLOCK in a loop iteration.
    """
    matrix = tl.program_id(1)
    x += matrix.to(tl.int64) * rows * columns
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = _start((TOTALS, BLOCK), ORDER)
    for start in range(0, rows, ROW_BLOCK):
        for piece in tl.static_range(ROW_BLOCK // PIECE):
            row = start + piece * PIECE + tl.arange(0, PIECE)
            inside = (row[:, None] < rows) & (column[None, :] < columns)
            at = row[:, None].to(tl.int64) * columns + column[None, :]
            value = tl.load(x + at, mask=inside, other=negative_zero()).to(tl.float32)
            total = _into(total, value, 0, ORDER)
    tl.store(y + matrix * columns + column, _end(total, 0, ORDER), mask=column < columns)


@triton.jit
def _multiply(a, b):
    return a * b


@triton.jit
def row_product(
    x, y, rows, columns, ROW_BLOCK: tl.constexpr, BLOCK: tl.constexpr, TOTALS: tl.constexpr, ORDER: tl.constexpr
):
    """Row products."""
    row = tl.program_id(0) * ROW_BLOCK + tl.arange(0, ROW_BLOCK)
    start_of_row = row[:, None].to(tl.int64) * columns
    total = tl.full((ROW_BLOCK, TOTALS), 1.0, tl.float32)
    for start in range(0, columns, BLOCK):
        for piece in tl.static_range(BLOCK // TOTALS):
            column = start + piece * TOTALS + tl.arange(0, TOTALS)
            inside = (row[:, None] < rows) & (column[None, :] < columns)
            value = tl.load(x + start_of_row + column[None, :], mask=inside, other=1.0).to(tl.float32)
            if ORDER == "":  # noqa: SIM108
                total = total * value
            else:
                total = reduce_into((total,), (value,), 1, mul_rounded, ORDER)[0]
    if ORDER == "":  # noqa: SIM108
        result = tl.reduce(total, 1, _multiply)
    else:
        result = reduce_end((total,), 1, mul_rounded, ORDER)[0]
    tl.store(y + row, result, mask=row < rows)


@triton.jit
def row_maximum(
    x, y, rows, columns, ROW_BLOCK: tl.constexpr, BLOCK: tl.constexpr, TOTALS: tl.constexpr, ORDER: tl.constexpr
):
    """Row maxima, which do not depend on the order: the pinned kernel differs in the number of totals only."""
    row = tl.program_id(0) * ROW_BLOCK + tl.arange(0, ROW_BLOCK)
    start_of_row = row[:, None].to(tl.int64) * columns
    total = tl.full((ROW_BLOCK, TOTALS), float("-inf"), tl.float32)
    for start in range(0, columns, BLOCK):
        for piece in tl.static_range(BLOCK // TOTALS):
            column = start + piece * TOTALS + tl.arange(0, TOTALS)
            inside = (row[:, None] < rows) & (column[None, :] < columns)
            value = tl.load(x + start_of_row + column[None, :], mask=inside, other=float("-inf")).to(tl.float32)
            if ORDER == "":  # noqa: SIM108
                total = tl.maximum(total, value)
            else:
                total = tl.maximum(total, quiet_nans(value))
    tl.store(y + row, tl.max(total, 1), mask=row < rows)


@triton.jit
def softmax(x, y, rows, columns, ROW_BLOCK: tl.constexpr, BLOCK: tl.constexpr, ORDER: tl.constexpr):
    """Softmax of whole rows."""
    row = tl.program_id(0) * ROW_BLOCK + tl.arange(0, ROW_BLOCK)
    column = tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    at = row[:, None].to(tl.int64) * columns + column[None, :]
    score = tl.load(x + at, mask=inside, other=float("-inf")).to(tl.float32)
    if ORDER == "":  # noqa: SIM108
        greatest = tl.max(score, 1)
    else:
        greatest = tl.max(quiet_nans(score), 1)
    weight = tl.exp(score - greatest[:, None])
    tl.store(y + at, weight / _sum(weight, 1, ORDER)[:, None], mask=inside)


@triton.jit
def layer_norm(x, w, b, y, rows, columns, ROW_BLOCK: tl.constexpr, BLOCK: tl.constexpr, ORDER: tl.constexpr):
    """Layer normalisation of whole rows, with weight and bias."""
    row = tl.program_id(0) * ROW_BLOCK + tl.arange(0, ROW_BLOCK)
    column = tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    at = row[:, None].to(tl.int64) * columns + column[None, :]
    value = tl.load(x + at, mask=inside, other=negative_zero()).to(tl.float32)
    mean = _sum(value, 1, ORDER) / columns
    apart = tl.where(inside, value - mean[:, None], 0.0)
    scale = tl.rsqrt(_sum_of_squares(apart, 1, ORDER) / columns + 1e-5)
    weight = tl.load(w + column, mask=column < columns, other=0.0).to(tl.float32)
    bias = tl.load(b + column, mask=column < columns, other=0.0).to(tl.float32)
    tl.store(y + at, apart * scale[:, None] * weight[None, :] + bias[None, :], mask=inside)


@triton.jit
def rms_norm(x, w, y, rows, columns, ROW_BLOCK: tl.constexpr, BLOCK: tl.constexpr, ORDER: tl.constexpr):
    """Root-mean-square normalisation of whole rows, with weight."""
    row = tl.program_id(0) * ROW_BLOCK + tl.arange(0, ROW_BLOCK)
    column = tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    at = row[:, None].to(tl.int64) * columns + column[None, :]
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(_sum_of_squares(value, 1, ORDER) / columns + 1e-6)
    weight = tl.load(w + column, mask=column < columns, other=0.0).to(tl.float32)
    tl.store(y + at, value * scale[:, None] * weight[None, :], mask=inside)


@triton.jit
def _welford(mean_a, squares_a, weight_a, mean_b, squares_b, weight_b):
    delta = mean_b - mean_a
    weight = weight_a + weight_b
    share = tl.where(weight == 0.0, 0.0, weight_b / weight)
    return mean_a + delta * share, squares_a + squares_b + delta * delta * weight_a * share, weight


@triton.jit
def welford_rows(
    x, y, rows, columns, ROW_BLOCK: tl.constexpr, BLOCK: tl.constexpr, EVEN: tl.constexpr, ORDER: tl.constexpr
):
    """Mean and variance of whole rows by combining sets; EVEN if a row has BLOCK elements."""
    row = tl.program_id(0) * ROW_BLOCK + tl.arange(0, ROW_BLOCK)
    column = tl.arange(0, BLOCK)
    inside = row[:, None] < rows
    if not EVEN:
        inside = inside & (column[None, :] < columns)
    at = row[:, None].to(tl.int64) * columns + column[None, :]
    value = tl.load(x + at, mask=inside, other=negative_zero()).to(tl.float32)
    if ORDER == "":
        count = tl.full(value.shape, 1.0, tl.float32)
        if not EVEN:
            count = tl.where(inside, count, 0.0)
        mean, squares, count = tl.reduce((value, tl.zeros_like(value), count), 1, _welford)
    else:
        if EVEN:
            total, squares, count = tree_welford(value, 1, ORDER)
        else:
            total, squares, count = tree_welford(value, 1, ORDER, columns)
        mean = tl.div_rn(total, count)
    tl.store(y + 2 * row, mean, mask=row < rows)
    tl.store(y + 2 * row + 1, tl.div_rn(squares, count), mask=row < rows)


@triton.jit
def layer_norm_backward(
    dy, x, mean, scale, dw, db, rows, columns, CHUNK: tl.constexpr, ROW_BLOCK: tl.constexpr, BLOCK: tl.constexpr,
    TOTALS: tl.constexpr, ORDER: tl.constexpr,
):  # fmt: skip
    """Column sums of CHUNK rows for the gradients of weight and bias."""
    chunk = tl.program_id(1)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    weights = _start((TOTALS, BLOCK), ORDER)
    biases = _start((TOTALS, BLOCK), ORDER)
    for start in range(chunk * CHUNK, chunk * CHUNK + CHUNK, ROW_BLOCK):
        for piece in tl.static_range(ROW_BLOCK // TOTALS):
            row = start + piece * TOTALS + tl.arange(0, TOTALS)
            inside = (row[:, None] < rows) & (column[None, :] < columns)
            at = row[:, None].to(tl.int64) * columns + column[None, :]
            gradient = tl.load(dy + at, mask=inside, other=negative_zero()).to(tl.float32)
            value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
            row_mean = tl.load(mean + row, mask=row < rows, other=0.0)
            row_scale = tl.load(scale + row, mask=row < rows, other=0.0)
            normal = (value - row_mean[:, None]) * row_scale[:, None]
            biases = _into(biases, gradient, 0, ORDER)
            if ORDER == "":
                weights += gradient * normal
            else:
                weights = sum_into(weights, mul_rounded(gradient, normal), 0, ORDER)
    tl.store(dw + chunk * columns + column, _end(weights, 0, ORDER), mask=column < columns)
    tl.store(db + chunk * columns + column, _end(biases, 0, ORDER), mask=column < columns)


@triton.jit
def gemm_column_sum(
    a, b, c, y, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ORDER: tl.constexpr
):  # fmt: skip
    """A GEMM that also stores the column sums of each of its tiles of BM rows, in float32."""
    tiles = tl.cdiv(m, BM)
    tile_m, tile_n = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    row, column, depth = tile_m * BM + tl.arange(0, BM), tile_n * BN + tl.arange(0, BN), tl.arange(0, BK)
    left = a + row[:, None] * k + depth[None, :]
    right = b + depth[:, None] * n + column[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, k, BK):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += BK
        right += BK * n
    tl.store(c + row[:, None] * n + column[None, :], total)
    tl.store(y + tile_m * n + column, _sum(total, 0, ORDER))


@triton.jit
def inductor_sum(in_ptr0, out_ptr0, xnumel, r0_numel, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    """A persistent reduction as TorchInductor writes it, pinned by rewriting."""
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_index = tl.arange(0, R0_BLOCK)[None, :]
    r0_mask = r0_index < r0_numel
    tmp0 = tl.load(in_ptr0 + (r0_index + r0_numel * xindex), xmask & r0_mask, other=0.0).to(tl.float32)
    tmp1 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
    tmp3 = tl.where(xmask & r0_mask, tmp1, 0)
    tmp4 = tl.sum(tmp3, 1)[:, None]
    tl.store(out_ptr0 + xindex, tmp4, xmask)
