"""The Gluon kernel of attention for few queries: programs take chunks of keys in turn.

It computes the tree of `chunks.forward`.  Copies of keys and values fill a ring of tiles and run ahead over the chunks
of a program, whatever sequence and head they belong to, so that memory is never idle.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, attr-defined"
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from bitwise_nvidia_sm90.attention.kernels.specialised import finished, merged, softmax_step, visible_scores
from bitwise_nvidia_sm90.attention.kernels.tiles_of_keys import (
    clear_rows,
    copy_tile,
    lengths_of,
    parts_of_ring,
    ring_of_parts,
)

NOTHING = gl.constexpr(float("-inf"))


@gluon.jit
def next_part(
    place, sequence, query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups, sequences,
    M: gl.constexpr, N: gl.constexpr, GROUP: gl.constexpr, CHUNK: gl.constexpr, CAUSAL: gl.constexpr,
    ALIGNED: gl.constexpr, WINDOW: gl.constexpr, SPLIT: gl.constexpr, RAGGED: gl.constexpr,
):  # fmt: skip
    """Return the first of a program's parts that has keys, from a place of a sequence on.

    A part is one chunk of keys for one tile of packed rows; a sequence has a place for each of its parts.  The groups
    of one chunk follow each other, since their keys share the pages of memory.  The result is the place and the
    sequence, the group of heads, the tile of rows, and the keys from first to last.
    """
    programs = gl.num_programs(0)
    group, tile, begin, end = 0, 0, 0, 0
    while (begin >= end) & (sequence < sequences):
        own_queries, own_keys, own_first = lengths_of(
            sequence, query_starts, key_starts, key_lengths, queries, keys, first_position, sequences, ALIGNED
        )
        lowest, chunks = 0, 1
        if SPLIT:
            if WINDOW:
                lowest = gl.maximum(0, own_first - window + 1) // CHUNK
            chunks = (own_keys + CHUNK - 1) // CHUNK
            lowest = gl.minimum(lowest, gl.maximum(chunks - 1, 0))
            chunks -= lowest
        count = (own_queries * GROUP + M - 1) // M * chunks * groups
        if place >= count:
            if RAGGED:
                place -= count
                sequence += 1
            else:
                sequence += place // count
                place = place % count
        else:
            group = place % groups
            chunk = lowest + place // groups % chunks
            tile = place // groups // chunks
            begin, end = 0, own_keys
            if CAUSAL:
                last = gl.minimum((tile * M + M - 1) // GROUP, own_queries - 1)
                end = gl.minimum(end, last + own_first + 1)
            if WINDOW:
                begin = gl.minimum(gl.maximum(0, tile * M // GROUP + own_first - window + 1), own_keys - 1) // N * N
            if SPLIT:
                begin, end = gl.maximum(begin, chunk * CHUNK), gl.minimum(end, chunk * CHUNK + CHUNK)
            else:  # a row without keys needs its zeros
                begin = gl.maximum(begin, 0)
                end = gl.maximum(end, begin + 1)
            if begin >= end:
                place += programs
    return place, sequence, group, tile, begin, end


@gluon.jit
def copy_next(
    key_map, value_map, parts, full, count, place, sequence, group, start, end, pages, page_batch,
    query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups, sequences,
    M: gl.constexpr, N: gl.constexpr, D: gl.constexpr, GROUP: gl.constexpr, CHUNK: gl.constexpr, PAGE: gl.constexpr,
    CAUSAL: gl.constexpr, ALIGNED: gl.constexpr, WINDOW: gl.constexpr, SPLIT: gl.constexpr, RAGGED: gl.constexpr,
    STAGES: gl.constexpr, VALUES: gl.constexpr,
):  # fmt: skip
    """Copy the tile of number `count` of the ring, if there is one, and return the number and the place of the next.

    Tiles of keys have even numbers, and those of their values follow them.
    """
    source = value_map if VALUES else key_map
    if sequence < sequences:
        bar = full.index(count % STAGES)
        mbarrier.expect(bar, N * D * 2)
        batch, first, own_pages, own_keys = sequence, 0, pages, keys
        if key_starts is not None:
            batch, first = 0, gl.load(key_starts + sequence)
        if PAGE:
            own_pages = pages + sequence.to(gl.int64) * page_batch
            own_keys = gl.load(key_lengths + sequence)
        copy_tile(source, parts, count % STAGES, bar, own_pages, own_keys, batch, group, first, start, 0, N, D, PAGE)
        if VALUES:
            start += N
            if start >= end:
                place, sequence, group, _, start, end = next_part(
                    place + gl.num_programs(0), sequence, query_starts, key_starts, key_lengths, queries, keys,
                    first_position, window, groups, sequences, M, N, GROUP, CHUNK, CAUSAL, ALIGNED, WINDOW, SPLIT,
                    RAGGED,
                )  # fmt: skip
    return count + 1, place, sequence, group, start, end


@gluon.jit
def of_keys(ring, stage, N: gl.constexpr, D: gl.constexpr):
    """Return a tile of keys of the ring as the right operand of scores."""
    return ring.index(stage).reshape([N, D]).permute((1, 0))


@gluon.jit
def weights_of(
    s, start, plain, positions, keys, window, top, total, scale, cap_factor,
    N: gl.constexpr, CAUSAL: gl.constexpr, WINDOW: gl.constexpr, CAP: gl.constexpr,
):  # fmt: skip
    """Return what `softmax_step` returns of the scores of a block, of which those before `plain` need no mask."""
    if CAP:
        s = 1.0 - 2.0 / (gl.exp2(s * cap_factor) + 1.0)
    if start + N > plain:
        s = visible_scores(s, start, positions, keys, window, N, CAUSAL, WINDOW)
    return softmax_step(s, top, total, scale)


@gluon.jit
def after_chunk(
    start, begin, state_top, state_total, state_out, top, total, out, CHUNK: gl.constexpr, SEVERAL: gl.constexpr
):
    """Return the states of the chunks so far and of the chunk of block `start`, which may end the one before it."""
    if SEVERAL and (start % CHUNK == 0) & (start > begin):
        state_top, state_total, state_out = merged(state_top, state_total, state_out, top, total, out)
        top = gl.full(top.shape, NOTHING, gl.float32, top.type.layout)
        total = gl.full(total.shape, 0.0, gl.float32, total.type.layout)
        out = gl.full(out.shape, 0.0, gl.float32, out.type.layout)
    return state_top, state_total, state_out, top, total, out


@gluon.jit(
    do_not_specialize=[
        "queries", "keys", "first_position", "window", "tiles", "groups", "chunks", "sequences", "stored",
        "logarithm_batch", "logarithm_step", "logarithm_head", "page_batch",
    ]
)  # fmt: skip
def visit_parts(
    query, key_map, value_map, output, logarithms, part_top, part_total, part_out,
    query_starts, key_starts, key_lengths, pages, sinks,
    query_batch, query_step, query_head, output_batch, output_step, output_head,
    logarithm_batch, logarithm_step, logarithm_head, page_batch,
    queries, keys, first_position, scale, cap_factor, window, tiles, groups, chunks, sequences, stored,
    D: gl.constexpr, GROUP: gl.constexpr, M: gl.constexpr, N: gl.constexpr, CHUNK: gl.constexpr, PAGE: gl.constexpr,
    STAGES: gl.constexpr, CAUSAL: gl.constexpr, ALIGNED: gl.constexpr, WINDOW: gl.constexpr, CAP: gl.constexpr,
    SPLIT: gl.constexpr, SEVERAL: gl.constexpr, LOGARITHMS: gl.constexpr,
):  # fmt: skip
    """Compute parts of sequences in turn: with SPLIT store the state of each, of `stored` rows, else its rows' output.

    A part has one chunk with SPLIT, else all chunks, of which SEVERAL says whether there may be more than one.  The
    arguments are those of `chunks.forward`.
    """
    SCORES: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, N, 16])
    OUT: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, D, 16])
    QUERIES: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=SCORES, k_width=2)
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=OUT, k_width=2)
    ROWS: gl.constexpr = gl.SliceLayout(1, SCORES)
    OUT_ROWS: gl.constexpr = gl.SliceLayout(1, OUT)
    RAGGED: gl.constexpr = (query_starts is not None) or (key_starts is not None) or (key_lengths is not None)
    parts = parts_of_ring(key_map, STAGES, N, D)
    ring = ring_of_parts(key_map, parts, STAGES, N, D)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
    fence_async_shared()
    gdc_wait()
    gdc_launch_dependents()
    programs = gl.num_programs(0)
    place, sequence, group, tile, begin, end = next_part(
        gl.program_id(0), gl.program_id(0) * 0, query_starts, key_starts, key_lengths, queries, keys, first_position,
        window, groups, sequences, M, N, GROUP, CHUNK, CAUSAL, ALIGNED, WINDOW, SPLIT, RAGGED,
    )  # fmt: skip
    issued, c_place, c_sequence, c_group, c_start, c_end = 0, place, sequence, group, begin, end
    for stage in gl.static_range(STAGES):
        issued, c_place, c_sequence, c_group, c_start, c_end = copy_next(
            key_map, value_map, parts, full, issued, c_place, c_sequence, c_group, c_start, c_end, pages, page_batch,
            query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups, sequences,
            M, N, D, GROUP, CHUNK, PAGE, CAUSAL, ALIGNED, WINDOW, SPLIT, RAGGED, STAGES, stage % 2,
        )  # fmt: skip
    count = 0
    while sequence < sequences:
        own_queries, own_keys, own_first = lengths_of(
            sequence, query_starts, key_starts, key_lengths, queries, keys, first_position, sequences, ALIGNED
        )
        query_row = query + sequence.to(gl.int64) * query_batch
        if query_starts is not None:
            first = gl.load(query_starts + sequence).to(gl.int64)
            query_row = query + first * query_step
        at = (tile * M + gl.arange(0, M, gl.SliceLayout(1, QUERIES))) // GROUP
        head = group * GROUP + (tile * M + gl.arange(0, M, gl.SliceLayout(1, QUERIES))) % GROUP
        base = query_row + head.to(gl.int64) * query_head
        base = gl.expand_dims(base + at.to(gl.int64) * query_step, 1)
        lane = gl.expand_dims(gl.arange(0, D, gl.SliceLayout(0, QUERIES)), 0)
        q = gl.load(base + lane, mask=gl.expand_dims(at < own_queries, 1), other=0.0)
        positions = (tile * M + gl.arange(0, M, ROWS)) // GROUP + own_first
        plain = own_keys
        if CAUSAL:
            plain = gl.minimum(plain, tile * M // GROUP + own_first + 1)
        if WINDOW:
            plain = 0
        top = gl.full([M], NOTHING, gl.float32, ROWS)
        total = gl.zeros([M], gl.float32, ROWS)
        out = gl.zeros([M, D], gl.float32, OUT)
        state_top = gl.full([M], NOTHING, gl.float32, OUT_ROWS)
        state_total, state_out = gl.zeros([M], gl.float32, OUT_ROWS), gl.zeros([M, D], gl.float32, OUT)
        tile_of_ring = count % STAGES
        mbarrier.wait(full.index(tile_of_ring), count // STAGES & 1)
        s = gl.zeros([M, N], gl.float32, SCORES)
        s = warpgroup_mma(q, of_keys(ring, tile_of_ring, N, D), s, use_acc=False, is_async=True)
        s = warpgroup_mma_wait(0, deps=[s])
        gl.thread_barrier()  # the tile has been read
        issued, c_place, c_sequence, c_group, c_start, c_end = copy_next(
            key_map, value_map, parts, full, issued, c_place, c_sequence, c_group, c_start, c_end, pages, page_batch,
            query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups, sequences,
            M, N, D, GROUP, CHUNK, PAGE, CAUSAL, ALIGNED, WINDOW, SPLIT, RAGGED, STAGES, STAGES % 2,
        )  # fmt: skip
        last = (end - 1) // N * N
        for start in range(begin, last, N):
            state_top, state_total, state_out, top, total, out = after_chunk(
                start, begin, state_top, state_total, state_out, top, total, out, CHUNK, SEVERAL
            )
            found, top, total, shrink = weights_of(
                s, start, plain, positions, own_keys, window, top, total, scale, cap_factor, N, CAUSAL, WINDOW, CAP
            )
            out = out * gl.expand_dims(gl.convert_layout(shrink, OUT_ROWS, assert_trivial=True), 1)
            weights = gl.convert_layout(found.to(key_map.dtype), WEIGHTS)
            tile_of_ring = (count + 1) % STAGES
            mbarrier.wait(full.index(tile_of_ring), (count + 1) // STAGES & 1)
            out = warpgroup_mma(weights, ring.index(tile_of_ring).reshape([N, D]), out, is_async=True)
            tile_of_ring = (count + 2) % STAGES
            mbarrier.wait(full.index(tile_of_ring), (count + 2) // STAGES & 1)
            s = gl.zeros([M, N], gl.float32, SCORES)
            s = warpgroup_mma(q, of_keys(ring, tile_of_ring, N, D), s, use_acc=False, is_async=True)
            out, s = warpgroup_mma_wait(0, deps=[out, s])
            gl.thread_barrier()
            for kind in gl.static_range(2):
                issued, c_place, c_sequence, c_group, c_start, c_end = copy_next(
                    key_map, value_map, parts, full, issued, c_place, c_sequence, c_group, c_start, c_end, pages,
                    page_batch, query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups,
                    sequences, M, N, D, GROUP, CHUNK, PAGE, CAUSAL, ALIGNED, WINDOW, SPLIT, RAGGED, STAGES,
                    (STAGES + 1 + kind) % 2,
                )  # fmt: skip
            count += 2
        state_top, state_total, state_out, top, total, out = after_chunk(
            last, begin, state_top, state_total, state_out, top, total, out, CHUNK, SEVERAL
        )
        found, top, total, shrink = weights_of(
            s, last, plain, positions, own_keys, window, top, total, scale, cap_factor, N, CAUSAL, WINDOW, CAP
        )
        out = out * gl.expand_dims(gl.convert_layout(shrink, OUT_ROWS, assert_trivial=True), 1)
        weights = gl.convert_layout(found.to(key_map.dtype), WEIGHTS)
        tile_of_ring = (count + 1) % STAGES
        mbarrier.wait(full.index(tile_of_ring), (count + 1) // STAGES & 1)
        values = ring.index(tile_of_ring).reshape([N, D])
        if RAGGED and last + N > own_keys:  # what is behind the last key belongs to others
            clear_rows(values, own_keys - last, N, D)
        out = warpgroup_mma(weights, values, out, is_async=True)
        out = warpgroup_mma_wait(0, deps=[out])
        gl.thread_barrier()
        issued, c_place, c_sequence, c_group, c_start, c_end = copy_next(
            key_map, value_map, parts, full, issued, c_place, c_sequence, c_group, c_start, c_end, pages, page_batch,
            query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups, sequences,
            M, N, D, GROUP, CHUNK, PAGE, CAUSAL, ALIGNED, WINDOW, SPLIT, RAGGED, STAGES, (STAGES + 1) % 2,
        )  # fmt: skip
        count += 2
        lane = gl.expand_dims(gl.arange(0, D, gl.SliceLayout(0, OUT)), 0)
        packed = tile * M + gl.arange(0, M, OUT_ROWS)
        inside = packed // GROUP < own_queries
        if SPLIT:
            slot = ((sequence * groups + group) * tiles + tile).to(gl.int64) * stored
            slot = (slot + gl.arange(0, M, OUT_ROWS)) * chunks + begin // CHUNK
            top_row = gl.convert_layout(top, OUT_ROWS, assert_trivial=True)
            total_row = gl.convert_layout(total, OUT_ROWS, assert_trivial=True)
            # The states are read soon, and the keys that pass through the cache meanwhile are not.
            gl.store(part_top + slot, top_row, mask=inside, eviction_policy="evict_last")
            gl.store(part_total + slot, total_row, mask=inside, eviction_policy="evict_last")
            target = part_out + gl.expand_dims(slot, 1) * D + lane
            gl.store(target, out, mask=gl.expand_dims(inside, 1), eviction_policy="evict_last")
        else:
            all_top, all_total, all_out = merged(state_top, state_total, state_out, top, total, out)
            heads = group * GROUP + packed % GROUP
            if sinks is not None:
                sink = gl.load(sinks + heads).to(gl.float32) * 1.4426950408889634
                all_top, all_total, all_out = merged(
                    all_top, all_total, all_out, sink, gl.full([M], 1.0, gl.float32, OUT_ROWS),
                    gl.zeros([M, D], gl.float32, OUT),
                )  # fmt: skip
            all_out, logarithm = finished(all_top, all_total, all_out)
            at = (packed // GROUP).to(gl.int64)
            own_batch = sequence.to(gl.int64)
            if query_starts is not None:
                at += gl.load(query_starts + sequence)
                own_batch = own_batch * 0
            target = output + own_batch * output_batch + heads.to(gl.int64) * output_head
            target = gl.expand_dims(target + at * output_step, 1)
            gl.store(target + lane, all_out.to(output.dtype.element_ty), mask=gl.expand_dims(inside, 1))
            if LOGARITHMS:
                target = logarithms + own_batch * logarithm_batch + heads.to(gl.int64) * logarithm_head
                gl.store(target + at * logarithm_step, logarithm, mask=inside)
        place, sequence, group, tile, begin, end = next_part(
            place + programs, sequence, query_starts, key_starts, key_lengths, queries, keys, first_position, window,
            groups, sequences, M, N, GROUP, CHUNK, CAUSAL, ALIGNED, WINDOW, SPLIT, RAGGED,
        )  # fmt: skip
