"""PTX that finds the jobs of a block: which tile of which slice it computes, and how many stages that has."""

from __future__ import annotations

from bitwise_nvidia_sm90.gemm.kernels.pipeline_text import Lines, ceiling_quotient
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_tiles import WarpgroupTiles


def job_places(tiles: WarpgroupTiles) -> Lines:
    """Compute the number of jobs, the first job, the step between jobs, and the block's rank along m and n."""
    rows, columns = tiles.block_m * tiles.cluster[0], tiles.block_n * tiles.cluster[1]
    yield from ceiling_quotient("%r_down", "%r_M", rows)
    yield from ceiling_quotient("%r_across", "%r_N", columns)
    yield "mul.lo.u32 %r_tiles, %r_down, %r_across;"
    yield "mul.lo.u32 %r_jobs, %r_tiles, %r_slices;"
    if tiles.blocks > 1:
        yield "mov.u32 %r_rank, %cluster_ctarank;"
        yield f"rem.u32 %r_rank_m, %r_rank, {tiles.cluster[0]};"
        yield f"div.u32 %r_rank_n, %r_rank, {tiles.cluster[0]};"
        yield "mov.u32 %r_job, %clusterid.x;"
        yield "mov.u32 %r_clusters, %nclusterid.x;"
    else:
        yield "mov.u32 %r_job, %ctaid.x;"
        yield "mov.u32 %r_clusters, %nctaid.x;"


def place_of_job(tiles: WarpgroupTiles) -> Lines:
    """Compute the row, the column, the slice, the first k and the number of stages of the job."""
    yield "div.u32 %r_slice, %r_job, %r_tiles;"
    yield "mul.lo.u32 %r_row, %r_slice, %r_tiles;"
    yield "sub.u32 %r_inside, %r_job, %r_row;"
    yield f"mul.lo.u32 %r_in_group, %r_across, {tiles.group};"
    yield "div.u32 %r_row, %r_inside, %r_in_group;"
    yield "mul.lo.u32 %r_column, %r_row, %r_in_group;"
    yield "sub.u32 %r_inside, %r_inside, %r_column;"
    yield f"mul.lo.u32 %r_row, %r_row, {tiles.group};"
    yield "sub.u32 %r_height, %r_down, %r_row;"
    yield f"min.u32 %r_height, %r_height, {tiles.group};"
    yield "div.u32 %r_column, %r_inside, %r_height;"
    yield "mul.lo.u32 %r_height, %r_column, %r_height;"
    yield "sub.u32 %r_inside, %r_inside, %r_height;"
    yield "add.u32 %r_row, %r_row, %r_inside;"
    for axis, (place, count, length) in enumerate(
        (("%r_row", tiles.cluster[0], tiles.block_m), ("%r_column", tiles.cluster[1], tiles.block_n))
    ):
        if count > 1:
            yield f"mad.lo.u32 {place}, {place}, {count}, %r_rank_{'mn'[axis]};"
        yield f"mul.lo.u32 {place}, {place}, {length};"
    yield from stages_of_slice(tiles, "%r_remaining")


def stages_of_slice(tiles: WarpgroupTiles, target: str) -> Lines:
    """Compute the first k of the slice, and the number of its stages."""
    yield "mul.lo.u32 %r_k, %r_slice, %r_slice_k;"
    yield f"sub.u32 {target}, %r_K, %r_k;"
    yield f"min.u32 {target}, {target}, %r_slice_k;"
    if tiles.gathering:
        yield f"mov.u32 %r_length, {target};"
    yield from ceiling_quotient(target, target, tiles.gathering.taken * 4 if tiles.gathering else tiles.block_k)
