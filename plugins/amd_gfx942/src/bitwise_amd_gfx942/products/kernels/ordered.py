"""Matrix products whose sums follow a stated order: slices of k, waves, rotated and permuted iterations, and a tail."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, attr-defined"
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def ordered_product(
    A, B, C, M, N, K, iterations, depth, slices, contiguous, period, step, halvings, tile, by_columns, from_zero, owner,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, TAIL_K: tl.constexpr, NATIVE: tl.constexpr,
    WAVES: tl.constexpr, SPREAD: tl.constexpr, EACH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """C[m, n] = sum over k of A[m, k] B[k, n] on matrix units, rounded to C's type; row-major, dense.

    The first `iterations` * `depth` k are iterations of `depth` k, the others the tail.  `slices` of them, strided or
    contiguous, are added in ascending order, from +0 or from the first.  In a slice WAVES accumulators take blocks of
    NATIVE * SPREAD k in turn and are added in ascending order.  In a block each of NATIVE / EACH groups of lanes holds
    consecutive k, of which an instruction takes EACH.  The slice `owner` has the tail, in blocks of NATIVE k.  Output
    tile t of `tile` rows or columns starts at iteration (t mod period) * step, with the period halved up to `halvings`
    times to fit.
    """
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (rows[:, None] < M), (columns[None, :] < N)
    number = tl.where(by_columns != 0, tl.program_id(1) * BLOCK_N, tl.program_id(0) * BLOCK_M) // tile
    quotient, more = iterations // slices, iterations % slices
    length = depth // WAVES
    block: tl.constexpr = NATIVE * SPREAD
    rounds = (K - iterations * depth + NATIVE * WAVES - 1) // (NATIVE * WAVES)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for part in range(slices):
        own = quotient + (part < more).to(tl.int32)
        begin = tl.where(contiguous != 0, part * quotient + tl.minimum(part, more), part)
        stride = tl.where(contiguous != 0, 1, slices)
        fitting = period
        for _ in range(halvings):
            fitting = tl.where((fitting > 1) & (fitting * step > own), fitting // 2, fitting)
        first = number % fitting * step % tl.maximum(own, 1)
        tail = tl.where(part == owner, rounds * NATIVE, 0)
        value = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for wave in tl.static_range(WAVES):
            accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            for turn in range(own):
                place = turn + first
                base = (begin + tl.where(place >= own, place - own, place) * stride) * depth
                for low in range(0, length, BLOCK_K):
                    at = low + tl.arange(0, BLOCK_K)
                    lane, instruction = at % NATIVE // EACH, at % block // NATIVE
                    k = base + (at // block * WAVES + wave) * block
                    k += lane * (EACH * SPREAD) + instruction * EACH + at % NATIVE % EACH
                    a = tl.load(A + rows[:, None] * K + k[None, :], mask=inside[0] & (at[None, :] < length), other=0.0)
                    b = tl.load(
                        B + k[:, None] * N + columns[None, :], mask=inside[1] & (at[:, None] < length), other=0.0
                    )
                    accumulator = tl.dot(a, b, accumulator, input_precision=PRECISION, out_dtype=tl.float32)
            for low in range(0, tail, TAIL_K):
                at = low + tl.arange(0, TAIL_K)
                k = iterations * depth + (at // NATIVE * WAVES + wave) * NATIVE + at % NATIVE
                used = (k < K) & (at < tail)
                a = tl.load(A + rows[:, None] * K + k[None, :], mask=inside[0] & used[None, :], other=0.0)
                b = tl.load(B + k[:, None] * N + columns[None, :], mask=inside[1] & used[:, None], other=0.0)
                accumulator = tl.dot(a, b, accumulator, input_precision=PRECISION, out_dtype=tl.float32)
            value = accumulator if wave == 0 else value + accumulator
        total = tl.where((part == 0) & (from_zero == 0), value, total + value)
    tl.store(C + rows[:, None] * N + columns[None, :], total.to(C.dtype.element_ty), mask=inside[0] & inside[1])
