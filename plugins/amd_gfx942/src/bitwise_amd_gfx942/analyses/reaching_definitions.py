"""Reaching definitions within basic blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from bitwise_amd_gfx942.opcodes.forms import form
from bitwise_core.assembly.module import Immediate, Kernel, Modified, Operand, Vector, registers_of
from bitwise_core.execution.instruction_info import Effect, InstructionInfo

Identity: TypeAlias = tuple[object, ...]

_CONTROL_TRANSFER = Effect.BRANCH | Effect.END


class ReachingDefinitions:
    """The definitions of a kernel that reach a use in the same basic block."""

    def __init__(self, kernel: Kernel, infos: Sequence[InstructionInfo]) -> None:
        self.instructions = kernel.instructions
        self.written = [info.writes for info in infos]
        leaders = set(kernel.labels.values())
        self.start = []
        start = 0
        for index, info in enumerate(infos):
            if index in leaders:
                start = index
            self.start.append(start)
            if info.effects.overlaps(_CONTROL_TRANSFER):
                start = index + 1

    def defining_instruction(self, name: str, before: int) -> int:
        """The index of the last write of a register before the instruction `before`; -1 if it is in another block."""
        for index in range(before - 1, self.start[before] - 1, -1):
            if name in self.written[index]:
                return index
        return -1

    def value_identity(self, operand: Operand, before: int) -> Identity | None:
        """A key of an operand's value: equal keys in a block mean equal values.  None for a modified operand."""
        if isinstance(operand, Immediate):
            return ("constant", operand.kind, operand.value)
        if isinstance(operand, Modified):
            return None
        names = sorted(registers_of(operand)) if isinstance(operand, Vector) else list(registers_of(operand))
        return tuple((name, self.defining_instruction(name, before)) for name in names)

    def single_definition(self, operand: Operand, before: int) -> int | None:
        """The index of the one instruction that defines all registers of an operand; None if there are several."""
        if isinstance(operand, Modified | Immediate):
            return None
        found = {self.defining_instruction(name, before) for name in registers_of(operand)}
        only = found.pop() if len(found) == 1 else -1
        return only if only >= 0 else None

    def mnemonic(self, index: int) -> str:
        """The mnemonic of an instruction without its encoding suffix; empty if it has modifiers."""
        found = form(self.instructions[index].opcode)
        return found.name if not found.modifiers and found.encoding in ("", "e32", "e64") else ""

    def unwritten_between(self, names: set[str], first: int, last: int) -> bool:
        """Whether none of these registers is written after instruction `first` and before instruction `last`."""
        return not any(names & self.written[index] for index in range(first + 1, last))
