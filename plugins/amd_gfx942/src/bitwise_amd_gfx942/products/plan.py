"""Which descriptors the kernels run, and how each is compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from bitwise_core.descriptors import DescriptorError, GEMMDesc

ARCHITECTURE, FAMILY = "gfx942", "mfma"

_SIDES: Mapping[tuple[str, int], int] = MappingProxyType(
    {
        ("fp16", 8): 32, ("fp16", 16): 16, ("bf16", 8): 32, ("bf16", 16): 16,
        ("fp32", 2): 32, ("fp32", 4): 16, ("fp64", 4): 16,
    }
)  # fmt: skip
"""Rows and columns of the instruction of a type and native k, which the compiler is told as matrix_instr_nonkdim."""

_OUTPUTS = ("fp32", "fp16", "bf16")


class Refused(DescriptorError):
    """A descriptor that the kernels do not run; the message says what of it."""


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


def plan(desc: GEMMDesc) -> Plan:
    """How a descriptor runs.  Raises Refused."""
    for name in ("k_cuts", "iteration_rotation", "iteration_permutation", "operand_scales", "output_satfinite"):
        if getattr(desc, name):
            raise Refused(f"products of gfx942 are not run with {name}: leave it out")
    if desc.scaled or desc.k_loop_step is not None or not desc.use_fast_accum or desc.multiplied_as is not None:
        raise Refused(
            "products of gfx942 have one accumulator from +0, no scale and no widened operands: leave alpha, "
            "k_loop_step, use_fast_accum and multiplied_as out"
        )
    if desc.path == "fma":
        known = {desc.left_dtype, desc.right_dtype} <= set(_OUTPUTS)
        if not known or desc.accumulator_dtype != "fp32" or desc.output_dtype not in _OUTPUTS:
            raise Refused(f"multiply-adds run in fp32 on {', '.join(_OUTPUTS)}: choose these types")
        return Plan("scalar_product", (32, 32, 1), 4, {})
    instruction = desc.instruction
    if desc.path != "matrix" or instruction is None:
        raise Refused(f"the path {desc.path} is not run on gfx942: use matrix or fma")
    if (instruction.architecture, instruction.family) != (ARCHITECTURE, FAMILY):
        raise Refused(f"{desc.instruction_name} is no instruction of {ARCHITECTURE}: use family {FAMILY}")
    side = _SIDES.get((desc.left_dtype, instruction.k))
    if side is None or desc.left_dtype != desc.right_dtype or desc.instruction_k != instruction.k:
        listed = ", ".join(f"{dtype} k {k}" for dtype, k in _SIDES)
        raise Refused(f"{desc.instruction_name} with instruction_k = {desc.instruction_k} is not run; run are {listed}")
    wide = desc.left_dtype == "fp64"
    if desc.accumulator_dtype != ("fp64" if wide else "fp32") or desc.output_dtype not in (
        ("fp64",) if wide else _OUTPUTS
    ):
        raise Refused(f"results of {desc.left_dtype} are not stored as {desc.output_dtype} here")
    turn = 16 if wide else 32
    if desc.left_dtype in ("fp32", "fp64") and (desc.k - desc.k_dropped) % turn:
        # A multiply-add of zeros turns an accumulator of -0 into +0.
        raise Refused(f"{desc.left_dtype} runs with whole turns of {turn} k, not with {desc.k - desc.k_dropped}")
    tile = 32 if wide else 64
    return Plan("matrix_product", (tile, tile, turn), 4, {"matrix_instr_nonkdim": side})


def compiled(made: Plan, desc: GEMMDesc) -> Any:
    """The compiled kernel of a plan, by Triton and without a GPU."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import ASTSource

    from bitwise_amd_gfx942.products.kernels import dense

    kernel = getattr(dense, made.kernel)
    signature = {each.name: "constexpr" if each.is_constexpr else "i32" for each in kernel.params}
    signature |= {"A": f"*{desc.left_dtype}", "B": f"*{desc.right_dtype}", "C": f"*{desc.output_dtype}"}
    options = {"num_warps": made.warps, "num_stages": 2, **made.options}
    source = ASTSource(kernel, signature, made.constants, {})
    return triton.compile(source, target=GPUTarget("hip", ARCHITECTURE, 64), options=options)
