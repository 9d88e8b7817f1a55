"""The Triton kernels of the gradients of attention, without atomic additions.

One program has a tile of keys, or of queries, of one query head, and visits the others in order.  Every gradient is one
chain of steps of the matrix unit: over the queries of a head, or over the keys.  A step of masked elements changes no
bit, so neither the tiles nor the blocks that are visited matter.  Where several heads share keys, `sum_of_heads` adds
their gradients from the first to the last.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, attr-defined"
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def first_number(query_row, sequence):
    """Return where the numbers of a sequence begin: at a multiple of 4, as copies through tensor maps need."""
    return (query_row + 4 * sequence) // 4 * 4


@triton.jit(do_not_specialize=["rows", "heads", "padded"])
def row_numbers(
    output, slope, logarithms, numbers, query_starts, output_batch, output_step, output_head, slope_batch, slope_step,
    slope_head, rows, heads, padded, W: tl.constexpr, WP: tl.constexpr, M: tl.constexpr,
):  # fmt: skip
    """Store numbers of each row (2, batch, heads, padded): the sum of the products of its output and of the gradient.

    The second number is what is added to the exponents of its scores.  Both are 0 beyond the last row of a batch; with
    `query_starts` there is one batch, in which sequences begin at their `first_number`.  Logarithms are (batch, rows,
    heads), contiguous.
    """
    batch = tl.program_id(2).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * M + tl.arange(0, M)
    batches = tl.num_programs(2).to(tl.int64)
    last = padded
    if query_starts is not None:
        start = tl.load(query_starts + batch)
        rows = tl.load(query_starts + batch + 1) - start
        last = rows
        numbers += first_number(start, batch)
        output += start.to(tl.int64) * output_step
        slope += start.to(tl.int64) * slope_step
        logarithms += start.to(tl.int64) * heads
        batch, batches = batch * 0, batches * 0 + 1
    lane = tl.arange(0, WP)[None, :]
    inside = (row < rows)[:, None] & (lane < W)
    at = row.to(tl.int64)[:, None]
    left = tl.load(output + batch * output_batch + head * output_head + at * output_step + lane, mask=inside, other=0.0)
    right = tl.load(slope + batch * slope_batch + head * slope_head + at * slope_step + lane, mask=inside, other=0.0)
    found = tl.sum(left.to(tl.float32) * right.to(tl.float32), axis=1)
    logarithm = tl.load(logarithms + (batch * rows + row) * heads + head, mask=row < rows, other=0.0)
    place = numbers + (batch * heads + head) * padded + row
    tl.store(place, found, mask=row < last)
    shift = tl.where(row < rows, -(logarithm * 1.4426950408889634), 0.0)
    tl.store(place + batches * heads * padded, shift, mask=row < last)


@triton.jit
def bounds(query_starts, key_starts, batch, queries, keys, first_position, ALIGNED: tl.constexpr):
    """Return the first row of the queries and of the keys of a sequence, of the numbers of rows, and its lengths.

    The last one is query 0's position.
    """
    query_row, key_row, number_row = batch.to(tl.int64) * 0, batch.to(tl.int64) * 0, batch.to(tl.int64) * 0
    if query_starts is not None:
        query_row = tl.load(query_starts + batch).to(tl.int64)
        number_row = first_number(query_row, batch)
        queries = tl.load(query_starts + batch + 1) - query_row.to(tl.int32)
    if key_starts is not None:
        key_row = tl.load(key_starts + batch).to(tl.int64)
        keys = tl.load(key_starts + batch + 1) - key_row.to(tl.int32)
    if ALIGNED:
        first_position = keys - queries
    return query_row, key_row, number_row, queries, keys, first_position


@triton.jit
def visible(row, place, queries, keys, first_position, window, CAUSAL: tl.constexpr, WINDOW: tl.constexpr):
    """Return whether queries `row` see keys `place`; the shapes broadcast."""
    seen = (row < queries) & (place < keys)
    if CAUSAL:
        seen = seen & (place <= row + first_position)
    if WINDOW:
        seen = seen & (place > row + first_position - window)
    return seen


@triton.jit
def probabilities(scores, shifts, scale, seen):
    """Return the normalised probabilities of scores, of which `shifts` broadcasts to the shape."""
    factor = tl.full(scores.shape, scale, tl.float32)
    return tl.where(seen, tl.math.exp2(tl.fma(scores, factor, tl.broadcast_to(shifts, scores.shape))), 0.0)


@triton.jit(do_not_specialize=["queries", "keys", "first_position", "window", "number_part", "number_batch", "padded"])
def key_gradients(
    query, key, value, slope, numbers, key_gradient, value_gradient, query_starts, key_starts,
    query_batch, query_step, query_head, key_batch, key_step, key_head, value_batch, value_step, value_head,
    slope_batch, slope_step, slope_head, key_gradient_batch, key_gradient_step, key_gradient_head,
    value_gradient_batch, value_gradient_step, value_gradient_head,
    queries, keys, first_position, score_scale, scale, window, number_part, number_batch, padded,
    D: tl.constexpr, DP: tl.constexpr, W: tl.constexpr, WP: tl.constexpr, GROUP: tl.constexpr, M: tl.constexpr,
    N: tl.constexpr, CAUSAL: tl.constexpr, ALIGNED: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of N keys and values over the queries of one head; for GROUP heads they are not scaled.

    `numbers` are those of `row_numbers`; the second ones start at `number_part`, those of head h at h `padded`.
    """
    batch, head = tl.program_id(2), tl.program_id(1).to(tl.int64)
    kv_head = head // GROUP
    wide = batch.to(tl.int64)
    query_row, key_row, number_row, queries, keys, first_position = bounds(
        query_starts, key_starts, batch, queries, keys, first_position, ALIGNED
    )
    low = tl.program_id(0) * N
    if low < keys:
        place = low + tl.arange(0, N)
        depth, lane = tl.arange(0, DP)[None, :], tl.arange(0, WP)[None, :]
        inside = (place < keys)[:, None]
        at = (key_row + place)[:, None]
        k = tl.load(
            key + wide * key_batch + kv_head * key_head + at * key_step + depth,
            mask=inside & (depth < D), other=0.0,
        )  # fmt: skip
        v = tl.load(
            value + wide * value_batch + kv_head * value_head + at * value_step + lane,
            mask=inside & (lane < W), other=0.0,
        )  # fmt: skip
        of_keys, of_values = tl.zeros((N, DP), tl.float32), tl.zeros((N, WP), tl.float32)
        first, last = 0, queries
        if CAUSAL:
            first = tl.where(low > first_position, (low - first_position) // M * M, 0)
        if WINDOW:
            last = tl.minimum(last, low + N + window - 1 - first_position)
        queries_of = query + wide * query_batch + head * query_head + depth
        slopes_of = slope + wide * slope_batch + head * slope_head + lane
        numbers_of = numbers + wide * number_batch + head * padded + number_row
        for start in range(first, last, M):
            row = start + tl.arange(0, M)
            real = (row < queries)[:, None]
            at = (query_row + row)[:, None]
            q = tl.load(queries_of + at * query_step, mask=real & (depth < D), other=0.0)
            d = tl.load(slopes_of + at * slope_step, mask=real & (lane < W), other=0.0)
            shift = tl.load(numbers_of + number_part + row, mask=row < queries, other=0.0)
            less = tl.load(numbers_of + row, mask=row < queries, other=0.0)
            seen = visible(row[None, :], place[:, None], queries, keys, first_position, window, CAUSAL, WINDOW)
            p = probabilities(tl.dot(k, tl.trans(q)), shift[None, :], score_scale, seen)
            of_values = tl.dot(p.to(d.dtype), d, of_values)
            slopes = p * (tl.dot(v, tl.trans(d)) - less[None, :])
            slopes = tl.where(seen, slopes, 0.0)
            of_keys = tl.dot(slopes.to(q.dtype), q, of_keys)
        at = (key_row + place)[:, None]
        if GROUP == 1:
            of_keys, of_values = (of_keys + 0.0) * scale, of_values + 0.0
        target = key_gradient + wide * key_gradient_batch + head * key_gradient_head
        tl.store(
            target + at * key_gradient_step + depth, of_keys.to(key_gradient.dtype.element_ty),
            mask=inside & (depth < D),
        )  # fmt: skip
        target = value_gradient + wide * value_gradient_batch + head * value_gradient_head
        tl.store(
            target + at * value_gradient_step + lane, of_values.to(value_gradient.dtype.element_ty),
            mask=inside & (lane < W),
        )  # fmt: skip


@triton.jit(do_not_specialize=["rows"])
def sum_of_heads(
    key_parts, value_parts, key_gradient, value_gradient, key_batch, key_step, key_head, value_batch, value_step,
    value_head, rows, scale,
    D: tl.constexpr, DP: tl.constexpr, W: tl.constexpr, WP: tl.constexpr, GROUP: tl.constexpr, M: tl.constexpr,
):  # fmt: skip
    """Add the gradients (batch, rows, heads, width) of the heads of a group, and store M rows of keys and of values."""
    batch, group = tl.program_id(2).to(tl.int64), tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * M + tl.arange(0, M)
    real = (row < rows)[:, None]
    at = row.to(tl.int64)[:, None]
    first = ((batch * rows + at) * tl.num_programs(1) + group) * GROUP
    lane = tl.arange(0, DP)[None, :]
    found = added_heads(key_parts + first * D + lane, real & (lane < D), D, GROUP)
    target = key_gradient + batch * key_batch + group * key_head + at * key_step + lane
    tl.store(target, ((found + 0.0) * scale).to(key_gradient.dtype.element_ty), mask=real & (lane < D))
    lane = tl.arange(0, WP)[None, :]
    found = added_heads(value_parts + first * W + lane, real & (lane < W), W, GROUP)
    target = value_gradient + batch * value_batch + group * value_head + at * value_step + lane
    tl.store(target, (found + 0.0).to(value_gradient.dtype.element_ty), mask=real & (lane < W))


@triton.jit
def added_heads(source, inside, WIDTH: tl.constexpr, GROUP: tl.constexpr):
    """Return the sum of the rows of WIDTH components of the heads of a group, from the first to the last."""
    found = tl.load(source, mask=inside, other=0.0)
    for share in range(1, GROUP):
        found += tl.load(source + share * WIDTH, mask=inside, other=0.0)
    return found


@triton.jit(do_not_specialize=["queries", "keys", "first_position", "window", "number_part", "number_batch", "padded"])
def query_gradients(
    query, key, value, slope, numbers, query_gradient, query_starts, key_starts,
    query_batch, query_step, query_head, key_batch, key_step, key_head, value_batch, value_step, value_head,
    slope_batch, slope_step, slope_head, query_gradient_batch, query_gradient_step, query_gradient_head,
    queries, keys, first_position, score_scale, scale, window, number_part, number_batch, padded,
    D: tl.constexpr, DP: tl.constexpr, W: tl.constexpr, WP: tl.constexpr, GROUP: tl.constexpr, M: tl.constexpr,
    N: tl.constexpr, CAUSAL: tl.constexpr, ALIGNED: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of M queries of one head, over the keys; see `key_gradients`."""
    batch, head = tl.program_id(2), tl.program_id(1)
    wide, kv_head = batch.to(tl.int64), (head // GROUP).to(tl.int64)
    query_row, key_row, number_row, queries, keys, first_position = bounds(
        query_starts, key_starts, batch, queries, keys, first_position, ALIGNED
    )
    low = tl.program_id(0) * M
    if low < queries:
        row = low + tl.arange(0, M)
        depth, lane = tl.arange(0, DP)[None, :], tl.arange(0, WP)[None, :]
        real = (row < queries)[:, None]
        at = (query_row + row)[:, None]
        q = tl.load(
            query + wide * query_batch + head.to(tl.int64) * query_head + at * query_step + depth,
            mask=real & (depth < D), other=0.0,
        )  # fmt: skip
        d = tl.load(
            slope + wide * slope_batch + head.to(tl.int64) * slope_head + at * slope_step + lane,
            mask=real & (lane < W), other=0.0,
        )  # fmt: skip
        numbers_of = numbers + wide * number_batch + head.to(tl.int64) * padded + number_row
        shift = tl.load(numbers_of + number_part + row, mask=row < queries, other=0.0)
        less = tl.load(numbers_of + row, mask=row < queries, other=0.0)
        found = tl.zeros((M, DP), tl.float32)
        first, last = 0, keys
        if CAUSAL:
            last = tl.minimum(last, tl.minimum(low + M, queries) + first_position)
        if WINDOW:
            first = tl.where(low + first_position >= window, (low + first_position - window + 1) // N * N, 0)
        keys_of = key + wide * key_batch + kv_head * key_head + depth
        values_of = value + wide * value_batch + kv_head * value_head + lane
        for start in range(first, last, N):
            place = start + tl.arange(0, N)
            inside = (place < keys)[:, None]
            at = (key_row + place)[:, None]
            k = tl.load(keys_of + at * key_step, mask=inside & (depth < D), other=0.0)
            v = tl.load(values_of + at * value_step, mask=inside & (lane < W), other=0.0)
            seen = visible(row[:, None], place[None, :], queries, keys, first_position, window, CAUSAL, WINDOW)
            p = probabilities(tl.dot(q, tl.trans(k)), shift[:, None], score_scale, seen)
            slopes = p * (tl.dot(d, tl.trans(v)) - less[:, None])
            slopes = tl.where(seen, slopes, 0.0)
            found = tl.dot(slopes.to(k.dtype), k, found)
        target = query_gradient + wide * query_gradient_batch + head.to(tl.int64) * query_gradient_head
        tl.store(
            target + (query_row + row)[:, None] * query_gradient_step + depth,
            ((found + 0.0) * scale).to(query_gradient.dtype.element_ty), mask=real & (depth < D),
        )  # fmt: skip
