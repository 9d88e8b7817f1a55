"""Registers that wait for memory: each is looked at only after an s_waitcnt which says that it is there.

Loads, and atomic operations that give a value back, are counted while they are under way: those of global memory by
vmcnt, those of shared memory and scalar ones by lgkmcnt.  A wait for a count of N says that all but the last N have
arrived; scalar loads arrive in any order, so that only a count of 0 says anything of them, and of what is counted with
them.  A counter that is full holds the wave back, so that what has as many younger ones behind it has arrived.  A
register that is read or written while its value is under way holds no determined one.

Barriers ask for no wait here: accesses to shared memory are carried out in one order for all waves of a block, that in
which they were issued.

Source: AMD Instinct MI300 ISA, "S_WAITCNT" and "Data dependency resolution"; LLVM's AMDGPU usage guide, "Memory model
gfx942".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from bitwise_amd_gfx942.definitions import results
from bitwise_amd_gfx942.flow import successors
from bitwise_amd_gfx942.opcodes.forms import form
from bitwise_core.asm import Immediate, Instruction, Kernel, Operand, registers_of
from bitwise_core.machine.domain import Unreadable

_COUNT = re.compile(r"(vmcnt|lgkmcnt|expcnt)\((\d+)\)")
_VECTOR, _LOCAL = 63, 15
"""How many events a counter holds."""


@dataclass(frozen=True, slots=True)
class Event:
    """What an instruction starts: its counters, the registers whose values are under way, whether it is in order."""

    vector: bool
    local: bool
    registers: frozenset[str]
    ordered: bool


State = tuple[dict[str, int], dict[str, int]]
"""By counter (vmcnt, lgkmcnt) the registers under way, with how many of its events came after; -1 out of order."""


@lru_cache(maxsize=1 << 14)
def _registers(operands: tuple[Operand, ...]) -> frozenset[str]:
    return frozenset(each for operand in operands for each in registers_of(operand))


def event(instruction: Instruction) -> Event | None:
    """What an instruction starts that is waited for; None for most."""
    found = form(instruction.opcode)
    name = found.name
    if name.startswith(("s_load", "s_buffer_load")):
        return Event(False, True, _registers(instruction.operands[:1]), False)
    if name.startswith("ds_"):
        return Event(False, True, _registers(instruction.operands[: results(instruction)]), True)
    if not name.startswith(("global_", "buffer_", "flat_", "scratch_")) or name.startswith(("buffer_inv", "buffer_wb")):
        return None
    given = "_load_" in name or ("_atomic_" in name and "sc0" in found.modifiers)
    registers = _registers(instruction.operands[:1]) if given else frozenset()
    return Event(True, name.startswith("flat_"), registers, not name.startswith("flat_"))


def _waited(instruction: Instruction) -> tuple[int, int]:
    """The counts of vmcnt and lgkmcnt that a wait asks for."""
    counts = {"vmcnt": _VECTOR, "lgkmcnt": _LOCAL}
    for operand in instruction.operands:
        if isinstance(operand, Immediate):
            if operand.value == 0:
                return 0, 0
            continue
        for name, count in _COUNT.findall(str(getattr(operand, "name", ""))):
            counts[name] = int(count)
    return counts["vmcnt"], counts["lgkmcnt"]


def _arrived(pending: dict[str, int], count: int) -> dict[str, int]:
    if count == 0:
        return {}
    if any(younger < 0 for younger in pending.values()):
        return pending
    return {name: younger for name, younger in pending.items() if younger < count}


def _begun(pending: dict[str, int], names: frozenset[str], ordered: bool, most: int) -> dict[str, int]:
    later = {name: younger if younger < 0 else younger + 1 for name, younger in pending.items() if younger + 1 < most}
    later.update(dict.fromkeys(names, 0 if ordered else -1))
    return later


def _after(kernel: Kernel, index: int, state: State) -> State:
    """The state after an instruction.  Raises Unreadable where it touches what is under way."""
    instruction = kernel.instructions[index]
    opcode = instruction.opcode
    vector, local = state
    if opcode.startswith("s_waitcnt"):
        counts = _waited(instruction)
        return _arrived(vector, counts[0]), _arrived(local, counts[1])
    if opcode.startswith(("s_swappc", "s_setpc")):
        return {}, {}  # a function waits for everything at its beginning and before it returns
    started = event(instruction)
    if vector or local:
        names = _registers(instruction.operands)
        late = (names & vector.keys()) | (names & local.keys())
        if started is not None and started.ordered and late:
            # Two loads of one kind arrive in order: the second's value is the one that stays.
            same = vector if started.vector else local
            overwritten = {each for each in late & started.registers if same.get(each, -1) >= 0}
            other = local if started.vector else vector
            sources = _registers(instruction.operands[results(instruction) :])
            late -= {each for each in overwritten if each not in sources and each not in other}
        if late:
            name = min(late)
            raise Unreadable(
                f"the register {name} is used before an s_waitcnt says that its value has arrived", instruction.line
            )
    if started is None:
        return state
    if started.vector:
        vector = _begun(vector, started.registers, started.ordered, _VECTOR)
    if started.local:
        local = _begun(local, started.registers, started.ordered, _LOCAL)
    return vector, local


def _joined(left: dict[str, int], right: dict[str, int]) -> dict[str, int]:
    joined = dict(left)
    for name, younger in right.items():
        joined[name] = min(younger, joined.get(name, younger))
    return joined


_KNOWN: dict[int, tuple[tuple[Instruction, ...], Unreadable | None]] = {}


def check_arrivals(kernel: Kernel) -> None:
    """Raises Unreadable where an instruction touches a register whose value may not have arrived."""
    known = _KNOWN.get(id(kernel.instructions))
    if known is None or known[0] is not kernel.instructions:
        if len(_KNOWN) > 64:
            _KNOWN.clear()
        found = None
        try:
            _check(kernel)
        except Unreadable as error:
            found = error
        known = _KNOWN[id(kernel.instructions)] = kernel.instructions, found
    if known[1] is not None:
        raise known[1]


def _check(kernel: Kernel) -> None:
    heads = {0, *kernel.labels.values()}
    states: dict[int, State] = {0: ({}, {})}
    pending = [0]
    count = len(kernel.instructions)
    while pending:
        index = pending.pop()
        state = states[index]
        while index < count:
            state = _after(kernel, index, state)
            following = successors(kernel, index)
            stop = len(following) != 1 or following[0] in heads or following[0] != index + 1
            if not stop:
                index += 1
                continue
            for each in following:
                before = states.get(each)
                new = state if before is None else (_joined(before[0], state[0]), _joined(before[1], state[1]))
                if new != before:
                    states[each] = new
                    pending.append(each)
            break
