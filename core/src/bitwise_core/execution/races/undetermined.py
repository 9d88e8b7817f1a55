"""Values that depend on the order in which threads run, and where that order decides.

An undetermined value is a term that is equal to no other: each has a number of its own in the process, and the flag
NONDETERMINISTIC, which every result inherits.  A run may continue with it, as long as nothing needs its number.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import count
from typing import Protocol, TypeAlias

import numpy as np

from bitwise_core.execution.domains.domain import DataDependent, Unsupported
from bitwise_core.execution.term_recorder import Recorder
from bitwise_core.execution.values import hashing
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.distinct import among_sorted, joined_sorted, sorted_distinct
from bitwise_core.execution.values.packing import blend_values, concat
from bitwise_core.execution.values.symbolic_vector import Array, SymbolicVector, Value, width

MAXIMUM_CAUSES = 256
"""The number of causes of a run that are kept."""


class Kind(StrEnum):
    """What makes a value depend on the order of threads, or undefined."""

    SUM = "float atomics with several contributors"
    ARRIVAL = "order of arrival"
    SHARED = "race on shared memory"
    PROXY = "missing proxy fence"
    AGENTS = "race of asynchronous work"
    GLOBAL = "race on global memory"
    BLOCKS = "read after another block's write"
    UNDEFINED = "undefined register or memory"


@dataclass(frozen=True, slots=True)
class Cause:
    """An access whose result no order of threads determines: a sentence, and the lines of the text.

    `other` is the line of the access with which it conflicts, None where it is not known.
    """

    kind: Kind
    reason: str
    line: int | None = None
    other: int | None = None

    def __str__(self) -> str:
        found = self.reason if self.line is None else f"{self.reason} at line {self.line}"
        return found if self.other is None or self.other == self.line else f"{found}, with line {self.other}"


class Nondeterministic(Unsupported):
    """The kernel's own result is not determined, so it is equal to no kernel, including itself.

    `causes` are the accesses that make it so.  `proved`: two orders of threads are known to return different values;
    otherwise it is only not proved that all orders return the same.
    """

    def __init__(
        self, reason: str, line: int | None = None, causes: tuple[Cause, ...] = (), *, proved: bool = False
    ) -> None:
        super().__init__(reason, line)
        self.causes, self.proved = causes, proved

    def occurred_at(self, line: int) -> None:
        """See `Unsupported.occurred_at`; the same of the causes."""
        super().occurred_at(line)
        self.causes = tuple(replace(each, line=line) if each.line is None else each for each in self.causes)


class Race(Nondeterministic):
    """Accesses of which at least one writes, by threads that no barrier orders."""


class Undetermined(Nondeterministic):
    """The analysis cannot continue, because it needs the number of an undetermined value."""


class ComputedStore(DataDependent):
    """A store at an address that depends on data; stores of several threads may meet at one element."""

    def __init__(self, line: int, address: Value) -> None:
        super().__init__("memory is written at a computed address", line, (address,))
        self.causes = (Cause(Kind.GLOBAL, MEETING_STORES, line),)


def by_arrival(cause: Cause, updates: Collection[int]) -> Cause:
    """Return a cause with the order of arrival in place of a race, where an access of it is an atomic operation.

    `updates` are the lines of such operations.
    """
    if cause.line not in updates and cause.other not in updates:
        return cause
    if cause.reason == STORE_RACE:
        return replace(cause, kind=Kind.ARRIVAL, reason=UPDATE_ORDER)
    return replace(cause, kind=Kind.ARRIVAL, reason=OLD_VALUE if cause.line in updates else AFTER_ATOMIC)


def race(kind: Kind, reason: str, line: int | None, other: int | None = None) -> Race:
    """Return the error of a race that ends an analysis."""
    return Race(reason, line, (Cause(kind, reason, line, other),))


READ_RACE = "a thread reads shared memory that another wrote with no barrier between (a race)"
OVERWRITE_RACE = "a thread overwrites shared memory that another reads with no barrier between (a race)"
OVERTAKEN_READ = (
    "an asynchronous copy may overtake a load of shared memory that it overwrites, since no proxy fence of the loading "
    "threads lies between (a race)"
)
UNFENCED_WRITE = "an asynchronous instruction reads shared memory that threads wrote with no proxy fence after it"
UNFENCED_COPY = (
    "an asynchronous instruction reads shared memory that threads copied to with no proxy fence after it (Triton 3.7.1 "
    "and later emit the fence; --assume proxies-together settles this)"
)
WRITE_RACE = "two threads write the same shared memory with no barrier between (a race)"
AGENT_RACE = "asynchronous work accesses {memory} before conflicting work on it is known to be complete (a race)"
UNTRACKED_COPIES = "a phase of a memory barrier may complete before it tracks the copies or bytes of a thread (a race)"
SAME_STEP_RACE = "threads write different values to one address of shared memory at once (a race)"
_SETTLED = (
    "(a race that --assume lowest-lane settles if no lane stores beside it or loads from it between the barriers "
    "around it)"
)
LANES_RACE = f"lanes of a warp write different values to one address of shared memory at once {_SETTLED}"
BESIDE_LANES_RACE = (
    "lanes of a warp write different values to one address at once, and one of them stores beside it or a lane loads "
    "from it before the next barrier (a race)"
)
OTHER_BLOCK = "a block reads global memory that another block of the launch writes"
OTHER_THREAD = "a thread reads global memory that another thread of the launch writes (a race)"
STORE_RACE = "two threads store different values at one address (a race)"
LANES_STORE_RACE = f"lanes of a warp store different values at one address at once {_SETTLED}"
OLD_VALUE = "an atomic operation returns a value that depends on the order of threads"
AFTER_ATOMIC = "global memory that the launch updates by atomic operations is read"
AFTER_CONDITION = "global memory is accessed to which several threads store under conditions on data (a race)"
NARROW_SCOPE = "blocks update an element by atomic operations of which one has the scope of its block (a race)"
UPDATE_ORDER = "atomic operations leave a content that depends on the order of threads"
MIXED_UPDATES = "an element receives both plain stores and atomic operations"
MEETING_STORES = "stores at addresses that depend on data may meet at one element"
BEYOND = "memory beyond the elements of a buffer is read"
BEYOND_STORE = "memory beyond the elements of a buffer is written"
WAITS = "memory that other threads may write decides how the kernel continues"
CHOSEN_UPDATES = "data decides whether threads add floating-point numbers to an element by atomic operations"
SUM_ORDER = "several threads add floating-point numbers to one element by atomic operations"

_NUMBERS = count(1)
"""Numbers of undetermined values: no two values of a process share one."""

_STRIDE = 1 << 32

Generation: TypeAlias = tuple[int, int]
"""A cell of shared memory and how often it had been written."""


class LoadSelection(Protocol):
    """Decides which contested loads from global memory are undetermined; the others return what the run finds."""

    def begin(self) -> None:
        """Begin an attempt."""

    def of(self, line: int, address: Array, bits: int, thread: Array, contested: Array) -> Array:
        """Return which loads of a line are undetermined, of those in a mask of the contested ones."""


@dataclass(slots=True)
class UndeterminedValues:
    """The undetermined values of a launch, over all attempts to run it.

    A read that races with a later write is found only at that write.  The next attempt then returns an undetermined
    value for it: `generations` are the contents of cells of shared memory, and `loads` the loads from global memory (by
    line: keys of address and thread), that a later write contests, with their causes.  `grown`: there are some that
    this attempt did not have from its start.  `ignored` are causes whose values are taken as the run finds them, by
    which a caller learns which of the others reach a result.
    """

    ignored: frozenset[Cause] = frozenset()
    causes: dict[Cause, None] = field(default_factory=dict)
    generations: dict[Generation, Cause] = field(default_factory=dict)
    loads: dict[int, Array] = field(default_factory=dict)
    loads_of: dict[Cause, dict[int, Array]] = field(default_factory=dict)
    """Which of `loads` each cause contests."""
    grown: bool = False
    doubted: frozenset[int] = frozenset()
    """The lines of reads that are undetermined in any case."""
    updates: set[int] = field(default_factory=set)
    """The lines of atomic operations that read their element before they store to it."""
    proved: dict[int, Cause] = field(default_factory=dict)
    """By buffer, an element for which two orders of threads are known to give different values."""
    sums: dict[Cause, set[int]] = field(default_factory=dict)
    """The buffers in which the launch leaves sums of each such cause."""
    selection: LoadSelection | None = None
    """Which contested loads are undetermined; None: all."""
    in_turn: Array = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    """The elements whose atomic operations are ordered, and are executed as loads and stores."""
    together: Array = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    """The elements whose atomic operations commute, and are executed as loads and stores of a further thread."""
    written_at: Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The line of the last write of each cell of shared memory, 0 for none; for messages."""

    def begin(self) -> None:
        """Begin an attempt."""
        self.grown = False
        if self.selection is not None:
            self.selection.begin()
        self.written_at = np.zeros(0, dtype=np.int64)

    def wrote(self, cells: Array, line: int) -> None:
        """The instruction of a line writes these cells."""
        top = int(cells.max(initial=0))
        if top >= self.written_at.size:
            self.written_at = np.pad(self.written_at, (0, 2 * top + 64 - self.written_at.size))
        self.written_at[cells] = line

    def line_of_write(self, cell: int) -> int | None:
        """Return the line of the last write of a cell, None where it is not known."""
        return int(self.written_at[cell]) or None if cell < self.written_at.size else None

    def forget_cells(self) -> None:
        """The next attempt has cells of another size."""
        self.generations.clear()

    def note(self, cause: Cause) -> bool:
        """Record a cause.  Return whether it leaves a value undetermined."""
        if cause in self.ignored:
            return False
        if len(self.causes) < MAXIMUM_CAUSES:
            self.causes.setdefault(cause)
        return True

    def contest(self, cells: Array, oldest: Array, newest: Array, cause: Cause) -> None:
        """A write that is not ordered after reads of these cells contests what they read.

        The reads are of some generations from the `oldest` to the `newest` of each cell.
        """
        for cell, first, last in zip(cells.tolist(), oldest.tolist(), newest.tolist(), strict=True):
            for generation in range(first, last + 1):
                if (cell, generation) not in self.generations:
                    self.generations[cell, generation] = cause
                    self.grown = True

    def contested(self, cells: Array, generations: Array) -> Array:
        """Return of which cells the current content is contested; `generations` are those of all cells."""
        known = self.generations
        found = [(cell, at) in known for cell, at in zip(cells.tolist(), generations[cells].tolist(), strict=True)]
        return np.array(found, dtype=bool)

    def contest_loads(self, cause: Cause, line: int, address: Array, thread: Array) -> None:
        """These loads, or the parts of loads at these addresses, read what threads that are not ordered after store."""
        keys = sorted_distinct(_load_keys(address, thread))
        self.grown |= _add_keys(self.loads, line, keys)
        _add_keys(self.loads_of.setdefault(cause, {}), line, keys)

    def of_causes(self, chosen: Collection[Cause]) -> UndeterminedValues:
        """Return the values that some of the known causes contest, for a run in which the other causes are ignored."""
        found = UndeterminedValues(frozenset(self.causes) - frozenset(chosen))
        found.generations = {place: cause for place, cause in self.generations.items() if cause in chosen}
        for cause in chosen:
            for line, keys in self.loads_of.get(cause, {}).items():
                _add_keys(found.loads, line, keys)
        found.in_turn, found.together = self.in_turn, self.together
        return found

    def with_known_loads(self) -> UndeterminedValues:
        """Return the values for a run that begins with the reads that this one knows to be contested."""
        found = UndeterminedValues()
        found.generations, found.in_turn, found.together = dict(self.generations), self.in_turn, self.together
        for cause, loads in self.loads_of.items():
            for line, keys in loads.items():
                _add_keys(found.loads, line, keys)
                _add_keys(found.loads_of.setdefault(cause, {}), line, keys)
        return found

    def execute_in_turn(self, address: Array) -> None:
        """The atomic operations on these elements are ordered."""
        together = np.union1d(self.in_turn, address)
        if together.size > self.in_turn.size:
            self.in_turn = together
            self.grown = True

    def execute_together(self, address: Array) -> None:
        """The atomic operations on these elements commute, and the launch also accesses the elements otherwise."""
        joined = np.union1d(self.together, address)
        if joined.size > self.together.size:
            self.together = joined
            self.grown = True

    def contested_loads(self, line: int, address: Array, bits: int, thread: Array) -> Array | None:
        """Return which of these loads of `bits` bits are contested in a byte, None if none is."""
        keys = self.loads.get(line)
        if keys is None:
            return None
        found: Array = np.zeros(address.shape, dtype=bool)
        for byte in range(bits // 8):
            found |= among_sorted(_load_keys(address + np.uint64(byte), thread), keys)
        if self.selection is not None:
            found = self.selection.of(line, address, bits, thread, found)
        return found if found.any() else None


def _add_keys(keys_of_line: dict[int, Array], line: int, keys: Array) -> bool:
    """Add ascending keys of loads to those of a line.  Return whether there are more than before."""
    before = keys_of_line.get(line)
    together = keys if before is None else joined_sorted(before, keys)
    keys_of_line[line] = together
    return before is None or together.size > before.size


def _load_keys(address: Array, thread: Array) -> Array:
    # Two loads with one key are contested together, which is sound.
    keys: Array = address * np.uint64(0x9E3779B97F4A7C15) + thread.astype(np.uint64)
    return keys


def undetermined(bits: int, shape: tuple[int, int], recorder: Recorder | None = None) -> Value:
    """Return undetermined values of `bits` bits, a different one in each lane of `shape`."""
    if bits > 64:
        return concat([undetermined(32, shape, recorder) for _ in range(bits // 32)])
    first = next(_NUMBERS) * _STRIDE
    numbers = (np.arange(shape[0] * shape[1], dtype=np.uint64) + np.uint64(first)).reshape(1, *shape)
    words = hashing.mix(numbers * hashing.multiplier(1) + hashing.constant("undetermined"))
    found = SymbolicVector(bits, words, L.TERM | L.NONDETERMINISTIC | L.INTEGER)
    if recorder is not None:
        recorder.add("undetermined", found, [], False)
        recorder.mark(found)
    return found


def undetermined_where(lanes: Array, value: Value, recorder: Recorder | None = None) -> Value:
    """Return the value with undetermined ones in these lanes, of a mask of all lanes."""
    shape = (lanes.shape[0], lanes.shape[1])
    return blend_values(lanes, undetermined(width(value), shape, recorder), value)


_BY_ORDER = "a stored value depends on the order in which threads run"
_UNDEFINED = "a stored value is undefined"


def undetermined_output(kept: UndeterminedValues | None, line: int, buffers: Collection[int] = ()) -> Nondeterministic:
    """Return the error of an undetermined stored value, with the causes that the run has met.

    `line` is that of the store, and `buffers` are those of the caller that the launch writes.
    """
    if kept is None:
        return Nondeterministic(_BY_ORDER, line)
    proved = {cause for buffer, cause in kept.proved.items() if buffer in buffers}
    causes = tuple(sorted(kept.causes, key=lambda each: (each not in proved, each.line or 0, str(each))))
    undefined = [each.kind is Kind.UNDEFINED for each in causes]
    reason = _BY_ORDER
    if any(undefined):
        reason = _UNDEFINED if all(undefined) else f"{_BY_ORDER}, or is undefined,"
    stated = f"{reason} at line {line}" + (f": {causes[0]}" if causes else "")
    return Nondeterministic(stated, None, causes, proved=bool(proved))
