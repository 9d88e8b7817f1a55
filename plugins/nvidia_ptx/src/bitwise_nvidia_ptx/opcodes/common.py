"""Helpers of the opcode tables: PTX types by suffix, modifier checks, steps of integer operations."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from bitwise_core.assembly.module import Instruction, Operand, Paired
from bitwise_core.execution.architecture import UnknownInstruction
from bitwise_core.execution.instruction_info import Effect
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values.packing import concat, extract
from bitwise_core.execution.values.symbolic_vector import Value
from bitwise_core.numerics import Operation

FORMATS = {"f64": "fp64", "f32": "fp32", "f16": "fp16", "bf16": "bf16", "e4m3": "e4m3", "e5m2": "e5m2", "tf32": "tf32"}
"""The vocabulary's name of each floating-point format of PTX."""

BITS = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8, "tf32": 32}

PACKED = {"f16x2": ("f16", 2), "bf16x2": ("bf16", 2), "f32x2": ("f32", 2), "e4m3x2": ("e4m3", 2), "e5m2x2": ("e5m2", 2)}
"""Packed floating-point types: the element type and the number of elements."""

INTEGERS = frozenset({*(f"{kind}{bits}" for kind in "sub" for bits in (8, 16, 32, 64)), "b128"})
"""Integer types and types of bits."""

PACKED_INTEGERS = {"u16x2": ("u16", 2), "s16x2": ("s16", 2)}
"""Packed integer types, which add, min and max support."""


_FLOATS = frozenset(
    {"f16", "f32", "f64", "bf16", "f16x2", "bf16x2", "e4m3x2", "e5m2x2", "e2m1x2", "e2m3x2", "e3m2x2", "ue8m0x2"}
)


def integer_unless_float(instruction: Instruction) -> Effect:
    """Return Effect.INTEGER unless the instruction names a floating-point type."""
    return Effect.INTEGER if _FLOATS.isdisjoint(instruction.opcode.split(".")) else Effect.NONE


def type_bits(name: str) -> int:
    """Return the width in bits of a scalar or packed PTX type.  Raises ValueError for a text that is none."""
    if name == "pred":
        return 1
    if name in BITS:
        return BITS[name]
    if name in PACKED:
        element, count = PACKED[name]
        return BITS[element] * count
    if name not in INTEGERS:
        raise ValueError(f".{name} is no type of PTX")
    return int(name[1:])


def is_integer(name: str) -> bool:
    """Return whether a type suffix is one of `INTEGERS`."""
    return name in INTEGERS


def write_pair(machine: Machine, destination: Operand, first: Value, second: Value) -> None:
    """Write both values if the destination is a pair `d|p`, else the first."""
    if isinstance(destination, Paired):
        machine.write(destination.first, first)
        machine.write(destination.second, second)
    else:
        machine.write(destination, first)


def parts_of(instruction: Instruction, least: int = 2) -> list[str]:
    """Return the parts of an opcode, its name included.  Raises UnknownInstruction if there are fewer than `least`."""
    parts = instruction.opcode.split(".")
    if len(parts) < least:
        raise UnknownInstruction(instruction, f"has {len(parts) - 1} suffixes instead of {least - 1} or more")
    return parts


def operands_of(instruction: Instruction, *counts: int) -> tuple[Operand, ...]:
    """Return the operands.  Raises UnknownInstruction if their number is not one of `counts`."""
    count = len(instruction.operands)
    if count not in counts:
        raise UnknownInstruction(instruction, f"has {count} operands instead of {' or '.join(map(str, counts))}")
    return instruction.operands


def check_kind(instruction: Instruction, kind: str, kinds: Collection[str]) -> None:
    """Raise UnknownInstruction for a type that is not in `kinds`."""
    if kind not in kinds:
        raise UnknownInstruction(instruction, f"has the type .{kind}, for which it is not defined")


def check_modifiers(instruction: Instruction, modifiers: Sequence[str], allowed: set[str]) -> None:
    """Raise UnknownInstruction for a modifier that is not in `allowed`."""
    unknown = [each for each in modifiers if each not in allowed]
    if unknown:
        raise UnknownInstruction(instruction, f"has the modifier .{unknown[0]}, which is not modelled")


def integer_step(instruction: Instruction, operation: Operation, *, packed: int = 1) -> Step:
    """Return a step that applies an integer operation to the source operands.

    Operands and result hold `packed` elements each.  Raises UnknownInstruction for another number of operands.
    """
    destination, *operands = operands_of(instruction, 1 + operation.arity)
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


DEPENDS_ON_ORDER = "an atomic operation's result depends on the order of threads"
"""Why the content after an atomic operation may not be determined."""


def name_of_update(verb: str, kind: str) -> str:
    """Return the name of the operation by which an atomic operation changes an element of a PTX type in global memory.

    An addition of f32 flushes subnormal operands and results there, whatever its modifiers.
    """
    if kind not in FORMATS:
        return f"{verb}.{kind}"
    if verb != "add":
        return f"{verb}.{FORMATS[kind]}"
    return "add.rn.ftz.atomic.fp32" if kind == "f32" else f"add.rn.{FORMATS[kind]}"
