"""Memory accesses for opcode tables: shared memory with race detection, and global memory at constant addresses.

Addresses are in bytes, in arrays of shape (1 or blocks, 1 or threads).  A global address lies in a buffer of the
launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from bitwise_core.assembly.module import Address, Operand
from bitwise_core.execution.active_lanes import whole_mask
from bitwise_core.execution.domains.domain import DataDependent, Unsupported
from bitwise_core.execution.launch import SCRATCH_BUFFERS, buffer_at
from bitwise_core.execution.machine import Machine
from bitwise_core.execution.memory.global_memory import Change
from bitwise_core.execution.memory.shared_memory import SHARED_LIMIT
from bitwise_core.execution.opcode_steps import apply_integer
from bitwise_core.execution.races.colliding_lanes import lanes_are_together, would_agree
from bitwise_core.execution.races.epochs import Epoch
from bitwise_core.execution.races.race_detector import RaceDetector
from bitwise_core.execution.races.undetermined import (
    LANES_RACE,
    OVERWRITE_RACE,
    READ_RACE,
    SAME_STEP_RACE,
    WRITE_RACE,
    Cause,
    Kind,
    UndeterminedValues,
    race,
    undetermined,
)
from bitwise_core.execution.values import symbolic_vector as L
from bitwise_core.execution.values.chosen_elements import element_at, sequence
from bitwise_core.execution.values.packing import as_symbolic_vector, blend_values, concat
from bitwise_core.execution.values.symbolic_vector import Array, PackedVector, SymbolicVector, Value, width
from bitwise_core.numerics import Operation

_POINTER_BITS = 64
MAXIMUM_GATHERED = 1 << 22
"""The largest number of pairs of a thread and a cell of shared memory that it may read at a computed address."""


def detector_cells(
    machine: Machine, cells: Array, bits: int, mask: Array | None
) -> list[tuple[RaceDetector, Array, Array]]:
    """Return, for each race detector, the cells that active threads access and the thread of each.

    Each thread accesses `bits` bits, starting at its own cell in `cells`.
    """
    count = max(1, bits // 8 // machine.shared.granule)
    if cells.shape[0] == 1:
        row = cells[0] if cells.shape[1] == machine.threads else np.broadcast_to(cells[0], (machine.threads,))
        threads = _repeated_threads(machine.threads, 1)
        if mask is not None:
            threads = np.flatnonzero(np.broadcast_to(mask.any(axis=0), (machine.threads,)))
            row = row[threads]
        elif count > 1:
            more = (row[:, None] + np.arange(count)).ravel()
            every = _repeated_threads(machine.threads, count)
            return [(each, more, every) for each in machine.races.acting(mask)]
        found = [(each, row, threads) for each in machine.races.acting(mask)]
    else:
        shape = (cells.shape[0], machine.threads)
        rows = whole_mask(mask, shape)
        found = []
        for each, where in machine.races.at(np.broadcast_to(cells, shape), rows):
            threads = np.flatnonzero(where >= 0)
            found.append((each, where[threads], threads))
    if count == 1:
        return found
    more = np.arange(count)
    return [(each, (row[:, None] + more).ravel(), np.repeat(threads, count)) for each, row, threads in found]


@lru_cache(maxsize=64)
def _repeated_threads(threads: int, count: int) -> Array:
    """Return the numbers of all threads, each repeated `count` times."""
    found = np.repeat(np.arange(threads), count)
    found.setflags(write=False)
    return found


def accessed_cells(machine: Machine, address: Array) -> Array:
    """Return the cells of shared memory at each thread's address, of shape (1 or blocks, threads).

    Those of inactive lanes are arbitrary.  Raises FinerGranule and Unsupported.
    """
    blocks = machine.active_whole_blocks()
    if blocks is None:
        return machine.shared.cells(address, machine.mask)
    if address.shape[0] > 1:
        address = address[blocks.numbers]
        # Blocks that access the same cells are together in the detectors of races.
        address = address[:1] if (address == address[:1]).all() else address[blocks.place]
    return machine.shared.cells(address, None)


def read_shared(machine: Machine, address: Array, bits: int, *, ends_late: bool = True) -> Value:
    """Return `bits` bits at each active thread's shared address; undetermined where the read is a race.

    `ends_late`: the read is a load, which an asynchronous copy may overtake.
    """
    cells = accessed_cells(machine, address)
    racing, cause = _racing_reads(machine, cells, bits, ends_late)
    loaded = machine.shared.load(cells, bits, None, machine.active_whole_blocks())
    value = machine.domain.recalled(loaded, machine.mask)
    kept = undetermined_values(machine)
    if racing is None or cause is None or kept is None or not kept.note(cause):
        return value
    # The blocks of every history take part, whichever of them has the race.
    shape = (machine.blocks, machine.threads)
    return blend_values(racing[None], undetermined(bits, shape, machine.domain.recorder), value)


def read_undefined(machine: Machine, address: Array, size: int) -> Array:
    """Read `size` bytes at an address that all active threads of a block give, of shape (1 or blocks, 1).

    Return in which blocks nothing is known of any of these bytes, shape (blocks,).  Raises Race.
    """
    cells, shared = accessed_cells(machine, address), machine.shared
    every = np.broadcast_to(cells, (len(cells), machine.threads))
    _, cause = _racing_reads(machine, every, 8 * size, ends_late=False)
    if cause is not None:
        raise race(cause.kind, cause.reason, cause.line, cause.other)
    # Cells of inactive threads are 0.
    return shared.undefined(cells.max(axis=1, keepdims=True), size // shared.granule)


def _racing_reads(machine: Machine, cells: Array, bits: int, ends_late: bool) -> tuple[Array | None, Cause | None]:
    """Record that active threads read `bits` bits at their cells.  Return the threads whose read is a race, and why.

    None without such a thread.  Raises Race where a race ends the analysis.
    """
    kept = undetermined_values(machine)
    racing: Array | None = None
    cause: Cause | None = None
    for races, row, threads in detector_cells(machine, cells, bits, machine.mask):
        if ends_late:
            races.loads(row, threads, machine.line)
        if kept is None:
            races.reads(row, threads)
            continue
        unordered = races.unordered_reads(row, threads)
        contested = kept.contested(row, races.generation) if kept.generations else None
        if L.some(unordered) or (contested is not None and L.some(contested)):
            contested = np.zeros(row.shape, dtype=bool) if contested is None else contested
            racing = np.zeros(machine.threads, dtype=bool) if racing is None else racing
            racing[threads[unordered | contested]] = True
            if unordered.any():
                other = kept.line_of_write(int(row[unordered][0]))
                cause = Cause(Kind.SHARED, READ_RACE, machine.line, other)
            else:
                place = int(np.flatnonzero(contested)[0])
                overwritten = kept.generations[int(row[place]), int(races.generation[row[place]])]
                cause = Cause(Kind.SHARED, OVERWRITE_RACE, overwritten.line, machine.line)
    return racing, cause


def read_several_shared(machine: Machine, addresses: Sequence[Array], bits: int) -> list[Value]:
    """Return what `read_shared` returns for each of several addresses, which a thread reads in one instruction."""
    found = read_together(machine, addresses, bits)
    return [read_shared(machine, each, bits) for each in addresses] if found is None else found


def read_together(machine: Machine, addresses: Sequence[Array], bits: int) -> list[Value] | None:
    """Return what is at several addresses, if they agree in all blocks and all values are of one kind; else None."""
    threads, kept = machine.threads, undetermined_values(machine)
    if any(each.shape != (1, threads) for each in addresses) or (kept is not None and kept.generations):
        return None
    if machine.mask is not None and machine.active_whole_blocks() is None:
        return None
    cells = accessed_cells(machine, np.concatenate(addresses, axis=1))
    if len(cells) > 1 or machine.shared.recorder is not None:
        return None
    parts = [slice(first, first + threads) for first in range(0, cells.shape[1], threads)]
    values = _loaded_parts(machine, [cells[:, part] for part in parts], bits)
    if values is None:
        return None
    accesses = [each for part in parts for each in detector_cells(machine, cells[:, part], bits, machine.mask)]
    for races in {id(races): races for races, _, _ in accesses}.values():
        own = [(row, who) for each, row, who in accesses if each is races]
        row, who = (np.concatenate(each) for each in zip(*own, strict=True))
        races.loads(row, who, machine.line)
        if kept is None:
            races.reads(row, who)
        elif L.some(races.unordered_reads(row, who)):
            return None
    return [machine.domain.recalled(each, machine.mask) for each in values]


def _loaded_parts(machine: Machine, cells: Sequence[Array], bits: int) -> list[Value] | None:
    """Return what is at several cells of each thread, shape (1, threads), if all values are of one kind; else None.

    Cells in chunks of one size are loaded together, and other ones together.
    """
    kinds = [machine.shared.chunk_size_at(int(each[0, 0])) for each in cells]
    found: dict[int, Value] = {}
    for kind in set(kinds):
        own = [index for index, each in enumerate(kinds) if each is kind]
        lanes = np.concatenate([cells[index] for index in own], axis=1)
        loaded = machine.shared.load(lanes, bits, None, machine.active_whole_blocks())
        size = machine.threads
        split = _parts_of_lanes(
            loaded, [slice(first, first + size) for first in range(0, lanes.shape[1], size)], lanes.shape[1]
        )
        if split is None:
            return None
        found.update(zip(own, split, strict=True))
    return [found[index] for index in range(len(cells))]


def _parts_of_lanes(value: Value, parts: Sequence[slice], lanes: int) -> list[Value] | None:
    """Return a value of that many lanes, which consists of numbers, loads or terms, as values of some lanes each.

    None for a value of another kind.
    """
    if type(value) is PackedVector and value.whole is None and value.joined is None:
        split = [_parts_of_lanes(each, parts, lanes) for each in value.parts]
        rows = [each for each in split if each is not None]
        return [concat(each) for each in zip(*rows, strict=True)] if len(rows) == len(split) else None
    if isinstance(value, np.ndarray):
        return [value[:, part] for part in parts] if value.shape[1] == lanes else None
    if type(value) is not SymbolicVector or value.words.shape[2] < lanes or value.origins or value.recorder is not None:
        return None
    if isinstance(value.flags, int):
        return [SymbolicVector(value.bits, value.words[:, :, part], value.flags) for part in parts]
    if value.flags.shape[1] < lanes:
        return None
    found = [(value.words[:, :, part], L.uniform_flags(value.flags[:, part])) for part in parts]
    return [L.as_array_if_constant(SymbolicVector(value.bits, words, flags)) for words, flags in found]


def read_asynchronously(
    machine: Machine,
    work: str,
    cells: Array,
    thread: int,
    line: int,
    together: Sequence[int] = (),
    *,
    sees_copies: bool = True,
) -> None:
    """Start a thread's asynchronous read of shared cells, a kind of `work`, in the blocks in which it is active.

    `together` and `sees_copies` as in `RaceDetector.pending_reads`.
    Raises Race where an execution before this one found that a write may precede the read.
    """
    blocks, kept = machine.active_blocks_of(thread), undetermined_values(machine)
    if kept is not None and kept.generations:
        for races in machine.races.of_blocks(blocks):
            contested = kept.contested(cells, races.generation)
            if contested.any():
                place = int(np.flatnonzero(contested)[0])
                overwritten = kept.generations[int(cells[place]), int(races.generation[cells[place]])]
                raise race(Kind.SHARED, OVERWRITE_RACE, overwritten.line, line)
    machine.asynchronous_reads.issue(work, cells, thread, blocks, machine.races, together, sees_copies=sees_copies)


def gather_shared(machine: Machine, address: Value, bits: int, line: int) -> Value:
    """Return `bits` bits at shared addresses that depend on data: a term of the address and of all that was written.

    The address is assumed to lie in what the block has written, all of which must be ordered before the read.  Raises
    DataDependent where this is not followed.
    """
    kept, shared = undetermined_values(machine), machine.shared
    written = np.flatnonzero(((shared.flags & np.uint32(L.POISON)) == 0).any(axis=0))
    threads = np.flatnonzero(machine.active_threads())
    followed = kept is not None and machine.races.follows_updates and written.size * threads.size > 0
    if kept is None or not followed or written.size * threads.size > MAXIMUM_GATHERED:
        raise DataDependent("shared memory is read at a computed address", line)
    if shared.possibly_written().any():
        raise DataDependent("shared memory is read at a computed address, and data decides what was written", line)
    row, who = np.tile(written, threads.size), np.repeat(threads, written.size)
    for races in machine.races.acting(machine.mask):
        races.loads(row, who, line)
        unordered = races.unordered_reads(row, who).any() or races.has_pending(np.arange(races.cells))
        if unordered or (kept.generations and kept.contested(written, races.generation).any()):
            reason = "shared memory is read at a computed address with no barrier between the read and all writes"
            raise DataDependent(reason, line)
    flags = shared.flags[:, written]
    defined = (flags & np.uint32(L.POISON)) == 0
    cells = SymbolicVector(
        8 * shared.granule, np.where(defined, shared.words[:, :, written], np.uint64(0)), np.where(defined, flags, 0)
    )
    return element_at(bits, "address", sequence(cells, written * shared.granule), as_symbolic_vector(address))


def undetermined_values(machine: Machine) -> UndeterminedValues | None:
    """Return the undetermined values of the launch, None where a race on shared memory ends the analysis."""
    return None if machine.cluster is not None else machine.memory.undetermined


def write_shared(machine: Machine, address: Array, *values: Value, one_store: bool = False) -> None:
    """Store the values at consecutive shared addresses of each active thread, in order.

    The content is undetermined where threads store different values without an order.  `one_store`: one value
    is stored by one instruction, of which the lowest lane's may be assumed to remain (`colliding_lanes`).
    """
    shared = machine.shared
    if len(values) > 1 and not _disjoint_whole_cells(machine, address, values):
        place = 0
        for value in values:
            write_shared(machine, address + np.uint64(place) if place else address, value)
            place += width(value) // 8
        return
    for value in values:
        machine.domain.note_stored(value)
    cells = accessed_cells(machine, np.broadcast_to(address, (address.shape[0], machine.threads)))
    bits = sum(width(value) for value in values)
    disjoint = cells.shape[0] == 1
    kept = undetermined_values(machine)
    accesses = detector_cells(machine, cells, bits, machine.mask)
    unordered = []
    for races, row, threads in accesses:
        if kept is None:
            races.writes(row, threads)
        else:
            unordered.append(races.unordered_writes(row, threads))
    if machine.condition is not None:
        # The detectors take the write as executed; a lane whose condition is false keeps what is there.
        values = tuple(_selected_contents(machine, cells, values, machine.condition))
    clashing = None if kept is None else _recorded_writes(machine, kept, cells, values, accesses, unordered)
    for races, row, threads in accesses:
        disjoint = disjoint and not races.written_by_others(row, threads)
    if len(values) > 1 and disjoint and clashing is None:
        values = _as_one(values)
    for value in values:
        _store_in_cells(machine, cells, value, machine.line, clashing, disjoint=disjoint, one_store=one_store)
        cells = cells + width(value) // 8 // shared.granule


def _store_in_cells(
    machine: Machine,
    cells: Array,
    value: Value,
    line: int,
    clashing: Array | None,
    *,
    disjoint: bool,
    one_store: bool = False,
) -> None:
    """Store a value at the cells of each active thread, undetermined in the lanes of `clashing`.

    `disjoint`: no two threads have a cell in common; otherwise different values in one cell make it undetermined.
    """
    kept, shared = undetermined_values(machine), machine.shared
    shared.store(cells, value, machine.mask)
    clashes = clashing
    if not disjoint:
        held = shared.holds(cells, value, machine.mask)
        if not held.all():
            reason = LANES_RACE if one_store and would_agree(machine, cells, value) else SAME_STEP_RACE
            if kept is None:
                raise race(Kind.SHARED, reason, line)
            if kept.note(Cause(Kind.SHARED, reason, line)):
                clashes = ~held if clashes is None else ~held | clashes
    if clashes is not None:
        shape = (machine.blocks, machine.threads)
        active = clashes if machine.mask is None else clashes & machine.mask
        shared.store(cells, undetermined(width(value), shape, machine.domain.recorder), active)


def write_together(machine: Machine, addresses: Sequence[Array], values: Sequence[Value], lines: Sequence[int]) -> bool:
    """Store values of one width at several shared addresses of each active thread, by one instruction each.

    The lanes of a warp run in lockstep, and only accesses of different warps are unordered.  Return False, and store
    nothing, unless the accesses are ordered after all earlier ones, no two of the instructions access one cell, and all
    blocks access the same cells.
    """
    threads, shared, kept = machine.threads, machine.shared, undetermined_values(machine)
    if kept is None or machine.condition is not None or shared.recorder is not None:
        return False
    bits = width(values[0])
    if any(each.shape != (1, threads) for each in addresses) or bits % (8 * shared.granule):
        return False
    if machine.mask is not None and machine.active_whole_blocks() is None:
        return False
    cells = accessed_cells(machine, np.concatenate(addresses, axis=1))
    if len(cells) > 1:
        return False
    count = bits // 8 // shared.granule
    row = cells[0] if count == 1 else (cells[0][:, None] + np.arange(count)).ravel()
    who = np.tile(_repeated_threads(threads, count), len(addresses))
    number = np.repeat(np.arange(len(addresses)), threads * count)
    # Of several numbers for one cell one remains.
    last = np.empty(int(row.max()) + 1, dtype=np.int64)
    last[row] = number
    if not (last.take(row) == number).all():
        return False
    detectors = machine.races.acting(machine.mask)
    for races in detectors:
        for unordered in races.unordered_writes(row, who):
            if L.some(unordered):
                return False
    nowhere = np.zeros(row.size, dtype=bool)
    for races in detectors:
        races.record_writes(row, who, nowhere, nowhere)
    disjoint = not any(races.written_by_others(row, who) for races in detectors)
    for index, (value, line) in enumerate(zip(values, lines, strict=True)):
        machine.domain.note_stored(value)
        kept.wrote(row[index * threads * count : (index + 1) * threads * count], line)
        own = cells[:, index * threads : (index + 1) * threads]
        _store_in_cells(machine, own, value, line, None, disjoint=disjoint)
    return True


def _as_one(values: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return values as one with their parts, where the cells of the one are those of the values."""
    if not all(type(value) is SymbolicVector for value in values):
        return values
    return (PackedVector(tuple(values)),)  # type: ignore[arg-type]


def update_shared(machine: Machine, address: Array, operation: Operation, value: Value) -> None:
    """Combine the value with the content of each active thread's shared address by an atomic operation.

    The operation must be associative and commutative, so that its order does not matter.  Where other accesses are not
    ordered, the content is undetermined.  Raises Unsupported.
    """
    if machine.cluster is not None or not machine.races.follows_updates:
        raise Unsupported("atomic operations on shared memory are followed in blocks of a launch only")
    shared, bits, name = machine.shared, width(value), operation.name
    cells = shared.cells(np.broadcast_to(address, (address.shape[0], machine.threads)), machine.mask)
    kept = undetermined_values(machine)
    clashing = np.zeros(machine.threads, dtype=bool)
    for races, row, threads in detector_cells(machine, cells, bits, machine.mask):
        races.loads(row, threads, machine.line)
        of_readers, of_writers = races.unordered_writes(row, threads, name)
        either = of_readers | of_writers
        if L.some(either) and (kept is None or races.has_pending(row[either])):
            raise race(Kind.SHARED, OVERWRITE_RACE if of_readers.any() else WRITE_RACE, machine.line)
        if kept is not None:
            if L.some(of_readers):
                cause = Cause(Kind.SHARED, OVERWRITE_RACE, machine.line)
                read = row[of_readers]
                kept.contest(read, races.settled[read], races.generation[read], cause)
            if L.some(of_writers):
                cause = Cause(Kind.SHARED, WRITE_RACE, machine.line, kept.line_of_write(int(row[of_writers][0])))
                clashing[threads[of_writers]] |= kept.note(cause)
            kept.wrote(row, machine.line)
        races.record_updates(row, threads, name)
    active, where = machine.active(), np.broadcast_to(cells, (machine.blocks, machine.threads))
    turns = _turns(where, active)
    for turn in range(int(turns.max(initial=0)) + 1):
        lanes = active & (turns == turn)
        _update_lanes(machine, cells, operation, value, lanes)
    if clashing.any():
        unknown = undetermined(bits, (machine.blocks, machine.threads), machine.domain.recorder)
        shared.store(cells, unknown, active & clashing[None])


def _turns(cells: Array, active: Array) -> Array:
    """Return how many active lanes of its block before each lane have the same cell; both of shape (blocks, lanes)."""
    found = np.zeros(cells.shape, dtype=np.int64)
    block, lane = np.nonzero(active)
    keys = cells[block, lane].astype(np.int64) + block * SHARED_LIMIT
    order = np.argsort(keys, kind="stable")
    first = np.flatnonzero(np.append(True, keys[order][1:] != keys[order][:-1])) if order.size else order
    ranks = np.arange(order.size) - np.repeat(first, np.diff(np.append(first, order.size)))
    found[block[order], lane[order]] = ranks
    return found


def _update_lanes(machine: Machine, cells: Array, operation: Operation, value: Value, lanes: Array) -> None:
    """Update the cells of some lanes, no two of which have the same."""
    outer, bits = machine.mask, width(value)
    machine.mask = lanes
    try:
        old = machine.domain.recalled(machine.shared.load(cells, bits), lanes)
        changed = apply_integer(machine, operation, [old, value])
        if machine.condition is not None:
            changed = machine.domain.select(machine.condition, changed, old)
        machine.domain.note_stored(changed)
        machine.shared.store(cells, changed, lanes)
    finally:
        machine.mask = outer


def _recorded_writes(
    machine: Machine,
    kept: UndeterminedValues,
    cells: Array,
    values: Sequence[Value],
    accesses: Sequence[tuple[RaceDetector, Array, Array]],
    unordered: Sequence[tuple[Array, Array]],
) -> Array | None:
    """Record writes, which may be races.  Return the threads whose cells become undetermined, shape (1, threads)."""
    same = np.zeros(machine.threads, dtype=bool)
    if any(L.some(each) for pair in unordered for each in pair):
        same = np.ones(machine.threads, dtype=bool)
        place = cells
        for value in values:
            same = same & machine.shared.holds(place, value, machine.mask).all(axis=0)
            place = place + width(value) // 8 // machine.shared.granule
    clashing = np.zeros(machine.threads, dtype=bool)
    for (races, row, threads), (of_readers, of_writers) in zip(accesses, unordered, strict=True):
        either = of_readers | of_writers
        if L.some(either) and races.has_pending(row[either]):
            raise race(Kind.SHARED, OVERWRITE_RACE if of_readers.any() else WRITE_RACE, machine.line)
        # After atomic operations in another order, the content would be another.
        unchanged = same[threads] & ~(of_writers & races.updated.take(row))
        written = of_writers & ~unchanged
        if L.some(of_readers):
            cause = Cause(Kind.SHARED, OVERWRITE_RACE, machine.line)
            # A write of the content that is there is no race with reads of this content, but with earlier reads.
            newest = races.generation[row] - unchanged
            read = row[of_readers]
            kept.contest(read, races.settled[read], newest[of_readers], cause)
        if L.some(written):
            cause = Cause(Kind.SHARED, WRITE_RACE, machine.line, kept.line_of_write(int(row[written][0])))
            clashing[threads[written]] = kept.note(cause)
        races.record_writes(row, threads, of_writers, unchanged)
        kept.wrote(row, machine.line)
    return clashing[None] if L.some(clashing) else None


def _selected_contents(machine: Machine, cells: Array, values: Sequence[Value], condition: Value) -> list[Value]:
    """Return the values, each selected over the content of its cells where the condition on data is false."""
    found = []
    for value in values:
        old = machine.shared.load(cells, width(value))
        found.append(machine.domain.select(condition, value, old))
        cells = cells + width(value) // 8 // machine.shared.granule
    return found


def _disjoint_whole_cells(machine: Machine, address: Array, values: Sequence[Value]) -> bool:
    """Return whether several values can be written together.

    They can if each value fills whole cells, the addresses are the same in every block, and no two threads' ranges
    overlap.
    """
    if address.shape[0] != 1 or any(width(value) // 8 % machine.shared.granule for value in values):
        return False
    places = np.broadcast_to(address[0], (machine.threads,))
    if machine.mask is not None:
        places = places[np.broadcast_to(machine.mask.any(axis=0), (machine.threads,))]
    places = np.sort(places)
    size = places.dtype.type(sum(width(value) for value in values) // 8)
    return bool((places[1:] - places[:-1] >= size).all()) and int(places.max(initial=0)) < SHARED_LIMIT - int(size)


def known_address(machine: Machine, operand: Operand, size: int) -> Array:
    """Return the address of a bracketed operand for an access of `size` bytes.

    Raises Unsupported if it depends on data or is not a multiple of `size`.
    """
    if not isinstance(operand, Address) or operand.base is None:
        raise Unsupported(f"the operand {operand} is not an address with a base register")
    address = machine.known(machine.read_bits(operand.base, 64))
    if address is None:
        raise DataDependent("memory is accessed at an address that depends on data")
    if operand.offset:
        address = address + np.uint64(operand.offset & (1 << 64) - 1)
    check_aligned(machine, address, size, machine.line)
    return address


def load_global(machine: Machine, address: Array, bits: int, line: int, *, coherent: bool = True) -> Value:
    """Return `bits` bits at each active lane's global address.  Raises Unsupported outside every buffer.

    A load that is not `coherent` need not see what the launch has stored, also in its own thread.
    """
    check_in_buffer(machine, address, line)
    thread = machine.thread if coherent else machine.loading_agent()
    memory, epoch = machine.memory, _epoch(machine)
    if bits != _POINTER_BITS or not memory.given.has_pointers:
        return memory.load(address, bits, machine.mask, thread, epoch, line)
    with memory.following_pointers():
        return memory.load(address, bits, machine.mask, thread, epoch, line)


def store_global(machine: Machine, address: Array, value: Value, bits: int, line: int) -> None:
    """Store in the active lanes; under a condition on data, lanes where it is false keep the old content."""
    check_in_buffer(machine, address, line)
    epoch = _epoch(machine)
    if machine.condition is not None:
        # The stores of one side of a branch that whole blocks take are joined with those of the other.
        if machine.path is None and machine.memory.store_under_condition(
            address, value, machine.condition, machine.mask, machine.thread, epoch, line
        ):
            return
        old = machine.memory.load(address, bits, machine.mask, machine.thread, epoch, line)
        value = machine.domain.select(machine.condition, value, old)
    machine.memory.store(address, value, machine.mask, machine.thread, epoch, line)


def _epoch(machine: Machine) -> Epoch:
    """Return the epoch of an access, or its number in program order where that orders lanes.  Raises Unsupported."""
    order = machine.memory.program_order
    return machine.epoch if order is None else order.next(machine.line, together=lanes_are_together(machine))


def update_global(machine: Machine, address: Value, bits: int, change: Change, line: int) -> Value:
    """Change the content of each active lane's element by an atomic operation.  Return the content before it.

    Under a condition on data, lanes where it is false keep the content.  Raises Unsupported.
    """
    if machine.memory.program_order is not None:
        raise Unsupported("an atomic operation has no place in the program order of a warp", line)
    known = machine.known(address)
    if known is None:
        reason = "an atomic operation whose result depends on the order of threads is at a computed address"
        raise DataDependent(reason, line, (address,))
    where = known.astype(np.uint64, copy=False)
    check_in_buffer(machine, where, line)
    check_aligned(machine, where, bits // 8, line)
    condition = machine.condition

    def conditional(old: Value) -> Value:
        return change(old) if condition is None else machine.domain.select(condition, change(old), old)

    return machine.memory.update(conditional, where, bits, machine.mask, machine.thread, machine.epoch, line)


def check_in_buffer(machine: Machine, address: Array, line: int) -> None:
    """Raise Unsupported if an active lane's global address lies below every buffer, as the null pointer, or above all.

    Above all are addresses of a device that a kernel reads as numbers: the launch does not say what memory holds there.
    """
    if L.lazy_integers(address) is not None:
        return
    lowest = address.min() if machine.mask is None else np.where(machine.mask, address, np.uint64(2**63)).min()
    highest = address.max() if machine.mask is None else np.where(machine.mask, address, np.uint64(0)).max()
    most = max(machine.buffers.values(), default=0) + SCRATCH_BUFFERS
    if buffer_at(int(lowest)) == 0 or buffer_at(int(highest)) > most:
        raise Unsupported("memory outside every buffer of the launch is accessed", line)


def check_aligned(machine: Machine, address: Array, size: int, line: int) -> None:
    """Raise Unsupported if an active thread's address is not a multiple of the access's size in bytes."""
    if size == 1:
        return
    if L.lazy_integers(address) is None and not int(np.bitwise_or.reduce(address, axis=None)) & (size - 1):
        return
    misaligned = (address & address.dtype.type(size - 1)) != 0
    if misaligned.any() and (machine.mask is None or (misaligned & machine.mask).any()):
        raise Unsupported(f"an access of {size} bytes is not aligned to its size", line)
