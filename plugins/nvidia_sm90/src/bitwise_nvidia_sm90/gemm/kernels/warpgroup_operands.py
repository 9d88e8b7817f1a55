"""PTX that loads the operands of an epilogue: to registers, or through a tensor map to where a tile is stored from."""

from __future__ import annotations

from bitwise_nvidia_sm90.gemm.kernels.finish import OperandLayout
from bitwise_nvidia_sm90.gemm.kernels.pipeline_text import Lines
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_parameters import OPERAND_PARAMETERS, map_address, operand_layouts
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_tiles import ROWS, STORE_BYTES, WarpgroupTiles


def thread_places() -> Lines:
    """Compute the thread's first row and column in the tile of its consumer."""
    yield "shr.u32 %r_thread_row, %r_lane, 2;"
    yield "mad.lo.u32 %r_thread_row, %r_warp, 16, %r_thread_row;"
    yield "and.b32 %r_thread_column, %r_lane, 3;"
    yield "shl.b32 %r_thread_column, %r_thread_column, 1;"


def operand_places(tiles: WarpgroupTiles) -> Lines:
    """Compute the thread's first row in a tile, and read the addresses of the epilogue's operands and their strides.

    The strides are in bytes.
    """
    if not operand_layouts(tiles):
        return
    if tiles.stores_through_map:
        yield from thread_places()
    yield "mov.u32 %r_finish_row, %r_thread_row;"
    if tiles.stores_through_map and not tiles.ping_pong:
        yield f"mad.lo.u32 %r_finish_row, %r_group, {tiles.consumer_rows}, %r_finish_row;"
    for index, layout in operand_layouts(tiles):
        name, *strides = (each.format(index) for each in OPERAND_PARAMETERS)
        if layout.columns == "map":
            yield from map_address(name)
            yield f"mul.lo.u32 %r_operand_barrier, %r_group, {8 * tiles.store_buffers};"
            yield "add.u32 %r_operand_barrier, %r_operand_barrier, %r_shared;"
            yield f"add.u32 %r_operand_barrier, %r_operand_barrier, {tiles.operand_place};"
            for buffer in range(tiles.store_buffers):
                yield f"mov.u32 %r_operand_parity_{buffer}, 0;"
            continue
        yield f"ld.param.u64 %d_{name}, [{name}];\ncvta.to.global.u64 %d_{name}, %d_{name};"
        for each in strides:
            yield f"ld.param.u64 %d_{each}, [{each}];\nmul.lo.u64 %d_{each}, %d_{each}, {layout.size};"


def early_operands(tiles: WarpgroupTiles) -> Lines:
    """Load what the epilogue needs while the product is computed: all operands, or the first parts of a mapped one."""
    if not operand_layouts(tiles):
        return
    yield "add.u32 %r_own_row, %r_row, %r_finish_row;"
    yield "add.u32 %r_own_column, %r_column, %r_thread_column;"
    if tiles.mapped_operand is not None:
        yield "mov.u32 %r_operand_row, %r_row;"
        if not tiles.ping_pong:
            yield f"mad.lo.u32 %r_operand_row, %r_group, {tiles.consumer_rows}, %r_operand_row;"
        yield "@%p_issues cp.async.bulk.wait_group.read 0;"
        for buffer, place in enumerate(tiles.store_places[: tiles.store_buffers]):
            yield from copy_operand(tiles, place, buffer)
    if tiles.operands_are_early:
        for part in range(tiles.consumer_rows // ROWS):
            yield from load_operands(tiles, part, (0, 1), range(tiles.block_n // 8))


def operands_of_part(tiles: WarpgroupTiles, places: tuple[tuple[int, int], ...], part: int) -> Lines:
    """Load the epilogue's operands of a part of the tile, if there is one: while the part before is stored."""
    if part < len(places) and not tiles.operands_are_early:
        row, column = places[part]
        blocks = range(column // 8, (column + tiles.store_columns) // 8)
        yield from load_operands(tiles, row // ROWS, (0, 1), blocks)


def copy_operand(tiles: WarpgroupTiles, place: tuple[int, int], buffer: int) -> Lines:
    """Copy a part of the epilogue's mapped operand to the buffer from which the part is stored."""
    row, column = place
    yield f"add.u32 %r_part_row, %r_operand_row, {row};"
    yield f"add.u32 %r_part_column, %r_column, {column};"
    yield (
        "@%p_issues mbarrier.arrive.expect_tx.shared::cta.b64 _, "
        f"[%r_operand_barrier+{8 * buffer}], {tiles.store_box[0] * tiles.store_swizzle};"
    )
    yield (
        "@%p_issues cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
        f"[%r_store+{buffer * STORE_BYTES}], [%d_O{tiles.mapped_operand}, {{{place_of_part(tiles)}}}], "
        f"[%r_operand_barrier+{8 * buffer}];"
    )


def place_of_part(tiles: WarpgroupTiles) -> str:
    """Return the registers of the place of a part in the tensor map of the output: in a line, then the line."""
    return "%r_part_row, %r_part_column" if tiles.store == "columns" else "%r_part_column, %r_part_row"


def wait_for_operand(part: int, buffer: int) -> Lines:
    """Wait until a part of the mapped operand is in its buffer, which no earlier store reads."""
    place = f"[%r_operand_barrier+{8 * buffer}], %r_operand_parity_{buffer}"
    yield f"WAIT_OPERAND_{part}: mbarrier.try_wait.parity.shared::cta.b64 %p_ready, {place};"
    yield f"@!%p_ready bra WAIT_OPERAND_{part};"
    yield f"xor.b32 %r_operand_parity_{buffer}, %r_operand_parity_{buffer}, 1;"


def operand_register(index: int, layout: OperandLayout, part: int, half: int, block: int, place: int) -> str:
    """Return the register of an operand's element: in a part of 64 rows, the row `half`, one of two neighbours.

    The elements of 16 bits that are loaded two at once share the register of the first.
    """
    kind = "h" if layout.size == 2 and layout.columns != "pairs" else "r"
    row = f"{part}_{half}" if layout.rows else "all"
    column = "all" if layout.columns == "same" else f"{block}_{place}"
    return f"%{kind}_operand{index}_{row}_{column}"


def load_operands(tiles: WarpgroupTiles, part: int, halves: tuple[int, ...], blocks: range) -> Lines:
    """Load the operands of blocks of 8 columns, except a mapped one; those outside of the matrix are not read.

    %r_own_row and %r_own_column are the thread's first row and column of the output.
    """
    for index, layout in operand_layouts(tiles):
        if layout.columns == "map":
            continue
        name, row_stride, column_stride = (f"%d_{each.format(index)}" for each in OPERAND_PARAMETERS)
        for half in halves if layout.rows else halves[:1]:
            yield f"add.u32 %r_part_row, %r_own_row, {part * ROWS + 8 * half};"
            yield "setp.lt.u32 %p_row, %r_part_row, %r_M;" if layout.rows else "mov.pred %p_row, -1;"
            yield "cvt.u64.u32 %d_row, %r_part_row;"
            yield f"mad.lo.u64 %d_operand_line, %d_row, {row_stride}, {name};"
            if layout.columns == "same":
                target = operand_register(index, layout, part, half, 0, 0)
                yield f"@%p_row ld.global.b{8 * layout.size} {target}, [%d_operand_line];"
                continue
            yield "cvt.u64.u32 %d_column, %r_own_column;"
            yield f"mad.lo.u64 %d_operand_line, %d_column, {column_stride}, %d_operand_line;"
            for block in blocks:
                for place in (0,) if layout.columns == "pairs" else (0, 1):
                    yield f"add.u32 %r_part_column, %r_own_column, {8 * block + place};"
                    yield "setp.lt.and.u32 %p_inside, %r_part_column, %r_N, %p_row;"
                    address = f"%d_operand_line+{(8 * block + place) * layout.size}"
                    if layout.columns != "pairs":
                        yield f"mad.lo.u64 %d_operand, {column_stride}, {8 * block + place}, %d_operand_line;"
                        address = "%d_operand"
                    yield from _load_operand(index, layout, part, half, block, place, address)


def _load_operand(
    index: int, layout: OperandLayout, part: int, half: int, block: int, place: int, address: str
) -> Lines:
    target = operand_register(index, layout, part, half, block, place)
    if layout.columns == "pairs" and layout.size == 4:
        pair = f"{{{target}, {operand_register(index, layout, part, half, block, 1)}}}"
        yield f"@%p_inside ld.global.v2.b32 {pair}, [{address}];"
    else:
        bits = 8 * layout.size * (2 if layout.columns == "pairs" else 1)
        yield f"@%p_inside ld.global.b{bits} {target}, [{address}];"
