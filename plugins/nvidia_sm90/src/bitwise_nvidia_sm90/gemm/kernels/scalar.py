"""Matrix products by fused multiply-adds: the lanes of one output element, and the tree that adds their sums."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, attr-defined"
from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def _nothing():
    """-0, which changes no sum; Triton takes a literal -0.0 for 0.0."""
    return tl.full((), 0x80000000, tl.uint32).to(tl.float32, bitcast=True)


@triton.jit
def _pairs(x, ELEMENTS: tl.constexpr, LANES: tl.constexpr, BIT: tl.constexpr):
    """One round of a tree: the lanes whose numbers differ in BIT are added."""
    HIGH: tl.constexpr = LANES >> (BIT + 1)
    LOW: tl.constexpr = 1 << BIT
    if HIGH == 1:
        x = tl.permute(tl.reshape(x, (ELEMENTS, 2, LOW)), (0, 2, 1))
    elif LOW == 1:
        x = tl.reshape(x, (ELEMENTS, HIGH, 2))
    else:
        x = tl.reshape(tl.permute(tl.reshape(x, (ELEMENTS, HIGH, 2, LOW)), (0, 1, 3, 2)), (ELEMENTS, HIGH * LOW, 2))
    left, right = tl.split(x)
    return left + right


@triton.jit
def _fold(x, ELEMENTS: tl.constexpr, LANES: tl.constexpr, SEQUENCE: tl.constexpr, ROUNDS: tl.constexpr):
    """The lanes' sums added: one after the other as SEQUENCE names them, or where it is empty round after round, each
    of ROUNDS the bit in which the numbers of two lanes differ, of the lanes that are left."""
    if len(SEQUENCE) > 0:
        lane = tl.arange(0, LANES)[None, :]
        # One value among zeros of negative sign: adding -0 changes no value, so the tree of such a sum decides nothing.
        total = tl.sum(tl.where(lane == SEQUENCE[0], x, _nothing()), axis=1)
        for place in tl.static_range(1, len(SEQUENCE)):
            total += tl.sum(tl.where(lane == SEQUENCE[place], x, _nothing()), axis=1)
        return total
    else:
        for number in tl.static_range(len(ROUNDS)):
            x = _pairs(x, ELEMENTS, LANES >> number, ROUNDS[number])
        return tl.reshape(x, (ELEMENTS,))


@triton.jit(do_not_specialize=["N", "K", "count", "slice_k", "tile", "chunk", "blocks"])
def lanes(
    A, B, C, N, K, count, slice_k, tile, chunk, stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm,
    stride_cn, blocks, LANES: tl.constexpr, STRIDED: tl.constexpr, DEALT: tl.constexpr, SEQUENCE: tl.constexpr,
    ROUNDS: tl.constexpr, UNROLL: tl.constexpr, ZERO: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """C[slice, m, n] = sum over the slice's k of A[m, k] B[k, n], by LANES accumulators of fp32 for each element.

    STRIDED deals tiles of `tile` k to the first `blocks` lanes in turn; without it every lane has `tile` k that follow
    one another.  A lane closes its accumulator every `chunk` of its own k and adds the totals in order.  DEALT: a slice
    is no stretch of k but every `blocks`-th of its tiles of LANES k.  SEQUENCE and ROUNDS say how `_fold` adds the
    lanes' sums.  ZERO: the lanes' sum starts from +0.
    """
    gdc_wait()
    gdc_launch_dependents()
    element = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = element < count
    row, column = element // N, element % N
    number = tl.program_id(1)
    start = 0 if DEALT else number * slice_k
    length = slice_k if DEALT else min(slice_k, K - start)
    lane = tl.arange(0, LANES)
    first = A + (row * stride_am)[:, None]
    second = B + (column * stride_bn)[:, None]
    own = tl.cdiv(length, tile * blocks) * tile if STRIDED else tile
    total = tl.zeros((BLOCK, LANES), dtype=tl.float32)
    for begin in range(0, own, chunk):
        end = min(begin + chunk, own)
        accumulator = tl.zeros((BLOCK, LANES), dtype=tl.float32)
        for base in range(begin, end, UNROLL):
            for step in tl.static_range(UNROLL):
                place = base + step
                k = lane * tile + place
                if STRIDED:
                    k = (place // tile) * tile * blocks + lane * tile + place % tile
                known = (k < length) & (place < end)
                if STRIDED:
                    known &= lane < blocks
                if DEALT:
                    k = (place * blocks + number) * LANES + lane
                    known = (place < end) & (k < K)
                real = inside[:, None] & known[None, :]
                where = (start + k).to(tl.int64)[None, :]
                a = tl.load(first + where * stride_ak, mask=real, other=0.0).to(tl.float32)
                b = tl.load(second + where * stride_bk, mask=real, other=0.0).to(tl.float32)
                accumulator = tl.where(real, tl.fma(a, b, accumulator), accumulator)
        total = tl.where(begin == 0, accumulator, total + accumulator)
    if STRIDED:
        total = tl.where((lane < blocks)[None, :], total, _nothing())
    sums = _fold(total, BLOCK, LANES, SEQUENCE, ROUNDS)
    if ZERO:
        sums += 0.0  # a sum from +0 differs from one without in -0 alone
    out = C + number.to(tl.int64) * stride_cs + row * stride_cm + column * stride_cn
    tl.store(out, sums.to(C.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["N", "count", "blocks"])
def merge_blocks(
    W, C, N, count, blocks, stride_cm, stride_cn, THREADS: tl.constexpr, ZERO: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """C[m, n] = the sum of W[block, m, n], as a block of up to 128 threads adds `blocks` of them.

    Thread t adds blocks t, t + 128, ... in order; threads 64 and then 32 apart are added; of the 32 that are left,
    those 4 apart are added in order, and the 4 sums in order.  ZERO: all of that is added to +0.
    """
    gdc_wait()
    gdc_launch_dependents()
    element = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = element < count
    thread = tl.arange(0, THREADS)
    first = W + element[:, None] + thread.to(tl.int64)[None, :] * count
    x = tl.load(first, mask=inside[:, None] & (thread < blocks)[None, :], other=0.0)
    for begin in range(THREADS, blocks, THREADS):
        first += count.to(tl.int64) * THREADS
        # A thread without a block of its own adds none: -0 changes no value.
        x += tl.load(first, mask=inside[:, None] & (begin + thread < blocks)[None, :], other=_nothing())
    if THREADS >= 128:
        x = _pairs(x, BLOCK, 128, 6)
    if THREADS >= 64:
        x = _pairs(x, BLOCK, 64, 5)
    LEFT: tl.constexpr = THREADS if THREADS < 32 else 32
    lane = tl.arange(0, LEFT)[None, :]
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for component in tl.static_range(4):
        part = tl.sum(tl.where(lane == component, x, _nothing()), axis=1)
        for group in tl.static_range(1, LEFT // 4):
            part += tl.sum(tl.where(lane == 4 * group + component, x, _nothing()), axis=1)
        total = part if component == 0 else total + part
    if ZERO:
        total += 0.0
    out = C + (element // N) * stride_cm + (element % N) * stride_cn
    tl.store(out, total.to(C.dtype.element_ty), mask=inside)
