"""Wait hazards: registers used, or barriers passed, before the s_waitcnt that memory accesses need.

Source: AMD Instinct MI300 ISA, "Manually inserted wait states: s_waitcnt"; LLVM's SIInsertWaitcnts.
Vector memory accesses are counted by vmcnt and complete in order, shared memory accesses by lgkmcnt and complete in
order, scalar memory accesses by lgkmcnt and complete in any order.  A data-flow analysis over all paths of the kernel
checks two rules.  The destination register of a pending access is neither read nor written, except by a later vector
memory load, which completes later.  No barrier is passed while a shared memory access is pending.  A barrier that is
passed while a global memory write is pending does not order global memory accesses.  No access may be pending where a
function is entered or returns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from bitwise_amd_gfx942.analyses.control_flow import successors
from bitwise_amd_gfx942.opcodes.forms import form
from bitwise_core.assembly.module import Immediate, Instruction, Kernel, Symbol, once_a_kernel, registers_of
from bitwise_core.execution.architecture import OpcodeTable, infos_of
from bitwise_core.execution.instruction_info import Effect, InstructionInfo, once_a_text

_COUNT = re.compile(r"(vmcnt|lgkmcnt|expcnt)\((\d{1,4})\)")
_SHARED_WRITE, _SHARED_READ = "writes of shared memory", "reads of shared memory"
_GLOBAL_WRITE = "writes of global memory"
_COUNTER_LIMITS = {"vmcnt": 63, "lgkmcnt": 15}
"""The maximum of each counter: a wave stalls while its counter is full, so older in-order accesses have completed."""


@dataclass(frozen=True, slots=True)
class MemoryAccess:
    """A memory access: the counter it increments, whether it completes in order, the registers it writes."""

    counter: str
    in_order: bool
    destinations: frozenset[str]


@dataclass(frozen=True, slots=True)
class WaitHazards:
    """The hazards of a kernel.

    `hazards` maps the line of an instruction that is issued too early to what it does not wait for, the end of a
    sentence.  `unordered_barriers` holds the lines of barriers that are passed while a global write may be pending.
    """

    hazards: Mapping[int, str]
    unordered_barriers: frozenset[int]


Pending: TypeAlias = dict[tuple[str, str, bool], int]
"""Pending accesses: counter, register, and whether they complete in order, to the number of later accesses."""


_SCALAR, _SHARED = ("s_load", "s_buffer_load", "s_memtime"), ("ds_",)
_MEMORY = (*_SCALAR, *_SHARED, "buffer_", "global_", "scratch_", "flat_")


def memory_accesses(instruction: Instruction, info: InstructionInfo) -> tuple[MemoryAccess, ...]:
    """The memory accesses of an instruction."""
    if not instruction.opcode.startswith(_MEMORY):
        return ()
    found = form(instruction.opcode)
    name = found.name
    if name.startswith(_SCALAR):
        return (MemoryAccess("lgkmcnt", False, info.writes),)
    if name.startswith(_SHARED):
        destinations = info.writes
        if info.effects.overlaps(Effect.STORE):
            destinations |= {_SHARED_WRITE}
        if info.effects.overlaps(Effect.LOAD):
            destinations |= {_SHARED_READ}
        return (MemoryAccess("lgkmcnt", True, destinations),)
    if name in ("buffer_inv", "buffer_wbl2"):
        return ()
    reads = "_load_" in name or "sc0" in found.modifiers
    destinations = info.writes if reads and "_store_" not in name else frozenset()
    if "_load_" not in name and not name.startswith("scratch_"):
        destinations |= {_GLOBAL_WRITE}
    if name.startswith("flat_"):
        return MemoryAccess("vmcnt", False, destinations), MemoryAccess("lgkmcnt", False, destinations)
    return (MemoryAccess("vmcnt", True, destinations),)


def wait_counts(instruction: Instruction) -> dict[str, int]:
    """The counts of an s_waitcnt by counter, from its symbols or its encoded immediate."""
    found = {}
    for operand in instruction.operands:
        if isinstance(operand, Symbol):
            count = _COUNT.fullmatch(operand.name)
            if count is not None:
                found[count[1]] = int(count[2])
        elif isinstance(operand, Immediate):
            encoded = operand.value
            found = {"vmcnt": encoded & 15 | encoded >> 10 & 48, "lgkmcnt": encoded >> 8 & 15}
    return found


class _InstructionEffects:
    """The effects of one instruction on pending accesses, computed once."""

    __slots__ = ("accesses", "acts", "barrier", "names", "overwritten", "returns", "touched", "waits")

    def __init__(self, instruction: Instruction, info: InstructionInfo) -> None:
        name = form(instruction.opcode).name
        self.waits = wait_counts(instruction) if name == "s_waitcnt" else {}
        self.accesses = memory_accesses(instruction, info)
        self.barrier = info.effects.overlaps(Effect.BARRIER)
        self.names = info.reads | info.writes
        self.returns = name == "s_setpc_b64"
        self.overwritten: frozenset[str] = frozenset()
        if (
            len(self.accesses) == 1
            and self.accesses[0].counter == "vmcnt"
            and "_load_" in name
            and instruction.operands
            and info.writes
        ):
            target, *others = instruction.operands
            self.overwritten = frozenset(registers_of(target) - registers_of(*others))
            self.names -= self.overwritten
        self.touched = self.names | self.overwritten
        self.acts = bool(self.waits or self.accesses or self.barrier or self.returns)
        """Whether it has an effect also where no access to what it touches is pending."""


@once_a_text
def _effects_of(instruction: Instruction, info: InstructionInfo) -> _InstructionEffects:
    return _InstructionEffects(instruction, info)


def hazards_by_line(kernel: Kernel, opcodes: OpcodeTable) -> Mapping[int, str]:
    """Map the line of each instruction that is issued too early to what it does not wait for."""
    return wait_hazards(kernel, opcodes).hazards


@once_a_kernel
def wait_hazards(kernel: Kernel, opcodes: OpcodeTable) -> WaitHazards:
    """Find the wait hazards of a kernel."""
    effects = list(map(_effects_of, kernel.instructions, infos_of(kernel, opcodes)))
    following = successors(kernel, opcodes)
    entries: dict[int, Pending] = {0: {}}
    hazards: dict[int, str] = {}
    unordered: set[int] = set()
    if not kernel.entry and effects and any(effects[0].waits.get(each) != 0 for each in _COUNTER_LIMITS):
        hazards[kernel.instructions[0].line] = "begins a function without waiting for pending memory accesses"
    leaders = {*kernel.labels.values(), 0}
    work = [0]
    while work:
        index = work.pop()
        pending = dict(entries[index])
        names = _pending_registers(pending)
        while True:
            if effects[index].barrier and _GLOBAL_WRITE in names:
                unordered.add(kernel.instructions[index].line)
            if effects[index].acts or not names.isdisjoint(effects[index].touched):
                pending, names = _after(effects[index], kernel.instructions[index], pending, names, hazards)
            if following[index] == (index + 1,) and index + 1 not in leaders and index + 1 < len(effects):
                index += 1
                continue
            break
        for each in following[index]:
            if each == len(effects):
                continue
            old = entries.get(each)
            if old is None:
                entries[each] = dict(pending)
                work.append(each)
                continue
            changed = False
            for key, age in pending.items():
                if key not in old or old[key] > age:
                    old[key], changed = age, True
            if changed:
                work.append(each)
    return WaitHazards(hazards, frozenset(unordered))


def _pending_registers(pending: Pending) -> frozenset[str]:
    """The registers with a pending access."""
    return frozenset([name for _, name, _ in pending])


def _after(
    effects: _InstructionEffects,
    instruction: Instruction,
    pending: Pending,
    names: frozenset[str],
    hazards: dict[int, str],
) -> tuple[Pending, frozenset[str]]:
    """The pending accesses after an instruction, and their registers; records in `hazards` what it uses too early.

    `names` are the pending registers before it.
    """
    if effects.waits:
        left = _after_wait(pending, effects.waits)
        return left, _pending_registers(left)
    if not pending and not effects.accesses:
        return pending, names
    if pending:
        if effects.barrier and ("lgkmcnt", _SHARED_WRITE, True) in pending:
            hazards[instruction.line] = "passes a barrier while a write of shared memory is pending"
        elif effects.barrier and ("lgkmcnt", _SHARED_READ, True) in pending:
            hazards[instruction.line] = "passes a barrier while a read of shared memory is pending"
        if effects.returns and not names <= {"", _GLOBAL_WRITE}:
            hazards[instruction.line] = "returns from a function while memory accesses are pending"
        early = None
        if not names.isdisjoint(effects.names):
            early = next(name for _, name, _ in pending if name in effects.names)
        elif not names.isdisjoint(effects.overwritten):
            early = next((each[1] for each in pending if _may_complete_later(each, effects.overwritten)), None)
        if early is not None:
            hazards[instruction.line] = f"uses {early} before the memory access to it has completed"
    for access in effects.accesses:
        limit = _COUNTER_LIMITS[access.counter]
        out_of_order = access.counter in _unordered_counters(pending)
        before = len(pending)
        pending = {
            key: min(age + 1, limit) if key[0] == access.counter else age
            for key, age in pending.items()
            if key[0] != access.counter or age + 1 < limit or out_of_order
        }
        if len(pending) < before:
            names = _pending_registers(pending)
        destinations = access.destinations or _NO_REGISTER
        for name in destinations:
            pending[access.counter, name, access.in_order] = 0
        names |= destinations
    return pending, names


_NO_REGISTER = frozenset({""})
"""The destination of an access that writes no register."""


def _may_complete_later(key: tuple[str, str, bool], overwritten: frozenset[str]) -> bool:
    """Whether a pending access to a register that a load overwrites may complete after that load."""
    counter, name, in_order = key
    return name in overwritten and (counter != "vmcnt" or not in_order)


def _after_wait(pending: Pending, waits: dict[str, int]) -> Pending:
    """The accesses that are still pending after an s_waitcnt."""
    unordered = _unordered_counters(pending)
    for counter, count in waits.items():
        if count == 0 or counter not in unordered:
            pending = {key: age for key, age in pending.items() if key[0] != counter or age < count}
    return pending


def _unordered_counters(pending: Pending) -> set[str]:
    """The counters with a pending out-of-order access: the oldest access need not be the first to complete."""
    return {counter for counter, _, in_order in pending if not in_order}
