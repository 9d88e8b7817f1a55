"""Integer arithmetic, shifts and bit fields, with PTX's wrap-around and clamping.

Source: PTX ISA 8.7, sections "Integer Arithmetic Instructions", "Logic and Shift Instructions".
"""

from __future__ import annotations

import numpy as np

from bitwise_core.assembly.module import Immediate, Instruction, Register
from bitwise_core.execution.architecture import Context, OpcodeTable, UnknownInstruction, named
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, Effect, InstructionInfo
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.logic import combine
from bitwise_core.execution.values.packing import as_symbolic_vector, concat, extract
from bitwise_core.execution.values.shifts import shifted
from bitwise_core.execution.values.symbolic_vector import Array, Value
from bitwise_nvidia_ptx.float_registers import float_registers
from bitwise_nvidia_ptx.opcodes import floating
from bitwise_nvidia_ptx.opcodes.carry_flag import with_carry, with_carry_info
from bitwise_nvidia_ptx.opcodes.common import (
    PACKED_INTEGERS,
    check_kind,
    check_modifiers,
    integer_step,
    integer_unless_float,
    is_integer,
    operands_of,
    parts_of,
    type_bits,
)

TABLE = OpcodeTable()

_SHIFTED = tuple(f"{letter}{bits}" for letter in "bsu" for bits in (16, 32, 64))


def arithmetic_info(instruction: Instruction) -> InstructionInfo:
    """Return what integer arithmetic reads and writes, including the carry flag of extended-precision forms."""
    return with_carry_info(DESTINATION_FIRST.info(instruction, integer_unless_float(instruction)), instruction)


@TABLE.opcode("add", "sub", "mul", "div", "rem", "addc", operands=arithmetic_info, least=3)
@TABLE.opcode("mad", "madc", operands=arithmetic_info, least=4)
def arithmetic(instruction: Instruction, context: Context) -> Step:
    """add, sub, mul.{lo,hi,wide}, mad, div, rem; `floating` handles the floating-point forms."""
    root, *modifiers, kind = parts_of(instruction)
    if "cc" in modifiers or root in ("addc", "madc"):
        return with_carry(instruction, context)
    kind, packed = PACKED_INTEGERS.get(kind, (kind, 1)) if root == "add" else (kind, 1)
    if not is_integer(kind):
        return floating.arithmetic(instruction, context)
    if root in ("add", "sub", "div", "rem"):
        check_modifiers(instruction, modifiers, set())
        return integer_step(instruction, named(instruction, f"{root}.{kind}"), packed=packed)
    check_modifiers(instruction, modifiers, {"lo", "hi", "wide"})
    return _product(instruction, root, {"hi": "mulhi", "wide": "mulwide"}.get("".join(modifiers), "mul"), kind)


def _product(instruction: Instruction, root: str, verb: str, kind: str) -> Step:
    product = named(instruction, f"{verb}.{kind}")
    if root == "mul":
        return integer_step(instruction, product)
    destination, left, right, addend = operands_of(instruction, 4)
    bits, out, total = type_bits(kind), product.bits, named(instruction, f"add.b{product.bits}")

    def step(machine: Machine) -> None:
        value = apply_integer(machine, product, [machine.read_bits(left, bits), machine.read_bits(right, bits)])
        machine.write(destination, apply_integer(machine, total, [value, machine.read_bits(addend, out)]))

    return step


@TABLE.opcode("neg", "abs", operands=DESTINATION_FIRST, effects=integer_unless_float, least=2)
@TABLE.opcode("min", "max", operands=DESTINATION_FIRST, effects=integer_unless_float, least=3)
def unary_or_extremum(instruction: Instruction, context: Context) -> Step:
    """neg, abs, min, max of integers; `floating` handles the floating-point forms."""
    root, *modifiers, kind = parts_of(instruction)
    kind, packed = PACKED_INTEGERS.get(kind, (kind, 1)) if root in ("min", "max") else (kind, 1)
    if not is_integer(kind):
        return floating.extremum(instruction, context)
    if root in ("min", "max") and modifiers == ["relu"] and kind in ("s32", "s16"):
        return _extremum_or_zero(instruction, root, kind, packed)
    check_modifiers(instruction, modifiers, set())
    if root in ("neg", "abs") and kind[0] != "s":
        raise UnknownInstruction(instruction, "needs a signed type")
    return integer_step(instruction, named(instruction, f"{root}.{kind}"), packed=packed)


def _extremum_or_zero(instruction: Instruction, root: str, kind: str, packed: int) -> Step:
    """min.relu and max.relu: 0 where the extremum is negative."""
    extremum, most, bits = named(instruction, f"{root}.{kind}"), named(instruction, f"max.{kind}"), type_bits(kind)
    destination, left, right = operands_of(instruction, 3)
    zero = np.zeros((1, 1), dtype=L.UNSIGNED[bits])

    def step(machine: Machine) -> None:
        values = [machine.read_bits(each, bits * packed) for each in (left, right)]
        found = []
        for part in range(packed):
            pair = [extract(each, part * bits, bits) for each in values]
            found.append(apply_integer(machine, most, [apply_integer(machine, extremum, pair), zero]))
        machine.write(destination, concat(found))

    return step


@TABLE.opcode("shl", "shr", operands=DESTINATION_FIRST, effects=Effect.INTEGER, least=3)
def shift(instruction: Instruction, context: Context) -> Step:
    """shl and shr; a shift by the width or more gives 0, or all sign bits for a signed shr."""
    root, *modifiers, kind = parts_of(instruction)
    check_modifiers(instruction, modifiers, set())
    check_kind(instruction, kind, _SHIFTED)
    bits, is_signed = type_bits(kind), kind[0] == "s"
    destination, source, amount = operands_of(instruction, 3)
    if (
        bits == 64
        and isinstance(amount, Register)
        and amount.name in float_registers(context.kernel, context.arch.opcodes)
    ):
        raise UnknownInstruction(
            instruction, "shifts by a register that a floating-point instruction writes; ptxas converts its number"
        )
    signed_right = is_signed and root == "shr"

    def step(machine: Machine) -> None:
        value, by = machine.read_bits(source, bits), machine.read_bits(amount, 32)
        machine.write(destination, shifted(machine, root, value, by, bits, is_signed=signed_right))

    return step


def _bit_field(instruction: Instruction, name: str) -> Step:
    """Return a step on a bit field, whose position and length are the last two operands.

    PTX defines both up to 255.  Above, hardware wraps those of 32-bit fields; those of 64-bit fields are not modelled.
    """
    field = named(instruction, name)
    inner = integer_step(instruction, field)
    if field.bits == 32:
        return inner
    position_and_length = instruction.operands[-2:]

    def step(machine: Machine) -> None:
        if any(_above(255, machine.read_bits(each, 32)) for each in position_and_length):
            raise Unsupported("a bit field's position or length is above 255, which PTX does not define")
        inner(machine)

    return step


def _known_field(instruction: Instruction) -> Step | None:
    """Return bfe of an unsigned field at literal bits as a shift and a mask, None for another one."""
    kind = parts_of(instruction)[-1]
    if instruction.opcode != f"bfe.{kind}" or kind not in ("u32", "u64") or len(instruction.operands) != 4:
        return None
    bits = type_bits(kind)
    destination, source, position, length = instruction.operands
    if not isinstance(position, Immediate) or not isinstance(length, Immediate):
        return None
    low, count = position.value, length.value
    if low < 0 or count <= 0 or low + count > bits:
        return None
    mask = np.full((1, 1), (1 << count) - 1, dtype=L.UNSIGNED[bits])
    by = np.full((1, 1), low, dtype=np.uint32)

    def step(machine: Machine) -> None:
        field = shifted(machine, "shr", machine.read_bits(source, bits), by, bits)
        machine.write(destination, combine(machine, "and", field, mask, bits) if low + count < bits else field)

    return step


def _above(limit: int, value: Value) -> bool:
    """Return whether some lane is known to hold more than `limit`."""

    def above(number: Array) -> Array:
        return np.greater(number, np.uint32(limit))

    lazy = L.lazy_integers(value)
    if lazy is not None:
        found = lazy.apply([value], above)
        return found is not None and bool(found.any())
    lanes = as_symbolic_vector(value)
    return bool(np.any(L.constant_mask(lanes) & above(L.constants_of(lanes))))


@TABLE.opcode("bfe", operands=DESTINATION_FIRST, effects=Effect.INTEGER, least=4)
def bit_field_extract(instruction: Instruction, context: Context) -> Step:
    """bfe: `length` bits from `position`, sign-extended for signed types."""
    return _known_field(instruction) or _bit_field(instruction, ".".join(parts_of(instruction)))


@TABLE.opcode("bfi", operands=DESTINATION_FIRST, effects=Effect.INTEGER, least=5)
def bit_field_insert(instruction: Instruction, context: Context) -> Step:
    """bfi: the low `length` bits of a put into b at `position`."""
    return _bit_field(instruction, ".".join(parts_of(instruction)))


@TABLE.opcode("shf", operands=DESTINATION_FIRST, effects=Effect.INTEGER, least=4)
def funnel_shift(instruction: Instruction, context: Context) -> Step:
    """shf.{l,r}.{wrap,clamp}.b32: a 64-bit pair shifted, one word kept."""
    _, direction, mode, kind, *rest = parts_of(instruction, 4)
    if rest or kind != "b32" or mode not in ("wrap", "clamp") or direction not in ("l", "r"):
        raise UnknownInstruction(instruction)
    return integer_step(instruction, named(instruction, f"shf{direction}.{mode}.b32"))


@TABLE.opcode("popc", "clz", "brev", "bfind", operands=DESTINATION_FIRST, effects=Effect.NONE, least=2)
def bit_count(instruction: Instruction, context: Context) -> Step:
    """popc, clz, brev and bfind."""
    root, *modifiers, kind = parts_of(instruction)
    check_modifiers(instruction, modifiers, {"shiftamt"} if root == "bfind" else set())
    if root == "bfind":
        root = "findmsb.top" if modifiers else "findmsb"
    return integer_step(instruction, named(instruction, f"{root}.{kind}"))


@TABLE.opcode("fns", operands=DESTINATION_FIRST, effects=Effect.NONE, least=4)
def find_nth_set(instruction: Instruction, context: Context) -> Step:
    """fns.b32 d, mask, base, offset: the position of the n-th set bit from `base`.

    PTX defines it for a base of at most 31.
    """
    if instruction.opcode != "fns.b32":
        raise UnknownInstruction(instruction)
    inner = integer_step(instruction, named(instruction, "findnth.b32"))
    _, _, base, _ = operands_of(instruction, 4)

    def step(machine: Machine) -> None:
        start = machine.read_bits(base, 32)
        if _above(31, start) or not _known(start):
            raise Unsupported("the base of fns is not known to be at most 31, beyond which PTX does not define it")
        inner(machine)

    return step


def _known(value: Value) -> bool:
    """Return whether every lane holds a known number."""
    return L.lazy_integers(value) is not None or bool(np.all(L.constant_mask(as_symbolic_vector(value))))


@TABLE.opcode("copysign", operands=DESTINATION_FIRST, effects=Effect.NONE, least=3)
def copy_sign(instruction: Instruction, context: Context) -> Step:
    """copysign.{f32,f64} d, a, b: the sign of a on the magnitude of b."""
    _, *modifiers, kind = parts_of(instruction)
    check_modifiers(instruction, modifiers, set())
    check_kind(instruction, kind, ("f32", "f64"))
    return integer_step(instruction, named(instruction, f"copysign.b{type_bits(kind)}"))


@TABLE.opcode("sad", operands=DESTINATION_FIRST, effects=Effect.INTEGER, least=4)
def absolute_difference(instruction: Instruction, context: Context) -> Step:
    """sad.type d, a, b, c: the distance of a and b, added to c."""
    _, *modifiers, kind = parts_of(instruction)
    check_modifiers(instruction, modifiers, set())
    return integer_step(instruction, named(instruction, f"sad.{kind}"))


@TABLE.opcode("mul24", operands=DESTINATION_FIRST, effects=Effect.NONE, least=3)
@TABLE.opcode("mad24", "dp4a", "dp2a", operands=DESTINATION_FIRST, effects=Effect.NONE, least=4)
def byte_dot_product(instruction: Instruction, context: Context) -> Step:
    """dp4a: four products of bytes added to an accumulator.  mul24, mad24 and dp2a are not modelled."""
    root, *kinds = instruction.opcode.split(".")
    if root != "dp4a" or len(kinds) != 2 or not set(kinds) <= {"s32", "u32"}:
        raise UnknownInstruction(instruction)
    return integer_step(instruction, named(instruction, f"dp4{kinds[0][0]}{kinds[1][0]}.b32"))
