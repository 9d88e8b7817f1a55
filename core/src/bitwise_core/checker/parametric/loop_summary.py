"""Loops whose trip count depends on the launch, summarised by induction as folds over their iterations.

The position of a loop is a symbol that grows by `step` an iteration.  `lead` iterations, started from the induction
variables at a symbolic position, fill what the loop carries in registers and shared memory.  Then `period` further
iterations must lead to the same state at the position one period later.  Instances of the launch prove this side by
side: one with the position a period later, one with the position 0 (which must be the state in which the loop is
entered), and for the normal form of the fold one iteration later, one matrix step later, one with the position beyond
the loop's bound, and one in which the loop has no iteration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import numpy as np

from bitwise_core.checker.parametric import polynomial as P
from bitwise_core.checker.parametric.coordinates import Coordinate, Environment
from bitwise_core.checker.parametric.induction_variables import InductionVariables, LoopBody
from bitwise_core.checker.parametric.integers import implies, tightened
from bitwise_core.checker.parametric.loop_dependence import Chains, MatrixStep, chains
from bitwise_core.checker.parametric.loop_shape import matrix_depth
from bitwise_core.checker.parametric.loop_state import LiveInMemory, State, hash_of
from bitwise_core.checker.parametric.memory import ParametricMemory
from bitwise_core.checker.parametric.polynomial import Polynomial
from bitwise_core.checker.parametric.values import Equality, Predicate, not_negative
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.instruction_info import Effect
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.memory.race_detector import RaceDetectors
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector, concat, extract
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import full_hash, poison
from bitwise_core.numerics import modular

INSTANCES = 6
NEXT, ITERATION, MATRIX_STEP, ENTRY, BEYOND, NO_ITERATION = range(INSTANCES)
"""Instances of the launch, by how the position of a loop differs: a period later, an iteration later, a matrix step
later, 0, beyond the bound; in the last one, the loop has no iteration."""


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a loop as two atoms, which may be one.

    `symbol` grows by `step` an iteration, `elements` by `per_iteration`, the elements of k that it adds.
    """

    symbol: int
    elements: int
    step: int
    per_iteration: int


@dataclass(frozen=True, slots=True)
class LoopEnd:
    """The iteration at a position is run if `condition` is not negative.

    Where `symbol` (a scalar that the bound contains once) is given, the condition is `bound` - position - 1.
    """

    condition: Polynomial
    bound: Polynomial
    symbol: int | None


@dataclass(frozen=True, slots=True)
class Recorded:
    """What each iteration (or matrix step of a pure chain) computes from the accumulator symbol, by accumulator.

    `left` holds the values after each iteration of other registers that are read after the loop.
    """

    values: dict[str, list[Value]]
    pure: frozenset[str]
    period: int
    flags: Mapping[str, int]
    left: dict[str, list[Value]]

    def alike(self, name: str, other: str) -> bool:
        """Whether every iteration leaves the same value in the other register as in the accumulator."""
        pairs = list(zip(self.values[name], self.left[other], strict=False))
        return len(pairs) == self.period and all(np.array_equal(hash_of(a)[0], hash_of(b)[0]) for a, b in pairs)


@dataclass(frozen=True, slots=True)
class Chained:
    """A matrix step whose accumulators are replaced by symbols before it and recorded after it."""

    step: MatrixStep
    recorded: Recorded

    def prepare(self, machine: Machine) -> None:
        """Sets the accumulators to their symbols."""
        for (_, source), owners in zip(self.step.sources, self.step.owners, strict=True):
            bits = L.width(machine.registers[source]) // len(owners)
            machine.registers[source] = concat([accumulator(bits, self.recorded.flags[name]) for name in owners])

    def record(self, machine: Machine) -> None:
        """Records the accumulators."""
        for (target, _), owners in zip(self.step.sources, self.step.owners, strict=True):
            value = machine.registers[target]
            bits = L.width(value) // len(owners)
            for place, name in enumerate(owners):
                part = value if len(owners) == 1 else extract(value, place * bits, bits)
                self.recorded.values[name].append(part)


def accumulator(bits: int, flags: int) -> SymbolicVector:
    """The symbol of an accumulator's value before an iteration, with the properties that every iteration preserves."""
    return SymbolicVector(bits, hashing.constant("accumulator of a fold"), L.TERM | flags)


class NotPreserved(Exception):
    """Iterations do not preserve a property that an accumulator starts with."""


@dataclass(frozen=True, slots=True)
class Fold:
    """The normal form of an accumulator after the loop: a fold over its iterations, or over their matrix steps."""

    body: LoopBody
    end: LoopEnd
    unit: int
    once: bool
    position: Position
    rows: list[int]

    def of(self, name: str, start: Value, recorded: Recorded) -> tuple[SymbolicVector, SymbolicVector]:
        """The accumulator after the loop, and before an iteration.  Raises Unsupported where iterations differ."""
        values = recorded.values[name]
        hashes = [hash_of(value)[0] for value in values]
        count = len(values) // recorded.period
        rows = self.rows
        for index in range(len(values) - count):
            if not _agree(hashes[index], rows[ITERATION], hashes[index + count], 0):
                raise self.body.fail("iterations differ from each other")
        bits = L.width(start)
        initial = hash_of(start)[0] * hashing.multiplier(61)
        if self._by_steps(name, hashes, recorded):
            bound = self.body.integers.words_of(self.end.bound)
            total = hashes[0] * hashing.multiplier(62) + bound * hashing.multiplier(63) + initial
            words = hashing.mix(total + hashing.constant(f"fold of steps of {self.unit} {self.once}"))
        else:
            total = initial + self.body.integers.words_of(self.end.condition) * hashing.multiplier(63)
            for place, each in enumerate(hashes[:count]):
                total = total + each * hashing.multiplier(100 + place)
            words = hashing.mix(
                total + hashing.constant(f"fold of {count} a turn of {self.position.per_iteration} {self.once}")
            )
        flags = _inherited([start, *values]) | np.uint32(L.TERM | recorded.flags[name])
        return self._result(bits, words, flags, start), self._named(bits, words, flags)

    def started(self, result: SymbolicVector, own: Value, start: Value) -> SymbolicVector:
        """The fold that starts from `own`, in a register that holds `start` where the loop has no iteration."""
        left, right = hash_of(own)[0], hash_of(start)[0]
        if self.once or (left.shape == right.shape and np.array_equal(left, right)):
            return result
        words = hashing.mix(
            result.words * hashing.multiplier(65)
            + right * hashing.multiplier(66)
            + hashing.constant("or without a turn")
        )
        return self._without_iteration(SymbolicVector(result.bits, words, result.flags), start)

    def _named(self, bits: int, words: hashing.Words, flags: Array) -> SymbolicVector:
        """The accumulator before an iteration, for accumulators that depend on it.

        A fold is determined by its start and by what an iteration computes at each position, so its hash identifies
        the values before all iterations as well as the last one.  The instances of the loop are other positions of the
        same fold.
        """
        name = hashing.mix(words * hashing.multiplier(64) + hashing.constant("an accumulator before a turn"))
        if name.shape[1] > 1:
            name[:, self.rows] = name[:, :1]
        return SymbolicVector(bits, name, L.uniform_flags(flags))

    def _result(self, bits: int, words: hashing.Words, flags: Array, start: Value) -> SymbolicVector:
        """The fold; in the instance NO_ITERATION the start, if a branch in front of the loop guards it."""
        if not self.once:
            return self._without_iteration(SymbolicVector(bits, words, flags), start)
        words = np.broadcast_to(words, (2, self.body.domain.rows, words.shape[2])).copy()
        words[:, self.rows[NO_ITERATION]] = hashing.constant("a loop that has a turn")[:, 0]
        return SymbolicVector(bits, words, L.uniform_flags(flags))

    def _without_iteration(self, result: SymbolicVector, start: Value) -> SymbolicVector:
        before, row = as_symbolic_vector(start), self.rows[NO_ITERATION]
        own = np.atleast_2d(np.asarray(result.flags, dtype=np.uint32))
        shape = (self.body.domain.rows, max(result.words.shape[2], before.words.shape[2], own.shape[1]))
        words, flags = np.broadcast_to(result.words, (2, *shape)).copy(), np.broadcast_to(own, shape).copy()
        words[:, row] = before.words[:, 0]
        flags[row] = before.flags if isinstance(before.flags, int) else before.flags[0]
        return SymbolicVector(result.bits, words, flags)

    def _by_steps(self, name: str, hashes: list[hashing.Words], recorded: Recorded) -> bool:
        """Whether all matrix steps are one function of the position, and steps beyond the bound change nothing."""
        if name not in recorded.pure or self.end.symbol is None or not self.unit:
            return False
        if self.unit * len(hashes) != self.position.per_iteration * recorded.period:
            return False
        rows = self.rows
        if not all(_agree(first, rows[MATRIX_STEP], second, 0) for first, second in pairwise(hashes)):
            return False
        symbol = full_hash(accumulator(L.width(recorded.values[name][0]), 0))
        return _agree(hashes[0], rows[BEYOND], symbol, 0)


def _inherited(values: list[Value]) -> Array:
    """The properties that the lanes of a result inherit from values that enter it: shape (rows or 1, threads or 1)."""
    found = np.zeros((1, 1), dtype=np.uint32)
    for value in values:
        found = found | (
            np.atleast_2d(np.asarray(as_symbolic_vector(value).flags, dtype=np.uint32)) & np.uint32(L.STICKY)
        )
    return found


def _agree(left: hashing.Words, left_row: int, right: hashing.Words, right_row: int) -> bool:
    first = left[:, min(left_row, left.shape[1] - 1)]
    second = right[:, min(right_row, right.shape[1] - 1)]
    return bool((first == second).all())


# -- summaries --------------------------------------------------------------------------------------------------------


class LoopSummary:
    """The summary of one loop, whose header the machine has reached from outside under the conditions `entered`."""

    def __init__(self, body: LoopBody, entered: Sequence[Polynomial]) -> None:
        self.body, self.entered = body, entered
        self.program, self.machine, self.loop = body.program, body.machine, body.loop
        self.integers, self.instructions, self.fail = body.integers, body.instructions, body.fail
        self.rows = [self.integers.coordinates.others + index for index in range(INSTANCES)]
        self.total = self.integers.coordinates.rows
        self.keeping, self.thorough = True, False

    def summarise(self) -> Polynomial | None:
        """Leaves the machine in the state after the loop.  Raises Unsupported.

        Returns the integer that is not negative exactly where the loop has an iteration, if a branch in front of the
        loop tests that; None where none does, so that the first iteration is always run.
        """
        machine = self.machine
        shared, races, extra, registers = machine.shared, machine.races, dict(machine.extra), dict(machine.registers)
        reading = machine.asynchronous_reads
        while True:
            try:
                return self._summarise()
            except (NotPreserved, Unsupported) as error:
                machine.shared, machine.races, machine.extra = shared, races, dict(extra)
                machine.registers, machine.asynchronous_reads = dict(registers), reading
                if isinstance(error, NotPreserved):
                    self.keeping = False
                elif self.thorough or not self._is_reset():
                    raise
                else:
                    self.thorough = True

    def _is_reset(self) -> bool:
        """Whether integers that look linear over few iterations are reset later on."""
        kept, periods = dict(self.machine.registers), set()
        try:
            names, pcs = self.body.integer_registers()
            for thorough in (False, True):
                self.machine.registers = dict(kept)
                periods.add(self.body.induction_variables(names, pcs, thorough).period)
        except Unsupported:
            return False
        finally:
            self.machine.registers = kept
        return len(periods) == 2

    def _summarise(self) -> Polynomial | None:
        machine, integers = self.machine, self.integers
        entry = State.of(machine)
        stored = len(self._stored())
        names, pcs = self.body.integer_registers()
        variables = self.body.induction_variables(names, pcs, self.thorough)
        whole = variables.step * variables.period
        symbol = integers.table.atom(hashing.constant("turn of a loop"), alignment=whole & -whole)
        integers.table.naturals.add(symbol)
        unit, steps = self._unit(), self._steps(variables)
        position = Position(symbol, symbol, variables.step, variables.step)
        environments, scaled = integers.coordinates.environments, integers.coordinates.scaled
        if unit * steps > variables.step and unit * steps % variables.step == 0:
            whole = unit * steps * variables.period
            elements = integers.table.atom(hashing.constant("position in a loop"), alignment=whole & -whole)
            integers.table.naturals.add(elements)
            position = Position(symbol, elements, variables.step, unit * steps)
            ratio = unit * steps // variables.step
            scaled.append(Coordinate(-1, elements, Polynomial(32, {(symbol,): ratio}), symbol, ratio))
        own = self._environments(variables, position, unit)
        try:
            end = self._end(variables, pcs, position)
            if end.symbol is not None:
                own.append(self._beyond(end, position.elements))
            environments.extend(own)
            condition = self._fold(entry, variables, position, end, unit)
        finally:
            environments[:] = [each for each in environments if not any(each is other for other in own)]
            scaled.clear()
        if len(self._stored()) != stored:
            raise self.fail("memory is written")
        return condition

    def _steps(self, variables: InductionVariables) -> int:
        """Matrix steps of an iteration on each accumulator; 0 where accumulators differ."""
        try:
            data = [name for name in self.loop.carried if name not in variables.start]
            found = chains(self.instructions, self.program.infos, self.loop, data)
        except Unsupported:
            return 0
        counts = dict.fromkeys(found.pure, 0)
        for step in found.steps:
            for owner in (name for names in step.owners for name in names):
                counts[owner] += 1
        return counts.popitem()[1] if counts and len(set(counts.values())) == 1 else 0

    def _environments(self, variables: InductionVariables, position: Position, unit: int) -> list[Environment]:
        rows, total = self.rows, self.total

        def moved(by: Mapping[int, int]) -> modular.Residue:
            shift = np.zeros((total, 1), dtype=np.uint64)
            for instance, amount in by.items():
                shift[rows[instance]] = amount
            return shift

        kept = np.ones((total, 1), dtype=np.uint64)
        kept[rows[ENTRY]] = 0
        far = position.per_iteration * variables.period
        found = [
            Environment(
                position.elements,
                kept,
                Polynomial(64, {}, moved({NEXT: far, ITERATION: position.per_iteration, MATRIX_STEP: unit})),
            )
        ]
        if position.symbol != position.elements:
            lost = self.integers.table.atom(hashing.constant("no whole turn"))
            shift = moved({NEXT: variables.step * variables.period, ITERATION: variables.step})
            plain_kept = kept.copy()
            plain_kept[rows[MATRIX_STEP]] = 0
            found.append(
                Environment(position.symbol, plain_kept, Polynomial(64, {(lost,): moved({MATRIX_STEP: 1})}, shift))
            )
        return found

    def _beyond(self, end: LoopEnd, symbol: int) -> Environment:
        """In the instance BEYOND the bound is at most the position."""
        assert end.symbol is not None
        row = np.zeros((self.total, 1), dtype=np.uint64)
        row[self.rows[BEYOND]] = 1
        rest = Polynomial(64, {m: c for m, c in end.bound.terms.items() if m != (end.symbol,)}, end.bound.constant)
        passed = P.subtract(P.subtract(P.of_atom(symbol, 64), P.of_atom(self.integers.natural, 64)), rest)
        return Environment(end.symbol, np.uint64(1) - row, P.scale(passed, row))

    def _unit(self) -> int:
        depths = {matrix_depth(self.program.infos[pc]) for pc in self.loop.body} - {0}
        return depths.pop() if len(depths) == 1 else 0

    def _end(self, variables: InductionVariables, pcs: list[int], position: Position) -> LoopEnd:
        """The condition under which the iteration at a position is run."""
        kept = dict(self.machine.registers)
        self.body.place(variables, position.symbol, 0)
        self.body.run(pcs)
        taken = self.body.condition()
        self.machine.registers = kept
        after = self._continues(taken, position)
        for symbol, step in {position.symbol: variables.step, position.elements: position.per_iteration}.items():
            back = Environment(symbol, 1, Polynomial(64, {}, -step & modular.FULL))
            for monomial in [m for m in after.terms if symbol in m]:
                after = back.applied(after, monomial)
        condition = tightened(after)
        grows = {m: c for m, c in condition.terms.items() if position.elements in m or position.symbol in m}
        bound = P.shifted(
            Polynomial(64, {m: c for m, c in condition.terms.items() if m not in grows}, condition.constant), 1
        )
        if grows != {(position.elements,): modular.FULL}:
            return LoopEnd(condition, bound, None)
        symbols = [
            m[0] for m, c in bound.terms.items() if len(m) == 1 and c == 1 and not self.integers.atoms[m[0]].block
        ]
        return LoopEnd(condition, bound, symbols[0] if len(symbols) == 1 else None)

    def _continues(self, taken: Value | None, position: Position) -> Polynomial:
        """The condition of another iteration.

        A counter that grows in steps of one from below its bound is not equal to it exactly while it is below it.  The
        branch in front of the loop must imply that it starts below.
        """
        if isinstance(taken, Predicate) and taken.single is not None:
            return taken.single
        if isinstance(taken, Equality) and taken.unequal and taken.difference.bits in (32, 64):
            wide = self.integers.widened(taken.difference, 64)
            if wide is not None and wide.terms.get((position.symbol,)) in (1, modular.FULL):
                below = wide if wide.terms[(position.symbol,)] == modular.FULL else P.negate(wide)
                start = Polynomial(
                    64, {m: c for m, c in below.terms.items() if m != (position.symbol,)}, below.constant
                )
                found = not_negative(self.integers, P.shifted(below, -1))
                first = not_negative(self.integers, start)
                if isinstance(found, Predicate) and isinstance(first, Predicate) and self._known(first):
                    return found.polynomials[0]
        raise self.fail("the condition for another iteration is no comparison of integers")

    def _known(self, condition: Predicate) -> bool:
        return any(implies(each, condition.polynomials[0]) for each in self.entered)

    def _fold(
        self, entry: State, variables: InductionVariables, position: Position, end: LoopEnd, unit: int
    ) -> Polynomial | None:
        machine, loop = self.machine, self.loop
        data = [name for name in loop.carried if name not in variables.start]
        before = machine.shared
        memory = self._ready(variables, position, data)
        accumulators = [name for name in data if hash_of(machine.registers[name])[1] & L.POISON]
        found = chains(self.instructions, self.program.infos, loop, accumulators)
        ready = State.of(machine)
        once = not any(implies(each, self._at_entry(end, position)) for each in self.entered)
        fold = Fold(self.body, end, unit, once, position, self.rows)
        named: dict[str, SymbolicVector] = {}
        results: dict[str, SymbolicVector] = {}
        others = [name for name in loop.kept if name not in data and name not in variables.start]
        firm = [name for name in data if name not in accumulators]
        idle = [name for name in firm if not entry.has(0, ready, self.rows[ENTRY], name)]
        for place, level in enumerate(found.levels):
            if place:
                machine.shared, machine.registers = before, dict(entry.registers)
                memory = self._ready(variables, position, data)
            memory.watch()
            starts = {name: named.get(name) or poison(self._width(name)) for name in (*accumulators, *idle)}
            recorded = self._period(variables, found, level, starts, entry, others)
            if not place:
                self._check_state(entry, ready, [name for name in firm if name not in idle], memory.live_in())
                self._check_integers(variables, position.symbol)
            for name in level:
                results[name], named[name] = fold.of(name, self._start(entry, name), recorded)
            for name in others:
                own = found.only(name, level)
                if own is not None and own not in found.pure and recorded.alike(own, name):
                    starts_from = self._start(entry, own), self._start(entry, name)
                    results[name] = fold.started(results[own], *starts_from)
        for name in loop.writes:
            if name in machine.registers:
                bits = L.width(machine.registers[name])
                machine.registers[name] = results.get(name) or SymbolicVector(
                    bits, hashing.constant("after a loop"), L.TERM | L.POISON
                )
        memory.leave()
        return None if once else self._at_entry(end, position)

    def _start(self, entry: State, name: str) -> Value:
        return entry.registers.get(name, poison(self._width(name)))

    def _ready(self, variables: InductionVariables, position: Position, data: list[str]) -> LiveInMemory:
        """Runs the iterations that fill what the loop carries, up to the symbolic position."""
        machine, loop = self.machine, self.loop
        carries = any(Effect.ASYNCHRONOUS in self.program.infos[pc].effects for pc in loop.body)
        lead = variables.period if carries or variables.period > 1 else 1
        self.body.place(variables, position.symbol, -(lead // variables.period))
        for name in data:
            bits = self._width(name)
            machine.registers[name] = SymbolicVector(
                bits, hashing.constant(f"before the loop {name}"), L.TERM | L.POISON
            )
        memory = LiveInMemory.around(machine)
        machine.races = RaceDetectors(memory.words.shape[2], machine.threads, machine.warp, machine.blocks)
        machine.asynchronous_reads = {}
        for _ in range(lead):
            self.body.run(loop.body)
        return memory

    def _check_state(self, entry: State, ready: State, firm: list[str], live: Array) -> None:
        """Checks the induction: the loop's entry and a period lead to the same state.  Raises Unsupported.

        Cells that nothing has written yet are not compared: a result that depends on them is undefined.
        """
        live = ready.written(live)
        after = State.of(self.machine)
        first_row = 0
        if not entry.agrees(first_row, ready, self.rows[ENTRY], firm, live):
            raise self.fail("the state at the loop's start is not that of a later iteration")
        if not after.agrees(first_row, ready, self.rows[NEXT], firm, live):
            raise self.fail("an iteration does not lead to the state of the next one")

    def _width(self, name: str) -> int:
        value = self.machine.registers.get(name)
        if value is not None:
            return L.width(value)
        declared = self.program.kernel.registers
        return declared.get(name) or declared.get(name.rstrip("0123456789")) or 32

    def _at_entry(self, end: LoopEnd, position: Position) -> Polynomial:
        terms = {
            m: c for m, c in end.condition.terms.items() if position.symbol not in m and position.elements not in m
        }
        return Polynomial(64, terms, end.condition.constant)

    def _check_integers(self, variables: InductionVariables, symbol: int) -> None:
        reached = {name: self.body.polynomial(name) for name in variables.start}
        self.body.place(variables, symbol, 1)
        for name, value in reached.items():
            if not self.integers.equal(value, self.body.polynomial(name)):
                raise self.fail("an integer grows unevenly")

    def _period(
        self,
        variables: InductionVariables,
        found: Chains,
        level: tuple[str, ...],
        starts: Mapping[str, Value],
        entry: State,
        others: list[str],
    ) -> Recorded:
        """Runs a whole period; accumulators of the level are one symbol before every iteration and every matrix step.

        `starts` gives the other accumulators: those of earlier levels by name, and poison for those of later levels and
        for registers that are overwritten before they are read.  The values of `others` are recorded too.
        """
        machine = self.machine
        flags = {name: self._property(machine, name, entry) for name in level}
        pure = found.pure & set(level)
        recorded = Recorded({name: [] for name in level}, pure, variables.period, flags, {name: [] for name in others})
        for _ in range(variables.period):
            machine.registers.update(starts)
            machine.registers.update((name, accumulator(L.width(starts[name]), flags[name])) for name in level)
            chained = {
                step.index: Chained(step, recorded)
                for step in found.steps
                if all(name in pure for names in step.owners for name in names)
            }
            self.body.run(self.loop.body, chained)
            for name in level:
                if name not in pure:
                    recorded.values[name].append(machine.registers[name])
            for name in others:
                if name in machine.registers:
                    recorded.left[name].append(machine.registers[name])
        for name, values in recorded.values.items():
            if flags[name] and not all(
                np.all(np.bitwise_and(as_symbolic_vector(value).flags, flags[name])) for value in values
            ):
                raise NotPreserved
        return recorded

    def _property(self, machine: Machine, name: str, entry: State) -> int:
        if not self.keeping or name not in entry.registers:
            return 0
        flags = as_symbolic_vector(entry.registers[name]).flags
        return L.NOT_MINUS_ZERO if np.all(np.bitwise_and(flags, L.NOT_MINUS_ZERO)) else 0

    def _stored(self) -> list[object]:
        return list(cast(ParametricMemory, cast(object, self.machine.memory)).stored)
