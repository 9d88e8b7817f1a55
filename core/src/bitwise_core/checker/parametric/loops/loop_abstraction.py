"""Loops of which only the determinism of the result is proved: their values are opaque, their accesses are followed.

A loop is executed from its entry for a few periods, which shows how it repeats.  Then periods are executed from a
general state: integers that grow linearly are affine in a symbolic number of periods, numbers that repeat with the
period keep their values, and all other values are opaque.  Addresses of shared memory are numbers in the general state
too, so every period accesses the same cells.  These periods give the histories of accesses to shared memory, until one
ends as the one before it.  Stores in the loop are recorded in the second one.

A loop in an abstracted loop is reached again in each iteration of that loop.  It is then taken to repeat as when it was
reached first, and the general state is checked again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from bitwise_core.checker.parametric import polynomial as P
from bitwise_core.checker.parametric.access_history import AccessHistory, restore_any
from bitwise_core.checker.parametric.domain import ParametricDomain
from bitwise_core.checker.parametric.loops.loop_state import (
    INERT,
    LoopState,
    copies_have_equal_places,
    hash_of,
)
from bitwise_core.checker.parametric.loops.persistent_loops import PersistentLoop
from bitwise_core.checker.parametric.memory import ParametricMemory
from bitwise_core.checker.parametric.polynomial import Polynomial
from bitwise_core.checker.parametric.values import ParametricInteger, integer_of, polynomial_of
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.machine import Branch, Machine
from bitwise_core.execution.memory.shared_memory import SharedMemory
from bitwise_core.execution.program import Program
from bitwise_core.execution.program_analyses import live_at
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import poison

LONGEST_PERIOD = 6
MAXIMUM_ROUNDS = 4
"""How often the general state is weakened before the loop is rejected."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a machine at the header of a loop."""

    registers: Mapping[str, Value]
    shared: SharedMemory
    local: Mapping[int, Value]
    history: AccessHistory

    @staticmethod
    def of(machine: Machine) -> Snapshot:
        """The current state, independent of the machine."""
        return Snapshot(dict(machine.registers), machine.shared.copy(), dict(machine.local), AccessHistory.of(machine))

    def restore(self, machine: Machine) -> None:
        """Set the machine to this state."""
        machine.registers, machine.shared, machine.local = dict(self.registers), self.shared.copy(), dict(self.local)
        self.history.restore(machine)
        machine.extra.pop("tiles", None)


@dataclass(frozen=True, slots=True)
class Repetition:
    """How the iterations of a loop repeat: `first` iterations, then periods of `period` of them.

    `opaque` are the registers that are opaque in the general state, see `LoopAbstraction.opaque`.
    """

    first: int
    period: int
    opaque: Mapping[str, Array]


class LoopAbstraction:
    """The abstraction of one loop; the machine is at its header, reached from outside by all threads.

    `run` executes instructions from a position up to another one, in all threads.  `repetitions` has the loops, by
    their headers, that were abstracted before: an inner loop is reached in each iteration of the outer one.
    """

    def __init__(
        self,
        program: Program,
        machine: Machine,
        loop: PersistentLoop,
        run: Callable[[int, int], None],
        repetitions: dict[int, Repetition],
    ) -> None:
        assert isinstance(machine.domain, ParametricDomain)
        self.program, self.machine, self.loop, self.run = program, machine, loop, run
        self.repetitions = repetitions
        self.domain, self.integers = machine.domain, machine.domain.integers
        self.memory = cast(ParametricMemory, cast(object, machine.memory))
        self.line = program.kernel.instructions[loop.header].line
        self.number = self.integers.table.next_number()
        """Distinguishes the opaque values of this execution of the loop from those of others."""
        self.names = loop.carried
        self.opaque: dict[str, Array] = {}
        """Registers that are opaque in the general state, with a number for each instance and thread, see `_alike`."""
        self.undefined: set[str] = set()
        self._hashes: dict[int, tuple[Value, hashing.Words, int]] = {}
        """What `loop_state.hash_of` has found, by the identity of the value, which lives as long."""
        self.first = 0
        """The number of iterations before those that repeat."""
        self.counts = False
        """Whether a number grows by the same amount in every iteration so far."""

    def _hash_of(self, value: Value) -> tuple[hashing.Words, int]:
        """See `loop_state.hash_of`: a value is compared with those of many other iterations."""
        found = self._hashes.get(id(value))
        if found is None:
            found = self._hashes[id(value)] = (value, *hash_of(value))
        return found[1], found[2]

    def fail(self, reason: str) -> Unsupported:
        """An error that names the loop."""
        return Unsupported(f"{reason} in the loop", self.line)

    def apply(self) -> bool:
        """Set the machine to the state after the loop; False if the trip count is known.  Raises Unsupported."""
        machine, memory = self.machine, self.memory
        if machine.extra.keys() - INERT:
            raise self.fail("memory barriers are not followed")
        before = Snapshot.of(machine)
        recorded, iterations, path = self._recorded(), list(memory.iterations), list(memory.path)
        facts, condition = list(self.integers.facts), machine.condition
        known = self.repetitions.get(self.loop.header)
        attempts = [(0, known)] if known is not None else []
        for fewest, repetition in (*attempts, (0, None), (2 * LONGEST_PERIOD, None)):
            try:
                return self._apply(before, fewest, repetition)
            except Unsupported:
                if repetition is None and (fewest or not self.counts):
                    raise
            before.restore(machine)
            self._forget_after(recorded)
            memory.iterations, memory.path[:] = list(iterations), path
            self.integers.facts[:], machine.condition, machine.mask = facts, condition, None
            self.opaque, self.undefined, self.first = {}, set(), 0
        raise AssertionError("the last attempt returns or raises")

    def _apply(self, before: Snapshot, fewest: int, known: Repetition | None) -> bool:
        """See `apply`; at least `fewest` iterations are executed before a period is chosen, if none is known."""
        machine = self.machine
        recorded = self._recorded()
        stores, first_loads = False, self.memory.loads_after(recorded[1])
        snapshots = [before]
        opaque: Mapping[str, Array] = {}
        period: int | None = None
        if known is not None:
            self.first, period, opaque = known.first, known.period, known.opaque
        while period is None or len(snapshots) <= self.first + (period if known else 3 * period + 1):
            taken = self._iterate()
            if taken is None or machine.known(taken) is not None:
                if len(snapshots) > 1:
                    raise self.fail("whether an iteration follows is known for some iterations only")
                before.restore(machine)
                self._forget_after(recorded)
                return False
            self._check_uniform(taken)
            snapshots.append(Snapshot.of(machine))
            if len(snapshots) == 2:
                stores = len(self.memory.stored) > recorded[0] or self.memory.written != recorded[2]
                first_loads = self.memory.loads_after(recorded[1])
            if known is not None:
                if stores and self.first:
                    raise self.fail("an iteration before those that repeat stores")
                continue
            if period is not None and not self._repeats(snapshots[self.first :], period):
                period = None
            if period is None and len(snapshots) > fewest:
                period = self._period(snapshots, stores)
        self._forget_after(recorded)
        if self.first:
            self.memory.add_loads(first_loads)
        histories = self._general_period(snapshots[self.first :], period, opaque)
        self.repetitions[self.loop.header] = Repetition(self.first, period, self.opaque)
        self._leave(snapshots, [*snapshots[1 : 1 + self.first], *histories])
        return True

    def _iterate(self) -> Value | None:
        """Execute one iteration; the condition of the back edge."""
        self.run(self.loop.header, self.loop.latch)
        if self.machine.extra.keys() - INERT:
            raise self.fail("memory barriers are not followed")
        control = self.program.steps[self.loop.latch](self.machine)
        assert isinstance(control, Branch)
        return control.taken

    def _check_uniform(self, taken: Value) -> None:
        words, sticky = self._hash_of(taken)
        if sticky or (words[:, 0] != words[:, 0, :1]).any():
            raise self.fail("threads may leave in different iterations")

    # -- periods ------------------------------------------------------------------------------------------------------

    def _period(self, snapshots: list[Snapshot], stores: bool) -> int | None:
        """The number of iterations after which repeating numbers and copies repeat, once it has been seen.

        The first iteration may differ from the others if no iteration `stores`.
        """
        if len(snapshots) > 2 * LONGEST_PERIOD + 2:
            raise self.fail("no number of iterations is found after which numbers and copies repeat")
        for first in (0,) if stores else (0, 1):
            for period in range(1, (len(snapshots) - 1 - first) // 2 + 1):
                if self._repeats(snapshots[first:], period):
                    self.first = first
                    self.counts = any(self._counts(name, snapshots[first:], period) for name in self.names)
                    return period
        return None

    def _counts(self, name: str, snapshots: list[Snapshot], period: int) -> bool:
        """Whether a number grows, which a later iteration may reset."""
        if not all(isinstance(each.registers.get(name), np.ndarray) for each in snapshots):
            return False
        growth = self._growth(name, snapshots, period)
        return growth is not None and not growth.is_zero

    def _repeats(self, snapshots: list[Snapshot], period: int) -> bool:
        for name in self.names:
            if self._is_repeating(name, snapshots, period) or self._growth(name, snapshots, period) is not None:
                continue
            if all(isinstance(each.registers.get(name), np.ndarray) for each in snapshots):
                return False
        return all(
            copies_have_equal_places(snapshots[place].history.copies, snapshots[place + period].history.copies)
            for place in range(1, len(snapshots) - period)
        )

    @staticmethod
    def _is_repeating(name: str, snapshots: list[Snapshot], period: int) -> bool:
        values = [each.registers.get(name) for each in snapshots]
        return all(
            isinstance(first, np.ndarray) and isinstance(second, np.ndarray) and np.array_equal(first, second)
            for first, second in zip(values, values[period:], strict=False)
        )

    def _growth(self, name: str, snapshots: list[Snapshot], period: int) -> Polynomial | None:
        """What every period adds to an integer, None where it is not always the same."""
        values = [each.registers.get(name) for each in snapshots]
        if not all(isinstance(each, np.ndarray | ParametricInteger) for each in values):
            return None
        numbers = [polynomial_of(self.integers, cast(Value, each), L.width(cast(Value, each))) for each in values]
        differences = [P.subtract(b, a) for a, b in zip(numbers, numbers[period:], strict=False) if a and b]
        first = differences[0]
        return first if all(self.integers.equal(first, each) for each in differences[1:]) else None

    # -- the general state --------------------------------------------------------------------------------------------

    def _general_period(self, snapshots: list[Snapshot], period: int, opaque: Mapping[str, Array]) -> list[Snapshot]:
        """Execute periods from the general state until their histories of accesses repeat.

        The second period is checked to lead to the general state.  `opaque` registers are so in it, at least.  Returns
        the states after each number of iterations, at least two periods.  Branches on a counter, which is a number in
        the first iterations, may take both sides there.
        """
        atom = self.integers.table.atom(hashing.constant(f"periods of the loop at {self.loop.header}"))
        self.integers.table.nonnegative_atoms.add(atom)
        self.integers.table.iteration_atoms.add(atom)
        growth = {name: self._growth(name, snapshots, period) for name in self.names}
        for name in self.names:
            values = [each.registers.get(name) for each in snapshots]
            if any(each is None or self._hash_of(each)[1] for each in values):
                self.undefined.add(name)
            elif name in opaque or (not self._is_repeating(name, snapshots, period) and growth[name] is None):
                before = [self._opaque(name, 32, opaque[name])] if name in opaque else []
                self.opaque[name] = self._alike([*before, *(cast(Value, each) for each in values)])
        memories, recorded = list(snapshots), self._recorded()
        for _ in range(MAXIMUM_ROUNDS):
            found, stable = [snapshots[0]], True
            self._forget_after(recorded)
            self.memory.iterations.append(atom)
            for place in range(3 * period + 1):
                if place == period:
                    self._forget_after(recorded)
                phase = place % period
                changed = self._set_general_state(found[-1].history, snapshots, memories, phase, growth, atom)
                taken = self._iterate()
                after = Snapshot.of(self.machine)
                found.append(after)
                if place < period:
                    continue
                if place < 2 * period:
                    if taken is not None:
                        self._check_uniform(taken)
                    if not copies_have_equal_places(after.history.copies, found[-1 - period].history.copies):
                        raise self.fail("the copies in flight do not repeat")
                    stable = self._check_general_state(snapshots, period, phase, growth, atom) and stable
                    if _differ_elsewhere(after.shared, snapshots[0].shared, changed):
                        memories.append(after)
                        stable = False
                    of_period = self._recorded()
                if place + 1 >= 2 * period and (not stable or after.history.leads_on_as(found[-1 - period].history)):
                    break
            self.memory.iterations.pop()
            if stable:
                self._forget_after(of_period)
                return found[1:]
        raise self.fail("no general state of the iterations is found")

    def _recorded(self) -> tuple[int, dict[int, int], dict[int, str]]:
        """The numbers of accesses to global memory that are recorded so far, and how buffers are written."""
        return len(self.memory.stored), self.memory.loads_so_far(), dict(self.memory.written)

    def _forget_after(self, recorded: tuple[int, dict[int, int], dict[int, str]]) -> None:
        """Drop the accesses to global memory that were recorded later."""
        stores, loads, written = recorded
        self.memory.forget_accesses_after(stores, loads)
        self.memory.written = dict(written)

    def _value(
        self, name: str, snapshots: list[Snapshot], place: int, growth: Mapping[str, Polynomial | None], atom: int
    ) -> Value:
        """A register in the general state, `place` iterations after the start of a period."""
        start = snapshots[place].registers.get(name)
        bits = self._width(name, snapshots)
        if name in self.undefined or start is None:
            return poison(bits)
        if name in self.opaque:
            return self._opaque(name, bits, self.opaque[name])
        added = growth[name]
        if added is None or added.is_zero:
            return start
        number = polynomial_of(self.integers, start, bits)
        product = P.multiply(added, P.atom_polynomial(atom, bits))
        assert number is not None
        if product is None:
            raise self.fail("an integer has too many terms")
        return integer_of(self.integers, P.add(number, product))

    def _width(self, name: str, snapshots: list[Snapshot]) -> int:
        for each in snapshots:
            value = each.registers.get(name)
            if value is not None:
                return L.width(value)
        return 32

    def _alike(self, values: Sequence[Value]) -> Array:
        """A number for each instance and thread, equal for those that agree on each of these values."""
        shape = (self.domain.rows, self.machine.threads)
        columns = np.concatenate(
            [np.broadcast_to(words, (2, *shape)).reshape(2, -1) for words, _ in map(self._hash_of, values)]
        )
        factors = np.concatenate([hashing.multiplier(1000 + place).ravel() for place in range(len(values))])
        keys = (columns * factors[:, None]).sum(axis=0, dtype=np.uint64)
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        if (columns != columns[:, first[inverse]]).any():
            inverse = np.unique(columns, axis=1, return_inverse=True)[1]
        numbers: Array = inverse.reshape(shape)
        return numbers

    def _opaque(self, name: str, bits: int, alike: Array) -> SymbolicVector:
        """A defined value of which is known only which instances and threads agree on it."""
        if (alike == alike[:, :1]).all():
            alike = alike[:, :1]
        words = hashing.mix(
            hashing.constant(f"{name} of {bits} in iteration {self.number}")
            + alike.astype(np.uint64) * hashing.multiplier(71)
        )
        return SymbolicVector(bits, words, L.TERM)

    def _set_general_state(
        self,
        history: AccessHistory,
        snapshots: list[Snapshot],
        memories: list[Snapshot],
        phase: int,
        growth: Mapping[str, Polynomial | None],
        atom: int,
    ) -> Array:
        """Set the general state after a history; which cells of shared memory may differ between iterations."""
        machine = self.machine
        snapshots[0].restore(machine)
        machine.registers = {
            name: value for name, value in snapshots[0].registers.items() if name not in self.loop.writes
        }
        for name in self.names:
            machine.registers[name] = self._value(name, snapshots, phase, growth, atom)
        changed = self._join_memories(memories)
        history.restore(machine)
        self._opaque_copies()
        return changed

    def _opaque_copies(self) -> None:
        """Make the values of copies in flight opaque."""
        copies = self.machine.extra.get("copies")
        if copies is None:
            return
        copies.open = [self._opaque_copy(each) for each in copies.open]
        for groups in copies.groups.values():
            for group in groups.groups:
                group.work = [self._opaque_copy(each) for each in group.work]

    def _opaque_copy(self, copy: Any) -> Any:
        bits = L.width(copy.value)
        defined = not self._hash_of(copy.value)[1]
        return replace(copy, value=self._opaque("a copy", bits, self._everyone_differs()) if defined else poison(bits))

    def _everyone_differs(self) -> Array:
        shape = (self.domain.rows, self.machine.threads)
        return np.arange(shape[0] * shape[1]).reshape(shape)

    def _join_memories(self, snapshots: list[Snapshot]) -> Array:
        """Shared and local memory in any iteration: opaque where it may differ, undefined where it may be undefined.

        Returns which cells of shared memory may differ.
        """
        machine = self.machine
        size = max(each.shared.words.shape[2] for each in snapshots)
        for each in snapshots:
            each.shared.reserve_cells(size)
        shared = snapshots[0].shared.copy()
        changed = np.zeros(size, dtype=bool)
        undefined = np.zeros(size, dtype=bool)
        for each in snapshots:
            changed |= (each.shared.words != shared.words).any(axis=(0, 1)) | (each.shared.flags != shared.flags).any(0)
            undefined |= ((each.shared.flags & np.uint32(L.STICKY)) != 0).any(axis=0)
        cells = np.flatnonzero(changed)
        rows = np.arange(self.domain.rows, dtype=np.uint64)[:, None]
        shared.words[:, :, cells] = hashing.mix(
            hashing.constant(f"a cell in iteration {self.number}")
            + rows * hashing.multiplier(71)
            + cells.astype(np.uint64) * hashing.multiplier(73)
        )
        shared.flags[:, cells] = np.where(undefined[cells], np.uint32(L.TERM | L.POISON), np.uint32(L.TERM))
        shared.version = max(each.shared.version for each in snapshots) + 1
        machine.shared = shared
        if any(each.local.keys() != snapshots[0].local.keys() for each in snapshots) or any(
            value is not snapshots[0].local[place] for each in snapshots for place, value in each.local.items()
        ):
            raise self.fail("local memory is written")
        return changed

    def _check_general_state(
        self,
        snapshots: list[Snapshot],
        period: int,
        phase: int,
        growth: Mapping[str, Polynomial | None],
        atom: int,
    ) -> bool:
        """Whether the state after an iteration is the general one; weaken the general state where it is not."""
        machine, stable = self.machine, True
        for name in self.names:
            if name in self.undefined:
                continue
            value = machine.registers.get(name)
            if value is None or self._hash_of(value)[1]:
                self.undefined.add(name)
                stable = False
                continue
            if name in self.opaque:
                before, after = (
                    self.opaque[name],
                    self._alike([self._opaque(name, 32, self.opaque[name]), value]),
                )
                if after.max() != before.max():
                    self.opaque[name], stable = after, False
                continue
            last = phase + 1 == period
            expected = self._value(name, snapshots, 0 if last else phase + 1, growth, atom)
            added = growth[name]
            if last and added is not None and not added.is_zero:
                wanted = polynomial_of(self.integers, expected, L.width(expected))
                assert wanted is not None
                expected = integer_of(self.integers, P.add(wanted, added))
            if not self._same(value, expected):
                self.opaque[name] = self._alike([value, expected])
                stable = False
        written = LoopState.of(machine)
        both = min(written.flags.shape[1], snapshots[0].shared.flags.shape[1])
        undefined = np.zeros(both, dtype=bool)
        for each in snapshots:
            undefined |= ((each.shared.flags[:, :both] & np.uint32(L.STICKY)) != 0).any(axis=0)
        if (((written.flags[:, :both] & np.uint32(L.STICKY)) != 0).any(axis=0) & ~undefined).any():
            raise self.fail("an undefined value is stored in shared memory")
        return stable

    def _same(self, value: Value, expected: Value) -> bool:
        if isinstance(value, np.ndarray | ParametricInteger) and isinstance(expected, np.ndarray | ParametricInteger):
            bits = L.width(value)
            left, right = polynomial_of(self.integers, value, bits), polynomial_of(self.integers, expected, bits)
            return left is not None and right is not None and self.integers.equal(left, right)
        return False

    # -- after the loop -----------------------------------------------------------------------------------------------

    def _leave(self, snapshots: list[Snapshot], histories: list[Snapshot]) -> None:
        """Set the state after any number of iterations, at least one, of which `histories` are the accesses."""
        machine = self.machine
        self._join_memories([*snapshots, *histories])
        registers = {name: value for name, value in snapshots[0].registers.items() if name not in self.loop.writes}
        for name in filter(live_at(self.program, self.loop.latch + 1), self.loop.writes):
            found = [each.registers.get(name) for each in (*snapshots[1:], *histories)]
            values = [each for each in found if each is not None]
            if len(values) < len(found):
                continue
            defined = not any(self._hash_of(each)[1] for each in values)
            bits = L.width(values[0])
            if defined and all(self._same(each, values[0]) for each in values):
                registers[name] = values[0]
                continue
            registers[name] = self._opaque(name, bits, self._alike(values)) if defined else poison(bits)
        machine.registers = registers
        restore_any(machine, [each.history for each in histories], self._opaque_copy)
        machine.extra.pop("tiles", None)


def _differ_elsewhere(after: SharedMemory, before: SharedMemory, changed: Array) -> bool:
    """Whether the contents of cells other than the `changed` ones differ."""
    size = changed.size
    return after.words.shape[2] > size or bool(
        ((after.words != before.words).any(axis=(0, 1)) | (after.flags != before.flags).any(axis=0))[~changed].any()
    )
