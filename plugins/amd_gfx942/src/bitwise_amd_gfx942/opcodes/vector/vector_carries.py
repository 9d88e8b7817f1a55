"""Vector additions with a carry for each lane, and 64-bit multiply-add.

Source: AMD Instinct MI300 ISA, "Vector ALU operations" (VOP2 and VOP3 with a scalar destination).
"""

from __future__ import annotations

from bitwise_amd_gfx942.opcodes.forms import Table, check_modifiers, form
from bitwise_amd_gfx942.opcodes.operands.execution_mask import read_operands, under_execution_mask
from bitwise_amd_gfx942.opcodes.operands.implicit_registers import EXECUTION_MASK, RESULT_AND_LANE_MASK, with_implicit
from bitwise_amd_gfx942.opcodes.operands.operand_access import reader, writer
from bitwise_amd_gfx942.opcodes.scalar.scalar_logic import as_lane_mask, register_pair
from bitwise_amd_gfx942.opcodes.vector.add64 import match_high_sum, record_low_sum
from bitwise_amd_gfx942.opcodes.vector.comparisons import write_active_lane_mask
from bitwise_amd_gfx942.opcodes.vector.vector_integers import wrapping_add
from bitwise_core.assembly.module import Instruction
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values.packing import concat, extract
from bitwise_core.execution.values.symbolic_vector import PackedVector
from bitwise_core.execution.values.term_hash import poison
from bitwise_core.numerics import operation

TABLE = Table()


_VERBS = ("add", "sub", "subrev")


@TABLE.opcode(
    *(f"v_{verb}_co_u32" for verb in _VERBS),
    "v_addc_co_u32",
    "v_subb_co_u32",
    "v_subbrev_co_u32",
    operands=with_implicit(RESULT_AND_LANE_MASK, reads=EXECUTION_MASK),
)
def add(instruction: Instruction, context: Context) -> Step:
    """A sum or difference, with its carry or borrow in a lane mask; addc, subb and subbrev also take a carry in."""
    check_modifiers(instruction)
    verb = form(instruction.opcode).name.split("_")[1]
    has_carry_in = verb in ("addc", "subb", "subbrev")
    if len(instruction.operands) != (5 if has_carry_in else 4):
        raise UnknownInstruction(instruction, "does not take these operands")
    target, carry, *sources = instruction.operands
    carry_out = register_pair(carry, instruction)
    carry_in = register_pair(sources.pop(), instruction) if has_carry_in else None
    if verb in ("subrev", "subbrev"):
        sources.reverse()
    adds = verb.startswith("add")
    readers, write = [reader(each, "b32", instruction) for each in sources], writer(target, 32, instruction)

    verb = "add" if adds else "sub"
    total = operation(f"{verb}c.b32" if has_carry_in else f"{verb}.b32")
    overflow = operation(f"{'carry' if adds else 'borrow'}{'c' if has_carry_in else ''}.u32")

    def step(machine: Machine) -> None:
        values = read_operands(machine, readers, instruction.operands)
        if carry_in is not None:
            values.append(as_lane_mask(machine, carry_in))
        result = apply_integer(machine, total, values)
        if adds and carry_in is not None:
            whole = match_high_sum(machine, values[2], values[0], values[1])
            result = result if whole is None else whole
        lanes = apply_integer(machine, overflow, values)
        if adds and carry_in is None:
            record_low_sum(machine, lanes, values[0], values[1], result)
        write_active_lane_mask(machine, carry_out, lanes)
        under_execution_mask(lambda inner: write(inner, result))(machine)

    return step


@TABLE.opcode("v_mad_u64_u32", "v_mad_i64_i32", operands=with_implicit(RESULT_AND_LANE_MASK, reads=EXECUTION_MASK))
def multiply_add(instruction: Instruction, context: Context) -> Step:
    """The 64-bit product of two words plus 64 bits; the carry goes to a lane mask."""
    check_modifiers(instruction)
    if len(instruction.operands) != 5:
        raise UnknownInstruction(instruction, "does not take these operands")
    is_signed = "_i64_" in form(instruction.opcode).name
    target, carry, left, right, addend = instruction.operands
    carry_out = register_pair(carry, instruction)
    readers = [reader(each, kind, instruction) for each, kind in ((left, "b32"), (right, "b32"), (addend, "b64"))]
    write = writer(target, 64, instruction)

    product, overflow = operation(f"mulwide.{'s32' if is_signed else 'u32'}"), operation("carry.u64")

    def step(machine: Machine) -> None:
        values = read_operands(machine, readers, instruction.operands)
        found = apply_integer(machine, product, values[:2])
        result = wrapping_add(machine, found, values[2], 64)
        if isinstance(values[2], PackedVector):
            # The compiler may leave the addend's high word undefined where it needs only the low word of the sum.
            words = [extract(found, 0, 32), extract(values[2], 0, 32)]
            low = apply_integer(machine, operation("add.b32"), words)
            result = concat([low, extract(result, 32, 32)])
        # The carry of the signed form is not modelled: it is undefined.
        carries = poison(1) if is_signed else apply_integer(machine, overflow, [found, values[2]])
        write_active_lane_mask(machine, carry_out, carries)
        under_execution_mask(lambda inner: write(inner, result))(machine)

    return step
