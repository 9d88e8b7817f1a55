"""The launch-parametric analysis: one signature of a kernel for all launches.

Two kernels with the same signature return the same bits whenever they are launched with the same arguments, each with a
grid that covers the same output coordinates, under the assumptions in the notes of the signature.  A kernel whose
result is not proved to be determined has no signature.  Where the result is determined, but the analysis of the
function fails, the signature is that of the canonical text, which only the same program has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bitwise_core.assembly.module import Kernel, Module, registers_of
from bitwise_core.checker.parametric.coordinates import EXTENT, TILE, Coordinates
from bitwise_core.checker.parametric.domain import ParametricDomain
from bitwise_core.checker.parametric.executor import ParametricExecutor, ParametricProgram
from bitwise_core.checker.parametric.global_conflicts import NOT_DETERMINED
from bitwise_core.checker.parametric.integers import WITHOUT_WRAPPING
from bitwise_core.checker.parametric.loops.loop_folds import INSTANCES
from bitwise_core.checker.parametric.memory import ParametricMemory
from bitwise_core.checker.parametric.polynomial import AtomTable, Polynomial
from bitwise_core.checker.parametric.program_text import (
    check_program,
    has_shared_memory,
    holds_ranks,
    registers_of_clusters,
    text_signature,
)
from bitwise_core.checker.parametric.symbolic_races import SymbolicRaces
from bitwise_core.checker.parametric.tile_function import signature_of
from bitwise_core.checker.parametric.values import ParametricInteger
from bitwise_core.execution.architecture import Arch, ParametricSupport
from bitwise_core.execution.clusters import Clusters, cluster_shape
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import Launch
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.memory.shared_memory import FinerGranule, SharedMemory
from bitwise_core.execution.program import build
from bitwise_core.execution.races.proxy_fences import VisibleCopies
from bitwise_core.execution.races.undetermined import Race
from bitwise_core.execution.synchronised_blocks.synchronised_launch import unordered_lines
from bitwise_core.execution.thread_numbers import thread_numbers
from bitwise_core.execution.values import hashing
from bitwise_core.execution.visible_copies import visible_copies

ALL_TILES = "the number of blocks equals the step of the persistent loop over tiles"

MAXIMUM_STEPS = 200_000
MAXIMUM_COORDINATES = 2
"""The maximum number of output coordinates of a kernel."""

DETERMINED_NOTES = (
    "pointers address buffers that do not overlap",
    "elements stored at different indices have different addresses",
)
COMMON_NOTES = (*DETERMINED_NOTES, "each grid covers the same output coordinates")


@dataclass(frozen=True, slots=True)
class Signature:
    """The signature of a kernel: equal values mean equal bits for every launch with the same arguments.

    `notes` are the assumptions.  `program_only` is the reason why the value is that of the program text, None where it
    is that of the function.  `run` is the execution that proves that the result is determined.
    """

    value: bytes
    run: Run = field(repr=False, compare=False)
    notes: tuple[str, ...] = ()
    program_only: str | None = None


def parametric_signature(
    module: Module,
    kernel: Kernel,
    arch: Arch,
    cluster: tuple[int, int, int] | None = None,
    assume: frozenset[str] = frozenset(),
) -> Signature:
    """The signature of a kernel whose module states every rounding, under assumptions (`assumptions`).

    `cluster` is the shape of the clusters of its launches, None where only the text states it.  Raises Unsupported with
    the line of the cause, also where the result of the kernel is not proved to be determined, and ManifestError for a
    shape that the text does not allow.
    """
    copies = visible_copies(arch, assume, set())
    found = _signature(module, kernel, arch, cluster_shape(kernel, cluster), copies)
    return found if copies is None else replace(found, notes=(*found.notes, *sorted(copies.used)))


def _signature(
    module: Module, kernel: Kernel, arch: Arch, shape: tuple[int, int, int] | None, copies: VisibleCopies | None
) -> Signature:
    """The signature of a kernel in clusters of this shape; `copies` as in `ProxyFences`.  Raises Unsupported."""
    check_program(module, kernel, arch)
    try:
        return function_signature(module, kernel, arch, shape, copies)
    except Unsupported as reason:
        try:
            run = execute(module, kernel, arch, shape, only_determined=True, copies=copies)
            determined = run.check_determined()
        except Unsupported as other:
            undetermined = isinstance(other, Race) or str(other).startswith(NOT_DETERMINED)
            raise (other if undetermined else reason) from None
        text = text_signature(module, kernel, arch, shape)
        why = f"only the program text is compared, up to names ({reason})"
        return Signature(text, run, (why, *DETERMINED_NOTES, *determined), program_only=why)


def function_signature(
    module: Module,
    kernel: Kernel,
    arch: Arch,
    shape: tuple[int, int, int] | None = None,
    copies: VisibleCopies | None = None,
) -> Signature:
    """The signature of the function that the kernel computes in clusters of this shape.  Raises Unsupported.

    `copies` as in `ProxyFences`.

    A kernel whose shared addresses hold ranks, and that does not read its place in the cluster itself, is executed with
    each rank: what a block computes must not depend on it.
    """
    found: Signature | None = None
    for rank in range(_ranks_of_addresses(module, kernel, arch, shape)):
        run = execute(module, kernel, arch, shape, rank_of_addresses=rank, copies=copies)
        determined = run.check_determined()
        words, notes = signature_of(run.memory.elements(), run.domain.integers)
        mixed = hashing.mix(words + hashing.constant(f"{arch.name} {len(kernel.parameters)}"))
        own = Signature(mixed.tobytes(), run, (*COMMON_NOTES, *determined, *notes))
        if found is not None and own != found:
            raise Unsupported(
                "what a block computes depends on the number of a shared address, which holds the rank of the block in "
                "its cluster"
            )
        found = own if found is None else found
    assert found is not None
    return found


def _ranks_of_addresses(module: Module, kernel: Kernel, arch: Arch, shape: tuple[int, int, int] | None) -> int:
    """The number of ranks with which a symbolic block is executed."""
    if shape is None or registers_of_clusters(module, kernel, arch) or not holds_ranks(module, kernel, shape):
        return 1
    return shape[0] * shape[1] * shape[2]


@dataclass(frozen=True, slots=True)
class Run:
    """A finished execution of one symbolic block; `parameters` are the atoms of the parameters, by name."""

    domain: ParametricDomain
    memory: ParametricMemory
    parameters: Mapping[str, int]

    def check_determined(self) -> tuple[str, ...]:
        """Check that each stored element has one value; the assumptions as notes.  Raises Unsupported."""
        determined, integers = self.memory.check_determined(), self.domain.integers
        return (
            *determined,
            *([WITHOUT_WRAPPING] if integers.wraps_assumed else []),
            *([ALL_TILES] if integers.tiles is not None else []),
        )


def execute(
    module: Module,
    kernel: Kernel,
    arch: Arch,
    shape: tuple[int, int, int] | None = None,
    *,
    rank_of_addresses: int = 0,
    only_determined: bool = False,
    copies: VisibleCopies | None = None,
) -> Run:
    """Execute one symbolic block of a kernel, or the blocks of one symbolic cluster of this shape.  Raises Unsupported.

    `rank_of_addresses` is the rank in the shared addresses of the one block.
    `only_determined`: only the proof that the result is determined is wanted, so that loops need no summary.  `copies`
    as in `ProxyFences`.
    """
    if kernel.threads is None:
        raise Unsupported(f"the text of {kernel.name} does not state the number of threads in a block", kernel.line)
    if arch.every_launch is None:
        raise Unsupported(f"kernels of {arch.name} have no launch-parametric analysis")
    cluster_registers = registers_of_clusters(module, kernel, arch)
    if cluster_registers and shape is None:
        raise Unsupported(
            f"the kernel reads {min(cluster_registers)}, and neither its text nor its launch states the shape of "
            "clusters"
        )
    if shape is None and kernel.clusters is not None and has_shared_memory(module, kernel):
        raise Unsupported(
            "shared addresses depend on the clusters of the launch, and neither the text nor the launch states their "
            "shape",
            kernel.line,
        )
    program = build(module, kernel, arch)
    granule = arch.granule(kernel)
    programs = (program, *program.functions.values())
    lines = [
        (instruction.line, info)
        for each in programs
        for instruction, info in zip(each.kernel.instructions, each.infos, strict=True)
    ]
    unordered = unordered_lines(lines)
    axes = grid_axes(arch.every_launch, shape if shape is not None and cluster_registers else _ALONE)
    if only_determined and (axes.size > 1 or holds_ranks(module, kernel, shape)):
        raise Unsupported(f"{NOT_DETERMINED}: the text alone does not show what the blocks of a cluster store")
    while True:
        # A persistent loop is summarised only where every block is a cluster of its own.
        first = ParametricProgram(program, axes.extents if axes.size == 1 else {}, only_determined)
        persistent = axes.size == 1 and first.persistent_loops and not only_determined
        names = [*axes.read_by(kernel), *([TILE] if persistent else [])]
        coordinates = Coordinates(AtomTable(), names, MAXIMUM_COORDINATES, INSTANCES if first.loops else 0)
        domain = ParametricDomain(coordinates)
        x, y, z = kernel.threads
        memories = []
        try:
            for rank in range(axes.size):
                memory = ParametricMemory(domain, x * y * z, only_determined, unordered)
                place = Place(shape or _ALONE, rank if axes.size > 1 else rank_of_addresses)
                machine = machine_for(
                    module, kernel, arch, domain, memory, granule, axes, place, copies, any_pointer=only_determined
                )
                unknown = cluster_registers - machine.special.keys()
                if unknown:
                    raise Unsupported(f"the kernel reads {min(unknown)}, which neither its text nor its launch decides")
                own = ParametricProgram(program, first.grid_registers, only_determined) if rank else first
                ParametricExecutor(own, machine, [MAXIMUM_STEPS]).start()
                memories.append(memory)
        except FinerGranule as finer:
            if finer.granule >= granule:
                raise Unsupported("shared memory is accessed in units that do not fit its cells") from None
            granule = finer.granule
            continue
        return Run(domain, memories[0] if len(memories) == 1 else _of_cluster(memories), _parameters(machine))


def _parameters(machine: Machine) -> dict[str, int]:
    """The atoms of the parameters that are symbols, by name."""
    return {
        name: next(iter(value.polynomial.atoms()))
        for name, value in machine.parameters.items()
        if isinstance(value, ParametricInteger)
    }


def _of_cluster(memories: Sequence[ParametricMemory]) -> ParametricMemory:
    """The memory with the accesses of all blocks of a cluster.  Raises Unsupported if a buffer is read and written.

    Threads of different blocks have equal numbers, which decide only whether a thread updates its own elements.
    """
    found = memories[0]
    for other in memories[1:]:
        found.stored.extend(other.stored)
        for pointer, loads in other.loaded.items():
            found.loaded.setdefault(pointer, []).extend(loads)
        for pointer, operation in other.written.items():
            if found.written.setdefault(pointer, operation) != operation:
                raise Unsupported("a buffer is written in different ways")
        found.contributed.update(other.contributed)
        found.open_nans.update(other.open_nans)
        found.mask_differs = other.mask_differs if found.mask_differs is None else found.mask_differs
    updated = found.loaded.keys() & (found.written.keys() | found.contributed.keys())
    if updated:
        line = found.loaded[min(updated)][0].line
        raise Unsupported(f"{NOT_DETERMINED}: blocks of a cluster read and write one buffer", line)
    return found


_ALONE = (1, 1, 1)
"""The shape of a cluster of one block."""


@dataclass(frozen=True, slots=True)
class GridAxes:
    """The axes of a grid of clusters of this shape.

    `registers` names the special registers of each axis that depend on the grid: the coordinate and the extent in
    blocks, and in clusters.  `symbols` names the two registers of each axis that are symbols of the launch: those in
    clusters where a cluster has several blocks along the axis.
    """

    shape: tuple[int, int, int]
    registers: tuple[tuple[str, str, str, str], ...]
    symbols: tuple[tuple[str, str], ...]

    @property
    def size(self) -> int:
        """The number of blocks in a cluster."""
        return self.shape[0] * self.shape[1] * self.shape[2]

    @property
    def extents(self) -> dict[str, str]:
        """The register of each extent by that of the coordinate."""
        return dict(self.symbols)

    def read_by(self, kernel: Kernel) -> list[str]:
        """The symbols that a kernel depends on; EXTENT stands for all extents."""
        read = {name for each in kernel.instructions for operand in each.operands for name in registers_of(operand)}
        found = [
            symbol
            for (block, _, cluster, _), (symbol, _) in zip(self.registers, self.symbols, strict=True)
            if read & {block, cluster}
        ]
        extents = {name for _, extent, _, clusters in self.registers for name in (extent, clusters)}
        return [*sorted(found), *([EXTENT] if read & extents else [])]


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a block: the shape of its cluster in blocks, and its rank there."""

    shape: tuple[int, int, int]
    rank: int


def grid_axes(support: ParametricSupport, shape: tuple[int, int, int]) -> GridAxes:
    """The axes of a grid of an architecture."""
    none = ("", "", "")
    of_clusters = support.cluster_registers
    cluster, clusters = (none, none) if of_clusters is None else (of_clusters.cluster, of_clusters.clusters)
    registers = tuple(zip(support.block, support.grid, cluster, clusters, strict=True))
    symbols = tuple(
        (each[0], each[1]) if extent == 1 else (each[2], each[3]) for each, extent in zip(registers, shape, strict=True)
    )
    return GridAxes(shape, registers, symbols)


def _set_grid_symbols(machine: Machine, domain: ParametricDomain, axes: GridAxes, rank: int) -> None:
    """Replace the special registers that depend on the grid by symbols, for the block of a rank."""
    ranks = np.unravel_index(rank, axes.shape[::-1])[::-1]
    for names, symbols, extent, inside in zip(axes.registers, axes.symbols, axes.shape, ranks, strict=True):
        block, blocks, cluster, clusters = names
        number = domain.symbol(symbols[0], 32, block=True)
        count = domain.symbol(symbols[1], 32, block=True, axis=EXTENT)
        found = {
            cluster: number,
            clusters: count,
            block: _multiple(number, extent, int(inside)),
            blocks: _multiple(count, extent, 0),
        }
        for name, value in found.items():
            if name:
                machine.special[name] = value  # type: ignore[assignment]


def _multiple(symbol: ParametricInteger, factor: int, addend: int) -> ParametricInteger:
    """A symbol times a factor plus a number; unlike a sum in the kernel, it creates no output coordinate."""
    terms = dict.fromkeys(symbol.polynomial.terms, factor)
    return ParametricInteger(symbol.integers, Polynomial(32, terms, addend))


def machine_for(
    module: Module,
    kernel: Kernel,
    arch: Arch,
    domain: ParametricDomain,
    memory: ParametricMemory,
    granule: int,
    axes: GridAxes,
    place: Place,
    copies: VisibleCopies | None,
    *,
    any_pointer: bool = False,
) -> Machine:
    """A machine at the start of the kernel whose rows are instances of one symbolic block: that of a place.

    `copies` as in `ProxyFences`.

    `any_pointer`: every parameter of 8 bytes may be a pointer, also where the text does not state it.
    """
    assert kernel.threads is not None
    x, y, z = kernel.threads
    threads, rows = x * y * z, domain.rows
    local = np.arange(threads, dtype=np.int64)[None]
    explicit = kernel.clusters is not None and kernel.clusters.explicit
    width, height, depth = place.shape
    clusters = Clusters((2 * width, 2 * height, 2 * depth), place.shape, explicit or None)
    block = clusters.blocks_of(np.zeros(1, dtype=np.int64))[0, place.rank]
    machine = Machine(
        domain=domain,
        blocks=rows,
        threads=threads,
        warp=arch.warp,
        special={"block": np.full((rows, 1), block, dtype=np.int64)},
        parameters={},
        symbols={},
        shared=SharedMemory(4096, rows, granule),
        races=SymbolicRaces(4096 // granule, threads, arch.warp, rows, copies),
        memory=memory,  # type: ignore[arg-type]
        thread=thread_numbers(np.arange(rows), local),
        local_thread=local,
        block=kernel.threads,
        clusters=clusters,
        buffers={},
    )
    arch.special(machine, Launch(file="", grid=clusters.grid))
    _set_grid_symbols(machine, domain, axes, place.rank if axes.size > 1 else 0)
    assert arch.every_launch is not None
    arch.every_launch.layout(machine, module, kernel)
    for index, parameter in enumerate(kernel.parameters):
        if parameter.size not in (1, 2, 4, 8):
            continue
        pointer = index if parameter.size == 8 and (parameter.pointer or any_pointer) else None
        machine.parameters[parameter.name] = domain.symbol(
            f"argument {index} of {parameter.size}", 8 * parameter.size, pointer=pointer
        )
    return machine
