"""Triton kernels whose programs are divided among the blocks of a cluster (`num_ctas`)."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def affine(source, output, size, BLOCK: tl.constexpr):
    """output = 2 * source + 1."""
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = where < size
    tl.store(output + where, tl.load(source + where, mask=inside) * 2.0 + 1.0, mask=inside)


@triton.jit
def row_sum(source, output, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The sum of each row."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    tl.store(output + row, tl.sum(tl.load(source + row[:, None] * COLUMNS + column[None, :]), axis=1))


@triton.jit
def column_sum(source, output, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The sum of each column."""
    row = tl.arange(0, ROWS)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    tl.store(output + column, tl.sum(tl.load(source + row[:, None] * columns + column[None, :]), axis=0))


@triton.jit
def softmax(source, output, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The softmax of each row."""
    where = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    values = tl.load(source + where)
    powers = tl.exp(values - tl.max(values, axis=1)[:, None])
    tl.store(output + where, powers / tl.sum(powers, axis=1)[:, None])


@triton.jit
def product(left, right, output, columns, depth, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr):
    """The product of two matrices."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    k = tl.arange(0, DEPTH)
    lefts = left + row[:, None] * depth + k[None, :]
    rights = right + k[:, None] * columns + column[None, :]
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for _ in range(0, depth, DEPTH):
        total = tl.dot(tl.load(lefts), tl.load(rights), total)
        lefts += DEPTH
        rights += DEPTH * columns
    tl.store(output + row[:, None] * columns + column[None, :], total)


@triton.jit
def copied_product(
    left, right, output, rows, columns, depth, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr
):
    """The product of two matrices, through tensor maps that the kernel makes."""
    lefts = tl.make_tensor_descriptor(left, [rows, depth], [depth, 1], [ROWS, DEPTH])
    rights = tl.make_tensor_descriptor(right, [depth, columns], [columns, 1], [DEPTH, COLUMNS])
    outputs = tl.make_tensor_descriptor(output, [rows, columns], [columns, 1], [ROWS, COLUMNS])
    row, column = tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for k in range(0, depth, DEPTH):
        total = tl.dot(lefts.load([row, k]), rights.load([k, column]), total)
    outputs.store([row, column], total.to(tl.float16))
