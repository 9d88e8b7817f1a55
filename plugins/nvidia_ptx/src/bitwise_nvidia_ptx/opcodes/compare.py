"""setp, set and selp: comparisons and selection by a predicate.

Source: PTX ISA 8.7, "Comparison and Selection Instructions".
"""

from __future__ import annotations

import numpy as np

from bitwise_core.assembly.module import Instruction, Paired
from bitwise_core.execution.architecture import Context, OpcodeTable, UnknownInstruction
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, Effect
from bitwise_core.execution.machine import Machine, Step, invert
from bitwise_core.execution.values.integers.comparisons import (
    FLOAT_COMPARISONS,
    INTEGER_COMPARISONS,
    compare_as_floats,
    compare_as_integers,
)
from bitwise_core.execution.values.logic import combine
from bitwise_core.execution.values.packing import blend_values, extract
from bitwise_core.execution.values.symbolic_vector import SymbolicVector, Value
from bitwise_nvidia_ptx.opcodes.common import (
    FORMATS,
    PACKED,
    check_kind,
    check_modifiers,
    integer_unless_float,
    is_integer,
    operands_of,
    parts_of,
    type_bits,
    write_pair,
)

TABLE = OpcodeTable()

_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
"""PTX's operators on unsigned integers, by the vocabulary's names."""
_INTEGER_OPERATORS = {
    "s": frozenset(INTEGER_COMPARISONS),
    "u": frozenset(INTEGER_COMPARISONS.keys() | _UNSIGNED.keys()),
    "b": frozenset({"eq", "ne"}),
}
"""The operators of each kind of integer type."""


def check_comparison(instruction: Instruction, operator: str, modifiers: list[str], kind: str) -> None:
    """Raise UnknownInstruction unless PTX defines the operator, and .ftz if given, for a scalar type."""
    if kind in PACKED or not (is_integer(kind) or kind in ("f16", "bf16", "f32", "f64")):
        raise UnknownInstruction(instruction)
    operators = _INTEGER_OPERATORS[kind[0]] if is_integer(kind) else FLOAT_COMPARISONS
    if operator not in operators:
        raise UnknownInstruction(instruction, f"has the operator .{operator}, which {kind} numbers do not have")
    if "ftz" in modifiers and kind not in ("f16", "f32"):
        raise UnknownInstruction(instruction, f"has the modifier .ftz, which {kind} numbers do not have")


def compare(machine: Machine, operator: str, kind: str, left: Value, right: Value, flush: bool) -> Value:
    """Return the predicate `left operator right` for a PTX type; `flush` compares subnormals as zeros."""
    if is_integer(kind):
        return compare_as_integers(machine, _UNSIGNED.get(operator, operator), kind, left, right)
    return compare_as_floats(machine, operator, FORMATS[kind], left, right, flush=flush)


@TABLE.opcode("setp", operands=DESTINATION_FIRST, effects=integer_unless_float, least=3)
@TABLE.opcode("set", operands=DESTINATION_FIRST, effects=Effect.NONE, least=3)
def set_predicate(instruction: Instruction, context: Context) -> Step:
    """setp.op{.bool}{.ftz}.type p{|q}, a, b{, c}, and set with a 32-bit result.

    q is the opposite of p before the Boolean operator.  Of f16x2 and bf16x2, p compares the low halves and q the high
    ones.
    """
    root, operator, *modifiers = parts_of(instruction, 3)
    if root == "set":
        return _set_register(instruction, operator, modifiers)
    *modifiers, kind = modifiers
    check_modifiers(instruction, modifiers, {"and", "or", "xor", "ftz"})
    halves = kind in ("f16x2", "bf16x2")
    scalar = kind.removesuffix("x2") if halves else kind
    check_comparison(instruction, operator, modifiers, scalar)
    booleans = [each for each in modifiers if each in ("and", "or", "xor")]
    if len(booleans) > 1:
        raise UnknownInstruction(instruction, "has two Boolean operators")
    boolean = booleans[0] if booleans else None
    bits, flush = type_bits(kind), "ftz" in modifiers
    destination, left, right, *rest = operands_of(instruction, 3 if boolean is None else 4)
    if halves and not isinstance(destination, Paired):
        raise UnknownInstruction(instruction, "compares two numbers, and needs two predicates")

    def step(machine: Machine) -> None:
        values = machine.read_bits(left, bits), machine.read_bits(right, bits)
        if halves:
            result, other = (
                compare(machine, operator, scalar, extract(values[0], low, 16), extract(values[1], low, 16), flush)
                for low in (0, 16)
            )
        else:
            result = compare(machine, operator, kind, *values, flush)
            other = invert(machine.domain, result) if isinstance(destination, Paired) else result
        if boolean is not None:
            third = machine.read_bits(rest[0], 1)
            result = combine(machine, boolean, result, third, 1)
            other = combine(machine, boolean, other, third, 1)
        write_pair(machine, destination, result, other)

    return step


def _set_register(instruction: Instruction, operator: str, modifiers: list[str]) -> Step:
    if len(modifiers) < 2:
        raise UnknownInstruction(instruction, "needs the types of its result and of its operands")
    *options, out, kind = modifiers
    check_modifiers(instruction, options, {"ftz"})
    if out not in ("u32", "s32", "f32"):
        raise UnknownInstruction(instruction)
    check_comparison(instruction, operator, options, kind)
    bits = type_bits(kind)
    destination, left, right = operands_of(instruction, 3)
    true = np.full((1, 1), 0x3F800000 if out == "f32" else 0xFFFFFFFF, dtype=np.uint32)
    false = np.zeros((1, 1), dtype=np.uint32)

    def step(machine: Machine) -> None:
        values = machine.read_bits(left, bits), machine.read_bits(right, bits)
        predicate = compare(machine, operator, kind, *values, "ftz" in options)
        machine.write(destination, machine.domain.select(predicate, true, false))

    return step


_SELECTED = ("f32", "f64", *(f"{letter}{bits}" for letter in "bsu" for bits in (16, 32, 64)))


@TABLE.opcode("selp", operands=DESTINATION_FIRST, effects=integer_unless_float, least=4)
def select(instruction: Instruction, context: Context) -> Step:
    """selp.type d, a, b, p."""
    _, *modifiers, kind = parts_of(instruction)
    check_modifiers(instruction, modifiers, set())
    check_kind(instruction, kind, _SELECTED)
    bits = type_bits(kind)
    destination, left, right, predicate = operands_of(instruction, 4)

    def step(machine: Machine) -> None:
        chosen = machine.read_bits(predicate, 1)
        values = machine.read_bits(left, bits), machine.read_bits(right, bits)
        known = machine.known(chosen) if isinstance(chosen, np.ndarray | SymbolicVector) else None
        if known is not None:
            machine.write(destination, blend_values(known, *values))
        else:
            machine.write(destination, machine.domain.select(chosen, *values))

    return step
