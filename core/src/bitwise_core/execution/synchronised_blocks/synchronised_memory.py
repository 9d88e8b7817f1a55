"""Global memory of a run in which accesses of some lines synchronise blocks through cells that hold numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bitwise_core.execution.active_lanes import active_lanes, active_values
from bitwise_core.execution.domains.domain import Domain, Unsupported
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.memory.given_contents import GivenContents
from bitwise_core.execution.memory.global_memory import Change, GlobalMemory
from bitwise_core.execution.memory.store_forwarding import Access, LoadRaces, StoredRows, forward_stores
from bitwise_core.execution.races.epochs import Epoch, epoch_of_all
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector
from bitwise_core.execution.values.symbolic_vector import Array, Value, width
from bitwise_core.numerics import Operation


@dataclass(frozen=True, slots=True)
class Synchronisation:
    """What the access of a line does: see `InstructionInfo`."""

    acquires: bool
    releases: bool


@dataclass(frozen=True, slots=True)
class SynchronisingCode:
    """The number of blocks of a launch, the lines whose accesses synchronise them, and those that none orders."""

    blocks: int
    lines: Mapping[int, Synchronisation]
    unordered: frozenset[int]


class SynchronisedMemory(GlobalMemory, ABC):
    """Global memory in which some accesses synchronise blocks: each reads or changes a cell, whose content is a number.

    A subclass decides which accesses synchronise (`_synchronises`) and what they do (`_synchronise`), and sets
    `block_order` to the order that they give to all other accesses.  `unordered` are the lines of accesses to which no
    order applies.  `cells` are the widths in bits of the cells of an earlier run, by address; None while they are not
    known.  Then other accesses to them are not found, and the run proves nothing.  Raises Unsupported for cells that
    share bytes.

    `machine` is that of the current batch.
    """

    orders_blocks: ClassVar[bool] = True
    joins_conditions: ClassVar[bool] = False
    cell_name: ClassVar[str]
    """What a cell is, in messages."""

    def __init__(
        self, domain: Domain, given: GivenContents, unordered: frozenset[int], cells: Mapping[int, int] | None
    ) -> None:
        super().__init__(domain, given)
        self.machine: Machine | None = None
        self.unordered = unordered
        known = sorted((cells or {}).items())
        self._starts = np.array([place for place, _ in known], dtype=np.uint64)
        self._ends = self._starts + np.array([bits // 8 for _, bits in known], dtype=np.uint64)
        if (self._ends[:-1] > self._starts[1:]).any():
            raise Unsupported(f"{self.cell_name}s of different addresses share bytes")
        self._inside_atomic = False
        """Whether the accesses are those of an atomic operation that does not synchronise."""

    @abstractmethod
    def _synchronises(
        self, address: Array, mask: Array | None, thread: Array, line: int, operation: Operation | None = None
    ) -> bool:
        """Return whether an access synchronises; `operation` is that of `GlobalMemory.atomic`.  Raises Unsupported."""

    @abstractmethod
    def _synchronise(
        self, change: Change, address: Array, bits: int, mask: Array | None, thread: Array, epoch: int, line: int
    ) -> Value:
        """Change the cells of the active lanes.  Return their contents before.  Raises Unsupported."""

    def _may_touch(self, thread: Array, first: Array, end: Array) -> bool:
        """Return whether threads may access cells without synchronisation: each those from `first` to `end`."""
        return False

    def load(self, address: Array, bits: int, mask: Array | None, thread: Array, epoch: Epoch, line: int) -> Value:
        """See `GlobalMemory.load`."""
        self._check_cells(address, bits, mask, thread, line)
        return super().load(address, bits, mask, thread, epoch, line)

    def store(self, address: Array, value: Value, mask: Array | None, thread: Array, epoch: Epoch, line: int) -> None:
        """See `GlobalMemory.store`."""
        if line in self.unordered:
            raise Unsupported(f"an asynchronous store is not ordered by {self.cell_name}s", line)
        self._check_cells(address, width(value), mask, thread, line)
        super().store(address, value, mask, thread, epoch, line)

    def forward(
        self, value: Value, stores: StoredRows, load: Access, active: Array
    ) -> tuple[Value, Sequence[LoadRaces]]:
        """See `GlobalMemory.forward`."""
        order = None if load.line in self.unordered else self.block_order
        return forward_stores(value, stores, load, active, self.domain.recorder, order=order)

    def atomic(
        self,
        operation: Operation,
        address: Array,
        value: Value,
        mask: Array | None,
        thread: Array,
        epoch: Epoch,
        line: int,
    ) -> None:
        """See `GlobalMemory.atomic`."""
        if not self._synchronises(address, mask, thread, line, operation):
            with self._other_atomic():
                super().atomic(operation, address, value, mask, thread, epoch, line)
            return
        if line in self._old_values:
            raise Unsupported("an atomic operation on several elements does not synchronise", line)
        change = self.change_by(operation, value)
        self._old_values[line] = [
            self._synchronise(change, address, width(value), mask, thread, epoch_of_all(epoch), line)
        ]

    def update(
        self, change: Change, address: Array, bits: int, mask: Array | None, thread: Array, epoch: Epoch, line: int
    ) -> Value:
        """See `GlobalMemory.update`."""
        if self._synchronises(address, mask, thread, line):
            return self._synchronise(change, address, bits, mask, thread, epoch_of_all(epoch), line)
        with self._other_atomic():
            return super().update(change, address, bits, mask, thread, epoch, line)

    def limit_scope(self, *arguments: object, **keywords: object) -> None:
        """See `GlobalMemory.limit_scope`: such an operation orders no blocks."""
        raise Unsupported(f"an atomic operation in the scope of a block in a launch with {self.cell_name}s")

    def contribute(self, *arguments: object, **keywords: object) -> None:
        """See `GlobalMemory.contribute`: not modelled in such a run."""
        raise Unsupported(f"an atomic operation at a computed address in a launch with {self.cell_name}s")

    @contextmanager
    def _other_atomic(self) -> Iterator[None]:
        outer, self._inside_atomic = self._inside_atomic, True
        try:
            yield
        finally:
            self._inside_atomic = outer

    def _unconditional_machine(self, line: int) -> Machine:
        """Return the machine.  Raises Unsupported if data decides whether the current instruction is executed."""
        if self.machine is None or self.machine.condition is not None or self.machine.path is not None:
            raise Unsupported(f"whether a {self.cell_name} is accessed depends on data", line)
        return self.machine

    def _initial_number(self, place: int, bits: int, line: int) -> int:
        """Return the content of a cell before the launch.  Raises Unsupported if it is not given."""
        address = np.array([[place]], dtype=np.uint64)
        found = as_symbolic_vector(self.initial(address, bits, None, self._buffers(address, None), line))
        if not np.all(L.constant_mask(found)):
            raise Unsupported(f"the content of a {self.cell_name} before the launch is not given", line)
        return int(found.words[0].flat[0])

    def _changed_number(self, change: Change, contents: Array, lane: Array, line: int) -> int:
        """Return the content of one lane's cell after a change.  Raises Unsupported if it depends on data."""
        after = as_symbolic_vector(change(contents))
        if not np.broadcast_to(np.asarray(L.constant_mask(after)), lane.shape)[lane].all():
            raise Unsupported(f"the content of a {self.cell_name} depends on data", line)
        return int(np.broadcast_to(after.words[0], lane.shape)[lane][0])

    def _store_number(self, place: int, content: int, bits: int, thread: int, epoch: int, line: int) -> None:
        """Record the store of a cell's content."""
        address = np.array([place], dtype=np.uint64)
        value = as_symbolic_vector(np.full((1, 1), content, dtype=L.UNSIGNED[bits]))
        access = Access(address, np.array([thread]), epoch, value, bits, line)
        self.stores.setdefault(int(self.buffer_of(address)[0]), []).append(access)

    def _check_cells(self, address: Array, bits: int, mask: Array | None, thread: Array, line: int) -> None:
        """Raise Unsupported if an access that does not synchronise touches a cell, unless `_may_touch` allows it."""
        if not self._starts.size:
            return
        active = active_lanes(mask, address, thread)
        where = active_values(address, active).astype(np.uint64, copy=False)
        first = np.searchsorted(self._ends, where, side="right")
        end = np.searchsorted(self._starts, where + np.uint64(bits // 8), side="left")
        near = end > first
        if near.any() and not self._may_touch(active_values(thread, active)[near], first[near], end[near]):
            raise Unsupported(f"a {self.cell_name} is accessed without synchronisation", line)
