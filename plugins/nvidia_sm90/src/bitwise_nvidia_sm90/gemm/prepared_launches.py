"""Prepared launches: compiled once, reused for operands of the same types, shapes, strides, device and alignment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bitwise_core.descriptors import GEMMDesc
from bitwise_nvidia_sm90.gemm.launch import KernelCall, MatrixMap, kernel_calls
from bitwise_nvidia_sm90.gemm.plan import MatrixPlan, Plan, UnsupportedGEMM
from bitwise_nvidia_sm90.gemm.schedule import Schedule

if TYPE_CHECKING:
    import torch

ALIGNMENT = 16
"""Bytes.  Triton specialises a kernel on whether an address is a multiple of this."""
_TORCH_NAMES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


@dataclass(frozen=True, slots=True)
class Slot:
    """An argument that changes between calls: a matrix, by its index in (a, b, out, workspace), or a tensor map of it.

    `position` is the index of the argument; `map` is the tensor descriptor of the first call, None for a matrix itself.
    """

    position: int
    matrix: int
    map: Any = None


@dataclass(frozen=True, slots=True)
class CompiledLaunch:
    """A compiled kernel with its arguments in order.

    `code` is the hash of the compiled kernel; `slots` are the arguments that each call fills in.
    """

    code: str
    runner: Callable[..., Any]
    arguments: tuple[Any, ...]
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class PreparedProduct:
    """All launches of a product.  It holds `desc`, so that the id of `desc`, by which it is cached, stays unique."""

    desc: GEMMDesc
    chosen: Schedule
    launches: tuple[CompiledLaunch, ...]
    workspace: tuple[tuple[int, ...], Any] | None

    def run(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        """Compute out = a b on the current stream, for operands of the layout of the first call."""
        matrices: tuple[Any, ...] = (a, b, out)
        if self.workspace is not None:
            matrices = (a, b, out, _allocated(*self.workspace, out))
        for each in self.launches:
            arguments = list(each.arguments)
            for slot in each.slots:
                matrix = matrices[slot.matrix]
                arguments[slot.position] = matrix if slot.map is None else _rebased(slot.map, matrix)
            each.runner(*arguments)


def _rebased(descriptor: Any, matrix: Any) -> Any:
    """Return the tensor descriptor for another matrix of the same shape, strides and alignment."""
    found = object.__new__(type(descriptor))
    found.__dict__.update(descriptor.__dict__)
    found.base = matrix
    return found


def _allocated(shape: tuple[int, ...], dtype: Any, out: Any) -> Any:
    import torch

    return torch.empty(shape, dtype=dtype, device=out.device)


def prepare(
    desc: GEMMDesc, plan: Plan, chosen: Schedule, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor
) -> PreparedProduct:
    """Compute out = a b and return its launches.  Raises UnsupportedGEMM for a schedule that does not fit."""
    import torch

    space: list[Any] = []
    # detach() makes distinct objects, so that each argument identifies its matrix even if one tensor is passed twice.
    a, b, out = a.detach(), b.detach(), out.detach()

    def workspace(shape: tuple[int, ...], dtype: str) -> Any:
        space.append(_allocated(shape, getattr(torch, _TORCH_NAMES[dtype]), out))
        return space[0]

    calls = kernel_calls(plan, chosen, a, b, out, workspace)
    launches = [_compiled(each, (a, b, out, *space), plan) for each in calls]
    reserved = (tuple(space[0].shape), space[0].dtype) if space else None
    return PreparedProduct(desc, chosen, tuple(launches), reserved)


def triton_dispatch(
    plan: Plan, chosen: Schedule, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor
) -> Callable[[], None]:
    """Return a function that makes the same launches through Triton's dispatch, with all arguments prepared.

    It is the baseline for host time.  Raises UnsupportedGEMM for a schedule that does not fit.
    """
    import torch

    def workspace(shape: tuple[int, ...], dtype: str) -> Any:
        return _allocated(shape, getattr(torch, _TORCH_NAMES[dtype]), out)

    made = [
        (each.kernel[each.grid], {**each.arguments, **_maps(each.arguments), **each.constants, **each.options})
        for each in kernel_calls(plan, chosen, a, b, out, workspace)
    ]

    def launch() -> None:
        for kernel, given in made:
            kernel(**given)

    return launch


def _compiled(call: KernelCall, matrices: Sequence[Any], plan: Plan) -> CompiledLaunch:
    given = {**call.arguments, **call.constants}
    maps = _maps(call.arguments)
    kernel = call.kernel[call.grid](**{**given, **maps}, **call.options)
    if isinstance(plan, MatrixPlan) and plan.accumulator_k and "mma.sync" in kernel.asm.get("ptx", ""):
        raise UnsupportedGEMM("these tiles run fp8 by mma.sync, whose sums differ from wgmma's; choose larger tiles")
    for each in maps.values():
        each.base = None  # the cached launch must not hold the memory of the first operands
    slots = []
    for position, name in enumerate(call.kernel.arg_names):
        value = given[name]
        owner = value.matrix if isinstance(value, MatrixMap) else value
        for number, matrix in enumerate(matrices):
            if owner is matrix:
                slots.append(Slot(position, number, maps.get(name)))
                break
    changing = {each.position for each in slots}
    arguments = (None if position in changing else given[name] for position, name in enumerate(call.kernel.arg_names))
    grid = (*call.grid, 1, 1)[:3]
    return CompiledLaunch(str(kernel.hash), kernel[grid], tuple(arguments), tuple(slots))


def _maps(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return Triton's tensor descriptors of the matrix maps, by argument.

    Raises UnsupportedGEMM if one is unaligned.
    """
    from triton.tools.tensor_descriptor import TensorDescriptor

    found = {}
    for name, each in arguments.items():
        if isinstance(each, MatrixMap):
            if each.matrix.data_ptr() % ALIGNMENT:
                raise UnsupportedGEMM(f"{name} is not aligned to {ALIGNMENT} bytes: tensor maps need that")
            found[name] = TensorDescriptor(each.matrix, list(each.shape), list(each.strides), list(each.block))
    return found
