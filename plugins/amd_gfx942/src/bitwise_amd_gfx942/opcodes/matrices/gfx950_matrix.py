"""MFMA of gfx950, whose arithmetic is not published.

Source: AMD Instinct MI350 (CDNA4) ISA, "Matrix Arithmetic Instructions"; LLVM's names of the instructions.  The manual
states the products and their places, but not how a sum is rounded.  A step is therefore one function of its row, its
column and its accumulator, of which nothing else is known.  Its name contains the rows, the columns, k and the types:
two instructions have the same bits only if they are the same instruction.  Sums of integers are exact.

f8f6f4 has fp8 operands here; a selector of another format is Unknown, and so are instructions with block scales.
"""

from __future__ import annotations

import re

from bitwise_amd_gfx942.modes import DENORMALS_KEPT, mode_of
from bitwise_amd_gfx942.opcodes.forms import check_modifiers, modifier_value
from bitwise_amd_gfx942.opcodes.matrices.matrix import STATED, product_step
from bitwise_amd_gfx942.opcodes.matrices.matrix_layouts import Tile
from bitwise_amd_gfx942.opcodes.operands.implicit_registers import EXECUTION_MASK, with_implicit
from bitwise_core.assembly.module import Instruction, Module
from bitwise_core.execution.architecture import Context, ContractionAudit, OpcodeTable, UnknownInstruction
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, Effect
from bitwise_core.execution.machine import Step
from bitwise_core.execution.values.matrix_steps.mma_steps import IntegerProducts, MmaStep

TABLE = OpcodeTable()

_FP8 = {"fp8": "e4m3", "bf8": "e5m2"}
"""The formats of 8 bits by name, in the order of the values 0 and 1 of cbsz (for a) and blgp (for b) of f8f6f4."""

_SHAPES = {
    "f32_32x32x16_f16": ("fp16", 16), "f32_16x16x32_f16": ("fp16", 16),
    "f32_32x32x16_bf16": ("bf16", 16), "f32_16x16x32_bf16": ("bf16", 16),
    "f32_32x32x8_f16": ("fp16", 16), "f32_16x16x16_f16": ("fp16", 16),
    "f32_32x32x8_bf16": ("bf16", 16), "f32_16x16x16_bf16": ("bf16", 16),
    "f32_32x32x2_f32": ("fp32", 32), "f32_16x16x4_f32": ("fp32", 32),
    "f64_16x16x4_f64": ("fp64", 64),
    "i32_32x32x32_i8": ("s8", 8), "i32_16x16x64_i8": ("s8", 8),
    "i32_32x32x16_i8": ("s8", 8), "i32_16x16x32_i8": ("s8", 8),
    "f32_32x32x64_f8f6f4": ("", 8), "f32_16x16x128_f8f6f4": ("", 8),
    **{f"f32_{shape}_{a}_{b}": (f"{_FP8[a]} {_FP8[b]}", 8)
       for shape in ("32x32x16", "16x16x32") for a in _FP8 for b in _FP8},
}  # fmt: skip
"""The instructions that Triton uses, after v_mfma_: the format of the operands, and the bits of an element."""

_NAME = re.compile(r"v_mfma_((f32|f64|i32)_(\d+)x\d+x(\d+)_\w+)")
_RESULTS = {"f32": "fp32", "f64": "fp64", "i32": "s32"}


@TABLE.opcode(
    *(f"v_mfma_{shape}" for shape in _SHAPES),
    operands=with_implicit(DESTINATION_FIRST, Effect.CROSS_LANE, reads=EXECUTION_MASK),
)
def multiply(instruction: Instruction, context: Context) -> Step:
    """v_mfma destination, a, b, c."""
    is_narrow = "f8f6f4" in instruction.opcode
    found_form = check_modifiers(instruction, *(("cbsz", "blgp") if is_narrow else ()))
    found = _NAME.fullmatch(found_form.name)
    if found is None or len(instruction.operands) != 4:
        raise UnknownInstruction(instruction)
    (kind, bits), result, side, k = _SHAPES[found[1]], _RESULTS[found[2]], int(found[3]), int(found[4])
    left, right = kind.split() if " " in kind else (kind, kind)
    if is_narrow:
        chosen = [modifier_value(instruction, found_form.modifiers.get(each, "0")) for each in ("cbsz", "blgp")]
        if not set(chosen) <= {0, 1}:
            raise UnknownInstruction(instruction, "has operands of 4 or 6 bits, which are not modelled")
        left, right = (tuple(_FP8.values())[each] for each in chosen)
    mode = mode_of(context.kernel)
    flushed = result != "s32" and not (mode.denormals_fp32 == mode.denormals_fp16_fp64 == DENORMALS_KEPT)
    step = MmaStep(
        step_name(side, k, result, left, right) + (" flushing" if flushed else ""),
        positive_zero=False,
        commutes=False,
        integers=IntegerProducts("s8 s8", k << 14, clamps=False) if result == "s32" else None,
        signed_zeros=True,
        opaque=result != "s32",
    )
    tile = Tile(side, k, 1, 1 if result == "fp64" else 4)
    return product_step(instruction, tile, k, (bits, f"b{bits}", f"b{bits}", result), step)


def step_name(side: int, k: int, result: str, left: str, right: str) -> str:
    """The name of a step, which contains everything that determines its bits."""
    return f"mfma-{side}x{side} k{k} {result} {left} {right} {result} gfx950"


UNPUBLISHED = f"{STATED}; how its matrix instructions round is not published, so each is a function of its own"


def audit_contraction(module: Module, text: str, entry: str | None) -> ContractionAudit:
    """See `Arch.audit_contraction`: the text determines the roundings, except inside of matrix instructions."""
    kernels = [module.kernel(entry), *module.functions.values()]
    used = any(each.opcode.startswith("v_mfma") for kernel in kernels for each in kernel.instructions)
    return ContractionAudit(module, UNPUBLISHED if used else STATED)
