"""PTX that multiplies the stages of a job: the instructions of a warpgroup, and the barriers of the ring of stages."""

from __future__ import annotations

from bitwise_nvidia_sm90.gemm.kernels.pipeline_text import Lines, next_stage, wait
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_parameters import ELEMENT_TYPES
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_scales import (
    fenced_reads,
    load_scales,
    row_scales_of_stage,
    scaled_sums,
    scales_of_job,
    slot_of_scales,
)
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_tiles import ROWS, WARPGROUP, OperandTile, WarpgroupTiles

_SWIZZLE_CODES = {128: 1, 64: 2, 32: 3}
_INSTRUCTION_BYTES = 32
"""The bytes of k of one instruction."""
_MOST_STAGES_OF_JOB = 2**31 - 1
_ADDRESS_BITS = 14
"""The bits of an address in units of 16 bytes in a matrix descriptor."""


def descriptor_places(tiles: WarpgroupTiles) -> Lines:
    """Compute the matrix descriptors of the consumer's operands in the first stage."""
    own_rows = 0 if tiles.ping_pong else tiles.consumer_rows
    for name, tile, place in (("a", tiles.a, 0), ("b", tiles.b, tiles.b_place)):
        yield f"add.u32 %r_{name}_place, %r_shared, {place};"
        if name == "a" and own_rows:
            yield f"mad.lo.u32 %r_a_place, %r_group, {_row_offset(tile, own_rows)}, %r_a_place;"
        # Only these bits: above them, an address may hold the block's rank in its cluster.
        yield f"bfe.u32 %r_{name}_place, %r_{name}_place, 4, {_ADDRESS_BITS};"
        yield f"cvt.u64.u32 %d_{name}_first, %r_{name}_place;"
        yield f"or.b64 %d_{name}_first, %d_{name}_first, {_descriptor(tile)};"


def _row_offset(tile: OperandTile, rows: int) -> int:
    """Return the bytes from a row of a tile to the row `rows` below; both are multiples of 64."""
    return rows * tile.swizzle if tile.k_major else rows // tile.width * tile.lines * tile.swizzle


def _k_offset(tile: OperandTile, instruction: int) -> int:
    """Return the bytes from the first k of a tile to that of one of its instructions."""
    k = instruction * _INSTRUCTION_BYTES // tile.size
    if not tile.k_major:
        return k * tile.swizzle
    chunk, inside = divmod(k, tile.width)
    return chunk * tile.lines * tile.swizzle + inside * tile.size


def _descriptor(tile: OperandTile) -> int:
    """Return the matrix descriptor of a tile at address 0, as a signed number of 64 bits."""
    leading = 0 if tile.k_major else tile.lines * tile.swizzle
    stride = 8 * tile.swizzle
    found = leading >> 4 << 16 | stride >> 4 << 32 | _SWIZZLE_CODES[tile.swizzle] << 62
    return found - (1 << 64) if found >> 63 else found


def multiplied_stages(tiles: WarpgroupTiles) -> Lines:
    """Multiply all stages of a job in one accumulator; a stage is released while the next one is multiplied."""
    if tiles.ping_pong:
        yield from _wait_for_turn()
    yield from wait("WAIT_FIRST", "%r_full", "%r_parity", "")
    yield from _multiply(tiles, starts=True)
    yield from _advance(tiles)
    yield "@!%p_more bra LAST_STAGE;"
    yield "STAGE:"
    yield from wait("WAIT_FULL", "%r_full", "%r_parity", "")
    yield from _multiply(tiles, starts=False)
    yield "wgmma.wait_group.sync.aligned 1;"
    yield from _release(tiles)
    yield from _advance(tiles)
    yield "@%p_more bra STAGE;"
    yield "LAST_STAGE:"
    if tiles.ping_pong:
        yield from _give_turn()
    yield "wgmma.wait_group.sync.aligned 0;"
    yield from _release(tiles)


def promoted_stages(tiles: WarpgroupTiles) -> Lines:
    """Multiply each stage of a job in an accumulator of its own, and add it to the total, with scales by fma."""
    for index in range(tiles.consumer_rows * tiles.block_n // WARPGROUP):
        yield f"mov.b32 %r_total_{index}, 0f00000000;"
    if tiles.scales is not None:
        yield from scales_of_job(tiles)
    if tiles.ping_pong:
        yield from _wait_for_turn()
    in_parts = _stages_in_parts if tiles.column_parts > 1 else _stages_in_turn
    yield from (_alternating_stages if tiles.sums_alternate else in_parts)(tiles)
    if tiles.ping_pong:
        yield from _give_turn()


def _stages_in_turn(tiles: WarpgroupTiles) -> Lines:
    """Multiply a stage, then add its sums to the totals."""
    yield "STAGE:"
    yield from _next_scales(tiles)
    yield from wait("WAIT_FULL", "%r_full", "%r_parity", "")
    yield from _multiply(tiles, starts=True)
    yield from _advance(tiles)
    yield "wgmma.wait_group.sync.aligned 0;"
    yield from _add_to_totals(tiles, "sum")
    yield "@%p_more bra STAGE;"


def _alternating_stages(tiles: WarpgroupTiles) -> Lines:
    """Add the sums of a stage to the totals while the next one is multiplied; stages have two sets of sums in turn."""
    sets = ("sum", "next_sum")
    yield from _next_scales(tiles)
    yield from wait("WAIT_FIRST", "%r_full", "%r_parity", "")
    yield from _multiply(tiles, starts=True)
    yield from _advance(tiles)
    for place, (own, other) in enumerate((sets, sets[::-1])):
        yield f"STAGE_{place}: @!%p_more bra LAST_STAGE_{place};"
        yield from wait(f"WAIT_FULL_{place}", "%r_full", "%r_parity", "")
        yield from _multiply(tiles, starts=True, sums=other)
        yield "wgmma.wait_group.sync.aligned 1;"
        yield from _add_to_totals(tiles, own)
        yield from _next_scales(tiles)
        yield from _advance(tiles)
    yield "bra STAGE_0;"
    for place, own in enumerate(sets):
        yield f"LAST_STAGE_{place}: wgmma.wait_group.sync.aligned 0;"
        yield from _add_to_totals(tiles, own)
        if not place:
            yield "bra ADDED;"
    yield "ADDED:"


def _stages_in_parts(tiles: WarpgroupTiles) -> Lines:
    """Add the sums of a part of the columns to the totals while the next part is multiplied.

    Parts have two sets of sums in turn; there is an even number of them, so that the first one has the first set.
    ptxas serialises the instructions unless each part may leave the loop (its message C7514), so that there are
    branches for a number of stages that no job has.
    """
    sets, parts = ("sum", "next_sum"), tiles.column_parts
    yield from _next_scales(tiles)
    yield from wait("WAIT_FIRST", "%r_full", "%r_parity", "")
    yield from _multiply(tiles, starts=True)
    yield from _advance(tiles)
    yield f"STAGE: setp.gt.u32 %p_leaves, %r_remaining, {_MOST_STAGES_OF_JOB};"
    for part in range(1, parts):
        yield f"@%p_leaves bra LEAVE_{part};"
        yield from _multiply(tiles, starts=True, sums=sets[part % 2], column_part=part)
        yield "wgmma.wait_group.sync.aligned 1;"
        if part == 1:
            yield from row_scales_of_stage(tiles)
        yield from scaled_sums(tiles, sets[(part - 1) % 2], part - 1)
    yield "@!%p_more bra LAST_STAGE;"
    yield from wait("WAIT_FULL", "%r_full", "%r_parity", "")
    yield from _multiply(tiles, starts=True)
    yield "wgmma.wait_group.sync.aligned 1;"
    yield from _add_last_part(tiles, sets[1])
    yield from _next_scales(tiles)
    yield from _advance(tiles)
    yield "bra STAGE;"
    for part in range(1, parts):
        yield f"LEAVE_{part}: wgmma.wait_group.sync.aligned 0;"
        yield from scaled_sums(tiles, sets[(part - 1) % 2], part - 1)
        yield "bra ADDED;"
    yield "LAST_STAGE: wgmma.wait_group.sync.aligned 0;"
    yield from _add_last_part(tiles, sets[1])
    yield "ADDED:"


def _add_last_part(tiles: WarpgroupTiles, sums: str) -> Lines:
    """Release a stage that was multiplied, and add the sums of its last columns to the totals."""
    last = tiles.column_parts - 1
    if tiles.maps_column_scales:
        yield from scaled_sums(tiles, sums, last)
    if tiles.maps_scales:
        yield from fenced_reads(tiles)
    yield from _release(tiles)
    if not tiles.maps_column_scales:
        yield from scaled_sums(tiles, sums, last)


def _next_scales(tiles: WarpgroupTiles) -> Lines:
    if tiles.scales is not None:
        yield from load_scales(tiles)


def _add_to_totals(tiles: WarpgroupTiles, sums: str) -> Lines:
    """Release a stage that was multiplied, and add its sums, registers of this name, to the totals."""
    yield from row_scales_of_stage(tiles)
    if tiles.maps_column_scales:
        # Those of columns are read from the stage as sums are added.
        yield from scaled_sums(tiles, sums)
    if tiles.maps_scales:
        yield from fenced_reads(tiles)
    yield from _release(tiles)
    if tiles.scales is not None:
        if not tiles.maps_column_scales:
            yield from scaled_sums(tiles, sums)
        return
    for index in range(tiles.consumer_rows * tiles.block_n // WARPGROUP):
        yield f"add.rn.f32 %r_total_{index}, %r_total_{index}, %r_{sums}_{index};"


def _wait_for_turn() -> Lines:
    """Wait until the other consumer has multiplied the job before.

    Then all stages of that job are full, so that a parity tells the awaited phase of a stage from the one before.
    """
    yield "WAIT_TURN: mbarrier.try_wait.parity.shared::cta.b64 %p_ready, [%r_turn], %r_turn_parity;"
    yield "@!%p_ready bra WAIT_TURN;"
    yield "xor.b32 %r_turn_parity, %r_turn_parity, 1;"


def _give_turn() -> Lines:
    """Let the other consumer multiply: this one has waited for all of its stages."""
    yield "@%p_leads mbarrier.arrive.shared::cta.b64 _, [%r_other_turn];"


def _advance(tiles: WarpgroupTiles) -> Lines:
    """Go to the next stage; %r_used holds the barrier of the one before, and %p_more is whether the job has more.

    The barrier is computed here, since the stage before is still being read; so is the place of its scales.
    """
    yield "mov.u32 %r_used, %r_next_used;"
    if tiles.maps_column_scales:
        yield "mov.u32 %r_scales, %r_next_scales;"
    if tiles.maps_row_scales:
        yield "mov.u32 %r_row_scales, %r_next_row_scales;"
    yield from next_stage(tiles.stages)
    yield "sub.u32 %r_remaining, %r_remaining, 1;"
    yield "setp.ne.u32 %p_more, %r_remaining, 0;"


def _release(tiles: WarpgroupTiles) -> Lines:
    """Each warp has read the stage before: it arrives at the barriers of all blocks that copy to this one.

    A fence of this block's shared memory and a relaxed arrival publish the reads to the cluster.  An arrival with
    `.release.cluster` would wait for a fence of all memory of the device.
    """
    if tiles.blocks > 1:
        yield "fence.release.sync_restrict::shared::cta.cluster;"
        yield "@%p_releases mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%r_used];"
    else:
        yield "@%p_leads mbarrier.arrive.shared::cta.b64 _, [%r_used];"


def _multiply(tiles: WarpgroupTiles, *, starts: bool, sums: str = "sum", column_part: int = 0) -> Lines:
    """Multiply a part of the columns of a stage: k in ascending order for each accumulator, registers named `sums`.

    `starts`: from new accumulators.  The first part is of the current stage, and others are of its stage.
    """
    if not column_part:
        yield from _stage_places(tiles)
    yield "wgmma.fence.sync.aligned;"
    columns = tiles.block_n // tiles.column_parts
    parts, per_part = tiles.consumer_rows // ROWS, ROWS * columns // WARPGROUP
    elements = ".".join(ELEMENT_TYPES[each] for each in tiles.operands)
    k = _INSTRUCTION_BYTES // tiles.a.size
    form = f"wgmma.mma_async.sync.aligned.m64n{columns}k{k}.f32.{elements}"
    layouts = f", {int(not tiles.a_k_major)}, {int(not tiles.b_k_major)}" if tiles.a.size == 2 else ""
    start = _row_offset(tiles.b, column_part * columns) if column_part else 0
    for instruction in range(tiles.block_k // k):
        right = f"%d_b_{instruction}" + (f"_{column_part}" if column_part else "")
        yield f"add.s64 {right}, %d_b_stage, {start + _k_offset(tiles.b, instruction) >> 4};"
        adds = "%p_starts" if starts and not instruction else "%p_adds"
        for part in range(parts):
            left = f"%d_a_{instruction}_{part}"
            if not column_part:
                offset = _row_offset(tiles.a, part * ROWS) + _k_offset(tiles.a, instruction)
                yield f"add.s64 {left}, %d_a_stage, {offset >> 4};"
            own = ", ".join(f"%r_{sums}_{index}" for index in range(part * per_part, (part + 1) * per_part))
            yield f"{form} {{{own}}}, {left}, {right}, {adds}, 1, 1{layouts};"
    yield "wgmma.commit_group.sync.aligned;"


def _stage_places(tiles: WarpgroupTiles) -> Lines:
    """Compute the descriptors of the current stage, its barrier and the places of its scales."""
    for name, tile in (("a", tiles.a), ("b", tiles.b)):
        yield f"mul.wide.u32 %d_{name}_offset, %r_stage, {tile.bytes >> 4};"
        yield f"add.s64 %d_{name}_stage, %d_{name}_first, %d_{name}_offset;"
    yield "shl.b32 %r_next_used, %r_stage, 3;\nadd.u32 %r_next_used, %r_next_used, %r_empty;"
    if tiles.maps_column_scales:
        yield from slot_of_scales(tiles, "%r_next_scales", "%r_first_scales")
    if tiles.maps_row_scales:
        yield from slot_of_scales(tiles, "%r_next_row_scales", "%r_first_row_scales")
