"""Concrete execution: runs the blocks of a known launch and returns a value for each output element."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from bitwise_core.assembly.module import Kernel, Module
from bitwise_core.execution.architecture import Arch
from bitwise_core.execution.assumptions import ANY_LANE, LOWEST_LANE
from bitwise_core.execution.buffers import buffers_of_bytes, formats_of_buffers, open_integers, sizes_of_buffers
from bitwise_core.execution.clusters import Clusters, clusters_of
from bitwise_core.execution.deciding_values import unknown_lanes
from bitwise_core.execution.domains.domain import DataDependent, Domain, Unsupported
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.executor import DIVIDED_BLOCKS, MAXIMUM_STEPS, Executor
from bitwise_core.execution.instruction_info import Effect
from bitwise_core.execution.launch import Launch, ManifestError
from bitwise_core.execution.machine import ClusterState, Machine
from bitwise_core.execution.memory.given_contents import GivenContents
from bitwise_core.execution.memory.global_memory import GlobalMemory, StoreLimitExceeded
from bitwise_core.execution.memory.ordered_atomics import note_ordered_atomics
from bitwise_core.execution.memory.outputs import Output, is_written_once, outputs
from bitwise_core.execution.memory.program_order import ProgramOrder
from bitwise_core.execution.memory.shared_memory import FinerGranule, SharedMemory
from bitwise_core.execution.program import Program, build
from bitwise_core.execution.program_analyses import live_at
from bitwise_core.execution.races.cluster_races import ClusterRaceDetectors
from bitwise_core.execution.races.late_races import contest_late_races
from bitwise_core.execution.races.race_histories import RaceDetectors
from bitwise_core.execution.races.undetermined import (
    Cause,
    Kind,
    Undetermined,
    UndeterminedValues,
    undetermined_output,
)
from bitwise_core.execution.thread_numbers import thread_numbers
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import POISON, STICKY, Array
from bitwise_core.execution.visible_copies import visible_copies

MemoryType = TypeVar("MemoryType", bound=GlobalMemory)

MAXIMUM_ATTEMPTS = 16
"""How often a launch is run at most, until its races are known."""

LANES_PER_BATCH = 8192
"""The number of lanes that run together, which amortises the cost of a NumPy call, in warps of 32 lanes.

In wider warps as many warps run together: a kernel has as many for the same elements, with fewer instructions each.
A rest of at most half a batch runs with the batch before it.  After a batch whose blocks took the same steps, twice as
many run together.  Where blocks take other steps, each step is computed for all lanes of the batch.
"""

_LANES_OF_A_WARP = 32


@dataclass(frozen=True, slots=True)
class PreparedLaunch:
    """A kernel and a launch of it, ready to run; `notes` are the assumptions about its text.

    `assume` are the names of assumptions (`assumptions`) that executions on bit patterns make, too.  `used` collects
    notes on measured facts of the architecture that executions of the launch have used.

    `function_loops` are the lines of loops that may be one function although the launch leaves integers open: their
    ends do not depend on these.  `text` is the text of the kernel, None where it is not known.  `blocks_interact`:
    blocks of a cluster may access each other's shared memory or wait for each other.
    """

    module: Module
    kernel: Kernel
    arch: Arch
    launch: Launch
    program: Program
    block: tuple[int, int, int]
    clusters: Clusters
    notes: tuple[str, ...] = ()
    function_loops: frozenset[int] = frozenset()
    text: str | None = None
    assume: frozenset[str] = frozenset()
    used: set[str] = field(default_factory=set, compare=False)
    blocks_interact: bool = field(init=False)

    def __post_init__(self) -> None:
        programs = (self.program, *self.program.functions.values())
        interact = any(info.effects.overlaps(Effect.CLUSTER) for program in programs for info in program.infos)
        object.__setattr__(self, "blocks_interact", interact)

    def __repr__(self) -> str:
        kernel, blocks = f"{self.kernel.name!r} of {self.module.file!r}", self.launch.blocks
        return f"PreparedLaunch({kernel}, {blocks} blocks of {self.threads})"

    @property
    def threads(self) -> int:
        """The number of threads in a block."""
        return self.block[0] * self.block[1] * self.block[2]

    def batches(self, numbers: Array) -> list[Array]:
        """Return blocks in the batches that run together: whole clusters if their blocks interact."""
        size = self.clusters.size if self.blocks_interact else 1
        warps = -(-self.threads // self.arch.warp)
        per_batch = max(1, LANES_PER_BATCH // (_LANES_OF_A_WARP * warps * size)) * size
        starts = list(range(0, len(numbers), per_batch))
        if len(starts) > 1 and 2 * (len(numbers) - starts[-1]) <= per_batch:
            starts.pop()
        return np.split(numbers, starts[1:])

    def chosen_blocks(self, blocks: Sequence[int] | None) -> Array:
        """Return the blocks to run for these (None: all), in an order whose batches may hold whole clusters."""
        if self.blocks_interact:
            return self.clusters.whole(blocks)
        return np.arange(self.launch.blocks) if blocks is None else np.asarray(sorted(blocks))


def prepare_launch(module: Module, arch: Arch, launch: Launch, notes: tuple[str, ...] = ()) -> PreparedLaunch:
    """Build the program of the launch's entry.

    Raises ManifestError if the launch does not fit the entry, and Unsupported if it leaves the clusters open.
    """
    try:
        kernel = module.kernel(launch.entry)
    except KeyError as error:
        raise ManifestError(str(error.args[0])) from None
    block = launch.block or kernel.threads
    if block is None:
        raise ManifestError(f"neither the launch nor the text says how many threads a block of {kernel.name} has")
    if (
        kernel.threads is not None
        and block[0] * block[1] * block[2] != kernel.threads[0] * kernel.threads[1] * kernel.threads[2]
    ):
        raise ManifestError(
            f"the text of {kernel.name} requires blocks of {kernel.threads} threads, the launch has {block}"
        )
    if not 1 <= block[0] * block[1] * block[2] <= 1024:
        raise ManifestError(f"a block has 1 to 1024 threads, not {block[0] * block[1] * block[2]}")
    clusters = clusters_of(kernel, launch, arch.name, arch.largest_cluster)
    return PreparedLaunch(module, kernel, arch, launch, build(module, kernel, arch), block, clusters, notes)


class WorkLimitExceeded(Exception):
    """Running the blocks takes more steps of threads, or stores more elements, than the limit allows."""


def run_blocks(
    prepared: PreparedLaunch,
    domain: Domain,
    buffers: Mapping[str, int],
    blocks: Sequence[int] | None = None,
    work: int | None = None,
    undetermined: UndeterminedValues | None = None,
    most_stored: int | None = None,
    *,
    in_program_order: bool = False,
) -> tuple[GlobalMemory, frozenset[int]]:
    """Run the given blocks (default: all), with all blocks of their clusters if these interact.

    Return global memory and the compiler's scratch buffers.  `undetermined` holds the values that are undetermined from
    the start, and the causes that are ignored; None: none.  `in_program_order`: the accesses of each block, which is
    one warp, to global memory take effect in the order of the text (`warp_order`).

    Raises Unsupported, and WorkLimitExceeded if the threads of all blocks together take more than `work` steps or store
    more than `most_stored` elements.
    """
    numbers = prepared.chosen_blocks(blocks)
    scratch: frozenset[int] = frozenset()
    formats, of_bytes = formats_of_buffers(prepared.launch, buffers), buffers_of_bytes(prepared.launch, buffers)
    if isinstance(domain, TermDomain):
        domain.set_formats(formats)

    undetermined = UndeterminedValues() if undetermined is None else undetermined
    polls = lines_that_synchronise(prepared)
    sizes = sizes_of_buffers(prepared.launch, buffers)

    def attempt(granule: int, watched: frozenset[int]) -> GlobalMemory:
        nonlocal scratch
        memory = GlobalMemory(domain, GivenContents(prepared.launch, buffers))
        memory.undetermined, memory.polls, memory.sizes = undetermined, polls, sizes
        memory.watched, memory.formats = watched, formats
        memory.program = prepared.module, prepared.kernel
        memory.program_order = ProgramOrder() if in_program_order else None
        memory.of_bytes, memory.most_stored = of_bytes, most_stored
        try:
            scratch = _run_batches(prepared, memory, buffers, numbers, granule, work)
        except DataDependent as error:
            if memory.like_address is None:
                raise
            raise Unsupported(*memory.like_address) from error
        return memory

    granule = prepared.arch.granule(prepared.kernel)
    try:
        return run_until_valid(granule, attempt, undetermined), scratch
    except StoreLimitExceeded:
        raise WorkLimitExceeded from None
    except DataDependent as error:
        stopped = error
    undetermined.doubted = polls
    if undetermined.doubted:
        try:
            run_until_valid(granule, attempt, undetermined)
        except Undetermined as error:
            raise error from None
        except (Unsupported, WorkLimitExceeded):
            pass
    raise stopped


def lines_read(prepared: PreparedLaunch) -> frozenset[int]:
    """Return the lines of accesses to memory whose result an instruction reads, so that it may decide something."""
    return frozenset(
        instruction.line
        for program in (prepared.program, *prepared.program.functions.values())
        for index, (instruction, info) in enumerate(zip(program.kernel.instructions, program.infos, strict=True))
        if info.effects.overlaps(Effect.LOAD) and any(map(live_at(program, *program.following[index]), info.writes))
    )


def lines_that_synchronise(prepared: PreparedLaunch, *, old_values: bool = False) -> frozenset[int]:
    """Return the lines of reads by which threads may wait for others; `old_values`: of all atomic operations' results.

    Where control flow depends on such a read, a run may end before another thread writes what is read.
    """
    programs = (prepared.program, *prepared.program.functions.values())
    return frozenset(
        instruction.line
        for program in programs
        for instruction, info in zip(program.kernel.instructions, program.infos, strict=True)
        if (info.nondeterminism is not None or (old_values and info.nondeterministic_result is not None))
        and info.effects.overlaps(Effect.LOAD)
    )


def run_until_valid(
    granule: int,
    attempt: Callable[[int, frozenset[int]], MemoryType],
    undetermined: UndeterminedValues | None = None,
) -> MemoryType:
    """Return global memory after the first `attempt(granule, watched)` that does not have to be repeated.

    An attempt is repeated with smaller cells of shared memory (`granule` bytes) if an access needs them.  The loads of
    every buffer that the launch both loads and stores are recorded, so that communication between blocks is detected;
    if an attempt could not keep them all, it is repeated with these buffers `watched`.  With `undetermined`, a read
    that races with a later write is undetermined in the next attempt.
    Raises Unsupported.
    """
    watched: frozenset[int] = frozenset()
    for _ in range(MAXIMUM_ATTEMPTS):
        if undetermined is not None:
            undetermined.begin()
        try:
            memory = attempt(granule, watched)
        except FinerGranule as finer:
            if finer.granule >= granule:
                raise Unsupported("shared memory is accessed in units that do not fit its cells") from None
            granule = finer.granule
            if undetermined is not None:
                undetermined.forget_cells()
            continue
        memory.settle_conditions()
        both = frozenset((memory.stores.keys() | memory.atomics.keys()) & memory.loaded_buffers) - watched
        if both and not memory.record_kept_loads(both):
            watched = watched | both
            continue
        if undetermined is None:
            return memory
        contest_late_races(memory, undetermined)
        if memory.atomics:
            note_ordered_atomics(memory, undetermined)
        if not undetermined.grown:
            return memory
    raise Unsupported("which reads race with writes is not settled after several attempts")


def _run_batches(
    prepared: PreparedLaunch,
    memory: GlobalMemory,
    buffers: Mapping[str, int],
    numbers: Array,
    granule: int,
    work: int | None,
) -> frozenset[int]:
    """Run the blocks in batches.  Return the compiler's scratch buffers."""
    scratch: frozenset[int] = frozenset()
    batches = prepared.batches(numbers)
    # Batches take different numbers of steps: one may use a few times its share, all together at most the limit.
    allowed = MAXIMUM_STEPS if work is None else work // (len(batches[0]) * prepared.threads)
    remaining = allowed
    waiting, together = deque(batches), 1
    while waiting:
        batch = np.concatenate([waiting.popleft() for _ in range(min(together, len(waiting)))])
        machine = machine_for(prepared, memory, buffers, batch, granule)
        share = remaining if work is None else min(remaining, 4 * allowed // len(batches))
        budget = [share]
        try:
            run_machine(prepared, machine, budget)
        except Unsupported as error:
            if work is not None and budget[0] < 0:
                raise WorkLimitExceeded from None
            if isinstance(error, DataDependent):
                error.block = int(batch[min(error.row, batch.size - 1)])
            raise
        remaining -= share - budget[0]
        scratch = frozenset(machine.extra.get("scratch", ()))
        together = 2 if work is None and not machine.extra.get(DIVIDED_BLOCKS) else 1
    return scratch


def run_machine(prepared: PreparedLaunch, machine: Machine, budget: list[int]) -> None:
    """Run a batch of blocks to its end; `budget` holds the number of steps that are left.  Raises Unsupported."""
    try:
        Executor(prepared.program, machine, budget).start()
    except DataDependent as error:
        raise _needs_undetermined_value(error, machine) or error from None
    if isinstance(machine.races, ClusterRaceDetectors):
        machine.races.finish()


def _needs_undetermined_value(error: DataDependent, machine: Machine) -> Undetermined | None:
    """Return the error of a run that needs the number of an undetermined value; None for a value of another kind."""
    kept = machine.memory.undetermined
    if kept is None or not kept.causes:
        return None
    for value in error.values:
        flags = L.has_flag(as_symbolic_vector(value), L.NONDETERMINISTIC)
        if np.any(np.logical_and(unknown_lanes(machine, value), flags)):
            causes = tuple(kept.causes)
            return Undetermined(f"{error}, and on a value that is not determined: {causes[0]}", None, causes)
    return None


def machine_for(
    prepared: PreparedLaunch,
    memory: GlobalMemory,
    buffers: Mapping[str, int],
    numbers: Array,
    granule: int,
    block: Array | None = None,
) -> Machine:
    """Return a machine in the initial state of the launch for a batch of blocks.

    Block numbers at or above the launch's number of blocks belong to the other launches of a batch.  If the blocks of
    clusters interact, the batch holds whole clusters, with adjacent blocks by rank.  `block` is the index of the block
    where it is another one than that of `numbers`, such as a number that stands for those of all blocks.
    """
    threads = prepared.threads
    count = len(numbers)
    if block is None:
        index = np.asarray(numbers % prepared.launch.blocks)
        block = (index[:1] if (index == index[0]).all() else index).reshape(-1, 1)
    local = np.arange(threads, dtype=np.int64)[None]
    interact, size = prepared.blocks_interact, prepared.clusters.size
    zeros = np.zeros((count, threads), dtype=np.int64) if interact else np.zeros((0, 0), dtype=np.int64)
    copies = visible_copies(prepared.arch, prepared.assume, prepared.used)
    machine = Machine(
        domain=memory.domain,
        blocks=count,
        threads=threads,
        warp=prepared.arch.warp,
        special={"block": block},
        parameters={},
        symbols={},
        shared=SharedMemory(4096, count, granule, memory.domain.recorder),
        races=(
            ClusterRaceDetectors(4096 // granule, threads, prepared.arch.warp, count, size, copies)
            if interact
            else RaceDetectors(4096 // granule, threads, prepared.arch.warp, count, copies)
        ),
        memory=memory,
        thread=thread_numbers(numbers, local),
        local_thread=local,
        block=prepared.block,
        clusters=prepared.clusters,
        cluster=ClusterState(size, zeros, zeros.copy(), zeros.astype(bool)) if interact else None,
        buffers=buffers,
        # With the contents of a tensor that ends a loop, it is executed as often as it runs, which proves more.
        function_loops=prepared.function_loops if open_integers(prepared.launch) else None,
        lowest_lane=_note_of_lowest_lane(prepared),
        used=prepared.used,
    )
    if memory.domain.recorder is not None:
        memory.domain.recorder.line_source = machine
    prepared.arch.special(machine, prepared.launch)
    prepared.arch.prepare(machine, prepared.module, prepared.kernel, prepared.launch)
    return machine


def _note_of_lowest_lane(prepared: PreparedLaunch) -> str | None:
    """Return the note of executions that use `LOWEST_LANE`: empty where it was requested, None if it does not hold."""
    if LOWEST_LANE in prepared.assume:
        return ""
    return None if ANY_LANE in prepared.assume else prepared.arch.lowest_lane


def check_outputs(memory: GlobalMemory, scratch: frozenset[int]) -> None:
    """Check what `checked_outputs` checks, in less time where it finds nothing.  Raises Unsupported."""
    if all(is_written_once(memory, buffer) for buffer in memory.stores.keys() | memory.atomics.keys()):
        memory.check_gathers()
    else:
        checked_outputs(memory, scratch)


def checked_outputs(memory: GlobalMemory, scratch: frozenset[int], *, release: bool = False) -> dict[int, Output]:
    """Return what the launch leaves in the caller's buffers; `release` as in `outputs`.

    Raises Unsupported for races and undefined values.
    """
    left = outputs(memory, release=release)
    found = {buffer: output for buffer, output in left.items() if buffer not in scratch}
    for output in found.values():
        bad = (output.flags & np.uint32(STICKY)) != 0
        undefined = (output.flags & np.uint32(POISON)) != 0
        if undefined.any():
            reason, line = (
                "a stored value depends on a register or on memory that nothing wrote",
                output.line[undefined][0],
            )
            raise Undetermined(reason, int(line), (Cause(Kind.UNDEFINED, reason, int(line)),))
        if bad.any():
            raise undetermined_output(memory.undetermined, int(output.line[bad][0]), found.keys())
    return found
