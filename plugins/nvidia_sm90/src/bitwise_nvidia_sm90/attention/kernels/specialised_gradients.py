"""The Gluon kernels of the gradients of attention for dense sequences: one warp copies, warpgroups compute.

They compute the chains of `gradients`: each of the two warpgroups of a program has 64 keys, or each of two or three has
64 queries, and visits the others in blocks of 64 in order.
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
def first_query(low, first_position, CAUSAL: gl.constexpr):
    """Return the first of the blocks of queries that see a key from `low` on."""
    first = 0
    if CAUSAL:
        first = gl.maximum(0, low - first_position) // BLOCK * BLOCK
    return first


@gluon.jit
def probabilities(scores, shifts, scale):
    """Return the probabilities of scores, of which `shifts` broadcasts to the shape."""
    factor = gl.full(scores.shape, scale, gl.float32, scores.type.layout)
    shift, _ = gl.broadcast(shifts, scores)
    return gl.exp2(gl.fma(scores, factor, shift))


@gluon.jit
def copy_queries(
    query_map, key_map, value_map, slope_map, number_map, q, k, v, d, numbers, kept, full, empty,
    queries, keys, first_position, heads, groups, sequences,
    GROUP: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    """Copy the keys and values of a program, and the queries, gradients and numbers of rows that it visits."""
    unit = gl.program_id(0) % (groups * sequences)
    low = gl.program_id(0) // (groups * sequences) * 128
    group, sequence = unit % groups, unit // groups
    mbarrier.expect(kept, 2 * (key_map.block_type.nbytes + value_map.block_type.nbytes))
    for part in gl.static_range(2):
        tma.async_copy_global_to_shared(key_map, [sequence, group, low + part * 64, 0], kept, k.index(part))
        tma.async_copy_global_to_shared(value_map, [sequence, group, low + part * 64, 0], kept, v.index(part))
    count = 0
    for share in range(GROUP):
        head = group * GROUP + share
        for start in range(first_query(low, first_position, CAUSAL), queries, BLOCK):
            stage = count % STAGES
            mbarrier.wait(empty.index(stage), (count // STAGES & 1) ^ 1)
            bar = full.index(stage)
            mbarrier.expect(
                bar, query_map.block_type.nbytes + slope_map.block_type.nbytes + 2 * number_map.block_type.nbytes
            )
            tma.async_copy_global_to_shared(query_map, [sequence, head, start, 0], bar, q.index(stage))
            tma.async_copy_global_to_shared(slope_map, [sequence, head, start, 0], bar, d.index(stage))
            for part in gl.static_range(2):
                tma.async_copy_global_to_shared(
                    number_map, [part, sequence * heads + head, start], bar, numbers.index(2 * stage + part)
                )
            count += 1


@gluon.jit
def add_queries(
    first, last, count, q, k, v, d, numbers, full, empty, of_keys, of_values, places, first_position, score_scale,
    STAGES: gl.constexpr, MASK: gl.constexpr, SCORES: gl.constexpr, DK: gl.constexpr, DV: gl.constexpr,
):  # fmt: skip
    """Visit blocks of queries from `first` to `last`, and return both gradients."""
    for start in range(first, last, BLOCK):
        stage = count % STAGES
        mbarrier.wait(full.index(stage), count // STAGES & 1)
        rows, slopes = matrix(q.index(stage)), matrix(d.index(stage))
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
            seen = gl.expand_dims(places, 1) <= row + first_position
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
def store_rows(target, found, low, rows, batch, head, target_batch, target_step, target_head, WIDTH: gl.constexpr):
    """Store 64 rows of a gradient from row `low` on, of which `rows` exist."""
    STORED: gl.constexpr = gl.BlockedLayout([1, 8], [256 // WIDTH, WIDTH // 8], [4, 1], [1, 0])
    rounded = gl.convert_layout(found.to(target.dtype.element_ty), STORED)
    at = low + gl.arange(0, 64, gl.SliceLayout(1, STORED))
    place = target + batch.to(gl.int64) * target_batch + head.to(gl.int64) * target_head
    place = gl.expand_dims(place + at.to(gl.int64) * target_step, 1)
    lane = gl.expand_dims(gl.arange(0, WIDTH, gl.SliceLayout(0, STORED)), 0)
    gl.store(place + lane, rounded, mask=gl.expand_dims(at < rows, 1))


@gluon.jit
def compute_keys(
    part: gl.constexpr, q, k, v, d, numbers, kept, full, empty, key_gradient, value_gradient,
    key_gradient_batch, key_gradient_step, key_gradient_head, value_gradient_batch, value_gradient_step,
    value_gradient_head, queries, keys, first_position, score_scale, scale, groups, sequences,
    D: gl.constexpr, W: gl.constexpr, GROUP: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
    KEPT: gl.constexpr,
):  # fmt: skip
    """Compute the gradients of 64 keys and values."""
    SCORES: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 64, 16])
    DK: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, D, 16])
    DV: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, W, 16])
    unit = gl.program_id(0) % (groups * sequences)
    tile = gl.program_id(0) // (groups * sequences) * 128
    group, sequence = unit % groups, unit // groups
    low = tile + part * 64
    places = low + gl.arange(0, 64, gl.SliceLayout(1, SCORES))
    first = first_query(tile, first_position, CAUSAL)
    border = first
    if CAUSAL:  # the first block whose queries all see the keys
        border = gl.minimum(gl.maximum(first, (low + 63 - first_position + BLOCK - 1) // BLOCK * BLOCK), queries)
    of_keys, of_values = gl.zeros([64, D], gl.float32, DK), gl.zeros([64, W], gl.float32, DV)
    count = 0
    mbarrier.wait(kept, 0)
    k, v = left_operand(k.index(part), KEPT, SCORES), left_operand(v.index(part), KEPT, SCORES)
    for _ in range(GROUP):
        if CAUSAL:
            count, of_keys, of_values = add_queries(
                first, border, count, q, k, v, d, numbers, full, empty, of_keys, of_values, places, first_position,
                score_scale, STAGES, True, SCORES, DK, DV,
            )  # fmt: skip
        count, of_keys, of_values = add_queries(
            (border + BLOCK - 1) // BLOCK * BLOCK, queries, count, q, k, v, d, numbers, full, empty, of_keys, of_values,
            places, first_position, score_scale, STAGES, False, SCORES, DK, DV,
        )  # fmt: skip
    store_rows(
        key_gradient, (of_keys + 0.0) * scale, low, keys, sequence, group, key_gradient_batch, key_gradient_step,
        key_gradient_head, D,
    )  # fmt: skip
    store_rows(
        value_gradient, of_values + 0.0, low, keys, sequence, group, value_gradient_batch, value_gradient_step,
        value_gradient_head, W,
    )  # fmt: skip


@gluon.jit(do_not_specialize=["queries", "keys", "first_position", "heads", "groups", "sequences"])
def key_gradients_specialised(
    query_map, key_map, value_map, slope_map, number_map, key_gradient, value_gradient,
    key_gradient_batch, key_gradient_step, key_gradient_head, value_gradient_batch, value_gradient_step,
    value_gradient_head, queries, keys, first_position, score_scale, scale, heads, groups, sequences,
    D: gl.constexpr, W: gl.constexpr, GROUP: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
    ALIGNED: gl.constexpr, KEPT: gl.constexpr,
):  # fmt: skip
    """Compute the gradients of 128 keys and values of one head; see `gradients.key_gradients`."""
    if ALIGNED:
        first_position = keys - queries
    kind: gl.constexpr = query_map.dtype
    q = gl.allocate_shared_memory(kind, [STAGES, 1, 1, BLOCK, D], query_map.layout)
    d = gl.allocate_shared_memory(kind, [STAGES, 1, 1, BLOCK, W], slope_map.layout)
    numbers = gl.allocate_shared_memory(gl.float32, [2 * STAGES, 1, 1, BLOCK], number_map.layout)
    k = gl.allocate_shared_memory(kind, [2, 1, 1, 64, D], key_map.layout)
    v = gl.allocate_shared_memory(kind, [2, 1, 1, 64, W], value_map.layout)
    kept = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    mbarrier.init(kept, count=1)
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=2)
    fence_async_shared()
    gl.warp_specialize(
        [
            (
                compute_keys,
                (
                    0, q, k, v, d, numbers, kept, full, empty, key_gradient, value_gradient,
                    key_gradient_batch, key_gradient_step, key_gradient_head, value_gradient_batch, value_gradient_step,
                    value_gradient_head, queries, keys, first_position, score_scale, scale, groups, sequences,
                    D, W, GROUP, STAGES, CAUSAL, KEPT,
                ),
            ),
            (
                compute_keys,
                (
                    1, q, k, v, d, numbers, kept, full, empty, key_gradient, value_gradient,
                    key_gradient_batch, key_gradient_step, key_gradient_head, value_gradient_batch, value_gradient_step,
                    value_gradient_head, queries, keys, first_position, score_scale, scale, groups, sequences,
                    D, W, GROUP, STAGES, CAUSAL, KEPT,
                ),
            ),
            (
                copy_queries,
                (
                    query_map, key_map, value_map, slope_map, number_map, q, k, v, d, numbers, kept, full, empty,
                    queries, keys, first_position, heads, groups, sequences, GROUP, STAGES, CAUSAL,
                ),
            ),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip


@gluon.jit
def end_of_keys(low, queries, keys, first_position, CAUSAL: gl.constexpr, PARTS: gl.constexpr):
    """Return the end of the keys that a program's queries from `low` on see."""
    end = keys
    if CAUSAL:
        end = gl.minimum(end, gl.minimum(low + 64 * PARTS, queries) + first_position)
    return end


@gluon.jit
def copy_keys(
    query_map, key_map, value_map, slope_map, q, k, v, d, kept, full, empty,
    queries, keys, first_position, tiles, heads, sequences,
    GROUP: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr, PARTS: gl.constexpr,
):  # fmt: skip
    """Copy the queries and gradients of a program, and the keys and values that it visits."""
    unit = gl.program_id(0) % (heads * sequences)
    low = (tiles - 1 - gl.program_id(0) // (heads * sequences)) * (64 * PARTS)
    head, sequence = unit % heads, unit // heads
    mbarrier.expect(kept, PARTS * (query_map.block_type.nbytes + slope_map.block_type.nbytes))
    for part in gl.static_range(PARTS):
        tma.async_copy_global_to_shared(query_map, [sequence, head, low + part * 64, 0], kept, q.index(part))
        tma.async_copy_global_to_shared(slope_map, [sequence, head, low + part * 64, 0], kept, d.index(part))
    for start in range(0, end_of_keys(low, queries, keys, first_position, CAUSAL, PARTS), BLOCK):
        count = start // BLOCK
        stage = count % STAGES
        mbarrier.wait(empty.index(stage), (count // STAGES & 1) ^ 1)
        bar = full.index(stage)
        mbarrier.expect(bar, key_map.block_type.nbytes + value_map.block_type.nbytes)
        tma.async_copy_global_to_shared(key_map, [sequence, head // GROUP, start, 0], bar, k.index(stage))
        tma.async_copy_global_to_shared(value_map, [sequence, head // GROUP, start, 0], bar, v.index(stage))


@gluon.jit
def add_keys(
    first, last, count, q, k, v, d, full, empty, found, shift, less, positions, keys, score_scale,
    STAGES: gl.constexpr, MASK: gl.constexpr, CAUSAL: gl.constexpr, SCORES: gl.constexpr, DQ: gl.constexpr,
):  # fmt: skip
    """Visit blocks of keys from `first` to `last`, and return the gradient of queries."""
    for start in range(first, last, BLOCK):
        stage = count % STAGES
        mbarrier.wait(full.index(stage), count // STAGES & 1)
        keys_of, values_of = matrix(k.index(stage)), matrix(v.index(stage))
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
            changes = gl.where(seen, changes, 0.0)
        left = gl.convert_layout(changes.to(k.dtype), gl.DotOperandLayout(operand_index=0, parent=DQ, k_width=2))
        found = warpgroup_mma(left, keys_of, found, is_async=True)
        found, _ = warpgroup_mma_wait(0, deps=[found, left])
        mbarrier.arrive(empty.index(stage))
        count += 1
    return count, found


@gluon.jit
def compute_queries(
    part: gl.constexpr, q, k, v, d, kept, full, empty, numbers, query_gradient,
    query_gradient_batch, query_gradient_step, query_gradient_head,
    queries, keys, first_position, score_scale, scale, padded, tiles, heads, sequences,
    D: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr, PARTS: gl.constexpr,
):  # fmt: skip
    """Compute the gradient of 64 queries."""
    SCORES: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 64, 16])
    DQ: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, D, 16])
    unit = gl.program_id(0) % (heads * sequences)
    tile = (tiles - 1 - gl.program_id(0) // (heads * sequences)) * (64 * PARTS)
    head, sequence = unit % heads, unit // heads
    low = tile + part * 64
    row = low + gl.arange(0, 64, gl.SliceLayout(1, SCORES))
    place = numbers + (sequence * heads + head).to(gl.int64) * padded + row
    less = gl.expand_dims(gl.load(place, mask=row < queries, other=0.0), 1)
    shift = gl.expand_dims(gl.load(place + (sequences * heads).to(gl.int64) * padded, mask=row < queries, other=0.0), 1)
    end = end_of_keys(tile, queries, keys, first_position, CAUSAL, PARTS)
    border = keys // BLOCK * BLOCK
    if CAUSAL:
        border = gl.minimum(border, gl.maximum(0, low + first_position + 1) // BLOCK * BLOCK)
    found = gl.zeros([64, D], gl.float32, DQ)
    mbarrier.wait(kept, 0)
    q, d = matrix(q.index(part)), matrix(d.index(part))
    count, found = add_keys(
        0, gl.minimum(border, end), gl.to_tensor(0), q, k, v, d, full, empty, found, shift, less,
        row + first_position, keys, score_scale, STAGES, False, CAUSAL, SCORES, DQ,
    )  # fmt: skip
    count, found = add_keys(
        border, end, count, q, k, v, d, full, empty, found, shift, less,
        row + first_position, keys, score_scale, STAGES, True, CAUSAL, SCORES, DQ,
    )  # fmt: skip
    store_rows(
        query_gradient, (found + 0.0) * scale, low, queries, sequence, head, query_gradient_batch, query_gradient_step,
        query_gradient_head, D,
    )  # fmt: skip


@gluon.jit(do_not_specialize=["queries", "keys", "first_position", "padded", "tiles", "heads", "sequences"])
def query_gradients_specialised(
    query_map, key_map, value_map, slope_map, numbers, query_gradient,
    query_gradient_batch, query_gradient_step, query_gradient_head,
    queries, keys, first_position, score_scale, scale, padded, tiles, heads, sequences,
    D: gl.constexpr, W: gl.constexpr, GROUP: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
    ALIGNED: gl.constexpr, PARTS: gl.constexpr,
):  # fmt: skip
    """Compute the gradient of 64 queries of one head for each of PARTS; see `gradients.query_gradients`."""
    if ALIGNED:
        first_position = keys - queries
    kind: gl.constexpr = query_map.dtype
    q = gl.allocate_shared_memory(kind, [PARTS, 1, 1, 64, D], query_map.layout)
    d = gl.allocate_shared_memory(kind, [PARTS, 1, 1, 64, W], slope_map.layout)
    k = gl.allocate_shared_memory(kind, [STAGES, 1, 1, BLOCK, D], key_map.layout)
    v = gl.allocate_shared_memory(kind, [STAGES, 1, 1, BLOCK, W], value_map.layout)
    kept = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    mbarrier.init(kept, count=1)
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=PARTS)
    fence_async_shared()
    if PARTS == 3:
        gl.warp_specialize(
            [
                (
                    compute_queries,
                    (
                        0, q, k, v, d, kept, full, empty, numbers, query_gradient,
                        query_gradient_batch, query_gradient_step, query_gradient_head,
                        queries, keys, first_position, score_scale, scale, padded, tiles, heads, sequences,
                        D, STAGES, CAUSAL, PARTS,
                    ),
                ),
                (
                    compute_queries,
                    (
                        1, q, k, v, d, kept, full, empty, numbers, query_gradient,
                        query_gradient_batch, query_gradient_step, query_gradient_head,
                        queries, keys, first_position, score_scale, scale, padded, tiles, heads, sequences,
                        D, STAGES, CAUSAL, PARTS,
                    ),
                ),
                (
                    compute_queries,
                    (
                        2, q, k, v, d, kept, full, empty, numbers, query_gradient,
                        query_gradient_batch, query_gradient_step, query_gradient_head,
                        queries, keys, first_position, score_scale, scale, padded, tiles, heads, sequences,
                        D, STAGES, CAUSAL, PARTS,
                    ),
                ),
                (
                    copy_keys,
                    (
                        query_map, key_map, value_map, slope_map, q, k, v, d, kept, full, empty,
                        queries, keys, first_position, tiles, heads, sequences, GROUP, STAGES, CAUSAL, PARTS,
                    ),
                ),
            ],
            [4, 4, 1],
            [160, 160, 24],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (
                    compute_queries,
                    (
                        0, q, k, v, d, kept, full, empty, numbers, query_gradient,
                        query_gradient_batch, query_gradient_step, query_gradient_head,
                        queries, keys, first_position, score_scale, scale, padded, tiles, heads, sequences,
                        D, STAGES, CAUSAL, PARTS,
                    ),
                ),
                (
                    compute_queries,
                    (
                        1, q, k, v, d, kept, full, empty, numbers, query_gradient,
                        query_gradient_batch, query_gradient_step, query_gradient_head,
                        queries, keys, first_position, score_scale, scale, padded, tiles, heads, sequences,
                        D, STAGES, CAUSAL, PARTS,
                    ),
                ),
                (
                    copy_keys,
                    (
                        query_map, key_map, value_map, slope_map, q, k, v, d, kept, full, empty,
                        queries, keys, first_position, tiles, heads, sequences, GROUP, STAGES, CAUSAL, PARTS,
                    ),
                ),
            ],
            [4, 1],
            [240, 24],
        )  # fmt: skip
