"""Loops whose trip count depends on the launch, summarised by induction as folds over their iterations.

The position of a loop is a symbol to which each iteration adds `step`.  First, `lead_iterations` iterations are
executed from the induction variables at a symbolic position; they define the loop-carried registers and shared memory.
Then `period` further iterations must lead to the same state at the position one period later.  Instances of the launch
prove this together: in one the position is a period later, in one it is 0 (which must be the state at the entry of the
loop).  The normal form of the fold (`loop_folds`) uses further instances: one iteration later, one matrix step later, a
position beyond the bound, and no iteration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from bitwise_core.checker.parametric import polynomial as P
from bitwise_core.checker.parametric.access_history import AccessHistory, restore_any
from bitwise_core.checker.parametric.accesses_only import accesses_only
from bitwise_core.checker.parametric.coordinates import Coordinate, Substitution
from bitwise_core.checker.parametric.integers import implies, tighten
from bitwise_core.checker.parametric.loops.induction_variables import InductionVariables, LoopBody
from bitwise_core.checker.parametric.loops.loop_dependence import AccumulatorDependences, analyse_accumulators
from bitwise_core.checker.parametric.loops.loop_folds import (
    BEYOND,
    ENTRY,
    INSTANCES,
    ITERATION,
    MATRIX_STEP,
    NEXT,
    Fold,
    IterationValues,
    LoopCondition,
    Position,
    RecordedMatrixStep,
    accumulator_symbol,
)
from bitwise_core.checker.parametric.loops.loop_shape import matrix_depth
from bitwise_core.checker.parametric.loops.loop_state import (
    INERT,
    LiveInSharedMemory,
    LoopState,
    hash_of,
    queue_of_copies,
)
from bitwise_core.checker.parametric.memory import ParametricMemory
from bitwise_core.checker.parametric.polynomial import Polynomial
from bitwise_core.checker.parametric.symbolic_races import SymbolicRaces
from bitwise_core.checker.parametric.values import Equality, Predicate, nonnegative
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.instruction_info import Effect
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.memory.async_groups import AsynchronousReads
from bitwise_core.execution.memory.shared_memory import SharedMemory
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.floats import nan_marks
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import poison
from bitwise_core.numerics import modular

_PRESERVED = (L.NOT_MINUS_ZERO, L.CANONICAL_NAN)
"""The properties that the symbol of an accumulator may have."""


_NOT_ONLY_REGISTERS = ~(Effect.LOAD | Effect.MOVE | Effect.INTEGER | Effect.CROSS_LANE)
"""The effects of instructions that may do more than to read memory and to write registers."""


@dataclass(frozen=True, slots=True)
class CarriedState:
    """The state of a machine before a recorded period of a loop."""

    registers: Mapping[str, Value]
    shared: LiveInSharedMemory
    history: AccessHistory

    @staticmethod
    def of(machine: Machine, shared: LiveInSharedMemory) -> CarriedState:
        """The current state, independent of the machine, whose shared memory is `shared`."""
        return CarriedState(dict(machine.registers), shared.duplicate(), AccessHistory.of(machine))

    def restore(self, machine: Machine) -> LiveInSharedMemory:
        """Set the machine to this state; its shared memory."""
        shared = machine.shared = self.shared.duplicate()
        machine.registers = dict(self.registers)
        self.history.restore(machine)
        machine.extra.pop("tiles", None)
        return shared


class NotPreserved(Exception):
    """Iterations do not preserve properties of initial values: pairs of an accumulator and a flag."""

    def __init__(self, properties: Sequence[tuple[str, int]]) -> None:
        super().__init__(properties)
        self.properties = properties


@dataclass(frozen=True, slots=True)
class Entry:
    """The state of a machine, whose memories and queues are not copied but replaced while the state is kept."""

    registers: dict[str, Value]
    shared: SharedMemory
    races: SymbolicRaces
    reads: AsynchronousReads
    extra: dict[str, Any]

    @staticmethod
    def of(machine: Machine) -> Entry:
        """The current state."""
        assert isinstance(machine.races, SymbolicRaces)
        return Entry(
            dict(machine.registers), machine.shared, machine.races, machine.asynchronous_reads, dict(machine.extra)
        )

    def restore(self, machine: Machine) -> None:
        """Set the machine to a state whose queues and race detectors are independent of this one."""
        machine.registers, machine.shared, machine.races = dict(self.registers), self.shared, self.races.copy()
        machine.asynchronous_reads, machine.extra = self.reads.copy(), dict(self.extra)
        machine.extra.pop("tiles", None)
        if "copies" in self.extra:
            machine.extra["copies"] = queue_of_copies(self.extra["copies"])


class LoopSummary:
    """The summary of one loop; the machine is at its header, reached from outside under `path_conditions`."""

    def __init__(self, body: LoopBody, path_conditions: Sequence[Polynomial]) -> None:
        self.body, self.path_conditions = body, path_conditions
        self.program, self.machine, self.loop = body.program, body.machine, body.loop
        self.integers, self.instructions, self.fail = body.integers, body.instructions, body.fail
        self.rows = [self.integers.coordinates.loop_rows + index for index in range(INSTANCES)]
        self.row_count = self.integers.coordinates.rows
        self.not_preserved: set[tuple[str, int]] = set()
        """Properties of accumulators that iterations do not preserve."""
        self.whole_history = False

    def summarise(self) -> Polynomial | None:
        """Set the machine to the state after the loop.  Raises Unsupported.

        Returns the integer that is nonnegative exactly if the loop has an iteration, if a branch before the loop tests
        it; None if no branch does, so that the first iteration is always executed.
        """
        machine = self.machine
        shared, races, extra, registers = machine.shared, machine.races, dict(machine.extra), dict(machine.registers)
        reading = machine.asynchronous_reads
        while True:
            try:
                return self._summarise()
            except Unsupported:
                machine.shared, machine.races, machine.extra = shared, races, dict(extra)
                machine.registers, machine.asynchronous_reads = dict(registers), reading
                if self.whole_history or not self._has_reset_counter():
                    raise
                self.whole_history = True

    def _has_reset_counter(self) -> bool:
        """Whether integers that look linear over a few iterations are reset later."""
        registers, periods = dict(self.machine.registers), set()
        try:
            names, pcs = self.body.integer_registers()
            for whole_history in (False, True):
                self.machine.registers = dict(registers)
                periods.add(self.body.induction_variables(names, pcs, whole_history).period)
        except Unsupported:
            return False
        finally:
            self.machine.registers = registers
        return len(periods) == 2

    def _summarise(self) -> Polynomial | None:
        machine, integers = self.machine, self.integers
        entry, start = LoopState.of(machine), Entry.of(machine)
        stored = len(self._stored())
        names, pcs = self.body.integer_registers()
        variables = self.body.induction_variables(names, pcs, self.whole_history)
        whole = variables.step * variables.period
        symbol = integers.table.atom(hashing.constant("turn of a loop"), alignment=whole & -whole)
        integers.table.nonnegative_atoms.add(symbol)
        step_depth, steps = self._matrix_step_depth(), self._steps_per_iteration(variables)
        position = Position(symbol, symbol, variables.step, variables.step)
        substitutions, loop_positions = integers.coordinates.substitutions, integers.coordinates.loop_positions
        if step_depth * steps > variables.step and step_depth * steps % variables.step == 0:
            whole = step_depth * steps * variables.period
            elements = integers.table.atom(hashing.constant("position in a loop"), alignment=whole & -whole)
            integers.table.nonnegative_atoms.add(elements)
            position = Position(symbol, elements, variables.step, step_depth * steps)
            ratio = step_depth * steps // variables.step
            loop_positions.append(Coordinate(-1, elements, Polynomial(32, {(symbol,): ratio}), symbol, ratio))
        added = self._instance_substitutions(variables, position, step_depth)
        try:
            end = self._loop_condition(variables, pcs, position)
            if end.symbol is not None:
                added.append(self._beyond_bound(end, position.elements))
            substitutions.extend(added)
            condition = self._fold(entry, variables, position, end, step_depth)
        finally:
            substitutions[:] = [each for each in substitutions if not any(each is other for other in added)]
            loop_positions.clear()
        if len(self._stored()) != stored:
            raise self.fail("global memory is written")
        histories = self._histories(variables, start)
        restore_any(machine, histories[1:] if condition is None else histories)
        return condition

    def _histories(self, variables: InductionVariables, start: Entry) -> list[AccessHistory]:
        """The states before the loop and after every number of iterations.  Raises Unsupported.

        The iterations are executed from the state at the entry; every period accesses the same cells.  Two periods
        contain each pair of accesses of consecutive iterations, and a third one each last iteration after two periods.
        """
        machine = self.machine
        after, loads = Entry.of(machine), self._memory().loads_so_far()
        iterations = 3 * variables.period + (1 if variables.late else 0)
        try:
            try:
                start.restore(machine)
                with accesses_only(machine):
                    return self._executed_histories(self._access_slice(), iterations)
            except Unsupported:
                # Where an address or a condition is computed from data, all instructions are executed.
                start.restore(machine)
                machine.shared = machine.shared.copy()
                return self._executed_histories(self.loop.body, iterations)
        finally:
            machine.registers, machine.shared, machine.races = after.registers, after.shared, after.races
            machine.asynchronous_reads, machine.extra = after.reads, after.extra
            self._memory().forget_loads_after(loads)

    def _executed_histories(self, pcs: Sequence[int], iterations: int) -> list[AccessHistory]:
        machine = self.machine
        found = [AccessHistory.of(machine)]
        for _ in range(iterations):
            self.body.run(pcs)
            if machine.extra.keys() - INERT:
                raise self.fail("memory barriers are not followed")
            found.append(AccessHistory.of(machine))
            if len(found) == 2 and found[0].is_unchanged(found[1]):
                break
        return found

    def _access_slice(self) -> list[int]:
        """The instructions that may affect accesses to shared memory, and all from which these read.

        Others only write registers: they used no race detector when they were executed, and an instruction that
        reads memory was seen to read global memory.
        """
        infos, body = self.program.infos, self.body
        chosen = {
            pc
            for pc in self.loop.body
            if not infos[pc].writes
            or pc in body.shared_accesses
            or infos[pc].effects.overlaps(_NOT_ONLY_REGISTERS)
            or (Effect.LOAD in infos[pc].effects and pc not in body.global_loads)
        }
        needed = frozenset().union(*(infos[pc].reads for pc in chosen))
        while True:
            added = [pc for pc in self.loop.body if pc not in chosen and not infos[pc].writes.isdisjoint(needed)]
            if not added:
                return sorted(chosen)
            chosen.update(added)
            needed = needed.union(*(infos[pc].reads for pc in added))

    def _memory(self) -> ParametricMemory:
        return cast(ParametricMemory, cast(object, self.machine.memory))

    def _steps_per_iteration(self, variables: InductionVariables) -> int:
        """The number of matrix steps of an iteration on each accumulator; 0 where accumulators differ."""
        try:
            data = [name for name in self.loop.carried if name not in variables.start]
            found = analyse_accumulators(self.instructions, self.program.infos, self.loop, data)
        except Unsupported:
            return 0
        counts = dict.fromkeys(found.matrix_only, 0)
        for step in found.steps:
            for owner in (name for names in step.owners for name in names):
                counts[owner] += 1
        return counts.popitem()[1] if counts and len(set(counts.values())) == 1 else 0

    def _instance_substitutions(
        self, variables: InductionVariables, position: Position, step_depth: int
    ) -> list[Substitution]:
        rows, total = self.rows, self.row_count

        def shift_of(by: Mapping[int, int]) -> modular.Residue:
            shift = np.zeros((total, 1), dtype=np.uint64)
            for instance, amount in by.items():
                shift[rows[instance]] = amount
            return shift

        factor = np.ones((total, 1), dtype=np.uint64)
        factor[rows[ENTRY]] = 0
        per_period = position.per_iteration * variables.period
        found = [
            Substitution(
                position.elements,
                factor,
                Polynomial(
                    64, {}, shift_of({NEXT: per_period, ITERATION: position.per_iteration, MATRIX_STEP: step_depth})
                ),
            )
        ]
        if position.symbol != position.elements:
            no_whole_iteration = self.integers.table.atom(hashing.constant("no whole turn"))
            shift = shift_of({NEXT: variables.step * variables.period, ITERATION: variables.step})
            symbol_factor = factor.copy()
            symbol_factor[rows[MATRIX_STEP]] = 0
            found.append(
                Substitution(
                    position.symbol,
                    symbol_factor,
                    Polynomial(64, {(no_whole_iteration,): shift_of({MATRIX_STEP: 1})}, shift),
                )
            )
        return found

    def _beyond_bound(self, end: LoopCondition, symbol: int) -> Substitution:
        """The substitution that makes the bound at most the position in the instance BEYOND."""
        assert end.symbol is not None
        row = np.zeros((self.row_count, 1), dtype=np.uint64)
        row[self.rows[BEYOND]] = 1
        rest = Polynomial(64, {m: c for m, c in end.bound.terms.items() if m != (end.symbol,)}, end.bound.constant)
        passed = P.subtract(
            P.subtract(P.atom_polynomial(symbol, 64), P.atom_polynomial(self.integers.nonnegative_symbol, 64)), rest
        )
        return Substitution(end.symbol, np.uint64(1) - row, P.scale(passed, row))

    def _matrix_step_depth(self) -> int:
        depths = {matrix_depth(self.program.infos[pc]) for pc in self.loop.body} - {0}
        return depths.pop() if len(depths) == 1 else 0

    def _loop_condition(self, variables: InductionVariables, pcs: list[int], position: Position) -> LoopCondition:
        """The condition under which the iteration at a position is executed."""
        registers = dict(self.machine.registers)
        self.body.set_position(variables, position.symbol, 0)
        self.body.run(pcs)
        taken = self.body.condition()
        self.machine.registers = registers
        after = self._back_edge_condition(taken, position)
        for symbol, step in {position.symbol: variables.step, position.elements: position.per_iteration}.items():
            previous = Substitution(symbol, 1, Polynomial(64, {}, -step & modular.FULL))
            for monomial in [m for m in after.terms if symbol in m]:
                after = previous.apply(after, monomial)
        condition = tighten(after)
        position_terms = {m: c for m, c in condition.terms.items() if position.elements in m or position.symbol in m}
        bound = P.add_constant(
            Polynomial(64, {m: c for m, c in condition.terms.items() if m not in position_terms}, condition.constant), 1
        )
        if position_terms != {(position.elements,): modular.FULL}:
            return LoopCondition(condition, bound, None)
        symbols = [
            m[0] for m, c in bound.terms.items() if len(m) == 1 and c == 1 and not self.integers.atoms[m[0]].block
        ]
        return LoopCondition(condition, bound, symbols[0] if len(symbols) == 1 else None)

    def _back_edge_condition(self, taken: Value | None, position: Position) -> Polynomial:
        """The condition of the back edge, as a polynomial that is nonnegative.  Raises Unsupported.

        A counter with step 1 that starts below its bound differs from the bound exactly as long as it is below.  The
        branch before the loop must imply that it starts below.
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
                found = nonnegative(self.integers, P.add_constant(below, -1))
                first = nonnegative(self.integers, start)
                if isinstance(found, Predicate) and isinstance(first, Predicate) and self._is_implied(first):
                    return found.polynomials[0]
        raise self.fail("the condition of the back edge is not a comparison of integers")

    def _is_implied(self, condition: Predicate) -> bool:
        return any(implies(each, condition.polynomials[0]) for each in self.path_conditions)

    def _fold(
        self, entry: LoopState, variables: InductionVariables, position: Position, end: LoopCondition, step_depth: int
    ) -> Polynomial | None:
        machine, loop = self.machine, self.loop
        data = [name for name in loop.carried if name not in variables.start]
        memory = self._define_carried_state(variables, position, data)
        carried = CarriedState.of(machine, memory)
        accumulators = [name for name in data if hash_of(machine.registers[name])[1] & L.POISON]
        found = analyse_accumulators(self.instructions, self.program.infos, loop, accumulators)
        steady = LoopState.of(machine)
        always_entered = not any(implies(each, self._at_entry(end, position)) for each in self.path_conditions)
        fold = Fold(self.body, end, step_depth, always_entered, position, self.rows)
        names_by_accumulator: dict[str, SymbolicVector] = {}
        results: dict[str, SymbolicVector] = {}
        others = [name for name in loop.live_out if name not in data and name not in variables.start]
        defined = [name for name in data if name not in accumulators]
        overwritten = [name for name in defined if not entry.agrees_on_register(0, steady, self.rows[ENTRY], name)]
        for level_index, level in enumerate(found.levels):
            if level_index:
                memory = carried.restore(machine)
            starts = {
                name: names_by_accumulator.get(name) or poison(self._width(name))
                for name in (*accumulators, *overwritten)
            }
            while True:
                memory.start_recording()
                try:
                    recorded = self._period(variables, found, level, starts, entry, others)
                except NotPreserved as error:
                    self.not_preserved.update(error.properties)
                    memory = carried.restore(machine)
                    continue
                break
            if level_index == 0:
                self._check_state(
                    entry, steady, [name for name in defined if name not in overwritten], memory.live_in()
                )
                self._check_integers(variables, position.symbol)
            for name in level:
                results[name], names_by_accumulator[name] = fold.normal_forms(name, self._start(entry, name), recorded)
            for name in others:
                source = found.single_dependence(name, level)
                if (
                    source is not None
                    and source not in found.matrix_only
                    and recorded.equal_in_all_iterations(source, name)
                ):
                    initial = self._start(entry, source), self._start(entry, name)
                    results[name] = fold.with_initial_value(results[source], *initial)
        for name in loop.writes:
            if name in machine.registers:
                bits = L.width(machine.registers[name])
                machine.registers[name] = results.get(name) or SymbolicVector(
                    bits, hashing.constant("after a loop"), L.TERM | L.POISON
                )
        memory.finish_loop()
        return None if always_entered else self._at_entry(end, position)

    def _start(self, entry: LoopState, name: str) -> Value:
        return entry.registers.get(name, poison(self._width(name)))

    def _define_carried_state(
        self, variables: InductionVariables, position: Position, data: list[str]
    ) -> LiveInSharedMemory:
        """Execute the iterations before the symbolic position, which define the loop-carried state."""
        machine, loop = self.machine, self.loop
        carries = any(Effect.ASYNCHRONOUS in self.program.infos[pc].effects for pc in loop.body)
        lead_iterations = variables.period if carries or variables.period > 1 else 1
        self.body.set_position(variables, position.symbol, -(lead_iterations // variables.period))
        for name in data:
            bits = self._width(name)
            machine.registers[name] = SymbolicVector(
                bits, hashing.constant(f"before the loop {name}"), L.TERM | L.POISON
            )
        memory = LiveInSharedMemory.install(machine)
        cells, copies = memory.words.shape[2], machine.races.copies
        machine.races = SymbolicRaces(cells, machine.threads, machine.warp, machine.blocks, copies)
        machine.asynchronous_reads = AsynchronousReads()
        for _ in range(lead_iterations):
            self.body.run(loop.body)
        return memory

    def _check_state(self, entry: LoopState, steady: LoopState, defined: list[str], live: Array) -> None:
        """Check the induction: the entry of the loop and a period lead to the same state.  Raises Unsupported.

        Undefined cells are not compared: a result that depends on them is undefined.
        """
        live = steady.written(live)
        after = LoopState.of(self.machine)
        first_row = 0
        if not entry.agrees(first_row, steady, self.rows[ENTRY], defined, live):
            raise self.fail("the state at the entry differs from that of a later iteration")
        if not after.agrees(first_row, steady, self.rows[NEXT], defined, live):
            raise self.fail("an iteration does not lead to the state of the next iteration")

    def _width(self, name: str) -> int:
        value = self.machine.registers.get(name)
        if value is not None:
            return L.width(value)
        declared = self.program.kernel.registers
        return declared.get(name) or declared.get(name.rstrip("0123456789")) or 32

    def _at_entry(self, end: LoopCondition, position: Position) -> Polynomial:
        terms = {
            m: c for m, c in end.condition.terms.items() if position.symbol not in m and position.elements not in m
        }
        return Polynomial(64, terms, end.condition.constant)

    def _check_integers(self, variables: InductionVariables, symbol: int) -> None:
        reached = {name: self.body.polynomial(name) for name in variables.start}
        self.body.set_position(variables, symbol, 1)
        for name, value in reached.items():
            if not self.integers.equal(value, self.body.polynomial(name)):
                raise self.fail("an integer is not an induction variable")

    def _period(
        self,
        variables: InductionVariables,
        found: AccumulatorDependences,
        level: tuple[str, ...],
        starts: Mapping[str, Value],
        entry: LoopState,
        others: list[str],
    ) -> IterationValues:
        """Execute a period; accumulators of the level are one symbol before every iteration and every matrix step.

        `starts` gives the values of the other accumulators: the folds of earlier levels, and poison for later levels
        and for registers that are overwritten before they are read.  The values of `others` are recorded too.
        """
        machine = self.machine
        flags = {name: self._property(name, entry) for name in level}
        matrix_only = found.matrix_only & set(level)
        recorded = IterationValues(
            {name: [] for name in level}, matrix_only, variables.period, flags, {name: [] for name in others}
        )
        for _ in range(variables.period):
            machine.registers.update(starts)
            machine.registers.update((name, accumulator_symbol(L.width(starts[name]), flags[name])) for name in level)
            recorded_steps = {
                step.index: RecordedMatrixStep(step, recorded)
                for step in found.steps
                if all(name in matrix_only for names in step.owners for name in names)
            }
            self.body.run(self.loop.body, recorded_steps)
            for name in level:
                if name not in matrix_only:
                    recorded.values[name].append(machine.registers[name])
            for name in others:
                if name in machine.registers:
                    recorded.live_out[name].append(machine.registers[name])
        lost = [
            (name, flag)
            for name, values in recorded.values.items()
            for flag in _PRESERVED
            if flags[name] & flag and not all(_has_property(value, flag) for value in values)
        ]
        if lost:
            raise NotPreserved(lost)
        return recorded

    def _property(self, name: str, entry: LoopState) -> int:
        if name not in entry.registers:
            return 0
        start = entry.registers[name]
        held = (flag for flag in _PRESERVED if (name, flag) not in self.not_preserved and _has_property(start, flag))
        return sum(held)

    def _stored(self) -> list[object]:
        return list(self._memory().stored)


def _has_property(value: Value, flag: int) -> bool:
    """Whether a value is known not to be -0, or to have the canonical NaN of its width for every NaN."""
    lanes = as_symbolic_vector(value)
    if flag == L.CANONICAL_NAN:
        return nan_marks.has_ieee_nans(lanes)
    return bool(np.all(np.bitwise_and(lanes.flags, flag)))
