"""A program whose steps are checked against their declarations: registers, memory accesses and control flow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from bitwise_core.assembly.module import Instruction
from bitwise_core.execution.architecture import Arch
from bitwise_core.execution.concrete import PreparedLaunch
from bitwise_core.execution.instruction_info import Effect, InstructionInfo
from bitwise_core.execution.machine import (
    Barrier,
    Blocked,
    Branch,
    Call,
    Control,
    Exit,
    Machine,
    Predicated,
    Return,
    SkippableRegion,
    Step,
)
from bitwise_core.execution.memory.global_memory import GlobalMemory
from bitwise_core.execution.memory.shared_memory import SharedMemory
from bitwise_core.execution.program import Program
from bitwise_core.execution.values.symbolic_vector import Value

_EFFECTS: Mapping[type, Effect] = {
    Branch: Effect.BRANCH,
    SkippableRegion: Effect.BRANCH,
    Exit: Effect.END,
    Return: Effect.END,
    Call: Effect.CALL,
    Barrier: Effect.BARRIER,
}


class RegisterRecorder(dict[str, Value]):
    """A register file that records which keys are written, and which are read before they are written.

    `late` are those that are read after another one is written.
    """

    def __init__(self, registers: Mapping[str, Value]) -> None:
        super().__init__(registers)
        self.read: set[str] = set()
        self.written: set[str] = set()
        self.late: set[str] = set()

    def __getitem__(self, name: str) -> Value:
        self._note_read(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Value | None = None) -> Value | None:  # type: ignore[override]
        """See `dict.get`."""
        self._note_read(name)
        return super().get(name, default)

    def __setitem__(self, name: str, value: Value) -> None:
        self.written.add(name)
        super().__setitem__(name, value)

    def pop(self, name: str) -> Value:  # type: ignore[override]
        """See `dict.pop`."""
        self._note_read(name)
        self.written.add(name)
        return super().pop(name)

    def _note_read(self, name: str) -> None:
        if name not in self.written:
            self.read.add(name)
            if self.written:
                self.late.add(name)


_ACCESSES: Mapping[str, Effect] = {
    **dict.fromkeys(("load", "gather", "copied"), Effect.LOAD),
    **dict.fromkeys(("store", "scatter"), Effect.STORE),
    **dict.fromkeys(("atomic", "contribute"), Effect.STORE),
}
"""The effects of the methods of memories."""


class MemoryRecorder:
    """A memory that records the effects of the called methods."""

    def __init__(self, memory: object) -> None:
        self._memory = memory
        self.effects = Effect.NONE

    def __getattr__(self, name: str) -> Any:
        self.effects |= _ACCESSES.get(name, Effect.NONE)
        return getattr(self._memory, name)


@dataclass
class Observed:
    """Observed differences from the declarations, and how often each opcode ran and wrote a register."""

    wrong: dict[str, None] = field(default_factory=dict)
    ran: Counter[str] = field(default_factory=Counter)
    wrote: Counter[str] = field(default_factory=Counter)

    def differences(self) -> list[str]:
        """One sentence for each difference."""
        idle = [
            f"{name} declares a register that it writes, and wrote none" for name in self.ran if not self.wrote[name]
        ]
        return [*self.wrong, *idle]


def observed(launch: PreparedLaunch) -> tuple[PreparedLaunch, Observed]:
    """The launch with every step observed, and the record of the observations."""
    found = Observed()
    return replace(launch, program=_observed(launch.program, launch.arch, found)), found


def _observed(program: Program, arch: Arch, found: Observed) -> Program:
    live = _live_after(program, arch.storage)
    steps = tuple(
        _observing(arch, found, program.execution_mask, *each)
        for each in zip(program.steps, program.kernel.instructions, program.infos, live, strict=True)
    )
    functions = {name: _observed(each, arch, found) for name, each in program.functions.items() if each is not program}
    return replace(program, steps=steps, functions=functions)


def _live_after(program: Program, storage: Callable[[str], str]) -> list[frozenset[str]]:
    """For each instruction, the storage that is live after it."""
    count = len(program.steps)
    reads = [frozenset(map(storage, info.reads)) for info in program.infos]
    writes = [frozenset(map(storage, info.writes)) for info in program.infos]
    before: list[frozenset[str]] = [frozenset()] * count
    after = list(before)
    changed = True
    while changed:
        changed = False
        for index in range(count - 1, -1, -1):
            after[index] = frozenset().union(*(before[each] for each in program.following[index] if each >= 0))
            entering = reads[index] | (after[index] - writes[index])
            changed, before[index] = changed or entering != before[index], entering
    return after


def _observing(
    arch: Arch,
    found: Observed,
    execution_mask: str | None,
    step: Step,
    instruction: Instruction,
    info: InstructionInfo,
    live: frozenset[str],
) -> Step:
    storage = arch.storage
    name = arch.opcodes.name_of(instruction)
    reads, writes = (frozenset(map(storage, names)) for names in (info.reads, info.writes))
    reads_of_active_lanes = frozenset(map(storage, info.reads - info.retained))

    def wrong(what: str) -> None:
        found.wrong[f"line {instruction.line}: {instruction.opcode} {what}"] = None

    def run(machine: Machine) -> Control | None:
        # A write keeps the values of inactive lanes.
        everywhere = machine.mask is None and machine.condition is None
        may_read = reads if everywhere else reads | writes
        lanes = True if execution_mask is None else machine.registers[execution_mask]
        if everywhere and (lanes is True or (isinstance(lanes, np.ndarray) and bool(lanes.all()))):
            may_read = reads_of_active_lanes
        recorder = RegisterRecorder(machine.registers)
        machine.registers = recorder
        memory, shared = machine.memory, machine.shared
        memories = MemoryRecorder(memory), MemoryRecorder(shared)
        machine.memory, machine.shared = cast(GlobalMemory, memories[0]), cast(SharedMemory, memories[1])
        try:
            control = step(machine)
        finally:
            machine.memory, machine.shared = memory, shared
            if machine.registers is recorder:
                machine.registers = dict(recorder)
        written = frozenset(map(storage, recorder.written))
        for each in sorted(frozenset(map(storage, recorder.read)) - may_read):
            wrong(f"reads {each}, which it does not declare")
        for each in sorted(written - writes):
            wrong(f"writes {each}, which it does not declare")
        late = frozenset(map(storage, recorder.late)) & reads - writes - {execution_mask}
        if everywhere:
            for each in sorted(late):
                wrong(f"reads {each} after it has written a register, which may be the same one in another instruction")
        if written:
            for each in sorted((writes - written) & live):
                wrong(f"declares to write {each}, which is read later, and does not")
        effects = _effect(control) | memories[0].effects | memories[1].effects
        if Effect.STORE in effects and (machine.condition is not None or instruction.guard is not None):
            effects &= ~Effect.LOAD  # a conditional store may read the bytes that it keeps
        for effect in effects & ~info.effects:
            wrong(f"has the effect {effect.name}, which it does not declare")
        if writes and not isinstance(control, Blocked):
            found.ran[name] += 1
            found.wrote[name] += bool(written) or not writes & live
        return control

    return run


def _effect(control: Control | None) -> Effect:
    inner = control.control if isinstance(control, Predicated) else control
    return _EFFECTS.get(type(inner), Effect.NONE)
