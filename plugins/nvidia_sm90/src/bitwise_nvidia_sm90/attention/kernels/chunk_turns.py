"""The Gluon kernel of attention for few queries: programs take chunks of keys, or all keys of some rows, in turn.

It computes the tree of `chunks.forward`.  One warp copies keys and values to a ring of tiles, as soon as four others
have read what was there.  It runs ahead over the parts of a program, whatever sequence and head they belong to, so that
memory is never idle.  Programs may share the components of the output: each of COLUMNS computes all scores, and copies
its components of the values alone.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call,attr-defined,assignment,misc,var-annotated"
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from bitwise_nvidia_sm90.attention.kernels.block_of_each_warp import (
    add_blocks,
    layout_of_blocks,
    layout_of_exchange,
    layout_of_rows,
    queries_of_blocks,
    scores_of_blocks,
    visible_scores_of_blocks,
)
from bitwise_nvidia_sm90.attention.kernels.merges import finite_shift, maximum_after
from bitwise_nvidia_sm90.attention.kernels.parts import (
    first_part,
    part_after,
    place_among_equal,
    places_of_longest,
)
from bitwise_nvidia_sm90.attention.kernels.specialised import finished, merged, softmax_step, visible_scores
from bitwise_nvidia_sm90.attention.kernels.tiles_of_keys import (
    clear_rows,
    copy_tile,
    lengths_of,
    pages_of_tile,
    parts_of_other,
    parts_of_ring,
    ring_of_parts,
)

NOTHING = gl.constexpr(float("-inf"))
PREFETCH = gl.constexpr("prefetch.global.L2 [$1]; mov.b32 $0, 0;")
_LINE = gl.constexpr(64)
"""The components of a line of the cache."""


@gluon.jit
def first_pages(
    source, pages, page_batch, queries, keys, groups, sequences,
    M: gl.constexpr, N: gl.constexpr, GROUP: gl.constexpr, CHUNK: gl.constexpr, PAGE: gl.constexpr,
    SPLIT: gl.constexpr,
):  # fmt: skip
    """Return the pages of the first tile of a program with one part, before its length is known; () without pages.

    They are read up to the longest length: what is behind the length of a sequence must not be used.
    """
    found = ()
    if PAGE:
        gdc_wait()
        width, chunks = places_of_longest(queries, keys, 0, groups, M, GROUP, CHUNK, False, SPLIT)
        sequence, _, _, chunk = place_among_equal(gl.program_id(0), width, chunks, groups, sequences)
        page = sequence.to(gl.int64) * page_batch
        found = pages_of_tile(source, pages, page, gl.where(sequence < sequences, keys, 0), chunk * CHUNK, N, PAGE)
    return found


@gluon.jit
def known_pages(source, numbers, keys, start, N: gl.constexpr):
    """Return the pages of a tile without those behind the last of `keys` keys."""
    HEIGHT: gl.constexpr = source.block_type.shape[2]
    found = ()
    for part in gl.static_range(len(numbers)):
        found += (gl.where(start + part * HEIGHT < keys, numbers[part], -1),)
    return found


@gluon.jit
def copy_blocks(
    source, parts, slot, bar, numbers, batch, group, first, start, column,
    N: gl.constexpr, BLOCK: gl.constexpr, D: gl.constexpr, PAGE: gl.constexpr, SHARE: gl.constexpr,
):  # fmt: skip
    """Start the copies of the blocks of a tile, D components from `column` on, to a slot of SHARE times as many."""
    HEIGHT: gl.constexpr = source.block_type.shape[2]
    for part in gl.static_range(N // BLOCK):
        block = (slot * (N // BLOCK) + part) * SHARE
        copy_tile(
            source, parts, block, bar, numbers, batch, group, first, start + part * BLOCK, column, BLOCK, D, PAGE,
            part * (BLOCK // HEIGHT),
        )  # fmt: skip


@gluon.jit
def prefetch_queries(
    of_parts, sequence, group, tile, own_queries, query_starts,
    M: gl.constexpr, GROUP: gl.constexpr, D: gl.constexpr,
):  # fmt: skip
    """Bring the queries of a part to the cache, some time before they are needed; one warp."""
    query, query_batch, query_step, query_head = of_parts[0], of_parts[7], of_parts[8], of_parts[9]
    LINES: gl.constexpr = D // _LINE
    L: gl.constexpr = gl.BlockedLayout([max(M * LINES // 32, 1), 1], [32 // LINES, LINES], [1, 1], [1, 0])
    row = tile * M + gl.arange(0, M, gl.SliceLayout(1, L))
    first = query + sequence.to(gl.int64) * query_batch
    if query_starts is not None:
        first = query + gl.load(query_starts + sequence).to(gl.int64) * query_step
    at = gl.minimum(row // GROUP, gl.maximum(own_queries - 1, 0)).to(gl.int64)
    place = first + at * query_step + (group * GROUP + row % GROUP).to(gl.int64) * query_head
    line = gl.expand_dims(gl.arange(0, LINES, gl.SliceLayout(0, L)) * _LINE, 0)
    place = (gl.expand_dims(place, 1) + line).to(gl.int64, bitcast=True)
    gl.inline_asm_elementwise(PREFETCH, "=r,l", [place], gl.int32, False, 1)


@gluon.jit
def copy_keys_apart(
    maps, parts, full, empty, slot, phase, numbers, batch, group, first, start, end,
    N: gl.constexpr, BLOCK: gl.constexpr, D1: gl.constexpr, D2: gl.constexpr, PAGE: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Copy the blocks of a tile of keys up to `end` to its ring; return the slot after it."""
    mbarrier.wait(empty.index(slot), phase)
    bar = full.index(slot)
    mbarrier.expect(bar, N * (D1 + D2) * 2)
    copy_tile(maps[0], parts[0], slot, bar, numbers, batch, group, first, start, 0, N, D1, PAGE)
    if maps[1] is not None:
        copy_tile(maps[1], parts[1], slot, bar, numbers, batch, group, first, start, D1, N, D2, PAGE)
    return next_slot(slot, phase, STAGES)


@gluon.jit
def copy_values_apart(
    maps, parts, full, empty, slot, phase, numbers, batch, group, first, start, end, FROM: gl.constexpr,
    COUNT: gl.constexpr, BLOCK: gl.constexpr, DV1: gl.constexpr, DV2: gl.constexpr, PAGE: gl.constexpr,
    STAGES: gl.constexpr, VALUES: gl.constexpr,
):  # fmt: skip
    """Copy COUNT blocks of values of a tile, from block FROM on up to `end`, to their ring; return the slot after."""
    HEIGHT: gl.constexpr = maps[2].block_type.shape[2]
    for part in gl.static_range(FROM, FROM + COUNT):
        if start + part * BLOCK < end:
            mbarrier.wait(empty.index(STAGES + slot), phase)
            bar = full.index(STAGES + slot)
            mbarrier.expect(bar, BLOCK * (DV1 + DV2) * 2)
            copy_tile(
                maps[2], parts[2], slot, bar, numbers, batch, group, first, start + part * BLOCK, 0, BLOCK, DV1, PAGE,
                part * (BLOCK // HEIGHT),
            )  # fmt: skip
            if maps[3] is not None:
                copy_tile(
                    maps[3], parts[3], slot, bar, numbers, batch, group, first, start + part * BLOCK, DV1, BLOCK, DV2,
                    PAGE, part * (BLOCK // HEIGHT),
                )  # fmt: skip
            slot, phase = next_slot(slot, phase, VALUES)
    return slot, phase


@gluon.jit
def copy_blocks_apart(
    maps, parts, full, empty, slot, phase, v_slot, v_phase, numbers, pages, page, own_keys, batch, group, first, begin,
    end,
    N: gl.constexpr, BLOCK: gl.constexpr, D1: gl.constexpr, D2: gl.constexpr, DV1: gl.constexpr, DV2: gl.constexpr,
    PAGE: gl.constexpr, STAGES: gl.constexpr, VALUES: gl.constexpr,
):  # fmt: skip
    """Copy the keys and values of a part to rings of their own; return the slots after them.

    The next tile of keys is copied between the values of this one, whose slots may still be read.
    """
    slot, phase = copy_keys_apart(
        maps, parts, full, empty, slot, phase, numbers, batch, group, first, begin, end, N, BLOCK, D1, D2, PAGE, STAGES
    )
    for start in range(begin, end, N):
        next_numbers = pages_of_tile(maps[0], pages, page, own_keys, start + N, N, PAGE)
        v_slot, v_phase = copy_values_apart(
            maps, parts, full, empty, v_slot, v_phase, numbers, batch, group, first, start, end, 0, 2, BLOCK, DV1, DV2,
            PAGE, STAGES, VALUES,
        )  # fmt: skip
        if start + N < end:
            slot, phase = copy_keys_apart(
                maps, parts, full, empty, slot, phase, next_numbers, batch, group, first, start + N, end, N, BLOCK,
                D1, D2, PAGE, STAGES,
            )  # fmt: skip
        v_slot, v_phase = copy_values_apart(
            maps, parts, full, empty, v_slot, v_phase, numbers, batch, group, first, start, end, 2, 2, BLOCK, DV1, DV2,
            PAGE, STAGES, VALUES,
        )  # fmt: skip
        numbers = next_numbers
    return slot, phase, v_slot, v_phase


@gluon.jit
def copy_parts(
    given, of_parts, maps, parts, full, empty, pages, page_batch,
    M: gl.constexpr, N: gl.constexpr, BLOCK: gl.constexpr, D1: gl.constexpr, D2: gl.constexpr, DV1: gl.constexpr,
    DV2: gl.constexpr, COLUMNS: gl.constexpr, GROUP: gl.constexpr,
    CHUNK: gl.constexpr, PAGE: gl.constexpr, CAUSAL: gl.constexpr, ALIGNED: gl.constexpr, WINDOW: gl.constexpr,
    SPLIT: gl.constexpr, STAGES: gl.constexpr, ONCE: gl.constexpr, VALUES: gl.constexpr,
):  # fmt: skip
    """Copy the tiles of keys and of values of all parts of a program, as soon as slots of the ring have been read."""
    query_starts, key_starts, key_lengths, queries, keys, first_position, window, units, sequences = given
    key_map, key_rest_map, value_map, value_rest_map = maps
    k_parts, k_rest_parts, v_parts, v_rest_parts = parts
    EARLY: gl.constexpr = ONCE and (PAGE > 0) and not WINDOW
    early = ()
    if EARLY:
        early = first_pages(
            key_map, pages, page_batch, queries, keys, units, sequences, M, N, GROUP, CHUNK, PAGE, SPLIT,
        )  # fmt: skip
    place, sequence, unit, tile, begin, end = first_part(
        query_starts, key_starts, key_lengths, queries, keys, first_position, window, units, sequences, M, N, GROUP,
        CHUNK, CAUSAL, ALIGNED, WINDOW, SPLIT, ONCE,
    )  # fmt: skip
    slot, phase = gl.to_tensor(0), gl.to_tensor(1)
    v_slot, v_phase = gl.to_tensor(0), gl.to_tensor(1)
    while sequence < sequences:
        batch, first, own_keys, page = sequence, 0, keys, sequence.to(gl.int64) * page_batch
        if key_starts is not None:
            batch, first = 0, gl.load(key_starts + sequence)
        if PAGE:
            own_keys = gl.load(key_lengths + sequence)
        group, column = unit // COLUMNS, unit % COLUMNS * DV1
        if not ONCE:
            own_queries = queries
            if query_starts is not None:
                own_queries = gl.load(query_starts + sequence + 1) - gl.load(query_starts + sequence)
            prefetch_queries(of_parts, sequence, group, tile, own_queries, query_starts, M, GROUP, D1)
        if EARLY:
            numbers = known_pages(key_map, early, own_keys, begin, N)
        else:
            numbers = pages_of_tile(key_map, pages, page, own_keys, begin, N, PAGE)
        if VALUES:
            slot, phase, v_slot, v_phase = copy_blocks_apart(
                maps, parts, full, empty, slot, phase, v_slot, v_phase, numbers, pages, page, own_keys, batch, group,
                first, begin, end, N, BLOCK, D1, D2, DV1, DV2, PAGE, STAGES, VALUES,
            )  # fmt: skip
        else:
            for start in range(begin, end, N):
                # The pages of the next tile are read while this one is copied.
                next_numbers = pages_of_tile(key_map, pages, page, own_keys, start + N, N, PAGE)
                mbarrier.wait(empty.index(slot), phase)
                bar = full.index(slot)
                mbarrier.expect(bar, N * (D1 + D2) * 2)
                copy_blocks(key_map, k_parts, slot, bar, numbers, batch, group, first, start, 0, N, BLOCK, D1, PAGE, 1)
                if key_rest_map is not None:
                    copy_blocks(
                        key_rest_map, k_rest_parts, slot, bar, numbers, batch, group, first, start, D1, N, BLOCK, D2,
                        PAGE, 1,
                    )  # fmt: skip
                slot, phase = next_slot(slot, phase, STAGES)
                mbarrier.wait(empty.index(slot), phase)
                bar = full.index(slot)
                mbarrier.expect(bar, N * (DV1 + DV2) * 2)
                copy_blocks(
                    value_map, v_parts, slot, bar, numbers, batch, group, first, start, column, N, BLOCK, DV1, PAGE,
                    D1 // DV1,
                )  # fmt: skip
                if value_rest_map is not None:
                    copy_blocks(
                        value_rest_map, v_rest_parts, slot, bar, numbers, batch, group, first, start, DV1, N, BLOCK,
                        DV2, PAGE, D2 // DV2,
                    )  # fmt: skip
                slot, phase = next_slot(slot, phase, STAGES)
                numbers = next_numbers
        if ONCE:
            sequence = sequences
        else:
            place, sequence, unit, tile, begin, end = part_after(
                place, query_starts, key_starts, key_lengths, queries, keys,
                first_position, window, units, sequences, M, N, GROUP, CHUNK, CAUSAL, ALIGNED, WINDOW, SPLIT, ONCE,
            )  # fmt: skip


@gluon.jit
def next_slot(slot, phase, STAGES: gl.constexpr):
    """Return the slot of the ring after a slot, and the phase of its barrier."""
    last = slot == STAGES - 1
    return gl.where(last, 0, slot + 1), gl.where(last, phase ^ 1, phase)


@gluon.jit
def blocks_of_tile(
    ring, rest, full, slot, phase,
    COUNT: gl.constexpr, BLOCK: gl.constexpr, D1: gl.constexpr, D2: gl.constexpr, SHARE: gl.constexpr,
):  # fmt: skip
    """Return the blocks of a tile once it has been copied: of each the matrices of D1 and, if any, D2 components."""
    mbarrier.wait(full.index(slot), phase)
    found = ()
    for part in gl.static_range(COUNT):
        first = ring.index((slot * COUNT + part) * SHARE).reshape([BLOCK, D1])
        if D2:
            found += ((first, rest.index(slot * COUNT + part).reshape([BLOCK, D2])),)
        else:
            found += ((first,),)
    return found


@gluon.jit
def release(empty, slot):
    """Say that all products have read a slot of the ring."""
    gl.thread_barrier()
    mbarrier.arrive(empty.index(slot))


@gluon.jit
def release_after_loads(empty, slot):
    """Say that all warps have loaded a slot of the ring.

    Loads may still be under way when a barrier lets the warps pass; a copy that then starts could overtake them.
    """
    fence_async_shared()
    release(empty, slot)


@gluon.jit
def capped_and_masked(
    s, start, plain, positions, keys, window, cap_factor,
    N: gl.constexpr, CAUSAL: gl.constexpr, WINDOW: gl.constexpr, CAP: gl.constexpr,
):  # fmt: skip
    """Return the scores of a block that its keys may have, of which those before `plain` need no mask."""
    if CAP:
        s = 1.0 - 2.0 / (gl.exp2(s * cap_factor) + 1.0)
    if start + N > plain:
        s = visible_scores(s, start, positions, keys, window, N, CAUSAL, WINDOW)
    return s


@gluon.jit
def merged_parts(top, total, outs, top_part, total_part, out_parts):
    """Return the state after the merge of a chunk, whose output has one or two parts."""
    COUNT: gl.constexpr = len(outs)
    found = ()
    highest, all_total = top, total
    for part in gl.static_range(COUNT):
        highest, all_total, out = merged(top, total, outs[part], top_part, total_part, out_parts[part])
        found += (out,)
    return highest, all_total, found


@gluon.jit
def zeros_of(outs):
    """Return zeros of the shapes of the parts of an output."""
    COUNT: gl.constexpr = len(outs)
    found = ()
    for part in gl.static_range(COUNT):
        found += (gl.full(outs[part].shape, 0.0, gl.float32, outs[part].type.layout),)
    return found


@gluon.jit
def empty_output(M: gl.constexpr, DV1: gl.constexpr, DV2: gl.constexpr, OUT: gl.constexpr):
    """Return zeros for the output of M rows: a part of DV1 components, and if there are DV2 more, one of these."""
    found = (gl.zeros([M, DV1], gl.float32, OUT),)
    if DV2:
        found += (gl.zeros([M, DV2], gl.float32, OUT),)
    return found


@gluon.jit
def after_chunk(
    start, begin, state_top, state_total, state_out, top, total, out, CHUNK: gl.constexpr, SEVERAL: gl.constexpr
):
    """Return the states of the chunks so far and of the chunk of block `start`, which may end the one before it."""
    if SEVERAL and (start % CHUNK == 0) & (start > begin):
        state_top, state_total, state_out = merged_parts(state_top, state_total, state_out, top, total, out)
        top = gl.full(top.shape, NOTHING, gl.float32, top.type.layout)
        total = gl.full(total.shape, 0.0, gl.float32, total.type.layout)
        out = zeros_of(out)
    return state_top, state_total, state_out, top, total, out


@gluon.jit
def lanes_of(column, side: gl.constexpr, DV1: gl.constexpr, DV2: gl.constexpr, OUT: gl.constexpr):
    """Return the components of a row that the first part of an output has, or one of the others."""
    if side == 0:
        found = column * DV1 + gl.arange(0, DV1, gl.SliceLayout(0, OUT))
    else:
        found = DV1 + (side - 1) * DV2 + gl.arange(0, DV2, gl.SliceLayout(0, OUT))
    return gl.expand_dims(found, 0)


@gluon.jit
def store_state(
    states, chunk, top, total, outs,
    M: gl.constexpr, GROUP: gl.constexpr, DV1: gl.constexpr, DV2: gl.constexpr, VP: gl.constexpr, OUT: gl.constexpr,
):  # fmt: skip
    """Store the state of a chunk of a tile of rows.

    It is read soon, and the keys that pass through the cache meanwhile are not.
    """
    ROWS: gl.constexpr = gl.SliceLayout(1, OUT)
    part_top, part_total, part_out, first_row, chunks, first_packed, queries, column = states
    inside = (first_packed + gl.arange(0, M, ROWS)) // GROUP < queries
    row = (first_row + gl.arange(0, M, ROWS)) * chunks + chunk
    own = inside & (column == 0)
    gl.store(part_top + row, gl.convert_layout(top, ROWS, assert_trivial=True), mask=own, eviction_policy="evict_last")
    total = gl.convert_layout(total, ROWS, assert_trivial=True)
    gl.store(part_total + row, total, mask=own, eviction_policy="evict_last")
    for side in gl.static_range(len(outs)):
        target = part_out + gl.expand_dims(row, 1) * VP + lanes_of(column, side, DV1, DV2, OUT)
        gl.store(target, outs[side], mask=gl.expand_dims(inside, 1), eviction_policy="evict_last")


@gluon.jit
def many_rows(
    rings, states, q, begin, end, slot, phase, plain, positions, own_keys, window, scale, cap_factor,
    M: gl.constexpr, N: gl.constexpr, D1: gl.constexpr, D2: gl.constexpr, DV1: gl.constexpr, DV2: gl.constexpr,
    CHUNK: gl.constexpr, CAUSAL: gl.constexpr, WINDOW: gl.constexpr, CAP: gl.constexpr, SEVERAL: gl.constexpr,
    RAGGED: gl.constexpr, STAGES: gl.constexpr, OUT: gl.constexpr, BLOCK: gl.constexpr, GROUP: gl.constexpr,
    VP: gl.constexpr, SPLIT: gl.constexpr,
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
    keys = blocks_of_tile(k_ring, k_rest, full, slot, phase, 1, N, D1, D2, 1)[0][0].permute((1, 0))
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
        values = blocks_of_tile(v_ring, v_rest, full, v_slot, v_phase, 1, N, DV1, DV2, D1 // DV1)[0][0]
        out = warpgroup_mma(weights, values, out, is_async=True)
        keys = blocks_of_tile(k_ring, k_rest, full, slot, phase, 1, N, D1, D2, 1)[0][0].permute((1, 0))
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
    values = blocks_of_tile(v_ring, v_rest, full, v_slot, v_phase, 1, N, DV1, DV2, D1 // DV1)[0][0]
    if RAGGED and last + N > own_keys:  # what is behind the last key belongs to others
        clear_rows(values, own_keys - last, N, DV1)
    out = warpgroup_mma(weights, values, out, is_async=True)
    out = warpgroup_mma_wait(0, deps=[out])
    release(empty, v_slot)
    slot, phase = next_slot(v_slot, v_phase, STAGES)
    return state_top, state_total, state_outs, top, total, (out,), slot, phase


@gluon.constexpr_function
def product_layout(columns, few, warps):
    """Return the layout of a product: the warps share its columns, or its 64 rows."""
    if few:
        return gl.NVMMADistributedLayout(version=[2, 0], warps_per_cta=[1, warps], instr_shape=[16, 8])
    return gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, columns, 16])


@gluon.jit
def few_scores(q, keys, BLOCK: gl.constexpr):
    """Return the products of 16 rows of queries and each block of keys, of which each warp has some."""
    SCORES: gl.constexpr = q[0].type.layout.parent
    COUNT: gl.constexpr = len(keys)
    found = ()
    for block in gl.static_range(COUNT):
        scores = gl.zeros([16, BLOCK], gl.float32, SCORES)
        for part in gl.static_range(len(q)):
            right = keys[block][part].permute((1, 0))
            right = right.load(gl.DotOperandLayout(operand_index=1, parent=SCORES, k_width=2))
            scores = mma_v2(q[part], right, scores)
        found += (scores,)
    return found


@gluon.jit
def greatest_of_two(left, right, other_left, other_right):
    """Return the greater of the first and of the second of two pairs."""
    return gl.maximum(left, other_left), gl.maximum(right, other_right)


@gluon.jit
def add_few(
    s, values, start, plain, positions, keys, window, cap_factor, behind, top, total, outs, scale, exchanged,
    BLOCK: gl.constexpr, CAUSAL: gl.constexpr, WINDOW: gl.constexpr, CAP: gl.constexpr, RAGGED: gl.constexpr,
):  # fmt: skip
    """Return the state of a chunk after one or two blocks with these scores and values.

    Values from `behind` on are 0.  Each warp has some components of the output, and all weights, in the order in which
    a warp of 16 rows adds them.
    """
    OUT: gl.constexpr = outs[0].type.layout
    WARPS: gl.constexpr = OUT.warps_per_cta[1]
    ALL: gl.constexpr = gl.NVMMADistributedLayout(version=[2, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, 8])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=OUT, k_width=2)
    VALUES: gl.constexpr = gl.DotOperandLayout(operand_index=1, parent=OUT, k_width=2)
    COUNT: gl.constexpr = len(values)
    scores, weights, shrinks = (), (), ()
    for part in gl.static_range(COUNT):
        scores += (
            capped_and_masked(
                s[part], start + part * BLOCK, plain, positions, keys, window, cap_factor, BLOCK, CAUSAL, WINDOW, CAP
            ),
        )  # fmt: skip
    greatest = (gl.max(scores[0], axis=1),) if COUNT == 1 else gl.reduce(scores, 1, greatest_of_two)
    for part in gl.static_range(COUNT):
        highest = maximum_after(top, greatest[part] * scale)
        shift = finite_shift(highest)
        factor = gl.full(scores[part].shape, scale, gl.float32, OUT)
        less, _ = gl.broadcast(gl.expand_dims(-shift, 1), scores[part])
        own = gl.exp2(gl.fma(scores[part], factor, less))
        if WARPS > 1:
            exchanged.index(part).store(own)
        weights += (own,)
        shrinks += (gl.exp2(top - shift),)
        top = highest
    for part in gl.static_range(COUNT):
        own = weights[part]
        if WARPS > 1:
            own = exchanged.index(part).load(ALL)
        shrink = shrinks[part]
        total = gl.fma(total, gl.convert_layout(shrink, total.type.layout, assert_trivial=True), gl.sum(own, axis=1))
        left = gl.convert_layout(own.to(values[0][0].dtype), WEIGHTS)
        added = ()
        for side in gl.static_range(len(outs)):
            right = values[part][side].load(VALUES)
            if RAGGED:
                row = gl.expand_dims(gl.arange(0, BLOCK, gl.SliceLayout(1, VALUES)), 1)
                right = gl.where(row < behind - part * BLOCK, right, gl.full(right.shape, 0.0, right.dtype, VALUES))
            added += (mma_v2(left, right, outs[side] * gl.expand_dims(shrink, 1)),)
        outs = added
    return top, total, outs


@gluon.jit
def few_rows(
    rings, states, q, begin, end, slot, phase, plain, positions, own_keys, window, scale, cap_factor,
    M: gl.constexpr, N: gl.constexpr, D1: gl.constexpr, D2: gl.constexpr, DV1: gl.constexpr, DV2: gl.constexpr,
    CHUNK: gl.constexpr, CAUSAL: gl.constexpr, WINDOW: gl.constexpr, CAP: gl.constexpr, SEVERAL: gl.constexpr,
    RAGGED: gl.constexpr, STAGES: gl.constexpr, OUT: gl.constexpr, BLOCK: gl.constexpr, GROUP: gl.constexpr,
    VP: gl.constexpr, SPLIT: gl.constexpr,
):  # fmt: skip
    """Visit the keys of a part with 16 rows, whose scores and components the warps share; see `many_rows`."""
    k_ring, k_rest, v_ring, v_rest, full, empty = rings
    WARPS: gl.constexpr = OUT.warps_per_cta[1]
    ALL: gl.constexpr = gl.NVMMADistributedLayout(version=[2, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, 8])
    ROWS: gl.constexpr = gl.SliceLayout(1, OUT)
    COUNT: gl.constexpr = N // BLOCK
    top, total = gl.full([M], NOTHING, gl.float32, ROWS), gl.zeros([M], gl.float32, gl.SliceLayout(1, ALL))
    outs = empty_output(M, DV1, DV2, OUT)
    state_top, state_total = gl.full([M], NOTHING, gl.float32, ROWS), gl.zeros([M], gl.float32, ROWS)
    state_outs = empty_output(M, DV1, DV2, OUT)
    SWIZZLED: gl.constexpr = gl.SwizzledSharedLayout(8, 1, 8, order=[1, 0])
    exchanged = gl.allocate_shared_memory(gl.float32, [COUNT, M, BLOCK], SWIZZLED)
    # The next scores are computed before these are used, unless their keys would hold one of few slots meanwhile.
    AHEAD: gl.constexpr = STAGES > 3
    s = few_scores(q, blocks_of_tile(k_ring, k_rest, full, slot, phase, COUNT, BLOCK, D1, D2, 1), BLOCK)
    release_after_loads(empty, slot)
    last = (end - 1) // N * N
    for start in range(begin, last, N):
        v_slot, v_phase = next_slot(slot, phase, STAGES)
        slot, phase = next_slot(v_slot, v_phase, STAGES)
        state_top, state_total, state_outs, top, total, outs = after_chunk(
            start, begin, state_top, state_total, state_outs, top, total, outs, CHUNK, SEVERAL
        )
        if AHEAD:
            next_s = few_scores(q, blocks_of_tile(k_ring, k_rest, full, slot, phase, COUNT, BLOCK, D1, D2, 1), BLOCK)
        values = blocks_of_tile(v_ring, v_rest, full, v_slot, v_phase, COUNT, BLOCK, DV1, DV2, D1 // DV1)
        top, total, outs = add_few(
            s, values, start, plain, positions, own_keys, window, cap_factor, N, top, total, outs, scale, exchanged,
            BLOCK, CAUSAL, WINDOW, CAP, False,
        )  # fmt: skip
        release_after_loads(empty, v_slot)
        if AHEAD:
            mbarrier.arrive(empty.index(slot))
        else:
            next_s = few_scores(q, blocks_of_tile(k_ring, k_rest, full, slot, phase, COUNT, BLOCK, D1, D2, 1), BLOCK)
            release_after_loads(empty, slot)
        s = next_s
    v_slot, v_phase = next_slot(slot, phase, STAGES)
    state_top, state_total, state_outs, top, total, outs = after_chunk(
        last, begin, state_top, state_total, state_outs, top, total, outs, CHUNK, SEVERAL
    )
    values = blocks_of_tile(v_ring, v_rest, full, v_slot, v_phase, COUNT, BLOCK, DV1, DV2, D1 // DV1)
    # What is behind the last key of a sequence belongs to others.
    top, total, outs = add_few(
        s, values, last, plain, positions, own_keys, window, cap_factor, own_keys - last, top, total, outs, scale,
        exchanged, BLOCK, CAUSAL, WINDOW, CAP, RAGGED,
    )  # fmt: skip
    release_after_loads(empty, v_slot)
    slot, phase = next_slot(v_slot, v_phase, STAGES)
    return state_top, state_total, state_outs, top, total, outs, slot, phase


@gluon.jit
def rows_of_blocks(
    rings, states, q, begin, end, slot, phase, v_slot, v_phase, plain, positions, own_keys, window, scale, cap_factor,
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


@gluon.jit
def store_output(
    output, logarithms, query_starts, sinks, sequence, group, column, packed, inside, state_top, state_total,
    state_outs, top, total, outs, output_batch, output_step, output_head, logarithm_batch, logarithm_step,
    logarithm_head,
    GROUP: gl.constexpr, DV1: gl.constexpr, DV2: gl.constexpr, LOGARITHMS: gl.constexpr, OUT: gl.constexpr,
):  # fmt: skip
    """Merge the last chunk, and store the output and the logarithms of the packed rows that are `inside`."""
    ROWS: gl.constexpr = gl.SliceLayout(1, OUT)
    all_top, all_total, all_outs = merged_parts(state_top, state_total, state_outs, top, total, outs)
    heads = group * GROUP + packed % GROUP
    if sinks is not None:
        sink = gl.load(sinks + heads).to(gl.float32) * 1.4426950408889634
        one = gl.full(packed.shape, 1.0, gl.float32, ROWS)
        all_top, all_total, all_outs = merged_parts(all_top, all_total, all_outs, sink, one, zeros_of(all_outs))
    at = (packed // GROUP).to(gl.int64)
    own_batch = sequence.to(gl.int64)
    if query_starts is not None:
        at += gl.load(query_starts + sequence)
        own_batch = own_batch * 0
    target = output + own_batch * output_batch + heads.to(gl.int64) * output_head
    target = gl.expand_dims(target + at * output_step, 1)
    for side in gl.static_range(len(outs)):
        lane = lanes_of(column, side, DV1, DV2, OUT)
        all_out, logarithm = finished(all_top, all_total, all_outs[side])
        gl.store(target + lane, all_out.to(output.dtype.element_ty), mask=gl.expand_dims(inside, 1))
        if LOGARITHMS and side == 0:
            place_of_row = logarithms + own_batch * logarithm_batch + heads.to(gl.int64) * logarithm_head
            gl.store(place_of_row + at * logarithm_step, logarithm, mask=inside & (column == 0))


@gluon.jit
def compute_parts(
    given, of_parts, rings,
    D1: gl.constexpr, D2: gl.constexpr, DV1: gl.constexpr, DV2: gl.constexpr, COLUMNS: gl.constexpr,
    VP: gl.constexpr, GROUP: gl.constexpr,
    M: gl.constexpr, N: gl.constexpr, BLOCK: gl.constexpr, CHUNK: gl.constexpr, STAGES: gl.constexpr,
    CAUSAL: gl.constexpr, ALIGNED: gl.constexpr, WINDOW: gl.constexpr, CAP: gl.constexpr, SPLIT: gl.constexpr,
    SEVERAL: gl.constexpr, LOGARITHMS: gl.constexpr, ONCE: gl.constexpr, VALUES: gl.constexpr,
):  # fmt: skip
    """Compute the parts of a program in turn."""
    query_starts, key_starts, key_lengths, queries, keys, first_position, window, units, sequences = given
    (
        query, output, logarithms, part_top, part_total, part_out, sinks, query_batch, query_step, query_head,
        output_batch, output_step, output_head, logarithm_batch, logarithm_step, logarithm_head, scale, cap_factor,
        tiles, chunks, stored,
    ) = of_parts  # fmt: skip
    FEW: gl.constexpr = M == 16
    SPREAD: gl.constexpr = VALUES > 0
    SCORES: gl.constexpr = layout_of_blocks(4) if SPREAD else product_layout(N, FEW, gl.num_warps())
    OUT: gl.constexpr = product_layout(DV1, FEW, gl.num_warps())
    QUERIES: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=SCORES, k_width=2)
    OUT_ROWS: gl.constexpr = gl.SliceLayout(1, OUT)
    RAGGED: gl.constexpr = (query_starts is not None) or (key_starts is not None) or (key_lengths is not None)
    place, sequence, unit, tile, begin, end = first_part(
        query_starts, key_starts, key_lengths, queries, keys, first_position, window, units, sequences, M, N, GROUP,
        CHUNK, CAUSAL, ALIGNED, WINDOW, SPLIT, ONCE,
    )  # fmt: skip
    slot, phase = gl.to_tensor(0), gl.to_tensor(0)
    v_slot, v_phase = gl.to_tensor(0), gl.to_tensor(0)
    while sequence < sequences:
        group, column = unit // COLUMNS, unit % COLUMNS
        own_queries, own_keys, own_first = lengths_of(
            sequence, query_starts, key_starts, key_lengths, queries, keys, first_position, sequences, ALIGNED
        )
        query_row = query + sequence.to(gl.int64) * query_batch
        if query_starts is not None:
            first = gl.load(query_starts + sequence).to(gl.int64)
            query_row = query + first * query_step
        if SPREAD:
            q = queries_of_blocks(query_row, group, tile, own_queries, query_step, query_head, M, GROUP, 4, D1, D2)
            positions = (tile * M + gl.arange(0, M, gl.SliceLayout(0, gl.SliceLayout(2, SCORES)))) // GROUP + own_first
        else:
            positions = (tile * M + gl.arange(0, M, gl.SliceLayout(1, SCORES))) // GROUP + own_first
            at = (tile * M + gl.arange(0, M, gl.SliceLayout(1, QUERIES))) // GROUP
            head = group * GROUP + (tile * M + gl.arange(0, M, gl.SliceLayout(1, QUERIES))) % GROUP
            base = query_row + head.to(gl.int64) * query_head
            base = gl.expand_dims(base + at.to(gl.int64) * query_step, 1)
            real = gl.expand_dims(at < own_queries, 1)
            lane = gl.expand_dims(gl.arange(0, D1, gl.SliceLayout(0, QUERIES)), 0)
            q = (gl.load(base + lane, mask=real, other=0.0),)
            if D2:
                lane = D1 + gl.expand_dims(gl.arange(0, D2, gl.SliceLayout(0, QUERIES)), 0)
                q += (gl.load(base + lane, mask=real, other=0.0),)
        plain = own_keys
        if CAUSAL:
            plain = gl.minimum(plain, tile * M // GROUP + own_first + 1)
        if WINDOW:
            plain = 0
        row = ((sequence * (units // COLUMNS) + group) * tiles + tile).to(gl.int64) * stored
        states = part_top, part_total, part_out, row, chunks, tile * M, own_queries, column
        if SPREAD:
            found = rows_of_blocks(
                rings, states, q, begin, end, slot, phase, v_slot, v_phase, plain, positions, own_keys, window, scale,
                cap_factor, M, N, D1, D2, DV1, DV2, CHUNK, CAUSAL, WINDOW, CAP, SEVERAL, RAGGED, STAGES, OUT, BLOCK,
                VALUES,
            )  # fmt: skip
            v_slot, v_phase = found[8], found[9]
        elif FEW:
            found = few_rows(
                rings, states, q, begin, end, slot, phase, plain, positions, own_keys, window, scale, cap_factor, M, N,
                D1, D2, DV1, DV2, CHUNK, CAUSAL, WINDOW, CAP, SEVERAL, RAGGED, STAGES, OUT, BLOCK, GROUP, VP,
                SPLIT,
            )  # fmt: skip
        else:
            found = many_rows(
                rings, states, q, begin, end, slot, phase, plain, positions, own_keys, window, scale, cap_factor, M, N,
                D1, D2, DV1, DV2, CHUNK, CAUSAL, WINDOW, CAP, SEVERAL, RAGGED, STAGES, OUT, BLOCK, GROUP, VP,
                SPLIT,
            )  # fmt: skip
        state_top, state_total, state_outs, top, total, outs = (
            found[0],
            found[1],
            found[2],
            found[3],
            found[4],
            found[5],
        )
        slot, phase = found[6], found[7]
        packed = tile * M + gl.arange(0, M, OUT_ROWS)
        inside = packed // GROUP < own_queries
        if not SPLIT:
            store_output(
                output, logarithms, query_starts, sinks, sequence, group, column, packed, inside, state_top,
                state_total, state_outs, top, total, outs, output_batch, output_step, output_head, logarithm_batch,
                logarithm_step, logarithm_head, GROUP, DV1, DV2, LOGARITHMS, OUT,
            )  # fmt: skip
        else:
            store_state(states, begin // CHUNK, top, total, outs, M, GROUP, DV1, DV2, VP, OUT)
        if ONCE:
            sequence = sequences
        else:
            place, sequence, unit, tile, begin, end = part_after(
                place, query_starts, key_starts, key_lengths, queries, keys,
                first_position, window, units, sequences, M, N, GROUP, CHUNK, CAUSAL, ALIGNED, WINDOW, SPLIT, ONCE,
            )  # fmt: skip


@gluon.jit(
    do_not_specialize=[
        "queries", "keys", "first_position", "window", "tiles", "groups", "chunks", "sequences", "stored",
        "logarithm_batch", "logarithm_step", "logarithm_head", "page_batch",
    ]
)  # fmt: skip
def visit_parts(
    query, key_map, key_rest_map, value_map, value_rest_map, output, logarithms, part_top, part_total, part_out,
    query_starts, key_starts, key_lengths, pages, sinks,
    query_batch, query_step, query_head, output_batch, output_step, output_head,
    logarithm_batch, logarithm_step, logarithm_head, page_batch,
    queries, keys, first_position, scale, cap_factor, window, tiles, groups, chunks, sequences, stored,
    D1: gl.constexpr, D2: gl.constexpr, DV1: gl.constexpr, DV2: gl.constexpr, VP: gl.constexpr,
    GROUP: gl.constexpr, M: gl.constexpr, N: gl.constexpr, BLOCK: gl.constexpr,
    CHUNK: gl.constexpr, PAGE: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr, ALIGNED: gl.constexpr,
    WINDOW: gl.constexpr, CAP: gl.constexpr, SPLIT: gl.constexpr, SEVERAL: gl.constexpr, LOGARITHMS: gl.constexpr,
    COLUMNS: gl.constexpr, ONCE: gl.constexpr, VALUES: gl.constexpr,
):  # fmt: skip
    """Compute parts of sequences in turn: with SPLIT store the state of each, of `stored` rows, else its rows' output.

    A part has one chunk with SPLIT, else all chunks.  SEVERAL says whether a part may have more than one chunk.  Tiles
    of N keys have one, two or four blocks.  Keys have D1 components, a power of 2, and the D2 others in tiles of their
    own, and values have DV1 and DV2; or a part has DV1 of them, one of COLUMNS shares.  Stored rows have VP components.
    The arguments are those of `chunks.forward`.
    """
    TILES: gl.constexpr = STAGES * (N // BLOCK)
    k_rest_parts, k_rest, v_rest_parts, v_rest = None, None, None, None
    if VALUES:
        k_parts = parts_of_ring(key_map, TILES, BLOCK, D1)
        v_parts = parts_of_ring(value_map, VALUES, BLOCK, DV1)
        k_ring = k_parts
        v_ring = v_parts._reinterpret(value_map.dtype, [VALUES, 1, 1, BLOCK, DV1], value_map.layout)
        if key_rest_map is not None:
            k_rest_parts = parts_of_ring(key_rest_map, TILES, BLOCK, D2)
            k_rest = k_rest_parts
        if value_rest_map is not None:
            v_rest_parts = parts_of_ring(value_rest_map, VALUES, BLOCK, DV2)
            v_rest = v_rest_parts._reinterpret(value_rest_map.dtype, [VALUES, 1, 1, BLOCK, DV2], value_rest_map.layout)
    else:
        k_parts = parts_of_ring(key_map, TILES, BLOCK, D1)
        k_ring = ring_of_parts(key_map, k_parts, TILES, BLOCK, D1)
        v_parts = parts_of_other(value_map, k_parts)
        v_ring = ring_of_parts(value_map, v_parts, TILES * (D1 // DV1), BLOCK, DV1)
        if key_rest_map is not None:
            k_rest_parts = parts_of_ring(key_rest_map, TILES, BLOCK, D2)
            k_rest = ring_of_parts(key_rest_map, k_rest_parts, TILES, BLOCK, D2)
            if value_rest_map is not None:
                v_rest_parts = parts_of_other(value_rest_map, k_rest_parts)
                v_rest = ring_of_parts(value_rest_map, v_rest_parts, TILES, BLOCK, DV2)
    full = gl.allocate_shared_memory(gl.int64, [STAGES + VALUES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES + VALUES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES + VALUES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    fence_async_shared()
    if (query_starts is not None) or (key_starts is not None) or (key_lengths is not None):
        gdc_wait()  # the next kernel reads the lengths at once
    gdc_launch_dependents()
    given = (
        query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups * COLUMNS, sequences,
    )  # fmt: skip
    of_parts = (
        query, output, logarithms, part_top, part_total, part_out, sinks, query_batch, query_step, query_head,
        output_batch, output_step, output_head, logarithm_batch, logarithm_step, logarithm_head, scale, cap_factor,
        tiles, chunks, stored,
    )  # fmt: skip
    gl.warp_specialize(
        [
            (
                compute_parts,
                (
                    given, of_parts, (k_ring, k_rest, v_ring, v_rest, full, empty), D1, D2, DV1, DV2, COLUMNS,
                    VP, GROUP, M, N, BLOCK, CHUNK, STAGES, CAUSAL, ALIGNED, WINDOW, CAP, SPLIT, SEVERAL, LOGARITHMS,
                    ONCE, VALUES,
                ),
            ),
            (
                copy_parts,
                (
                    given, of_parts, (key_map, key_rest_map, value_map, value_rest_map),
                    (k_parts, k_rest_parts, v_parts, v_rest_parts), full, empty, pages, page_batch, M, N, BLOCK, D1,
                    D2, DV1, DV2, COLUMNS, GROUP, CHUNK, PAGE, CAUSAL, ALIGNED, WINDOW, SPLIT, STAGES, ONCE, VALUES,
                ),
            ),
        ],
        [1],
        [48],
    )  # fmt: skip
