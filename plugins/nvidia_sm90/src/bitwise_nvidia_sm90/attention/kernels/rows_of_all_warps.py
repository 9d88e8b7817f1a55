"""Attention of 16 rows, whose scores and components of the output some warps share; see `chunk_turns`.

The warps exchange the weights of a block, so that each adds all of them in one order.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call,attr-defined,assignment,misc,var-annotated"
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from bitwise_nvidia_sm90.attention.kernels.merges import finite_shift, maximum_after
from bitwise_nvidia_sm90.attention.kernels.rings import block_of_slot, next_slot, release_after_loads
from bitwise_nvidia_sm90.attention.kernels.states_of_chunks import after_chunk, capped_and_masked, empty_output

NOTHING = gl.constexpr(float("-inf"))


@gluon.constexpr_function
def product_layout(columns, few, warps):
    """Return the layout of a product: the warps share its columns, or its 64 rows."""
    if few:
        return gl.NVMMADistributedLayout(version=[2, 0], warps_per_cta=[1, warps], instr_shape=[16, 8])
    return gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, columns, 16])


@gluon.jit
def few_scores(q, keys, BLOCK: gl.constexpr):
    """Return the products of 16 rows of queries and a block of keys, of which each warp has some."""
    SCORES: gl.constexpr = q[0].type.layout.parent
    scores = gl.zeros([16, BLOCK], gl.float32, SCORES)
    for part in gl.static_range(len(q)):
        right = keys[part].permute((1, 0)).load(gl.DotOperandLayout(operand_index=1, parent=SCORES, k_width=2))
        scores = mma_v2(q[part], right, scores)
    return scores


@gluon.jit
def add_few(
    s, values, start, plain, positions, keys, window, cap_factor, behind, top, total, outs, scale, exchanged,
    BLOCK: gl.constexpr, CAUSAL: gl.constexpr, WINDOW: gl.constexpr, CAP: gl.constexpr, RAGGED: gl.constexpr,
):  # fmt: skip
    """Return the state of a chunk after a block with these scores and values.

    Values from `behind` on are 0.  Each warp has some components of the output, and all weights, in the order in which
    a warp of 16 rows adds them.
    """
    OUT: gl.constexpr = outs[0].type.layout
    WARPS: gl.constexpr = OUT.warps_per_cta[1]
    ALL: gl.constexpr = gl.NVMMADistributedLayout(version=[2, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, 8])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=OUT, k_width=2)
    VALUES: gl.constexpr = gl.DotOperandLayout(operand_index=1, parent=OUT, k_width=2)
    s = capped_and_masked(s, start, plain, positions, keys, window, cap_factor, BLOCK, CAUSAL, WINDOW, CAP)
    highest = maximum_after(top, gl.max(s, axis=1) * scale)
    shift = finite_shift(highest)
    factor = gl.full(s.shape, scale, gl.float32, OUT)
    less, _ = gl.broadcast(gl.expand_dims(-shift, 1), s)
    weights = gl.exp2(gl.fma(s, factor, less))
    if WARPS > 1:
        exchanged.store(weights)
    shrink = gl.exp2(top - shift)
    if WARPS > 1:
        weights = exchanged.load(ALL)
    total = gl.fma(total, gl.convert_layout(shrink, total.type.layout, assert_trivial=True), gl.sum(weights, axis=1))
    left = gl.convert_layout(weights.to(values[0].dtype), WEIGHTS)
    added = ()
    for side in gl.static_range(len(outs)):
        right = values[side].load(VALUES)
        if RAGGED:
            row = gl.expand_dims(gl.arange(0, BLOCK, gl.SliceLayout(1, VALUES)), 1)
            right = gl.where(row < behind, right, gl.full(right.shape, 0.0, right.dtype, VALUES))
        added += (mma_v2(left, right, outs[side] * gl.expand_dims(shrink, 1)),)
    return highest, total, added


@gluon.jit
def few_rows(
    rings, q, begin, end, slot, phase, plain, positions, own_keys, window, scale, cap_factor,
    M: gl.constexpr, N: gl.constexpr, D1: gl.constexpr, D2: gl.constexpr, DV1: gl.constexpr, DV2: gl.constexpr,
    CHUNK: gl.constexpr, CAUSAL: gl.constexpr, WINDOW: gl.constexpr, CAP: gl.constexpr, SEVERAL: gl.constexpr,
    RAGGED: gl.constexpr, STAGES: gl.constexpr, OUT: gl.constexpr, BLOCK: gl.constexpr,
):  # fmt: skip
    """Visit the keys of a part with 16 rows, whose scores and components the warps share; see `many_rows`."""
    k_ring, k_rest, v_ring, v_rest, full, empty = rings
    WARPS: gl.constexpr = OUT.warps_per_cta[1]
    ALL: gl.constexpr = gl.NVMMADistributedLayout(version=[2, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, 8])
    ROWS: gl.constexpr = gl.SliceLayout(1, OUT)
    top, total = gl.full([M], NOTHING, gl.float32, ROWS), gl.zeros([M], gl.float32, gl.SliceLayout(1, ALL))
    outs = empty_output(M, DV1, DV2, OUT)
    state_top, state_total = gl.full([M], NOTHING, gl.float32, ROWS), gl.zeros([M], gl.float32, ROWS)
    state_outs = empty_output(M, DV1, DV2, OUT)
    SWIZZLED: gl.constexpr = gl.SwizzledSharedLayout(8, 1, 8, order=[1, 0])
    exchanged = gl.allocate_shared_memory(gl.float32, [M, BLOCK], SWIZZLED)
    # The next scores are computed before these are used, unless their keys would hold one of few slots meanwhile.
    AHEAD: gl.constexpr = STAGES > 3
    s = few_scores(q, block_of_slot(k_ring, k_rest, full, slot, phase, BLOCK, D1, D2), BLOCK)
    release_after_loads(empty, slot)
    last = (end - 1) // N * N
    for start in range(begin, last, N):
        v_slot, v_phase = next_slot(slot, phase, STAGES)
        slot, phase = next_slot(v_slot, v_phase, STAGES)
        state_top, state_total, state_outs, top, total, outs = after_chunk(
            start, begin, state_top, state_total, state_outs, top, total, outs, CHUNK, SEVERAL
        )
        if AHEAD:
            next_s = few_scores(q, block_of_slot(k_ring, k_rest, full, slot, phase, BLOCK, D1, D2), BLOCK)
        values = block_of_slot(v_ring, v_rest, full, v_slot, v_phase, BLOCK, DV1, DV2)
        top, total, outs = add_few(
            s, values, start, plain, positions, own_keys, window, cap_factor, N, top, total, outs, scale, exchanged,
            BLOCK, CAUSAL, WINDOW, CAP, False,
        )  # fmt: skip
        release_after_loads(empty, v_slot)
        if AHEAD:
            mbarrier.arrive(empty.index(slot))
        else:
            next_s = few_scores(q, block_of_slot(k_ring, k_rest, full, slot, phase, BLOCK, D1, D2), BLOCK)
            release_after_loads(empty, slot)
        s = next_s
    v_slot, v_phase = next_slot(slot, phase, STAGES)
    state_top, state_total, state_outs, top, total, outs = after_chunk(
        last, begin, state_top, state_total, state_outs, top, total, outs, CHUNK, SEVERAL
    )
    values = block_of_slot(v_ring, v_rest, full, v_slot, v_phase, BLOCK, DV1, DV2)
    # What is behind the last key of a sequence belongs to others.
    top, total, outs = add_few(
        s, values, last, plain, positions, own_keys, window, cap_factor, own_keys - last, top, total, outs, scale,
        exchanged, BLOCK, CAUSAL, WINDOW, CAP, RAGGED,
    )  # fmt: skip
    release_after_loads(empty, v_slot)
    slot, phase = next_slot(v_slot, v_phase, STAGES)
    return state_top, state_total, state_outs, top, total, outs, slot, phase
