"""Bulk tensor copies (TMA), their descriptors, and the memory barriers that count their bytes.

Source: PTX ISA 8.7, "Tensors", "cp.async.bulk.tensor", "tensormap.replace" and "mbarrier".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from bitwise_core.asm import Address, Instruction, Operand, Register, Symbol, Vector
from bitwise_core.machine import lanes as L
from bitwise_core.machine.arch import Context, OpcodeTable, UnknownInstruction
from bitwise_core.machine.domain import Unreadable
from bitwise_core.machine.groups import Groups
from bitwise_core.machine.lanes import Array, Value
from bitwise_core.machine.pieces import choose
from bitwise_core.machine.state import Blocked, Control, Machine, Step
from bitwise_nvidia_ptx.opcodes.memory import address_of, literal_of

TABLE = OpcodeTable()

TENSOR_MAP_BYTES = 128
PARAMETER_MAPS = 1 << 32
"""Tensor maps that are kernel parameters lie at this address, one after the other."""


@dataclass(slots=True)
class TensorMap:
    """A tensor map's fields, innermost dimension first; each number an array of shape (blocks or 1, 1)."""

    fields: dict[str, Array] = field(default_factory=dict)

    def number(self, name: str) -> Array:
        """A field.  Raises Unreadable where nothing set it."""
        if name not in self.fields:
            raise Unreadable(f"a tensor map is used before its {name} is set")
        return self.fields[name]

    def uniform(self, name: str) -> int:
        """A field that all blocks share."""
        values = self.number(name)
        if (values != values.flat[0]).any():
            raise Unreadable(f"a tensor map's {name} differs between blocks")
        return int(values.flat[0])


@dataclass(slots=True)
class MemoryBarrier:
    """An mbarrier of every block: arrivals and bytes still missing, the phase, and copies that it announces."""

    count: Array
    missing: Array
    bytes: Array
    phase: Array
    clock: Array
    copies: list[tuple[Array, Array, Value, Array, Array]] = field(default_factory=list)
    """Per copy: the phase in which it completes, its cells, value, blocks and touched cells."""


def maps_of(machine: Machine) -> dict[int, TensorMap]:
    """The tensor maps by address."""
    return machine.extra.setdefault("tensor maps", {})  # type: ignore[no-any-return]


def _single(machine: Machine, operand: Operand, what: str) -> int:
    """An address that all active lanes share."""
    value = machine.known(address_of(machine, operand))
    if value is None:
        raise Unreadable(f"{what} lies at a computed address")
    if value.size > 1:
        shape = np.broadcast_shapes(value.shape, (1, 1) if machine.mask is None else machine.mask.shape)
        active = np.broadcast_to(value, shape)
        active = active.ravel() if machine.mask is None else active[np.broadcast_to(machine.mask, shape)]
        if (active != active[0]).any():
            raise Unreadable(f"{what} differs between threads")
        return int(active[0])
    return int(value.flat[0])


def _needs_no_data(machine: Machine, what: str) -> None:
    """Raises Unreadable where a condition over data decides whether `what` happens."""
    if machine.condition is not None:
        raise Unreadable(f"{what} depends on data")


def _acting_blocks(machine: Machine) -> Array:
    """How many lanes of each block are active, shape (blocks,)."""
    lanes: Array = machine.active().sum(axis=1)
    return lanes


def _barrier(machine: Machine, operand: Operand) -> MemoryBarrier:
    _needs_no_data(machine, "an mbarrier operation")
    address = _single(machine, operand, "an mbarrier")
    found = machine.extra.setdefault("mbarriers", {}).get(address)
    if found is None:
        raise Unreadable("an mbarrier is used before it is initialised")
    return found  # type: ignore[no-any-return]


def _settle_phase(barrier: MemoryBarrier) -> None:
    """Where nothing is missing, the phase ends and the next one begins."""
    done = (barrier.missing <= 0) & (barrier.bytes == 0)
    barrier.phase = barrier.phase + done
    barrier.missing = np.where(done, barrier.count, barrier.missing)


@TABLE.opcode("mbarrier")
def memory_barrier(instruction: Instruction, context: Context) -> Step:
    """mbarrier.{init,inval,arrive,arrive.expect_tx,expect_tx,try_wait,test_wait}."""
    parts = instruction.opcode.split(".")
    line = instruction.line
    verb = parts[1]
    if verb == "init":
        return _initialise(instruction)
    if verb == "inval":
        target = instruction.operands[0]

        def invalidate(machine: Machine) -> None:
            machine.extra.get("mbarriers", {}).pop(_single(machine, target, "an mbarrier"), None)

        return invalidate
    if verb in ("arrive", "expect_tx"):
        return _arrive(instruction, verb == "arrive", "expect_tx" in parts)
    if verb in ("try_wait", "test_wait"):
        if "parity" not in parts:
            raise UnknownInstruction(instruction)
        if not _waited_for(instruction, context):
            why = "is not repeated by a branch until it succeeds, which is not modelled"
            raise UnknownInstruction(instruction, why)
        destination, target, parity = instruction.operands[:3]

        def wait(machine: Machine) -> Control | None:
            wanted = machine.known(machine.read_bits(parity, 32))
            if wanted is None:
                raise Unreadable("an mbarrier's parity depends on data", line)
            return _wait(machine, _barrier(machine, target), destination, wanted)

        return wait
    raise UnknownInstruction(instruction)


def _waited_for(instruction: Instruction, context: Context) -> bool:
    """Whether the next instruction branches back to this one (or before it) while the wait has not succeeded."""
    instructions = context.kernel.instructions
    place = next((index for index, each in enumerate(instructions) if each is instruction), None)
    if place is None or place + 1 >= len(instructions):
        return False
    following = instructions[place + 1]
    destination, target = instruction.operands[0], following.operands[0] if following.operands else None
    if not following.opcode.startswith("bra") or following.guard is None or not isinstance(target, Symbol):
        return False
    returns = context.kernel.labels.get(target.name, place + 1) <= place
    return returns and following.guard.negated and Register(following.guard.register) == destination


def _initialise(instruction: Instruction) -> Step:
    target, count = instruction.operands

    def step(machine: Machine) -> None:
        number = machine.known(machine.read_bits(count, 32))
        if number is None or (number != number.flat[0]).any():
            raise Unreadable("an mbarrier's count varies", instruction.line)
        blocks = machine.blocks
        arrivals = np.full(blocks, int(number.flat[0]), dtype=np.int64)
        zero = np.zeros(blocks, dtype=np.int64)
        address = _single(machine, target, "an mbarrier")
        clock = np.zeros(machine.races.acting(None)[0].clock.shape[0], dtype=np.int32)
        machine.extra.setdefault("mbarriers", {})[address] = MemoryBarrier(
            arrivals, arrivals.copy(), zero, zero.copy(), clock
        )

    return step


def _arrive(instruction: Instruction, arrives: bool, expects: bool) -> Step:
    operands = instruction.operands
    index = next((i for i, each in enumerate(operands) if isinstance(each, Address)), None)
    if index is None or any(each in instruction.opcode for each in ("noComplete", "shared::cluster")):
        raise UnknownInstruction(instruction)
    target, rest = operands[index], operands[index + 1 :]

    def step(machine: Machine) -> None:
        barrier = _barrier(machine, target)
        lanes = _acting_blocks(machine)
        amount = 1
        if rest:
            number = machine.known(machine.read_bits(rest[0], 32))
            if number is None or (number != number.flat[0]).any():
                raise Unreadable("an mbarrier's operand varies", instruction.line)
            amount = int(number.flat[0])
        for races in machine.races.acting(machine.mask):
            barrier.clock = np.maximum(barrier.clock, races.release(machine.active_warps()))
        if expects:
            barrier.bytes = barrier.bytes + amount * lanes
            if arrives:
                barrier.missing = barrier.missing - lanes
        else:
            barrier.missing = barrier.missing - amount * lanes
        if arrives:
            _settle_phase(barrier)

    return step


def _wait(machine: Machine, barrier: MemoryBarrier, destination: Operand, parity: Array) -> Control | None:
    """Waits for the phase of the given parity: it is over when the barrier's current phase has the other one."""
    active = machine.active()
    ready = (barrier.phase[:, None] & 1) != (parity.astype(np.int64) & 1)
    ready = np.broadcast_to(ready, active.shape)
    if not (ready & active).any():
        return Blocked("an mbarrier")
    for races in machine.races.acting(machine.mask):
        races.acquire(machine.active_warps(), barrier.clock)
    kept = []
    blocks = (ready & active).any(axis=1)
    for copy in barrier.copies:
        phase, cells, value, where, touched = copy
        arrived = (barrier.phase > phase) & where & blocks
        if arrived.any():
            machine.shared.store(cells, value, None if arrived.all() else arrived[:, None])
            for races in machine.races.of_blocks(arrived):
                races.arrived(touched)
            where = where & ~arrived
        if where.any():
            kept.append((phase, cells, value, where, touched))
    barrier.copies = kept
    machine.write(destination, ready)
    return None


def copy(instruction: Instruction, context: Context) -> Step:
    """cp.async.bulk.tensor loads into shared memory and stores out of it, and the groups of bulk stores."""
    parts = instruction.opcode.split(".")
    if "commit_group" in parts:
        return _commit_stores
    if "wait_group" in parts:
        return _wait_stores(literal_of(instruction.operands[0], instruction))
    if "tensor" not in parts or any(
        each in parts for each in ("im2col", "multicast::cluster", "gather4", "scatter4", "reduce")
    ):
        raise UnknownInstruction(instruction)
    rank = next(int(each[0]) for each in parts if each in ("1d", "2d", "3d", "4d", "5d"))
    direction = parts.index("global") - next(i for i, each in enumerate(parts) if each.startswith("shared"))
    if direction > 0:
        target, source, barrier = instruction.operands[:3]

        def load(machine: Machine) -> None:
            _each_thread(machine, lambda: _load_box(machine, target, source, barrier, rank, instruction.line))

        return load
    target, source = instruction.operands[:2]

    def store(machine: Machine) -> None:
        _each_thread(machine, lambda: _store_box(machine, target, source, rank, instruction.line))

    return store


def _commit_stores(machine: Machine) -> None:
    """Closes a group of the bulk stores issued so far."""
    _needs_no_data(machine, "a group of bulk copies")
    reads = machine.extra.setdefault("bulk reads", [])
    machine.extra.setdefault("bulk groups", Groups()).commit(list(reads), machine.active_blocks())
    reads.clear()


def _wait_stores(keep: int) -> Step:
    """Waits until the bulk stores of all but the newest groups have read shared memory."""

    def step(machine: Machine) -> None:
        groups = machine.extra.setdefault("bulk groups", Groups())
        for work, done in groups.wait(keep, machine.active_blocks()):
            for cells, thread in work:
                for races in machine.races.of_blocks(done):
                    races.finished_reads(cells, thread)

    return step


def _each_thread(machine: Machine, act: Callable[[], None]) -> None:
    """Several threads may issue a copy each: one after the other, as the copies' places tell."""
    _needs_no_data(machine, "a tensor copy")
    outer = machine.mask
    threads = np.flatnonzero(machine.active_threads())
    if len(threads) == 1:
        act()
        return
    active = machine.active()
    try:
        for thread in threads:
            mask = np.zeros_like(active)
            mask[:, thread] = active[:, thread]
            machine.mask = mask
            act()
    finally:
        machine.mask = outer


@dataclass(frozen=True, slots=True)
class Box:
    """A box of a tensor: per element its global address, whether it lies inside the tensor, and its shared offset."""

    address: Array
    inside: Array
    offset: Array
    element: int
    swizzle: int
    bytes: int


def _box(machine: Machine, operand: Operand, rank: int, line: int) -> Box:
    if not isinstance(operand, Address) or not operand.extra or not isinstance(operand.extra[0], Vector):
        raise Unreadable("a tensor copy without coordinates", line)
    address = machine.known(address_of(machine, Address(operand.base, operand.offset)))
    table = None if address is None else maps_of(machine).get(_block_key(machine, address))
    if table is None:
        raise Unreadable("a tensor map is used that nothing described", line)
    coordinates = []
    for item in operand.extra[0].items:
        value = machine.known(machine.read_bits(item, 32))
        if value is None:
            raise Unreadable("a tensor copy at computed coordinates", line)
        coordinates.append(_per_block(machine, value).view(np.int32).astype(np.int64))
    extents = [table.uniform(f"box {d}") for d in range(rank)]
    element = table.uniform("element bytes")
    index = np.indices(extents[::-1]).reshape(rank, -1)[::-1]
    inside: Array = np.ones((1, index.shape[1]), dtype=bool)
    where = table.number("address").astype(np.int64)
    for d in range(rank):
        position = coordinates[d] + index[d][None]
        inside = inside & (position >= 0) & (position < table.number(f"size {d}").astype(np.int64))
        stride = np.int64(element) if d == 0 else table.number(f"stride {d}").astype(np.int64)
        where = where + position * stride
    offset = np.arange(index.shape[1], dtype=np.int64) * element
    return Box(where.astype(np.uint64), inside, offset, element, table.uniform("swizzle"), index.shape[1] * element)


def _per_block(machine: Machine, value: Array) -> Array:
    """A value of the one thread that acts in each block, shape (blocks or 1, 1)."""
    special = L.other_form(value)
    if special is not None:
        return special.of_thread(int(np.flatnonzero(machine.active_threads())[0]))
    if value.shape[1] == 1:
        return value
    if machine.mask is None:
        return value[:, :1]
    active = machine.active((max(value.shape[0], machine.mask.shape[0]), machine.threads))
    first = np.argmax(active, axis=1)
    chosen: Array = np.broadcast_to(value, active.shape)[np.arange(active.shape[0]), first]
    return chosen[:, None]


def _swizzled(address: Array, mode: int) -> Array:
    """Shared addresses under the 32, 64 or 128 byte swizzle (mode 1, 2, 3)."""
    if mode == 0:
        return address
    mask = {1: 1, 2: 3, 3: 7}[mode]
    swizzled: Array = address ^ (((address >> 7) & mask) << 4)
    return swizzled


def _load_box(
    machine: Machine, target: Operand, source: Operand, barrier_operand: Operand, rank: int, line: int
) -> None:
    box = _box(machine, source, rank, line)
    base = _single(machine, target, "a tensor copy's destination")
    barrier = _barrier(machine, barrier_operand)
    lanes = _acting_blocks(machine)
    if (lanes > 1).any():
        raise Unreadable("several threads issue one tensor copy", line)
    bits = box.element * 8
    value: Value = machine.memory.load(
        box.address,
        bits,
        np.broadcast_to(box.inside, np.broadcast_shapes(box.inside.shape, box.address.shape)),
        np.zeros((1, 1), dtype=np.int64),
        machine.epoch,
        line,
    )
    if not box.inside.all():
        value = choose(box.inside, value, np.zeros((1, 1), dtype=L.UNSIGNED[bits]))
    places = _swizzled(base + box.offset, box.swizzle)[None]
    cells = machine.shared.cells(places, None)
    step = max(1, box.element // machine.shared.granule)
    touched = (cells[0][:, None] + np.arange(step)).ravel()
    thread = int(np.flatnonzero(machine.active_threads())[0])
    for races in machine.races.acting(machine.mask):
        races.writes(touched, np.full(touched.shape, thread), pending=True)
    where = lanes > 0
    barrier.copies.append((barrier.phase.copy(), cells, value, where, touched))
    barrier.bytes = barrier.bytes - box.bytes * where
    _settle_phase(barrier)


def _store_box(machine: Machine, target: Operand, source: Operand, rank: int, line: int) -> None:
    box = _box(machine, target, rank, line)
    base = _single(machine, source, "a tensor copy's source")
    places = _swizzled(base + box.offset, box.swizzle)[None]
    cells = machine.shared.cells(places, None)
    thread = int(np.flatnonzero(machine.active_threads())[0])
    step = max(1, box.element // machine.shared.granule)
    touched = (cells[0][:, None] + np.arange(step)).ravel()
    for races in machine.races.acting(machine.mask):
        races.pending_reads(touched, thread)
    machine.extra.setdefault("bulk reads", []).append((touched, thread))
    value = machine.shared.load(cells, box.element * 8)
    acting = (_acting_blocks(machine) > 0)[:, None]
    mask = np.broadcast_to(box.inside & acting, (machine.blocks, box.offset.size))
    number = machine.thread[:, thread : thread + 1]
    machine.memory.store(box.address, value, mask, number, machine.epoch, line)


_REPLACED = {
    "global_address": "address", "rank": "rank", "box_dim": "box", "global_dim": "size", "global_stride": "stride",
    "element_stride": "element stride", "elemtype": "element type", "interleave_layout": "interleave",
    "swizzle_mode": "swizzle", "fill_mode": "fill",
}  # fmt: skip
ELEMENT_BYTES = {0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 4, 9: 8, 10: 2, 11: 4, 12: 4}
"""Bytes of an element by tensormap's .elemtype code.

The codes are, in order: u8, u16, u32, s32, u64, s64, f16, f32, f32.ftz, f64, bf16, tf32, tf32.ftz.
"""


@TABLE.opcode("tensormap")
def tensor_map(instruction: Instruction, context: Context) -> Step:
    """tensormap.replace.tile.field in shared memory and tensormap.cp_fenceproxy to global memory."""
    parts = instruction.opcode.split(".")
    if parts[1] == "cp_fenceproxy":
        target, source = instruction.operands[:2]

        def publish(machine: Machine) -> None:
            _publish(machine, target, source)

        return publish
    if parts[1:3] != ["replace", "tile"] or parts[3] not in _REPLACED:
        raise UnknownInstruction(instruction)
    name = _REPLACED[parts[3]]
    place = instruction.operands[0]
    number, value = (
        (instruction.operands[1], instruction.operands[2])
        if len(instruction.operands) == 3
        else (None, instruction.operands[1])
    )
    ordinal = literal_of(number, instruction) if number is not None else None
    bits = 64 if parts[-1] == "b64" else 32

    def replace(machine: Machine) -> None:
        found = machine.known(machine.read_bits(value, bits))
        if found is None:
            raise Unreadable("a tensor map is made from data", instruction.line)
        table = maps_of(machine).setdefault(_single(machine, place, "a tensor map"), TensorMap())
        _set_field(table, name, ordinal, _per_block(machine, found).astype(np.uint64))

    return replace


def _set_field(table: TensorMap, name: str, ordinal: int | None, value: Array) -> None:
    if name == "stride" and ordinal is not None:
        table.fields[f"stride {ordinal + 1}"] = value
    elif name == "element type":
        table.fields["element bytes"] = np.full((1, 1), ELEMENT_BYTES[int(value.flat[0])], dtype=np.uint64)
    elif name == "fill" and value.any():
        raise Unreadable("a tensor map that fills with NaN is not modelled")
    elif name == "interleave" and value.any():
        raise Unreadable("an interleaved tensor map is not modelled")
    elif name == "element stride" and (value != 1).any():
        raise Unreadable("a tensor map with element strides is not modelled")
    else:
        table.fields[name if ordinal is None else f"{name} {ordinal}"] = value


def _publish(machine: Machine, target: Operand, source: Operand) -> None:
    """The map in shared memory is copied to a global address, which may differ from block to block."""
    table = maps_of(machine).get(_single(machine, source, "a tensor map"))
    if table is None:
        raise Unreadable("a tensor map is published before it is made")
    address = machine.known(address_of(machine, target))
    if address is None:
        raise Unreadable("a tensor map is published at a computed address")
    maps_of(machine)[_block_key(machine, address)] = TensorMap(dict(table.fields))


def _block_key(machine: Machine, address: Array) -> int:
    number = _per_block(machine, address)
    special = L.other_form(number)
    return int(number.flat[0]) if special is None else special.identity()
