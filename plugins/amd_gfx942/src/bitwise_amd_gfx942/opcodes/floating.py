"""Vector floating-point arithmetic in the mode of the kernel, each form as an operation of the vocabulary.

Source: AMD Instinct MI300 ISA, "Vector ALU operations"; LLVM's AMDGPU usage guide for the mode.
Results are never signalling NaNs.  Which NaN an operation gives is not told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bitwise_amd_gfx942.division_sequences import division_sequences
from bitwise_amd_gfx942.modes import flushes, mode_of, rounding_of
from bitwise_amd_gfx942.opcodes.acting import vector
from bitwise_amd_gfx942.opcodes.constants import BITS
from bitwise_amd_gfx942.opcodes.forms import Table, form
from bitwise_amd_gfx942.opcodes.lanewise import Compute, lanewise
from bitwise_amd_gfx942.opcodes.outputs import CLAMP, OMOD, factor_of, overflow, saturated, saturation
from bitwise_amd_gfx942.opcodes.roots import note_large
from bitwise_amd_gfx942.opcodes.roundings import between_bounds, note_extreme, same_value
from bitwise_amd_gfx942.possible_values import PossibleValues, apply_to_possible_values, possible_reciprocals
from bitwise_core.assembly.module import Instruction
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.assumptions import FINITE
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, UPDATED_FIRST, Effect
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector, blend_values, concat
from bitwise_core.execution.values.symbolic_vector import Array, PackedVector, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import poison
from bitwise_core.numerics import Operation, operation

TABLE = Table()

FORMATS = {"f16": "fp16", "f32": "fp32", "f64": "fp64", "bf16": "bf16"}
"""The ISA's names of formats and core's."""


def perform(machine: Machine, meaning: Operation, values: Sequence[Value], properties: int = 0) -> Value:
    """A floating-point operation; its result is no signalling NaN."""
    for value in values:
        if isinstance(value, PossibleValues):
            found = _of_candidates(machine, meaning, values)
            if found is not None:
                return found
            break
    result = quieted(machine.domain.floating(meaning, values, properties))
    if meaning in _GROWING:
        note_large(machine, meaning.verb, values, result)
    return result


_GROWING = frozenset(operation(name) for name in ("add.rn.fp32", "fma.rn.fp32", "max.fp32"))


def _of_candidates(machine: Machine, meaning: Operation, values: Sequence[Value]) -> Value | None:
    if meaning.function is None:
        return None

    def data() -> SymbolicVector:
        return as_symbolic_vector(machine.domain.floating(meaning, [as_symbolic_vector(each) for each in values]))

    found: Value | None = apply_to_possible_values(values, meaning.function, data)
    return found


def quieted(value: Value) -> Value:
    """The value of an operation, marked as no signalling NaN."""
    if isinstance(value, SymbolicVector):
        return L.with_flags(value, L.QUIET)
    if isinstance(value, PackedVector) and isinstance(value.parts[-1], SymbolicVector):
        return concat([*value.parts[:-1], L.with_flags(value.parts[-1], L.QUIET)])
    return value


def quiet_where(value: Value) -> bool | Array:
    """In which lanes a value is known to be no signalling NaN."""
    if isinstance(value, np.ndarray):
        bits = L.width(value)
        mantissa = {16: 10, 32: 23, 64: 52}[bits]
        size = value & value.dtype.type((1 << bits - 1) - 1)
        infinity, quiet = ((1 << bits - 1 - mantissa) - 1) << mantissa, 1 << mantissa - 1
        found: Array = (size <= value.dtype.type(infinity)) | ((value & value.dtype.type(quiet)) != 0)
        return found
    if isinstance(value, PackedVector):
        # The high half of an fp32 that a bf16 made has its exponent and its quiet bit.
        low, high = value.parts[0], value.parts[-1]
        halves = len(value.parts) == 2 and L.width(low) == L.width(high) == 16
        if halves and isinstance(high, SymbolicVector) and isinstance(low, np.ndarray) and not low.any():
            return _quiet_lanes(high, widens=True)
        return _quiet_lanes(as_symbolic_vector(value))
    return False if L.lazy_integers(value) is not None else _quiet_lanes(value)


def _quiet_lanes(value: SymbolicVector, *, widens: bool = False) -> bool | Array:
    """The same of lanes; `widens` says that they are the high half of an fp32 whose low half is zero."""
    quiet = L.has_flag(value, L.QUIET)
    known = L.constant_mask(value)
    if quiet is True or known is False:
        return quiet
    numbers = L.constants_of(value)
    if widens:
        numbers = numbers.astype(np.uint32) << np.uint32(16)
    return quiet | (known & quiet_where(numbers))


def in_mode(verb: str, kind: str, instruction: Instruction, context: Context) -> Operation:
    """The operation in the kernel's mode, with what omod does to it.  Raises UnknownInstruction."""
    mode = mode_of(context.kernel)
    rounding = rounding_of(mode, kind, instruction)
    clamps, factor = overflow(instruction, context, kind), factor_of(instruction)
    if factor:
        verb = f"{verb}_{factor}"
    if flushes(mode, kind, instruction):
        return operation(f"{verb}.{rounding}.ftz{clamps}.{kind}@{context.arch.name}")
    suffix = f"@{context.arch.name}" if clamps or factor else ""
    return operation(f"{verb}.{rounding}{clamps}.{kind}{suffix}")


def computing(meaning: Operation, properties: int = 0) -> Compute:
    """The operation on all sources."""
    return lambda machine, *values: perform(machine, meaning, values, properties)


def output(
    instruction: Instruction,
    context: Context,
    kinds: Sequence[str],
    kind: str,
    compute: Compute,
    *,
    keeps_high: bool = False,
    omod: bool = False,
) -> Step:
    """The lanewise step whose result is a number of that format, clamped where the instruction says so.

    `omod` says that the caller has looked at that modifier.  Raises UnknownInstruction.
    """
    clamp = saturation(instruction, context, kind)
    also = (CLAMP, *OMOD) if omod else (CLAMP,)
    if clamp is not None:
        inner, taken = compute, clamp

        def compute(machine: Machine, *values: Value) -> Value:
            return saturated(machine, taken, inner(machine, *values))

    return lanewise(instruction, kinds, BITS[kind], compute, also=also, keeps_high=keeps_high)


def _kind(instruction: Instruction) -> tuple[str, str]:
    _, verb, kind = form(instruction.opcode).name.split("_")
    return verb, FORMATS[kind]


@vector(
    TABLE,
    *(f"v_{verb}_{kind}" for verb in ("add", "mul") for kind in ("f16", "f32", "f64")),
    operands=DESTINATION_FIRST,
    effects=Effect.NONE,
)
@vector(
    TABLE,
    *(f"v_{verb}_{kind}" for verb in ("sub", "subrev") for kind in ("f16", "f32")),
    operands=DESTINATION_FIRST,
    effects=Effect.NONE,
)
def arithmetic(instruction: Instruction, context: Context) -> Step:
    """Sums, differences and products."""
    verb, kind = _kind(instruction)
    compute = computing(in_mode(verb.removesuffix("rev"), kind, instruction, context))
    if verb == "subrev":
        forward = compute

        def compute(machine: Machine, left: Value, right: Value) -> Value:
            return forward(machine, right, left)

    return output(instruction, context, (kind, kind), kind, compute, omod=True)


@vector(TABLE, "v_fma_f16", "v_fma_f32", "v_fma_f64", operands=DESTINATION_FIRST, effects=Effect.NONE)
def fused(instruction: Instruction, context: Context) -> Step:
    """A product and a sum with one rounding."""
    _, kind = _kind(instruction)
    compute = computing(in_mode("fma", kind, instruction, context))
    return output(instruction, context, (kind,) * 3, kind, compute, keeps_high=True, omod=True)


@vector(TABLE, "v_fmac_f16", "v_fmac_f32", "v_fmac_f64", operands=UPDATED_FIRST, effects=Effect.NONE)
def fused_in_place(instruction: Instruction, context: Context) -> Step:
    """The product is added to the destination."""
    _, kind = _kind(instruction)
    operands = instruction.operands
    longer = Instruction(instruction.opcode, (*operands, *operands[:1]), None, instruction.line, instruction.source)
    compute = computing(in_mode("fma", kind, instruction, context))
    return output(longer, context, (kind,) * 3, kind, compute, keeps_high=True, omod=True)


@vector(
    TABLE, "v_fmaak_f32", "v_fmamk_f32", "v_fmaak_f16", "v_fmamk_f16", operands=DESTINATION_FIRST, effects=Effect.NONE
)
def fused_with_constant(instruction: Instruction, context: Context) -> Step:
    """fma with a literal: its addend, or its second factor."""
    _, kind = _kind(instruction)
    compute = computing(in_mode("fma", kind, instruction, context))
    return lanewise(instruction, (kind,) * 3, BITS[kind], compute, keeps_high=True)


def extreme(machine: Machine, verb: str, kind: str, values: Sequence[Value], ieee: bool, arch: str) -> Value:
    """The lesser or greater of two numbers.

    A quiet NaN gives way to the other operand.  In IEEE mode a signalling one does not: the result is a NaN then.
    """

    plainly = operation(f"{verb}.{kind}")
    alone = same_value(values[0], values[1])
    if alone:
        values = (values[0], values[0])

    def plain() -> Value:
        result = perform(machine, plainly, values)
        if kind == "fp32":
            note_extreme(machine, verb, values, result)
        return result

    if not ieee or alone:
        return plain()
    return where_quiet(machine, values, plain, operation(f"{verb}.signalling.{kind}@{arch}"))


def where_quiet(machine: Machine, values: Sequence[Value], plain: Callable[[], Value], meaning: Operation) -> Value:
    """`plain` in the lanes where no value is a signalling NaN, `meaning` in the others."""
    quiet: bool | Array = True
    finite = machine.domain.assumes(FINITE)  # then what is loaded or computed is no NaN
    for each in values:
        here = quiet_where(each)
        if finite and not isinstance(each, np.ndarray) and L.lazy_integers(each) is None:
            here = np.logical_or(here, np.logical_not(L.constant_mask(as_symbolic_vector(each))))
        quiet = np.logical_and(quiet, here)
    acts = quiet if machine.mask is None else quiet | ~machine.mask
    if np.all(acts):
        return plain()
    other = perform(machine, meaning, values)
    if not np.any(quiet):
        return other
    return blend_values(np.asarray(quiet), plain(), other)


@vector(
    TABLE,
    *(f"v_{verb}_{kind}" for verb in ("min", "max") for kind in ("f16", "f32", "f64")),
    operands=DESTINATION_FIRST,
    effects=Effect.NONE,
)
def extremum(instruction: Instruction, context: Context) -> Step:
    """The lesser or greater of two numbers; a maximum of a number with itself makes a signalling NaN quiet."""
    verb, kind = _kind(instruction)
    ieee = _plain_mode(instruction, context, kind)

    def compute(machine: Machine, left: Value, right: Value) -> Value:
        return extreme(machine, verb, kind, (left, right), ieee, context.arch.name)

    return output(instruction, context, (kind, kind), kind, compute)


def _plain_mode(instruction: Instruction, context: Context, kind: str) -> bool:
    """Whether the IEEE mode is on.  Raises UnknownInstruction where subnormal numbers are flushed."""
    mode = mode_of(context.kernel)
    if flushes(mode, kind, instruction):
        raise UnknownInstruction(instruction, "flushes subnormal numbers, which is not modelled")
    return mode.ieee


@vector(TABLE, "v_min3_f32", "v_max3_f32", "v_min3_f16", "v_max3_f16", operands=DESTINATION_FIRST, effects=Effect.NONE)
def extremum_of_three(instruction: Instruction, context: Context) -> Step:
    """The least or greatest of three numbers, as two of two."""
    verb, kind = _kind(instruction)
    verb = verb.removesuffix("3")
    ieee = _plain_mode(instruction, context, kind)
    extreme_of_two = operation(f"{verb}.{kind}")
    signalling = operation(f"{verb}3.signalling.{kind}@{context.arch.name}")

    def compute(machine: Machine, first: Value, second: Value, third: Value) -> Value:
        def plain() -> Value:
            inner = perform(machine, extreme_of_two, (first, second))
            return perform(machine, extreme_of_two, (inner, third))

        if not ieee:
            return plain()
        return where_quiet(machine, (first, second, third), plain, signalling)

    return output(instruction, context, (kind,) * 3, kind, compute, keeps_high=True)


@vector(TABLE, "v_med3_f32", "v_med3_f16", operands=DESTINATION_FIRST, effects=Effect.NONE)
def median(instruction: Instruction, context: Context) -> Step:
    """The middle one of three numbers; with a NaN among them their minimum."""
    _, kind = _kind(instruction)
    ieee = _plain_mode(instruction, context, kind)
    middle, least, greatest = (
        operation(name) for name in (f"med3.{kind}@{context.arch.name}", f"min.{kind}", f"max.{kind}")
    )

    def compute(machine: Machine, *values: Value) -> Value:
        clamped = between_bounds(values) if ieee and kind == "fp32" else None
        if clamped is None or not _acts_on_quiet(machine, clamped[0]):
            return perform(machine, middle, values)
        value, low, high = clamped
        return perform(machine, least, [perform(machine, greatest, [value, low]), high])

    return output(instruction, context, (kind,) * 3, kind, compute, keeps_high=True)


def _acts_on_quiet(machine: Machine, value: Value) -> bool:
    """Whether no active lane of a value may be a signalling NaN."""
    quiet = quiet_where(value)
    return bool(np.all(quiet if machine.mask is None else quiet | ~machine.mask))


_INTEGRAL = {"rndne": "rni", "trunc": "rzi", "floor": "rmi", "ceil": "rpi"}


@vector(
    TABLE,
    *(f"v_{verb}_{kind}" for verb in _INTEGRAL for kind in ("f16", "f32", "f64")),
    operands=DESTINATION_FIRST,
    effects=Effect.NONE,
)
def integral(instruction: Instruction, context: Context) -> Step:
    """Rounding to an integer, to nearest even, toward zero, down or up."""
    verb, kind = _kind(instruction)
    _plain_mode(instruction, context, kind)
    compute = computing(operation(f"convert.{_INTEGRAL[verb]}.{kind}.{kind}"))
    return output(instruction, context, (kind,), kind, compute)


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


@vector(
    TABLE,
    *(f"v_{verb}_{kind}" for verb in _FUNCTIONS if verb != "rcp_iflag" for kind in ("f16", "f32")),
    operands=DESTINATION_FIRST,
    effects=Effect.NONE,
)
@vector(
    TABLE, "v_rcp_iflag_f32", "v_rcp_f64", "v_rsq_f64", "v_sqrt_f64", operands=DESTINATION_FIRST, effects=Effect.NONE
)
def function(instruction: Instruction, context: Context) -> Step:
    """Approximations, named operations of this architecture; sine and cosine count their operand in turns."""
    verb, kind = form(instruction.opcode).name.removeprefix("v_").rsplit("_", 1)
    kind = FORMATS[kind]
    if kind == "fp16":
        rounding_of(mode_of(context.kernel), kind, instruction)
    turns = ".turns" if verb in ("sin", "cos") else ""
    flush = ".ftz" if flushes(mode_of(context.kernel), kind, instruction) else ""
    clamps = overflow(instruction, context, kind)
    meaning = operation(f"{_FUNCTIONS[verb]}.approx{turns}{flush}{clamps}.{kind}@{context.arch.name}")
    properties = L.NOT_NEGATIVE | L.NOT_MINUS_ZERO if verb == "exp" else 0
    compute = computing(meaning, properties)
    if instruction.line in division_sequences(context.kernel, context.arch.opcodes).inner_lines:
        return lanewise(
            instruction, (kind,), BITS[kind], lambda machine, value: poison(BITS[kind], "inside a division")
        )
    if verb in ("rcp", "rcp_iflag") and kind == "fp32":
        compute = _reciprocal(meaning)
    return output(instruction, context, (kind,), kind, compute)


def _reciprocal(meaning: Operation) -> Compute:
    """The reciprocal: of known numbers what it may be, unless the domain knows the machine's own result."""

    def compute(machine: Machine, value: Value) -> Value:
        def own() -> Value:
            return perform(machine, meaning, [value])

        if not isinstance(value, np.ndarray):
            return own()
        try:
            result = own()
        except Unsupported:  # this domain has no function for it
            return possible_reciprocals(value, lambda: as_symbolic_vector(own()))
        return (
            result
            if isinstance(result, np.ndarray)
            else possible_reciprocals(value, lambda: as_symbolic_vector(result))
        )

    return compute
