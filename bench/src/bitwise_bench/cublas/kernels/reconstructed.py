"""Plain Triton kernels whose descriptors are reconstructed from their outputs."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, attr-defined"
from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def _product(a, b, c, m, n, k, block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr):
    rows = tl.program_id(0) * block_m + tl.arange(0, block_m)
    columns = tl.program_id(1) * block_n + tl.arange(0, block_n)
    inner = tl.arange(0, block_k)
    total = tl.zeros((block_m, block_n), dtype=tl.float32)
    for low in range(0, k, block_k):
        at = low + inner
        left = tl.load(a + rows[:, None] * k + at[None], mask=(rows[:, None] < m) & (at[None] < k), other=0.0)
        right = tl.load(b + at[:, None] * n + columns[None], mask=(at[:, None] < k) & (columns[None] < n), other=0.0)
        total = tl.dot(left, right, total)
    mask = (rows[:, None] < m) & (columns[None] < n)
    tl.store(c + rows[:, None] * n + columns[None], total.to(c.dtype.element_ty), mask=mask)


@triton.jit
def _row_sum(x, y, length, block: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, block)
    value = tl.load(x + row * length + column, mask=column < length, other=0.0)
    tl.store(y + row, tl.sum(value, axis=0))


def product(a: Any, b: Any, block: int = 64, warps: int = 4) -> Any:
    """a[m, k] b[k, n] with one dot for each block of k."""
    (m, k), n = a.shape, b.shape[1]
    c = a.new_empty((m, n))
    _product[(triton.cdiv(m, 64), triton.cdiv(n, 64))](a, b, c, m, n, k, 64, 64, block, num_warps=warps)
    return c


def row_sum(x: Any, warps: int = 4) -> Any:
    """Row sums, one program for each row."""
    rows, length = x.shape
    y = x.new_empty(rows)
    _row_sum[(rows,)](x, y, length, triton.next_power_of_2(length), num_warps=warps)
    return y
