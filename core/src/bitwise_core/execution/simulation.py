"""Simulation: a launch run on bit patterns, and the bytes that it leaves in every buffer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bitwise_core.execution.concrete import (
    LANES_PER_BATCH,
    PreparedLaunch,
    checked_outputs,
    machine_for,
    run_until_valid,
)
from bitwise_core.execution.domains.bits import BitsDomain
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.executor import MAXIMUM_STEPS, Executor
from bitwise_core.execution.memory.bit_memory import BitsMemory, BufferContents, bytes_after
from bitwise_core.execution.values.symbolic_vector import Array
from bitwise_core.numerics.mma import MmaSpec

MAXIMUM_BLOCKS = 1 << 26
"""A launch of more blocks than this is not run whole."""


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The bytes of each buffer after a launch, by name, and what they rest on beyond what is established."""

    after: Mapping[str, Array]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Execution({', '.join(f'{name}: {each.size} bytes' for name, each in self.after.items())})"


def simulate(
    prepared: PreparedLaunch,
    contents: Mapping[str, Array],
    *,
    open_ended: bool = False,
    blocks: Sequence[int] | None = None,
    finite: bool = False,
) -> SimulationResult:
    """Runs the blocks of a launch (all of them by default).

    `contents` holds the bytes (uint8, one axis) of every buffer before the launch.  Where `open_ended`, a buffer goes
    on with zeros beyond them, as far as the launch reaches.  Raises Unsupported for an instruction that has no exact
    meaning here, an access out of bounds, a race, a value that is not determined, and where `finite` an infinity or a
    NaN that is made of finite numbers.
    """
    return simulate_batch(prepared, [contents], open_ended=open_ended, blocks=blocks, finite=finite)[0]


def simulate_batch(
    prepared: PreparedLaunch,
    contents: Sequence[Mapping[str, Array]],
    *,
    open_ended: bool = False,
    blocks: Sequence[int] | None = None,
    finite: bool = False,
) -> list[SimulationResult]:
    """Runs a launch on several contents at once, each of which gives every buffer the same size; see `execute`.

    Every launch leaves what it leaves alone; but what stops one stops all, all have the same notes, and an open buffer
    ends where the farthest launch does.  Raises ValueError for contents that do not fit each other.
    """
    numbers = {name: index + 1 for index, name in enumerate(sorted(contents[0]))}
    names = {number: name for name, number in numbers.items()}
    before = [{numbers[name]: each for name, each in one.items()} for one in contents]
    buffers = BufferContents(before)
    if blocks is None and prepared.launch.blocks > MAXIMUM_BLOCKS:
        raise Unsupported(f"a launch of more than {MAXIMUM_BLOCKS} blocks is not run here")
    chosen = np.arange(prepared.launch.blocks) if blocks is None else np.asarray(sorted(blocks))
    # One block of all launches beside each other: whatever the inputs do not decide is then one number for all.
    of_all = (chosen[:, None] + np.arange(len(contents)) * prepared.launch.blocks).reshape(-1)
    domain = _domain(prepared, buffers, finite)

    def attempt(granule: int, watched: frozenset[int]) -> BitsMemory:
        nonlocal domain
        domain = _domain(prepared, buffers, finite)
        memory = BitsMemory(domain, buffers, names, open_ended)
        memory.watched = watched
        _run(prepared, memory, numbers, of_all, granule)
        return memory

    memory = run_until_valid(prepared.arch.granule(prepared.kernel), attempt)
    memory.merge_float_extrema()
    checked_outputs(memory, memory.scratch)
    notes = tuple(domain.notes)
    return [
        SimulationResult({names[number]: each for number, each in one.items()}, tuple(notes))
        for one in bytes_after(memory, before)
    ]


def matrix_units(prepared: PreparedLaunch) -> Mapping[str, MmaSpec]:
    """The rows of the architecture's matrix units, by name: that of a fused step, in one word."""
    known = prepared.arch.bits
    return {} if known is None else {each.name: each for each in known.matrix_units}


def _domain(prepared: PreparedLaunch, buffers: BufferContents, finite: bool) -> BitsDomain:
    known = prepared.arch.bits
    if known is None:
        raise Unsupported(f"kernels of {prepared.arch.name} are not run on bit patterns")
    return BitsDomain(buffers, known.functions, matrix_units(prepared), finite=finite)


def _run(prepared: PreparedLaunch, memory: BitsMemory, numbers: Mapping[str, int], blocks: Array, granule: int) -> None:
    per_batch = max(1, LANES_PER_BATCH // prepared.threads)
    budget = [MAXIMUM_STEPS]
    for start in range(0, len(blocks), per_batch):
        batch = blocks[start : start + per_batch]
        machine = machine_for(prepared, memory, numbers, batch, granule)
        memory.scratch = frozenset(machine.extra.get("scratch", ()))
        memory.launch = None if memory.buffers.launches == 1 else batch[:, None] // prepared.launch.blocks
        Executor(prepared.program, machine, budget).start()
