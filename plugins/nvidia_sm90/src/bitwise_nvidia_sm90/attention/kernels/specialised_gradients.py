"""The Gluon kernels of the gradients of attention: one warp copies, warpgroups compute.

They compute the chains of `gradients`: each warpgroup has 64 keys or 64 queries, and visits the others in blocks in
order.  Rows of up to 128 components have one tile; wider ones a tile of the first 128, the low one, and a high one of
the rest, 64 or 128.  Values of 128 have no high one beside wider keys.  The gradients of 64 keys of a wide head and of
their values do not fit the registers of one warpgroup: both warpgroups of a program compute the scores of the same
keys, and one adds the low components, the other the high ones, or all of the values where they have no high ones.

Heads of REAL components have D in memory, of which the last are zeros.
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

from bitwise_nvidia_sm90.attention.kernels.tiles_of_keys import clear_rows, lengths_of

BLOCK = gl.constexpr(64)
"""The queries of a step of the gradients of keys."""
LOW = gl.constexpr(128)
"""The most components of a low tile."""


@gluon.constexpr_function
def bytes_of(low, high):
    """Return the bytes of a low tile and a high one, which may be missing."""
    return low.block_type.nbytes + (0 if high is None else high.block_type.nbytes)


@gluon.constexpr_function
def sums_layout(columns):
    """Return the layout of sums of a number of columns."""
    return gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, columns, 16])


@gluon.jit
def tiles_of(source, COUNT: gl.constexpr):
    """Allocate a number of tiles of a map."""
    return gl.allocate_shared_memory(
        source.dtype, [COUNT, 1, 1, source.block_type.shape[2], source.block_type.shape[3]], source.layout
    )


@gluon.jit
def matrix(x):
    """Return a tile of a tensor map as a matrix."""
    return x.reshape([x.shape[2], x.shape[3]])


@gluon.jit
def left_operand(x, KEPT: gl.constexpr, SCORES: gl.constexpr):
    """Return a tile of a tensor map as the left operand of products, in registers with KEPT."""
    found = matrix(x)
    if KEPT:
        found = found.load(gl.DotOperandLayout(operand_index=0, parent=SCORES, k_width=2))
    return found


@gluon.jit
def copy_rows(low_map, high_map, batch, head, row, bar, low, high, index):
    """Start the copies of all components of some rows to the tiles `index`."""
    tma.async_copy_global_to_shared(low_map, [batch, head, row, 0], bar, low.index(index))
    if high_map is not None:
        tma.async_copy_global_to_shared(high_map, [batch, head, row, LOW], bar, high.index(index))


@gluon.jit
def products(left, left_high, part: gl.constexpr, right, right_high, stage, found):
    """Start the products of rows, `left` and the tile `part` of high ones, and others; the sums begin at 0."""
    found = warpgroup_mma(left, matrix(right.index(stage)).permute((1, 0)), found, use_acc=False, is_async=True)
    if left_high is not None:
        rows = matrix(right_high.index(stage)).permute((1, 0))
        found = warpgroup_mma(matrix(left_high.index(part)), rows, found, is_async=True)
    return found


@gluon.jit
def clear_tiles(low, high, index, count, ROWS: gl.constexpr):
    """Replace the rows of a low and a high tile from `count` on by zeros."""
    clear_rows(matrix(low.index(index)), count, ROWS, low.shape[4])
    if high is not None:
        clear_rows(matrix(high.index(index)), count, ROWS, high.shape[4])


@gluon.jit
def bounds(sequence, query_starts, key_starts, queries, keys, first_position, sequences, ALIGNED: gl.constexpr):
    """Return the batches and the first rows of a sequence's queries, their numbers and keys, and its `lengths_of`."""
    q_batch, q_row, n_row, k_batch, k_row = sequence, 0, 0, sequence, 0
    if query_starts is not None:
        q_batch, q_row = sequence * 0, gl.load(query_starts + sequence)
        n_row = first_number(q_row, sequence)
    if key_starts is not None:
        k_batch, k_row = sequence * 0, gl.load(key_starts + sequence)
    queries, keys, first_position = lengths_of(
        sequence, query_starts, key_starts, None, queries, keys, first_position, sequences, ALIGNED
    )
    return q_batch, q_row, n_row, k_batch, k_row, queries, keys, first_position


@gluon.jit
def visited_queries(low, queries, keys, first_position, window, CAUSAL: gl.constexpr, WINDOW: gl.constexpr):
    """Return the first of the blocks of queries that see some of 128 keys from `low` on, and the end of them."""
    first, last = 0, gl.where(low < keys, queries, 0)
    if CAUSAL:
        first = gl.maximum(0, low - first_position) // BLOCK * BLOCK
    if WINDOW:
        last = gl.minimum(last, low + 128 + window - 1 - first_position)
    return first, last


@gluon.jit
def first_number(query_row, sequence):
    """Return where the numbers of a sequence begin; see `gradients.first_number`."""
    return (query_row + 4 * sequence) // 4 * 4


@gluon.jit
def probabilities(scores, shifts, scale):
    """Return the probabilities of scores, of which `shifts` broadcasts to the shape."""
    factor = gl.full(scores.shape, scale, gl.float32, scores.type.layout)
    shift, _ = gl.broadcast(shifts, scores)
    return gl.exp2(gl.fma(scores, factor, shift))


@gluon.jit
def copy_queries(
    given,
    PARTS: gl.constexpr, GROUP: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr, ALIGNED: gl.constexpr,
    WINDOW: gl.constexpr,
):  # fmt: skip
    """Copy the keys and values of a program, and the queries, gradients and numbers of rows that it visits."""
    (
        maps, number_map, tiles, numbers, kept, full, empty,
        query_starts, key_starts, queries, keys, first_position, window, heads, sequences,
    ) = given  # fmt: skip
    q_map, q_high_map, k_map, k_high_map, v_map, v_high_map, d_map, d_high_map = maps
    q, q_high, k, k_high, v, v_high, d, d_high = tiles
    unit = gl.program_id(0) % (heads * sequences)
    low = gl.program_id(0) // (heads * sequences) * (64 * PARTS)
    head, sequence = unit % heads, unit // heads
    q_batch, q_row, n_row, k_batch, k_row, queries, keys, first_position = bounds(
        sequence, query_starts, key_starts, queries, keys, first_position, sequences, ALIGNED
    )
    first, last = visited_queries(low, queries, keys, first_position, window, CAUSAL, WINDOW)
    mbarrier.expect(kept, PARTS * (bytes_of(k_map, k_high_map) + bytes_of(v_map, v_high_map)))
    for part in gl.static_range(PARTS):
        row = k_row + low + part * 64
        copy_rows(k_map, k_high_map, k_batch, head // GROUP, row, kept, k, k_high, part)
        copy_rows(v_map, v_high_map, k_batch, head // GROUP, row, kept, v, v_high, part)
    for start in range(first, last, BLOCK):
        count = (start - first) // BLOCK
        stage = count % STAGES
        mbarrier.wait(empty.index(stage), (count // STAGES & 1) ^ 1)
        bar = full.index(stage)
        size: gl.constexpr = bytes_of(q_map, q_high_map) + bytes_of(d_map, d_high_map)
        mbarrier.expect(bar, size + 2 * number_map.block_type.nbytes)
        row = q_row + start
        copy_rows(q_map, q_high_map, q_batch, head, row, bar, q, q_high, stage)
        copy_rows(d_map, d_high_map, q_batch, head, row, bar, d, d_high, stage)
        for part in gl.static_range(2):
            tma.async_copy_global_to_shared(
                number_map, [part, q_batch * heads + head, n_row + start], bar, numbers.index(2 * stage + part)
            )


@gluon.jit
def add_queries(
    first, last, count, tiles, k, v, numbers, full, empty, cleared, of_keys, of_values, places, queries,
    first_position, window, score_scale, part: gl.constexpr, high: gl.constexpr,
    STAGES: gl.constexpr, MASK: gl.constexpr, CAUSAL: gl.constexpr, WINDOW: gl.constexpr, RAGGED: gl.constexpr,
    SCORES: gl.constexpr, VALUES: gl.constexpr,
):  # fmt: skip
    """Visit blocks of queries from `first` to `last`, and return both gradients, with `high` of the high components.

    `k` and `v` are the low components of 64 keys and values.  Without VALUES, the other warpgroup has all of the
    gradient of values.
    """
    q, q_high, _k, k_high, _v, v_high, d, d_high = tiles
    rows_of = q_high if high else q
    slopes_of = d_high if high and d_high is not None else d
    OF_KEYS: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=of_keys.type.layout, k_width=2)
    OF_VALUES: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=of_values.type.layout, k_width=2)
    for start in range(first, last, BLOCK):
        stage = count % STAGES
        mbarrier.wait(full.index(stage), count // STAGES & 1)
        rows, slopes = matrix(rows_of.index(stage)), matrix(slopes_of.index(stage))
        if RAGGED and MASK and start + BLOCK > queries:  # what is behind the last query belongs to others
            if part == 0:
                clear_tiles(q, q_high, stage, queries - start, BLOCK)
                clear_tiles(d, d_high, stage, queries - start, BLOCK)
                mbarrier.arrive(cleared)
            else:
                mbarrier.wait(cleared, 0)
        s = products(k, k_high, 0, q, q_high, stage, gl.zeros([64, BLOCK], gl.float32, SCORES))
        p = products(v, v_high, 0, d, d_high, stage, gl.zeros([64, BLOCK], gl.float32, SCORES))
        columns: gl.constexpr = gl.SliceLayout(0, SCORES)
        less = gl.expand_dims(numbers.index(2 * stage).reshape([BLOCK]).load(columns), 0)
        shift = gl.expand_dims(numbers.index(2 * stage + 1).reshape([BLOCK]).load(columns), 0)
        s = warpgroup_mma_wait(1 if v_high is None else 2, deps=[s])
        weights = probabilities(s, shift, score_scale)
        if MASK:
            row = gl.expand_dims(start + gl.arange(0, BLOCK, columns), 0)
            place = gl.expand_dims(places, 1)
            seen = row < queries
            if CAUSAL:
                seen = seen & (place <= row + first_position)
            if WINDOW:
                seen = seen & (place > row + first_position - window)
            weights = gl.where(seen, weights, 0.0)
        if VALUES:
            left = gl.convert_layout(weights.to(q.dtype), OF_VALUES)
            of_values = warpgroup_mma(left, slopes, of_values, is_async=True)
            p = warpgroup_mma_wait(1, deps=[p])
        else:
            p = warpgroup_mma_wait(0, deps=[p])
        changes = weights * (p - less)
        if MASK:
            changes = gl.where(seen, changes, 0.0)
        right = gl.convert_layout(changes.to(q.dtype), OF_KEYS)
        of_keys = warpgroup_mma(right, rows, of_keys, is_async=True)
        if VALUES:
            of_values, of_keys, _, _ = warpgroup_mma_wait(0, deps=[of_values, of_keys, left, right])
        else:
            of_keys, _ = warpgroup_mma_wait(0, deps=[of_keys, right])
        fence_async_shared()  # a barrier does not order the loads of numbers before the copy that overwrites them
        mbarrier.arrive(empty.index(stage))
        count += 1
    return count, of_keys, of_values


@gluon.jit
def store_rows(
    target, found, low, rows, column: gl.constexpr, batch, head, target_batch, target_step, target_head,
    REAL: gl.constexpr, WIDE: gl.constexpr,
):  # fmt: skip
    """Store components from `column` on of 64 rows of a gradient from row `low` on.

    There are `rows` rows of REAL components.  Those in fp32, and those of wide heads, are stored from where they are.
    """
    WIDTH: gl.constexpr = found.shape[1]
    STORED: gl.constexpr = (
        found.type.layout
        if WIDE or target.dtype.element_ty == gl.float32
        else gl.BlockedLayout([1, 8], [256 // WIDTH, WIDTH // 8], [4, 1], [1, 0])
    )
    rounded = gl.convert_layout(found.to(target.dtype.element_ty), STORED)
    at = low + gl.arange(0, 64, gl.SliceLayout(1, STORED))
    place = target + batch.to(gl.int64) * target_batch + head.to(gl.int64) * target_head
    place = gl.expand_dims(place + at.to(gl.int64) * target_step, 1)
    lane = gl.expand_dims(column + gl.arange(0, WIDTH, gl.SliceLayout(0, STORED)), 0)
    inside = gl.expand_dims(at < rows, 1)
    if column + WIDTH > REAL:
        inside = inside & (lane < REAL)
    gl.store(place + lane, rounded, mask=inside)


@gluon.jit
def compute_keys(
    part: gl.constexpr, given,
    D: gl.constexpr, W: gl.constexpr, REAL: gl.constexpr, PARTS: gl.constexpr, GROUP: gl.constexpr,
    STAGES: gl.constexpr, CAUSAL: gl.constexpr, ALIGNED: gl.constexpr, WINDOW: gl.constexpr, KEPT: gl.constexpr,
):  # fmt: skip
    """Compute the gradients of 64 keys and values, or of a wide head some of their components."""
    (
        tiles, numbers, kept, full, empty, cleared, key_gradient, value_gradient, query_starts, key_starts,
        key_gradient_batch, key_gradient_step, key_gradient_head, value_gradient_batch, value_gradient_step,
        value_gradient_head, queries, keys, first_position, window, score_scale, scale, heads, sequences,
    ) = given  # fmt: skip
    SCORES: gl.constexpr = sums_layout(64)
    WIDE: gl.constexpr = D > LOW
    high: gl.constexpr = part if WIDE else 0
    VALUES: gl.constexpr = high or W > LOW or not WIDE
    DK: gl.constexpr = D - LOW if high else min(D, LOW)
    DV: gl.constexpr = W - LOW if high and W > LOW else min(W, LOW)
    unit = gl.program_id(0) % (heads * sequences)
    tile = gl.program_id(0) // (heads * sequences) * (64 * PARTS)
    head, sequence = unit % heads, unit // heads
    _, _, _, k_batch, k_row, queries, keys, first_position = bounds(
        sequence, query_starts, key_starts, queries, keys, first_position, sequences, ALIGNED
    )
    own: gl.constexpr = 0 if WIDE else part
    low = tile + own * 64
    places = low + gl.arange(0, 64, gl.SliceLayout(1, SCORES))
    RAGGED: gl.constexpr = query_starts is not None
    first, last = visited_queries(tile, queries, keys, first_position, window, CAUSAL, WINDOW)
    border, behind = first, last
    if CAUSAL:  # the first block whose queries all see the keys
        border = gl.minimum(gl.maximum(first, (low + 63 - first_position + BLOCK - 1) // BLOCK * BLOCK), last)
    if RAGGED:  # the first block that reaches behind the last query
        behind = gl.maximum(border, gl.minimum(last, queries // BLOCK * BLOCK))
    if WINDOW:
        border, behind = first, first
    of_keys = gl.zeros([64, DK], gl.float32, sums_layout(DK))
    of_values = gl.zeros([64, DV], gl.float32, sums_layout(DV))
    count = gl.to_tensor(0)
    mbarrier.wait(kept, 0)
    k, v = left_operand(tiles[2].index(own), KEPT, SCORES), left_operand(tiles[4].index(own), KEPT, SCORES)
    if CAUSAL:
        count, of_keys, of_values = add_queries(
            first, border, count, tiles, k, v, numbers, full, empty, cleared, of_keys, of_values, places, queries,
            first_position, window, score_scale, part, high, STAGES, True, CAUSAL, WINDOW, RAGGED, SCORES, VALUES,
        )  # fmt: skip
    start = (border + BLOCK - 1) // BLOCK * BLOCK
    count, of_keys, of_values = add_queries(
        start, behind, count, tiles, k, v, numbers, full, empty, cleared, of_keys, of_values, places, queries,
        first_position, window, score_scale, part, high, STAGES, False, CAUSAL, WINDOW, RAGGED, SCORES, VALUES,
    )  # fmt: skip
    if RAGGED or WINDOW:
        start = gl.maximum(start, (behind + BLOCK - 1) // BLOCK * BLOCK)
        count, of_keys, of_values = add_queries(
            start, last, count, tiles, k, v, numbers, full, empty, cleared, of_keys, of_values, places, queries,
            first_position, window, score_scale, part, high, STAGES, True, CAUSAL, WINDOW, RAGGED, SCORES, VALUES,
        )  # fmt: skip
    if RAGGED:
        key_gradient += k_row.to(gl.int64) * key_gradient_step
        value_gradient += k_row.to(gl.int64) * value_gradient_step
    if GROUP == 1:
        of_keys, of_values = (of_keys + 0.0) * scale, of_values + 0.0
    store_rows(
        key_gradient, of_keys, low, keys, high * LOW, k_batch, head, key_gradient_batch, key_gradient_step,
        key_gradient_head, REAL, WIDE,
    )  # fmt: skip
    if VALUES:
        store_rows(
            value_gradient, of_values, low, keys, high * LOW if W > LOW else 0, k_batch, head, value_gradient_batch,
            value_gradient_step, value_gradient_head, W if WIDE else REAL, WIDE,
        )  # fmt: skip


@gluon.jit(do_not_specialize=["queries", "keys", "first_position", "window", "heads", "sequences"])
def key_gradients_specialised(
    q_map, q_high_map, k_map, k_high_map, v_map, v_high_map, d_map, d_high_map, number_map, key_gradient,
    value_gradient, query_starts, key_starts,
    key_gradient_batch, key_gradient_step, key_gradient_head, value_gradient_batch, value_gradient_step,
    value_gradient_head, queries, keys, first_position, window, score_scale, scale, heads, sequences,
    D: gl.constexpr, W: gl.constexpr, REAL: gl.constexpr, PARTS: gl.constexpr, GROUP: gl.constexpr,
    STAGES: gl.constexpr, CAUSAL: gl.constexpr, ALIGNED: gl.constexpr, WINDOW: gl.constexpr, KEPT: gl.constexpr,
):  # fmt: skip
    """Compute the gradients of 64 PARTS keys and values over the queries of a head; see `gradients.key_gradients`.

    The maps are of queries, keys, values and the gradients of the output, of low components and of high ones.
    """
    q, q_high, d_high, k_high, v_high = tiles_of(q_map, STAGES), None, None, None, None
    if q_high_map is not None:
        q_high = tiles_of(q_high_map, STAGES)
    d, k = tiles_of(d_map, STAGES), tiles_of(k_map, PARTS)
    if k_high_map is not None:
        k_high = tiles_of(k_high_map, PARTS)
    v = tiles_of(v_map, PARTS)
    if v_high_map is not None:
        d_high, v_high = tiles_of(d_high_map, STAGES), tiles_of(v_high_map, PARTS)
    numbers = gl.allocate_shared_memory(gl.float32, [2 * STAGES, 1, 1, BLOCK], number_map.layout)
    kept, full, empty, cleared = barriers(STAGES, 2)
    gdc_launch_dependents()
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
            (compute_keys, (0, given, D, W, REAL, PARTS, GROUP, STAGES, CAUSAL, ALIGNED, WINDOW, KEPT)),
            (compute_keys, (1, given, D, W, REAL, PARTS, GROUP, STAGES, CAUSAL, ALIGNED, WINDOW, KEPT)),
            (copy_queries, (copied, PARTS, GROUP, STAGES, CAUSAL, ALIGNED, WINDOW)),
        ],
        [4, 1],
        [240, 24],
    )


@gluon.jit
def barriers(STAGES: gl.constexpr, READERS: gl.constexpr):
    """Return barriers of tiles that stay, of the stages when they are full and empty, and of cleared rows."""
    kept = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    cleared = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    mbarrier.init(kept, count=1)
    mbarrier.init(cleared, count=1)
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=READERS)
    fence_async_shared()
    return kept, full, empty, cleared


@gluon.jit
def visited_keys(
    low, queries, keys, first_position, window, CAUSAL: gl.constexpr, WINDOW: gl.constexpr, PARTS: gl.constexpr
):
    """Return the first of the blocks of keys that a program's queries from `low` on see, and the end of the keys."""
    first, end = 0, gl.where(low < queries, keys, 0)
    if CAUSAL:
        end = gl.minimum(end, gl.minimum(low + 64 * PARTS, queries) + first_position)
    if WINDOW:
        first = gl.maximum(0, low + first_position - window + 1) // BLOCK * BLOCK
    return first, end


@gluon.jit
def copy_keys(
    given,
    PARTS: gl.constexpr, GROUP: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr, ALIGNED: gl.constexpr,
    WINDOW: gl.constexpr,
):  # fmt: skip
    """Copy the queries and gradients of a program, and the keys and values that it visits."""
    (
        maps, tiles, kept, full, empty, query_starts, key_starts, queries, keys, first_position, window, count_of_tiles,
        heads, sequences,
    ) = given  # fmt: skip
    q_map, q_high_map, k_map, k_high_map, v_map, v_high_map, d_map, d_high_map = maps
    q, q_high, k, k_high, v, v_high, d, d_high = tiles
    STEP: gl.constexpr = k_map.block_type.shape[2]
    unit = gl.program_id(0) % (heads * sequences)
    low = (count_of_tiles - 1 - gl.program_id(0) // (heads * sequences)) * (64 * PARTS)
    head, sequence = unit % heads, unit // heads
    q_batch, q_row, _, k_batch, k_row, queries, keys, first_position = bounds(
        sequence, query_starts, key_starts, queries, keys, first_position, sequences, ALIGNED
    )
    first, end = visited_keys(low, queries, keys, first_position, window, CAUSAL, WINDOW, PARTS)
    mbarrier.expect(kept, PARTS * (bytes_of(q_map, q_high_map) + bytes_of(d_map, d_high_map)))
    for part in gl.static_range(PARTS):
        row = q_row + low + part * 64
        copy_rows(q_map, q_high_map, q_batch, head, row, kept, q, q_high, part)
        copy_rows(d_map, d_high_map, q_batch, head, row, kept, d, d_high, part)
    for start in range(first, end, STEP):
        count = (start - first) // STEP
        stage = count % STAGES
        mbarrier.wait(empty.index(stage), (count // STAGES & 1) ^ 1)
        bar = full.index(stage)
        mbarrier.expect(bar, bytes_of(k_map, k_high_map) + bytes_of(v_map, v_high_map))
        row = k_row + start
        copy_rows(k_map, k_high_map, k_batch, head // GROUP, row, bar, k, k_high, stage)
        copy_rows(v_map, v_high_map, k_batch, head // GROUP, row, bar, v, v_high, stage)


@gluon.jit
def add_keys(
    first, last, count, tiles, q, d, full, empty, cleared, found, found_high, shift, less, positions, keys, window,
    score_scale, part: gl.constexpr,
    STAGES: gl.constexpr, MASK: gl.constexpr, CAUSAL: gl.constexpr, WINDOW: gl.constexpr, RAGGED: gl.constexpr,
    SCORES: gl.constexpr,
):  # fmt: skip
    """Visit blocks of keys from `first` to `last`, and return the gradient of queries, low and high components.

    `q` and `d` are the low components of 64 queries and gradients of the output.
    """
    _q, q_high, k, k_high, v, v_high, _d, d_high = tiles
    STEP: gl.constexpr = k.shape[3]
    LEFT: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=found.type.layout, k_width=2)
    for start in range(first, last, STEP):
        stage = count % STAGES
        mbarrier.wait(full.index(stage), count // STAGES & 1)
        if RAGGED and MASK and start + STEP > keys:  # what is behind the last key belongs to others
            if part == 0:
                clear_tiles(k, k_high, stage, keys - start, STEP)
                mbarrier.arrive(cleared)
            else:
                mbarrier.wait(cleared, 0)
        s = products(q, q_high, part, k, k_high, stage, gl.zeros([64, STEP], gl.float32, SCORES))
        p = products(d, d_high, part, v, v_high, stage, gl.zeros([64, STEP], gl.float32, SCORES))
        s = warpgroup_mma_wait(1 if v_high is None else 2, deps=[s])
        weights = probabilities(s, shift, score_scale)
        p = warpgroup_mma_wait(0, deps=[p])
        changes = weights * (p - less)
        if MASK:
            place = gl.expand_dims(start + gl.arange(0, STEP, gl.SliceLayout(0, SCORES)), 0)
            seen = place < keys
            if CAUSAL:
                seen = seen & (place <= gl.expand_dims(positions, 1))
            if WINDOW:
                seen = seen & (place > gl.expand_dims(positions, 1) - window)
            changes = gl.where(seen, changes, 0.0)
        left = gl.convert_layout(changes.to(k.dtype), LEFT)
        found = warpgroup_mma(left, matrix(k.index(stage)), found, is_async=True)
        if k_high is None:
            found, _ = warpgroup_mma_wait(0, deps=[found, left])
        else:
            LEFT_HIGH: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=found_high.type.layout, k_width=2)
            left_high = gl.convert_layout(left, LEFT_HIGH, assert_trivial=True)
            found_high = warpgroup_mma(left_high, matrix(k_high.index(stage)), found_high, is_async=True)
            found, found_high, _, _ = warpgroup_mma_wait(0, deps=[found, found_high, left, left_high])
        mbarrier.arrive(empty.index(stage))
        count += 1
    return count, found, found_high


@gluon.jit
def compute_queries(
    part: gl.constexpr, given,
    D: gl.constexpr, REAL: gl.constexpr, PARTS: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
    ALIGNED: gl.constexpr, WINDOW: gl.constexpr,
):  # fmt: skip
    """Compute the gradient of 64 queries."""
    (
        tiles, kept, full, empty, cleared, numbers, query_gradient, query_starts, key_starts,
        query_gradient_batch, query_gradient_step, query_gradient_head,
        queries, keys, first_position, window, score_scale, scale, padded, count_of_tiles, heads, sequences,
    ) = given  # fmt: skip
    STEP: gl.constexpr = tiles[2].shape[3]
    WIDE: gl.constexpr = D > LOW
    SCORES: gl.constexpr = sums_layout(STEP)
    unit = gl.program_id(0) % (heads * sequences)
    tile = (count_of_tiles - 1 - gl.program_id(0) // (heads * sequences)) * (64 * PARTS)
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
    # The kernel may start beside another one, with what the first cache held before.
    less = gl.load(place, mask=row < queries, other=0.0, cache_modifier=".cg")
    place += (batches * heads).to(gl.int64) * padded
    shift = gl.load(place, mask=row < queries, other=0.0, cache_modifier=".cg")
    less, shift = gl.expand_dims(less, 1), gl.expand_dims(shift, 1)
    first, end = visited_keys(tile, queries, keys, first_position, window, CAUSAL, WINDOW, PARTS)
    border = keys // STEP * STEP
    if CAUSAL:
        border = gl.minimum(border, gl.maximum(0, low + first_position + 1) // STEP * STEP)
    if WINDOW:
        border = first
    found = gl.zeros([64, min(D, LOW)], gl.float32, sums_layout(min(D, LOW)))
    found_high = found  # nothing is added to it where there are no high components
    if WIDE:
        found_high = gl.zeros([64, D - LOW], gl.float32, sums_layout(D - LOW))
    mbarrier.wait(kept, 0)
    q, d = matrix(tiles[0].index(part)), matrix(tiles[6].index(part))
    count, found, found_high = add_keys(
        first, gl.minimum(border, end), gl.to_tensor(0), tiles, q, d, full, empty, cleared, found, found_high, shift,
        less, row + first_position, keys, window, score_scale, part, STAGES, False, CAUSAL, WINDOW, RAGGED, SCORES,
    )  # fmt: skip
    count, found, found_high = add_keys(
        border, end, count, tiles, q, d, full, empty, cleared, found, found_high, shift, less, row + first_position,
        keys, window, score_scale, part, STAGES, True, CAUSAL, WINDOW, RAGGED, SCORES,
    )  # fmt: skip
    store_rows(
        query_gradient, (found + 0.0) * scale, low, queries, 0, q_batch, head, query_gradient_batch,
        query_gradient_step, query_gradient_head, REAL, WIDE,
    )  # fmt: skip
    if WIDE:
        store_rows(
            query_gradient, (found_high + 0.0) * scale, low, queries, LOW, q_batch, head, query_gradient_batch,
            query_gradient_step, query_gradient_head, REAL, WIDE,
        )  # fmt: skip
    if part == 0:
        gdc_wait()  # what follows this kernel needs the gradients of keys, of which the kernel may be running


@gluon.jit(
    do_not_specialize=[
        "queries", "keys", "first_position", "window", "padded", "count_of_tiles", "heads", "sequences",
    ]
)  # fmt: skip
def query_gradients_specialised(
    q_map, q_high_map, k_map, k_high_map, v_map, v_high_map, d_map, d_high_map, numbers, query_gradient, query_starts,
    key_starts, query_gradient_batch, query_gradient_step, query_gradient_head,
    queries, keys, first_position, window, score_scale, scale, padded, count_of_tiles, heads, sequences,
    D: gl.constexpr, W: gl.constexpr, REAL: gl.constexpr, PARTS: gl.constexpr, GROUP: gl.constexpr,
    STAGES: gl.constexpr, CAUSAL: gl.constexpr, ALIGNED: gl.constexpr, WINDOW: gl.constexpr,
):  # fmt: skip
    """Compute the gradient of 64 queries of one head for each of PARTS; see `gradients.query_gradients`."""
    q, q_high, d_high, k_high, v_high = tiles_of(q_map, PARTS), None, None, None, None
    if q_high_map is not None:
        q_high = tiles_of(q_high_map, PARTS)
    d, k = tiles_of(d_map, PARTS), tiles_of(k_map, STAGES)
    if k_high_map is not None:
        k_high = tiles_of(k_high_map, STAGES)
    v = tiles_of(v_map, STAGES)
    if v_high_map is not None:
        d_high, v_high = tiles_of(d_high_map, PARTS), tiles_of(v_high_map, STAGES)
    kept, full, empty, cleared = barriers(STAGES, PARTS)
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
    if PARTS == 3:
        gl.warp_specialize(
            [
                (compute_queries, (0, given, D, REAL, PARTS, STAGES, CAUSAL, ALIGNED, WINDOW)),
                (compute_queries, (1, given, D, REAL, PARTS, STAGES, CAUSAL, ALIGNED, WINDOW)),
                (compute_queries, (2, given, D, REAL, PARTS, STAGES, CAUSAL, ALIGNED, WINDOW)),
                (copy_keys, (copied, PARTS, GROUP, STAGES, CAUSAL, ALIGNED, WINDOW)),
            ],
            [4, 4, 1],
            [160, 160, 24],
        )
    else:
        gl.warp_specialize(
            [
                (compute_queries, (0, given, D, REAL, PARTS, STAGES, CAUSAL, ALIGNED, WINDOW)),
                (compute_queries, (1, given, D, REAL, PARTS, STAGES, CAUSAL, ALIGNED, WINDOW)),
                (copy_keys, (copied, PARTS, GROUP, STAGES, CAUSAL, ALIGNED, WINDOW)),
            ],
            [4, 1],
            [240, 24],
        )
