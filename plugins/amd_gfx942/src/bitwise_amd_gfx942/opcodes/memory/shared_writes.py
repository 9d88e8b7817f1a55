"""ds_ writes that follow each other: the first one writes for all.

Compilers store a column of a tile by dozens of narrow writes with different offsets.  Between the writes of a run
nothing else accesses shared memory, no barrier comes, and the registers and the execution mask stay, so that they have
one effect wherever in the run they are made, unless two of them write one place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bitwise_amd_gfx942.addresses.address_words import may_read_words
from bitwise_amd_gfx942.opcodes.forms import form
from bitwise_amd_gfx942.opcodes.memory.shared_reads import DOMAINS, copies_to_shared, ends_a_run, read_offset
from bitwise_amd_gfx942.opcodes.operands.operand_access import Reader, part_reader, reader
from bitwise_core.assembly.module import Instruction, Kernel, once_a_kernel
from bitwise_core.execution.alternatives import SharedByWays
from bitwise_core.execution.architecture import OpcodeTable, UnknownInstruction, infos_of
from bitwise_core.execution.instruction_info import Effect, InstructionInfo
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.memory.access import write_together
from bitwise_core.execution.memory.shared_memory import SharedMemory
from bitwise_core.execution.values.symbolic_vector import Array, Value

_WRITES = {
    "ds_write_b8": (8, 0),
    "ds_write_b16": (16, 0),
    "ds_write_b8_d16_hi": (8, 16),
    "ds_write_b16_d16_hi": (16, 16),
    "ds_write_b32": (32, 0),
}
"""The width of what a write stores, and the bit of its register from which it is."""

_NAME = "shared writes"
_MOST_WRITES = 64
"""The largest number of writes that are made together."""


@dataclass(frozen=True, slots=True, eq=False)
class _Write:
    """A write of a value of some bits, at an offset from an address."""

    instruction: Instruction
    address: Reader
    offset: int
    value: Reader
    bits: int


@dataclass(frozen=True, slots=True, eq=False)
class _Made(SharedByWays):
    """The writes of a run were made; `following` is the number of the next one, which has no effect any more."""

    run: Sequence[_Write]
    following: int
    mask: Array | None
    memory: SharedMemory
    version: int


@dataclass(frozen=True, slots=True, eq=False)
class WriteOfRun:
    """One of the writes of a run, by its number in the run."""

    run: Sequence[_Write]
    number: int

    def was_made(self, machine: Machine) -> bool:
        """Return whether the first write of the run was made for this one as well."""
        made: _Made | None = machine.extra.pop(_NAME, None)
        if made is None or made.run is not self.run or made.following != self.number:
            return False
        shared = machine.shared
        if made.mask is not machine.mask or made.memory is not shared or made.version != shared.version:
            return False
        if self.number + 1 < len(self.run):
            machine.extra[_NAME] = _Made(self.run, self.number + 1, made.mask, shared, made.version)
        return True

    def make_all(self, machine: Machine) -> bool:
        """Make the writes of the run if this is the first one; return whether they were made."""
        if self.number or machine.domain.name not in DOMAINS or machine.path is not None or not machine.runs_to_end:
            return False
        if may_read_words(machine, frozenset(id(each.instruction) for each in self.run)):
            return False  # a word of an address is undetermined in the step of its own instruction only
        if type(machine.registers) is not dict:
            return False  # whoever keeps registers of another kind follows which ones an instruction reads
        known: dict[Reader, Array] = {}
        for each in self.run:
            if each.address not in known:
                number = machine.known(each.address(machine))
                if number is None or number.shape != (1, machine.threads):
                    return False
                known[each.address] = number
        places = [(known[each.address] + np.uint32(each.offset)).astype(np.uint64) for each in self.run]
        values: list[Value] = [each.value(machine) for each in self.run]
        if not write_together(machine, places, values, [each.instruction.line for each in self.run]):
            return False
        machine.extra[_NAME] = _Made(self.run, 1, machine.mask, machine.shared, machine.shared.version)
        return True


@once_a_kernel
def writes_of_runs(kernel: Kernel, opcodes: OpcodeTable) -> Mapping[int, WriteOfRun]:
    """Return the writes that are made together with others, by the identity of the instruction."""
    found: dict[int, WriteOfRun] = {}
    if not any(each.opcode.startswith("ds_write_b") for each in kernel.instructions):
        return found
    entries, copying = set(kernel.labels.values()), copies_to_shared(kernel)
    members: list[_Write] = []
    written: set[str] = set()
    """The registers that were written since the run began."""

    def close() -> None:
        run = tuple(members)
        if len(run) > 1:
            found.update((id(each.instruction), WriteOfRun(run, number)) for number, each in enumerate(run))
        members.clear()
        written.clear()

    for index, (instruction, info) in enumerate(zip(kernel.instructions, infos_of(kernel, opcodes), strict=True)):
        write = _write(instruction)
        if write is None:
            if members and (index in entries or _ends(instruction, info, copying)):
                close()
        else:
            ends = index in entries or not written.isdisjoint(info.reads) or len(members) == _MOST_WRITES
            if members and (ends or write.bits != members[0].bits):
                close()
            members.append(write)
        if members:
            written.update(info.writes)
    close()
    return found


def _ends(instruction: Instruction, info: InstructionInfo, copying: frozenset[str]) -> bool:
    """Return whether writes on both sides of an instruction are not made together."""
    reads = info.effects.overlaps(Effect.LOAD) and not instruction.opcode.startswith(("global_", "buffer_", "s_"))
    return reads or ends_a_run(instruction, info, copying)


def _shape(instruction: Instruction) -> tuple[int, int] | None:
    """Return the width of what a narrow write stores, and the first bit of its register; None for others."""
    return _WRITES.get(form(instruction.opcode).name) if instruction.opcode.startswith("ds_write_b") else None


def _write(instruction: Instruction) -> _Write | None:
    """Return what a narrow write does; None for any other instruction."""
    shape = _shape(instruction)
    if shape is None or len(instruction.operands) != 2:
        return None
    bits, low = shape
    address, source = instruction.operands
    try:
        value = part_reader(source, low, bits, instruction)
        return _Write(instruction, reader(address, "b32", instruction), read_offset(instruction), value, bits)
    except UnknownInstruction:
        return None
