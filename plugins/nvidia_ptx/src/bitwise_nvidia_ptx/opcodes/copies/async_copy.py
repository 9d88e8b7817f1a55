"""Asynchronous copies by threads: cp.async, its groups and waits, and arrivals at memory barriers on completion.

Source: PTX ISA 8.7, "Data Movement: Asynchronous copy", and "cp.async.mbarrier.arrive".
The bytes of a copy arrive when its thread waits for its group, or a thread for the phase of the memory barrier that
tracks it.  Until then an access to its cells is a race.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from operator import is_

import numpy as np

from bitwise_core.assembly.module import Address, Instruction, Operand, Register
from bitwise_core.execution.alternatives import Alternative, NotJoined, Ways
from bitwise_core.execution.architecture import Context, OpcodeTable, UnknownInstruction
from bitwise_core.execution.domains.domain import DataDependent, Unsupported
from bitwise_core.execution.instruction_info import NO_DESTINATION, Effect, InstructionInfo
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.memory.access import accessed_cells, check_aligned, detector_cells
from bitwise_core.execution.memory.async_groups import NOT_THE_SAME_GROUPS, AsyncGroups
from bitwise_core.execution.memory.loads import LoadInFlight
from bitwise_core.execution.opcode_steps import for_each_set_of_threads
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.packing import as_symbolic_vector, blend_values, concat
from bitwise_core.execution.values.symbolic_vector import Array, Value, every
from bitwise_nvidia_ptx.addresses.pointer_parameters import pointer_parameters
from bitwise_nvidia_ptx.addresses.shared import own_offset
from bitwise_nvidia_ptx.opcodes.common import DEPENDS_ON_ORDER
from bitwise_nvidia_ptx.opcodes.copies import cluster_copies, tensor_copy
from bitwise_nvidia_ptx.opcodes.copies.issuing_thread import active_lane_count, for_each_place
from bitwise_nvidia_ptx.opcodes.copies.mbarriers import ThreadCopy, count_arrivals, enter_phase, mbarrier_at
from bitwise_nvidia_ptx.opcodes.memory import PointerParameters, address_of, buffers_of, literal_value

TABLE = OpcodeTable()


@dataclass(frozen=True, slots=True)
class PendingCopy:
    """A copy in flight: its shared-memory cells, its value, and the mask, threads and blocks that issued it.

    `loads` are its loads from global memory, and `line` is that of its instruction.
    """

    cells: Array
    value: Value
    mask: Array | None
    bits: int
    threads: Array
    blocks: Array
    line: int
    loads: tuple[LoadInFlight, ...] = ()


@dataclass(slots=True)
class PendingCopies(Alternative):
    """The copies in flight of a batch of blocks: those not committed, and the groups of each set of threads."""

    open: list[PendingCopy] = field(default_factory=list)
    groups: dict[bytes, AsyncGroups[PendingCopy]] = field(default_factory=dict)

    def copy(self) -> PendingCopies:
        """See `Alternative.copy`."""
        return PendingCopies(list(self.open), {key: groups.copy() for key, groups in self.groups.items()})

    def joined(self, other: PendingCopies, ways: Ways) -> PendingCopies:
        """See `Alternative.joined`: both ways leave the same copies in flight, which were issued before the branch.

        One way may have waited for some of them, see `AsyncGroups.joined`, if shared memory holds what they copied.
        """

        def has_arrived(copy: PendingCopy, blocks: Array, way: int) -> bool:
            mask = blocks[:, None] if copy.mask is None else blocks[:, None] & copy.mask
            return bool(ways.shared[way].holds(copy.cells, copy.value, mask).all())

        more = len(self.open) - len(other.open)
        longer, shorter = (self.open, other.open) if more >= 0 else (other.open, self.open)
        if not all(map(is_, longer[abs(more) :], shorter)) or not all(
            has_arrived(each, _of_blocks(each, ways.open), int(more > 0)) for each in longer[: abs(more)]
        ):
            raise NotJoined(NOT_THE_SAME_GROUPS)
        none = AsyncGroups[PendingCopy]()
        groups = {
            key: self.groups.get(key, none).joined(other.groups.get(key, none), ways, _same_copies, has_arrived)
            for key in {**self.groups, **other.groups}
        }
        return PendingCopies(list(longer), groups)


def _of_blocks(copy: PendingCopy, blocks: Array) -> Array:
    """Return these blocks as a boolean array.  Raises NotJoined for a copy of a block that is not among them."""
    if not blocks[copy.blocks].all():
        raise NotJoined(NOT_THE_SAME_GROUPS)
    found = np.zeros_like(blocks)
    found[copy.blocks] = True
    return found


def _same_copies(left: Sequence[PendingCopy], right: Sequence[PendingCopy], blocks: Array) -> bool:
    """Return whether the copies of some of these blocks are the same ones."""
    one, other = _copies_in(left, blocks), _copies_in(right, blocks)
    return len(one) == len(other) and all(map(is_, one, other))


def _copies_in(copies: Sequence[PendingCopy], blocks: Array) -> list[PendingCopy]:
    """Return the copies of some of these blocks."""
    return [each for each in copies if blocks[each.blocks].any()]


def pending_copies(machine: Machine) -> PendingCopies:
    """Return the copies in flight of the machine's batch."""
    copies: PendingCopies = machine.extra.setdefault("copies", PendingCopies())
    return copies


def _effects(instruction: Instruction) -> Effect:
    copies = Effect.LOAD | Effect.STORE
    parts = instruction.opcode.split(".")
    if not {"multicast::cluster", "cta_group::2"}.isdisjoint(parts) or parts[3:5] == cluster_copies.SPACES:
        copies |= Effect.CLUSTER
    return copies | Effect.ASYNCHRONOUS if instruction.opcode.startswith(("cp.async", "cp.reduce.async")) else copies


def _info(instruction: Instruction) -> InstructionInfo:
    info = NO_DESTINATION.info(instruction, _effects(instruction))
    parts = instruction.opcode.split(".")
    # Only the tensor map says whether a sum is one of floats.
    return replace(info, nondeterminism=DEPENDS_ON_ORDER) if {"reduce", "add"} <= set(parts) else info


@TABLE.opcode("cp", operands=_info)
def copy(instruction: Instruction, context: Context) -> Step:
    """cp.async.{ca,cg}, its groups and waits.  `tensor_copy` handles bulk and tensor copies."""
    parts = instruction.opcode.split(".")
    if "bulk" in parts:
        between_blocks = parts[3:5] == cluster_copies.SPACES
        return cluster_copies.copy(instruction, parts) if between_blocks else tensor_copy.copy(instruction, context)
    if parts[1] != "async":
        raise UnknownInstruction(instruction)
    if parts[2] == "commit_group":
        return lambda machine: for_each_set_of_threads(machine, lambda: _commit(machine))
    if parts[2] in ("wait_group", "wait_all"):
        pending = literal_value(instruction.operands[0], instruction) if parts[2] == "wait_group" else 0
        return _wait(pending, parts[2] == "wait_all")
    if parts[2:4] == ["mbarrier", "arrive"]:
        counted = parts[4:5] == ["noinc"]
        if parts[4 + counted :] not in (["b64"], ["shared", "b64"], ["shared::cta", "b64"]):
            raise UnknownInstruction(instruction)
        return _arrive_when_copied(instruction, counted)
    if parts[2] not in ("ca", "cg") or parts[3] not in ("shared", "shared::cta") or "global" not in parts:
        raise UnknownInstruction(instruction)
    target, source, size, *rest = instruction.operands
    bits = 8 * literal_value(size, instruction)
    hinted = any("cache_hint" in each for each in parts)
    used = rest[: len(rest) - 1] if hinted else rest
    line = instruction.line
    base = source.base.name if isinstance(source, Address) and isinstance(source.base, Register) else ""

    @cache
    def pointers() -> frozenset[str] | None:
        return pointer_parameters(context.kernel, base, context.arch.opcodes)

    def step(machine: Machine) -> None:
        copied = used[0] if used else None
        for_each_set_of_threads(machine, lambda: _issue(machine, target, source, bits, copied, line, pointers))

    return step


def _issue(
    machine: Machine,
    target: Operand,
    source: Operand,
    bits: int,
    size: Operand | None,
    line: int,
    pointers: PointerParameters,
) -> None:
    begin = address_of(machine, source)
    destination, origin = machine.known(address_of(machine, target)), machine.known(begin)
    if destination is None:
        raise DataDependent("an asynchronous copy to a computed address", line)
    if machine.condition is not None:
        raise DataDependent("an asynchronous copy depends on data", line)
    for address in (destination, origin):
        if isinstance(address, np.ndarray):
            check_aligned(machine, address, bits // 8, line)
    loads: Sequence[LoadInFlight] = ()
    if origin is None:
        count = None if size is None else machine.read_bits(size, 32)
        value = machine.memory.copied(machine, begin, bits, count, machine.mask, line, buffers_of(machine, pointers()))
    else:
        with machine.memory.issuing() as loads:
            value = _source_value(machine, origin, bits, size, line)
    cells = accessed_cells(machine, own_offset(machine, destination))
    for races, where, threads in detector_cells(machine, cells, bits, machine.mask):
        races.writes(where, threads, pending=True, copied_at=line)
    acting, blocks = np.flatnonzero(machine.active_threads()), np.flatnonzero(machine.active_blocks())
    pending_copies(machine).open.append(
        PendingCopy(cells, value, machine.mask, bits, acting, blocks, line, tuple(loads))
    )


def _source_value(machine: Machine, origin: Array, bits: int, size: Operand | None, line: int) -> Value:
    outer = machine.mask
    count = None if size is None else machine.known(machine.read_bits(size, 32))
    if size is None or (count is not None and every(count == bits // 8)):
        return _load_global(machine, origin, bits, line)
    if count is None:
        return _value_where_read(machine, origin, bits, machine.read_bits(size, 32), line)
    zero = concat([np.zeros((1, 1), dtype=np.uint32)] * (bits // 32))
    whole, none = count == bits // 8, count == 0
    active = machine.active()
    if (~(whole | none) & active).any():
        raise Unsupported("an asynchronous copy whose source size is neither its size nor zero", line)
    loading = np.broadcast_to(whole, np.broadcast_shapes(whole.shape, (1, 1))) if outer is None else whole & outer
    if not loading.any():
        return zero
    machine.mask = None if loading.all() else loading
    value = _load_global(machine, origin, bits, line)
    machine.mask = outer
    return value if loading.all() else blend_values(whole, value, zero)


def _value_where_read(machine: Machine, origin: Array, bits: int, count: Value, line: int) -> Value:
    """Return what a copy reads where data decides whether it reads all its bytes or none, and zeros elsewhere.

    As for a load under a condition, lanes in which it may read do read.  Raises Unsupported.
    """
    outer = machine.mask
    whole = machine.memory.reads_all(count, bits // 8, outer, line)
    vector = as_symbolic_vector(whole)
    never = np.asarray(L.constant_mask(vector)) & (vector.words[0] == 0)
    loading = ~never if outer is None else ~never & outer
    where = origin.astype(np.uint64, copy=False)
    machine.mask = loading
    parts = [
        machine.memory.load(where + np.uint64(low // 8), 32, loading, machine.thread, machine.epoch, line)
        for low in range(0, bits, 32)
    ]
    machine.mask = outer
    return concat([machine.domain.select(whole, part, np.zeros((1, 1), dtype=np.uint32)) for part in parts])


def _load_global(machine: Machine, origin: Array, bits: int, line: int) -> Value:
    where = origin.astype(np.uint64, copy=False)
    parts = [
        machine.memory.load(
            where + np.uint64(low // 8) if low else where,
            min(bits, 64),
            machine.mask,
            machine.thread,
            machine.epoch,
            line,
        )
        for low in range(0, bits, 64)
    ]
    return concat(parts)


def _commit(machine: Machine) -> None:
    """Close a group of all copies that the active threads have issued."""
    copies, acting, blocks = pending_copies(machine), machine.active_threads(), machine.active_blocks()
    group: list[PendingCopy] = []
    left: list[PendingCopy] = []
    for each in copies.open:
        threads, rows = acting[each.threads], blocks[each.blocks]
        if threads.any() and rows.any() and not (threads.all() and rows.all()):
            raise Unsupported("threads that issued a copy together commit it separately")
        (group if threads.all() and rows.all() else left).append(each)
    copies.open = left
    copies.groups.setdefault(acting.tobytes(), AsyncGroups()).commit(group, blocks)


def _wait(pending: int, everything: bool) -> Step:
    def step(machine: Machine) -> None:
        for_each_set_of_threads(machine, lambda: wait(machine))

    def wait(machine: Machine) -> None:
        copies, acting, blocks = pending_copies(machine), machine.active_threads(), machine.active_blocks()
        if everything:
            _commit(machine)
        for key, groups in copies.groups.items():
            members = np.frombuffer(key, dtype=bool)
            if not groups.groups or not (members & acting).any():
                continue
            if (members & ~acting).any():
                raise Unsupported("threads that committed copies together wait for them separately")
            for work, done in groups.wait(pending, blocks):
                for each in work:
                    _finish(machine, each, done)

    return step


def _arrive_when_copied(instruction: Instruction, counted: bool) -> Step:
    """cp.async.mbarrier.arrive{.noinc}: the copies of the active threads complete on a memory barrier.

    `counted` (.noinc): the phase waits for one arrival of each thread.  Otherwise each thread adds the arrival that it
    waits for, so that other arrivals, which must be ordered after the instruction, complete the phase.
    """
    target = instruction.operands[0]
    line = instruction.line

    def arrive(machine: Machine) -> None:
        barrier = mbarrier_at(machine, target)
        enter_phase(machine, barrier, machine.active_warps())
        for races in machine.races.acting(machine.mask):
            races.expect_later(barrier.address)
        copies, acting, blocks = pending_copies(machine), machine.active_threads(), machine.active_blocks()
        active = machine.active()
        left: list[PendingCopy] = []
        for each in copies.open:
            threads, rows = acting[each.threads], blocks[each.blocks]
            if not (threads.any() and rows.any()):
                left.append(each)
                continue
            issued = np.broadcast_to(True if each.mask is None else each.mask, active.shape)
            if (issued & ~active).any():
                raise Unsupported("threads that issued a copy together arrive for it separately", line)
            barrier.thread_copies.append(
                ThreadCopy(
                    barrier.phase.copy(), each.cells, each.value, each.mask, each.bits, blocks, each.line, each.loads
                )
            )
        copies.open = left
        if counted:
            count_arrivals(machine, barrier, active_lane_count(machine), 1, (True, False), line)
            return
        for races in machine.races.acting(machine.mask):
            races.track_copies(barrier.address, acting)

    def step(machine: Machine) -> None:
        for_each_place(machine, (target,), lambda: arrive(machine))

    return step


def _finish(machine: Machine, copy: PendingCopy, done: Array) -> None:
    mask = copy.mask
    if not done.all():
        mask = done[:, None] if mask is None else mask & done[:, None]
    if copy.loads:
        machine.memory.complete(copy.loads, machine.epoch)
    machine.shared.store(copy.cells, copy.value, mask)
    for races, where, threads in detector_cells(machine, copy.cells, copy.bits, mask):
        races.finished(where, threads)
