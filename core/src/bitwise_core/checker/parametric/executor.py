"""The executor of the launch-parametric analysis: loops become folds, both sides of a uniform branch are executed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from bitwise_core.checker.parametric.access_history import AccessHistory, set_copies
from bitwise_core.checker.parametric.domain import ParametricDomain
from bitwise_core.checker.parametric.loops.induction_variables import LoopBody
from bitwise_core.checker.parametric.loops.loop_abstraction import LoopAbstraction, Repetition
from bitwise_core.checker.parametric.loops.loop_folds import NO_ITERATION
from bitwise_core.checker.parametric.loops.loop_shape import Loop, find_loops
from bitwise_core.checker.parametric.loops.loop_state import (
    INERT,
    hash_of,
    invalidate,
    merged_copies,
    merged_reads,
)
from bitwise_core.checker.parametric.loops.loop_summary import LoopSummary
from bitwise_core.checker.parametric.loops.persistent_loops import (
    PersistentIteration,
    PersistentLoop,
    find_natural_loops,
    find_persistent_loops,
)
from bitwise_core.checker.parametric.memory import ParametricMemory
from bitwise_core.checker.parametric.polynomial import Polynomial
from bitwise_core.checker.parametric.symbolic_races import SymbolicRaces
from bitwise_core.checker.parametric.values import ParametricInteger, Predicate
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.executor import Executor, LaneGroup
from bitwise_core.execution.instruction_info import Effect
from bitwise_core.execution.machine import Branch, Control, Machine, Step, invert
from bitwise_core.execution.memory.async_groups import AsynchronousReads
from bitwise_core.execution.program import Program
from bitwise_core.execution.program_analyses import live_at
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector, extract
from bitwise_core.execution.values.symbolic_vector import Array, PackedVector, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import poison


@dataclass(slots=True)
class LoopEntry:
    """Control transfer to the header of a loop from outside: the loop as a straight-line and as a persistent loop."""

    straight_line: Loop | None
    persistent: PersistentLoop | None


class ParametricProgram:
    """A program whose loop headers return `LoopEntry` controls; `plain` is the program itself.

    `grid_registers` maps the special register of a block index to that of the number of blocks along the same axis.
    `only_determined`: all loops are abstracted, which proves that the result is determined, but not what it is.
    """

    def __init__(self, plain: Program, grid_registers: Mapping[str, str], only_determined: bool = False) -> None:
        self.plain, self.grid_registers, self.only_determined = plain, grid_registers, only_determined
        self.loops = {} if only_determined else find_loops(plain)
        natural = find_natural_loops(plain) if only_determined else {}
        self.persistent_loops = (
            {header: loop for header, (loop, _) in natural.items()} if only_determined else find_persistent_loops(plain)
        )
        self.private_loops = {header for header, (_, body) in natural.items() if _is_private(plain, body)}
        """The headers of loops whose threads read memory at most, and do not affect each other."""
        self.executed_headers: set[int] = set()
        """The headers of loops that are executed iteration by iteration."""
        self.iteration: PersistentIteration | None = None
        self.abstracted_latches: list[int] = []
        """The latches of the loops around the current instruction that are abstracted."""
        self.repetitions: dict[int, Repetition] = {}
        """How the iterations of the loops that were abstracted repeat, by their headers."""
        self.loop_conditions: list[Polynomial | None] = []
        """The results of `LoopSummary.summarise` for the loops so far."""
        steps = list(plain.steps)
        for header in {*self.loops, *self.persistent_loops}:
            steps[header] = self._loop_entry_step(header, plain.steps[header])
        self.instrumented = replace(plain, steps=tuple(steps))

    def _loop_entry_step(self, header: int, step: Step) -> Step:
        def run(machine: Machine) -> Control | None:
            if header in self.executed_headers:
                return step(machine)
            return LoopEntry(self.loops.get(header), self.persistent_loops.get(header))  # type: ignore[return-value]

        return run

    def may_return(self, pc: int, target: int, reconvergence: int) -> bool:
        """Whether control may return from the target of a branch to it; in a persistent loop, within the iteration."""
        iteration = self.iteration
        if self.only_determined:
            return pc in self._reachable(target, {reconvergence, *self.abstracted_latches})
        if iteration is None or iteration.done:
            return reconvergence <= pc or target <= pc
        return pc in self._reachable(target, {iteration.loop.latch})

    def _reachable(self, start: int, ends: Collection[int] = ()) -> set[int]:
        """The instructions reachable from `start` without passing one of `ends`."""
        reached, stack = {start}, [start]
        while stack:
            index = stack.pop()
            for each in self.plain.following[index] if index not in ends else ():
                if each >= 0 and each not in reached:
                    reached.add(each)
                    stack.append(each)
        return reached


_PRIVATE = Effect.MOVE | Effect.INTEGER | Effect.LOAD | Effect.BRANCH


def _is_private(program: Program, body: Collection[int]) -> bool:
    """Whether the instructions only write registers and read memory."""
    return not any(program.infos[index].effects & ~_PRIVATE for index in body)


class ParametricExecutor(Executor):
    """One execution of a `ParametricProgram`; `conditions` are nonnegative on the branches taken."""

    follows_data = False
    separates_registers = False

    def __init__(
        self,
        program: ParametricProgram,
        machine: Machine,
        budget: list[int],
        conditions: tuple[Polynomial, ...] = (),
        depth: int = 0,
    ) -> None:
        super().__init__(program.instrumented, machine, budget, depth)
        self.parametric, self.conditions = program, conditions
        assert isinstance(machine.domain, ParametricDomain)
        self.domain = machine.domain

    def _control(
        self, control: Control, group: LaneGroup, groups: list[LaneGroup], alive: Array | None
    ) -> Array | None:
        if isinstance(control, LoopEntry):
            self._loop(control, group)
            self._unblock_groups(groups)
            self._merge_groups(groups)
            return alive
        return super()._control(control, group, groups, alive)

    def _release_single_group(self, group: LaneGroup, orders_global: bool) -> None:
        super()._release_single_group(group, orders_global)
        self._races().compact()

    def _races(self) -> SymbolicRaces:
        assert isinstance(self.machine.races, SymbolicRaces)
        return self.machine.races

    def _loop(self, found: LoopEntry, group: LaneGroup) -> None:
        machine, loop = self.machine, found.straight_line
        line = self._line(group.pc)
        if self.parametric.only_determined:
            self._abstract_loop(found.persistent, group)
            return
        body = None if loop is None else LoopBody(self.parametric.plain, machine, loop)
        if body is not None and body.has_known_trip_count():
            self.parametric.executed_headers.add(group.pc)
            return
        all_threads = group.mask is None and machine.condition is None
        if found.persistent is not None and all_threads and self._persistent(found.persistent, line):
            return
        if loop is None or body is None:
            self.parametric.executed_headers.add(group.pc)
            return
        if not all_threads:
            raise Unsupported("threads diverge at a loop whose trip count depends on the launch", line)
        self.parametric.loop_conditions.append(LoopSummary(body, self.conditions).summarise())
        group.pc = loop.latch + 1

    def _abstract_loop(self, loop: PersistentLoop | None, group: LaneGroup) -> None:
        assert loop is not None
        self.parametric.executed_headers.add(loop.header)
        # The threads that do not meet the condition execute a private loop without effect.
        if group.mask is not None or (
            self.machine.condition is not None and loop.header not in self.parametric.private_loops
        ):
            return

        def run(start: int, stop: int) -> None:
            ParametricExecutor(self.parametric, self.machine, self.budget, self.conditions, self.depth + 1).start(
                start, stop
            )

        applied, latches = True, self.parametric.abstracted_latches
        latches.append(loop.latch)
        try:
            applied = LoopAbstraction(
                self.parametric.plain, self.machine, loop, run, self.parametric.repetitions
            ).apply()
        finally:
            latches.pop()
            if applied:
                self.parametric.executed_headers.discard(loop.header)
        if applied:
            group.pc = loop.latch + 1

    def _persistent(self, loop: PersistentLoop, line: int | None) -> bool:
        """Whether the loop is persistent over tiles: one iteration is then executed for a symbolic tile."""
        iteration = PersistentIteration.try_begin(loop, self.machine, self.parametric.grid_registers, line)
        if iteration is None:
            return False
        self.parametric.iteration = iteration
        self.parametric.executed_headers.add(loop.header)
        return True

    def _branch(self, control: Branch, taken: Value, group: LaneGroup, groups: list[LaneGroup]) -> None:
        iteration = self.parametric.iteration
        if iteration is None or iteration.done or group.pc != iteration.loop.latch:
            super()._branch(control, taken, group, groups)
            return
        if group.mask is not None or self.machine.condition is not None:
            raise iteration.fail("threads diverge at the end of an iteration")
        group.pc = iteration.loop.header if iteration.end(taken) else group.pc + 1

    def _run_both_sides(self, control: Branch, taken: Value, group: LaneGroup) -> None:
        machine, pc = self.machine, group.pc
        lanes = as_symbolic_vector(taken)
        words = lanes.words
        uniform = (
            isinstance(lanes.flags, int)
            and bool((words == words[:, :, :1]).all())
            and (isinstance(taken, Predicate) or (self.parametric.only_determined and not lanes.flags & L.STICKY))
        )
        guarded = self.program.kernel.instructions[pc].guard is not None
        reconvergence = self.program.reconvergence.get(pc) if guarded else None
        if not uniform or group.mask is not None or machine.condition is not None:
            super()._run_both_sides(control, taken, group)
            return
        if (
            reconvergence is None
            or reconvergence >= len(self.program.steps)
            or self.parametric.may_return(pc, control.target, reconvergence)
        ):
            raise Unsupported("the control flow depends on the launch in an unsupported way", self._line(pc))
        self._execute_both_sides(control, taken, group, reconvergence)

    def _for_side(self) -> Executor:
        return ParametricExecutor(self.parametric, self.machine, self.budget, (), self.depth + 1)

    def _execute_both_sides(self, control: Branch, taken: Value, group: LaneGroup, reconvergence: int) -> None:
        """Execute both sides of a uniform branch that depends on the launch; registers become selections."""
        machine, pc = self.machine, group.pc
        memory = cast(ParametricMemory, cast(object, machine.memory))
        shared, local, entry = machine.shared, machine.local, AccessHistory.of(machine)
        before, words, flags, version = (
            dict(machine.registers),
            shared.words.copy(),
            shared.flags.copy(),
            shared.version,
        )
        changed = False
        memories: list[tuple[hashing.Words, Array]] = []
        sides: list[tuple[dict[str, Value], bool]] = []
        histories: list[SymbolicRaces] = []
        after: list[tuple[dict[int, Value], dict[str, Any], AsynchronousReads]] = []
        order = [(taken, control.target), (invert(machine.domain, taken), pc + 1)]
        if self._contains_loop(control.target, reconvergence):
            order.reverse()
        for predicate, start in order:
            machine.registers = dict(before)
            machine.shared, machine.mask = shared, None
            shared.words[:, :, : words.shape[2]], shared.flags[:, : words.shape[2]] = words, flags
            machine.local = dict(local)
            entry.restore(machine)
            facts = predicate.polynomials if isinstance(predicate, Predicate) else ()
            loops_before, facts_before = len(self.parametric.loop_conditions), len(self.domain.integers.facts)
            memory.path.append(predicate)
            self.domain.integers.facts.extend(facts)
            if start != reconvergence:
                ParametricExecutor(
                    self.parametric, machine, self.budget, (*self.conditions, *facts), self.depth + 1
                ).start(start, reconvergence)
            memory.path.pop()
            del self.domain.integers.facts[facts_before:]
            histories.append(self._races())
            after.append((machine.local, dict(machine.extra), machine.asynchronous_reads))
            memories.append((machine.shared.words.copy(), machine.shared.flags.copy()))
            changed = changed or machine.shared is not shared or shared.version != version
            loop_conditions = self.parametric.loop_conditions[loops_before:]
            sides.append((machine.registers, _loops_entered_exactly_under(loop_conditions, predicate)))
        if changed:
            equal = _equal_cells(machine.shared.words.shape[2], *memories)
            invalidate(machine.shared, equal, "shared memory after a branch")
        if order[0][0] is not taken:
            sides.reverse()
            after.reverse()
        self._merge_other_state(taken, after, self._line(pc))
        machine.races = histories[0].with_histories(histories[1:])
        self._merge(taken, sides, before, live_at(self.parametric.plain, reconvergence))
        machine.mask, group.pc = group.mask, reconvergence

    def _merge_other_state(
        self,
        taken: Value,
        after: list[tuple[dict[int, Value], dict[str, Any], AsynchronousReads]],
        line: int | None,
    ) -> None:
        """Set local memory and asynchronous work after both sides of a branch.  Raises Unsupported."""
        (local_left, extra_left, reads_left), (local_right, extra_right, reads_right) = after
        copies = [each.get("copies") for each in (extra_left, extra_right)]
        if (extra_left.keys() | extra_right.keys()) - INERT:
            raise Unsupported("memory barriers are used where the control flow depends on the launch", line)
        machine = self.machine
        merged: dict[int, Value] = {}
        for place in {**local_left, **local_right}:
            first, second = local_left.get(place), local_right.get(place)
            if first is second and first is not None:
                merged[place] = first
                continue
            bits = L.width(first if first is not None else second)  # type: ignore[arg-type]
            first, second = poison(bits) if first is None else first, poison(bits) if second is None else second
            if L.width(first) != L.width(second):
                raise Unsupported("local memory is written in different widths in the sides of a branch", line)
            merged[place] = self._select_value(taken, first, second)
        machine.local = merged
        machine.asynchronous_reads = merged_reads([reads_left, reads_right])
        set_copies(machine, merged_copies(copies))

    def _contains_loop(self, start: int, reconvergence: int) -> bool:
        return any(start <= header < reconvergence for header in self.parametric.loops)

    def _merge(
        self,
        taken: Value,
        sides: list[tuple[dict[str, Value], bool]],
        before: dict[str, Value],
        wanted: Callable[[str], bool],
    ) -> None:
        """Set the registers after both sides of a branch; those that differ have a value only if they are `wanted`."""
        merged = dict(before)
        (left, entered_left), (right, entered_right) = sides
        row = self.domain.coordinates.loop_rows + NO_ITERATION
        for name in dict.fromkeys((*left, *right)):  # not a set: its order would depend on the hash seed
            first, second = left.get(name), right.get(name)
            if first is second and first is not None:
                merged[name] = first
                continue
            if not wanted(name):
                merged.pop(name, None)
                continue
            bits = L.width(first if first is not None else second)  # type: ignore[arg-type]
            first = poison(bits) if first is None else first
            second = poison(bits) if second is None else second
            if entered_left and _equal_in_row(first, second, row):
                merged[name] = with_row_replaced(first, row)
            elif entered_right and _equal_in_row(first, second, row):
                merged[name] = with_row_replaced(second, row)
            else:
                if entered_left or entered_right:
                    first, second = with_row_replaced(first, row), with_row_replaced(second, row)
                merged[name] = self._select_value(taken, first, second)
        self.machine.registers = merged

    def _select_value(self, taken: Value, first: Value, second: Value) -> Value:
        if isinstance(first, np.ndarray) and isinstance(second, np.ndarray) and np.array_equal(first, second):
            return first
        whole = not isinstance(first, np.ndarray | L.PackedVector) and not isinstance(
            second, np.ndarray | L.PackedVector
        )
        if whole and np.array_equal(hash_of(first)[0], hash_of(second)[0]):
            return first
        return self.domain.select(taken, first, second)


def _equal_cells(size: int, first: tuple[hashing.Words, Array], second: tuple[hashing.Words, Array]) -> Array:
    """The cells of shared memory that are equal after both sides of a branch."""
    known, both = np.zeros(size, dtype=bool), min(size, first[1].shape[1], second[1].shape[1])
    words = (first[0][:, :, :both] == second[0][:, :, :both]).all(axis=(0, 1))
    known[:both] = words & (first[1][:, :both] == second[1][:, :both]).all(axis=0)
    return known


def _loops_entered_exactly_under(loop_conditions: list[Polynomial | None], predicate: Value) -> bool:
    """Whether the loops of one side have an iteration exactly if that side of the branch is taken."""
    fact = predicate.single if isinstance(predicate, Predicate) else None
    if not loop_conditions or fact is None:
        return False
    return all(
        each is not None
        and each.terms == fact.terms
        and isinstance(fact.constant, int)
        and each.constant == fact.constant
        for each in loop_conditions
    )


def _equal_in_row(left: Value, right: Value, row: int) -> bool:
    """Whether two values are equal in an instance of the launch, part by part."""
    ends = sorted({*_part_ends(left), *_part_ends(right)})
    for low, high in zip([0, *ends[:-1]], ends, strict=True):
        first, second = (_words_of_row(extract(each, low, high - low), row) for each in (left, right))
        if (first != second).any():
            return False
    return True


def _part_ends(value: Value) -> list[int]:
    parts = value.parts if isinstance(value, PackedVector) else (value,)
    return [sum(L.width(part) for part in parts[: index + 1]) for index in range(len(parts))]


def _words_of_row(value: Value, row: int) -> hashing.Words:
    words = hash_of(value)[0]
    return words[:, min(row, words.shape[1] - 1)]


def with_row_replaced(value: Value, row: int) -> Value:
    """The value with one instance replaced by that of row 0."""
    if isinstance(value, PackedVector):
        return PackedVector(tuple(with_row_replaced(part, row) for part in value.parts))  # type: ignore[misc]
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
