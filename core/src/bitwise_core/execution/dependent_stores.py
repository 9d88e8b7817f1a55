"""Launches in which a store that may come before a load depends on what the load returns.

A thread loads an element, and another thread of the launch stores to it without an order.  Where the stored value is
computed from the loaded one, the load has returned before the store is made, so it returns the content before the
store.  A kernel that updates a tensor in place, and moves its values between the lanes of a warp, has such races.

Which loads a stored value depends on is found by executions in which some of these loads are undetermined.  Each
store to a contested element depends on its load if it is undetermined where all loads are, and is not where only others
are: in some executions, so that for any two elements there is one with the loads of the first alone.  A store that
depends on several loads must
be undetermined where its own alone, of those of its block, is.  Of an element that several threads load, such as the
state of a block, each load comes before the stores that are undetermined where this load alone is, of those of its
block; or of those of the element, if its stores depend on no load of another one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import chain, combinations, islice
from math import comb
from typing import TypeAlias

import numpy as np

from bitwise_core.execution.concrete import PreparedLaunch, WorkLimitExceeded, checked_outputs, run_blocks
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.instruction_info import Effect
from bitwise_core.execution.launch import buffers_at
from bitwise_core.execution.memory.global_memory import GlobalMemory
from bitwise_core.execution.memory.outputs import Output
from bitwise_core.execution.races.undetermined import Cause, Kind, UndeterminedValues
from bitwise_core.execution.synchronised_blocks.synchronised_launch import lines_with_infos
from bitwise_core.execution.thread_numbers import block_of
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Array

MAXIMUM_WORK = 1 << 21
"""The largest number of steps of threads of a launch whose stores are followed: it is executed many times."""

MAXIMUM_RUNS = 22
"""The largest number of executions that tell contested elements apart: enough for 700,000 of them."""

MAXIMUM_LOADS_OF_BLOCK = 128
"""The largest number of contested loads of a block that are made undetermined one by one."""


Chosen: TypeAlias = Callable[[Array, Array], Array]
"""Which loads are chosen, by their addresses and threads."""


@dataclass(slots=True)
class _Selection:
    """The contested loads that `chosen` selects by their addresses and threads.

    `loads` are all contested loads of the last execution: their lines, addresses, widths in bytes, and threads.
    """

    chosen: Chosen
    loads: list[tuple[int, Array, int, Array]] = field(default_factory=list)

    def begin(self) -> None:
        """Begin an execution."""
        self.loads.clear()

    def of(self, line: int, address: Array, bits: int, thread: Array, contested: Array) -> Array:
        """Return which of these contested loads are undetermined."""
        thread = np.broadcast_to(thread, address.shape)
        self.loads.append((line, address[contested], bits // 8, thread[contested]))
        undetermined: Array = contested & self.chosen(address, thread)
        return undetermined


@dataclass(frozen=True, slots=True)
class _Elements:
    """Contested elements in ascending order, their addresses and widths in bytes, and their contested loads.

    `loaded` is the element of each load, in ascending order, and `thread` the thread of the load.
    """

    address: Array
    size: Array
    loaded: Array
    thread: Array

    @property
    def have_one_load(self) -> Array:
        """Which elements one thread loads."""
        found: Array = np.bincount(self.loaded, minlength=self.address.size) == 1
        return found

    def equals(self, other: _Elements | None) -> bool:
        """Return whether these are the same elements, loaded by the same threads."""
        columns = ("address", "size", "loaded", "thread")
        return other is not None and all(np.array_equal(getattr(self, each), getattr(other, each)) for each in columns)


def outputs_by_dependence(
    prepared: PreparedLaunch, assume: frozenset[str], buffers: Mapping[str, int], causes: Collection[Cause]
) -> dict[int, Output] | None:
    """Return what a launch leaves where contested loads come before stores that depend on them, else None.

    `causes` left its result undetermined in an execution that follows no dependence.
    """
    if not any(each.kind is Kind.GLOBAL for each in causes) or prepared.blocks_interact:
        return None
    try:
        return _outputs(prepared, assume, buffers)
    except (Unsupported, WorkLimitExceeded):
        return None


def _outputs(prepared: PreparedLaunch, assume: frozenset[str], buffers: Mapping[str, int]) -> dict[int, Output] | None:
    first = UndeterminedValues()
    run_blocks(prepared, TermDomain(assume), buffers, work=MAXIMUM_WORK, undetermined=first)
    elements: _Elements | None = None

    def run(chosen: Chosen) -> tuple[GlobalMemory, frozenset[int]]:
        """Run the launch with the chosen loads undetermined.  Raises Unsupported if other loads are contested."""
        nonlocal elements
        values, selection = first.with_known_loads(), _Selection(chosen)
        values.selection = selection
        memory, scratch = run_blocks(prepared, TermDomain(assume), buffers, work=MAXIMUM_WORK, undetermined=values)
        found = _elements(selection, prepared)
        if elements is None:
            elements = found
        if elements is None or not elements.equals(found):
            raise Unsupported("which loads are contested depends on what they return")
        return memory, scratch

    memory, _ = run(lambda address, thread: np.ones(address.shape, dtype=bool))
    assert elements is not None
    if not _are_stored_plainly(memory, elements):
        return None
    dependent, alone = _is_undetermined(memory, elements), elements.have_one_load
    open_loads = ~dependent[elements.loaded]
    if open_loads.any():
        # These stay undetermined whatever the others depend on.  Raises Unsupported where they reach an output.
        checked_outputs(*run(lambda address, thread: _among(address, thread, elements, open_loads)))
    others = dependent & _with_other_loads(lambda chosen: run(chosen)[0], elements)
    # Stores that depend on no load of another element may be followed together.
    together = dependent & ~others & ~alone
    others &= ~(alone & _depend_within_buffers(lambda chosen: run(chosen)[0], elements, others & alone))
    before = (dependent & ~others & alone)[elements.loaded]
    for chosen, of in ((together, elements.loaded), (others, None)):
        open_ = np.flatnonzero(chosen[elements.loaded])
        before |= _depend_on_their_own(lambda chosen: run(chosen)[0], elements, open_, of)
    return checked_outputs(*run(lambda address, thread: ~_among(address, thread, elements, before)))


def _among(address: Array, thread: Array, elements: _Elements, chosen: Array) -> Array:
    """Return which loads, by their addresses and threads, are chosen ones of contested elements."""
    found: Array = np.zeros(address.shape, dtype=bool)
    at = elements.address[elements.loaded[chosen]]
    here = np.isin(address, at)
    known = set(zip(at.tolist(), elements.thread[chosen].tolist(), strict=True))
    pairs = zip(address[here].tolist(), thread[here].tolist(), strict=True)
    found[here] = np.fromiter((each in known for each in pairs), dtype=bool, count=int(here.sum()))
    return found


def _depend_within_buffers(run: Callable[[Chosen], GlobalMemory], elements: _Elements, open_: Array) -> Array:
    """Return to which elements all stores depend on the load of the element, found among the loads of its buffer.

    With all contested loads of the buffer undetermined, all stores to the element are; without that of the element,
    none is.  Elements of buffers in which none is `open_` are left out.
    """
    found: Array = np.zeros(elements.address.size, dtype=bool)
    buffers = buffers_at(elements.address)
    for number in np.unique(buffers[open_]):

        def restricted(chosen: Chosen, number: np.uint64 = number) -> GlobalMemory:
            return run(lambda address, thread: (buffers_at(address) == number) & chosen(address, thread))

        mine = buffers == number
        everything = restricted(lambda address, thread: np.ones(address.shape, dtype=bool))
        all_of_them = _is_undetermined(everything, elements)
        found |= mine & all_of_them & ~_with_other_loads(restricted, elements, mine)
    return found


def _with_other_loads(run: Callable[[Chosen], GlobalMemory], elements: _Elements, among: Array | None = None) -> Array:
    """Return to which elements stores may depend on other contested loads than that of the element.

    `among` are the elements whose loads a run may make undetermined (None: all); only for these the result holds.

    A store depends on no load of another element if it is undetermined in no run without the loads of its own one: for
    any two elements, the loads of the first are undetermined in some run, and those of the second are not.
    """
    found: Array = np.zeros(elements.address.size, dtype=bool)
    address = elements.address if among is None else elements.address[among]
    runs = _separating_runs(address.size)
    if runs is None:
        return ~found
    for chosen_elements in runs:

        def is_chosen(where: Array, thread: Array, chosen_elements: Array = chosen_elements) -> Array:
            place = np.minimum(np.searchsorted(address, where), address.size - 1)
            found: Array = chosen_elements[place] & (address[place] == where)
            return found

        without = ~is_chosen(elements.address, elements.address)
        found |= _is_undetermined(run(is_chosen), elements, some=True) & without
        if found.all() or (among is not None and found[among].all()):
            break
    return found


def _separating_runs(count: int) -> Array | None:
    """Return which of some elements are chosen in each run, so that any one is without any other one in some run.

    Each element is chosen in another half of the runs: no half is a part of another one, and no fewer runs do.  None
    where there are too many elements.
    """
    runs = next((each for each in range(MAXIMUM_RUNS + 1) if comb(each, each // 2) >= count), None)
    if runs is None:
        return None
    halves = islice(combinations(range(runs), runs // 2), count)
    chosen = np.fromiter(chain.from_iterable(halves), dtype=np.intp).reshape(count, -1)
    found = np.zeros((runs, count), dtype=bool)
    found[chosen.T, np.arange(count)] = True
    return found


def _depend_on_their_own(
    run: Callable[[Chosen], GlobalMemory], elements: _Elements, open_: Array, of: Array | None = None
) -> Array:
    """Return on which of all loads, of these, all stores to the element of the load depend.

    In each run, one of these loads of each of the numbers `of` is undetermined, None: of each block.
    """
    found: Array = np.zeros(elements.loaded.size, dtype=bool)
    number = (block_of(elements.thread) if of is None else of)[open_]
    order = np.argsort(number, kind="stable")
    first = np.flatnonzero(np.append(True, number[order][1:] != number[order][:-1])) if order.size else order
    rank = np.arange(order.size) - np.repeat(first, np.diff(np.append(first, order.size)))
    if rank.max(initial=-1) >= MAXIMUM_LOADS_OF_BLOCK:
        return found
    for each in range(rank.max(initial=-1) + 1):
        alone = np.zeros(found.size, dtype=bool)
        alone[open_[order[rank == each]]] = True

        def is_one(address: Array, thread: Array, alone: Array = alone) -> Array:
            return _among(address, thread, elements, alone)

        found[alone] = _is_undetermined(run(is_one), elements)[elements.loaded[alone]]
    return found


def _elements(selection: _Selection, prepared: PreparedLaunch) -> _Elements | None:
    """Return the contested elements, None if there are none, or if a byte is in two or a thread loads one twice."""
    # A load at a store keeps the old content under a condition; asynchronous loads store in shared memory.
    stores = {
        line
        for line, info in lines_with_infos(prepared)
        if info.effects.overlaps(Effect.STORE) and not info.effects.overlaps(Effect.ASYNCHRONOUS)
    }
    if not selection.loads or any(line in stores for line, *_ in selection.loads):
        return None
    address = np.concatenate([each for _, each, _, _ in selection.loads])
    size = np.concatenate([np.full(each.size, width, dtype=np.uint64) for _, each, width, _ in selection.loads])
    thread = np.concatenate([each for *_, each in selection.loads])
    order = np.lexsort((thread, size, address))
    address, size, thread = address[order], size[order], thread[order]
    if not address.size:
        return None
    same = (address[1:] == address[:-1]) & (size[1:] == size[:-1])
    if ((address[1:] < (address + size)[:-1]) & ~same).any() or (same & (thread[1:] == thread[:-1])).any():
        return None
    first = np.append(True, ~same)
    return _Elements(address[first], size[first], np.cumsum(first) - 1, thread)


def _are_stored_plainly(memory: GlobalMemory, elements: _Elements) -> bool:
    """Return whether contested elements are changed by stores alone, each to a part of one of them or to none.

    Where data decides whether a store is executed, it must be the only one of its element: the joined content of two
    does not say on which loads each of them depends.
    """
    touched = set(buffers_at(elements.address).tolist())
    if not touched.isdisjoint(memory.atomics) or memory.scattered:
        return False
    stores = np.zeros(elements.address.size, dtype=np.int64)
    decided: Array = np.zeros(elements.address.size, dtype=bool)
    for buffer in touched:
        for store in memory.stores.get(buffer, ()):
            end = store.address + np.uint64(store.bits // 8)
            first = np.searchsorted(elements.address + elements.size, store.address, side="right")
            beyond = np.searchsorted(elements.address, end, side="left")
            inside = np.minimum(first, elements.address.size - 1)
            part = (store.address >= elements.address[inside]) & (end <= (elements.address + elements.size)[inside])
            if ((beyond > first) & ~part).any():
                return False
            np.add.at(stores, inside[part], 1)
            decided[inside[part]] |= store.chosen
    return not (decided & (stores > 1)).any()


def _is_undetermined(memory: GlobalMemory, elements: _Elements, *, some: bool = False) -> Array:
    """Return to which contested elements all stores are undetermined; `some`: to which a store is."""
    found: Array = np.full(elements.address.size, not some, dtype=bool)
    for buffer in set(buffers_at(elements.address).tolist()):
        for store in memory.stores.get(buffer, ()):
            assert store.value is not None
            place = np.searchsorted(elements.address + elements.size, store.address, side="right")
            inside = np.minimum(place, elements.address.size - 1)
            here = (place < elements.address.size) & (store.address >= elements.address[inside])
            flags = L.flags_of_lanes(store.value.flags, (1, store.address.size))[0]
            marked = (flags & np.uint32(L.NONDETERMINISTIC)) != 0
            if some:
                found[inside[here & marked]] = True
            else:
                found[inside[here & ~marked]] = False
    return found
