"""Tensor memory: 512 columns of 128 lanes of 32 bits for each block, and the layouts of its loads and stores.

Source: PTX ISA 8.8, "Tensor Memory" and "Data Movement Shape".
An address holds the lane in its upper and the column in its lower 16 bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.lane_selection import take_threads
from bitwise_core.execution.values.matrix_chains import shape_of
from bitwise_core.execution.values.packing import as_symbolic_vector, blend_values, concat, extract
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value
from bitwise_core.execution.values.term_hash import poison

LANES, COLUMNS = 128, 512
UNIT = 32
"""Columns are allocated in units of this number."""
_GROUP = 16
"""The detector of races distinguishes groups of this number of lanes: no access takes a part of one."""
NAME = "tensor memory"
PIPELINE, LOADS, STORES, ALLOCATION = range(1, 5)
"""The agents: the pipeline of a thread, and the loads, the stores and the allocations of a warp."""
QUARTER = 32
"""The number of lanes that one warp of four accesses."""


def are_among(lanes: Array, others: Array) -> bool:
    """Return whether all of some lanes are among others."""
    return others.size == LANES or np.array_equal(lanes, others) or bool(np.isin(lanes, others).all())


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
        """Return what a load finds (see `loaded`), of places that all are among these; None: the columns tell it."""

    @abstractmethod
    def elements(self, first: int, end: int, lanes: Array, bits: int) -> SymbolicVector | None:
        """Return the elements of some bits of columns from `first` to `end`, which are all among these, of some lanes.

        The words have the shape (2, blocks, elements, lanes), elements from low bits on.  None: the columns tell it.
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
        """See `Written`: the columns tell it."""
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
        store_columns(memory, self.values, *places, packed=False, rows=self.blocks)

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
        return _interleaved(parts)

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
class TensorMemory:
    """The tensor memory of a batch of blocks.

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
                return _side_by_side([_columns_of(each, start, end) for each, start in zip(near, ends, strict=False)])
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
        """Return what a load of these blocks finds (see `loaded`), or None if the columns have to tell it."""
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

        What is written there to other places too, and cannot be told from it, is written to the columns.
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


def race_cells(lanes: Array, columns: Array) -> Array:
    """Return the cells of the race detector that hold these places of tensor memory."""
    present = np.zeros(COLUMNS * (LANES // _GROUP), dtype=bool)
    present[columns * (LANES // _GROUP) + lanes // _GROUP] = True
    return np.flatnonzero(present)


@lru_cache(maxsize=256)
def fragment(shape: str, count: int, packed: bool) -> tuple[Array, Array] | None:
    """Return the lanes and columns, from the address on, that registers stand for, each of shape (32, registers).

    `count` is the number after x in the opcode.  `packed`: a register stands for the low halves of two columns, of
    which the first is given.  None: the ISA has no such shape.  In the shape 16x32bx2, threads from 16 on access the
    same places from a second address on.
    """
    if count & (count - 1) or not 1 <= count <= 128:
        return None
    thread = np.arange(32, dtype=np.int64)[:, None]
    quad, within = thread // 4, thread % 4
    if shape == "32x32b":
        register = np.arange(count, dtype=np.int64)[None]
        lanes, columns = thread + 0 * register, register + 0 * thread
    elif shape == "16x32bx2":
        register = np.arange(count, dtype=np.int64)[None]
        lanes, columns = thread % 16 + 0 * register, register + 0 * thread
    elif shape == "16x64b":
        register = np.arange(count, dtype=np.int64)[None]
        lanes, columns = quad + 8 * (thread % 2) + 0 * register, 2 * register + thread // 2 % 2
    elif shape == "16x128b" and count <= 64:
        register = np.arange(2 * count, dtype=np.int64)[None]
        lanes, columns = quad + 8 * (register % 2), 4 * (register // 2) + within
    elif shape == "16x256b" and count <= 32:
        register = np.arange(4 * count, dtype=np.int64)[None]
        lanes, columns = quad + 8 * (register // 2 % 2), 8 * (register // 4) + 2 * within + register % 2
    else:
        return None
    return lanes, columns * 2 if packed else columns


def loaded(
    memory: TensorMemory, lanes: Array, columns: Array, active: Array, packed: bool, rows: Array
) -> Sequence[Value]:
    """Return the registers, of all threads, that a load of these blocks fills from each active thread's places.

    `lanes` and `columns` have the shape (threads, registers), `active` the shape (threads,).
    """
    whole = None if packed else memory.registers_at(lanes, columns, active, rows)
    if whole is not None:
        return whole
    found = []
    index = np.where(active[:, None], lanes, 0)
    numbers, in_place = _numbers(columns, active), _in_place(index)
    for register in range(lanes.shape[1]):
        value: Value | None = None
        for number in numbers[register]:
            content = memory.column(number)
            if packed:
                content = concat([extract(content, 0, 16), extract(memory.column(number + 1), 0, 16)])
            content = content if in_place[register] else take_threads(content, index[None, :, register])
            chosen = columns[:, register] == number
            value = content if value is None else blend_values(chosen[None], content, value)
        assert value is not None
        found.append(value)
    return found


def _numbers(columns: Array, active: Array) -> list[list[int]]:
    """Return the numbers of the columns that active threads access, for each register, in ascending order."""
    own = columns[active]
    alike = (own == own[:1]).all(axis=0).tolist()
    return [
        [first] if one else np.unique(own[:, register]).tolist()
        for register, (first, one) in enumerate(zip(own[0].tolist(), alike, strict=True))
    ]


def _in_place(lanes: Array) -> list[bool]:
    """Return for each register whether thread t accesses lane t, for all lanes."""
    if lanes.shape[0] != LANES:
        return [False] * lanes.shape[1]
    found: list[bool] = (lanes == _identity(LANES)[:, None]).all(axis=0).tolist()
    return found


_EVERY_LANE = np.ones(LANES, dtype=bool)


def stored(
    memory: TensorMemory,
    values: Sequence[Value],
    lanes: Array,
    columns: Array,
    active: Array,
    packed: bool,
    rows: Array,
) -> None:
    """Store the registers of each active thread at these lanes and columns in these blocks; see `loaded`."""
    if not packed:
        own = columns[active]
        first, count = int(own.min()), int(own.max()) + 1 - int(own.min())
        source = np.full((count, LANES), -1)
        # A later register, and a later thread of one register, is written last.
        number = np.arange(columns.size).reshape(columns.shape[::-1]).T
        source[own.T - first, lanes[active].T] = number[active].T
        chosen = np.flatnonzero((source >= 0).any(axis=0))
        if (source[:, chosen] >= 0).all():
            places = lanes, columns, active
            memory.hold(StoredRegisters(first, count, chosen, rows, values, *places, source[:, chosen]))
            return
    store_columns(memory, values, lanes, columns, active, packed=packed, rows=rows)


def store_columns(
    memory: TensorMemory,
    values: Sequence[Value],
    lanes: Array,
    columns: Array,
    active: Array,
    *,
    packed: bool,
    rows: Array,
) -> None:
    """See `stored`: to one column after the other."""
    threads = lanes.shape[0]
    contents: dict[int, Value] = {}
    covered: dict[int, Array] = {}
    """The lanes of each column that are written."""
    numbers = _numbers(columns, active)
    in_place = _in_place(lanes) if active.all() else [False] * len(values)
    for register, value in enumerate(values):
        for number in numbers[register]:
            parts = (
                {
                    number: concat([extract(value, 0, 16), poison(16)]),
                    number + 1: concat([extract(value, 16, 16), poison(16)]),
                }
                if packed
                else {number: value}
            )
            if in_place[register] and len(numbers[register]) == 1:
                contents |= parts
                covered.update(dict.fromkeys(parts, _EVERY_LANE))
                continue
            chosen = np.flatnonzero(active & (columns[:, register] == number))
            index, written = np.zeros(LANES, dtype=np.int64), np.zeros(LANES, dtype=bool)
            index[lanes[chosen, register]] = chosen
            written[lanes[chosen, register]] = True
            for place, part in parts.items():
                content = moved(part, index, threads)
                before = covered.get(place)
                if before is not None:
                    content = blend_values(written[None], content, contents[place])
                covered[place] = written if before is None else before | written
                contents[place] = content
    for place, content in contents.items():
        memory.put(place, content, rows, covered[place])


def same_of_threads(values: Sequence[Value], some: Array, others: Array) -> bool:
    """Return whether these values are equal between some threads and others, in every block."""
    for value in values:
        vector = as_symbolic_vector(value)
        parts = [vector.words] if isinstance(vector.flags, int) else [vector.words, vector.flags]
        for part in parts:
            if part.shape[-1] > 1 and not np.array_equal(part[..., some], part[..., others]):
                return False
    return True


def moved(value: Value, index: Array, size: int) -> Value:
    """Return `take_threads` of a value of `size` threads or lanes, the value itself where nothing moves."""
    if index.size == size and np.array_equal(index, _identity(size)):
        return value
    return take_threads(value, index[None])


@lru_cache(maxsize=16)
def _identity(size: int) -> Array:
    return np.arange(size)


def stacked(values: Sequence[Value], lanes: int = LANES) -> SymbolicVector:
    """Return columns, or registers of threads, as one value with words of the shape (2, blocks, columns, lanes)."""
    whole = _whole_of(values, lanes)
    if whole is not None:
        return whole
    vectors = [as_symbolic_vector(value) for value in values]
    blocks = max(_blocks(each) for each in vectors)
    words = np.empty((2, blocks, len(vectors), lanes), dtype=np.uint64)
    for index, each in enumerate(vectors):
        words[:, :, index] = each.words
    first = vectors[0].flags
    if all(isinstance(each.flags, int) and each.flags == first for each in vectors):
        return SymbolicVector(vectors[0].bits, words, first)
    flags = np.empty((blocks, len(vectors), lanes), dtype=np.uint32)
    for index, each in enumerate(vectors):
        flags[:, index] = each.flags
    return SymbolicVector(vectors[0].bits, words, flags)


def _blocks(value: SymbolicVector) -> int:
    own: int = value.words.shape[1]
    return own if isinstance(value.flags, int) else max(own, value.flags.shape[0])


def _whole_of(values: Sequence[Value], lanes: int) -> SymbolicVector | None:
    """Return the value of which these are all elements in order, None if there is none."""
    bundles = [value.bundle if isinstance(value, SymbolicVector) else None for value in values]
    first = bundles[0]
    if first is None or first[0].words.shape[2] != len(values) or first[0].words.shape[3] != lanes:
        return None
    whole = first[0]
    alike = all(each is not None and each[0] is whole and each[1] == index for index, each in enumerate(bundles))
    return whole if alike else None


def _columns_of(written: Written, first: int, end: int) -> SymbolicVector:
    """Return the results of the columns from `first` to `end` that it has."""
    low, high = first - written.first, min(end, written.end) - written.first
    whole = written.results
    flags = whole.flags if isinstance(whole.flags, int) else whole.flags[:, low:high]
    return SymbolicVector(whole.bits, whole.words[:, :, low:high], flags)


def _side_by_side(parts: Sequence[SymbolicVector]) -> SymbolicVector:
    """Return columns of the same lanes one after the other, with words (2, blocks, columns, lanes)."""
    if len(parts) == 1:
        return parts[0]
    blocks, lanes = max(_blocks(each) for each in parts), parts[0].words.shape[3]
    words = np.concatenate(
        [np.broadcast_to(each.words, (2, blocks, each.words.shape[2], lanes)) for each in parts], axis=2
    )
    first = parts[0].flags
    if all(isinstance(each.flags, int) and each.flags == first for each in parts):
        return SymbolicVector(parts[0].bits, words, first)
    spread = [np.broadcast_to(np.uint32(each.flags), (blocks, *each.words.shape[2:])) for each in parts]
    return SymbolicVector(parts[0].bits, words, np.concatenate(spread, axis=1))


def _interleaved(parts: Sequence[SymbolicVector]) -> SymbolicVector:
    """Return the first column of each part, then the second one of each, and so on; see `_side_by_side`."""
    columns = parts[0].words.shape[2]
    if len(parts) == 1:
        return parts[0]
    whole = _side_by_side(parts)
    order = np.arange(len(parts) * columns).reshape(len(parts), columns).T.reshape(-1)
    flags = whole.flags if isinstance(whole.flags, int) else whole.flags[:, order]
    return SymbolicVector(whole.bits, whole.words[:, :, order], flags)


def unstacked(value: SymbolicVector) -> Mapping[int, SymbolicVector]:
    """Return the columns of a value with words of the shape (2, blocks, columns, lanes), by number."""
    found = {}
    for index in range(value.words.shape[2]):
        flags = value.flags if isinstance(value.flags, int) else L.uniform_flags(value.flags[:, index])
        each = SymbolicVector(value.bits, value.words[:, :, index], flags)
        each.bundle = (value, index)
        found[index] = each
    return found


def first_copies(parts: Sequence[Value], rows: int) -> SymbolicVector:
    """Return the lanes of the first quarter of columns, one column after another, with words (2, blocks, rows).

    Raises Unsupported unless each quarter of the lanes holds the same values in the lanes that rows use.
    """
    whole = stacked(parts)
    blocks, count = whole.words.shape[1:3]
    quarters = LANES // QUARTER
    words = whole.words.reshape(2, blocks, count, quarters, QUARTER)
    used = np.arange(count * QUARTER).reshape(count, QUARTER) < rows
    differ = ((words != words[..., :1, :]).any(axis=(0, 3)) & used).any()
    flags = whole.flags
    if not isinstance(flags, int):
        split = np.broadcast_to(flags, (flags.shape[0], count, LANES)).reshape(-1, count, quarters, QUARTER)
        differ |= ((split != split[..., :1, :]).any(axis=2) & used).any()
        flags = split[..., 0, :].reshape(-1, count * QUARTER)[:, :rows]
    if differ:
        raise Unsupported("the quarters of the lanes of tensor memory do not hold the same scales")
    chosen = words[..., 0, :].reshape(2, blocks, count * QUARTER)[..., :rows]
    return SymbolicVector(whole.bits, chosen, flags if isinstance(flags, int) else L.uniform_flags(flags))


def of_both_blocks(half: SymbolicVector, blocks: int) -> SymbolicVector:
    """Return rows of words (2, blocks, rows, k): those of the even block of each pair, then those of the odd one."""
    even = np.arange(blocks) // 2 * 2
    words = np.broadcast_to(half.words, (2, blocks, *half.words.shape[2:]))
    flags = half.flags
    if not isinstance(flags, int):
        whole = np.broadcast_to(flags, (blocks, *half.words.shape[2:]))
        flags = np.concatenate([whole[even], whole[even + 1]], axis=1)
    return SymbolicVector(half.bits, np.concatenate([words[:, even], words[:, even + 1]], axis=2), flags)


def differ_in_pairs(value: SymbolicVector, blocks: Array) -> bool:
    """Return whether the two blocks of a pair, of those in a boolean array, hold different words or flags."""
    parts = [value.words] if isinstance(value.flags, int) else [value.words, value.flags[None]]
    pairs = blocks[::2]
    return any(part.shape[1] > 1 and (part[:, ::2] != part[:, 1::2])[:, pairs].any() for part in parts)


def joined_vectors(vectors: SymbolicVector, more: Sequence[SymbolicVector]) -> SymbolicVector:
    """Return vectors of words (2, blocks, rows, k) with further elements of words (2, blocks, rows) at their ends."""
    parts = [vectors, *(_widened(each) for each in more)]
    rows = vectors.words.shape[2]
    blocks = max(_blocks(each) for each in parts)
    words = np.concatenate(
        [np.broadcast_to(each.words, (2, blocks, rows, each.words.shape[3])) for each in parts], axis=3
    )
    if all(isinstance(each.flags, int) and each.flags == vectors.flags for each in parts):
        return SymbolicVector(vectors.bits, words, vectors.flags)
    flags = np.concatenate(
        [np.broadcast_to(np.asarray(each.flags, dtype=np.uint32), (blocks, *each.words.shape[2:])) for each in parts],
        axis=2,
    )
    return SymbolicVector(vectors.bits, words, flags)


def _widened(value: SymbolicVector) -> SymbolicVector:
    flags = value.flags if isinstance(value.flags, int) else value.flags[..., None]
    return SymbolicVector(value.bits, value.words[..., None], flags)


def of_lanes(value: SymbolicVector, lanes: Array) -> SymbolicVector:
    """Return some lanes of a value with words of the shape (2, blocks, columns, lanes)."""
    if lanes.size == LANES:
        return value
    flags = value.flags if isinstance(value.flags, int) else value.flags[..., lanes]
    return SymbolicVector(value.bits, value.words[..., lanes], flags)


def replaced(whole: SymbolicVector, new: SymbolicVector, lanes: Array, blocks: Array) -> SymbolicVector:
    """Return a value of all lanes in which some lanes of some blocks are replaced."""
    count, rows = whole.words.shape[2], max(whole.words.shape[1], new.words.shape[1])
    shape = (rows, count, lanes.size)
    words = np.broadcast_to(new.words, (2, *shape))
    flags = new.flags if isinstance(new.flags, int) else np.broadcast_to(new.flags, shape)
    if lanes.size == LANES and blocks.all():
        return SymbolicVector(new.bits, words, flags)
    rows = rows if blocks.all() else len(blocks)
    full = (rows, count, LANES)
    chosen = np.zeros((rows, LANES), dtype=bool)
    chosen[np.ix_(np.ones(rows, dtype=bool) if blocks.all() else blocks, lanes)] = True
    spread = np.zeros(LANES, dtype=np.int64)
    spread[lanes] = np.arange(lanes.size)
    moved = SymbolicVector(
        new.bits,
        np.broadcast_to(words[..., spread], (2, *full)),
        flags if isinstance(flags, int) else flags[..., spread],
    )
    found = L.blend(
        np.broadcast_to(chosen[:, None], full),
        moved,
        SymbolicVector(whole.bits, np.broadcast_to(whole.words, (2, *full)), whole.flags),
    )
    return found
