"""Loops that data ends and that only compute registers: each is one function of the registers with which it begins.

The body is executed once for variables in the place of the registers that an iteration passes on to the next.  The
values after the loop are terms over the body's results, the condition under which it is repeated, and the registers
before the loop.  Two loops with equal terms compute the same function, however often they are repeated, and end for the
same inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from bitwise_core.assembly.module import registers_of
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.instruction_info import Effect
from bitwise_core.execution.machine import Branch, Machine
from bitwise_core.execution.program import Program
from bitwise_core.execution.program_analyses import effects_of, live_at, region
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import SymbolicVector, Value, width
from bitwise_core.execution.values.term_hash import nan_bits, term

_COMPUTES = Effect.MOVE | Effect.INTEGER | Effect.BRANCH
"""Effects of instructions that only compute registers of their own thread, or branch by one."""

LEVEL = "levels of loops"
"""The key of `Machine.extra` for how many loops the current one is inside of."""


class Runner(Protocol):
    """Runs instructions."""

    def start(self, pc: int = 0, stop: int | None = None) -> None:
        """Run from `pc` to `stop`."""


def run_as_function(
    machine: Machine,
    program: Program,
    branch: int,
    target: int,
    join: int,
    taken: Value,
    runner: Callable[[], Runner],
) -> bool:
    """Set the registers after a loop whose last instruction is a branch on data back to `target`, if it is a function.

    Return False and leave the state unchanged for any other loop, and for one that passes on known numbers, such as
    counters: these may end it.
    """
    if target > branch or join != branch + 1 or machine.domain.name not in ("terms", "addresses"):
        return False
    carried = _carried(machine, program, branch, target, join)
    if carried is None:
        return False
    if machine.domain.name == "addresses":
        return _mix(machine, program, branch, target, carried, runner)
    before, local, condition, mask = machine.registers, machine.local, machine.condition, machine.mask
    level = machine.extra.get(LEVEL, 0)
    widths = [width(before[name]) for name in carried]
    variables = [
        term(bits, f"variable {place} of loop {level}", [], L.INTEGER, recorder=machine.domain.recorder)
        for place, bits in enumerate(widths)
    ]
    machine.registers = {**before, **dict(zip(carried, variables, strict=True))}
    machine.extra[LEVEL] = level + 1
    try:
        runner().start(target, branch)
        control = program.steps[branch](machine)
        after = machine.registers
    finally:
        machine.extra[LEVEL] = level
        machine.registers, machine.local, machine.condition, machine.mask = before, local, condition, mask
    if not isinstance(control, Branch) or control.taken is None:
        return False
    results = [after.get(name) for name in carried]
    if any(each is None or width(each) != bits for each, bits in zip(results, widths, strict=True)):
        return False
    ends = [one_value(each) for each in results if each is not None]
    body = [one_value(control.taken), *ends]
    begin = [one_value(before[name]) for name in carried]
    live = live_at(program, join)
    found = dict(before)
    for place, (name, value) in enumerate(zip(carried, ends, strict=True)):
        tag, recorder = f"result {place} of loop {level}", machine.domain.recorder
        end = term(value.bits, tag, [*body, *begin], kind_of_nan(value), exact=True, recorder=recorder)
        found[name] = machine.domain.select(taken, end, before[name])
    machine.registers = {name: value for name, value in found.items() if live(name)}
    return True


def condition_after(
    machine: Machine, program: Program, branch: int, target: int, join: int, iterations: int
) -> Value | None:
    """Return the condition of a loop after further iterations; None if it may be a number in one of them.

    The last instruction of the loop is a branch on data back to `target`.  Only what decides the condition is executed,
    which must be integers that the loop computes without a further branch.
    """
    if target > branch or join != branch + 1 or machine.domain.name != "terms":
        return None
    infos = program.infos
    needed, chosen, grows = set(infos[branch].reads), set[int](), True
    while grows:
        found = {index for index in range(target, branch) if not needed.isdisjoint(infos[index].writes)}
        grows = found != chosen
        chosen = found
        needed.update(*(infos[index].reads for index in chosen))
    if effects_of(program, frozenset(chosen)) & ~(Effect.MOVE | Effect.INTEGER) or any(
        program.following[index] != (index + 1,) for index in range(target, branch)
    ):
        return None
    before, taken = machine.registers, None
    machine.registers = dict(before)
    try:
        for _ in range(iterations):
            for index in sorted(chosen):
                program.steps[index](machine)
            control = program.steps[branch](machine)
            taken = control.taken if isinstance(control, Branch) else None
            if not isinstance(taken, SymbolicVector) or L.lazy_integers(taken) is not None:
                return None
            if L.constant_mask(taken) is not False:
                return None
    except Unsupported:
        return None
    finally:
        machine.registers = before
    return taken


def _mix(
    machine: Machine, program: Program, branch: int, target: int, carried: Sequence[str], runner: Callable[[], Runner]
) -> bool:
    """Set the registers after a loop in a domain in which data is opaque: each depends on what the loop passes on.

    What a register depends on reaches another one in at most as many iterations as there are registers.
    """
    before = machine.registers
    for _ in range(len(carried) + 1):
        begin = machine.registers
        machine.registers = dict(begin)
        runner().start(target, branch)
        control = program.steps[branch](machine)
        after = machine.registers
        if not isinstance(control, Branch) or control.taken is None or machine.known(control.taken) is not None:
            machine.registers = before
            return False
        mixed = {name: machine.domain.select(control.taken, after[name], begin[name]) for name in carried}
        machine.registers = {**begin, **mixed}
    return True


def _carried(machine: Machine, program: Program, branch: int, target: int, join: int) -> Sequence[str] | None:
    """Return the registers that an iteration passes on or leaves, in the order of their first use; None: no function.

    The loop must be closed, and only compute registers.
    """
    body = region(program, branch, join)
    if effects_of(program, body) & ~_COMPUTES or not is_closed(program, branch, target, join):
        return None
    names = carried_registers(machine, program, branch, target, join)
    values = [machine.registers[name] for name in names or ()]
    if any(machine.known(each) is not None or L.lazy_integers(each) is not None for each in values):
        return None
    return names


def is_closed(program: Program, branch: int, target: int, join: int) -> bool:
    """Return whether a loop is entered at `target` and left at `branch` only."""
    body = region(program, branch, join)
    if target not in body or branch not in body:
        return False
    return not any(join in program.following[index] for index in body if index != branch)


def carried_registers(machine: Machine, program: Program, branch: int, target: int, join: int) -> Sequence[str] | None:
    """Return the registers that an iteration passes on or leaves, in the order of their first use.

    None where one of them has no value before the loop.
    """
    body = region(program, branch, join)
    written = frozenset().union(*(program.infos[index].writes for index in body))
    at_target, at_join = live_at(program, target), live_at(program, join)
    found: list[str] = []
    for index in sorted(body):
        info = program.infos[index]
        for name in (*_in_order(program, index, info.reads), *_in_order(program, index, info.writes)):
            if name in written and name not in found and (at_target(name) or at_join(name)):
                found.append(name)
    return found if all(name in machine.registers for name in found) else None


def _in_order(program: Program, index: int, names: frozenset[str]) -> list[str]:
    """Return the names in the order of the instruction's operands; others follow by name."""
    order = list(registers_of(*program.kernel.instructions[index].operands))
    return sorted(names, key=lambda name: (order.index(name) if name in order else len(order), name))


def kind_of_nan(end: SymbolicVector) -> L.Flags:
    """Return the flags of what is known of a NaN that an iteration leaves: whether it is canonical."""
    mark = end.flags & L.NAN_MARK
    moved = np.logical_or(np.equal(mark, 0), (nan_bits(end) & L.UNSPECIFIED_NAN) != 0)
    return L.uniform_flags(np.asarray(mark, dtype=np.uint32) | np.where(moved, np.uint32(L.INTEGER), np.uint32(0)))


def one_value(value: Value) -> SymbolicVector:
    """Return a register as one value.  Raises Unsupported for many narrow values."""
    if isinstance(value, L.PackedVector) and len(value.parts) > 8:
        raise Unsupported("a loop that data ends passes on many narrow values in one register")
    return as_symbolic_vector(value)
