"""Matrix products for the GEMM kernels of sm_90: descriptors, operands, and compiled Triton kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bitwise_core.checker.analysis import Source
from bitwise_core.descriptors import GEMMDesc, read
from bitwise_core.execution.launch import Launch
from bitwise_core.numerics import FLOAT_FORMATS, Bits, storage
from bitwise_nvidia_sm90.gemm.launch import MatrixMap, kernel_calls
from bitwise_nvidia_sm90.gemm.plan import plan
from bitwise_nvidia_sm90.gemm.schedule import Schedule

TYPES = {"fp16": "fp16", "bf16": "bf16", "fp32": "fp32", "e4m3": "fp8e4nv", "e5m2": "fp8e5"}
WGMMA, MMA, MMA_K8 = "family=wgmma k=16", "family=mma.sync k=16", "family=mma.sync k=8"


@dataclass(frozen=True)
class Matrix:
    """The name, shape, strides and type of a tensor, as far as a launch uses them."""

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    def stride(self) -> tuple[int, ...]:
        return self.strides


def matrix(k: int, unit: str, rest: str = "", dtype: str = "fp16", out: str | None = None) -> GEMMDesc:
    number = unit.split("=")[-1]
    found = read(
        f"gemm(k={k} left_dtype={dtype} right_dtype={dtype} output_dtype={out or dtype} path=matrix "
        f"instruction=instruction(architecture=sm_90 {unit}) instruction_k={number} {rest})"
    )
    assert isinstance(found, GEMMDesc)
    return found


def random_patterns(shape: tuple[int, int], dtype: str, random: np.random.Generator) -> Bits:
    form = FLOAT_FORMATS[dtype]
    exponent = random.integers(form.bias - 4, form.bias + 4, shape, dtype=np.uint64)
    fraction = random.integers(0, 1 << form.mantissa_bits, shape, dtype=np.uint64)
    sign = random.integers(0, 2, shape, dtype=np.uint64) << np.uint64(form.magnitude_bits)
    return (sign | exponent << np.uint64(form.mantissa_bits) | fraction).astype(storage(form.bits))


def compiled(desc: GEMMDesc, m: int, n: int, chosen: Schedule) -> list[tuple[Any, Any]]:
    """Return the calls of the kernels that a schedule launches, each with the compiled kernel."""
    from bitwise_triton.arguments import Buffer, TensorMap
    from bitwise_triton.configurations import compile_configuration

    def described(each: Any) -> Any:
        if isinstance(each, MatrixMap):
            return TensorMap(described(each.matrix), each.shape, each.strides, each.block)
        return Buffer(each.name, TYPES[each.dtype]) if isinstance(each, Matrix) else each

    def workspace(shape: tuple[int, ...], dtype: str) -> Matrix:
        return Matrix("W", shape, (shape[1] * shape[2], shape[2], 1), dtype)

    left, right_matrix = Matrix("A", (m, desc.k), (desc.k, 1), "fp16"), Matrix("B", (desc.k, n), (n, 1), "fp16")
    out = Matrix("C", (m, n), (n, 1), "fp16")
    found = []
    for call in kernel_calls(plan(desc), chosen, left, right_matrix, out, workspace):
        arguments = {name: described(each) for name, each in call.arguments.items()}
        constants, options = dict(call.constants), dict[str, Any](call.options)
        found.append((call, compile_configuration(call.kernel, arguments, constants, grid=call.grid, **options)))
    return found


def captured(desc: GEMMDesc, m: int, n: int, chosen: Schedule) -> Source:
    """Return the only kernel that a schedule launches, as a source for the checker."""
    ((_, found),) = compiled(desc, m, n, chosen)
    launch = Launch.model_validate({"file": "product.ptx", **found.manifest_entry})
    return Source(str(chosen), found.assembly, launch)
