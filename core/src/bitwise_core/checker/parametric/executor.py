"""The executor of a reading for every launch: loops become folds, and both sides of a uniform branch are run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from bitwise_core.checker.parametric.domain import ParametricDomain
from bitwise_core.checker.parametric.induction_variables import LoopBody
from bitwise_core.checker.parametric.loop_shape import Loop, find_loops
from bitwise_core.checker.parametric.loop_state import forget, hash_of
from bitwise_core.checker.parametric.loop_summary import NO_ITERATION, LoopSummary
from bitwise_core.checker.parametric.memory import ParametricMemory
from bitwise_core.checker.parametric.persistent_loops import PersistentIteration, PersistentLoop, find_persistent_loops
from bitwise_core.checker.parametric.polynomial import Polynomial
from bitwise_core.checker.parametric.values import ParametricInteger, Predicate
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.executor import Executor, LaneGroup
from bitwise_core.execution.machine import Branch, Control, Machine, Step, invert
from bitwise_core.execution.program import Program
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector, extract
from bitwise_core.execution.values.symbolic_vector import Array, PackedVector, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import poison


@dataclass(slots=True)
class LoopEntry:
    """Control that reaches the header of a loop from outside."""

    straight: Loop | None
    persistent: PersistentLoop | None


class ParametricProgram:
    """A program whose loop headers give `LoopEntry` controls; `plain` is the program itself.

    `extents` gives, by the special register of a block index, that of the number of blocks along the same axis.
    """

    def __init__(self, plain: Program, extents: Mapping[str, str]) -> None:
        self.plain, self.extents = plain, extents
        self.loops = find_loops(plain)
        self.persistent_loops = find_persistent_loops(plain)
        self.as_written: set[int] = set()
        """Headers of loops that are run iteration by iteration."""
        self.iteration: PersistentIteration | None = None
        self.entries: list[Polynomial | None] = []
        """What `LoopSummary.summarise` returned for each loop so far."""
        steps = list(plain.steps)
        for header in {*self.loops, *self.persistent_loops}:
            steps[header] = self._noticing(header, plain.steps[header])
        self.noticing = replace(plain, steps=tuple(steps))
        self.read_after: dict[int, frozenset[str]] = {}

    def _noticing(self, header: int, step: Step) -> Step:
        def run(machine: Machine) -> Control | None:
            if header in self.as_written:
                return step(machine)
            return LoopEntry(self.loops.get(header), self.persistent_loops.get(header))  # type: ignore[return-value]

        return run

    def goes_back(self, pc: int, target: int, meeting: int) -> bool:
        """Whether control may return to a branch from its target; in a persistent loop, within the iteration."""
        iteration = self.iteration
        if iteration is None or iteration.done:
            return meeting <= pc or target <= pc
        return pc in self._reached(target, iteration.loop.latch)

    def _reached(self, place: int, end: int | None = None) -> set[int]:
        """The instructions reachable from `place` without passing `end`."""
        reached, stack = {place}, [place]
        while stack:
            index = stack.pop()
            for each in self.plain.following[index] if index != end else ():
                if each >= 0 and each not in reached:
                    reached.add(each)
                    stack.append(each)
        return reached

    def reads_from(self, place: int) -> frozenset[str]:
        """The registers that instructions reachable from `place` may read."""
        found = self.read_after.get(place)
        if found is None:
            found = frozenset(name for index in self._reached(place) for name in self.plain.infos[index].reads)
            self.read_after[place] = found
        return found


class ParametricExecutor(Executor):
    """One run of a `ParametricProgram`; `path` are the integers that are not negative on the branches taken."""

    def __init__(
        self,
        program: ParametricProgram,
        machine: Machine,
        budget: list[int],
        path: tuple[Polynomial, ...] = (),
        depth: int = 0,
    ) -> None:
        super().__init__(program.noticing, machine, budget, depth)
        self.parametric, self.path = program, path
        assert isinstance(machine.domain, ParametricDomain)
        self.domain = machine.domain

    def _control(
        self, control: Control, group: LaneGroup, groups: list[LaneGroup], alive: Array | None, outer: Array | None
    ) -> Array | None:
        if isinstance(control, LoopEntry):
            self._loop(control, group)
            self._unblock_groups(groups)
            self._merge_groups(groups)
            return alive
        return super()._control(control, group, groups, alive, outer)

    def _loop(self, found: LoopEntry, group: LaneGroup) -> None:
        machine, loop = self.machine, found.straight
        line = self._line(group.pc)
        body = None if loop is None else LoopBody(self.parametric.plain, machine, loop)
        if body is not None and body.has_known_trip_count():
            self.parametric.as_written.add(group.pc)
            return
        alone = group.mask is None and machine.condition is None
        if found.persistent is not None and alone and self._persistent(found.persistent, line):
            return
        if loop is None or body is None:
            self.parametric.as_written.add(group.pc)
            return
        if not alone:
            raise Unsupported("a part of the block runs a loop whose length only the launch decides", line)
        self.parametric.entries.append(LoopSummary(body, self.path).summarise())
        group.pc = loop.latch + 1

    def _persistent(self, loop: PersistentLoop, line: int | None) -> bool:
        """Whether the loop is persistent over tiles: one iteration is then run, for a symbolic tile."""
        iteration = PersistentIteration.begun(loop, self.machine, self.parametric.extents, line)
        if iteration is None:
            return False
        self.parametric.iteration = iteration
        self.parametric.as_written.add(loop.header)
        return True

    def _branch(self, control: Branch, taken: Value, group: LaneGroup, groups: list[LaneGroup]) -> None:
        iteration = self.parametric.iteration
        if iteration is None or iteration.done or group.pc != iteration.loop.latch:
            super()._branch(control, taken, group, groups)
            return
        if group.mask is not None or self.machine.condition is not None:
            raise iteration.fail("a part of the block ends an iteration")
        iteration.end(taken)
        group.pc += 1

    def _run_both_sides(self, control: Branch, taken: Value, group: LaneGroup) -> None:
        machine, pc = self.machine, group.pc
        lanes = as_symbolic_vector(taken)
        words = lanes.words
        uniform = (
            isinstance(lanes.flags, int) and bool((words == words[:, :, :1]).all()) and isinstance(taken, Predicate)
        )
        meeting = self.program.reconvergence.get(pc)
        if not uniform or group.mask is not None or machine.condition is not None:
            super()._run_both_sides(control, taken, group)
            return
        if (
            meeting is None
            or meeting >= len(self.program.steps)
            or self.parametric.goes_back(pc, control.target, meeting)
        ):
            raise Unsupported(
                "the kernel's control flow depends on the launch in a way that is not followed", self._line(pc)
            )
        self._sides(control, taken, group, meeting)

    def _sides(self, control: Branch, taken: Value, group: LaneGroup, meeting: int) -> None:
        """A uniform branch that depends on the launch: both sides are run, and registers are choices between them."""
        machine, pc = self.machine, group.pc
        memory = cast(ParametricMemory, cast(object, machine.memory))
        shared, copies = machine.shared, machine.extra.get("copies")
        before, words, flags, version = (
            dict(machine.registers),
            shared.words.copy(),
            shared.flags.copy(),
            shared.version,
        )
        changed = False
        left: list[tuple[hashing.Words, Array]] = []
        sides: list[tuple[dict[str, Value], bool]] = []
        order = [(taken, control.target), (invert(machine.domain, taken), pc + 1)]
        if self._holds_loop(control.target, meeting):
            order.reverse()
        for predicate, start in order:
            machine.registers = dict(before)
            machine.shared, machine.mask = shared, None
            shared.words[:, :, : words.shape[2]], shared.flags[:, : words.shape[2]] = words, flags
            if copies is not None:
                machine.extra["copies"] = copies
            facts = predicate.polynomials if isinstance(predicate, Predicate) else ()
            entries, known = len(self.parametric.entries), len(self.domain.integers.facts)
            memory.path.append(predicate)
            self.domain.integers.facts.extend(facts)
            if start != meeting:
                ParametricExecutor(self.parametric, machine, self.budget, (*self.path, *facts), self.depth + 1).start(
                    start, meeting
                )
            memory.path.pop()
            del self.domain.integers.facts[known:]
            left.append((machine.shared.words.copy(), machine.shared.flags.copy()))
            changed = changed or machine.shared is not shared or shared.version != version
            sides.append((machine.registers, _entered_by(self.parametric.entries[entries:], predicate)))
        if changed:
            forget(machine.shared, _shared_by(machine.shared.words.shape[2], *left), "shared memory after a branch")
        if order[0][0] is not taken:
            sides.reverse()
        self._merge(taken, sides, before, self.parametric.reads_from(meeting))
        machine.mask, group.pc = group.mask, meeting

    def _holds_loop(self, start: int, meeting: int) -> bool:
        return any(start <= head < meeting for head in self.parametric.loops)

    def _merge(
        self,
        taken: Value,
        sides: list[tuple[dict[str, Value], bool]],
        before: dict[str, Value],
        wanted: frozenset[str],
    ) -> None:
        merged = dict(before)
        (left, by_left), (right, by_right) = sides
        row = self.domain.coordinates.others + NO_ITERATION
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
        whole = not isinstance(first, np.ndarray | L.PackedVector) and not isinstance(
            second, np.ndarray | L.PackedVector
        )
        if whole and np.array_equal(hash_of(first)[0], hash_of(second)[0]):
            return first
        return self.domain.select(taken, first, second)


def _shared_by(size: int, first: tuple[hashing.Words, Array], second: tuple[hashing.Words, Array]) -> Array:
    """The cells of shared memory with equal content after both sides of a branch."""
    known, both = np.zeros(size, dtype=bool), min(size, first[1].shape[1], second[1].shape[1])
    words = (first[0][:, :, :both] == second[0][:, :, :both]).all(axis=(0, 1))
    known[:both] = words & (first[1][:, :both] == second[1][:, :both]).all(axis=0)
    return known


def _entered_by(entries: list[Polynomial | None], predicate: Value) -> bool:
    """Whether the loops of one side have an iteration exactly where that side of the branch is taken."""
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
    """Whether two values agree in an instance of the launch, part by part."""
    ends = sorted({*_ends(left), *_ends(right)})
    for low, high in zip([0, *ends[:-1]], ends, strict=True):
        first, second = (_in_row(extract(each, low, high - low), row) for each in (left, right))
        if (first != second).any():
            return False
    return True


def _ends(value: Value) -> list[int]:
    parts = value.parts if isinstance(value, PackedVector) else (value,)
    return [sum(L.width(part) for part in parts[: index + 1]) for index in range(len(parts))]


def _in_row(value: Value, row: int) -> hashing.Words:
    words = hash_of(value)[0]
    return words[:, min(row, words.shape[1] - 1)]


def closed(value: Value, row: int) -> Value:
    """The value with one instance replaced by the launch itself."""
    if isinstance(value, PackedVector):
        return PackedVector(tuple(closed(part, row) for part in value.parts))  # type: ignore[misc]
    if isinstance(value, np.ndarray | ParametricInteger | Predicate):
        return value
    words, flags = value.words, value.flags
    if words.shape[1] > 1:
        words = words.copy()
        words[:, row] = words[:, 0]
    if not isinstance(flags, int) and flags.shape[0] > 1:
        flags = flags.copy()
        flags[row] = flags[0]
    return SymbolicVector(value.bits, words, L.uniform_flags(flags))
