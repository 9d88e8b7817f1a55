"""Who acts: vector instructions act in the lanes of the execution mask, scalar ones in every wave that runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from bitwise_amd_gfx942.opcodes.forms import form
from bitwise_amd_gfx942.opcodes.implicit import EXECUTION_MASK
from bitwise_amd_gfx942.opcodes.selections import Choice, choices_of, remember
from bitwise_amd_gfx942.registers import EVERYONE, EXEC
from bitwise_amd_gfx942.sets import alike, apart, inside, other_set, whole_of
from bitwise_core.assembly.module import Instruction, Operand, registers_of
from bitwise_core.execution.architecture import Builder, Context, OpcodeTable
from bitwise_core.execution.instruction_info import Describe, Effect, InstructionInfo, Operands, info_from_roles
from bitwise_core.execution.machine import Control, Machine, Step, conjunction
from bitwise_core.execution.program import merge_local
from bitwise_core.execution.values.packing import blend_values
from bitwise_core.execution.values.symbolic_vector import Array, Value, width
from bitwise_core.execution.values.term_hash import poison


def acting(machine: Machine) -> Array | None:
    """The lanes in which a vector instruction acts, as `Machine.mask`, where the execution mask is known.

    Raises TypeError where it depends on data.
    """
    lanes = machine.registers[EXEC]
    if not isinstance(lanes, np.ndarray):
        known = machine.known(lanes)
        if known is None:
            raise TypeError
        lanes = known
    if lanes is EVERYONE:
        return machine.mask
    if machine.mask is None:
        return lanes
    cached = machine.extra.get("acting")
    if cached is not None and cached[0] is lanes and cached[1] is machine.mask:
        found: Array = cached[2]
        return found
    found = lanes & machine.mask
    machine.extra["acting"] = (lanes, machine.mask, found)
    return found


def in_active_lanes(step: Step, operands: Sequence[Operand] = ()) -> Step:
    """The step in the lanes of the execution mask; nothing where that is empty.  `operands` are those it reads."""

    def run(machine: Machine) -> Control | None:
        lanes = machine.registers[EXEC]
        if lanes is EVERYONE:
            return step(machine)
        try:
            mask = acting(machine)
        except TypeError:
            return _under_condition(machine, step, operands)
        if mask is not None and not mask.any():
            return None
        outer = machine.mask
        machine.mask = mask
        try:
            return step(machine)
        finally:
            machine.mask = outer

    return run


def _under_condition(machine: Machine, step: Step, operands: Sequence[Operand]) -> Control | None:
    """The step where the execution mask depends on data: each lane keeps what it had where its bit is not set."""
    lanes = machine.registers[EXEC]
    before, local = dict(machine.registers), dict(machine.local)
    seen = _seen(machine, lanes, operands)
    machine.registers.update(seen)
    outer = machine.condition
    machine.condition = conjunction(machine.domain, outer, lanes)
    try:
        control = step(machine)
    finally:
        machine.condition = outer
    for name, value in machine.registers.items():
        old = before.get(name)
        if old is None or (old is not value and value is not seen.get(name)):
            machine.registers[name] = kept_elsewhere(machine, lanes, value, old)
        elif old is not value:
            machine.registers[name] = old
    merge_local(machine, lanes, machine.local, local)
    return control


def _seen(machine: Machine, lanes: Value, operands: Sequence[Operand]) -> dict[str, Value]:
    """Registers as the lanes of a set see them where earlier choices were made in one way for all of these."""
    found = {}
    for name in registers_of(*operands):
        value = machine.registers.get(name)
        seen = None if value is None else _seen_value(machine, lanes, value)
        if seen is not None and seen is not value:
            found[name] = seen
    return found


def _seen_value(machine: Machine, lanes: Value, value: Value) -> Value:
    for predicate, if_true, if_false in choices_of(machine, value):
        if inside(machine, lanes, predicate):
            return _seen_value(machine, lanes, if_true)
        if apart(machine, predicate, lanes):
            return _seen_value(machine, lanes, if_false)
    return value


def values_seen(
    machine: Machine, readers: Sequence[Callable[[Machine], Value]], operands: Sequence[Operand]
) -> list[Value]:
    """What operands give to an instruction that acts in the lanes of the execution mask and sees to that itself."""
    lanes = machine.registers[EXEC]
    if isinstance(lanes, np.ndarray):
        return [each(machine) for each in readers]
    seen = _seen(machine, lanes, operands)
    before = {name: machine.registers[name] for name in seen}
    machine.registers.update(seen)
    try:
        return [each(machine) for each in readers]
    finally:
        machine.registers.update(before)


def kept_elsewhere(machine: Machine, lanes: Value, value: Value, old: Value | None) -> Value:
    """A register after a write in the lanes of a set that depends on data.

    Where it was written in the other lanes of a whole before, what it held earlier is no part of it inside the whole.
    """
    if old is None or width(old) != width(value):
        old = poison(width(value))
    old = next((each[2] for each in choices_of(machine, old) if alike(each[0], lanes)), old)
    others: tuple[Choice, ...] = ()
    rest, result = other_set(machine, lanes), None
    for predicate, if_true, if_false in choices_of(machine, old):
        if alike(predicate, rest):
            result = machine.domain.select(lanes, value, if_true)
            break
        whole = whole_of(machine, predicate, lanes)
        if whole is not None:
            inner = machine.domain.select(lanes, value, if_true)
            if isinstance(whole, np.ndarray):
                result = inner if whole.all() else blend_values(whole, inner, if_false)
            else:
                result = kept_elsewhere(machine, whole, inner, if_false)
                others = choices_of(machine, result)
            break
    if result is None:
        result = machine.domain.select(lanes, value, old)
    remember(machine, result, lanes, value, old, others)
    return result


def vector(
    table: OpcodeTable, *names: str, operands: Operands | Describe, effects: Effect = Effect.NONE
) -> Callable[[Builder], Builder]:
    """Declares instructions whose steps act in the lanes of the execution mask; see `OpcodeTable.opcode`.

    They read the mask, and the registers that they leave as they were in other lanes.
    """
    inner = info_from_roles(operands, effects) if isinstance(operands, Operands) else operands

    def describe(instruction: Instruction) -> InstructionInfo:
        info = inner(instruction)
        exchanges = Effect.CROSS_LANE if form(instruction.opcode).encoding.endswith("dpp") else Effect.NONE
        return replace(info, reads=info.reads | info.writes | EXECUTION_MASK, effects=info.effects | exchanges)

    def register(builder: Builder) -> Builder:
        def build(instruction: Instruction, context: Context) -> Step:
            return in_active_lanes(builder(instruction, context), instruction.operands)

        table.opcode(*names, operands=describe)(build)
        return builder

    return register
