"""Conversions between fp32 and the formats of 8 bits, which are the fnuz kinds: no infinity, no -0, one NaN, 0x80.

Source: AMD Instinct MI300 ISA, "Vector ALU operations" (V_CVT_PK_FP8_F32 and the like) and "Mode register".  What
rounds does so to the nearest, ties to even, whatever the mode says.  A result that is too large is the NaN, or the
greatest number where FP16_OVFL is set; infinities have no counterpart.  As nobody has measured the ends of the range
here, what narrows is an operation of this architecture; what widens is exact.
"""

from __future__ import annotations

from bitwise_amd_gfx942.modes import clamps_overflow
from bitwise_amd_gfx942.opcodes.acting import vector
from bitwise_amd_gfx942.opcodes.floating import perform
from bitwise_amd_gfx942.opcodes.forms import Table, check_modifiers, flags, form
from bitwise_amd_gfx942.opcodes.selected_parts import part_reader
from bitwise_amd_gfx942.opcodes.sources import Reader, half_writer, reader, word_reader, writer
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


def _lenient(read: Reader) -> Reader:
    """A source that may be any register where its half of the result does not count."""

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
    """The `count` flags of op_sel of an instruction with two sources, neither of which it halves."""
    found = check_modifiers(instruction, "op_sel")
    if len(instruction.operands) != 3:
        raise UnknownInstruction(instruction, "takes three operands")
    chosen = flags(instruction, found.modifiers.get("op_sel", f"[{','.join('0' * count)}]"), count)
    if any(chosen[:2]):
        raise UnknownInstruction(instruction, "selects half of a source of 32 bits")
    return chosen


@vector(TABLE, "v_cvt_pk_fp8_f32", "v_cvt_pk_bf8_f32", operands=DESTINATION_FIRST, effects=Effect.NONE)
def narrow_pair(instruction: Instruction, context: Context) -> Step:
    """Two numbers in two bytes, the low or (by the last of op_sel) the high half of a register; the other is kept."""
    chosen = _selection(instruction, 3)
    meaning = _narrowing(instruction, context, "narrow.rn")
    target, *sources = instruction.operands
    readers = [_lenient(reader(each, "fp32", instruction)) for each in sources]
    write = half_writer(target, chosen[2], instruction)

    def step(machine: Machine) -> None:
        write(machine, concat([machine.domain.floating(meaning, [each(machine)]) for each in readers]))

    return step


@vector(TABLE, "v_cvt_sr_fp8_f32", "v_cvt_sr_bf8_f32", operands=DESTINATION_FIRST, effects=Effect.NONE)
def narrow_by_chance(instruction: Instruction, context: Context) -> Step:
    """One number in the byte that op_sel names, rounded by the random bits of the second source; others are kept."""
    chosen = _selection(instruction, 4)
    meaning = _narrowing(instruction, context, "narrow_stochastic")
    target, number, chance = instruction.operands
    if not isinstance(target, Register):
        raise UnknownInstruction(instruction, "takes one register for its result")
    readers = [reader(number, "fp32", instruction), reader(chance, "b32", instruction)]
    old, write = word_reader(target.name, instruction), writer(target, 32, instruction)
    place = chosen[2] + 2 * chosen[3]

    def step(machine: Machine) -> None:
        byte = machine.domain.floating(meaning, [each(machine) for each in readers])
        kept = old(machine)
        write(machine, concat([byte if each == place else extract(kept, 8 * each, 8) for each in range(4)]))

    return step


@vector(
    TABLE,
    *(f"v_cvt_{count}f32_{kind}" for count in ("", "pk_") for kind in _KINDS),
    operands=DESTINATION_FIRST,
    effects=Effect.NONE,
)
def widen(instruction: Instruction, context: Context) -> Step:
    """The number, or the two numbers, of the bytes that a selector names: at first the lowest."""
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
        write(machine, concat([perform(machine, meaning, [each]) for each in parts]))

    return step
