"""Products of a vector and a matrix by fused multiply-adds, whose neighbouring elements are loaded in words of 8 bytes.

As `scalar.lanes`, for an output whose neighbours need neighbours in memory.  A thread has four neighbours.  The lines
of the matrix may have any alignment: two words have the values of a thread, which are shifted to their places.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, attr-defined"
from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from bitwise_nvidia_sm90.gemm.kernels.scalar import _lane_k, _negative_zero, _sum_lanes

WIDTH: tl.constexpr = tl.constexpr(4)
"""The values of 16 bits of a word, and the neighbours of a thread."""


@triton.jit
def _zeros(GROUPS: tl.constexpr, LANES: tl.constexpr):
    """Return a tensor of zeros for each neighbour of a thread."""
    found = tl.tuple(())
    for _ in tl.static_range(WIDTH):
        found += (tl.zeros((GROUPS, LANES), dtype=tl.float32),)
    return found


@triton.jit
def _load_words(
    V, W, k, groups, stride_vk, stride_wk, active, DISTANCE: tl.constexpr, ACTIVE: tl.constexpr, LANES: tl.constexpr,
    UNROLL: tl.constexpr,
):  # fmt: skip
    """Load the factors of UNROLL k of each lane from `k`, DISTANCE apart: of the vector, and two words of the matrix.

    `groups` are the first elements of the threads, multiples of WIDTH.  All these k, and a line after them, exist.
    """
    words = W.to(tl.pointer_type(tl.uint64))
    loaded = tl.tuple(())
    for offset in tl.static_range(UNROLL):
        own = (k + offset * DISTANCE).to(tl.int64)
        at = own * stride_wk + groups
        word = words + (at >> 2)
        crosses = (at & 3) > 0
        if ACTIVE < LANES:
            v = tl.load(V + own * stride_vk, mask=active, other=0.0)
            low = tl.load(word, mask=(groups >= 0) & active, other=0)
            high = tl.load(word + 1, mask=crosses & active, other=0)
        else:
            v = tl.load(V + own * stride_vk)
            low = tl.load(word)
            high = tl.load(word + 1, mask=crosses, other=0)
        loaded += ((v, low, high),)
    return loaded


@triton.jit
def _add_words(sums, loaded, k, stride_wk, KIND: tl.constexpr, DISTANCE: tl.constexpr, UNROLL: tl.constexpr):
    """Add the products of UNROLL k to the sums of each lane, a tensor for each of the WIDTH neighbours, in order."""
    for offset in tl.static_range(UNROLL):
        shift = (((k + offset * DISTANCE).to(tl.int64) * stride_wk & 3) * 16).to(tl.uint64)
        v, low, high = loaded[offset][0].to(tl.float32), loaded[offset][1], loaded[offset][2]
        # A shift by 64 is not defined; without a shift the upper word has no values.
        values = (low >> shift) | tl.where(shift > 0, high << ((64 - shift) & 63), 0)
        found = tl.tuple(())
        for neighbour in tl.static_range(WIDTH):
            w = (values >> (16 * neighbour)).to(tl.uint16).to(KIND, bitcast=True).to(tl.float32)
            found += (tl.fma(v, w, sums[neighbour]),)
        sums = found
    return sums


@triton.jit
def _add_masked(
    sums, V, W, k, groups, count, own, stride_vk, stride_wk, active, DISTANCE: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """Add the products of the first `own` of UNROLL k to the sums of each lane, value by value."""
    for offset in tl.static_range(UNROLL):
        exists = (offset < own) & active
        at = (k + offset * DISTANCE).to(tl.int64)
        v = tl.load(V + at * stride_vk, mask=exists, other=0.0).to(tl.float32)
        found = tl.tuple(())
        for neighbour in tl.static_range(WIDTH):
            element = groups + neighbour
            w = tl.load(W + at * stride_wk + element, mask=exists & (element < count), other=0.0).to(tl.float32)
            found += (tl.where(exists, tl.fma(v, w, sums[neighbour]), sums[neighbour]),)
        sums = found
    return sums


@triton.jit(do_not_specialize=["K", "count", "slice_k", "tile", "chunk"])
def wide_lanes(
    V, W, C, K, count, slice_k, tile, chunk, stride_vk, stride_wk, stride_cs, stride_c, LANES: tl.constexpr,
    ACTIVE: tl.constexpr, TILE: tl.constexpr, SEQUENCE: tl.constexpr, ROUNDS: tl.constexpr, UNROLL: tl.constexpr,
    FROM_ZERO: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """C[slice, n] = sum over the slice's k of V[k] W[k, n], with LANES fp32 accumulators for each element.

    The address of W is a multiple of 8 bytes, and its values are neighbours along n.  Lanes, tiles, chunks, SEQUENCE,
    ROUNDS and FROM_ZERO are those of `scalar.lanes`.  UNROLL consecutive k of a lane, counted from the start of an
    accumulator, are in one tile, or tiles have one k.  BLOCK elements are computed by a program.
    """
    gdc_wait()
    gdc_launch_dependents()
    GROUPS: tl.constexpr = BLOCK // WIDTH
    group = tl.program_id(0).to(tl.int64) * BLOCK + WIDTH * tl.arange(0, GROUPS)
    # Threads outside of the matrix load what the last one loads; their results are not stored.
    groups = tl.minimum(group, (count - 1) // WIDTH * WIDTH)[:, None]
    slice_index = tl.program_id(1)
    start = slice_index * slice_k
    length = min(slice_k, K - start)
    DISTANCE: tl.constexpr = ACTIVE if TILE == 1 else 1
    lane = tl.arange(0, LANES)[None, :]
    active = lane < ACTIVE
    # All active lanes have the first `common` of their k before the last k, after whose line there may be no word.
    if TILE:
        whole_tiles = length // (TILE * ACTIVE) * TILE
        lane_k = whole_tiles + min(length - whole_tiles * ACTIVE, TILE)
        common = (length - 1) // (TILE * ACTIVE) * TILE
    else:
        lane_k = tile
        common = length - 1 - (LANES - 1) * tile
    total = _zeros(GROUPS, LANES)
    for begin in range(0, lane_k, chunk):
        end = min(begin + chunk, lane_k)
        whole = begin + max(min(common, end) - begin, 0) // UNROLL * UNROLL
        sums = _zeros(GROUPS, LANES)
        if begin < whole:
            k = start + _lane_k(begin, lane, tile, 0, 0, LANES, ACTIVE, TILE, False)
            loaded = _load_words(V, W, k, groups, stride_vk, stride_wk, active, DISTANCE, ACTIVE, LANES, UNROLL)
            for step in range(begin + UNROLL, whole, UNROLL):
                after = start + _lane_k(step, lane, tile, 0, 0, LANES, ACTIVE, TILE, False)
                ahead = _load_words(V, W, after, groups, stride_vk, stride_wk, active, DISTANCE, ACTIVE, LANES, UNROLL)
                sums = _add_words(sums, loaded, k, stride_wk, W.dtype.element_ty, DISTANCE, UNROLL)
                loaded, k = ahead, after
            sums = _add_words(sums, loaded, k, stride_wk, W.dtype.element_ty, DISTANCE, UNROLL)
        for step in range(whole, end, UNROLL):
            first = _lane_k(step, lane, tile, 0, 0, LANES, ACTIVE, TILE, False)
            own = tl.minimum((length - first + (DISTANCE - 1)) // DISTANCE, end - step)
            sums = _add_masked(
                sums, V, W, start + first, groups, count, own, stride_vk, stride_wk, active, DISTANCE, UNROLL
            )
        added = tl.tuple(())
        for neighbour in tl.static_range(WIDTH):
            added += (tl.where(begin == 0, sums[neighbour], total[neighbour] + sums[neighbour]),)
        total = added
    out = C + slice_index.to(tl.int64) * stride_cs
    for neighbour in tl.static_range(WIDTH):
        x = total[neighbour]
        if ACTIVE < LANES:
            x = tl.where(active, x, _negative_zero())
        sums = _sum_lanes(x, GROUPS, LANES, SEQUENCE, ROUNDS)
        if FROM_ZERO:
            sums += 0.0  # starting from +0 changes a sum only where it is -0
        element = group + neighbour
        tl.store(out + element * stride_c, sums.to(C.dtype.element_ty), mask=element < count)
