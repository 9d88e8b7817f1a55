"""PTX that gathers the operands of a product without tensor maps: for leading dimensions that no tensor map has.

All threads of a warpgroup load units of 8 neighbours in memory, and write them to the stage where a tensor map would,
with its swizzle.  With contiguous k, a unit is 8 values of k of one row; otherwise it is 8 rows of one k.  The values
of k are in the order of `packed_operands`: groups of 16, each the values of one instruction and zeros.  The loads of a
stage are under way before it is empty.  Two warpgroups gather every second stage each.  Zeros that no unit replaces are
written once.

A unit is loaded as the two aligned vectors that hold it, and shifted.  Where not all of its values exist, or a vector
is not inside of the operand, its values are loaded one by one.  Offsets in an operand whose address is not aligned
count from the aligned address before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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
_GROUP = 16
"""The values of k of a group."""
_UNIT = 8
"""The elements of a unit."""
_VECTOR = 16
"""The bytes of a unit, of a vector, and of the widest store."""
_WORDS = 8
"""The registers of the vectors that hold a unit at any place."""
_LARGEST_BATCH = 12
"""The units that a thread loads before it stores them, at most."""
_OTHERS = 48
"""The registers of a thread that gathers for anything but units."""


@dataclass(frozen=True, slots=True)
class _Unit:
    """A unit of a thread: the operand, what its address and its values of k have in common with others, and its place.

    `source` names registers: of the address, of the low bits of it, of the number of values of k.  `rows` is the number
    of rows after those of the thread's first unit, and `offset` is that of the place in the stage.  With `bounded`, the
    tile has fewer rows than the threads.
    """

    operand: str
    source: str
    rows: int
    offset: int
    bounded: bool

    @property
    def name(self) -> str:
        """The part of the names of registers."""
        return f"{self.operand}_{self.offset}"


def gathering_producer(tiles: WarpgroupTiles, decoded: Iterator[str]) -> Lines:
    """Gather the stages of each job; `decoded` computes the place and the stages of a job."""
    given = tiles.gathering
    assert given is not None
    yield from _thread_places(tiles, given)
    yield "GATHER_JOB: setp.ge.u32 %p_done, %r_job, %r_jobs;"
    yield "@%p_done bra END;"
    yield from decoded
    yield from _first_iteration(given)
    yield from _places_of_job(tiles, given)
    yield "mov.u32 %r_stage_group, 0;"
    yield "GATHER_STAGE:"
    if given.warpgroups > 1:
        yield "xor.b32 %r_turn, %r_turn, 1;"
        yield "setp.ne.u32 %p_skips, %r_turn, 0;"
        yield "@%p_skips bra GATHERED;"
    yield from _places_of_stage(tiles, given)
    yield "xor.b32 %r_empty_parity, %r_parity, 1;"
    units, batch = _units(tiles, given), units_at_once(tiles.threads, tiles.resident)
    for start in range(0, len(units), batch):
        part = units[start : start + batch]
        yield "mov.u32 %r_slow, 0;"
        for place, unit in enumerate(part):
            yield from _load(tiles, given, unit, place)
        if not start:
            yield from wait("WAIT_EMPTY", "%r_empty", "%r_empty_parity", "")
            yield from _stage_places(tiles)
        for unit in part:
            yield from _store(tiles, unit)
        yield "setp.eq.u32 %p_fast, %r_slow, 0;"
        yield f"@%p_fast bra STORED_{start};"
        yield from _one_by_one(tiles, given, part)
        yield f"STORED_{start}:"
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


def _tile(tiles: WarpgroupTiles, name: str) -> OperandTile:
    return tiles.a if name == "A" else tiles.b


def _units_of_row(given: Gathering) -> int:
    """Return the units of a row of a stage whose values of k are contiguous."""
    return _lines_of_stage(given) // _UNIT


def _lines_of_stage(given: Gathering) -> int:
    """Return the values of k of a stage that instructions take."""
    return STAGE_BYTES // 2 // _GROUP * given.taken


def _units(tiles: WarpgroupTiles, given: Gathering) -> list[_Unit]:
    """Return the units of a thread in a stage."""
    found, down, lines = [], WARPGROUP // _units_of_row(given), WARPGROUP // (ROWS // _UNIT)
    for name, tile, _, _ in _operands(tiles):
        if tile.k_major:
            rows = range(0, tile.rows, down)
            found += [_Unit(name, name, row, row * STAGE_BYTES, row + down > tile.rows) for row in rows]
            continue
        for chunk in range(tile.chunks):
            for part in range(_lines_of_stage(given) // lines):
                place = part * lines * _GROUP // given.taken + chunk * tile.lines
                found.append(_Unit(name, f"{name}_{part}", chunk * ROWS, place * STAGE_BYTES, False))
    return found


def units_at_once(threads: int, resident: int) -> int:
    """Return the number of units that a thread loads before it stores them.

    A block has `threads`, and `resident` blocks fit on a multiprocessor.
    """
    registers = min(255, 65536 // (threads * resident) // 8 * 8)
    return max(1, min(_LARGEST_BATCH, (registers - _OTHERS) // _WORDS))


def has_lasting_zeros(tiles: WarpgroupTiles) -> bool:
    """Return whether a group has values of k that no instruction takes."""
    return tiles.gathering is not None and tiles.gathering.taken < _GROUP


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
    """Compute what does not change between jobs: the unit and its place in a stage, and the ends of the operands."""
    yield f"and.b32 %r_gatherer, %r_thread, {WARPGROUP - 1};"
    layouts = {tile.k_major for _, tile, _, _ in _operands(tiles)}
    across = _units_of_row(given)
    if True in layouts:
        yield f"and.b32 %r_unit, %r_gatherer, {across - 1};"
        yield f"shr.u32 %r_own_row, %r_gatherer, {across.bit_length() - 1};"
        yield from _swizzled_place("k", "%r_own_row", "%r_unit", 1 if given.taken == _UNIT else 0)
    if False in layouts:
        yield f"and.b32 %r_own_rows, %r_gatherer, {ROWS // _UNIT - 1};"
        yield f"shr.u32 %r_own_line, %r_gatherer, {(ROWS // _UNIT).bit_length() - 1};"
        line = "%r_own_line"
        if given.taken == _UNIT:  # the second half of the lines is in the next group
            line = "%r_group_line"
            yield f"and.b32 {line}, %r_own_line, {_UNIT};\nadd.u32 {line}, {line}, %r_own_line;"
        yield from _swizzled_place("rows", line, "%r_own_rows", 0)
        yield f"and.b32 %r_inside_group, %r_own_line, {given.taken - 1};"
        yield f"shr.u32 %r_line_group, %r_own_line, {given.taken.bit_length() - 1};"
        yield f"shl.b32 %r_own_rows, %r_own_rows, {_UNIT.bit_length() - 1};"
    for name, tile, _, count in _operands(tiles):
        yield f"ld.param.u64 %d_line_{name}, [line_{name.lower()}];\nshl.b64 %d_line_{name}, %d_line_{name}, 1;"
        if tile.k_major:
            yield f"mul.lo.u64 %d_step_{name}, %d_line_{name}, {WARPGROUP // across};"
        lines, length = (count, "%r_K") if tile.k_major else ("%r_K", count)
        yield f"sub.u32 %r_at, {lines}, 1;\ncvt.u64.u32 %d_end_{name}, %r_at;\ncvt.u64.u32 %d_length, {length};"
        yield f"mul.lo.u64 %d_end_{name}, %d_end_{name}, %d_line_{name};\nshl.b64 %d_length, %d_length, 1;"
        yield f"add.u64 %d_end_{name}, %d_end_{name}, %d_length;"
        if not given.is_aligned(name):
            yield f"and.b64 %d_skew_{name}, %d_{name}, {_VECTOR - 1};\nsub.u64 %d_{name}, %d_{name}, %d_skew_{name};"
            yield f"add.u64 %d_end_{name}, %d_end_{name}, %d_skew_{name};"
    if given.warpgroups > 1:  # 1 before the first stage of the first warpgroup
        yield f"setp.eq.u32 %p_skips, %r_group, {tiles.consumers};"
        yield "selp.u32 %r_turn, 1, 0, %p_skips;"


def _swizzled_place(name: str, line: str, unit: str, shift: int) -> Lines:
    """Compute the place of a unit of a line in a tile; `shift` is the logarithm of the distance of units."""
    yield f"and.b32 %r_place_{name}, {line}, 7;\nshl.b32 %r_at, {unit}, {shift};"
    yield f"xor.b32 %r_place_{name}, %r_place_{name}, %r_at;\nshl.b32 %r_place_{name}, %r_place_{name}, 4;"
    yield f"mad.lo.u32 %r_place_{name}, {line}, {STAGE_BYTES}, %r_place_{name};"


def _first_iteration(given: Gathering) -> Lines:
    """Compute the values of k of the short first iteration, its groups, and what moves the values after it."""
    if given.short_first:
        yield f"and.b32 %r_short, %r_length, {given.short_first - 1};"
        yield f"add.u32 %r_leading, %r_short, {given.taken - 1};"
        yield f"shr.u32 %r_leading, %r_leading, {given.taken.bit_length() - 1};"
        yield f"mul.lo.u32 %r_moved, %r_leading, {given.taken};"
        yield "sub.u32 %r_moved, %r_short, %r_moved;"


def _places_of_job(tiles: WarpgroupTiles, given: Gathering) -> Lines:
    """Compute what does not change between the stages of a job: the thread's rows, and how many are left."""
    for name, tile, place, count in _operands(tiles):
        own = "%r_own_row" if tile.k_major else "%r_own_rows"
        yield f"add.u32 %r_first_{name}, {place}, {own};"
        yield f"sub.u32 %r_left_{name}, {count}, %r_first_{name};"
        yield f"cvt.u64.u32 %d_first_{name}, %r_first_{name};"
        if tile.k_major:
            yield f"mul.lo.u64 %d_first_{name}, %d_first_{name}, %d_line_{name};"
        else:
            yield f"shl.b64 %d_first_{name}, %d_first_{name}, 1;"
        if not given.is_aligned(name):
            yield f"add.u64 %d_first_{name}, %d_first_{name}, %d_skew_{name};"


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
    """Compute the offsets of the thread's units in the operands, and which of their values of k exist."""
    operands = _operands(tiles)
    by_k = [name for name, tile, _, _ in operands if tile.k_major]
    by_rows = [name for name, tile, _, _ in operands if not tile.k_major]
    if by_k:
        if given.taken == _UNIT:
            yield "add.u32 %r_own_group, %r_stage_group, %r_unit;"
        else:
            yield "shr.u32 %r_own_group, %r_unit, 1;\nadd.u32 %r_own_group, %r_stage_group, %r_own_group;"
        yield from _sources(given, "%r_own_group", "k")
        if given.taken > _UNIT:
            yield f"and.b32 %r_at, %r_unit, 1;\nshl.b32 %r_at, %r_at, {_UNIT.bit_length() - 1};"
            yield "add.u32 %r_base_k, %r_base_k, %r_at;\nsub.s32 %r_count_k, %r_count_k, %r_at;"
        yield "cvt.s64.s32 %d_base_k, %r_base_k;\nshl.b64 %d_base_k, %d_base_k, 1;"
        for name in by_k:
            yield f"add.s64 %d_at_{name}, %d_base_k, %d_first_{name};"
            yield f"mov.u32 %r_count_{name}, %r_count_k;"
            yield from _low_bits(name)
    lines = WARPGROUP // (ROWS // _UNIT)
    for part in range(_lines_of_stage(given) // lines if by_rows else 0):
        yield f"add.u32 %r_own_group, %r_stage_group, {part * lines // given.taken};"
        yield "add.u32 %r_own_group, %r_own_group, %r_line_group;"
        yield from _sources(given, "%r_own_group", "line")
        yield "add.u32 %r_base_line, %r_base_line, %r_inside_group;\ncvt.s64.s32 %d_base_line, %r_base_line;"
        yield "sub.s32 %r_count_line, %r_count_line, %r_inside_group;"
        for name in by_rows:
            source = f"{name}_{part}"
            yield f"mul.lo.s64 %d_at_{source}, %d_base_line, %d_line_{name};"
            yield f"add.s64 %d_at_{source}, %d_at_{source}, %d_first_{name};"
            yield f"mov.u32 %r_count_{source}, %r_count_line;"
            yield from _low_bits(source)


def _low_bits(source: str) -> Lines:
    """Compute from an offset what shifts a unit: its distance from a vector, and the halves that are chosen."""
    yield f"cvt.u32.u64 %r_low_{source}, %d_at_{source};\nand.b32 %r_low_{source}, %r_low_{source}, {_VECTOR - 1};"
    yield f"and.b32 %r_at, %r_low_{source}, 2;\nmad.lo.u32 %r_halves_{source}, %r_at, 0x1111, 0x3210;"


def _exists(tiles: WarpgroupTiles, unit: _Unit, least: int) -> Lines:
    """Compute %p_exists: whether the tile has the unit, a row of it, and `least` values of k."""
    tile = _tile(tiles, unit.operand)
    yield f"setp.ge.s32 %p_exists, %r_count_{unit.source}, {least};"
    yield f"setp.gt.and.s32 %p_exists, %r_left_{unit.operand}, {unit.rows}, %p_exists;"
    if unit.bounded:
        yield f"setp.lt.and.u32 %p_exists, %r_own_row, {tile.rows - unit.rows}, %p_exists;"


def _offset(tiles: WarpgroupTiles, given: Gathering, unit: _Unit) -> Lines:
    """Compute %d_offset, that of the first value of a unit in its operand."""
    tile = _tile(tiles, unit.operand)
    if not tile.k_major:
        yield f"add.s64 %d_offset, %d_at_{unit.source}, {2 * unit.rows};"
    elif unit.rows:
        down = WARPGROUP // _units_of_row(given)
        yield f"mad.lo.s64 %d_offset, %d_step_{unit.operand}, {unit.rows // down}, %d_at_{unit.source};"
    else:
        yield f"mov.b64 %d_offset, %d_at_{unit.source};"


def _load(tiles: WarpgroupTiles, given: Gathering, unit: _Unit, place: int) -> Lines:
    """Load the vectors of a unit, zeros for one that does not exist or is loaded one by one: %r_slow has its bit."""
    tile = _tile(tiles, unit.operand)
    words = [f"%r_word_{unit.name}_{index}" for index in range(_WORDS)]
    yield from _offset(tiles, given, unit)
    yield from (f"mov.b32 {each}, 0;" for each in words)
    yield from _exists(tiles, unit, 1)
    # The last vector ends at the next multiple of its size.
    yield f"add.s64 %d_last, %d_offset, {2 * _VECTOR - 1};\nand.b64 %d_last, %d_last, {-_VECTOR};"
    yield f"setp.le.and.s64 %p_fast, %d_last, %d_end_{unit.operand}, %p_exists;"
    if tile.k_major:
        yield f"setp.ge.and.s32 %p_fast, %r_count_{unit.source}, {_UNIT}, %p_fast;"
    yield f"and.b64 %d_offset, %d_offset, {-_VECTOR};"
    if not given.is_aligned(unit.operand):
        yield f"setp.ge.and.s64 %p_fast, %d_offset, %d_skew_{unit.operand}, %p_fast;"
    yield "not.pred %p_slow, %p_fast;\nand.pred %p_slow, %p_slow, %p_exists;"
    yield f"@%p_slow or.b32 %r_slow, %r_slow, {1 << place};"
    yield f"add.s64 %d_offset, %d_offset, %d_{unit.operand};"
    yield f"@%p_fast ld.global.v4.b32 {{{', '.join(words[:4])}}}, [%d_offset];"
    yield f"setp.ne.and.u32 %p_fast, %r_low_{unit.source}, 0, %p_fast;"
    yield f"@%p_fast ld.global.v4.b32 {{{', '.join(words[4:])}}}, [%d_offset+{_VECTOR}];"


def _stage_places(tiles: WarpgroupTiles) -> Lines:
    """Compute the thread's places in the current stage."""
    for name, tile, _, _ in _operands(tiles):
        yield f"mad.lo.u32 %r_to_{name}, %r_stage, {tile.bytes}, %r_shared;"
        if name == "B":
            yield f"add.u32 %r_to_{name}, %r_to_{name}, {tiles.b_place};"
        yield f"add.u32 %r_to_{name}, %r_to_{name}, %r_place_{'k' if tile.k_major else 'rows'};"


def _store(tiles: WarpgroupTiles, unit: _Unit) -> Lines:
    """Shift a unit, and write it to the current stage."""
    words = [f"%r_word_{unit.name}_{index}" for index in range(_WORDS)]
    values = [f"%r_value_{index}" for index in range(4)]
    for words_by, count in ((2, 6), (1, 5)):
        yield f"and.b32 %r_at, %r_low_{unit.source}, {4 * words_by};\nsetp.ne.u32 %p_shifted, %r_at, 0;"
        for index in range(count):
            yield f"selp.b32 {words[index]}, {words[index + words_by]}, {words[index]}, %p_shifted;"
    for index, each in enumerate(values):
        yield f"prmt.b32 {each}, {words[index]}, {words[index + 1]}, %r_halves_{unit.source};"
    guard = ""
    if unit.bounded:
        yield f"setp.lt.u32 %p_exists, %r_own_row, {_tile(tiles, unit.operand).rows - unit.rows};"
        guard = "@%p_exists "
    yield f"{guard}st.shared.v4.b32 [%r_to_{unit.operand}+{unit.offset}], {{{', '.join(values)}}};"


def _one_by_one(tiles: WarpgroupTiles, given: Gathering, units: list[_Unit]) -> Lines:
    """Load the values of the units whose bits %r_slow has one by one, and write them."""
    for place, unit in enumerate(units):
        tile = _tile(tiles, unit.operand)
        yield from _offset(tiles, given, unit)
        yield f"add.s64 %d_offset, %d_offset, %d_{unit.operand};"
        yield f"and.b32 %r_at, %r_slow, {1 << place};\nsetp.ne.u32 %p_slow, %r_at, 0;"
        left, before = (f"%r_count_{unit.source}", 0) if tile.k_major else (f"%r_left_{unit.operand}", unit.rows)
        for index in range(_UNIT):
            value = f"%h_value_{place}_{index}"
            yield f"mov.b16 {value}, 0;\nsetp.gt.and.s32 %p_exists, {left}, {before + index}, %p_slow;"
            yield f"@%p_exists ld.global.b16 {value}, [%d_offset+{2 * index}];"
    for place, unit in enumerate(units):
        values = [f"%r_value_{index}" for index in range(4)]
        for index, each in enumerate(values):
            yield f"mov.b32 {each}, {{%h_value_{place}_{2 * index}, %h_value_{place}_{2 * index + 1}}};"
        yield f"and.b32 %r_at, %r_slow, {1 << place};\nsetp.ne.u32 %p_slow, %r_at, 0;"
        yield f"@%p_slow st.shared.v4.b32 [%r_to_{unit.operand}+{unit.offset}], {{{', '.join(values)}}};"
