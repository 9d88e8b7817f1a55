"""The Gluon kernel of attention for few queries of dense keys: programs take chunks of keys in turn.

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
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from bitwise_nvidia_sm90.attention.kernels.specialised import finished, merged, softmax_step, visible_scores

NOTHING = gl.constexpr(float("-inf"))


@gluon.jit
def part_of(
    place, queries, keys, first_position, window, tiles, groups, chunks,
    M: gl.constexpr, N: gl.constexpr, GROUP: gl.constexpr, CHUNK: gl.constexpr, CAUSAL: gl.constexpr,
    WINDOW: gl.constexpr, SPLIT: gl.constexpr,
):  # fmt: skip
    """Return the sequence, the group of heads, the tile of rows, and the keys from first to last of a part.

    A part is one chunk of keys for one tile of packed rows.  The groups of one chunk follow each other, since their
    keys share the pages of memory.
    """
    group, place = place % groups, place // groups
    chunk, place = place % chunks, place // chunks
    tile, sequence = place % tiles, place // tiles
    begin, end = 0, keys
    if CAUSAL:
        end = gl.minimum(end, gl.minimum((tile * M + M - 1) // GROUP, queries - 1) + first_position + 1)
    if WINDOW:
        begin = gl.minimum(gl.maximum(0, tile * M // GROUP + first_position - window + 1), keys - 1) // N * N
    if SPLIT:
        begin, end = gl.maximum(begin, chunk * CHUNK), gl.minimum(end, chunk * CHUNK + CHUNK)
    else:  # a row without keys needs its zeros
        end = gl.maximum(end, begin + 1)
    return sequence, group, tile, begin, end


@gluon.jit
def next_part(
    place, programs, parts, queries, keys, first_position, window, tiles, groups, chunks,
    M: gl.constexpr, N: gl.constexpr, GROUP: gl.constexpr, CHUNK: gl.constexpr, CAUSAL: gl.constexpr,
    WINDOW: gl.constexpr, SPLIT: gl.constexpr,
):  # fmt: skip
    """Return the first of a program's parts from `place` on that has keys, and what `part_of` returns of it."""
    sequence, group, tile, begin, end = part_of(
        place, queries, keys, first_position, window, tiles, groups, chunks, M, N, GROUP, CHUNK, CAUSAL, WINDOW, SPLIT
    )
    while (begin >= end) & (place < parts):
        place += programs
        sequence, group, tile, begin, end = part_of(
            place, queries, keys, first_position, window, tiles, groups, chunks, M, N, GROUP, CHUNK, CAUSAL, WINDOW,
            SPLIT,
        )  # fmt: skip
    return place, sequence, group, tile, begin, end


@gluon.jit
def copy_next(
    source, ring, full, count, place, sequence, group, start, end,
    programs, parts, queries, keys, first_position, window, tiles, groups, chunks,
    M: gl.constexpr, N: gl.constexpr, GROUP: gl.constexpr, CHUNK: gl.constexpr, CAUSAL: gl.constexpr,
    WINDOW: gl.constexpr, SPLIT: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Copy the tile of number `count` of the ring, if there is one, and return the place of the next one but one."""
    if place < parts:
        stage = count % STAGES
        mbarrier.expect(full.index(stage), source.block_type.nbytes)
        tma.async_copy_global_to_shared(source, [sequence, group, start, 0], full.index(stage), ring.index(stage))
        start += N
        if start >= end:
            place, sequence, group, _, start, end = next_part(
                place + programs, programs, parts, queries, keys, first_position, window, tiles, groups, chunks,
                M, N, GROUP, CHUNK, CAUSAL, WINDOW, SPLIT,
            )  # fmt: skip
    return count + 2, place, sequence, group, start, end


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


@gluon.jit(
    do_not_specialize=["queries", "keys", "first_position", "window", "tiles", "groups", "chunks", "parts",
                       "logarithm_batch", "logarithm_step", "logarithm_head"]
)  # fmt: skip
def visit_parts(
    query, key_map, value_map, output, logarithms, part_top, part_total, part_out, sinks,
    query_batch, query_step, query_head, output_batch, output_step, output_head,
    logarithm_batch, logarithm_step, logarithm_head,
    queries, keys, first_position, scale, cap_factor, window, tiles, groups, chunks, parts,
    D: gl.constexpr, GROUP: gl.constexpr, M: gl.constexpr, N: gl.constexpr, CHUNK: gl.constexpr,
    STAGES: gl.constexpr, CAUSAL: gl.constexpr, ALIGNED: gl.constexpr, WINDOW: gl.constexpr, CAP: gl.constexpr,
    SPLIT: gl.constexpr, LOGARITHMS: gl.constexpr,
):  # fmt: skip
    """Compute parts of dense sequences in turn: with SPLIT store the state of each, else the output of its rows.

    Without SPLIT there is one chunk.  The arguments are those of `chunks.forward`.
    """
    SCORES: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, N, 16])
    OUT: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, D, 16])
    QUERIES: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=SCORES, k_width=2)
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=OUT, k_width=2)
    ROWS: gl.constexpr = gl.SliceLayout(1, SCORES)
    OUT_ROWS: gl.constexpr = gl.SliceLayout(1, OUT)
    if ALIGNED:
        first_position = keys - queries
    programs = gl.num_programs(0)
    ring = gl.allocate_shared_memory(key_map.dtype, [STAGES, 1, 1, N, D], key_map.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
    fence_async_shared()
    gdc_wait()
    gdc_launch_dependents()
    place, sequence, group, tile, begin, end = next_part(
        gl.program_id(0), programs, parts, queries, keys, first_position, window, tiles, groups, chunks,
        M, N, GROUP, CHUNK, CAUSAL, WINDOW, SPLIT,
    )  # fmt: skip
    # Tiles of keys have even numbers, those of values odd ones; each kind has its own place.
    k_place, k_sequence, k_group, k_start, k_end = place, sequence, group, begin, end
    v_place, v_sequence, v_group, v_start, v_end = place, sequence, group, begin, end
    k_count, v_count = 0, 1
    for stage in gl.static_range(STAGES):
        if stage % 2 == 0:
            k_count, k_place, k_sequence, k_group, k_start, k_end = copy_next(
                key_map, ring, full, k_count, k_place, k_sequence, k_group, k_start, k_end,
                programs, parts, queries, keys, first_position, window, tiles, groups, chunks,
                M, N, GROUP, CHUNK, CAUSAL, WINDOW, SPLIT, STAGES,
            )  # fmt: skip
        else:
            v_count, v_place, v_sequence, v_group, v_start, v_end = copy_next(
                value_map, ring, full, v_count, v_place, v_sequence, v_group, v_start, v_end,
                programs, parts, queries, keys, first_position, window, tiles, groups, chunks,
                M, N, GROUP, CHUNK, CAUSAL, WINDOW, SPLIT, STAGES,
            )  # fmt: skip
    count = 0
    while place < parts:
        at = (tile * M + gl.arange(0, M, gl.SliceLayout(1, QUERIES))) // GROUP
        head = group * GROUP + (tile * M + gl.arange(0, M, gl.SliceLayout(1, QUERIES))) % GROUP
        base = query + sequence.to(gl.int64) * query_batch + head.to(gl.int64) * query_head
        base = gl.expand_dims(base + at.to(gl.int64) * query_step, 1)
        lane = gl.expand_dims(gl.arange(0, D, gl.SliceLayout(0, QUERIES)), 0)
        q = gl.load(base + lane, mask=gl.expand_dims(at < queries, 1), other=0.0)
        positions = (tile * M + gl.arange(0, M, ROWS)) // GROUP + first_position
        plain = keys
        if CAUSAL:
            plain = gl.minimum(plain, tile * M // GROUP + first_position + 1)
        if WINDOW:
            plain = 0
        top = gl.full([M], NOTHING, gl.float32, ROWS)
        total = gl.zeros([M], gl.float32, ROWS)
        out = gl.zeros([M, D], gl.float32, OUT)
        tile_of_ring = count % STAGES
        mbarrier.wait(full.index(tile_of_ring), count // STAGES & 1)
        s = gl.zeros([M, N], gl.float32, SCORES)
        s = warpgroup_mma(q, of_keys(ring, tile_of_ring, N, D), s, use_acc=False, is_async=True)
        s = warpgroup_mma_wait(0, deps=[s])
        gl.thread_barrier()  # the tile has been read
        if STAGES % 2 == 0:
            k_count, k_place, k_sequence, k_group, k_start, k_end = copy_next(
                key_map, ring, full, k_count, k_place, k_sequence, k_group, k_start, k_end,
                programs, parts, queries, keys, first_position, window, tiles, groups, chunks,
                M, N, GROUP, CHUNK, CAUSAL, WINDOW, SPLIT, STAGES,
            )  # fmt: skip
        else:
            v_count, v_place, v_sequence, v_group, v_start, v_end = copy_next(
                value_map, ring, full, v_count, v_place, v_sequence, v_group, v_start, v_end,
                programs, parts, queries, keys, first_position, window, tiles, groups, chunks,
                M, N, GROUP, CHUNK, CAUSAL, WINDOW, SPLIT, STAGES,
            )  # fmt: skip
        last = (end - 1) // N * N
        for start in range(begin, last, N):
            found, top, total, shrink = weights_of(
                s, start, plain, positions, keys, window, top, total, scale, cap_factor, N, CAUSAL, WINDOW, CAP
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
            if STAGES % 2 == 0:
                v_count, v_place, v_sequence, v_group, v_start, v_end = copy_next(
                    value_map, ring, full, v_count, v_place, v_sequence, v_group, v_start, v_end,
                    programs, parts, queries, keys, first_position, window, tiles, groups, chunks,
                    M, N, GROUP, CHUNK, CAUSAL, WINDOW, SPLIT, STAGES,
                )  # fmt: skip
            else:
                k_count, k_place, k_sequence, k_group, k_start, k_end = copy_next(
                    key_map, ring, full, k_count, k_place, k_sequence, k_group, k_start, k_end,
                    programs, parts, queries, keys, first_position, window, tiles, groups, chunks,
                    M, N, GROUP, CHUNK, CAUSAL, WINDOW, SPLIT, STAGES,
                )  # fmt: skip
            if STAGES % 2 == 0:
                k_count, k_place, k_sequence, k_group, k_start, k_end = copy_next(
                    key_map, ring, full, k_count, k_place, k_sequence, k_group, k_start, k_end,
                    programs, parts, queries, keys, first_position, window, tiles, groups, chunks,
                    M, N, GROUP, CHUNK, CAUSAL, WINDOW, SPLIT, STAGES,
                )  # fmt: skip
            else:
                v_count, v_place, v_sequence, v_group, v_start, v_end = copy_next(
                    value_map, ring, full, v_count, v_place, v_sequence, v_group, v_start, v_end,
                    programs, parts, queries, keys, first_position, window, tiles, groups, chunks,
                    M, N, GROUP, CHUNK, CAUSAL, WINDOW, SPLIT, STAGES,
                )  # fmt: skip
            count += 2
        found, top, total, shrink = weights_of(
            s, last, plain, positions, keys, window, top, total, scale, cap_factor, N, CAUSAL, WINDOW, CAP
        )
        out = out * gl.expand_dims(gl.convert_layout(shrink, OUT_ROWS, assert_trivial=True), 1)
        weights = gl.convert_layout(found.to(key_map.dtype), WEIGHTS)
        tile_of_ring = (count + 1) % STAGES
        mbarrier.wait(full.index(tile_of_ring), (count + 1) // STAGES & 1)
        out = warpgroup_mma(weights, ring.index(tile_of_ring).reshape([N, D]), out, is_async=True)
        out = warpgroup_mma_wait(0, deps=[out])
        gl.thread_barrier()
        if STAGES % 2 == 0:
            v_count, v_place, v_sequence, v_group, v_start, v_end = copy_next(
                value_map, ring, full, v_count, v_place, v_sequence, v_group, v_start, v_end,
                programs, parts, queries, keys, first_position, window, tiles, groups, chunks,
                M, N, GROUP, CHUNK, CAUSAL, WINDOW, SPLIT, STAGES,
            )  # fmt: skip
        else:
            k_count, k_place, k_sequence, k_group, k_start, k_end = copy_next(
                key_map, ring, full, k_count, k_place, k_sequence, k_group, k_start, k_end,
                programs, parts, queries, keys, first_position, window, tiles, groups, chunks,
                M, N, GROUP, CHUNK, CAUSAL, WINDOW, SPLIT, STAGES,
            )  # fmt: skip
        count += 2
        lane = gl.expand_dims(gl.arange(0, D, gl.SliceLayout(0, OUT)), 0)
        packed = tile * M + gl.arange(0, M, OUT_ROWS)
        inside = packed // GROUP < queries
        if SPLIT:
            slot = ((sequence * groups + group) * tiles + tile).to(gl.int64) * chunks + begin // CHUNK
            slot = slot * M + gl.arange(0, M, OUT_ROWS)
            top_row = gl.convert_layout(top, OUT_ROWS, assert_trivial=True)
            total_row = gl.convert_layout(total, OUT_ROWS, assert_trivial=True)
            # The states are read soon, and the keys that pass through the cache meanwhile are not.
            gl.store(part_top + slot, top_row, mask=inside, eviction_policy="evict_last")
            gl.store(part_total + slot, total_row, mask=inside, eviction_policy="evict_last")
            target = part_out + gl.expand_dims(slot, 1) * D + lane
            gl.store(target, out, mask=gl.expand_dims(inside, 1), eviction_policy="evict_last")
        else:
            all_top, all_total, all_out = merged(
                gl.full([M], NOTHING, gl.float32, OUT_ROWS), gl.zeros([M], gl.float32, OUT_ROWS),
                gl.zeros([M, D], gl.float32, OUT), top, total, out,
            )  # fmt: skip
            heads = group * GROUP + packed % GROUP
            if sinks is not None:
                sink = gl.load(sinks + heads).to(gl.float32) * 1.4426950408889634
                all_top, all_total, all_out = merged(
                    all_top, all_total, all_out, sink, gl.full([M], 1.0, gl.float32, OUT_ROWS),
                    gl.zeros([M, D], gl.float32, OUT),
                )  # fmt: skip
            all_out, logarithm = finished(all_top, all_total, all_out)
            at = (packed // GROUP).to(gl.int64)
            target = output + sequence.to(gl.int64) * output_batch + heads.to(gl.int64) * output_head
            target = gl.expand_dims(target + at * output_step, 1)
            gl.store(target + lane, all_out.to(output.dtype.element_ty), mask=gl.expand_dims(inside, 1))
            if LOGARITHMS:
                target = logarithms + sequence.to(gl.int64) * logarithm_batch + heads.to(gl.int64) * logarithm_head
                gl.store(target + at * logarithm_step, logarithm, mask=inside)
        place, sequence, group, tile, begin, end = next_part(
            place + programs, programs, parts, queries, keys, first_position, window, tiles, groups, chunks,
            M, N, GROUP, CHUNK, CAUSAL, WINDOW, SPLIT,
        )  # fmt: skip
