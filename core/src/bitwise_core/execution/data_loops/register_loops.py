"""Loops that data ends and that only compute registers: each is one function of the registers with which it begins.

The variable of a register that an iteration passes on is named by the place of the register in the order of use.  So
the body is executed once, for all threads alike.  The values after the loop are terms over the body's results, the
condition under which it is repeated, and the registers before the loop.  Two loops with equal terms compute the same
function, however often they are repeated, and end for the same inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bitwise_core.execution.data_loops.loop import (
    LEVEL,
    DataLoop,
    Runner,
    carried_registers,
    is_closed,
    iterate,
    kind_of_nan,
    one_value,
)
from bitwise_core.execution.instruction_info import Effect
from bitwise_core.execution.machine import Branch, Machine
from bitwise_core.execution.program import Program
from bitwise_core.execution.program_analyses import effects_of, live_at
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Value, width
from bitwise_core.execution.values.term_hash import term

_COMPUTES = Effect.MOVE | Effect.INTEGER | Effect.BRANCH
"""Effects of instructions that only compute registers of their own thread, or branch by one."""


def run_register_loop(
    machine: Machine, program: Program, loop: DataLoop, taken: Value, runner: Callable[[], Runner]
) -> bool:
    """Set the registers after a loop whose last instruction is its branch, if it only computes registers.

    Return False and leave the state unchanged for any other loop, and for one that passes on known numbers, such as
    counters: these may end it.
    """
    if not loop.taken_repeats or machine.domain.name not in ("terms", "addresses"):
        return False
    carried = _carried(machine, program, loop)
    if carried is None:
        return False
    if machine.domain.name == "addresses":
        return _mix(machine, program, loop, carried, runner)
    before, recorder = machine.registers, machine.domain.recorder
    level = machine.extra.get(LEVEL, 0)
    variables: dict[str, Value] = {
        name: term(width(before[name]), f"variable {place} of loop {level}", [], L.INTEGER, recorder=recorder)
        for place, name in enumerate(carried)
    }
    machine.extra[LEVEL] = level + 1
    try:
        found = iterate(machine, program, loop, carried, variables, runner)
    finally:
        machine.extra[LEVEL] = level
    if found is None:
        return False
    repeats, results = found
    ends = [one_value(each) for each in results]
    operands = [one_value(repeats), *ends, *(one_value(before[name]) for name in carried)]
    live, after = live_at(program, loop.join), dict(before)
    for place, (name, value) in enumerate(zip(carried, ends, strict=True)):
        end = term(
            value.bits, f"result {place} of loop {level}", operands, kind_of_nan(value), exact=True, recorder=recorder
        )
        after[name] = machine.domain.select(taken, end, before[name])
    machine.registers = {name: value for name, value in after.items() if live(name)}
    return True


def _mix(
    machine: Machine, program: Program, loop: DataLoop, carried: Sequence[str], runner: Callable[[], Runner]
) -> bool:
    """Set the registers after a loop in a domain in which data is opaque: each depends on what the loop passes on.

    What a register depends on reaches another one in at most as many iterations as there are registers.
    """
    before = machine.registers
    for _ in range(len(carried) + 1):
        begin = machine.registers
        machine.registers = dict(begin)
        runner().start(loop.start, loop.branch)
        control = program.steps[loop.branch](machine)
        after = machine.registers
        if not isinstance(control, Branch) or control.taken is None or machine.known(control.taken) is not None:
            machine.registers = before
            return False
        mixed = {name: machine.domain.select(control.taken, after[name], begin[name]) for name in carried}
        machine.registers = {**begin, **mixed}
    return True


def _carried(machine: Machine, program: Program, loop: DataLoop) -> Sequence[str] | None:
    """Return the registers that an iteration passes on or leaves, in the order of their first use; None: no function.

    The loop must be closed, and only compute registers.
    """
    if effects_of(program, loop.body(program)) & ~_COMPUTES or not is_closed(program, loop):
        return None
    names = carried_registers(machine, program, loop)
    values = [machine.registers[name] for name in names or ()]
    if any(machine.known(each) is not None or L.lazy_integers(each) is not None for each in values):
        return None
    return names
