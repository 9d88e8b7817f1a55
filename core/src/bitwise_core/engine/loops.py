"""Loops of unknown length: a turn is run from a state at a symbolic position, and induction makes it a fold.

The position is a symbol that grows by `step` a turn.  From integers that grow evenly with it, `lead` turns fill what
the loop carries in registers and shared memory; then `period` further turns must lead to the same state at the
position further on.  Instances of the launch prove this side by side: one in which the position is larger by a whole
period, one in which it is 0 (that must be the state in which the loop is entered), and for the fold's own form
one turn and one matrix step further on, and one in which the loop's bound has been passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np

from bitwise_core.engine import polynomial as P
from bitwise_core.engine.folds import (
    BEYOND,
    ENTRY,
    INSTANCES,
    NEXT,
    TURN,
    UNIT,
    Chained,
    End,
    Fold,
    NotKept,
    Recorded,
    Scale,
    accumulator,
)  # fmt: skip
from bitwise_core.engine.loop_dependence import Chains, chains
from bitwise_core.engine.loop_shape import Loop, matrix_depth
from bitwise_core.engine.loop_state import EnteredMemory, State, hash_of
from bitwise_core.engine.loop_turns import Growth, Turns
from bitwise_core.engine.polynomial import Polynomial
from bitwise_core.engine.predicates import implies, not_negative, tightened
from bitwise_core.engine.program import Program
from bitwise_core.engine.symbolic import Equality, Predicate
from bitwise_core.engine.symbolic_memory import SymbolicMemory
from bitwise_core.engine.tiles import Coordinate, Environment
from bitwise_core.machine import hashing
from bitwise_core.machine import lanes as L
from bitwise_core.machine.domain import Unreadable
from bitwise_core.machine.instruction_info import Effect
from bitwise_core.machine.lane_hash import poison
from bitwise_core.machine.lanes import Array, Lanes, Value
from bitwise_core.machine.pieces import as_lanes
from bitwise_core.machine.races import Races
from bitwise_core.machine.state import Machine


class LoopReader(Turns):
    """Reads one loop; `machine` stands at its head, having come from outside."""

    def __init__(self, program: Program, machine: Machine, loop: Loop, entered: list[Polynomial]) -> None:
        super().__init__(program, machine, loop, entered)
        self.rows = [self.domain.coordinates.others + index for index in range(INSTANCES)]
        self.keeping, self.thorough = True, False

    # -- the whole loop ---------------------------------------------------------------------------------------------

    def summarise(self) -> None:
        """Leaves the machine in the state after the loop.  Raises Unreadable."""
        machine = self.machine
        shared, races, extra, registers = machine.shared, machine.races, dict(machine.extra), dict(machine.registers)
        reading = machine.reading
        while True:
            try:
                self._summarise()
                return
            except (NotKept, Unreadable) as error:
                machine.shared, machine.races, machine.extra = shared, races, dict(extra)
                machine.registers, machine.reading = dict(registers), reading
                if isinstance(error, NotKept):
                    self.keeping = False
                elif self.thorough or not self._starts_over():
                    raise
                else:
                    self.thorough = True

    def _starts_over(self) -> bool:
        """Whether integers that were taken to grow evenly start over later on."""
        kept, periods = dict(self.machine.registers), set()
        try:
            names, pcs = self.integers()
            for thorough in (False, True):
                self.machine.registers = dict(kept)
                periods.add(self.growth(names, pcs, thorough).period)
        except Unreadable:
            return False
        finally:
            self.machine.registers = kept
        return len(periods) == 2

    def _summarise(self) -> None:
        machine, domain = self.machine, self.domain
        entry = State.of(machine)
        stored = len(self._stored())
        names, pcs = self.integers()
        growth = self.growth(names, pcs, self.thorough)
        position = domain.atom(
            hashing.constant("turn of a loop"), alignment=growth.step * growth.period & -(growth.step * growth.period)
        )
        domain.naturals.add(position)
        unit, steps = self._unit(), self._steps(growth)
        scale = Scale(position, position, growth.step, growth.step)
        environments, scaled = domain.coordinates.environments, domain.coordinates.scaled
        if unit * steps > growth.step and unit * steps % growth.step == 0:
            whole = unit * steps * growth.period
            elements = domain.atom(hashing.constant("position in a loop"), alignment=whole & -whole)
            domain.naturals.add(elements)
            scale = Scale(position, elements, growth.step, unit * steps)
            ratio = unit * steps // growth.step
            scaled.append(Coordinate(-1, elements, Polynomial(32, {(position,): ratio}), position, ratio))
        own = self._environments(growth, scale, unit)
        try:
            end = self._end(growth, pcs, scale)
            if end.symbol is not None:
                own.append(self._beyond(end, scale.elements))
            environments.extend(own)
            self._fold(entry, growth, scale, end, unit)
        finally:
            environments[:] = [each for each in environments if not any(each is other for other in own)]
            scaled.clear()
        if len(self._stored()) != stored:
            raise self.fail("memory is written")

    def _steps(self, growth: Growth) -> int:
        """Matrix steps that a turn adds to an accumulator, where all accumulators agree."""
        try:
            data = [name for name in self.loop.carried if name not in growth.start]
            found = chains(self.instructions, self.program.infos, self.loop, data)
        except Unreadable:
            return 0
        counts = dict.fromkeys(found.pure, 0)
        for step in found.steps:
            for owner in (name for names in step.owners for name in names):
                counts[owner] += 1
        return counts.popitem()[1] if counts and len(set(counts.values())) == 1 else 0

    def _environments(self, growth: Growth, scale: Scale, unit: int) -> list[Environment]:
        rows, total = self.rows, self.domain.rows

        def moved(by: Mapping[int, int]) -> P.Coefficient:
            shift = np.zeros((total, 1), dtype=np.uint64)
            for instance, amount in by.items():
                shift[rows[instance]] = amount
            return shift

        kept = np.ones((total, 1), dtype=np.uint64)
        kept[rows[ENTRY]] = 0
        far = scale.per_turn * growth.period
        found = [
            Environment(scale.elements, kept, Polynomial(64, {}, moved({NEXT: far, TURN: scale.per_turn, UNIT: unit})))
        ]
        if scale.turn != scale.elements:
            lost = self.domain.atom(hashing.constant("no whole turn"))
            shift = moved({NEXT: growth.step * growth.period, TURN: growth.step})
            plain_kept = kept.copy()
            plain_kept[rows[UNIT]] = 0
            found.append(Environment(scale.turn, plain_kept, Polynomial(64, {(lost,): moved({UNIT: 1})}, shift)))
        return found

    def _beyond(self, end: End, position: int) -> Environment:
        """In one instance the bound is the position less something that is not negative."""
        assert end.symbol is not None
        row = np.zeros((self.domain.rows, 1), dtype=np.uint64)
        row[self.rows[BEYOND]] = 1
        rest = Polynomial(64, {m: c for m, c in end.bound.terms.items() if m != (end.symbol,)}, end.bound.constant)
        passed = P.subtract(P.subtract(P.of_atom(position, 64), P.of_atom(self.domain.natural, 64)), rest)
        return Environment(end.symbol, np.uint64(1) - row, P.scale(passed, row))

    def _unit(self) -> int:
        depths = {matrix_depth(self.program.infos[pc]) for pc in self.loop.body} - {0}
        return depths.pop() if len(depths) == 1 else 0

    def _end(self, growth: Growth, pcs: list[int], scale: Scale) -> End:
        """The condition under which the turn at a position is run, as a polynomial that must not be negative."""
        kept = dict(self.machine.registers)
        self.place(growth, scale.turn, 0)
        self.run(pcs)
        taken = self.guard()
        self.machine.registers = kept
        after = self._continues(taken, scale)
        for symbol, step in {scale.turn: growth.step, scale.elements: scale.per_turn}.items():
            back = Environment(symbol, 1, Polynomial(64, {}, -step & P.FULL))
            for monomial in [m for m in after.terms if symbol in m]:
                after = back.applied(after, monomial)
        condition = tightened(after)
        grows = {m: c for m, c in condition.terms.items() if scale.elements in m or scale.turn in m}
        bound = P.shifted(
            Polynomial(64, {m: c for m, c in condition.terms.items() if m not in grows}, condition.constant), 1
        )
        if grows != {(scale.elements,): P.FULL}:
            return End(condition, bound, None)
        symbols = [m[0] for m, c in bound.terms.items() if len(m) == 1 and c == 1 and not self.domain.atoms[m[0]].block]
        return End(condition, bound, symbols[0] if len(symbols) == 1 else None)

    def _continues(self, taken: Value | None, scale: Scale) -> Polynomial:
        """The condition of another turn.

        That a counter has not reached its bound is, coming from below in steps of one, that it lies below it; that
        it starts below is what the branch in front of the loop must say (a bound below the start would let it run on).
        """
        if isinstance(taken, Predicate) and taken.single is not None:
            return taken.single
        if isinstance(taken, Equality) and taken.unequal and taken.difference.bits in (32, 64):
            wide = self.domain.widened(taken.difference, 64)
            if wide is not None and wide.terms.get((scale.turn,)) in (1, P.FULL):
                below = wide if wide.terms[(scale.turn,)] == P.FULL else P.negate(wide)
                start = Polynomial(64, {m: c for m, c in below.terms.items() if m != (scale.turn,)}, below.constant)
                found = not_negative(self.domain, P.shifted(below, -1))
                first = not_negative(self.domain, start)
                if isinstance(found, Predicate) and isinstance(first, Predicate) and self._known(first):
                    return found.polynomials[0]
        raise self.fail("the condition for another turn is no comparison of integers")

    def _known(self, condition: Predicate) -> bool:
        return any(implies(each, condition.polynomials[0]) for each in self.entered)

    def _fold(self, entry: State, growth: Growth, scale: Scale, end: End, unit: int) -> None:
        machine, loop = self.machine, self.loop
        data = [name for name in loop.carried if name not in growth.start]
        before = machine.shared
        memory = self._ready(growth, scale, data)
        accumulators = [name for name in data if hash_of(machine.registers[name])[1] & L.POISON]
        found = chains(self.instructions, self.program.infos, loop, accumulators)
        ready = State.of(machine)
        once = not any(implies(each, self._at_entry(end, scale)) for each in self.entered)
        fold = Fold(self, growth, end, unit, once, scale, self.rows)
        named: dict[str, Lanes] = {}
        results: dict[str, Lanes] = {}
        others = [name for name in loop.kept if name not in data and name not in growth.start]
        firm = [name for name in data if name not in accumulators]
        idle = [name for name in firm if not entry.has(0, ready, self.rows[ENTRY], name)]
        for place, level in enumerate(found.levels):
            if place:
                machine.shared, machine.registers = before, dict(entry.registers)
                memory = self._ready(growth, scale, data)
            memory.watch()
            starts = {name: named.get(name) or poison(self._width(name)) for name in (*accumulators, *idle)}
            recorded = self._turns(growth, found, level, starts, entry, others)
            if not place:
                self._check_state(entry, ready, [name for name in firm if name not in idle], memory.live())
                self._check_integers(growth, scale.turn)
            for name in level:
                results[name], named[name] = fold.of(name, self._start(entry, name), recorded)
            for name in others:
                own = found.only(name, level)
                if own is not None and own not in found.pure and recorded.alike(own, name):
                    starts_from = self._start(entry, own), self._start(entry, name)
                    results[name] = fold.started(results[own], *starts_from)
        self.domain.entries.append(None if once else self._at_entry(end, scale))
        for name in loop.writes:
            if name in machine.registers:
                bits = L.width(machine.registers[name])
                machine.registers[name] = results.get(name) or Lanes(
                    bits, hashing.constant("after a loop"), L.TERM | L.POISON
                )
        memory.leave()

    def _start(self, entry: State, name: str) -> Value:
        return entry.registers.get(name, poison(self._width(name)))

    def _ready(self, growth: Growth, scale: Scale, data: list[str]) -> EnteredMemory:
        """Runs the turns that fill what the loop carries, up to the symbolic position."""
        machine, loop = self.machine, self.loop
        carries = any(Effect.ASYNCHRONOUS in self.program.infos[pc].effects for pc in loop.body)
        lead = growth.period if carries or growth.period > 1 else 1
        self.place(growth, scale.turn, -(lead // growth.period))
        for name in data:
            bits = self._width(name)
            machine.registers[name] = Lanes(bits, hashing.constant(f"before the loop {name}"), L.TERM | L.POISON)
        memory = EnteredMemory.around(machine)
        machine.races = Races(memory.words.shape[2], machine.threads, machine.warp, machine.blocks)
        machine.reading = {}
        for _ in range(lead):
            self.run(loop.body)
        return memory

    def _check_state(self, entry: State, ready: State, firm: list[str], live: Array) -> None:
        """That turns start in the state to which they lead and in which the loop is entered.  Raises Unreadable.

        What nothing has written by then is not compared: a result that it enters is not taken.
        """
        live = ready.written(live)
        after = State.of(self.machine)
        first_row = 0
        if not entry.agrees(first_row, ready, self.rows[ENTRY], firm, live):
            raise self.fail("the state at the loop's start is not that of a later turn")
        if not after.agrees(first_row, ready, self.rows[NEXT], firm, live):
            raise self.fail("a turn does not lead to the state of the next one")

    def _width(self, name: str) -> int:
        value = self.machine.registers.get(name)
        if value is not None:
            return L.width(value)
        declared = self.program.kernel.registers
        return declared.get(name) or declared.get(name.rstrip("0123456789")) or 32

    def _at_entry(self, end: End, scale: Scale) -> Polynomial:
        terms = {m: c for m, c in end.condition.terms.items() if scale.turn not in m and scale.elements not in m}
        return Polynomial(64, terms, end.condition.constant)

    def _check_integers(self, growth: Growth, position: int) -> None:
        reached = {name: self._polynomial(name) for name in growth.start}
        self.place(growth, position, 1)
        for name, value in reached.items():
            difference = P.subtract(value, self._polynomial(name))
            if self.domain.coordinates.rewritten(difference).terms or not P.is_zero(difference.constant):
                raise self.fail("an integer grows unevenly")

    def _turns(
        self,
        growth: Growth,
        found: Chains,
        level: tuple[str, ...],
        starts: Mapping[str, Value],
        entry: State,
        others: list[str],
    ) -> Recorded:
        """Runs a whole period, each accumulator starting every turn (and every matrix step of a chain) as a symbol.

        Those of the level are one symbol.  `starts` gives the others: those before it by their names, and poison for
        those after it and for what is taken to be overwritten before it matters.  What turns leave in `others` is
        noted too.
        """
        machine = self.machine
        flags = {name: self._property(machine, name, entry) for name in level}
        pure = found.pure & set(level)
        recorded = Recorded({name: [] for name in level}, pure, growth.period, flags, {name: [] for name in others})
        for _ in range(growth.period):
            machine.registers.update(starts)
            machine.registers.update((name, accumulator(L.width(starts[name]), flags[name])) for name in level)
            chained = {
                step.index: Chained(step, recorded)
                for step in found.steps
                if all(name in pure for names in step.owners for name in names)
            }
            self.run(self.loop.body, chained)
            for name in level:
                if name not in pure:
                    recorded.values[name].append(machine.registers[name])
            for name in others:
                if name in machine.registers:
                    recorded.left[name].append(machine.registers[name])
        for name, values in recorded.values.items():
            if flags[name] and not all(np.all(np.bitwise_and(as_lanes(value).meta, flags[name])) for value in values):
                raise NotKept
        return recorded

    def _property(self, machine: Machine, name: str, entry: State) -> int:
        if not self.keeping or name not in entry.registers:
            return 0
        meta = as_lanes(entry.registers[name]).meta
        return L.NOT_MINUS_ZERO if np.all(np.bitwise_and(meta, L.NOT_MINUS_ZERO)) else 0

    def _stored(self) -> list[object]:
        return list(cast(SymbolicMemory, cast(object, self.machine.memory)).stored)
