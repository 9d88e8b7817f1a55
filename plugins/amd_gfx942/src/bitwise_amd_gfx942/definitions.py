"""Where a register's value comes from, inside a run of instructions that is entered at its top alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from bitwise_amd_gfx942.opcodes.forms import form
from bitwise_core.assembly.module import Immediate, Kernel, Modified, Operand, Vector, registers_of
from bitwise_core.execution.instruction_info import Effect, InstructionInfo

Identity: TypeAlias = tuple[object, ...]


class Definitions:
    """The definitions in a kernel's straight runs."""

    def __init__(self, kernel: Kernel, infos: Sequence[InstructionInfo]) -> None:
        self.instructions = kernel.instructions
        self.written = [info.writes for info in infos]
        heads = set(kernel.labels.values())
        self.start = []
        start = 0
        for index, info in enumerate(infos):
            if index in heads:
                start = index
            self.start.append(start)
            if info.effects & (Effect.BRANCH | Effect.END):
                start = index + 1

    def of(self, name: str, before: int) -> int:
        """The instruction that wrote a register last before another one; -1 where that is none of its run."""
        for index in range(before - 1, self.start[before] - 1, -1):
            if name in self.written[index]:
                return index
        return -1

    def identity(self, operand: Operand, before: int) -> Identity | None:
        """What tells an operand's value at an instruction from any other; None for an operand that is changed."""
        if isinstance(operand, Immediate):
            return ("constant", operand.kind, operand.value)
        if isinstance(operand, Modified):
            return None
        names = sorted(registers_of(operand)) if isinstance(operand, Vector) else list(registers_of(operand))
        return tuple((name, self.of(name, before)) for name in names)

    def source(self, operand: Operand, before: int) -> int | None:
        """The one instruction that wrote all of an operand's registers."""
        if isinstance(operand, Modified | Immediate):
            return None
        found = {self.of(name, before) for name in registers_of(operand)}
        only = found.pop() if len(found) == 1 else -1
        return only if only >= 0 else None

    def name(self, index: int) -> str:
        """The mnemonic of an instruction without its encoding; with nothing where it has modifiers."""
        found = form(self.instructions[index].opcode)
        return found.name if not found.modifiers and found.encoding in ("", "e32", "e64") else ""

    def steady(self, names: set[str], first: int, last: int) -> bool:
        """Whether none of these registers is written after `first` and before `last`."""
        return not any(names & self.written[index] for index in range(first + 1, last))
