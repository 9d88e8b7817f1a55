"""Facts about the control flow of a program that branches on data need: effects of a region, live registers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bitwise_core.execution.control_flow import EXIT, order_before_joins
from bitwise_core.execution.instruction_info import Effect
from bitwise_core.execution.program import Program


def region(program: Program, branch: int, join: int) -> frozenset[int]:
    """Return the instructions that may be executed after a branch and before its join."""
    found: frozenset[int] = _cached(program, ("region", branch, join), lambda: _region(program, branch, join))
    return found


def _region(program: Program, branch: int, join: int) -> frozenset[int]:
    found: set[int] = set()
    work = list(program.following[branch])
    while work:
        index = work.pop()
        if index in found or index in (EXIT, join) or index >= len(program.steps):
            continue
        found.add(index)
        work += program.following[index]
    return frozenset(found)


def effects_of(program: Program, instructions: frozenset[int]) -> Effect:
    """Return everything that one of these instructions does."""
    found = Effect.NONE
    for index in instructions:
        found |= program.infos[index].effects
    return found


def order_of(program: Program) -> Sequence[int]:
    """Return the number of each instruction in the order in which divergent lanes meet again, and that of the end."""
    end = len(program.steps)
    found: Sequence[int] = _cached(program, "order", lambda: (*order_before_joins(program.following), end))
    return found


def live_at(program: Program, *indices: int) -> Callable[[str], bool]:
    """Return whether a register may be read from one of these instructions on.

    One that no instruction names counts as live.
    """
    before, number = _cached(program, "live", lambda: _liveness(program))
    live, storage = 0, program.storage
    for index in indices:
        live |= before[index] if index < len(before) else 0

    def is_live(name: str) -> bool:
        place = number.get(storage(name))
        return place is None or bool(live >> place & 1)

    return is_live


def _liveness(program: Program) -> tuple[list[int], Mapping[str, int]]:
    """Return the set of live registers before each instruction, as the bits of an integer, and the bit of each one."""
    number: dict[str, int] = {}

    def bits(names: Iterable[str]) -> int:
        found = 0
        for name in map(program.storage, names):
            found |= 1 << number.setdefault(name, len(number))
        return found

    # A register that a guarded or partial instruction leaves unchanged is among those that it reads.
    reads, kept = [bits(info.reads) for info in program.infos], [~bits(info.writes) for info in program.infos]
    before = [0] * len(reads)
    changed = True
    while changed:
        changed = False
        for index in range(len(reads) - 1, -1, -1):
            after = 0
            for each in program.following[index]:
                if 0 <= each < len(reads):
                    after |= before[each]
            entering = reads[index] | after & kept[index]
            if entering != before[index]:
                before[index], changed = entering, True
    return before, number


def _cached(program: Program, key: Any, make: Callable[[], Any]) -> Any:
    found = program.analyses.get(key)
    if found is None:
        found = program.analyses[key] = make()
    return found
