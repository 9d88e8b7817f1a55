"""Block symmetry of large grids: classes of blocks that are translations of each other, and comparison of two grids.

Assumptions.  The buffers of the launch do not overlap and no access leaves its buffer (as in every concrete analysis).
The execution of a block in full (`run_blocks`) is correct.  Hashes of different terms differ.

Proved for each kernel.  An address pass (`address_pass`) executes the program once for all blocks of a class, with
integers that are exact in every block: a number of the block plus a number of the thread.  Every branch, mask, barrier,
shared-memory address and number used as data is the same in all blocks of the class.  A number that was loaded from
contents that the launch gives is one of these integers; the launch does not write such a buffer.  Blocks for which this
does not hold are excluded and form classes of their own.  Data that depends on a number of the block is tainted, and a
store of tainted data ends the proof.  In block b, each access to a buffer X is at D_X(b) plus an offset that is common
to the class, or plus such an offset and data (a computed address); where accesses to one buffer shift differently, the
class is divided further.  Therefore the execution of block c of the class is the execution of block b with each address
a in X replaced by a + D_X(c) - D_X(b): the terms are equal up to this replacement of loads and of the constants in
computed addresses, and the stored addresses are moved by it.  Buffers are disjoint, the replacement is one-to-one, and
canonical forms depend on loads only through equality and adjacency within a buffer; a computed address is a sum, and
sums with the same number in addition are equal exactly if they are without it.  A sum of 32 bits that is sign-extended
may wrap around, but then the address is below its buffer, whose size the launch states and which no access leaves
(`MovedWord`).  Therefore the canonical forms are equal up to the replacement as well.  An address that a run of one
block finds to be constant, although data was added, is moved in the same way.

Proved between the blocks of one kernel.  No two blocks store to one byte, and no block loads a byte that another block
stores (otherwise the kernel has a race, or the proof ends).  Loads at computed addresses access buffers that the launch
does not write.  Each element is the result of one block, which an execution of that block alone computes.

Comparison of two kernels.  Every byte of the output is stored by one block b1 of the first kernel and one block b2 of
the second.  The key of the pair (b1, b2) consists of the classes of both blocks and of D1_X(b1) - D2_X(b2) for every
buffer X that both classes access.  If (b1, b2) and (c1, c2) have the same key, the translations from b1 to c1 and from
b2 to c2 move every common buffer by the same number of bytes; a buffer that only one side accesses occurs in no term
that both sides have in common.  Therefore the terms of c1 and c2 agree on the bytes that both store exactly if those of
b1 and b2 do.  One pair for each key is executed in full and compared.  At least one block of every class of either
kernel is executed in full, which detects races, undefined values and results that depend on the order of threads.  The
bytes that a block stored are compared with the bytes that the address pass predicted.

A class of one block, for which the proof gains nothing, is executed as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from bitwise_core import numerics
from bitwise_core.checker.block_symmetry.address_pass import AddressPass, GlobalAccess, address_passes
from bitwise_core.checker.block_symmetry.byte_ranges import ByteRanges, Owners, covers, intersection, owners, union
from bitwise_core.checker.block_symmetry.grid import Column, Limits, NotSymmetric, distinct_rows
from bitwise_core.execution.buffers import sizes_of_buffers
from bitwise_core.execution.concrete import LANES_PER_BATCH, PreparedLaunch, checked_outputs, run_blocks
from bitwise_core.execution.domains.domain import Domain, Unsupported
from bitwise_core.execution.domains.terms import TermDomain
from bitwise_core.execution.launch import POINTER_SHIFT, buffer_at
from bitwise_core.execution.memory.atomic_contributions import is_order_independent
from bitwise_core.execution.memory.outputs import Output
from bitwise_core.execution.races.undetermined import OTHER_BLOCK, Cause, Kind, Nondeterministic, race
from bitwise_core.execution.values.distinct import sorted_distinct
from bitwise_core.execution.values.symbolic_vector import Array

DomainFactory = Callable[[], Domain]

# -- classes of blocks -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BlockClass:
    """A class of blocks that are translations of each other.

    `shift[buffer][i]` is the offset of block `blocks[i]` in that buffer, in bytes from an origin that is common to the
    class; the block accesses the byte ranges plus the shift.  `loads` holds only buffers that the launch writes.
    `atomics` are the names of the atomic operations by buffer, and `atomic_lines` the line of one of them.
    """

    blocks: Array
    shift: Mapping[int, Array]
    stores: Mapping[int, ByteRanges]
    loads: Mapping[int, ByteRanges]
    atomics: Mapping[int, frozenset[str]]
    atomic_lines: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class _ColumnAccesses:
    """The accesses to one buffer through one column."""

    column: Column | None
    accesses: list[GlobalAccess]


def written_buffers(found: Sequence[AddressPass]) -> frozenset[int]:
    """The buffers that a block of the grid writes."""
    return frozenset(
        _buffer(each, access) for each in found for access in each.accesses if access.kind in ("store", "atomic")
    )


def block_classes(found: AddressPass, written: frozenset[int], limits: Limits) -> list[BlockClass]:
    """The block classes of one address pass; loads are recorded for `written` buffers only.

    Raises NotSymmetric, or Unsupported where memory outside all buffers is accessed.
    """
    accesses_by_buffer: dict[int, dict[int, _ColumnAccesses]] = {}
    for access in found.accesses:
        buffer = _buffer(found, access)
        by_column = accesses_by_buffer.setdefault(buffer, {})
        key = 0 if access.column is None else id(access.column)
        if key not in by_column:
            by_column[key] = _ColumnAccesses(access.column, [])
        by_column[key].accesses.append(access)
    offsets: dict[int, Array] = {}
    differences: dict[int, list[Array]] = {}
    for buffer, by_column in accesses_by_buffer.items():
        numbers = [_offsets(found, column_accesses.column) for column_accesses in by_column.values()]
        offsets[buffer] = numbers[0]
        differences[buffer] = [each - numbers[0] for each in numbers]
    distinguishing = [each for group in differences.values() for each in group[1:]]
    first, inverse = (
        distinct_rows(distinguishing)
        if distinguishing
        else (np.zeros(1, dtype=np.int64), np.zeros(found.grid.blocks.size, dtype=np.int64))
    )
    if len(first) > limits.classes:
        raise NotSymmetric(f"accesses to one buffer shift between blocks in more than {limits.classes} different ways")
    order = np.argsort(inverse, kind="stable") if len(first) > 1 else np.arange(inverse.size)
    groups = np.split(order, np.cumsum(np.bincount(inverse))[:-1]) if len(first) > 1 else [order]
    return [_block_class(found, accesses_by_buffer, written, offsets, differences, group) for group in groups]


def _check_sizes(found: Sequence[AddressPass], sizes: Mapping[int, int]) -> None:
    """Raise NotSymmetric if an access may leave a buffer whose size the launch states."""
    if not sizes:
        return
    for each in found:
        for access in each.accesses:
            if access.kind == "gather":
                continue
            buffer, (first, last) = _buffer(each, access), _extent(each, access)
            start = buffer << POINTER_SHIFT
            if buffer in sizes and (first < start or last >= start + sizes[buffer]):
                raise NotSymmetric("an access may leave its buffer", access.line)


def _extent(found: AddressPass, access: GlobalAccess) -> tuple[int, int]:
    """Bounds of the first and the last byte that all blocks and lanes of an access address."""
    lane_offsets = access.thread.view(np.int64)
    low, high = int(lane_offsets.min()), int(lane_offsets.max())
    least, most = (0, 0) if access.column is None else _signed_bounds(found, access.column)
    return low + least, high + most + access.bits // 8 - 1


def _buffer(found: AddressPass, access: GlobalAccess) -> int:
    """The one buffer that all blocks and lanes of an access address."""
    first, last = _extent(found, access)
    if first >= 0 and buffer_at(last) == 0:
        raise Unsupported("memory outside every buffer of the launch is accessed", access.line)
    if first < 0 or last >= 1 << 63 or buffer_at(first) != buffer_at(last):
        raise NotSymmetric("one access addresses several buffers", access.line)
    return buffer_at(first)


def _signed_bounds(found: AddressPass, column: Column) -> tuple[int, int]:
    signed = found.grid.derived("signed", lambda: column.values.view(np.int64), column)
    return found.grid.bounds(signed)


def _offsets(found: AddressPass, column: Column | None) -> Array:
    if column is None:
        return np.zeros(found.grid.blocks.size, dtype=np.int64)
    return found.grid.active_values(column).view(np.int64)


def _block_class(
    found: AddressPass,
    accesses_by_buffer: Mapping[int, Mapping[int, _ColumnAccesses]],
    kept: frozenset[int],
    offsets: Mapping[int, Array],
    differences: Mapping[int, Sequence[Array]],
    group: Array,
) -> BlockClass:
    stores: dict[int, ByteRanges] = {}
    loads: dict[int, ByteRanges] = {}
    atomics: dict[int, frozenset[str]] = {}
    lines: dict[int, int] = {}
    for buffer, by_column in accesses_by_buffer.items():
        written: list[tuple[GlobalAccess, int]] = []
        loaded: list[tuple[GlobalAccess, int]] = []
        for column_accesses, difference in zip(by_column.values(), differences[buffer], strict=True):
            offset = int(difference[group[0]])
            for access in column_accesses.accesses:
                if access.kind != "gather":
                    (loaded if access.kind == "load" else written).append((access, offset))
        if written:
            stores[buffer] = _byte_ranges(written)
            names = frozenset(access.operation for access, _ in written if access.kind == "atomic")
            if names:
                atomics[buffer] = names
                lines[buffer] = min(access.line for access, _ in written if access.kind == "atomic")
        if loaded and buffer in kept:
            loads[buffer] = _byte_ranges(loaded)
    blocks = found.grid.blocks[group]
    shift = {buffer: numbers[group] for buffer, numbers in offsets.items()}
    return BlockClass(blocks, shift, stores, loads, atomics, lines)


def _byte_ranges(accesses: Sequence[tuple[GlobalAccess, int]]) -> ByteRanges:
    parts = [
        union(start, start + access.bits // 8)
        for access, offset in accesses
        for start in (access.thread.view(np.int64) + offset,)
    ]
    return union(np.concatenate([each.start for each in parts]), np.concatenate([each.end for each in parts]))


# -- summaries --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class GridSummary:
    """The block classes of a kernel's grid.

    `class_of[b]` is the class of block b and `position[b]` its position in it.  `owners` gives the block that stores
    each byte range of each buffer.  `executed` caches the outputs of blocks that were executed in full, by domain.
    """

    prepared: PreparedLaunch
    buffers: Mapping[str, int]
    limits: Limits
    classes: tuple[BlockClass, ...]
    class_of: Array
    position: Array
    owners: Mapping[int, Owners]
    executed: dict[DomainFactory, dict[int, dict[int, Output]]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"GridSummary({self.prepared!r}, {len(self.classes)} classes)"


@dataclass(frozen=True, slots=True)
class GridComparison:
    """Whether two kernels store equal terms; if not, the address of an element that differs, and the reason.

    `first` and `second` are the blocks of each kernel that were compared.
    """

    equal: bool
    buffer: int | None
    address: int | None
    reason: str
    first: tuple[int, ...]
    second: tuple[int, ...]


def summarise(prepared: PreparedLaunch, buffers: Mapping[str, int], limits: Limits | None = None) -> GridSummary:
    """Divide the grid into classes of symmetric blocks, and check that blocks do not exchange data.

    Raises NotSymmetric where the proof fails, Unsupported, and Nondeterministic.
    """
    limits = limits or Limits()
    found = address_passes(prepared, buffers, limits)
    _check_sizes(found, sizes_of_buffers(prepared.launch, buffers))
    scratch = found[0].scratch
    written = written_buffers(found)
    if written & frozenset[int]().union(*(each.gathered for each in found)):
        raise NotSymmetric("memory is read at computed addresses in a buffer that the launch writes")
    if written & frozenset[int]().union(*(each.loaded_given for each in found)):
        raise NotSymmetric("a buffer whose contents the launch gives is both read and written")
    classes = tuple(block_class for each in found for block_class in block_classes(each, written, limits))
    count = prepared.launch.blocks
    class_of, position = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    for number, each in enumerate(classes):
        class_of[each.blocks] = number
        position[each.blocks] = np.arange(each.blocks.size)
    stored = sorted({buffer for each in classes for buffer in each.stores})
    owned: dict[int, Owners] = {}
    for buffer in stored:
        own = _owners(classes, buffer, limits)
        _check_stores(prepared, buffers, classes, buffer, own)
        _check_loads(classes, buffer, own, limits)
        if buffer not in scratch:
            owned[buffer] = own
    return GridSummary(prepared, buffers, limits, classes, class_of, position, owned)


def _expand_ranges(
    classes: Sequence[BlockClass], ranges: Sequence[ByteRanges | None], buffer: int, limits: Limits
) -> tuple[Array, Array, Array]:
    """The byte ranges of all blocks: starts, ends and block numbers."""
    total = sum(
        block_class.blocks.size * own.start.size
        for block_class, own in zip(classes, ranges, strict=True)
        if own is not None
    )
    if total > limits.ranges:
        raise NotSymmetric("the grid accesses too many separate byte ranges")
    columns: list[tuple[Array, Array, Array]] = []
    for block_class, own in zip(classes, ranges, strict=True):
        if own is None:
            continue
        shift = block_class.shift[buffer][:, None]
        start, end = shift + own.start, shift + own.end
        columns.append((start.ravel(), end.ravel(), np.repeat(block_class.blocks, own.start.size)))
    start, end, block = (np.concatenate([each[index] for each in columns]) for index in range(3))
    return start, end, block


def _owners(classes: Sequence[BlockClass], buffer: int, limits: Limits) -> Owners:
    return owners(*_expand_ranges(classes, [block_class.stores.get(buffer) for block_class in classes], buffer, limits))


def _check_stores(
    prepared: PreparedLaunch, buffers: Mapping[str, int], classes: Sequence[BlockClass], buffer: int, own: Owners
) -> None:
    """Check that no two blocks store to one byte.  Raises Nondeterministic, NotSymmetric."""
    overlaps = np.flatnonzero(own.end[:-1] > own.start[1:])
    if not overlaps.size:
        return
    names = frozenset[str]().union(*(block_class.atomics.get(buffer, frozenset()) for block_class in classes))
    if any(not is_order_independent(numerics.operation(name)) for name in names):
        pair = own.block[overlaps[0] : overlaps[0] + 2].tolist()
        # Two of the blocks show which contributions they make to one element.
        try:
            checked_outputs(*run_blocks(prepared, TermDomain(), buffers, sorted(set(pair))))
        except Nondeterministic:
            raise
        except Unsupported:
            pass
        reason = "several blocks add to one element in the order in which they are executed"
        lines = [block_class.atomic_lines.get(buffer) for block_class in classes]
        line = min((each for each in lines if each is not None), default=None)
        raise Nondeterministic(reason, line, (Cause(Kind.SUM, reason, line),))
    raise NotSymmetric("several blocks store to one element")


def _check_loads(classes: Sequence[BlockClass], buffer: int, own: Owners, limits: Limits) -> None:
    """Check that no block loads a byte that another block stores.  Raises Unsupported."""
    loads = [block_class.loads.get(buffer) for block_class in classes]
    if all(each is None for each in loads):
        return
    if own.overlaps_other_block(*_expand_ranges(classes, loads, buffer, limits)).any():
        raise race(Kind.BLOCKS, OTHER_BLOCK, None)


# -- execution in full -----------------------------------------------------------------------------------------------


def run_in_full(
    summary: GridSummary, domain_factory: DomainFactory, blocks: Sequence[int]
) -> dict[int, dict[int, Output]]:
    """The outputs of these blocks by buffer; no block is executed twice.  Raises Unsupported, NotSymmetric."""
    executed = summary.executed.setdefault(domain_factory, {})
    missing = sorted({int(block) for block in blocks} - executed.keys())
    if len(missing) + len(executed) > summary.limits.blocks:
        raise NotSymmetric(f"more than {summary.limits.blocks} blocks must be executed in full")
    # Blocks of one class, and of classes that differ in few instructions, take most steps together.
    missing.sort(key=lambda block: (int(summary.class_of[block]), block))
    together = max(1, LANES_PER_BATCH // summary.prepared.threads)
    for start in range(0, len(missing), together):
        executed.update(_run_together(summary, domain_factory, missing[start : start + together]))
    return executed


def _run_together(
    summary: GridSummary, domain_factory: DomainFactory, blocks: Sequence[int]
) -> dict[int, dict[int, Output]]:
    """Execute blocks in one batch."""
    memory, scratch = run_blocks(summary.prepared, domain_factory(), summary.buffers, blocks)
    found = checked_outputs(memory, scratch)
    stored = {
        block: summary.owners.keys() & summary.classes[int(summary.class_of[block])].stores.keys() for block in blocks
    }
    if found.keys() != set().union(*stored.values()):
        raise NotSymmetric("a block stores to other buffers than its address pass predicts")
    return {
        block: {buffer: _block_outputs(summary, block, buffer, found[buffer]) for buffer in buffers}
        for block, buffers in stored.items()
    }


def _block_outputs(summary: GridSummary, block: int, buffer: int, output: Output) -> Output:
    ranges = stored_ranges(summary, block, buffer)
    inside = np.flatnonzero(covers(ranges, output.address.view(np.int64)))
    found = union(output.address.view(np.int64)[inside], (output.address + output.size).view(np.int64)[inside])
    if not np.array_equal(found.start, ranges.start) or not np.array_equal(found.end, ranges.end):
        raise NotSymmetric("a block stores to other addresses than its address pass predicts")
    return Output(**{each.name: getattr(output, each.name)[..., inside] for each in fields(Output)})


def stored_ranges(summary: GridSummary, block: int, buffer: int) -> ByteRanges:
    """The byte ranges of a buffer that a block stores."""
    block_class = summary.classes[int(summary.class_of[block])]
    ranges = block_class.stores.get(buffer)
    if ranges is None:
        return ByteRanges(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    return ranges.shifted(int(block_class.shift[buffer][summary.position[block]]))


def check_representatives(summary: GridSummary, domain_factory: DomainFactory) -> None:
    """Execute one block of every class.  Raises Unsupported on races and undefined values, Nondeterministic."""
    run_in_full(summary, domain_factory, [int(block_class.blocks[0]) for block_class in summary.classes])


# -- comparison -------------------------------------------------------------------------------------------------------


def compare(first: GridSummary, second: GridSummary, domain_factory: DomainFactory) -> GridComparison:
    """Whether two kernels on the same buffers store equal terms in every element.

    Raises NotSymmetric where too many blocks must be executed, Unsupported and Nondeterministic as
    `check_representatives` does, ValueError for summaries with different buffer numbers.
    """
    if first.buffers != second.buffers:
        raise ValueError("kernels are compared on one numbering of buffers: summarise both with the same `buffers`")
    check_representatives(first, domain_factory)
    check_representatives(second, domain_factory)
    pairs: list[tuple[Array, Array]] = []
    for buffer in sorted(first.owners.keys() | second.owners.keys()):
        single = _stored_by_one(first.owners.get(buffer), second.owners.get(buffer))
        if single is not None:
            return GridComparison(False, buffer, single, "only one of the kernels stores this element", (), ())
        pairs.append(_pairs(first.owners[buffer], second.owners[buffer], second.class_of.size))
    if not pairs:
        return GridComparison(True, None, None, "neither kernel stores anything", (), ())
    codes = (
        sorted_distinct(np.concatenate([a * second.class_of.size + b for a, b in pairs])) if len(pairs) > 1 else None
    )
    left, right = pairs[0] if codes is None else np.divmod(codes, second.class_of.size)
    chosen = _representative_pairs(first, second, left, right)
    one, two = left[chosen], right[chosen]
    outputs = run_in_full(first, domain_factory, one.tolist()), run_in_full(second, domain_factory, two.tolist())
    used = tuple(sorted({int(each) for each in one})), tuple(sorted({int(each) for each in two}))
    for a, b in zip(one, two, strict=True):
        for buffer in sorted(first.owners):
            both = intersection(stored_ranges(first, int(a), buffer), stored_ranges(second, int(b), buffer))
            if not both.start.size:
                continue
            address = _first_difference(outputs[0][int(a)][buffer], outputs[1][int(b)][buffer], both)
            if address is not None:
                return GridComparison(False, buffer, address, "the terms of this element differ", *used)
    return GridComparison(True, None, None, "one pair of blocks of every key agrees", *used)


def _stored_by_one(first: Owners | None, second: Owners | None) -> int | None:
    """The address of a byte that only one of the kernels stores."""
    if first is None or second is None:
        present = first or second
        assert present is not None
        return int(present.start[0])
    one, two = union(first.start, first.end), union(second.start, second.end)
    if np.array_equal(one.start, two.start) and np.array_equal(one.end, two.end):
        return None
    points = sorted_distinct(np.concatenate([one.start, one.end, two.start, two.end]))
    return int(points[covers(one, points) != covers(two, points)][0])


def _pairs(first: Owners, second: Owners, blocks: int) -> tuple[Array, Array]:
    """The distinct pairs of blocks that store common bytes, sorted; both kernels must store the same bytes."""
    same = first.start.size == second.start.size and bool((first.start == second.start).all())
    points = first.start if same else sorted_distinct(np.concatenate([first.start, second.start]))
    codes = first.of(points) * blocks + second.of(points)
    if (codes[1:] <= codes[:-1]).any():
        codes = sorted_distinct(codes)
    left, right = np.divmod(codes, blocks)
    return left, right


def _representative_pairs(first: GridSummary, second: GridSummary, left: Array, right: Array) -> Array:
    """The position of one pair for each key."""
    columns = [first.class_of[left], second.class_of[right]]
    accesses = [
        {buffer for block_class in summary.classes for buffer in block_class.shift} for summary in (first, second)
    ]
    for buffer in sorted(accesses[0] & accesses[1]):
        one, has_one = _shifts(first, buffer)
        two, has_two = _shifts(second, buffer)
        columns.append(np.where(has_one[left] & has_two[right], one[left] - two[right], 0))
    return distinct_rows(columns)[0]


def _shifts(summary: GridSummary, buffer: int) -> tuple[Array, Array]:
    """The shift of each block in a buffer, and whether its class accesses the buffer."""
    shift, accesses = np.zeros(summary.class_of.size, dtype=np.int64), np.zeros(summary.class_of.size, dtype=bool)
    for block_class in summary.classes:
        if buffer in block_class.shift:
            shift[block_class.blocks] = block_class.shift[buffer]
            accesses[block_class.blocks] = True
    return shift, accesses


def _first_difference(first: Output, second: Output, both: ByteRanges) -> int | None:
    """The first address in `both` at which the elements differ."""
    chosen = []
    for output in (first, second):
        address = output.address.view(np.int64)
        inside = covers(both, address) | covers(both, address + output.size.astype(np.int64) - 1)
        chosen.append((address[inside], output.size[inside], output.words[:, inside]))
    (address, size, words), (other_address, other_size, other_words) = chosen
    count = min(address.size, other_address.size)
    wrong = address[:count] != other_address[:count]
    wrong |= (size[:count] != other_size[:count]) | (words[:, :count] != other_words[:, :count]).any(axis=0)
    if wrong.any():
        position = int(np.flatnonzero(wrong)[0])
        return min(int(address[position]), int(other_address[position]))
    if address.size != other_address.size:
        return int((address if address.size > count else other_address)[count])
    return None
