"""The Gluon kernels of the gradients of attention: one warp copies, warpgroups compute.

They compute the chains of `gradients`: each of the two warpgroups of a program has 64 keys, or each of two or three has
64 queries, and visits the others in blocks of 64 in order.  Heads of REAL components have D in memory, of which the
last are zeros.
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

from bitwise_nvidia_sm90.attention.kernels.tiles_of_keys import clear_rows, lengths_of

BLOCK = gl.constexpr(64)
"""The queries, or keys, of a step of a warpgroup."""


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
def clear_once(tile, count, cleared, D: gl.constexpr, part: gl.constexpr):
    """Let the first warpgroup clear the rows of a tile from `count` on; the others wait for it."""
    if part == 0:
        clear_rows(tile, count, BLOCK, D)
        mbarrier.arrive(cleared)
    else:
        mbarrier.wait(cleared, 0)


@gluon.jit
def probabilities(scores, shifts, scale):
    """Return the probabilities of scores, of which `shifts` broadcasts to the shape."""
    factor = gl.full(scores.shape, scale, gl.float32, scores.type.layout)
    shift, _ = gl.broadcast(shifts, scores)
    return gl.exp2(gl.fma(scores, factor, shift))


@gluon.jit
def copy_queries(
    given,
    GROUP: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr, ALIGNED: gl.constexpr, WINDOW: gl.constexpr,
):  # fmt: skip
    """Copy the keys and values of a program, and the queries, gradients and numbers of rows that it visits."""
    (
        query_map, key_map, value_map, slope_map, number_map, q, k, v, d, numbers, kept, full, empty,
        query_starts, key_starts, queries, keys, first_position, window, heads, sequences,
    ) = given  # fmt: skip
    unit = gl.program_id(0) % (heads * sequences)
    low = gl.program_id(0) // (heads * sequences) * 128
    head, sequence = unit % heads, unit // heads
    q_batch, q_row, n_row, k_batch, k_row, queries, keys, first_position = bounds(
        sequence, query_starts, key_starts, queries, keys, first_position, sequences, ALIGNED
    )
    first, last = visited_queries(low, queries, keys, first_position, window, CAUSAL, WINDOW)
    mbarrier.expect(kept, 2 * (key_map.block_type.nbytes + value_map.block_type.nbytes))
    for part in gl.static_range(2):
        row = k_row + low + part * 64
        tma.async_copy_global_to_shared(key_map, [k_batch, head // GROUP, row, 0], kept, k.index(part))
        tma.async_copy_global_to_shared(value_map, [k_batch, head // GROUP, row, 0], kept, v.index(part))
    for start in range(first, last, BLOCK):
        count = (start - first) // BLOCK
        stage = count % STAGES
        mbarrier.wait(empty.index(stage), (count // STAGES & 1) ^ 1)
        bar = full.index(stage)
        mbarrier.expect(
            bar, query_map.block_type.nbytes + slope_map.block_type.nbytes + 2 * number_map.block_type.nbytes
        )
        row = q_row + start
        tma.async_copy_global_to_shared(query_map, [q_batch, head, row, 0], bar, q.index(stage))
        tma.async_copy_global_to_shared(slope_map, [q_batch, head, row, 0], bar, d.index(stage))
        for part in gl.static_range(2):
            tma.async_copy_global_to_shared(
                number_map, [part, q_batch * heads + head, n_row + start], bar, numbers.index(2 * stage + part)
            )


@gluon.jit
def add_queries(
    first, last, count, q, k, v, d, numbers, full, empty, cleared, of_keys, of_values, places, queries,
    first_position, window, score_scale, part: gl.constexpr,
    D: gl.constexpr, W: gl.constexpr, STAGES: gl.constexpr, MASK: gl.constexpr, CAUSAL: gl.constexpr,
    WINDOW: gl.constexpr, RAGGED: gl.constexpr, SCORES: gl.constexpr, DK: gl.constexpr, DV: gl.constexpr,
):  # fmt: skip
    """Visit blocks of queries from `first` to `last`, and return both gradients."""
    for start in range(first, last, BLOCK):
        stage = count % STAGES
        mbarrier.wait(full.index(stage), count // STAGES & 1)
        rows, slopes = matrix(q.index(stage)), matrix(d.index(stage))
        if RAGGED and MASK and start + BLOCK > queries:  # what is behind the last query belongs to others
            if part == 0:
                clear_rows(rows, queries - start, BLOCK, D)
            clear_once(slopes, queries - start, cleared, W, part)
        s = gl.zeros([64, BLOCK], gl.float32, SCORES)
        s = warpgroup_mma(k, rows.permute((1, 0)), s, use_acc=False, is_async=True)
        p = gl.zeros([64, BLOCK], gl.float32, SCORES)
        p = warpgroup_mma(v, slopes.permute((1, 0)), p, use_acc=False, is_async=True)
        columns: gl.constexpr = gl.SliceLayout(0, SCORES)
        less = gl.expand_dims(numbers.index(2 * stage).reshape([BLOCK]).load(columns), 0)
        shift = gl.expand_dims(numbers.index(2 * stage + 1).reshape([BLOCK]).load(columns), 0)
        s = warpgroup_mma_wait(1, deps=[s])
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
        left = gl.convert_layout(weights.to(q.dtype), gl.DotOperandLayout(operand_index=0, parent=DV, k_width=2))
        of_values = warpgroup_mma(left, slopes, of_values, is_async=True)
        p = warpgroup_mma_wait(1, deps=[p])
        changes = weights * (p - less)
        if MASK:
            changes = gl.where(seen, changes, 0.0)
        right = gl.convert_layout(changes.to(q.dtype), gl.DotOperandLayout(operand_index=0, parent=DK, k_width=2))
        of_keys = warpgroup_mma(right, rows, of_keys, is_async=True)
        of_values, of_keys, _, _ = warpgroup_mma_wait(0, deps=[of_values, of_keys, left, right])
        mbarrier.arrive(empty.index(stage))
        count += 1
    return count, of_keys, of_values


@gluon.jit
def store_rows(
    target, found, low, rows, batch, head, target_batch, target_step, target_head,
    WIDTH: gl.constexpr, REAL: gl.constexpr,
):  # fmt: skip
    """Store 64 rows of a gradient from row `low` on, of which `rows` exist, and REAL of their WIDTH components.

    Those in fp32 are stored from where they are.
    """
    STORED: gl.constexpr = (
        found.type.layout
        if target.dtype.element_ty == gl.float32
        else gl.BlockedLayout([1, 8], [256 // WIDTH, WIDTH // 8], [4, 1], [1, 0])
    )
    rounded = gl.convert_layout(found.to(target.dtype.element_ty), STORED)
    at = low + gl.arange(0, 64, gl.SliceLayout(1, STORED))
    place = target + batch.to(gl.int64) * target_batch + head.to(gl.int64) * target_head
    place = gl.expand_dims(place + at.to(gl.int64) * target_step, 1)
    lane = gl.expand_dims(gl.arange(0, WIDTH, gl.SliceLayout(0, STORED)), 0)
    inside = gl.expand_dims(at < rows, 1)
    if REAL < WIDTH:
        inside = inside & (lane < REAL)
    gl.store(place + lane, rounded, mask=inside)


@gluon.jit
def compute_keys(
    part: gl.constexpr, given,
    D: gl.constexpr, W: gl.constexpr, REAL: gl.constexpr, GROUP: gl.constexpr, STAGES: gl.constexpr,
    CAUSAL: gl.constexpr, ALIGNED: gl.constexpr, WINDOW: gl.constexpr, KEPT: gl.constexpr,
):  # fmt: skip
    """Compute the gradients of 64 keys and values."""
    (
        q, k, v, d, numbers, kept, full, empty, cleared, key_gradient, value_gradient, query_starts, key_starts,
        key_gradient_batch, key_gradient_step, key_gradient_head, value_gradient_batch, value_gradient_step,
        value_gradient_head, queries, keys, first_position, window, score_scale, scale, heads, sequences,
    ) = given  # fmt: skip
    SCORES: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 64, 16])
    DK: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, D, 16])
    DV: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, W, 16])
    unit = gl.program_id(0) % (heads * sequences)
    tile = gl.program_id(0) // (heads * sequences) * 128
    head, sequence = unit % heads, unit // heads
    _, _, _, k_batch, k_row, queries, keys, first_position = bounds(
        sequence, query_starts, key_starts, queries, keys, first_position, sequences, ALIGNED
    )
    low = tile + part * 64
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
    of_keys, of_values = gl.zeros([64, D], gl.float32, DK), gl.zeros([64, W], gl.float32, DV)
    count = gl.to_tensor(0)
    mbarrier.wait(kept, 0)
    k, v = left_operand(k.index(part), KEPT, SCORES), left_operand(v.index(part), KEPT, SCORES)
    if CAUSAL:
        count, of_keys, of_values = add_queries(
            first, border, count, q, k, v, d, numbers, full, empty, cleared, of_keys, of_values, places,
            queries, first_position, window, score_scale, part, D, W, STAGES, True, CAUSAL, WINDOW, RAGGED,
            SCORES, DK, DV,
        )  # fmt: skip
    start = (border + BLOCK - 1) // BLOCK * BLOCK
    count, of_keys, of_values = add_queries(
        start, behind, count, q, k, v, d, numbers, full, empty, cleared, of_keys, of_values, places,
        queries, first_position, window, score_scale, part, D, W, STAGES, False, CAUSAL, WINDOW, RAGGED,
        SCORES, DK, DV,
    )  # fmt: skip
    if RAGGED or WINDOW:
        start = gl.maximum(start, (behind + BLOCK - 1) // BLOCK * BLOCK)
        count, of_keys, of_values = add_queries(
            start, last, count, q, k, v, d, numbers, full, empty, cleared, of_keys, of_values, places,
            queries, first_position, window, score_scale, part, D, W, STAGES, True, CAUSAL, WINDOW, RAGGED,
            SCORES, DK, DV,
        )  # fmt: skip
    if RAGGED:
        key_gradient += k_row.to(gl.int64) * key_gradient_step
        value_gradient += k_row.to(gl.int64) * value_gradient_step
    if GROUP == 1:
        of_keys, of_values = (of_keys + 0.0) * scale, of_values + 0.0
    store_rows(
        key_gradient, of_keys, low, keys, k_batch, head, key_gradient_batch, key_gradient_step, key_gradient_head, D,
        REAL,
    )  # fmt: skip
    store_rows(
        value_gradient, of_values, low, keys, k_batch, head, value_gradient_batch, value_gradient_step,
        value_gradient_head, W, REAL,
    )  # fmt: skip


@gluon.jit(do_not_specialize=["queries", "keys", "first_position", "window", "heads", "sequences"])
def key_gradients_specialised(
    query_map, key_map, value_map, slope_map, number_map, key_gradient, value_gradient, query_starts, key_starts,
    key_gradient_batch, key_gradient_step, key_gradient_head, value_gradient_batch, value_gradient_step,
    value_gradient_head, queries, keys, first_position, window, score_scale, scale, heads, sequences,
    D: gl.constexpr, W: gl.constexpr, REAL: gl.constexpr, GROUP: gl.constexpr, STAGES: gl.constexpr,
    CAUSAL: gl.constexpr, ALIGNED: gl.constexpr, WINDOW: gl.constexpr, KEPT: gl.constexpr,
):  # fmt: skip
    """Compute the gradients of 128 keys and values over the queries of a head; see `gradients.key_gradients`."""
    kind: gl.constexpr = query_map.dtype
    q = gl.allocate_shared_memory(kind, [STAGES, 1, 1, BLOCK, D], query_map.layout)
    d = gl.allocate_shared_memory(kind, [STAGES, 1, 1, BLOCK, W], slope_map.layout)
    numbers = gl.allocate_shared_memory(gl.float32, [2 * STAGES, 1, 1, BLOCK], number_map.layout)
    k = gl.allocate_shared_memory(kind, [2, 1, 1, 64, D], key_map.layout)
    v = gl.allocate_shared_memory(kind, [2, 1, 1, 64, W], value_map.layout)
    kept, full, empty, cleared = barriers(STAGES, 2)
    given = (
        q, k, v, d, numbers, kept, full, empty, cleared, key_gradient, value_gradient, query_starts, key_starts,
        key_gradient_batch, key_gradient_step, key_gradient_head, value_gradient_batch, value_gradient_step,
        value_gradient_head, queries, keys, first_position, window, score_scale, scale, heads, sequences,
    )  # fmt: skip
    copied = (
        query_map, key_map, value_map, slope_map, number_map, q, k, v, d, numbers, kept, full, empty,
        query_starts, key_starts, queries, keys, first_position, window, heads, sequences,
    )  # fmt: skip
    gl.warp_specialize(
        [
            (compute_keys, (0, given, D, W, REAL, GROUP, STAGES, CAUSAL, ALIGNED, WINDOW, KEPT)),
            (compute_keys, (1, given, D, W, REAL, GROUP, STAGES, CAUSAL, ALIGNED, WINDOW, KEPT)),
            (copy_queries, (copied, GROUP, STAGES, CAUSAL, ALIGNED, WINDOW)),
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
    GROUP: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr, ALIGNED: gl.constexpr, WINDOW: gl.constexpr,
    PARTS: gl.constexpr,
):  # fmt: skip
    """Copy the queries and gradients of a program, and the keys and values that it visits."""
    (
        query_map, key_map, value_map, slope_map, q, k, v, d, kept, full, empty,
        query_starts, key_starts, queries, keys, first_position, window, tiles, heads, sequences,
    ) = given  # fmt: skip
    unit = gl.program_id(0) % (heads * sequences)
    low = (tiles - 1 - gl.program_id(0) // (heads * sequences)) * (64 * PARTS)
    head, sequence = unit % heads, unit // heads
    q_batch, q_row, _, k_batch, k_row, queries, keys, first_position = bounds(
        sequence, query_starts, key_starts, queries, keys, first_position, sequences, ALIGNED
    )
    first, end = visited_keys(low, queries, keys, first_position, window, CAUSAL, WINDOW, PARTS)
    mbarrier.expect(kept, PARTS * (query_map.block_type.nbytes + slope_map.block_type.nbytes))
    for part in gl.static_range(PARTS):
        row = q_row + low + part * 64
        tma.async_copy_global_to_shared(query_map, [q_batch, head, row, 0], kept, q.index(part))
        tma.async_copy_global_to_shared(slope_map, [q_batch, head, row, 0], kept, d.index(part))
    for start in range(first, end, BLOCK):
        count = (start - first) // BLOCK
        stage = count % STAGES
        mbarrier.wait(empty.index(stage), (count // STAGES & 1) ^ 1)
        bar = full.index(stage)
        mbarrier.expect(bar, key_map.block_type.nbytes + value_map.block_type.nbytes)
        row = k_row + start
        tma.async_copy_global_to_shared(key_map, [k_batch, head // GROUP, row, 0], bar, k.index(stage))
        tma.async_copy_global_to_shared(value_map, [k_batch, head // GROUP, row, 0], bar, v.index(stage))


@gluon.jit
def add_keys(
    first, last, count, q, k, v, d, full, empty, cleared, found, shift, less, positions, keys, window, score_scale,
    part: gl.constexpr,
    D: gl.constexpr, STAGES: gl.constexpr, MASK: gl.constexpr, CAUSAL: gl.constexpr, WINDOW: gl.constexpr,
    RAGGED: gl.constexpr, SCORES: gl.constexpr, DQ: gl.constexpr,
):  # fmt: skip
    """Visit blocks of keys from `first` to `last`, and return the gradient of queries."""
    for start in range(first, last, BLOCK):
        stage = count % STAGES
        mbarrier.wait(full.index(stage), count // STAGES & 1)
        keys_of, values_of = matrix(k.index(stage)), matrix(v.index(stage))
        if RAGGED and MASK and start + BLOCK > keys:  # what is behind the last key belongs to others
            clear_once(keys_of, keys - start, cleared, D, part)
        s = gl.zeros([64, BLOCK], gl.float32, SCORES)
        s = warpgroup_mma(q, keys_of.permute((1, 0)), s, use_acc=False, is_async=True)
        p = gl.zeros([64, BLOCK], gl.float32, SCORES)
        p = warpgroup_mma(d, values_of.permute((1, 0)), p, use_acc=False, is_async=True)
        s = warpgroup_mma_wait(1, deps=[s])
        weights = probabilities(s, shift, score_scale)
        p = warpgroup_mma_wait(0, deps=[p])
        changes = weights * (p - less)
        if MASK:
            place = gl.expand_dims(start + gl.arange(0, BLOCK, gl.SliceLayout(0, SCORES)), 0)
            seen = place < keys
            if CAUSAL:
                seen = seen & (place <= gl.expand_dims(positions, 1))
            if WINDOW:
                seen = seen & (place > gl.expand_dims(positions, 1) - window)
            changes = gl.where(seen, changes, 0.0)
        left = gl.convert_layout(changes.to(k.dtype), gl.DotOperandLayout(operand_index=0, parent=DQ, k_width=2))
        found = warpgroup_mma(left, keys_of, found, is_async=True)
        found, _ = warpgroup_mma_wait(0, deps=[found, left])
        mbarrier.arrive(empty.index(stage))
        count += 1
    return count, found


@gluon.jit
def compute_queries(
    part: gl.constexpr, given,
    D: gl.constexpr, REAL: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr, ALIGNED: gl.constexpr,
    WINDOW: gl.constexpr, PARTS: gl.constexpr,
):  # fmt: skip
    """Compute the gradient of 64 queries."""
    (
        q, k, v, d, kept, full, empty, cleared, numbers, query_gradient, query_starts, key_starts,
        query_gradient_batch, query_gradient_step, query_gradient_head,
        queries, keys, first_position, window, score_scale, scale, padded, tiles, heads, sequences,
    ) = given  # fmt: skip
    SCORES: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 64, 16])
    DQ: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, D, 16])
    unit = gl.program_id(0) % (heads * sequences)
    tile = (tiles - 1 - gl.program_id(0) // (heads * sequences)) * (64 * PARTS)
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
    first, end = visited_keys(tile, queries, keys, first_position, window, CAUSAL, WINDOW, PARTS)
    border = keys // BLOCK * BLOCK
    if CAUSAL:
        border = gl.minimum(border, gl.maximum(0, low + first_position + 1) // BLOCK * BLOCK)
    if WINDOW:
        border = first
    found = gl.zeros([64, D], gl.float32, DQ)
    mbarrier.wait(kept, 0)
    q, d = matrix(q.index(part)), matrix(d.index(part))
    count, found = add_keys(
        first, gl.minimum(border, end), gl.to_tensor(0), q, k, v, d, full, empty, cleared, found, shift, less,
        row + first_position, keys, window, score_scale, part, D, STAGES, False, CAUSAL, WINDOW, RAGGED, SCORES, DQ,
    )  # fmt: skip
    count, found = add_keys(
        border, end, count, q, k, v, d, full, empty, cleared, found, shift, less,
        row + first_position, keys, window, score_scale, part, D, STAGES, True, CAUSAL, WINDOW, RAGGED, SCORES, DQ,
    )  # fmt: skip
    store_rows(
        query_gradient, (found + 0.0) * scale, low, queries, q_batch, head, query_gradient_batch, query_gradient_step,
        query_gradient_head, D, REAL,
    )  # fmt: skip


@gluon.jit(do_not_specialize=["queries", "keys", "first_position", "window", "padded", "tiles", "heads", "sequences"])
def query_gradients_specialised(
    query_map, key_map, value_map, slope_map, numbers, query_gradient, query_starts, key_starts,
    query_gradient_batch, query_gradient_step, query_gradient_head,
    queries, keys, first_position, window, score_scale, scale, padded, tiles, heads, sequences,
    D: gl.constexpr, W: gl.constexpr, REAL: gl.constexpr, GROUP: gl.constexpr, STAGES: gl.constexpr,
    CAUSAL: gl.constexpr, ALIGNED: gl.constexpr, WINDOW: gl.constexpr, PARTS: gl.constexpr,
):  # fmt: skip
    """Compute the gradient of 64 queries of one head for each of PARTS; see `gradients.query_gradients`."""
    kind: gl.constexpr = query_map.dtype
    q = gl.allocate_shared_memory(kind, [PARTS, 1, 1, 64, D], query_map.layout)
    d = gl.allocate_shared_memory(kind, [PARTS, 1, 1, 64, W], slope_map.layout)
    k = gl.allocate_shared_memory(kind, [STAGES, 1, 1, BLOCK, D], key_map.layout)
    v = gl.allocate_shared_memory(kind, [STAGES, 1, 1, BLOCK, W], value_map.layout)
    kept, full, empty, cleared = barriers(STAGES, PARTS)
    given = (
        q, k, v, d, kept, full, empty, cleared, numbers, query_gradient, query_starts, key_starts,
        query_gradient_batch, query_gradient_step, query_gradient_head,
        queries, keys, first_position, window, score_scale, scale, padded, tiles, heads, sequences,
    )  # fmt: skip
    copied = (
        query_map, key_map, value_map, slope_map, q, k, v, d, kept, full, empty,
        query_starts, key_starts, queries, keys, first_position, window, tiles, heads, sequences,
    )  # fmt: skip
    if PARTS == 3:
        gl.warp_specialize(
            [
                (compute_queries, (0, given, D, REAL, STAGES, CAUSAL, ALIGNED, WINDOW, PARTS)),
                (compute_queries, (1, given, D, REAL, STAGES, CAUSAL, ALIGNED, WINDOW, PARTS)),
                (compute_queries, (2, given, D, REAL, STAGES, CAUSAL, ALIGNED, WINDOW, PARTS)),
                (copy_keys, (copied, GROUP, STAGES, CAUSAL, ALIGNED, WINDOW, PARTS)),
            ],
            [4, 4, 1],
            [160, 160, 24],
        )
    else:
        gl.warp_specialize(
            [
                (compute_queries, (0, given, D, REAL, STAGES, CAUSAL, ALIGNED, WINDOW, PARTS)),
                (compute_queries, (1, given, D, REAL, STAGES, CAUSAL, ALIGNED, WINDOW, PARTS)),
                (copy_keys, (copied, GROUP, STAGES, CAUSAL, ALIGNED, WINDOW, PARTS)),
            ],
            [4, 1],
            [240, 24],
        )
