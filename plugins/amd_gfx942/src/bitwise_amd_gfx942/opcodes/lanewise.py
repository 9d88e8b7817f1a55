"""Vector instructions that compute each lane for itself: their sources, as encodings change them, and the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bitwise_amd_gfx942.opcodes import exchanges, selected_parts
from bitwise_amd_gfx942.opcodes.constants import BITS
from bitwise_amd_gfx942.opcodes.forms import check_modifiers, flags, form
from bitwise_amd_gfx942.opcodes.sources import Reader, half_writer, reader, writer
from bitwise_core.assembly.module import Instruction, Modified, Operand, Register
from bitwise_core.execution.architecture import UnknownInstruction
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.values.packing import extract
from bitwise_core.execution.values.symbolic_vector import Value
from bitwise_core.numerics import operation

_MODIFIERS = ("op_sel", *exchanges.MODIFIERS, *selected_parts.MODIFIERS)

Compute = Callable[..., Value]
"""A result of the machine and its operands' values."""


def lanewise(
    instruction: Instruction,
    kinds: Sequence[str],
    out: int,
    compute: Compute,
    *,
    also: Sequence[str] = (),
    keeps_high: bool = False,
    first: int = 1,
) -> Step:
    """The step that writes `compute(machine, *sources)`, `out` bits, to the first operand.

    `kinds` are the types of the sources, the operands from number `first` on.  `also` names modifiers that the caller
    has looked at.  `keeps_high` says that a result of 16 bits leaves the register's high half as it was.
    Raises UnknownInstruction.
    """
    operands = instruction.operands
    if len(operands) != first + len(kinds):
        raise UnknownInstruction(instruction, f"has {len(operands)} operands and takes {first + len(kinds)}")
    found = check_modifiers(instruction, *_MODIFIERS, *also) if "." in instruction.opcode else form(instruction.opcode)
    modifiers = found.modifiers
    if found.encoding == "sdwa":
        return selected_parts.step(instruction, kinds, out, compute, first, also)
    readers = [reader(each, kind, instruction) for each, kind in zip(operands[first:], kinds, strict=True)]
    write = half_writer(operands[0], False, instruction) if keeps_high and out == 16 else None
    if "op_sel" in modifiers:
        chosen = flags(instruction, modifiers["op_sel"], len(kinds) + 1)
        for index, high in enumerate(chosen[: len(kinds)]):
            if high:
                readers[index] = _high_half(readers[index], operands[first + index], kinds[index], instruction)
        if chosen[-1]:
            write = half_writer(operands[0], True, instruction)
            if out != 16:
                raise UnknownInstruction(instruction, "puts a result of 32 bits into half a register")
    write = write or writer(operands[0], out, instruction)
    if found.encoding.endswith("dpp"):
        return exchanges.moved(instruction, readers, write, lambda machine, values: compute(machine, *values))
    return _step(readers, write, compute)


def _step(readers: Sequence[Reader], write: Callable[[Machine, Value], None], compute: Compute) -> Step:
    if len(readers) == 1:
        (only,) = readers
        return lambda machine: write(machine, compute(machine, only(machine)))
    if len(readers) == 2:
        left, right = readers
        return lambda machine: write(machine, compute(machine, left(machine), right(machine)))
    return lambda machine: write(machine, compute(machine, *[each(machine) for each in readers]))


def _high_half(inner: Reader, operand: Operand, kind: str, instruction: Instruction) -> Reader:
    """The high half of a register as a source of 16 bits."""
    changes: tuple[str, ...] = ()
    if isinstance(operand, Modified):
        changes, operand = operand.changes, operand.operand
    if BITS[kind] != 16 or not isinstance(operand, Register):
        raise UnknownInstruction(instruction, "selects half of an operand that has none")
    whole = reader(operand, "b32", instruction)

    def read(machine: Machine) -> Value:
        return extract(whole(machine), 16, 16)

    if changes:
        raise UnknownInstruction(instruction, "selects half of an operand and changes it, which is not modelled")
    return read


def integer(name: str) -> Compute:
    """An operation on integers by its name: on known numbers, or its term."""
    meaning = operation(name)
    function = meaning.function
    assert function is not None

    def compute(machine: Machine, *values: Value) -> Value:
        for value in values:
            if type(value) is not np.ndarray:
                return apply_integer(machine, meaning, values)
        return function(*values)

    return compute
