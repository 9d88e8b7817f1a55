"""The registers of groups of lanes: groups of whole blocks that diverge have their own.

A write in some lanes selects between the new and the old value.  Blocks that execute a loop for different numbers of
iterations would do so for every instruction.  No instruction reads registers of another block, so each such group has a
table of its own instead, in which what other lanes hold has no meaning.  A group that waits keeps the registers that it
may read.  Where groups meet, each register selects once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from bitwise_core.execution.active_lanes import has_whole_blocks
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.program import Program
from bitwise_core.execution.program_analyses import live_at
from bitwise_core.execution.values.packing import blend_values
from bitwise_core.execution.values.symbolic_vector import Array, Value, as_array_if_constant, width
from bitwise_core.execution.values.term_hash import poison


class Group(Protocol):
    """Lanes at one instruction, see `executor.LaneGroup`."""

    pc: int
    mask: Array | None
    registers: dict[str, Value] | None


def may_be_separated(machine: Machine) -> bool:
    """Return whether nothing but instructions reads registers, and blocks do not access each other's memory.

    Under the assumption of finite numbers they are not separated: whether the elements of a matrix operand are finite
    is decided for all blocks together, so that values without a meaning would have an effect on canonical forms.
    """
    domain = machine.domain
    finite = isinstance(domain, TermDomain) and domain.context.finite
    return machine.blocks > 1 and machine.cluster is None and not machine.memory.orders_blocks and not finite


class SeparateRegisters:
    """The registers of `groups`, which the executor changes.

    Groups share a table if lanes of one block are in several of them.
    """

    def __init__(self, program: Program, machine: Machine, groups: Sequence[Group]) -> None:
        self.program, self.machine, self.groups = program, machine, groups
        self.running: dict[str, Value] | None = None
        """The table of the group that runs, as it was when it began."""
        for each in groups:
            each.registers = machine.registers

    def begin(self, group: Group) -> None:
        """A group runs: its registers become those of the machine."""
        machine, mask = self.machine, group.mask
        assert group.registers is not None
        machine.owned = None
        if self._separate(group):
            machine.owned = mask
        self.running = machine.registers = group.registers

    def _separate(self, group: Group) -> bool:
        """Give a group of whole blocks a table of its own; return whether it is one."""
        shared = group.registers
        assert shared is not None
        if group.mask is None or group.mask.shape[0] == 1 or not has_whole_blocks(group.mask):
            return False
        if any(each.registers is shared for each in self.groups if each is not group):
            group.registers = dict(shared)
            self._forget_dead(shared)
        return True

    def _forget_dead(self, registers: dict[str, Value]) -> None:
        """Forget the registers of a table that no group with this table may read while others run."""
        live = live_at(self.program, *{each.pc for each in self.groups if each.registers is registers})
        storage = self.program.storage
        # Registers that are stored together are kept, as in `join`.
        together = {storage(name) for name in registers if storage(name) != name}
        for name in [each for each in registers if storage(each) not in together and not live(each)]:
            del registers[name]

    def end(self) -> None:
        """The group that ran has ended its run; an instruction may have put another table in the place of its own."""
        if self.running is not None and self.running is not self.machine.registers:
            for each in self.groups:
                if each.registers is self.running:
                    each.registers = self.machine.registers
        self.running = None

    def join(self, group: Group, other: Group) -> None:
        """Two groups meet at one instruction: groups with the table of either have one table from now on."""
        if group.registers is other.registers:
            return
        # What the groups of other blocks have in their registers stays as it is.
        for each in (group, other):
            self._separate(each)
        left, right = group.registers, other.registers
        assert left is not None
        assert right is not None
        sharing = [each for each in self.groups if each.registers is right]
        lanes = _union([each.mask for each in sharing])
        live = live_at(
            self.program,
            *{each.pc for each in self.groups if each.registers is left or each.registers is right},
        )
        self._bring_under_same_keys(left, right)
        storage, recorder = self.program.storage, self.machine.domain.recorder
        names = {**left, **right}
        # Registers that are stored together are kept: one may be live where another one is written.
        together = {storage(name) for name in names if storage(name) != name}
        for name in names:
            one, another = left.get(name), right.get(name)
            if one is another:
                continue
            if storage(name) not in together and not live(name):
                left.pop(name, None)
                continue
            if another is None:
                assert one is not None
                another = poison(width(one))
            if one is None or width(one) != width(another):
                one = poison(width(another))
            value = another if lanes is None else blend_values(lanes, another, one)
            if recorder is not None:
                recorder.mark(value)
            else:
                value = _once_for_all_blocks(value)
            left[name] = value
        for each in sharing:
            each.registers = left

    def _bring_under_same_keys(self, left: dict[str, Value], right: dict[str, Value]) -> None:
        """Keep registers under the key of their storage in both tables if one of them does."""
        convert, storage, machine = self.program.under_one_key, self.program.storage, self.machine
        if convert is None:
            return
        outer, lanes = machine.registers, machine.mask
        machine.mask = None
        for missing, held in ((left, right), (right, left)):
            machine.registers = missing
            for key in [name for name in held if name not in missing and storage(name) == name]:
                convert(machine, key)
        machine.registers, machine.mask = outer, lanes


def _once_for_all_blocks(value: Value) -> Value:
    """Return a value, as numbers that the blocks share where all of them hold the same numbers."""
    found = as_array_if_constant(value)
    if isinstance(found, np.ndarray) and len(found) > 1 and (found == found[:1]).all():
        return found[:1]
    return found


def _union(masks: list[Array | None]) -> Array | None:
    found: Array | None = None
    for each in masks:
        if each is None:
            return None
        found = each if found is None else found | each
    assert found is not None
    return found
