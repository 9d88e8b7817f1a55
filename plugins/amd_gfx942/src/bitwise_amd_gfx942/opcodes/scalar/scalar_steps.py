"""Steps of scalar instructions: sources, result, and the condition code where it is read later."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bitwise_amd_gfx942.analyses.control_flow import condition_code_live_after
from bitwise_amd_gfx942.opcodes.forms import check_modifiers
from bitwise_amd_gfx942.opcodes.operands.operand_access import is_vector, reader, writer
from bitwise_amd_gfx942.registers import broadcast_per_wave, lowest_lane, per_wave, write_scc
from bitwise_core.assembly.module import Instruction
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.machine import Machine, Step, literal
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values.integers.comparisons import compare_as_integers
from bitwise_core.execution.values.lane_selection import take_threads
from bitwise_core.execution.values.logic import combine
from bitwise_core.execution.values.symbolic_vector import SymbolicVector, Value, constant_mask, width
from bitwise_core.numerics import operation

Condition = Callable[..., Value]
"""The condition code after an instruction, given the machine, the result and the sources."""


def scalar_step(
    instruction: Instruction,
    context: Context,
    kinds: Sequence[str],
    result_bits: int,
    compute: Callable[..., Value],
    condition: Condition | None = None,
    first: int = 1,
) -> Step:
    """The step that writes `compute(machine, *sources)`, and the condition code where a later instruction reads it.

    `kinds` are the types of the sources, which are the operands from position `first` on.  With `first` = 0 there is no
    destination.  Raises UnknownInstruction.
    """
    check_modifiers(instruction)
    operands = instruction.operands
    if len(operands) != first + len(kinds) or any(is_vector(each) for each in operands):
        raise UnknownInstruction(instruction, "does not take these operands")
    readers = [reader(each, kind, instruction) for each, kind in zip(operands[first:], kinds, strict=True)]
    write = writer(operands[0], result_bits, instruction) if first else None
    live = condition_code_live_after(context.kernel, context.arch.opcodes)
    live_condition = condition if condition is not None and instruction.line in live else None

    def step(machine: Machine) -> None:
        values = [each(machine) for each in readers]
        result = compute(machine, *values)
        if live_condition is not None:
            write_scc(machine, live_condition(machine, result, *values))
        if write is not None:
            write(machine, result)

    return step


def is_nonzero(machine: Machine, result: Value, *sources: Value) -> Value:
    """The condition `result != 0`, which most logical instructions set."""
    bits = width(result)
    return compare_as_integers(machine, "ne", f"b{bits}", result, literal(0, bits))


def source_comparison(operator: str, kind: str) -> Condition:
    """The condition that compares the first source with the second."""

    def condition(machine: Machine, result: Value, left: Value, right: Value) -> Value:
        return compare_as_integers(machine, operator, kind, left, right)

    return condition


def source_operation(name: str) -> Condition:
    """The condition that is an operation, given by its name, on the sources."""
    meaning = operation(name)

    def condition(machine: Machine, result: Value, *sources: Value) -> Value:
        return apply_integer(machine, meaning, sources)

    return condition


def any_lane(machine: Machine, lanes: Value) -> Value:
    """Whether a lane mask has any lane set in the wave, for each wave."""
    if isinstance(lanes, np.ndarray):
        if lanes.shape[1] == 1:
            return lanes
        return broadcast_per_wave(np.any(per_wave(lanes, machine.threads), axis=2))
    known = machine.known(lanes)
    if known is not None:
        return any_lane(machine, known)
    if _is_uniform(lanes):
        return lanes
    one = _only_unknown_lane(machine, lanes)
    if one is not None:
        return one
    thread = np.arange(machine.threads)[None]
    found: Value = lanes
    for distance in (1, 2, 4, 8, 16, 32):
        found = combine(machine, "or", found, take_threads(found, thread ^ distance), 1)
    return found


def _only_unknown_lane(machine: Machine, lanes: Value) -> Value | None:
    """A predicate of which each wave has one value beside lanes that are known to be false, as this value for the wave.

    None for any other predicate.
    """
    if type(lanes) is not SymbolicVector:
        return None
    shape = lanes.words.shape[1], machine.threads
    known = np.broadcast_to(constant_mask(lanes), shape)
    if (known & (lanes.words[0] != 0)).any():
        return None
    first = lowest_lane(~known, machine.threads)
    found = take_threads(lanes, first)
    assert isinstance(found, SymbolicVector)
    same = (found.words == lanes.words).all(axis=0) & np.equal(found.flags, lanes.flags)
    return found if (same | known).all() else None


def _is_uniform(lanes: Value) -> bool:
    """Whether a predicate has one value for all lanes."""
    return (
        isinstance(lanes, SymbolicVector)
        and lanes.words.shape[2] == 1
        and (isinstance(lanes.flags, int) or lanes.flags.shape[1] == 1)
    )
