"""Matrix products for the GEMM kernels of sm_90: descriptors, operands, and compiled Triton kernels."""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from assembly_only import assembly_only
from bitwise_core.checker.analysis import prepare
from bitwise_core.checker.sources import Options, Source
from bitwise_core.descriptors import GEMMDesc, read
from bitwise_core.execution.launch import Launch
from bitwise_core.execution.simulation import simulate
from bitwise_core.numerics import FLOAT_FORMATS, Bits, storage
from bitwise_core.plugins import registry
from bitwise_nvidia_sm90.gemm.kernels.text_kernel import TextKernel
from bitwise_nvidia_sm90.gemm.launch import KernelCall, kernel_calls
from bitwise_nvidia_sm90.gemm.matrix_layouts import MatrixMap
from bitwise_nvidia_sm90.gemm.plan import plan
from bitwise_nvidia_sm90.gemm.schedule import Schedule

TYPES = {"fp16": "fp16", "bf16": "bf16", "fp32": "fp32", "e4m3": "fp8e4nv", "e5m2": "fp8e5"}
WGMMA, MMA, MMA_K8 = "family=wgmma k=16", "family=mma.sync k=16", "family=mma.sync k=8"


@dataclass(frozen=True)
class Matrix:
    """The name, shape, strides, type and address of a tensor, as far as a launch uses them."""

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    address: int = 0

    def stride(self) -> tuple[int, ...]:
        return self.strides

    def data_ptr(self) -> int:
        return self.address


def matrix(k: int, unit: str, rest: str = "", dtype: str = "fp16", out: str | None = None) -> GEMMDesc:
    number = unit.split("=")[-1]
    found = read(
        f"gemm(k={k} left_dtype={dtype} right_dtype={dtype} output_dtype={out or dtype} path=matrix "
        f"instruction=instruction(architecture=sm_90 {unit}) instruction_k={number} {rest})"
    )
    assert isinstance(found, GEMMDesc)
    return found


def values_of_product(desc: GEMMDesc, m: int, n: int, chosen: Schedule) -> dict[str, Hashable]:
    """Return what decides the paths of a kernel of warpgroups through a product, for a covering set of schedules."""
    tiles = chosen.tiles(m, n)
    return {
        "types": (desc.left_dtype, desc.output_dtype),
        "slices": len(desc.k_cuts),
        "rows of a consumer": chosen.block_m // (64 if chosen.ping_pong else 64 * max(1, chosen.consumers)),
        "columns": (chosen.block_n % 16 != 0, chosen.block_n > 128),
        "consumers": (chosen.consumers, chosen.ping_pong),
        "transposed": chosen.transposed,
        "cluster": (chosen.cluster_m, chosen.cluster_n),
        "k of a stage": chosen.block_k,
        "turns": 0 < chosen.programs < tiles,
        "resident": (chosen.resident, chosen.overlap),
        "ragged": (m % chosen.block_m != 0, n % chosen.block_n != 0),
    }


def cost_of_product(desc: GEMMDesc, m: int, n: int, chosen: Schedule) -> float:
    """Return roughly the time of a simulation of a product."""
    return 1 + chosen.tiles(m, n) * chosen.cluster_m * chosen.cluster_n * (1 + desc.k / 200) / 8


def random_patterns(shape: tuple[int, int], dtype: str, random: np.random.Generator) -> Bits:
    form = FLOAT_FORMATS[dtype]
    exponent = random.integers(form.bias - 4, form.bias + 4, shape, dtype=np.uint64)
    fraction = random.integers(0, 1 << form.mantissa_bits, shape, dtype=np.uint64)
    sign = random.integers(0, 2, shape, dtype=np.uint64) << np.uint64(form.magnitude_bits)
    return (sign | exponent << np.uint64(form.mantissa_bits) | fraction).astype(storage(form.bits))


def _triton_argument(each: Any) -> Any:
    from bitwise_triton.arguments import Buffer, TensorMap

    if isinstance(each, MatrixMap):
        return TensorMap(_triton_argument(each.matrix), each.shape, each.strides, each.block)
    return Buffer(each.name, TYPES[each.dtype]) if isinstance(each, Matrix) else each


def compiled_kernel(call: KernelCall) -> Any:
    """Return the compiled Triton kernel of a call."""
    from bitwise_triton.configurations import compile_configuration

    arguments = {name: _triton_argument(each) for name, each in call.arguments.items()}
    constants, options = dict(call.constants), dict[str, Any](call.options)
    with assembly_only():
        return compile_configuration(call.kernel, arguments, constants, grid=call.grid, **options)


def _text_argument(each: Any) -> dict[str, Any]:
    """Return an argument as a manifest states it."""
    if isinstance(each, MatrixMap):
        return {
            "tensor_map": {
                "buffer": each.matrix.name, "dtype": each.matrix.dtype, "shape": each.shape, "strides": each.strides,
                "block": each.block, "swizzle": each.swizzle,
            }
        }  # fmt: skip
    if not isinstance(each, Matrix):
        return {"i64": each}
    return {"buffer": each.name, "dtype": each.dtype, "offset": each.address}


def source(call: KernelCall, text: str | None = None) -> Source:
    """Return the kernel of a call, with the given text, and its launch."""
    kernel = call.kernel
    if not isinstance(kernel, TextKernel):
        found = compiled_kernel(call)
        launch = Launch.model_validate({"file": "product.ptx", **found.manifest_entry})
        return Source("product", text or found.assembly, launch)
    arguments = [_text_argument(call.arguments[name]) for name in kernel.parameters]
    narrow = re.findall(r"\.param \.u32 (\w+)", kernel.text)
    arguments = [
        {"u32": each["i64"]} if name in narrow else each
        for name, each in zip(kernel.parameters, arguments, strict=True)
    ]
    given = {
        "file": "product.ptx", "entry": kernel.name, "grid": call.grid, "block": kernel.threads, "args": arguments,
        "shared": kernel.shared_bytes,
    }  # fmt: skip
    return Source(kernel.name, text or kernel.text, Launch.model_validate(given))


def run(made: Source, state: dict[str, Any]) -> None:
    """Simulate a kernel and update the bytes of its buffers."""
    assert made.launch is not None
    ready = prepare(made, registry.default().arch("sm_90"), Options(audit_contraction=False))
    state.update(simulate(ready, {name: state[name] for name in made.launch.buffers()}).after)


def compiled(desc: GEMMDesc, m: int, n: int, chosen: Schedule) -> list[tuple[Any, Any]]:
    """Return the calls of the kernels that a schedule launches, each with the compiled kernel."""

    def workspace(shape: tuple[int, ...], dtype: str) -> Matrix:
        return Matrix("W", shape, (shape[1] * shape[2], shape[2], 1), dtype)

    left, right_matrix = Matrix("A", (m, desc.k), (desc.k, 1), "fp16"), Matrix("B", (desc.k, n), (n, 1), "fp16")
    out = Matrix("C", (m, n), (n, 1), "fp16")
    made = kernel_calls(plan(desc), chosen, left, right_matrix, out, workspace)
    return [(call, compiled_kernel(call)) for call in made]


def captured(desc: GEMMDesc, m: int, n: int, chosen: Schedule) -> Source:
    """Return the only kernel that a schedule launches, as a source for the checker."""
    ((_, found),) = compiled(desc, m, n, chosen)
    launch = Launch.model_validate({"file": "product.ptx", **found.manifest_entry})
    return Source(str(chosen), found.assembly, launch)
