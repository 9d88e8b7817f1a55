"""The Gluon kernels of the gradients of attention with heads of up to 256 components: one warp copies, two compute.

They compute the chains of `gradients`.  A head has 128 components in low tiles, and the rest, 64 or 128, in high ones;
values may have none.  The gradients of 64 keys and values do not fit the registers of one warpgroup: both warpgroups of
a program compute their scores, and one adds the low components, the other the high ones, or all of the values where
they have no high ones.  The gradients of queries fit: each of the two warpgroups has 64 queries.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, attr-defined"
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

from bitwise_nvidia_sm90.attention.kernels.specialised_gradients import (
    barriers,
    bounds,
    matrix,
    probabilities,
    visited_keys,
    visited_queries,
)
from bitwise_nvidia_sm90.attention.kernels.tiles_of_keys import clear_rows

QUERIES = gl.constexpr(64)
"""The queries of a step of the gradients of keys."""
KEYS = gl.constexpr(32)
"""The keys of a step of the gradients of queries: two steps fit the memory."""
LOW = gl.constexpr(128)
"""The components of a low tile."""


@gluon.constexpr_function
def tiles_bytes(low, high):
    """Return the bytes of a low tile and a high one, which may be missing."""
    return low.block_type.nbytes + (0 if high is None else high.block_type.nbytes)


@gluon.constexpr_function
def sums_layout(columns):
    """Return the layout of sums of a number of columns."""
    return gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, columns, 16])


@gluon.jit
def copy_both(low_map, high_map, place, bar, low, high, index):
    """Start the copies of all components of some rows to the tiles `index`."""
    row = [place[0], place[1], place[2], 0]
    tma.async_copy_global_to_shared(low_map, row, bar, low.index(index))
    if high_map is not None:
        row = [place[0], place[1], place[2], LOW]
        tma.async_copy_global_to_shared(high_map, row, bar, high.index(index))


@gluon.jit
def products(left_low, left_high, left, right_low, right_high, right, found):
    """Start the products of two tiles over all components, and return the sums, which begin at 0."""
    rows = matrix(right_low.index(right)).permute((1, 0))
    found = warpgroup_mma(matrix(left_low.index(left)), rows, found, use_acc=False, is_async=True)
    if left_high is not None:
        rows = matrix(right_high.index(right)).permute((1, 0))
        found = warpgroup_mma(matrix(left_high.index(left)), rows, found, is_async=True)
    return found


@gluon.jit
def clear_both(low, high, index, count, ROWS: gl.constexpr):
    """Replace the rows of both tiles from `count` on by zeros."""
    clear_rows(matrix(low.index(index)), count, ROWS, low.shape[4])
    if high is not None:
        clear_rows(matrix(high.index(index)), count, ROWS, high.shape[4])


@gluon.jit
def store_columns(
    target, found, low, rows, column, batch, head, target_batch, target_step, target_head, REAL: gl.constexpr
):  # fmt: skip
    """Store components from `column` on of 64 rows from `low` on, of which `rows` exist; there are REAL components."""
    LAYOUT: gl.constexpr = found.type.layout
    at = low + gl.arange(0, 64, gl.SliceLayout(1, LAYOUT))
    place = target + batch.to(gl.int64) * target_batch + head.to(gl.int64) * target_head
    place = gl.expand_dims(place + at.to(gl.int64) * target_step, 1)
    lane = gl.expand_dims(column + gl.arange(0, found.shape[1], gl.SliceLayout(0, LAYOUT)), 0)
    inside = gl.expand_dims(at < rows, 1) & (lane < REAL)
    gl.store(place + lane, found.to(target.dtype.element_ty), mask=inside)


@gluon.jit
def copy_queries(
    given,
    GROUP: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr, ALIGNED: gl.constexpr, WINDOW: gl.constexpr,
):  # fmt: skip
    """Copy the keys and values of a program, and the queries, gradients and numbers of rows that it visits."""
    (
        maps, number_map, tiles, numbers, kept, full, empty,
        query_starts, key_starts, queries, keys, first_position, window, heads, sequences,
    ) = given  # fmt: skip
    q_map, q_high_map, k_map, k_high_map, v_map, v_high_map, d_map, d_high_map = maps
    q, q_high, k, k_high, v, v_high, d, d_high = tiles
    unit = gl.program_id(0) % (heads * sequences)
    low = gl.program_id(0) // (heads * sequences) * 64
    head, sequence = unit % heads, unit // heads
    q_batch, q_row, n_row, k_batch, k_row, queries, keys, first_position = bounds(
        sequence, query_starts, key_starts, queries, keys, first_position, sequences, ALIGNED
    )
    first, last = visited_queries(low, queries, keys, first_position, window, CAUSAL, WINDOW)
    mbarrier.expect(kept, tiles_bytes(k_map, k_high_map) + tiles_bytes(v_map, v_high_map))
    copy_both(k_map, k_high_map, [k_batch, head // GROUP, k_row + low], kept, k, k_high, 0)
    copy_both(v_map, v_high_map, [k_batch, head // GROUP, k_row + low], kept, v, v_high, 0)
    for start in range(first, last, QUERIES):
        count = (start - first) // QUERIES
        stage = count % STAGES
        mbarrier.wait(empty.index(stage), (count // STAGES & 1) ^ 1)
        bar = full.index(stage)
        size: gl.constexpr = tiles_bytes(q_map, q_high_map) + tiles_bytes(d_map, d_high_map)
        mbarrier.expect(bar, size + 2 * number_map.block_type.nbytes)
        copy_both(q_map, q_high_map, [q_batch, head, q_row + start], bar, q, q_high, stage)
        copy_both(d_map, d_high_map, [q_batch, head, q_row + start], bar, d, d_high, stage)
        for part in gl.static_range(2):
            place = [part, q_batch * heads + head, n_row + start]
            tma.async_copy_global_to_shared(number_map, place, bar, numbers.index(2 * stage + part))


@gluon.jit
def add_queries(
    first, last, count, tiles, numbers, full, empty, cleared, of_keys, of_values, places, queries, first_position,
    window, score_scale, high: gl.constexpr,
    STAGES: gl.constexpr, MASK: gl.constexpr, CAUSAL: gl.constexpr, WINDOW: gl.constexpr, RAGGED: gl.constexpr,
    SCORES: gl.constexpr, VALUES: gl.constexpr,
):  # fmt: skip
    """Visit blocks of queries from `first` to `last`, and return the gradients, of a part of the components.

    Without VALUES, the other warpgroup has all of the gradient of values.
    """
    q, q_high, k, k_high, v, v_high, d, d_high = tiles
    rows = q_high if high else q
    slopes = d_high if high and d_high is not None else d
    OF_KEYS: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=of_keys.type.layout, k_width=2)
    OF_VALUES: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=of_values.type.layout, k_width=2)
    for start in range(first, last, QUERIES):
        stage = count % STAGES
        mbarrier.wait(full.index(stage), count // STAGES & 1)
        if RAGGED and MASK and start + QUERIES > queries:  # what is behind the last query belongs to others
            if high == 0:
                clear_both(q, q_high, stage, queries - start, QUERIES)
                clear_both(d, d_high, stage, queries - start, QUERIES)
                mbarrier.arrive(cleared)
            else:
                mbarrier.wait(cleared, 0)
        s = products(k, k_high, 0, q, q_high, stage, gl.zeros([64, QUERIES], gl.float32, SCORES))
        p = products(v, v_high, 0, d, d_high, stage, gl.zeros([64, QUERIES], gl.float32, SCORES))
        columns: gl.constexpr = gl.SliceLayout(0, SCORES)
        less = gl.expand_dims(numbers.index(2 * stage).reshape([QUERIES]).load(columns), 0)
        shift = gl.expand_dims(numbers.index(2 * stage + 1).reshape([QUERIES]).load(columns), 0)
        s = warpgroup_mma_wait(1 if v_high is None else 2, deps=[s])
        weights = probabilities(s, shift, score_scale)
        if MASK:
            row = gl.expand_dims(start + gl.arange(0, QUERIES, columns), 0)
            place = gl.expand_dims(places, 1)
            seen = row < queries
            if CAUSAL:
                seen = seen & (place <= row + first_position)
            if WINDOW:
                seen = seen & (place > row + first_position - window)
            weights = gl.where(seen, weights, 0.0)
        if VALUES:
            left = gl.convert_layout(weights.to(q.dtype), OF_VALUES)
            of_values = warpgroup_mma(left, matrix(slopes.index(stage)), of_values, is_async=True)
            p = warpgroup_mma_wait(1, deps=[p])
        else:
            p = warpgroup_mma_wait(0, deps=[p])
        changes = weights * (p - less)
        if MASK:
            changes = gl.where(seen, changes, 0.0)
        right = gl.convert_layout(changes.to(q.dtype), OF_KEYS)
        of_keys = warpgroup_mma(right, matrix(rows.index(stage)), of_keys, is_async=True)
        if VALUES:
            of_values, of_keys, _, _ = warpgroup_mma_wait(0, deps=[of_values, of_keys, left, right])
        else:
            of_keys, _ = warpgroup_mma_wait(0, deps=[of_keys, right])
        mbarrier.arrive(empty.index(stage))
        count += 1
    return count, of_keys, of_values


@gluon.jit
def compute_keys(
    high: gl.constexpr, given,
    D: gl.constexpr, W: gl.constexpr, GROUP: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
    ALIGNED: gl.constexpr, WINDOW: gl.constexpr,
):  # fmt: skip
    """Compute a part of the components of the gradients of 64 keys and values."""
    (
        tiles, numbers, kept, full, empty, cleared, key_gradient, value_gradient, query_starts, key_starts,
        key_gradient_batch, key_gradient_step, key_gradient_head, value_gradient_batch, value_gradient_step,
        value_gradient_head, queries, keys, first_position, window, score_scale, scale, heads, sequences,
    ) = given  # fmt: skip
    SCORES: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 64, 16])
    DK: gl.constexpr = D - LOW if high else 128
    DV: gl.constexpr = W - LOW if high and W > 128 else 128
    VALUES: gl.constexpr = high or W > 128
    unit = gl.program_id(0) % (heads * sequences)
    low = gl.program_id(0) // (heads * sequences) * 64
    head, sequence = unit % heads, unit // heads
    _, _, _, k_batch, k_row, queries, keys, first_position = bounds(
        sequence, query_starts, key_starts, queries, keys, first_position, sequences, ALIGNED
    )
    places = low + gl.arange(0, 64, gl.SliceLayout(1, SCORES))
    RAGGED: gl.constexpr = query_starts is not None
    first, last = visited_queries(low, queries, keys, first_position, window, CAUSAL, WINDOW)
    border, behind = first, last
    if CAUSAL:  # the first block whose queries all see the keys
        border = gl.minimum(gl.maximum(first, (low + 63 - first_position + QUERIES - 1) // QUERIES * QUERIES), last)
    if RAGGED:  # the first block that reaches behind the last query
        behind = gl.maximum(border, gl.minimum(last, queries // QUERIES * QUERIES))
    if WINDOW:
        border, behind = first, first
    of_keys = gl.zeros([64, DK], gl.float32, sums_layout(DK))
    of_values = gl.zeros([64, DV], gl.float32, sums_layout(DV))
    count = gl.to_tensor(0)
    mbarrier.wait(kept, 0)
    if CAUSAL:
        count, of_keys, of_values = add_queries(
            first, border, count, tiles, numbers, full, empty, cleared, of_keys, of_values, places, queries,
            first_position, window, score_scale, high, STAGES, True, CAUSAL, WINDOW, RAGGED, SCORES, VALUES,
        )  # fmt: skip
    start = (border + QUERIES - 1) // QUERIES * QUERIES
    count, of_keys, of_values = add_queries(
        start, behind, count, tiles, numbers, full, empty, cleared, of_keys, of_values, places, queries, first_position,
        window, score_scale, high, STAGES, False, CAUSAL, WINDOW, RAGGED, SCORES, VALUES,
    )  # fmt: skip
    if RAGGED or WINDOW:
        start = gl.maximum(start, (behind + QUERIES - 1) // QUERIES * QUERIES)
        count, of_keys, of_values = add_queries(
            start, last, count, tiles, numbers, full, empty, cleared, of_keys, of_values, places, queries,
            first_position, window, score_scale, high, STAGES, True, CAUSAL, WINDOW, RAGGED, SCORES, VALUES,
        )  # fmt: skip
    if RAGGED:
        key_gradient += k_row.to(gl.int64) * key_gradient_step
        value_gradient += k_row.to(gl.int64) * value_gradient_step
    if GROUP == 1:
        of_keys = (of_keys + 0.0) * scale
    store_columns(
        key_gradient, of_keys, low, keys, high * LOW, k_batch, head, key_gradient_batch, key_gradient_step,
        key_gradient_head, D,
    )  # fmt: skip
    if VALUES:
        if GROUP == 1:
            of_values = of_values + 0.0
        store_columns(
            value_gradient, of_values, low, keys, high * LOW if W > 128 else 0, k_batch, head, value_gradient_batch,
            value_gradient_step, value_gradient_head, W,
        )  # fmt: skip


@gluon.jit(do_not_specialize=["queries", "keys", "first_position", "window", "heads", "sequences"])
def key_gradients_wide(
    q_map, q_high_map, k_map, k_high_map, v_map, v_high_map, d_map, d_high_map, number_map, key_gradient,
    value_gradient, query_starts, key_starts,
    key_gradient_batch, key_gradient_step, key_gradient_head, value_gradient_batch, value_gradient_step,
    value_gradient_head, queries, keys, first_position, window, score_scale, scale, heads, sequences,
    D: gl.constexpr, W: gl.constexpr, GROUP: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
    ALIGNED: gl.constexpr, WINDOW: gl.constexpr,
):  # fmt: skip
    """Compute the gradients of 64 keys and values over the queries of a head; see `gradients.key_gradients`.

    The maps are of queries, keys, values and the gradients of the output.
    """
    q, q_high = tiles_of(q_map, STAGES), tiles_of(q_high_map, STAGES)
    d = tiles_of(d_map, STAGES)
    k, k_high = tiles_of(k_map, 1), tiles_of(k_high_map, 1)
    v = tiles_of(v_map, 1)
    d_high, v_high = None, None
    if W > 128:
        d_high, v_high = tiles_of(d_high_map, STAGES), tiles_of(v_high_map, 1)
    numbers = gl.allocate_shared_memory(gl.float32, [2 * STAGES, 1, 1, QUERIES], number_map.layout)
    kept, full, empty, cleared = barriers(STAGES, 2)
    tiles = q, q_high, k, k_high, v, v_high, d, d_high
    maps = q_map, q_high_map, k_map, k_high_map, v_map, v_high_map, d_map, d_high_map
    given = (
        tiles, numbers, kept, full, empty, cleared, key_gradient, value_gradient, query_starts, key_starts,
        key_gradient_batch, key_gradient_step, key_gradient_head, value_gradient_batch, value_gradient_step,
        value_gradient_head, queries, keys, first_position, window, score_scale, scale, heads, sequences,
    )  # fmt: skip
    copied = (
        maps, number_map, tiles, numbers, kept, full, empty,
        query_starts, key_starts, queries, keys, first_position, window, heads, sequences,
    )  # fmt: skip
    gl.warp_specialize(
        [
            (compute_keys, (0, given, D, W, GROUP, STAGES, CAUSAL, ALIGNED, WINDOW)),
            (compute_keys, (1, given, D, W, GROUP, STAGES, CAUSAL, ALIGNED, WINDOW)),
            (copy_queries, (copied, GROUP, STAGES, CAUSAL, ALIGNED, WINDOW)),
        ],
        [4, 1],
        [240, 24],
    )


@gluon.jit
def tiles_of(source, COUNT: gl.constexpr):
    """Allocate a number of tiles of a map."""
    return gl.allocate_shared_memory(
        source.dtype, [COUNT, 1, 1, source.block_type.shape[2], source.block_type.shape[3]], source.layout
    )


@gluon.jit
def copy_keys(
    given,
    GROUP: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr, ALIGNED: gl.constexpr, WINDOW: gl.constexpr,
):  # fmt: skip
    """Copy the queries and gradients of a program, and the keys and values that it visits."""
    (
        maps, tiles, kept, full, empty, query_starts, key_starts, queries, keys, first_position, window, count_of_tiles,
        heads, sequences,
    ) = given  # fmt: skip
    q_map, q_high_map, k_map, k_high_map, v_map, v_high_map, d_map, d_high_map = maps
    q, q_high, k, k_high, v, v_high, d, d_high = tiles
    unit = gl.program_id(0) % (heads * sequences)
    low = (count_of_tiles - 1 - gl.program_id(0) // (heads * sequences)) * 128
    head, sequence = unit % heads, unit // heads
    q_batch, q_row, _, k_batch, k_row, queries, keys, first_position = bounds(
        sequence, query_starts, key_starts, queries, keys, first_position, sequences, ALIGNED
    )
    first, end = visited_keys(low, queries, keys, first_position, window, CAUSAL, WINDOW, 2)
    mbarrier.expect(kept, 2 * (tiles_bytes(q_map, q_high_map) + tiles_bytes(d_map, d_high_map)))
    for part in gl.static_range(2):
        copy_both(q_map, q_high_map, [q_batch, head, q_row + low + part * 64], kept, q, q_high, part)
        copy_both(d_map, d_high_map, [q_batch, head, q_row + low + part * 64], kept, d, d_high, part)
    for start in range(first, end, KEYS):
        count = (start - first) // KEYS
        stage = count % STAGES
        mbarrier.wait(empty.index(stage), (count // STAGES & 1) ^ 1)
        bar = full.index(stage)
        mbarrier.expect(bar, tiles_bytes(k_map, k_high_map) + tiles_bytes(v_map, v_high_map))
        copy_both(k_map, k_high_map, [k_batch, head // GROUP, k_row + start], bar, k, k_high, stage)
        copy_both(v_map, v_high_map, [k_batch, head // GROUP, k_row + start], bar, v, v_high, stage)


@gluon.jit
def add_keys(
    first, last, count, tiles, full, empty, cleared, found, found_high, shift, less, positions, keys, window,
    score_scale, part: gl.constexpr,
    STAGES: gl.constexpr, MASK: gl.constexpr, CAUSAL: gl.constexpr, WINDOW: gl.constexpr, RAGGED: gl.constexpr,
    SCORES: gl.constexpr,
):  # fmt: skip
    """Visit blocks of keys from `first` to `last`, and return the gradient of queries, low and high components."""
    q, q_high, k, k_high, v, v_high, d, d_high = tiles
    LEFT: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=found.type.layout, k_width=2)
    LEFT_HIGH: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=found_high.type.layout, k_width=2)
    for start in range(first, last, KEYS):
        stage = count % STAGES
        mbarrier.wait(full.index(stage), count // STAGES & 1)
        if RAGGED and MASK and start + KEYS > keys:  # what is behind the last key belongs to others
            if part == 0:
                clear_both(k, k_high, stage, keys - start, KEYS)
                mbarrier.arrive(cleared)
            else:
                mbarrier.wait(cleared, 0)
        s = products(q, q_high, part, k, k_high, stage, gl.zeros([64, KEYS], gl.float32, SCORES))
        p = products(d, d_high, part, v, v_high, stage, gl.zeros([64, KEYS], gl.float32, SCORES))
        s = warpgroup_mma_wait(1 if v_high is None else 2, deps=[s])
        weights = probabilities(s, shift, score_scale)
        p = warpgroup_mma_wait(0, deps=[p])
        changes = weights * (p - less)
        if MASK:
            place = gl.expand_dims(start + gl.arange(0, KEYS, gl.SliceLayout(0, SCORES)), 0)
            seen = place < keys
            if CAUSAL:
                seen = seen & (place <= gl.expand_dims(positions, 1))
            if WINDOW:
                seen = seen & (place > gl.expand_dims(positions, 1) - window)
            changes = gl.where(seen, changes, 0.0)
        left = gl.convert_layout(changes.to(k.dtype), LEFT)
        left_high = gl.convert_layout(left, LEFT_HIGH, assert_trivial=True)
        found = warpgroup_mma(left, matrix(k.index(stage)), found, is_async=True)
        found_high = warpgroup_mma(left_high, matrix(k_high.index(stage)), found_high, is_async=True)
        found, found_high, _, _ = warpgroup_mma_wait(0, deps=[found, found_high, left, left_high])
        mbarrier.arrive(empty.index(stage))
        count += 1
    return count, found, found_high


@gluon.jit
def compute_queries(
    part: gl.constexpr, given,
    D: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr, ALIGNED: gl.constexpr, WINDOW: gl.constexpr,
):  # fmt: skip
    """Compute the gradient of 64 queries."""
    (
        tiles, kept, full, empty, cleared, numbers, query_gradient, query_starts, key_starts,
        query_gradient_batch, query_gradient_step, query_gradient_head,
        queries, keys, first_position, window, score_scale, scale, padded, count_of_tiles, heads, sequences,
    ) = given  # fmt: skip
    SCORES: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 32, 16])
    unit = gl.program_id(0) % (heads * sequences)
    tile = (count_of_tiles - 1 - gl.program_id(0) // (heads * sequences)) * 128
    head, sequence = unit % heads, unit // heads
    q_batch, q_row, n_row, _, _, queries, keys, first_position = bounds(
        sequence, query_starts, key_starts, queries, keys, first_position, sequences, ALIGNED
    )
    RAGGED: gl.constexpr = query_starts is not None
    batches = sequences
    if RAGGED:
        batches = sequences * 0 + 1
        query_gradient += q_row.to(gl.int64) * query_gradient_step
    low = tile + part * 64
    row = low + gl.arange(0, 64, gl.SliceLayout(1, SCORES))
    place = numbers + (q_batch * heads + head).to(gl.int64) * padded + n_row + row
    less = gl.expand_dims(gl.load(place, mask=row < queries, other=0.0), 1)
    shift = gl.expand_dims(gl.load(place + (batches * heads).to(gl.int64) * padded, mask=row < queries, other=0.0), 1)
    first, end = visited_keys(tile, queries, keys, first_position, window, CAUSAL, WINDOW, 2)
    border = keys // KEYS * KEYS
    if CAUSAL:
        border = gl.minimum(border, gl.maximum(0, low + first_position + 1) // KEYS * KEYS)
    if WINDOW:
        border = first
    found = gl.zeros([64, LOW], gl.float32, sums_layout(128))
    found_high = gl.zeros([64, D - LOW], gl.float32, sums_layout(D - LOW))
    mbarrier.wait(kept, 0)
    count, found, found_high = add_keys(
        first, gl.minimum(border, end), gl.to_tensor(0), tiles, full, empty, cleared, found, found_high, shift, less,
        row + first_position, keys, window, score_scale, part, STAGES, False, CAUSAL, WINDOW, RAGGED, SCORES,
    )  # fmt: skip
    count, found, found_high = add_keys(
        border, end, count, tiles, full, empty, cleared, found, found_high, shift, less, row + first_position, keys,
        window, score_scale, part, STAGES, True, CAUSAL, WINDOW, RAGGED, SCORES,
    )  # fmt: skip
    store_columns(
        query_gradient, (found + 0.0) * scale, low, queries, 0, q_batch, head, query_gradient_batch,
        query_gradient_step, query_gradient_head, D,
    )  # fmt: skip
    store_columns(
        query_gradient, (found_high + 0.0) * scale, low, queries, LOW, q_batch, head, query_gradient_batch,
        query_gradient_step, query_gradient_head, D,
    )  # fmt: skip


@gluon.jit(
    do_not_specialize=[
        "queries", "keys", "first_position", "window", "padded", "count_of_tiles", "heads", "sequences",
    ]
)  # fmt: skip
def query_gradients_wide(
    q_map, q_high_map, k_map, k_high_map, v_map, v_high_map, d_map, d_high_map, numbers, query_gradient, query_starts,
    key_starts, query_gradient_batch, query_gradient_step, query_gradient_head,
    queries, keys, first_position, window, score_scale, scale, padded, count_of_tiles, heads, sequences,
    D: gl.constexpr, W: gl.constexpr, GROUP: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
    ALIGNED: gl.constexpr, WINDOW: gl.constexpr,
):  # fmt: skip
    """Compute the gradient of 128 queries of one head; see `key_gradients_wide`."""
    q, q_high = tiles_of(q_map, 2), tiles_of(q_high_map, 2)
    d = tiles_of(d_map, 2)
    k, k_high = tiles_of(k_map, STAGES), tiles_of(k_high_map, STAGES)
    v = tiles_of(v_map, STAGES)
    d_high, v_high = None, None
    if W > 128:
        d_high, v_high = tiles_of(d_high_map, 2), tiles_of(v_high_map, STAGES)
    kept, full, empty, cleared = barriers(STAGES, 2)
    tiles = q, q_high, k, k_high, v, v_high, d, d_high
    maps = q_map, q_high_map, k_map, k_high_map, v_map, v_high_map, d_map, d_high_map
    given = (
        tiles, kept, full, empty, cleared, numbers, query_gradient, query_starts, key_starts,
        query_gradient_batch, query_gradient_step, query_gradient_head,
        queries, keys, first_position, window, score_scale, scale, padded, count_of_tiles, heads, sequences,
    )  # fmt: skip
    copied = (
        maps, tiles, kept, full, empty, query_starts, key_starts, queries, keys, first_position, window, count_of_tiles,
        heads, sequences,
    )  # fmt: skip
    gl.warp_specialize(
        [
            (compute_queries, (0, given, D, STAGES, CAUSAL, ALIGNED, WINDOW)),
            (compute_queries, (1, given, D, STAGES, CAUSAL, ALIGNED, WINDOW)),
            (copy_keys, (copied, GROUP, STAGES, CAUSAL, ALIGNED, WINDOW)),
        ],
        [4, 1],
        [240, 24],
    )
