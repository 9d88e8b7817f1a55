"""Scalar integer arithmetic, shifts and bit fields.

Source: AMD Instinct MI300 ISA, "Scalar ALU operations" (SOP1, SOP2, SOPK, SOPC).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bitwise_amd_gfx942.opcodes.compute import integer_operation
from bitwise_amd_gfx942.opcodes.forms import Table
from bitwise_amd_gfx942.opcodes.memory.pointer_provenance import record_alignment
from bitwise_amd_gfx942.opcodes.operands.implicit_registers import CONDITION_CODE, with_implicit
from bitwise_amd_gfx942.opcodes.operands.operand_access import reader
from bitwise_amd_gfx942.opcodes.scalar.scalar_steps import (
    is_nonzero,
    scalar_step,
    source_comparison,
    source_operation,
)
from bitwise_amd_gfx942.opcodes.vector.add64 import match_high_sum, record_low_sum
from bitwise_amd_gfx942.registers import SCC
from bitwise_core.assembly.module import Instruction
from bitwise_core.execution.architecture import Context
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, UPDATED_FIRST, Effect, InstructionInfo
from bitwise_core.execution.machine import Machine, Step, literal
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values.integers.comparisons import compare_as_integers
from bitwise_core.execution.values.logic import combine
from bitwise_core.execution.values.packing import blend_values, concat, extract
from bitwise_core.execution.values.shifts import shifted
from bitwise_core.execution.values.symbolic_vector import Value
from bitwise_core.execution.values.term_hash import poison
from bitwise_core.numerics import operation

TABLE = Table()


_SUMS = {
    "s_add_u32": ("add.b32", "carry.u32"),
    "s_add_i32": ("add.b32", "addoverflow.s32"),
    "s_sub_u32": ("sub.b32", "borrow.u32"),
    "s_sub_i32": ("sub.b32", "suboverflow.s32"),
}


@TABLE.opcode(*_SUMS, operands=with_implicit(DESTINATION_FIRST, writes=CONDITION_CODE))
def add(instruction: Instruction, context: Context) -> Step:
    """Sums and differences; the condition code is the carry or borrow, or the signed overflow."""
    name, condition = _SUMS[instruction.opcode]
    compute, carry_of = integer_operation(name), source_operation(condition)

    def recorded_carry(machine: Machine, result: Value, left: Value, right: Value) -> Value:
        found = carry_of(machine, result, left, right)
        record_low_sum(machine, found, left, right, result)
        return found

    carries = recorded_carry if instruction.opcode == "s_add_u32" else carry_of
    return scalar_step(instruction, context, ("b32", "b32"), 32, compute, carries)


@TABLE.opcode(
    "s_addc_u32", "s_subb_u32", operands=with_implicit(DESTINATION_FIRST, reads=CONDITION_CODE, writes=CONDITION_CODE)
)
def add_with_carry(instruction: Instruction, context: Context) -> Step:
    """Sums and differences with carry or borrow; the condition code is the carry in and the carry out."""
    adds = instruction.opcode == "s_addc_u32"

    total, out = (operation(each) for each in (("addc.b32", "carryc.u32") if adds else ("subc.b32", "borrowc.u32")))

    def compute(machine: Machine, left: Value, right: Value) -> Value:
        whole = match_high_sum(machine, condition_code(machine), left, right) if adds else None
        if whole is not None:
            return whole
        return apply_integer(machine, total, [left, right, condition_code(machine)])

    def condition(machine: Machine, result: Value, left: Value, right: Value) -> Value:
        return apply_integer(machine, out, [left, right, condition_code(machine)])

    return scalar_step(instruction, context, ("b32", "b32"), 32, compute, condition)


def condition_code(machine: Machine) -> Value:
    """The scalar condition code.  Raises Unsupported where it was never written."""
    found = machine.registers.get(SCC)
    if found is None:
        raise Unsupported("the scalar condition code is read before it is written")
    return found


@TABLE.opcode("s_mul_i32", "s_mul_hi_u32", "s_mul_hi_i32", operands=DESTINATION_FIRST, effects=Effect.NONE)
def multiply(instruction: Instruction, context: Context) -> Step:
    """The low half of a product, or its signed or unsigned high half."""
    compute = integer_operation(
        {"s_mul_i32": "mul.b32", "s_mul_hi_u32": "mulhi.u32"}.get(instruction.opcode, "mulhi.s32")
    )
    return scalar_step(instruction, context, ("b32", "b32"), 32, compute)


@TABLE.opcode(
    "s_min_i32", "s_min_u32", "s_max_i32", "s_max_u32", operands=with_implicit(DESTINATION_FIRST, writes=CONDITION_CODE)
)
def minimum_or_maximum(instruction: Instruction, context: Context) -> Step:
    """The minimum or maximum; the condition code is whether the first source was selected."""
    _, verb, kind = instruction.opcode.split("_")
    kind = f"s{kind[1:]}" if kind[0] == "i" else kind

    compute = integer_operation(f"{verb}.{kind}")
    selects_first = source_comparison("lt" if verb == "min" else "gt", kind)

    def condition(machine: Machine, result: Value, left: Value, right: Value) -> Value:
        # The documents of this family disagree on the condition code for equal sources.
        found = selects_first(machine, result, left, right)
        equal = machine.known(compare_as_integers(machine, "eq", "b32", left, right))
        if equal is None:
            return poison(1, "which of two sources was taken")
        return blend_values(equal, poison(1, "which of two equal sources was taken"), found) if equal.any() else found

    return scalar_step(instruction, context, ("b32", "b32"), 32, compute, condition)


@TABLE.opcode("s_abs_i32", "s_absdiff_i32", operands=with_implicit(DESTINATION_FIRST, writes=CONDITION_CODE))
def absolute(instruction: Instruction, context: Context) -> Step:
    """The absolute value of a number, or of a difference."""

    magnitude, difference = integer_operation("abs.s32"), integer_operation("sub.b32")
    if instruction.opcode == "s_abs_i32":
        return scalar_step(instruction, context, ("b32",), 32, magnitude, is_nonzero)

    def absolute_difference(machine: Machine, left: Value, right: Value) -> Value:
        return magnitude(machine, difference(machine, left, right))

    return scalar_step(instruction, context, ("b32", "b32"), 32, absolute_difference, is_nonzero)


@TABLE.opcode(
    "s_lshl_b32",
    "s_lshr_b32",
    "s_ashr_i32",
    "s_lshl_b64",
    "s_lshr_b64",
    "s_ashr_i64",
    operands=with_implicit(DESTINATION_FIRST, writes=CONDITION_CODE),
)
def shift(instruction: Instruction, context: Context) -> Step:
    """Shifts by the low 5 or 6 bits of the amount."""
    _, verb, kind = instruction.opcode.split("_")
    bits = int(kind[1:])
    root = "shl" if verb == "lshl" else "shr"

    def compute(machine: Machine, value: Value, amount: Value) -> Value:
        by = combine(machine, "and", amount, literal(bits - 1, 32), 32)
        moved = shifted(machine, root, value, by, bits, is_signed=verb == "ashr")
        if verb == "lshl" and bits == 64 and isinstance(by, np.ndarray):
            record_alignment(machine, moved, 1 << min(4, int(by.min())))
        return moved

    return scalar_step(instruction, context, (f"b{bits}", "b32"), bits, compute, is_nonzero)


def _lshl_add(instruction: Instruction, context: Context, count: int) -> Step:
    def compute(machine: Machine, value: Value, addend: Value) -> Value:
        moved = shifted(machine, "shl", value, literal(count, 32), 32)
        return apply_integer(machine, operation("add.b32"), [moved, addend])

    carry = source_operation(f"lshl{count}_add_carry.u32@{context.arch.name}")
    return scalar_step(instruction, context, ("b32", "b32"), 32, compute, carry)


for _count in (1, 2, 3, 4):

    @TABLE.opcode(f"s_lshl{_count}_add_u32", operands=with_implicit(DESTINATION_FIRST, writes=CONDITION_CODE))
    def shift_and_add(instruction: Instruction, context: Context, count: int = _count) -> Step:
        """A left shift by 1 to 4 and a sum; the condition code is the carry."""
        return _lshl_add(instruction, context, count)


@TABLE.opcode(
    "s_bfe_u32", "s_bfe_i32", "s_bfe_u64", "s_bfe_i64", operands=with_implicit(DESTINATION_FIRST, writes=CONDITION_CODE)
)
def bit_field(instruction: Instruction, context: Context) -> Step:
    """Extract the field whose offset and width are in bits 0 to 5 and 16 to 22 of the second source."""
    kind = instruction.opcode.removeprefix("s_bfe_")
    bits = int(kind[1:])
    compute = integer_operation(f"bfepacked.{'s' if kind[0] == 'i' else 'u'}{bits}@{context.arch.name}")
    return scalar_step(instruction, context, (f"b{bits}", "b32"), bits, compute, is_nonzero)


@TABLE.opcode("s_bfm_b32", "s_bfm_b64", operands=DESTINATION_FIRST, effects=Effect.NONE)
def bit_field_mask(instruction: Instruction, context: Context) -> Step:
    """A mask of ones: the first source is their count, the second the lowest bit."""
    bits = int(instruction.opcode[-2:])

    return scalar_step(instruction, context, ("b32", "b32"), bits, integer_operation(f"bitmask.b{bits}"))


def _bit_order_info(instruction: Instruction) -> InstructionInfo:
    """The declaration of `bit_order`: bit counts write the condition code."""
    writes = CONDITION_CODE if instruction.opcode.startswith("s_bcnt") else frozenset()
    return with_implicit(DESTINATION_FIRST, writes=writes)(instruction)


@TABLE.opcode(
    "s_brev_b32",
    "s_brev_b64",
    "s_bcnt1_i32_b32",
    "s_bcnt1_i32_b64",
    "s_bcnt0_i32_b32",
    "s_bcnt0_i32_b64",
    operands=_bit_order_info,
)
def bit_order(instruction: Instruction, context: Context) -> Step:
    """Reverse the bits, or count those that are 1 or 0."""
    verb, bits = instruction.opcode.split("_")[1], int(instruction.opcode[-2:])

    if verb == "brev":
        return scalar_step(instruction, context, (f"b{bits}",), bits, integer_operation(f"brev.b{bits}"))
    compute = _bit_operation(f"popc.b{bits}", verb == "bcnt0", bits)
    return scalar_step(instruction, context, (f"b{bits}",), 32, compute, is_nonzero)


def _bit_operation(name: str, flipped: bool, bits: int) -> Callable[..., Value]:
    """An operation on a number, or on its complement where `flipped`."""
    compute, complement = integer_operation(name), integer_operation(f"not.b{bits}")
    return (lambda machine, value: compute(machine, complement(machine, value))) if flipped else compute


@TABLE.opcode(
    "s_ff1_i32_b32",
    "s_ff1_i32_b64",
    "s_ff0_i32_b32",
    "s_ff0_i32_b64",
    "s_flbit_i32_b32",
    "s_flbit_i32_b64",
    operands=DESTINATION_FIRST,
    effects=Effect.NONE,
)
def first_bit(instruction: Instruction, context: Context) -> Step:
    """The position of the lowest 1 or 0, or of the highest 1 counted from the top; -1 where there is none."""
    verb, bits = instruction.opcode.split("_")[1], int(instruction.opcode[-2:])

    name = f"findmsb.top.u{bits}" if verb == "flbit" else f"findlsb.b{bits}"
    return scalar_step(instruction, context, (f"b{bits}",), 32, _bit_operation(name, verb == "ff0", bits))


@TABLE.opcode("s_flbit_i32", "s_flbit_i32_i64", operands=DESTINATION_FIRST, effects=Effect.NONE)
def first_unlike_sign(instruction: Instruction, context: Context) -> Step:
    """The position of the highest bit that differs from the sign, counted from the top; -1 where there is none."""
    bits = 64 if instruction.opcode.endswith("i64") else 32

    return scalar_step(instruction, context, (f"b{bits}",), 32, integer_operation(f"findmsb.top.s{bits}"))


@TABLE.opcode("s_sext_i32_i8", "s_sext_i32_i16", operands=DESTINATION_FIRST, effects=Effect.NONE)
def sign_extend(instruction: Instruction, context: Context) -> Step:
    """Sign-extend the low byte or half."""
    bits = int(instruction.opcode.split("_i")[-1])

    extension = operation(f"convert.b32.s{bits}")

    def compute(machine: Machine, value: Value) -> Value:
        return apply_integer(machine, extension, [extract(value, 0, bits)])

    return scalar_step(instruction, context, ("b32",), 32, compute)


@TABLE.opcode(
    "s_pack_ll_b32_b16", "s_pack_lh_b32_b16", "s_pack_hh_b32_b16", operands=DESTINATION_FIRST, effects=Effect.NONE
)
def pack(instruction: Instruction, context: Context) -> Step:
    """Pack two halves into a word."""
    which = instruction.opcode.split("_")[2]
    lows = [16 if each == "h" else 0 for each in which]

    def compute(machine: Machine, left: Value, right: Value) -> Value:
        return concat([extract(left, lows[0], 16), extract(right, lows[1], 16)])

    return scalar_step(instruction, context, ("b32", "b32"), 32, compute)


@TABLE.opcode("s_bitset0_b32", "s_bitset1_b32", operands=UPDATED_FIRST, effects=Effect.NONE)
def set_bit(instruction: Instruction, context: Context) -> Step:
    """Set or clear one bit of the destination."""
    old = reader(instruction.operands[0], "b32", instruction)
    one = instruction.opcode == "s_bitset1_b32"

    def compute(machine: Machine, position: Value) -> Value:
        bit = shifted(machine, "shl", literal(1, 32), combine(machine, "and", position, literal(31, 32), 32), 32)
        if one:
            return combine(machine, "or", old(machine), bit, 32)
        return combine(machine, "and", old(machine), apply_integer(machine, operation("not.b32"), [bit]), 32)

    return scalar_step(instruction, context, ("b32",), 32, compute)
