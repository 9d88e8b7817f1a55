"""The Gluon kernel that merges the states of chunks of many rows: a program has several rows, and takes few chunks."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, attr-defined, assignment"
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from bitwise_nvidia_sm90.attention.kernels.specialised import finished, merged
from bitwise_nvidia_sm90.attention.kernels.tiles_of_keys import lengths_of

NOTHING = gl.constexpr(float("-inf"))
LOADED = gl.constexpr(4)
"""The chunks of a row whose states are loaded at once."""


@gluon.constexpr_function
def layout_of_rows(width, warps):
    """Return the layout of rows of so many components, of which a thread has four that follow each other."""
    across = min(32, width // 4)
    return gl.BlockedLayout([1, 4], [32 // across, across], [warps, 1], [1, 0])


@gluon.jit
def state_of(part_top, part_total, part_out, slot, chunk, real, lane, DV: gl.constexpr, DVP: gl.constexpr):
    """Return the state of a chunk of each row; nothing for rows that are not `real`."""
    top = gl.load(part_top + slot + chunk, mask=real, other=NOTHING)
    total = gl.load(part_total + slot + chunk, mask=real, other=0.0)
    place = gl.expand_dims((slot + chunk) * DVP, 1) + lane
    return top, total, gl.load(part_out + place, mask=gl.expand_dims(real, 1) & (lane < DV), other=0.0)


@gluon.jit(
    do_not_specialize=[
        "queries", "keys", "first_position", "window", "tiles", "groups", "chunks", "sequences", "stored",
        "logarithm_batch", "logarithm_step", "logarithm_head",
    ]
)  # fmt: skip
def merge_rows(
    part_top, part_total, part_out, output, logarithms, query_starts, key_starts, key_lengths, sinks,
    output_batch, output_step, output_head, logarithm_batch, logarithm_step, logarithm_head,
    queries, keys, first_position, window, tiles, groups, chunks, sequences, stored,
    DV: gl.constexpr, DVP: gl.constexpr, GROUP: gl.constexpr, M: gl.constexpr, N: gl.constexpr, CHUNK: gl.constexpr,
    CAUSAL: gl.constexpr, ALIGNED: gl.constexpr, WINDOW: gl.constexpr, LOGARITHMS: gl.constexpr, ROWS: gl.constexpr,
):  # fmt: skip
    """Merge the chunks of ROWS packed rows that were stored, from left to right; see `merges.merge_parts`."""
    L: gl.constexpr = layout_of_rows(DVP, gl.num_warps())
    ALL: gl.constexpr = gl.SliceLayout(1, L)
    each = queries * GROUP
    place = gl.program_id(0) * ROWS + gl.arange(0, ROWS, ALL)
    sequence, group, row = place // (groups * each), place // each % groups, place % each
    own_queries, own_keys, own_first = lengths_of(
        sequence, query_starts, key_starts, key_lengths, queries, keys, first_position, sequences, ALIGNED
    )
    at, head, tile = row // GROUP, group * GROUP + row % GROUP, row // M
    inside = (sequence < sequences) & (at < own_queries)
    begin, end = row * 0, row * 0 + own_keys
    if CAUSAL:
        end = gl.minimum(end, gl.minimum((tile * M + M - 1) // GROUP, own_queries - 1) + own_first + 1)
    if WINDOW:
        begin = gl.maximum(begin, tile * M // GROUP + own_first - window + 1) // N * N
    first, behind = begin // CHUNK, gl.where(inside, (end + CHUNK - 1) // CHUNK, 0)
    slot = ((((sequence * groups + group) * tiles + tile) * stored + row % M).to(gl.int64)) * chunks
    lane = gl.expand_dims(gl.arange(0, DVP, gl.SliceLayout(0, L)), 0)
    top, total = gl.full([ROWS], NOTHING, gl.float32, ALL), gl.zeros([ROWS], gl.float32, ALL)
    out = gl.zeros([ROWS, DVP], gl.float32, L)
    lowest, highest = gl.min(gl.where(inside, first, chunks), axis=0), gl.max(behind, axis=0)
    gdc_wait()  # the kernel may start before the states are stored
    gdc_launch_dependents()
    for several in range(lowest, highest, LOADED):
        loaded = ()
        for chunk in gl.static_range(LOADED):
            real = (several + chunk >= first) & (several + chunk < behind)
            loaded += (state_of(part_top, part_total, part_out, slot, several + chunk, real, lane, DV, DVP),)
        for chunk in gl.static_range(LOADED):
            real = (several + chunk >= first) & (several + chunk < behind)
            all_top, all_total, all_out = merged(top, total, out, loaded[chunk][0], loaded[chunk][1], loaded[chunk][2])
            top, total = gl.where(real, all_top, top), gl.where(real, all_total, total)
            of_rows, _ = gl.broadcast(gl.expand_dims(real, 1), out)
            out = gl.where(of_rows, all_out, out)
    if sinks is not None:
        sink = gl.load(sinks + head, mask=inside, other=0.0).to(gl.float32) * 1.4426950408889634
        one = gl.full([ROWS], 1.0, gl.float32, ALL)
        top, total, out = merged(top, total, out, sink, one, gl.zeros([ROWS, DVP], gl.float32, L))
    out, logarithm = finished(top, total, out)
    row_of_output, batch = at.to(gl.int64), sequence.to(gl.int64)
    if query_starts is not None:
        row_of_output += gl.load(query_starts + sequence, mask=inside, other=0)
        batch = batch * 0
    target = output + batch * output_batch + row_of_output * output_step + head.to(gl.int64) * output_head
    target = gl.expand_dims(target, 1) + lane
    gl.store(target, out.to(output.dtype.element_ty), mask=gl.expand_dims(inside, 1) & (lane < DV))
    if LOGARITHMS:
        target = logarithms + batch * logarithm_batch + row_of_output * logarithm_step
        gl.store(target + head.to(gl.int64) * logarithm_head, logarithm, mask=inside)
