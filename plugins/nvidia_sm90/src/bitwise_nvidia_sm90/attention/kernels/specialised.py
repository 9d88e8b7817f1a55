"""The Gluon kernel of attention for many queries: one warp copies, two warpgroups compute.

It computes the tree of `chunks.forward`.  A program visits tiles of rows of one head in turn, the longest first.  A
warpgroup has 64 of 128 rows.  With REMOTE it keeps the outputs of earlier chunks in global memory, since those of wide
values do not fit its registers beside the output of a chunk.  It multiplies queries and the next block of keys while it
computes the exponentials of the block before, whose product with values it then adds.  The queries of SIDES tiles are
in memory; with two, the copies of the next tile begin before one ends.

Components of queries and keys beyond the first D1, a power of 2, have tiles of their own.
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

from bitwise_nvidia_sm90.attention.kernels.merges import finite_shift, maximum_after, natural_logarithm
from bitwise_nvidia_sm90.attention.kernels.tiles_of_keys import (
    clear_rows,
    copy_tile,
    lengths_of,
    pages_of_tile,
    parts_of_ring,
    ring_of_parts,
)

NOTHING = gl.constexpr(float("-inf"))


@gluon.jit
def tile_of(
    turn, sequence, behind, query_starts, tiles, units, sequences, M: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    """Return the tile of rows, the head and the sequence of a program's turn, and the tiles of sequences before it.

    The tile is negative behind the last one.  Long rows come first: of all dense sequences, back and forth, or of one
    sequence after the other from `sequence` on, before which there are `behind` tiles.  Dense rows of equal length come
    head by head, so that programs read the same keys at a time.
    """
    program, programs = gl.program_id(0), gl.num_programs(0)
    if query_starts is None:
        place = gl.where(turn % 2 == 0, program, programs - 1 - program) + turn * programs
        if CAUSAL:
            width = units * sequences
            tile, head, sequence = tiles - 1 - place // width, place % units, place % width // units
        else:
            tile, head, sequence = place % tiles, place // tiles % units, place // tiles // units
            tile = gl.where(sequence < sequences, tile, -1)
    else:
        place = program + turn * programs
        count = tiles_of(sequence, query_starts, sequences, M) * units
        while (place >= behind + count) & (sequence < sequences):
            behind += count
            sequence += 1
            count = tiles_of(sequence, query_starts, sequences, M) * units
        tile = gl.where(sequence < sequences, count // units - 1 - (place - behind) // units, -1)
        head = (place - behind) % units
    return tile, head, sequence, behind


@gluon.jit
def tiles_of(sequence, query_starts, sequences, M: gl.constexpr):
    """Return the number of tiles of rows of a sequence, none behind the last one."""
    real = sequence < sequences
    rows = gl.load(query_starts + sequence + 1, mask=real, other=0)
    rows -= gl.load(query_starts + sequence, mask=real, other=0)
    return (rows + M - 1) // M


@gluon.jit
def position_of(row, first_position, SHARE: gl.constexpr, STEP: gl.constexpr):
    """Return the position of the query of a row among the keys: SHARE rows have one, and the next ones STEP more."""
    return row // SHARE * STEP + first_position


@gluon.jit
def extent(
    tile,
    queries,
    keys,
    first_position,
    window,
    M: gl.constexpr,
    N: gl.constexpr,
    CAUSAL: gl.constexpr,
    WINDOW: gl.constexpr,
    SHARE: gl.constexpr,
    STEP: gl.constexpr,
):
    """Return the first key of the blocks that a tile visits, and their end; there is at least one block."""
    begin, end = 0, keys
    if CAUSAL:
        last = gl.minimum(tile * M + M, queries) - 1
        end = gl.minimum(end, position_of(last, first_position, SHARE, STEP) + 1)
    if WINDOW:
        first = position_of(tile * M, first_position, SHARE, STEP)
        begin = gl.minimum(gl.maximum(0, first - window + 1), keys - 1) // N * N
    return begin, gl.maximum(end, begin + 1)


@gluon.jit
def copy_tiles(
    given,
    M: gl.constexpr, N: gl.constexpr, D1: gl.constexpr, D2: gl.constexpr, DV: gl.constexpr, GROUP: gl.constexpr,
    PAGE: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr, ALIGNED: gl.constexpr, WINDOW: gl.constexpr,
    SIDES: gl.constexpr, SHARE: gl.constexpr, STEP: gl.constexpr,
):  # fmt: skip
    """Copy the queries of each tile, and the blocks of keys and values that it visits."""
    (
        query_map, query_rest_map, key_map, key_rest_map, value_map, q, q_rest, k, k_rest, v, q_full, q_empty,
        k_full, k_empty, v_full, v_empty, query_starts, key_starts, key_lengths, pages, page_batch, all_queries,
        all_keys, given_position, window, tiles, units, sequences,
    ) = given  # fmt: skip
    count = 0
    turn = 0
    tile, head, sequence, behind = tile_of(turn, turn, turn, query_starts, tiles, units, sequences, M, CAUSAL)
    while tile >= 0:
        queries, keys, first_position = lengths_of(
            sequence, query_starts, key_starts, key_lengths, all_queries, all_keys, given_position, sequences, ALIGNED
        )
        q_batch, q_row, k_batch, k_row = sequence, 0, sequence, 0
        if query_starts is not None:
            q_batch, q_row = 0, gl.load(query_starts + sequence)
        if key_starts is not None:
            k_batch, k_row = 0, gl.load(key_starts + sequence)
        first_page = sequence.to(gl.int64) * page_batch
        begin, end = extent(tile, queries, keys, first_position, window, M, N, CAUSAL, WINDOW, SHARE, STEP)
        side = turn % SIDES
        mbarrier.wait(q_empty.index(side), (turn // SIDES & 1) ^ 1)
        size: gl.constexpr = query_map.block_type.nbytes
        bar = q_full.index(side)
        if query_rest_map is not None:
            mbarrier.expect(bar, M // 64 * (size + query_rest_map.block_type.nbytes))
        else:
            mbarrier.expect(bar, M // 64 * size)
        for half in gl.static_range(M // 64):
            place = [q_batch, head, q_row + tile * M + half * 64, 0]
            tma.async_copy_global_to_shared(query_map, place, bar, q.index(side * (M // 64) + half))
            if query_rest_map is not None:
                place = [q_batch, head, q_row + tile * M + half * 64, D1]
                tma.async_copy_global_to_shared(query_rest_map, place, bar, q_rest.index(side * (M // 64) + half))
        for start in range(begin, end, N):
            stage = count % STAGES
            phase = (count // STAGES & 1) ^ 1
            numbers = pages_of_tile(key_map, pages, first_page, keys, start, N, PAGE)
            mbarrier.wait(k_empty.index(stage), phase)
            bar = k_full.index(stage)
            mbarrier.expect(bar, N * (D1 + D2) * 2)
            group = head // GROUP
            copy_tile(key_map, k, stage, bar, numbers, k_batch, group, k_row, start, 0, N, D1, PAGE)
            if key_rest_map is not None:
                copy_tile(key_rest_map, k_rest, stage, bar, numbers, k_batch, group, k_row, start, D1, N, D2, PAGE)
            mbarrier.wait(v_empty.index(stage), phase)
            bar = v_full.index(stage)
            mbarrier.expect(bar, N * DV * 2)
            copy_tile(value_map, v, stage, bar, numbers, k_batch, group, k_row, start, 0, N, DV, PAGE)
            count += 1
        turn += 1
        tile, head, sequence, behind = tile_of(turn, sequence, behind, query_starts, tiles, units, sequences, M, CAUSAL)


@gluon.jit
def queries_of(q, place):
    """Return 64 rows of queries as a matrix."""
    return q.index(place).reshape([q.shape[3], q.shape[4]])


@gluon.jit
def scores_of(q, q_rest, k, k_rest, stage, s):
    """Start the products of queries and a block of keys, and return them."""
    keys = k.index(stage).reshape([k.shape[3], k.shape[4]]).permute((1, 0))
    s = warpgroup_mma(q, keys, s, use_acc=False, is_async=True)
    if q_rest is not None:
        keys = k_rest.index(stage).reshape([k_rest.shape[3], k_rest.shape[4]]).permute((1, 0))
        s = warpgroup_mma(q_rest, keys, s, is_async=True)
    return s


@gluon.jit
def values_of(v, stage):
    """Return the values of a block as a matrix."""
    return v.index(stage).reshape([v.shape[3], v.shape[4]])


@gluon.jit
def merged(top, total, out, top_part, total_part, out_part):
    """Return the state after the merge of a chunk; see `chunks.merged`."""
    top_part = gl.convert_layout(top_part, top.type.layout, assert_trivial=True)
    total_part = gl.convert_layout(total_part, top.type.layout, assert_trivial=True)
    highest = gl.maximum(top, top_part)
    shift = finite_shift(highest)
    old = gl.exp2(top - shift)
    fresh = gl.exp2(top_part - shift)
    total = gl.fma(total_part, fresh, total * old)
    factor, _ = gl.broadcast(gl.expand_dims(fresh, 1), out)
    out = gl.fma(out_part, factor, out * gl.expand_dims(old, 1))
    return highest, total, out


@gluon.jit
def merged_in_memory(
    top, total, kept, before, top_part, total_part, out_part, DV: gl.constexpr, REMOTE: gl.constexpr
):  # fmt: skip
    """Return the state after the merge of a chunk, whose output with REMOTE is in memory at `kept`, else `kept`.

    What is in memory counts if there was a chunk `before`; else the output is zero.
    """
    if REMOTE:
        L: gl.constexpr = out_part.type.layout
        row = gl.expand_dims(gl.arange(0, 64, gl.SliceLayout(1, L)), 1)
        lane = gl.expand_dims(gl.arange(0, DV, gl.SliceLayout(0, L)), 0)
        # A warp has 8 rows of 8 components at a time, which lie beside each other.
        place = kept + lane // 8 * (64 * 8) + row * 8 + lane % 8
        top, total, out = merged(
            top, total, gl.load(place, mask=before & (row >= 0), other=0.0), top_part, total_part, out_part
        )  # fmt: skip
    else:
        place = kept
        top, total, out = merged(top, total, kept, top_part, total_part, out_part)
    return top, total, out, place


@gluon.jit
def finished(top, total, out):
    """Return the normalised output and the logarithm of each row; see `chunks.finished`."""
    one = gl.full(total.shape, 1.0, gl.float32, total.type.layout)
    out = (out + 0.0) * gl.expand_dims(gl.div_rn(one, gl.maximum(total, 1.1754943508222875e-38)), 1)
    factor = gl.full(top.shape, 0.6931471805599453, gl.float32, top.type.layout)
    logarithm = gl.fma(top, factor, natural_logarithm(total))
    return out, gl.where(total == 0.0, NOTHING, logarithm)


@gluon.jit
def visible_scores(
    s, start, positions, keys, window, N: gl.constexpr, CAUSAL: gl.constexpr, WINDOW: gl.constexpr,
):  # fmt: skip
    """Return scores of a block, those of hidden keys as -inf."""
    place = gl.expand_dims(start + gl.arange(0, N, gl.SliceLayout(0, s.type.layout)), 0)
    seen = place < keys
    if CAUSAL:
        seen = seen & (place <= gl.expand_dims(positions, 1))
    if WINDOW:
        seen = seen & (place > gl.expand_dims(positions, 1) - window)
    return gl.where(seen, s, NOTHING)


@gluon.jit
def softmax_step(s, top, total, scale):
    """Return the weights of a block of scores, the maximum and the denominator after it, and the output's factor."""
    highest = maximum_after(top, gl.max(s, axis=1) * scale)
    shift = finite_shift(highest)
    factor = gl.full(s.shape, scale, gl.float32, s.type.layout)
    less, _ = gl.broadcast(gl.expand_dims(-shift, 1), s)
    weights = gl.exp2(gl.fma(s, factor, less))
    shrink = gl.exp2(top - shift)
    total = gl.fma(total, shrink, gl.sum(weights, axis=1))
    return weights, highest, total, shrink


@gluon.jit
def visit(
    begin, first, last, count, q, q_rest, k, k_rest, v, k_full, k_empty, v_full, v_empty, turns, played,
    half: gl.constexpr, weights, top, total, out, state_top, state_total, state_out, positions, keys, scale,
    cap_factor, window,
    N: gl.constexpr, CHUNK: gl.constexpr, STAGES: gl.constexpr, MASK: gl.constexpr, CAUSAL: gl.constexpr,
    WINDOW: gl.constexpr, CAP: gl.constexpr, SCORES: gl.constexpr, PARTS: gl.constexpr,
    DV: gl.constexpr, REMOTE: gl.constexpr,
):  # fmt: skip
    """Visit blocks of keys from `first` to `last`; each adds the product of the block before and its own weights."""
    for start in range(first, last, N):
        stage = count % STAGES
        before = (count - 1) % STAGES
        mbarrier.wait(k_full.index(stage), count // STAGES & 1)
        mbarrier.wait(turns.index(half), ((count - played) & 1) ^ (1 - half))
        s = gl.zeros([64, N], gl.float32, SCORES)
        s = scores_of(q, q_rest, k, k_rest, stage, s)
        mbarrier.wait(v_full.index(before), (count - 1) // STAGES & 1)
        out = warpgroup_mma(weights, values_of(v, before), out, is_async=True)
        mbarrier.arrive(turns.index(1 - half))
        s = warpgroup_mma_wait(1, deps=[s])
        mbarrier.arrive(k_empty.index(stage))
        if CAP:
            s = 1.0 - 2.0 / (gl.exp2(s * cap_factor) + 1.0)
        if MASK:
            s = visible_scores(s, start, positions, keys, window, N, CAUSAL, WINDOW)
        # The state of the block before, which ends a chunk if this one starts another.
        part_top, part_total = top, total
        fresh = start % CHUNK == 0
        top = gl.where(fresh, NOTHING, top)
        total = gl.where(fresh, 0.0, total)
        found, top, total, shrink = softmax_step(s, top, total, scale)
        shrink = gl.convert_layout(shrink, state_top.type.layout, assert_trivial=True)
        out, _ = warpgroup_mma_wait(0, deps=[out, weights])
        mbarrier.arrive(v_empty.index(before))
        if fresh:
            state_top, state_total, merged_out, place = merged_in_memory(
                state_top, state_total, state_out, start - CHUNK > begin, part_top, part_total, out, DV, REMOTE
            )
            if REMOTE:
                gl.store(place, merged_out)
            else:
                state_out = merged_out
            out = gl.full(out.shape, 0.0, gl.float32, out.type.layout)
        else:
            out = out * gl.expand_dims(shrink, 1)
        weights = gl.convert_layout(found.to(v.dtype), PARTS)
        count += 1
    return count, weights, top, total, out, state_top, state_total, state_out


@gluon.jit
def compute_tiles(
    half: gl.constexpr, given,
    M: gl.constexpr, N: gl.constexpr, W: gl.constexpr, DV: gl.constexpr, CHUNK: gl.constexpr, STAGES: gl.constexpr,
    CAUSAL: gl.constexpr, ALIGNED: gl.constexpr, WINDOW: gl.constexpr, CAP: gl.constexpr, LOGARITHMS: gl.constexpr,
    SIDES: gl.constexpr, REMOTE: gl.constexpr, SHARE: gl.constexpr, STEP: gl.constexpr,
):  # fmt: skip
    """Compute 64 of the rows of each tile, or half of their components; `W` is the width of values."""
    (
        q, q_rest, k, k_rest, v, q_full, q_empty, k_full, k_empty, v_full, v_empty, v_cleared, turns, output,
        logarithms, query_starts, key_starts, key_lengths, sinks, output_batch, output_step, output_head,
        logarithm_batch, logarithm_step, logarithm_head, all_queries, all_keys, given_position, scale, cap_factor,
        window, tiles, units, sequences, states,
    ) = given  # fmt: skip
    SCORES: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, N, 16])
    OUT: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, DV, 16])
    PARTS: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=OUT, k_width=2)
    ROWS: gl.constexpr = gl.SliceLayout(1, SCORES)
    # A tile of wide values leaves no memory for an exchange of its components.
    STORED: gl.constexpr = OUT if REMOTE else gl.BlockedLayout([1, 8], [256 // DV, DV // 8], [4, 1], [1, 0])
    RAGGED: gl.constexpr = (query_starts is not None) or (key_starts is not None) or (key_lengths is not None)
    count = 0
    played = 0
    turn = 0
    cleared = 0
    tile, head, sequence, behind = tile_of(turn, turn, turn, query_starts, tiles, units, sequences, M, CAUSAL)
    while tile >= 0:
        queries, keys, first_position = lengths_of(
            sequence, query_starts, key_starts, key_lengths, all_queries, all_keys, given_position, sequences, ALIGNED
        )
        own_batch, first_row = sequence.to(gl.int64), 0
        if query_starts is not None:
            own_batch, first_row = own_batch * 0, gl.load(query_starts + sequence)
        begin, end = extent(tile, queries, keys, first_position, window, M, N, CAUSAL, WINDOW, SHARE, STEP)
        low = tile * M + half * 64
        positions = position_of(low + gl.arange(0, 64, ROWS), first_position, SHARE, STEP)
        plain = keys // N * N
        if CAUSAL:
            plain = gl.minimum(plain, gl.maximum(0, position_of(low, first_position, SHARE, STEP) + 1) // N * N)
        if WINDOW:
            plain = 0
        state_top = gl.full([64], NOTHING, gl.float32, gl.SliceLayout(1, OUT))
        state_total = gl.zeros([64], gl.float32, gl.SliceLayout(1, OUT))
        if REMOTE:
            state_out = states + (gl.program_id(0) * 2 + half) * (64 * DV)
        else:
            state_out = gl.zeros([64, DV], gl.float32, OUT)
        out = gl.zeros([64, DV], gl.float32, OUT)
        top = gl.full([64], NOTHING, gl.float32, ROWS)
        total = gl.zeros([64], gl.float32, ROWS)
        side = turn % SIDES
        own_q, own_q_rest = queries_of(q, side * (M // 64) + half), q_rest
        if q_rest is not None:
            own_q_rest = queries_of(q_rest, side * (M // 64) + half)
        mbarrier.wait(q_full.index(side), turn // SIDES & 1)
        stage = count % STAGES
        mbarrier.wait(k_full.index(stage), count // STAGES & 1)
        s = gl.zeros([64, N], gl.float32, SCORES)
        s = scores_of(own_q, own_q_rest, k, k_rest, stage, s)
        s = warpgroup_mma_wait(0, deps=[s])
        mbarrier.arrive(k_empty.index(stage))
        if CAP:
            s = 1.0 - 2.0 / (gl.exp2(s * cap_factor) + 1.0)
        s = visible_scores(s, begin, positions, keys, window, N, CAUSAL, WINDOW)
        found, top, total, shrink = softmax_step(s, top, total, scale)
        # A product of zeros, which the tree has; without it the checker would need to know that 2^-inf is zero.
        out = out * gl.expand_dims(gl.convert_layout(shrink, state_top.type.layout, assert_trivial=True), 1)
        weights = gl.convert_layout(found.to(v.dtype), PARTS)
        count += 1
        played += 1
        border = gl.minimum(gl.maximum(begin + N, plain), end)
        count, weights, top, total, out, state_top, state_total, state_out = visit(
            begin, begin + N, border, count, own_q, own_q_rest, k, k_rest, v, k_full, k_empty, v_full, v_empty, turns,
            played, half, weights, top, total, out, state_top, state_total, state_out, positions, keys, scale,
            cap_factor, window, N, CHUNK, STAGES, False, CAUSAL, WINDOW, CAP, SCORES, PARTS, DV, REMOTE,
        )  # fmt: skip
        count, weights, top, total, out, state_top, state_total, state_out = visit(
            begin, (border + N - 1) // N * N, end, count, own_q, own_q_rest, k, k_rest, v, k_full, k_empty, v_full,
            v_empty, turns, played, half, weights, top, total, out, state_top, state_total, state_out, positions, keys,
            scale, cap_factor, window, N, CHUNK, STAGES, True, CAUSAL, WINDOW, CAP, SCORES, PARTS, DV, REMOTE,
        )  # fmt: skip
        mbarrier.arrive(q_empty.index(side))
        before = (count - 1) % STAGES
        mbarrier.wait(v_full.index(before), (count - 1) // STAGES & 1)
        values = values_of(v, before)
        if RAGGED:  # what is behind the last key belongs to others
            last = (end - 1) // N * N
            if last + N > keys:
                if half == 0:
                    clear_rows(values, keys - last, N, DV)
                    mbarrier.arrive(v_cleared)
                else:
                    mbarrier.wait(v_cleared, cleared & 1)
                cleared += 1
        out = warpgroup_mma(weights, values, out, is_async=True)
        out = warpgroup_mma_wait(0, deps=[out])
        mbarrier.arrive(v_empty.index(before))
        top, total, out, _ = merged_in_memory(
            state_top, state_total, state_out, (end - 1) // CHUNK * CHUNK > begin, top, total, out, DV, REMOTE
        )
        at = low + gl.arange(0, 64, gl.SliceLayout(1, OUT))
        if sinks is not None:
            sink = gl.load(sinks + head).to(gl.float32) * 1.4426950408889634
            top, total, out = merged(
                top, total, out, gl.full([64], 0.0, gl.float32, gl.SliceLayout(1, OUT)) + sink,
                gl.full([64], 1.0, gl.float32, gl.SliceLayout(1, OUT)), gl.zeros([64, DV], gl.float32, OUT),
            )  # fmt: skip
        out, logarithm = finished(top, total, out)
        if LOGARITHMS:
            place = logarithms + own_batch * logarithm_batch + head.to(gl.int64) * logarithm_head
            gl.store(place + (first_row + at).to(gl.int64) * logarithm_step, logarithm, mask=at < queries)
        rounded = gl.convert_layout(out.to(output.dtype.element_ty), STORED)
        at = low + gl.arange(0, 64, gl.SliceLayout(1, STORED))
        place = output + own_batch * output_batch + head.to(gl.int64) * output_head
        place = gl.expand_dims(place + (first_row + at).to(gl.int64) * output_step, 1)
        lane = gl.expand_dims(gl.arange(0, DV, gl.SliceLayout(0, STORED)), 0)
        inside = gl.expand_dims(at < queries, 1)
        if W % DV:
            inside = inside & (lane < W)
        gl.store(place + lane, rounded, mask=inside)
        turn += 1
        tile, head, sequence, behind = tile_of(turn, sequence, behind, query_starts, tiles, units, sequences, M, CAUSAL)


@gluon.jit(
    do_not_specialize=["queries", "keys", "first_position", "window", "tiles", "units", "sequences", "logarithm_batch",
                       "logarithm_step", "logarithm_head", "page_batch"]
)  # fmt: skip
def forward_specialised(
    query_map, query_rest_map, key_map, key_rest_map, value_map, output, logarithms, states,
    query_starts, key_starts, key_lengths, pages, sinks,
    output_batch, output_step, output_head, logarithm_batch, logarithm_step, logarithm_head, page_batch,
    queries, keys, first_position, scale, cap_factor, window, tiles, units, sequences,
    D1: gl.constexpr, D2: gl.constexpr, W: gl.constexpr, DV: gl.constexpr, GROUP: gl.constexpr, M: gl.constexpr,
    N: gl.constexpr, CHUNK: gl.constexpr, PAGE: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
    ALIGNED: gl.constexpr, WINDOW: gl.constexpr, CAP: gl.constexpr, LOGARITHMS: gl.constexpr,
    SIDES: gl.constexpr, REMOTE: gl.constexpr, SHARE: gl.constexpr, STEP: gl.constexpr,
):  # fmt: skip
    """Compute all tiles of M rows of sequences in turn; the arguments are those of `chunks.forward`."""
    kind: gl.constexpr = query_map.dtype
    q = gl.allocate_shared_memory(kind, [SIDES * (M // 64), 1, 1, 64, D1], query_map.layout)
    k_parts = parts_of_ring(key_map, STAGES, N, D1)
    k = ring_of_parts(key_map, k_parts, STAGES, N, D1)
    v_parts = parts_of_ring(value_map, STAGES, N, DV)
    v = ring_of_parts(value_map, v_parts, STAGES, N, DV)
    q_rest, k_rest_parts, k_rest = None, None, None
    if query_rest_map is not None:
        q_rest = gl.allocate_shared_memory(kind, [SIDES * (M // 64), 1, 1, 64, D2], query_rest_map.layout)
        k_rest_parts = parts_of_ring(key_rest_map, STAGES, N, D2)
        k_rest = ring_of_parts(key_rest_map, k_rest_parts, STAGES, N, D2)
    q_full = gl.allocate_shared_memory(gl.int64, [SIDES, 1], mbarrier.MBarrierLayout())
    q_empty = gl.allocate_shared_memory(gl.int64, [SIDES, 1], mbarrier.MBarrierLayout())
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_cleared = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    turns = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    mbarrier.init(turns.index(0), count=1)
    mbarrier.init(turns.index(1), count=1)
    mbarrier.init(v_cleared, count=1)
    for side in gl.static_range(SIDES):
        mbarrier.init(q_full.index(side), count=1)
        mbarrier.init(q_empty.index(side), count=2)
    for stage in gl.static_range(STAGES):
        mbarrier.init(k_full.index(stage), count=1)
        mbarrier.init(k_empty.index(stage), count=2)
        mbarrier.init(v_full.index(stage), count=1)
        mbarrier.init(v_empty.index(stage), count=2)
    fence_async_shared()
    computed = (
        q, q_rest, k, k_rest, v, q_full, q_empty, k_full, k_empty, v_full, v_empty, v_cleared, turns, output,
        logarithms, query_starts, key_starts, key_lengths, sinks, output_batch, output_step, output_head,
        logarithm_batch, logarithm_step, logarithm_head, queries, keys, first_position, scale, cap_factor, window,
        tiles, units, sequences, states,
    )  # fmt: skip
    copied = (
        query_map, query_rest_map, key_map, key_rest_map, value_map, q, q_rest, k_parts, k_rest_parts, v_parts,
        q_full, q_empty, k_full, k_empty, v_full, v_empty, query_starts, key_starts, key_lengths, pages, page_batch,
        queries, keys, first_position, window, tiles, units, sequences,
    )  # fmt: skip
    gl.warp_specialize(
        [
            (
                compute_tiles,
                (
                    0, computed, M, N, W, DV, CHUNK, STAGES, CAUSAL, ALIGNED, WINDOW, CAP, LOGARITHMS, SIDES,
                    REMOTE, SHARE, STEP,
                ),
            ),
            (
                compute_tiles,
                (
                    1, computed, M, N, W, DV, CHUNK, STAGES, CAUSAL, ALIGNED, WINDOW, CAP, LOGARITHMS, SIDES,
                    REMOTE, SHARE, STEP,
                ),
            ),
            (copy_tiles, (copied, M, N, D1, D2, DV, GROUP, PAGE, STAGES, CAUSAL, ALIGNED, WINDOW, SIDES, SHARE, STEP)),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip
