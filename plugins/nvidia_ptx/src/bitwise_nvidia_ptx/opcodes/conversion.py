"""cvt: conversions between integers, floats and packed floats.

Source: PTX ISA 8.7, "Data Movement and Conversion Instructions: cvt".
"""

from __future__ import annotations

import numpy as np

from bitwise_core.assembly.module import Instruction
from bitwise_core.execution.architecture import Context, OpcodeTable, UnknownInstruction, named
from bitwise_core.execution.instruction_info import DESTINATION_FIRST
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.constant_folding import open_nans
from bitwise_core.execution.values.packing import concat, extract
from bitwise_core.execution.values.symbolic_vector import Value
from bitwise_core.numerics import FLOAT_FORMATS, Operation, operation
from bitwise_nvidia_ptx.opcodes.common import (
    BITS,
    FORMATS,
    PACKED,
    check_kind,
    check_modifiers,
    integer_unless_float,
    is_integer,
    operands_of,
    parts_of,
    type_bits,
)
from bitwise_nvidia_ptx.opcodes.memory import extend, register_bits
from bitwise_nvidia_ptx.opcodes.narrow_floats import narrow_conversion

TABLE = OpcodeTable()

_TO_FLOAT = {"rn": "rn", "rz": "rz", "rm": "rd", "rp": "ru", "rna": "rna"}
_TO_INTEGER = {"rni", "rzi", "rmi", "rpi"}
_OPTIONS = {"ftz", "sat", "satfinite", "relu"}
_PRECISION_RANK = {"e4m3": 0, "e5m2": 0, "f16": 1, "bf16": 1, "tf32": 2, "f32": 2, "f64": 3}


@TABLE.opcode("cvt", operands=DESTINATION_FIRST, effects=integer_unless_float, least=2)
def convert(instruction: Instruction, context: Context) -> Step:
    """cvt.{rounding}.{ftz,sat,satfinite,relu}.destination.source; packed forms convert element by element."""
    _, *modifiers, to, source = parts_of(instruction, 3)
    if modifiers and modifiers[0] == "pack":
        return _pack(instruction, modifiers, to, source)
    narrow = narrow_conversion(instruction, modifiers, to, source)
    if narrow is not None:
        return narrow
    check_modifiers(instruction, modifiers, set(_TO_FLOAT) | _TO_INTEGER | _OPTIONS)
    _check_types(instruction, modifiers, to, source)
    rounding = next((each for each in modifiers if each in _TO_FLOAT or each in _TO_INTEGER), None)
    options = "".join(f".{each}" for each in ("ftz", "sat", "satfinite", "relu") if each in modifiers)
    if is_integer(to) and is_integer(source):
        return _integer_conversion(instruction, context, to, source, "sat" in modifiers)
    if to in PACKED:
        return _packed_conversion(instruction, to, source, rounding, options)
    return _scalar_conversion(instruction, context, to, source, rounding, options)


_WITH_RELU = {"tf32", "e4m3x2", "e5m2x2", "f16", "bf16", "f16x2", "bf16x2"}


def _check_types(instruction: Instruction, modifiers: list[str], to: str, source: str) -> None:
    """Raise UnknownInstruction for a modifier that PTX does not define for these types."""
    foreign: set[str] = set()
    if is_integer(to) and is_integer(source):
        foreign = {*_TO_FLOAT, *_TO_INTEGER, *_OPTIONS} - {"sat"}
    elif is_integer(to):
        foreign = {*_TO_FLOAT, "relu", "satfinite"}
    elif is_integer(source):
        foreign = {*_TO_INTEGER, "relu", "satfinite"}
    if "f32" not in (to, source):
        foreign.add("ftz")
    if to not in _WITH_RELU or "ftz" in modifiers:
        foreign.add("relu")
    wrong = next((each for each in modifiers if each in foreign), None)
    if wrong is not None:
        raise UnknownInstruction(instruction, f"has the modifier .{wrong}, which cvt.{to}.{source} does not have")


def _conversion(instruction: Instruction, to: str, source: str, rounding: str | None, options: str) -> Operation:
    """Return the conversion operation.  Raises UnknownInstruction if the vocabulary does not have it."""
    left, right = FORMATS.get(to, to), FORMATS.get(source, source)
    word = "" if rounding is None else f".{_TO_FLOAT.get(rounding, rounding)}"
    return named(instruction, f"convert{word}{options}.{left}.{right}")


def _scalar_conversion(
    instruction: Instruction, context: Context, to: str, source: str, rounding: str | None, options: str
) -> Step:
    """Return the step of a conversion from or to a float; a register wider than an integer result is extended."""
    if not (to in BITS or is_integer(to)) or not (source in BITS or is_integer(source)):
        raise UnknownInstruction(instruction)
    destination, operand = operands_of(instruction, 2)
    wide, bits = type_bits(source), type_bits(to)
    if to in BITS and source in BITS and _PRECISION_RANK[to] > _PRECISION_RANK[source]:
        rounding = None
    if {to, source} == {"f16", "bf16"} and rounding is None:
        rounding = "rn"  # ptxas takes the text without a rounding; an H100 rounds to nearest even.
    if to == source and to in ("f32", "f64") and rounding is None and not options:
        # An H100 moves the bits, those of a NaN included.
        return lambda machine: machine.write(destination, machine.read_bits(operand, wide))
    if (to == "f32" and is_integer(source)) or (to, source) == ("f16", "f32"):
        # Neither an integer nor the rounded f16 is flushed; an H100 does not flush the f32 operand before it rounds.
        options = options.replace(".ftz", "")
    width, to_signed = bits, to[0] == "s"
    if is_integer(to):
        # The result is clamped in any case, so that .sat has no effect.
        options = options.replace(".sat", "")
        width = register_bits(destination, context, bits)
    meaning = _conversion(instruction, to, source, rounding, options)

    def step(machine: Machine) -> None:
        value = float_conversion(machine, meaning, machine.read_bits(operand, wide))
        machine.write(destination, extend(machine, value, bits, width, to_signed))

    return step


_HIGH_HALF = operation("convert.fp32.bf16")


def float_conversion(machine: Machine, meaning: Operation, value: Value) -> Value:
    """Apply a floating-point conversion; bf16 to fp32 only moves the bits.

    Of a NaN that it knows, the assembler returns the canonical one.
    """
    if meaning is _HIGH_HALF:
        moved = concat([np.zeros((1, 1), dtype=np.uint16), value])
        if not isinstance(moved, np.ndarray) or machine.domain.name == "bits":
            return moved
        return open_nans(moved, FLOAT_FORMATS["fp32"])
    return machine.domain.floating(meaning, [value])


def _packed_conversion(instruction: Instruction, to: str, source: str, rounding: str | None, options: str) -> Step:
    element, count = PACKED[to]
    destination, *operands = operands_of(instruction, 2, 3)
    if source in PACKED:
        inner = PACKED[source][0]
        if _PRECISION_RANK[element] > _PRECISION_RANK[inner]:
            rounding = None
        meaning, width = _conversion(instruction, element, inner, rounding, options), BITS[inner]

        def unpack(machine: Machine) -> None:
            value = machine.read_bits(operands[0], width * count)
            parts = [float_conversion(machine, meaning, extract(value, width * i, width)) for i in range(count)]
            machine.write(destination, concat(parts))

        return unpack
    if len(operands) != count or source not in BITS:
        raise UnknownInstruction(instruction)
    meaning, width = _conversion(instruction, element, source, rounding, options), BITS[source]

    def pack(machine: Machine) -> None:
        parts = [float_conversion(machine, meaning, machine.read_bits(each, width)) for each in reversed(operands)]
        machine.write(destination, concat(parts))

    return pack


def _integer_conversion(instruction: Instruction, context: Context, to: str, source: str, saturates: bool) -> Step:
    """Return the step of an integer conversion; a register wider than the result is sign- or zero-extended."""
    destination, operand = operands_of(instruction, 2)
    bits, wide = type_bits(to), type_bits(source)
    width = register_bits(destination, context, bits)
    from_signed, to_signed = source[0] == "s", to[0] == "s"
    meaning = _conversion(instruction, to, source, None, ".sat" if saturates else "")
    function = meaning.function
    assert function is not None

    def converted(machine: Machine, value: Value) -> Value:
        if isinstance(value, np.ndarray):
            return function(value)
        if bits <= wide and not saturates:
            return extract(value, 0, bits)
        if not from_signed and not saturates:
            return concat([value, *_zeros(bits - wide)])
        return apply_integer(machine, meaning, [value])

    def step(machine: Machine) -> None:
        result = converted(machine, machine.read_bits(operand, wide))
        machine.write(destination, extend(machine, result, bits, width, to_signed))

    return step


def _zeros(bits: int) -> list[Value]:
    """Return zeros of a total width of `bits`, which need not be the width of a register."""
    size = bits if bits in L.UNSIGNED else 8
    return [np.zeros((1, 1), dtype=L.UNSIGNED[size]) for _ in range(bits // size)]


def _pack(instruction: Instruction, modifiers: list[str], to: str, source: str) -> Step:
    """cvt.pack.sat.{s8,u8,s16,u16}.s32{.b32}: two saturated integers, above the low bits of a third operand."""
    kind, wide = (to, source) if not source.startswith("b") else (modifiers[-1], to)
    if modifiers[:2] != ["pack", "sat"] or wide != "s32":
        raise UnknownInstruction(instruction)
    destination, high, low, *rest = operands_of(instruction, 4 if source.startswith("b") else 3)
    check_kind(instruction, kind, ("u8", "s8", "u16", "s16"))
    bits, meaning = type_bits(kind), _conversion(instruction, kind, "s32", None, ".sat")

    def step(machine: Machine) -> None:
        parts = [apply_integer(machine, meaning, [machine.read_bits(each, 32)]) for each in (low, high)]
        if rest:
            parts.append(extract(machine.read_bits(rest[0], 32), 0, 32 - 2 * bits))
        machine.write(destination, concat(parts))

    return step
