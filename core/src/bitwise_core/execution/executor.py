"""Runs a program over a batch of blocks, scheduling groups of lanes by the lowest instruction.

A group is a set of lanes at one instruction.  Lanes that diverge at a branch run as separate groups and reconverge when
they reach the same instruction.  While a group waits (at a barrier, for a copy), others run.  If no group can run, the
kernel hangs on this launch, and Unsupported is raised.

Groups of whole blocks that diverge have registers of their own (`separate_registers`).

For a branch on data both sides run up to the instruction where they join, and each register becomes a select of two
values (`sides`).  A lane that data ends joins at the end of the program.  A loop that data ends is one function, or is
followed for each number of iterations up to a bound (`data_loops`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from bitwise_core.assembly.module import Symbol
from bitwise_core.execution.active_lanes import whole_mask
from bitwise_core.execution.barrier_passes import are_parts_of_warps, meet, pass_without
from bitwise_core.execution.byte_functions import steps_with_byte_functions
from bitwise_core.execution.data_loops.iterations import LongLoop, long_loop
from bitwise_core.execution.data_loops.loop import loop_at
from bitwise_core.execution.data_loops.loop_systems import run_loop_system
from bitwise_core.execution.data_loops.register_loops import run_register_loop
from bitwise_core.execution.deciding_values import note_values, noted
from bitwise_core.execution.domains.domain import DataDependent, Unsupported
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.instruction_info import Effect
from bitwise_core.execution.machine import (
    Barrier,
    Blocked,
    Branch,
    Call,
    ConditionalEnd,
    Control,
    Exit,
    Jump,
    Machine,
    Predicated,
    Return,
    SkippableRegion,
    conjunction,
    invert,
    is_unwritten_register,
)  # fmt: skip
from bitwise_core.execution.program import (
    Program,
    merge_local,
    merged_values,
    possible_lanes,
    refusal_under_condition,
)
from bitwise_core.execution.program_analyses import effects_of, live_at, order_of, region
from bitwise_core.execution.races.epochs import next_epoch
from bitwise_core.execution.separate_registers import SeparateRegisters, may_be_separated
from bitwise_core.execution.sides import BlockSide, Side, join_blocks, join_sides
from bitwise_core.execution.time_limit import check_time
from bitwise_core.execution.uniformity import decided_by_loads, is_uniform
from bitwise_core.execution.values.symbolic_vector import Array, Value

MAXIMUM_STEPS = 20_000_000

DIVIDED_BLOCKS = "groups of some blocks"
"""The key of `machine.extra` that is set once a group with lanes of some blocks alone has run."""

_STEPS_BETWEEN_CHECKS = 7
"""A mask: the time limit is checked where these bits of the number of remaining steps are zero."""

MAXIMUM_NESTING = 90
"""How deep branches on data and calls may nest."""

_WHOLE_BLOCK = Effect.STORE | Effect.BARRIER | Effect.CROSS_LANE | Effect.CALL | Effect.ASYNCHRONOUS
"""Effects for which it matters whether a whole block takes one side of a branch."""


MAXIMUM_REGISTER_LANES = 1 << 22
"""The number of lanes of all registers together, of 16 bytes or more, beyond which dead registers are looked for."""


@dataclass(slots=True, eq=False)
class LaneGroup:
    """Lanes at one instruction.

    `mask` None means all lanes of the batch.  `waiting` is the barrier at which the group waits, `blocked` the other
    reason why it cannot run.  `registers` are those of the group, shared by groups with the same object; None: those of
    the machine.
    """

    pc: int
    mask: Array | None
    waiting: Barrier | None = None
    blocked: Blocked | None = None
    registers: dict[str, Value] | None = None


def _ready(groups: Sequence[LaneGroup], stop: int | None) -> list[LaneGroup]:
    """Return the groups that can run, and have not reached `stop`."""
    return [each for each in groups if each.waiting is None and each.blocked is None and each.pc != stop]


class Executor:
    """One run of a program, of a device function, or of one side of a branch on data.

    `outside` are the lanes that have not exited and do not run this part of the program, shape (blocks, threads); None:
    no lane.  `entered` counts for each branch on data how many of its sides the run is in.
    """

    follows_data: ClassVar[bool] = True
    """Whether loops and ends of threads may depend on data, and whole blocks may take a side of a branch on data."""

    separates_registers: ClassVar[bool] = True
    """Whether groups of whole blocks have registers of their own."""

    def __init__(
        self,
        program: Program,
        machine: Machine,
        budget: list[int],
        depth: int = 0,
        outside: Array | None = None,
        entered: Mapping[int, int] | None = None,
    ) -> None:
        self.program, self.machine, self.budget, self.depth = program, machine, budget, depth
        self.outside, self.entered = outside, entered or {}
        self.most_registers = MAXIMUM_REGISTER_LANES // (machine.blocks * machine.threads)
        """The number of registers beyond which those that nothing may read are forgotten."""
        self.alive: Array | None = None
        """The lanes that have not exited, among those that started; None: all lanes of the batch."""
        self.separated: SeparateRegisters | None = None
        """The registers of the groups, if groups of whole blocks have their own."""

    def start(self, pc: int = 0, stop: int | None = None) -> None:
        """Run from instruction `pc` until all lanes exit or reach `stop`.  Raises Unsupported."""
        if self.depth > MAXIMUM_NESTING:
            raise _nested_too_deeply(self.machine)
        machine = self.machine
        outer, to_end = machine.mask, machine.runs_to_end
        machine.runs_to_end = stop is None
        groups = self._first_groups(pc, outer)
        alive = self.alive = outer
        if self.depth == 0 and self.separates_registers and may_be_separated(machine):
            self.separated = SeparateRegisters(self.program, machine, groups)
        while groups:
            group = self._next_group(groups, stop)
            if self.depth == 0 and len(machine.registers) > self.most_registers:
                self._forget_dead_registers(groups)
            if group is None:
                if all(each.pc == stop for each in groups):
                    break
                raise Unsupported(self._hang_reason(groups), self._line(groups[0].pc))
            if self.separated is not None:
                self.separated.begin(group)
            alive = self.alive = self._advance(group, groups, stop, alive)
            if self.separated is not None:
                self.separated.end()
        machine.mask, machine.runs_to_end = outer, to_end

    def _forget_dead_registers_at(self, pc: int, group: LaneGroup, groups: list[LaneGroup]) -> None:
        """Forget the registers that no group may read, while one runs that is at instruction `pc`."""
        if self.separated is None or group.registers is self.machine.registers:
            group.pc = pc
            self._forget_dead_registers(groups)

    def _forget_dead_registers(self, groups: list[LaneGroup]) -> None:
        """Forget the registers that no group may read."""
        machine = self.machine
        live = [live_at(self.program, pc) for pc in {each.pc for each in groups}]
        tables = {id(each.registers): each.registers for each in groups if each.registers is not None}
        for registers in tables.values() if self.separated is not None else (machine.registers,):
            for name in [name for name in registers if not any(test(name) for test in live)]:
                del registers[name]
        most = max(map(len, tables.values()), default=len(machine.registers))
        self.most_registers = max(self.most_registers, 2 * most)

    def _first_groups(self, pc: int, lanes: Array | None) -> list[LaneGroup]:
        return [LaneGroup(pc, lanes)]

    def _next_group(self, groups: list[LaneGroup], stop: int | None) -> LaneGroup | None:
        ready = _ready(groups, stop)
        return ready[0] if len(ready) == 1 else min(ready, key=lambda each: self._place(each, each.pc), default=None)

    def _place(self, group: LaneGroup, pc: int) -> tuple[int, ...]:
        """Return the place of a group at instruction `pc` in the order of execution; the lowest one runs first."""
        return (order_of(self.program)[pc],)

    def _hang_reason(self, groups: list[LaneGroup]) -> str:
        def reason(group: LaneGroup) -> str:
            if group.blocked is not None:
                return group.blocked.what
            return f"barrier {group.waiting.number}" if group.waiting else "its end"

        what = ", ".join(sorted(set(map(reason, groups))))
        return f"the kernel hangs on this launch: threads wait for {what}"

    def _line(self, pc: int) -> int | None:
        instructions = self.program.kernel.instructions
        return instructions[min(pc, len(instructions) - 1)].line if instructions else None

    def _advance(
        self, group: LaneGroup, groups: list[LaneGroup], stop: int | None, alive: Array | None
    ) -> Array | None:
        """Run one group until it diverges, waits, ends or reaches another group; return the lanes still alive."""
        machine, program = self.machine, self.program
        steps = program.steps
        if isinstance(machine.domain, TermDomain):
            steps = steps_with_byte_functions(program)
            machine.domain.begin_group(group.mask)
        instructions, joins = program.kernel.instructions, program.joins
        machine.mask = machine.group = group.mask
        if group.mask is not None and len(group.mask) > 1 and not group.mask.any(axis=1).all():
            machine.extra[DIVIDED_BLOCKS] = True
        machine.live_elsewhere = self._live_elsewhere(group, groups)
        pc, end = group.pc, len(steps)
        others = [each for each in _ready(groups, stop) if each is not group]
        first = min((self._place(each, each.pc) for each in others), default=None)
        budget = self.budget
        progressed = False
        while True:
            if pc == stop or pc >= end:
                break
            if progressed and first is not None and pc in joins and self._place(group, pc) >= first:
                break
            budget[0] -= 1
            if budget[0] < 0:
                raise Unsupported("the kernel exceeds the step limit on this launch", instructions[pc].line)
            if not budget[0] & _STEPS_BETWEEN_CHECKS:
                check_time(instructions[pc].line)
                if self.depth == 0 and len(machine.registers) > self.most_registers:
                    self._forget_dead_registers_at(pc, group, groups)
            machine.line = instructions[pc].line
            machine.pc = pc
            if machine.condition is not None:
                refusal = refusal_under_condition(program.infos[pc])
                if refusal is not None:
                    raise noted(DataDependent(refusal, instructions[pc].line, (machine.condition,)), machine)
            try:
                control = steps[pc](machine)
            except Unsupported as error:
                if error.line is None:
                    error.occurred_at(instructions[pc].line)
                if isinstance(error, DataDependent):
                    note_values(error, machine, program.infos[pc].reads)
                raise
            except Exception as error:
                if is_unwritten_register(error):
                    raise Unsupported(
                        f"the register {error} is read before it is written", instructions[pc].line
                    ) from None
                raise
            if control is None:
                pc += 1
                progressed = True
                continue
            if isinstance(control, Branch) and control.taken is None:
                pc = control.target
                progressed = True
                continue
            group.pc = pc
            if progressed:
                self._unblock_groups(groups)
            return self._control(control, group, groups, alive)
        group.pc = pc
        if pc >= end and pc != stop:
            groups.remove(group)
            if self.depth == 0:
                self._end(group)
            return self._remove_lanes(alive, group.mask, groups)
        self._unblock_groups(groups)
        self._merge_groups(groups)
        return alive

    def _live_elsewhere(self, group: LaneGroup, groups: list[LaneGroup]) -> Callable[[str], bool] | None:
        """Return whether a lane of another group may read a register; None where that is not known, or for no group."""
        machine = self.machine
        known = self.separates_registers and self.depth == 0 and self.outside is None
        if not known or group.mask is None or machine.condition is not None or machine.path is not None:
            return None
        return live_at(self.program, *{each.pc for each in groups if each is not group})

    def _control(
        self, control: Control, group: LaneGroup, groups: list[LaneGroup], alive: Array | None
    ) -> Array | None:
        machine = self.machine
        pc = group.pc
        if isinstance(control, Predicated):
            rest = ~control.mask if group.mask is None else group.mask & ~control.mask
            if rest.any():
                groups.append(replace(group, pc=pc + 1, mask=rest))
            group.mask = machine.mask = control.mask
            control = control.control
        if isinstance(control, Branch):
            assert control.taken is not None
            self._branch(control, control.taken, group, groups)
        elif isinstance(control, Jump):
            self._jump(control, group, groups)
        elif isinstance(control, SkippableRegion):
            first = pc + 1 if control.start is None else control.start
            if control.target != first:
                outside = self._lanes_outside(group, alive)
                Executor(self.program, machine, self.budget, self.depth + 1, outside).start(first, control.target)
            control.forget(machine)
            group.pc = control.target
        elif isinstance(control, ConditionalEnd):
            if not self.follows_data:
                raise Unsupported("whether threads end here depends on data", self._line(pc))
            self._branch(Branch(len(self.program.steps), control.taken), control.taken, group, groups)
        elif isinstance(control, Exit | Return):
            if machine.condition is not None and not self.follows_data:
                values = (machine.condition,)
                raise noted(DataDependent("the kernel's end depends on data", self._line(pc), values), machine)
            groups.remove(group)
            if isinstance(control, Exit):
                self._end(group)
            alive = self._remove_lanes(alive, group.mask, groups)
        elif isinstance(control, Call):
            self._call(control, group, self._lanes_outside(group, alive))
        elif isinstance(control, Barrier):
            if machine.condition is not None:
                values = (machine.condition,)
                raise noted(DataDependent("a barrier depends on data", self._line(pc), values), machine)
            if control.count is None and self.outside is not None:
                present = machine.active((machine.blocks, machine.threads)).any(axis=1)
                if (self.outside.any(axis=1) & present).any():
                    reason = (
                        "a barrier for the whole block is in a function or region that only some of its threads run"
                    )
                    raise Unsupported(reason, self._line(pc))
            group.pc = pc + 1
            group.waiting = control
            if control.aligned and control.count is None and group.mask is None and self._runs_all_threads():
                machine.parted_lanes = False
            self._release_barriers(groups, alive)
        elif isinstance(control, Blocked):
            group.blocked = control
            return alive
        self._unblock_groups(groups)
        self._merge_groups(groups)
        return alive

    def _runs_all_threads(self) -> bool:
        """Return whether this executor runs all threads of all blocks, and on no side of a branch."""
        return self.depth == 0 and self.outside is None and self.machine.condition is None and self.machine.path is None

    def _end(self, group: LaneGroup) -> None:
        """The threads of a group end."""
        cluster = self.machine.cluster
        if cluster is not None:
            cluster.ended = cluster.ended | (True if group.mask is None else group.mask)

    def _unblock_groups(self, groups: list[LaneGroup]) -> None:
        for each in groups:
            if each.blocked is not None and (each.blocked.may_go_on is None or each.blocked.may_go_on()):
                each.blocked = None

    def _merge_groups(self, groups: list[LaneGroup]) -> None:
        """Merge groups that are at the same instruction."""
        if self.separated is not None:
            self.separated.end()
        if len(groups) < 2:
            return
        places: dict[int, LaneGroup] = {}
        for group in list(groups):
            if group.waiting is not None:
                continue
            other = places.get(group.pc)
            if other is None:
                places[group.pc] = group
                continue
            if self.separated is not None:
                self.separated.join(other, group)
            other.blocked = None
            other.mask = None if other.mask is None or group.mask is None else other.mask | group.mask
            groups.remove(group)
        if len(groups) == 1 and groups[0].mask is not None:
            mask = groups[0].mask
            full = (self.machine.blocks, self.machine.threads)
            if mask.all() and np.broadcast_shapes(mask.shape, full) == full:
                groups[0].mask = None

    def _branch(self, control: Branch, taken: Value, group: LaneGroup, groups: list[LaneGroup]) -> None:
        machine, pc = self.machine, group.pc
        known = machine.known(taken)
        if known is None:
            self._run_both_sides(control, taken, group)
            return
        active = known if group.mask is None else known & group.mask
        if not active.any():
            group.pc = pc + 1
            return
        rest = ~known if group.mask is None else ~known & group.mask
        if not rest.any():
            group.pc = control.target
            return
        if not machine.parted_lanes and self._splits_warps(active, rest):
            machine.splits_warps = machine.parted_lanes = True
        machine.splits_blocks = machine.splits_blocks or self._splits_blocks(active, rest)
        group.mask, group.pc = rest, pc + 1
        groups.append(replace(group, pc=control.target, mask=active))

    def _splits_warps(self, left: Array, right: Array) -> bool:
        """Return whether some warp has lanes in both of these masks."""
        machine = self.machine
        if machine.threads % machine.warp:
            return True
        shape = machine.blocks, machine.threads
        one, other = (whole_mask(each, shape).reshape(-1, machine.warp).any(axis=1) for each in (left, right))
        return bool((one & other).any())

    def _splits_blocks(self, left: Array, right: Array) -> bool:
        """Return whether some block has lanes in both of these masks."""
        one, other = (np.broadcast_to(each.any(axis=1), (self.machine.blocks,)) for each in (left, right))
        return bool((one & other).any())

    def _jump(self, control: Jump, group: LaneGroup, groups: list[LaneGroup]) -> None:
        if not self.follows_data:
            raise Unsupported("an indirect branch is followed for a given launch only", self._line(group.pc))
        active = self.machine.active()
        self.machine.splits_warps = self.machine.parted_lanes = self.machine.splits_blocks = True
        targets = np.broadcast_to(control.targets, active.shape)
        first, *others = np.unique(targets[active]).tolist()
        groups += [replace(group, pc=place, mask=active & (targets == place)) for place in others]
        if others:
            group.mask = active & (targets == first)
        group.pc = first

    def _run_both_sides(self, control: Branch, taken: Value, group: LaneGroup) -> None:
        """Run both sides of a branch on data up to their join, and select per lane."""
        if not self.follows_data:
            self._run_forward_sides(control, taken, group)
            return
        machine, program, pc = self.machine, self.program, group.pc
        join = program.reconvergence.get(pc)
        if join is None:
            raise Unsupported(
                "the kernel's control flow depends on data, and its end may not be reached", self._line(pc)
            )
        entered = self.entered.get(pc, 0)
        machine.splits_blocks = True
        splits, parted = machine.splits_warps, machine.parted_lanes
        machine.splits_warps = machine.parted_lanes = True
        loop = loop_at(pc, control.target, join)
        if loop is not None and not entered and run_register_loop(machine, program, loop, taken, self._for_side):
            machine.mask, group.pc = group.mask, join
            return
        stopped = long_loop(machine, program, pc, loop, taken, entered, MAXIMUM_NESTING - self.depth)
        if stopped is not None:
            raise noted(stopped, machine)
        whole = self._whole_blocks_choose(taken, group, join)
        together = whole or is_uniform(machine, taken, machine.warp)
        machine.splits_warps, machine.parted_lanes = splits or not whole, parted or not together
        if entered:
            self._run_sides(control, taken, group, join, whole)
            return
        outer = machine.condition, machine.path
        before, blocks = Side.of(machine), BlockSide.before(machine) if whole else None
        try:
            self._run_sides(control, taken, group, join, whole)
        except LongLoop as error:
            allowed = machine.function_loops is None or error.line in machine.function_loops
            if error.branch != pc or not allowed:
                raise
            machine.condition, machine.path = outer
            machine.mask = group.mask
            before.begin(machine)
            if blocks is not None:
                blocks.end(machine)
                blocks.begin(machine)
            try:
                is_function = loop is not None and run_loop_system(
                    machine, program, loop, taken, blocks, lambda: self._side_of(group, pc)
                )
            except Unsupported:
                raise error from None
            if not is_function:
                raise
            group.pc = join

    def _run_sides(self, control: Branch, taken: Value, group: LaneGroup, join: int, whole: bool) -> None:
        """Run both sides of a branch on data, in whole blocks or by lanes, and join them."""
        machine, program, pc = self.machine, self.program, group.pc
        outer = machine.condition, machine.path
        before, blocks = Side.of(machine), BlockSide.before(machine) if whole else None
        parted, parted_after = machine.parted_lanes, False
        outcomes, memories = [], []
        for predicate, start in ((taken, control.target), (invert(machine.domain, taken), pc + 1)):
            before.begin(machine)
            machine.parted_lanes = parted
            if blocks is None:
                machine.condition, machine.mask = conjunction(machine.domain, outer[0], predicate), group.mask
            else:
                blocks.begin(machine)
                machine.path = conjunction(machine.domain, outer[1], predicate)
                machine.mask = possible_lanes(predicate, group.mask)
            if start != join:
                self._side_of(group, pc).start(start, join)
            parted_after |= machine.parted_lanes
            outcomes.append(Side.of(machine))
            if blocks is not None:
                memories.append(blocks.end(machine))
        machine.parted_lanes = parted_after  # what one side joins, the other one may have parted
        machine.condition, machine.path = outer
        machine.mask = group.mask
        if memories:
            join_blocks(machine, taken, memories[0], memories[1])
        if join < len(program.steps) or not program.kernel.entry:
            join_sides(machine, taken, outcomes[0], outcomes[1], live_at(program, join))
        group.pc = join

    def _whole_blocks_choose(self, taken: Value, group: LaneGroup, join: int) -> bool:
        """Return whether all threads of a block take the same side, and it matters that they do."""
        machine = self.machine
        if machine.condition is not None or machine.cluster is not None:
            return False
        effects = effects_of(self.program, region(self.program, group.pc, join))
        if not effects.overlaps(_WHOLE_BLOCK) or effects.overlaps(Effect.CLUSTER):
            return False
        if group.mask is not None or self.outside is not None:
            full = (machine.blocks, machine.threads)
            mask, others = whole_mask(group.mask, full), whole_mask(self.alive, full)
            if self.outside is not None:
                others = others | self.outside
            if (others & ~mask)[mask.any(axis=1)].any():
                return False
        loaded = decided_by_loads(machine, self.program, group.pc)
        return is_uniform(machine, taken, machine.threads, from_one_place=loaded)

    def _side_of(self, group: LaneGroup, pc: int) -> Executor:
        """Return an executor of one side of the branch on data at `pc`."""
        outside = self._lanes_outside(group, self.alive)
        entered = {**self.entered, pc: self.entered.get(pc, 0) + 1}
        return Executor(self.program, self.machine, self.budget, self.depth + 1, outside, entered)

    def _run_forward_sides(self, control: Branch, taken: Value, group: LaneGroup) -> None:
        """Run both sides of a forward branch on data on copies of the registers, and select per lane."""
        machine, pc = self.machine, group.pc
        machine.splits_warps = machine.parted_lanes = machine.splits_blocks = True
        guarded = self.program.kernel.instructions[pc].guard is not None
        reconvergence = self.program.reconvergence.get(pc) if guarded else None
        if (
            reconvergence is None
            or reconvergence >= len(self.program.steps)
            or reconvergence <= pc
            or control.target <= pc
        ):
            reason = "the kernel's control flow depends on data (a loop or an early end)"
            raise noted(DataDependent(reason, self._line(pc), (taken,)), machine)
        before, local, parameters = machine.registers, machine.local, machine.parameters
        outer = machine.condition
        results = []
        for predicate, start in ((taken, control.target), (invert(machine.domain, taken), pc + 1)):
            machine.registers, machine.local, machine.parameters = dict(before), dict(local), dict(parameters)
            machine.condition = conjunction(machine.domain, outer, predicate)
            machine.mask = group.mask
            if start != reconvergence:
                self._for_side().start(start, reconvergence)
            results.append(Side.of(machine))
        machine.condition = outer
        if_true, if_false = results
        machine.registers = merged_values(machine, taken, if_true.registers, if_false.registers)
        machine.parameters = merged_values(machine, taken, if_true.parameters, if_false.parameters)
        merge_local(machine, taken, if_true.local, if_false.local)
        machine.mask = group.mask
        group.pc = reconvergence

    def _for_side(self) -> Executor:
        """An executor of one side of a branch on data."""
        return Executor(self.program, self.machine, self.budget, self.depth + 1)

    def _lanes_outside(self, group: LaneGroup, alive: Array | None) -> Array | None:
        """The lanes that have not exited and are not in the group."""
        if group.mask is None:
            return self.outside
        full = (self.machine.blocks, self.machine.threads)
        others = ~np.broadcast_to(group.mask, full)
        if alive is not None:
            others = others & alive
        return others if self.outside is None else others | self.outside

    def _call(self, control: Call, group: LaneGroup, outside: Array | None) -> None:
        machine = self.machine
        function = self.program.functions.get(control.function)
        if function is None:
            raise Unsupported(f"the function {control.function} has no body", self._line(group.pc))
        caller, parameters = machine.registers, machine.parameters
        self._forget_arrays(function)
        machine.registers = {}
        machine.parameters = dict(
            zip((parameter.name for parameter in function.kernel.parameters), control.arguments, strict=True)
        )
        Executor(function, machine, self.budget, self.depth + 1, outside).start()
        returned = [machine.parameters.get(each.name) for each in function.kernel.returns]
        machine.registers, machine.parameters = caller, parameters
        machine.mask = group.mask
        for operand, value in zip(control.results, returned, strict=True):
            if value is None:
                raise Unsupported(f"the function {control.function} returns nothing", self._line(group.pc))
            assert isinstance(operand, Symbol)
            machine.set_parameter(operand.name, value)
        group.pc += 1

    def _forget_arrays(self, function: Program) -> None:
        """A function that is called again finds nothing in its local arrays."""
        machine = self.machine
        for array in function.kernel.local:
            start = machine.symbols.get(array.name)
            if start is not None:
                machine.local = {
                    place: value for place, value in machine.local.items() if not start <= place < start + array.size
                }

    def _remove_lanes(self, alive: Array | None, mask: Array | None, groups: list[LaneGroup]) -> Array | None:
        full = (self.machine.blocks, self.machine.threads)
        after = whole_mask(alive, full) & ~whole_mask(mask, full)
        self._release_barriers(groups, after)
        self._unblock_groups(groups)
        return after

    def _release_barriers(self, groups: list[LaneGroup], alive: Array | None) -> None:
        """Release every barrier at which all expected threads have arrived."""
        machine = self.machine
        kinds = {(group.waiting.number, group.waiting.count) for group in groups if group.waiting is not None}
        for number, count in kinds:
            waiting = [each for each in groups if each.waiting is not None and each.waiting.number == number]
            alike = [each for each in waiting if each.waiting is not None and each.waiting.count == count]
            if not alike:
                continue
            orders_global = all(each.waiting is not None and each.waiting.orders_global for each in alike)
            if len(waiting) == 1 and waiting[0].mask is None and count in (None, machine.threads):
                self._release_single_group(waiting[0], orders_global)
                continue
            full = (machine.blocks, machine.threads)
            present, others = np.zeros((2, *full), dtype=bool)
            for group in waiting:
                lanes = present if group in alike else others
                lanes |= machine.active(full) if group.mask is None else np.broadcast_to(group.mask, full)
            if (present.any(axis=1) & others.any(axis=1)).any():
                raise Unsupported("threads wait at one barrier for different numbers of threads", machine.line)
            arrived = present.sum(axis=1)
            needed = (
                (
                    np.full(machine.blocks, machine.threads)
                    if alive is None
                    else np.broadcast_to(alive, full).sum(axis=1)
                )
                if count is None
                else count
            )
            ready = (arrived >= needed) & (arrived > 0)
            for group in alike:
                mask = np.broadcast_to(np.True_ if group.mask is None else group.mask, full)
                released = mask & ready[:, None]
                if not released.any():
                    continue
                remaining = mask & ~ready[:, None]
                if remaining.any():
                    groups.append(replace(group, mask=remaining))
                    group.mask = released
                group.waiting = None
            if ready.any():
                everyone = whole_mask(alive, full)
                if self.outside is not None:
                    everyone = everyone | self.outside
                if count is not None and are_parts_of_warps(present[ready], everyone[ready], machine.warp):
                    raise Unsupported("a barrier of some threads is executed by a part of a warp", machine.line)
                if (arrived > needed).any():
                    reason = "more threads arrive at a barrier together than it waits for: which of them meet is open"
                    raise Unsupported(reason, machine.line)
                meet(machine, number, present & ready[:, None])
                machine.races.forget_what_is_ordered()
                # Blocks that have ended pass no barrier, and access nothing either.
                passed = ~(everyone & ~(present & ready[:, None])).any(axis=1)
                if not orders_global or (machine.memory.orders_blocks and not passed.all()):
                    continue
                if not pass_without(machine, ~everyone & (ready & passed)[:, None]):
                    machine.epoch = next_epoch(machine.epoch, passed)

    def _release_single_group(self, group: LaneGroup, orders_global: bool) -> None:
        machine = self.machine
        for races in machine.races.acting(None):
            races.barrier(np.arange(races.warps))
        machine.races.forget_what_is_ordered()
        if orders_global:
            machine.epoch = machine.epoch + 1
        group.waiting = None


def _nested_too_deeply(machine: Machine) -> Unsupported:
    reason = "branches on data or calls nest too deeply"
    if machine.condition is None:
        return Unsupported(reason)
    return noted(DataDependent(reason, None, (machine.condition,)), machine)
