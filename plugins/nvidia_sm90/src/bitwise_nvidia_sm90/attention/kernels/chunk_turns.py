"""The Gluon kernel of attention for few queries: programs take chunks of keys, or all keys of some rows, in turn.

It computes the tree of `chunks.forward`.  One warp copies keys and values to a ring of tiles, as soon as four others
have read what was there.  It runs ahead over the parts of a program, whatever sequence and head they belong to, so that
memory is never idle.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call,attr-defined,assignment,misc,var-annotated"
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from bitwise_nvidia_sm90.attention.kernels.block_of_each_warp import layout_of_blocks, queries_of_blocks, rows_of_blocks
from bitwise_nvidia_sm90.attention.kernels.copies_of_parts import copy_parts
from bitwise_nvidia_sm90.attention.kernels.parts import first_part, part_after
from bitwise_nvidia_sm90.attention.kernels.rows_of_all_warps import few_rows, product_layout
from bitwise_nvidia_sm90.attention.kernels.rows_of_each_warp import many_rows
from bitwise_nvidia_sm90.attention.kernels.states_of_chunks import store_output, store_state
from bitwise_nvidia_sm90.attention.kernels.tiles_of_keys import lengths_of, parts_of_other, parts_of_ring, ring_of_parts


@gluon.jit
def compute_parts(
    given, of_parts, rings,
    D1: gl.constexpr, D2: gl.constexpr, DV1: gl.constexpr, DV2: gl.constexpr,
    VP: gl.constexpr, GROUP: gl.constexpr,
    M: gl.constexpr, N: gl.constexpr, BLOCK: gl.constexpr, CHUNK: gl.constexpr, STAGES: gl.constexpr,
    CAUSAL: gl.constexpr, ALIGNED: gl.constexpr, WINDOW: gl.constexpr, CAP: gl.constexpr, SPLIT: gl.constexpr,
    SEVERAL: gl.constexpr, LOGARITHMS: gl.constexpr, ONCE: gl.constexpr, ORDERED: gl.constexpr, VALUES: gl.constexpr,
):  # fmt: skip
    """Compute the parts of a program in turn."""
    query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups, sequences = given
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
    place, sequence, group, tile, begin, end = first_part(
        query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups, sequences, M, N, GROUP,
        CHUNK, CAUSAL, ALIGNED, WINDOW, SPLIT, ONCE, ORDERED,
    )  # fmt: skip
    slot, phase = gl.to_tensor(0), gl.to_tensor(0)
    v_slot, v_phase = gl.to_tensor(0), gl.to_tensor(0)
    while sequence < sequences:
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
        row = ((sequence * groups + group) * tiles + tile).to(gl.int64) * stored
        states = part_top, part_total, part_out, row, chunks, tile * M, own_queries
        if SPREAD:
            found = rows_of_blocks(
                rings, q, begin, end, slot, phase, v_slot, v_phase, plain, positions, own_keys, window, scale,
                cap_factor, M, N, D1, D2, DV1, DV2, CHUNK, CAUSAL, WINDOW, CAP, SEVERAL, RAGGED, STAGES, OUT, BLOCK,
                VALUES,
            )  # fmt: skip
            v_slot, v_phase = found[8], found[9]
        elif FEW:
            found = few_rows(
                rings, q, begin, end, slot, phase, plain, positions, own_keys, window, scale, cap_factor, M, N,
                D1, D2, DV1, DV2, CHUNK, CAUSAL, WINDOW, CAP, SEVERAL, RAGGED, STAGES, OUT, BLOCK,
            )  # fmt: skip
        else:
            found = many_rows(
                rings, q, begin, end, slot, phase, plain, positions, own_keys, window, scale, cap_factor, M, N,
                D1, D2, DV1, DV2, CHUNK, CAUSAL, WINDOW, CAP, SEVERAL, RAGGED, STAGES, OUT, BLOCK,
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
                output, logarithms, query_starts, sinks, sequence, group, packed, inside, state_top,
                state_total, state_outs, top, total, outs, output_batch, output_step, output_head, logarithm_batch,
                logarithm_step, logarithm_head, GROUP, DV1, DV2, LOGARITHMS, OUT,
            )  # fmt: skip
        else:
            store_state(states, (end - 1) // CHUNK, top, total, outs, M, GROUP, DV1, DV2, VP, OUT)
        if ONCE:
            sequence = sequences
        else:
            place, sequence, group, tile, begin, end = part_after(
                place, query_starts, key_starts, key_lengths, queries, keys,
                first_position, window, groups, sequences, M, N, GROUP, CHUNK, CAUSAL, ALIGNED, WINDOW, SPLIT, ONCE,
                ORDERED,
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
    ONCE: gl.constexpr, ORDERED: gl.constexpr, VALUES: gl.constexpr,
):  # fmt: skip
    """Compute parts of sequences in turn: with SPLIT store the state of each, of `stored` rows, else its rows' output.

    A part has one chunk with SPLIT, else all chunks.  SEVERAL says whether a part may have more than one chunk.  Tiles
    of N keys have one block, or four with VALUES slots for blocks of values.  Keys have D1 components, a power of 2,
    and the D2 others in tiles of their own, and values have DV1 and DV2.  Stored rows have VP components.  The
    arguments are those of `chunks.forward`.
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
        v_ring = ring_of_parts(value_map, v_parts, TILES, BLOCK, DV1)
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
        query_starts, key_starts, key_lengths, queries, keys, first_position, window, groups, sequences,
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
                    given, of_parts, (k_ring, k_rest, v_ring, v_rest, full, empty), D1, D2, DV1, DV2,
                    VP, GROUP, M, N, BLOCK, CHUNK, STAGES, CAUSAL, ALIGNED, WINDOW, CAP, SPLIT, SEVERAL, LOGARITHMS,
                    ONCE, ORDERED, VALUES,
                ),
            ),
            (
                copy_parts,
                (
                    given, of_parts, (key_map, key_rest_map, value_map, value_rest_map),
                    (k_parts, k_rest_parts, v_parts, v_rest_parts), full, empty, pages, page_batch, M, N, BLOCK, D1,
                    D2, DV1, DV2, GROUP, CHUNK, PAGE, CAUSAL, ALIGNED, WINDOW, SPLIT, STAGES, ONCE,
                    ORDERED, VALUES,
                ),
            ),
        ],
        [1],
        [48],
    )  # fmt: skip
