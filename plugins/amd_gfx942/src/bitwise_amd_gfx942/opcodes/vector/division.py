"""v_div_scale, v_div_fmas and v_div_fixup, from which compilers build divisions.

In a sequence that is known to compute the correctly rounded quotient (`division_sequences`), v_div_fixup is that
quotient, and intermediate results that only serve it are undefined.  Elsewhere the instructions are named operations.
"""

from __future__ import annotations

from bitwise_amd_gfx942.division_sequences import division_sequences
from bitwise_amd_gfx942.modes import flushes, mode_of, rounding_of
from bitwise_amd_gfx942.opcodes.forms import Table, check_modifiers, form
from bitwise_amd_gfx942.opcodes.operands.constants import BITS, FLOAT_FORMATS
from bitwise_amd_gfx942.opcodes.operands.execution_mask import (
    read_operands,
    under_execution_mask,
    vector_opcode,
    with_16_bits,
)
from bitwise_amd_gfx942.opcodes.operands.implicit_registers import (
    EXECUTION_MASK,
    RESULT_AND_LANE_MASK,
    VCC,
    VCC_PAIR,
    with_implicit,
)
from bitwise_amd_gfx942.opcodes.operands.operand_access import reader, writer
from bitwise_amd_gfx942.opcodes.operands.output_modifiers import overflow_suffix
from bitwise_amd_gfx942.opcodes.scalar.scalar_logic import as_lane_mask, register_pair
from bitwise_amd_gfx942.opcodes.vector.comparisons import write_active_lane_mask
from bitwise_amd_gfx942.opcodes.vector.floating import apply_float
from bitwise_amd_gfx942.opcodes.vector.lanewise import lanewise
from bitwise_amd_gfx942.output_functions import significand_all_ones
from bitwise_core.assembly.module import Instruction
from bitwise_core.execution.architecture import Context
from bitwise_core.execution.instruction_info import DESTINATION_FIRST
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.values.symbolic_vector import Value
from bitwise_core.execution.values.term_hash import poison
from bitwise_core.numerics import operation

TABLE = Table()


def is_inside_division(instruction: Instruction, context: Context) -> bool:
    """Whether the result of an instruction is used only by a matched division."""
    return instruction.line in division_sequences(context.kernel, context.arch.opcodes).inner_lines


def rounds_correctly(instruction: Instruction, context: Context, kind: str) -> bool:
    """Whether the sequence rounds correctly in the kernel's mode: to nearest even, without flushing."""
    mode = mode_of(context.kernel)
    return rounding_of(mode, kind, instruction) == "rn" and not flushes(mode, kind, instruction)


def _flush(instruction: Instruction, context: Context, kind: str) -> str:
    """The suffix of an operation's name for flushed subnormal numbers: "" or .ftz."""
    return ".ftz" if flushes(mode_of(context.kernel), kind, instruction) else ""


@TABLE.opcode("v_div_scale_f32", "v_div_scale_f64", operands=with_implicit(RESULT_AND_LANE_MASK, reads=EXECUTION_MASK))
def scale(instruction: Instruction, context: Context) -> Step:
    """The scaled numerator or denominator, and the mask of lanes whose quotient must be scaled back."""
    check_modifiers(instruction)
    kind = FLOAT_FORMATS[form(instruction.opcode).name[-3:]]
    bits = BITS[kind]
    target, mask_operand, *sources = instruction.operands
    mask_pair = register_pair(mask_operand, instruction)
    readers, write = [reader(each, kind, instruction) for each in sources], writer(target, bits, instruction)
    inside = is_inside_division(instruction, context)
    suffix = f"{_flush(instruction, context, kind)}.{kind}@{context.arch.name}"
    scaling, scaled = operation(f"divscale{suffix}"), operation(f"divscaled{suffix}")

    def step(machine: Machine) -> None:
        if inside:
            result: Value = poison(bits, "inside a division")
            lanes: Value = poison(1, "inside a division")
        else:
            values = read_operands(machine, readers, instruction.operands)
            result = apply_float(machine, scaling, values)
            lanes = machine.domain.floating(scaled, values)
        write_active_lane_mask(machine, mask_pair, lanes)
        under_execution_mask(lambda inner: write(inner, result))(machine)

    return step


@vector_opcode(TABLE, "v_div_fmas_f32", "v_div_fmas_f64", operands=with_implicit(DESTINATION_FIRST, reads=VCC))
def fmas(instruction: Instruction, context: Context) -> Step:
    """The last fused multiply-add, scaled back in the lanes of vcc."""
    kind = FLOAT_FORMATS[form(instruction.opcode).name[-3:]]
    bits = BITS[kind]
    meaning = operation(f"divfmas{_flush(instruction, context, kind)}.{kind}@{context.arch.name}")
    if is_inside_division(instruction, context):
        write = writer(instruction.operands[0], bits, instruction)
        return lambda machine: write(machine, poison(bits, "inside a division"))

    def compute(machine: Machine, *values: Value) -> Value:
        return apply_float(machine, meaning, [*values, as_lane_mask(machine, VCC_PAIR)])

    return lanewise(instruction, (kind,) * 3, bits, compute)


def _may_be_all_ones(machine: Machine, denominator: Value) -> bool:
    """Whether the significand of an fp64 denominator can be all ones; see `division_sequences`."""
    known = machine.known(denominator)
    return known is None or bool(significand_all_ones(known).any())


@vector_opcode(
    TABLE, "v_div_fixup_f16", "v_div_fixup_f32", "v_div_fixup_f64", operands=DESTINATION_FIRST, keeps=with_16_bits
)
def fixup(instruction: Instruction, context: Context) -> Step:
    """The quotient, with special cases handled."""
    kind = FLOAT_FORMATS[form(instruction.opcode).name[-3:]]
    bits = BITS[kind]
    if instruction.line in division_sequences(context.kernel, context.arch.opcodes).final_lines and rounds_correctly(
        instruction, context, kind
    ):
        rounded = operation(f"div.rn.{kind}")
        sequence = operation(f"div.sequence.{kind}@{context.arch.name}") if kind == "fp64" else rounded

        def quotient(machine: Machine, approximate: Value, denominator: Value, numerator: Value) -> Value:
            plain = kind == "fp32" or not _may_be_all_ones(machine, denominator)
            return apply_float(machine, rounded if plain else sequence, [numerator, denominator])

        return lanewise(instruction, (kind,) * 3, bits, quotient, keep_high_half=True)
    flush = _flush(instruction, context, kind)
    meaning = operation(f"divfixup{flush}{overflow_suffix(instruction, context, kind)}.{kind}@{context.arch.name}")

    def compute(machine: Machine, *values: Value) -> Value:
        return apply_float(machine, meaning, values)

    return lanewise(instruction, (kind,) * 3, bits, compute, keep_high_half=True)
