"""The launch-parametric analysis: one signature of a kernel for all launches.

Two kernels with the same signature return the same bits whenever they are launched with the same arguments, each with a
grid that covers the same output coordinates, under the assumptions in the notes of the signature.  A kernel whose
result is not proved to be determined has no signature.  Where the result is determined, but the analysis of the
function fails, the signature is that of the canonical text, which only the same program has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitwise_core.assembly.module import Kernel, Module, registers_of
from bitwise_core.checker.parametric.coordinates import EXTENT, TILE, Coordinates
from bitwise_core.checker.parametric.domain import ParametricDomain
from bitwise_core.checker.parametric.executor import ParametricExecutor, ParametricProgram
from bitwise_core.checker.parametric.global_conflicts import NOT_DETERMINED
from bitwise_core.checker.parametric.integers import WITHOUT_WRAPPING
from bitwise_core.checker.parametric.loop_summary import INSTANCES
from bitwise_core.checker.parametric.memory import ParametricMemory
from bitwise_core.checker.parametric.polynomial import AtomTable
from bitwise_core.checker.parametric.program_text import text_signature
from bitwise_core.checker.parametric.symbolic_races import SymbolicRaces
from bitwise_core.checker.parametric.tile_function import signature_of
from bitwise_core.execution.architecture import Arch, ParametricSupport
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.launch import Launch
from bitwise_core.execution.machine import THREAD_SHIFT, Machine
from bitwise_core.execution.memory.shared_memory import FinerGranule, SharedMemory
from bitwise_core.execution.program import build
from bitwise_core.execution.values import hashing

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
    is that of the function.
    """

    value: bytes
    notes: tuple[str, ...] = ()
    program_only: str | None = None


def parametric_signature(module: Module, kernel: Kernel, arch: Arch) -> Signature:
    """The signature of a kernel whose module states every rounding.

    Raises Unsupported with the line of the cause, also where the result of the kernel is not proved to be determined.
    """
    text = text_signature(module, kernel, arch)
    try:
        return function_signature(module, kernel, arch)
    except Unsupported as reason:
        try:
            determined = execute(module, kernel, arch, only_determined=True).check_determined()
        except Unsupported as other:
            raise (other if str(other).startswith(NOT_DETERMINED) else reason) from None
        why = f"only the program text is compared, up to names ({reason})"
        return Signature(text, (why, *DETERMINED_NOTES, *determined), program_only=why)


def function_signature(module: Module, kernel: Kernel, arch: Arch) -> Signature:
    """The signature of the function that the kernel computes.  Raises Unsupported."""
    run = execute(module, kernel, arch)
    determined = run.check_determined()
    words, notes = signature_of(run.memory.elements(), run.domain.integers)
    mixed = hashing.mix(words + hashing.constant(f"{arch.name} {len(kernel.parameters)}"))
    return Signature(mixed.tobytes(), (*COMMON_NOTES, *determined, *notes))


@dataclass(frozen=True, slots=True)
class Run:
    """A finished execution of one symbolic block."""

    domain: ParametricDomain
    memory: ParametricMemory

    def check_determined(self) -> tuple[str, ...]:
        """Check that each stored element has one value; the assumptions as notes.  Raises Unsupported."""
        determined, integers = self.memory.check_determined(), self.domain.integers
        return (
            *determined,
            *([WITHOUT_WRAPPING] if integers.wraps_assumed else []),
            *([ALL_TILES] if integers.tiles is not None else []),
        )


def execute(module: Module, kernel: Kernel, arch: Arch, *, only_determined: bool = False) -> Run:
    """Execute one symbolic block of a kernel.  Raises Unsupported.

    `only_determined`: only the proof that the result is determined is wanted, so that loops need no summary.
    """
    if kernel.threads is None:
        raise Unsupported(f"the text of {kernel.name} does not state the number of threads in a block", kernel.line)
    if arch.every_launch is None:
        raise Unsupported(f"kernels of {arch.name} have no launch-parametric analysis")
    program = build(module, kernel, arch)
    granule = arch.granule(kernel)
    block_registers = _grid_dependent_registers(kernel, arch.every_launch)
    grid_registers = dict(zip(arch.every_launch.block, arch.every_launch.grid, strict=True))
    while True:
        parametric_program = ParametricProgram(program, grid_registers, only_determined)
        names = [*block_registers, *([TILE] if parametric_program.persistent_loops and not only_determined else [])]
        coordinates = Coordinates(AtomTable(), names, MAXIMUM_COORDINATES, INSTANCES if parametric_program.loops else 0)
        domain = ParametricDomain(coordinates)
        x, y, z = kernel.threads
        memory = ParametricMemory(domain, x * y * z, only_determined)
        machine = machine_for(module, kernel, arch, domain, memory, granule, any_pointer=only_determined)
        try:
            ParametricExecutor(parametric_program, machine, [MAXIMUM_STEPS]).start()
        except FinerGranule as finer:
            if finer.granule >= granule:
                raise Unsupported("shared memory is accessed in units that do not fit its cells") from None
            granule = finer.granule
            continue
        return Run(domain, memory)


def _grid_dependent_registers(kernel: Kernel, names: ParametricSupport) -> list[str]:
    """The special registers that the kernel reads and that depend on the grid."""
    read = {name for each in kernel.instructions for operand in each.operands for name in registers_of(operand)}
    return [*sorted(read & set(names.block)), *([EXTENT] if read & set(names.grid) else [])]


def machine_for(
    module: Module,
    kernel: Kernel,
    arch: Arch,
    domain: ParametricDomain,
    memory: ParametricMemory,
    granule: int,
    *,
    any_pointer: bool = False,
) -> Machine:
    """A machine at the start of the kernel whose rows are instances of one symbolic block.

    `any_pointer`: every parameter of 8 bytes may be a pointer, also where the text does not state it.
    """
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
        races=SymbolicRaces(4096 // granule, threads, arch.warp, rows),
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
        pointer = index if parameter.size == 8 and (parameter.pointer or any_pointer) else None
        machine.parameters[parameter.name] = domain.symbol(
            f"argument {index} of {parameter.size}", 8 * parameter.size, pointer=pointer
        )
    return machine
