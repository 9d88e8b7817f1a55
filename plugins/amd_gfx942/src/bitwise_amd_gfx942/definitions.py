"""Where a register's value comes from, inside a run of instructions that is entered at its top alone."""

from __future__ import annotations

from typing import TypeAlias

from bitwise_amd_gfx942.opcodes.forms import form
from bitwise_core.asm import Immediate, Instruction, Kernel, Modified, Operand, Vector, registers_of

Identity: TypeAlias = tuple[object, ...]

_NO_RESULT = (
    "s_cmp", "s_cbranch", "s_branch", "s_waitcnt", "s_nop", "s_barrier", "s_set", "s_bitcmp", "ds_write", "s_endpgm",
)  # fmt: skip
_TWO_RESULTS = ("v_div_scale", "v_mad_u64", "v_mad_i64", "v_swap")


def results(instruction: Instruction) -> int:
    """How many of an instruction's operands, from the first on, it may write."""
    name = form(instruction.opcode).name
    if name.startswith(_NO_RESULT) or "_store_" in name or not instruction.operands:
        return 0
    return 2 if name.startswith(_TWO_RESULTS) or "_co_" in name else 1


def written(instruction: Instruction) -> set[str]:
    """The registers that an instruction may write, of those it names."""
    name = form(instruction.opcode).name
    found = registers_of(*instruction.operands[: results(instruction)])
    if "saveexec" in name or name.startswith("v_cmpx"):
        found |= {"exec_lo", "exec_hi"}
    return found


class Definitions:
    """The definitions in a kernel's straight runs."""

    def __init__(self, kernel: Kernel) -> None:
        self.instructions = kernel.instructions
        self.written = [written(each) for each in kernel.instructions]
        heads = set(kernel.labels.values())
        self.start = []
        start = 0
        for index, each in enumerate(kernel.instructions):
            if index in heads:
                start = index
            self.start.append(start)
            if each.opcode.startswith(("s_cbranch", "s_branch", "s_endpgm", "s_swappc", "s_setpc")):
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
