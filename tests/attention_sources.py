"""Launches of the attention kernels as the checker and the simulation read them: PTX, compiled without a GPU."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from assembly_only import assembly_only
from bitwise_core.checker.sources import Source
from bitwise_core.execution.launch import Launch
from bitwise_nvidia_sm90.attention.prepared import Call, kernel_of


@dataclass(frozen=True, slots=True, eq=False)
class TensorShape:
    """A tensor without memory: the buffer of a launch, its type as Triton names it, its shape and its strides."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    size: int = 2

    def stride(self, axis: int | None = None) -> Any:
        """Return the strides in elements, or one of them."""
        return self.strides if axis is None else self.strides[axis]

    def data_ptr(self) -> int:
        """Return an address with the alignment of PyTorch's allocations."""
        return 0

    def element_size(self) -> int:
        """Return the size of an element in bytes."""
        return 4 if self.dtype == "fp32" else self.size

    def transpose(self, first: int, second: int) -> TensorShape:
        """Return the tensor with two axes exchanged."""
        order = list(range(len(self.shape)))
        order[first], order[second] = second, first
        shape, strides = (tuple(each[axis] for axis in order) for each in (self.shape, self.strides))
        return replace(self, shape=shape, strides=strides)

    def __getitem__(self, _: None) -> TensorShape:
        """Return the tensor with a first axis of one element."""
        return replace(self, shape=(1, *self.shape), strides=(self.shape[0] * self.strides[0], *self.strides))

    def flatten(self, first: int, last: int) -> TensorShape:
        """Return a contiguous tensor with adjacent axes joined."""
        joined = math.prod(self.shape[first : last + 1])
        shape = (*self.shape[:first], joined, *self.shape[last + 1 :])
        return replace(self, shape=shape, strides=(*self.strides[:first], *self.strides[last:]))


def dense(name: str, dtype: str, *shape: int) -> TensorShape:
    """Return a contiguous tensor of a shape."""
    strides = [1]
    for length in reversed(shape[1:]):
        strides.append(strides[-1] * length)
    return TensorShape(name, dtype, shape, tuple(reversed(strides)))


def compiled_call(call: Call) -> tuple[Any, list[dict[str, Any]]]:
    """Compile a launch for sm_90; return what Triton returns, and the arguments of a launch."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource

    kernel = kernel_of(call)
    plain = {parameter.num for parameter in kernel.params if parameter.do_not_specialize}
    signature: dict[str, str] = {}
    constants: dict[str, Any] = dict(call.constants)
    divisible: dict[tuple[int, ...], list[list[Any]]] = {}
    arguments: list[dict[str, Any]] = []
    for place, (name, value) in enumerate(zip(kernel.arg_names, call.arguments, strict=False)):
        if value is None:
            constants[name] = None
        elif hasattr(value, "block_shape"):
            layout = f",{value.layout!r}" if kernel.is_gluon() else ""
            signature[name] = f"tensordesc<{value.base.dtype}{list(value.block_shape)}{layout}>"
            arguments.append({"tensor_map": _map_of(value)})
            arguments += [{"i32": each} for each in value.shape] + [{"i64": each} for each in value.strides]
        elif isinstance(value, TensorShape):
            signature[name] = f"*{value.dtype}"
            divisible[(place,)] = [["tt.divisibility", 16]]
            element = {"fp8e4nv": "e4m3", "fp8e5": "e5m2"}.get(value.dtype, value.dtype)
            arguments.append({"buffer": value.name, "dtype": element})
        else:
            kind = "fp32" if isinstance(value, float) else "i32" if abs(value) < 1 << 31 else "i64"
            signature[name] = kind
            arguments.append({kind: value})
            if kind != "fp32" and value % 16 == 0 and place not in plain:
                divisible[(place,)] = [["tt.divisibility", 16]]
    signature |= dict.fromkeys(constants, "constexpr")
    ordered = {name: signature[name] for name in kernel.arg_names}
    kind = GluonASTSource if kernel.is_gluon() else ASTSource
    with assembly_only():
        compiled = triton.compile(
            kind(fn=kernel, signature=ordered, constexprs=constants, attrs=divisible),
            target=GPUTarget("cuda", 90, 32),
            options={
                "num_warps": call.warps,
                "num_stages": call.stages,
                "enable_fp_fusion": False,
                "maxnreg": call.registers,
            },
        )
    return compiled, arguments


def _map_of(value: Any) -> dict[str, Any]:
    """Return a tensor map of a launch, of which a copy has at most the columns of its swizzle."""
    swizzle = value.layout.swizzle_byte_width
    columns = swizzle // value.base.element_size() if swizzle else value.block_shape[-1]
    return {
        "buffer": value.base.name, "dtype": value.base.dtype, "shape": value.shape, "strides": value.strides,
        "block": [*value.block_shape[:-1], min(value.block_shape[-1], columns)],
        "swizzle": swizzle,
    }  # fmt: skip


def source_of(call: Call, contents: Mapping[str, Any] = MappingProxyType({})) -> Source:
    """Compile a launch for sm_90 and return it; its tensors are `TensorShape` records.

    `contents` are the integers of buffers by name.
    """
    compiled, arguments = compiled_call(call)
    for each in arguments:
        if each.get("buffer") in contents:
            each["values"] = contents[each["buffer"]].reshape(-1).tolist()
    text = compiled.asm["ptx"]
    scratch = text[: text.index(")\n")].count(".param") - len(arguments)
    launch = {
        "file": f"{call.kernel}.ptx", "grid": list(call.grid), "block": [32 * compiled.metadata.num_warps, 1, 1],
        "args": arguments + [{"kind": "buffer"}] * scratch, "shared": compiled.metadata.shared,
    }  # fmt: skip
    return Source(name=call.kernel, text=text, launch=Launch.model_validate(launch))
