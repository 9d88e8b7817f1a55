"""What is used before it has arrived: memory answers late, and a kernel must wait with s_waitcnt.

Source: AMD Instinct MI300 ISA, "Manually inserted wait states: s_waitcnt"; LLVM's SIInsertWaitcnts.
Accesses of vector memory are counted by vmcnt and answered in order, those of shared memory by lgkmcnt and in order,
those of scalar memory by lgkmcnt in any order.  Followed over all ways through the kernel: a register that an
access may not have filled yet is not to be read or written, but by a later load of vector memory, whose answer comes
later; and no barrier may be passed while shared memory may still be read or written.  A barrier that may be passed amid
writes of global memory orders none of its accesses.  A function begins where all has arrived, and returns so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from bitwise_amd_gfx942.flow import successors
from bitwise_amd_gfx942.opcodes.forms import form
from bitwise_core.assembly.module import Immediate, Instruction, Kernel, Symbol, once_a_kernel, registers_of
from bitwise_core.execution.architecture import OpcodeTable, infos_of
from bitwise_core.execution.instruction_info import Effect, InstructionInfo

_COUNT = re.compile(r"(vmcnt|lgkmcnt|expcnt)\((\d{1,4})\)")
_SHARED_WRITE, _SHARED_READ = "writes of shared memory", "reads of shared memory"
_STORE = "writes of global memory"
_HOLDS = {"vmcnt": 63, "lgkmcnt": 15}
"""How many accesses a counter counts: a full one holds the wave back, so that older ones have arrived."""


@dataclass(frozen=True, slots=True)
class Access:
    """What an instruction asks of memory: which counter it raises, whether answers come in order, what they fill."""

    counter: str
    ordered: bool
    fills: frozenset[str]


@dataclass(frozen=True, slots=True)
class Waiting:
    """By the line of an instruction that comes too early what it does not wait for; the barriers amid global writes."""

    hazards: Mapping[int, str]
    loose: frozenset[int]


Pending: TypeAlias = dict[tuple[str, str], int]
"""By counter and register (a name ending in `?` comes in any order), how many accesses were made after it."""


_SCALAR, _SHARED = ("s_load", "s_buffer_load", "s_memtime"), ("ds_",)
_MEMORY = (*_SCALAR, *_SHARED, "buffer_", "global_", "scratch_", "flat_")


def access_of(instruction: Instruction, info: InstructionInfo) -> tuple[Access, ...]:
    """What an instruction asks of memory."""
    if not instruction.opcode.startswith(_MEMORY):
        return ()
    found = form(instruction.opcode)
    name = found.name
    if name.startswith(_SCALAR):
        return (Access("lgkmcnt", False, info.writes),)
    if name.startswith(_SHARED):
        fills = frozenset({_SHARED_WRITE}) if name.startswith("ds_write") else info.writes
        return (Access("lgkmcnt", True, fills | {_SHARED_READ} if name.startswith("ds_read") else fills),)
    if name in ("buffer_inv", "buffer_wbl2"):
        return ()
    reads = "_load_" in name or "sc0" in found.modifiers
    fills = info.writes if reads and "_store_" not in name else frozenset()
    if "_load_" not in name and not name.startswith("scratch_"):
        fills |= {_STORE}
    if name.startswith("flat_"):
        return Access("vmcnt", False, fills), Access("lgkmcnt", False, fills)
    return (Access("vmcnt", True, fills),)


def _waits(instruction: Instruction) -> dict[str, int]:
    found = {}
    for operand in instruction.operands:
        if isinstance(operand, Symbol):
            count = _COUNT.fullmatch(operand.name)
            if count is not None:
                found[count[1]] = int(count[2])
        elif isinstance(operand, Immediate):
            number = operand.value
            found = {"vmcnt": number & 15 | number >> 10 & 48, "lgkmcnt": number >> 8 & 15}
    return found


class _Effects:
    """What one instruction does to what is pending, worked out once."""

    __slots__ = ("accesses", "barrier", "filled", "names", "returns", "waits")

    def __init__(self, instruction: Instruction, info: InstructionInfo) -> None:
        name = form(instruction.opcode).name
        self.waits = _waits(instruction) if name == "s_waitcnt" else {}
        self.accesses = access_of(instruction, info)
        self.barrier = Effect.BARRIER in info.effects
        self.names = info.reads | info.writes
        self.returns = name == "s_setpc_b64"
        self.filled: frozenset[str] = frozenset()
        if (
            len(self.accesses) == 1
            and self.accesses[0].counter == "vmcnt"
            and "_load_" in name
            and instruction.operands
        ):
            target, *others = instruction.operands
            self.filled = frozenset(registers_of(target) - registers_of(*others))
            self.names -= self.filled


def hazards_of(kernel: Kernel, opcodes: OpcodeTable) -> Mapping[int, str]:
    """By the line of an instruction that comes too early: what it does not wait for."""
    return waiting_of(kernel, opcodes).hazards


@once_a_kernel
def waiting_of(kernel: Kernel, opcodes: OpcodeTable) -> Waiting:
    """What a kernel does not wait for."""
    effects = [_Effects(*each) for each in zip(kernel.instructions, infos_of(kernel, opcodes), strict=True)]
    following = successors(kernel, opcodes)
    entries: dict[int, Pending] = {0: {}}
    found: dict[int, str] = {}
    loose: set[int] = set()
    if not kernel.entry and effects and any(effects[0].waits.get(each) != 0 for each in _HOLDS):
        found[kernel.instructions[0].line] = "begins a function and does not wait for what was asked of memory before"
    heads = {*kernel.labels.values(), 0}
    work = [0]
    while work:
        index = work.pop()
        pending = dict(entries[index])
        names = _names(pending)
        while True:
            if effects[index].barrier and _STORE in names:
                loose.add(kernel.instructions[index].line)
            after = _after(effects[index], kernel.instructions[index], pending, names, found)
            if after is not pending:
                pending, names = after, _names(after)
            if following[index] == (index + 1,) and index + 1 not in heads and index + 1 < len(effects):
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
    return Waiting(found, frozenset(loose))


def _names(pending: Pending) -> frozenset[str]:
    """The registers that are pending."""
    return frozenset(name.rstrip("?") for _, name in pending)


def _after(
    effects: _Effects, instruction: Instruction, pending: Pending, names: frozenset[str], found: dict[int, str]
) -> Pending:
    """What is pending after an instruction, `names` before it; notes what it uses too early."""
    if effects.waits:
        return _waited(pending, effects.waits)
    if not pending and not effects.accesses:
        return pending
    if pending:
        if effects.barrier and ("lgkmcnt", _SHARED_WRITE) in pending:
            found[instruction.line] = "passes a barrier while shared memory is still written"
        elif effects.barrier and ("lgkmcnt", _SHARED_READ) in pending:
            found[instruction.line] = "passes a barrier while shared memory is still read"
        if effects.returns and not names <= {"", _STORE}:
            found[instruction.line] = "returns before what was asked of memory has arrived"
        early = None
        if not names.isdisjoint(effects.names):
            early = next(name for _, name in pending if name.rstrip("?") in effects.names)
        elif not names.isdisjoint(effects.filled):
            early = next((name for counter, name in pending if _unlike(counter, name, effects.filled)), None)
        if early is not None:
            found[instruction.line] = f"uses {early.rstrip('?')} before what was asked of memory has arrived there"
    for access in effects.accesses:
        most = _HOLDS[access.counter]
        kept = access.counter in _unordered(pending)
        pending = {
            key: min(age + 1, most) if key[0] == access.counter else age
            for key, age in pending.items()
            if key[0] != access.counter or age + 1 < most or kept
        }
        for name in access.fills or ("",):
            pending[access.counter, name if access.ordered else f"{name}?"] = 0
    return pending


def _unlike(counter: str, name: str, filled: frozenset[str]) -> bool:
    """Whether a pending register that a load fills again is one that another kind of access fills, in no set order."""
    return name.rstrip("?") in filled and (counter != "vmcnt" or name.endswith("?"))


def _waited(pending: Pending, waits: dict[str, int]) -> Pending:
    unordered = _unordered(pending)
    for counter, count in waits.items():
        if count == 0 or counter not in unordered:
            pending = {key: age for key, age in pending.items() if key[0] != counter or age < count}
    return pending


def _unordered(pending: Pending) -> set[str]:
    """The counters of which an access is answered in any order: the oldest need not be the first to arrive."""
    return {counter for counter, name in pending if name.endswith("?")}
