"""Facts about the control flow of a program that branches on data need: effects of a region, live registers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
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


@dataclass(frozen=True, slots=True)
class Decision:
    """What decides a branch in its basic block, behind loads.

    `outside` are the registers that the block reads for it and has not written, `compared` those that instructions
    write which neither move bits nor compute integers, and `read` all that decide it.  None of these is written between
    its use and the branch.
    """

    outside: frozenset[str]
    compared: frozenset[str]
    read: frozenset[str]


def decision_at(program: Program, branch: int) -> Decision | None:
    """Return what decides a branch; None where something else than a register or a load has an effect on it."""
    found: Decision | None = _cached(program, ("decision", branch), lambda: _decision(program, branch))
    return found


def _decision(program: Program, branch: int) -> Decision | None:
    storage, infos = program.storage, program.infos
    needed, compared = {storage(name) for name in infos[branch].reads}, set[str]()
    read, later = set(needed), set[str]()
    index = branch
    while needed and index > 0 and index not in program.joins and program.following[index - 1] == (index,):
        index -= 1
        written = {storage(name) for name in infos[index].writes}
        if written.isdisjoint(needed):
            later |= written
            continue
        reads = {storage(name) for name in infos[index].reads}
        if not reads.isdisjoint(later | written):
            return None
        read |= reads
        later |= written
        effects = infos[index].effects
        if effects & ~(_COMPUTES | Effect.LOAD):
            return None
        needed -= written
        if effects.overlaps(Effect.LOAD):
            continue
        if not effects.overlaps(Effect.MOVE | Effect.INTEGER):
            compared |= written
        needed |= reads
    return Decision(frozenset(needed), frozenset(compared), frozenset(read))


_COMPUTES = Effect.MOVE | Effect.INTEGER | Effect.LANEWISE


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
    infos = {id(info): info for info in program.infos}
    together: dict[str, list[str]] = {}
    for name in set().union(*(info.reads | info.writes for info in infos.values())):
        together.setdefault(program.storage(name), []).append(name)
    number = {storage: place for place, storage in enumerate(together)}
    bit = {name: 1 << number[storage] for storage, names in together.items() for name in names}
    shared = {name: frozenset(names) for names in together.values() if len(names) > 1 for name in names}
    known: dict[int, tuple[int, int]] = {}
    """The registers that instructions with one info read, and those that they keep."""

    # A register that a guarded or partial instruction leaves unchanged is among those that it reads.
    for key, info in infos.items():
        read = replaced = 0
        for name in info.reads:
            read |= bit[name]
        for name in info.writes:
            if name not in shared or shared[name] <= info.writes:  # no register of its storage keeps its value
                replaced |= bit[name]
        known[key] = read, ~replaced
    count, following = len(program.infos), program.following
    reads_and_kept = [known[id(info)] for info in program.infos]
    before = [0] * count

    def after(index: int) -> int:
        found = 0
        for each in following[index]:
            if 0 <= each < count:
                found |= before[each]
        return found

    # What is live before the first instruction of a run without branches is a function of what is live after it.
    starts = {0}
    for index, places in enumerate(following):
        if places != (index + 1,):
            starts.update((index + 1, *places))
    runs = list(pairwise([*sorted(each for each in starts if 0 <= each < count), count]))
    effects = []
    for first, end in runs:
        read, kept = 0, -1
        for more, keeps in reversed(reads_and_kept[first:end]):
            read, kept = more | read & keeps, kept & keeps
        effects.append((first, end - 1, read, kept))
    changed = True
    while changed:
        changed = False
        for first, last, read, kept in reversed(effects):
            entering = read | after(last) & kept
            if entering != before[first]:
                before[first], changed = entering, True
    for first, end in runs:
        live = after(end - 1)
        for index in range(end - 1, first - 1, -1):
            read, kept = reads_and_kept[index]
            before[index] = live = read | live & kept
    return before, number


def _cached(program: Program, key: Any, make: Callable[[], Any]) -> Any:
    found = program.analyses.get(key)
    if found is None:
        found = program.analyses[key] = make()
    return found
