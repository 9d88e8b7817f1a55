"""Launches in which a store that may come before a load depends on what the load returns.

A thread loads an element, and another thread of the launch stores to it without an order.  Where the stored value is
computed from the loaded one, the load has returned before the store is made, so it returns the content before the
store.  A kernel that updates a tensor in place, and moves its values between the lanes of a warp, has such races.

Which loads a stored value depends on is found by executions in which some of these loads are undetermined.  Each
contested element must have one such load.  A store to it depends on this load if it is undetermined where all loads
are, and is not where only others are: for each bit of the addresses, those whose address differs in this bit.  A store
that depends on several loads must be undetermined where its own alone, of those of its block, is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from bitwise_core.execution.concrete import PreparedLaunch, WorkLimitExceeded, checked_outputs, run_blocks
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.instruction_info import Effect
from bitwise_core.execution.launch import buffers_at
from bitwise_core.execution.memory.global_memory import GlobalMemory
from bitwise_core.execution.memory.outputs import Output
from bitwise_core.execution.memory.undetermined import Cause, Kind, UndeterminedValues
from bitwise_core.execution.synchronised_launch import lines_with_infos
from bitwise_core.execution.thread_numbers import block_of
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.symbolic_vector import Array

MAXIMUM_WORK = 1 << 21
"""The largest number of steps of threads of a launch whose stores are followed: it is executed many times."""

MAXIMUM_BITS = 24
"""The largest number of bits in which the addresses of contested elements may differ."""

MAXIMUM_LOADS_OF_BLOCK = 128
"""The largest number of contested loads of a block that are made undetermined one by one."""


@dataclass(slots=True)
class _Selection:
    """The contested loads whose address `chosen` selects.

    `loads` are all contested loads of the last execution: their lines, addresses, widths in bytes, and blocks.
    """

    chosen: Callable[[Array], Array]
    loads: list[tuple[int, Array, int, Array]] = field(default_factory=list)

    def begin(self) -> None:
        """Begin an execution."""
        self.loads.clear()

    def of(self, line: int, address: Array, bits: int, thread: Array, contested: Array) -> Array:
        """Return which of these contested loads are undetermined."""
        self.loads.append((line, address[contested], bits // 8, block_of(thread[contested])))
        undetermined: Array = contested & self.chosen(address)
        return undetermined


@dataclass(frozen=True, slots=True)
class _Elements:
    """Contested elements in ascending order: addresses, widths in bytes, and the blocks that load them."""

    address: Array
    size: Array
    block: Array

    def equals(self, other: _Elements | None) -> bool:
        """Return whether these are the same elements, loaded by the same blocks."""
        columns = ("address", "size", "block")
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

    def run(chosen: Callable[[Array], Array]) -> tuple[GlobalMemory, frozenset[int]]:
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

    memory, _ = run(lambda address: np.ones(address.shape, dtype=bool))
    assert elements is not None
    if not _are_stored_plainly(memory, elements):
        return None
    dependent = _is_undetermined(memory, elements)
    others = dependent & _with_other_loads(lambda chosen: run(chosen)[0], elements)
    others &= ~_depend_within_buffers(lambda chosen: run(chosen)[0], elements, others)
    dependent &= ~others | _depend_on_their_own(lambda chosen: run(chosen)[0], elements, np.flatnonzero(others))
    before = elements.address[dependent]
    return checked_outputs(*run(lambda address: ~np.isin(address, before)))


def _depend_within_buffers(
    run: Callable[[Callable[[Array], Array]], GlobalMemory], elements: _Elements, open_: Array
) -> Array:
    """Return to which elements all stores depend on the load of the element, found among the loads of its buffer.

    With all contested loads of the buffer undetermined, all stores to the element are; without that of the element,
    none is.  Elements of buffers in which none is `open_` are left out.
    """
    found: Array = np.zeros(elements.address.size, dtype=bool)
    buffers = buffers_at(elements.address)
    for number in np.unique(buffers[open_]):

        def restricted(chosen: Callable[[Array], Array], number: np.uint64 = number) -> GlobalMemory:
            return run(lambda address: (buffers_at(address) == number) & chosen(address))

        mine = buffers == number
        all_of_them = _is_undetermined(restricted(lambda address: np.ones(address.shape, dtype=bool)), elements)
        found |= mine & all_of_them & ~_with_other_loads(restricted, elements, mine)
    return found


def _with_other_loads(
    run: Callable[[Callable[[Array], Array]], GlobalMemory], elements: _Elements, among: Array | None = None
) -> Array:
    """Return to which elements stores may depend on other contested loads than that of the element.

    `among` are the elements whose loads a run may make undetermined (None: all); only for these the result holds.

    A store depends on no load of another address if it is undetermined in no run in which all loads are undetermined
    whose address differs in one bit.
    """
    found: Array = np.zeros(elements.address.size, dtype=bool)
    address = elements.address if among is None else elements.address[among]
    differing = int(np.bitwise_or.reduce(address ^ address[0]))
    if differing.bit_count() > MAXIMUM_BITS:
        return ~found
    for bit in (np.uint64(each) for each in range(differing.bit_length()) if differing >> each & 1):
        for number in (0, 1):

            def differs(address: Array, bit: np.uint64 = bit, number: int = number) -> Array:
                found: Array = (address >> bit & np.uint64(1)) == number
                return found

            found |= _is_undetermined(run(differs), elements, some=True) & ~differs(elements.address)
            if found.all() or (among is not None and found[among].all()):
                return found
    return found


def _depend_on_their_own(
    run: Callable[[Callable[[Array], Array]], GlobalMemory], elements: _Elements, open_: Array
) -> Array:
    """Return to which of all elements, of these, all stores depend on the load of the element.

    In each run, one of these loads of each block is undetermined.
    """
    found: Array = np.zeros(elements.address.size, dtype=bool)
    block = elements.block[open_]
    order = np.argsort(block, kind="stable")
    first = np.flatnonzero(np.append(True, block[order][1:] != block[order][:-1])) if order.size else order
    rank = np.arange(order.size) - np.repeat(first, np.diff(np.append(first, order.size)))
    if rank.max(initial=-1) >= MAXIMUM_LOADS_OF_BLOCK:
        return found
    for each in range(rank.max(initial=-1) + 1):
        alone = open_[order[rank == each]]
        addresses = elements.address[alone]

        def is_one(address: Array, addresses: Array = addresses) -> Array:
            return np.isin(address, addresses)

        found[alone] = _is_undetermined(run(is_one), elements)[alone]
    return found


def _elements(selection: _Selection, prepared: PreparedLaunch) -> _Elements | None:
    """Return the contested elements, None if there are none or if one has several loads."""
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
    block = np.concatenate([each for *_, each in selection.loads])
    order = np.argsort(address, kind="stable")
    address, size, block = address[order], size[order], block[order]
    if not address.size or (address[1:] < (address + size)[:-1]).any():
        return None
    return _Elements(address, size, block)


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
