"""The Triton kernels of attention: forward in one program for a tile of rows, or one for each chunk of keys, and merge.

All compute the tree of `tree.attention_descriptor`: chunks of keys at absolute boundaries, each an online softmax over
blocks of keys, merged from left to right.  Masked keys change no bit of a state, except the sign of a zero, which the
addition of +0 at the end removes.  So the blocks that a tile of rows visits do not matter.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, attr-defined"
from __future__ import annotations

import triton
import triton.language as tl

from bitwise_nvidia_sm90.attention import tree

NOTHING = tl.constexpr(float("-inf"))
DESCENT = tl.constexpr(tree.DESCENT)


@triton.jit
def finite_shift(highest):
    """Return what is subtracted in exponents: the maximum, or the least finite number where no key has a score yet."""
    return tl.maximum(highest, -3.4028234663852886e38)


@triton.jit
def maximum_after(top, greatest):
    """Return the maximum after a block with this greatest score; a block without one keeps it."""
    return tl.where(greatest == NOTHING, top, tl.maximum(top - DESCENT, greatest))


@triton.jit
def merged(top, total, out, top_part, total_part, out_part):
    """Return the state (maximum, denominator, output) after the merge of a chunk."""
    highest = tl.maximum(top, top_part)
    shift = finite_shift(highest)
    old = tl.math.exp2(top - shift)
    fresh = tl.math.exp2(top_part - shift)
    total = tl.fma(total_part, fresh, total * old)
    out = tl.fma(out_part, tl.broadcast_to(tl.expand_dims(fresh, -1), out.shape), out * tl.expand_dims(old, -1))
    return highest, total, out


@triton.jit
def horner(y, z, coefficient):
    """Return y z + coefficient, rounded once."""
    return tl.fma(y, z, tl.full(y.shape, coefficient, tl.float32))


@triton.jit
def natural_logarithm(x):
    """Return log(x) of a positive normal number, +infinity or a NaN, in operations of IEEE 754 alone."""
    bits = x.to(tl.int32, bitcast=True)
    exponent = (bits - 0x3F3504F3) >> 23
    z = (bits - (exponent << 23)).to(tl.float32, bitcast=True) - 1.0
    y = horner(tl.full(x.shape, 7.0376836292e-2, tl.float32), z, -1.1514610310e-1)
    y = horner(y, z, 1.1676998740e-1)
    y = horner(y, z, -1.2420140846e-1)
    y = horner(y, z, 1.4249322787e-1)
    y = horner(y, z, -1.6668057665e-1)
    y = horner(y, z, 2.0000714765e-1)
    y = horner(y, z, -2.4999993993e-1)
    y = horner(y, z, 3.3333331174e-1)
    square = z * z
    y = tl.fma(square, tl.full(x.shape, -0.5, tl.float32), (y * z) * square)
    found = tl.fma(exponent.to(tl.float32), tl.full(x.shape, 0.6931471805599453, tl.float32), z + y)
    return tl.where(x < float("inf"), found, x)


@triton.jit
def finished(top, total, out):
    """Return the normalised output, and the natural logarithm of the sum of the exponentials of the scores."""
    inverse = tl.div_rn(1.0, tl.maximum(total, 1.1754943508222875e-38))
    out = (out + 0.0) * tl.expand_dims(inverse, -1)
    logarithm = tl.fma(top, tl.full(top.shape, 0.6931471805599453, tl.float32), natural_logarithm(total))
    return out, tl.where(total == 0.0, NOTHING, logarithm)


@triton.jit
def tile_of_keys(
    key, value, pages, start, length, key_step, value_step, key_page, value_page,
    N: tl.constexpr, D1: tl.constexpr, D2: tl.constexpr, DV: tl.constexpr, DVP: tl.constexpr, PAGE: tl.constexpr,
    TAIL: tl.constexpr,
):  # fmt: skip
    """Return N keys, the rest of their components, and N values from key `start` on; zeros beyond the last."""
    place = start + tl.arange(0, N)
    if PAGE:
        if TAIL:
            page = tl.load(pages + place // PAGE, mask=place < length, other=0).to(tl.int64)
        else:
            page = tl.load(pages + place // PAGE).to(tl.int64)
        keys = key + (page * key_page + (place % PAGE) * key_step)[:, None]
        values = value + (page * value_page + (place % PAGE) * value_step)[:, None]
    else:
        keys = key + (place.to(tl.int64) * key_step)[:, None]
        values = value + (place.to(tl.int64) * value_step)[:, None]
    inside = (place < length)[:, None]
    lane = tl.arange(0, DVP)[None, :]
    if TAIL:
        k1 = tl.load(keys + tl.arange(0, D1)[None, :], mask=inside, other=0.0)
        k2 = k1
        if D2:
            k2 = tl.load(keys + D1 + tl.arange(0, D2)[None, :], mask=inside, other=0.0)
        v = tl.load(values + lane, mask=inside & (lane < DV), other=0.0)
    else:
        k1 = tl.load(keys + tl.arange(0, D1)[None, :])
        k2 = k1
        if D2:
            k2 = tl.load(keys + D1 + tl.arange(0, D2)[None, :])
        v = tl.load(values + lane) if DV == DVP else tl.load(values + lane, mask=lane < DV, other=0.0)
    return k1, k2, v


@triton.jit
def store_part(
    part_top, part_total, part_out, slot, chunks, inside, top, total, out, DVP: tl.constexpr, M: tl.constexpr
):
    """Store the state of one chunk, whose first row has the place `slot`: maxima, denominators, outputs where `inside`.

    The `chunks` of a row follow each other.
    """
    row = slot.to(tl.int64) + tl.arange(0, M).to(tl.int64) * chunks
    # The states are read soon, and the keys that pass through the cache meanwhile are not.
    tl.store(part_top + row, top, mask=inside, eviction_policy="evict_last")
    tl.store(part_total + row, total, mask=inside, eviction_policy="evict_last")
    lane = tl.arange(0, DVP)[None, :]
    tl.store(part_out + row[:, None] * DVP + lane, out, mask=inside[:, None], eviction_policy="evict_last")


@triton.jit
def tile_of_maps(
    key_map, rest_map, value_map, sequence, head, row,
    N: tl.constexpr, D1: tl.constexpr, D2: tl.constexpr, DVP: tl.constexpr,
):  # fmt: skip
    """Return N keys, the rest of their components, and N values from row `row` on, through tensor maps."""
    k1 = key_map.load([sequence, head, row, 0]).reshape(N, D1)
    k2 = k1
    if D2:
        k2 = rest_map.load([sequence, head, row, D1]).reshape(N, D2)
    return k1, k2, value_map.load([sequence, head, row, 0]).reshape(N, DVP)


@triton.jit
def visit(
    first, last, key_map, rest_map, value_map, sequence, kv_head, row_of_keys, q1, q2, state_top, state_total,
    state_out, top, total, out, key, value, pages, positions, length, key_step, value_step, key_page, value_page,
    scale, cap_factor, window, seen_rows, part_top, part_total, part_out, slot, chunks, begin, inside,
    N: tl.constexpr, CHUNK: tl.constexpr, D1: tl.constexpr, D2: tl.constexpr, DV: tl.constexpr, DVP: tl.constexpr,
    PAGE: tl.constexpr, MASK: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, CAP: tl.constexpr,
    SPLIT: tl.constexpr, SPANS: tl.constexpr, M: tl.constexpr,
):  # fmt: skip
    """Visit the blocks of keys from `first` to `last`, multiples of N, and return both states.

    A chunk is merged, or stored with SPLIT, when the first block of the next one is visited; `begin` is the first block
    of the program.  With tensor maps, they load the blocks.
    """
    for start in range(first, last, N):
        if key_map is not None:
            k1, k2, v = tile_of_maps(
                key_map, rest_map, value_map, sequence, kv_head, row_of_keys + start, N, D1, D2, DVP
            )
        else:
            k1, k2, v = tile_of_keys(
                key, value, pages, start, length, key_step, value_step, key_page, value_page, N, D1, D2, DV, DVP, PAGE,
                MASK,
            )  # fmt: skip
        k1, k2, v = k1.to(q1.dtype), k2.to(q1.dtype), v.to(q1.dtype)  # exact, where they are stored in another type
        scores = tl.dot(q1, tl.trans(k1))
        if D2:
            scores = tl.dot(q2, tl.trans(k2), scores)
        if CAP:
            scores = 1.0 - 2.0 / (tl.math.exp2(scores * cap_factor) + 1.0)
        if MASK:
            place = start + tl.arange(0, N)
            seen = (place < length)[None, :]
            if CAUSAL:
                seen = seen & (place[None, :] <= positions[:, None])
            if WINDOW:
                seen = seen & (place[None, :] > positions[:, None] - window)
            if seen_rows is not None:
                # Words, since a tile of bytes would move the scores to its layout, and the order of their sum.
                word = tl.expand_dims(tl.load(seen_rows + start // 64), 1)
                lane = tl.arange(0, N)[None, :]
                if N == 128:
                    word = tl.where(lane < 64, word, tl.expand_dims(tl.load(seen_rows + start // 64 + 1), 1))
                seen = seen & ((word >> (lane % 64).to(tl.int64)) & 1 != 0)
            scores = tl.where(seen, scores, NOTHING)
        if start % CHUNK == 0:
            if SPLIT:
                if SPANS and start > begin:
                    past = slot + start // CHUNK - 1
                    store_part(part_top, part_total, part_out, past, chunks, inside, top, total, out, DVP, M)
            else:
                state_top, state_total, state_out = merged(state_top, state_total, state_out, top, total, out)
            top = tl.full(top.shape, NOTHING, tl.float32)
            total = tl.zeros(total.shape, tl.float32)
            out = tl.zeros(out.shape, tl.float32)
        highest = maximum_after(top, tl.max(scores, axis=1) * scale)
        shift = finite_shift(highest)
        factor = tl.full(scores.shape, scale, tl.float32)
        weights = tl.math.exp2(tl.fma(scores, factor, tl.broadcast_to(-shift[:, None], scores.shape)))
        shrink = tl.math.exp2(top - shift)
        total = tl.fma(total, shrink, tl.sum(weights, axis=1))
        out = tl.dot(weights.to(v.dtype), v, out * shrink[:, None])
        top = highest
    return state_top, state_total, state_out, top, total, out


@triton.jit(
    do_not_specialize=[
        "queries", "keys", "first_position", "window", "tiles", "chunks", "span", "stored", "logarithm_batch",
        "logarithm_step", "logarithm_head", "page_batch", "visible_batch", "visible_head", "visible_step",
    ]
)  # fmt: skip
def forward(
    query, key, value, output, logarithms, part_top, part_total, part_out,
    query_starts, key_starts, key_lengths, first_keys, pages, sinks, visible, key_map, rest_map, value_map,
    query_batch, query_step, query_head, key_batch, key_step, key_head, value_batch, value_step, value_head,
    output_batch, output_step, output_head, logarithm_batch, logarithm_step, logarithm_head,
    key_page, value_page, page_batch, visible_batch, visible_head, visible_step,
    queries, keys, first_position, scale, cap_factor, output_scale, window, tiles, chunks, span, stored,
    D: tl.constexpr, D1: tl.constexpr, D2: tl.constexpr, DV: tl.constexpr, DVP: tl.constexpr, GROUP: tl.constexpr,
    PACK: tl.constexpr, M: tl.constexpr, N: tl.constexpr, CHUNK: tl.constexpr, PAGE: tl.constexpr,
    CAUSAL: tl.constexpr, ALIGNED: tl.constexpr, WINDOW: tl.constexpr, CAP: tl.constexpr, SPLIT: tl.constexpr,
    SPANS: tl.constexpr, LOGARITHMS: tl.constexpr, SINKS: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    """Compute M rows of the output of one sequence: rows of one query head, or with PACK of a group's heads in turn.

    With SPLIT a program visits `span` chunks of keys and stores their states, of `stored` rows each, else it visits all
    and merges them.
    The position of query 0 among the keys is the number of keys less that of queries with ALIGNED, else
    `first_position`.  `visible` has the words of `masks.words_of_rows` for each row.
    """
    batch = tl.program_id(2)
    if SPLIT:
        chunk = tl.program_id(0) * span
        tile = tl.program_id(1) % tiles
        unit = tl.program_id(1) // tiles
    else:
        chunk = 0
        tile = tiles - 1 - tl.program_id(0)  # the longest rows of a causal mask first
        unit = tl.program_id(1)
    wide = batch.to(tl.int64)
    # Maps cover all sequences of one axis, or a dense batch, beyond whose keys they give zeros.
    sequence, row_of_keys = batch, 0
    edge_key_map, edge_rest_map, edge_value_map = key_map, rest_map, value_map
    if key_starts is not None or key_lengths is not None:
        edge_key_map, edge_rest_map, edge_value_map = None, None, None
    if query_starts is not None:
        start = tl.load(query_starts + batch)
        queries = tl.load(query_starts + batch + 1) - start
        query += start.to(tl.int64) * query_step
        output += start.to(tl.int64) * output_step
        if LOGARITHMS:
            logarithms += start.to(tl.int64) * logarithm_step
    else:
        query += wide * query_batch
        output += wide * output_batch
        if LOGARITHMS:
            logarithms += wide * logarithm_batch
    if key_starts is not None:
        start = tl.load(key_starts + batch)
        keys = tl.load(key_starts + batch + 1) - start
        sequence, row_of_keys = 0, start
        key += start.to(tl.int64) * key_step
        value += start.to(tl.int64) * value_step
    else:
        key += wide * key_batch
        value += wide * value_batch
    if first_keys is not None:
        row_of_keys = tl.load(first_keys + batch)
        keys -= row_of_keys
        key += row_of_keys.to(tl.int64) * key_step
        value += row_of_keys.to(tl.int64) * value_step
    if key_lengths is not None:
        keys = tl.load(key_lengths + batch)
    if PAGE:
        pages += wide * page_batch
    if ALIGNED:
        first_position = keys - queries
    row = tile * M + tl.arange(0, M)
    if PACK:
        kv_head = unit
        at = row // GROUP
        head = unit * GROUP + row % GROUP
        low, high = tile * M // GROUP, (tile * M + M - 1) // GROUP
    else:
        kv_head = unit // GROUP
        at = row
        head = unit + row * 0
        low, high = tile * M, tile * M + M - 1
    if low < queries:
        high = tl.minimum(high, queries - 1)
        positions = at + first_position
        begin, end = 0, keys
        plain_begin, plain_end = 0, keys // N * N
        if CAUSAL:
            end = tl.minimum(end, high + first_position + 1)
            plain_end = tl.minimum(plain_end, (low + first_position + 1) // N * N)
            plain_end = tl.where(low + first_position < 0, 0, plain_end)
        seen_rows = None
        if visible is not None:  # rows beyond the last read the last one's mask
            seen_rows = visible.to(tl.pointer_type(tl.int64)) + wide * visible_batch + head.to(tl.int64) * visible_head
            seen_rows += tl.minimum(at, queries - 1).to(tl.int64) * visible_step
            bounds = tl.load(seen_rows)
            seen_rows += 1
            plain_end = tl.minimum(plain_end, tl.min(bounds.to(tl.int32), axis=0) // N * N)
            if not SPLIT:  # the merge of parts visits them all
                end = tl.minimum(end, tl.max((bounds >> 32).to(tl.int32), axis=0))
        if WINDOW:
            begin = tl.maximum(0, low + first_position - window + 1) // N * N
            plain_begin = (tl.maximum(0, high + first_position - window + 1) + N - 1) // N * N
        if SPLIT:
            begin = tl.maximum(begin, chunk * CHUNK)
            end = tl.minimum(end, (chunk + span) * CHUNK)
            plain_begin = tl.maximum(plain_begin, chunk * CHUNK)
            plain_end = tl.minimum(plain_end, (chunk + span) * CHUNK)
        if (not SPLIT) or begin < end:
            if WINDOW:
                plain_begin = tl.minimum(plain_begin, tl.maximum(begin, (end + N - 1) // N * N))
            if WINDOW or SPLIT:
                plain_end = tl.maximum(plain_begin, plain_end)
            rows = (at < queries)[:, None]
            base = query + at.to(tl.int64) * query_step + head.to(tl.int64) * query_head
            q1 = tl.load(base[:, None] + tl.arange(0, D1)[None, :], mask=rows, other=0.0)
            q2 = q1
            if D2:
                q2 = tl.load(base[:, None] + D1 + tl.arange(0, D2)[None, :], mask=rows, other=0.0)
            key += kv_head.to(tl.int64) * key_head
            value += kv_head.to(tl.int64) * value_head
            inside = at < queries
            slot = (wide * tl.num_programs(1) + tl.program_id(1)) * stored * chunks
            state_top = tl.full((M,), NOTHING, tl.float32)
            state_total = tl.zeros((M,), tl.float32)
            state_out = tl.zeros((M, DVP), tl.float32)
            top, total, out = state_top, state_total, state_out
            if WINDOW:
                state_top, state_total, state_out, top, total, out = visit(
                    begin, plain_begin, edge_key_map, edge_rest_map, edge_value_map, sequence, kv_head, row_of_keys, q1,
                    q2, state_top, state_total, state_out, top, total, out, key, value, pages,
                    positions, keys, key_step, value_step, key_page, value_page, scale, cap_factor, window,
                    seen_rows, part_top, part_total, part_out, slot, chunks, begin, inside, N, CHUNK, D1, D2, DV, DVP,
                    PAGE, True, CAUSAL, WINDOW, CAP, SPLIT, SPANS, M,
                )  # fmt: skip
            state_top, state_total, state_out, top, total, out = visit(
                plain_begin, plain_end, key_map, rest_map, value_map, sequence, kv_head, row_of_keys, q1, q2,
                    state_top, state_total, state_out, top, total, out, key, value, pages,
                positions, keys, key_step, value_step, key_page, value_page, scale, cap_factor, window,
                seen_rows, part_top, part_total, part_out, slot, chunks, begin, inside, N, CHUNK, D1, D2, DV, DVP, PAGE,
                False, CAUSAL, WINDOW, CAP, SPLIT, SPANS, M,
            )  # fmt: skip
            state_top, state_total, state_out, top, total, out = visit(
                plain_end, end, edge_key_map, edge_rest_map, edge_value_map, sequence, kv_head, row_of_keys, q1, q2,
                    state_top, state_total, state_out, top, total, out, key, value, pages,
                positions, keys, key_step, value_step, key_page, value_page, scale, cap_factor, window,
                seen_rows, part_top, part_total, part_out, slot, chunks, begin, inside, N, CHUNK, D1, D2, DV, DVP, PAGE,
                True, CAUSAL, WINDOW, CAP, SPLIT, SPANS, M,
            )  # fmt: skip
            if SPLIT:
                past = slot + (end - 1) // CHUNK
                store_part(part_top, part_total, part_out, past, chunks, inside, top, total, out, DVP, M)
            else:
                top, total, out = merged(state_top, state_total, state_out, top, total, out)
                if SINKS:
                    sink = tl.load(sinks + head).to(tl.float32) * 1.4426950408889634
                    one, none = tl.full((M,), 1.0, tl.float32), tl.zeros((M, DVP), tl.float32)
                    top, total, out = merged(top, total, out, sink, one, none)
                out, logarithm = finished(top, total, out)
                if SCALED:
                    out = out * output_scale
                lane = tl.arange(0, DVP)[None, :]
                place = output + at.to(tl.int64) * output_step + head.to(tl.int64) * output_head
                tl.store(place[:, None] + lane, out.to(output.dtype.element_ty), mask=rows & (lane < DV))
                if LOGARITHMS:
                    place = logarithms + at.to(tl.int64) * logarithm_step + head.to(tl.int64) * logarithm_head
                    tl.store(place, logarithm, mask=at < queries)
