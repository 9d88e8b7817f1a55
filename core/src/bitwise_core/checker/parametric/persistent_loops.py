"""Persistent (grid-stride) loops over tiles, read as one iteration for a symbolic tile.

A loop that starts at the index of the block and steps by the number of blocks reaches each tile exactly once, in some
block.  If an iteration takes nothing over from the one before it but integers that are affine in the tile's index, the
kernel is the function that one iteration computes, with the tile's index in place of the block's.  The condition under
which an iteration is run says which tiles there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from bitwise_core.checker.parametric import polynomial as P
from bitwise_core.checker.parametric.coordinates import TILE
from bitwise_core.checker.parametric.domain import ParametricDomain
from bitwise_core.checker.parametric.integers import Tiles, tightened
from bitwise_core.checker.parametric.loop_state import INERT, forget, in_flight
from bitwise_core.checker.parametric.memory import ParametricMemory
from bitwise_core.checker.parametric.polynomial import Polynomial
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
    """A natural loop from `header` to `latch`; `carried` are the registers that an iteration may take over."""

    header: int
    latch: int
    writes: frozenset[str]
    carried: tuple[str, ...]


def find_persistent_loops(program: Program) -> dict[int, PersistentLoop]:
    """By header, the outermost loops with one entry, one back edge and one exit, at the latch.

    Their carried registers are integers or written under guards only.
    """
    following = program.following
    before: list[list[int]] = [[] for _ in following]
    for index, targets in enumerate(following):
        for target in targets:
            if target >= 0:
                before[target].append(index)
    found: dict[int, PersistentLoop] = {}
    bodies: dict[int, set[int]] = {}
    for latch, targets in enumerate(following):
        if len(targets) != 2 or targets[1] != latch + 1 or not 0 <= targets[0] != latch + 1:
            continue
        header = targets[0]
        body = _body(header, latch, before)
        loop = _loop(program, header, latch, body) if _closed(body, header, latch, following, before) else None
        if loop is not None:
            found[header], bodies[header] = loop, body
    inner = {header for header in found for other, body in bodies.items() if other != header and header in body}
    return {header: loop for header, loop in found.items() if header not in inner}


def _body(header: int, latch: int, before: Sequence[Sequence[int]]) -> set[int]:
    """The natural loop of a back edge: the instructions from which the latch is reached without passing the header."""
    body, stack = {header, latch}, [latch]
    while stack:
        index = stack.pop()
        if index == header:
            continue
        for each in before[index]:
            if each not in body:
                body.add(each)
                stack.append(each)
    return body


def _closed(
    body: set[int], header: int, latch: int, following: Sequence[Sequence[int]], before: Sequence[Sequence[int]]
) -> bool:
    """Whether the header is the only entry and the latch the only exit and the only back edge."""
    if any(each not in body for index in body - {header} for each in before[index]):
        return False
    if any(target not in body for index in body - {latch} for target in following[index]):
        return False
    entered = 0 not in body or header == 0
    return entered and [each for each in before[header] if each in body] == [latch] and latch + 1 not in body


def _loop(program: Program, header: int, latch: int, body: set[int]) -> PersistentLoop | None:
    infos = {index: program.infos[index] for index in body}
    places: dict[str, int] = {}

    def bits(names: frozenset[str]) -> int:
        """A set of registers as a bit set."""
        return sum(1 << places.setdefault(name, len(places)) for name in names)

    reads = {index: bits(each.reads) for index, each in infos.items()}
    kept = {index: ~bits(each.writes) for index, each in infos.items()}
    live = dict.fromkeys(body, 0)
    order, changed = sorted(body, reverse=True), True
    while changed:
        changed = False
        for index in order:
            after = 0
            for target in program.following[index]:
                after |= live.get(target, 0)
            now = reads[index] | (after & kept[index])
            changed, live[index] = changed or now != live[index], now
    writes = frozenset().union(*(each.writes for each in infos.values()))
    carried = frozenset(name for name in writes if name in places and live[header] >> places[name] & 1)
    instructions = program.kernel.instructions
    unguarded = [index for index in body if infos[index].writes & carried and instructions[index].guard is None]
    if not all(Effect.INTEGER in infos[index].effects for index in unguarded):
        return None
    return PersistentLoop(header, latch, writes, tuple(sorted(carried)))


def _domain(machine: Machine) -> ParametricDomain:
    assert isinstance(machine.domain, ParametricDomain)
    return machine.domain


class PersistentIteration:
    """One iteration, from the header of the loop to its latch, for a symbolic tile."""

    def __init__(self, loop: PersistentLoop, machine: Machine, block: str, extent: str, line: int | None) -> None:
        """Sets the registers at the header to those of the tile `TILE` instead of the block's first tile."""
        self.loop, self.machine, self.line = loop, machine, line
        domain = _domain(machine)
        self.integers = domain.integers
        self.memory = cast(ParametricMemory, cast(object, machine.memory))
        self.block, self.first = block, self.integers.table.block_symbols[block]
        self.blocks = self.integers.table.block_symbols.get(extent)
        self.path = list(self.memory.path)
        self.done = False
        bound = self._entered()
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
                registers[name] = integer_of(self.integers, self._at(start, P.of_atom(self.tile, start.bits)))
            else:
                registers[name] = poison(32 if value is None else width(value))
        machine.registers = registers
        self.bound = bound
        self.integers.facts.append(self._at(bound, P.of_atom(self.tile, 64)))
        self.integers.tiles = Tiles(self.tile, block, self.integers.facts[-1])

    @staticmethod
    def begun(
        loop: PersistentLoop, machine: Machine, extents: Mapping[str, str], line: int | None
    ) -> PersistentIteration | None:
        """The iteration, if a register that the loop carries starts at a block's index; see `ParametricProgram`."""
        integers = _domain(machine).integers
        for block, extent in extents.items():
            first = integers.table.block_symbols.get(block, -1)
            starts = [
                polynomial_of(integers, v, 32)
                for v in map(machine.registers.get, loop.carried)
                if isinstance(v, ParametricInteger)
            ]
            if integers.tiles is None and any(each is not None and each.terms.get((first,)) == 1 for each in starts):
                return PersistentIteration(loop, machine, block, extent, line)
        return None

    def fail(self, reason: str) -> Unsupported:
        """An error that names the loop."""
        return Unsupported(f"{reason} in the loop over tiles", self.line)

    def _entered(self) -> Polynomial:
        """The condition of the first iteration; it is removed from the path, since all tiles take part."""
        own = [
            index
            for index, each in enumerate(self.path)
            if isinstance(each, Predicate) and any(self.first in value.atoms() for value in each.polynomials)
        ]
        predicate = self.path[own[0]] if len(own) == 1 else None
        bound = predicate.single if isinstance(predicate, Predicate) else None
        if bound is None:
            raise self.fail("no branch in front of it tests whether the first iteration is run")
        bound = tightened(bound)
        number = [(m, c) for m, c in bound.terms.items() if self.first in m]
        if [m for m, _ in number] != [(self.first,)] or not np.all(modular.signed(number[0][1], 64) < 0):
            raise self.fail("the condition of the first iteration is no bound on its tile")
        del self.memory.path[own[0]]
        return bound

    def _at(self, value: Polynomial, number: Polynomial) -> Polynomial:
        """The integer with the block's index replaced.  Raises Unsupported where it is not affine in it."""
        result = Polynomial(value.bits, {m: c for m, c in value.terms.items() if self.first not in m}, value.constant)
        for monomial, coefficient in value.terms.items():
            if self.first not in monomial:
                continue
            others = list(monomial)
            others.remove(self.first)
            product = P.multiply_by_term(number, coefficient, tuple(others))
            if product is None or self.first in others:
                raise self.fail("an integer has too many terms")
            result = P.add(result, product)
        return result

    def _check_nothing_carried(self) -> None:
        """Checks that shared memory, copies in flight and other state carry nothing.  Raises Unsupported."""
        machine = self.machine
        if in_flight(machine) or machine.extra.keys() - INERT or machine.local:
            raise self.fail("an iteration may take something over from the one before")
        forget(machine.shared, np.zeros(machine.shared.words.shape[2], dtype=bool), "shared memory of another tile")

    def end(self, taken: Value) -> None:
        """Checks at the latch that the next iteration is this one for the tile a step later.  Raises Unsupported."""
        if not isinstance(taken, Predicate) or taken.single is None:
            raise self.fail("the condition for another iteration is no comparison of integers")
        step = self._step()
        following = P.add(P.of_atom(self.tile, 64), step)
        if not self._same(tightened(taken.single), self._at(self.bound, following)):
            raise self.fail("iterations end where the first one would be run")
        self._check_nothing_carried()
        if self.memory.read & self.memory.written.keys():
            raise self.fail("a buffer is both read and written")
        for name in self.loop.writes:
            self.machine.registers.pop(name, None)
        self.memory.path[:] = self.path
        self.done = True

    def _step(self) -> Polynomial:
        """By how much the tile's index grows; all carried integers must be affine in it."""
        found: Polynomial | None = None
        grown: dict[str, Polynomial] = {}
        for name, start in self.starts.items():
            value = self.machine.registers.get(name)
            after = None if value is None else polynomial_of(self.integers, value, width(value))
            if after is None:
                raise self.fail(f"nothing has written {name}")
            grown[name] = after
            if start.terms.get((self.first,)) == 1 and start.bits == 32:
                found = P.subtract(after, self._at(start, P.of_atom(self.tile, 32)))
        step = None if found is None else P.widened(self.integers.coordinates.rewritten(found), 64)
        if step is None or not (
            self._is_positive(step) or (dict(step.terms) == {(self.blocks,): 1} and step.constant == 0)
        ):
            raise self.fail("the index of the tile does not grow by a known number or by the number of blocks")
        for name, start in self.starts.items():
            following = P.add(P.of_atom(self.tile, start.bits), P.resized(step, start.bits))
            if not self._same(grown[name], self._at(start, following)):
                raise self.fail("an integer grows unevenly")
        return step

    @staticmethod
    def _is_positive(step: Polynomial) -> bool:
        return not step.terms and isinstance(step.constant, int) and modular.signed(step.constant, 64) > 0

    def _same(self, left: Polynomial, right: Polynomial) -> bool:
        return self.integers.equal(left, right)
