"""Floating-point arithmetic: each PTX form as an operation of the vocabulary.

Source: PTX ISA 8.7, sections "Floating Point Instructions" and "Half Precision Floating Point Instructions".  The name
of an approximation contains the architecture, since its bits depend on it. add, sub and mul without a rounding modifier
round to nearest here: the contraction audit has already replaced those that the assembler fuses.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bitwise_core.assembly.module import Instruction, Operand
from bitwise_core.execution.architecture import Context, OpcodeTable, UnknownInstruction, named
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, Effect
from bitwise_core.execution.machine import Machine, Step, invert, literal
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.logic import combine
from bitwise_core.execution.values.packing import blend_values, concat, extract
from bitwise_core.execution.values.symbolic_vector import Value
from bitwise_core.numerics import operation
from bitwise_nvidia_ptx.assembler_choices.constants import (
    is_assembler_constant,
    literal_suffix,
    may_be_constant,
    of_this_text,
)
from bitwise_nvidia_ptx.opcodes.common import (
    BITS,
    FORMATS,
    PACKED,
    check_modifiers,
    integer_step,
    operands_of,
    parts_of,
)
from bitwise_nvidia_ptx.opcodes.conversion import TABLE as CONVERSIONS
from bitwise_nvidia_ptx.opcodes.conversion import float_conversion

TABLE = OpcodeTable(CONVERSIONS)

ROUNDINGS = {"rn", "rz", "rm", "rp"}
_ROUNDING_NAMES = {"rn": "rn", "rz": "rz", "rm": "rd", "rp": "ru"}


def _lanewise(instruction: Instruction, name: str, kind: str, sources: Sequence[Operand], properties: int = 0) -> Step:
    """Return the step of an operation on scalars, or on each element of packed operands.  Raises UnknownInstruction."""
    meaning = named(instruction, name)
    if len(sources) != meaning.arity:
        raise UnknownInstruction(instruction, f"has {len(sources)} source operands instead of {meaning.arity}")
    bits, count = meaning.bits, PACKED.get(kind, (kind, 1))[1]
    destination = instruction.operands[0]

    def step(machine: Machine) -> None:
        values = [machine.read_bits(source, bits * count) for source in sources]
        if count == 1:
            machine.write(destination, machine.domain.floating(meaning, values, properties))
            return
        parts = [
            machine.domain.floating(meaning, [extract(value, low, bits) for value in values], properties)
            for low in range(0, bits * count, bits)
        ]
        machine.write(destination, concat(parts))

    return step


def _approximation(
    instruction: Instruction, context: Context, name: str, operand: Operand, kind: str, properties: int = 0
) -> Step:
    """Return the step of an approximation, whose name has a place for the part that says what the assembler knows."""
    kernel, opcodes = context.kernel, context.arch.opcodes
    known = is_assembler_constant(operand, kernel, opcodes)
    step = _lanewise(instruction, name.format(literal_suffix(known)), kind, instruction.operands[1:], properties)
    if known is None:
        return of_this_text(step, instruction, context)
    return (
        step
        if known or not may_be_constant(operand, kernel, opcodes)
        else of_this_text(step, instruction, context, operand)
    )


def _format(kind: str, instruction: Instruction) -> str:
    element = PACKED.get(kind, (kind, 1))[0]
    if element not in ("f16", "bf16", "f32", "f64"):
        raise UnknownInstruction(instruction)
    return FORMATS[element]


def _suffix(modifiers: Sequence[str]) -> str:
    return "".join(f".{each}" for each in ("ftz", "sat", "relu") if each in modifiers)


_HALF = frozenset({"rz", "rm", "rp"})
_NOT_OF_TYPE = {
    "f16": _HALF,
    "f32": frozenset({"relu"}),
    "bf16": _HALF | {"ftz", "sat"},
    "f64": frozenset({"ftz", "sat", "relu", "NaN"}),
}
"""Modifiers that PTX does not define for a type.

The assembler accepts some: fma.rz.bf16, whose results on an H100 are not those of any rounding, and rcp.rn.ftz.f64.
"""


def _check_type(instruction: Instruction, modifiers: Sequence[str], kind: str) -> None:
    """Raise UnknownInstruction for a modifier that PTX does not define for the type."""
    element = PACKED.get(kind, (kind, 1))[0]
    wrong = [each for each in modifiers if each in _NOT_OF_TYPE.get(element, ())]
    wrong += [each for each in modifiers if each == "sat" and kind == "f32x2"]
    if wrong:
        raise UnknownInstruction(instruction, f"has the modifier .{wrong[0]}, which {element} numbers do not have")


def _of_mixed_types(instruction: Instruction, root: str, modifiers: Sequence[str], source: str) -> Step | None:
    """Return the step of add, sub or fma of f32 with f16 or bf16 operands, None for one with one type.

    {add,sub}{.rnd}{.sat}.f32.{f16,bf16} d, a, c and fma.rnd{.sat}.f32.{f16,bf16} d, a, b, c: all operands but c have
    the shorter type, and are widened, which is exact (PTX ISA 8.6, "Mixed Precision Floating Point Instructions").
    """
    if root not in ("add", "sub", "fma") or "f32" not in modifiers or source not in ("f16", "bf16"):
        return None
    rest = [each for each in modifiers if each != "f32"]
    check_modifiers(instruction, rest, ROUNDINGS | {"sat"})
    if list(modifiers[-1:]) != ["f32"] or (root == "fma" and ROUNDINGS.isdisjoint(rest)):
        raise UnknownInstruction(instruction)
    rounding = next((_ROUNDING_NAMES[each] for each in rest if each in ROUNDINGS), "rn")
    meaning = named(instruction, f"{root}.{rounding}{_suffix(rest)}.fp32")
    widening = named(instruction, f"convert.fp32.{FORMATS[source]}")
    destination, *operands, last = operands_of(instruction, 4 if root == "fma" else 3)

    def step(machine: Machine) -> None:
        wide = [float_conversion(machine, widening, machine.read_bits(each, 16)) for each in operands]
        machine.write(destination, machine.domain.floating(meaning, [*wide, machine.read_bits(last, 32)]))

    return step


def arithmetic(instruction: Instruction, context: Context) -> Step:
    """add, sub, mul and div of floating-point types.  mad and rem are not modelled."""
    root, *modifiers, kind = parts_of(instruction)
    mixed = _of_mixed_types(instruction, root, modifiers, kind)
    if mixed is not None:
        return mixed
    form = _format(kind, instruction)
    operands = instruction.operands[1:]
    if root == "div" and ("full" in modifiers or "approx" in modifiers):
        check_modifiers(instruction, modifiers, {"full", "approx", "ftz"})
        method = "full" if "full" in modifiers else "approx"
        name = f"div.{method}{{}}{_suffix(modifiers)}.{form}@{context.arch.name}"
        return _approximation(instruction, context, name, operands_of(instruction, 3)[2], kind)
    if root in ("mad", "rem"):
        raise UnknownInstruction(instruction)
    check_modifiers(instruction, modifiers, ROUNDINGS | {"ftz", "sat"})
    _check_type(instruction, modifiers, kind)
    if root == "div" and (form not in ("fp32", "fp64") or ROUNDINGS.isdisjoint(modifiers)):
        raise UnknownInstruction(instruction, "needs the type f32 or f64, and a rounding")
    rounding = next((_ROUNDING_NAMES[each] for each in modifiers if each in ROUNDINGS), "rn")
    return _lanewise(instruction, f"{root}.{rounding}{_suffix(modifiers)}.{form}", kind, operands)


@TABLE.opcode("fma", operands=DESTINATION_FIRST, effects=Effect.NONE, least=4)
def fused(instruction: Instruction, context: Context) -> Step:
    """fma: a fused multiply-add with one rounding."""
    _, *modifiers, kind = parts_of(instruction)
    mixed = _of_mixed_types(instruction, "fma", modifiers, kind)
    if mixed is not None:
        return mixed
    check_modifiers(instruction, modifiers, ROUNDINGS | {"ftz", "sat", "relu"})
    _check_type(instruction, modifiers, kind)
    if ROUNDINGS.isdisjoint(modifiers):
        raise UnknownInstruction(instruction, "needs a rounding")
    rounding = next(_ROUNDING_NAMES[each] for each in modifiers if each in ROUNDINGS)
    name = f"fma.{rounding}{_suffix(modifiers)}.{_format(kind, instruction)}"
    return _lanewise(instruction, name, kind, instruction.operands[1:])


def extremum(instruction: Instruction, context: Context) -> Step:
    """neg, abs, min and max of floating-point types; min and max of three operands apply the operation twice."""
    root, *modifiers, kind = parts_of(instruction)
    signs = modifiers[-2:] == ["xorsign", "abs"] and root in ("min", "max") and kind not in ("f64", "f32x2")
    modifiers = modifiers[:-2] if signs else modifiers
    check_modifiers(instruction, modifiers, {"ftz", "NaN"})
    _check_type(instruction, modifiers, kind)
    form = _format(kind, instruction)
    nan = ".nan" if "NaN" in modifiers else ""
    name = f"{root}{_suffix(modifiers)}{nan}.{form}"
    operands = instruction.operands[1:]
    if signs:
        return _extremum_of_magnitudes(instruction, name, kind)
    if len(operands) == 3:
        return _three_operands(instruction, name, kind)
    return _lanewise(instruction, name, kind, operands)


def _extremum_of_magnitudes(instruction: Instruction, name: str, kind: str) -> Step:
    """min and max with .xorsign.abs: the extremum of the magnitudes, with the exclusive or of the signs.

    A NaN is the canonical one: it has no sign, as PTX says for the half precisions, and as on an H100 for f32.
    """
    if len(instruction.operands) != 3:
        raise UnknownInstruction(instruction)
    form, count = _format(kind, instruction), PACKED.get(kind, (kind, 1))[1]
    destination, *sources = instruction.operands
    extreme, magnitude, is_nan = named(instruction, name), operation(f"abs.{form}"), operation(f"isnan.{form}")
    bits = extreme.bits
    top = 1 << bits - 1

    def of_elements(machine: Machine, left: Value, right: Value) -> Value:
        # The assembler evaluates an instruction on literals as a whole: no sign of a NaN is seen in between.
        magnitudes = [
            each & ~each.dtype.type(top) if isinstance(each, np.ndarray) else machine.domain.floating(magnitude, [each])
            for each in (left, right)
        ]
        found = machine.domain.floating(extreme, magnitudes)
        sign = combine(machine, "and", combine(machine, "xor", left, right, bits), literal(top, bits), bits)
        signed = combine(machine, "or", found, sign, bits)
        nan = apply_integer(machine, is_nan, [found])
        if isinstance(nan, np.ndarray):
            return blend_values(nan, found, signed)
        return machine.domain.select(nan, found, signed)

    def step(machine: Machine) -> None:
        left, right = (machine.read_bits(each, bits * count) for each in sources)
        if count == 1:
            machine.write(destination, of_elements(machine, left, right))
            return
        places = range(0, bits * count, bits)
        parts = [of_elements(machine, extract(left, low, bits), extract(right, low, bits)) for low in places]
        machine.write(destination, concat(parts))

    return step


def _three_operands(instruction: Instruction, name: str, kind: str) -> Step:
    if kind in PACKED:
        raise UnknownInstruction(instruction)
    bits, extreme = BITS[kind], named(instruction, name)
    destination, *sources = instruction.operands

    def step(machine: Machine) -> None:
        first, second, third = (machine.read_bits(each, bits) for each in sources)
        inner = machine.domain.floating(extreme, [first, second])
        machine.write(destination, machine.domain.floating(extreme, [inner, third]))

    return step


_NOT_NEGATIVE = L.NOT_NEGATIVE | L.NOT_MINUS_ZERO


@TABLE.opcode("ex2", "lg2", "rcp", "rsqrt", "sqrt", operands=DESTINATION_FIRST, effects=Effect.NONE, least=2)
@TABLE.opcode("sin", "cos", "tanh", operands=DESTINATION_FIRST, effects=Effect.NONE, least=2)
def function(instruction: Instruction, context: Context) -> Step:
    """Correctly rounded sqrt and rcp, and the approximate functions."""
    root, *modifiers, kind = parts_of(instruction)
    check_modifiers(instruction, modifiers, {"approx", "ftz"} | ROUNDINGS)
    form = _format(kind, instruction)
    operands = instruction.operands[1:]
    rounding = next((_ROUNDING_NAMES[each] for each in modifiers if each in ROUNDINGS), None)
    if rounding is not None and root in ("sqrt", "rcp"):
        _check_type(instruction, modifiers, kind)
        if form not in ("fp32", "fp64"):
            raise UnknownInstruction(instruction)
        return _lanewise(instruction, f"{root}.{rounding}{_suffix(modifiers)}.{form}", kind, operands)
    if "approx" not in modifiers:
        raise UnknownInstruction(instruction)
    name = f"{root}.approx{{}}{_suffix(modifiers)}.{form}@{context.arch.name}"
    properties = _NOT_NEGATIVE if root == "ex2" else 0
    return _approximation(instruction, context, name, operands_of(instruction, 2)[1], kind, properties)


@TABLE.opcode("testp", operands=DESTINATION_FIRST, effects=Effect.NONE, least=2)
def test_property(instruction: Instruction, context: Context) -> Step:
    """testp.{finite,infinite,number,notanumber,normal,subnormal}; a zero is normal, which IEEE 754 does not say."""
    _, prop, *modifiers, kind = parts_of(instruction, 3)
    check_modifiers(instruction, modifiers, set())
    if prop == "normal" and kind in ("f32", "f64"):
        return _normal_or_zero(instruction, FORMATS[kind])
    if prop not in _CLASSES or kind not in ("f32", "f64"):
        raise UnknownInstruction(instruction)
    return integer_step(instruction, named(instruction, f"{_CLASSES[prop]}.{FORMATS[kind]}"))


def _normal_or_zero(instruction: Instruction, form: str) -> Step:
    finite, subnormal = operation(f"isfinite.{form}"), operation(f"issubnormal.{form}")
    destination, source = operands_of(instruction, 2)

    def step(machine: Machine) -> None:
        value = machine.read_bits(source, finite.operands[0].bits)
        found = apply_integer(machine, finite, [value])
        tiny = apply_integer(machine, subnormal, [value])
        machine.write(destination, combine(machine, "and", found, invert(machine.domain, tiny), 1))

    return step


_CLASSES = {
    "finite": "isfinite",
    "infinite": "isinfinite",
    "number": "isnumber",
    "notanumber": "isnan",
    "subnormal": "issubnormal",
}
