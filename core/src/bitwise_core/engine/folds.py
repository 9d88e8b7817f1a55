"""What a loop makes of an accumulator: a fold over its turns, or over their matrix steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bitwise_core.engine import polynomial as P
from bitwise_core.engine.loop_dependence import MatrixStep
from bitwise_core.engine.loop_state import hash_of
from bitwise_core.engine.loop_turns import Growth, Turns
from bitwise_core.engine.polynomial import Polynomial
from bitwise_core.machine import hashing
from bitwise_core.machine import lanes as L
from bitwise_core.machine.lane_hash import full_hash
from bitwise_core.machine.lanes import Array, Lanes, Value
from bitwise_core.machine.pieces import as_lanes, concat, cut
from bitwise_core.machine.state import Machine

INSTANCES = 6
NEXT, TURN, UNIT, ENTRY, BEYOND, EMPTY = range(INSTANCES)
"""Instances of the launch: the position a period on, a turn on, a matrix step on, at 0, beyond the bound; no turn."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Two symbols of a loop's position: `turn` grows by `step` a turn, `elements` by `per_turn` (they may be one)."""

    turn: int
    elements: int
    step: int
    per_turn: int


@dataclass(frozen=True, slots=True)
class End:
    """A turn at a position is run if `condition` is not negative; `bound` - position - 1 is that condition where
    `symbol` (a scalar that the bound contains once) is given."""

    condition: Polynomial
    bound: Polynomial
    symbol: int | None


@dataclass(frozen=True, slots=True)
class Recorded:
    """Per accumulator what its turns (or the matrix steps of a pure chain) make of the accumulator symbol, in order.

    `left` holds what turns leave in other registers that are read after the loop.
    """

    values: dict[str, list[Value]]
    pure: frozenset[str]
    period: int
    flags: Mapping[str, int]
    left: dict[str, list[Value]]

    def alike(self, name: str, other: str) -> bool:
        """Whether every turn leaves in the other register what it leaves in the accumulator."""
        pairs = list(zip(self.values[name], self.left[other], strict=False))
        return len(pairs) == self.period and all(np.array_equal(hash_of(a)[0], hash_of(b)[0]) for a, b in pairs)


@dataclass(frozen=True, slots=True)
class Chained:
    """One matrix step of accumulators that form chains."""

    step: MatrixStep
    recorded: Recorded

    def prepare(self, machine: Machine) -> None:
        """Puts the accumulator symbols in front of the step."""
        for (_, source), owners in zip(self.step.sources, self.step.owners, strict=True):
            bits = L.width(machine.registers[source]) // len(owners)
            machine.registers[source] = concat([accumulator(bits, self.recorded.flags[name]) for name in owners])

    def record(self, machine: Machine) -> None:
        """Notes what the step made of them."""
        for (target, _), owners in zip(self.step.sources, self.step.owners, strict=True):
            value = machine.registers[target]
            bits = L.width(value) // len(owners)
            for place, name in enumerate(owners):
                part = value if len(owners) == 1 else cut(value, place * bits, bits)
                self.recorded.values[name].append(part)


def accumulator(bits: int, flags: int) -> Lanes:
    """The symbol for what an accumulator holds before a turn, with the properties that every turn keeps."""
    return Lanes(bits, hashing.constant("accumulator of a fold"), L.TERM | flags)


class NotKept(Exception):
    """Turns do not keep a property that an accumulator starts with."""


@dataclass(frozen=True, slots=True)
class Fold:
    """What a loop makes of an accumulator."""

    turns: Turns
    growth: Growth
    end: End
    unit: int
    once: bool
    scale: Scale
    rows: list[int]

    def of(self, name: str, start: Value, recorded: Recorded) -> tuple[Lanes, Lanes]:
        """The accumulator after the loop, and before a turn.  Raises Unreadable where turns are not of one form."""
        values = recorded.values[name]
        hashes = [hash_of(value)[0] for value in values]
        turns = len(values) // recorded.period
        rows = self.rows
        for index in range(len(values) - turns):
            if not _agree(hashes[index], rows[TURN], hashes[index + turns], 0):
                raise self.turns.fail("turns differ from each other")
        bits = L.width(start)
        initial = hash_of(start)[0] * hashing.multiplier(61)
        if self._by_steps(name, hashes, recorded):
            bound = P.words(self.turns.domain.atoms, self.turns.domain.canonical(self.end.bound))
            total = hashes[0] * hashing.multiplier(62) + bound * hashing.multiplier(63) + initial
            words = hashing.finalise(total + hashing.constant(f"fold of steps of {self.unit} {self.once}"))
        else:
            total = initial + P.words(
                self.turns.domain.atoms, self.turns.domain.canonical(self.end.condition)
            ) * hashing.multiplier(63)
            for place, each in enumerate(hashes[:turns]):
                total = total + each * hashing.multiplier(100 + place)
            words = hashing.finalise(
                total + hashing.constant(f"fold of {turns} a turn of {self.scale.per_turn} {self.once}")
            )
        meta = _inherited([start, *values]) | np.uint32(L.TERM | recorded.flags[name])
        return self._result(bits, words, meta, start), self._named(bits, words, meta)

    def started(self, result: Lanes, own: Value, start: Value) -> Lanes:
        """The result of a fold that starts from `own`, in a register that holds `start` where the loop has no turn."""
        left, right = hash_of(own)[0], hash_of(start)[0]
        if self.once or (left.shape == right.shape and np.array_equal(left, right)):
            return result
        words = hashing.finalise(
            result.words * hashing.multiplier(65)
            + right * hashing.multiplier(66)
            + hashing.constant("or without a turn")
        )
        return self._without_turn(Lanes(result.bits, words, result.meta), start)

    def _named(self, bits: int, words: hashing.Words, meta: Array) -> Lanes:
        """What the accumulator holds before a turn, for accumulators that depend on it.

        A fold is decided by its start and by what a turn makes of it at each position, so its hash tells the values
        before its turns as well as the last one.  The instances of the loop speak of other positions of the same fold.
        """
        name = hashing.finalise(words * hashing.multiplier(64) + hashing.constant("an accumulator before a turn"))
        if name.shape[1] > 1:
            name[:, self.rows] = name[:, :1]
        return Lanes(bits, name, L.uniform(meta))

    def _result(self, bits: int, words: hashing.Words, meta: Array, start: Value) -> Lanes:
        """The fold; in one instance the loop has no turn, if a branch in front of it says when that is so."""
        if not self.once:
            return self._without_turn(Lanes(bits, words, meta), start)
        words = np.broadcast_to(words, (2, self.turns.domain.rows, words.shape[2])).copy()
        words[:, self.rows[EMPTY]] = hashing.constant("a loop that has a turn")[:, 0]
        return Lanes(bits, words, L.uniform(meta))

    def _without_turn(self, result: Lanes, start: Value) -> Lanes:
        before, row = as_lanes(start), self.rows[EMPTY]
        own = np.atleast_2d(np.asarray(result.meta, dtype=np.uint32))
        shape = (self.turns.domain.rows, max(result.words.shape[2], before.words.shape[2], own.shape[1]))
        words, meta = np.broadcast_to(result.words, (2, *shape)).copy(), np.broadcast_to(own, shape).copy()
        words[:, row] = before.words[:, 0]
        meta[row] = before.meta if isinstance(before.meta, int) else before.meta[0]
        return Lanes(result.bits, words, meta)

    def _by_steps(self, name: str, hashes: list[hashing.Words], recorded: Recorded) -> bool:
        """Whether all matrix steps are one function of the position, and those beyond the bound change nothing."""
        if name not in recorded.pure or self.end.symbol is None or not self.unit:
            return False
        if self.unit * len(hashes) != self.scale.per_turn * recorded.period:
            return False
        rows = self.rows
        if not all(_agree(first, rows[UNIT], second, 0) for first, second in pairwise(hashes)):
            return False
        symbol = full_hash(accumulator(L.width(recorded.values[name][0]), 0))
        return _agree(hashes[0], rows[BEYOND], symbol, 0)


def _inherited(values: list[Value]) -> Array:
    """The properties that the lanes of a result inherit from values that enter it: shape (rows or 1, threads or 1)."""
    found = np.zeros((1, 1), dtype=np.uint32)
    for value in values:
        found = found | (np.atleast_2d(np.asarray(as_lanes(value).meta, dtype=np.uint32)) & np.uint32(L.STICKY))
    return found


def _agree(left: hashing.Words, left_row: int, right: hashing.Words, right_row: int) -> bool:
    first = left[:, min(left_row, left.shape[1] - 1)]
    second = right[:, min(right_row, right.shape[1] - 1)]
    return bool((first == second).all())
