"""Prepared launches: compiled once, reused for operands of the same types, shapes, strides, device and alignment."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bitwise_core.descriptors import GEMMDesc
from bitwise_core.plugins.launchers import EpilogueLaunch
from bitwise_nvidia_sm90.gemm.block_scaling import BlockScaling
from bitwise_nvidia_sm90.gemm.driver_launches import Image, Kernel, TooFewResources, launch_function, on_current_stream
from bitwise_nvidia_sm90.gemm.fusions import Fusion
from bitwise_nvidia_sm90.gemm.kernel_images import (
    check_alignment,
    object_file,
    text_parameters,
    triton_image,
    triton_parameters,
)
from bitwise_nvidia_sm90.gemm.kernels.text_kernel import TextKernel
from bitwise_nvidia_sm90.gemm.launch import KernelCall, kernel_calls
from bitwise_nvidia_sm90.gemm.matrix_layouts import TORCH_NAMES, MatrixMap
from bitwise_nvidia_sm90.gemm.plan import MatrixPlan, Plan, UnsupportedGEMM
from bitwise_nvidia_sm90.gemm.schedule import Schedule

if TYPE_CHECKING:
    import torch

_WORKSPACE_ALIGNMENT = 256
"""Bytes."""


@dataclass(frozen=True, slots=True)
class PreparedProduct:
    """All launches of a product.  It holds `desc`, so that the id of `desc`, by which it is cached, stays unique.

    `code` has the hash of each kernel.  `launch` computes out = a b on the current stream for the addresses of a, b and
    out, which have the layout and the alignment of the first call; with an epilogue, those of its operands follow, with
    scales those of A and of B.
    """

    desc: GEMMDesc
    chosen: Schedule
    code: tuple[str, ...]
    launch: EpilogueLaunch


def prepare(
    desc: GEMMDesc, plan: Plan, chosen: Schedule, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor,
    fusion: Fusion | None = None, scaling: BlockScaling | None = None,
) -> PreparedProduct:  # fmt: skip
    """Compute out = a b, its epilogue, or with scales of blocks of k, and return its launches.

    Raises UnsupportedGEMM for a schedule that does not fit.
    """
    given, made, space = _kernels(plan, chosen, a, b, out, fusion, scaling)
    sizes = [each.numel() * each.element_size() for each in space]
    try:
        launch = product_launch([kernel for kernel, _ in made], sizes, int(out.device.index), len(given))
    except TooFewResources as error:
        raise UnsupportedGEMM(f"{chosen}: {error}") from None
    launch(*(each.data_ptr() for each in given))
    return PreparedProduct(desc, chosen, tuple(code for _, code in made), launch)


def compile_kernels(
    plan: Plan, chosen: Schedule, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor,
    scaling: BlockScaling | None = None,
) -> None:  # fmt: skip
    """Compile the kernels of out = a b, which fills the compilers' caches, and launch nothing.

    Raises UnsupportedGEMM for a schedule that does not fit.
    """
    _kernels(plan, chosen, a, b, out, scaling=scaling)


def launch_of_call(call: KernelCall, matrices: Sequence[torch.Tensor], plan: Plan) -> EpilogueLaunch:
    """Launch one kernel, and return its launch as a function of the addresses of matrices, which are distinct objects.

    Raises UnsupportedGEMM.
    """
    launch = product_launch([_kernel(call, matrices, plan)[0]], [], int(matrices[0].device.index), len(matrices))
    launch(*(each.data_ptr() for each in matrices))
    return launch


def _kernels(
    plan: Plan, chosen: Schedule, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, fusion: Fusion | None = None,
    scaling: BlockScaling | None = None,
) -> tuple[tuple[torch.Tensor, ...], list[tuple[Kernel, str]], list[torch.Tensor]]:  # fmt: skip
    """Return the matrices of a product, its kernels with the hashes of their code, and the memory that they need."""
    import torch

    space: list[torch.Tensor] = []
    # detach() makes distinct objects, so that each argument identifies its matrix even if one tensor is passed twice.
    a, b, out = a.detach(), b.detach(), out.detach()
    if fusion is not None:
        fusion = replace(fusion, operands=tuple(each.detach() for each in fusion.operands))
    scales: tuple[torch.Tensor, ...] = ()
    if scaling is not None:
        scales = (scaling.scales_a.detach(), scaling.scales_b.detach())
        scaling = replace(scaling, scales_a=scales[0], scales_b=scales[1])
    given = (a, b, out, *(fusion.operands if fusion else ()), *scales)

    def workspace(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
        space.append(torch.empty(shape, dtype=getattr(torch, TORCH_NAMES[dtype]), device=out.device))
        return space[-1]

    calls = kernel_calls(plan, chosen, a, b, out, workspace, fusion, scaling)
    return given, [_kernel(each, (*given, *space), plan) for each in calls], space


def product_launch(
    kernels: Sequence[Kernel], workspaces: Sequence[int], device: int, matrices: int = 3
) -> EpilogueLaunch:
    """Return a function of the addresses of matrices that launches kernels on the current stream of a device.

    `workspaces` are the sizes in bytes of memory that each call allocates on that stream, all at once; their addresses
    follow those of the matrices.  Raises TooFewResources and DriverError.
    """
    import torch

    offsets, size = [], 0
    for each in workspaces:
        offsets.append(-(-size // _WORKSPACE_ALIGNMENT) * _WORKSPACE_ALIGNMENT)
        size = offsets[-1] + each
    others = tuple(offsets[1:])

    # The functions that PyTorch's public ones call, at a fifth of their cost.
    current_device = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
    current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", _current_stream)
    allocate = getattr(torch._C, "_cuda_cudaCachingAllocator_raw_alloc", _allocate)
    release = getattr(torch._C, "_cuda_cudaCachingAllocator_raw_delete", torch.cuda.caching_allocator_delete)
    launch_kernels = launch_function(kernels, matrices + len(workspaces), device)

    def launch(*given: int) -> None:
        if current_device() != device:
            with torch.cuda.device(device):
                launch(*given)
        elif size:
            stream = current_stream(device)
            space = allocate(size, stream)
            try:
                launch_kernels(stream, *given, space, *[space + each for each in others])
            finally:
                release(space)  # later allocations on this stream may use it, which follow these kernels
        else:
            launch_kernels(current_stream(device), *given)

    if size:
        return launch
    return on_current_stream(launch_kernels, device, current_device, current_stream, launch) or launch


def _current_stream(device: int) -> int:
    import torch

    return int(torch.cuda.current_stream(device).cuda_stream)


def triton_dispatch(
    plan: Plan, chosen: Schedule, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor
) -> Callable[[], None]:
    """Return a function that makes the same launches through Triton's dispatch, with all arguments prepared.

    It is the baseline for host time.  Raises UnsupportedGEMM for a schedule that does not fit.
    """
    import torch

    def workspace(shape: tuple[int, ...], dtype: str) -> Any:
        return torch.empty(shape, dtype=getattr(torch, TORCH_NAMES[dtype]), device=out.device)

    calls = kernel_calls(plan, chosen, a, b, out, workspace)
    if any(isinstance(each.kernel, TextKernel) for each in calls):
        raise UnsupportedGEMM(f"{chosen} runs a PTX text, which Triton does not dispatch")
    made = [
        (each.kernel[each.grid], {**each.arguments, **_maps(each.arguments), **each.constants, **each.options})
        for each in calls
    ]

    def launch() -> None:
        for kernel, given in made:
            kernel(**given)

    return launch


def _allocate(size: int, stream: int) -> int:
    import torch

    return int(torch.cuda.caching_allocator_alloc(size, stream=stream))


def _kernel(call: KernelCall, matrices: Sequence[Any], plan: Plan) -> tuple[Kernel, str]:
    """Return the launch of a call, whose matrices have the indices of these, and the hash of its code.

    Raises UnsupportedGEMM and DriverError.
    """
    if isinstance(call.kernel, TextKernel):
        kernel = call.kernel
        code = object_file(kernel.text)
        image = Image(code, kernel.name, kernel.threads, kernel.shared_bytes, kernel.cluster, kernel.dependent)
        return Kernel(image, _grid(call.grid), text_parameters(call, matrices)), hashlib.sha256(code).hexdigest()
    given = {**call.arguments, **call.constants}
    compiled = call.kernel.warmup(grid=call.grid, **{**given, **_maps(call.arguments)}, **call.options)
    if isinstance(plan, MatrixPlan) and plan.accumulator_k and "mma.sync" in compiled.asm.get("ptx", ""):
        raise UnsupportedGEMM("these tiles run fp8 by mma.sync, whose sums differ from wgmma's; choose larger tiles")
    parameters = triton_parameters(compiled, {name: given.get(name) for name in call.kernel.arg_names}, matrices)
    image = triton_image(compiled)
    image = replace(image, shared_bytes=max(image.shared_bytes, call.shared_bytes))
    return Kernel(image, _grid(call.grid), parameters), str(compiled.hash)


def _grid(given: tuple[int, ...]) -> tuple[int, int, int]:
    x, y, z = (*given, 1, 1)[:3]
    return x, y, z


def _maps(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return Triton's tensor descriptors of the matrix maps, by argument.

    Raises UnsupportedGEMM if one is unaligned.
    """
    from triton.tools.tensor_descriptor import TensorDescriptor

    found = {}
    for name, each in arguments.items():
        if isinstance(each, MatrixMap):
            check_alignment(each)
            found[name] = TensorDescriptor(each.matrix, list(each.shape), list(each.strides), list(each.block))
    return found
