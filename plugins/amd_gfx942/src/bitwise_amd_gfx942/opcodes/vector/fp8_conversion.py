"""Conversions between fp32 and the 8-bit formats, which are the fnuz formats: no infinity, no -0, one NaN, 0x80.

Source: AMD Instinct MI300 ISA, "Vector ALU operations" (V_CVT_PK_FP8_F32 and the like) and "Mode register".  Rounding
is to nearest even in every mode.  A result that is too large becomes the NaN, or the largest number where FP16_OVFL is
set; infinities have no counterpart.  The ends of the range were not measured, so narrowing conversions are operations
of this architecture.  Widening conversions are exact.
"""

from __future__ import annotations

from bitwise_amd_gfx942.modes import clamps_overflow
from bitwise_amd_gfx942.opcodes.forms import Table, bit_list, check_modifiers, form
from bitwise_amd_gfx942.opcodes.operands.execution_mask import always, vector_opcode
from bitwise_amd_gfx942.opcodes.operands.operand_access import Reader, half_writer, reader, word_reader, writer
from bitwise_amd_gfx942.opcodes.operands.sdwa import part_reader
from bitwise_amd_gfx942.opcodes.vector.floating import apply_float
from bitwise_core.assembly.module import Instruction, Register
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, Effect
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.values.packing import concat, extract
from bitwise_core.execution.values.symbolic_vector import Value
from bitwise_core.execution.values.term_hash import poison
from bitwise_core.numerics import Operation, operation

TABLE = Table()

_KINDS = {"fp8": "e4m3fnuz", "bf8": "e5m2fnuz"}


def poison_if_unsupported(read: Reader) -> Reader:
    """A reader whose value is undefined, instead of Unsupported, where the register holds a lane mask.

    Compilers pass any register where they do not use its half of the result.
    """

    def found(machine: Machine) -> Value:
        try:
            return read(machine)
        except Unsupported:
            return poison(32, "a set of lanes as a number")

    return found


def _narrowing(instruction: Instruction, context: Context, verb: str) -> Operation:
    kind = _KINDS[next(each for each in form(instruction.opcode).name.split("_") if each in _KINDS)]
    clamps = ".satfinite" if clamps_overflow(context, instruction) else ""
    return operation(f"{verb}{clamps}.{kind}.fp32@{context.arch.name}")


def _selection(instruction: Instruction, count: int) -> tuple[bool, ...]:
    """The `count` bits of op_sel of an instruction with two 32-bit sources.

    Raises UnknownInstruction where they select half of a source.
    """
    found = check_modifiers(instruction, "op_sel")
    if len(instruction.operands) != 3:
        raise UnknownInstruction(instruction, "takes three operands")
    chosen = bit_list(instruction, found.modifiers.get("op_sel", f"[{','.join('0' * count)}]"), count)
    if any(chosen[:2]):
        raise UnknownInstruction(instruction, "selects half of a source of 32 bits")
    return chosen


@vector_opcode(TABLE, "v_cvt_pk_fp8_f32", "v_cvt_pk_bf8_f32", operands=DESTINATION_FIRST, keeps=always)
def narrow_pair(instruction: Instruction, context: Context) -> Step:
    """Two numbers rounded to two bytes, in the low or (by the last bit of op_sel) the high half of a register.

    The other half is left unchanged.
    """
    chosen = _selection(instruction, 3)
    meaning = _narrowing(instruction, context, "narrow.rn")
    target, *sources = instruction.operands
    readers = [poison_if_unsupported(reader(each, "fp32", instruction)) for each in sources]
    write = half_writer(target, chosen[2], instruction)

    def step(machine: Machine) -> None:
        write(machine, concat([machine.domain.floating(meaning, [each(machine)]) for each in readers]))

    return step


@vector_opcode(TABLE, "v_cvt_sr_fp8_f32", "v_cvt_sr_bf8_f32", operands=DESTINATION_FIRST, keeps=always)
def narrow_stochastic(instruction: Instruction, context: Context) -> Step:
    """One number rounded stochastically, by the random bits of the second source, to the byte that op_sel selects.

    The other bytes are left unchanged.
    """
    chosen = _selection(instruction, 4)
    meaning = _narrowing(instruction, context, "narrow_stochastic")
    target, source, random_bits = instruction.operands
    if not isinstance(target, Register):
        raise UnknownInstruction(instruction, "takes one register for its result")
    readers = [reader(source, "fp32", instruction), reader(random_bits, "b32", instruction)]
    old, write = word_reader(target.name, instruction), writer(target, 32, instruction)
    byte_index = chosen[2] + 2 * chosen[3]

    def step(machine: Machine) -> None:
        byte = machine.domain.floating(meaning, [each(machine) for each in readers])
        kept = old(machine)
        write(machine, concat([byte if each == byte_index else extract(kept, 8 * each, 8) for each in range(4)]))

    return step


@vector_opcode(
    TABLE,
    *(f"v_cvt_{count}f32_{kind}" for count in ("", "pk_") for kind in _KINDS),
    operands=DESTINATION_FIRST,
    effects=Effect.NONE,
)
def widen(instruction: Instruction, context: Context) -> Step:
    """Widen the byte, or the two bytes, that a selector selects; without a selector the lowest."""
    found = check_modifiers(instruction, "src0_sel")
    if len(instruction.operands) != 2:
        raise UnknownInstruction(instruction, "takes two operands")
    meaning = operation(f"convert.fp32.{_KINDS[found.name[-3:]]}")
    target, source = instruction.operands
    count = 2 if "_pk_" in found.name else 1
    part, wanted = ("WORD", 16) if count == 2 else ("BYTE", 8)
    selector = found.modifiers.get("src0_sel", f"{part}_0")
    if not selector.startswith(part):
        raise UnknownInstruction(instruction, f"selects {selector}, which is not modelled")
    read, write = part_reader(source, selector, f"b{wanted}", instruction), writer(target, 32 * count, instruction)

    def step(machine: Machine) -> None:
        value = read(machine)
        parts = [extract(value, low, 8) for low in range(0, 8 * count, 8)] if count > 1 else [value]
        write(machine, concat([apply_float(machine, meaning, [each]) for each in parts]))

    return step
