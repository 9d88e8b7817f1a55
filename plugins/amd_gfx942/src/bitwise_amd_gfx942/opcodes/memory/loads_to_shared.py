"""Buffer loads into shared memory (modifier lds), whose bytes arrive when their wave has waited for them.

Source: AMD Instinct MI300 ISA, "Buffer load to LDS"; LLVM's documentation of llvm.amdgcn.raw.ptr.buffer.load.lds: lane
i of a wave writes at M0 plus the constant offset plus i times the size of its load.
Until s_waitcnt lets no more vector memory accesses be pending than the wave has issued after such a load, an access to
its cells is a race.  A wave whose execution mask is empty at an access is not counted: it then waits for more.  Where
data may decide whether a wave executes an instruction, no access is counted, and no wait ends a load.  Accesses to flat
memory may complete in another order, so that in a kernel with one only a wait for all accesses ends a load.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from bitwise_amd_gfx942.analyses.wait_hazards import memory_accesses, wait_counts
from bitwise_amd_gfx942.opcodes.forms import form, immediate_offset
from bitwise_amd_gfx942.opcodes.memory.buffers import access_reader, loaded
from bitwise_amd_gfx942.opcodes.memory.shared_memory import order_wave_accesses
from bitwise_amd_gfx942.opcodes.operands.execution_mask import active_lanes
from bitwise_amd_gfx942.opcodes.operands.operand_access import reader
from bitwise_amd_gfx942.registers import EXEC
from bitwise_core.assembly.module import Instruction, Kernel, Register, once_a_kernel, registers_of
from bitwise_core.execution.alternatives import Alternative, NotJoined, Ways
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.domains.domain import DataDependent
from bitwise_core.execution.instruction_info import Effect, InstructionInfo
from bitwise_core.execution.machine import Control, Machine, Step
from bitwise_core.execution.memory.access import accessed_cells, check_aligned, detector_cells
from bitwise_core.execution.values.symbolic_vector import Array

_NAME = "loads into shared memory"
_SIZES = {"dword": 4, "dwordx3": 12, "dwordx4": 16}


def loads_to_shared(instruction: Instruction) -> bool:
    """Whether an instruction is a load into shared memory."""
    return "lds" in form(instruction.opcode).modifiers


def info_of_load(instruction: Instruction) -> InstructionInfo:
    """What a load into shared memory reads, writes and does: it writes no register."""
    reads = frozenset({"m0", *registers_of(*instruction.operands)})
    return InstructionInfo(reads, frozenset(), Effect.LOAD | Effect.STORE)


@dataclass(slots=True)
class PendingLoad:
    """A load in flight: its cells, the lanes (blocks, threads) that have not waited for it, and its number by wave."""

    cells: Array
    lanes: Array
    bits: int
    number: Array


@dataclass(slots=True)
class WaveAccesses(Alternative):
    """The vector memory accesses that each wave has issued, (blocks, waves) or (1, 1), and the loads in flight."""

    issued: Array = field(default_factory=lambda: np.zeros((1, 1), dtype=np.int64))
    pending: list[PendingLoad] = field(default_factory=list)

    def copy(self) -> WaveAccesses:
        """See `Alternative.copy`."""
        return WaveAccesses(self.issued, [replace(each) for each in self.pending])

    def joined(self, other: WaveAccesses, ways: Ways) -> WaveAccesses:
        """See `Alternative.joined`: without loads in flight, it has no effect how many accesses a wave has issued."""
        if self.pending or other.pending:
            same = len(self.pending) == len(other.pending) and np.array_equal(self.issued, other.issued)
            if not same or not all(map(_is_same_load, self.pending, other.pending)):
                raise NotJoined("the ways of a branch on data leave different loads into shared memory in flight")
        return WaveAccesses(np.maximum(self.issued, other.issued), [replace(each) for each in self.pending])


def _is_same_load(left: PendingLoad, right: PendingLoad) -> bool:
    """Return whether two loads in flight are one that was issued before a branch."""
    same = left.cells is right.cells and np.array_equal(left.lanes, right.lanes)
    return same and np.array_equal(left.number, right.number)


def _accesses(machine: Machine) -> WaveAccesses:
    found: WaveAccesses | None = machine.extra.get(_NAME)
    if found is None:
        waves = machine.threads // machine.warp
        found = machine.extra[_NAME] = WaveAccesses(np.zeros((machine.blocks, waves), dtype=np.int64))
    return found


def _waves(machine: Machine, lanes: Array) -> Array:
    """The waves with an active lane, of shape (blocks, waves)."""
    shape = machine.blocks, machine.threads // machine.warp, machine.warp
    found: Array = np.any(np.broadcast_to(lanes, (machine.blocks, machine.threads)).reshape(shape), axis=2)
    return found


def load_to_shared(instruction: Instruction, context: Context) -> Step:
    """buffer_load_{dword,dwordx3,dwordx4} lds: each active lane copies its bytes; zeros where it is out of bounds."""
    size = _SIZES.get(form(instruction.opcode).name.removeprefix("buffer_load_"))
    if size is None or len(instruction.operands) != 3:
        raise UnknownInstruction(instruction, "does not load into shared memory in this size")
    if size > 4 and context.arch.name == "gfx942":
        raise UnknownInstruction(instruction, "needs gfx950 or later, and this is gfx942")
    find = access_reader(instruction, instruction.operands, further=("lds",))
    offset = immediate_offset(instruction, form(instruction.opcode), 12)
    read_base, line = reader(Register("m0"), "b32", instruction), instruction.line

    def step(machine: Machine) -> None:
        base = machine.known(read_base(machine))
        access = find(machine)
        if base is None or access.condition is not None or machine.known(access.offset) is None:
            raise DataDependent("a load into shared memory depends on data", line)
        lane = np.arange(machine.threads, dtype=np.int64)[None] % machine.warp
        address = (base.astype(np.int64) + offset + size * lane).astype(np.uint64)
        check_aligned(machine, address, 4, line)
        value = loaded(machine, access, 8 * size, line)
        order_wave_accesses(machine)
        cells = accessed_cells(machine, address)
        for races, where, threads in detector_cells(machine, cells, 8 * size, machine.mask):
            races.writes(where, threads, pending=True)
        machine.shared.store(cells, value, machine.mask)
        lanes = np.broadcast_to(machine.active(), (machine.blocks, machine.threads)).copy()
        found = _accesses(machine)
        number = np.where(_waves(machine, lanes), found.issued + 1, 0)
        found.pending.append(PendingLoad(cells, lanes, 8 * size, number))

    return step


@once_a_kernel
def _has_loads(kernel: Kernel) -> bool:
    return any(loads_to_shared(each) for each in kernel.instructions)


@once_a_kernel
def _has_flat_accesses(kernel: Kernel) -> bool:
    return any(each.opcode.startswith("flat_") for each in kernel.instructions)


def followed(step: Step, instruction: Instruction, context: Context) -> Step:
    """The step of an instruction, which in such a kernel also counts its accesses, or ends loads that it waits for."""
    if not _has_loads(context.kernel):
        return step
    if form(instruction.opcode).name == "s_waitcnt":
        left = wait_counts(instruction).get("vmcnt")
        return step if left is None or (left and _has_flat_accesses(context.kernel)) else _ending(left)
    accesses = memory_accesses(instruction, context.arch.opcodes.info(instruction))
    return _counting(step, instruction) if any(each.counter == "vmcnt" for each in accesses) else step


def _counting(step: Step, instruction: Instruction) -> Step:
    def run(machine: Machine) -> Control | None:
        try:
            lanes = active_lanes(machine)
        except TypeError:
            raise DataDependent("data decides which accesses a wave waits for", instruction.line) from None
        control = step(machine)
        if machine.condition is not None:
            return control
        found = _accesses(machine)
        acting = np.ones((1, 1), dtype=bool) if lanes is None else lanes
        found.issued = found.issued + _waves(machine, acting)
        return control

    return run


def _ending(left: int) -> Step:
    """s_waitcnt vmcnt(left): the loads are complete after which a wave has issued as many accesses."""

    def step(machine: Machine) -> None:
        if machine.condition is not None or machine.known(machine.registers[EXEC]) is None:
            return
        found = _accesses(machine)
        acting = _waves(machine, machine.active())
        for each in found.pending:
            done = acting & (each.number > 0) & (found.issued - each.number >= left)
            lanes = each.lanes & np.repeat(done, machine.warp, axis=1)
            if not lanes.any():
                continue
            for races, where, threads in detector_cells(machine, each.cells, each.bits, lanes):
                races.finished(where, threads)
            each.lanes = each.lanes & ~lanes
        found.pending = [each for each in found.pending if each.lanes.any()]

    return step
