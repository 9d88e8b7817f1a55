"""Matrix products by fused multiply-adds: accumulators (lanes) for each output element, and their sum."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, attr-defined"
from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from bitwise_nvidia_sm90.gemm.kernels.epilogues import finished, load_operand, quotient


@triton.jit
def _negative_zero():
    """Return -0 in fp32, the identity of addition.  Triton compiles the literal -0.0 as 0.0."""
    return tl.full((), 0x80000000, tl.uint32).to(tl.float32, bitcast=True)


@triton.jit
def _add_pairs(x, ELEMENTS: tl.constexpr, LANES: tl.constexpr, BIT: tl.constexpr):
    """Add the lanes whose indices differ in BIT: one round of a tree.  x has the shape (ELEMENTS, LANES)."""
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
def _sum_lanes(x, ELEMENTS: tl.constexpr, LANES: tl.constexpr, SEQUENCE: tl.constexpr, ROUNDS: tl.constexpr):
    """Add the lanes of x, shape (ELEMENTS, LANES).

    A running sum takes the lanes in the order of SEQUENCE.  If SEQUENCE is empty, each of ROUNDS halves the index of
    lanes: it adds the remaining lanes whose indices differ in that bit.
    """
    if len(SEQUENCE) > 0:
        lane = tl.arange(0, LANES)[None, :]
        # tl.sum extracts one lane: all others are -0, which changes no value, so the order of that sum is irrelevant.
        total = tl.sum(tl.where(lane == SEQUENCE[0], x, _negative_zero()), axis=1)
        for position in tl.static_range(1, len(SEQUENCE)):
            total += tl.sum(tl.where(lane == SEQUENCE[position], x, _negative_zero()), axis=1)
        return total
    else:
        for done in tl.static_range(len(ROUNDS)):
            x = _add_pairs(x, ELEMENTS, LANES >> done, ROUNDS[done])
        return tl.reshape(x, (ELEMENTS,))


@triton.jit
def _lane_k(
    own, lane, tile, slice_index, blocks, LANES: tl.constexpr, ACTIVE: tl.constexpr, TILE: tl.constexpr,
    CYCLIC_SLICES: tl.constexpr,
):  # fmt: skip
    """Return the k of a lane's own k."""
    if CYCLIC_SLICES:
        return (own * blocks + slice_index) * LANES + lane
    elif TILE:
        return (own // TILE) * (TILE * ACTIVE) + lane * TILE + own % TILE
    else:
        return lane * tile + own


@triton.jit
def _load_steps(
    A, B, step, length, start, tile, slice_index, blocks, stride_ak, stride_bk, LANES: tl.constexpr,
    ACTIVE: tl.constexpr, TILE: tl.constexpr, CYCLIC_SLICES: tl.constexpr, UNROLL: tl.constexpr, MASKED: tl.constexpr,
    own,
):  # fmt: skip
    """Load UNROLL pairs of factors of each lane, those of the lanes' own k from `step`, at equal distances.

    With MASKED, a lane has the first `own` of them.
    """
    lane = tl.arange(0, LANES)[None, :]
    active = lane < ACTIVE
    first = _lane_k(step, lane, tile, slice_index, blocks, LANES, ACTIVE, TILE, CYCLIC_SLICES)
    distance = blocks * LANES if CYCLIC_SLICES else ACTIVE if TILE == 1 else 1
    # Pointers that move on take fewer instructions than those of each k: the loads of many k should be under way.
    place_a = A + (start + first).to(tl.int64) * stride_ak
    place_b = B + (start + first).to(tl.int64) * stride_bk
    step_a = tl.full((), distance, tl.int64) * stride_ak
    step_b = tl.full((), distance, tl.int64) * stride_bk
    loaded = tl.tuple(())
    for offset in tl.static_range(UNROLL):
        if MASKED:
            exists = (offset < own) & active
            a = tl.load(place_a, mask=exists, other=0.0)
            b = tl.load(place_b, mask=exists, other=0.0)
        elif ACTIVE < LANES:
            a = tl.load(place_a, mask=active, other=0.0)
            b = tl.load(place_b, mask=active, other=0.0)
        else:
            a = tl.load(place_a)
            b = tl.load(place_b)
        loaded += ((a, b),)
        place_a += step_a
        place_b += step_b
    return loaded


@triton.jit
def _sum_steps(accumulator, loaded, UNROLL: tl.constexpr):
    """Add the products of UNROLL pairs of factors to each lane, in order."""
    for offset in tl.static_range(UNROLL):
        a, b = loaded[offset][0].to(tl.float32), loaded[offset][1].to(tl.float32)
        accumulator = tl.fma(a, b, accumulator)
    return accumulator


@triton.jit
def _add_steps(
    accumulator, A, B, step, end, length, start, tile, slice_index, blocks, stride_ak, stride_bk,
    LANES: tl.constexpr, ACTIVE: tl.constexpr, TILE: tl.constexpr, CYCLIC_SLICES: tl.constexpr,
    UNROLL: tl.constexpr, EVEN_STEPS: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Add UNROLL products to each lane of the accumulator, those of the lanes' own k from `step`.

    A and B are pointers to the first k of each element's row and column.  Without MASKED, all these k exist in every
    active lane.  With EVEN_STEPS, a lane's k of these steps are at equal distances.
    """
    lane = tl.arange(0, LANES)[None, :]
    active = lane < ACTIVE
    if EVEN_STEPS:
        first = _lane_k(step, lane, tile, slice_index, blocks, LANES, ACTIVE, TILE, CYCLIC_SLICES)
        distance = blocks * LANES if CYCLIC_SLICES else ACTIVE if TILE == 1 else 1
        own = tl.minimum((length - first + (distance - 1)) // distance, end - step)
        loaded = _load_steps(
            A, B, step, length, start, tile, slice_index, blocks, stride_ak, stride_bk, LANES, ACTIVE, TILE,
            CYCLIC_SLICES, UNROLL, MASKED, own,
        )  # fmt: skip
        if MASKED:
            for offset in tl.static_range(UNROLL):
                found = tl.fma(loaded[offset][0].to(tl.float32), loaded[offset][1].to(tl.float32), accumulator)
                accumulator = tl.where((offset < own) & active, found, accumulator)
        else:
            accumulator = _sum_steps(accumulator, loaded, UNROLL)
    else:
        for offset in tl.static_range(UNROLL):
            k = _lane_k(step + offset, lane, tile, slice_index, blocks, LANES, ACTIVE, TILE, CYCLIC_SLICES)
            exists = (k < length) & (step + offset < end) & active
            # Loads of the last k in place of those that do not exist need no predicate, so that many are under way.
            k = tl.minimum(k, length - 1)
            a = tl.load(A + (start + k).to(tl.int64) * stride_ak).to(tl.float32)
            b = tl.load(B + (start + k).to(tl.int64) * stride_bk).to(tl.float32)
            accumulator = tl.where(exists, tl.fma(a, b, accumulator), accumulator)
    return accumulator


@triton.jit
def _zeros(ROWS: tl.constexpr, BLOCK: tl.constexpr, LANES: tl.constexpr):
    """Return the accumulators of a program: for each column of several rows, or for each element of one."""
    if ROWS > 1:
        return tl.zeros((ROWS, BLOCK, LANES), dtype=tl.float32)
    else:
        return tl.zeros((BLOCK, LANES), dtype=tl.float32)


@triton.jit(do_not_specialize=["M", "N", "K", "count", "slice_k", "tile", "chunk", "blocks"])
def lanes(
    A, B, C, M, N, K, count, slice_k, tile, chunk, stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm,
    stride_cn, blocks, LANES: tl.constexpr, ACTIVE: tl.constexpr, TILE: tl.constexpr, CYCLIC_SLICES: tl.constexpr,
    SEQUENCE: tl.constexpr, ROUNDS: tl.constexpr, ONE_ROW: tl.constexpr, ONE_COLUMN: tl.constexpr,
    EVEN_STEPS: tl.constexpr, UNROLL: tl.constexpr, AHEAD: tl.constexpr, FROM_ZERO: tl.constexpr, BLOCK: tl.constexpr,
    ROWS: tl.constexpr, O0=None, o0_row=None, o0_column=None, O1=None, o1_row=None, o1_column=None, O2=None,
    o2_row=None, o2_column=None, EPILOGUE: tl.constexpr = "", CONSTRAINTS: tl.constexpr = "",
    PRODUCT: tl.constexpr = "",
):  # fmt: skip
    """C[slice, m, n] = sum over the slice's k of A[m, k] B[k, n], with LANES fp32 accumulators for each element.

    With TILE, tiles of TILE k are distributed round-robin to the first ACTIVE lanes; without it, each lane has `tile`
    consecutive k.  A lane starts a new accumulator every `chunk` of its own k and adds the totals in order.
    With CYCLIC_SLICES, a slice is not a range of k but every `blocks`-th tile of LANES k.  SEQUENCE and ROUNDS are
    those of `_sum_lanes`.  With FROM_ZERO, the sum of the lanes starts from +0.  ONE_ROW and ONE_COLUMN: C has one row,
    one column, whose operand all elements share.  With EVEN_STEPS, UNROLL consecutive k of a lane, counted
    from the start of an accumulator, are in one tile, or tiles have one k; with AHEAD, those of an iteration are then
    loaded before the sums of the iteration before.  A program computes BLOCK elements, counted along rows, or with
    ROWS > 1 BLOCK columns of ROWS rows, which share the loads of B.
    """
    gdc_wait()
    gdc_launch_dependents()
    # Elements outside of the matrix have the addresses of the last one; their results are not stored.
    if ROWS > 1:
        row = (tl.program_id(2).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
        column = (tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK))[None, :]
        inside = (row < M) & (column < N)
        row, column = tl.minimum(row, M - 1), tl.minimum(column, N - 1)
    else:
        element = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = element < count
        last = tl.minimum(element, count - 1)
        if ONE_ROW:
            row, column = tl.zeros_like(last), last
        elif ONE_COLUMN:
            row, column = last, tl.zeros_like(last)
        else:
            row, column = quotient(last, N, count)
            row, column = row.to(tl.int64), column.to(tl.int64)
    first = load_operand(O0, o0_row, o0_column, row, column, inside, inside)
    second = load_operand(O1, o1_row, o1_column, row, column, inside, inside)
    third = load_operand(O2, o2_row, o2_column, row, column, inside, inside)
    slice_index = tl.program_id(1)
    start = 0 if CYCLIC_SLICES else slice_index * slice_k
    length = slice_k if CYCLIC_SLICES else min(slice_k, K - start)
    if ROWS > 1:
        left, right = A + (row * stride_am)[:, :, None], B + (column * stride_bn)[:, :, None]
    else:
        left = A + tl.zeros((1, 1), tl.int64) if ONE_ROW else A + (row * stride_am)[:, None]
        right = B + tl.zeros((1, 1), tl.int64) if ONE_COLUMN else B + (column * stride_bn)[:, None]
    # `lane_k` is the largest number of k of a lane; all active lanes have the first `common` of them.
    if CYCLIC_SLICES:
        lane_k = tile
        common = (K // LANES - slice_index + blocks - 1) // blocks
    elif TILE:
        common = length // (TILE * ACTIVE) * TILE
        lane_k = common + min(length - common * ACTIVE, TILE)
    else:
        lane_k = tile
        common = length - (LANES - 1) * tile
    total = _zeros(ROWS, BLOCK, LANES)
    for begin in range(0, lane_k, chunk):
        end = min(begin + chunk, lane_k)
        whole = begin + max(min(common, end) - begin, 0) // UNROLL * UNROLL
        accumulator = _zeros(ROWS, BLOCK, LANES)
        if AHEAD and EVEN_STEPS:
            # An assembler moves the sums between the loads of one iteration, which then wait for each other; those of
            # the next iteration it cannot delay.
            if begin < whole:
                loaded = _load_steps(
                    left, right, begin, length, start, tile, slice_index, blocks, stride_ak, stride_bk, LANES, ACTIVE,
                    TILE, CYCLIC_SLICES, UNROLL, False, 0,
                )  # fmt: skip
                for step in range(begin + UNROLL, whole, UNROLL):
                    ahead = _load_steps(
                        left, right, step, length, start, tile, slice_index, blocks, stride_ak, stride_bk, LANES,
                        ACTIVE, TILE, CYCLIC_SLICES, UNROLL, False, 0,
                    )  # fmt: skip
                    accumulator = _sum_steps(accumulator, loaded, UNROLL)
                    loaded = ahead
                accumulator = _sum_steps(accumulator, loaded, UNROLL)
        else:
            for step in range(begin, whole, UNROLL):
                accumulator = _add_steps(
                    accumulator, left, right, step, end, length, start, tile, slice_index, blocks, stride_ak,
                    stride_bk, LANES, ACTIVE, TILE, CYCLIC_SLICES, UNROLL, EVEN_STEPS, False,
                )  # fmt: skip
        for step in range(whole, end, UNROLL):
            accumulator = _add_steps(
                accumulator, left, right, step, end, length, start, tile, slice_index, blocks, stride_ak,
                stride_bk, LANES, ACTIVE, TILE, CYCLIC_SLICES, UNROLL, EVEN_STEPS, True,
            )  # fmt: skip
        total = tl.where(begin == 0, accumulator, total + accumulator)
    if ACTIVE < LANES:
        total = tl.where((tl.arange(0, LANES) < ACTIVE)[None, :], total, _negative_zero())
    sums = _sum_lanes(tl.reshape(total, (ROWS * BLOCK, LANES)), ROWS * BLOCK, LANES, SEQUENCE, ROUNDS)
    if ROWS > 1:
        sums = tl.reshape(sums, (ROWS, BLOCK))
    if FROM_ZERO:
        sums += 0.0  # starting from +0 changes a sum only where it is -0
    out = C + slice_index.to(tl.int64) * stride_cs + row * stride_cm + column * stride_cn
    found = finished(sums, O0, O1, O2, first, second, third, C.dtype.element_ty, EPILOGUE, CONSTRAINTS)
    tl.store(out, found, mask=inside)


@triton.jit(do_not_specialize=["N", "count", "blocks"])
def merge_blocks(
    W, C, N, count, blocks, stride_cm, stride_cn, THREADS: tl.constexpr, FROM_ZERO: tl.constexpr, BLOCK: tl.constexpr,
    O0=None, o0_row=None, o0_column=None, O1=None, o1_row=None, o1_column=None, O2=None, o2_row=None, o2_column=None,
    EPILOGUE: tl.constexpr = "", CONSTRAINTS: tl.constexpr = "", PRODUCT: tl.constexpr = "",
):  # fmt: skip
    """C[m, n] = the sum of W[block, m, n] over `blocks` blocks, in the order of a reduction by THREADS <= 128 threads.

    Thread t adds blocks t, t + 128, ... in order.  Threads at distance 64, then 32, are added.  Of the remaining 32,
    those with the same index modulo 4 are added in order, then the 4 sums in order.  With FROM_ZERO, the result is
    added to +0.
    """
    gdc_wait()
    gdc_launch_dependents()
    element = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = element < count
    row, column = quotient(element, N, count)
    first = load_operand(O0, o0_row, o0_column, row, column, inside, inside)
    second = load_operand(O1, o1_row, o1_column, row, column, inside, inside)
    third = load_operand(O2, o2_row, o2_column, row, column, inside, inside)
    thread = tl.arange(0, THREADS)
    part = W + element[:, None] + thread.to(tl.int64)[None, :] * count
    x = tl.load(part, mask=inside[:, None] & (thread < blocks)[None, :], other=0.0)
    for begin in range(THREADS, blocks, THREADS):
        part += count.to(tl.int64) * THREADS
        # A thread without a block adds -0, which changes no value.
        x += tl.load(part, mask=inside[:, None] & (begin + thread < blocks)[None, :], other=_negative_zero())
    if THREADS >= 128:
        x = _add_pairs(x, BLOCK, 128, 6)
    if THREADS >= 64:
        x = _add_pairs(x, BLOCK, 64, 5)
    LEFT: tl.constexpr = THREADS if THREADS < 32 else 32
    lane = tl.arange(0, LEFT)[None, :]
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for component in tl.static_range(4):
        own = tl.sum(tl.where(lane == component, x, _negative_zero()), axis=1)
        for group in tl.static_range(1, LEFT // 4):
            own += tl.sum(tl.where(lane == 4 * group + component, x, _negative_zero()), axis=1)
        total = own if component == 0 else total + own
    if FROM_ZERO:
        total += 0.0
    out = C + row.to(tl.int64) * stride_cm + column.to(tl.int64) * stride_cn
    found = finished(total, O0, O1, O2, first, second, third, C.dtype.element_ty, EPILOGUE, CONSTRAINTS)
    tl.store(out, found, mask=inside)
