"""The launch-parametric reading: one signature of a kernel for all launches.

Two kernels of one signature return the same bits whenever they are launched with the same arguments, each with a grid
that covers the same output coordinates, under the conditions in the signature's notes.  Where a kernel cannot be read
for every launch, the signature is that of its canonical text, which only the same program has.
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
from bitwise_core.checker.parametric.program_text import text_signature
from bitwise_core.checker.parametric.tile_function import signature_of
from bitwise_core.execution.architecture import Arch, ParametricSupport
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import Launch
from bitwise_core.execution.machine import THREAD_SHIFT, Machine
from bitwise_core.execution.memory.race_detector import RaceDetectors
from bitwise_core.execution.memory.shared_memory import FinerGranule, SharedMemory
from bitwise_core.execution.program import build
from bitwise_core.execution.values import hashing

ALL_TILES = "as many blocks start a loop over tiles as the loop steps over"

MAXIMUM_STEPS = 200_000
SLOTS = 2
"""The most output coordinates of a kernel."""

STANDING_NOTES = (
    "pointers lead to buffers that do not overlap, and no launch is meant that has a race",
    "elements stored at different indices lie at different addresses",
    "each grid covers the same output coordinates",
)


@dataclass(frozen=True, slots=True)
class Signature:
    """Equal values mean: the same bits for every launch with the same arguments, under what `notes` name.

    `program_only` is the reason why the value is that of the program text, None where it is that of the function.
    """

    value: bytes
    notes: tuple[str, ...] = ()
    program_only: str | None = None


def parametric_signature(module: Module, kernel: Kernel, arch: Arch) -> Signature:
    """The signature of a kernel whose module states every rounding.  Raises Unsupported with the line that stops it."""
    text = text_signature(module, kernel, arch)
    try:
        return function_signature(module, kernel, arch)
    except Unsupported as reason:
        why = f"the same program up to names; it is not read further ({reason})"
        return Signature(text, (why,), program_only=why)


def function_signature(module: Module, kernel: Kernel, arch: Arch) -> Signature:
    """The signature of the function that the kernel computes.  Raises Unsupported."""
    if kernel.threads is None:
        raise Unsupported(f"the text of {kernel.name} does not say how many threads a block has", kernel.line)
    if arch.every_launch is None:
        raise Unsupported(f"kernels of {arch.name} are not read for every launch")
    program = build(module, kernel, arch)
    granule = arch.granule(kernel)
    blocks = _block_symbols(kernel, arch.every_launch)
    extents = dict(zip(arch.every_launch.block, arch.every_launch.grid, strict=True))
    while True:
        program_of_loops = ParametricProgram(program, extents)
        names = [*blocks, *([TILE] if program_of_loops.persistent_loops else [])]
        coordinates = Coordinates(AtomTable(), names, SLOTS, INSTANCES if program_of_loops.loops else 0)
        domain = ParametricDomain(coordinates)
        memory = ParametricMemory(domain)
        machine = machine_for(module, kernel, arch, domain, memory, granule)
        try:
            ParametricExecutor(program_of_loops, machine, [MAXIMUM_STEPS]).start()
        except FinerGranule as finer:
            if finer.granule >= granule:
                raise Unsupported("shared memory is accessed in units that do not fit its cells") from None
            granule = finer.granule
            continue
        break
    words, notes = signature_of(memory.elements(), domain.integers)
    own = hashing.mix(words + hashing.constant(f"{arch.name} {len(kernel.parameters)}"))
    conditions = [
        *([WITHOUT_WRAPPING] if domain.integers.wraps_assumed else []),
        *([ALL_TILES] if domain.integers.tiles is not None else []),
    ]
    return Signature(own.tobytes(), (*STANDING_NOTES, *conditions, *notes))


def _block_symbols(kernel: Kernel, names: ParametricSupport) -> list[str]:
    """The special registers that the kernel reads and that depend on the grid."""
    read = {name for each in kernel.instructions for operand in each.operands for name in registers_of(operand)}
    return [*sorted(read & set(names.block)), *([EXTENT] if read & set(names.grid) else [])]


def machine_for(
    module: Module, kernel: Kernel, arch: Arch, domain: ParametricDomain, memory: ParametricMemory, granule: int
) -> Machine:
    """A machine whose rows are instances of one symbolic block, at the start of the kernel."""
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
        buffers={},
    )
    arch.special(machine, Launch(file="", grid=(2, 2, 2)))
    for name in arch.every_launch.block:
        machine.special[name] = domain.symbol(name, 32, block=True)  # type: ignore[assignment]
    for name in arch.every_launch.grid:
        machine.special[name] = domain.symbol(name, 32, block=True, axis=EXTENT)  # type: ignore[assignment]
    for name in arch.every_launch.grid_dependent:
        machine.special.pop(name, None)
    arch.every_launch.layout(machine, module, kernel)
    for index, parameter in enumerate(kernel.parameters):
        if parameter.size not in (1, 2, 4, 8):
            continue
        pointer = index if parameter.size == 8 and parameter.pointer else None
        machine.parameters[parameter.name] = domain.symbol(
            f"argument {index} of {parameter.size}", 8 * parameter.size, pointer=pointer
        )
    return machine
