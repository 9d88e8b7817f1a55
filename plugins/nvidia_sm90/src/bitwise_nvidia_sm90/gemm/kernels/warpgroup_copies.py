"""PTX of the producer of a product by warpgroups: it copies the operands of each stage through tensor maps."""

from __future__ import annotations

from bitwise_nvidia_sm90.gemm.kernels.block_scales import ROW_SCALES
from bitwise_nvidia_sm90.gemm.kernels.pipeline_text import Lines, next_stage, wait
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_jobs import place_of_job
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_parameters import mapped_scales
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_scales import slot_of_scales
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_tiles import WARPGROUP, OperandTile, WarpgroupTiles

_COPY = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"


def copying_producer(tiles: WarpgroupTiles) -> Lines:
    """One thread: wait until a stage is empty, and copy the operands of the next stage to it."""
    yield f"setmaxnreg.dec.sync.aligned.u32 {tiles.registers[0]};"
    yield f"setp.ne.u32 %p_idle, %r_thread, {tiles.consumers * WARPGROUP};"
    yield "@%p_idle bra END;"
    yield "PRODUCER_JOB: setp.ge.u32 %p_done, %r_job, %r_jobs;"
    yield f"@%p_done bra {'PRODUCER_END' if tiles.blocks > 1 else 'END'};"
    yield from place_of_job(tiles)
    yield "PRODUCER_STAGE: xor.b32 %r_empty_parity, %r_parity, 1;"
    yield from wait("WAIT_EMPTY", "%r_empty", "%r_empty_parity", ".relaxed.cluster" if tiles.blocks > 1 else "")
    if tiles.blocks > 1:
        yield "fence.acquire.sync_restrict::shared::cluster.cluster;"
    yield "shl.b32 %r_at, %r_stage, 3;\nadd.u32 %r_at, %r_at, %r_full;"
    yield f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r_at], {tiles.copied_bytes};"
    yield f"mad.lo.u32 %r_target, %r_stage, {tiles.a.bytes}, %r_shared;"
    yield from _copies(tiles, tiles.a, "A", "%r_row")
    yield f"mad.lo.u32 %r_target, %r_stage, {tiles.b.bytes}, %r_shared;"
    yield f"add.u32 %r_target, %r_target, {tiles.b_place};"
    yield from _copies(tiles, tiles.b, "B", "%r_column")
    for name in mapped_scales(tiles):
        place, first = (
            (tiles.row_scale_place, "%r_row") if name == ROW_SCALES else (tiles.scale_place, "%r_column")
        )  # fmt: skip
        yield from slot_of_scales(tiles, "%r_target", "%r_shared")
        yield f"add.u32 %r_target, %r_target, {place};"
        yield f"shr.u32 %r_scale_at, %r_k, {tiles.block_k.bit_length() - 1};"
        yield f"{_COPY} [%r_target], [%d_{name}, {{{first}, %r_scale_at}}], [%r_at];"
    yield from next_stage(tiles.stages)
    yield f"add.u32 %r_k, %r_k, {tiles.block_k};"
    yield "sub.u32 %r_remaining, %r_remaining, 1;"
    yield "setp.ne.u32 %p_more, %r_remaining, 0;"
    yield "@%p_more bra PRODUCER_STAGE;"
    yield "add.u32 %r_job, %r_job, %r_clusters;"
    yield "bra PRODUCER_JOB;"
    if tiles.blocks > 1:
        yield from _wait_for_arrivals(tiles)


def _wait_for_arrivals(tiles: WarpgroupTiles) -> Lines:
    """Wait until all stages are empty, so that no block ends while another one can access its shared memory.

    Then all blocks that share operands have what this one copied to them, and all of their arrivals at its barriers
    have landed.  A barrier of the cluster would not wait for arrivals that are under way.
    """
    yield f"PRODUCER_END: mov.u32 %r_remaining, {tiles.stages};"
    yield "PRODUCER_REST: xor.b32 %r_empty_parity, %r_parity, 1;"
    yield from wait("WAIT_REST", "%r_empty", "%r_empty_parity", ".relaxed.cluster")
    yield "fence.acquire.sync_restrict::shared::cluster.cluster;"
    yield from next_stage(tiles.stages)
    yield "sub.u32 %r_remaining, %r_remaining, 1;"
    yield "setp.ne.u32 %p_more, %r_remaining, 0;"
    yield "@%p_more bra PRODUCER_REST;"
    yield "bra END;"


def _copies(tiles: WarpgroupTiles, tile: OperandTile, name: str, place: str) -> Lines:
    """Copy a tile to the stage at %r_target; `place` is the register of its first row or column of the output.

    The blocks of a cluster that share the tile copy a part of it each, to all of them, or the stages in turn.
    """
    lines = tile.box[0]
    first = "%r_first_line"
    yield f"mov.u32 {first}, {place if tile.k_major else '%r_k'};"
    form, guard, mask = _COPY, "", ""
    if tile.sharers > 1:
        along_m = tiles.cluster[0]
        part, masks, shift = (
            ("%r_rank_n", sum(1 << along_m * each for each in range(tile.sharers)), "%r_rank_m")
            if name == "A"
            else ("%r_rank_m", (1 << along_m) - 1, "%r_first_rank")
        )
        if name == "B":
            yield f"mul.lo.u32 {shift}, %r_rank_n, {along_m};"
        if tile.parts > 1:
            yield f"mad.lo.u32 {first}, {part}, {lines}, {first};"
            yield f"mad.lo.u32 %r_target, {part}, {lines * tile.swizzle}, %r_target;"
        else:
            yield f"and.b32 %r_copier, %r_stage, {tile.sharers - 1};"
            yield f"setp.eq.u32 %p_copies, %r_copier, {part};"
            guard = "@%p_copies "
        yield f"mov.b16 %h_all, {masks};\nshl.b16 %h_all, %h_all, {shift};"
        form, mask = f"{form}.multicast::cluster", ", %h_all"
    for chunk in range(tile.chunks):
        offset = f"+{chunk * tile.lines * tile.swizzle}" if chunk else ""
        inner = "%r_k" if tile.k_major else place
        if chunk:
            yield f"add.u32 %r_chunk_{chunk}, {inner}, {chunk * tile.width};"
            inner = f"%r_chunk_{chunk}"
        yield f"{guard}{form} [%r_target{offset}], [%d_{name}, {{{inner}, {first}}}], [%r_at]{mask};"
