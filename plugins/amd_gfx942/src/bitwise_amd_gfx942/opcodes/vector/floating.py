"""Vector floating-point arithmetic in the kernel's mode, as operations of the vocabulary.

Source: AMD Instinct MI300 ISA, "Vector ALU operations"; LLVM's AMDGPU usage guide for the mode.
Results are never signalling NaNs.  NaN payloads of results are not distinguished.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bitwise_amd_gfx942.division_sequences import division_sequences
from bitwise_amd_gfx942.modes import flushes, mode_of, rounding_of
from bitwise_amd_gfx942.opcodes.compute import Compute
from bitwise_amd_gfx942.opcodes.forms import Table, form
from bitwise_amd_gfx942.opcodes.operands.constants import BITS, FLOAT_FORMATS, MANTISSA_BITS
from bitwise_amd_gfx942.opcodes.operands.execution_mask import vector_opcode, with_16_bits
from bitwise_amd_gfx942.opcodes.operands.output_modifiers import (
    CLAMP,
    OMOD,
    apply_clamp,
    clamp_operation,
    omod_name,
    overflow_suffix,
)
from bitwise_amd_gfx942.opcodes.vector.lanewise import lanewise
from bitwise_amd_gfx942.possible_values import PossibleValues, apply_to_possible_values, possible_reciprocals
from bitwise_core.assembly.module import Instruction
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, UPDATED_FIRST, Effect
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.floats.nan_marks import has_ieee_nans
from bitwise_core.execution.values.packing import as_symbolic_vector, blend_values, concat
from bitwise_core.execution.values.rewriting.rule_matching import same_lanes
from bitwise_core.execution.values.symbolic_vector import Array, PackedVector, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import is_quiet, poison
from bitwise_core.numerics import FLOAT_FORMATS as FORMATS
from bitwise_core.numerics import FloatFormat, Operation, operation

TABLE = Table()


def apply_float(machine: Machine, meaning: Operation, values: Sequence[Value], properties: int = 0) -> Value:
    """Apply a floating-point operation; a result that is a number of a format is marked as no signalling NaN."""
    for value in values:
        if isinstance(value, PossibleValues):
            found = _over_candidates(machine, meaning, values)
            if found is not None:
                return found
            break
    result = machine.domain.floating(meaning, values, properties)
    # The bits of an integer may be a signalling NaN.
    return mark_quiet(result) if isinstance(meaning.result, FloatFormat) else result


def _over_candidates(machine: Machine, meaning: Operation, values: Sequence[Value]) -> Value | None:
    if meaning.function is None:
        return None

    def data() -> SymbolicVector:
        return as_symbolic_vector(machine.domain.floating(meaning, [as_symbolic_vector(each) for each in values]))

    found: Value | None = apply_to_possible_values(values, meaning.function, data)
    return found


def mark_quiet(value: Value) -> Value:
    """Mark the value of an operation as no signalling NaN."""
    if isinstance(value, SymbolicVector):
        return L.with_flags(value, L.QUIET)
    if isinstance(value, PackedVector) and isinstance(value.parts[-1], SymbolicVector):
        return concat([*value.parts[:-1], L.with_flags(value.parts[-1], L.QUIET)])
    return value


def quiet_lanes(value: Value) -> bool | Array:
    """The lanes in which a value is known not to be a signalling NaN."""
    if isinstance(value, np.ndarray):
        bits = L.width(value)
        mantissa = MANTISSA_BITS[bits]
        magnitude = value & value.dtype.type((1 << bits - 1) - 1)
        infinity, quiet = ((1 << bits - 1 - mantissa) - 1) << mantissa, 1 << mantissa - 1
        found: Array = (magnitude <= value.dtype.type(infinity)) | ((value & value.dtype.type(quiet)) != 0)
        return found
    if isinstance(value, PackedVector):
        # The high half of an fp32 that was widened from bf16 holds the exponent and the quiet bit.
        low, high = value.parts[0], value.parts[-1]
        halves = len(value.parts) == 2 and L.width(low) == L.width(high) == 16
        if halves and isinstance(high, SymbolicVector) and isinstance(low, np.ndarray) and not low.any():
            return _quiet_lanes_of_vector(high, widens=True)
        return _quiet_lanes_of_vector(as_symbolic_vector(value))
    return False if L.lazy_integers(value) is not None else _quiet_lanes_of_vector(value)


def _quiet_lanes_of_vector(value: SymbolicVector, *, widens: bool = False) -> bool | Array:
    """`quiet_lanes` of a vector; `widens`: the vector is the high half of an fp32 whose low half is zero."""
    # A value whose NaNs are the canonical NaN of the format is never a signalling NaN.
    quiet = is_quiet(value, L.CANONICAL_BF16_NAN if widens else L.CANONICAL_NAN)
    known = L.constant_mask(value)
    if quiet is True or known is False:
        return quiet
    numbers = L.constants_of(value)
    if widens:
        numbers = numbers.astype(np.uint32) << np.uint32(16)
    return quiet | (known & quiet_lanes(numbers))


def operation_in_mode(verb: str, kind: str, instruction: Instruction, context: Context) -> Operation:
    """The operation in the kernel's mode, with omod included.  Raises UnknownInstruction."""
    mode = mode_of(context.kernel)
    rounding = rounding_of(mode, kind, instruction)
    clamps, factor = overflow_suffix(instruction, context, kind), omod_name(instruction)
    if factor:
        verb = f"{verb}_{factor}"
    if flushes(mode, kind, instruction):
        return operation(f"{verb}.{rounding}.ftz{clamps}.{kind}@{context.arch.name}")
    suffix = f"@{context.arch.name}" if clamps or factor else ""
    return operation(f"{verb}.{rounding}{clamps}.{kind}{suffix}")


def compute_operation(meaning: Operation, properties: int = 0) -> Compute:
    """The function that applies the operation to all sources."""
    return lambda machine, *values: apply_float(machine, meaning, values, properties)


def float_step(
    instruction: Instruction,
    context: Context,
    kinds: Sequence[str],
    kind: str,
    compute: Compute,
    *,
    keep_high_half: bool = False,
    omod: bool = False,
    deferrable: bool = False,
) -> Step:
    """The lanewise step whose result has the format `kind`, clamped where the instruction has the modifier clamp.

    `kinds`, `keep_high_half`, `deferrable`: see `lanewise`.  `omod`: the caller has handled that modifier.
    Raises UnknownInstruction.
    """
    clamp = clamp_operation(instruction, context, kind)
    extra_modifiers = (CLAMP, *OMOD) if omod else (CLAMP,)
    if clamp is not None:
        inner, clamping = compute, clamp

        def compute(machine: Machine, *values: Value) -> Value:
            return apply_clamp(machine, clamping, inner(machine, *values))

    return lanewise(
        instruction, kinds, BITS[kind], compute, extra_modifiers=extra_modifiers, keep_high_half=keep_high_half,
        deferrable=deferrable and clamp is None, together=context,
    )  # fmt: skip


def _verb_and_format(instruction: Instruction) -> tuple[str, str]:
    _, verb, kind = form(instruction.opcode).name.split("_")
    return verb, FLOAT_FORMATS[kind]


@vector_opcode(
    TABLE,
    *(f"v_{verb}_{kind}" for verb in ("add", "mul") for kind in ("f16", "f32", "f64")),
    operands=DESTINATION_FIRST,
    effects=Effect.NONE,
)
@vector_opcode(
    TABLE,
    *(f"v_{verb}_{kind}" for verb in ("sub", "subrev") for kind in ("f16", "f32")),
    operands=DESTINATION_FIRST,
    effects=Effect.NONE,
)
def arithmetic(instruction: Instruction, context: Context) -> Step:
    """Sums, differences and products."""
    verb, kind = _verb_and_format(instruction)
    compute = compute_operation(operation_in_mode(verb.removesuffix("rev"), kind, instruction, context))
    if verb == "subrev":
        forward = compute

        def compute(machine: Machine, left: Value, right: Value) -> Value:
            return forward(machine, right, left)

    return float_step(instruction, context, (kind, kind), kind, compute, omod=True, deferrable=True)


@vector_opcode(TABLE, "v_fma_f16", "v_fma_f32", "v_fma_f64", operands=DESTINATION_FIRST, keeps=with_16_bits)
def fused_multiply_add(instruction: Instruction, context: Context) -> Step:
    """Fused multiply-add: a product and a sum with one rounding."""
    _, kind = _verb_and_format(instruction)
    compute = compute_operation(operation_in_mode("fma", kind, instruction, context))
    return float_step(instruction, context, (kind,) * 3, kind, compute, keep_high_half=True, omod=True)


@vector_opcode(TABLE, "v_fmac_f16", "v_fmac_f32", "v_fmac_f64", operands=UPDATED_FIRST, effects=Effect.NONE)
def fused_multiply_accumulate(instruction: Instruction, context: Context) -> Step:
    """Fused multiply-add whose addend is the destination."""
    _, kind = _verb_and_format(instruction)
    operands = instruction.operands
    longer = Instruction(instruction.opcode, (*operands, *operands[:1]), None, instruction.line, instruction.source)
    compute = compute_operation(operation_in_mode("fma", kind, instruction, context))
    return float_step(longer, context, (kind,) * 3, kind, compute, keep_high_half=True, omod=True)


@vector_opcode(
    TABLE,
    "v_fmaak_f32",
    "v_fmamk_f32",
    "v_fmaak_f16",
    "v_fmamk_f16",
    operands=DESTINATION_FIRST,
    keeps=with_16_bits,
)
def fused_multiply_add_literal(instruction: Instruction, context: Context) -> Step:
    """Fused multiply-add with a literal as the addend (fmaak) or as the second factor (fmamk)."""
    _, kind = _verb_and_format(instruction)
    compute = compute_operation(operation_in_mode("fma", kind, instruction, context))
    return lanewise(instruction, (kind,) * 3, BITS[kind], compute, keep_high_half=True)


def minmax(machine: Machine, verb: str, kind: str, values: Sequence[Value], ieee: bool, arch: str) -> Value:
    """The minimum or maximum of two numbers.

    With a quiet NaN the result is the other operand.  In IEEE mode a signalling NaN makes the result a NaN.
    """

    number_minmax = operation(f"{verb}.{kind}")
    same_operand = _same_number(values[0], values[1])
    if same_operand:
        values = (values[0], values[0])
        if isinstance(values[0], SymbolicVector) and has_ieee_nans(values[0]):
            return values[0]

    def plain() -> Value:
        return apply_float(machine, number_minmax, values)

    if not ieee or same_operand:
        return plain()
    return unless_signalling(machine, values, plain, operation(f"{verb}.signalling.{kind}@{arch}"))


def _same_number(left: Value, right: Value) -> bool:
    """Whether two values that are not constant are known to be the same number, or both NaN, in every lane."""
    if left is right:
        return True
    if any(isinstance(each, np.ndarray) or L.lazy_integers(each) is not None for each in (left, right)):
        return False
    return bool(np.all(same_lanes(left, right, FORMATS["fp32"])))


def unless_signalling(
    machine: Machine, values: Sequence[Value], plain: Callable[[], Value], meaning: Operation
) -> Value:
    """`plain()` in the lanes where no value is a signalling NaN, the operation `meaning` in the others."""
    quiet: bool | Array = True
    for each, operand in zip(values, meaning.operands, strict=True):
        quiet_here = quiet_lanes(each)
        if isinstance(operand, FloatFormat):
            quiet_here = np.logical_or(quiet_here, machine.domain.assumed_finite(each, operand))
        quiet = np.logical_and(quiet, quiet_here)
    if np.all(quiet if machine.mask is None else quiet | ~machine.mask):
        return plain()
    other = apply_float(machine, meaning, values)
    if not np.any(quiet):
        return other
    return blend_values(np.asarray(quiet), plain(), other)


@vector_opcode(
    TABLE,
    *(f"v_{verb}_{kind}" for verb in ("min", "max") for kind in ("f16", "f32", "f64")),
    operands=DESTINATION_FIRST,
    effects=Effect.NONE,
)
def minimum_or_maximum(instruction: Instruction, context: Context) -> Step:
    """The minimum or maximum of two numbers; of a number with itself it makes a signalling NaN quiet."""
    verb, kind = _verb_and_format(instruction)
    ieee = _ieee_mode(instruction, context, kind)

    def compute(machine: Machine, left: Value, right: Value) -> Value:
        return minmax(machine, verb, kind, (left, right), ieee, context.arch.name)

    return float_step(instruction, context, (kind, kind), kind, compute, deferrable=True)


def _ieee_mode(instruction: Instruction, context: Context, kind: str) -> bool:
    """Whether the IEEE mode is on.  Raises UnknownInstruction where subnormal numbers are flushed."""
    mode = mode_of(context.kernel)
    if flushes(mode, kind, instruction):
        raise UnknownInstruction(instruction, "flushes subnormal numbers, which is not modelled")
    return mode.ieee


def extremum_of_three(of_two: Operation) -> Compute:
    """The minimum or maximum of three numbers, as two of two operands each."""

    def compute(machine: Machine, first: Value, second: Value, third: Value) -> Value:
        return apply_float(machine, of_two, (apply_float(machine, of_two, (first, second)), third))

    return compute


@vector_opcode(
    TABLE, "v_min3_f32", "v_max3_f32", "v_min3_f16", "v_max3_f16", operands=DESTINATION_FIRST, keeps=with_16_bits
)
def minimum_or_maximum_of_three(instruction: Instruction, context: Context) -> Step:
    """The minimum or maximum of three numbers, as two of two operands each."""
    verb, kind = _verb_and_format(instruction)
    verb = verb.removesuffix("3")
    ieee = _ieee_mode(instruction, context, kind)
    signalling = operation(f"{verb}3.signalling.{kind}@{context.arch.name}")

    plain = extremum_of_three(operation(f"{verb}.{kind}"))

    def compute(machine: Machine, *values: Value) -> Value:
        if not ieee:
            return plain(machine, *values)
        return unless_signalling(machine, values, lambda: plain(machine, *values), signalling)

    return float_step(instruction, context, (kind,) * 3, kind, compute, keep_high_half=True)


@vector_opcode(TABLE, "v_med3_f32", "v_med3_f16", operands=DESTINATION_FIRST, keeps=with_16_bits)
def median(instruction: Instruction, context: Context) -> Step:
    """The median of three numbers; with a NaN among them their minimum."""
    _, kind = _verb_and_format(instruction)
    _ieee_mode(instruction, context, kind)
    compute = compute_operation(operation(f"med3.{kind}@{context.arch.name}"))
    return float_step(instruction, context, (kind,) * 3, kind, compute, keep_high_half=True)


_INTEGRAL = {"rndne": "rni", "trunc": "rzi", "floor": "rmi", "ceil": "rpi"}


@vector_opcode(
    TABLE,
    *(f"v_{verb}_{kind}" for verb in _INTEGRAL for kind in ("f16", "f32", "f64")),
    operands=DESTINATION_FIRST,
    effects=Effect.NONE,
)
def round_to_integer(instruction: Instruction, context: Context) -> Step:
    """Rounding to an integral value: to nearest even, toward zero, down or up."""
    verb, kind = _verb_and_format(instruction)
    _ieee_mode(instruction, context, kind)
    compute = compute_operation(operation(f"convert.{_INTEGRAL[verb]}.{kind}.{kind}"))
    return float_step(instruction, context, (kind,), kind, compute)


_FUNCTIONS = {
    "rcp_iflag": "rcp",
    "exp": "ex2",
    "log": "lg2",
    "rcp": "rcp",
    "rsq": "rsqrt",
    "sqrt": "sqrt",
    "sin": "sin",
    "cos": "cos",
}


@vector_opcode(
    TABLE,
    *(f"v_{verb}_{kind}" for verb in _FUNCTIONS if verb != "rcp_iflag" for kind in ("f16", "f32")),
    operands=DESTINATION_FIRST,
    effects=Effect.NONE,
)
@vector_opcode(
    TABLE, "v_rcp_iflag_f32", "v_rcp_f64", "v_rsq_f64", "v_sqrt_f64", operands=DESTINATION_FIRST, effects=Effect.NONE
)
def approximate_function(instruction: Instruction, context: Context) -> Step:
    """Approximate functions, which are named operations of this architecture.

    The operand of sine and cosine is in revolutions (multiples of 2 pi).
    """
    verb, kind = form(instruction.opcode).name.removeprefix("v_").rsplit("_", 1)
    kind = FLOAT_FORMATS[kind]
    if kind == "fp16":
        rounding_of(mode_of(context.kernel), kind, instruction)
    turns = ".turns" if verb in ("sin", "cos") else ""
    flush = ".ftz" if flushes(mode_of(context.kernel), kind, instruction) else ""
    clamps = overflow_suffix(instruction, context, kind)
    meaning = operation(f"{_FUNCTIONS[verb]}.approx{turns}{flush}{clamps}.{kind}@{context.arch.name}")
    properties = L.NOT_NEGATIVE | L.NOT_MINUS_ZERO if verb == "exp" else 0
    compute = compute_operation(meaning, properties)
    if instruction.line in division_sequences(context.kernel, context.arch.opcodes).inner_lines:
        return lanewise(
            instruction, (kind,), BITS[kind], lambda machine, value: poison(BITS[kind], "inside a division")
        )
    if verb in ("rcp", "rcp_iflag") and kind == "fp32":
        compute = _reciprocal(meaning)
    return float_step(instruction, context, (kind,), kind, compute)


def _reciprocal(meaning: Operation) -> Compute:
    """The reciprocal; of constants all candidate results, unless the domain evaluates the machine's operation."""

    def compute(machine: Machine, value: Value) -> Value:
        def evaluated() -> Value:
            return apply_float(machine, meaning, [value])

        if not isinstance(value, np.ndarray):
            return evaluated()
        try:
            result = evaluated()
        except Unsupported:  # the domain cannot evaluate the operation
            return possible_reciprocals(value, lambda: as_symbolic_vector(evaluated()))
        return (
            result
            if isinstance(result, np.ndarray)
            else possible_reciprocals(value, lambda: as_symbolic_vector(result))
        )

    return compute
