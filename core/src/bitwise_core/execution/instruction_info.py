"""What an instruction reads, writes and does, as data that is known before it is run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Flag, auto
from typing import TypeAlias

from bitwise_core.assembly.module import Address, Immediate, Instruction, Operand, Register, Symbol, registers_of


class Effect(Flag):
    """What an instruction does beside writing registers.

    MOVE and INTEGER are allowances: where one is left out, loops are only read less precisely.  Every other one is
    declared wherever it holds.
    """

    NONE = 0
    BRANCH = auto()
    """Control may continue at any label among its operands."""
    CONDITIONAL = auto()
    """Whether a branch is taken is decided by more than its guard."""
    END = auto()
    """Ends the thread, or returns from a function."""
    CALL = auto()
    """Calls the function among its operands."""
    BARRIER = auto()
    """Waits for other threads of the block."""
    LOAD = auto()
    """Reads memory."""
    STORE = auto()
    """Writes memory that other threads may read."""
    ASYNCHRONOUS = auto()
    """Copies bytes that arrive after the instruction."""
    CROSS_LANE = auto()
    """Passes values from one thread to another through registers."""
    MOVE = auto()
    """Copies its second operand to its first, bit by bit."""
    INTEGER = auto()
    """Plain integer arithmetic: the registers that it writes depend on nothing but those that it reads."""


@dataclass(frozen=True, slots=True)
class Accumulation:
    """A matrix instruction's results and the accumulators that enter it, element for element.

    `depth` is how many elements of k it adds.
    """

    results: Operand
    accumulators: Operand
    depth: int


@dataclass(frozen=True, slots=True)
class InstructionInfo:
    """What one instruction reads, writes and does.

    `reads` and `writes` are names of registers, implicit ones included.  A guarded instruction reads its guard and the
    registers that it may leave unchanged.  `accumulation` may be given for a matrix instruction; where it is left out,
    loops are only read less precisely.
    `nondeterminism` says why what the instruction leaves may depend on the order in which threads run,
    `nondeterministic_result` why the registers that it writes may, which matters where these are read; None: they do
    not.
    """

    reads: frozenset[str]
    writes: frozenset[str]
    effects: Effect
    accumulation: Accumulation | None = None
    nondeterminism: str | None = None
    nondeterministic_result: str | None = None


@dataclass(frozen=True, slots=True)
class Operands:
    """By position, the operands that an instruction writes and those that it updates, which it also reads.

    It reads all others.  The registers of an address are read wherever it stands.
    """

    writes: tuple[int, ...] = ()
    updates: tuple[int, ...] = ()

    def info(self, instruction: Instruction, effects: Effect) -> InstructionInfo:
        """What an instruction with these operands reads and writes."""
        reads: list[str] = []
        writes: list[str] = []
        for position, operand in enumerate(instruction.operands):
            # Asked of every instruction of a kernel; most operands are registers and literals.
            kind = type(operand)
            if kind is Immediate or kind is Symbol:
                continue
            names = (operand.name,) if isinstance(operand, Register) else registers_of(operand)
            if kind is Address:
                reads += names
                continue
            if position in self.writes or position in self.updates:
                writes += names
            if position not in self.writes:
                reads += names
        return InstructionInfo(frozenset(reads), frozenset(writes), effects)


DESTINATION_FIRST = Operands(writes=(0,))
"""The first operand is written, the others are read."""

UPDATED_FIRST = Operands(updates=(0,))
"""The first operand is read and written, the others are read."""

NO_DESTINATION = Operands()
"""All operands are read."""

Describe: TypeAlias = Callable[[Instruction], InstructionInfo]
Effects: TypeAlias = Effect | Callable[[Instruction], Effect]

SINK = "_"
"""The register that discards what is written to it."""


def info_from_roles(operands: Operands, effects: Effects) -> Describe:
    """What an instruction does whose operands have these roles."""
    if isinstance(effects, Effect):
        return lambda instruction: operands.info(instruction, effects)
    return lambda instruction: operands.info(instruction, effects(instruction))


def undeclared_info(instruction: Instruction) -> InstructionInfo:
    """What an instruction without a declaration may do to registers; it cannot be run."""
    names = frozenset(registers_of(*instruction.operands))
    return InstructionInfo(names, names, Effect.NONE)


def with_guard(info: InstructionInfo, instruction: Instruction) -> InstructionInfo:
    """The info with what the guard adds, and without the sink."""
    if SINK in info.writes or SINK in info.reads:
        info = replace(info, reads=info.reads - {SINK}, writes=info.writes - {SINK})
    if instruction.guard is not None:
        info = replace(info, reads=info.reads | info.writes | {instruction.guard.register})
    return info
