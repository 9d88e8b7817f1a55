"""The Gluon kernel that merges the states of chunks of keys from the first to the last."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, attr-defined"
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from bitwise_nvidia_sm90.attention import tree

NOTHING = gl.constexpr(float("-inf"))
DESCENT = gl.constexpr(tree.DESCENT)


@gluon.jit
def finite_shift(highest):
    """Return what is subtracted in exponents; see `chunks.finite_shift`."""
    return gl.maximum(highest, -3.4028234663852886e38)


@gluon.jit
def maximum_after(top, greatest):
    """Return the maximum after a block; see `chunks.maximum_after`."""
    return gl.where(greatest == NOTHING, top, gl.maximum(top - DESCENT, greatest))


@gluon.jit
def horner(y, z, coefficient):
    """Return y z + coefficient, rounded once."""
    return gl.fma(y, z, gl.full(y.shape, coefficient, gl.float32, y.type.layout))


@gluon.jit
def natural_logarithm(x):
    """Return log(x); see `chunks.natural_logarithm`."""
    bits = x.to(gl.int32, bitcast=True)
    exponent = (bits - 0x3F3504F3) >> 23
    z = (bits - (exponent << 23)).to(gl.float32, bitcast=True) - 1.0
    y = horner(gl.full(x.shape, 7.0376836292e-2, gl.float32, x.type.layout), z, -1.1514610310e-1)
    y = horner(y, z, 1.1676998740e-1)
    y = horner(y, z, -1.2420140846e-1)
    y = horner(y, z, 1.4249322787e-1)
    y = horner(y, z, -1.6668057665e-1)
    y = horner(y, z, 2.0000714765e-1)
    y = horner(y, z, -2.4999993993e-1)
    y = horner(y, z, 3.3333331174e-1)
    square = z * z
    y = gl.fma(square, gl.full(x.shape, -0.5, gl.float32, x.type.layout), (y * z) * square)
    found = gl.fma(exponent.to(gl.float32), gl.full(x.shape, 0.6931471805599453, gl.float32, x.type.layout), z + y)
    return gl.where(x < float("inf"), found, x)


@gluon.jit
def greatest_before(left, before_left, right, before_right):
    """Return the greatest of both parts, and of all their members but the last."""
    return gl.maximum(left, right), gl.maximum(left, before_right)


@gluon.jit
def added(old, fresh, total, out, right_old, right_fresh, right_total, right_out):
    """Return the sums after one more chunk: what they were times `right_old`, and its own times `right_fresh`."""
    total = gl.fma(right_total, right_fresh, total * right_old)
    out = gl.fma(right_out, right_fresh, out * right_old)
    return right_old, right_fresh, total, out


@gluon.jit
def outputs(
    part_out, slot, group, behind, lane, GROUPED: gl.constexpr, DV: gl.constexpr, DVP: gl.constexpr, L: gl.constexpr
):
    """Return the outputs of GROUPED chunks of a row from `group` on; those from `behind` on are zeros."""
    place = gl.expand_dims(gl.arange(0, GROUPED, gl.SliceLayout(1, L)), 1)
    source = gl.expand_dims(part_out + (slot + group) * DVP + lane, 0) + place * DVP
    return gl.load(source, mask=(place < behind - group) & gl.expand_dims(lane < DV, 0), other=0.0)


@gluon.jit
def in_each_thread(numbers, group, outs, FACTORS: gl.constexpr, GROUPED: gl.constexpr, L: gl.constexpr):
    """Return the numbers of a group of chunks in shared memory, as a thread needs them for a component of all."""
    groups = numbers._reinterpret(gl.float32, [FACTORS // GROUPED, GROUPED], numbers.layout)
    found, _ = gl.broadcast(gl.expand_dims(groups.index(group).load(gl.SliceLayout(1, L)), 1), outs)
    return found


@gluon.jit(
    do_not_specialize=[
        "queries", "keys", "first_position", "window", "tiles", "chunks", "stored", "logarithm_batch",
        "logarithm_step", "logarithm_head",
    ]
)  # fmt: skip
def merge_parts(
    part_top, part_total, part_out, output, logarithms, query_starts, key_starts, key_lengths, first_keys, sinks,
    output_batch, output_step, output_head, logarithm_batch, logarithm_step, logarithm_head,
    queries, keys, first_position, output_scale, window, tiles, chunks, stored,
    DV: gl.constexpr, DVP: gl.constexpr, GROUP: gl.constexpr, M: gl.constexpr, N: gl.constexpr, CHUNK: gl.constexpr,
    CAUSAL: gl.constexpr, ALIGNED: gl.constexpr, WINDOW: gl.constexpr, LOGARITHMS: gl.constexpr, SINKS: gl.constexpr,
    SCALED: gl.constexpr, GROUPED: gl.constexpr, FACTORS: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """Merge the chunks of one packed row that were stored, for 32 components in each warp, from left to right.

    A thread has one component of all chunks of a group, and adds them in order, while the next two groups are loaded.
    The factors of FACTORS chunks are computed at a time, those of a chunk by one lane.
    """
    L: gl.constexpr = gl.BlockedLayout([GROUPED, 1], [1, 32], [1, WARPS], [1, 0])
    C: gl.constexpr = gl.BlockedLayout([FACTORS // 32 if FACTORS > 32 else 1], [32], [WARPS], [0])
    WIDTH: gl.constexpr = 32 * WARPS
    SHARED: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, order=[0])
    SLICES: gl.constexpr = DVP // WIDTH
    batch = gl.program_id(2)
    unit = gl.program_id(1)
    row = gl.program_id(0) // SLICES
    tile = row // M
    lane = gl.program_id(0) % SLICES * WIDTH + gl.arange(0, WIDTH, gl.SliceLayout(0, L))
    wide = batch.to(gl.int64)
    if query_starts is not None:
        start = gl.load(query_starts + batch)
        queries = gl.load(query_starts + batch + 1) - start
        output += start.to(gl.int64) * output_step
        if LOGARITHMS:
            logarithms += start.to(gl.int64) * logarithm_step
    else:
        output += wide * output_batch
        if LOGARITHMS:
            logarithms += wide * logarithm_batch
    if key_starts is not None:
        keys = gl.load(key_starts + batch + 1) - gl.load(key_starts + batch)
    if first_keys is not None:
        keys -= gl.load(first_keys + batch)
    if key_lengths is not None:
        keys = gl.load(key_lengths + batch)
    if ALIGNED:
        first_position = keys - queries
    at = row // GROUP
    head = unit * GROUP + row % GROUP
    begin, end = 0, keys
    if CAUSAL:
        high = gl.minimum((tile * M + M - 1) // GROUP, queries - 1)
        end = gl.minimum(end, high + first_position + 1)
    if at < queries:
        if WINDOW:
            begin = gl.maximum(0, tile * M // GROUP + first_position - window + 1) // N * N
        slot = (((wide * gl.num_programs(1) + unit) * tiles + tile) * stored + row % M) * chunks
        top = NOTHING
        total = gl.full([WIDTH], 0.0, gl.float32, gl.SliceLayout(0, L))
        out = gl.full([WIDTH], 0.0, gl.float32, gl.SliceLayout(0, L))
        first = begin // CHUNK
        gdc_wait()  # the kernel may start before the states are stored
        gdc_launch_dependents()
        old_numbers = gl.allocate_shared_memory(gl.float32, [FACTORS], SHARED)
        fresh_numbers = gl.allocate_shared_memory(gl.float32, [FACTORS], SHARED)
        total_numbers = gl.allocate_shared_memory(gl.float32, [FACTORS], SHARED)
        behind = (end + CHUNK - 1) // CHUNK
        outs = outputs(part_out, slot, first, behind, lane, GROUPED, DV, DVP, L)
        next_outs = outputs(part_out, slot, first + GROUPED, behind, lane, GROUPED, DV, DVP, L)
        place = gl.expand_dims(gl.arange(0, GROUPED, gl.SliceLayout(1, L)), 1)
        for several in range(first, behind, FACTORS):
            chunk = several + gl.arange(0, FACTORS, C)
            source = slot + chunk
            tops = gl.load(part_top + source, mask=chunk < behind, other=NOTHING)
            total_numbers.store(gl.load(part_total + source, mask=chunk < behind, other=0.0))
            none = gl.full(tops.shape, NOTHING, gl.float32, C)
            highest, before = gl.associative_scan((tops, none), 0, greatest_before)
            shift = finite_shift(gl.maximum(highest, top))
            old_numbers.store(gl.exp2(gl.maximum(before, top) - shift))
            fresh_numbers.store(gl.exp2(tops - shift))
            for group in range(several, gl.minimum(behind, several + FACTORS), GROUPED):
                later_outs = outputs(part_out, slot, group + 2 * GROUPED, behind, lane, GROUPED, DV, DVP, L)
                old = in_each_thread(old_numbers, (group - several) // GROUPED, outs, FACTORS, GROUPED, L)
                fresh = in_each_thread(fresh_numbers, (group - several) // GROUPED, outs, FACTORS, GROUPED, L)
                totals = in_each_thread(total_numbers, (group - several) // GROUPED, outs, FACTORS, GROUPED, L)
                totals = gl.where(place == 0, gl.fma(totals, fresh, old * gl.expand_dims(total, 0)), totals)
                outs = gl.where(place == 0, gl.fma(outs, fresh, old * gl.expand_dims(out, 0)), outs)
                _, _, total, out = gl.reduce((old, fresh, totals, outs), 0, added)
                outs, next_outs = next_outs, later_outs
            top = gl.maximum(top, gl.max(tops, axis=0))
        top = gl.full([WIDTH], 0.0, gl.float32, gl.SliceLayout(0, L)) + top
        one = gl.full([WIDTH], 1.0, gl.float32, top.type.layout)
        if SINKS:
            sink = gl.full([WIDTH], 0.0, gl.float32, top.type.layout)
            sink += gl.load(sinks + head).to(gl.float32) * 1.4426950408889634
            highest = gl.maximum(top, sink)
            shift = finite_shift(highest)
            old, fresh = gl.exp2(top - shift), gl.exp2(sink - shift)
            total = gl.fma(one, fresh, total * old)
            out = gl.fma(gl.full([WIDTH], 0.0, gl.float32, top.type.layout), fresh, out * old)
            top = highest
        inverse = gl.div_rn(one, gl.maximum(total, 1.1754943508222875e-38))
        out = (out + 0.0) * inverse
        if SCALED:
            out = out * output_scale
        target = output + at.to(gl.int64) * output_step + head.to(gl.int64) * output_head
        gl.store(target + lane, out.to(output.dtype.element_ty), mask=lane < DV)
        if LOGARITHMS:
            found = gl.fma(
                top, gl.full([WIDTH], 0.6931471805599453, gl.float32, top.type.layout), natural_logarithm(total)
            )
            target = logarithms + at.to(gl.int64) * logarithm_step + head.to(gl.int64) * logarithm_head
            gl.store(target + lane, gl.where(total == 0.0, NOTHING, found), mask=lane == 0)
