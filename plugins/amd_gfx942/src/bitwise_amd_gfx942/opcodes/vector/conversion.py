"""v_cvt, ldexp, and the instructions that split a number into exponent and fraction.

Source: AMD Instinct MI300 ISA, "Vector ALU operations" (VOP1, VOP3).
"""

from __future__ import annotations

import numpy as np

from bitwise_amd_gfx942.modes import flushes, mode_of, rounding_of
from bitwise_amd_gfx942.opcodes.compute import Compute
from bitwise_amd_gfx942.opcodes.forms import Table, form
from bitwise_amd_gfx942.opcodes.operands.constants import BITS, FLOAT_FORMATS
from bitwise_amd_gfx942.opcodes.operands.execution_mask import vector_opcode
from bitwise_amd_gfx942.opcodes.operands.output_modifiers import overflow_suffix
from bitwise_amd_gfx942.opcodes.vector.floating import apply_float, float_step, mark_quiet
from bitwise_amd_gfx942.opcodes.vector.lanewise import lanewise
from bitwise_core.assembly.module import Instruction
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, Effect
from bitwise_core.execution.machine import Machine, Step, literal
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values.integers.comparisons import compare_as_floats
from bitwise_core.execution.values.packing import blend_values, concat, extract
from bitwise_core.execution.values.symbolic_vector import Array, Value
from bitwise_core.execution.values.term_hash import poison
from bitwise_core.numerics import Operation, operation

TABLE = Table()

_KINDS = {**FLOAT_FORMATS, "i16": "s16", "u16": "u16", "i32": "s32", "u32": "u32"}
_WIDTHS = {"s16": 16, "u16": 16, "s32": 32, "u32": 32, **BITS}


def check_not_flushed(instruction: Instruction, context: Context, *kinds: str) -> None:
    """Raises UnknownInstruction where subnormal numbers of a format are flushed."""
    for kind in kinds:
        if kind.startswith("fp") and flushes(mode_of(context.kernel), kind, instruction):
            raise UnknownInstruction(instruction, "flushes subnormal numbers, which is not modelled")


def rounding_conversion(to: str, source: str, instruction: Instruction, context: Context) -> Operation:
    """The conversion to the format `to`, rounded in the kernel's mode.  Raises UnknownInstruction."""
    mode = mode_of(context.kernel)
    if source.startswith("fp") and mode.rounding_fp32 != mode.rounding_fp16_fp64:
        raise UnknownInstruction(instruction, "converts between formats whose rounding modes differ")
    rounding, clamps = rounding_of(mode, to, instruction), overflow_suffix(instruction, context, to)
    suffix = f"@{context.arch.name}" if clamps else ""
    return operation(f"convert.{rounding}{clamps}.{to}.{source}{suffix}")


_PAIRS = (
    "f32_f16", "f16_f32", "f32_f64", "f64_f32", "f32_i32", "f32_u32", "f64_i32", "f64_u32", "f16_i16", "f16_u16",
    "i32_f32", "u32_f32", "i32_f64", "u32_f64", "i16_f16", "u16_f16",
)  # fmt: skip


@vector_opcode(TABLE, *(f"v_cvt_{pair}" for pair in _PAIRS), operands=DESTINATION_FIRST, effects=Effect.NONE)
def convert(instruction: Instruction, context: Context) -> Step:
    """Conversions: to floating point in the mode's rounding; to integers toward zero, saturated, with a NaN as 0."""
    to, source = (_KINDS[each] for each in form(instruction.opcode).name.split("_")[2:])
    check_not_flushed(instruction, context, to, source)
    bits = _WIDTHS[to]
    if to[0] in "su":
        meaning = operation(f"convert.rzi.{to}.{source}")
    elif (to, source) in (("fp32", "fp16"), ("fp64", "fp32"), ("fp64", "s32"), ("fp64", "u32")):
        meaning = operation(f"convert.{to}.{source}")
    else:
        meaning = rounding_conversion(to, source, instruction, context)
    source_kind = source if source.startswith("fp") else f"b{_WIDTHS[source]}"

    def compute(machine: Machine, value: Value) -> Value:
        result = apply_float(machine, meaning, [value])
        # Core's conversion of an fp64 NaN to 32 bits returns the most negative number, as in PTX.
        return zero_where_nan(machine, value, result) if to in ("s32", "u32") and source == "fp64" else result

    if to[0] in "su":
        return lanewise(instruction, (source_kind,), bits, compute)
    return float_step(instruction, context, (source_kind,), to, compute)


def zero_where_nan(machine: Machine, value: Value, result: Value) -> Value:
    """The result in the lanes where the fp64 `value` is a number, 0 where it is a NaN."""
    is_number = compare_as_floats(machine, "eq", "fp64", value, value)
    known = machine.known(is_number)
    if known is not None:
        return blend_values(known, result, literal(0, 32))
    return machine.domain.select(is_number, result, literal(0, 32))


@vector_opcode(TABLE, *(f"v_cvt_f32_ubyte{byte}" for byte in range(4)), operands=DESTINATION_FIRST, effects=Effect.NONE)
def convert_byte(instruction: Instruction, context: Context) -> Step:
    """One unsigned byte of a word as fp32."""
    low, widened = 8 * int(form(instruction.opcode).name[-1]), operation("convert.fp32.u8")

    def compute(machine: Machine, value: Value) -> Value:
        return apply_float(machine, widened, [extract(value, low, 8)])

    return lanewise(instruction, ("b32",), 32, compute)


@vector_opcode(TABLE, "v_cvt_pkrtz_f16_f32", operands=DESTINATION_FIRST, effects=Effect.NONE)
def convert_pair(instruction: Instruction, context: Context) -> Step:
    """Two numbers rounded to fp16 toward zero, packed."""
    check_not_flushed(instruction, context, "fp16", "fp32")
    narrowed = operation("convert.rz.fp16.fp32")

    def compute(machine: Machine, low: Value, high: Value) -> Value:
        return concat([apply_float(machine, narrowed, [each]) for each in (low, high)])

    return lanewise(instruction, ("fp32", "fp32"), 32, compute)


_BIAS = {"fp16": (15, 10), "fp32": (127, 23), "fp64": (1023, 52)}


def ldexp_compute(kind: str, context: Context, instruction: Instruction) -> Compute:
    """A number times a power of two, rounded once; a product where the power is a constant and a normal number."""
    rounding = rounding_of(mode_of(context.kernel), kind, instruction)
    bias, mantissa = _BIAS[kind]
    bits, clamps = BITS[kind], overflow_suffix(instruction, context, kind)
    product = operation(f"mul.{rounding}{clamps}.{kind}{f'@{context.arch.name}' if clamps else ''}")
    power_of_two = operation(f"ldexp.{rounding}{clamps}.{kind}@{context.arch.name}")

    def compute(machine: Machine, value: Value, power: Value) -> Value:
        if isinstance(power, np.ndarray):
            exponent = power.view(f"int{8 * power.dtype.itemsize}").astype(np.int64)
            if ((exponent > -bias) & (exponent <= bias)).all():
                factor: Array = ((exponent + bias).astype(np.uint64) << np.uint64(mantissa)).astype(f"uint{bits}")
                return apply_float(machine, product, [value, factor])
        return apply_float(machine, power_of_two, [value, power])

    return compute


@vector_opcode(TABLE, "v_ldexp_f16", "v_ldexp_f32", "v_ldexp_f64", operands=DESTINATION_FIRST, effects=Effect.NONE)
def ldexp(instruction: Instruction, context: Context) -> Step:
    """ldexp: a number times two to the power of an integer."""
    kind = _KINDS[form(instruction.opcode).name.split("_")[-1]]
    check_not_flushed(instruction, context, kind)
    power = "b16" if kind == "fp16" else "b32"
    return float_step(instruction, context, (kind, power), kind, ldexp_compute(kind, context, instruction))


@vector_opcode(
    TABLE,
    "v_frexp_mant_f32",
    "v_frexp_mant_f64",
    "v_frexp_exp_i32_f32",
    "v_frexp_exp_i32_f64",
    "v_fract_f32",
    "v_fract_f64",
    operands=DESTINATION_FIRST,
    effects=Effect.NONE,
)
def split_number(instruction: Instruction, context: Context) -> Step:
    """frexp: the significand in [1/2, 1) and its exponent; fract: a number minus its floor."""
    name = form(instruction.opcode).name
    kind = _KINDS[name.split("_")[-1]]
    check_not_flushed(instruction, context, kind)
    verb = {"exp": "frexp_exponent", "mant": "frexp_mantissa"}.get(name.split("_")[2], "fract")
    meaning = operation(f"{verb}.{kind}@{context.arch.name}")

    def compute(machine: Machine, value: Value) -> Value:
        result = machine.domain.floating(meaning, [value])
        return result if verb == "frexp_exponent" else mark_quiet(result)

    return lanewise(instruction, (kind,), meaning.bits, compute)


@vector_opcode(TABLE, "v_trig_preop_f64", operands=DESTINATION_FIRST, effects=Effect.NONE)
def trig_preop(instruction: Instruction, context: Context) -> Step:
    """A segment of the digits of 2 / pi, selected by the exponent of a number and by a segment index."""
    kind, meaning = "fp64", operation(f"trig_preop.fp64@{context.arch.name}")
    check_not_flushed(instruction, context, kind)

    def compute(machine: Machine, value: Value, segment: Value) -> Value:
        return apply_float(machine, meaning, [value, segment])

    return float_step(instruction, context, (kind, "b32"), kind, compute)


@vector_opcode(TABLE, "v_sat_pk_u8_i16", operands=DESTINATION_FIRST, effects=Effect.NONE)
def saturate_pair(instruction: Instruction, context: Context) -> Step:
    """Two signed 16-bit integers saturated to two unsigned bytes; the high half of the result is undefined."""
    clamped = operation("convert.sat.u8.s16")

    def compute(machine: Machine, value: Value) -> Value:
        parts = [apply_integer(machine, clamped, [extract(value, low, 16)]) for low in (0, 16)]
        return concat([*parts, poison(16, "the high half of a pair of bytes")])

    return lanewise(instruction, ("b32",), 32, compute)
