"""PTX that finishes the sums of a tile and stores them: through a tensor map, or to pointers."""

from __future__ import annotations

from collections.abc import Generator

from bitwise_nvidia_sm90.gemm.kernels.finish import finished, with_registers
from bitwise_nvidia_sm90.gemm.kernels.pipeline_text import Lines
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_operands import (
    copy_operand,
    load_operands,
    operand_register,
    operands_of_part,
    place_of_part,
    thread_places,
    wait_for_operand,
)
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_parameters import ELEMENT_TYPES, PARAMETERS, operand_layouts
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_tiles import (
    OUTPUT_BYTES,
    ROWS,
    STAGE_BYTES,
    STORE_BYTES,
    WARPGROUP,
    WarpgroupTiles,
)

_BATCH = 8
"""Blocks of 8 columns whose operands are loaded at once, where a tile is stored to pointers."""
_LOG2_SWIZZLE_PERIOD = 7
"""A swizzle depends on the address in units of 128 bytes."""


def matrix_store_places(tiles: WarpgroupTiles) -> Lines:
    """Compute %r_store, the consumer's buffers, and %r_store_lane, where the thread writes to a buffer."""
    pitch, size = tiles.store_swizzle, OUTPUT_BYTES[tiles.output]
    yield f"mul.lo.u32 %r_store, %r_group, {tiles.store_buffers * STORE_BYTES};"
    yield "add.u32 %r_store, %r_store, %r_shared;"
    yield f"add.u32 %r_store, %r_store, {tiles.store_place};"
    if tiles.store == "columns":
        yield from _column_places()
        return
    if size == 2:  # stmatrix: the address of a row of 8 columns; the upper lanes have the next 8 columns
        yield "and.b32 %r_store_row, %r_lane, 15;"
        yield "shr.u32 %r_store_unit, %r_lane, 4;"
        yield "shl.b32 %r_store_unit, %r_store_unit, 4;"
    else:  # two columns in a row
        yield "shr.u32 %r_store_row, %r_lane, 2;"
        yield "and.b32 %r_store_unit, %r_lane, 3;"
        yield f"mul.lo.u32 %r_store_unit, %r_store_unit, {2 * size};"
    yield "mad.lo.u32 %r_store_row, %r_warp, 16, %r_store_row;"
    yield f"mad.lo.u32 %r_store_lane, %r_store_row, {pitch}, %r_store_unit;"
    yield f"shr.u32 %r_store_unit, %r_store_lane, {_LOG2_SWIZZLE_PERIOD};"
    yield f"and.b32 %r_store_unit, %r_store_unit, {pitch // 16 - 1};"
    yield "shl.b32 %r_store_unit, %r_store_unit, 4;"
    yield "xor.b32 %r_store_lane, %r_store_lane, %r_store_unit;"
    yield "add.u32 %r_store_lane, %r_store_lane, %r_store;"


def _column_places() -> Lines:
    """Compute %r_store_lane where lines are columns: the address of 8 rows of a column, for `stmatrix.trans`.

    Of four matrices of 8 by 8, the second and the fourth are the next 8 rows, and the last two the next 8 columns.  The
    rows of a warp are 32 bytes of a line.
    """
    yield "and.b32 %r_store_unit, %r_lane, 7;"
    yield "shr.u32 %r_store_row, %r_lane, 4;"
    yield "mad.lo.u32 %r_store_row, %r_store_row, 8, %r_store_unit;"
    yield f"mad.lo.u32 %r_store_lane, %r_store_row, {STAGE_BYTES}, %r_store;"
    yield "bfe.u32 %r_store_row, %r_lane, 3, 1;"
    yield "mad.lo.u32 %r_store_row, %r_warp, 2, %r_store_row;"
    yield "xor.b32 %r_store_row, %r_store_row, %r_store_unit;"
    yield "mad.lo.u32 %r_store_lane, %r_store_row, 16, %r_store_lane;"


def pointer_places(tiles: WarpgroupTiles) -> Lines:
    """Compute the thread's first row and column in a tile, and the strides of C in bytes."""
    size = OUTPUT_BYTES[tiles.output]
    yield from thread_places()
    if not tiles.ping_pong:
        yield f"mad.lo.u32 %r_thread_row, %r_group, {tiles.consumer_rows}, %r_thread_row;"
    for each in PARAMETERS[-3:]:
        yield f"ld.param.u64 %d_{each}, [{each}];"
        yield f"mul.lo.u64 %d_{each}, %d_{each}, {size};"


def store_through_map(tiles: WarpgroupTiles) -> Lines:
    """Convert the tile, write it to shared memory in parts of 64 rows, and copy each part to C.

    The copies of the last parts read shared memory while the next job is multiplied.
    """
    places = tiles.store_places
    buffers = tiles.store_buffers
    if not tiles.ping_pong:
        yield f"mad.lo.u32 %r_row, %r_group, {tiles.consumer_rows}, %r_row;"
    yield from operands_of_part(tiles, places, 0)
    for part, (row, column) in enumerate(places):
        buffer = part % buffers * STORE_BYTES
        if tiles.mapped_operand is not None:
            yield from wait_for_operand(part, part % buffers)
        else:
            pending = buffers - 1 if len(places) % buffers == 0 else min(part, buffers - 1)
            yield f"@%p_issues cp.async.bulk.wait_group.read {pending};"
            yield from _group_barrier(tiles)
        yield from operands_of_part(tiles, places, part + 1)
        write = _write_columns if tiles.store == "columns" else _write_part
        yield from write(tiles, row // ROWS, column // 8, buffer)
        yield "fence.proxy.async.shared::cta;"
        yield from _group_barrier(tiles)
        yield f"add.u32 %r_part_row, %r_row, {row};"
        yield f"add.u32 %r_part_column, %r_column, {column};"
        yield (
            f"@%p_issues cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%d_C, {{{place_of_part(tiles)}}}], "
            f"[%r_store+{buffer}];"
        )
        yield "@%p_issues cp.async.bulk.commit_group;"
        if tiles.mapped_operand is not None and part + buffers < len(places):
            yield "@%p_issues cp.async.bulk.wait_group.read 0;"
            yield from copy_operand(tiles, places[part + buffers], part % buffers)


def _write_part(tiles: WarpgroupTiles, part: int, first: int, buffer: int) -> Lines:
    """Write 64 rows of `store_columns` columns of the output, from the block `first` of 8 columns, to a buffer."""
    blocks = tiles.store_columns // 8
    size = OUTPUT_BYTES[tiles.output]
    if size != 2:
        for block in range(blocks):
            yield f"xor.b32 %r_store_at, %r_store_lane, {block * 8 * size};"
            for half in range(2):
                place = buffer + half * 8 * tiles.store_swizzle
                if size == 4:
                    low, high = yield from _pair(tiles, part, first + block, half)
                    yield f"st.shared.v2.b32 [%r_store_at+{place}], {{{low}, {high}}};"
                else:
                    yield from _packed(tiles, part, first + block, half, "%r_pair_0")
                    yield f"cvt.u16.u32 %h_pair, %r_pair_0;\nst.shared.b16 [%r_store_at+{place}], %h_pair;"
        return
    for block in range(0, blocks, 2):
        yield f"xor.b32 %r_store_at, %r_store_lane, {block * 16};"
        pairs, mapped = (", ".join(f"%r_{name}_{index}" for index in range(4)) for name in ("pair", "mapped"))
        if tiles.mapped_operand is not None:
            yield f"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{{mapped}}}, [%r_store_at+{buffer}];"
        for offset in range(2):
            for half in range(2):
                target = f"%r_pair_{2 * offset + half}"
                yield from _packed(tiles, part, first + block + offset, half, target, offset)
        yield f"stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r_store_at+{buffer}], {{{pairs}}};"


def _write_columns(tiles: WarpgroupTiles, part: int, first: int, buffer: int) -> Lines:
    """Write 64 rows of `store_columns` columns to a buffer as `_write_part` does; a line is a part of a column."""
    blocks = tiles.store_columns // 8
    for block in range(0, blocks, 2):
        count, place = min(2, blocks - block), buffer + block * 8 * STAGE_BYTES
        pairs, mapped = (", ".join(f"%r_{name}_{index}" for index in range(2 * count)) for name in ("pair", "mapped"))
        if tiles.mapped_operand is not None:
            yield f"ldmatrix.sync.aligned.m8n8.x{2 * count}.trans.shared.b16 {{{mapped}}}, [%r_store_lane+{place}];"
        for offset in range(count):
            for half in range(2):
                yield from _packed(tiles, part, first + block + offset, half, f"%r_pair_{2 * offset + half}", offset)
        yield f"stmatrix.sync.aligned.m8n8.x{2 * count}.trans.shared.b16 [%r_store_lane+{place}], {{{pairs}}};"


def store_to_pointers(tiles: WarpgroupTiles) -> Lines:
    """Store the elements inside of the matrix to C, two of a row at once or one by one."""
    yield "cvt.u64.u32 %d_slice, %r_slice;"
    yield "mad.lo.u64 %d_slice_place, %d_slice, %d_stride_cs, %d_C;"
    yield "add.u32 %r_column, %r_column, %r_thread_column;"
    yield "add.u32 %r_row, %r_row, %r_thread_row;"
    yield "sub.u32 %r_columns_left, %r_N, %r_column;"
    yield "cvt.u64.u32 %d_column, %r_column;\nmul.lo.u64 %d_column, %d_column, %d_stride_cn;"
    yield "add.u64 %d_slice_place, %d_slice_place, %d_column;\nshl.b64 %d_next_block, %d_stride_cn, 3;"
    blocks = tiles.block_n // 8
    for part in range(tiles.consumer_rows // ROWS):
        for half in range(2):
            for first in range(0, blocks, _BATCH):
                batch = range(first, min(first + _BATCH, blocks))
                if not tiles.operands_are_early:
                    yield from load_operands(tiles, part, (half,), batch)
                if first == 0 or operand_layouts(tiles):
                    yield f"add.u32 %r_part_row, %r_row, {part * ROWS + 8 * half};"
                    yield "setp.lt.u32 %p_row, %r_part_row, %r_M;"
                    yield "cvt.u64.u32 %d_row, %r_part_row;"
                if first == 0:
                    yield "mad.lo.u64 %d_element, %d_row, %d_stride_cm, %d_slice_place;"
                for block in batch:
                    skip = f"SKIP_{part}_{half}_{block}"
                    if tiles.finish is not None:
                        yield f"setp.gt.and.s32 %p_inside, %r_columns_left, {8 * block}, %p_row;"
                        yield f"@!%p_inside bra {skip};"
                    yield from (_store_pair if tiles.store == "pairs" else _store_elements)(tiles, part, block, half)
                    if tiles.finish is not None:
                        yield f"{skip}:"
                    if tiles.store != "pairs":
                        yield "add.u64 %d_element, %d_element, %d_next_block;"


def _store_pair(tiles: WarpgroupTiles, part: int, block: int, half: int) -> Lines:
    """Store two neighbours of a row, which are neighbours in memory, where the first one is inside of the matrix.

    The second one is inside, too, or memory follows the row.  %d_element is the address of the first ones of the row.
    """
    place = 8 * block * OUTPUT_BYTES[tiles.output]
    yield f"setp.gt.and.s32 %p_inside, %r_columns_left, {8 * block}, %p_row;"
    if tiles.output == "fp32":
        low, high = yield from _pair(tiles, part, block, half)
        yield f"@%p_inside st.global.v2.b32 [%d_element+{place}], {{{low}, {high}}};"
    else:
        yield from _packed(tiles, part, block, half, "%r_pair_0")
        yield f"@%p_inside st.global.b32 [%d_element+{place}], %r_pair_0;"


def _store_elements(tiles: WarpgroupTiles, part: int, block: int, half: int) -> Lines:
    """Store two neighbours of a row one by one; %d_element is the address of the first one."""
    size = OUTPUT_BYTES[tiles.output]
    values, kind = ("%h_low", "%h_high"), "b16"
    if tiles.finish is not None or size == 4:
        values, kind = (yield from _pair(tiles, part, block, half)), f"b{8 * size}"
    else:
        yield from _packed(tiles, part, block, half, "%r_pair_0")
        yield f"mov.b32 {{{values[0]}, {values[1]}}}, %r_pair_0;"
    yield "add.u64 %d_neighbour, %d_element, %d_stride_cn;"
    for place, (value, address) in enumerate(zip(values, ("%d_element", "%d_neighbour"), strict=True)):
        yield f"setp.gt.and.s32 %p_inside, %r_columns_left, {8 * block + place}, %p_row;"
        yield f"@%p_inside st.global.{kind} [{address}], {value};"


def _results(tiles: WarpgroupTiles, part: int, column_block: int) -> tuple[str, str, str, str]:
    """Return the registers of a thread in 64 rows and 8 columns: two of a row, then two of the row 8 below."""
    kind = "total" if tiles.starts_accumulators else "sum"
    first = part * ROWS * tiles.block_n // WARPGROUP + 4 * column_block
    return tuple(f"%r_{kind}_{first + index}" for index in range(4))  # type: ignore[return-value]


def _pair(
    tiles: WarpgroupTiles, part: int, block: int, half: int, mapped: int = 0
) -> Generator[str, None, tuple[str, str]]:
    """Return the registers of two neighbours of a row as they are stored: those of 16 bits are %h_, others 32 bits.

    `mapped` is the place of the block of 8 columns, 0 or 1, among those whose mapped operands were read at once.
    """
    low, high = _results(tiles, part, block)[2 * half : 2 * half + 2]
    if tiles.finish is None:
        return low, high
    found = []
    for index, each in operand_layouts(tiles):
        if each.size == 2 and each.columns in ("pairs", "map"):
            pair = (
                f"%r_mapped_{2 * mapped + half}"
                if each.columns == "map"
                else operand_register(index, each, part, half, block, 0)
            )
            yield f"mov.b32 {{%h_operand{index}_0, %h_operand{index}_1}}, {pair};"
    for place, total in enumerate((low, high)):
        text = finished(tiles.finish.epilogue, tiles.finish.dtype, f"element{place}_")
        operands = tuple(
            f"%h_operand{index}_{place}" if each.size == 2 and each.columns in ("pairs", "map")
            else operand_register(index, each, part, half, block, place)
            for index, each in operand_layouts(tiles)
        )  # fmt: skip
        yield with_registers("\n".join(text.lines), total, operands)
        found.append(text.result)
    return found[0], found[1]


def _packed(tiles: WarpgroupTiles, part: int, block: int, half: int, target: str, mapped: int = 0) -> Lines:
    """Write two neighbours of a row, of 16 or 8 bits each, to the lower bits of a register."""
    low, high = yield from _pair(tiles, part, block, half, mapped)
    if tiles.finish is None:
        yield f"cvt.rn.{ELEMENT_TYPES[tiles.output]}x2.f32 {target}, {high}, {low};"
    elif OUTPUT_BYTES[tiles.output] == 2:
        yield f"mov.b32 {target}, {{{low}, {high}}};"
    else:
        yield f"shl.b32 {target}, {high}, 8;\nor.b32 {target}, {target}, {low};"


def _group_barrier(tiles: WarpgroupTiles) -> Lines:
    """Wait for all threads of the consumer."""
    for consumer in range(tiles.consumers):
        yield f"@%p_is_{consumer} bar.sync {consumer + 1}, {WARPGROUP};"
