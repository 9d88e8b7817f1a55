"""Loops of unknown length: a turn is run from a state at a symbolic position, and induction makes it a fold.

The position is a symbol that grows by `step` a turn.  From integers that grow evenly with it, `lead` turns fill what the
loop carries in registers and shared memory; then `period` further turns must lead to the same state at the
position further on.  Instances of the launch prove this side by side: one in which the position is larger by a whole
period, one in which it is 0 (that must be the state in which the loop is entered), and for the fold's own form
one turn and one matrix step further on, and one in which the loop's bound has been passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

from bitwise_core.asm import Instruction
from bitwise_core.engine import polynomial as P
from bitwise_core.engine.loop_shape import Chains, Loop, chains, effect, matrix_depth, slice_of
from bitwise_core.engine.loop_state import EnteredMemory, State, hash_of
from bitwise_core.engine.polynomial import Polynomial
from bitwise_core.engine.program import Program
from bitwise_core.engine.symbolic import Equality, Predicate, Symbolic
from bitwise_core.engine.symbolic_domain import SymbolicDomain
from bitwise_core.engine.tiles import Coordinate, Environment
from bitwise_core.machine import hashing
from bitwise_core.machine import lanes as L
from bitwise_core.machine.domain import Unreadable
from bitwise_core.machine.lane_hash import full_hash, poison
from bitwise_core.machine.lanes import Lanes, Value
from bitwise_core.machine.pieces import as_lanes
from bitwise_core.machine.races import Races
from bitwise_core.machine.state import Barrier, Branch, Machine

INSTANCES = 6
NEXT, TURN, UNIT, ENTRY, BEYOND, EMPTY = range(INSTANCES)
LONGEST_PERIOD = 6


@dataclass(frozen=True, slots=True)
class Growth:
    """Integers of a loop: the values at its start, and what a whole period of `period` turns adds to them."""

    period: int
    start: Mapping[str, Polynomial]
    added: Mapping[str, Polynomial]
    step: int
    """How far the position moves in one turn."""
    late: bool = False
    """Whether `start` is fitted to the turns after the first."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Two symbols of a loop's position: `turn` grows by `step` a turn, `elements` by `per_turn` (they may be one)."""

    turn: int
    elements: int
    step: int
    per_turn: int


class LoopReader:
    """Reads one loop; `machine` stands at its head, having come from outside."""

    def __init__(self, program: Program, machine: Machine, loop: Loop, entered: list[Polynomial]) -> None:
        assert isinstance(machine.domain, SymbolicDomain)
        self.program, self.machine, self.loop, self.domain = program, machine, loop, machine.domain
        self.instructions: tuple[Instruction, ...] = program.kernel.instructions
        self.line = self.instructions[loop.head].line
        self.rows = [self.domain.coordinates.others + index for index in range(INSTANCES)]
        self.entered = entered
        self.keeping = True

    def fail(self, reason: str) -> Unreadable:
        """An error that names the loop."""
        return Unreadable(f"{reason} in the loop", self.line)

    # -- running --------------------------------------------------------------------------------------------------

    def run(self, pcs: Any, chained: Mapping[int, Any] | None = None, skip: frozenset[int] = frozenset()) -> None:
        """Runs instructions in order; a matrix step of `chained` starts from the accumulator symbol, and is recorded."""
        machine, steps = self.machine, self.program.steps
        for pc in pcs:
            if pc in skip:
                continue
            machine.line, machine.pc = self.instructions[pc].line, pc
            step = None if chained is None else chained.get(pc)
            if step is not None:
                step.prepare(machine)
            try:
                control = steps[pc](machine)
            except Unreadable as error:
                if error.line is None:
                    error.line = self.instructions[pc].line
                raise
            if step is not None:
                step.record(machine)
            if control is None:
                continue
            if not isinstance(control, Barrier) or control.count is not None:
                raise self.fail("threads part or wait for each other in a way that is not followed")
            for races in machine.races._all():
                races.barrier(np.arange(machine.races.warps))
            machine.epoch += 1

    def counted(self) -> bool:
        """Whether the launch does not decide how many turns there are: the loop is then simply run."""
        guard = self.instructions[self.loop.back].guard
        assert guard is not None
        pcs = slice_of(self.instructions, self.loop, [guard.register])
        if pcs is None:
            return True
        kept = dict(self.machine.registers)
        self.run(pcs)
        taken = self.guard()
        self.machine.registers = kept
        return taken is None or self.machine.known(taken) is not None

    def guard(self) -> Value | None:
        """The condition of another turn, after the instructions of one."""
        control = self.program.steps[self.loop.back](self.machine)
        assert isinstance(control, Branch)
        return control.taken

    # -- integers ---------------------------------------------------------------------------------------------------

    def integers(self) -> tuple[list[str], list[int]]:
        """The carried registers that hold integers, and the instructions that decide them and the loop's end."""
        guard = self.instructions[self.loop.back].guard
        assert guard is not None
        found = [name for name in self.loop.carried if self._is_integer(name) and slice_of(self.instructions, self.loop, [name]) is not None]
        pcs = slice_of(self.instructions, self.loop, [*found, guard.register])
        if pcs is None:
            raise self.fail("the number of turns depends on data")
        return found, pcs

    def _is_integer(self, name: str) -> bool:
        value = self.machine.registers.get(name)
        return isinstance(value, np.ndarray | Symbolic)

    def growth(self, names: list[str], pcs: list[int]) -> Growth:
        """How the integers grow, from turns of their own instructions alone.  Raises Unreadable.

        Where they grow evenly from the second turn on, the start is the one that fits, if the first turn cannot tell.
        """
        kept = dict(self.machine.registers)
        history: list[dict[str, Polynomial]] = []
        found: Growth | None = None
        for _ in range(2 * LONGEST_PERIOD + 2):
            history.append({name: self._polynomial(name) for name in names})
            found = self._period(history, names) or self._period(history[1:], names, late=True)
            if found is not None:
                break
            self.run(pcs)
        self.machine.registers = kept
        if found is None:
            raise self.fail("an integer grows unevenly")
        if found.late and not self._first_turn_alike(found, pcs):
            raise self.fail("the first turn differs from the others")
        return found

    def _first_turn_alike(self, growth: Growth, pcs: list[int]) -> bool:
        """Whether a turn from the fitted start does what the real first turn does, as far as its integers are concerned."""
        machine = self.machine
        real = dict(machine.registers)
        fitted = dict(real)
        for name, value in growth.start.items():
            fitted[name] = self.domain.integer_of(value)
        differ = {name for name in growth.start if not self._same(real[name], fitted[name])}
        chosen = set(pcs)
        for pc in (*self.loop.body, self.loop.back):
            found = effect(self.instructions[pc])
            if pc not in chosen:
                if found.reads & differ:
                    machine.registers = dict(real)
                    return False
                differ -= found.writes
                continue
            for registers in (real, fitted):
                machine.registers = registers
                self.run((pc,))
            for name in found.writes:
                (differ.discard if self._same(real[name], fitted[name]) else differ.add)(name)
        return not differ & set(self.loop.carried)

    def _same(self, left: Value, right: Value) -> bool:
        bits = L.width(left)
        if bits == 1:
            return bool((hash_of(left)[0] == hash_of(right)[0]).all())
        first, second = self.domain.polynomial(left, bits), self.domain.polynomial(right, bits)
        if first is None or second is None:
            return False
        difference = self.domain.coordinates.rewritten(P.subtract(first, second))
        return not difference.terms and P.is_zero(difference.constant)

    def _polynomial(self, name: str) -> Polynomial:
        value = self.machine.registers[name]
        found = self.domain.polynomial(value, L.width(value))
        if found is None:
            raise self.fail(f"nothing has written {name}")
        return found

    def _period(self, history: list[dict[str, Polynomial]], names: list[str], late: bool = False) -> Growth | None:
        turns = len(history) - 1
        if turns % 2 or not turns:
            return None
        period = turns // 2
        added: dict[str, Polynomial] = {}
        shared = 0
        for name in names:
            first, second, third = (history[index][name] for index in (0, period, 2 * period))
            difference = P.subtract(second, first)
            again = P.subtract(P.subtract(third, second), difference)
            if again.terms or not P.is_zero(again.constant):
                return None
            added[name] = difference
            for coefficient in (*difference.terms.values(), difference.constant):
                number = P.signed(coefficient, difference.bits)
                shared = gcd(shared, number if isinstance(number, int) else int(np.gcd.reduce(number, axis=None)))
        if not shared or shared % period:
            return None
        start = history[0]
        if late:
            start = {name: P.subtract(history[period - 1][name], added[name]) for name in names}
        return Growth(period, start, added, shared // period, late)

    def place(self, growth: Growth, position: int, turns: int) -> None:
        """Sets the integers to those at the position plus so many periods."""
        whole = growth.step * growth.period
        for name, start in growth.start.items():
            each = growth.added[name]
            unit = Polynomial(each.bits, {m: P.quotient(c, whole, each.bits) for m, c in each.terms.items()}, P.quotient(each.constant, whole, each.bits))
            moved = P.multiply(unit, Polynomial(each.bits, {(position,): 1}, turns * whole & ((1 << each.bits) - 1)))
            if moved is None:
                raise self.fail("an integer has too many terms")
            self.machine.registers[name] = self.domain.integer_of(P.add(start, moved))

    # -- the whole loop ---------------------------------------------------------------------------------------------

    def summarise(self) -> None:
        """Leaves the machine in the state after the loop.  Raises Unreadable."""
        machine = self.machine
        shared, races, extra, registers = machine.shared, machine.races, dict(machine.extra), dict(machine.registers)
        try:
            self._summarise()
        except _NotKept:
            self.keeping = False
            machine.shared, machine.races, machine.extra, machine.registers = shared, races, extra, registers
            self._summarise()

    def _summarise(self) -> None:
        machine, domain = self.machine, self.domain
        entry = State.of(machine)
        stored = len(domain_memory(machine).stored)
        names, pcs = self.integers()
        growth = self.growth(names, pcs)
        position = domain.atom(hashing.constant("turn of a loop"), alignment=growth.step * growth.period & -(growth.step * growth.period))
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
        if len(domain_memory(machine).stored) != stored:
            raise self.fail("memory is written")

    def _steps(self, growth: Growth) -> int:
        """Matrix steps that a turn adds to an accumulator, where all accumulators agree."""
        try:
            found = chains(self.instructions, self.loop, [name for name in self.loop.carried if name not in growth.start])
        except Unreadable:
            return 0
        counts = dict.fromkeys(found.pure, 0)
        owners = {name: name for name in found.pure}
        for step in found.steps:
            held = {target: owners[source] for target, source in step.sources}
            owners.update(held)
            for owner in held.values():
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
        found = [Environment(scale.elements, kept, Polynomial(64, {}, moved({NEXT: far, TURN: scale.per_turn, UNIT: unit})))]
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
        passed = P.subtract(P.subtract(P.of_atom(position, 64), P.of_atom(self.domain.not_less_than_zero(), 64)), rest)
        return Environment(end.symbol, np.uint64(1) - row, P.scale(passed, row))

    def _unit(self) -> int:
        depths = {matrix_depth(self.instructions[pc]) for pc in self.loop.body} - {0}
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
        condition = self.domain._tightened(after)
        grows = {m: c for m, c in condition.terms.items() if scale.elements in m or scale.turn in m}
        bound = P.shifted(Polynomial(64, {m: c for m, c in condition.terms.items() if m not in grows}, condition.constant), 1)
        if grows != {(scale.elements,): P.FULL}:
            return End(condition, bound, None)
        symbols = [m[0] for m, c in bound.terms.items() if len(m) == 1 and c == 1 and not self.domain.atoms[m[0]].block]
        return End(condition, bound, symbols[0] if len(symbols) == 1 else None)

    def _continues(self, taken: Value | None, scale: Scale) -> Polynomial:
        """The condition of another turn.

        That a counter has not reached its bound is, coming from below in steps of one, that it lies below it; that
        it starts below is what the branch in front of the loop must say (a bound below the start would let it run on).
        """
        if isinstance(taken, Predicate) and len(taken.polynomials) == 1 and not taken.opaque:
            return taken.polynomials[0]
        if isinstance(taken, Equality) and taken.unequal and taken.difference.bits == 32:
            wide = self.domain.widened(taken.difference, 64)
            if wide is not None and wide.terms.get((scale.turn,)) in (1, P.FULL):
                below = wide if wide.terms[(scale.turn,)] == P.FULL else P.negate(wide)
                start = Polynomial(64, {m: c for m, c in below.terms.items() if m != (scale.turn,)}, below.constant)
                found = self.domain.not_negative(P.shifted(below, -1))
                first = self.domain.not_negative(start)
                if isinstance(found, Predicate) and isinstance(first, Predicate):
                    if any(_implies(each, first.polynomials[0]) for each in self.entered):
                        return found.polynomials[0]
        raise self.fail("the condition for another turn is no comparison of integers")

    def _fold(self, entry: State, growth: Growth, scale: Scale, end: End, unit: int) -> None:
        machine, loop = self.machine, self.loop
        carries = any(self.instructions[pc].opcode.startswith("cp.async") for pc in loop.body)
        data = [name for name in loop.carried if name not in growth.start]
        lead = growth.period if carries or growth.period > 1 else 1
        self.place(growth, scale.turn, -(lead // growth.period))
        for name in data:
            bits = self._width(name)
            machine.registers[name] = Lanes(bits, hashing.constant(f"before the loop {name}"), L.TERM | L.POISON)
        memory = EnteredMemory.around(machine)
        machine.races = Races(memory.words.shape[2], machine.threads, machine.warp, machine.blocks)
        for name in ("matrix reads", "matrix read groups"):
            machine.extra.pop(name, None)
        found: Chains | None = None
        for _ in range(lead):
            self.run(loop.body)
        accumulators = [name for name in data if hash_of(machine.registers[name])[1] & L.POISON]
        found = chains(self.instructions, loop, accumulators)
        ready = State.of(machine)
        memory.watch()
        recorded = self._turns(growth, found, accumulators, entry)
        live = memory.live()
        after = State.of(machine)
        firm = [name for name in data if name not in accumulators]
        first_row = 0
        if not entry.agrees(first_row, ready, self.rows[ENTRY], firm, live):
            raise self.fail("the state at the loop's start is not that of a later turn")
        if not after.agrees(first_row, ready, self.rows[NEXT], firm, live):
            raise self.fail("a turn does not lead to the state of the next one")
        self._check_integers(growth, scale.turn)
        once = not any(_implies(each, self._at_entry(end, scale)) for each in self.entered)
        self.domain.entries.append(None if once else self._at_entry(end, scale))
        fold = Fold(self, growth, end, unit, once, self._at_entry(end, scale), scale)
        results = {name: fold.of(name, entry.registers.get(name, poison(self._width(name))), recorded) for name in accumulators}
        for name in loop.writes:
            if name in machine.registers:
                bits = L.width(machine.registers[name])
                machine.registers[name] = results.get(name) or Lanes(bits, hashing.constant("after a loop"), L.TERM | L.POISON)
        memory.leave()

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

    def _turns(self, growth: Growth, found: Chains, accumulators: list[str], entry: State) -> Recorded:
        """Runs a whole period, each accumulator starting every turn (and every matrix step of a chain) as a symbol."""
        machine = self.machine
        flags = {name: self._property(machine, name, entry) for name in accumulators}
        recorded = Recorded({name: [] for name in accumulators}, found.pure, growth.period, flags)
        widths = {name: L.width(machine.registers[name]) for name in accumulators}
        owners = {name: name for name in found.pure}
        for _ in range(growth.period):
            for name in accumulators:
                machine.registers[name] = accumulator(widths[name], flags[name])
            owners = {name: name for name in found.pure}
            chained = {}
            for step in found.steps:
                held = {target: owners[source] for target, source in step.sources}
                chained[step.index] = _Chained(step.sources, held, {source: owners[source] for _, source in step.sources}, recorded)
                owners.update(held)
            self.run(self.loop.body, chained)
            for name in accumulators:
                if name not in found.pure:
                    recorded.values[name].append(machine.registers[name])
        for name, values in recorded.values.items():
            if flags[name] and not all(np.all(np.bitwise_and(as_lanes(value).meta, flags[name])) for value in values):
                raise _NotKept
        return recorded

    def _property(self, machine: Machine, name: str, entry: State) -> int:
        if not self.keeping or name not in entry.registers:
            return 0
        meta = as_lanes(entry.registers[name]).meta
        return L.NOT_MINUS_ZERO if np.all(np.bitwise_and(meta, L.NOT_MINUS_ZERO)) else 0


@dataclass(frozen=True, slots=True)
class End:
    """A turn at a position is run if `condition` is not negative; `bound` - position - 1 is that condition where
    `symbol` (a scalar that the bound contains once) is given."""

    condition: Polynomial
    bound: Polynomial
    symbol: int | None


@dataclass(frozen=True, slots=True)
class Recorded:
    """Per accumulator what its turns (or the matrix steps of a pure chain) make of the accumulator symbol, in order."""

    values: dict[str, list[Value]]
    pure: frozenset[str]
    period: int
    flags: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Chained:
    """One matrix step of accumulators that form chains."""

    sources: tuple[tuple[str, str], ...]
    owners: Mapping[str, str]
    """By the registers written."""
    held: Mapping[str, str]
    """By the registers read."""
    recorded: Recorded

    def prepare(self, machine: Machine) -> None:
        for _, source in self.sources:
            flags = self.recorded.flags[self.held[source]]
            machine.registers[source] = accumulator(L.width(machine.registers[source]), flags)

    def record(self, machine: Machine) -> None:
        for target, _ in self.sources:
            self.recorded.values[self.owners[target]].append(machine.registers[target])


def accumulator(bits: int, flags: int) -> Lanes:
    """The symbol for what an accumulator holds before a turn, with the properties that every turn keeps."""
    return Lanes(bits, hashing.constant("accumulator of a fold"), L.TERM | flags)


class _NotKept(Exception):
    """Turns do not keep a property that an accumulator starts with."""


def domain_memory(machine: Machine) -> Any:
    """The memory of the reading."""
    return machine.memory


def _implies(known: Polynomial, wanted: Polynomial) -> bool:
    """Whether one condition is another with the same symbols and no smaller a constant."""
    difference = P.subtract(wanted, known)
    if difference.terms:
        return False
    return bool(np.all(P.signed(difference.constant, 64) >= 0))


@dataclass(frozen=True, slots=True)
class Fold:
    """What a loop makes of an accumulator."""

    reader: LoopReader
    growth: Growth
    end: End
    unit: int
    once: bool
    entry: Polynomial
    scale: Scale

    def of(self, name: str, start: Value, recorded: Recorded) -> Lanes:
        """The accumulator after the loop.  Raises Unreadable where its turns are not of one form."""
        values = recorded.values[name]
        hashes = [hash_of(value)[0] for value in values]
        turns = len(values) // recorded.period
        rows = self.reader.rows
        for index in range(len(values) - turns):
            if not _agree(hashes[index], rows[TURN], hashes[index + turns], 0):
                raise self.reader.fail("turns differ from each other")
        bits = L.width(start)
        initial = hash_of(start)[0] * hashing.multiplier(61)
        if self._by_steps(name, hashes, recorded):
            bound = P.words(self.reader.domain.atoms, self.reader.domain.canonical(self.end.bound))
            total = hashes[0] * hashing.multiplier(62) + bound * hashing.multiplier(63) + initial
            words = hashing.finalise(total + hashing.constant(f"fold of steps of {self.unit} {self.once}"))
            return self._result(bits, words, recorded.flags[name], start)
        total = initial + P.words(self.reader.domain.atoms, self.reader.domain.canonical(self.end.condition)) * hashing.multiplier(63)
        for place, each in enumerate(hashes[:turns]):
            total = total + each * hashing.multiplier(100 + place)
        words = hashing.finalise(total + hashing.constant(f"fold of {turns} a turn of {self.scale.per_turn} {self.once}"))
        return self._result(bits, words, recorded.flags[name], start)

    def _result(self, bits: int, words: hashing.Words, flags: int, start: Value) -> Lanes:
        """The fold; in one instance the loop has no turn, if a branch in front of it says when that is so."""
        row, domain = self.reader.rows[EMPTY], self.reader.domain
        words = np.broadcast_to(words, (2, domain.rows, words.shape[2]))
        if self.once:
            words = words.copy()
            words[:, row] = hashing.constant("a loop that has a turn")[:, 0]
            return Lanes(bits, words, L.TERM | flags)
        before = as_lanes(start)
        threads = max(words.shape[2], before.words.shape[2])
        words = np.broadcast_to(words, (2, domain.rows, threads)).copy()
        words[:, row] = before.words[:, 0]
        meta = np.full((domain.rows, threads), L.TERM | flags, dtype=np.uint32)
        meta[row] = before.meta if isinstance(before.meta, int) else before.meta[0]
        return Lanes(bits, words, meta)

    def _by_steps(self, name: str, hashes: list[hashing.Words], recorded: Recorded) -> bool:
        """Whether all matrix steps are one function of the position, and those beyond the bound change nothing."""
        if name not in recorded.pure or self.end.symbol is None or not self.unit:
            return False
        if self.unit * len(hashes) != self.scale.per_turn * recorded.period:
            return False
        rows = self.reader.rows
        if not all(_agree(first, rows[UNIT], second, 0) for first, second in zip(hashes[:-1], hashes[1:], strict=True)):
            return False
        symbol = full_hash(accumulator(L.width(recorded.values[name][0]), 0))
        return _agree(hashes[0], rows[BEYOND], symbol, 0)


def _agree(left: hashing.Words, left_row: int, right: hashing.Words, right_row: int) -> bool:
    first = left[:, min(left_row, left.shape[1] - 1)]
    second = right[:, min(right_row, right.shape[1] - 1)]
    return bool((first == second).all())

