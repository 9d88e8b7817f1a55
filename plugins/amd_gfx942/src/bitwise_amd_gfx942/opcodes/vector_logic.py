"""Vector logic, bit fields, permuted bytes, and moves, accumulation registers included.

Source: AMD Instinct MI300 ISA, "Vector ALU operations" (VOP1, VOP2, VOP3).
"""

from __future__ import annotations

import numpy as np

from bitwise_amd_gfx942.modes import flushes, mode_of
from bitwise_amd_gfx942.opcodes.acting import vector
from bitwise_amd_gfx942.opcodes.floating import where_quiet
from bitwise_amd_gfx942.opcodes.forms import Table, form
from bitwise_amd_gfx942.opcodes.lanewise import integer, lanewise
from bitwise_amd_gfx942.opcodes.selected_parts import widened, widened_half
from bitwise_amd_gfx942.opcodes.sources import reader, writer
from bitwise_core.asm import Immediate, Instruction, Modified
from bitwise_core.machine.arch import Context, UnknownInstruction
from bitwise_core.machine.instruction_info import DESTINATION_FIRST, Effect, Operands
from bitwise_core.machine.lanes import Array, Value
from bitwise_core.machine.logic import combine
from bitwise_core.machine.pieces import choose, concat, cut
from bitwise_core.machine.shifts import shifted
from bitwise_core.machine.state import Machine, Step, literal
from bitwise_core.machine.steps import apply_integer

TABLE = Table()


def complement(machine: Machine, value: Value) -> Value:
    """The complement of a word."""
    return apply_integer(machine, "not.b32", [value], 32, np.bitwise_not)


@vector(
    TABLE,
    "v_and_b32",
    "v_or_b32",
    "v_xor_b32",
    "v_xnor_b32",
    "v_not_b32",
    operands=DESTINATION_FIRST,
    effects=Effect.NONE,
)
def logic(instruction: Instruction, context: Context) -> Step:
    """Logic of words."""
    verb = form(instruction.opcode).name.split("_")[1]
    if verb == "not":
        return lanewise(instruction, ("b32",), 32, complement)

    def compute(machine: Machine, left: Value, right: Value) -> Value:
        found = combine(machine, "xor" if verb == "xnor" else verb, left, right, 32)
        return complement(machine, found) if verb == "xnor" else found

    return lanewise(instruction, ("b32", "b32"), 32, compute)


@vector(TABLE, "v_or3_b32", "v_and_or_b32", "v_xor3_b32", operands=DESTINATION_FIRST, effects=Effect.NONE)
def logic_of_three(instruction: Instruction, context: Context) -> Step:
    """Two logical operations of three words."""
    first, second = {"or3": ("or", "or"), "and": ("and", "or"), "xor3": ("xor", "xor")}[
        form(instruction.opcode).name.split("_")[1]
    ]

    def compute(machine: Machine, left: Value, right: Value, third: Value) -> Value:
        return combine(machine, second, combine(machine, first, left, right, 32), third, 32)

    return lanewise(instruction, ("b32",) * 3, 32, compute)


@vector(TABLE, "v_bfi_b32", operands=DESTINATION_FIRST, effects=Effect.NONE)
def insert(instruction: Instruction, context: Context) -> Step:
    """Each bit of the second source where the first one's is set, else of the third."""

    def compute(machine: Machine, mask: Value, inside: Value, outside: Value) -> Value:
        left = combine(machine, "and", mask, inside, 32)
        right = combine(machine, "and", complement(machine, mask), outside, 32)
        return combine(machine, "or", left, right, 32)

    return lanewise(instruction, ("b32",) * 3, 32, compute)


@vector(TABLE, "v_bfe_u32", "v_bfe_i32", operands=DESTINATION_FIRST, effects=Effect.NONE)
def extract(instruction: Instruction, context: Context) -> Step:
    """A field by its offset and width, the lowest 5 bits of the other sources."""
    is_signed = form(instruction.opcode).name.endswith("i32")

    def evaluate(a: Array, offset: Array, count: Array) -> Array:
        low, size = offset & np.uint32(31), count & np.uint32(31)
        if not is_signed:
            found: Array = (a >> low) & ((np.uint32(1) << size) - np.uint32(1))
            return found
        wide = a.view(np.int32).astype(np.int64) >> low.astype(np.int64)
        left = np.uint64(64) - size.astype(np.uint64)
        top = np.minimum(left, np.uint64(63)).astype(np.int64)
        field = ((wide.view(np.uint64) << top.astype(np.uint64)).view(np.int64) >> top).astype(np.int32)
        return np.where(size == 0, np.uint32(0), field.view(np.uint32))

    compute = integer(f"field of 5 bits.{'s' if is_signed else 'u'}32", 32, evaluate)

    def field(machine: Machine, value: Value, offset: Value, count: Value) -> Value:
        low, size = _one(offset), _one(count)
        if isinstance(value, np.ndarray) or not isinstance(offset, np.ndarray) or not size:
            return compute(machine, value, offset, count)
        if not is_signed:
            amount: Array = offset & np.uint32(31)
            moved = shifted(machine, "shr", value, amount, 32)
            if low is not None and low + size >= 32:
                return moved
            return combine(machine, "and", moved, literal((1 << size) - 1, 32), 32)
        if low == 0 and size in (8, 16):
            low_bits = cut(value, 0, size)
            return widened(machine, low_bits, size, 32, True) if size == 8 else widened_half(machine, low_bits)
        return compute(machine, value, offset, count)

    return lanewise(instruction, ("b32",) * 3, 32, field)


def _one(value: Value) -> int | None:
    """The one known number below 32 that a value is in its lowest 5 bits."""
    return int(value.flat[0]) & 31 if isinstance(value, np.ndarray) and value.size == 1 else None


@vector(TABLE, "v_bfrev_b32", operands=DESTINATION_FIRST, effects=Effect.NONE)
def reverse(instruction: Instruction, context: Context) -> Step:
    """The bits in reverse."""

    def evaluate(a: Array) -> Array:
        places = (a[..., None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1)
        found: Array = (places << np.arange(32, dtype=np.uint32)[::-1]).sum(axis=-1, dtype=np.uint32)
        return found

    return lanewise(instruction, ("b32",), 32, integer("brev.b32", 32, evaluate))


@vector(
    TABLE, "v_ffbh_u32", "v_ffbh_i32", "v_ffbl_b32", "v_bcnt_u32_b32", operands=DESTINATION_FIRST, effects=Effect.NONE
)
def count_bits(instruction: Instruction, context: Context) -> Step:
    """The place of the highest bit (or of the first unlike the sign) from the top, of the lowest; how many are set."""
    name = form(instruction.opcode).name

    def evaluate(a: Array, *start: Array) -> Array:
        if name == "v_ffbh_i32":
            a = np.where(a.view(np.int32) < 0, ~a, a)
        places = ((a[..., None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1)).astype(bool)
        if start:
            result: Array = start[0] + places.sum(axis=-1, dtype=np.uint32)
            return result
        if name.startswith("v_ffbh"):
            places = places[..., ::-1]
        return np.where(places.any(axis=-1), places.argmax(axis=-1), -1).astype(np.int32).view(np.uint32)

    what = {"v_ffbh_u32": "highest one.b32", "v_ffbl_b32": "lowest one.b32"}.get(name, name.removeprefix("v_"))
    kinds = ("b32", "b32") if name == "v_bcnt_u32_b32" else ("b32",)
    return lanewise(instruction, kinds, 32, integer(what, 32, evaluate))


@vector(TABLE, "v_alignbit_b32", "v_alignbyte_b32", operands=DESTINATION_FIRST, effects=Effect.NONE)
def funnel(instruction: Instruction, context: Context) -> Step:
    """A pair of words shifted to the right by bits or bytes, the low word of it."""
    by_bytes = form(instruction.opcode).name == "v_alignbyte_b32"

    def evaluate(high: Array, low: Array, amount: Array) -> Array:
        count = (amount & np.uint32(3)) * np.uint32(8) if by_bytes else amount & np.uint32(31)
        pair = high.astype(np.uint64) << np.uint64(32) | low.astype(np.uint64)
        return (pair >> count.astype(np.uint64)).astype(np.uint32)

    compute = integer(f"funnel shift by {'bytes' if by_bytes else 'bits'}", 32, evaluate)

    def moved(machine: Machine, high: Value, low: Value, amount: Value) -> Value:
        place = _one(amount)
        if place is not None:
            count = 8 * (place & 3) if by_bytes else place
            if count % 8 == 0:
                return low if not count else cut_bytes([low, high], [count // 8 + each for each in range(4)])
        return compute(machine, high, low, amount)

    return lanewise(instruction, ("b32",) * 3, 32, moved)


def cut_bytes(words: list[Value], places: list[int]) -> Value:
    """Four bytes of words side by side, by their numbers; halves stay whole where they stay together."""
    parts: list[Value] = []
    for low, high in ((places[0], places[1]), (places[2], places[3])):
        if high == low + 1 and low % 2 == 0:
            parts.append(cut(words[low // 4], 8 * (low % 4), 16))
        else:
            parts.extend(cut(words[byte // 4], 8 * (byte % 4), 8) for byte in (low, high))
    return concat(parts)


@vector(TABLE, "v_perm_b32", operands=DESTINATION_FIRST, effects=Effect.NONE)
def permute(instruction: Instruction, context: Context) -> Step:
    """Four bytes by a selector: 0 to 7 of the second source and then the first, 8 to 11 signs, 12 zeros, above ones."""

    def evaluate(high: Array, low: Array, selector: Array) -> Array:
        pair = high.astype(np.uint64) << np.uint64(32) | low.astype(np.uint64)
        result: Array = np.zeros(np.broadcast_shapes(high.shape, low.shape, selector.shape), dtype=np.uint32)
        for place in range(4):
            choice = (selector >> np.uint32(8 * place) & np.uint32(255)).astype(np.uint64)
            byte = pair >> (np.uint64(8) * (choice & np.uint64(7))) & np.uint64(255)
            sign_place = np.uint64(16) * (choice & np.uint64(3)) + np.uint64(15)
            sign = np.where(pair >> sign_place & np.uint64(1), np.uint64(255), np.uint64(0))
            fixed = np.where(choice == 12, np.uint64(0), np.uint64(255))
            chosen = np.where(choice < 8, byte, np.where(choice < 12, sign, fixed))
            result = result | chosen.astype(np.uint32) << np.uint32(8 * place)
        return result

    def compute(machine: Machine, high: Value, low: Value, selector: Value) -> Value:
        known = machine.known(selector)
        if known is not None and not (isinstance(high, np.ndarray) and isinstance(low, np.ndarray)):
            found: Value | None = None
            for each in _active_numbers(machine, known):
                places = [int(each) >> 8 * place & 255 for place in range(4)]
                if any(7 < place != 12 for place in places):
                    found = None
                    break
                picked = _picked([low, high], places)
                found = picked if found is None else choose(known == each, picked, found)
            if found is not None:
                return found
        return apply_integer(machine, "permuted bytes", [high, low, selector], 32, evaluate)

    return lanewise(instruction, ("b32",) * 3, 32, compute)


def _active_numbers(machine: Machine, known: Array) -> Array:
    """The numbers that active lanes hold."""
    if machine.mask is None or known.size == 1:
        return np.unique(known)
    shape = np.broadcast_shapes(known.shape, machine.mask.shape)
    return np.unique(np.broadcast_to(known, shape)[np.broadcast_to(machine.mask, shape)])


def _picked(words: list[Value], places: list[int]) -> Value:
    if all(place < 8 for place in places):
        return cut_bytes(words, places)
    return cut_bytes(
        [*words, literal(0, 32)], [8 + index % 2 if place == 12 else place for index, place in enumerate(places)]
    )


@vector(
    TABLE,
    "v_mov_b32",
    "v_mov_b64",
    "v_accvgpr_mov_b32",
    "v_accvgpr_read_b32",
    "v_accvgpr_write_b32",
    operands=DESTINATION_FIRST,
    effects=Effect.NONE,
)
def move(instruction: Instruction, context: Context) -> Step:
    """Moves, between vector and accumulation registers too."""
    bits = 64 if form(instruction.opcode).name.endswith("64") else 32
    if bits == 64 and len(instruction.operands) == 2 and isinstance(instruction.operands[1], Immediate):
        read = reader(instruction.operands[1], "b64", instruction)
        write = writer(instruction.operands[0], 64, instruction)
        return lambda machine: write(machine, read(machine))
    return lanewise(instruction, (f"b{bits}",), bits, lambda machine, value: value)


@vector(TABLE, "v_swap_b32", operands=Operands(updates=(0, 1)), effects=Effect.NONE)
def swap(instruction: Instruction, context: Context) -> Step:
    """Two registers change places."""
    left, right = instruction.operands
    readers = reader(left, "b32", instruction), reader(right, "b32", instruction)
    writers = writer(left, 32, instruction), writer(right, 32, instruction)

    def step(machine: Machine) -> None:
        values = readers[0](machine), readers[1](machine)
        writers[0](machine, values[1])
        writers[1](machine, values[0])

    return step


@vector(TABLE, "v_pack_b32_f16", operands=DESTINATION_FIRST, effects=Effect.NONE)
def pack(instruction: Instruction, context: Context) -> Step:
    """Two halves side by side; a signalling NaN may come out quiet (LLVM packs so what is canonical already)."""
    if any(isinstance(each, Modified) for each in instruction.operands):
        raise UnknownInstruction(instruction, "changes the halves that it packs, which is not modelled")
    if flushes(mode_of(context.kernel), "fp16", instruction):
        raise UnknownInstruction(instruction, "flushes subnormal numbers, which is not modelled")
    name = f"quieted.fp16@{context.arch.name}"

    def compute(machine: Machine, *halves: Value) -> Value:
        def quiet(value: Value) -> Value:
            return where_quiet(machine, (value,), lambda: value, name, 16)

        return concat([quiet(each) for each in halves])

    return lanewise(instruction, ("fp16", "fp16"), 32, compute)
