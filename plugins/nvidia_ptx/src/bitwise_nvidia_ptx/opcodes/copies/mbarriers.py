"""mbarrier objects in shared memory: arrivals of threads, transaction bytes of copies, phases.

Source: PTX ISA 8.7, "mbarrier".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import numpy as np

from bitwise_core.assembly.module import Address, Instruction, Operand, Register, Symbol
from bitwise_core.execution.alternatives import Alternative, NotJoined, Ways
from bitwise_core.execution.architecture import Context, OpcodeTable, UnknownInstruction
from bitwise_core.execution.domains.domain import DataDependent, Unsupported
from bitwise_core.execution.instruction_info import DESTINATION_FIRST, Effect
from bitwise_core.execution.machine import Blocked, Control, Machine, Step
from bitwise_core.execution.memory.access import detector_cells
from bitwise_core.execution.memory.async_groups import NOT_THE_SAME_GROUPS
from bitwise_core.execution.memory.cluster_memory import (
    arrive_from_cluster,
    cluster_state,
    complete_copy,
    complete_stores,
    enter_phase_from_cluster,
    expect_from_cluster,
    use_in_cluster,
)
from bitwise_core.execution.memory.loads import LoadInFlight
from bitwise_core.execution.opcode_steps import for_each_set_of_threads
from bitwise_core.execution.values.symbolic_vector import Array, Value
from bitwise_nvidia_ptx.addresses.shared import own_offset, place_of
from bitwise_nvidia_ptx.opcodes.cluster_fences import ACQUIRE_FENCE, is_followed_by_a_fence, is_released_by_a_fence
from bitwise_nvidia_ptx.opcodes.common import check_modifiers
from bitwise_nvidia_ptx.opcodes.copies.issuing_thread import (
    active_lane_count,
    for_each_number,
    for_each_place,
    require_known_condition,
    uniform_offset,
)
from bitwise_nvidia_ptx.opcodes.memory import address_of

TABLE = OpcodeTable()


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy to shared memory that completes on an mbarrier.

    `blocks` (boolean, shape (blocks,)) are those whose mbarriers it completes on, in their phases `phase`.  The copy of
    each goes to the block `shift` ranks after it, which has the row of that block in `value`.  `touched` are all cells
    that it writes, `loads` its loads from global memory.
    """

    phase: Array
    cells: Array
    value: Value
    blocks: Array
    touched: Array
    shift: int = 0
    loads: tuple[LoadInFlight, ...] = ()


@dataclass(frozen=True, slots=True)
class ThreadCopy:
    """A copy by threads (cp.async) that completes on an mbarrier, see `Copy`.

    Each thread of `mask` (boolean, shape (blocks, threads), None for all) writes `bits` bits from its cell in `cells`.
    `loads` are its loads from global memory, and `line` is that of its instruction.
    """

    phase: Array
    cells: Array
    value: Value
    mask: Array | None
    bits: int
    blocks: Array
    line: int
    loads: tuple[LoadInFlight, ...] = ()


@dataclass(frozen=True, slots=True)
class StoresOfCluster:
    """Asynchronous stores of threads to blocks of their cluster that complete on mbarriers there, see `Copy`.

    Each thread of `mask` (boolean, shape (blocks, threads)) writes `bits` bits from its cell in `cells` of the block of
    its rank in `ranks`, both of that shape.  `blocks` are those with the mbarriers, to which they go.
    """

    phase: Array
    cells: Array
    ranks: Array
    value: Value
    mask: Array
    bits: int
    blocks: Array


_AnyCopy = TypeVar("_AnyCopy", Copy, ThreadCopy, StoresOfCluster)


def _in_blocks(copies: list[_AnyCopy], blocks: Array) -> list[_AnyCopy]:
    """Return the copies that complete in some blocks (a boolean array), in these."""
    found = [replace(each, blocks=each.blocks & blocks) for each in copies]
    return [each for each in found if each.blocks.any()]


def _is_same_copy(left: _AnyCopy, right: _AnyCopy) -> bool:
    """Return whether two copies of some blocks are one that was issued before a branch."""
    same = left.value is right.value and left.cells is right.cells and np.array_equal(left.blocks, right.blocks)
    return same and bool((left.phase == right.phase)[left.blocks].all())


def _joined_copies(left: list[_AnyCopy], right: list[_AnyCopy], ways: Ways) -> tuple[list[_AnyCopy], Array]:
    """Return the copies in flight after both ways of a branch, and the blocks that may have taken either with some.

    Raises NotJoined for blocks that have other copies in flight after either way.
    """
    mine, others = _in_blocks(left, ways.open), _in_blocks(right, ways.open)
    if len(mine) != len(others) or not all(map(_is_same_copy, mine, others)):
        raise NotJoined(NOT_THE_SAME_GROUPS)
    blocks = np.zeros(ways.first.shape, dtype=bool)
    for each in mine:
        blocks |= each.blocks
    return mine + _in_blocks(left, ways.first) + _in_blocks(right, ways.second), blocks


@dataclass(slots=True)
class MBarrier:
    """An mbarrier in each block of the batch; arrays have the shape (blocks,).

    `initialised`: whether the block has initialised it.  `count` is the number of arrivals of a phase, `missing` the
    number still missing, `bytes` the pending transaction bytes, `phase` the number of the current phase.
    """

    address: int
    initialised: Array
    count: Array
    missing: Array
    bytes: Array
    phase: Array
    copies: list[Copy] = field(default_factory=list)
    thread_copies: list[ThreadCopy] = field(default_factory=list)
    stores: list[StoresOfCluster] = field(default_factory=list)

    def copy(self) -> MBarrier:
        """Return an independent copy: arrays are replaced and never changed."""
        lists = list(self.copies), list(self.thread_copies), list(self.stores)
        return replace(self, copies=lists[0], thread_copies=lists[1], stores=lists[2])

    def absent(self) -> MBarrier:
        """Return an mbarrier at this address that no block has initialised.  No phase of it ends."""
        one, zero = np.ones_like(self.count), np.zeros_like(self.count)
        return MBarrier(self.address, np.zeros_like(self.initialised), one, one, zero, zero)

    def joined(self, other: MBarrier, ways: Ways) -> MBarrier:
        """Return the mbarrier after both ways of a branch, which left this one and another.  Raises NotJoined.

        Where both ways leave it initialised, it must be in one state.  Phases of one parity without copies in flight
        are one state: what waits for a phase names its parity.  Where one way leaves it initialised, it is not
        initialised after both.
        """
        open_, second = ways.open, ways.second
        copies, of_copies = _joined_copies(self.copies, other.copies, ways)
        thread_copies, of_threads = _joined_copies(self.thread_copies, other.thread_copies, ways)
        stores, of_stores = _joined_copies(self.stores, other.stores, ways)
        in_flight = of_copies | of_threads | of_stores
        alike = (self.count == other.count) & (self.missing == other.missing) & (self.bytes == other.bytes)
        alike &= np.where(in_flight, self.phase == other.phase, self.phase % 2 == other.phase % 2)
        both = self.initialised & other.initialised
        if (both & open_ & ~alike).any():
            raise NotJoined(_OTHER_PHASES)
        return MBarrier(
            self.address,
            np.where(open_, both, np.where(second, other.initialised, self.initialised)),
            np.where(second, other.count, self.count),
            np.where(second, other.missing, self.missing),
            np.where(second, other.bytes, self.bytes),
            np.where(second, other.phase, self.phase),
            copies,
            thread_copies,
            stores,
        )


_OTHER_PHASES = "the ways of a branch on data leave a memory barrier in different phases"


class MBarriers(dict[int, MBarrier], Alternative):
    """The mbarriers of a batch of blocks by their addresses."""

    def copy(self) -> MBarriers:
        """See `Alternative.copy`."""
        return MBarriers({address: each.copy() for address, each in self.items()})

    def joined(self, other: MBarriers, ways: Ways) -> MBarriers:
        """See `Alternative.joined`."""
        found = MBarriers()
        for address in {**self, **other}:
            one, another = self.get(address), other.get(address)
            some = another if one is None else one
            assert some is not None
            found[address] = (one or some.absent()).joined(another or some.absent(), ways)
        return found


def mbarrier_at(machine: Machine, operand: Operand) -> MBarrier:
    """Return the mbarrier at an address that all active threads share.  Raises Unsupported."""
    require_known_condition(machine, "an mbarrier operation")
    address = uniform_offset(machine, operand, "an mbarrier")
    found = initialised_mbarrier(machine, address, machine.active_blocks())
    _touch(machine, address, writes=False)
    return found


def initialised_mbarrier(machine: Machine, address: int, blocks: Array) -> MBarrier:
    """Return the mbarrier at an address of these blocks (a boolean array).  Raises Unsupported if one has none."""
    found: MBarrier | None = machine.extra.setdefault("mbarriers", MBarriers()).get(address)
    if found is None or not found.initialised[blocks].all():
        raise Unsupported("an mbarrier is used before it is initialised")
    return found


def _touch(machine: Machine, address: int, *, writes: bool) -> None:
    """Record an access of the active threads to an mbarrier: a use, or its initialisation or invalidation (`writes`).

    The race detector requires that uses are ordered after the initialisation and before the invalidation.
    """
    cells = _cells_of(machine, address)
    threads = np.flatnonzero(machine.active_threads())
    where, actors = np.tile(cells, threads.size), np.repeat(threads, cells.size)
    for races in machine.races.acting(machine.mask):
        if writes:
            races.writes(where, actors)
        else:
            races.reads(where, actors, "uses a memory barrier in")


def _cells_of(machine: Machine, address: int) -> Array:
    """Return the cells of shared memory of the mbarrier at an address."""
    granule = machine.shared.granule
    return np.arange(address // granule, -(-(address + 8) // granule))


def fence_of_initialisations(instruction: Instruction) -> Step:
    """fence.mbarrier_init.release.cluster: the next barrier of the cluster publishes what its threads initialised."""

    def step(machine: Machine) -> None:
        addresses = sorted(machine.extra.get("mbarriers", {}))
        if machine.cluster is None or not addresses:
            return
        if machine.condition is not None or machine.path is not None:
            raise DataDependent("a fence depends on data", instruction.line)
        cells = np.concatenate([_cells_of(machine, each) for each in addresses])
        active = machine.active()
        for threads in np.unique(active[active.any(axis=1)], axis=0):
            for races in machine.races.of_blocks((active == threads).all(axis=1)):
                races.fence_initialisations(cells, np.flatnonzero(threads))

    return step


def enter_phase(machine: Machine, barrier: MBarrier, warps: Array) -> None:
    """Active threads of these warps arrive at the mbarrier of their block; see `RaceDetector.enter_phase`."""
    for races in machine.races.acting(machine.mask):
        races.enter_phase(barrier.address, warps)


def complete_phase(machine: Machine, barrier: MBarrier) -> None:
    """Start the next phase in the blocks where no arrival and no byte is missing."""
    done: Array = (barrier.missing <= 0) & (barrier.bytes == 0)
    if np.any(done):
        for races in machine.races.of_blocks(done):
            races.complete(barrier.address)
    barrier.phase = barrier.phase + done
    barrier.missing = np.where(done, barrier.count, barrier.missing)


_MODIFIERS = {
    "init": {"shared", "shared::cta", "b64"},
    "inval": {"shared", "shared::cta", "b64"},
    "arrive": {"expect_tx", "release", "relaxed", "cta", "cluster", "shared", "shared::cta", "shared::cluster", "b64"},
    "expect_tx": {"relaxed", "cta", "cluster", "shared", "shared::cta", "shared::cluster", "b64"},
    "try_wait": {"parity", "acquire", "relaxed", "cta", "cluster", "shared", "shared::cta", "b64"},
    "test_wait": {"parity", "acquire", "cta", "cluster", "shared", "shared::cta", "b64"},
}
"""The modifiers of each operation that are modelled."""


def _effects(instruction: Instruction) -> Effect:
    parts = instruction.opcode.split(".")
    found = Effect.LOAD | Effect.STORE
    return found | Effect.CLUSTER if "shared::cluster" in parts else found


@TABLE.opcode("mbarrier", operands=DESTINATION_FIRST, effects=_effects)
def mbarrier(instruction: Instruction, context: Context) -> Step:
    """mbarrier.{init,inval,arrive,arrive.expect_tx,expect_tx,try_wait,test_wait}."""
    parts = instruction.opcode.split(".")
    line = instruction.line
    verb = parts[1]
    check_modifiers(instruction, parts[2:], _MODIFIERS.get(verb, set()))
    if verb == "init":
        return _initialise(instruction)
    if verb == "inval":
        target = instruction.operands[0]

        def invalidate(machine: Machine) -> None:
            for_each_set_of_threads(machine, lambda: invalidate_together(machine))

        def invalidate_together(machine: Machine) -> None:
            require_known_condition(machine, "an mbarrier operation")
            address = uniform_offset(machine, target, "an mbarrier")
            _touch(machine, address, writes=True)
            found: MBarrier | None = machine.extra.get("mbarriers", {}).get(address)
            if found is not None:
                found.initialised = found.initialised & ~machine.active_blocks()

        return invalidate
    if verb in ("arrive", "expect_tx"):
        if "shared::cluster" in parts:
            publishes = "relaxed" not in parts or ("cluster" in parts and is_released_by_a_fence(instruction, context))
            return _arrive_in_cluster(instruction, verb == "arrive", "expect_tx" in parts, publishes)
        return _arrive(instruction, verb == "arrive", "expect_tx" in parts)
    if verb in ("try_wait", "test_wait"):
        if "parity" not in parts:
            raise UnknownInstruction(instruction)
        if not _is_retried(instruction, context):
            why = "is not repeated by a branch to itself until it succeeds, which is not modelled"
            raise UnknownInstruction(instruction, why)
        destination, target, parity = instruction.operands[:3]
        of_cluster = "cluster" in parts
        if "relaxed" in parts and not (of_cluster and is_followed_by_a_fence(instruction, context)):
            why = f"needs .cluster, and {ACQUIRE_FENCE} after the branch that repeats it"
            raise UnknownInstruction(instruction, why)

        def wait(machine: Machine) -> Control | None:
            wanted = machine.known(machine.read_bits(parity, 32))
            if wanted is None:
                raise DataDependent("an mbarrier's parity depends on data", line)
            missing: list[tuple[int, Array] | None] = []
            place = machine.known(address_of(machine, target))
            if place is None:
                raise DataDependent("an mbarrier is at a computed address", line)
            # Each lane repeats it until it succeeds there, so that lanes may go on one after another.
            machine.splits_warps = machine.parted_lanes = True
            for_each_number(
                machine,
                (own_offset(machine, place), wanted & np.uint32(1)),
                lambda: missing.append(_wait(machine, mbarrier_at(machine, target), destination, wanted, of_cluster)),
            )
            if None in missing:
                return None
            phases = [each for each in missing if each is not None]
            return Blocked("an mbarrier", lambda: any(_is_in_other_phase(machine, *each) for each in phases))

        return wait
    raise UnknownInstruction(instruction)


def _is_retried(instruction: Instruction, context: Context) -> bool:
    """Return whether the next instruction branches back to this one if the wait has not succeeded.

    A branch to an instruction before it would repeat that one too, and how often is not determined.
    """
    instructions = context.kernel.instructions
    index_of_wait = next((index for index, each in enumerate(instructions) if each is instruction), None)
    if index_of_wait is None or index_of_wait + 1 >= len(instructions):
        return False
    following = instructions[index_of_wait + 1]
    destination, target = instruction.operands[0], following.operands[0] if following.operands else None
    if not following.opcode.startswith("bra") or following.guard is None or not isinstance(target, Symbol):
        return False
    retries = context.kernel.labels.get(target.name) == index_of_wait
    return retries and following.guard.negated and Register(following.guard.register) == destination


def _initialise(instruction: Instruction) -> Step:
    target, count = instruction.operands

    def initialise(machine: Machine) -> None:
        require_known_condition(machine, "an mbarrier operation")
        number = machine.known(machine.read_bits(count, 32))
        if number is None or (number != number.flat[0]).any():
            raise Unsupported("the count of an mbarrier differs between threads or depends on data", instruction.line)
        blocks = machine.blocks
        arrivals = np.full(blocks, int(number.flat[0]), dtype=np.int64)
        zero = np.zeros(blocks, dtype=np.int64)
        address = uniform_offset(machine, target, "an mbarrier")
        active = machine.active_blocks()
        _replace_in_active_blocks(machine, MBarrier(address, active, arrivals, arrivals.copy(), zero, zero.copy()))

    def step(machine: Machine) -> None:
        for_each_set_of_threads(machine, lambda: initialise(machine))

    return step


def _replace_in_active_blocks(machine: Machine, barrier: MBarrier) -> None:
    """Initialise the mbarrier of the active blocks; that of blocks that diverged from them does not change."""
    known: MBarriers = machine.extra.setdefault("mbarriers", MBarriers())
    before, blocks = known.get(barrier.address), machine.active_blocks()
    if before is not None and not blocks.all():
        for name in ("count", "missing", "bytes", "phase"):
            setattr(barrier, name, np.where(blocks, getattr(barrier, name), getattr(before, name)))
        barrier.initialised = before.initialised | blocks
        barrier.copies = [replace(each, blocks=each.blocks & ~blocks) for each in before.copies]
        barrier.thread_copies = [replace(each, blocks=each.blocks & ~blocks) for each in before.thread_copies]
        barrier.stores = [replace(each, blocks=each.blocks & ~blocks) for each in before.stores]
    known[barrier.address] = barrier
    _touch(machine, barrier.address, writes=True)
    for races in machine.races.of_blocks(blocks):
        races.begin(barrier.address, _cells_of(machine, barrier.address))


def _operands(instruction: Instruction) -> tuple[Operand, Operand | None]:
    """Return the mbarrier of an arrival, and its count or number of bytes if it has one."""
    index = next((i for i, each in enumerate(instruction.operands) if isinstance(each, Address)), None)
    if index is None:
        raise UnknownInstruction(instruction)
    rest = instruction.operands[index + 1 :]
    return instruction.operands[index], rest[0] if rest else None


def _amount(machine: Machine, operand: Operand | None, line: int) -> int:
    if operand is None:
        return 1
    number = machine.known(machine.read_bits(operand, 32))
    if number is None or (number != number.flat[0]).any():
        raise Unsupported("an operand of an mbarrier instruction differs between threads or depends on data", line)
    return int(number.flat[0])


def count_arrivals(
    machine: Machine, barrier: MBarrier, lanes: Array, amount: int, kind: tuple[bool, bool], line: int
) -> None:
    """Count the arrivals or bytes of `lanes` threads in each block; `kind`: whether they arrive, and expect bytes."""
    arrives, expects = kind
    if expects:
        barrier.bytes = barrier.bytes + amount * lanes
        if arrives:
            barrier.missing = barrier.missing - lanes
    else:
        barrier.missing = barrier.missing - amount * lanes
    if (barrier.missing < 0).any():
        raise Unsupported("threads arrive at an mbarrier more often than its phase waits for", line)
    if arrives:
        complete_phase(machine, barrier)


def _arrive(instruction: Instruction, arrives: bool, expects: bool) -> Step:
    target, number = _operands(instruction)
    publishes = arrives and "relaxed" not in instruction.opcode.split(".")

    def arrive(machine: Machine) -> None:
        barrier = mbarrier_at(machine, target)
        lanes = active_lane_count(machine)
        amount = _amount(machine, number, instruction.line)
        enter_phase(machine, barrier, machine.active_warps())
        if not arrives:  # the phase must not end before it expects these bytes
            for races in machine.races.acting(machine.mask):
                races.track_copies(barrier.address, machine.active_threads())
        if publishes:
            for races in machine.races.acting(machine.mask):
                races.arrive_after_copies(barrier.address, machine.active_threads())
                races.arrive(barrier.address, machine.active_warps(), machine.active_whole_warps())
        count_arrivals(machine, barrier, lanes, amount, (arrives, expects), instruction.line)

    def step(machine: Machine) -> None:
        for_each_place(machine, (target,), lambda: arrive(machine))

    return step


def _arrive_in_cluster(instruction: Instruction, arrives: bool, expects: bool, publishes: bool) -> Step:
    """An arrival at mbarriers of any blocks of the cluster, which may differ between threads.

    If it `publishes` without the scope .cluster, it publishes nothing to other blocks.
    """
    target, number = _operands(instruction)
    parts = instruction.opcode.split(".")

    def step(machine: Machine) -> None:
        require_known_condition(machine, "an mbarrier operation")
        value = machine.known(address_of(machine, target))
        if value is None:
            raise DataDependent("an mbarrier is at a computed address")
        offset, ranks = place_of(machine, value)
        outer, active = machine.mask, machine.active()
        places = np.stack([np.broadcast_to(each, active.shape)[active].astype(np.int64) for each in (ranks, offset)])
        amount = _amount(machine, number, instruction.line)
        state, _ = cluster_state(machine)

        counted: set[tuple[int, int]] = set()

        def arrive(rank: int, address: int) -> None:
            lanes = np.zeros(machine.blocks, dtype=np.int64)
            lanes[rank :: state.size] = active_lane_count(machine).reshape(-1, state.size).sum(axis=1)
            use_in_cluster(machine, address, rank)
            barrier = initialised_mbarrier(machine, address, lanes > 0)
            enter_phase_from_cluster(machine, address, rank, machine.active_blocks(), counted)
            if not arrives:
                expect_from_cluster(machine, address, rank)
            if arrives and publishes:
                arrive_from_cluster(machine, address, rank, of_cluster="cluster" in parts)
            count_arrivals(machine, barrier, lanes, amount, (arrives, expects), instruction.line)

        try:
            for rank, address in np.unique(places, axis=1).T.tolist():
                machine.mask = active & (ranks == rank) & (offset == address)
                for_each_set_of_threads(machine, partial(arrive, rank, address))
        finally:
            machine.mask = outer

    return step


def _complete(machine: Machine, address: int, copy: Copy, arrived: Array, ago: int) -> None:
    """A copy completes on the mbarriers at an address of these blocks, shape (blocks,).

    `ago` - 1 phases have ended after its own.
    """
    receiving = np.roll(arrived, copy.shift)
    machine.shared.store(copy.cells, copy.value, None if receiving.all() else receiving[:, None])
    complete_copy(machine, copy.touched, address, copy.shift, arrived, ago)


def _complete_of_threads(machine: Machine, address: int, copy: ThreadCopy, arrived: Array, ago: int) -> None:
    """A copy by threads completes on the mbarriers at an address of these blocks, see `_complete`."""
    mask = copy.mask
    if not arrived.all():
        mask = arrived[:, None] if mask is None else mask & arrived[:, None]
    if copy.loads:
        machine.memory.complete(copy.loads, machine.epoch)
    machine.shared.store(copy.cells, copy.value, mask)
    for races, where, _ in detector_cells(machine, copy.cells, copy.bits, mask):
        races.arrived(where, address, ago=ago, copied_at=copy.line)


def _complete_stores(machine: Machine, address: int, stores: StoresOfCluster, arrived: Array, ago: int) -> None:
    """Stores of the cluster complete on the mbarriers at an address of these blocks, see `_complete`."""
    complete_stores(machine, stores.cells, stores.ranks, stores.value, stores.mask, (address, arrived, ago))


def _pending(
    copies: list[_AnyCopy], barrier: MBarrier, blocks: Array, complete: Callable[[_AnyCopy, Array, int], None]
) -> list[_AnyCopy]:
    """Complete the copies of ended phases in these blocks, and return those that are pending in other blocks."""
    left = []
    for each in copies:
        arrived = (barrier.phase > each.phase) & each.blocks & blocks
        ago = barrier.phase - each.phase
        for number in np.unique(ago[arrived]).tolist():
            complete(each, arrived & (ago == number), number)
        if (each.blocks & ~arrived).any():
            left.append(replace(each, blocks=each.blocks & ~arrived))
    return left


def _is_in_other_phase(machine: Machine, address: int, phase: Array) -> bool:
    """Return whether the mbarrier at an address has another phase than this one, shape (blocks,), in some block."""
    found: MBarrier | None = machine.extra["mbarriers"].get(address)
    return found is None or not np.array_equal(found.phase, phase)


def _wait(
    machine: Machine, barrier: MBarrier, destination: Operand, parity: Array, of_cluster: bool
) -> tuple[int, Array] | None:
    """Wait for the phase of the given parity: it is complete if the current phase has the other parity.

    All active threads have the same parity, and all active blocks the same active threads.  If it is complete in no
    active block, the predicate is false there, and the address of the mbarrier and its current phase are returned.

    `of_cluster`: what other blocks published to the phase becomes visible as well.
    """
    active = machine.active()
    lowest = parity.astype(np.int64) & 1
    wanted = int(np.broadcast_to(lowest, active.shape)[active][0])
    ready = np.broadcast_to((barrier.phase[:, None] & 1) != wanted, active.shape)
    if not (ready & active).any():
        machine.write(destination, np.zeros((1, 1), dtype=bool))
        return barrier.address, barrier.phase.copy()
    blocks: Array = np.any(ready & active, axis=1)
    barrier.thread_copies = _pending(
        barrier.thread_copies, barrier, blocks, partial(_complete_of_threads, machine, barrier.address)
    )
    ended = list[tuple[Copy, Array]]()

    def complete(copy: Copy, arrived: Array, ago: int) -> None:
        _complete(machine, barrier.address, copy, arrived, ago)
        ended.append((copy, arrived))

    barrier.copies = _pending(barrier.copies, barrier, blocks, complete)
    barrier.stores = _pending(barrier.stores, barrier, blocks, partial(_complete_stores, machine, barrier.address))
    for races in machine.races.of_blocks(blocks):
        whole = machine.active_whole_warps()
        races.acquire(barrier.address, machine.active_warps(), wanted, whole, of_cluster=of_cluster)
        races.waited_at(_cells_of(machine, barrier.address), machine.active_warps())
    for copy, arrived in ended:
        _end_loads(machine, copy, arrived)
    machine.write(destination, ready)
    return None


def _end_loads(machine: Machine, copy: Copy, arrived: Array) -> None:
    """The loads of a copy that completes in these blocks are complete, if all threads of the blocks know that it has.

    Other waits for its phase may have ended with an earlier phase.
    """
    if not copy.loads or copy.shift or machine.cluster is not None:
        return
    if machine.condition is not None or machine.path is not None:
        return
    rows = arrived & machine.active().all(axis=1)
    if not rows.any():
        return
    warps = np.arange(-(-machine.threads // machine.warp))
    if all(races.has_seen_writes(copy.touched, warps) for races in machine.races.of_blocks(rows)):
        thread = np.broadcast_to(machine.thread[:, :1], (machine.blocks, 1))[rows, 0]
        epoch = np.broadcast_to(machine.epoch, (machine.blocks, 1))[rows, 0]
        machine.memory.end_copies(copy.loads, thread, epoch)
