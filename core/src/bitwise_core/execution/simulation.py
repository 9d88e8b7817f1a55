"""Simulation: execution of a launch on bit patterns, and the bytes of every buffer after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bitwise_core.execution.concrete import (
    PreparedLaunch,
    check_outputs,
    machine_for,
    run_machine,
    run_until_valid,
)
from bitwise_core.execution.domains.bits import BitsDomain
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.executor import MAXIMUM_STEPS
from bitwise_core.execution.launch import ManifestError
from bitwise_core.execution.memory.bit_memory import BitsMemory, BufferContents, bytes_after
from bitwise_core.execution.memory.given_contents import placed_pointers
from bitwise_core.execution.values.symbolic_vector import Array
from bitwise_core.numerics.mma import MatrixUnit

MAXIMUM_BLOCKS = 1 << 26
"""The largest number of blocks of a launch that is simulated as a whole."""


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The bytes of each buffer after a launch, by name, and notes on the assumptions behind them."""

    after: Mapping[str, Array]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"SimulationResult({', '.join(f'{name}: {each.size} bytes' for name, each in self.after.items())})"


def simulate(
    prepared: PreparedLaunch,
    contents: Mapping[str, Array],
    *,
    open_ended: bool = False,
    blocks: Sequence[int] | None = None,
    finite: bool = False,
) -> SimulationResult:
    """Run the blocks of a launch (default: all).

    `contents` holds the bytes (uint8, one axis) of every buffer before the launch; those that the launch gives may be
    omitted.  If `open_ended`, every other buffer continues with zeros beyond its content, as far as the launch accesses
    it.  Raises ManifestError for other contents than the launch gives.  Raises Unsupported for an instruction without
    exact semantics here, an access out of bounds, a race or a nondeterministic value, and if `finite` for an infinity
    or a NaN that is made from finite numbers.
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
    """Run a launch on several contents at once, each of which gives every buffer the same size; see `simulate`.

    The result of each launch is the same as that of `simulate` on it alone, with three exceptions: an error in one
    raises for all, all have the same notes, and an open-ended buffer ends at the largest extent of any launch.  Raises
    ValueError if the sizes of the contents differ.
    """
    given = prepared.launch.given()
    contents = [{**{name: each.patterns for name, each in given.items()}, **one} for one in contents]
    numbers = {name: index + 1 for index, name in enumerate(sorted(contents[0]))}
    names = {number: name for name, number in numbers.items()}
    for name, tensor in given.items():
        if any(one[name].tobytes() != tensor.data for one in contents):
            raise ManifestError(f"the launch gives the contents of {name}, and it is run on others; run it on those")
    before = [{numbers[name]: each for name, each in one.items()} for one in contents]
    pointers = placed_pointers(given, numbers)
    buffers = BufferContents([{**one, **pointers} for one in before])
    closed = frozenset(numbers[name] for name in given)
    if blocks is None and prepared.launch.blocks > MAXIMUM_BLOCKS:
        raise Unsupported(f"a launch of more than {MAXIMUM_BLOCKS} blocks is not simulated")
    # The copies of a block in all launches are adjacent, so that values independent of the inputs are uniform.  The
    # blocks of a cluster are adjacent if they depend on each other.
    together = prepared.clusters.size if prepared.blocks_interact else 1
    chosen = prepared.chosen_blocks(blocks).reshape(-1, 1, together)
    copies = np.arange(len(contents))[:, None] * prepared.launch.blocks
    block_numbers = (chosen + copies).reshape(-1)
    domain = bits_domain(prepared, buffers, finite)

    def attempt(granule: int, watched: frozenset[int]) -> BitsMemory:
        nonlocal domain
        domain = bits_domain(prepared, buffers, finite)
        memory = BitsMemory(domain, buffers, names, open_ended, closed)
        memory.watched = watched
        _run(prepared, memory, numbers, block_numbers, granule)
        return memory

    memory = run_until_valid(prepared.arch.granule(prepared.kernel), attempt)
    memory.merge_float_extrema()
    check_outputs(memory, memory.scratch)
    notes = (*domain.notes, *sorted(prepared.used))
    return [
        SimulationResult({names[number]: each for number, each in one.items()}, tuple(notes))
        for one in bytes_after(memory, before)
    ]


def matrix_units(prepared: PreparedLaunch) -> Mapping[str, MatrixUnit]:
    """Return the rows of the architecture's matrix units by name: a fused step's name with underscores for spaces."""
    support = prepared.arch.bits
    return {} if support is None else support.units


def bits_domain(prepared: PreparedLaunch, buffers: BufferContents, finite: bool) -> BitsDomain:
    """Return the domain of bit patterns of an architecture.  Raises Unsupported where it has none."""
    support = prepared.arch.bits
    if support is None:
        raise Unsupported(f"kernels of {prepared.arch.name} cannot be simulated: its plugin lacks BitSupport")
    return BitsDomain(
        buffers,
        support.functions,
        matrix_units(prepared),
        finite=finite,
    )


def _run(prepared: PreparedLaunch, memory: BitsMemory, numbers: Mapping[str, int], blocks: Array, granule: int) -> None:
    budget = [MAXIMUM_STEPS]
    for batch in prepared.batches(blocks):
        machine = machine_for(prepared, memory, numbers, batch, granule)
        memory.scratch = frozenset(machine.extra.get("scratch", ()))
        memory.launch = None if memory.buffers.launches == 1 else batch[:, None] // prepared.launch.blocks
        run_machine(prepared, machine, budget)
