"""The kernels of warpgroups that schedules choose."""

from __future__ import annotations

from functools import lru_cache

from bitwise_nvidia_sm90.gemm.kernels.block_scales import BlockScales
from bitwise_nvidia_sm90.gemm.kernels.finish import Finish
from bitwise_nvidia_sm90.gemm.kernels.text_kernel import TextKernel
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_text import warpgroup_kernel
from bitwise_nvidia_sm90.gemm.kernels.warpgroup_tiles import (
    OPERAND_BYTES,
    STAGE_BYTES,
    Gathering,
    TileError,
    WarpgroupTiles,
)
from bitwise_nvidia_sm90.gemm.plan import MatrixPlan, UnsupportedGEMM
from bitwise_nvidia_sm90.gemm.schedule import Schedule


def warpgroup_tiles(
    plan: MatrixPlan, chosen: Schedule, types: tuple[str, str, str], k_major: tuple[bool, bool], store: str,
    finish: Finish | None = None, aligned: tuple[bool, bool] = (True, True), scales: BlockScales | None = None,
) -> WarpgroupTiles:  # fmt: skip
    """Return the tiles of a schedule with consumers.

    `types` are those of A, B and the matrix that the kernel stores; `k_major` says for A and B whether their values of
    k are contiguous; `store` is how a tile is stored, and `finish` what is stored; `aligned` is that of a gathering,
    and `scales` are those of blocks of k.  Raises UnsupportedGEMM.
    """
    *operands, output = types
    gathering = None
    if chosen.gathering:
        gathering = Gathering(chosen.gathering, plan.short_first, plan.instruction_k8, aligned)
    cluster = (chosen.cluster_m, chosen.cluster_n)
    found = WarpgroupTiles(
        chosen.block_m, chosen.block_n, chosen.stages, chosen.consumers, chosen.ping_pong, cluster, chosen.group,
        (operands[0], operands[1]), output, *k_major, store, plan.starts_accumulators, finish, chosen.resident,
        chosen.overlap, gathering, chosen.block_k * OPERAND_BYTES[operands[0]] // STAGE_BYTES, scales,
    )  # fmt: skip
    try:
        found.check()
    except TileError as error:
        raise UnsupportedGEMM(f"{chosen}: {error}") from None
    return found


def text_kernel(
    plan: MatrixPlan, chosen: Schedule, types: tuple[str, str, str], k_major: tuple[bool, bool], store: str
) -> TextKernel:
    """Return the kernel of a schedule with consumers; the arguments are those of `warpgroup_tiles`."""
    return kernel_of(warpgroup_tiles(plan, chosen, types, k_major, store))


@lru_cache(maxsize=256)
def kernel_of(tiles: WarpgroupTiles) -> TextKernel:
    """Return the kernel of checked tiles."""
    return warpgroup_kernel(tiles)
