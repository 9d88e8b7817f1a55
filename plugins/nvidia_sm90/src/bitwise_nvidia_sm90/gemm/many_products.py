"""Launches of many products at once: batches of matrices and groups of rows or of k, each one sum over k.

The descriptor of such a sum is `sequential_descriptor`, that of the fastest kernels for any number of rows: the tiles
of all schedules run through k in the same order, and few rows need no slices of k where a tile has few columns.
"""

from __future__ import annotations

from typing import Any

from bitwise_core.descriptors import Cut, GEMMDesc, Instruction
from bitwise_nvidia_sm90.gemm.plan import MatrixPlan, SinglePrecisionPlan, UnsupportedGEMM, plan

_FP8_BLOCK = 128
"""The values of k after which fp8 starts a new accumulator."""
_SIXTEEN_BITS = frozenset({"fp16", "bf16"})
_FP8 = frozenset({"e4m3", "e5m2"})
_TILES = {
    False: {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "FMA": False},
    True: {"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 1, "FMA": True},
}
"""By whether fused multiply-adds run: the tile of a program."""
_LARGE = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "FMA": False}
_LARGEST_GRID = 32768
"""Matrices along one axis of a grid."""


def sequential_descriptor(
    k: int, left: str, right: str, output: str, rounded: bool = False, one_accumulator: bool = True
) -> GEMMDesc:
    """Return the descriptor of one sum over k; see `SequentialLauncher.sequential`.  Raises UnsupportedGEMM."""
    types = {left, right}
    cuts: tuple[Cut, ...] = ()
    if types <= _SIXTEEN_BITS and left == right:
        native = 16
    elif types <= _FP8:
        native = 32
        cuts = () if one_accumulator or k <= _FP8_BLOCK else (Cut(span=_FP8_BLOCK),)
    elif types == {"fp32"}:
        if not rounded:
            return GEMMDesc(k=k, left_dtype=left, right_dtype=right, output_dtype=output, path="fma")
        instruction = Instruction(architecture="sm_90", family="wgmma", k=8)
        return GEMMDesc(
            k=k, left_dtype=left, right_dtype=right, output_dtype=output, path="matrix", instruction=instruction,
            instruction_k=8, multiplied_as="tf32",
        )  # fmt: skip
    else:
        raise UnsupportedGEMM(f"operands of {left} and {right}: these kernels multiply two of fp16, bf16, fp32 or fp8")
    return GEMMDesc(
        k=k, left_dtype=left, right_dtype=right, output_dtype=output, path="matrix", instruction_k=native, k_cuts=cuts,
        instruction=Instruction(architecture="sm_90", family="wgmma", k=native),
    )  # fmt: skip


def _uses_fma(desc: GEMMDesc) -> bool:
    """Return whether a descriptor's kernel runs fused multiply-adds.  Raises UnsupportedGEMM."""
    found = plan(desc)
    if isinstance(found, SinglePrecisionPlan) and not found.tf32 and found.slices.number == 1 and not found.dealt:
        return True
    sequential = isinstance(found, MatrixPlan) and desc.left_dtype in _SIXTEEN_BITS and not desc.k_cuts
    if not sequential or desc.instruction_k != 16 or desc.k_loop_step is not None or desc.k_dropped:
        raise UnsupportedGEMM("kernels of many products take one sum over k of 16-bit or fp32 operands")
    return False


def batched_product(desc: GEMMDesc, a: Any, b: Any, out: Any) -> None:
    """Compute out[i] = a[i] b[i]; see `SequentialLauncher.batched_product`.  Raises UnsupportedGEMM."""
    from bitwise_nvidia_sm90.gemm.kernels.many_products import batched

    fma = _uses_fma(desc)
    matrices, m, n = (int(each) for each in out.shape)
    tile = _LARGE if not fma and min(m, n) >= 256 else _TILES[fma]
    tiles = -(-m // tile["BLOCK_M"]) * -(-n // tile["BLOCK_N"])
    for start in range(0, matrices, _LARGEST_GRID):
        part = slice(start, start + _LARGEST_GRID)
        x, y, z = a[part], b[part], out[part]
        batched[(tiles, int(z.shape[0]))](
            x, y, z, m, n, int(a.shape[-1]), *x.stride(), *y.stride(), *z.stride(), **tile, num_warps=_warps(tile)
        )


def grouped_product(desc: GEMMDesc, a: Any, b: Any, ends: Any, out: Any) -> None:
    """Compute the products of groups; see `SequentialLauncher.grouped_product`.  Raises UnsupportedGEMM."""
    from bitwise_nvidia_sm90.gemm.kernels.many_products import groups_of_k, groups_of_rows

    fma = _uses_fma(desc)
    m, n, k, groups = int(a.shape[0]), int(b.shape[-1]), int(a.shape[1]), int(ends.shape[0])
    tile = _LARGE if not fma and min(m, n) >= 1024 else _TILES[fma]
    across = -(-n // tile["BLOCK_N"])
    if b.dim() == 2:
        grid = (-(-m // tile["BLOCK_M"]) * across, groups)
        groups_of_k[grid](
            a, b, out, ends, m, n, k, *a.stride(), *b.stride(), *out.stride(), **tile, num_warps=_warps(tile)
        )
        return
    grid_of_rows = ((-(-m // tile["BLOCK_M"]) + groups + 1) * across,)
    groups_of_rows[grid_of_rows](
        a, b, out, ends, groups, m, n, k, *a.stride(), *b.stride(), *out.stride(), **tile, num_warps=_warps(tile)
    )


def _warps(tile: dict[str, Any]) -> int:
    return 8 if tile["BLOCK_M"] == 128 else 4
