"""PTX that multiplies the sums of blocks of k by their scales, and adds them to the totals of a tile.

A block of k is a stage.  The scales of a stage are loaded to registers before its operands are multiplied: one for each
of a thread's rows and columns, or one for all rows or all columns of a tile that share it, or two for columns in two
blocks that share one each.  Those of rows and of few columns are loaded a stage ahead.  Prefetches bring the scales of
later stages to the L2 cache: no other block has read them before, since all blocks go through k together.  Scales that
rows or columns of their own have, and that have a tensor map, are copied to shared memory with the operands of the
stage: a load a stage ahead would arrive later than the operands of a small tile.
"""

from __future__ import annotations

from bitwise_nvidia_sm90.gemm.kernels.block_scales import BLOCK, COLUMN_SCALES, ROW_SCALES, SCALE_PARAMETERS
from bitwise_nvidia_sm90.gemm.kernels.pipeline_text import Lines
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_parameters import mapped_scales
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_tiles import ROWS, WARPGROUP, WarpgroupTiles

_BYTES = 4
_LANES_OF_ROW = 4
"""The neighbouring lanes that have elements of a row."""
_FAR = 6
"""The stages by which prefetches are ahead."""
_LINE = 32
"""The scales of a line of the cache."""


def slot_of_scales(tiles: WarpgroupTiles, target: str, start: str) -> Lines:
    """Compute the address of the scales of the current stage, `start` being that of the first slot's."""
    yield f"mad.lo.u32 {target}, %r_stage, {tiles.scale_line}, {start};"
    if tiles.scale_slots > tiles.stages:
        yield f"mad.lo.u32 {target}, %r_parity, {tiles.stages * tiles.scale_line}, {target};"


def fenced_reads(tiles: WarpgroupTiles) -> Lines:
    """Order the warp's reads of scales before the copies that replace them: see `scale_slots`.

    A barrier does not wait for loads: without the fence, a copy could overtake those of the scales.
    """
    guard = ""
    if tiles.scale_slots > tiles.stages:
        yield "setp.eq.u32 %p_fences, %r_used, %r_last_used;"
        guard = "@%p_fences "
    yield f"{guard}fence.proxy.async.shared::cta;\n{guard}bar.warp.sync 0xffffffff;"


def scale_places(tiles: WarpgroupTiles) -> Lines:
    """Compute what does not change between jobs: the thread's first row and column in a tile, and strides in bytes."""
    if tiles.scales is None:
        return
    yield "shr.u32 %r_scale_row, %r_lane, 2;"
    yield "mad.lo.u32 %r_scale_row, %r_warp, 16, %r_scale_row;"
    if not tiles.ping_pong:
        yield f"mad.lo.u32 %r_scale_row, %r_group, {tiles.consumer_rows}, %r_scale_row;"
    yield "and.b32 %r_scale_column, %r_lane, 3;\nshl.b32 %r_scale_column, %r_scale_column, 1;"
    if tiles.maps_scales:
        yield f"add.u32 %r_last_used, %r_empty, {8 * (tiles.stages - 1)};"
    strides = {ROW_SCALES: SCALE_PARAMETERS[2:4], COLUMN_SCALES: SCALE_PARAMETERS[4:]}
    for name in (each for each in strides if each not in mapped_scales(tiles)):
        yield f"ld.param.u64 %d_{name}, [{name}];\ncvta.to.global.u64 %d_{name}, %d_{name};"
        for each in strides[name]:
            yield f"ld.param.u64 %d_{each}, [{each}];\nmul.lo.u64 %d_{each}, %d_{each}, {_BYTES};"
    if tiles.maps_row_scales:
        yield f"mad.lo.u32 %r_first_row_scales, %r_scale_row, {_BYTES}, %r_shared;"
        yield f"add.u32 %r_first_row_scales, %r_first_row_scales, {tiles.row_scale_place};"
    else:
        yield f"sub.u32 %r_last_row, %r_M, 1;\nmul.lo.u64 %d_far_rows, %d_sa_k, {_FAR};"
        yield f"and.b32 %r_quarter, %r_lane, {_LANES_OF_ROW - 1};\ncvt.u64.u32 %d_quarter, %r_quarter;"
        yield "mov.pred %p_row_fetches, -1;"
        if tiles.scales.shared_rows(tiles.block_m):
            yield f"setp.lt.u32 %p_row_fetches, %r_in_group_thread, {_LANES_OF_ROW};"
        yield "setp.eq.and.u32 %p_row_leads, %r_quarter, 0, %p_row_fetches;"
    if tiles.maps_column_scales:
        yield f"mad.lo.u32 %r_first_scales, %r_scale_column, {_BYTES}, %r_shared;"
        yield f"add.u32 %r_first_scales, %r_first_scales, {tiles.scale_place};"
        return
    yield f"sub.u32 %r_last_column, %r_N, 1;\nmul.lo.u64 %d_far_columns, %d_sb_k, {_FAR};"
    yield f"setp.lt.u32 %p_fetches, %r_lane, {-(-tiles.block_n // _LINE)};"
    for each in _loaded_columns(tiles):
        yield f"mov.b32 {each}, 0f00000000;"  # columns outside of the matrix have no scales


def scales_of_job(tiles: WarpgroupTiles) -> Lines:
    """Compute the addresses of the scales of the first stage of a job."""
    scales, rows = tiles.scales, _loaded_rows(tiles)
    assert scales is not None
    if tiles.maps_row_scales and tiles.maps_column_scales:
        return
    yield f"shr.u32 %r_scale_at, %r_k, {BLOCK.bit_length() - 1};\ncvt.u64.u32 %d_scale_at, %r_scale_at;"
    if rows:
        yield "mad.lo.u64 %d_scale_rows, %d_scale_at, %d_sa_k, %d_SA;"
    if not tiles.maps_column_scales:
        yield "mad.lo.u64 %d_scale_columns, %d_scale_at, %d_sb_k, %d_SB;"
    for part, half in rows:
        yield f"add.u32 %r_scale_at, %r_row, {ROWS * part + 8 * half};"
        if not scales.shared_rows(tiles.block_m):
            yield "add.u32 %r_scale_at, %r_scale_at, %r_scale_row;"
        yield "min.u32 %r_scale_at, %r_scale_at, %r_last_row;"
        yield from _address(f"%d_scale_row_{part}_{half}", scales.rows, "%d_sa_row", "%d_scale_rows")
    if not tiles.maps_column_scales:
        yield from _columns_of_job(tiles)
    yield "mov.pred %p_next, -1;"
    yield from _load_ahead(tiles)
    if not rows:
        return
    # Those that no stage prefetches: four lanes have a row.
    yield "mul.lo.u64 %d_scale_at, %d_quarter, %d_sa_k;"
    for part, half in rows:
        yield f"add.u64 %d_fetched_row_{part}_{half}, %d_scale_at, %d_scale_row_{part}_{half};"
    for first in range(0, _FAR + 2, _LANES_OF_ROW):
        yield f"add.u32 %r_scale_at, %r_quarter, {first + 1};"
        yield "setp.gt.and.u32 %p_far, %r_remaining, %r_scale_at, %p_row_fetches;"
        for part, half in rows:
            row = f"%d_fetched_row_{part}_{half}"
            if first:
                yield f"mad.lo.u64 {row}, %d_sa_k, {_LANES_OF_ROW}, {row};"
            yield f"@%p_far prefetch.global.L2 [{row}];"


def _columns_of_job(tiles: WarpgroupTiles) -> Lines:
    """Compute the addresses of the scales of columns of the first stage of a job."""
    scales = tiles.scales
    assert scales is not None
    if scales.columns > 1:
        yield "min.u32 %r_scale_at, %r_column, %r_last_column;"
    else:
        yield "add.u32 %r_first_scale, %r_column, %r_scale_column;\nmov.u32 %r_scale_at, %r_first_scale;"
    yield from _address("%d_scale_column", scales.columns, "%d_sb_column", "%d_scale_columns")
    if scales.columns_in_two(tiles.block_n):
        yield f"add.u32 %r_scale_at, %r_column, {tiles.block_n - 1};\nmin.u32 %r_scale_at, %r_scale_at, %r_last_column;"
        yield from _address("%d_second_column", scales.columns, "%d_sb_column", "%d_scale_columns")
        # The first column of the tile that is in the second block.
        yield f"and.b32 %r_second, %r_column, {BLOCK - 1};\nsub.u32 %r_second, {BLOCK}, %r_second;"
    if scales.columns == 1:
        yield f"mad.lo.u32 %r_scale_at, %r_lane, {_LINE}, %r_column;\nmin.u32 %r_scale_at, %r_scale_at, %r_last_column;"
        yield from _address("%d_fetched_column", scales.columns, "%d_sb_column", "%d_scale_columns")


def _address(target: str, shared: int, stride: str, start: str) -> Lines:
    """Compute the address of the scale of the row or column %r_scale_at."""
    if shared > 1:
        yield f"shr.u32 %r_scale_at, %r_scale_at, {BLOCK.bit_length() - 1};"
    yield f"cvt.u64.u32 %d_scale_at, %r_scale_at;\nmad.lo.u64 {target}, %d_scale_at, {stride}, {start};"


def _load_ahead(tiles: WarpgroupTiles) -> Lines:
    """Load scales of the next stage, if %p_next, and go to those of the one after it."""
    scales = tiles.scales
    assert scales is not None
    for part, half in _loaded_rows(tiles):
        address = f"%d_scale_row_{part}_{half}"
        yield f"@%p_next ld.global.b32 %r_next_row_{part}_{half}, [{address}];\nadd.u64 {address}, {address}, %d_sa_k;"
    if scales.columns_are_ahead(tiles.block_n):
        yield from _load_columns(tiles)


def _load_columns(tiles: WarpgroupTiles) -> Lines:
    """Load the scales of the columns of a stage, if %p_next, and go to those of the one after it."""
    scales, targets = tiles.scales, _loaded_columns(tiles)
    assert scales is not None
    if scales.columns > 1:
        yield f"@%p_next ld.global.b32 {targets[0]}, [%d_scale_column];"
        if scales.columns_in_two(tiles.block_n):
            yield f"@%p_next ld.global.b32 {targets[1]}, [%d_second_column];"
            yield "add.u64 %d_second_column, %d_second_column, %d_sb_k;"
    elif scales.pairs:
        for low, high, column in zip(targets[::2], targets[1::2], range(0, tiles.block_n, 8), strict=True):
            yield f"add.u32 %r_scale_at, %r_first_scale, {column};"
            yield "setp.lt.and.u32 %p_scale, %r_scale_at, %r_N, %p_next;"
            yield f"@%p_scale ld.global.v2.b32 {{{low}, {high}}}, [%d_scale_column+{_BYTES * column}];"
    else:
        for index, each in enumerate(targets):
            column = index // 2 * 8 + index % 2
            yield f"add.u32 %r_scale_at, %r_first_scale, {column};"
            yield "setp.lt.and.u32 %p_scale, %r_scale_at, %r_N, %p_next;"
            yield f"mad.lo.u64 %d_scale_at, %d_sb_column, {column}, %d_scale_column;"
            yield f"@%p_scale ld.global.b32 {each}, [%d_scale_at];"
    yield "add.u64 %d_scale_column, %d_scale_column, %d_sb_k;"


def load_scales(tiles: WarpgroupTiles) -> Lines:
    """Load the scales of a stage, and those of the next one that are loaded ahead."""
    scales, rows = tiles.scales, _loaded_rows(tiles)
    assert scales is not None
    if not rows and tiles.maps_column_scales:
        return
    for part, half in rows:
        yield f"mov.b32 %r_scale_row_{part}_{half}, %r_next_row_{part}_{half};"
    ahead = scales.columns_are_ahead(tiles.block_n)
    if ahead:
        for target, loaded in zip(_column_registers(tiles), _loaded_columns(tiles), strict=True):
            yield f"mov.b32 {target}, {loaded};"
    elif not tiles.maps_column_scales:
        yield "mov.pred %p_next, -1;"
        yield from _load_columns(tiles)
    yield f"setp.gt.u32 %p_next, %r_remaining, 1;\nsetp.gt.u32 %p_far, %r_remaining, {_FAR + 2};"
    yield from _load_ahead(tiles)
    if rows:
        yield "and.pred %p_row_far, %p_far, %p_row_leads;"
    for part, half in rows:
        yield f"add.u64 %d_scale_at, %d_scale_row_{part}_{half}, %d_far_rows;"
        yield "@%p_row_far prefetch.global.L2 [%d_scale_at];"
    if tiles.maps_column_scales:
        return
    if scales.columns > 1:
        yield "and.pred %p_far, %p_far, %p_issues;"
        for each in ("scale", "second") if scales.columns_in_two(tiles.block_n) else ("scale",):
            yield f"add.u64 %d_scale_at, %d_{each}_column, %d_far_columns;\n@%p_far prefetch.global.L2 [%d_scale_at];"
        return
    yield "and.pred %p_far, %p_far, %p_fetches;\nadd.u64 %d_scale_at, %d_fetched_column, %d_far_columns;"
    yield "@%p_far prefetch.global.L2 [%d_scale_at];\nadd.u64 %d_fetched_column, %d_fetched_column, %d_sb_k;"


def row_scales_of_stage(tiles: WarpgroupTiles) -> Lines:
    """Read the scales of the thread's rows from the stage that was multiplied."""
    for part, half in _thread_rows(tiles) if tiles.maps_row_scales else ():
        place = _BYTES * (ROWS * part + 8 * half)
        yield f"ld.shared.b32 %r_scale_row_{part}_{half}, [%r_row_scales+{place}];"


def scaled_sums(tiles: WarpgroupTiles, sums: str, column_part: int = 0) -> Lines:
    """Add the sums of a part of a stage's columns, registers of this name, to the totals.

    This takes fused multiply-adds with the scales.
    """
    scales = tiles.scales
    assert scales is not None
    rows, columns = _thread_rows(tiles), _column_registers(tiles)
    shared_rows, shared_columns = len(rows) == 1, len(columns) == 1
    in_two = scales.columns_in_two(tiles.block_n)
    factors = scales.order == "product" and (shared_rows or shared_columns) and not in_two
    if factors and not (tiles.maps_column_scales or column_part):  # few products of a scale of rows and one of columns
        for row, column in ((f"%r_scale_row_{part}_{half}", each) for part, half in rows for each in columns):
            yield f"mul.rn.f32 {column if shared_rows else row}, {row}, {column};"
    for part, half in rows if in_two and scales.order == "product" and not column_part else ():
        for place, column in enumerate(columns):
            yield f"mul.rn.f32 %r_factor_{part}_{half}_{place}, %r_scale_row_{part}_{half}, {column};"
    of_rows = ROWS * tiles.block_n // WARPGROUP
    own = of_rows // tiles.column_parts
    for index in range(tiles.consumer_rows * tiles.block_n // WARPGROUP // tiles.column_parts):
        part, inside = divmod(index, own)
        inside += column_part * own
        block, half, place = inside // 4, inside // 2 % 2, inside % 2
        first = not (half or place)
        if tiles.maps_column_scales and first:
            low, high = columns[2 * block : 2 * block + 2]
            yield f"ld.shared.v2.b32 {{{low}, {high}}}, [%r_scales+{8 * _BYTES * block}];"
            for each in (low, high) if factors else ():
                yield f"mul.rn.f32 {each}, %r_scale_row_0_0, {each};"
        if in_two and first and (inside == column_part * own or not 8 * block % scales.common_columns(tiles.block_n)):
            yield from _select_block(tiles, part, 8 * block)
        row = "%r_scale_row_0_0" if shared_rows else f"%r_scale_row_{part}_{half}"
        column = "%r_own_column" if in_two else columns[0 if shared_columns else 2 * block + place]
        left, factor = f"%r_{sums}_{index}", "%r_factor"
        if factors:
            factor = column if shared_rows else row
        elif in_two and scales.order == "product":
            factor = f"%r_own_factor_{0 if shared_rows else half}"
        elif scales.order == "product":
            yield f"mul.rn.f32 %r_factor, {row}, {column};"
        else:
            leading, factor = (row, column) if scales.order == "rows" else (column, row)
            left = "%r_scaled"
            yield f"mul.rn.f32 {left}, %r_{sums}_{index}, {leading};"
        total = f"%r_total_{part * of_rows + inside}"
        yield f"fma.rn.f32 {total}, {left}, {factor}, {total};"


def _select_block(tiles: WarpgroupTiles, part: int, column: int) -> Lines:
    """Select the scales of the block of columns in which a column of the tile is: of the thread's rows of a part."""
    assert tiles.scales is not None
    yield f"setp.le.u32 %p_second, %r_second, {column};"
    if tiles.scales.order != "product":
        low, high = _column_registers(tiles)
        yield f"selp.b32 %r_own_column, {high}, {low}, %p_second;"
        return
    for own_part, half in _thread_rows(tiles):
        if own_part == part or len(_thread_rows(tiles)) == 1:
            name = f"%r_factor_{own_part}_{half}"
            yield f"selp.b32 %r_own_factor_{half}, {name}_1, {name}_0, %p_second;"


def _thread_rows(tiles: WarpgroupTiles) -> list[tuple[int, int]]:
    """Return the parts of 64 rows and the halves of a thread's rows that have scales of their own."""
    assert tiles.scales is not None
    if tiles.scales.shared_rows(tiles.block_m):
        return [(0, 0)]
    return [(part, half) for part in range(tiles.consumer_rows // ROWS) for half in range(2)]


def _loaded_rows(tiles: WarpgroupTiles) -> list[tuple[int, int]]:
    """Return those of `_thread_rows` whose scales are loaded to registers a stage ahead."""
    return [] if tiles.maps_row_scales else _thread_rows(tiles)


def _column_registers(tiles: WarpgroupTiles) -> list[str]:
    assert tiles.scales is not None
    return [f"%r_scale_column_{index}" for index in range(tiles.scales.column_scales(tiles.block_n))]


def _loaded_columns(tiles: WarpgroupTiles) -> list[str]:
    """Return the registers to which the scales of columns are loaded: those of the next stage where they are ahead."""
    assert tiles.scales is not None
    if not tiles.scales.columns_are_ahead(tiles.block_n):
        return _column_registers(tiles)
    return [each.replace("scale_column", "next_column") for each in _column_registers(tiles)]
