"""The launch-parametric analysis: one signature of a kernel for all launches.

Two kernels with the same signature return the same bits whenever they are launched with the same arguments, each with a
grid that covers the same output coordinates, under the assumptions in the notes of the signature.  Where the analysis
of the function fails, the signature is that of the canonical text, which only the same program has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitwise_core.assembly.module import Kernel, Module, registers_of
from bitwise_core.checker.parametric.coordinates import EXTENT, TILE, Coordinates
from bitwise_core.checker.parametric.domain import ParametricDomain
from bitwise_core.checker.parametric.executor import ParametricExecutor, ParametricProgram
from bitwise_core.checker.parametric.integers import WITHOUT_WRAPPING
from bitwise_core.checker.parametric.loop_summary import INSTANCES
from bitwise_core.checker.parametric.memory import ParametricMemory
from bitwise_core.checker.parametric.polynomial import AtomTable
from bitwise_core.checker.parametric.program_text import registers_of_clusters, text_signature
from bitwise_core.checker.parametric.tile_function import signature_of
from bitwise_core.execution.architecture import Arch, ParametricSupport
from bitwise_core.execution.clusters import Clusters, cluster_shape
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import Launch
from bitwise_core.execution.machine import THREAD_SHIFT, Machine
from bitwise_core.execution.memory.race_detector import RaceDetectors
from bitwise_core.execution.memory.shared_memory import FinerGranule, SharedMemory
from bitwise_core.execution.program import build
from bitwise_core.execution.values import hashing

ALL_TILES = "the number of blocks equals the step of the persistent loop over tiles"

MAXIMUM_STEPS = 200_000
MAXIMUM_COORDINATES = 2
"""The maximum number of output coordinates of a kernel."""

_SOME_GRID = (2, 2, 2)
"""The grid for which special registers are filled before symbols replace those that depend on it."""

COMMON_NOTES = (
    "pointers address buffers that do not overlap, and the launch has no race",
    "elements stored at different indices have different addresses",
    "each grid covers the same output coordinates",
)


@dataclass(frozen=True, slots=True)
class Signature:
    """The signature of a kernel: equal values mean equal bits for every launch with the same arguments.

    `notes` are the assumptions.  `program_only` is the reason why the value is that of the program text, None where it
    is that of the function.
    """

    value: bytes
    notes: tuple[str, ...] = ()
    program_only: str | None = None


def parametric_signature(
    module: Module, kernel: Kernel, arch: Arch, cluster: tuple[int, int, int] | None = None
) -> Signature:
    """The signature of a kernel whose module states every rounding.

    `cluster` is the shape of the clusters of its launches, None where only the text states it.  Raises Unsupported with
    the line of the cause, and ManifestError for a shape that the text does not allow.
    """
    shape = cluster_shape(kernel, cluster)
    text = text_signature(module, kernel, arch, shape)
    try:
        return function_signature(module, kernel, arch, shape)
    except Unsupported as reason:
        why = f"only the program text is compared, up to names ({reason})"
        return Signature(text, (why,), program_only=why)


def function_signature(
    module: Module, kernel: Kernel, arch: Arch, shape: tuple[int, int, int] | None = None
) -> Signature:
    """The signature of the function that the kernel computes in clusters of this shape.  Raises Unsupported."""
    if kernel.threads is None:
        raise Unsupported(f"the text of {kernel.name} does not state the number of threads in a block", kernel.line)
    if arch.every_launch is None:
        raise Unsupported(f"kernels of {arch.name} have no launch-parametric analysis")
    cluster_registers = sorted(registers_of_clusters(module, kernel, arch))
    if cluster_registers:
        raise Unsupported(f"the kernel reads {cluster_registers[0]}, which depends on the clusters of the launch")
    program = build(module, kernel, arch)
    granule = arch.granule(kernel)
    block_registers = _grid_dependent_registers(kernel, arch.every_launch)
    grid_registers = dict(zip(arch.every_launch.block, arch.every_launch.grid, strict=True))
    while True:
        parametric_program = ParametricProgram(program, grid_registers)
        names = [*block_registers, *([TILE] if parametric_program.persistent_loops else [])]
        coordinates = Coordinates(AtomTable(), names, MAXIMUM_COORDINATES, INSTANCES if parametric_program.loops else 0)
        domain = ParametricDomain(coordinates)
        memory = ParametricMemory(domain)
        machine = machine_for(module, kernel, arch, domain, memory, granule)
        try:
            ParametricExecutor(parametric_program, machine, [MAXIMUM_STEPS]).start()
        except FinerGranule as finer:
            if finer.granule >= granule:
                raise Unsupported("shared memory is accessed in units that do not fit its cells") from None
            granule = finer.granule
            continue
        break
    words, notes = signature_of(memory.elements(), domain.integers)
    mixed = hashing.mix(words + hashing.constant(f"{arch.name} {len(kernel.parameters)}"))
    conditions = [
        *([WITHOUT_WRAPPING] if domain.integers.wraps_assumed else []),
        *([ALL_TILES] if domain.integers.tiles is not None else []),
    ]
    return Signature(mixed.tobytes(), (*COMMON_NOTES, *conditions, *notes))


def _grid_dependent_registers(kernel: Kernel, names: ParametricSupport) -> list[str]:
    """The special registers that the kernel reads and that depend on the grid."""
    read = {name for each in kernel.instructions for operand in each.operands for name in registers_of(operand)}
    return [*sorted(read & set(names.block)), *([EXTENT] if read & set(names.grid) else [])]


def machine_for(
    module: Module, kernel: Kernel, arch: Arch, domain: ParametricDomain, memory: ParametricMemory, granule: int
) -> Machine:
    """A machine at the start of the kernel whose rows are instances of one symbolic block."""
    assert kernel.threads is not None
    assert arch.every_launch is not None
    x, y, z = kernel.threads
    threads, rows = x * y * z, domain.rows
    local = np.arange(threads, dtype=np.int64)[None]
    machine = Machine(
        domain=domain,
        blocks=rows,
        threads=threads,
        warp=arch.warp,
        special={"block": np.zeros((rows, 1), dtype=np.int64)},
        parameters={},
        symbols={},
        shared=SharedMemory(4096, rows, granule),
        races=RaceDetectors(4096 // granule, threads, arch.warp, rows),
        memory=memory,  # type: ignore[arg-type]
        thread=(np.arange(rows, dtype=np.int64).reshape(rows, 1) << THREAD_SHIFT) + local,
        local_thread=local,
        block=kernel.threads,
        clusters=Clusters(_SOME_GRID),
        buffers={},
    )
    arch.special(machine, Launch(file="", grid=_SOME_GRID))
    for name in arch.every_launch.block:
        machine.special[name] = domain.symbol(name, 32, block=True)  # type: ignore[assignment]
    for name in arch.every_launch.grid:
        machine.special[name] = domain.symbol(name, 32, block=True, axis=EXTENT)  # type: ignore[assignment]
    arch.every_launch.layout(machine, module, kernel)
    for index, parameter in enumerate(kernel.parameters):
        if parameter.size not in (1, 2, 4, 8):
            continue
        pointer = index if parameter.size == 8 and parameter.pointer else None
        machine.parameters[parameter.name] = domain.symbol(
            f"argument {index} of {parameter.size}", 8 * parameter.size, pointer=pointer
        )
    return machine
