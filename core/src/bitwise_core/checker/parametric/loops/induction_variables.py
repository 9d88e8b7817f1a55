"""Induction variables of a straight-line loop, found by executing iterations and comparing the carried integers.

An integer is an induction variable if every period of iterations adds the same polynomial to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any, cast

import numpy as np

from bitwise_core.assembly.module import Instruction
from bitwise_core.checker.parametric import polynomial as P
from bitwise_core.checker.parametric.domain import ParametricDomain
from bitwise_core.checker.parametric.loops.loop_shape import Loop, integer_slice
from bitwise_core.checker.parametric.loops.loop_state import hash_of
from bitwise_core.checker.parametric.memory import ParametricMemory
from bitwise_core.checker.parametric.polynomial import Polynomial
from bitwise_core.checker.parametric.symbolic_races import SymbolicRaces
from bitwise_core.checker.parametric.values import ParametricInteger, integer_of, polynomial_of
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.machine import Barrier, Branch, Machine, is_unwritten_register
from bitwise_core.execution.program import Program
from bitwise_core.execution.time_limit import check_time
from bitwise_core.execution.values.symbolic_vector import Value, width
from bitwise_core.numerics import modular

LONGEST_PERIOD = 6


@dataclass(frozen=True, slots=True)
class InductionVariables:
    """The induction variables of a loop, by register: start values, and the amounts that `period` iterations add.

    `step` is the amount that one iteration adds to the position of the loop.  `late`: `start` is extrapolated from the
    second iteration.
    """

    period: int
    start: Mapping[str, Polynomial]
    added: Mapping[str, Polynomial]
    step: int
    late: bool = False


class LoopBody:
    """A straight-line loop whose iterations can be executed; the machine is at the header, reached from outside."""

    def __init__(self, program: Program, machine: Machine, loop: Loop) -> None:
        assert isinstance(machine.domain, ParametricDomain)
        self.program, self.machine, self.loop, self.domain = program, machine, loop, machine.domain
        self.memory = cast(ParametricMemory, cast(object, machine.memory))
        self.integers = machine.domain.integers
        self.instructions: tuple[Instruction, ...] = program.kernel.instructions
        self.line = self.instructions[loop.header].line
        self.shared_accesses: set[int] = set()
        """The instructions that used race detectors when they were executed."""
        self.global_loads: set[int] = set()
        """The instructions that read global memory when they were executed."""

    def fail(self, reason: str) -> Unsupported:
        """An error that names the loop."""
        return Unsupported(f"{reason} in the loop", self.line)

    # -- running ------------------------------------------------------------------------------------------------------

    def run(self, pcs: Any, recorded_steps: Mapping[int, Any] | None = None) -> None:
        """Execute instructions in order.  Raises Unsupported.

        `recorded_steps` are matrix steps by instruction, prepared before the instruction and recorded after it.
        """
        machine, steps, memory = self.machine, self.program.steps, self.memory
        races = machine.races
        assert isinstance(races, SymbolicRaces)
        for pc in pcs:
            uses, reads = races.uses, memory.reads
            machine.line, machine.pc = self.instructions[pc].line, pc
            check_time(machine.line)
            step = None if recorded_steps is None else recorded_steps.get(pc)
            if step is not None:
                step.prepare(machine)
            try:
                control = steps[pc](machine)
            except Unsupported as error:
                if error.line is None:
                    error.occurred_at(self.instructions[pc].line)
                raise
            except Exception as error:
                if not is_unwritten_register(error):
                    raise
                line = self.instructions[pc].line
                raise Unsupported(f"the register {error} is read before it is written", line) from None
            if step is not None:
                step.record(machine)
            if races.uses != uses:
                self.shared_accesses.add(pc)
            if memory.reads != reads:
                self.global_loads.add(pc)
            if control is None:
                continue
            if not isinstance(control, Barrier) or control.count is not None:
                raise self.fail("unsupported divergence or synchronisation of threads")
            for each in races.all():
                each.barrier(np.arange(races.warps))
            races.compact()
            machine.epoch = machine.epoch + 1

    def has_known_trip_count(self) -> bool:
        """Whether the trip count does not depend on the launch: the loop is then executed iteration by iteration."""
        guard = self.instructions[self.loop.latch].guard
        assert guard is not None
        pcs = integer_slice(self.program.infos, self.loop, [guard.register])
        if pcs is None:
            return True
        registers = dict(self.machine.registers)
        self.run(pcs)
        taken = self.condition()
        self.machine.registers = registers
        return taken is None or self.machine.known(taken) is not None

    def condition(self) -> Value | None:
        """The condition of the back edge, after the instructions of an iteration."""
        control = self.program.steps[self.loop.latch](self.machine)
        assert isinstance(control, Branch)
        return control.taken

    # -- integers -----------------------------------------------------------------------------------------------------

    def integer_registers(self) -> tuple[list[str], list[int]]:
        """The carried registers that hold integers, and the slice of these and of the condition of the back edge."""
        guard = self.instructions[self.loop.latch].guard
        assert guard is not None
        found = [
            name
            for name in self.loop.carried
            if self._is_integer(name) and integer_slice(self.program.infos, self.loop, [name]) is not None
        ]
        pcs = integer_slice(self.program.infos, self.loop, [*found, guard.register])
        if pcs is None:
            raise self.fail("the trip count depends on data")
        return found, pcs

    def _is_integer(self, name: str) -> bool:
        value = self.machine.registers.get(name)
        return isinstance(value, np.ndarray | ParametricInteger)

    def induction_variables(self, names: list[str], pcs: list[int], whole_history: bool = False) -> InductionVariables:
        """The induction variables `names`, found by executing the instructions `pcs` alone.  Raises Unsupported.

        If they are linear only from the second iteration on, `start` is extrapolated, provided that the first iteration
        computes the same from there.  A counter that is reset after more iterations than were executed looks linear;
        `whole_history` executes as many as the longest period requires.
        """
        registers = dict(self.machine.registers)
        history: list[dict[str, Polynomial]] = []
        found: InductionVariables | None = None
        for _ in range(2 * LONGEST_PERIOD + 2):
            history.append({name: self.polynomial(name) for name in names})
            if not whole_history:
                found = self._period(history, names) or self._period(history[1:], names, late=True)
            if found is not None:
                break
            self.run(pcs)
        self.machine.registers = registers
        if whole_history:
            found = self._period_of_whole_history(history, names)
        if found is None:
            raise self.fail("an integer is not an induction variable")
        if found.late and not self._first_iteration_fits(found, pcs):
            raise self.fail("the first iteration differs from the others")
        return found

    def _period_of_whole_history(
        self, history: list[dict[str, Polynomial]], names: list[str]
    ) -> InductionVariables | None:
        """The induction variables of the shortest period of the whole history, from iteration 1 or 2 on."""
        for period in range(1, LONGEST_PERIOD + 1):
            for first in (0, 1):
                starts = range(first, len(history) - 2 * period)
                windows = [history[start : start + 2 * period + 1] for start in starts]
                found = [self._period(span, names, late=bool(first)) for span in windows]
                if found and found[0] is not None and all(self._same_increments(found[0], each) for each in found):
                    return found[0]
        return None

    @staticmethod
    def _same_increments(left: InductionVariables, right: InductionVariables | None) -> bool:
        if right is None:
            return False
        return all(P.subtract(each, right.added[name]).is_zero for name, each in left.added.items())

    def _first_iteration_fits(self, variables: InductionVariables, pcs: list[int]) -> bool:
        """Whether the first iteration computes the same integers from the extrapolated start."""
        machine = self.machine
        actual = dict(machine.registers)
        extrapolated = dict(actual)
        for name, value in variables.start.items():
            extrapolated[name] = integer_of(self.integers, value)
        differ = {name for name in variables.start if not self._equal_integers(actual[name], extrapolated[name])}
        chosen = set(pcs)
        for pc in (*self.loop.body, self.loop.latch):
            found = self.program.infos[pc]
            if pc not in chosen:
                if found.reads & differ:
                    machine.registers = dict(actual)
                    return False
                differ -= found.writes
                continue
            for registers in (actual, extrapolated):
                machine.registers = registers
                self.run((pc,))
            for name in found.writes:
                (differ.discard if self._equal_integers(actual[name], extrapolated[name]) else differ.add)(name)
        return not differ & set(self.loop.carried)

    def _equal_integers(self, left: Value, right: Value) -> bool:
        bits = width(left)
        if bits == 1:
            return bool((hash_of(left)[0] == hash_of(right)[0]).all())
        first, second = polynomial_of(self.integers, left, bits), polynomial_of(self.integers, right, bits)
        if first is None or second is None:
            return False
        return self.integers.equal(first, second)

    def polynomial(self, name: str) -> Polynomial:
        """The integer in a register.  Raises Unsupported where it is undefined."""
        value = self.machine.registers[name]
        found = polynomial_of(self.integers, value, width(value))
        if found is None:
            raise self.fail(f"{name} is undefined")
        return found

    def _period(
        self, history: list[dict[str, Polynomial]], names: list[str], late: bool = False
    ) -> InductionVariables | None:
        iterations = len(history) - 1
        if iterations % 2 or not iterations:
            return None
        period = iterations // 2
        added: dict[str, Polynomial] = {}
        shared = 0
        for name in names:
            first, second, third = (history[index][name] for index in (0, period, 2 * period))
            difference = P.subtract(second, first)
            if not P.subtract(P.subtract(third, second), difference).is_zero:
                return None
            added[name] = difference
            for coefficient in (*difference.terms.values(), difference.constant):
                number = modular.signed(coefficient, difference.bits)
                shared = gcd(shared, number if isinstance(number, int) else int(np.gcd.reduce(number, axis=None)))
        if not shared or shared % period:
            return None
        start = history[0]
        if late:
            start = {name: P.subtract(history[period - 1][name], added[name]) for name in names}
        return InductionVariables(period, start, added, shared // period, late)

    def set_position(self, variables: InductionVariables, position: int, periods: int) -> None:
        """Set the integers to their values at the position (an atom) plus `periods` periods."""
        whole = variables.step * variables.period
        for name, start in variables.start.items():
            each = variables.added[name]
            unit = Polynomial(
                each.bits,
                {m: modular.quotient(c, whole, each.bits) for m, c in each.terms.items()},
                modular.quotient(each.constant, whole, each.bits),
            )
            moved = P.multiply(unit, Polynomial(each.bits, {(position,): 1}, periods * whole & ((1 << each.bits) - 1)))
            if moved is None:
                raise self.fail("an integer has too many terms")
            self.machine.registers[name] = integer_of(self.integers, P.add(start, moved))
