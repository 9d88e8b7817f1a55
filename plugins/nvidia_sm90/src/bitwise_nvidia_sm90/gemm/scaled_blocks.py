"""Launches of products whose blocks of k have scales; see `bitwise_core.plugins.launchers.BlockScalingLauncher`."""

from __future__ import annotations

from typing import Any

from bitwise_core.descriptors.problem import BLOCK_K, FinishedGEMM
from bitwise_nvidia_sm90.gemm.plan import UnsupportedGEMM

_FP8 = frozenset({"e4m3", "e5m2"})


def tile_of(m: int, n: int) -> tuple[dict[str, int], dict[str, int]]:
    """Return the constants of the tile of a program, and the options of its launch."""
    if m <= 64:
        return {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": BLOCK_K, "GROUP": 8}, {"num_warps": 4, "num_stages": 4}
    if -(-m // 128) * -(-n // 128) < 132:
        return {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": BLOCK_K, "GROUP": 8}, {"num_warps": 4, "num_stages": 4}
    return {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": BLOCK_K, "GROUP": 8}, {"num_warps": 8, "num_stages": 4}


def span_of(desc: FinishedGEMM) -> int | None:
    """Return the values of k of a slice, None where there is one slice."""
    cuts = desc.product.k_cuts
    return cuts[0].span if len(cuts) > 1 else None


def constants(desc: FinishedGEMM) -> dict[str, bool]:
    """Return the constants of the kernel that a description decides."""
    return {
        "WHOLE_BLOCKS": desc.product.k % BLOCK_K == 0, "LEFT_FIRST": desc.block_scaling == "left_first",
        "SLICED": (span_of(desc) or desc.product.k) < desc.product.k,
    }  # fmt: skip


def check(desc: FinishedGEMM) -> None:
    """Raise UnsupportedGEMM unless the kernel computes the sums of a description."""
    product = desc.product
    instruction = product.instruction
    fits = desc.block_scaling != "none" and {product.left_dtype, product.right_dtype} <= _FP8
    if not fits or instruction is None or (instruction.architecture, instruction.family) != ("sm_90", "wgmma"):
        raise UnsupportedGEMM("kernels of scaled blocks multiply fp8 operands by wgmma")


def scaled_sums(desc: FinishedGEMM, a: Any, b: Any, scales_a: Any, scales_b: Any, out: Any) -> None:
    """Compute the scaled sums of a b, rounded to the type of out.  Raises UnsupportedGEMM."""
    from bitwise_nvidia_sm90.gemm.kernels.scaled_blocks import scaled_blocks

    check(desc)
    m, n, k = int(a.shape[0]), int(b.shape[1]), int(a.shape[1])
    tile, options = tile_of(m, n)
    scaled_blocks[(-(-m // tile["BLOCK_M"]) * -(-n // tile["BLOCK_N"]),)](
        a, b, out, scales_a, scales_b, m, n, k, span_of(desc) or k, *a.stride(), *b.stride(), *out.stride(),
        *scales_a.stride(), *scales_b.stride(), **tile, **constants(desc), **options,
    )  # fmt: skip
