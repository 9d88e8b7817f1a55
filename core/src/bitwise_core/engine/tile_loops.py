"""Loops in which a block goes from tile to tile: what a turn stores is a function of the tile's number alone.

A loop that starts at the block's number and steps by the number of blocks reaches every tile of all tiles once, each
in some block.  Where a turn takes nothing over from the turn before it but integers that grow with the tile's number,
the kernel is therefore the function that one turn computes, with that number in place of the block's; which numbers
there are is said by the condition under which turns are run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from bitwise_core.engine import polynomial as P
from bitwise_core.engine.loop_state import INERT, forget, in_flight
from bitwise_core.engine.polynomial import Polynomial
from bitwise_core.engine.predicates import tightened
from bitwise_core.engine.program import Program
from bitwise_core.engine.symbolic import Predicate, Symbolic
from bitwise_core.engine.symbolic_domain import SymbolicDomain, Tiles
from bitwise_core.engine.symbolic_memory import SymbolicMemory
from bitwise_core.engine.tiles import TILE
from bitwise_core.machine.domain import Unreadable
from bitwise_core.machine.instruction_info import Effect
from bitwise_core.machine.lane_hash import poison
from bitwise_core.machine.lanes import Value, width
from bitwise_core.machine.state import Machine


@dataclass(frozen=True, slots=True)
class TileLoop:
    """Instructions from `head` to the branch `latch` back to it; `carried` are registers that a turn may take over."""

    head: int
    latch: int
    writes: frozenset[str]
    carried: tuple[str, ...]


def find_tile_loops(program: Program) -> dict[int, TileLoop]:
    """By their head, the outermost loops with one way in, one branch back and no other way out, whose carried
    registers are integers or written under guards only."""
    following = program.following
    before: list[list[int]] = [[] for _ in following]
    for index, targets in enumerate(following):
        for target in targets:
            if target >= 0:
                before[target].append(index)
    found: dict[int, TileLoop] = {}
    bodies: dict[int, set[int]] = {}
    for latch, targets in enumerate(following):
        if len(targets) != 2 or targets[1] != latch + 1 or not 0 <= targets[0] != latch + 1:
            continue
        head = targets[0]
        body = _body(head, latch, before)
        loop = _loop(program, head, latch, body) if _closed(body, head, latch, following, before) else None
        if loop is not None:
            found[head], bodies[head] = loop, body
    return {
        head: loop for head, loop in found.items() if not any(head in bodies[other] for other in found if other != head)
    }


def _body(head: int, latch: int, before: Sequence[Sequence[int]]) -> set[int]:
    """The instructions from which control comes to the latch without passing the head again."""
    body, stack = {head, latch}, [latch]
    while stack:
        index = stack.pop()
        if index == head:
            continue
        for each in before[index]:
            if each not in body:
                body.add(each)
                stack.append(each)
    return body


def _closed(
    body: set[int], head: int, latch: int, following: Sequence[Sequence[int]], before: Sequence[Sequence[int]]
) -> bool:
    """Whether control enters at the head only, leaves behind the latch only, and goes back from the latch only."""
    if any(each not in body for index in body - {head} for each in before[index]):
        return False
    if any(target not in body for index in body - {latch} for target in following[index]):
        return False
    entered = 0 not in body or head == 0
    return entered and [each for each in before[head] if each in body] == [latch] and latch + 1 not in body


def _loop(program: Program, head: int, latch: int, body: set[int]) -> TileLoop | None:
    infos = {index: program.infos[index] for index in body}
    places: dict[str, int] = {}

    def bits(names: frozenset[str]) -> int:
        """A set of registers as a number: one bit for each."""
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
    carried = frozenset(name for name in writes if name in places and live[head] >> places[name] & 1)
    instructions = program.kernel.instructions
    unguarded = [index for index in body if infos[index].writes & carried and instructions[index].guard is None]
    if not all(Effect.INTEGER in infos[index].effects for index in unguarded):
        return None
    return TileLoop(head, latch, writes, tuple(sorted(carried)))


def _domain(machine: Machine) -> SymbolicDomain:
    assert isinstance(machine.domain, SymbolicDomain)
    return machine.domain


class TileTurn:
    """One turn, from the head of the loop to its latch, for a tile whose number is a symbol."""

    def __init__(self, loop: TileLoop, machine: Machine, block: str, extent: str, line: int | None) -> None:
        """Starts at the head with the registers of the tile `TILE` instead of those of the block's first one."""
        self.loop, self.machine, self.domain, self.line = loop, machine, _domain(machine), line
        self.memory = cast(SymbolicMemory, cast(object, machine.memory))
        self.block, self.first = block, self.domain.block_symbols[block]
        self.blocks = self.domain.block_symbols.get(extent)
        self.path = list(self.memory.path)
        self.done = False
        bound = self._entered()
        self._between_turns()
        self.tile = next(iter(self.domain.symbol(TILE, 32, block=True).polynomial.atoms()))
        self.starts: dict[str, Polynomial] = {}
        registers = dict(machine.registers)
        for name in loop.writes:
            value = registers.pop(name, None)
            if name not in loop.carried:
                continue
            if isinstance(value, np.ndarray | Symbolic):
                start = self.domain.polynomial(value, width(value))
                assert start is not None
                self.starts[name] = start
                registers[name] = self.domain.integer_of(self._at(start, P.of_atom(self.tile, start.bits)))
            else:
                registers[name] = poison(32 if value is None else width(value))
        machine.registers = registers
        self.bound = bound
        self.domain.facts.append(self._at(bound, P.of_atom(self.tile, 64)))
        self.domain.tiles = Tiles(self.tile, block, self.domain.facts[-1])

    @staticmethod
    def begun(loop: TileLoop, machine: Machine, extents: Mapping[str, str], line: int | None) -> TileTurn | None:
        """The turn, if a register that the loop carries starts at a block's number (`extents` by blocks' numbers)."""
        domain = _domain(machine)
        for block, extent in extents.items():
            first = domain.block_symbols.get(block, -1)
            starts = [
                domain.polynomial(v, 32) for v in map(machine.registers.get, loop.carried) if isinstance(v, Symbolic)
            ]
            if domain.tiles is None and any(each is not None and each.terms.get((first,)) == 1 for each in starts):
                return TileTurn(loop, machine, block, extent, line)
        return None

    def fail(self, reason: str) -> Unreadable:
        """An error that names the loop."""
        return Unreadable(f"{reason} in the loop over tiles", self.line)

    def _entered(self) -> Polynomial:
        """The condition under which the first turn is run; it is taken off the path, since all tiles take part."""
        own = [
            index
            for index, each in enumerate(self.path)
            if isinstance(each, Predicate) and any(self.first in value.atoms() for value in each.polynomials)
        ]
        predicate = self.path[own[0]] if len(own) == 1 else None
        bound = predicate.single if isinstance(predicate, Predicate) else None
        if bound is None:
            raise self.fail("no branch in front says whether the first turn is run")
        bound = tightened(bound)
        number = [(m, c) for m, c in bound.terms.items() if self.first in m]
        if [m for m, _ in number] != [(self.first,)] or not np.all(P.signed(number[0][1], 64) < 0):
            raise self.fail("the condition for the first turn is no bound of its number")
        del self.memory.path[own[0]]
        return bound

    def _at(self, value: Polynomial, number: Polynomial) -> Polynomial:
        """The integer with the block's number replaced.  Raises Unreadable where it is not a sum of its multiples."""
        result = Polynomial(value.bits, {m: c for m, c in value.terms.items() if self.first not in m}, value.constant)
        for monomial, coefficient in value.terms.items():
            if self.first not in monomial:
                continue
            others = list(monomial)
            others.remove(self.first)
            product = P.scale(number, coefficient)
            if others:
                made = P.multiply(number, Polynomial(value.bits, {tuple(others): coefficient}))
                if made is None or self.first in others:
                    raise self.fail("an integer has too many terms")
                product = made
            result = P.add(result, product)
        return result

    def _between_turns(self) -> None:
        """Nothing is taken over in shared memory, by copies in flight, or otherwise."""
        machine = self.machine
        if in_flight(machine) or machine.extra.keys() - INERT or machine.local:
            raise self.fail("a turn may take something over from the one before")
        forget(machine.shared, np.zeros(machine.shared.words.shape[2], dtype=bool), "shared memory of another tile")

    def end(self, taken: Value) -> None:
        """At the latch: the next turn is the same for the tile a step on.  Raises Unreadable."""
        if not isinstance(taken, Predicate) or taken.single is None:
            raise self.fail("the condition for another turn is no comparison of integers")
        step = self._step()
        following = P.add(P.of_atom(self.tile, 64), step)
        if not self._same(tightened(taken.single), self._at(self.bound, following)):
            raise self.fail("turns end where the first one would be run")
        self._between_turns()
        if self.memory.read & self.memory.written.keys():
            raise self.fail("a buffer is both read and written")
        for name in self.loop.writes:
            self.machine.registers.pop(name, None)
        self.memory.path[:] = self.path
        self.done = True

    def _step(self) -> Polynomial:
        """By how much the tile's number grows; all carried integers grow with it."""
        found: Polynomial | None = None
        grown: dict[str, Polynomial] = {}
        for name, start in self.starts.items():
            value = self.machine.registers.get(name)
            after = None if value is None else self.domain.polynomial(value, width(value))
            if after is None:
                raise self.fail(f"nothing has written {name}")
            grown[name] = after
            if start.terms.get((self.first,)) == 1 and start.bits == 32:
                found = P.subtract(after, self._at(start, P.of_atom(self.tile, 32)))
        step = None if found is None else P.widened(self.domain.coordinates.rewritten(found), 64)
        if step is None or not (
            self._is_positive(step) or (dict(step.terms) == {(self.blocks,): 1} and step.constant == 0)
        ):
            raise self.fail("the number of a tile does not grow by a known number or by that of the blocks")
        for name, start in self.starts.items():
            following = P.add(P.of_atom(self.tile, start.bits), P.resized(step, start.bits))
            if not self._same(grown[name], self._at(start, following)):
                raise self.fail("an integer grows unevenly")
        return step

    @staticmethod
    def _is_positive(step: Polynomial) -> bool:
        return not step.terms and isinstance(step.constant, int) and P.signed(step.constant, 64) > 0

    def _same(self, left: Polynomial, right: Polynomial) -> bool:
        difference = self.domain.coordinates.rewritten(P.subtract(left, right))
        return not difference.terms and P.is_zero(difference.constant)
