"""What the tables share: types by suffix, elementwise steps, cutting packed values."""

from __future__ import annotations

from collections.abc import Sequence

from bitwise_core.assembly.module import Instruction, Operand, Paired
from bitwise_core.execution.architecture import UnknownInstruction
from bitwise_core.execution.instruction_info import Effect
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values.packing import concat, extract
from bitwise_core.execution.values.symbolic_vector import Value
from bitwise_core.numerics import Operation

FORMATS = {"f64": "fp64", "f32": "fp32", "f16": "fp16", "bf16": "bf16", "e4m3": "e4m3", "e5m2": "e5m2", "tf32": "tf32"}
"""PTX's names of the floating-point formats and core's."""

BITS = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8, "tf32": 32}

PACKED = {"f16x2": ("f16", 2), "bf16x2": ("bf16", 2), "f32x2": ("f32", 2), "e4m3x2": ("e4m3", 2), "e5m2x2": ("e5m2", 2)}
"""Packed types: the element and how many of them."""

PACKED_INTEGERS = {"u16x2": ("u16", 2), "s16x2": ("s16", 2)}
"""The same of integers, which add, min and max take."""


_FLOATS = frozenset({"f16", "f32", "f64", "bf16", "f16x2", "bf16x2", "e4m3x2", "e5m2x2"})


def integer_unless_float(instruction: Instruction) -> Effect:
    """The effects of arithmetic that is plain integer arithmetic unless it names a floating-point type."""
    return Effect.INTEGER if _FLOATS.isdisjoint(instruction.opcode.split(".")) else Effect.NONE


def type_bits(name: str) -> int:
    """The width of a scalar or packed PTX type."""
    if name == "pred":
        return 1
    if name in BITS:
        return BITS[name]
    if name in PACKED:
        element, count = PACKED[name]
        return BITS[element] * count
    return int(name[1:])


def is_integer(name: str) -> bool:
    """Whether the suffix is one of s8..s64, u8..u64, b8..b64."""
    return len(name) > 1 and name[0] in "sub" and name[1:].isdigit()


def write_pair(machine: Machine, destination: Operand, first: Value, second: Value) -> None:
    """Writes both values where the destination is a pair `d|p`, else the first."""
    if isinstance(destination, Paired):
        machine.write(destination.first, first)
        machine.write(destination.second, second)
    else:
        machine.write(destination, first)


def check_modifiers(instruction: Instruction, modifiers: Sequence[str], allowed: set[str]) -> None:
    """Raises UnknownInstruction where a modifier is not one that the builder states."""
    unknown = [each for each in modifiers if each not in allowed]
    if unknown:
        raise UnknownInstruction(instruction, f"has the modifier .{unknown[0]}, which is not modelled")


def integer_step(instruction: Instruction, operation: Operation, *, packed: int = 1) -> Step:
    """A step that applies an operation on integers to the source operands.

    Operands and the result hold `packed` elements side by side.
    """
    destination, *operands = instruction.operands
    if len(operands) != operation.arity:
        raise UnknownInstruction(instruction, f"has {len(operands)} source operands instead of {operation.arity}")
    pairs = tuple(zip(operands, (form.bits for form in operation.operands), strict=True))

    def step(machine: Machine) -> None:
        values = [machine.read_bits(operand, width * packed) for operand, width in pairs]
        if packed == 1:
            machine.write(destination, apply_integer(machine, operation, values))
            return
        parts = [
            [extract(value, each * width, width) for value, (_, width) in zip(values, pairs, strict=True)]
            for each in range(packed)
        ]
        machine.write(destination, concat([apply_integer(machine, operation, part) for part in parts]))

    return step
