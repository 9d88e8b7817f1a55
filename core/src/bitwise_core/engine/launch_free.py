"""The launch-free reading: one signature per kernel that speaks of every launch.

Two kernels of one signature return the same bits whenever they are launched with the same arguments, each with a grid
that covers the same output coordinates, under the conditions that the signature's notes name.  Where a kernel cannot
be read for every launch, its canonical text decides: the same program, or nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitwise_core.asm import Kernel, Module, registers_of
from bitwise_core.engine.folds import INSTANCES
from bitwise_core.engine.program import build
from bitwise_core.engine.program_text import text_signature
from bitwise_core.engine.symbolic_domain import WITHOUT_WRAPPING, SymbolicDomain
from bitwise_core.engine.symbolic_memory import SymbolicMemory
from bitwise_core.engine.symbolic_run import SymbolicProgram, SymbolicRun
from bitwise_core.engine.tile_function import signature_of
from bitwise_core.engine.tiles import EXTENT, TILE, Coordinates
from bitwise_core.machine import hashing
from bitwise_core.machine.arch import Arch, EveryLaunch
from bitwise_core.machine.cells import FinerGranule, SharedMemory
from bitwise_core.machine.domain import Unreadable
from bitwise_core.machine.launch import Launch
from bitwise_core.machine.races import Races
from bitwise_core.machine.state import THREAD_SHIFT, Machine

ALL_TILES = "as many blocks start a loop over tiles as the loop steps over"

MAXIMUM_STEPS = 200_000
SLOTS = 2
"""Output coordinates that are followed."""

STANDING_NOTES = (
    "pointers lead to buffers that do not overlap, and no launch is meant that has a race",
    "elements stored at different indices lie at different addresses",
    "each grid covers the same output coordinates",
)


@dataclass(frozen=True, slots=True)
class Signature:
    """Equal values mean: the same bits for every launch with the same arguments, under what `notes` name."""

    value: bytes
    notes: tuple[str, ...] = ()


def launch_free_signature(module: Module, kernel: Kernel, arch: Arch) -> Signature:
    """The signature of a kernel whose module states every rounding.  Raises Unreadable with the line that stops it."""
    text = text_signature(module, kernel, arch)
    try:
        return symbolic_signature(module, kernel, arch)
    except Unreadable as reason:
        return Signature(text, (f"text: the same program up to names; it is not read further ({reason})",))


def symbolic_signature(module: Module, kernel: Kernel, arch: Arch) -> Signature:
    """The signature of the function that the kernel computes.  Raises Unreadable."""
    if kernel.threads is None:
        raise Unreadable(f"the text of {kernel.name} does not say how many threads a block has", kernel.line)
    if arch.every_launch is None:
        raise Unreadable(f"kernels of {arch.name} are not read for every launch")
    program = build(module, kernel, arch)
    granule = arch.granule(kernel)
    blocks = _block_symbols(kernel, arch.every_launch)
    extents = dict(zip(arch.every_launch.block, arch.every_launch.grid, strict=True))
    while True:
        looping = SymbolicProgram(program, extents)
        names = [*blocks, *([TILE] if looping.tile_loops else [])]
        coordinates = Coordinates(names, SLOTS, INSTANCES if looping.loops else 0)
        domain = SymbolicDomain(coordinates.rows, coordinates)
        memory = SymbolicMemory(domain, coordinates.rows)
        machine = machine_for(module, kernel, arch, domain, memory, granule)
        try:
            SymbolicRun(looping, machine, [MAXIMUM_STEPS]).start()
        except FinerGranule as finer:
            if finer.granule >= granule:
                raise Unreadable("shared memory is accessed in units that do not fit its cells") from None
            granule = finer.granule
            continue
        break
    words, notes = signature_of(memory.elements(), coordinates)
    own = hashing.finalise(words + hashing.constant(f"{arch.name} {len(kernel.parameters)}"))
    conditions = [
        *([WITHOUT_WRAPPING] if domain.wraps_assumed else []),
        *([ALL_TILES] if domain.tiles is not None else []),
    ]
    return Signature(own.tobytes(), (*STANDING_NOTES, *conditions, *notes))


def _block_symbols(kernel: Kernel, names: EveryLaunch) -> list[str]:
    """The special registers that the kernel reads and a grid decides."""
    read = {name for each in kernel.instructions for operand in each.operands for name in registers_of(operand)}
    return [*sorted(read & set(names.block)), *([EXTENT] if read & set(names.grid) else [])]


def machine_for(
    module: Module, kernel: Kernel, arch: Arch, domain: SymbolicDomain, memory: SymbolicMemory, granule: int
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
        races=Races(4096 // granule, threads, arch.warp, rows),
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
    for name in arch.every_launch.of_grid:
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
