"""ds_ reads that follow each other: the first one reads for all.

Compilers load a column of a tile by dozens of narrow reads with different offsets.  Between the reads of a run nothing
writes shared memory, no barrier comes, and the registers of the addresses and the execution mask stay, so that each
read finds the same and takes part in the same races wherever in the run it is made.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bitwise_amd_gfx942.opcodes.forms import check_modifiers, form, immediate_offset
from bitwise_amd_gfx942.opcodes.operands.implicit_registers import EXECUTION_MASK
from bitwise_core.assembly.module import Instruction, Kernel, Register, once_a_kernel
from bitwise_core.execution.architecture import OpcodeTable, UnknownInstruction, infos_of
from bitwise_core.execution.instruction_info import Effect, InstructionInfo
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.memory.access import read_together
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value

_READ = re.compile(r"ds_read_(?:b(32|64|128)|[ui](8|16)(?:_d16(?:_hi)?)?)")
_TWO = re.compile(r"ds_(?:read|write)2(st64)?_b(32|64)")
_NAME = "shared reads"
DOMAINS = ("terms", "bits")
"""The domains in which accesses that follow each other are made together."""
_MOST_PARTS = 64
"""The largest number of parts that are read together."""
_ENDS = Effect.BRANCH | Effect.CALL | Effect.END | Effect.BARRIER | Effect.ASYNCHRONOUS


@dataclass(frozen=True, slots=True)
class SharedRead:
    """What a read accesses: parts of `bits` bits, at offsets in bytes from the number in a register."""

    register: str
    bits: int
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """Reads of parts of `bits` bits.  `places` has for each part the register of its address and its offset."""

    bits: int
    places: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """The parts of a run, and what must not have changed since they were read."""

    run: _Run
    numbers: Mapping[str, Value]
    mask: Array | None
    memory: object
    version: int
    parts: Sequence[Value]

    def holds(self, machine: Machine, run: _Run, register: str) -> bool:
        """Return whether a read finds the parts that were read for it."""
        same = self.run is run and self.mask is machine.mask
        same = same and self.memory is machine.shared and self.version == machine.shared.version
        return same and self.numbers[register] is machine.registers.get(register)


@dataclass(frozen=True, slots=True, eq=False)
class ReadOfRun:
    """One of the reads of a run, whose first part has a number among all parts."""

    read: SharedRead
    run: _Run
    first: int

    def parts(self, machine: Machine) -> Sequence[Value] | None:
        """Return the parts that the read returns, if they are read together with others."""
        runs: dict[int, _Found] = machine.extra.get(_NAME, {})
        bits, end = self.run.bits, self.first + len(self.read.offsets)
        if self.first == 0:
            found = self._read(machine)
            if found is None:
                return None
            machine.extra.setdefault(_NAME, {})[bits] = found
            return found.parts[:end]
        kept = runs.get(bits)
        if kept is None:
            return None
        same = kept.holds(machine, self.run, self.read.register)
        if not same or end == len(self.run.places):
            del runs[bits]
            if not runs:
                del machine.extra[_NAME]
        return kept.parts[self.first : end] if same else None

    def _read(self, machine: Machine) -> _Found | None:
        """Read for all reads of the run."""
        if machine.domain.name not in DOMAINS or machine.condition is not None or machine.path is not None:
            return None
        numbers: dict[str, Value] = {}
        addresses: dict[str, Array] = {}
        for register in dict.fromkeys(register for register, _ in self.run.places):
            # Each read of the run declares its own register, and tests that this is still its content.
            number = dict.get(machine.registers, register)
            if not (isinstance(number, np.ndarray) or type(number) is SymbolicVector):
                return None
            known = machine.known(number)
            if known is None or known.shape != (1, machine.threads) or L.width(number) != 32:
                return None
            numbers[register], addresses[register] = number, known
        places = [(addresses[register] + np.uint32(offset)).astype(np.uint64) for register, offset in self.run.places]
        parts = read_together(machine, places, self.run.bits)
        if parts is None:
            return None
        return _Found(self.run, numbers, machine.mask, machine.shared, machine.shared.version, parts)


def read_offset(instruction: Instruction, name: str = "offset") -> int:
    """The constant offset of an access.  Raises UnknownInstruction for any other modifier."""
    found = check_modifiers(instruction, "offset", "offset0", "offset1")
    return immediate_offset(instruction, found, 16 if name == "offset" else 8, name)


def element_bits_and_stride(name: str) -> tuple[int, int] | None:
    """The width of an element of an access to two places in bits, and the unit of its offsets in bytes."""
    found = _TWO.fullmatch(name)
    if found is None:
        return None
    bits = int(found[2])
    return bits, bits // 8 * (64 if found[1] else 1)


def shared_read(instruction: Instruction) -> SharedRead | None:
    """What a read accesses in parts of one width; None for any other instruction."""
    if not instruction.opcode.startswith("ds_read") or len(instruction.operands) != 2:
        return None
    name, address = form(instruction.opcode).name, instruction.operands[1]
    one, two = _READ.fullmatch(name), element_bits_and_stride(name)
    if not isinstance(address, Register) or (one is None and two is None):
        return None
    try:
        if two is not None:
            bits, factor = two
            offsets = tuple(factor * read_offset(instruction, each) for each in ("offset0", "offset1"))
            return SharedRead(address.name, bits, offsets)
        assert one is not None
        offset, bits = read_offset(instruction), int(one[1] or one[2])
    except UnknownInstruction:
        return None
    return SharedRead(address.name, min(bits, 64), (offset, offset + 8) if bits == 128 else (offset,))


@once_a_kernel
def reads_of_runs(kernel: Kernel, opcodes: OpcodeTable) -> Mapping[int, ReadOfRun]:
    """Return the reads that are made together with others, by the identity of the instruction."""
    entries = set(kernel.labels.values())
    copying = copies_to_shared(kernel)
    found: dict[int, ReadOfRun] = {}
    runs: dict[int, list[tuple[Instruction, SharedRead]]] = {}
    written: dict[int, set[str]] = {}
    """By width: the reads of the current run, and the registers that were written since it began."""

    def close(bits: int) -> None:
        members = runs.pop(bits, [])
        if len(members) > 1:
            run = _Run(bits, tuple((read.register, offset) for _, read in members for offset in read.offsets))
            first = 0
            for instruction, read in members:
                found[id(instruction)] = ReadOfRun(read, run, first)
                first += len(read.offsets)

    for index, (instruction, info) in enumerate(zip(kernel.instructions, infos_of(kernel, opcodes), strict=True)):
        read = shared_read(instruction)
        if not runs and read is None:
            continue
        if index in entries or ends_a_run(instruction, info, copying):
            for bits in list(runs):
                close(bits)
        if read is not None:
            parts = sum(len(each.offsets) for _, each in runs.get(read.bits, ())) + len(read.offsets)
            if parts > _MOST_PARTS or read.register in written.get(read.bits, ()):
                close(read.bits)
            if read.bits not in runs:
                runs[read.bits], written[read.bits] = [], set()
            runs[read.bits].append((instruction, read))
        for bits in runs:
            written[bits].update(info.writes)
    for bits in list(runs):
        close(bits)
    return found


def copies_to_shared(kernel: Kernel) -> frozenset[str]:
    """Return the opcodes of a kernel that copy from global to shared memory."""
    return frozenset(each for each in {each.opcode for each in kernel.instructions} if "lds" in form(each).modifiers)


def ends_a_run(instruction: Instruction, info: InstructionInfo, copying: Collection[str]) -> bool:
    """Return whether accesses on both sides of an instruction are not made together; `copying` write shared memory."""
    opcode = instruction.opcode
    writes = info.effects.overlaps(Effect.STORE) and not opcode.startswith(("global_", "buffer_"))
    arrives = bool(copying) and (opcode in copying or opcode.startswith("s_waitcnt"))
    return writes or arrives or info.effects.overlaps(_ENDS) or not EXECUTION_MASK.isdisjoint(info.writes)
