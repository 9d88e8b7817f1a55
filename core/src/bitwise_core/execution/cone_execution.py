"""The execution of the instructions of a cone (`instruction_cones`) on values of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bitwise_core.execution.instruction_cones import Cone
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.program import Program
from bitwise_core.execution.values.symbolic_vector import Value


@dataclass(frozen=True, slots=True, eq=False)
class Writes:
    """What an instruction wrote: the registers with their values, and those that are held under other names."""

    values: Mapping[str, Value]
    removed: tuple[str, ...]


def executed(
    machine: Machine,
    cone: Cone,
    program: Program,
    inputs: Sequence[Mapping[str, Value]],
    done: dict[int, Writes] | None = None,
) -> Value:
    """Return the result of the instructions of a cone on these inputs.

    `done` holds what instructions wrote that were executed on the same inputs for other cones, and is extended.
    """
    registers: dict[str, Value] = {}
    outer, line, consumed = machine.registers, machine.line, cone.consumed
    machine.registers = registers
    try:
        for index in cone.members:
            known = None if done is None else done.get(index)
            if known is not None:
                registers.update(known.values)
                for name in known.removed:
                    registers.pop(name, None)
                continue
            machine.line = program.kernel.instructions[index].line
            # Instructions outside of the cone may have written the register of an input that a member wrote before.
            for number in consumed[index]:
                for name in cone.inputs[number]:
                    registers.pop(name, None)
                registers.update(inputs[number])
            before = {} if done is None else dict(registers)
            program.steps[index](machine)
            if done is not None:
                values = {name: value for name, value in registers.items() if before.get(name) is not value}
                done[index] = Writes(values, tuple(name for name in before if name not in registers))
        return registers[cone.result]
    finally:
        machine.registers, machine.line = outer, line
