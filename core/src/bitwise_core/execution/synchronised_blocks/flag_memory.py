"""Global memory of a run in which one thread of one block at a time accesses flags.  All their contents are kept."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from bitwise_core.execution.active_lanes import active_lanes, active_values
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.memory.global_memory import Change
from bitwise_core.execution.races.epochs import Epoch, epoch_of_all
from bitwise_core.execution.synchronised_blocks.cell_memory import CellMemory
from bitwise_core.execution.thread_numbers import block_of
from bitwise_core.execution.values.symbolic_vector import Array, Value, width
from bitwise_core.numerics import Operation

Content = TypeVar("Content")


@dataclass(frozen=True, slots=True, eq=False)
class FlagWrite(Generic[Content]):
    """A content of a flag: the block that wrote it (-1: the content before the launch), and its access's number there.

    `released` is what a thread knows that acquires it: by block, the number of its last known access; None: nothing.
    """

    content: Content
    block: int
    number: int
    thread: int = 0
    epoch: int = 0
    line: int = 0
    released: Array | None = None

    def is_known(self, block: int, knows: Array) -> bool:
        """Return whether an access of a block comes after this write in every order, by what its thread knows."""
        return self.block in (-1, block) or bool(knows[self.block] >= self.number)


@dataclass(slots=True, eq=False)
class Flag(Generic[Content]):
    """A flag of `bits` bits, with its contents in their order."""

    bits: int
    writes: list[FlagWrite[Content]]

    def last_known(self, block: int, knows: Array) -> int:
        """Return the place of the last write that an access of a block knows."""
        return max(place for place, each in enumerate(self.writes) if each.is_known(block, knows))

    def knows_all(self, block: int, knows: Array) -> bool:
        """Return whether an access of a block knows all writes."""
        return all(each.is_known(block, knows) for each in self.writes)


@dataclass(frozen=True, slots=True, eq=False)
class FlagAccess:
    """An access to the flag at address `place`, by one thread of a block, in the one lane of `lane` that is set."""

    machine: Machine
    place: int
    lane: Array
    block: int
    thread: int
    epoch: int
    line: int


AnyFlag = TypeVar("AnyFlag", bound=Flag[Any])


class FlagMemory(CellMemory[AnyFlag]):
    """Global memory in which accesses of the given lines synchronise, if one thread of all blocks executes them."""

    cell_name: ClassVar[str] = "flag"

    def store(self, address: Array, value: Value, mask: Array | None, thread: Array, epoch: Epoch, line: int) -> None:
        """See `GlobalMemory.store`."""
        if self._synchronises(address, mask, thread, line):
            self._synchronise(lambda old: value, address, width(value), mask, thread, epoch_of_all(epoch), line)
            return
        super().store(address, value, mask, thread, epoch, line)

    def _synchronises(
        self, address: Array, mask: Array | None, thread: Array, line: int, operation: Operation | None = None
    ) -> bool:
        """See `SynchronisedMemory`: accesses of integers that one thread executes, on certain lines."""
        if line not in self.lines or (operation is not None and operation.is_float):
            return False
        return not self._inside_atomic and int(active_lanes(mask, address, thread).sum()) == 1

    def _synchronise(
        self, change: Change, address: Array, bits: int, mask: Array | None, thread: Array, epoch: int, line: int
    ) -> Value:
        """See `SynchronisedMemory`: one lane accesses a flag."""
        machine = self._unconditional_machine(line)
        if machine.blocks != 1:
            raise Unsupported("several blocks may synchronise at once", line)
        lane = active_lanes(mask, address, thread)
        place, who = int(active_values(address, lane)[0]), int(active_values(thread, lane)[0])
        block = block_of(who)
        self._knowledge.enter(block, who, epoch, line)
        cell = self._cell(place, bits, line)
        return self._access(cell, change, FlagAccess(machine, place, lane, block, who, epoch, line))

    @abstractmethod
    def _access(self, flag: AnyFlag, change: Change, access: FlagAccess) -> Value:
        """Change a flag.  Return its content before.  Raises Unsupported."""

    @abstractmethod
    def run_blocks(self, executions: Sequence[Callable[[], None]]) -> None:
        """Execute blocks, each by a function.  Raises Unsupported where an order of blocks may leave other contents."""

    @abstractmethod
    def store_cells(self) -> None:
        """Record the contents that the cells hold after the last block."""
