"""Turns of a loop: run in order, and how the integers that they carry grow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

from bitwise_core.asm import Instruction
from bitwise_core.engine import polynomial as P
from bitwise_core.engine.loop_shape import Loop, slice_of
from bitwise_core.engine.loop_state import hash_of
from bitwise_core.engine.polynomial import Polynomial
from bitwise_core.engine.program import Program
from bitwise_core.engine.symbolic import Symbolic
from bitwise_core.engine.symbolic_domain import SymbolicDomain
from bitwise_core.machine.domain import Unreadable
from bitwise_core.machine.lanes import Value, width
from bitwise_core.machine.state import Barrier, Branch, Machine

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


class Turns:
    """A loop whose head the machine stands at, having come from outside under the conditions `entered`."""

    def __init__(self, program: Program, machine: Machine, loop: Loop, entered: list[Polynomial]) -> None:
        assert isinstance(machine.domain, SymbolicDomain)
        self.program, self.machine, self.loop, self.domain = program, machine, loop, machine.domain
        self.instructions: tuple[Instruction, ...] = program.kernel.instructions
        self.line = self.instructions[loop.head].line
        self.entered = entered

    def fail(self, reason: str) -> Unreadable:
        """An error that names the loop."""
        return Unreadable(f"{reason} in the loop", self.line)

    # -- running --------------------------------------------------------------------------------------------------

    def run(self, pcs: Any, chained: Mapping[int, Any] | None = None, skip: frozenset[int] = frozenset()) -> None:
        """Runs instructions in order; a matrix step of `chained` starts from the accumulator symbol and is recorded."""
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
            for races in machine.races.all():
                races.barrier(np.arange(machine.races.warps))
            machine.epoch += 1

    def counted(self) -> bool:
        """Whether the launch does not decide how many turns there are: the loop is then simply run."""
        guard = self.instructions[self.loop.back].guard
        assert guard is not None
        pcs = slice_of(self.program.infos, self.loop, [guard.register])
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
        found = [
            name
            for name in self.loop.carried
            if self._is_integer(name) and slice_of(self.program.infos, self.loop, [name]) is not None
        ]
        pcs = slice_of(self.program.infos, self.loop, [*found, guard.register])
        if pcs is None:
            raise self.fail("the number of turns depends on data")
        return found, pcs

    def _is_integer(self, name: str) -> bool:
        value = self.machine.registers.get(name)
        return isinstance(value, np.ndarray | Symbolic)

    def growth(self, names: list[str], pcs: list[int], thorough: bool = False) -> Growth:
        """How the integers grow, from turns of their own instructions alone.  Raises Unreadable.

        Where they grow evenly from the second turn on, the start is the one that fits, if the first turn cannot tell.
        A count that starts over after more turns than have been seen looks even; `thorough` sees as many as a period
        may have.
        """
        kept = dict(self.machine.registers)
        history: list[dict[str, Polynomial]] = []
        found: Growth | None = None
        for _ in range(2 * LONGEST_PERIOD + 2):
            history.append({name: self._polynomial(name) for name in names})
            if not thorough:
                found = self._period(history, names) or self._period(history[1:], names, late=True)
            if found is not None:
                break
            self.run(pcs)
        self.machine.registers = kept
        if thorough:
            found = self._lasting(history, names)
        if found is None:
            raise self.fail("an integer grows unevenly")
        if found.late and not self._first_turn_alike(found, pcs):
            raise self.fail("the first turn differs from the others")
        return found

    def _lasting(self, history: list[dict[str, Polynomial]], names: list[str]) -> Growth | None:
        """The shortest period that the whole history has, from its first turn on or from its second."""
        for period in range(1, LONGEST_PERIOD + 1):
            for first in (0, 1):
                spans = [history[place : place + 2 * period + 1] for place in range(first, len(history) - 2 * period)]
                found = [self._period(span, names, late=bool(first)) for span in spans]
                if found and found[0] is not None and all(self._like(found[0], each) for each in found):
                    return found[0]
        return None

    @staticmethod
    def _like(left: Growth, right: Growth | None) -> bool:
        if right is None:
            return False
        differences = [P.subtract(each, right.added[name]) for name, each in left.added.items()]
        return not any(each.terms or not P.is_zero(each.constant) for each in differences)

    def _first_turn_alike(self, growth: Growth, pcs: list[int]) -> bool:
        """Whether a turn from the fitted start does what the real first turn does, as far as integers go."""
        machine = self.machine
        real = dict(machine.registers)
        fitted = dict(real)
        for name, value in growth.start.items():
            fitted[name] = self.domain.integer_of(value)
        differ = {name for name in growth.start if not self._same(real[name], fitted[name])}
        chosen = set(pcs)
        for pc in (*self.loop.body, self.loop.back):
            found = self.program.infos[pc]
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
        bits = width(left)
        if bits == 1:
            return bool((hash_of(left)[0] == hash_of(right)[0]).all())
        first, second = self.domain.polynomial(left, bits), self.domain.polynomial(right, bits)
        if first is None or second is None:
            return False
        difference = self.domain.coordinates.rewritten(P.subtract(first, second))
        return not difference.terms and P.is_zero(difference.constant)

    def _polynomial(self, name: str) -> Polynomial:
        value = self.machine.registers[name]
        found = self.domain.polynomial(value, width(value))
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
            unit = Polynomial(
                each.bits,
                {m: P.quotient(c, whole, each.bits) for m, c in each.terms.items()},
                P.quotient(each.constant, whole, each.bits),
            )
            moved = P.multiply(unit, Polynomial(each.bits, {(position,): 1}, turns * whole & ((1 << each.bits) - 1)))
            if moved is None:
                raise self.fail("an integer has too many terms")
            self.machine.registers[name] = self.domain.integer_of(P.add(start, moved))
