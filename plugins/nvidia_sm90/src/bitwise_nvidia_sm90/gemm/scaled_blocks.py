"""Products whose blocks of k have scales; see `bitwise_core.plugins.launchers.BlockScalingLauncher`.

Kernels of warpgroups compute them where tensor maps have the operands, and a Triton kernel all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bitwise_core.descriptors.problem import BLOCK_K, FinishedGEMM
from bitwise_core.plugins.launchers import EpilogueLaunch
from bitwise_nvidia_sm90.gemm.block_scaling import BlockScaling
from bitwise_nvidia_sm90.gemm.device_costs import costs_of_device
from bitwise_nvidia_sm90.gemm.launch import KernelCall
from bitwise_nvidia_sm90.gemm.matrix_layouts import has_map, type_of
from bitwise_nvidia_sm90.gemm.plan import MatrixPlan, Plan, UnsupportedGEMM, plan
from bitwise_nvidia_sm90.gemm.prepared_launches import PreparedProduct, launch_of_call, prepare
from bitwise_nvidia_sm90.gemm.run import compare_first
from bitwise_nvidia_sm90.gemm.scaled_block_schedules import ranked_schedules
from bitwise_nvidia_sm90.gemm.schedule import Schedule
from bitwise_nvidia_sm90.gemm.tuning import fastest_of

if TYPE_CHECKING:
    import torch

_FP8 = frozenset({"e4m3", "e5m2"})


def tile_of(m: int, n: int) -> tuple[dict[str, int], dict[str, int]]:
    """Return the constants of the tile of a Triton program, and the options of its launch."""
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
    """Return the constants of the Triton kernel that a description decides."""
    return {
        "WHOLE_BLOCKS": desc.product.k % BLOCK_K == 0, "LEFT_FIRST": desc.block_scaling == "left_first",
        "SLICED": (span_of(desc) or desc.product.k) < desc.product.k,
    }  # fmt: skip


def check(desc: FinishedGEMM) -> None:
    """Raise UnsupportedGEMM unless the kernels compute the sums of a description."""
    product = desc.product
    instruction = product.instruction
    fits = desc.block_scaling != "none" and {product.left_dtype, product.right_dtype} <= _FP8
    if not fits or instruction is None or (instruction.architecture, instruction.family) != ("sm_90", "wgmma"):
        raise UnsupportedGEMM("kernels of scaled blocks multiply fp8 operands by wgmma")


def triton_call(desc: FinishedGEMM, a: Any, b: Any, out: Any, scales_a: Any, scales_b: Any) -> KernelCall:
    """Return the launch of the Triton kernel, which takes matrices with any strides."""
    from bitwise_nvidia_sm90.gemm.kernels.scaled_blocks import scaled_blocks

    m, n, k = int(a.shape[0]), int(b.shape[1]), int(a.shape[1])
    tile, options = tile_of(m, n)
    names = ("am", "ak", "bk", "bn", "cm", "cn", "sam", "sak", "sbk", "sbn")
    strides = [int(step) for each in (a, b, out, scales_a, scales_b) for step in each.stride()]
    arguments = {
        "A": a, "B": b, "C": out, "SA": scales_a, "SB": scales_b, "M": m, "N": n, "K": k, "SPAN": span_of(desc) or k,
        **{f"stride_{name}": step for name, step in zip(names, strides, strict=True)},
    }  # fmt: skip
    shared = {
        "SHARED_ROWS": BLOCK_K if int(scales_a.shape[0]) < m else 1,
        "SHARED_COLUMNS": BLOCK_K if int(scales_b.shape[1]) < n else 1,
    }
    grid = (-(-m // tile["BLOCK_M"]) * -(-n // tile["BLOCK_N"]),)
    return KernelCall(scaled_blocks, grid, arguments, {**tile, **constants(desc), **shared}, options)


def prepare_scaled(
    desc: FinishedGEMM, a: torch.Tensor, b: torch.Tensor, scales_a: torch.Tensor, scales_b: torch.Tensor,
    out: torch.Tensor, most: int = 1,
) -> EpilogueLaunch:  # fmt: skip
    """Compute the scaled sums of a b, rounded to the type of out, and return the launches.

    They are a function of the addresses of a, b, out and the scales.  With `most` over 1, they are those of the fastest
    of so many schedules.  The first result of kernels of warpgroups is compared with the Triton kernel's.  Raises
    UnsupportedGEMM, and ScheduleMismatch if the bytes differ.
    """
    check(desc)
    planned = plan(desc.product)
    # detach() makes distinct objects, so that each argument identifies its matrix even if one tensor is passed twice.
    a, b, scales_a, scales_b, out = (each.detach() for each in (a, b, scales_a, scales_b, out))

    def by_triton(target: torch.Tensor) -> EpilogueLaunch:
        matrices = (a, b, target, scales_a, scales_b)
        return launch_of_call(triton_call(desc, *matrices), matrices, planned)

    left_first, found = desc.block_scaling == "left_first", list[PreparedProduct]()
    scaling = BlockScaling(scales_a, scales_b, left_first)
    for chosen in schedules(planned, a, b, out, scales_a, scales_b, left_first=left_first):
        try:
            found.append(prepare(desc.product, planned, chosen, a, b, out, scaling=scaling))
        except UnsupportedGEMM:
            continue
        text = f"{desc.product.to_text()} with scales, {desc.block_scaling}"
        compare_first(found[-1].code, out, by_triton, (f"{chosen} and a Triton kernel", text))
        if len(found) >= most:
            break
    if not found:
        return by_triton(out)
    if len(found) == 1:
        return found[0].launch
    return fastest_of(found, [each.data_ptr() for each in (a, b, out, scales_a, scales_b)]).launch


def schedules(
    planned: Plan, a: Any, b: Any, out: Any, scales_a: Any, scales_b: Any, *, left_first: bool
) -> list[Schedule]:
    """Return the schedules of kernels of warpgroups in the order to try them; none where they do not run."""
    if not isinstance(planned, MatrixPlan) or planned.k % BLOCK_K or not (has_map(a) and has_map(b)):
        return []
    m, n = (int(each) for each in out.shape)
    scaling = BlockScaling(scales_a, scales_b, left_first)
    own = scaling.scales(m, n, False), scaling.scales(m, n, True)
    types = type_of(a), type_of(b), type_of(out)
    return ranked_schedules(planned, m, n, own, types, costs_of_device(out.device).multiprocessors)
