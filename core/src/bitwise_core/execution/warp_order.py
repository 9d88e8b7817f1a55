"""Launches of blocks of one warp whose accesses to global memory take effect in program order.

No document orders an access of one lane before a later one of another lane without a barrier.  Where an architecture
measured that the accesses of one warp to global memory take effect in the order of its machine instructions
(`Arch.warp_order`), or a request assumes it (`assumptions.WARP_ORDER`), kernels of one warp that exchange elements by
global memory, or load an element that another lane overwrites later, have a determined result.

The launch is executed with each access ordered after all earlier ones of its warp.  The lanes must be together at each
access: not under a condition on data, and not after a branch that may have split the warp.  Atomic operations,
asynchronous accesses and several warps in a block are not followed.  The order of the text counts only as far as the
machine code keeps it, which the architecture decides (`Arch.keeps_order`) for each pair of lines with a conflict: an
assembler may exchange two accesses that cannot meet in one thread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

import numpy as np

from bitwise_core.execution.architecture import Arch
from bitwise_core.execution.assumptions import ANY_LANE, ASSUMPTIONS, WARP_ORDER
from bitwise_core.execution.concrete import PreparedLaunch, WorkLimitExceeded, checked_outputs, run_blocks
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.launch import buffers_at
from bitwise_core.execution.memory.global_memory import GlobalMemory
from bitwise_core.execution.memory.outputs import Output
from bitwise_core.execution.memory.store_forwarding import Access, common_granule
from bitwise_core.execution.races.undetermined import Cause, Kind
from bitwise_core.execution.values.sets.member_sets import MembersRepeat
from bitwise_core.execution.values.symbolic_vector import Array

SETTLED_BY_WARP_ORDER = f"--assume {WARP_ORDER} settles this race"
_ASSUMED = f"{ASSUMPTIONS[WARP_ORDER]}, which is that of the text: assumed by --assume {WARP_ORDER}"

MAXIMUM_WORK = 1 << 23
"""The largest number of steps of threads of a launch that is executed in program order."""


def note_of_warp_order(arch: Arch, assume: frozenset[str]) -> str | None:
    """Return the note of results that rest on the order of a warp's accesses, None where it does not hold."""
    if ANY_LANE in assume:
        return None
    return _ASSUMED if WARP_ORDER in assume else arch.warp_order


def may_be_ordered(
    prepared: PreparedLaunch, assume: frozenset[str], buffers: Mapping[str, int], causes: Collection[Cause]
) -> bool:
    """Return whether `assumptions.WARP_ORDER`, which does not hold, would give a launch a determined result."""
    if ANY_LANE in assume or note_of_warp_order(prepared.arch, assume) is not None:
        return False
    return outputs_by_warp_order(replace(prepared, used=set()), assume | {WARP_ORDER}, buffers, causes) is not None


def outputs_by_warp_order(
    prepared: PreparedLaunch, assume: frozenset[str], buffers: Mapping[str, int], causes: Collection[Cause]
) -> dict[int, Output] | None:
    """Return what a launch leaves where the accesses of a warp take effect in program order, else None.

    `causes` left its result undetermined in an execution that orders lanes by barriers alone.
    """
    arch, note = prepared.arch, note_of_warp_order(prepared.arch, assume)
    if note is None or arch.keeps_order is None or prepared.text is None:
        return None
    if prepared.threads > arch.warp or prepared.blocks_interact or not any(each.kind is Kind.GLOBAL for each in causes):
        return None
    try:
        memory, found = _executed(prepared, assume, buffers)
    except (Unsupported, WorkLimitExceeded):
        return None
    pairs = frozenset(pair for buffer in memory.stores for pair in conflicts(memory, buffer))
    if not arch.keeps_order(prepared.module, prepared.text, prepared.kernel.name, pairs):
        return None
    prepared.used.add(note)
    return found


def _executed(
    prepared: PreparedLaunch, assume: frozenset[str], buffers: Mapping[str, int]
) -> tuple[GlobalMemory, dict[int, Output]]:
    """Return global memory and what the launch leaves.  Raises Unsupported and WorkLimitExceeded."""

    def run(domain: TermDomain) -> tuple[GlobalMemory, dict[int, Output]]:
        memory, scratch = run_blocks(prepared, domain, buffers, work=MAXIMUM_WORK, in_program_order=True)
        if memory.atomics or memory.scattered or memory.of_blocks:
            raise Unsupported("an atomic operation has no place in the program order of a warp")
        return memory, checked_outputs(memory, scratch)

    domain = TermDomain(assume)
    domain.stop_where_members_repeat()
    with suppress(MembersRepeat):
        return run(domain)
    return run(TermDomain(assume, follows_members=True))


def conflicts(memory: GlobalMemory, buffer: int) -> Iterator[tuple[int, int]]:
    """Yield the pairs of lines, the lower one first, by which different lanes access a byte, of which one stores."""
    stores, loads = memory.stores[buffer], memory.loads.get(buffer, [])
    granule = common_granule([*stores, *loads])
    columns = [_cells(each, buffer, granule, stored) for group, stored in ((stores, 1), (loads, 0)) for each in group]
    cell, thread, line, stored = (np.concatenate(column) for column in zip(*columns, strict=True))
    # Cells that several threads access, and some thread stores.
    order = np.lexsort((stored, line, thread, cell))
    cell, thread, line, stored = cell[order], thread[order], line[order], stored[order]
    first = np.flatnonzero(np.r_[True, cell[1:] != cell[:-1]])
    last = np.r_[first[1:], cell.size] - 1
    contested = (thread[first] != thread[last]) & (np.maximum.reduceat(stored, first) > 0)
    chosen = np.repeat(contested, last - first + 1)
    cell, thread, line, stored = cell[chosen], thread[chosen], line[chosen], stored[chosen]
    # Of the accesses of a cell by a line, the threads matter as the lowest and the highest.
    order = np.lexsort((thread, stored, line, cell))
    cell, thread, line, stored = cell[order], thread[order], line[order], stored[order]
    changes = (cell[1:] != cell[:-1]) | (line[1:] != line[:-1]) | (stored[1:] != stored[:-1])
    first = np.flatnonzero(np.r_[True, changes]) if cell.size else np.zeros(0, dtype=np.int64)
    highest = thread[np.r_[first[1:], cell.size] - 1] if cell.size else thread
    cell, lowest, line, stored = cell[first], thread[first], line[first], stored[first]
    # Every two accesses of one cell: of a line with itself, and with the next ones.
    for distance in range(cell.size):
        one, other = slice(0, cell.size - distance), slice(distance, None)
        same = cell[one] == cell[other]
        if not same.any():
            break
        meet = np.minimum(lowest[one], lowest[other]) != np.maximum(highest[one], highest[other])
        found = same & meet & ((stored[one] | stored[other]) > 0)
        pairs = np.stack([np.minimum(line[one], line[other])[found], np.maximum(line[one], line[other])[found]])
        for pair in np.unique(pairs, axis=1).T.tolist():
            yield pair[0], pair[1]


def _cells(access: Access, buffer: int, granule: int, stored: int) -> tuple[Array, Array, Array, Array]:
    """Return the cells of an access in a buffer, with its threads, its line, and whether it stores."""
    inside = buffers_at(access.address) == buffer
    offsets = np.arange(0, access.bits // 8, granule, dtype=np.uint64)
    cell = (access.address[inside] + offsets[:, None]).reshape(-1)
    thread = np.tile(access.thread[inside], offsets.size)
    return cell, thread, np.full(cell.shape, access.line), np.full(cell.shape, stored)
