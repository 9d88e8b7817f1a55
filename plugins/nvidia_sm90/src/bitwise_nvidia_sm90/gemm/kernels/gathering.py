"""PTX that gathers the operands of a product without tensor maps: for leading dimensions that no tensor map has.

All threads of a warpgroup load pairs of neighbours in memory, in 16 bits each or both at once, and write them to the
stage where a tensor map would, with its swizzle.  A warp loads a line at once: 64 values of k of one row, or 64 rows of
one k.  The values of k are in the order of `packed_operands`: groups of 16, each the values of one instruction and
zeros.  The loads of a stage are under way before it is empty.  Two warpgroups gather every second stage each.  Lines
that hold nothing but zeros are written once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from bitwise_nvidia_sm90.gemm.kernels.pipeline_text import Lines, next_stage, wait
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_tiles import (
    ROWS,
    STAGE_BYTES,
    WARPGROUP,
    Gathering,
    OperandTile,
    WarpgroupTiles,
)

LINE_PARAMETERS = ("line_a", "line_b")
"""The parameters of a kernel that gathers: the elements from one line of A, and of B, to the next."""
_WARPS = WARPGROUP // 32
_GROUP = 16
"""The values of k of a group."""
_PERIOD = 8
"""The lines after which a swizzle repeats."""
_VECTOR = 16
"""The bytes of the widest store."""
_BATCH = 32
"""The pairs that a thread loads before it stores them."""
_Pair: TypeAlias = tuple[str, int, int]
"""A pair of a thread: the operand, the chunk of its tile, and the number of the warp's line in the chunk."""


def gathering_producer(tiles: WarpgroupTiles, decoded: Iterator[str]) -> Lines:
    """Gather the stages of each job; `decoded` computes the place and the stages of a job."""
    given = tiles.gathering
    assert given is not None
    yield from _thread_places(tiles, given)
    yield "GATHER_JOB: setp.ge.u32 %p_done, %r_job, %r_jobs;"
    yield "@%p_done bra END;"
    yield from decoded
    yield from _first_iteration(given)
    yield from _places_of_job(tiles)
    yield "mov.u32 %r_stage_group, 0;"
    yield "GATHER_STAGE:"
    if given.warpgroups > 1:
        yield "xor.b32 %r_turn, %r_turn, 1;"
        yield "setp.ne.u32 %p_skips, %r_turn, 0;"
        yield "@%p_skips bra GATHERED;"
    yield from _places_of_stage(tiles, given)
    yield "xor.b32 %r_empty_parity, %r_parity, 1;"
    pairs = _pairs(tiles, given)
    for start in range(0, len(pairs), _BATCH):
        batch = pairs[start : start + _BATCH]
        for pair in batch:
            yield from _load(tiles, given, pair)
        if not start:
            yield from wait("WAIT_EMPTY", "%r_empty", "%r_empty_parity", "")
            yield from _stage_places(tiles)
        for pair in batch:
            yield from _store(tiles, given, pair)
    yield "fence.proxy.async.shared::cta;"
    yield "shl.b32 %r_at, %r_stage, 3;\nadd.u32 %r_at, %r_at, %r_full;"
    yield "mbarrier.arrive.shared::cta.b64 _, [%r_at];"
    yield "GATHERED:"
    yield from next_stage(tiles.stages)
    yield f"add.u32 %r_stage_group, %r_stage_group, {tiles.block_k // _GROUP};"
    yield "sub.u32 %r_remaining, %r_remaining, 1;"
    yield "setp.ne.u32 %p_more, %r_remaining, 0;"
    yield "@%p_more bra GATHER_STAGE;"
    yield "add.u32 %r_job, %r_job, %r_clusters;"
    yield "bra GATHER_JOB;"


def _operands(tiles: WarpgroupTiles) -> tuple[tuple[str, OperandTile, str, str], ...]:
    """Return for A and B: the name, the tile, the register of its first row of the operand, and that of all rows."""
    return ("A", tiles.a, "%r_row", "%r_M"), ("B", tiles.b, "%r_column", "%r_N")


def _pairs(tiles: WarpgroupTiles, given: Gathering) -> list[_Pair]:
    """Return the pairs of a thread in a stage; without those of `has_lines_of_zeros`."""
    return [
        (name, chunk, line)
        for name, tile, _, _ in _operands(tiles)
        for chunk in range(tile.chunks)
        for line in range(tile.lines // _WARPS if tile.k_major else given.taken)
    ]


def has_lines_of_zeros(tiles: WarpgroupTiles) -> bool:
    """Return whether the rows of one k are a line of an operand, and a group has a k that no instruction takes."""
    given = tiles.gathering
    return given is not None and given.taken < _GROUP and not (tiles.a.k_major and tiles.b.k_major)


def zeros(tiles: WarpgroupTiles) -> Lines:
    """Fill all stages with zeros, by all threads of the block."""
    left = tiles.stages * (tiles.a.bytes + tiles.b.bytes)
    yield f"mad.lo.u32 %r_zeros, %r_thread, {_VECTOR}, %r_shared;"
    yield "mov.b32 %r_zero, 0;"
    for place in range(0, left, _VECTOR * tiles.threads):
        guard = ""
        if left - place < _VECTOR * tiles.threads:
            yield f"setp.lt.u32 %p_zeros, %r_thread, {(left - place) // _VECTOR};"
            guard = "@%p_zeros "
        yield f"{guard}st.shared.v4.b32 [%r_zeros+{place}], {{%r_zero, %r_zero, %r_zero, %r_zero}};"
    yield "fence.proxy.async.shared::cta;"


def _thread_places(tiles: WarpgroupTiles, given: Gathering) -> Lines:
    """Compute what does not change between jobs: the warp, its place in a stage, and the steps between lines."""
    yield "shr.u32 %r_gatherer, %r_thread, 5;"
    yield f"and.b32 %r_gatherer, %r_gatherer, {_WARPS - 1};"
    yield "and.b32 %r_pair, %r_lane, 3;\nshl.b32 %r_pair, %r_pair, 2;"
    yield "shr.u32 %r_unit, %r_lane, 2;"
    # With contiguous k, the lines of a warp are every fourth row; otherwise they are 16 consecutive values of k.
    yield "xor.b32 %r_swizzled, %r_unit, %r_gatherer;\nshl.b32 %r_swizzled, %r_swizzled, 4;"
    yield f"mad.lo.u32 %r_place_even, %r_gatherer, {STAGE_BYTES}, %r_swizzled;"
    yield "add.u32 %r_place_even, %r_place_even, %r_pair;"
    yield f"xor.b32 %r_place_odd, %r_place_even, {_WARPS << 4};"
    yield f"add.u32 %r_place_odd, %r_place_odd, {_WARPS * STAGE_BYTES};"
    yield "shl.b32 %r_unit, %r_unit, 4;\nadd.u32 %r_unit, %r_unit, %r_pair;"
    yield f"mad.lo.u32 %r_place_k, %r_gatherer, {_GROUP * STAGE_BYTES}, %r_unit;"
    yield "shl.b32 %r_lane_pair, %r_lane, 1;"
    yield "shr.u32 %r_lane_group, %r_lane, 3;"
    yield "and.b32 %r_inside_group, %r_lane_pair, 15;"
    for name, tile, _, _ in _operands(tiles):
        yield f"ld.param.u64 %d_line_{name}, [line_{name.lower()}];"
        yield f"shl.b64 %d_step_{name}, %d_line_{name}, {3 if tile.k_major else 1};"
    if given.warpgroups > 1:  # 1 before the first stage of the first warpgroup
        yield f"setp.eq.u32 %p_skips, %r_group, {tiles.consumers};"
        yield "selp.u32 %r_turn, 1, 0, %p_skips;"


def _first_iteration(given: Gathering) -> Lines:
    """Compute the values of k of the short first iteration, its groups, and what moves the values after it."""
    if given.short_first:
        yield f"and.b32 %r_short, %r_length, {given.short_first - 1};"
        yield f"add.u32 %r_leading, %r_short, {given.taken - 1};"
        yield f"shr.u32 %r_leading, %r_leading, {given.taken.bit_length() - 1};"
        yield f"mul.lo.u32 %r_moved, %r_leading, {given.taken};"
        yield "sub.u32 %r_moved, %r_short, %r_moved;"


def _places_of_job(tiles: WarpgroupTiles) -> Lines:
    """Compute what does not change between the stages of a job: the lines of the thread, and how many rows are left."""
    for name, tile, place, count in _operands(tiles):
        own = "%r_gatherer" if tile.k_major else "%r_lane_pair"
        yield f"add.u32 %r_first_{name}, {place}, {own};"
        yield f"sub.u32 %r_left_{name}, {count}, %r_first_{name};"
        yield f"cvt.u64.u32 %d_first_{name}, %r_first_{name};"
        if tile.k_major:
            yield f"mul.lo.u64 %d_first_{name}, %d_first_{name}, %d_line_{name};"
        yield f"shl.b64 %d_first_{name}, %d_first_{name}, 1;"
        yield f"add.u64 %d_first_{name}, %d_first_{name}, %d_{name};"


def _sources(given: Gathering, group: str, name: str) -> Lines:
    """Compute %r_base, the k of the first value of a group in its slice, and %r_count, how many values it has."""
    yield f"mul.lo.u32 %r_base_{name}, {group}, {given.taken};"
    limit = "%r_length"
    if given.short_first:
        limit = f"%r_limit_{name}"
        yield f"setp.lt.u32 %p_leads, {group}, %r_leading;"
        yield f"selp.u32 %r_shift_{name}, 0, %r_moved, %p_leads;"
        yield f"add.u32 %r_base_{name}, %r_base_{name}, %r_shift_{name};"
        yield f"selp.u32 {limit}, %r_short, %r_length, %p_leads;"
    yield f"sub.s32 %r_count_{name}, {limit}, %r_base_{name};"
    yield f"min.s32 %r_count_{name}, %r_count_{name}, {given.taken};"
    yield f"add.u32 %r_base_{name}, %r_base_{name}, %r_k;"


def _places_of_stage(tiles: WarpgroupTiles, given: Gathering) -> Lines:
    """Compute the address of the thread's first pair of each operand, and which of its values of k exist."""
    layouts = {tile.k_major for _, tile, _, _ in _operands(tiles)}
    if True in layouts:
        yield "add.u32 %r_own_group, %r_stage_group, %r_lane_group;"
        yield from _sources(given, "%r_own_group", "lane")
        yield "sub.s32 %r_count_lane, %r_count_lane, %r_inside_group;"
        yield "setp.gt.s32 %p_low_k, %r_count_lane, 0;"
        yield "setp.gt.s32 %p_high_k, %r_count_lane, 1;"
        yield "add.u32 %r_base_lane, %r_base_lane, %r_inside_group;"
        yield "cvt.s64.s32 %d_base_lane, %r_base_lane;"
    if False in layouts:
        yield "add.u32 %r_own_group, %r_stage_group, %r_gatherer;"
        yield from _sources(given, "%r_own_group", "warp")
        yield "cvt.s64.s32 %d_base_warp, %r_base_warp;"
    for name, tile, _, _ in _operands(tiles):
        if tile.k_major:
            yield f"shl.b64 %d_at_{name}, %d_base_lane, 1;"
        else:
            yield f"mul.lo.s64 %d_at_{name}, %d_base_warp, %d_step_{name};"
        yield f"add.s64 %d_at_{name}, %d_at_{name}, %d_first_{name};"


def _tile(tiles: WarpgroupTiles, name: str) -> OperandTile:
    return tiles.a if name == "A" else tiles.b


def _load(tiles: WarpgroupTiles, given: Gathering, pair: _Pair) -> Lines:
    """Load the values of a pair that exist, zeros for the others.  The address goes on to the warp's next line."""
    name, chunk, line = pair
    tile = _tile(tiles, name)
    both = given.pairs[name == "B"]
    target = f"{name}_{chunk}_{line}"
    if tile.k_major:
        first = line * _WARPS
        yield f"setp.gt.and.s32 %p_low, %r_left_{name}, {first}, %p_low_k;"
        if not both:
            yield f"setp.gt.and.s32 %p_high, %r_left_{name}, {first}, %p_high_k;"
    else:
        if chunk and not line:
            yield f"sub.s64 %d_at_{name}, %d_at_{name}, %d_back_{name};"
        yield f"setp.gt.s32 %p_k, %r_count_warp, {line};"
        yield f"setp.gt.and.s32 %p_low, %r_left_{name}, {chunk * ROWS}, %p_k;"
        if not both:
            yield f"setp.gt.and.s32 %p_high, %r_left_{name}, {chunk * ROWS + 1}, %p_k;"
    offset = chunk * STAGE_BYTES
    if both:
        yield f"mov.b32 %r_pair_{target}, 0;"
        yield f"@%p_low ld.global.b32 %r_pair_{target}, [%d_at_{name}+{offset}];"
    else:
        yield f"mov.b16 %h_low_{target}, 0;\nmov.b16 %h_high_{target}, 0;"
        yield f"@%p_low ld.global.b16 %h_low_{target}, [%d_at_{name}+{offset}];"
        yield f"@%p_high ld.global.b16 %h_high_{target}, [%d_at_{name}+{offset + 2}];"
    if not tile.k_major and not line and chunk == 0 and tile.chunks > 1:
        yield f"shl.b64 %d_back_{name}, %d_step_{name}, {given.taken.bit_length() - 1};"
    yield f"add.s64 %d_at_{name}, %d_at_{name}, %d_step_{name};"


def _stage_places(tiles: WarpgroupTiles) -> Lines:
    """Compute the thread's places in the current stage."""
    for name, tile, _, _ in _operands(tiles):
        yield f"mad.lo.u32 %r_target, %r_stage, {tile.bytes}, %r_shared;"
        if name == "B":
            yield f"add.u32 %r_target, %r_target, {tiles.b_place};"
        for place in ("even", "odd") if tile.k_major else ("k",):
            yield f"add.u32 %r_to_{name}_{place}, %r_target, %r_place_{place};"


def _store(tiles: WarpgroupTiles, given: Gathering, pair: _Pair) -> Lines:
    """Write a pair to the current stage."""
    name, chunk, line = pair
    tile = _tile(tiles, name)
    target = f"{name}_{chunk}_{line}"
    if not given.pairs[name == "B"]:
        yield f"mov.b32 %r_pair_{target}, {{%h_low_{target}, %h_high_{target}}};"
    if tile.k_major:
        place, offset = f"%r_to_{name}_{('even', 'odd')[line % 2]}", line // 2 * _PERIOD * STAGE_BYTES
    else:
        place, offset = "%r_to", chunk * tile.lines * STAGE_BYTES + line * STAGE_BYTES
        yield f"xor.b32 {place}, %r_to_{name}_k, {line % _PERIOD << 4};"
    yield f"st.shared.b32 [{place}+{offset}], %r_pair_{target};"
