"""The plan of a product: which kernel runs a descriptor, and with which compile-time options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from bitwise_amd_gfx942.products.ordered_plan import (
    LEAST_K,
    SIDES,
    Order,
    arguments_of,
    block_of,
    constants_of,
    order_of,
)
from bitwise_amd_gfx942.requirements import ARCHITECTURE
from bitwise_core.descriptors import DescriptorError, GEMMDesc

FAMILY = "mfma"

_INSTRUCTION_SIDES: Mapping[tuple[str, int], int] = MappingProxyType(
    {
        ("fp16", 8): 32, ("fp16", 16): 16, ("bf16", 8): 32, ("bf16", 16): 16,
        ("fp32", 2): 32, ("fp32", 4): 16, ("fp64", 4): 16,
    }
)  # fmt: skip
"""Rows and columns of the MFMA instruction of a type and k, Triton's option matrix_instr_nonkdim."""

_OUTPUTS = ("fp32", "fp16", "bf16")
_ORDERED_ONLY = ("tf32", "e4m3fnuz", "e5m2fnuz")
"""Operand types that only the kernel of stated orders takes."""
_COMPILER_TYPES = {"tf32": "fp32", "e4m3fnuz": "fp8e4b8", "e5m2fnuz": "fp8e5b16"}
"""The compiler's names of types, where they differ."""


class UnsupportedDescriptor(DescriptorError):
    """The kernels do not support the descriptor; the message names the field."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A kernel of `products.kernels`, its tile, and the compiler's options; for an `ordered_product` its order,
    and the least k of one product."""

    kernel: Literal["matrix_product", "scalar_product", "ordered_product"]
    block: tuple[int, int, int]
    warps: int
    options: Mapping[str, int]
    order: Order | None = None
    least: int = 1

    @property
    def constants(self) -> dict[str, int | str]:
        """The kernel's compile-time arguments."""
        found: dict[str, int | str] = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), self.block, strict=True))
        return found if self.order is None else {**found, **constants_of(self.order, self.least)}

    def numbers(self, m: int, n: int, desc: GEMMDesc) -> list[int]:
        """Return the kernel's integer arguments, after the addresses of A, B and C."""
        if self.order is None:
            return [m, n, desc.k, desc.k - desc.k_dropped]
        return [m, n, desc.k, *arguments_of(self.order)]


def plan_product(desc: GEMMDesc) -> Plan:
    """Choose kernel, tile and options for a descriptor.  Raises UnsupportedDescriptor."""
    for name in ("operand_scales", "output_satfinite"):
        if getattr(desc, name):
            raise UnsupportedDescriptor(f"products on gfx942 do not support {name}: leave it out")
    kept = desc.accumulator_start != "zero"
    if desc.scaled or not desc.use_fast_accum or desc.multiplied_as is not None or kept:
        raise UnsupportedDescriptor(
            "products on gfx942 have accumulators from +0, no scale and no widened operands: leave alpha, "
            "use_fast_accum, multiplied_as and accumulator_start out"
        )
    if desc.path == "matrix" and (desc.k_cuts or desc.k_loop_step is not None or desc.left_dtype in _ORDERED_ONLY):
        return _ordered(desc)
    if desc.k_cuts or desc.k_loop_step is not None:
        raise UnsupportedDescriptor(
            f"the path {desc.path} has one accumulator and ascending k on gfx942: leave k_cuts and k_loop_step out"
        )
    if desc.path == "fma":
        known = {desc.left_dtype, desc.right_dtype} <= set(_OUTPUTS)
        if not known or desc.accumulator_dtype != "fp32" or desc.output_dtype not in _OUTPUTS:
            raise UnsupportedDescriptor(f"multiply-adds run in fp32 on {', '.join(_OUTPUTS)}: choose these types")
        return Plan("scalar_product", (32, 32, 1), 4, {})
    instruction = desc.instruction
    if desc.path != "matrix" or instruction is None:
        raise UnsupportedDescriptor(f"the path {desc.path} is not supported on gfx942: use matrix or fma")
    _check_unit(desc)
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
        if not wide and not desc.k_dropped:
            return _ordered(desc)
        # A multiply-add of padding zeros changes an accumulator of -0 to +0.
        raise UnsupportedDescriptor(
            f"{desc.left_dtype} needs a multiple of {step} values of k, not {desc.k - desc.k_dropped}"
        )
    tile = 32 if wide else 64
    return Plan("matrix_product", (tile, tile, step), 4, {"matrix_instr_nonkdim": side})


def _ordered(desc: GEMMDesc) -> Plan:
    """Return the plan of a product on matrix units with cuts, rotated or permuted iterations, or a tail."""
    _check_unit(desc)
    assert desc.instruction is not None
    side = SIDES.get((desc.left_dtype, desc.instruction.k))
    if desc.left_dtype != desc.right_dtype:
        # Simulated kernels of two 8-bit types multiply each operand's patterns as the other's type.
        raise UnsupportedDescriptor(
            f"the compiler exchanges the types of {desc.left_dtype} and {desc.right_dtype}: use operands of one type"
        )
    if side is None:
        raise UnsupportedDescriptor(f"{desc.instruction_name} is not supported in a stated order")
    if desc.accumulator_dtype != "fp32" or desc.output_dtype not in _OUTPUTS or desc.k_dropped:
        raise UnsupportedDescriptor(
            f"products in a stated order accumulate all k in fp32 and store {', '.join(_OUTPUTS)}: choose these"
        )
    order = order_of(desc)
    if order is None:
        raise UnsupportedDescriptor(
            "the order of this sum is not that of slices of whole iterations, waves and a tail, which products on "
            "gfx942 have: choose other k_cuts, k_loop_step, iteration_permutation or tail"
        )
    rows, columns = block_of(order, side)
    least = LEAST_K.get(desc.left_dtype, 1)
    block = rows, columns, max(order.block, least)
    return Plan("ordered_product", block, 4, {"matrix_instr_nonkdim": side}, order, least)


def _check_unit(desc: GEMMDesc) -> None:
    called = desc.instruction
    if called is None or (called.architecture, called.family) != (ARCHITECTURE, FAMILY):
        raise UnsupportedDescriptor(
            f"{desc.instruction_name} is not an instruction of {ARCHITECTURE}: use family {FAMILY}"
        )


def compile_kernel(plan: Plan, desc: GEMMDesc) -> Any:
    """Compile the kernel of a plan with Triton; needs no GPU."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import ASTSource

    from bitwise_amd_gfx942.products.kernels import dense, ordered

    kernel = getattr(dense if plan.order is None else ordered, plan.kernel)
    signature = {each.name: "constexpr" if each.is_constexpr else "i32" for each in kernel.params}
    types = {"A": desc.left_dtype, "B": desc.right_dtype, "C": desc.output_dtype}
    signature |= {name: f"*{_COMPILER_TYPES.get(each, each)}" for name, each in types.items()}
    constants = plan.constants
    if plan.order is not None:
        constants["PRECISION"] = "tf32" if desc.left_dtype == "tf32" else "ieee"
    options = {"num_warps": plan.warps, "num_stages": 2, **plan.options}
    source = ASTSource(kernel, signature, constants, {})
    return triton.compile(source, target=GPUTarget("hip", ARCHITECTURE, 64), options=options)
