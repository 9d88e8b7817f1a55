"""The contents of tensor memory: columns that hold values, and what was written but is not in the columns yet."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bitwise_core.execution.alternatives import SharedByWays
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values.matrix_steps.matrix_chains import shape_of
from bitwise_core.execution.values.packing import blend_values, concat, extract
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import poison
from bitwise_nvidia_sm100.tensor_memory.column_values import (
    interleaved,
    of_lanes,
    replaced,
    side_by_side,
    stacked,
    unstacked,
)
from bitwise_nvidia_sm100.tensor_memory.places import COLUMNS, LANES, NAME, UNIT, are_among
from bitwise_nvidia_sm100.tensor_memory.register_columns import columns_of_registers


class Written(ABC):
    """What was written to `count` columns from `first` on and to `lanes` of the blocks in `blocks` (boolean).

    The columns do not hold it yet.
    """

    first: int
    count: int
    lanes: Array
    blocks: Array
    bits: int
    """Each value has this number of lower bits; the others are undefined."""

    @property
    def end(self) -> int:
        """The column after the last one."""
        return self.first + self.count

    @property
    @abstractmethod
    def results(self) -> SymbolicVector:
        """The values, with words of the shape (2, blocks, columns, lanes)."""

    @abstractmethod
    def settle(self, memory: TensorMemory) -> None:
        """Write the columns."""

    @abstractmethod
    def registers(self, lanes: Array, columns: Array, active: Array) -> Sequence[Value] | None:
        """Return what a load finds (see `loaded`), of places that all are among these; None if the columns have it."""

    @abstractmethod
    def elements(self, first: int, end: int, lanes: Array, bits: int) -> SymbolicVector | None:
        """Return the elements of some bits of columns from `first` to `end`, which are all among these, of some lanes.

        The words have the shape (2, blocks, elements, lanes), elements from low bits on.  None: the columns have them.
        """

    @abstractmethod
    def besides(self, first: int, end: int) -> Sequence[Written] | None:
        """Return what is written to other columns than those from `first` to `end`, or None if that is not known."""

    @abstractmethod
    def of_blocks(self, blocks: Array) -> Written:
        """Return what is written to these of its blocks."""

    def has_lanes(self, lanes: Array, blocks: Array) -> bool:
        """Return whether it has exactly these lanes, and all these blocks."""
        return np.array_equal(self.lanes, lanes) and not (blocks & ~self.blocks).any()

    def covers(self, first: int, end: int, lanes: Array, blocks: Array) -> bool:
        """Return whether all these places are among its own."""
        if not self.first <= first <= end <= self.end or (blocks & ~self.blocks).any():
            return False
        return are_among(lanes, self.lanes)


@dataclass(frozen=True, slots=True, eq=False)
class Accumulator(Written):
    """Results of multiplications.  The next multiplication into the same places starts from them."""

    first: int
    lanes: Array
    blocks: Array
    results: SymbolicVector

    @property
    def count(self) -> int:  # type: ignore[override]
        """The number of columns."""
        return shape_of(self.results)[2]

    @property
    def bits(self) -> int:  # type: ignore[override]
        """The width of a value."""
        return self.results.bits

    def settle(self, memory: TensorMemory) -> None:
        """See `Written`."""
        bits = self.bits
        before = [extract(memory.column(number), 0, bits) for number in range(self.first, self.end)]
        whole = replaced(stacked(before), self.results, self.lanes, self.blocks)
        for index, value in unstacked(whole).items():
            memory.columns[self.first + index] = value if bits == 32 else concat([value, poison(32 - bits)])

    def elements(self, first: int, end: int, lanes: Array, bits: int) -> SymbolicVector | None:
        """See `Written`: the columns have them."""
        return None

    def besides(self, first: int, end: int) -> Sequence[Written]:
        """See `Written`."""
        sides = [(self.first, first), (end, self.end)]
        return [
            Accumulator(low, self.lanes, self.blocks, _columns_of(self, low, high)) for low, high in sides if low < high
        ]

    def of_blocks(self, blocks: Array) -> Written:
        """See `Written`."""
        return replace(self, blocks=blocks)

    def registers(self, lanes: Array, columns: Array, active: Array) -> Sequence[Value] | None:
        """See `Written`."""
        if self.bits != 32:
            return None
        place = lanes
        if self.lanes.size < LANES:
            numbers = np.zeros(LANES, dtype=np.int64)
            numbers[self.lanes] = np.arange(self.lanes.size)
            place = numbers[np.where(active[:, None], lanes, 0)]
        index = np.where(active[:, None], (columns - self.first) * self.lanes.size + place, 0).T
        return list(unstacked(_elements(self.results, index)).values())


@dataclass(frozen=True, slots=True, eq=False)
class StoredRegisters(Written):
    """The registers of active threads, stored by one instruction: `values` to these lanes and columns (see `stored`).

    `source` has for each column and lane the place of its value among the threads of all registers.
    """

    first: int
    count: int
    lanes: Array
    blocks: Array
    values: Sequence[Value]
    lanes_of_threads: Array
    columns_of_threads: Array
    active: Array
    source: Array

    bits = 32

    @property
    def results(self) -> SymbolicVector:
        """See `Written`."""
        return _elements(stacked(self.values, len(self.active)), self.source)

    def settle(self, memory: TensorMemory) -> None:
        """See `Written`."""
        places = self.lanes_of_threads, self.columns_of_threads, self.active
        for number, content, covered in columns_of_registers(self.values, *places, packed=False):
            memory.put(number, content, self.blocks, covered)

    def elements(self, first: int, end: int, lanes: Array, bits: int) -> SymbolicVector | None:
        """See `Written`: of the registers that hold these columns."""
        threads = len(self.active)
        source = self.source[first - self.first : end - self.first, np.searchsorted(self.lanes, lanes)]
        registers, number = np.unique(source // threads, return_inverse=True)
        place = number.reshape(source.shape) * threads + source % threads
        held = [self.values[each] for each in registers.tolist()]
        parts = [
            _elements(stacked([extract(value, low, bits) for value in held], threads), place)
            for low in range(0, self.bits, bits)
        ]
        return interleaved(parts)

    def besides(self, first: int, end: int) -> Sequence[Written] | None:
        """See `Written`; not known where threads store one register inside, and others outside."""
        sides = [(low, high) for low, high in ((self.first, first), (end, self.end)) if low < high]
        own, found = self.columns_of_threads[self.active], []
        for low, high in sides:
            inside = (own >= low) & (own < high)
            chosen = inside[0]
            if (inside != chosen).any():
                return None
            found.append(self._of_registers(np.flatnonzero(chosen), low, high))
        return found

    def _of_registers(self, chosen: Array, first: int, end: int) -> Written:
        """Return what some registers hold, which are all those that are stored to columns from `first` to `end`."""
        threads, number = len(self.active), np.zeros(len(self.values), dtype=np.int64)
        number[chosen] = np.arange(chosen.size)
        source = self.source[first - self.first : end - self.first]
        return replace(
            self,
            first=first,
            count=end - first,
            values=[self.values[each] for each in chosen.tolist()],
            lanes_of_threads=self.lanes_of_threads[:, chosen],
            columns_of_threads=self.columns_of_threads[:, chosen],
            source=number[source // threads] * threads + source % threads,
        )

    def of_blocks(self, blocks: Array) -> Written:
        """See `Written`."""
        return replace(self, blocks=blocks)

    def registers(self, lanes: Array, columns: Array, active: Array) -> Sequence[Value] | None:
        """See `Written`: the values themselves, for the threads that stored them."""
        same = np.array_equal(lanes, self.lanes_of_threads) and np.array_equal(columns, self.columns_of_threads)
        return self.values if same and np.array_equal(active, self.active) else None


def _elements(value: SymbolicVector, index: Array) -> SymbolicVector:
    """Return elements of a value with words (2, blocks, m, n), by their places among all m * n."""
    flat = index.reshape(-1)
    first = int(flat[0])
    chosen: Array | slice = flat
    if int(flat[-1]) == first + flat.size - 1 and np.array_equal(flat, np.arange(first, first + flat.size)):
        chosen = slice(first, first + flat.size)
    blocks, extents = value.words.shape[1], value.words.shape[2:]
    words = value.words.reshape(2, blocks, -1)[:, :, chosen].reshape(2, blocks, *index.shape)
    flags = value.flags
    if not isinstance(flags, int):
        rows = len(flags)
        flags = np.broadcast_to(flags, (rows, *extents)).reshape(rows, -1)[:, chosen].reshape(rows, *index.shape)
    return SymbolicVector(value.bits, words, flags)


@dataclass(slots=True)
class TensorMemory(SharedByWays):
    """The tensor memory of a batch of blocks.  No way of a branch on data changes it: that is refused there.

    What is in `written` was written after `columns`, which holds the content of each column, a value of 32 bits in the
    shape (1 or blocks, 1 or lanes); what nothing has written is undefined.  No two of `written` share a lane of a
    column of a block.  `allocations` holds, for each block and unit, 1 + the first column of the allocation that it
    belongs to, 0 if it is free.  `permitted`: which blocks may still allocate.
    """

    allocations: Array
    permitted: Array
    columns: dict[int, Value] = field(default_factory=dict)
    written: list[Written] = field(default_factory=list)

    def column(self, number: int) -> Value:
        """Return the content of a column."""
        self._settle(number, number + 1)
        found = self.columns.get(number)
        return poison(32) if found is None else found

    def results_at(self, first: int, count: int, lanes: Array, blocks: Array, bits: int) -> SymbolicVector:
        """Return the content of lanes of columns from `first` on, of which each value has the lower `bits` bits.

        Blocks other than those in `blocks` may hold anything in it.  Its words have the shape (2, blocks, columns,
        lanes).
        """
        end = first + count
        near = sorted(self._near(first, end, blocks, lanes), key=lambda each: each.first)
        if near and all(each.bits == bits and each.has_lanes(lanes, blocks) for each in near):
            one = near[0]
            if len(near) == 1 and (one.first, one.end) == (first, end):
                return one.results
            ends = [first, *(min(each.end, end) for each in near)]
            if ends[-1] == end and all(each.first <= start for each, start in zip(near, ends[:-1], strict=True)):
                return side_by_side([_columns_of(each, start, end) for each, start in zip(near, ends, strict=False)])
        contents = [extract(self.column(number), 0, bits) for number in range(first, end)]
        return of_lanes(stacked(contents), lanes)

    def elements_at(self, first: int, count: int, lanes: Array, blocks: Array, bits: int) -> SymbolicVector:
        """Return the elements of some bits of `count` columns, in these lanes.

        Blocks other than those in `blocks` may hold anything in it.  The words have the shape (2, blocks, elements,
        lanes), where the elements of a column follow each other from its low bits on.
        """
        near = self._near(first, first + count, blocks, lanes)
        if len(near) == 1 and near[0].covers(first, first + count, lanes, blocks):
            found = near[0].elements(first, first + count, lanes, bits)
            if found is not None:
                return found
        parts = [
            extract(self.column(number), low, bits)
            for number in range(first, first + count)
            for low in range(0, 32, bits)
        ]
        return of_lanes(stacked(parts), lanes)

    def registers_at(self, lanes: Array, columns: Array, active: Array, rows: Array) -> Sequence[Value] | None:
        """Return what a load of these blocks finds (see `loaded`), or None if the columns have it."""
        own = columns[active]
        first, end = int(own.min()), int(own.max()) + 1
        near = self._near(first, end, rows, lanes[active])
        if len(near) != 1 or not near[0].covers(first, end, lanes[active], rows):
            return None
        return near[0].registers(lanes, columns, active)

    def hold(self, written: Written) -> None:
        """Write the results of a multiplication, or registers."""
        self._overwrite(written.first, written.end, written.lanes, written.blocks)
        self.written.append(written)

    def _overwrite(self, first: int, end: int, lanes: Array, blocks: Array) -> None:
        """Forget what is written to these places of columns from `first` to `end`, which gets another content.

        What is written there and to other places, and cannot be separated from them, is written to the columns.
        """
        kept: list[Written] = []
        for each in self._near(first, end, blocks, lanes):
            low, high = max(each.first, first), min(each.end, end)
            rest: Sequence[Written] | None = None
            if are_among(each.lanes, lanes):
                rest = each.besides(low, high)
                others = each.blocks & ~blocks
                if others.any():
                    rest = None if rest is None or rest else [each.of_blocks(others)]
            self.written = [other for other in self.written if other is not each]
            if rest is None:
                each.settle(self)
            else:
                kept += rest
        self.written += kept

    def _near(self, first: int, end: int, blocks: Array | None = None, lanes: Array | None = None) -> list[Written]:
        """Return what is written to some of these columns, of some of these blocks and lanes (None: of any)."""
        return [
            each
            for each in self.written
            if each.first < end
            and first < each.end
            and (blocks is None or (each.blocks & blocks).any())
            and (lanes is None or each.lanes.size == LANES or lanes.size == LANES or np.isin(lanes, each.lanes).any())
        ]

    def _settle(self, first: int, end: int) -> None:
        """Write what is not written yet, and has places in columns from `first` to `end`, to the columns."""
        near = self._near(first, end)
        if near:
            self.written = [each for each in self.written if each not in near]
            for each in near:
                each.settle(self)

    def allocate(self, count: int, rows: Array) -> Array:
        """Allocate columns in each of these blocks (a boolean array).  Return their first columns, shape (blocks, 1).

        Raises Unsupported if there is no room, or a block has given up its permit.
        """
        if not UNIT <= count <= COLUMNS or count & (count - 1):
            raise Unsupported(
                f"{count} columns of tensor memory cannot be allocated: a power of two from 32 to 512 can"
            )
        if not self.permitted[rows].all():
            raise Unsupported("tensor memory is allocated after the block has given up its permit to allocate")
        units, first = count // UNIT, np.zeros((len(rows), 1), dtype=np.uint32)
        for row in np.flatnonzero(rows).tolist():
            free = self.allocations[row] == 0
            place = next((at for at in range(free.size - units + 1) if free[at : at + units].all()), None)
            if place is None:
                raise Unsupported("a block allocates more tensor memory than there is, and waits forever")
            self.allocations[row, place : place + units] = 1 + place * UNIT
            first[row] = place * UNIT
        return first

    def release(self, first: int, count: int, rows: Array) -> None:
        """Release an allocation of these blocks; its content is undefined afterwards.  Raises Unsupported."""
        units = (self.allocations[rows] == 1 + first).sum(axis=1)
        if first % UNIT or count % UNIT or (units != count // UNIT).any() or not count:
            raise Unsupported("tensor memory is released that was not allocated in this size")
        self.allocations[np.ix_(rows, np.arange(first // UNIT, (first + count) // UNIT))] = 0
        self._overwrite(first, first + count, np.arange(LANES), rows)
        for number in range(first, first + count):
            if number in self.columns:
                self._put(number, poison(32), rows)

    def require_allocated(self, columns: Array, rows: Array) -> None:
        """Raise Unsupported for a column that one of these blocks has not allocated."""
        if columns.min() < 0 or columns.max() >= COLUMNS:
            raise Unsupported("an access lies outside tensor memory")
        used = np.zeros(COLUMNS // UNIT, dtype=bool)
        used[columns // UNIT] = True
        if not self.allocations[np.ix_(rows, used)].all():
            raise Unsupported("an access to tensor memory lies outside of what the block has allocated")

    def put(self, number: int, value: Value, rows: Array, lanes: Array | None = None) -> None:
        """Replace the content of these lanes (None: all) of a column in these blocks."""
        self._settle(number, number + 1)
        self._put(number, value, rows, lanes)

    def _put(self, number: int, value: Value, rows: Array, lanes: Array | None = None) -> None:
        places = rows[:, None] if lanes is None else rows[:, None] & lanes[None]
        self.columns[number] = value if places.all() else blend_values(places, value, self.column(number))


_DOMAINS = frozenset({"terms", "bits", "addresses"})
"""The domains in which a launch is executed instruction by instruction."""


def tensor_memory(machine: Machine) -> TensorMemory:
    """Return the tensor memory of a machine's batch.  Raises Unsupported in an analysis for every launch.

    Such an analysis summarises loops, and knows nothing of this memory.
    """
    if machine.domain.name not in _DOMAINS:
        raise Unsupported("tensor memory is followed for a given launch only")
    found: TensorMemory | None = machine.extra.get(NAME)
    if found is None:
        units = np.zeros((machine.blocks, COLUMNS // UNIT), dtype=np.int64)
        found = machine.extra[NAME] = TensorMemory(units, np.ones(machine.blocks, dtype=bool))
    return found


def _columns_of(written: Written, first: int, end: int) -> SymbolicVector:
    """Return the results of the columns from `first` to `end` that it has."""
    low, high = first - written.first, min(end, written.end) - written.first
    whole = written.results
    flags = whole.flags if isinstance(whole.flags, int) else whole.flags[:, low:high]
    return SymbolicVector(whole.bits, whole.words[:, :, low:high], flags)
