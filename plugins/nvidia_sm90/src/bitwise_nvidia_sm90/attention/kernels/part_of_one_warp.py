"""The Gluon kernel of attention for few queries whose programs are one warp each, and have one part of the work each.

It computes the tree of `chunks.forward`, as `chunk_turns.visit_parts` does.  A warp has all 16 rows, so that it
exchanges nothing with others, and the many programs of a multiprocessor hide the time that each takes for a block.  A
slot of its ring has some components of the keys or of the values of a block.  A warp starts the copy to a slot as soon
as it has read what was there.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call,attr-defined,assignment,misc,var-annotated"
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from bitwise_nvidia_sm90.attention.kernels.copies_of_parts import first_pages, known_pages
from bitwise_nvidia_sm90.attention.kernels.parts import first_part
from bitwise_nvidia_sm90.attention.kernels.rings import next_slot
from bitwise_nvidia_sm90.attention.kernels.rows_of_all_warps import add_few, product_layout
from bitwise_nvidia_sm90.attention.kernels.states_of_chunks import after_chunk, store_output, store_state
from bitwise_nvidia_sm90.attention.kernels.tiles_of_keys import (
    copy_tile,
    lengths_of,
    pages_of_tile,
    parts_of_ring,
    ring_of_parts,
)

NOTHING = gl.constexpr(float("-inf"))


@gluon.jit
def copied(
    start, numbers, slot, kind: gl.constexpr, of_copies,
    N: gl.constexpr, S: gl.constexpr, KP: gl.constexpr, VP: gl.constexpr, PAGE: gl.constexpr,
):  # fmt: skip
    """Start the copy of S components of the block from key `start` on to a slot; return where the next copy begins.

    The kinds of a block are its KP shares of keys, and then the VP shares of values.  `numbers` are the pages of the
    block, and are returned for the next copy too.  Behind the last block nothing is copied.
    """
    key_map, value_map, parts, full, pages, page, batch, group, first, own_keys, end = of_copies
    if start < end:
        bar = full.index(slot)
        mbarrier.expect(bar, N * S * 2)
        if kind < KP:
            copy_tile(key_map, parts, slot, bar, numbers, batch, group, first, start, kind * S, N, S, PAGE)
        else:
            copy_tile(value_map, parts, slot, bar, numbers, batch, group, first, start, (kind - KP) * S, N, S, PAGE)
    if kind == KP + VP - 1:
        start += N
        numbers = pages_of_tile(key_map, pages, page, own_keys, start, N, PAGE)
    return start, numbers


@gluon.jit
def scores_of_block(q, ring, full, slot, phase, N: gl.constexpr, S: gl.constexpr, STAGES: gl.constexpr):
    """Return the products of queries and a block of keys once it has been copied, and the slot after it."""
    SCORES: gl.constexpr = q[0].type.layout.parent
    scores = gl.zeros([16, N], gl.float32, SCORES)
    for share in gl.static_range(len(q)):
        mbarrier.wait(full.index(slot), phase)
        right = ring.index(slot).reshape([N, S]).permute((1, 0))
        right = right.load(gl.DotOperandLayout(operand_index=1, parent=SCORES, k_width=2))
        scores = mma_v2(q[share], right, scores)
        slot, phase = next_slot(slot, phase, STAGES)
    return scores, slot, phase


@gluon.jit
def values_of_block(ring, full, slot, phase, N: gl.constexpr, S: gl.constexpr, VP: gl.constexpr, STAGES: gl.constexpr):
    """Return the shares of the values of a block once they have been copied, and the slot after them."""
    found = ()
    for _ in gl.static_range(VP):
        mbarrier.wait(full.index(slot), phase)
        found += (ring.index(slot).reshape([N, S]),)
        slot, phase = next_slot(slot, phase, STAGES)
    return found, slot, phase


@gluon.jit
def shares_of_zeros(M: gl.constexpr, S: gl.constexpr, COUNT: gl.constexpr, OUT: gl.constexpr):
    """Return zeros for COUNT shares of the output."""
    found = ()
    for _ in gl.static_range(COUNT):
        found += (gl.zeros([M, S], gl.float32, OUT),)
    return found


@gluon.jit
def refilled(
    copy, numbers, slot, FIRST: gl.constexpr, COUNT: gl.constexpr, of_copies,
    N: gl.constexpr, S: gl.constexpr, KP: gl.constexpr, VP: gl.constexpr, PAGE: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Start copies to COUNT slots from `slot` on, which had the kinds from FIRST on and have been read.

    Return where the copy after them begins, and its pages.
    """
    fence_async_shared()
    gl.thread_barrier()
    for share in gl.static_range(COUNT):
        copy, numbers = copied(
            copy, numbers, slot, (FIRST + share + STAGES) % (KP + VP), of_copies, N, S, KP, VP, PAGE
        )  # fmt: skip
        slot = gl.where(slot == STAGES - 1, 0, slot + 1)
    return copy, numbers


@gluon.jit
def queries_of_part(
    query, query_starts, sequence, group, tile, own_queries, query_batch, query_step, query_head,
    M: gl.constexpr, S: gl.constexpr, KP: gl.constexpr, GROUP: gl.constexpr, QUERIES: gl.constexpr,
):  # fmt: skip
    """Return the shares of a tile of packed queries."""
    query_row = query + sequence.to(gl.int64) * query_batch
    if query_starts is not None:
        query_row = query + gl.load(query_starts + sequence).to(gl.int64) * query_step
    at = (tile * M + gl.arange(0, M, gl.SliceLayout(1, QUERIES))) // GROUP
    head = group * GROUP + (tile * M + gl.arange(0, M, gl.SliceLayout(1, QUERIES))) % GROUP
    base = gl.expand_dims(query_row + head.to(gl.int64) * query_head + at.to(gl.int64) * query_step, 1)
    real = gl.expand_dims(at < own_queries, 1)
    q = ()
    for share in gl.static_range(KP):
        lane = gl.expand_dims(share * S + gl.arange(0, S, gl.SliceLayout(0, QUERIES)), 0)
        q += (gl.load(base + lane, mask=real, other=0.0),)
    return q


@gluon.jit
def after_block(
    copy, numbers, slot, phase, q, start, plain, positions, own_keys, top, total, outs, ring, of_copies, window, scale,
    cap_factor, PARTIAL: gl.constexpr,
    N: gl.constexpr, S: gl.constexpr, KP: gl.constexpr, VP: gl.constexpr, PAGE: gl.constexpr, CAUSAL: gl.constexpr,
    WINDOW: gl.constexpr, CAP: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Compute a block, and start copies to its slots.

    Return where the next copy begins and its pages, the next slot and its phase, and the state of the chunk.  What is
    behind the last key of a PARTIAL block belongs to others.
    """
    before = slot
    s, slot, phase = scores_of_block(q, ring, of_copies[3], slot, phase, N, S, STAGES)
    copy, numbers = refilled(copy, numbers, before, 0, KP, of_copies, N, S, KP, VP, PAGE, STAGES)
    before = slot
    values, slot, phase = values_of_block(ring, of_copies[3], slot, phase, N, S, VP, STAGES)
    top, total, outs = add_few(
        s, values, start, plain, positions, own_keys, window, cap_factor, own_keys - start if PARTIAL else N, top,
        total, outs, scale, None, N, CAUSAL, WINDOW, CAP, PARTIAL,
    )  # fmt: skip
    copy, numbers = refilled(copy, numbers, before, KP, VP, of_copies, N, S, KP, VP, PAGE, STAGES)
    return copy, numbers, slot, phase, top, total, outs


@gluon.jit(
    do_not_specialize=[
        "queries", "keys", "first_position", "window", "tiles", "groups", "chunks", "sequences", "stored",
        "logarithm_batch", "logarithm_step", "logarithm_head", "page_batch",
    ]
)  # fmt: skip
def compute_part(
    query, key_map, value_map, output, logarithms, part_top, part_total, part_out,
    query_starts, key_starts, key_lengths, pages, sinks,
    query_batch, query_step, query_head, output_batch, output_step, output_head,
    logarithm_batch, logarithm_step, logarithm_head, page_batch,
    queries, keys, first_position, scale, cap_factor, window, tiles, groups, chunks, sequences, stored,
    S: gl.constexpr, KP: gl.constexpr, VP: gl.constexpr, WIDTH: gl.constexpr,
    GROUP: gl.constexpr, M: gl.constexpr, N: gl.constexpr,
    CHUNK: gl.constexpr, PAGE: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr, ALIGNED: gl.constexpr,
    WINDOW: gl.constexpr, CAP: gl.constexpr, SPLIT: gl.constexpr, SEVERAL: gl.constexpr, LOGARITHMS: gl.constexpr,
    ORDERED: gl.constexpr,
):  # fmt: skip
    """Compute a part of a sequence: with SPLIT store its state, else the output of its rows.

    Keys have KP shares of S components, and values VP; stored rows have WIDTH components.  The other arguments are
    those of `chunk_turns.visit_parts`.
    """
    RAGGED: gl.constexpr = (query_starts is not None) or (key_starts is not None) or (key_lengths is not None)
    SCORES: gl.constexpr = product_layout(N, True, 1)
    OUT: gl.constexpr = SCORES
    QUERIES: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=SCORES, k_width=2)
    ROWS: gl.constexpr = gl.SliceLayout(1, OUT)
    parts = parts_of_ring(key_map, STAGES, N, S)
    ring = ring_of_parts(key_map, parts, STAGES, N, S)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
    fence_async_shared()
    if RAGGED:
        gdc_wait()  # the next kernel reads the lengths at once
    gdc_launch_dependents()
    EARLY: gl.constexpr = (PAGE > 0) and not (WINDOW or ORDERED)
    early = ()
    if EARLY:
        early = first_pages(
            key_map, pages, page_batch, queries, keys, groups, sequences, M, N, GROUP, CHUNK, PAGE, SPLIT
        )  # fmt: skip
    _place, sequence, group, tile, begin, end = first_part(
        query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups, sequences, M, N, GROUP,
        CHUNK, CAUSAL, ALIGNED, WINDOW, SPLIT, True, ORDERED,
    )  # fmt: skip
    if sequence < sequences:
        own_queries, own_keys, own_first = lengths_of(
            sequence, query_starts, key_starts, key_lengths, queries, keys, first_position, sequences, ALIGNED
        )
        batch, first, page = sequence, sequence * 0, sequence.to(gl.int64) * page_batch
        if key_starts is not None:
            batch, first = sequence * 0, gl.load(key_starts + sequence)
        if EARLY:
            numbers = known_pages(key_map, early, own_keys, begin, N)
        else:
            numbers = pages_of_tile(key_map, pages, page, own_keys, begin, N, PAGE)
        of_copies = key_map, value_map, parts, full, pages, page, batch, group, first, own_keys, end
        copy = begin
        for stage in gl.static_range(STAGES):
            copy, numbers = copied(copy, numbers, stage, stage % (KP + VP), of_copies, N, S, KP, VP, PAGE)
        slot, phase = gl.to_tensor(0), gl.to_tensor(0)
        q = queries_of_part(
            query, query_starts, sequence, group, tile, own_queries, query_batch, query_step, query_head, M, S, KP,
            GROUP, QUERIES,
        )  # fmt: skip
        positions = (tile * M + gl.arange(0, M, gl.SliceLayout(1, SCORES))) // GROUP + own_first
        plain = own_keys
        if CAUSAL:
            plain = gl.minimum(plain, tile * M // GROUP + own_first + 1)
        if WINDOW:
            plain = 0
        top, total = gl.full([M], NOTHING, gl.float32, ROWS), gl.zeros([M], gl.float32, ROWS)
        outs = shares_of_zeros(M, S, VP, OUT)
        state_top, state_total = top, total
        state_outs = shares_of_zeros(M, S, VP, OUT)
        row = ((sequence * groups + group) * tiles + tile).to(gl.int64) * stored
        states = part_top, part_total, part_out, row, chunks, tile * M, own_queries
        last = (end - 1) // N * N
        for start in range(begin, last, N):
            state_top, state_total, state_outs, top, total, outs = after_chunk(
                start, begin, state_top, state_total, state_outs, top, total, outs, CHUNK, SEVERAL
            )
            copy, numbers, slot, phase, top, total, outs = after_block(
                copy, numbers, slot, phase, q, start, plain, positions, own_keys, top, total, outs, ring, of_copies,
                window, scale, cap_factor, False, N, S, KP, VP, PAGE, CAUSAL, WINDOW, CAP, STAGES,
            )  # fmt: skip
        state_top, state_total, state_outs, top, total, outs = after_chunk(
            last, begin, state_top, state_total, state_outs, top, total, outs, CHUNK, SEVERAL
        )
        copy, numbers, slot, phase, top, total, outs = after_block(
            copy, numbers, slot, phase, q, last, plain, positions, own_keys, top, total, outs, ring, of_copies, window,
            scale, cap_factor, RAGGED, N, S, KP, VP, PAGE, CAUSAL, WINDOW, CAP, STAGES,
        )  # fmt: skip
        packed = tile * M + gl.arange(0, M, ROWS)
        inside = packed // GROUP < own_queries
        if not SPLIT:
            store_output(
                output, logarithms, query_starts, sinks, sequence, group, packed, inside, state_top, state_total,
                state_outs, top, total, outs, output_batch, output_step, output_head, logarithm_batch,
                logarithm_step, logarithm_head, GROUP, S, S, LOGARITHMS, OUT,
            )  # fmt: skip
        else:
            store_state(states, (end - 1) // CHUNK, top, total, outs, M, GROUP, S, S, WIDTH, OUT)
