"""The instructions that gfx950 adds, other than matrix products, as Triton emits them.

Source: AMD Instinct MI350 (CDNA4) ISA; LLVM's AMDGPU documentation of the intrinsics llvm.amdgcn.permlane16.swap,
llvm.amdgcn.permlane32.swap and llvm.amdgcn.ds.read.tr16.b64.
"""

from __future__ import annotations

import numpy as np

from bitwise_amd_gfx942.opcodes.forms import Table, check_modifiers, form, modifier_value
from bitwise_amd_gfx942.opcodes.matrices.matrix import check_all_lanes_active
from bitwise_amd_gfx942.opcodes.memory.shared_memory import order_wave_accesses, shared_address
from bitwise_amd_gfx942.opcodes.memory.shared_reads import read_offset
from bitwise_amd_gfx942.opcodes.operands.execution_mask import vector_opcode
from bitwise_amd_gfx942.opcodes.operands.implicit_registers import EXECUTION_MASK, with_implicit
from bitwise_amd_gfx942.opcodes.operands.operand_access import reader, writer
from bitwise_amd_gfx942.opcodes.vector.conversion import check_not_flushed, rounding_conversion
from bitwise_amd_gfx942.opcodes.vector.floating import apply_float, extremum_of_three, float_step
from bitwise_amd_gfx942.opcodes.vector.lanewise import lanewise
from bitwise_amd_gfx942.opcodes.vector.packed import packed
from bitwise_core.assembly.module import Instruction
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, Effect, Operands
from bitwise_core.execution.machine import Machine, Step, literal
from bitwise_core.execution.memory.access import read_shared
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values.lane_selection import take_threads
from bitwise_core.execution.values.packing import blend_values, concat, extract
from bitwise_core.execution.values.symbolic_vector import Value
from bitwise_core.execution.values.term_hash import poison
from bitwise_core.numerics import operation

TABLE = Table()

_ROW = 16
"""The number of lanes of a row."""

_EXTREMA = ("v_minimum3_f32", "v_maximum3_f32", "v_pk_minimum3_f16", "v_pk_maximum3_f16")


@vector_opcode(TABLE, *_EXTREMA, operands=DESTINATION_FIRST, effects=Effect.NONE)
def extremum_with_nans(instruction: Instruction, context: Context) -> Step:
    """The minimum or maximum of three numbers, or two of them, NaN where one is NaN; -0 is less than +0."""
    kind = "fp16" if instruction.opcode.startswith("v_pk_") else "fp32"
    check_not_flushed(instruction, context, kind)
    compute = extremum_of_three(operation(f"{'min' if 'minimum' in instruction.opcode else 'max'}.nan.{kind}"))
    if kind == "fp16":
        return packed(instruction, kind, 3, compute)
    return float_step(instruction, context, (kind,) * 3, kind, compute)


@vector_opcode(TABLE, "v_bitop3_b32", "v_bitop3_b16", operands=DESTINATION_FIRST, effects=Effect.NONE)
def bitwise_function(instruction: Instruction, context: Context) -> Step:
    """Any function of three bits; bit 4 a + 2 b + c of the modifier bitop3 is its value for the bits a, b and c.

    The manual does not state the high half of a result of 16 bits.
    """
    found = form(instruction.opcode)
    table = modifier_value(instruction, found.modifiers.get("bitop3", "0"))
    if not 0 <= table < 256:
        raise UnknownInstruction(instruction, "has a truth table that is not one of 8 bits")
    meaning = operation(f"lop3.{table:#04x}.b32")
    is_half = found.name.endswith("b16")

    def compute(machine: Machine, *values: Value) -> Value:
        if not is_half:
            return apply_integer(machine, meaning, values)
        result = apply_integer(machine, meaning, [concat([each, literal(0, 16)]) for each in values])
        return concat([extract(result, 0, 16), poison(16, "the high half of a register after a result of 16 bits")])

    return lanewise(instruction, ("b16" if is_half else "b32",) * 3, 32, compute, extra_modifiers=("bitop3",))


@vector_opcode(TABLE, "v_cvt_pk_f16_f32", "v_cvt_pk_bf16_f32", operands=DESTINATION_FIRST, effects=Effect.NONE)
def convert_pair(instruction: Instruction, context: Context) -> Step:
    """Two numbers rounded in the mode's rounding, packed."""
    to = "bf16" if "bf16" in form(instruction.opcode).name else "fp16"
    check_not_flushed(instruction, context, "fp16", "fp32")
    meaning = rounding_conversion(to, "fp32", instruction, context)

    def compute(machine: Machine, low: Value, high: Value) -> Value:
        return concat([apply_float(machine, meaning, [each]) for each in (low, high)])

    return lanewise(instruction, ("fp32", "fp32"), 32, compute)


@TABLE.opcode(
    "v_permlane16_swap_b32",
    "v_permlane32_swap_b32",
    operands=with_implicit(Operands(updates=(0, 1)), Effect.CROSS_LANE, reads=EXECUTION_MASK),
)
def swap_rows(instruction: Instruction, context: Context) -> Step:
    """Exchange the upper half of each 2 * size lanes of the first register with the lower half of the second one's."""
    size = 16 if "permlane16" in instruction.opcode else 32
    check_modifiers(instruction)
    if len(instruction.operands) != 2:
        raise UnknownInstruction(instruction, "takes two registers")
    first, second = (reader(each, "b32", instruction) for each in instruction.operands)
    writers = [writer(each, 32, instruction) for each in instruction.operands]

    def step(machine: Machine) -> None:
        check_all_lanes_active(machine, instruction)
        lane = np.arange(machine.threads)[None]
        upper = lane & size != 0
        of_first, of_second = first(machine), second(machine)
        moved = take_threads(of_second, lane ^ size), take_threads(of_first, lane ^ size)
        writers[0](machine, blend_values(upper, moved[0], of_first))
        writers[1](machine, blend_values(upper, of_second, moved[1]))

    return step


@vector_opcode(
    TABLE,
    "ds_read_b64_tr_b16",
    "ds_read_b64_tr_b8",
    operands=DESTINATION_FIRST,
    effects=Effect.LOAD | Effect.CROSS_LANE,
)
def read_transposed(instruction: Instruction, context: Context) -> Step:
    """Read 64 bits for each lane, n elements, and transpose them within the 16 lanes of a row.

    Element j of lane r of a row is element r % n of those at the address of the row's lane 16 j / n + r / n.
    """
    bits = 8 if instruction.opcode.startswith("ds_read_b64_tr_b8") else 16
    count = 64 // bits
    target, source = instruction.operands
    offset, read_address = read_offset(instruction), reader(source, "b32", instruction)
    write, line = writer(target, 64, instruction), instruction.line

    def step(machine: Machine) -> None:
        check_all_lanes_active(machine, instruction)
        order_wave_accesses(machine)
        address = shared_address(machine, read_address(machine), offset, line)
        address = np.broadcast_to(address, (address.shape[0], machine.threads))
        lane = np.arange(machine.threads) & _ROW - 1
        base = np.arange(machine.threads) - lane
        parts = []
        for element in range(count):
            place = address[:, base + _ROW // count * element + lane // count]
            parts.append(read_shared(machine, place + (bits // 8 * (lane % count)).astype(np.uint64), bits))
        write(machine, concat(parts))

    return step
