"""The plan of a product: which kernel runs a descriptor, and with which compile-time options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from bitwise_core.descriptors import DescriptorError, GEMMDesc

ARCHITECTURE, FAMILY = "gfx942", "mfma"

_INSTRUCTION_SIDES: Mapping[tuple[str, int], int] = MappingProxyType(
    {
        ("fp16", 8): 32, ("fp16", 16): 16, ("bf16", 8): 32, ("bf16", 16): 16,
        ("fp32", 2): 32, ("fp32", 4): 16, ("fp64", 4): 16,
    }
)  # fmt: skip
"""Rows and columns of the MFMA instruction of a type and k, Triton's option matrix_instr_nonkdim."""

_OUTPUTS = ("fp32", "fp16", "bf16")


class UnsupportedDescriptor(DescriptorError):
    """The kernels do not support the descriptor; the message names the field."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A kernel of `products.kernels.dense`, its tile, and the compiler's options."""

    kernel: Literal["matrix_product", "scalar_product"]
    block: tuple[int, int, int]
    warps: int
    options: Mapping[str, int]

    @property
    def constants(self) -> dict[str, int]:
        """The kernel's compile-time arguments."""
        return dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), self.block, strict=True))


def plan_product(desc: GEMMDesc) -> Plan:
    """Choose kernel, tile and options for a descriptor.  Raises UnsupportedDescriptor."""
    for name in ("k_cuts", "iteration_rotation", "iteration_permutation", "tail", "operand_scales", "output_satfinite"):
        if getattr(desc, name):
            raise UnsupportedDescriptor(f"products on gfx942 do not support {name}: leave it out")
    if desc.scaled or desc.k_loop_step is not None or not desc.use_fast_accum or desc.multiplied_as is not None:
        raise UnsupportedDescriptor(
            "products on gfx942 have one accumulator from +0, no scale and no widened operands: leave alpha, "
            "k_loop_step, use_fast_accum and multiplied_as out"
        )
    if desc.path == "fma":
        known = {desc.left_dtype, desc.right_dtype} <= set(_OUTPUTS)
        if not known or desc.accumulator_dtype != "fp32" or desc.output_dtype not in _OUTPUTS:
            raise UnsupportedDescriptor(f"multiply-adds run in fp32 on {', '.join(_OUTPUTS)}: choose these types")
        return Plan("scalar_product", (32, 32, 1), 4, {})
    instruction = desc.instruction
    if desc.path != "matrix" or instruction is None:
        raise UnsupportedDescriptor(f"the path {desc.path} is not supported on gfx942: use matrix or fma")
    if (instruction.architecture, instruction.family) != (ARCHITECTURE, FAMILY):
        raise UnsupportedDescriptor(
            f"{desc.instruction_name} is not an instruction of {ARCHITECTURE}: use family {FAMILY}"
        )
    side = _INSTRUCTION_SIDES.get((desc.left_dtype, instruction.k))
    if side is None or desc.left_dtype != desc.right_dtype or desc.instruction_k != instruction.k:
        listed = ", ".join(f"{dtype} k {k}" for dtype, k in _INSTRUCTION_SIDES)
        raise UnsupportedDescriptor(
            f"{desc.instruction_name} with instruction_k = {desc.instruction_k} is not supported; "
            f"supported are {listed}"
        )
    wide = desc.left_dtype == "fp64"
    if desc.accumulator_dtype != ("fp64" if wide else "fp32") or desc.output_dtype not in (
        ("fp64",) if wide else _OUTPUTS
    ):
        raise UnsupportedDescriptor(
            f"results of {desc.left_dtype} cannot be stored as {desc.output_dtype}: choose another output_dtype"
        )
    step = 16 if wide else 32
    if desc.left_dtype in ("fp32", "fp64") and (desc.k - desc.k_dropped) % step:
        # A multiply-add of padding zeros changes an accumulator of -0 to +0.
        raise UnsupportedDescriptor(
            f"{desc.left_dtype} needs a multiple of {step} values of k, not {desc.k - desc.k_dropped}"
        )
    tile = 32 if wide else 64
    return Plan("matrix_product", (tile, tile, step), 4, {"matrix_instr_nonkdim": side})


def compile_kernel(plan: Plan, desc: GEMMDesc) -> Any:
    """Compile the kernel of a plan with Triton; needs no GPU."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import ASTSource

    from bitwise_amd_gfx942.products.kernels import dense

    kernel = getattr(dense, plan.kernel)
    signature = {each.name: "constexpr" if each.is_constexpr else "i32" for each in kernel.params}
    signature |= {"A": f"*{desc.left_dtype}", "B": f"*{desc.right_dtype}", "C": f"*{desc.output_dtype}"}
    options = {"num_warps": plan.warps, "num_stages": 2, **plan.options}
    source = ASTSource(kernel, signature, plan.constants, {})
    return triton.compile(source, target=GPUTarget("hip", ARCHITECTURE, 64), options=options)
