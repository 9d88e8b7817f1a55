"""The accesses to shared memory so far, and the asynchronous work in flight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bitwise_core.checker.parametric.loops.loop_state import (
    copies_are_equal,
    merged_copies,
    merged_reads,
    queue_of_copies,
    undefined_copy,
)
from bitwise_core.checker.parametric.symbolic_races import SymbolicRaces
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.memory.async_groups import AsynchronousReads


@dataclass(frozen=True, slots=True)
class AccessHistory:
    """The race detectors, the asynchronous reads by the kind of work, and the queue of copies, None without one."""

    races: SymbolicRaces
    reads: AsynchronousReads
    copies: Any

    @staticmethod
    def of(machine: Machine) -> AccessHistory:
        """The history of a machine, independent of it."""
        assert isinstance(machine.races, SymbolicRaces)
        reads, copies = machine.asynchronous_reads.copy(), queue_of_copies(machine.extra.get("copies"))
        return AccessHistory(machine.races.copy(), reads, copies)

    def restore(self, machine: Machine) -> None:
        """Give a machine this history, independent of this record."""
        machine.races, machine.asynchronous_reads = self.races.copy(), self.reads.copy()
        set_copies(machine, queue_of_copies(self.copies))

    def leads_on_as(self, other: AccessHistory) -> bool:
        """Whether what follows has the same races after both histories, so that no later period finds another race.

        Unlike `is_unchanged`, it compares the asynchronous reads in flight too: later accesses may conflict with them.
        """
        return self.is_unchanged(other) and _list_reads(self.reads) == _list_reads(other.reads)

    def is_unchanged(self, other: AccessHistory) -> bool:
        """Whether no access was made between two states."""
        same = self.races.states() == other.races.states()
        return same and (self.copies is None) == (other.copies is None) and copies_are_equal(self.copies, other.copies)


def set_copies(machine: Machine, copies: Any) -> None:
    """Set the queue of copies of a machine, None for no queue."""
    machine.extra.pop("copies", None)
    if copies is not None:
        machine.extra["copies"] = copies


def restore_any(
    machine: Machine, histories: Sequence[AccessHistory], of_copy: Callable[[Any], Any] = undefined_copy
) -> None:
    """Give a machine one of several histories, whichever it is; `of_copy` as in `merged_copies`."""
    machine.races = histories[0].races.with_histories(each.races for each in histories[1:])
    machine.asynchronous_reads = merged_reads([each.reads for each in histories])
    set_copies(machine, merged_copies([each.copies for each in histories], of_copy))


def _list_reads(reads: AsynchronousReads) -> list[object]:
    """What distinguishes asynchronous reads in flight, in their order."""
    return [
        (key, [(each.cells.tobytes(), each.blocks.tobytes()) for each in work], blocks)
        for key, queue in sorted(reads.queues.items())
        for work, blocks in [
            (queue.open, b""),
            *((group.work, group.blocks.tobytes()) for group in queue.groups.groups),
        ]
    ]
