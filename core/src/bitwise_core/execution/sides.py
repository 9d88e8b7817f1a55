"""The two sides of a branch on data: the state in which each is executed, and the state after both.

Each side has its own registers, local memory and parameters; after both, each is a select on the predicate.  Where the
predicate is uniform in each block and the whole block takes part, a side also has its own shared memory, its own
history of accesses and barriers, its own asynchronous work and memory barriers, and its own stores.  Barriers, copies
and exchanges between threads are then as in a kernel without the branch: either all threads of a block execute them, or
none does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import compress, islice
from operator import is_, is_not
from typing import Any

import numpy as np

from bitwise_core.execution.alternatives import Ways, copied_alternatives, joined_alternatives
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.memory.async_groups import AsynchronousReads
from bitwise_core.execution.memory.shared_memory import SharedMemory
from bitwise_core.execution.memory.store_choices import Recorded, Stores, join_stores
from bitwise_core.execution.program import merge_local
from bitwise_core.execution.races.epochs import Epoch, earlier_epoch
from bitwise_core.execution.races.race_histories import RaceDetectors
from bitwise_core.execution.uniformity import of_blocks
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Array, Value, width
from bitwise_core.execution.values.term_hash import poison


@dataclass(frozen=True, slots=True)
class Side:
    """The state of the threads after one side."""

    registers: dict[str, Value]
    local: dict[int, Value]
    parameters: dict[str, Value]

    @staticmethod
    def of(machine: Machine) -> Side:
        """Return the current state."""
        return Side(machine.registers, machine.local, machine.parameters)

    def begin(self, machine: Machine) -> None:
        """Set the machine to a copy of this state."""
        machine.registers, machine.local = dict(self.registers), dict(self.local)
        machine.parameters = dict(self.parameters)


def join_sides(machine: Machine, predicate: Value, if_true: Side, if_false: Side, live: Callable[[str], bool]) -> None:
    """Set registers, local memory and parameters after both sides; registers that are not `live` are dropped."""
    machine.registers = _selected(machine, predicate, if_true.registers, if_false.registers, live)
    merge_local(machine, predicate, if_true.local, if_false.local)
    machine.parameters = _selected(machine, predicate, if_true.parameters, if_false.parameters, lambda name: True)


def _selected(
    machine: Machine,
    predicate: Value,
    if_true: Mapping[str, Value],
    if_false: Mapping[str, Value],
    live: Callable[[str], bool],
) -> dict[str, Value]:
    """Return a select for each name; what only one side wrote is undefined after the other.

    Most registers are those of before the branch, on both sides: what differs is found without a step for each.
    """
    found = dict(if_false)
    for name in _different(if_true, if_false):
        if not live(name):
            found.pop(name, None)
            continue
        one, other = if_true.get(name), if_false.get(name)
        bits = width(one) if one is not None else width(if_false[name])
        if one is None or (other is not None and width(one) != width(other)):
            one = poison(bits) if other is None else poison(width(other))
            bits = width(one)
        if other is None:
            other = poison(bits)
        found[name] = machine.domain.select(predicate, one, other)
    return found


def _different(left: Mapping[str, Value], right: Mapping[str, Value]) -> list[str]:
    """Return the names whose values are not the same object in both, those of `right` first, each in its order."""
    if all(map(is_, left, right)):
        # The names of one are the first ones of the other.
        longer = right if len(right) > len(left) else left
        own = islice(longer, min(len(left), len(right)), None)
        return [*compress(right, map(is_not, left.values(), right.values())), *own]
    return [name for name in {**right, **left} if left.get(name) is not right.get(name)]


@dataclass(frozen=True, slots=True)
class BlockSide:
    """The state of the blocks before a branch, or after one of its sides."""

    shared: SharedMemory
    races: RaceDetectors
    epoch: Epoch
    reads: AsynchronousReads
    extra: dict[str, Any]
    recorded: Recorded
    stores: Stores

    @staticmethod
    def before(machine: Machine) -> BlockSide:
        """Return the state before a branch, which `begin` copies."""
        return BlockSide._of(machine, Recorded.of(machine.memory), Stores())

    def begin(self, machine: Machine) -> None:
        """Set the machine to a copy of this state."""
        machine.shared, machine.races = self.shared.copy(), self.races.copy()
        machine.epoch, machine.asynchronous_reads = self.epoch, self.reads.copy()
        machine.extra = copied_alternatives(self.extra)

    def end(self, machine: Machine) -> BlockSide:
        """Return the state after a side that began with this state; its stores are taken out of global memory."""
        return BlockSide._of(machine, self.recorded, self.recorded.take(machine.memory))

    @staticmethod
    def _of(machine: Machine, recorded: Recorded, stores: Stores) -> BlockSide:
        reads, extra = machine.asynchronous_reads, machine.extra
        return BlockSide(machine.shared, machine.races, machine.epoch, reads, extra, recorded, stores)


def join_blocks(machine: Machine, predicate: Value, if_true: BlockSide, if_false: BlockSide) -> None:
    """Set the memories, the history of accesses and asynchronous work after both sides.  Raises Unsupported."""
    chosen = of_blocks(machine, predicate)
    known = _known_ways(machine, chosen)
    ways = Ways(*known, (if_true.shared, if_false.shared))
    # These raise where the sides leave no state that is described as one.
    reads = if_true.reads.joined(if_false.reads, ways)
    extra = joined_alternatives(if_true.extra, if_false.extra, ways)
    select = machine.domain.select
    machine.shared = if_true.shared.selected(if_false.shared, lambda one, other: select(chosen, one, other))
    machine.races = if_true.races.with_alternatives(if_false.races, ways)
    # An access after the join is ordered only after those before the barriers that both sides have passed.
    machine.epoch = earlier_epoch(if_true.epoch, if_false.epoch)
    join_stores(machine, chosen, if_true.stores, if_false.stores)
    machine.asynchronous_reads, machine.extra = reads, extra


def _known_ways(machine: Machine, predicate: Value) -> tuple[Array, Array]:
    """Return which blocks are known to take each side; `predicate` has one lane for each block."""
    vector = as_symbolic_vector(predicate)
    known = np.broadcast_to(np.asarray(L.constant_mask(vector)), (machine.blocks, 1))[:, 0]
    known = known & machine.active().any(axis=1)
    truth = np.broadcast_to(vector.words[0] != 0, (machine.blocks, 1))[:, 0]
    return known & truth, known & ~truth
