"""Few rows of attention whose tiles have a block of keys for each of four warps; see `chunk_turns.visit_parts`.

A warp computes the scores of its own block and their weights, and then its components of the output from the weights of
all blocks.  The warps meet twice for a tile: for the greatest scores of its blocks, and for the weights.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call,attr-defined,assignment,misc,var-annotated"
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier

from bitwise_nvidia_sm90.attention.kernels.merges import finite_shift, maximum_after
from bitwise_nvidia_sm90.attention.kernels.rings import next_slot, release_after_loads
from bitwise_nvidia_sm90.attention.kernels.states_of_chunks import after_chunk, empty_output

NOTHING = gl.constexpr(float("-inf"))


@gluon.constexpr_function
def layout_of_blocks(warps):
    """Return the layout of the scores (blocks, 16, keys) of which each warp has a block."""
    return gl.NVMMADistributedLayout(version=[2, 0], warps_per_cta=[warps, 1, 1], instr_shape=[1, 16, 8])


@gluon.constexpr_function
def layout_of_tiles(width):
    """Return the layout of a tile (blocks, keys, components) of the ring, as copies have it."""
    return gl.NVMMASharedLayout(swizzle_byte_width=min(128, 2 * width), element_bitwidth=16, rank=3)


@gluon.constexpr_function
def layout_of_exchange(rank):
    """Return the layout of shared memory for weights (16, keys), or with rank 3 for those of all blocks."""
    return gl.SwizzledSharedLayout(8, 1, 8, order=list(range(rank))[::-1])


@gluon.constexpr_function
def layout_of_rows(rank):
    """Return the layout of shared memory for a number for each of 16 rows, or with rank 2 for those of all blocks."""
    return gl.SwizzledSharedLayout(1, 1, 1, order=list(range(rank))[::-1])


@gluon.jit
def row_of_numbers(numbers, part, L: gl.constexpr):
    """Return the numbers of the rows of a block in shared memory."""
    each = numbers._reinterpret(numbers.dtype, numbers.shape, layout_of_rows(1))
    return each.index(part).load(L)


@gluon.jit
def queries_of_blocks(
    query_row, group, tile, own_queries, query_step, query_head,
    M: gl.constexpr, GROUP: gl.constexpr, WARPS: gl.constexpr, D1: gl.constexpr, D2: gl.constexpr,
):  # fmt: skip
    """Return the queries of a tile of packed rows as each warp needs them, by D1 and, if any, D2 components."""
    QUERIES: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=layout_of_blocks(WARPS), k_width=2)
    ROWS: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, QUERIES))
    LANES: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, QUERIES))
    BLOCKS: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(2, QUERIES))
    row = tile * M + gl.arange(0, M, ROWS)
    at, head = row // GROUP, group * GROUP + row % GROUP
    base = query_row + head.to(gl.int64) * query_head + at.to(gl.int64) * query_step
    base = gl.expand_dims(gl.expand_dims(base, 0), 2)
    each = gl.expand_dims(gl.expand_dims(gl.arange(0, WARPS, BLOCKS) * 0, 1), 2)
    real = gl.expand_dims(gl.expand_dims(at < own_queries, 0), 2)
    lane = gl.expand_dims(gl.expand_dims(gl.arange(0, D1, LANES), 0), 1)
    q = (gl.load(base + each + lane, mask=real, other=0.0),)
    if D2:
        lane = D1 + gl.expand_dims(gl.expand_dims(gl.arange(0, D2, LANES), 0), 1)
        q += (gl.load(base + each + lane, mask=real, other=0.0),)
    return q


@gluon.jit
def scores_of_blocks(
    q, ring, rest, full, slot, phase, BLOCK: gl.constexpr, D1: gl.constexpr, D2: gl.constexpr, STAGES: gl.constexpr
):
    """Return the scores of the blocks of a tile of keys once it has been copied."""
    SCORES: gl.constexpr = q[0].type.layout.parent
    KEYS: gl.constexpr = gl.DotOperandLayout(operand_index=1, parent=SCORES, k_width=2)
    WARPS: gl.constexpr = SCORES.warps_per_cta[0]
    mbarrier.wait(full.index(slot), phase)
    scores = gl.zeros([WARPS, 16, BLOCK], gl.float32, SCORES)
    tiles = ring._reinterpret(ring.dtype, [STAGES, WARPS, BLOCK, D1], layout_of_tiles(D1))
    scores = mma_v2(q[0], tiles.index(slot).permute((0, 2, 1)).load(KEYS), scores)
    if D2:
        tiles = rest._reinterpret(rest.dtype, [STAGES, WARPS, BLOCK, D2], layout_of_tiles(D2))
        scores = mma_v2(q[1], tiles.index(slot).permute((0, 2, 1)).load(KEYS), scores)
    return scores


@gluon.jit
def visible_scores_of_blocks(
    s, start, plain, positions, keys, window, cap_factor,
    BLOCK: gl.constexpr, CAUSAL: gl.constexpr, WINDOW: gl.constexpr, CAP: gl.constexpr,
):  # fmt: skip
    """Return the scores of blocks from key `start` on, those of hidden keys as -inf, as `capped_and_masked` does."""
    SCORES: gl.constexpr = s.type.layout
    WARPS: gl.constexpr = SCORES.warps_per_cta[0]
    if CAP:
        s = 1.0 - 2.0 / (gl.exp2(s * cap_factor) + 1.0)
    if start + WARPS * BLOCK > plain:
        block = gl.arange(0, WARPS, gl.SliceLayout(1, gl.SliceLayout(2, SCORES))) * BLOCK
        key = gl.arange(0, BLOCK, gl.SliceLayout(0, gl.SliceLayout(1, SCORES)))
        place = start + gl.expand_dims(gl.expand_dims(block, 1), 2) + gl.expand_dims(gl.expand_dims(key, 0), 1)
        seen = place < keys
        position = gl.expand_dims(gl.expand_dims(positions, 0), 2)
        if CAUSAL:
            seen = seen & (place <= position)
        if WINDOW:
            seen = seen & (place > position - window)
        _, seen = gl.broadcast(s, seen)
        s = gl.where(seen, s, NOTHING)
    return s


@gluon.jit
def add_blocks(
    s, ring, rest, full, empty, slot, phase, count, behind, top, total, outs, scale, greatest_scores, sums, exchanged,
    BLOCK: gl.constexpr, DV1: gl.constexpr, DV2: gl.constexpr, STAGES: gl.constexpr, COUNT: gl.constexpr,
    CLEARED: gl.constexpr,
):  # fmt: skip
    """Add blocks with these masked scores, of which each warp has one, and the values in the next slots of the ring.

    Return the slot after them, and the state of the chunk.  Blocks from key `count` on have no slots, and change no
    state.  With CLEARED values from `behind` on are 0.
    """
    SCORES: gl.constexpr = s.type.layout
    WARPS: gl.constexpr = SCORES.warps_per_cta[0]
    OUT: gl.constexpr = outs[0].type.layout
    ROWS: gl.constexpr = gl.SliceLayout(1, OUT)
    OWN: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, SCORES))
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=OUT, k_width=2)
    VALUES: gl.constexpr = gl.DotOperandLayout(operand_index=1, parent=OUT, k_width=2)
    greatest_scores.store(gl.max(s, axis=2) * scale)
    block = gl.expand_dims(gl.arange(0, WARPS, gl.SliceLayout(1, gl.SliceLayout(2, SCORES))), 1)
    own_shift = gl.full([WARPS, 16], 0.0, gl.float32, gl.SliceLayout(2, SCORES))
    shrinks = ()
    for part in gl.static_range(WARPS):
        highest = maximum_after(top, row_of_numbers(greatest_scores, part, ROWS))
        shift = finite_shift(highest)
        shrinks += (gl.exp2(top - shift),)
        of_block = gl.expand_dims(gl.convert_layout(shift, OWN, assert_trivial=True), 0)
        mine, of_block = gl.broadcast(block == part, of_block)
        own_shift = gl.where(mine, of_block, own_shift)
        top = highest
    factor = gl.full(s.shape, scale, gl.float32, SCORES)
    less, _ = gl.broadcast(gl.expand_dims(-own_shift, 2), s)
    weights = gl.exp2(gl.fma(s, factor, less))
    sums.store(gl.sum(weights, axis=2))
    exchanged.store(weights.to(exchanged.dtype))
    first = slot
    weights_of_blocks = exchanged._reinterpret(exchanged.dtype, exchanged.shape, layout_of_exchange(2))
    for part in gl.static_range(WARPS):
        if part * BLOCK < count:
            shrink = shrinks[part]
            total = gl.fma(total, shrink, row_of_numbers(sums, part, ROWS))
            left = weights_of_blocks.index(part).load(WEIGHTS)
            mbarrier.wait(full.index(STAGES + slot), phase)
            values = (ring.index(slot).reshape([BLOCK, DV1]),)
            if DV2:
                values += (rest.index(slot).reshape([BLOCK, DV2]),)
            added = ()
            for side in gl.static_range(len(outs)):
                right = values[side].load(VALUES)
                if CLEARED:
                    row = gl.expand_dims(gl.arange(0, BLOCK, gl.SliceLayout(1, VALUES)), 1)
                    right = gl.where(row < behind - part * BLOCK, right, gl.full(right.shape, 0.0, right.dtype, VALUES))
                added += (mma_v2(left, right, outs[side] * gl.expand_dims(shrink, 1)),)
            outs = added
            if COUNT < 2 * WARPS:
                fence_async_shared()
                gl.thread_barrier()
                mbarrier.arrive(empty.index(STAGES + slot))
            behind_all = slot == COUNT - 1
            slot, phase = gl.where(behind_all, 0, slot + 1), gl.where(behind_all, phase ^ 1, phase)
    if COUNT >= 2 * WARPS:  # the values of the next tile have slots of their own
        fence_async_shared()
        gl.thread_barrier()
        for part in gl.static_range(WARPS):
            if part * BLOCK < count:
                mbarrier.arrive(empty.index(STAGES + first))
                first = gl.where(first == COUNT - 1, 0, first + 1)
    return slot, phase, top, total, outs


@gluon.jit
def rows_of_blocks(
    rings, q, begin, end, slot, phase, v_slot, v_phase, plain, positions, own_keys, window, scale, cap_factor,
    M: gl.constexpr, N: gl.constexpr, D1: gl.constexpr, D2: gl.constexpr, DV1: gl.constexpr, DV2: gl.constexpr,
    CHUNK: gl.constexpr, CAUSAL: gl.constexpr, WINDOW: gl.constexpr, CAP: gl.constexpr, SEVERAL: gl.constexpr,
    RAGGED: gl.constexpr, STAGES: gl.constexpr, OUT: gl.constexpr, BLOCK: gl.constexpr, VALUES: gl.constexpr,
):  # fmt: skip
    """Visit the keys of a part with 16 rows, and a block of each tile in each warp; see `many_rows`."""
    k_ring, k_rest, v_ring, v_rest, full, empty = rings
    ROWS: gl.constexpr = gl.SliceLayout(1, OUT)
    COUNT: gl.constexpr = N // BLOCK
    top, total = gl.full([M], NOTHING, gl.float32, ROWS), gl.zeros([M], gl.float32, ROWS)
    outs = empty_output(M, DV1, DV2, OUT)
    state_top, state_total = gl.full([M], NOTHING, gl.float32, ROWS), gl.zeros([M], gl.float32, ROWS)
    state_outs = empty_output(M, DV1, DV2, OUT)
    greatest_scores = gl.allocate_shared_memory(gl.float32, [COUNT, M], layout_of_rows(2))
    sums = gl.allocate_shared_memory(gl.float32, [COUNT, M], layout_of_rows(2))
    exchanged = gl.allocate_shared_memory(k_ring.dtype, [COUNT, M, BLOCK], layout_of_exchange(3))
    AHEAD: gl.constexpr = STAGES > 1  # as in `few_rows`
    s = scores_of_blocks(q, k_ring, k_rest, full, slot, phase, BLOCK, D1, D2, STAGES)
    release_after_loads(empty, slot)
    slot, phase = next_slot(slot, phase, STAGES)
    last = (end - 1) // N * N
    for start in range(begin, last, N):
        state_top, state_total, state_outs, top, total, outs = after_chunk(
            start, begin, state_top, state_total, state_outs, top, total, outs, CHUNK, SEVERAL
        )
        if AHEAD:
            next_s = scores_of_blocks(q, k_ring, k_rest, full, slot, phase, BLOCK, D1, D2, STAGES)
        s = visible_scores_of_blocks(
            s, start, plain, positions, own_keys, window, cap_factor, BLOCK, CAUSAL, WINDOW, CAP
        )
        v_slot, v_phase, top, total, outs = add_blocks(
            s, v_ring, v_rest, full, empty, v_slot, v_phase, N, N, top, total, outs, scale, greatest_scores, sums,
            exchanged, BLOCK, DV1, DV2, STAGES, VALUES, False,
        )  # fmt: skip
        if AHEAD:  # all warps have met since they loaded the keys
            mbarrier.arrive(empty.index(slot))
        else:
            next_s = scores_of_blocks(q, k_ring, k_rest, full, slot, phase, BLOCK, D1, D2, STAGES)
            release_after_loads(empty, slot)
        s = next_s
        slot, phase = next_slot(slot, phase, STAGES)
    state_top, state_total, state_outs, top, total, outs = after_chunk(
        last, begin, state_top, state_total, state_outs, top, total, outs, CHUNK, SEVERAL
    )
    s = visible_scores_of_blocks(s, last, plain, positions, own_keys, window, cap_factor, BLOCK, CAUSAL, WINDOW, CAP)
    # What is behind the last key of a sequence belongs to others.
    v_slot, v_phase, top, total, outs = add_blocks(
        s, v_ring, v_rest, full, empty, v_slot, v_phase, end - last, own_keys - last, top, total, outs, scale,
        greatest_scores, sums, exchanged, BLOCK, DV1, DV2, STAGES, VALUES, RAGGED,
    )  # fmt: skip
    return state_top, state_total, state_outs, top, total, outs, slot, phase, v_slot, v_phase
