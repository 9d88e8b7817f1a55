"""v_dot: dot products of two or four narrow elements of two registers, added to an accumulator.

Source: AMD Instinct MI300 ISA, "Vector ALU operations" (V_DOT2C_F32_F16, V_DOT4C_I32_I8, V_DOT4_U32_U8).  Sums of
integers wrap.  The rounding of the sum of two fp16 products is not documented, so it is one named operation.
"""

from __future__ import annotations

from bitwise_amd_gfx942.modes import flushes, mode_of
from bitwise_amd_gfx942.opcodes.forms import Table, form
from bitwise_amd_gfx942.opcodes.operands.execution_mask import vector_opcode
from bitwise_amd_gfx942.opcodes.operands.sdwa import widened
from bitwise_amd_gfx942.opcodes.vector.floating import apply_float
from bitwise_amd_gfx942.opcodes.vector.lanewise import lanewise
from bitwise_amd_gfx942.opcodes.vector.vector_integers import wrapping_add, wrapping_multiply
from bitwise_core.assembly.module import Instruction
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, UPDATED_FIRST, Effect, InstructionInfo
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.values.packing import extract
from bitwise_core.execution.values.symbolic_vector import Value
from bitwise_core.numerics import operation

TABLE = Table()

_BYTES = ("v_dot4c_i32_i8", "v_dot4_i32_i8", "v_dot4_u32_u8")
_HALVES = ("v_dot2c_f32_f16", "v_dot2_f32_f16")


def _adds_to_destination(instruction: Instruction) -> bool:
    return form(instruction.opcode).name.split("_")[1].endswith("c")


def _dot_info(instruction: Instruction) -> InstructionInfo:
    operands = UPDATED_FIRST if _adds_to_destination(instruction) else DESTINATION_FIRST
    return operands.info(instruction, Effect.NONE)


def _with_addend(instruction: Instruction) -> Instruction:
    """The instruction with the addend as its last operand: the forms with a c in their name add to the destination."""
    found = form(instruction.opcode)
    if _adds_to_destination(instruction):
        operands = (*instruction.operands, *instruction.operands[:1])
        return Instruction(instruction.opcode, operands, None, instruction.line, instruction.source)
    if found.modifiers:
        raise UnknownInstruction(instruction, f"has the modifier {next(iter(found.modifiers))}, which is not modelled")
    return instruction


@vector_opcode(TABLE, *_BYTES, operands=_dot_info)
def dot_bytes(instruction: Instruction, context: Context) -> Step:
    """Four products of bytes and an addend, summed in 32 bits."""
    is_signed = form(instruction.opcode).name.endswith("i8")

    def compute(machine: Machine, left: Value, right: Value, addend: Value) -> Value:
        found = addend
        for low in range(0, 32, 8):
            one, other = (widened(machine, extract(each, low, 8), 8, 32, is_signed) for each in (left, right))
            found = wrapping_add(machine, found, wrapping_multiply(machine, one, other))
        return found

    return lanewise(_with_addend(instruction), ("b32",) * 3, 32, compute)


@vector_opcode(TABLE, *_HALVES, operands=_dot_info)
def dot_halves(instruction: Instruction, context: Context) -> Step:
    """Two products of fp16 and an addend, summed in fp32."""
    flush = ".ftz" if flushes(mode_of(context.kernel), "fp32", instruction) else ""
    meaning = operation(f"dot2{flush}.fp32.fp16@{context.arch.name}")

    def compute(machine: Machine, left: Value, right: Value, addend: Value) -> Value:
        halves = [extract(each, low, 16) for each in (left, right) for low in (0, 16)]
        return apply_float(machine, meaning, [*halves, addend])

    return lanewise(_with_addend(instruction), ("b32", "b32", "fp32"), 32, compute)
