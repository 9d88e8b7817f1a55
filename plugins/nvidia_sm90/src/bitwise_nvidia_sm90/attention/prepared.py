"""Launches of attention kernels: compiled once, repeated by address for tensors of the same shapes and strides."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

from bitwise_core.descriptors import Record
from bitwise_nvidia_sm90.gemm.driver_launches import Address, Kernel, Number, Parameter, TensorMap
from bitwise_nvidia_sm90.gemm.kernel_images import triton_image
from bitwise_nvidia_sm90.gemm.prepared_launches import product_launch

CAPACITY = 4096
"""The number of prepared calls; all are dropped when there are more."""


@dataclass(frozen=True, slots=True)
class Call:
    """A launch of a kernel: its module and name, the grid, its arguments in order, its constants by name.

    With `dependent`, the kernel may start before the previous one of its stream ends, for which it waits itself.
    Kernels with warps of several kinds divide `registers` for each thread among them, by default all there are.
    """

    module: str
    kernel: str
    grid: tuple[int, int, int]
    arguments: tuple[Any, ...]
    constants: dict[str, Any]
    warps: int
    stages: int
    dependent: bool = False
    registers: int | None = None


def kernel_of(call: Call) -> Any:
    """Return the Triton function of a call."""
    return getattr(import_module(f"bitwise_nvidia_sm90.attention.kernels.{call.module}"), call.kernel)


Workspace: TypeAlias = Callable[[tuple[int, ...]], Any]
"""Returns a tensor of fp32 of a shape."""

_prepared: dict[tuple[Any, ...], tuple[Record, Callable[..., None]]] = {}
"""Descriptors, which keep their ids unique, and functions of the addresses of a call's tensors."""


def launch(
    desc: Record, numbers: tuple[Any, ...], tensors: Sequence[Any], calls: Callable[[Workspace], list[Call]]
) -> Callable[..., None] | None:
    """Launch the kernels of `calls` on the current stream of the current device.

    They follow from `desc`, `numbers`, and the types, shapes, strides and alignments of `tensors`, some of which may be
    None; `calls` is asked for the first launch of these alone.  Return the function of the addresses of the tensors
    that launches them, or None where two of the tensors have one address.
    """
    given = [each for each in tensors if each is not None]
    addresses = [each.data_ptr() for each in given]
    key = (
        id(desc),
        numbers,
        given[0].device,
        *[None if each is None else (each.dtype, each.shape, each.stride()) for each in tensors],
        # One tensor that is given twice has one address; in another call there may be two.
        *[(address & -address & 255, addresses.index(address)) for address in addresses],
    )
    known = _prepared.get(key)
    if known is None:
        if len(_prepared) >= CAPACITY:
            _prepared.clear()
        known = _prepared[key] = desc, _prepare(calls, given)
    known[1](*addresses)
    return known[1] if len(set(addresses)) == len(addresses) else None


def _prepare(calls: Callable[[Workspace], list[Call]], given: Sequence[Any]) -> Callable[..., None]:
    """Return a function of the addresses of the given tensors that launches the kernels of calls."""
    import torch

    device = given[0].device
    space: list[Any] = []

    def workspace(shape: tuple[int, ...]) -> Any:
        space.append(torch.empty(shape, dtype=torch.float32, device=device))
        return space[-1]

    made = calls(workspace)
    places: dict[int, int] = {}
    for place, each in enumerate((*given, *space)):
        places.setdefault(each.data_ptr(), place)
    kernels = [launch_of(each, places) for each in made]
    sizes = [each.numel() * each.element_size() for each in space]
    return product_launch(kernels, sizes, int(device.index), len(given))


_compiled: dict[tuple[Any, ...], Any] = {}
"""What Triton compiled, by all that it specialises on: its own look-up takes most of the time of a new launch."""


def _compiled_kernel(call: Call, kernel: Any) -> Any:
    options = {
        "num_warps": call.warps, "num_stages": call.stages, "launch_pdl": call.dependent, "maxnreg": call.registers,
    }  # fmt: skip
    key = call.module, call.kernel, *options.values(), *call.constants.items(), *map(_specialisation, call.arguments)
    found = _compiled.get(key)
    if found is None:
        found = _compiled[key] = kernel.warmup(
            *call.arguments, grid=call.grid, **call.constants, **options, enable_fp_fusion=False
        )
    return found


def _specialisation(argument: Any) -> Any:
    """Return what of an argument decides the compiled kernel: a type, a tensor's alignment, a class of numbers."""
    if argument is None or isinstance(argument, bool):
        return argument
    if isinstance(argument, float):
        return float
    if isinstance(argument, int):
        return argument == 1, argument % 16 == 0, (argument + (1 << 31)) >> 32
    if hasattr(argument, "block_shape"):  # a tensor map
        layout = getattr(argument, "layout", None)
        box = tuple(argument.block_shape), layout, argument.padding
        return type(argument), argument.base.dtype, getattr(argument.base, "device", None), box
    return argument.dtype, getattr(argument, "device", None), argument.data_ptr() % 16 == 0


def launch_of(call: Call, places: dict[int, int]) -> Kernel:
    """Return the launch of a call, whose tensors have these places among the addresses, by their own addresses."""
    kernel = kernel_of(call)
    compiled = _compiled_kernel(call, kernel)
    maps = iter(compiled.metadata.tensordesc_meta or ())
    values = dict(zip(kernel.arg_names, call.arguments, strict=False))
    parameters: list[Parameter] = []
    for name, kind in compiled.src.signature.items():
        if kind == "constexpr":
            continue
        value = values[name]
        if kind.startswith("tensordesc"):
            form, base = next(maps), value.base
            shape, strides = tuple(map(int, value.shape)), tuple(map(int, value.strides))
            dtype = str(base.dtype).removeprefix("torch.")
            box = tuple(form["block_size"])
            place = places[base.data_ptr()]
            parameters.append(TensorMap(place, dtype, int(base.element_size()), shape, strides, box, form["swizzle"]))
            parameters += map(Number, (*shape, *strides))
        elif kind.startswith("*"):
            parameters.append(Address(places[value.data_ptr()]))
        elif isinstance(value, float):
            parameters.append(Number(struct.unpack("=i", struct.pack("=f", value))[0]))
        else:
            parameters.append(Number(int(value)))
    # Two addresses of scratch memory, which these kernels do not use, come last.
    return Kernel(triton_image(compiled), call.grid, (*parameters, Number(0), Number(0)))
