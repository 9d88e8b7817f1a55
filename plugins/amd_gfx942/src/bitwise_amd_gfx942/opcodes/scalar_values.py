"""What scalar instructions have in common: operands of a wave, the condition code where somebody looks at it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bitwise_amd_gfx942.control_flow import condition_code_live_after
from bitwise_amd_gfx942.opcodes.forms import check_modifiers
from bitwise_amd_gfx942.opcodes.sources import is_vector, reader, writer
from bitwise_amd_gfx942.registers import broadcast_per_wave, per_wave, write_scc
from bitwise_core.assembly.module import Instruction
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.machine import Machine, Step, literal
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values.comparisons import compare_as_integers
from bitwise_core.execution.values.logic import combine
from bitwise_core.execution.values.packing import take_threads
from bitwise_core.execution.values.symbolic_vector import SymbolicVector, Value, width
from bitwise_core.numerics import operation

Condition = Callable[..., Value]
"""The condition code after an instruction, of the machine, its result and its sources."""


def scalar(
    instruction: Instruction,
    context: Context,
    kinds: Sequence[str],
    out: int,
    compute: Callable[..., Value],
    condition: Condition | None = None,
    first: int = 1,
) -> Step:
    """The step that writes `compute(machine, *sources)`, and the condition code where it is looked at again.

    Raises UnknownInstruction.
    """
    check_modifiers(instruction)
    operands = instruction.operands
    if len(operands) != first + len(kinds) or any(is_vector(each) for each in operands):
        raise UnknownInstruction(instruction, "does not take these operands")
    readers = [reader(each, kind, instruction) for each, kind in zip(operands[first:], kinds, strict=True)]
    write = writer(operands[0], out, instruction) if first else None
    read_again = condition_code_live_after(context.kernel, context.arch.opcodes)
    sets = condition if condition is not None and instruction.line in read_again else None

    def step(machine: Machine) -> None:
        values = [each(machine) for each in readers]
        result = compute(machine, *values)
        if sets is not None:
            write_scc(machine, sets(machine, result, *values))
        if write is not None:
            write(machine, result)

    return step


def integer(name: str) -> Callable[..., Value]:
    """An operation on integers by its name: on known numbers, or its term."""
    meaning = operation(name)

    def compute(machine: Machine, *values: Value) -> Value:
        return apply_integer(machine, meaning, values)

    return compute


def not_zero(machine: Machine, result: Value, *sources: Value) -> Value:
    """The condition of most logical instructions."""
    bits = width(result)
    return compare_as_integers(machine, "ne", f"b{bits}", result, literal(0, bits))


def compared(operator: str, kind: str) -> Condition:
    """The condition `first source operator second source`."""

    def condition(machine: Machine, result: Value, left: Value, right: Value) -> Value:
        return compare_as_integers(machine, operator, kind, left, right)

    return condition


def decided(name: str) -> Condition:
    """A condition that is an operation on the sources."""
    meaning = operation(name)

    def condition(machine: Machine, result: Value, *sources: Value) -> Value:
        return apply_integer(machine, meaning, sources)

    return condition


def some_lane(machine: Machine, lanes: Value) -> Value:
    """Whether a set of lanes has any of its wave's.  Raises Unsupported where that cannot be told."""
    if isinstance(lanes, np.ndarray):
        if lanes.shape[1] == 1:
            return lanes
        return broadcast_per_wave(np.any(per_wave(lanes, machine.threads), axis=2))
    known = machine.known(lanes)
    if known is not None:
        return some_lane(machine, known)
    if _one_for_all(lanes):
        return lanes
    thread = np.arange(machine.threads)[None]
    found: Value = lanes
    for distance in (1, 2, 4, 8, 16, 32):
        found = combine(machine, "or", found, take_threads(found, thread ^ distance), 1)
    return found


def _one_for_all(lanes: Value) -> bool:
    """Whether a predicate is one for all lanes."""
    return (
        isinstance(lanes, SymbolicVector)
        and lanes.words.shape[2] == 1
        and (isinstance(lanes.flags, int) or lanes.flags.shape[1] == 1)
    )
