"""What an instruction reads, writes and does, as data that is available before execution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Flag, auto
from functools import wraps
from typing import TypeAlias, TypeVar, TypeVarTuple

from bitwise_core.assembly.module import Address, Immediate, Instruction, Operand, Register, Symbol, registers_of


class Effect(Flag):
    """What an instruction does in addition to writing registers.

    MOVE, INTEGER and LANEWISE are permissions: without them the analysis is only less precise or slower.  Every other
    effect must be declared wherever it applies.
    """

    NONE = 0
    BRANCH = auto()
    """Control may continue at any label among the operands."""
    CONDITIONAL = auto()
    """More than the guard decides whether the branch is taken."""
    END = auto()
    """Ends the thread, or returns from a function."""
    ABORT = auto()
    """Ends the launch without a result, in addition to END: no thread waits for one that executes it."""
    CALL = auto()
    """Calls the function among the operands."""
    BARRIER = auto()
    """Waits for other threads of the block."""
    LOAD = auto()
    """Reads memory."""
    STORE = auto()
    """Writes memory that other threads may read."""
    ASYNCHRONOUS = auto()
    """Copies bytes that arrive after the instruction."""
    CROSS_LANE = auto()
    """Passes values between threads through registers."""
    MOVE = auto()
    """Copies the second operand to the first, bit for bit."""
    CLUSTER = auto()
    """Accesses the shared memory of other blocks of the cluster, or waits for these blocks."""
    INTEGER = auto()
    """Pure integer arithmetic: the written registers depend only on the registers read."""
    LANEWISE = auto()
    """In each lane, the written registers depend only on the instruction and on the registers read in that lane.

    They depend on bits alone, and on nothing else in the kernel, such as a mode.
    """

    def overlaps(self, other: Effect) -> bool:
        """Return whether the two have an effect in common.  Unlike `&`, this builds no new Effect."""
        return self._value_ & other._value_ != 0


@dataclass(frozen=True, slots=True)
class Accumulation:
    """The results of a matrix instruction and the accumulators that it adds to, element for element.

    `depth` is the number of elements of k that the instruction adds.
    """

    results: Operand
    accumulators: Operand
    depth: int


@dataclass(frozen=True, slots=True)
class InstructionInfo:
    """What one instruction reads, writes and does.

    `reads` and `writes` are names of registers, including implicit ones.  A guarded instruction also reads its guard
    and the registers that it writes, since it may leave them unchanged.

    `accumulation` is optional for a matrix instruction; without it the analysis of loops is only less precise.

    `nondeterminism` is the reason why the instruction's effect may depend on the order in which threads run.
    `nondeterministic_result` is the reason why the written registers may, which matters only if they are read.  None
    means that they do not.

    `releases` and `acquires`: an access to global memory that releases what its thread has done before, and one that
    acquires what other threads have released to the same element, both in the whole device.  `coherent`: False for a
    load that may return what memory held before another thread's store, although the store is ordered before it.

    `retained` are those of `reads` that only lanes outside of the active ones keep: where all lanes are active, the
    result does not depend on them.

    `overwritten` are positions of operands that are written and not read, where all lanes are active.  Empty: unknown.
    """

    reads: frozenset[str]
    writes: frozenset[str]
    effects: Effect
    accumulation: Accumulation | None = None
    nondeterminism: str | None = None
    nondeterministic_result: str | None = None
    acquires: bool = False
    releases: bool = False
    coherent: bool = True
    retained: frozenset[str] = frozenset()
    overwritten: tuple[int, ...] = ()

    def extended(
        self,
        reads: frozenset[str] = frozenset(),
        writes: frozenset[str] = frozenset(),
        effects: Effect = Effect.NONE,
        retained: frozenset[str] = frozenset(),
        *,
        whole: bool = False,
    ) -> InstructionInfo:
        """Return this info with these reads, writes, effects and retained registers in addition.

        `whole`: results replace the registers that are written, in the active lanes.
        """
        return InstructionInfo(
            self.reads | reads,
            self.writes | writes,
            self.effects if effects is Effect.NONE else self.effects | effects,
            self.accumulation,
            self.nondeterminism,
            self.nondeterministic_result,
            self.acquires,
            self.releases,
            self.coherent,
            self.retained | retained,
            self.overwritten if whole or self.writes.isdisjoint(reads) else (),
        )


@dataclass(frozen=True, slots=True)
class Operands:
    """The operands, by position, that an instruction writes and those that it updates (reads and writes).

    It reads all other operands.  The registers of an address are always read.
    """

    writes: tuple[int, ...] = ()
    updates: tuple[int, ...] = ()

    def info(self, instruction: Instruction, effects: Effect) -> InstructionInfo:
        """Return what an instruction with these operands reads and writes."""
        reads: list[str] = []
        writes: list[str] = []
        for position, operand in enumerate(instruction.operands):
            # On the hot path: computed for every instruction of a kernel. Most operands are registers and literals.
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
        return InstructionInfo(frozenset(reads), frozenset(writes), effects, overwritten=self.writes)


DESTINATION_FIRST = Operands(writes=(0,))
"""The first operand is written, the others are read."""

UPDATED_FIRST = Operands(updates=(0,))
"""The first operand is read and written, the others are read."""

NO_DESTINATION = Operands()
"""All operands are read."""

Describe: TypeAlias = Callable[[Instruction], InstructionInfo]
Effects: TypeAlias = Effect | Callable[[Instruction], Effect]

SINK = "_"
"""The register that discards every write."""


def info_from_roles(operands: Operands, effects: Effects) -> Describe:
    """Return the function that computes an instruction's info from the roles of its operands and its effects."""
    if isinstance(effects, Effect):
        return lambda instruction: operands.info(instruction, effects)
    return lambda instruction: operands.info(instruction, effects(instruction))


def undeclared_info(instruction: Instruction) -> InstructionInfo:
    """Return a conservative info for an instruction without a declaration; such an instruction cannot be executed."""
    names = frozenset(registers_of(*instruction.operands))
    return InstructionInfo(names, names, Effect.NONE)


def with_guard(info: InstructionInfo, instruction: Instruction) -> InstructionInfo:
    """Return the info with the reads that the guard adds, and without the sink."""
    if SINK in info.writes or SINK in info.reads:
        info = replace(info, reads=info.reads - {SINK}, writes=info.writes - {SINK})
    if instruction.guard is not None:
        info = info.extended(reads=info.writes | {instruction.guard.register})
    return info


Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

_MAXIMUM_TEXTS = 1 << 14
"""How many results of one function of texts are cached."""


def once_a_text(
    function: Callable[[Instruction, InstructionInfo, *Arguments], Result],
) -> Callable[[Instruction, InstructionInfo, *Arguments], Result]:
    """Cache the results of a function of an instruction's opcode, operands, guard and info.

    Instructions that share their text, also of several kernels, share one result if they share their info
    (`OpcodeTable.recalled_info`).  The other arguments must be hashable.
    """
    cache: dict[tuple[object, ...], tuple[InstructionInfo, Instruction, Result]] = {}

    @wraps(function)
    def cached(instruction: Instruction, info: InstructionInfo, *arguments: *Arguments) -> Result:
        key = (id(info), *arguments)
        found = cache.get(key)
        if found is not None and found[0] is info:
            known = found[1]
            if (
                known.operands is instruction.operands
                and known.opcode == instruction.opcode
                and known.guard == instruction.guard
            ):
                return found[2]
        if len(cache) >= _MAXIMUM_TEXTS:
            cache.clear()
        result = function(instruction, info, *arguments)
        cache[key] = info, instruction, result
        return result

    return cached
