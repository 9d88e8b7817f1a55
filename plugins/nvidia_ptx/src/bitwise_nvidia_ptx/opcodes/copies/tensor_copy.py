"""Bulk copies (TMA) between global and shared memory, of boxes of tensors and of neighbouring bytes.

Source: PTX ISA 8.7, "Tensors", "cp.async.bulk", "cp.async.bulk.tensor" and "cp.reduce.async.bulk.tensor".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bitwise_core.assembly.module import Address, Instruction, Operand, Vector
from bitwise_core.execution.architecture import Context, UnknownInstruction
from bitwise_core.execution.domains.domain import DataDependent, Unsupported
from bitwise_core.execution.machine import Machine, Step
from bitwise_core.execution.memory.access import read_asynchronously
from bitwise_core.execution.memory.cluster_memory import (
    enter_phase_from_cluster,
    own_ranks,
    start_write,
    use_in_cluster,
)
from bitwise_core.execution.memory.loaded_chunks import CHUNK
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.lane_selection import take_blocks, take_threads
from bitwise_core.execution.values.packing import blend_values, concat
from bitwise_core.execution.values.symbolic_vector import Array, Value
from bitwise_core.execution.values.term_hash import poison
from bitwise_core.numerics import Operation, operation
from bitwise_nvidia_ptx.addresses.shared import own_offset, place_of
from bitwise_nvidia_ptx.opcodes.common import check_modifiers, name_of_update
from bitwise_nvidia_ptx.opcodes.copies.issuing_thread import (
    active_lane_count,
    blocks_of_mask,
    for_each_number,
    for_each_place,
    issuers_and_receivers,
    require_known_condition,
    require_pairs,
    uniform_offset,
    value_of_issuing_thread,
)
from bitwise_nvidia_ptx.opcodes.copies.mbarriers import (
    Copy,
    MBarrier,
    complete_phase,
    enter_phase,
    initialised_mbarrier,
    mbarrier_at,
)
from bitwise_nvidia_ptx.opcodes.copies.tensor_maps import ELEMENT_TYPES, used_map
from bitwise_nvidia_ptx.opcodes.memory import address_of, literal_value

_BULK_STORES = "bulk stores"

_SPANS = {1: 32, 2: 64, 3: 128}
"""The bytes of shared memory in which each mode of swizzling moves the units of a row.

That a shorter row takes as many: maps of rank 2 on an H200 (`records/tensor-copies-sm90-h200.json`).
"""

_LINE_ALIGNMENT = 16
"""The bytes of which the first address of a copy in a line is a multiple.

Source: https://github.com/triton-lang/triton/issues/7385 and https://github.com/triton-lang/triton/pull/9112.
"""
_MODIFIERS = {
    "bulk", "tensor", "1d", "2d", "3d", "4d", "5d", "shared::cta", "shared::cluster", "global", "tile",
    "mbarrier::complete_tx::bytes", "bulk_group", "multicast::cluster", "cta_group::1", "cta_group::2",
    "L2::cache_hint", "tile::gather4", "tile::scatter4",
}  # fmt: skip
"""The modifiers of a tensor copy that are modelled."""


_OF_LOADS = frozenset({"mbarrier::complete_tx::bytes", "multicast::cluster"})
_BYTES_MODIFIERS = {"bulk", "shared::cta", "shared::cluster", "global", "bulk_group", "L2::cache_hint"} | _OF_LOADS
"""The modifiers of a copy without a tensor map that are modelled."""

_BYTES_ALIGNMENT = 16
"""The bytes of which addresses and size of a copy without a tensor map are multiples ("cp.async.bulk")."""

_PREFETCHES = {"tensor", "1d", "2d", "3d", "4d", "5d", "L2", "global", "tile", "tile::gather4", "L2::cache_hint"}
"""The modifiers of prefetches to the second level of the cache."""


REDUCED_TYPES: Mapping[str, tuple[str, ...]] = {
    "add": ("u32", "s32", "f16", "f32", "bf16"),
    **dict.fromkeys(("min", "max", "and", "or", "xor"), ("u32", "s32")),
}
"""The operations of reductions that are modelled, each with the types of elements that it combines."""


def copy(instruction: Instruction, context: Context) -> Step:
    """cp.async.bulk between global and shared memory, reductions to global memory, and groups of bulk stores."""
    parts = instruction.opcode.split(".")
    if parts[1:3] == ["reduce", "async"]:
        return _reduction(instruction, parts)
    if "commit_group" in parts:
        return _commit_stores
    if "wait_group" in parts:
        return _wait_stores(literal_value(instruction.operands[0], instruction))
    if parts[1] != "async":
        raise UnknownInstruction(instruction)
    if parts[3:4] == ["prefetch"]:
        check_modifiers(instruction, parts[4:], _PREFETCHES)
        return _prefetch
    if "tensor" not in parts:
        return _copy_of_bytes(instruction, parts)
    check_modifiers(instruction, parts[2:], _MODIFIERS)
    rank = next(int(each[0]) for each in parts if each in ("1d", "2d", "3d", "4d", "5d"))
    rows = 4 if not {"tile::gather4", "tile::scatter4"}.isdisjoint(parts) else 0
    if rows and rank != 2:
        raise UnknownInstruction(instruction, "has another rank than 2")
    direction = parts.index("global") - next(i for i, each in enumerate(parts) if each.startswith("shared"))
    if direction > 0:
        target, source, barrier = instruction.operands[:3]
        line = instruction.line
        ranks = instruction.operands[3] if "multicast::cluster" in parts else None
        if "cta_group::2" in parts:
            return _load_of_pairs(instruction, ranks, rank, rows)

        def load(machine: Machine) -> None:
            operands = target, source, barrier

            def issue() -> None:
                axes = rank, rows
                for_each_place(machine, (target, barrier), lambda: _load_box(machine, operands, ranks, axes, line))

            for_each_thread(machine, issue)

        return load
    target, source = instruction.operands[:2]

    def store(machine: Machine) -> None:
        for_each_thread(machine, lambda: _store_box(machine, target, source, (rank, rows), instruction.line))

    return store


def _prefetch(machine: Machine) -> None:
    """A prefetch to the second level of the cache changes no memory."""


def _copy_of_bytes(instruction: Instruction, parts: Sequence[str]) -> Step:
    """cp.async.bulk without a tensor map: neighbouring bytes between global and shared memory."""
    check_modifiers(instruction, parts[2:], _BYTES_MODIFIERS)
    operands, line = instruction.operands, instruction.line
    spaces = [each for each in parts if each.startswith(("shared", "global"))]
    given = len(operands) - ("L2::cache_hint" in parts)
    if spaces == ["global", "shared::cta"]:
        if given != 3 or parts.count("bulk_group") != 1 or len({*parts} & _OF_LOADS):
            raise UnknownInstruction(instruction)
        target, source, size = operands[:3]

        def store(machine: Machine) -> None:
            def act() -> None:
                _start_store(machine, _bytes(machine, target, size, line), source, line)

            for_each_thread(machine, lambda: _for_each_size(machine, (source,), size, line, act))

        return store
    ranks = operands[4] if "multicast::cluster" in parts and given == 5 else None
    loads = spaces in (["shared::cluster", "global"], ["shared::cta", "global"])
    if not loads or given != 4 + ("multicast::cluster" in parts) or "bulk_group" in parts:
        raise UnknownInstruction(instruction)
    if "mbarrier::complete_tx::bytes" not in parts:
        raise UnknownInstruction(instruction)
    target, source, size, barrier = operands[:4]

    def load(machine: Machine) -> None:
        def act() -> None:
            _start_load(machine, _bytes(machine, source, size, line), (target, barrier), ranks, line)

        for_each_thread(machine, lambda: _for_each_size(machine, (target, barrier), size, line, act))

    return load


def _size_of_bytes(machine: Machine, size: Operand, line: int) -> Array:
    given = machine.read_bits(size, 32)
    found = machine.known(given)
    if found is None:
        raise DataDependent("the size of a bulk copy depends on data", line, (given,))
    return found


def _for_each_size(
    machine: Machine, places: Sequence[Operand], size: Operand, line: int, act: Callable[[], None]
) -> None:
    """Call `act` separately for the blocks whose shared addresses, or whose sizes, differ."""
    numbers = [_size_of_bytes(machine, size, line)]
    for operand in places:
        value = machine.known(address_of(machine, operand))
        if value is None:
            raise DataDependent("a shared address of an asynchronous instruction depends on data", line)
        numbers.append(own_offset(machine, value))
    for_each_number(machine, numbers, act)


def _bytes(machine: Machine, operand: Operand, size: Operand, line: int) -> Box:
    """Return the bytes from a global address on, in elements of `CHUNK`; the active blocks have one size."""
    given = address_of(machine, operand)
    place = machine.known(given)
    if place is None:
        raise DataDependent("a bulk copy at a computed address", line, (given,))
    active = machine.active()
    length = int(np.broadcast_to(_size_of_bytes(machine, size, line), active.shape)[active][0])
    acting: Array = np.any(active, axis=1, keepdims=True)
    start = value_of_issuing_thread(machine, place).astype(np.uint64)
    is_aligned: Array = start % np.uint64(_BYTES_ALIGNMENT) == 0
    if not length or length % _BYTES_ALIGNMENT or (acting & ~is_aligned).any():
        raise Unsupported(
            f"a bulk copy of {length} bytes whose size or address is no multiple of {_BYTES_ALIGNMENT} is not defined",
            line,
        )
    offset = np.arange(0, length, CHUNK, dtype=np.int64)
    inside = np.broadcast_to(acting, (machine.blocks, offset.size))
    return Box(start + offset.astype(np.uint64), inside, offset, CHUNK, 0, length)


def _reduction(instruction: Instruction, parts: Sequence[str]) -> Step:
    """cp.reduce.async.bulk.tensor: each element of a box in global memory is combined with one of shared memory."""
    verb = next((each for each in parts if each in REDUCED_TYPES), None)
    if "tensor" not in parts or verb is None:
        raise UnknownInstruction(instruction)
    check_modifiers(instruction, parts[3:], (_MODIFIERS | {verb}) - {"tile::gather4", "tile::scatter4"})
    rank = next(int(each[0]) for each in parts if each in ("1d", "2d", "3d", "4d", "5d"))
    target, source = instruction.operands[:2]
    line = instruction.line

    def reduce(machine: Machine) -> None:
        for_each_thread(machine, lambda: _store_box(machine, target, source, (rank, 0), line, verb))

    return reduce


def _load_of_pairs(instruction: Instruction, ranks: Operand | None, rank: int, rows: int) -> Step:
    """A copy to shared memory with .cta_group::2: its mbarrier may be in the other block of a pair of blocks.

    Each receiving block has the mbarrier in the block of its pair whose rank is even or odd as that of the operand's.
    """
    target, source, barrier = instruction.operands[:3]
    line = instruction.line

    def issue(machine: Machine) -> None:
        require_pairs(machine)
        value = machine.known(address_of(machine, barrier))
        if value is None:
            raise DataDependent("an mbarrier is at a computed address", line)
        offset, where = place_of(machine, value)
        if ranks is None and (machine.active() & (where // 2 != own_ranks(machine) // 2)).any():
            raise Unsupported("a tensor copy completes on an mbarrier outside of its pair of blocks", line)
        place = machine.known(address_of(machine, target))
        if place is None:
            raise DataDependent("a tensor copy's destination depends on data", line)

        def act() -> None:
            active = machine.active()
            address, parity = (int(np.broadcast_to(each, active.shape)[active][0]) for each in (offset, where % 2))
            _load_box(machine, (target, source, barrier), ranks, (rank, rows), line, (address, parity))

        for_each_number(machine, (own_offset(machine, place), offset, where % 2), act)

    def load(machine: Machine) -> None:
        for_each_thread(machine, lambda: issue(machine))

    return load


def _commit_stores(machine: Machine) -> None:
    """Close a group of the bulk stores issued so far."""
    require_known_condition(machine, "a group of bulk copies")
    machine.asynchronous_reads.commit(_BULK_STORES, machine.active())


def _wait_stores(pending: int) -> Step:
    """Return a step that waits until all but the newest `pending` groups of bulk stores have read shared memory."""

    def step(machine: Machine) -> None:
        machine.asynchronous_reads.wait(_BULK_STORES, pending, machine.active(), machine.races, machine.warp)

    return step


def for_each_thread(machine: Machine, act: Callable[[], None]) -> None:
    """Call `act` for each active thread in order, with only that thread active: each may issue a copy."""
    require_known_condition(machine, "a tensor copy")
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
    """A box of a tensor: for each element, its global address, whether it is inside the tensor, and its shared offset.

    `element` is the size of an element and `bytes` the size of the box, in bytes; `swizzle` is the mode, 0 to 3.
    16 elements of 4 bits are one element of 8 bytes.  `padding` marks elements that no memory holds, None for none: a
    copy leaves them undefined, and does not count their bytes.
    """

    address: Array
    inside: Array
    offset: Array
    element: int
    swizzle: int
    bytes: int
    padding: Array | None = None


def _box(
    machine: Machine,
    operand: Operand,
    axes: tuple[int, int],
    line: int,
    *,
    chunks: bool = False,
    open_rows: bool = False,
    writes: bool = False,
) -> Box:
    """Return the box of an operand; `chunks` takes elements of `CHUNK` bytes together, where rows consist of these.

    `writes`: the box is written, for which no coordinate may be negative.  `open_rows`: row 0 stands for each of the
    rows that are given one by one.  `axes` is the rank of the map, and the number of rows whose coordinates are given
    one by one, 0 for none.
    """
    rank, apart = axes
    if not isinstance(operand, Address) or not operand.extra or not isinstance(operand.extra[0], Vector):
        raise Unsupported("a tensor copy without coordinates", line)
    address = machine.known(address_of(machine, Address(operand.base, operand.offset)))
    if address is None:
        raise DataDependent("a tensor map is at a computed address", line)
    table, rows = used_map(machine, address, line), machine.active_blocks()
    coordinates = []
    for number, item in enumerate(operand.extra[0].items):
        given = machine.read_bits(item, 32)
        value = np.zeros((1, 1), dtype=np.uint32) if open_rows and number else machine.known(given)
        if value is None:
            raise DataDependent("a tensor copy at computed coordinates", line, (given,))
        coordinates.append(value_of_issuing_thread(machine, value).view(np.int32).astype(np.int64))
    if len(coordinates) != (1 + apart if apart else rank):
        raise Unsupported(f"a tensor copy with {len(coordinates)} coordinates", line)
    if writes and any((each < 0)[rows if len(each) > 1 else slice(None)].any() for each in coordinates):
        raise Unsupported("a tensor copy to a negative coordinate is an illegal instruction", line)
    extents = [table.uniform(f"box {d}", rows) for d in range(rank)]
    if apart and extents[1] != 1:
        raise Unsupported("a tensor copy of single rows through a map whose box has several", line)
    sizes = [table.number(f"size {d}", rows).astype(np.int64) for d in range(rank)]
    element, packed = table.uniform("element bytes", rows), table.uniform("packed bytes", rows)
    if packed:
        if any((each % 16).any() for each in (coordinates[0], np.array(extents[0]), sizes[0])):
            raise Unsupported("a box of elements of 4 bits that are not multiples of 16 is not modelled", line)
        coordinates[0], extents[0], sizes[0] = coordinates[0] // 16, extents[0] // 16, sizes[0] // 16
    elif ((coordinates[0] * element % _LINE_ALIGNMENT != 0) & (active_lane_count(machine)[:, None] > 0)).any():
        raise Unsupported(
            f"a tensor copy that starts at no multiple of {_LINE_ALIGNMENT} bytes of a line is an illegal instruction",
            line,
        )
    elif chunks and element < CHUNK:
        count = CHUNK // element
        if not any((each % count).any() for each in (coordinates[0], np.array(extents[0]), sizes[0])):
            coordinates[0], extents[0], sizes[0] = coordinates[0] // count, extents[0] // count, sizes[0] // count
            element = CHUNK
    if apart:
        extents[1] = apart
    index = np.indices(extents[::-1]).reshape(rank, -1)[::-1]
    inside: Array = np.ones((1, index.shape[1]), dtype=bool)
    where = table.number("address", rows).astype(np.int64)
    for d in range(rank):
        position = coordinates[d] + index[d][None]
        if apart and d == 1:
            position = _of_rows(coordinates[1:], extents[0])
        inside = inside & (position >= 0) & (position < sizes[d])
        stride = np.int64(element) if d == 0 else table.number(f"stride {d}", rows).astype(np.int64)
        where = where + position * stride
    size, swizzle = index.shape[1] * element, table.uniform("swizzle", rows)
    repeats = max(1, packed // element)
    offset = _shared_offsets(index.shape[1] * repeats, extents[0] * repeats, element, swizzle)
    if swizzle and extents[0] * repeats * element != _SPANS[swizzle] and (rank > 2 or apart or packed):
        raise Unsupported("a tensor copy whose rows do not have the length of their swizzle is not modelled", line)
    if repeats == 1:
        return Box(where.astype(np.uint64), inside, offset, element, swizzle, size)
    # Each unit of 16 bytes holds its elements first.
    where, inside = (np.repeat(each, repeats, axis=1) for each in (where, inside))
    return Box(where.astype(np.uint64), inside, offset, element, swizzle, size, np.arange(offset.size) % repeats > 0)


def _shared_offsets(count: int, row: int, element: int, swizzle: int) -> Array:
    """Return the offset in shared memory of each of `count` elements, before the swizzle, in rows of `row` elements.

    A swizzled row takes the bytes of the span of its swizzle, whatever its length.  Raises Unsupported for a longer
    row.
    """
    number = np.arange(count, dtype=np.int64)
    if not swizzle:
        return number * element
    if row * element > _SPANS[swizzle]:
        raise Unsupported("a tensor copy whose rows are longer than their swizzle is not defined")
    found: Array = number // row * _SPANS[swizzle] + number % row * element
    return found


def _of_rows(rows: Sequence[Array], length: int) -> Array:
    """Return the row of each element of boxes of one row and this length, shape (blocks or 1, elements)."""
    each = np.broadcast_arrays(*rows)
    found: Array = np.repeat(np.concatenate(each, axis=1), length, axis=1)
    return found


def _has_repeats(box: Box, rows: Array) -> bool:
    """Return whether a box has an address twice inside of its tensor, in one of these blocks."""
    shape = np.broadcast_shapes(box.address.shape, box.inside.shape, (len(rows), 1))
    address, inside = np.broadcast_to(box.address, shape), np.broadcast_to(box.inside, shape)
    return any(np.unique(address[row][inside[row]]).size < inside[row].sum() for row in np.flatnonzero(rows))


def _swizzle(address: Array, mode: int) -> Array:
    """Return shared addresses under the 32, 64 or 128 byte swizzle (mode 1, 2, 3)."""
    if mode == 0:
        return address
    mask = {1: 1, 2: 3, 3: 7}[mode]
    swizzled: Array = address ^ (((address >> 7) & mask) << 4)
    return swizzled


def _load_box(
    machine: Machine,
    operands: tuple[Operand, Operand, Operand],
    ranks: Operand | None,
    axes: tuple[int, int],
    line: int,
    of_pair: tuple[int, int] | None = None,
) -> None:
    """Start a copy to shared memory; `operands` are its destination, the box and the mbarrier on which it completes.

    `ranks` is the mask of the ranks of the blocks that receive the copy, None for the own block alone.  `of_pair` is
    the offset of the mbarrier and 0 or 1 for the block of each pair that has it, None for the receiving block.
    """
    target, source, barrier_operand = operands
    if axes[1] and ranks is None and of_pair is None:
        chosen = _rows_of_data(machine, source)
        if chosen is not None:
            _load_rows(machine, operands, axes, chosen, line)
            return
    _start_load(
        machine, _box(machine, source, axes, line, chunks=True), (target, barrier_operand), ranks, line, of_pair
    )


def _start_load(
    machine: Machine,
    box: Box,
    operands: tuple[Operand, Operand],
    ranks: Operand | None,
    line: int,
    of_pair: tuple[int, int] | None = None,
) -> None:
    """Start a copy of a box to a destination in shared memory that completes on an mbarrier; see `_load_box`."""
    target, barrier_operand = operands
    base = uniform_offset(machine, target, "a tensor copy's destination")
    if base % _BYTES_ALIGNMENT:
        raise Unsupported(f"a bulk copy to a shared address that is no multiple of {_BYTES_ALIGNMENT}", line)
    lanes = active_lane_count(machine)
    if (lanes > 1).any():
        raise Unsupported("several threads issue one tensor copy", line)
    bits = box.element * 8
    with machine.memory.issuing() as loads:
        value: Value = machine.memory.load(
            box.address,
            bits,
            np.broadcast_to(box.inside, np.broadcast_shapes(box.inside.shape, box.address.shape)),
            machine.loading_agent(),
            machine.epoch,
            line,
        )
    if not box.inside.all():
        value = blend_values(box.inside, value, np.zeros((1, 1), dtype=L.UNSIGNED[bits]))
    if box.padding is not None:
        value = blend_values(~box.padding[None], value, poison(bits))
    addresses = _swizzle(base + box.offset, box.swizzle)[None]
    cells = machine.shared.cells(addresses, None)
    step = max(1, box.element // machine.shared.granule)
    touched = (cells[0][:, None] + np.arange(step)).ravel()
    thread = int(np.flatnonzero(machine.active_threads())[0])
    if ranks is None and of_pair is None:
        barrier = mbarrier_at(machine, barrier_operand)
        enter_phase(machine, barrier, machine.active_warps())
        for races in machine.races.acting(machine.mask):
            races.copies_over(touched, thread, line)
        copied = Copy(barrier.phase.copy(), cells, value, lanes > 0, touched, loads=tuple(loads))
        add_copy(machine, barrier, copied, box.bytes)
        return
    masks = np.int64(1) << own_ranks(machine)[:, 0] if ranks is None else blocks_of_mask(machine, ranks)
    address = uniform_offset(machine, barrier_operand, "an mbarrier") if of_pair is None else of_pair[0]
    for issuer, receiver, rows in issuers_and_receivers(machine, masks, lanes > 0, "a tensor copy"):
        holder = receiver if of_pair is None else receiver // 2 * 2 + of_pair[1]
        multicast(machine, (address, cells, value, touched), (issuer, receiver, holder), rows, thread, box.bytes)


def _rows_of_data(machine: Machine, operand: Operand) -> list[Value] | None:
    """Return the rows of a gather if data decides one of them, None if all are known."""
    if not isinstance(operand, Address) or not operand.extra or not isinstance(operand.extra[0], Vector):
        return None
    rows = [machine.read_bits(item, 32) for item in operand.extra[0].items[1:]]
    return rows if any(machine.known(each) is None for each in rows) else None


def _load_rows(
    machine: Machine,
    operands: tuple[Operand, Operand, Operand],
    axes: tuple[int, int],
    rows: Sequence[Value],
    line: int,
) -> None:
    """Start copies of single rows that data decides to shared memory of the own block; see `_load_box`."""
    target, source, barrier_operand = operands
    box = _box(machine, source, axes, line, chunks=True, open_rows=True)
    if box.element != CHUNK or len(rows) != axes[1]:
        raise DataDependent("a tensor copy at computed coordinates", line, rows)
    assert isinstance(source, Address)
    place = machine.known(address_of(machine, Address(source.base, source.offset)))
    assert place is not None
    table, blocks = used_map(machine, place, line), machine.active_blocks()
    size, stride = (table.number(f"{name} 1", blocks) for name in ("size", "stride"))
    if (stride >> np.uint64(31)).any() or (size >> np.uint64(31)).any():
        raise DataDependent("a tensor copy at computed coordinates", line, rows)
    base = uniform_offset(machine, target, "a tensor copy's destination")
    lanes, barrier, domain = active_lane_count(machine), mbarrier_at(machine, barrier_operand), machine.domain
    if (lanes > 1).any():
        raise Unsupported("several threads issue one tensor copy", line)
    enter_phase(machine, barrier, machine.active_warps())
    thread, length = int(np.flatnonzero(machine.active_threads())[0]), box.offset.size // len(rows)
    buffers = np.unique(machine.memory.buffer_of(box.address)).tolist()
    zero = np.zeros((1, 1), dtype=np.uint32)
    for number, each in enumerate(rows):
        here = slice(number * length, (number + 1) * length)
        row = take_threads(each, np.full((1, length), thread))
        moved = domain.integer(operation("mulwide.s32"), [row, stride.astype(np.uint32)])
        inside = domain.integer(operation("lt.u32"), [row, size.astype(np.uint32)])
        parts = []
        for low in range(0, CHUNK, 4):
            address = domain.integer(operation("add.b64"), [moved, box.address[:, here] + np.uint64(low)])
            part = machine.memory.gather(address, 32, blocks[:, None], line, buffers)
            parts.append(domain.select(inside, part, zero))
        value = blend_values(box.inside[:, here], concat(parts), concat([zero] * len(parts)))
        addresses = _swizzle(base + box.offset[here], box.swizzle)[None]
        cells = machine.shared.cells(addresses, None)
        touched = (cells[0][:, None] + np.arange(max(1, CHUNK // machine.shared.granule))).ravel()
        for races in machine.races.acting(machine.mask):
            races.copies_over(touched, thread, line)
        add_copy(machine, barrier, Copy(barrier.phase.copy(), cells, value, lanes > 0, touched), length * CHUNK)


def multicast(
    machine: Machine,
    copied: tuple[int, Array, Value, Array],
    ranks: tuple[int, int, int],
    rows: Array,
    thread: int,
    size: int,
) -> None:
    """Start a copy of `size` bytes in the clusters of `rows`, from the blocks of one rank to those of another.

    `copied` are the address of the mbarrier, the cells of the values, the values, and all cells that are written.
    `ranks` are those of the issuing blocks, of the receiving ones, and of those with the mbarrier.
    """
    address, cells, value, touched = copied
    issuer, receiver, holder = ranks
    outer, machine.mask = machine.mask, machine.active() & rows[:, None]
    try:
        use_in_cluster(machine, address, holder, lasting=False)
    finally:
        machine.mask = outer
    enter_phase_from_cluster(machine, address, holder, rows, set())
    start_write(machine, touched, receiver, thread, rows)
    holding = np.roll(rows, holder - issuer)
    barrier = initialised_mbarrier(machine, address, holding)
    moved = take_blocks(value, np.roll(np.arange(machine.blocks), receiver - issuer))
    copy = Copy(barrier.phase.copy(), cells, moved, holding, touched, receiver - holder)
    add_copy(machine, barrier, copy, size)


def add_copy(machine: Machine, barrier: MBarrier, copy: Copy, size: int) -> None:
    """A copy of `size` bytes to each block completes on an mbarrier."""
    barrier.copies.append(copy)
    for races in machine.races.of_blocks(copy.blocks):
        races.expect_later(barrier.address)
    barrier.bytes = barrier.bytes - size * copy.blocks
    complete_phase(machine, barrier)


def _store_box(
    machine: Machine, target: Operand, source: Operand, axes: tuple[int, int], line: int, verb: str | None = None
) -> None:
    """Store a box of shared memory; with `verb`, combine it with what global memory holds, element by element."""
    box = _box(machine, target, axes, line, writes=True)
    if box.padding is not None:
        raise Unsupported("a tensor copy of padded elements from shared memory is not modelled", line)
    if axes[1] and _has_repeats(box, machine.active_blocks()):
        raise Unsupported("a tensor copy writes a row twice, in an order that is open", line)
    meaning = None if verb is None else _meaning_of_reduction(machine, target, verb, line)
    _start_store(machine, box, source, line, meaning, of_map=True)


def _start_store(
    machine: Machine,
    box: Box,
    source: Operand,
    line: int,
    meaning: Operation | None = None,
    *,
    of_map: bool = False,
) -> None:
    """Start a store of shared memory to a box; with `meaning`, that operation combines it with global memory.

    `of_map`: the box is one of a tensor map.
    """
    base = uniform_offset(machine, source, "a tensor copy's source")
    if base % _BYTES_ALIGNMENT:
        raise Unsupported(f"a bulk copy from a shared address that is no multiple of {_BYTES_ALIGNMENT}", line)
    addresses = _swizzle(base + box.offset, box.swizzle)[None]
    cells = machine.shared.cells(addresses, None)
    thread = int(np.flatnonzero(machine.active_threads())[0])
    step = max(1, box.element // machine.shared.granule)
    touched = (cells[0][:, None] + np.arange(step)).ravel()
    read_asynchronously(machine, _BULK_STORES, touched, thread, line, sees_copies=not of_map)
    value = machine.shared.load(cells, box.element * 8)
    acting = (active_lane_count(machine) > 0)[:, None]
    mask = np.broadcast_to(box.inside & acting, (machine.blocks, box.offset.size))
    agent = machine.new_storing_agent()
    if meaning is None:
        machine.memory.store(box.address, value, mask, agent, machine.epoch, line)
        return
    machine.memory.atomic(meaning, box.address, value, mask, agent, machine.epoch, line)


def _meaning_of_reduction(machine: Machine, target: Operand, verb: str, line: int) -> Operation:
    """Return the operation of a reduction to the tensor of a map, whose elements have a type.  Raises Unsupported."""
    assert isinstance(target, Address)
    place = machine.known(address_of(machine, Address(target.base, target.offset)))
    assert place is not None
    code = used_map(machine, place, line).uniform("element type", machine.active_blocks())
    kind = next((name for name, number in ELEMENT_TYPES.items() if number == code), "")
    if kind not in REDUCED_TYPES[verb]:
        raise Unsupported(f"a reduction ({verb}) of a tensor copy on elements of the type {kind or code}", line)
    return operation(name_of_reduction(verb, kind))


def name_of_reduction(verb: str, kind: str) -> str:
    """Return the name of the operation by which a reduction changes an element of a PTX type.

    A sum of f32 keeps subnormals, which an atomic addition flushes (`records/tensor-reductions-sm90-h200.json`).
    """
    return "add.rn.atomic.fp32" if (verb, kind) == ("add", "f32") else name_of_update(verb, kind)
