"""Steps that several opcode tables share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from bitwise_core.assembly.module import Instruction, Symbol
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.machine import Branch, Control, Machine, Step, invert
from bitwise_core.execution.values.symbolic_vector import Value, lazy_integers
from bitwise_core.numerics import Operation


def apply_integer(machine: Machine, operation: Operation, values: Sequence[Value]) -> Value:
    """Return the operation's result: known if all values are known in the active lanes, else the domain's term.

    The operation must have a function, that is, be an integer operation or a comparison.
    """
    function = operation.function
    assert function is not None
    if all(isinstance(value, np.ndarray) for value in values):
        return function(*values)
    known = [machine.known(value) for value in values]
    if all(each is not None for each in known):
        return function(*known)
    for value in values:
        lazy = lazy_integers(value)
        if lazy is not None:
            found = lazy.apply(values, function)
            if found is not None:
                result: Value = found
                return result
            break
    return machine.domain.integer(operation, values)


def branch(instruction: Instruction, context: Context) -> Step:
    """Return a branch to the label in the first operand, taken by the lanes in which the branch's own guard is true.

    Raises UnknownInstruction if the operand is not a label of the kernel.
    """
    target = instruction.operands[0] if instruction.operands else None
    if not isinstance(target, Symbol) or target.name not in context.kernel.labels:
        raise UnknownInstruction(instruction, "needs a label of the kernel as its first operand")
    place, guard = context.kernel.labels[target.name], instruction.guard

    def step(machine: Machine) -> Control:
        if guard is None:
            return Branch(place)
        predicate = machine.registers.get(guard.register)
        if predicate is None:
            raise Unsupported(f"the predicate {guard.register} is used before it is written", instruction.line)
        return Branch(place, invert(machine.domain, predicate) if guard.negated else predicate)

    return step


def for_each_set_of_threads(machine: Machine, act: Callable[[], None]) -> None:
    """Call `act` separately for the blocks whose active threads differ."""
    outer = machine.mask
    if outer is None or outer.shape[0] == 1:
        act()
        return
    sets = outer[outer.any(axis=1)]
    if (sets == sets[:1]).all():
        act()
        return
    try:
        for threads in np.unique(sets, axis=0):
            machine.mask = outer & (outer == threads).all(axis=1, keepdims=True)
            act()
    finally:
        machine.mask = outer


def step_with_registers(
    step: Step, names: Iterable[str], machine: Machine, replaced: Callable[[str, Value], Value]
) -> Control | None:
    """Execute a step that finds other values in some registers, which keep their contents.

    `replaced` returns the value that is found, of the name of a register and its content.
    """
    registers = machine.registers
    before = {**registers, **{name: replaced(name, registers[name]) for name in names if name in registers}}
    machine.registers = dict(before)
    try:
        return step(machine)
    finally:
        after, machine.registers = machine.registers, registers
        for name, value in after.items():
            if value is not before.get(name):
                registers[name] = value
        for name in before.keys() - after.keys():
            registers.pop(name, None)
