"""Persistent (grid-stride) loops over tiles, analysed as one iteration for a symbolic tile.

A loop that starts at the block index and steps by the number of blocks computes each tile exactly once, in some block.
If the only loop-carried values are integers that are affine in the tile index, the kernel is the function that one
iteration computes, with the tile index in place of the block index.  The condition under which an iteration is executed
defines the set of tiles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from bitwise_core.checker.parametric import polynomial as P
from bitwise_core.checker.parametric.coordinates import TILE
from bitwise_core.checker.parametric.domain import ParametricDomain
from bitwise_core.checker.parametric.integers import Tiles, tighten
from bitwise_core.checker.parametric.loops.loop_state import INERT, copies_in_flight, invalidate
from bitwise_core.checker.parametric.memory import ParametricMemory
from bitwise_core.checker.parametric.polynomial import Polynomial
from bitwise_core.checker.parametric.symbolic_races import SymbolicRaces
from bitwise_core.checker.parametric.values import ParametricInteger, Predicate, integer_of, polynomial_of
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.instruction_info import Effect
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.program import Program
from bitwise_core.execution.values.symbolic_vector import Value, width
from bitwise_core.execution.values.term_hash import poison
from bitwise_core.numerics import modular


@dataclass(frozen=True, slots=True)
class PersistentLoop:
    """A natural loop from `header` to `latch`; `carried` are the written registers that are live at the header."""

    header: int
    latch: int
    writes: frozenset[str]
    carried: tuple[str, ...]


def find_persistent_loops(program: Program) -> dict[int, PersistentLoop]:
    """The outermost loops of `find_natural_loops` whose carried registers are integers or written under guards only."""
    natural = find_natural_loops(program)
    found = {
        header: loop for header, (loop, _) in natural.items() if _carries_integers(program, loop, natural[header][1])
    }
    inner = {header for header in found for other in found if other != header and header in natural[other][1]}
    return {header: loop for header, loop in found.items() if header not in inner}


def find_natural_loops(program: Program) -> dict[int, tuple[PersistentLoop, set[int]]]:
    """The loops with one entry, one back edge and one exit, at the latch, by header, with their instructions."""
    following = program.following
    predecessors: list[list[int]] = [[] for _ in following]
    for index, targets in enumerate(following):
        for target in targets:
            if target >= 0:
                predecessors[target].append(index)
    found: dict[int, tuple[PersistentLoop, set[int]]] = {}
    for latch, targets in enumerate(following):
        if len(targets) != 2 or targets[1] != latch + 1 or not 0 <= targets[0] != latch + 1:
            continue
        header = targets[0]
        body = _body(header, latch, predecessors)
        if _has_single_entry_and_exit(body, header, latch, following, predecessors):
            found[header] = _loop(program, header, latch, body), body
    return found


def _body(header: int, latch: int, predecessors: Sequence[Sequence[int]]) -> set[int]:
    """The natural loop of a back edge: the instructions that reach the latch without passing the header."""
    body, stack = {header, latch}, [latch]
    while stack:
        index = stack.pop()
        if index == header:
            continue
        for each in predecessors[index]:
            if each not in body:
                body.add(each)
                stack.append(each)
    return body


def _has_single_entry_and_exit(
    body: set[int], header: int, latch: int, following: Sequence[Sequence[int]], predecessors: Sequence[Sequence[int]]
) -> bool:
    """Whether the header is the only entry, and the latch the only exit and the source of the only back edge."""
    if any(each not in body for index in body - {header} for each in predecessors[index]):
        return False
    if any(target not in body for index in body - {latch} for target in following[index]):
        return False
    entered = 0 not in body or header == 0
    return entered and [each for each in predecessors[header] if each in body] == [latch] and latch + 1 not in body


def _loop(program: Program, header: int, latch: int, body: set[int]) -> PersistentLoop:
    infos = {index: program.infos[index] for index in body}
    bit_of: dict[str, int] = {}

    def bits(names: frozenset[str]) -> int:
        """A set of registers as a bit set."""
        return sum(1 << bit_of.setdefault(name, len(bit_of)) for name in names)

    reads = {index: bits(each.reads) for index, each in infos.items()}
    kept = {index: ~bits(each.writes) for index, each in infos.items()}
    live = dict.fromkeys(body, 0)
    order, changed = sorted(body, reverse=True), True
    while changed:
        changed = False
        for index in order:
            live_after = 0
            for target in program.following[index]:
                live_after |= live.get(target, 0)
            now = reads[index] | (live_after & kept[index])
            changed, live[index] = changed or now != live[index], now
    writes = frozenset().union(*(each.writes for each in infos.values()))
    carried = frozenset(name for name in writes if name in bit_of and live[header] >> bit_of[name] & 1)
    return PersistentLoop(header, latch, writes, tuple(sorted(carried)))


def _carries_integers(program: Program, loop: PersistentLoop, body: set[int]) -> bool:
    instructions, infos, carried = program.kernel.instructions, program.infos, set(loop.carried)
    unguarded = [index for index in body if infos[index].writes & carried and instructions[index].guard is None]
    return all(Effect.INTEGER in infos[index].effects for index in unguarded)


def _domain(machine: Machine) -> ParametricDomain:
    assert isinstance(machine.domain, ParametricDomain)
    return machine.domain


class PersistentIteration:
    """One iteration, from the header of the loop to the latch, for a symbolic tile."""

    def __init__(self, loop: PersistentLoop, machine: Machine, block: str, extent: str, line: int | None) -> None:
        """Set the registers at the header to those of the symbolic tile instead of the first tile of the block.

        Raises Unsupported.
        """
        self.loop, self.machine, self.line = loop, machine, line
        domain = _domain(machine)
        self.integers = domain.integers
        self.memory = cast(ParametricMemory, cast(object, machine.memory))
        self.block, self.block_index = block, self.integers.table.block_symbols[block]
        self.block_count = self.integers.table.block_symbols.get(extent)
        self.path = list(self.memory.path)
        self.done = False
        bound = self._entry_condition()
        self._check_nothing_carried()
        self.tile = next(iter(domain.symbol(TILE, 32, block=True).polynomial.atoms()))
        self.starts: dict[str, Polynomial] = {}
        registers = dict(machine.registers)
        for name in loop.writes:
            value = registers.pop(name, None)
            if name not in loop.carried:
                continue
            if isinstance(value, np.ndarray | ParametricInteger):
                start = polynomial_of(self.integers, value, width(value))
                assert start is not None
                self.starts[name] = start
                registers[name] = integer_of(
                    self.integers, self._for_tile(start, P.atom_polynomial(self.tile, start.bits))
                )
            else:
                registers[name] = poison(32 if value is None else width(value))
        machine.registers = registers
        self.registers_at_header = dict(registers)
        self.after_first: SymbolicRaces | None = None
        """The accesses to shared memory of the first execution of the iteration, while it is executed again."""
        self.counts: tuple[int, dict[int, int]] = (0, {})
        self.bound = bound
        self.integers.facts.append(self._for_tile(bound, P.atom_polynomial(self.tile, 64)))
        self.integers.tiles = Tiles(self.tile, block, self.integers.facts[-1])

    @staticmethod
    def try_begin(
        loop: PersistentLoop, machine: Machine, grid_registers: Mapping[str, str], line: int | None
    ) -> PersistentIteration | None:
        """The iteration if a carried register starts at a block index, else None.

        `grid_registers` maps the registers of block indices to those of block counts.
        """
        integers = _domain(machine).integers
        for block, extent in grid_registers.items():
            block_index = integers.table.block_symbols.get(block, -1)
            starts = [
                polynomial_of(integers, v, 32)
                for v in map(machine.registers.get, loop.carried)
                if isinstance(v, ParametricInteger)
            ]
            if integers.tiles is None and any(
                each is not None and each.terms.get((block_index,)) == 1 for each in starts
            ):
                return PersistentIteration(loop, machine, block, extent, line)
        return None

    def fail(self, reason: str) -> Unsupported:
        """An error that names the loop."""
        return Unsupported(f"{reason} in the loop over tiles", self.line)

    def _entry_condition(self) -> Polynomial:
        """The condition of the first iteration; it is removed from the path because the symbolic tile is any tile."""
        matching = [
            index
            for index, each in enumerate(self.path)
            if isinstance(each, Predicate) and any(self.block_index in value.atoms() for value in each.polynomials)
        ]
        predicate = self.path[matching[0]] if len(matching) == 1 else None
        bound = predicate.single if isinstance(predicate, Predicate) else None
        if bound is None:
            raise self.fail("no branch tests whether the first iteration is executed")
        bound = tighten(bound)
        replacement = [(m, c) for m, c in bound.terms.items() if self.block_index in m]
        if [m for m, _ in replacement] != [(self.block_index,)] or not np.all(
            modular.signed(replacement[0][1], 64) < 0
        ):
            raise self.fail("the condition of the first iteration is not a bound on its tile")
        del self.memory.path[matching[0]]
        return bound

    def _for_tile(self, value: Polynomial, replacement: Polynomial) -> Polynomial:
        """The integer with the block index replaced.  Raises Unsupported where it is not affine."""
        result = Polynomial(
            value.bits, {m: c for m, c in value.terms.items() if self.block_index not in m}, value.constant
        )
        for monomial, coefficient in value.terms.items():
            if self.block_index not in monomial:
                continue
            others = list(monomial)
            others.remove(self.block_index)
            product = P.multiply_by_term(replacement, coefficient, tuple(others))
            if product is None or self.block_index in others:
                raise self.fail("an integer has too many terms")
            result = P.add(result, product)
        return result

    def _check_nothing_carried(self) -> None:
        """Check that shared memory, copies in flight and other state carry no values.  Raises Unsupported."""
        machine = self.machine
        if copies_in_flight(machine) or machine.extra.keys() - INERT or machine.local:
            raise self.fail("an iteration may depend on the state of the previous one")
        invalidate(machine.shared, np.zeros(machine.shared.words.shape[2], dtype=bool), "shared memory of another tile")

    def end(self, taken: Value) -> bool:
        """Check at the latch that the next iteration is this one for the tile a step later.  Raises Unsupported.

        Returns whether the iteration is to be executed again, which checks that accesses to shared memory of
        consecutive iterations do not race.
        """
        races = self.machine.races
        assert isinstance(races, SymbolicRaces)
        if self.after_first is not None:
            self._check_nothing_carried()
            self.memory.forget_accesses_after(*self.counts)
            self.machine.races = races.with_histories([self.after_first])
            self._leave()
            return False
        self._check_next(taken)
        self.after_first = races.copy()
        self.counts = len(self.memory.stored), self.memory.loads_so_far()
        self.machine.registers = dict(self.registers_at_header)
        return True

    def _check_next(self, taken: Value) -> None:
        if not isinstance(taken, Predicate) or taken.single is None:
            raise self.fail("the condition of the back edge is not a comparison of integers")
        step = self._step()
        following = P.add(P.atom_polynomial(self.tile, 64), step)
        if not self._same(tighten(taken.single), self._for_tile(self.bound, following)):
            raise self.fail("the conditions of the first and of later iterations differ")
        self._check_nothing_carried()
        if self.memory.read & self.memory.written.keys():
            raise self.fail("a buffer is both read and written")

    def _leave(self) -> None:
        """Remove the values of the symbolic tile."""
        for name in self.loop.writes:
            self.machine.registers.pop(name, None)
        self.memory.path[:] = self.path
        self.done = True

    def _step(self) -> Polynomial:
        """The step of the tile index; all carried integers must be affine in it.  Raises Unsupported."""
        found: Polynomial | None = None
        values_at_latch: dict[str, Polynomial] = {}
        for name, start in self.starts.items():
            value = self.machine.registers.get(name)
            live_after = None if value is None else polynomial_of(self.integers, value, width(value))
            if live_after is None:
                raise self.fail(f"{name} is undefined")
            values_at_latch[name] = live_after
            if start.terms.get((self.block_index,)) == 1 and start.bits == 32:
                found = P.subtract(live_after, self._for_tile(start, P.atom_polynomial(self.tile, 32)))
        step = None if found is None else P.widened(self.integers.coordinates.rewrite(found), 64)
        if step is None or not (
            self._is_positive(step) or (dict(step.terms) == {(self.block_count,): 1} and step.constant == 0)
        ):
            raise self.fail("the tile index does not grow by a constant or by the number of blocks")
        for name, start in self.starts.items():
            following = P.add(P.atom_polynomial(self.tile, start.bits), P.truncated(step, start.bits))
            if not self._same(values_at_latch[name], self._for_tile(start, following)):
                raise self.fail("an integer is not affine in the tile index")
        return step

    @staticmethod
    def _is_positive(step: Polynomial) -> bool:
        return not step.terms and isinstance(step.constant, int) and modular.signed(step.constant, 64) > 0

    def _same(self, left: Polynomial, right: Polynomial) -> bool:
        return self.integers.equal(left, right)
