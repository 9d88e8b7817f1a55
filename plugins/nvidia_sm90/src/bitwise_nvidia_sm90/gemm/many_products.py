"""Launches of many products at once: batches of matrices and groups of rows or of k, each one sum over k.

The descriptor of such a sum is `sequential_descriptor`, that of the fastest kernels for any number of rows: the tiles
of all schedules run through k in the same order, and few rows need no slices of k where a tile has few columns.
"""

from __future__ import annotations

from typing import Any

from bitwise_core.descriptors import Cut, GEMMDesc, Instruction
from bitwise_core.plugins.launchers import EpilogueLaunch
from bitwise_nvidia_sm90.gemm.launch import KernelCall
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
_WIDE = {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64, "FMA": False}
_LARGE = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "FMA": False}
_MULTIPROCESSORS = 132
"""Fewer wide tiles than an H100 has of these leave some without work."""
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
        if not found.from_negative_zero:
            return True
        raise UnsupportedGEMM("kernels of many products start their sums from +0")
    sequential = isinstance(found, MatrixPlan) and desc.left_dtype in _SIXTEEN_BITS and not desc.k_cuts
    if not sequential or desc.instruction_k != 16 or desc.k_loop_step is not None or desc.k_dropped:
        raise UnsupportedGEMM("kernels of many products take one sum over k of 16-bit or fp32 operands")
    return False


def batched_product(desc: GEMMDesc, a: Any, b: Any, out: Any) -> EpilogueLaunch:
    """Compute out[i] = a[i] b[i] and return its launch; see `SequentialLauncher`.  Raises UnsupportedGEMM."""
    fma, planned = _uses_fma(desc), plan(desc)
    from bitwise_nvidia_sm90.gemm.prepared_launches import launch_of_call

    starts = range(0, int(out.shape[0]), _LARGEST_GRID)
    # Slices are distinct objects, so that each argument identifies its tensor even if one tensor is passed twice.
    ranges = [slice(start, start + _LARGEST_GRID) for start in starts]
    parts = [(a[each], b[each], out[each]) for each in ranges]
    launches = [launch_of_call(batched_call(*part, fma), part, planned) for part in parts]
    if len(launches) == 1:
        return launches[0]
    distances = [
        tuple(each.data_ptr() - whole.data_ptr() for each, whole in zip(part, (a, b, out), strict=True))
        for part in parts
    ]

    def launch(*addresses: int) -> None:
        for run, steps in zip(launches, distances, strict=True):
            run(*(at + step for at, step in zip(addresses, steps, strict=True)))

    return launch


def batched_call(a: Any, b: Any, out: Any, fma: bool) -> KernelCall:
    """Return the launch of the products of a batch that fits a grid, for tensors of 3 axes."""
    from bitwise_nvidia_sm90.gemm.kernels.many_products import batched

    matrices, m, n = (int(each) for each in out.shape)
    tile = _LARGE if not fma and min(m, n) >= 256 else _TILES[fma]
    tiles = -(-m // tile["BLOCK_M"]) * -(-n // tile["BLOCK_N"])
    arguments = {"A": a, "B": b, "C": out, "M": m, "N": n, "K": int(a.shape[-1])}
    arguments |= _strides(a, "ab", "am", "ak") | _strides(b, "bb", "bk", "bn") | _strides(out, "cb", "cm", "cn")
    return KernelCall(batched, (tiles, matrices), arguments, tile | _whole(tile, arguments), _options(tile))


def grouped_product(desc: GEMMDesc, a: Any, b: Any, ends: Any, out: Any) -> EpilogueLaunch:
    """Compute the products of groups and return their launch; see `SequentialLauncher`.  Raises UnsupportedGEMM."""
    fma = _uses_fma(desc)
    from bitwise_nvidia_sm90.gemm.prepared_launches import launch_of_call

    tensors = a.detach(), b.detach(), ends.detach(), out.detach()  # distinct objects, as above
    return launch_of_call(grouped_call(*tensors, fma), tensors, plan(desc))


def grouped_call(a: Any, b: Any, ends: Any, out: Any, fma: bool) -> KernelCall:
    """Return the launch of the products of groups; see `SequentialLauncher.grouped_product`."""
    from bitwise_nvidia_sm90.gemm.kernels.many_products import groups_of_k, groups_of_rows

    m, n, groups = int(a.shape[0]), int(b.shape[-1]), int(ends.shape[0])
    rows = m if len(b.shape) == 2 else m // max(groups, 1)  # of a matrix, on an average
    tile = _TILES[fma]
    if not fma and min(rows, n) >= 256:
        tile = _LARGE
    elif not fma and groups * -(-rows // 64) * (n // 128) >= _MULTIPROCESSORS:
        tile = _WIDE
    across, down = -(-n // tile["BLOCK_N"]), -(-m // tile["BLOCK_M"])
    arguments = {"A": a, "B": b, "C": out, "ends": ends, "M": m, "N": n, "K": int(a.shape[1])}
    arguments |= _strides(a, "am", "ak")
    if len(b.shape) == 2:
        arguments |= _strides(b, "bk", "bn") | _strides(out, "cg", "cm", "cn")
        return KernelCall(groups_of_k, (down * across, groups), arguments, tile, _options(tile))
    arguments |= {"groups": groups} | _strides(b, "bg", "bk", "bn") | _strides(out, "cm", "cn")
    constants, grid = tile | _whole(tile, arguments), ((down + groups + 1) * across,)
    return KernelCall(groups_of_rows, grid, arguments, constants, _options(tile))


def _strides(tensor: Any, *axes: str) -> dict[str, int]:
    return {f"stride_{axis}": int(step) for axis, step in zip(axes, tensor.stride(), strict=True)}


def _whole(tile: dict[str, Any], arguments: dict[str, Any]) -> dict[str, bool]:
    """Return the constant that says whether all blocks of k are whole."""
    return {"WHOLE_BLOCKS": arguments["K"] % tile["BLOCK_K"] == 0}


def _options(tile: dict[str, Any]) -> dict[str, int]:
    return {"num_warps": 8, "num_stages": 3} if tile["BLOCK_M"] == 128 else {"num_warps": 4, "num_stages": 4}
