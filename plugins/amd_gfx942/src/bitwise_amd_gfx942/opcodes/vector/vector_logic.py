"""Vector logic, bit fields, byte permutes, and moves, also of accumulation registers.

Source: AMD Instinct MI300 ISA, "Vector ALU operations" (VOP1, VOP2, VOP3).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bitwise_amd_gfx942.modes import flushes, mode_of
from bitwise_amd_gfx942.opcodes.compute import integer_operation
from bitwise_amd_gfx942.opcodes.forms import Table, form
from bitwise_amd_gfx942.opcodes.operands.deferred_bytes import Bytes, joined_bytes, masked_bytes
from bitwise_amd_gfx942.opcodes.operands.deferred_lanes import moved
from bitwise_amd_gfx942.opcodes.operands.execution_mask import vector_opcode
from bitwise_amd_gfx942.opcodes.operands.operand_access import reader, writer
from bitwise_amd_gfx942.opcodes.operands.sdwa import widened, widened_half
from bitwise_amd_gfx942.opcodes.vector.floating import unless_signalling
from bitwise_amd_gfx942.opcodes.vector.lanewise import lanewise
from bitwise_amd_gfx942.opcodes.vector.vector_integers import wrapping_add
from bitwise_core.assembly.module import Immediate, Instruction, Modified
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, Effect, Operands
from bitwise_core.execution.machine import Machine, Step, literal
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values.logic import combine
from bitwise_core.execution.values.packing import blend_values, concat, extract
from bitwise_core.execution.values.shifts import shifted
from bitwise_core.execution.values.symbolic_vector import Array, Value, width
from bitwise_core.numerics import operation

TABLE = Table()


def complement(machine: Machine, value: Value) -> Value:
    """The complement of a word."""
    return apply_integer(machine, operation("not.b32"), [value])


@vector_opcode(
    TABLE,
    "v_and_b32",
    "v_or_b32",
    "v_xor_b32",
    "v_xnor_b32",
    "v_not_b32",
    operands=DESTINATION_FIRST,
    effects=Effect.LANEWISE,
)
def logic(instruction: Instruction, context: Context) -> Step:
    """Bitwise logic of words."""
    verb = form(instruction.opcode).name.split("_")[1]
    if verb == "not":
        return lanewise(instruction, ("b32",), 32, complement)

    def compute(machine: Machine, left: Value, right: Value) -> Value:
        found = combine(machine, "xor" if verb == "xnor" else verb, left, right, 32)
        return complement(machine, found) if verb == "xnor" else found

    def moves(sources: Sequence[Bytes]) -> Bytes | None:
        return masked_bytes(*sources) if verb == "and" else joined_bytes(*sources)

    return lanewise(instruction, ("b32", "b32"), 32, compute, moves=moves if verb in ("and", "or") else None)


@vector_opcode(TABLE, "v_or3_b32", "v_and_or_b32", "v_xor3_b32", operands=DESTINATION_FIRST, effects=Effect.LANEWISE)
def logic_of_three(instruction: Instruction, context: Context) -> Step:
    """Two bitwise operations on three words."""
    first, second = {"or3": ("or", "or"), "and": ("and", "or"), "xor3": ("xor", "xor")}[
        form(instruction.opcode).name.split("_")[1]
    ]

    def compute(machine: Machine, left: Value, right: Value, third: Value) -> Value:
        return combine(machine, second, combine(machine, first, left, right, 32), third, 32)

    return lanewise(instruction, ("b32",) * 3, 32, compute)


@vector_opcode(TABLE, "v_bfi_b32", operands=DESTINATION_FIRST, effects=Effect.LANEWISE)
def bit_field_insert(instruction: Instruction, context: Context) -> Step:
    """Each bit of the second source where the mask, the first source, is 1, else of the third source."""

    def compute(machine: Machine, mask: Value, inside: Value, outside: Value) -> Value:
        left = combine(machine, "and", mask, inside, 32)
        right = combine(machine, "and", complement(machine, mask), outside, 32)
        return combine(machine, "or", left, right, 32)

    return lanewise(instruction, ("b32",) * 3, 32, compute)


@vector_opcode(TABLE, "v_bfe_u32", "v_bfe_i32", operands=DESTINATION_FIRST, effects=Effect.LANEWISE)
def bit_field_extract(instruction: Instruction, context: Context) -> Step:
    """Extract a field; its offset and width are the low 5 bits of the second and third source."""
    is_signed = form(instruction.opcode).name.endswith("i32")

    compute = integer_operation(f"bfewrap.{'s' if is_signed else 'u'}32")

    def field(machine: Machine, value: Value, offset: Value, count: Value) -> Value:
        low, size = _constant_low_bits(offset), _constant_low_bits(count)
        if isinstance(value, np.ndarray) or not isinstance(offset, np.ndarray) or not size:
            return compute(machine, value, offset, count)
        if not is_signed:
            amount: Array = offset & np.uint32(31)
            moved = shifted(machine, "shr", value, amount, 32)
            if low is not None and low + size >= 32:
                return moved
            return combine(machine, "and", moved, literal((1 << size) - 1, 32), 32)
        if low == 0 and size in (8, 16):
            return extended(machine, extract(value, 0, size))
        return compute(machine, value, offset, count)

    def extended(machine: Machine, low_bits: Value) -> Value:
        size = width(low_bits)
        return widened(machine, low_bits, size, 32, True) if size == 8 else widened_half(machine, low_bits)

    fields = [each.value for each in instruction.operands[2:] if isinstance(each, Immediate)]
    if is_signed and fields in ([0, 8], [0, 16]):
        shorter = Instruction(instruction.opcode, instruction.operands[:2], None, instruction.line, instruction.source)
        return lanewise(shorter, (f"b{fields[1]}",), 32, extended)
    return lanewise(instruction, ("b32",) * 3, 32, field)


def _constant_low_bits(value: Value) -> int | None:
    """The low 5 bits of a value that is one constant for all lanes; None for any other."""
    return int(value.flat[0]) & 31 if isinstance(value, np.ndarray) and value.size == 1 else None


@vector_opcode(TABLE, "v_bfrev_b32", operands=DESTINATION_FIRST, effects=Effect.LANEWISE)
def reverse(instruction: Instruction, context: Context) -> Step:
    """Reverse the bits."""
    return lanewise(instruction, ("b32",), 32, integer_operation("brev.b32"))


@vector_opcode(
    TABLE,
    "v_ffbh_u32",
    "v_ffbh_i32",
    "v_ffbl_b32",
    "v_bcnt_u32_b32",
    operands=DESTINATION_FIRST,
    effects=Effect.LANEWISE,
)
def count_bits(instruction: Instruction, context: Context) -> Step:
    """Bit scans and the population count.

    v_ffbh: the position, from the top, of the highest 1 (u32), or of the first bit unlike the sign (i32); v_ffbl: the
    position of the lowest 1; v_bcnt: the number of ones plus the second source.
    """
    name = form(instruction.opcode).name
    if name == "v_bcnt_u32_b32":
        ones = integer_operation("popc.b32")
        return lanewise(
            instruction,
            ("b32", "b32"),
            32,
            lambda machine, value, start: wrapping_add(machine, ones(machine, value), start),
        )
    found = {"v_ffbh_u32": "findmsb.top.u32", "v_ffbh_i32": "findmsb.top.s32"}.get(name, "findlsb.b32")
    return lanewise(instruction, ("b32",), 32, integer_operation(found))


@vector_opcode(TABLE, "v_alignbit_b32", "v_alignbyte_b32", operands=DESTINATION_FIRST, effects=Effect.LANEWISE)
def align(instruction: Instruction, context: Context) -> Step:
    """The low word of a pair of words shifted right by bits or bytes."""
    by_bytes = form(instruction.opcode).name == "v_alignbyte_b32"

    compute = integer_operation(f"alignbyte.b32@{context.arch.name}" if by_bytes else "shfr.wrap.b32")

    def moved(machine: Machine, high: Value, low: Value, amount: Value) -> Value:
        shift = _constant_low_bits(amount)
        if shift is not None:
            count = 8 * (shift & 3) if by_bytes else shift
            if count % 8 == 0:
                return low if not count else pick_bytes([low, high], [count // 8 + each for each in range(4)])
        return compute(machine, *((high, low) if by_bytes else (low, high)), amount)

    return lanewise(instruction, ("b32",) * 3, 32, moved)


def pick_bytes(words: list[Value], indices: list[int]) -> Value:
    """A word of four bytes of the words, by byte index; two adjacent bytes of one half are extracted together."""
    parts: list[Value] = []
    for low, high in ((indices[0], indices[1]), (indices[2], indices[3])):
        if high == low + 1 and low % 2 == 0:
            parts.append(extract(words[low // 4], 8 * (low % 4), 16))
        else:
            parts.extend(extract(words[byte // 4], 8 * (byte % 4), 8) for byte in (low, high))
    return concat(parts)


@vector_opcode(TABLE, "v_perm_b32", operands=DESTINATION_FIRST, effects=Effect.LANEWISE)
def permute(instruction: Instruction, context: Context) -> Step:
    """Four bytes by a selector of four bytes.

    0 to 7 select a byte of the second source and then of the first, 8 to 11 the sign of a half, 12 zeros, greater
    numbers ones.
    """

    permutation = operation(f"perm.b32@{context.arch.name}")

    def compute(machine: Machine, high: Value, low: Value, selector: Value) -> Value:
        known = machine.known(selector)
        if known is not None and not (isinstance(high, np.ndarray) and isinstance(low, np.ndarray)):
            found: Value | None = None
            for each in _active_constants(machine, known):
                selectors = [int(each) >> 8 * index & 255 for index in range(4)]
                if any(7 < index != 12 for index in selectors):
                    found = None
                    break
                permuted = _permuted_bytes([low, high], selectors)
                found = permuted if found is None else blend_values(known == each, permuted, found)
            if found is not None:
                return found
        return apply_integer(machine, permutation, [high, low, selector])

    return lanewise(instruction, ("b32",) * 3, 32, compute)


def _active_constants(machine: Machine, known: Array) -> Array:
    """The distinct constants that active lanes hold."""
    if machine.mask is None or known.size == 1:
        return np.unique(known)
    shape = np.broadcast_shapes(known.shape, machine.mask.shape)
    return np.unique(np.broadcast_to(known, shape)[np.broadcast_to(machine.mask, shape)])


def _permuted_bytes(words: list[Value], selectors: list[int]) -> Value:
    if all(each < 8 for each in selectors):
        return pick_bytes(words, selectors)
    return pick_bytes(
        [*words, literal(0, 32)], [8 + index % 2 if each == 12 else each for index, each in enumerate(selectors)]
    )


@vector_opcode(
    TABLE,
    "v_mov_b32",
    "v_mov_b64",
    "v_accvgpr_mov_b32",
    "v_accvgpr_read_b32",
    "v_accvgpr_write_b32",
    operands=DESTINATION_FIRST,
    effects=Effect.LANEWISE,
)
def move(instruction: Instruction, context: Context) -> Step:
    """Moves of vector registers and accumulation registers."""
    bits = 64 if form(instruction.opcode).name.endswith("64") else 32
    if bits == 64 and len(instruction.operands) == 2 and isinstance(instruction.operands[1], Immediate):
        read = reader(instruction.operands[1], "b64", instruction)
        write = writer(instruction.operands[0], 64, instruction)
        return lambda machine: write(machine, read(machine))
    return lanewise(instruction, (f"b{bits}",), bits, moved, deferrable=True)


@vector_opcode(TABLE, "v_swap_b32", operands=Operands(updates=(0, 1)), effects=Effect.NONE)
def swap(instruction: Instruction, context: Context) -> Step:
    """Exchange two registers."""
    left, right = instruction.operands
    readers = reader(left, "b32", instruction), reader(right, "b32", instruction)
    writers = writer(left, 32, instruction), writer(right, 32, instruction)

    def step(machine: Machine) -> None:
        values = readers[0](machine), readers[1](machine)
        writers[0](machine, values[1])
        writers[1](machine, values[0])

    return step


@vector_opcode(TABLE, "v_pack_b32_f16", operands=DESTINATION_FIRST, effects=Effect.NONE)
def pack(instruction: Instruction, context: Context) -> Step:
    """Pack two fp16 into a word.

    A signalling NaN may become quiet, so it goes through a named operation; LLVM packs canonical values this way.
    """
    if any(isinstance(each, Modified) for each in instruction.operands):
        raise UnknownInstruction(instruction, "applies neg or abs to the halves that it packs, which is not modelled")
    if flushes(mode_of(context.kernel), "fp16", instruction):
        raise UnknownInstruction(instruction, "flushes subnormal numbers, which is not modelled")
    meaning = operation(f"quieted.fp16@{context.arch.name}")

    def compute(machine: Machine, *halves: Value) -> Value:
        def quiet(value: Value) -> Value:
            return unless_signalling(machine, (value,), lambda: value, meaning)

        return concat([quiet(each) for each in halves])

    return lanewise(instruction, ("fp16", "fp16"), 32, compute)
