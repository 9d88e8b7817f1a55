"""Integer arithmetic, shifts and bit fields: exact, with PTX's wrap-around and clamping.

Source: PTX ISA 8.7, sections "Integer Arithmetic Instructions", "Logic and Shift Instructions".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bitwise_core.asm import Instruction
from bitwise_core.machine.arch import Context, OpcodeTable, UnknownInstruction
from bitwise_core.machine.domain import Unreadable
from bitwise_core.machine.instruction_info import DESTINATION_FIRST, Effect, InstructionInfo
from bitwise_core.machine.lanes import Array
from bitwise_core.machine.shifts import shifted
from bitwise_core.machine.state import Machine, Step
from bitwise_core.machine.steps import apply_integer
from bitwise_nvidia_ptx.opcodes import floating
from bitwise_nvidia_ptx.opcodes.carries import with_carry, with_carry_info
from bitwise_nvidia_ptx.opcodes.common import (
    PACKED_INTEGERS,
    check_modifiers,
    integer_step,
    integer_unless_float,
    is_integer,
    signed,
    type_bits,
)

TABLE = OpcodeTable()


def _add(a: Array, b: Array) -> Array:
    return a + b


def _subtract(a: Array, b: Array) -> Array:
    return a - b


def _multiply(a: Array, b: Array) -> Array:
    return a * b


def _widened(a: Array, is_signed: bool) -> Array:
    wide = {1: np.uint16, 2: np.uint32, 4: np.uint64}[a.dtype.itemsize]
    if not is_signed:
        return a.astype(wide)
    return signed(a).astype(np.dtype(wide).name[1:]).view(wide)


def _multiply_wide(a: Array, b: Array, is_signed: bool) -> Array:
    product: Array = _widened(a, is_signed) * _widened(b, is_signed)
    return product


def _multiply_high(a: Array, b: Array, is_signed: bool) -> Array:
    size = a.dtype.itemsize
    if size < 8:
        product = _multiply_wide(a, b, is_signed)
        upper: Array = product >> product.dtype.type(8 * size)
        return upper.astype(a.dtype)
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a0, a1, b0, b1 = a & low, a >> half, b & low, b >> half
    middle = a1 * b0 + (a0 * b0 >> half)
    other = a0 * b1 + (middle & low)
    high: Array = a1 * b1 + (middle >> half) + (other >> half)
    if is_signed:
        high = high - np.where(signed(a) < 0, b, np.uint64(0)) - np.where(signed(b) < 0, a, np.uint64(0))
    return high


def divide(a: Array, b: Array, is_signed: bool) -> Array:
    """Quotient toward zero; division by zero gives all ones, as NVIDIA hardware does (PTX leaves it open)."""
    zero = b == 0
    safe = np.where(zero, b.dtype.type(1), b)
    if not is_signed:
        return np.where(zero, ~b.dtype.type(0), a // safe)
    x, y = signed(a), signed(safe)
    magnitude = np.where(x < 0, a.dtype.type(0) - a, a) // np.where(y < 0, safe.dtype.type(0) - safe, safe)
    return np.where(zero, ~b.dtype.type(0), np.where((x < 0) != (y < 0), a.dtype.type(0) - magnitude, magnitude))


def _remainder(a: Array, b: Array, is_signed: bool) -> Array:
    """Remainder of `divide`; by zero all ones, measured on an H100."""
    found: Array = np.where(b == 0, ~b.dtype.type(0), a - divide(a, b, is_signed) * b)
    return found


def arithmetic_info(instruction: Instruction) -> InstructionInfo:
    """Two or three sources and a destination; extended precision has a carry flag too."""
    return with_carry_info(DESTINATION_FIRST.info(instruction, integer_unless_float(instruction)), instruction)


@TABLE.opcode("add", "sub", "mul", "mad", "div", "rem", "addc", "madc", operands=arithmetic_info)
def arithmetic(instruction: Instruction, context: Context) -> Step:
    """add, sub, mul.{lo,hi,wide}, mad, div, rem; floating-point forms go to their own table."""
    root, *modifiers, kind = instruction.opcode.split(".")
    if "cc" in modifiers or root in ("addc", "madc"):
        return with_carry(instruction, context)
    kind, packed = PACKED_INTEGERS.get(kind, (kind, 1)) if root == "add" else (kind, 1)
    if not is_integer(kind):
        return floating.arithmetic(instruction, context)
    bits, is_signed = type_bits(kind), kind[0] == "s"
    if root in ("add", "sub"):
        check_modifiers(instruction, modifiers, set())
        function: Callable[..., Array] = _add if root == "add" else _subtract
        name = f"{root}.b{bits}"
        return integer_step(instruction, name, function, (bits, bits), bits, gathers=root == "add", packed=packed)
    if root in ("div", "rem"):
        check_modifiers(instruction, modifiers, set())
        known_function = divide if root == "div" else _remainder

        def quotient(a: Array, b: Array) -> Array:
            return known_function(a, b, is_signed)

        return integer_step(instruction, f"{root}.{kind}", quotient, (bits, bits), bits)
    check_modifiers(instruction, modifiers, {"lo", "hi", "wide"})
    part = modifiers[0] if modifiers else "lo"
    return _product(instruction, root, part, kind, bits, is_signed)


def _product(instruction: Instruction, root: str, part: str, kind: str, bits: int, is_signed: bool) -> Step:
    out = bits * 2 if part == "wide" else bits

    def product(a: Array, b: Array) -> Array:
        if part == "lo":
            return a * b
        return _multiply_wide(a, b, is_signed) if part == "wide" else _multiply_high(a, b, is_signed)

    name = f"mul.b{bits}" if part == "lo" else f"mul.{part}.{kind}"
    if root == "mul":
        return integer_step(instruction, name, product, (bits, bits), out, gathers=part == "lo")
    destination, left, right, addend = instruction.operands

    def step(machine: Machine) -> None:
        factors = [machine.read_bits(left, bits), machine.read_bits(right, bits)]
        value = apply_integer(machine, name, factors, out, product, gathers=part == "lo")
        total = [value, machine.read_bits(addend, out)]
        machine.write(destination, apply_integer(machine, f"add.b{out}", total, out, _add, gathers=True))

    return step


@TABLE.opcode("neg", "abs", "min", "max", operands=DESTINATION_FIRST, effects=integer_unless_float)
def unary_or_extremum(instruction: Instruction, context: Context) -> Step:
    """neg, abs, min, max of integers; floating-point forms go to their own table."""
    root, *modifiers, kind = instruction.opcode.split(".")
    kind, packed = PACKED_INTEGERS.get(kind, (kind, 1)) if root in ("min", "max") else (kind, 1)
    if not is_integer(kind):
        return floating.extremum(instruction, context)
    check_modifiers(instruction, modifiers, set())
    bits, is_signed = type_bits(kind), kind[0] == "s"

    def negate(a: Array) -> Array:
        negative: Array = a.dtype.type(0) - a
        return negative

    def absolute(a: Array) -> Array:
        return np.where(signed(a) < 0, a.dtype.type(0) - a, a)

    def extremum(a: Array, b: Array) -> Array:
        less = signed(a) < signed(b) if is_signed else a < b
        return np.where(less == (root == "min"), a, b)

    if root in ("neg", "abs"):
        return integer_step(instruction, f"{root}.{kind}", negate if root == "neg" else absolute, (bits,), bits)
    return integer_step(instruction, f"{root}.{kind}", extremum, (bits, bits), bits, gathers=True, packed=packed)


@TABLE.opcode("shl", "shr", operands=DESTINATION_FIRST, effects=Effect.INTEGER)
def shift(instruction: Instruction, context: Context) -> Step:
    """Shifts; an amount of the width or more clears (or fills with the sign).  Byte shifts move pieces."""
    root, kind = instruction.opcode.split(".")
    bits, is_signed = type_bits(kind), kind[0] == "s"
    destination, source, amount = instruction.operands
    signed_right = is_signed and root == "shr"

    def step(machine: Machine) -> None:
        value, by = machine.read_bits(source, bits), machine.read_bits(amount, 32)
        machine.write(destination, shifted(machine, root, value, by, bits, is_signed=signed_right))

    return step


def _check_field(bits: int, position: Array, length: Array) -> None:
    """PTX defines positions and lengths up to 255; above, hardware wraps those of 32-bit fields only."""
    if bits == 64 and ((position > 255).any() or (length > 255).any()):
        raise Unreadable("a bit field's position or length is above 255, which PTX leaves open")


@TABLE.opcode("bfe", operands=DESTINATION_FIRST, effects=Effect.INTEGER)
def bit_field_extract(instruction: Instruction, context: Context) -> Step:
    """bfe: `length` bits from `position`, sign-extended for signed types."""
    kind = instruction.opcode.split(".")[1]
    bits, is_signed = type_bits(kind), kind[0] == "s"

    def evaluate(a: Array, position: Array, length: Array) -> Array:
        wide = a.astype(np.uint64)
        if is_signed and bits == 32:
            wide = signed(a).astype(np.int64).view(np.uint64)
        _check_field(bits, position, length)
        start = (position & np.uint32(0xFF)).astype(np.uint64)
        count = (length & np.uint32(0xFF)).astype(np.uint64)
        if not is_signed:
            moved = np.where(start >= bits, np.uint64(0), wide >> np.minimum(start, np.uint64(63)))
            keep = np.where(
                count >= 64, ~np.uint64(0), (np.uint64(1) << np.minimum(count, np.uint64(63))) - np.uint64(1)
            )
            return (moved & keep).astype(a.dtype)
        moved = (wide.view(np.int64) >> np.minimum(start, np.uint64(63)).view(np.int64)).view(np.uint64)
        room = np.minimum(np.maximum(np.uint64(64) - np.minimum(count, np.uint64(64)), np.uint64(0)), np.uint64(63))
        result = ((moved << room).view(np.int64) >> room.view(np.int64)).view(np.uint64)
        return np.where(count == 0, np.uint64(0), result).astype(a.dtype)

    return integer_step(instruction, f"bfe.{kind}", evaluate, (bits, 32, 32), bits)


@TABLE.opcode("bfi", operands=DESTINATION_FIRST, effects=Effect.INTEGER)
def bit_field_insert(instruction: Instruction, context: Context) -> Step:
    """bfi: the low `length` bits of a put into b at `position`."""
    bits = type_bits(instruction.opcode.split(".")[1])

    def evaluate(a: Array, b: Array, position: Array, length: Array) -> Array:
        _check_field(bits, position, length)
        start = (position & np.uint32(0xFF)).astype(np.uint64)
        count = np.minimum((length & np.uint32(0xFF)).astype(np.uint64), np.uint64(64))
        keep = np.where(count >= 64, ~np.uint64(0), (np.uint64(1) << np.minimum(count, np.uint64(63))) - np.uint64(1))
        field = np.where(start >= bits, np.uint64(0), keep << np.minimum(start, np.uint64(63)))
        inserted = (a.astype(np.uint64) << np.minimum(start, np.uint64(63))) & field
        return (inserted | (b.astype(np.uint64) & ~field)).astype(a.dtype)

    return integer_step(instruction, f"bfi.b{bits}", evaluate, (bits, bits, 32, 32), bits)


@TABLE.opcode("shf", operands=DESTINATION_FIRST, effects=Effect.INTEGER)
def funnel_shift(instruction: Instruction, context: Context) -> Step:
    """shf.{l,r}.{wrap,clamp}.b32: a 64-bit pair shifted, one word kept."""
    _, direction, mode, kind = instruction.opcode.split(".")
    if kind != "b32" or mode not in ("wrap", "clamp") or direction not in ("l", "r"):
        raise UnknownInstruction(instruction)

    def evaluate(low: Array, high: Array, amount: Array) -> Array:
        count = (amount & np.uint32(31) if mode == "wrap" else np.minimum(amount, np.uint32(32))).astype(np.uint64)
        pair = high.astype(np.uint64) << np.uint64(32) | low.astype(np.uint64)
        moved = (pair << count) >> np.uint64(32) if direction == "l" else pair >> count
        return moved.astype(np.uint32)

    return integer_step(instruction, instruction.opcode, evaluate, (32, 32, 32), 32)


@TABLE.opcode("popc", "clz", "brev", "bfind", operands=DESTINATION_FIRST, effects=Effect.NONE)
def bit_count(instruction: Instruction, context: Context) -> Step:
    """popc, clz, brev, bfind over the bits of each known number."""
    root, *modifiers, kind = instruction.opcode.split(".")
    check_modifiers(instruction, modifiers, {"shiftamt"} if root == "bfind" else set())
    bits = type_bits(kind)
    out = bits if root == "brev" else 32

    def evaluate(a: Array) -> Array:
        places: Array = ((a[..., None] >> np.arange(bits, dtype=a.dtype)) & a.dtype.type(1)).astype(bool)
        if root == "popc":
            set_bits: Array = np.add.reduce(places, axis=-1, dtype=np.uint32)
            return set_bits
        if root == "brev":
            weights = a.dtype.type(1) << np.arange(bits, dtype=a.dtype)[::-1]
            reversed_bits: Array = np.where(places, weights, a.dtype.type(0)).sum(axis=-1, dtype=a.dtype)
            return reversed_bits
        if root == "bfind" and kind[0] == "s":
            places = np.where((signed(a) < 0)[..., None], ~places, places)
        top = np.where(places.any(axis=-1), bits - 1 - np.argmax(places[..., ::-1], axis=-1), -1)
        if root == "clz":
            return (bits - 1 - top).astype(np.uint32)
        result = np.where(top < 0, -1, bits - 1 - top) if "shiftamt" in modifiers else top
        return result.astype(np.int32).view(np.uint32)

    return integer_step(instruction, instruction.opcode, evaluate, (bits,), out)


@TABLE.opcode("copysign", operands=DESTINATION_FIRST, effects=Effect.NONE)
def copy_sign(instruction: Instruction, context: Context) -> Step:
    """copysign.{f32,f64} d, a, b: the sign of a on the magnitude of b."""
    bits = type_bits(instruction.opcode.split(".")[1])

    def evaluate(a: Array, b: Array) -> Array:
        sign = a.dtype.type(1 << (bits - 1))
        result: Array = (a & sign) | (b & ~sign)
        return result

    return integer_step(instruction, f"copysign.b{bits}", evaluate, (bits, bits), bits)


@TABLE.opcode("sad", operands=DESTINATION_FIRST, effects=Effect.INTEGER)
def absolute_difference(instruction: Instruction, context: Context) -> Step:
    """sad.type d, a, b, c: the distance of a and b, added to c."""
    _, *modifiers, kind = instruction.opcode.split(".")
    check_modifiers(instruction, modifiers, set())
    bits, is_signed = type_bits(kind), kind[0] == "s"

    def evaluate(a: Array, b: Array, c: Array) -> Array:
        less = signed(a) < signed(b) if is_signed else a < b
        total: Array = c + np.where(less, b - a, a - b)
        return total

    return integer_step(instruction, f"sad.{kind}", evaluate, (bits, bits, bits), bits)


@TABLE.opcode("mul24", "mad24", "dp4a", "dp2a", operands=DESTINATION_FIRST, effects=Effect.NONE)
def small_products(instruction: Instruction, context: Context) -> Step:
    """dp4a: four byte products added to an accumulator."""
    root, *kinds = instruction.opcode.split(".")
    if root != "dp4a" or len(kinds) != 2:
        raise UnknownInstruction(instruction)

    def evaluate(a: Array, b: Array, c: Array) -> Array:
        total = c.copy()
        for low in range(0, 32, 8):
            x, y = ((each >> np.uint32(low)).astype(np.uint8) for each in (a, b))
            left = signed(x).astype(np.int32) if kinds[0] == "s32" else x.astype(np.int32)
            right = signed(y).astype(np.int32) if kinds[1] == "s32" else y.astype(np.int32)
            total = total + (left * right).view(np.uint32)
        return total

    return integer_step(instruction, instruction.opcode, evaluate, (32, 32, 32), 32)
