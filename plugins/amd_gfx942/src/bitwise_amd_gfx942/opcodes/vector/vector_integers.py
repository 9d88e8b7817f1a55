"""Vector integer arithmetic and shifts.

Source: AMD Instinct MI300 ISA, "Vector ALU operations" (VOP1, VOP2, VOP3).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bitwise_amd_gfx942.opcodes.compute import Compute, integer_operation
from bitwise_amd_gfx942.opcodes.forms import Table, check_modifiers, form
from bitwise_amd_gfx942.opcodes.memory.pointer_provenance import record_pointer_sum
from bitwise_amd_gfx942.opcodes.operands.deferred_bytes import Bytes, joined_bytes, shifted_bytes
from bitwise_amd_gfx942.opcodes.operands.execution_mask import always, vector_opcode, with_16_bits
from bitwise_amd_gfx942.opcodes.operands.sdwa import widened_half
from bitwise_amd_gfx942.opcodes.vector.lanewise import ENCODING_MODIFIERS, lanewise
from bitwise_core.assembly.module import Immediate, Instruction
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, Effect
from bitwise_core.execution.machine import Machine, Step, literal
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.logic import combine
from bitwise_core.execution.values.packing import concat, extract
from bitwise_core.execution.values.shifts import shifted
from bitwise_core.execution.values.symbolic_vector import PackedVector, SymbolicVector, Value
from bitwise_core.numerics import operation

TABLE = Table()


def wrapping_add(machine: Machine, left: Value, right: Value, bits: int = 32) -> Value:
    """The low bits of a sum."""
    return apply_integer(machine, operation(f"add.b{bits}"), [left, right])


def wrapping_multiply(machine: Machine, left: Value, right: Value, bits: int = 32) -> Value:
    """The low bits of a product."""
    return apply_integer(machine, operation(f"mul.b{bits}"), [left, right])


def _reversed(compute: Compute) -> Compute:
    return lambda machine, left, right: compute(machine, right, left)


_WRAPPING = (
    "v_add_u32", "v_sub_u32", "v_subrev_u32", "v_add_i32", "v_sub_i32", "v_add_u16", "v_sub_u16", "v_subrev_u16",
)  # fmt: skip


@vector_opcode(TABLE, *_WRAPPING, operands=DESTINATION_FIRST, effects=Effect.LANEWISE)
@vector_opcode(TABLE, "v_add_i16", "v_sub_i16", operands=DESTINATION_FIRST, effects=Effect.LANEWISE, keeps=always)
def add(instruction: Instruction, context: Context) -> Step:
    """Sums and differences that wrap; the modifier clamp saturates unsigned ones."""
    found = check_modifiers(instruction, "clamp", *ENCODING_MODIFIERS)
    _, verb, kind = found.name.split("_")
    bits = int(kind[1:])
    if "clamp" in found.modifiers:
        if kind[0] != "u":
            raise UnknownInstruction(instruction, "saturates signed numbers, which is not modelled")
        compute = integer_operation(f"{verb.removesuffix('rev')}sat.u{bits}")
    else:
        compute = integer_operation(f"{verb.removesuffix('rev')}.b{bits}")
    if verb == "subrev":
        compute = _reversed(compute)
    return lanewise(
        instruction, (f"b{bits}",) * 2, bits, compute, extra_modifiers=("clamp",), keep_high_half=kind == "i16"
    )


@vector_opcode(
    TABLE, "v_mul_lo_u32", "v_mul_lo_i32", "v_mul_lo_u16", operands=DESTINATION_FIRST, effects=Effect.LANEWISE
)
def multiply(instruction: Instruction, context: Context) -> Step:
    """The low half of a product."""
    bits = int(form(instruction.opcode).name[-2:])
    return lanewise(instruction, (f"b{bits}",) * 2, bits, integer_operation(f"mul.b{bits}"))


@vector_opcode(TABLE, "v_mul_hi_u32", "v_mul_hi_i32", operands=DESTINATION_FIRST, effects=Effect.NONE)
def multiply_high(instruction: Instruction, context: Context) -> Step:
    """The high half of a product."""
    kind = "u32" if form(instruction.opcode).name.endswith("u32") else "s32"
    return lanewise(instruction, ("b32", "b32"), 32, integer_operation(f"mulhi.{kind}"))


@vector_opcode(TABLE, "v_mul_hi_u32_u24", "v_mul_hi_i32_i24", operands=DESTINATION_FIRST, effects=Effect.NONE)
def multiply_24_high(instruction: Instruction, context: Context) -> Step:
    """The high 32 bits of the 64-bit product of the sources' low 24 bits, signed or unsigned."""
    kind = "s32" if "_i24" in form(instruction.opcode).name else "u32"
    low, high = integer_operation(f"low24.{kind}"), integer_operation(f"mulhi.{kind}")

    def compute(machine: Machine, left: Value, right: Value) -> Value:
        return high(machine, low(machine, left), low(machine, right))

    return lanewise(instruction, ("b32", "b32"), 32, compute)


@vector_opcode(
    TABLE,
    "v_mad_legacy_u16",
    "v_mad_legacy_i16",
    operands=DESTINATION_FIRST,
    effects=Effect.NONE,
)
@vector_opcode(TABLE, "v_mad_u16", "v_mad_i16", operands=DESTINATION_FIRST, keeps=always)
def multiply_add_16(instruction: Instruction, context: Context) -> Step:
    """The low 16 bits of a product plus an addend; the legacy forms clear the high half, the others leave it."""

    def compute(machine: Machine, left: Value, right: Value, addend: Value) -> Value:
        return wrapping_add(machine, wrapping_multiply(machine, left, right, 16), addend, 16)

    keeps = "_legacy_" not in form(instruction.opcode).name
    return lanewise(instruction, ("b16",) * 3, 16, compute, keep_high_half=keeps)


@vector_opcode(
    TABLE,
    "v_mul_u32_u24",
    "v_mul_i32_i24",
    "v_mad_u32_u24",
    "v_mad_i32_i24",
    operands=DESTINATION_FIRST,
    effects=Effect.NONE,
)
def multiply_24(instruction: Instruction, context: Context) -> Step:
    """The low 32 bits of the product of the sources' low 24 bits; the mad forms add a third source."""
    name = form(instruction.opcode).name
    low = integer_operation(f"low24.{'s32' if '_i24' in name else 'u32'}")

    def compute(machine: Machine, left: Value, right: Value, *addend: Value) -> Value:
        found = wrapping_multiply(machine, low(machine, left), low(machine, right))
        return wrapping_add(machine, found, addend[0]) if addend else found

    return lanewise(instruction, ("b32",) * (3 if "_mad_" in name else 2), 32, compute)


@vector_opcode(
    TABLE, "v_lshlrev_b32", "v_lshrrev_b32", "v_ashrrev_i32", "v_lshlrev_b64", "v_lshrrev_b64", "v_ashrrev_i64",
    "v_lshlrev_b16", "v_lshrrev_b16", "v_ashrrev_i16", operands=DESTINATION_FIRST, effects=Effect.LANEWISE
)  # fmt: skip
def shift(instruction: Instruction, context: Context) -> Step:
    """Shifts of the second source by the low bits of the first."""
    _, verb, kind = form(instruction.opcode).name.split("_")
    bits = int(kind[1:])

    def compute(machine: Machine, amount: Value, value: Value) -> Value:
        if bits == 16:
            amount = concat([amount, literal(0, 16)])
        if verb == "ashrrev" and bits == 32 and is_constant(amount, 16) and _has_independent_halves(value):
            return widened_half(machine, extract(value, 16, 16))
        return shift_by_low_bits(machine, "shl" if verb == "lshlrev" else "shr", value, amount, bits, verb == "ashrrev")

    def moves(sources: Sequence[Bytes]) -> Bytes | None:
        amount, value = sources
        return shifted_bytes(value, amount, bits, verb == "lshlrev")

    kinds = "b16" if bits == 16 else "b32", f"b{bits}"
    return lanewise(instruction, kinds, bits, compute, moves=None if verb == "ashrrev" or bits == 64 else moves)


def is_constant(value: Value, number: int) -> bool:
    """Whether a value is this constant in every lane."""
    return isinstance(value, np.ndarray) and bool((value == number).all())


def _has_independent_halves(value: Value) -> bool:
    """Whether a value is packed, loaded or constant, so that its high half does not depend on its low half."""
    if isinstance(value, PackedVector):
        return True
    if not isinstance(value, SymbolicVector) or L.lazy_integers(value) is not None:
        return False
    term_form = value.flags & L.FORM
    return bool(np.all((term_form == L.LOAD) | (term_form == L.CONST)))


def shift_by_low_bits(
    machine: Machine, root: str, value: Value, amount: Value, bits: int, is_signed: bool = False
) -> Value:
    """A shift by the low log2(bits) bits of the amount."""
    if isinstance(amount, np.ndarray):
        by: Value = amount & np.uint32(bits - 1)
    else:
        by = combine(machine, "and", amount, literal(bits - 1, 32), 32)
    return shifted(machine, root, value, by, bits, is_signed=is_signed)


@vector_opcode(
    TABLE,
    "v_lshl_add_u32",
    "v_add_lshl_u32",
    "v_lshl_add_u64",
    "v_add3_u32",
    "v_xad_u32",
    "v_lshl_or_b32",
    operands=DESTINATION_FIRST,
    effects=Effect.LANEWISE,
)
def three_operand(instruction: Instruction, context: Context) -> Step:
    """Two integer operations on three sources."""
    name = form(instruction.opcode).name
    bits = 64 if name.endswith("64") else 32
    if bits == 64:
        amount = instruction.operands[2] if len(instruction.operands) == 4 else None
        if not isinstance(amount, Immediate) or not 0 <= amount.value <= 4:
            raise UnknownInstruction(instruction, "takes a constant shift from 0 to 4")

    def compute(machine: Machine, first: Value, second: Value, third: Value) -> Value:
        if name == "v_add3_u32":
            return wrapping_add(machine, wrapping_add(machine, first, second), third)
        if name == "v_add_lshl_u32":
            return shift_by_low_bits(machine, "shl", wrapping_add(machine, first, second), third, 32)
        if name == "v_xad_u32":
            return wrapping_add(machine, combine(machine, "xor", first, second, 32), third)
        moved = shift_by_low_bits(machine, "shl", first, second, bits)
        if name == "v_lshl_or_b32":
            return combine(machine, "or", moved, third, 32)
        result = wrapping_add(machine, moved, third, bits)
        if bits == 64:
            record_pointer_sum(machine, result, moved, third)
        return result

    def moves(sources: Sequence[Bytes]) -> Bytes | None:
        moved = shifted_bytes(sources[0], sources[1], 32, True)
        return None if moved is None else joined_bytes(moved, sources[2])

    chosen = moves if name == "v_lshl_or_b32" else None
    return lanewise(instruction, (f"b{bits}", "b32", f"b{bits}"), bits, compute, moves=chosen)


@vector_opcode(
    TABLE,
    "v_min_i32",
    "v_min_u32",
    "v_max_i32",
    "v_max_u32",
    "v_min_i16",
    "v_min_u16",
    "v_max_i16",
    "v_max_u16",
    operands=DESTINATION_FIRST,
    effects=Effect.LANEWISE,
)
def minimum_or_maximum(instruction: Instruction, context: Context) -> Step:
    """The minimum or maximum of two integers."""
    verb, kind, bits = _minmax_format(instruction)
    return lanewise(instruction, (f"b{bits}",) * 2, bits, minmax_operation(verb, kind))


@vector_opcode(
    TABLE,
    *(f"v_{verb}3_{kind}" for verb in ("min", "max") for kind in ("i32", "u32", "i16", "u16")),
    operands=DESTINATION_FIRST,
    effects=Effect.NONE,
    keeps=with_16_bits,
)
def minimum_or_maximum_of_three(instruction: Instruction, context: Context) -> Step:
    """The minimum or maximum of three integers."""
    verb, kind, bits = _minmax_format(instruction)
    two = minmax_operation(verb.removesuffix("3"), kind)

    def compute(machine: Machine, first: Value, second: Value, third: Value) -> Value:
        return two(machine, two(machine, first, second), third)

    return lanewise(instruction, (f"b{bits}",) * 3, bits, compute, keep_high_half=True)


@vector_opcode(
    TABLE, "v_med3_i32", "v_med3_u32", "v_med3_i16", "v_med3_u16", operands=DESTINATION_FIRST, keeps=with_16_bits
)
def median(instruction: Instruction, context: Context) -> Step:
    """The median of three integers."""
    _, kind, bits = _minmax_format(instruction)
    least, greatest = minmax_operation("min", kind), minmax_operation("max", kind)

    def compute(machine: Machine, first: Value, second: Value, third: Value) -> Value:
        if _are_ordered_constants(second, third, kind):
            # With constant bounds a clamp, from below and then from above: the form that other architectures write.
            return least(machine, greatest(machine, first, second), third)
        low, high = least(machine, first, second), greatest(machine, first, second)
        return greatest(machine, low, least(machine, high, third))

    return lanewise(instruction, (f"b{bits}",) * 3, bits, compute, keep_high_half=True)


def _are_ordered_constants(low: Value, high: Value, kind: str) -> bool:
    """Whether two values are constants and the first is nowhere above the second."""
    if not isinstance(low, np.ndarray) or not isinstance(high, np.ndarray):
        return False
    return bool(operation(f"le.{kind}").evaluate(low, high).all())


def _minmax_format(instruction: Instruction) -> tuple[str, str, int]:
    _, verb, kind = form(instruction.opcode).name.split("_")
    return verb, f"{'s' if kind[0] == 'i' else 'u'}{kind[1:]}", int(kind[1:])


def minmax_operation(verb: str, kind: str) -> Compute:
    """The minimum or maximum of two integers of a type such as s32."""
    return integer_operation(f"{verb}.{kind}")
