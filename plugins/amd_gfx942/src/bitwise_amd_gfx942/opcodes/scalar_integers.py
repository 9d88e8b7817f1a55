"""Scalar integer arithmetic, shifts, bit fields, comparisons.

Source: AMD Instinct MI300 ISA, "Scalar ALU operations" (SOP1, SOP2, SOPK, SOPC).
"""

from __future__ import annotations

import numpy as np

from bitwise_amd_gfx942.opcodes.bases import remember_multiple
from bitwise_amd_gfx942.opcodes.forms import Table
from bitwise_amd_gfx942.opcodes.implicit import CONDITION_CODE, implicit
from bitwise_amd_gfx942.opcodes.scalar_values import compared, decided, integer, not_zero, scalar
from bitwise_amd_gfx942.opcodes.sources import reader
from bitwise_amd_gfx942.opcodes.wide_sums import high_sum, low_sum
from bitwise_amd_gfx942.registers import SCC
from bitwise_core.asm import Instruction
from bitwise_core.machine.arch import Context
from bitwise_core.machine.comparisons import compare_as_integers
from bitwise_core.machine.domain import Unreadable
from bitwise_core.machine.instruction_info import DESTINATION_FIRST, UPDATED_FIRST, Effect, InstructionInfo
from bitwise_core.machine.lane_hash import poison
from bitwise_core.machine.lanes import Array, Value
from bitwise_core.machine.logic import combine
from bitwise_core.machine.pieces import choose, concat, cut
from bitwise_core.machine.shifts import shifted
from bitwise_core.machine.state import Machine, Step, literal
from bitwise_core.machine.steps import apply_integer

TABLE = Table()


def signed(array: Array) -> Array:
    """The same bits as signed integers."""
    kind: Array = array.view(f"int{8 * array.dtype.itemsize}")
    return kind


def _wide(array: Array) -> Array:
    return array.astype(np.uint64)


def _carry(a: Array, b: Array) -> Array:
    result: Array = (_wide(a) + _wide(b)) >> np.uint64(32) != 0
    return result


def _borrow(a: Array, b: Array) -> Array:
    return b > a


def overflow_of_sum(a: Array, b: Array) -> Array:
    """Whether the sum of signed numbers leaves 32 bits."""
    total = a + b
    found: Array = ((a ^ total) & (b ^ total)) >> np.uint32(31) != 0
    return found


def _overflow_of_difference(a: Array, b: Array) -> Array:
    found: Array = ((a ^ b) & (a ^ (a - b))) >> np.uint32(31) != 0
    return found


_SUMS = {
    "s_add_u32": ("add.b32", np.add, "carry", _carry),
    "s_add_i32": ("add.b32", np.add, "overflow of a sum", overflow_of_sum),
    "s_sub_u32": ("sub.b32", np.subtract, "borrow", _borrow),
    "s_sub_i32": ("sub.b32", np.subtract, "overflow of a difference", _overflow_of_difference),
}


@TABLE.opcode(*_SUMS, operands=implicit(DESTINATION_FIRST, writes=CONDITION_CODE))
def add(instruction: Instruction, context: Context) -> Step:
    """Sums and differences; the condition code is the carry or borrow, or the overflow of signed numbers."""
    name, function, condition, decide = _SUMS[instruction.opcode]
    compute = integer(name, 32, function, gathers=function is np.add)
    decides = decided(f"{condition}.b32", decide)

    def carried(machine: Machine, result: Value, left: Value, right: Value) -> Value:
        found = decides(machine, result, left, right)
        low_sum(machine, found, left, right, result)
        return found

    carries = carried if instruction.opcode == "s_add_u32" else decides
    return scalar(instruction, context, ("b32", "b32"), 32, compute, carries)


@TABLE.opcode(
    "s_addc_u32", "s_subb_u32", operands=implicit(DESTINATION_FIRST, reads=CONDITION_CODE, writes=CONDITION_CODE)
)
def add_with_carry(instruction: Instruction, context: Context) -> Step:
    """The condition code enters as carry or borrow, and leaves as it."""
    adds = instruction.opcode == "s_addc_u32"

    def low(a: Array, b: Array, carry: Array) -> Array:
        one = carry.astype(np.uint32)
        return a + b + one if adds else a - b - one

    def high(a: Array, b: Array, carry: Array) -> Array:
        if adds:
            result: Array = (_wide(a) + _wide(b) + _wide(carry)) >> np.uint64(32) != 0
            return result
        return _wide(b) + _wide(carry) > _wide(a)

    what = "add with carry" if adds else "subtract with borrow"

    def compute(machine: Machine, left: Value, right: Value) -> Value:
        whole = high_sum(machine, condition_code(machine), left, right) if adds else None
        if whole is not None:
            return whole
        return apply_integer(machine, what, [left, right, condition_code(machine)], 32, low)

    def condition(machine: Machine, result: Value, left: Value, right: Value) -> Value:
        return apply_integer(machine, what + " out", [left, right, condition_code(machine)], 1, high)

    return scalar(instruction, context, ("b32", "b32"), 32, compute, condition)


def condition_code(machine: Machine) -> Value:
    """The scalar condition code.  Raises Unreadable where nothing has set it."""
    found = machine.registers.get(SCC)
    if found is None:
        raise Unreadable("the scalar condition code is looked at before it is set")
    return found


def _high_unsigned(a: Array, b: Array) -> Array:
    return (_wide(a) * _wide(b) >> np.uint64(32)).astype(np.uint32)


def _high_signed(a: Array, b: Array) -> Array:
    product = signed(a).astype(np.int64) * signed(b).astype(np.int64)
    return (product >> 32).astype(np.int32).view(np.uint32)


@TABLE.opcode("s_mul_i32", "s_mul_hi_u32", "s_mul_hi_i32", operands=DESTINATION_FIRST, effects=Effect.NONE)
def multiply(instruction: Instruction, context: Context) -> Step:
    """Products: the low half, or the high one of signed or unsigned numbers."""
    if instruction.opcode == "s_mul_i32":
        compute = integer("mul.b32", 32, np.multiply, gathers=True)
    elif instruction.opcode == "s_mul_hi_u32":
        compute = integer("mul.hi.u32", 32, _high_unsigned)
    else:
        compute = integer("mul.hi.s32", 32, _high_signed)
    return scalar(instruction, context, ("b32", "b32"), 32, compute)


@TABLE.opcode(
    "s_min_i32", "s_min_u32", "s_max_i32", "s_max_u32", operands=implicit(DESTINATION_FIRST, writes=CONDITION_CODE)
)
def extremum(instruction: Instruction, context: Context) -> Step:
    """The condition code says that the first source was taken."""
    _, verb, kind = instruction.opcode.split("_")
    kind = f"s{kind[1:]}" if kind[0] == "i" else kind

    def evaluate(a: Array, b: Array) -> Array:
        x, y = (signed(a), signed(b)) if kind[0] == "s" else (a, b)
        return np.where((x < y) == (verb == "min"), a, b)

    compute = integer(f"{verb}.{kind}", 32, evaluate, gathers=True)
    taken = compared("lt" if verb == "min" else "gt", kind)

    def condition(machine: Machine, result: Value, left: Value, right: Value) -> Value:
        # Of two equal sources, documents of this family disagree on which one is said to be taken.
        found = taken(machine, result, left, right)
        equal = machine.known(compare_as_integers(machine, "eq", "b32", left, right))
        if equal is None:
            return poison(1, "which of two sources was taken")
        return choose(equal, poison(1, "which of two equal sources was taken"), found) if equal.any() else found

    return scalar(instruction, context, ("b32", "b32"), 32, compute, condition)


@TABLE.opcode("s_abs_i32", "s_absdiff_i32", operands=implicit(DESTINATION_FIRST, writes=CONDITION_CODE))
def absolute(instruction: Instruction, context: Context) -> Step:
    """The magnitude of a number, or of a difference."""

    def evaluate(a: Array) -> Array:
        return np.where(signed(a) < 0, np.uint32(0) - a, a)

    if instruction.opcode == "s_abs_i32":
        return scalar(instruction, context, ("b32",), 32, integer("abs.s32", 32, evaluate), not_zero)

    def difference(a: Array, b: Array) -> Array:
        return evaluate(a - b)

    return scalar(instruction, context, ("b32", "b32"), 32, integer("absdiff.s32", 32, difference), not_zero)


@TABLE.opcode(
    "s_lshl_b32",
    "s_lshr_b32",
    "s_ashr_i32",
    "s_lshl_b64",
    "s_lshr_b64",
    "s_ashr_i64",
    operands=implicit(DESTINATION_FIRST, writes=CONDITION_CODE),
)
def shift(instruction: Instruction, context: Context) -> Step:
    """Shifts by the amount's lowest 5 or 6 bits."""
    _, verb, kind = instruction.opcode.split("_")
    bits = int(kind[1:])
    root = "shl" if verb == "lshl" else "shr"

    def compute(machine: Machine, value: Value, amount: Value) -> Value:
        by = combine(machine, "and", amount, literal(bits - 1, 32), 32)
        moved = shifted(machine, root, value, by, bits, is_signed=verb == "ashr")
        if verb == "lshl" and bits == 64 and isinstance(by, np.ndarray):
            remember_multiple(machine, moved, 1 << min(4, int(by.min())))
        return moved

    return scalar(instruction, context, (f"b{bits}", "b32"), bits, compute, not_zero)


def _lshl_add(instruction: Instruction, context: Context, count: int) -> Step:
    def compute(machine: Machine, value: Value, addend: Value) -> Value:
        moved = shifted(machine, "shl", value, literal(count, 32), 32)
        return apply_integer(machine, "add.b32", [moved, addend], 32, np.add, gathers=True)

    def carry(a: Array, b: Array) -> Array:
        result: Array = ((_wide(a) << np.uint64(count)) + _wide(b)) >> np.uint64(32) != 0
        return result

    return scalar(instruction, context, ("b32", "b32"), 32, compute, decided(f"carry of shift {count}", carry))


for _count in (1, 2, 3, 4):

    @TABLE.opcode(f"s_lshl{_count}_add_u32", operands=implicit(DESTINATION_FIRST, writes=CONDITION_CODE))
    def shift_and_add(instruction: Instruction, context: Context, count: int = _count) -> Step:
        """A shift to the left by 1 to 4 and a sum; the condition code is the carry."""
        return _lshl_add(instruction, context, count)


@TABLE.opcode(
    "s_bfe_u32", "s_bfe_i32", "s_bfe_u64", "s_bfe_i64", operands=implicit(DESTINATION_FIRST, writes=CONDITION_CODE)
)
def bit_field(instruction: Instruction, context: Context) -> Step:
    """The field whose offset and width are in the second source's bits 0 to 5 and 16 to 22."""
    kind = instruction.opcode.removeprefix("s_bfe_")
    bits = int(kind[1:])
    is_signed = kind[0] == "i"

    def evaluate(a: Array, control: Array) -> Array:
        offset = _wide(control) & np.uint64(bits - 1)
        count = np.minimum(_wide(control) >> np.uint64(16) & np.uint64(0x7F), np.uint64(64))
        left = np.uint64(64) - np.minimum(count, np.uint64(64))
        wide = (signed(a).astype(np.int64) if is_signed else a.astype(np.uint64)) >> offset.astype(
            np.int64 if is_signed else np.uint64
        )
        top = np.minimum(left, np.uint64(63))
        moved = wide.view(np.uint64) << top
        field = (moved.view(np.int64) >> top.astype(np.int64)).view(np.uint64) if is_signed else moved >> top
        return np.where(count == 0, np.uint64(0), field).astype(a.dtype)

    compute = integer(f"bit field.{'s' if is_signed else 'u'}{bits}", bits, evaluate)
    return scalar(instruction, context, (f"b{bits}", "b32"), bits, compute, not_zero)


@TABLE.opcode("s_bfm_b32", "s_bfm_b64", operands=DESTINATION_FIRST, effects=Effect.NONE)
def bit_field_mask(instruction: Instruction, context: Context) -> Step:
    """So many ones from an offset on."""
    bits = int(instruction.opcode[-2:])

    def evaluate(count: Array, offset: Array) -> Array:
        ones = (np.uint64(1) << (_wide(count) & np.uint64(bits - 1))) - np.uint64(1)
        return (ones << (_wide(offset) & np.uint64(bits - 1))).astype(np.uint64 if bits == 64 else np.uint32)

    return scalar(instruction, context, ("b32", "b32"), bits, integer(f"bit field mask.b{bits}", bits, evaluate))


def _bit_order_info(instruction: Instruction) -> InstructionInfo:
    """Counts of bits set the condition code."""
    writes = CONDITION_CODE if instruction.opcode.startswith("s_bcnt") else frozenset()
    return implicit(DESTINATION_FIRST, writes=writes)(instruction)


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
    """Bits in reverse, or how many are set or clear."""
    verb, bits = instruction.opcode.split("_")[1], int(instruction.opcode[-2:])

    def evaluate(a: Array) -> Array:
        places = (a[..., None] >> np.arange(bits, dtype=a.dtype)) & a.dtype.type(1)
        if verb == "brev":
            found: Array = (places << np.arange(bits, dtype=a.dtype)[::-1]).sum(axis=-1, dtype=a.dtype)
            return found
        counted: Array = places.sum(axis=-1, dtype=np.uint32)
        return counted if verb == "bcnt1" else np.uint32(bits) - counted

    out = bits if verb == "brev" else 32
    name = f"{ {'brev': 'brev', 'bcnt1': 'popc', 'bcnt0': 'count of zeros'}[verb] }.b{bits}"
    condition = None if verb == "brev" else not_zero
    return scalar(instruction, context, (f"b{bits}",), out, integer(name, out, evaluate), condition)


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
    """The place of the lowest one or zero, or of the highest one counted from the top; all ones where there is none."""
    verb, bits = instruction.opcode.split("_")[1], int(instruction.opcode[-2:])

    def evaluate(a: Array) -> Array:
        places = ((a[..., None] >> np.arange(bits, dtype=a.dtype)) & a.dtype.type(1)).astype(bool)
        if verb == "ff0":
            places = ~places
        if verb == "flbit":
            places = places[..., ::-1]
        return np.where(places.any(axis=-1), places.argmax(axis=-1), -1).astype(np.int32).view(np.uint32)

    name = f"{ {'ff1': 'lowest one', 'ff0': 'lowest zero', 'flbit': 'highest one'}[verb] }.b{bits}"
    return scalar(instruction, context, (f"b{bits}",), 32, integer(name, 32, evaluate))


@TABLE.opcode("s_flbit_i32", "s_flbit_i32_i64", operands=DESTINATION_FIRST, effects=Effect.NONE)
def first_unlike_sign(instruction: Instruction, context: Context) -> Step:
    """The place of the highest bit unlike the sign, counted from the top; all ones where there is none."""
    bits = 64 if instruction.opcode.endswith("i64") else 32

    def evaluate(a: Array) -> Array:
        places = ((a[..., None] >> np.arange(bits, dtype=a.dtype)[::-1]) & a.dtype.type(1)).astype(bool)
        unlike = places != places[..., :1]
        return np.where(unlike.any(axis=-1), unlike.argmax(axis=-1), -1).astype(np.int32).view(np.uint32)

    return scalar(instruction, context, (f"b{bits}",), 32, integer(f"highest unlike the sign.b{bits}", 32, evaluate))


@TABLE.opcode("s_sext_i32_i8", "s_sext_i32_i16", operands=DESTINATION_FIRST, effects=Effect.NONE)
def sign_extend(instruction: Instruction, context: Context) -> Step:
    """The lowest byte or half with its sign."""
    bits = int(instruction.opcode.split("_i")[-1])

    def evaluate(a: Array) -> Array:
        return a.astype(f"uint{bits}").view(f"int{bits}").astype(np.int32).view(np.uint32)

    def compute(machine: Machine, value: Value) -> Value:
        narrow = cut(value, 0, bits)
        return apply_integer(machine, f"convert.s32.s{bits}", [narrow], 32, lambda a: evaluate(a.astype(np.uint32)))

    return scalar(instruction, context, ("b32",), 32, compute)


@TABLE.opcode(
    "s_pack_ll_b32_b16", "s_pack_lh_b32_b16", "s_pack_hh_b32_b16", operands=DESTINATION_FIRST, effects=Effect.NONE
)
def pack(instruction: Instruction, context: Context) -> Step:
    """Two halves side by side."""
    which = instruction.opcode.split("_")[2]
    lows = [16 if each == "h" else 0 for each in which]

    def compute(machine: Machine, left: Value, right: Value) -> Value:
        return concat([cut(left, lows[0], 16), cut(right, lows[1], 16)])

    return scalar(instruction, context, ("b32", "b32"), 32, compute)


@TABLE.opcode("s_bitset0_b32", "s_bitset1_b32", operands=UPDATED_FIRST, effects=Effect.NONE)
def set_bit(instruction: Instruction, context: Context) -> Step:
    """One bit of the destination is set or cleared."""
    old = reader(instruction.operands[0], "b32", instruction)
    one = instruction.opcode == "s_bitset1_b32"

    def evaluate(place: Array, before: Array) -> Array:
        bit = np.uint32(1) << (place & np.uint32(31))
        result: Array = before | bit if one else before & ~bit
        return result

    def compute(machine: Machine, place: Value) -> Value:
        return apply_integer(machine, f"bit {'set' if one else 'cleared'}.b32", [place, old(machine)], 32, evaluate)

    return scalar(instruction, context, ("b32",), 32, compute)
