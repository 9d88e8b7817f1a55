"""Attention of 64 rows, of which each of four warps has 16; see `chunk_turns`."""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call,attr-defined,assignment,misc,var-annotated"
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma, warpgroup_mma_wait

from bitwise_nvidia_sm90.attention.kernels.rings import block_of_slot, next_slot, release
from bitwise_nvidia_sm90.attention.kernels.specialised import softmax_step
from bitwise_nvidia_sm90.attention.kernels.states_of_chunks import after_chunk, capped_and_masked, empty_output
from bitwise_nvidia_sm90.attention.kernels.tiles_of_keys import clear_rows

NOTHING = gl.constexpr(float("-inf"))


@gluon.jit
def many_rows(
    rings, q, begin, end, slot, phase, plain, positions, own_keys, window, scale, cap_factor,
    M: gl.constexpr, N: gl.constexpr, D1: gl.constexpr, D2: gl.constexpr, DV1: gl.constexpr, DV2: gl.constexpr,
    CHUNK: gl.constexpr, CAUSAL: gl.constexpr, WINDOW: gl.constexpr, CAP: gl.constexpr, SEVERAL: gl.constexpr,
    RAGGED: gl.constexpr, STAGES: gl.constexpr, OUT: gl.constexpr, BLOCK: gl.constexpr,
):  # fmt: skip
    """Visit the keys of a part with 64 rows, 16 in each warp.

    Return the state of all chunks but the last and that of the last, and the slot of the next tile.
    """
    k_ring, k_rest, v_ring, v_rest, full, empty = rings
    SCORES: gl.constexpr = q[0].type.layout.parent
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=OUT, k_width=2)
    ROWS: gl.constexpr = gl.SliceLayout(1, SCORES)
    OUT_ROWS: gl.constexpr = gl.SliceLayout(1, OUT)
    top, total = gl.full([M], NOTHING, gl.float32, ROWS), gl.zeros([M], gl.float32, ROWS)
    outs = empty_output(M, DV1, DV2, OUT)
    state_top, state_total = gl.full([M], NOTHING, gl.float32, OUT_ROWS), gl.zeros([M], gl.float32, OUT_ROWS)
    state_outs = empty_output(M, DV1, DV2, OUT)
    s = gl.zeros([M, N], gl.float32, SCORES)
    keys = block_of_slot(k_ring, k_rest, full, slot, phase, N, D1, D2)[0].permute((1, 0))
    s = warpgroup_mma(q[0], keys, s, use_acc=False, is_async=True)
    s = warpgroup_mma_wait(0, deps=[s])
    release(empty, slot)
    last = (end - 1) // N * N
    for start in range(begin, last, N):
        v_slot, v_phase = next_slot(slot, phase, STAGES)
        slot, phase = next_slot(v_slot, v_phase, STAGES)
        state_top, state_total, state_outs, top, total, outs = after_chunk(
            start, begin, state_top, state_total, state_outs, top, total, outs, CHUNK, SEVERAL
        )
        s = capped_and_masked(s, start, plain, positions, own_keys, window, cap_factor, N, CAUSAL, WINDOW, CAP)
        found, top, total, shrink = softmax_step(s, top, total, scale)
        out = outs[0] * gl.expand_dims(gl.convert_layout(shrink, OUT_ROWS, assert_trivial=True), 1)
        weights = gl.convert_layout(found.to(k_ring.dtype), WEIGHTS)
        values = block_of_slot(v_ring, v_rest, full, v_slot, v_phase, N, DV1, DV2)[0]
        out = warpgroup_mma(weights, values, out, is_async=True)
        keys = block_of_slot(k_ring, k_rest, full, slot, phase, N, D1, D2)[0].permute((1, 0))
        s = gl.zeros([M, N], gl.float32, SCORES)
        s = warpgroup_mma(q[0], keys, s, use_acc=False, is_async=True)
        out, s = warpgroup_mma_wait(0, deps=[out, s])
        outs = (out,)
        gl.thread_barrier()
        mbarrier.arrive(empty.index(v_slot))
        mbarrier.arrive(empty.index(slot))
    v_slot, v_phase = next_slot(slot, phase, STAGES)
    state_top, state_total, state_outs, top, total, outs = after_chunk(
        last, begin, state_top, state_total, state_outs, top, total, outs, CHUNK, SEVERAL
    )
    s = capped_and_masked(s, last, plain, positions, own_keys, window, cap_factor, N, CAUSAL, WINDOW, CAP)
    found, top, total, shrink = softmax_step(s, top, total, scale)
    out = outs[0] * gl.expand_dims(gl.convert_layout(shrink, OUT_ROWS, assert_trivial=True), 1)
    weights = gl.convert_layout(found.to(k_ring.dtype), WEIGHTS)
    values = block_of_slot(v_ring, v_rest, full, v_slot, v_phase, N, DV1, DV2)[0]
    if RAGGED and last + N > own_keys:  # what is behind the last key belongs to others
        clear_rows(values, own_keys - last, N, DV1)
    out = warpgroup_mma(weights, values, out, is_async=True)
    out = warpgroup_mma_wait(0, deps=[out])
    release(empty, v_slot)
    slot, phase = next_slot(v_slot, v_phase, STAGES)
    return state_top, state_total, state_outs, top, total, (out,), slot, phase
