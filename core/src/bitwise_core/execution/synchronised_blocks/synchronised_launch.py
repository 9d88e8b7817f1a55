"""Runs of a launch whose blocks synchronise with each other, in a given order of blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from bitwise_core.execution.buffers import buffers_of_bytes, formats_of_buffers, sizes_of_buffers
from bitwise_core.execution.concrete import (
    PreparedLaunch,
    lines_that_synchronise,
    machine_for,
    run_machine,
    run_until_valid,
)
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.instruction_info import Effect, InstructionInfo
from bitwise_core.execution.memory.given_contents import GivenContents
from bitwise_core.execution.memory.outputs import Output
from bitwise_core.execution.races.undetermined import Cause, Kind, UndeterminedValues
from bitwise_core.execution.synchronised_blocks.synchronised_memory import SynchronisedMemory
from bitwise_core.execution.values.symbolic_vector import Array

MAXIMUM_STEPS = 2_000_000
"""The largest number of steps of one run; there are several for each launch."""

MemoryType = TypeVar("MemoryType", bound=SynchronisedMemory)


def lines_with_infos(prepared: PreparedLaunch) -> list[tuple[int, InstructionInfo]]:
    """Return the line of each instruction that a launch may execute, with what it does."""
    return [
        (instruction.line, info)
        for program in (prepared.program, *prepared.program.functions.values())
        for instruction, info in zip(program.kernel.instructions, program.infos, strict=True)
    ]


def blocks_may_wait(prepared: PreparedLaunch) -> bool:
    """Return whether a thread may read how far other blocks have come.

    Without that, each block may run before or after any other one, whatever atomic operations they make.
    """
    programs = (prepared.program, *prepared.program.functions.values())
    infos = [info for program in programs for info in program.infos]
    opcodes = prepared.arch.opcodes
    uses: Counter[str] = Counter(name for info in infos for name in info.reads)
    for program in programs:
        for instruction, info in zip(program.kernel.instructions, program.infos, strict=True):
            if info.nondeterminism is None and info.nondeterministic_result is None and not info.acquires:
                continue
            # A guarded instruction reads the registers that it may leave unchanged, which is no use of its result.
            own = opcodes.info(replace(instruction, guard=None)).reads
            if any(uses[name] > (name in info.reads and name not in own) for name in info.writes):
                return True
    return False


def synchronising_lines(pairs: Collection[tuple[int, InstructionInfo]]) -> dict[int, tuple[bool, bool]]:
    """Return the lines whose access acquires or releases, and whether it does: (acquires, releases).

    Lines with several accesses of different kinds are left out, since an access is identified by its line.
    """
    found: dict[int, set[tuple[bool, bool]]] = {}
    for line, info in pairs:
        if info.effects.overlaps(Effect.LOAD | Effect.STORE):
            found.setdefault(line, set()).add((info.acquires, info.releases))
    alike = {line: next(iter(kinds)) for line, kinds in found.items() if len(kinds) == 1}
    return {line: kind for line, kind in alike.items() if any(kind)}


def order_decides(causes: Collection[Cause], lines: Collection[int]) -> bool:
    """Return whether a result depends on what a synchronising access of other blocks' writes finds."""
    return any(each.kind in (Kind.ARRIVAL, Kind.BLOCKS) and each.line in lines for each in causes)


def unordered_lines(pairs: Collection[tuple[int, InstructionInfo]]) -> frozenset[int]:
    """Return the lines of accesses that no synchronisation between threads orders.

    These are loads that need not see what other threads stored, and asynchronous accesses.
    """
    return frozenset(line for line, info in pairs if not info.coherent or info.effects.overlaps(Effect.ASYNCHRONOUS))


@dataclass(frozen=True, slots=True)
class SynchronisedLaunch:
    """A launch with the assumptions and the buffers of its analysis."""

    prepared: PreparedLaunch
    assume: frozenset[str]
    buffers: Mapping[str, int]

    def run(
        self,
        new_memory: Callable[[TermDomain, GivenContents], MemoryType],
        batches: Iterable[Array],
        run_batches: Callable[[MemoryType, Sequence[Callable[[], None]]], None] | None = None,
    ) -> tuple[MemoryType, frozenset[int]]:
        """Run batches of blocks in their order.  Return global memory and the compiler's scratch buffers.

        `run_batches` executes them by the functions that it is given, one for each batch; None: each once.  Raises
        Unsupported.
        """
        prepared, buffers, domain = self.prepared, self.buffers, TermDomain(self.assume)
        formats, of_bytes = formats_of_buffers(prepared.launch, buffers), buffers_of_bytes(prepared.launch, buffers)
        domain.set_formats(formats)
        undetermined, sizes = UndeterminedValues(), sizes_of_buffers(prepared.launch, buffers)
        scratch: frozenset[int] = frozenset()
        polls = lines_that_synchronise(prepared)
        order = list(batches)

        def attempt(granule: int, watched: frozenset[int]) -> MemoryType:
            nonlocal scratch
            memory = new_memory(domain, GivenContents(prepared.launch, buffers))
            memory.undetermined, memory.sizes, memory.polls = undetermined, sizes, polls
            memory.watched, memory.formats = watched, formats
            memory.program = prepared.module, prepared.kernel
            memory.of_bytes = of_bytes
            budget = [MAXIMUM_STEPS]

            def execute(batch: Array) -> None:
                nonlocal scratch
                memory.machine = machine_for(prepared, memory, buffers, batch, granule)
                run_machine(prepared, memory.machine, budget)
                scratch = frozenset(memory.machine.extra.get("scratch", ()))

            executions = [partial(execute, batch) for batch in order]
            if run_batches is not None:
                run_batches(memory, executions)
            else:
                for each in executions:
                    each()
            return memory

        return run_until_valid(prepared.arch.granule(prepared.kernel), attempt, undetermined), scratch


def equal_outputs(left: Mapping[int, Output], right: Mapping[int, Output]) -> bool:
    """Return whether two runs leave the same elements with the same contents."""
    if left.keys() != right.keys():
        return False
    columns = ("address", "size", "words")
    return all(
        np.array_equal(getattr(left[buffer], column), getattr(right[buffer], column))
        for buffer in left
        for column in columns
    )
