"""VOP3P: packed arithmetic on two elements, and fma of mixed formats.

Source: AMD Instinct MI300 ISA, "Packed math" (VOP3P).  op_sel selects the half of each source for the low result,
op_sel_hi the half for the high result; neg_lo and neg_hi negate the selected halves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bitwise_amd_gfx942.modes import flushes, mode_of, rounding_of
from bitwise_amd_gfx942.opcodes.compute import Compute, integer_operation
from bitwise_amd_gfx942.opcodes.forms import Form, Table, bit_list, check_modifiers, form
from bitwise_amd_gfx942.opcodes.operands.constants import BITS, FLOAT_FORMATS, immediate_bits
from bitwise_amd_gfx942.opcodes.operands.execution_mask import vector_opcode, with_16_bits
from bitwise_amd_gfx942.opcodes.operands.operand_access import Reader, apply_sign, half_writer, reader, writer
from bitwise_amd_gfx942.opcodes.operands.output_modifiers import CLAMP, apply_clamp, clamp_operation
from bitwise_amd_gfx942.opcodes.vector.conversion import rounding_conversion
from bitwise_amd_gfx942.opcodes.vector.equal_operations import with_equal_ones
from bitwise_amd_gfx942.opcodes.vector.floating import apply_float, compute_operation, minmax, operation_in_mode
from bitwise_amd_gfx942.opcodes.vector.vector_integers import minmax_operation, shift_by_low_bits
from bitwise_core.assembly.module import Immediate, Instruction, Modified, Operand, Vector
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, Effect
from bitwise_core.execution.machine import Machine, Step, literal
from bitwise_core.execution.values.packing import concat, extract
from bitwise_core.execution.values.symbolic_vector import Value
from bitwise_core.numerics import operation

TABLE = Table()

_WIDEN = operation("convert.fp32.fp16")
_LISTS = ("op_sel", "op_sel_hi", "neg_lo", "neg_hi")


def _operand_modifiers(instruction: Instruction, found: Form, count: int) -> Mapping[str, tuple[bool, ...]]:
    return {
        name: bit_list(instruction, found.modifiers[name], count)
        if name in found.modifiers
        else (name == "op_sel_hi",) * count
        for name in _LISTS
    }


def packed(
    instruction: Instruction,
    kind: str,
    count: int,
    compute: Compute,
    *extra_modifiers: str,
    together: Context | None = None,
) -> Step:
    """The step that computes the low and the high half of a result from the selected halves of `count` sources.

    `kind` is the type of an element.  `extra_modifiers` names modifiers that the caller has handled.  `together`: equal
    instructions of this kernel may be computed together (`equal_operations`).  Raises UnknownInstruction.
    """
    found = check_modifiers(instruction, *_LISTS, *extra_modifiers)
    if len(instruction.operands) != count + 1:
        raise UnknownInstruction(instruction, f"takes {count + 1} operands")
    lists = _operand_modifiers(instruction, found, count)
    bits = BITS[kind]
    halves = _readers_of_halves(instruction, kind, lists)
    write = _halves_writer(instruction.operands[0], bits, instruction)

    def step(machine: Machine) -> None:
        low, high = [compute(machine, *[each(machine) for each in half]) for half in halves]
        write(machine, low, high)

    if together is None:
        return step
    return with_equal_ones(
        step,
        instruction,
        together,
        lambda other: _readers_of_halves(other, kind, lists),
        compute,
        lambda machine, results: write(machine, results[0], results[1]),
    )


def _readers_of_halves(
    instruction: Instruction, kind: str, lists: Mapping[str, Sequence[bool]]
) -> tuple[list[Reader], list[Reader]]:
    """The readers of the sources of the low and of the high half of a result; `lists` are the modifiers."""
    halves: tuple[list[Reader], list[Reader]] = [], []
    for index, operand in enumerate(instruction.operands[1:]):
        for half, (choice, negation) in enumerate((("op_sel", "neg_lo"), ("op_sel_hi", "neg_hi"))):
            read = _half_reader(operand, kind, lists[choice][index], instruction)
            if lists[negation][index]:
                if not kind.startswith("fp"):
                    raise UnknownInstruction(instruction, "negates integers, which is not modelled")
                read = _negated_reader(read, kind, BITS[kind])
            halves[half].append(read)
    return halves


def _halves_writer(operand: Operand, bits: int, instruction: Instruction) -> Callable[[Machine, Value, Value], None]:
    """The writer of two halves of `bits` bits; halves of 32 bits are registers."""
    if bits == BITS["b32"] and isinstance(operand, Vector) and len(operand.items) == 2:
        first, second = (writer(each, bits, instruction) for each in operand.items)

        def write(machine: Machine, low: Value, high: Value) -> None:
            first(machine, low)
            second(machine, high)

        return write
    whole = writer(operand, 2 * bits, instruction)
    return lambda machine, low, high: whole(machine, concat([low, high]))


def _half_reader(operand: Operand, kind: str, high: bool, instruction: Instruction) -> Reader:
    bits = BITS[kind]
    if isinstance(operand, Modified):
        raise UnknownInstruction(instruction, "applies neg or abs to a packed operand, which is not modelled")
    if isinstance(operand, Immediate):
        if high:
            raise UnknownInstruction(instruction, "takes the high half of a constant, which is not modelled")
        constant = literal(immediate_bits(operand, kind, instruction), bits)
        return lambda machine: constant
    if bits == BITS["b32"] and isinstance(operand, Vector) and len(operand.items) == 2:
        return reader(operand.items[high], "b32", instruction)
    whole = reader(operand, f"b{2 * bits}", instruction)
    low = bits if high else 0
    return lambda machine: extract(whole(machine), low, bits)


def _negated_reader(read: Reader, kind: str, bits: int) -> Reader:
    return lambda machine: apply_sign(machine, operation(f"neg.{kind}"), read(machine))


@vector_opcode(
    TABLE,
    *(f"v_pk_{verb}_{kind}" for verb in ("add", "mul", "fma") for kind in ("f16", "f32")),
    operands=DESTINATION_FIRST,
    effects=Effect.NONE,
)
def arithmetic(instruction: Instruction, context: Context) -> Step:
    """Two sums, products or fused multiply-adds."""
    _, _, verb, kind = form(instruction.opcode).name.split("_")
    element = FLOAT_FORMATS[kind]
    result = compute_operation(operation_in_mode(verb, element, instruction, context))
    clamp = clamp_operation(instruction, context, element)

    def compute(machine: Machine, *values: Value) -> Value:
        return apply_clamp(machine, clamp, result(machine, *values))

    return packed(instruction, element, 3 if verb == "fma" else 2, compute, CLAMP, together=context)


@vector_opcode(TABLE, "v_pk_min_f16", "v_pk_max_f16", operands=DESTINATION_FIRST, effects=Effect.NONE)
def minimum_or_maximum(instruction: Instruction, context: Context) -> Step:
    """Two minima or maxima."""
    verb = form(instruction.opcode).name.split("_")[2]
    mode = mode_of(context.kernel)
    if flushes(mode, "fp16", instruction):
        raise UnknownInstruction(instruction, "flushes subnormal numbers, which is not modelled")

    def compute(machine: Machine, left: Value, right: Value) -> Value:
        return minmax(machine, verb, "fp16", (left, right), mode.ieee, context.arch.name)

    return packed(instruction, "fp16", 2, compute)


_INTEGERS: Mapping[str, Compute] = {
    "v_pk_add_u16": integer_operation("add.b16"),
    "v_pk_add_i16": integer_operation("add.b16"),
    "v_pk_sub_u16": integer_operation("sub.b16"),
    "v_pk_sub_i16": integer_operation("sub.b16"),
    "v_pk_mul_lo_u16": integer_operation("mul.b16"),
    **{
        f"v_pk_{verb}_{letter}16": minmax_operation(verb, f"{core}16")
        for verb in ("min", "max")
        for letter, core in (("i", "s"), ("u", "u"))
    },
}


_SATURATING: Mapping[str, Compute] = {
    f"v_pk_{verb}_u16": integer_operation(f"{verb}sat.u16") for verb in ("add", "sub")
}


def _shift(root: str, is_signed: bool) -> Compute:
    def compute(machine: Machine, amount: Value, value: Value) -> Value:
        return shift_by_low_bits(machine, root, value, concat([amount, literal(0, 16)]), 16, is_signed)

    return compute


_SHIFTS: Mapping[str, Compute] = {
    "v_pk_lshlrev_b16": _shift("shl", False),
    "v_pk_lshrrev_b16": _shift("shr", False),
    "v_pk_ashrrev_i16": _shift("shr", True),
}


@vector_opcode(TABLE, *_INTEGERS, *_SHIFTS, operands=DESTINATION_FIRST, effects=Effect.NONE)
def integers(instruction: Instruction, context: Context) -> Step:
    """Two operations on 16-bit integers; the modifier clamp saturates unsigned sums and differences."""
    found = form(instruction.opcode)
    if CLAMP in found.modifiers:
        if found.name not in _SATURATING:
            raise UnknownInstruction(instruction, "saturates signed numbers, which is not modelled")
        return packed(instruction, "b16", 2, _SATURATING[found.name], CLAMP)
    return packed(instruction, "b16", 2, _INTEGERS.get(found.name) or _SHIFTS[found.name])


@vector_opcode(TABLE, "v_pk_mad_u16", "v_pk_mad_i16", operands=DESTINATION_FIRST, effects=Effect.NONE)
def multiply_add(instruction: Instruction, context: Context) -> Step:
    """Two multiply-adds of 16-bit integers."""

    def compute(machine: Machine, left: Value, right: Value, addend: Value) -> Value:
        return _INTEGERS["v_pk_add_u16"](machine, _INTEGERS["v_pk_mul_lo_u16"](machine, left, right), addend)

    return packed(instruction, "b16", 3, compute)


@vector_opcode(TABLE, "v_pk_mov_b32", operands=DESTINATION_FIRST, effects=Effect.NONE)
def move(instruction: Instruction, context: Context) -> Step:
    """A word of the first source and a word of the second, selected by op_sel."""
    found = check_modifiers(instruction, "op_sel", "op_sel_hi")
    chosen = bit_list(instruction, found.modifiers.get("op_sel", "[0,0]"), 2)
    left, right = (
        _half_reader(operand, "b32", high, instruction)
        for operand, high in zip(instruction.operands[1:], chosen, strict=True)
    )
    write = _halves_writer(instruction.operands[0], BITS["b32"], instruction)
    return lambda machine: write(machine, left(machine), right(machine))


def mixed_readers(instruction: Instruction, found: Form, operands: Sequence[Operand]) -> list[Reader]:
    """Readers of sources as fp32: fp32 registers, or fp16 halves where op_sel_hi is set.

    Raises UnknownInstruction.
    """
    count = len(operands)
    halves = bit_list(instruction, found.modifiers.get("op_sel_hi", "[0,0,0]"), count)
    high = bit_list(instruction, found.modifiers.get("op_sel", "[0,0,0]"), count + 1)
    return [_mixed_reader(each, halves[index], high[index], instruction) for index, each in enumerate(operands)]


def _mixed_reader(operand: Operand, half: bool, high: bool, instruction: Instruction) -> Reader:
    if not half:
        if high:
            raise UnknownInstruction(instruction, "selects half of a source of 32 bits")
        return reader(operand, "fp32", instruction)
    changes: tuple[str, ...] = ()
    if isinstance(operand, Modified):
        changes, operand = operand.changes, operand.operand
    if isinstance(operand, Immediate):
        if high:
            raise UnknownInstruction(instruction, "takes the high half of a constant, which is not modelled")
        narrow = reader(operand, "fp16", instruction)
    else:
        whole = reader(operand, "b32", instruction)
        low = 16 if high else 0

        def narrow(machine: Machine) -> Value:
            return extract(whole(machine), low, 16)

    sign_changes = [operation(f"{change}.fp32") for change in changes]

    def read(machine: Machine) -> Value:
        value = apply_float(machine, _WIDEN, [narrow(machine)])
        for sign_change in sign_changes:
            value = apply_sign(machine, sign_change, value)
        return value

    return read


@vector_opcode(
    TABLE, "v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16", operands=DESTINATION_FIRST, keeps=with_16_bits
)
def fused_mixed(instruction: Instruction, context: Context) -> Step:
    """Fused multiply-add in fp32 of fp32 and fp16 sources; the result is fp32, or rounded again to fp16 in a half."""
    found = check_modifiers(instruction, "op_sel", "op_sel_hi", CLAMP)
    if len(instruction.operands) != 4:
        raise UnknownInstruction(instruction, "takes four operands")
    target, *sources = instruction.operands
    readers = mixed_readers(instruction, found, sources)
    mode = mode_of(context.kernel)
    for kind in ("fp16", "fp32"):
        if flushes(mode, kind, instruction):
            raise UnknownInstruction(instruction, "flushes subnormal numbers, which is not modelled")
    rounding = rounding_of(mode, "fp32", instruction)
    fused = operation(f"fma.{rounding}.fp32")
    narrow = None if found.name == "v_fma_mix_f32" else rounding_conversion("fp16", "fp32", instruction, context)
    clamp = clamp_operation(instruction, context, "fp32" if narrow is None else "fp16")
    write: Callable[[Machine, Value], None] = (
        writer(target, 32, instruction)
        if narrow is None
        else half_writer(target, found.name == "v_fma_mixhi_f16", instruction)
    )

    def compute(machine: Machine, *values: Value) -> Value:
        result = apply_float(machine, fused, values)
        if narrow is not None:
            result = apply_float(machine, narrow, [result])
        return apply_clamp(machine, clamp, result)

    def step(machine: Machine) -> None:
        write(machine, compute(machine, *[each(machine) for each in readers]))

    return with_equal_ones(
        step,
        instruction,
        context,
        lambda other: [mixed_readers(other, found, other.operands[1:])],
        compute,
        lambda machine, results: write(machine, results[0]),
    )
