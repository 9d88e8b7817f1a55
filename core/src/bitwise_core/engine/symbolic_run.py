"""Running a kernel for every launch: loops become folds, and a branch that all threads take alike is run both ways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from bitwise_core.engine.folds import EMPTY
from bitwise_core.engine.loop_shape import Loop, find_loops
from bitwise_core.engine.loop_state import forget, hash_of
from bitwise_core.engine.loops import LoopReader
from bitwise_core.engine.polynomial import Polynomial
from bitwise_core.engine.program import Program
from bitwise_core.engine.run import Group, Run
from bitwise_core.engine.symbolic import Predicate, Symbolic
from bitwise_core.engine.symbolic_domain import SymbolicDomain
from bitwise_core.engine.symbolic_memory import SymbolicMemory
from bitwise_core.engine.tile_loops import TileLoop, TileTurn, find_tile_loops
from bitwise_core.machine import hashing
from bitwise_core.machine import lanes as L
from bitwise_core.machine.domain import Unreadable
from bitwise_core.machine.lane_hash import poison
from bitwise_core.machine.lanes import Array, Lanes, Pieces, Value
from bitwise_core.machine.pieces import as_lanes, cut
from bitwise_core.machine.state import Branch, Control, Machine, Step, invert


@dataclass(slots=True)
class LoopHead:
    """Control has come to the head of a loop from outside."""

    straight: Loop | None
    tiles: TileLoop | None


class SymbolicProgram:
    """A program whose loops are noticed at their heads; `plain` is the program itself.

    `extents` names for each number of a block how many blocks there are along its axis.
    """

    def __init__(self, plain: Program, extents: Mapping[str, str]) -> None:
        self.plain, self.extents = plain, extents
        self.loops = find_loops(plain)
        self.tile_loops = find_tile_loops(plain)
        self.as_written: set[int] = set()
        """Heads of loops that are simply run."""
        self.turn: TileTurn | None = None
        steps = list(plain.steps)
        for head in {*self.loops, *self.tile_loops}:
            steps[head] = self._noticing(head, plain.steps[head])
        self.noticing = replace(plain, steps=tuple(steps))
        self.read_after: dict[int, frozenset[str]] = {}

    def _noticing(self, head: int, step: Step) -> Step:
        def run(machine: Machine) -> Control | None:
            if head in self.as_written:
                return step(machine)
            return LoopHead(self.loops.get(head), self.tile_loops.get(head))  # type: ignore[return-value]

        return run

    def goes_back(self, pc: int, target: int, meeting: int) -> bool:
        """Whether control may come back to a branch from its target (in a turn over tiles: within the turn)."""
        turn = self.turn
        if turn is None or turn.done:
            return meeting <= pc or target <= pc
        return pc in self._reached(target, turn.loop.latch)

    def _reached(self, place: int, end: int | None = None) -> set[int]:
        """The instructions to which control can come from `place`, as far as `end`."""
        reached, stack = {place}, [place]
        while stack:
            index = stack.pop()
            for each in self.plain.following[index] if index != end else ():
                if each >= 0 and each not in reached:
                    reached.add(each)
                    stack.append(each)
        return reached

    def reads_from(self, place: int) -> frozenset[str]:
        """The registers that instructions may read to which control can come from `place`."""
        found = self.read_after.get(place)
        if found is None:
            found = frozenset(name for index in self._reached(place) for name in self.plain.infos[index].reads)
            self.read_after[place] = found
        return found


class SymbolicRun(Run):
    """See the module."""

    def __init__(
        self,
        program: SymbolicProgram,
        machine: Machine,
        budget: list[int],
        path: tuple[Polynomial, ...] = (),
        depth: int = 0,
    ) -> None:
        super().__init__(program.noticing, machine, budget, depth)
        self.symbolic, self.path = program, path
        assert isinstance(machine.domain, SymbolicDomain)
        self.domain = machine.domain

    def _control(
        self, control: Control, group: Group, groups: list[Group], alive: Array | None, outer: Array | None
    ) -> Array | None:
        if isinstance(control, LoopHead):
            self._loop(control, group)
            self._wake(groups)
            self._join(groups)
            return alive
        return super()._control(control, group, groups, alive, outer)

    def _loop(self, found: LoopHead, group: Group) -> None:
        machine, loop = self.machine, found.straight
        line = self._line(group.pc)
        reader = None if loop is None else LoopReader(self.symbolic.plain, machine, loop, list(self.path))
        if reader is not None and reader.counted():
            self.symbolic.as_written.add(group.pc)
            return
        alone = group.mask is None and machine.condition is None
        if found.tiles is not None and alone and self._tiles(found.tiles, line):
            return
        if loop is None or reader is None:
            self.symbolic.as_written.add(group.pc)
            return
        if not alone:
            raise Unreadable("a part of the block runs a loop whose length only the launch decides", line)
        reader.summarise()
        group.pc = loop.back + 1

    def _tiles(self, loop: TileLoop, line: int | None) -> bool:
        """Whether the loop goes from tile to tile: one turn of it is then run as it is written."""
        turn = TileTurn.begun(loop, self.machine, self.symbolic.extents, line)
        if turn is None:
            return False
        self.symbolic.turn = turn
        self.symbolic.as_written.add(loop.head)
        return True

    def _branch(self, control: Branch, taken: Value, group: Group, groups: list[Group]) -> None:
        turn = self.symbolic.turn
        if turn is None or turn.done or group.pc != turn.loop.latch:
            super()._branch(control, taken, group, groups)
            return
        if group.mask is not None or self.machine.condition is not None:
            raise turn.fail("a part of the block ends a turn")
        turn.end(taken)
        group.pc += 1

    def _both_ways(self, control: Branch, taken: Value, group: Group) -> None:
        machine, pc = self.machine, group.pc
        lanes = as_lanes(taken)
        words = lanes.words
        uniform = (
            isinstance(lanes.meta, int) and bool((words == words[:, :, :1]).all()) and isinstance(taken, Predicate)
        )
        meeting = self.program.reconvergence.get(pc)
        if not uniform or group.mask is not None or machine.condition is not None:
            super()._both_ways(control, taken, group)
            return
        if (
            meeting is None
            or meeting >= len(self.program.steps)
            or self.symbolic.goes_back(pc, control.target, meeting)
        ):
            raise Unreadable(
                "the kernel's control flow depends on the launch in a way that is not followed", self._line(pc)
            )
        self._sides(control, taken, group, meeting)

    def _sides(self, control: Branch, taken: Value, group: Group, meeting: int) -> None:
        """All threads go one way, and the launch says which: both ways are run, and each register chosen."""
        machine, pc = self.machine, group.pc
        memory = cast(SymbolicMemory, cast(object, machine.memory))
        shared, copies = machine.shared, machine.extra.get("copies")
        before, words, meta, version = dict(machine.registers), shared.words.copy(), shared.meta.copy(), shared.version
        changed = False
        left: list[tuple[hashing.Words, Array]] = []
        sides: list[tuple[dict[str, Value], bool]] = []
        order = [(taken, control.target), (invert(machine.domain, taken), pc + 1)]
        if self._holds_loop(control.target, meeting):
            order.reverse()
        for predicate, start in order:
            machine.registers = dict(before)
            machine.shared, machine.mask = shared, None
            shared.words[:, :, : words.shape[2]], shared.meta[:, : words.shape[2]] = words, meta
            if copies is not None:
                machine.extra["copies"] = copies
            facts = predicate.polynomials if isinstance(predicate, Predicate) else ()
            entries, known = len(self.domain.entries), len(self.domain.facts)
            memory.path.append(predicate)
            self.domain.facts.extend(facts)
            if start != meeting:
                SymbolicRun(self.symbolic, machine, self.budget, (*self.path, *facts), self.depth + 1).start(
                    start, meeting
                )
            memory.path.pop()
            del self.domain.facts[known:]
            left.append((machine.shared.words.copy(), machine.shared.meta.copy()))
            changed = changed or machine.shared is not shared or shared.version != version
            sides.append((machine.registers, _entered_by(self.domain.entries[entries:], predicate)))
        if changed:
            forget(machine.shared, _shared_by(machine.shared.words.shape[2], *left), "shared memory after a branch")
        if order[0][0] is not taken:
            sides.reverse()
        self._merge(taken, sides, before, self.symbolic.reads_from(meeting))
        machine.mask, group.pc = group.mask, meeting

    def _holds_loop(self, start: int, meeting: int) -> bool:
        return any(start <= head < meeting for head in self.symbolic.loops)

    def _merge(
        self,
        taken: Value,
        sides: list[tuple[dict[str, Value], bool]],
        before: dict[str, Value],
        wanted: frozenset[str],
    ) -> None:
        merged = dict(before)
        (left, by_left), (right, by_right) = sides
        row = self.domain.coordinates.others + EMPTY
        for name in left.keys() | right.keys():
            first, second = left.get(name), right.get(name)
            if first is second and first is not None:
                merged[name] = first
                continue
            if name not in wanted:
                merged.pop(name, None)
                continue
            bits = L.width(first if first is not None else second)  # type: ignore[arg-type]
            first = poison(bits) if first is None else first
            second = poison(bits) if second is None else second
            if by_left and _alike(first, second, row):
                merged[name] = closed(first, row)
            elif by_right and _alike(first, second, row):
                merged[name] = closed(second, row)
            else:
                merged[name] = self._choice(
                    taken, *(closed(each, row) if by_left or by_right else each for each in (first, second))
                )
        self.machine.registers = merged

    def _choice(self, taken: Value, first: Value, second: Value) -> Value:
        if isinstance(first, np.ndarray) and isinstance(second, np.ndarray) and np.array_equal(first, second):
            return first
        whole = not isinstance(first, np.ndarray | L.Pieces) and not isinstance(second, np.ndarray | L.Pieces)
        if whole and np.array_equal(hash_of(first)[0], hash_of(second)[0]):
            return first
        return self.domain.select(taken, first, second)


def _shared_by(size: int, first: tuple[hashing.Words, Array], second: tuple[hashing.Words, Array]) -> Array:
    """The cells of shared memory that hold the same after both sides of a branch."""
    known, both = np.zeros(size, dtype=bool), min(size, first[1].shape[1], second[1].shape[1])
    words = (first[0][:, :, :both] == second[0][:, :, :both]).all(axis=(0, 1))
    known[:both] = words & (first[1][:, :both] == second[1][:, :both]).all(axis=0)
    return known


def _entered_by(entries: list[Polynomial | None], predicate: Value) -> bool:
    """Whether the loops of one side have a turn exactly where control comes to that side."""
    fact = predicate.single if isinstance(predicate, Predicate) else None
    if not entries or fact is None:
        return False
    return all(
        each is not None
        and each.terms == fact.terms
        and isinstance(fact.constant, int)
        and each.constant == fact.constant
        for each in entries
    )


def _alike(left: Value, right: Value, row: int) -> bool:
    """Whether two values agree in an instance, part by part."""
    ends = sorted({*_ends(left), *_ends(right)})
    for low, high in zip([0, *ends[:-1]], ends, strict=True):
        first, second = (_in_row(cut(each, low, high - low), row) for each in (left, right))
        if (first != second).any():
            return False
    return True


def _ends(value: Value) -> list[int]:
    parts = value.parts if isinstance(value, Pieces) else (value,)
    return [sum(L.width(part) for part in parts[: index + 1]) for index in range(len(parts))]


def _in_row(value: Value, row: int) -> hashing.Words:
    words = hash_of(value)[0]
    return words[:, min(row, words.shape[1] - 1)]


def closed(value: Value, row: int) -> Value:
    """The value with an instance made like the launch itself again."""
    if isinstance(value, Pieces):
        return Pieces(tuple(closed(part, row) for part in value.parts))  # type: ignore[misc]
    if isinstance(value, np.ndarray | Symbolic | Predicate):
        return value
    words, meta = value.words, value.meta
    if words.shape[1] > 1:
        words = words.copy()
        words[:, row] = words[:, 0]
    if not isinstance(meta, int) and meta.shape[0] > 1:
        meta = meta.copy()
        meta[row] = meta[0]
    return Lanes(value.bits, words, L.uniform(meta))
