"""The states of chunks of keys for some rows: their scores, their merges, and where they or their outputs are stored.

A state has a maximum and a denominator for each row, and an output, which has one or more parts.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call,attr-defined,assignment,misc,var-annotated"
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from bitwise_nvidia_sm90.attention.kernels.specialised import finished, merged, visible_scores

NOTHING = gl.constexpr(float("-inf"))


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
def lanes_of(side: gl.constexpr, DV1: gl.constexpr, DV2: gl.constexpr, OUT: gl.constexpr):
    """Return the components of a row that the first part of an output has, or one of the others."""
    if side == 0:
        found = gl.arange(0, DV1, gl.SliceLayout(0, OUT))
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
    part_top, part_total, part_out, first_row, chunks, first_packed, queries = states
    inside = (first_packed + gl.arange(0, M, ROWS)) // GROUP < queries
    row = (first_row + gl.arange(0, M, ROWS)) * chunks + chunk
    gl.store(
        part_top + row, gl.convert_layout(top, ROWS, assert_trivial=True), mask=inside, eviction_policy="evict_last"
    )
    total = gl.convert_layout(total, ROWS, assert_trivial=True)
    gl.store(part_total + row, total, mask=inside, eviction_policy="evict_last")
    for side in gl.static_range(len(outs)):
        target = part_out + gl.expand_dims(row, 1) * VP + lanes_of(side, DV1, DV2, OUT)
        gl.store(target, outs[side], mask=gl.expand_dims(inside, 1), eviction_policy="evict_last")


@gluon.jit
def after_chunk(
    start, begin, state_top, state_total, state_outs, top, total, outs, CHUNK: gl.constexpr, SEVERAL: gl.constexpr
):
    """Return the states of the chunks so far and of the chunk of block `start`, which may end the one before it."""
    if SEVERAL and (start % CHUNK == 0) & (start > begin):
        state_top, state_total, state_outs = merged_parts(state_top, state_total, state_outs, top, total, outs)
        top = gl.full(top.shape, NOTHING, gl.float32, top.type.layout)
        total = gl.full(total.shape, 0.0, gl.float32, total.type.layout)
        outs = zeros_of(outs)
    return state_top, state_total, state_outs, top, total, outs


@gluon.jit
def store_output(
    output, logarithms, query_starts, sinks, sequence, group, packed, inside, state_top, state_total,
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
        lane = lanes_of(side, DV1, DV2, OUT)
        all_out, logarithm = finished(all_top, all_total, all_outs[side])
        gl.store(target + lane, all_out.to(output.dtype.element_ty), mask=gl.expand_dims(inside, 1))
        if LOGARITHMS and side == 0:
            place_of_row = logarithms + own_batch * logarithm_batch + heads.to(gl.int64) * logarithm_head
            gl.store(place_of_row + at * logarithm_step, logarithm, mask=inside)
