"""Conversions of gfx950 between fp32 and the 8-bit formats e4m3 and e5m2, with the scale 1.

Source: AMD Instinct MI350 (CDNA4) ISA, V_CVT_SCALEF32_PK_FP8_F32 and the like: a power of two, the exponent of the
last operand, scales the wider numbers.  Other scales are not modelled.  Widening conversions are exact.  The ends of
the range of the narrowing ones were not measured, so these are operations of this architecture.
"""

from __future__ import annotations

from bitwise_amd_gfx942.modes import clamps_overflow
from bitwise_amd_gfx942.opcodes.forms import Table, bit_list, check_modifiers, form
from bitwise_amd_gfx942.opcodes.operands.execution_mask import always, vector_opcode
from bitwise_amd_gfx942.opcodes.operands.operand_access import half_writer, reader, writer
from bitwise_amd_gfx942.opcodes.vector.floating import apply_float
from bitwise_amd_gfx942.opcodes.vector.fp8_conversion import poison_if_unsupported
from bitwise_core.assembly.module import Immediate, Instruction
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, Effect
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.values.packing import concat, extract
from bitwise_core.numerics import operation

TABLE = Table()

_KINDS = {"fp8": "e4m3", "bf8": "e5m2"}
_ONE = Immediate(0x3FF0000000000000, "f64")
"""A number in the text is of fp64."""


def _selection(instruction: Instruction, operands: int) -> tuple[bool, ...]:
    """Return the four bits of op_sel.  Raises UnknownInstruction for another scale than 1."""
    found = check_modifiers(instruction, "op_sel")
    if len(instruction.operands) != operands:
        raise UnknownInstruction(instruction, f"takes {operands} operands")
    scale = instruction.operands[-1]
    if scale != _ONE:
        raise UnknownInstruction(instruction, f"has the scale {scale}, and only 1.0 is modelled")
    return bit_list(instruction, found.modifiers.get("op_sel", "[0]"), 4)


@vector_opcode(
    TABLE,
    "v_cvt_scalef32_pk_fp8_f32",
    "v_cvt_scalef32_pk_bf8_f32",
    operands=DESTINATION_FIRST,
    keeps=always,
)
def narrow_pair(instruction: Instruction, context: Context) -> Step:
    """Two numbers rounded to two bytes, in the low or (by the last bit of op_sel) the high half of a register.

    The other half is left unchanged.
    """
    *sources, high = _selection(instruction, 4)
    if any(sources):
        raise UnknownInstruction(instruction, "selects half of a source of 32 bits")
    kind = _KINDS[form(instruction.opcode).name.split("_")[4]]
    clamps = ".satfinite" if clamps_overflow(context, instruction) else ""
    meaning = operation(f"narrow.rn{clamps}.{kind}.fp32@{context.arch.name}")
    target, *numbers, _ = instruction.operands
    readers = [poison_if_unsupported(reader(each, "fp32", instruction)) for each in numbers]
    write = half_writer(target, high, instruction)

    def step(machine: Machine) -> None:
        write(machine, concat([machine.domain.floating(meaning, [each(machine)]) for each in readers]))

    return step


@vector_opcode(
    TABLE,
    "v_cvt_scalef32_pk_f32_fp8",
    "v_cvt_scalef32_pk_f32_bf8",
    operands=DESTINATION_FIRST,
    effects=Effect.NONE,
)
def widen_pair(instruction: Instruction, context: Context) -> Step:
    """Widen the two bytes of the low or (by the first bit of op_sel) the high half of a register."""
    high, *others = _selection(instruction, 3)
    if any(others):
        raise UnknownInstruction(instruction, "selects half of an operand of 32 bits")
    meaning = operation(f"convert.fp32.{_KINDS[form(instruction.opcode).name.split('_')[5]]}")
    target, source, _ = instruction.operands
    read, write = reader(source, "b32", instruction), writer(target, 64, instruction)

    def step(machine: Machine) -> None:
        half = extract(read(machine), 16 * high, 16)
        write(machine, concat([apply_float(machine, meaning, [extract(half, low, 8)]) for low in (0, 8)]))

    return step
