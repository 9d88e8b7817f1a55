"""Launches kept: what a first call compiled holds for operands of the same types, strides, device and alignment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bitwise_core.descriptors import GEMMDesc
from bitwise_nvidia_sm90.gemm.launch import KernelCall, Map, calls
from bitwise_nvidia_sm90.gemm.plan import MatrixPlan, Plan, Refused
from bitwise_nvidia_sm90.gemm.schedule import Schedule

if TYPE_CHECKING:
    import torch

ALIGNMENT = 16
"""Bytes that compiled kernels assume an address to be a multiple of, where it was one."""
_NAMES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


@dataclass(frozen=True, slots=True)
class Slot:
    """An argument that changes from call to call: a matrix by its number (a, b, out, workspace), or a map of it."""

    place: int
    matrix: int
    map: Any = None


@dataclass(frozen=True, slots=True)
class Ready:
    """A compiled kernel that takes all of its arguments in order; `code` names what was compiled."""

    code: str
    runner: Callable[..., Any]
    arguments: tuple[Any, ...]
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class Prepared:
    """All launches of a product; `desc` is held so that its id names it."""

    desc: GEMMDesc
    chosen: Schedule
    launches: tuple[Ready, ...]
    workspace: tuple[tuple[int, ...], Any] | None

    def run(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        """out = a b on the current stream, for operands like those of the first call."""
        matrices: tuple[Any, ...] = (a, b, out)
        if self.workspace is not None:
            matrices = (a, b, out, _memory(*self.workspace, out))
        for each in self.launches:
            arguments = list(each.arguments)
            for slot in each.slots:
                matrix = matrices[slot.matrix]
                arguments[slot.place] = matrix if slot.map is None else _moved(slot.map, matrix)
            each.runner(*arguments)


def _moved(descriptor: Any, matrix: Any) -> Any:
    """A tensor descriptor of another matrix of the same shape, strides and alignment."""
    found = object.__new__(type(descriptor))
    found.__dict__.update(descriptor.__dict__)
    found.base = matrix
    return found


def _memory(shape: tuple[int, ...], dtype: Any, out: Any) -> Any:
    import torch

    return torch.empty(shape, dtype=dtype, device=out.device)


def prepare(
    desc: GEMMDesc, plan: Plan, chosen: Schedule, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor
) -> Prepared:
    """Runs out = a b and keeps its launches.  Raises Refused for a schedule that does not fit."""
    import torch

    space: list[Any] = []
    # Each an object of its own, so that an argument's matrix is known where one is given twice.
    a, b, out = a.detach(), b.detach(), out.detach()

    def workspace(shape: tuple[int, ...], dtype: str) -> Any:
        space.append(_memory(shape, getattr(torch, _NAMES[dtype]), out))
        return space[0]

    planned = calls(plan, chosen, a, b, out, workspace)
    made = [_compiled(each, (a, b, out, *space), plan) for each in planned]
    kept = (tuple(space[0].shape), space[0].dtype) if space else None
    return Prepared(desc, chosen, tuple(made), kept)


def by_triton(plan: Plan, chosen: Schedule, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> Callable[[], None]:
    """The same launches by Triton's own dispatch, all arguments made beforehand: what the host's time is compared with.

    Raises Refused for a schedule that does not fit.
    """
    import torch

    def workspace(shape: tuple[int, ...], dtype: str) -> Any:
        return _memory(shape, getattr(torch, _NAMES[dtype]), out)

    made = [
        (each.kernel[each.grid], {**each.arguments, **_maps(each.arguments), **each.constants, **each.options})
        for each in calls(plan, chosen, a, b, out, workspace)
    ]

    def launch() -> None:
        for kernel, given in made:
            kernel(**given)

    return launch


def _compiled(call: KernelCall, matrices: Sequence[Any], plan: Plan) -> Ready:
    given = {**call.arguments, **call.constants}
    maps = _maps(call.arguments)
    kernel = call.kernel[call.grid](**{**given, **maps}, **call.options)
    if isinstance(plan, MatrixPlan) and plan.block and "mma.sync" in kernel.asm.get("ptx", ""):
        raise Refused("these tiles run fp8 by mma.sync, which adds it in another way; choose larger ones")
    for each in maps.values():
        each.base = None  # what is kept holds no memory of the first operands
    slots = []
    for place, name in enumerate(call.kernel.arg_names):
        value = given[name]
        owner = value.matrix if isinstance(value, Map) else value
        for number, matrix in enumerate(matrices):
            if owner is matrix:
                slots.append(Slot(place, number, maps.get(name)))
                break
    changing = {each.place for each in slots}
    arguments = (None if place in changing else given[name] for place, name in enumerate(call.kernel.arg_names))
    grid = (*call.grid, 1, 1)[:3]
    return Ready(str(kernel.hash), kernel[grid], tuple(arguments), tuple(slots))


def _maps(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Triton's tensor descriptors, by name."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    found = {}
    for name, each in arguments.items():
        if isinstance(each, Map):
            if each.matrix.data_ptr() % ALIGNMENT:
                raise Refused(f"{name} does not begin at a multiple of {ALIGNMENT} bytes: tensor maps need that")
            found[name] = TensorDescriptor(each.matrix, list(each.shape), list(each.strides), list(each.block))
    return found
