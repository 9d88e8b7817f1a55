"""Block symmetry of large grids: blocks that are translations of a few, and the verdict on two kernels from those.

What is assumed.  The launch's buffers do not overlap and no access leaves its buffer (as in every reading of a
launch).  The run of a block in full (`run_blocks`) is right.  Hashes of different terms differ.

What is proved, for each kernel.  An address pass (`address_pass`) runs the program once with integers exact for all
blocks of a part: a number of the block plus a number of the thread.  Every branch, mask, barrier, shared-memory
address and number among the data comes out the same in all blocks of the part (blocks for which it does not are set
aside into parts of their own; data into which a number of the block enters is tainted, and storing it ends the
proof).  Each access to a buffer X lies, in block b, at D_X(b) plus an offset that the part's blocks share; accesses
to one buffer that shift differently part the grid further.  So the run of block c of the part is the run of block b
with each address a of X replaced by a + D_X(c) - D_X(b): the terms are the same up to that replacement of leaves, and
the stored addresses are moved by it.  Buffers lie apart, the replacement is one-to-one, and canonical forms look at
leaves only through equality and adjacency within a buffer, so canonical forms are the same up to it as well.

What is proved between blocks of one kernel.  No two blocks store to one byte, and no block loads a byte that another
block stores (or the kernel has a race, or the proof ends); what is read at computed addresses lies in buffers that
the launch does not write; each element is the result of one block, which a run of that block alone gives.

The verdict on two kernels.  Every byte of the output lies in one block b1 of the first and b2 of the second kernel.
Let the key of the pair be both blocks' parts and D1_X(b1) - D2_X(b2) for every buffer X that both parts touch.  If (b1,
b2) and (c1, c2) have one key, going from b1 to c1 and from b2 to c2 moves every common buffer by the same number of
bytes; a buffer that only one side touches occurs in no term that both sides share.  So the terms of c1 and c2 agree on
what both store exactly if those of b1 and b2 do.  One pair for each key is run in full and compared, and every part of
either kernel has a block run in full, which finds races, undefined values and results that depend on the order of
threads.  What a block stored is compared with what the address pass said it stores.

Parts with one block (where the proof gained nothing) are run as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from bitwise_core import numerics
from bitwise_core.checker.block_symmetry.address_pass import Pass, Touch, passes
from bitwise_core.checker.block_symmetry.byte_ranges import Owners, Runs, covers, intersection, merged, owners
from bitwise_core.checker.block_symmetry.grid import Column, Limits, NotSymmetric, distinct_rows
from bitwise_core.execution.concrete import LANES_PER_BATCH, PreparedLaunch, checked_outputs, run_blocks
from bitwise_core.execution.domains.domain import Domain, Unsupported
from bitwise_core.execution.launch import POINTER_SHIFT
from bitwise_core.execution.memory.global_memory import Nondeterministic, is_order_independent
from bitwise_core.execution.memory.outputs import Output
from bitwise_core.execution.values.symbolic_vector import Array

DomainFactory = Callable[[], Domain]

# -- parts of the grid ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """Blocks of a grid that are translations of one another.

    `shift[buffer][i]` is the offset of block `blocks[i]` in that buffer, in bytes from an origin that the part's blocks
    share; the block accesses the runs plus the shift.  `loads` holds written buffers only.  `atomics` are the names of
    the atomic operations by buffer.
    """

    blocks: Array
    shift: Mapping[int, Array]
    stores: Mapping[int, Runs]
    loads: Mapping[int, Runs]
    atomics: Mapping[int, frozenset[str]]


@dataclass(frozen=True, slots=True)
class _Use:
    """The accesses to one buffer through one column."""

    column: Column | None
    touches: list[Touch]


def written_buffers(found: Sequence[Pass]) -> frozenset[int]:
    """The buffers that some block of the grid writes."""
    return frozenset(_buffer(each, touch) for each in found for touch in each.touched if touch.kind != "load")


def parts_of(found: Pass, written: frozenset[int], limits: Limits) -> list[Part]:
    """The parts of one pass; loads are kept of `written` buffers.

    Raises NotSymmetric, or Unsupported where memory outside every buffer is touched.
    """
    uses: dict[int, dict[int, _Use]] = {}
    for touch in found.touched:
        buffer = _buffer(found, touch)
        by_column = uses.setdefault(buffer, {})
        key = 0 if touch.column is None else id(touch.column)
        if key not in by_column:
            by_column[key] = _Use(touch.column, [])
        by_column[key].touches.append(touch)
    places: dict[int, Array] = {}
    apart: dict[int, list[Array]] = {}
    for buffer, by_column in uses.items():
        numbers = [_places(found, use.column) for use in by_column.values()]
        places[buffer] = numbers[0]
        apart[buffer] = [each - numbers[0] for each in numbers]
    differences = [each for group in apart.values() for each in group[1:]]
    first, inverse = (
        distinct_rows(differences)
        if differences
        else (np.zeros(1, dtype=np.int64), np.zeros(found.grid.blocks.size, dtype=np.int64))
    )
    if len(first) > limits.parts:
        raise NotSymmetric(f"accesses to one buffer shift in more than {limits.parts} ways from block to block")
    order = np.argsort(inverse, kind="stable") if len(first) > 1 else np.arange(inverse.size)
    groups = np.split(order, np.cumsum(np.bincount(inverse))[:-1]) if len(first) > 1 else [order]
    return [_part(found, uses, written, places, apart, group) for group in groups]


def _buffer(found: Pass, touch: Touch) -> int:
    """The one buffer that all blocks and lanes access."""
    offsets = touch.thread.view(np.int64)
    low, high = int(offsets.min()), int(offsets.max())
    least, most = (0, 0) if touch.column is None else _signed_bounds(found, touch.column)
    first, last = low + least, high + most + touch.bits // 8 - 1
    if first < 1 << POINTER_SHIFT and first >= 0 and last < 1 << POINTER_SHIFT:
        raise Unsupported("memory outside every buffer of the launch is accessed", touch.line)
    if first < 0 or last >= 1 << 63 or first >> POINTER_SHIFT != last >> POINTER_SHIFT:
        raise NotSymmetric("one access reaches several buffers", touch.line)
    return first >> POINTER_SHIFT


def _signed_bounds(found: Pass, column: Column) -> tuple[int, int]:
    signed = found.grid.derived("signed", lambda: column.values.view(np.int64), column)
    return found.grid.bounds(signed)


def _places(found: Pass, column: Column | None) -> Array:
    if column is None:
        return np.zeros(found.grid.blocks.size, dtype=np.int64)
    return found.grid.on(column).view(np.int64)


def _part(
    found: Pass,
    uses: Mapping[int, Mapping[int, _Use]],
    kept: frozenset[int],
    places: Mapping[int, Array],
    apart: Mapping[int, Sequence[Array]],
    group: Array,
) -> Part:
    stores: dict[int, Runs] = {}
    loads: dict[int, Runs] = {}
    atomics: dict[int, frozenset[str]] = {}
    for buffer, by_column in uses.items():
        written: list[tuple[Touch, int]] = []
        read: list[tuple[Touch, int]] = []
        for use, difference in zip(by_column.values(), apart[buffer], strict=True):
            offset = int(difference[group[0]])
            for touch in use.touches:
                (read if touch.kind == "load" else written).append((touch, offset))
        if written:
            stores[buffer] = _runs(written)
            names = frozenset(touch.operation for touch, _ in written if touch.kind == "atomic")
            if names:
                atomics[buffer] = names
        if read and buffer in kept:
            loads[buffer] = _runs(read)
    blocks = found.grid.blocks[group]
    return Part(blocks, {buffer: numbers[group] for buffer, numbers in places.items()}, stores, loads, atomics)


def _runs(touches: Sequence[tuple[Touch, int]]) -> Runs:
    pieces = [
        merged(start, start + touch.bits // 8)
        for touch, offset in touches
        for start in (touch.thread.view(np.int64) + offset,)
    ]
    return merged(np.concatenate([each.start for each in pieces]), np.concatenate([each.end for each in pieces]))


# -- summaries --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """A kernel's grid in parts.

    `part[b]` is the part of block b and `place[b]` its position in it; `owners` gives the block that stores each byte
    range of each buffer.  `ran` holds the outputs of blocks that were run in full, by domain.
    """

    prepared: PreparedLaunch
    buffers: Mapping[str, int]
    limits: Limits
    parts: tuple[Part, ...]
    part: Array
    place: Array
    owners: Mapping[int, Owners]
    ran: dict[DomainFactory, dict[int, dict[int, Output]]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Summary({self.prepared!r}, {len(self.parts)} parts)"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Whether two kernels store equal terms; else the address of an element that differs, and why.

    `first` and `second` are the blocks of each kernel that were compared.
    """

    equal: bool
    buffer: int | None
    address: int | None
    reason: str
    first: tuple[int, ...]
    second: tuple[int, ...]


def summarise(prepared: PreparedLaunch, buffers: Mapping[str, int], limits: Limits | None = None) -> Summary:
    """Partitions the grid into parts of symmetric blocks, and checks that blocks do not exchange data.

    Raises NotSymmetric where the proof fails, Unsupported, and Nondeterministic.
    """
    limits = limits or Limits()
    found = passes(prepared, buffers, limits)
    scratch = found[0].scratch
    written = written_buffers(found)
    if written & frozenset[int]().union(*(each.gathered for each in found)):
        raise NotSymmetric("memory is read at computed addresses in a buffer that the launch writes")
    parts = tuple(part for each in found for part in parts_of(each, written, limits))
    count = prepared.launch.blocks
    part, place = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    for number, each in enumerate(parts):
        part[each.blocks] = number
        place[each.blocks] = np.arange(each.blocks.size)
    stored = sorted({buffer for each in parts for buffer in each.stores})
    owned: dict[int, Owners] = {}
    for buffer in stored:
        own = _owners(parts, buffer, limits)
        _check_stores(parts, buffer, own)
        _check_loads(parts, buffer, own, limits)
        if buffer not in scratch:
            owned[buffer] = own
    return Summary(prepared, buffers, limits, parts, part, place, owned)


def _spread(
    parts: Sequence[Part], runs: Sequence[Runs | None], buffer: int, limits: Limits
) -> tuple[Array, Array, Array]:
    """The runs of every block: starts, ends and blocks."""
    total = sum(part.blocks.size * own.start.size for part, own in zip(parts, runs, strict=True) if own is not None)
    if total > limits.spans:
        raise NotSymmetric("the grid touches memory in too many separate places")
    columns: list[tuple[Array, Array, Array]] = []
    for part, own in zip(parts, runs, strict=True):
        if own is None:
            continue
        shift = part.shift[buffer][:, None]
        start, end = shift + own.start, shift + own.end
        columns.append((start.ravel(), end.ravel(), np.repeat(part.blocks, own.start.size)))
    start, end, block = (np.concatenate([each[index] for each in columns]) for index in range(3))
    return start, end, block


def _owners(parts: Sequence[Part], buffer: int, limits: Limits) -> Owners:
    return owners(*_spread(parts, [part.stores.get(buffer) for part in parts], buffer, limits))


def _check_stores(parts: Sequence[Part], buffer: int, own: Owners) -> None:
    """No two blocks store to one byte."""
    if own.overlap() is None:
        return
    names = frozenset[str]().union(*(part.atomics.get(buffer, frozenset()) for part in parts))
    if any(not is_order_independent(numerics.operation(name)) for name in names):
        raise Nondeterministic("several blocks add to one element in the order in which they happen to run")
    raise NotSymmetric("several blocks store to one element")


def _check_loads(parts: Sequence[Part], buffer: int, own: Owners, limits: Limits) -> None:
    """No block loads what another stores."""
    loads = [part.loads.get(buffer) for part in parts]
    if all(each is None for each in loads):
        return
    if own.foreign(*_spread(parts, loads, buffer, limits)).any():
        raise Unsupported("a block reads global memory that another block of the launch writes")


# -- running blocks in full -------------------------------------------------------------------------------------------


def run_in_full(summary: Summary, domain_factory: DomainFactory, blocks: Sequence[int]) -> dict[int, dict[int, Output]]:
    """What each of these blocks stores in each buffer; no block is run twice.  Raises Unsupported, NotSymmetric."""
    ran = summary.ran.setdefault(domain_factory, {})
    missing = sorted({int(block) for block in blocks} - ran.keys())
    if len(missing) + len(ran) > summary.limits.blocks:
        raise NotSymmetric(f"more than {summary.limits.blocks} blocks would have to be run in full")
    by_part: dict[int, list[int]] = {}
    for block in missing:
        by_part.setdefault(int(summary.part[block]), []).append(block)
    for number, members in by_part.items():
        together = max(1, LANES_PER_BATCH // summary.prepared.threads)
        for start in range(0, len(members), together):
            ran.update(_run_alike(summary, domain_factory, number, members[start : start + together]))
    return ran


def _run_alike(
    summary: Summary, domain_factory: DomainFactory, part: int, blocks: Sequence[int]
) -> dict[int, dict[int, Output]]:
    """Runs blocks of one part, which take the same steps, so that races in each of them are found."""
    memory, scratch = run_blocks(summary.prepared, domain_factory(), summary.buffers, blocks)
    found = checked_outputs(memory, scratch)
    if found.keys() != {buffer for buffer in summary.parts[part].stores if buffer in summary.owners}:
        raise NotSymmetric("a block stores to other buffers than its address pass says")
    return {
        block: {buffer: _of_block(summary, block, buffer, output) for buffer, output in found.items()}
        for block in blocks
    }


def _of_block(summary: Summary, block: int, buffer: int, output: Output) -> Output:
    runs = stored_runs(summary, block, buffer)
    inside = np.flatnonzero(covers(runs, output.address.view(np.int64)))
    found = merged(output.address.view(np.int64)[inside], (output.address + output.size).view(np.int64)[inside])
    if not np.array_equal(found.start, runs.start) or not np.array_equal(found.end, runs.end):
        raise NotSymmetric("a block stores to other places than its address pass says")
    return Output(**{each.name: getattr(output, each.name)[..., inside] for each in fields(Output)})


def stored_runs(summary: Summary, block: int, buffer: int) -> Runs:
    """Where a block stores in a buffer."""
    part = summary.parts[int(summary.part[block])]
    runs = part.stores.get(buffer)
    if runs is None:
        return Runs(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    return runs.moved(int(part.shift[buffer][summary.place[block]]))


def check(summary: Summary, domain_factory: DomainFactory) -> None:
    """Runs one block of every part.  Raises Unsupported on races and undefined values, Nondeterministic."""
    run_in_full(summary, domain_factory, [int(part.blocks[0]) for part in summary.parts])


# -- comparing --------------------------------------------------------------------------------------------------------


def compare(first: Summary, second: Summary, domain_factory: DomainFactory) -> Comparison:
    """Whether two kernels of one launch's buffers leave equal terms in every element.

    Raises NotSymmetric where too many blocks would have to be run, Unsupported and Nondeterministic as `check`.
    """
    if first.buffers != second.buffers:
        raise ValueError("kernels are compared on one numbering of buffers: summarise both with the same `buffers`")
    check(first, domain_factory)
    check(second, domain_factory)
    pairs: list[tuple[Array, Array]] = []
    for buffer in sorted(first.owners.keys() | second.owners.keys()):
        lone = _stored_by_one(first.owners.get(buffer), second.owners.get(buffer))
        if lone is not None:
            return Comparison(False, buffer, lone, "only one of the kernels stores this element", (), ())
        pairs.append(_pairs(first.owners[buffer], second.owners[buffer], second.part.size))
    if not pairs:
        return Comparison(True, None, None, "neither kernel stores anything", (), ())
    codes = np.unique(np.concatenate([a * second.part.size + b for a, b in pairs])) if len(pairs) > 1 else None
    left, right = pairs[0] if codes is None else np.divmod(codes, second.part.size)
    chosen = _choose(first, second, left, right)
    one, two = left[chosen], right[chosen]
    outputs = run_in_full(first, domain_factory, one.tolist()), run_in_full(second, domain_factory, two.tolist())
    used = tuple(sorted({int(each) for each in one})), tuple(sorted({int(each) for each in two}))
    for a, b in zip(one, two, strict=True):
        for buffer in sorted(first.owners):
            both = intersection(stored_runs(first, int(a), buffer), stored_runs(second, int(b), buffer))
            if not both.start.size:
                continue
            address = _first_difference(outputs[0][int(a)][buffer], outputs[1][int(b)][buffer], both)
            if address is not None:
                return Comparison(False, buffer, address, "the terms of this element differ", *used)
    return Comparison(True, None, None, "one pair of blocks of every kind agrees", *used)


def _stored_by_one(first: Owners | None, second: Owners | None) -> int | None:
    """The address of a byte that only one of the kernels stores."""
    if first is None or second is None:
        present = first or second
        assert present is not None
        return int(present.start[0])
    one, two = merged(first.start, first.end), merged(second.start, second.end)
    if np.array_equal(one.start, two.start) and np.array_equal(one.end, two.end):
        return None
    points = np.unique(np.concatenate([one.start, one.end, two.start, two.end]))
    return int(points[covers(one, points) != covers(two, points)][0])


def _pairs(first: Owners, second: Owners, blocks: int) -> tuple[Array, Array]:
    """The distinct pairs of blocks that store to common bytes, sorted; both kernels store to the same bytes."""
    same = first.start.size == second.start.size and bool((first.start == second.start).all())
    points = first.start if same else np.unique(np.concatenate([first.start, second.start]))
    codes = first.of(points) * blocks + second.of(points)
    if (codes[1:] <= codes[:-1]).any():
        codes = np.unique(codes)
    left, right = np.divmod(codes, blocks)
    return left, right


def _choose(first: Summary, second: Summary, left: Array, right: Array) -> Array:
    """The place of one pair for each key."""
    columns = [first.part[left], second.part[right]]
    touched = [{buffer for part in summary.parts for buffer in part.shift} for summary in (first, second)]
    for buffer in sorted(touched[0] & touched[1]):
        one, has_one = _shifts(first, buffer)
        two, has_two = _shifts(second, buffer)
        columns.append(np.where(has_one[left] & has_two[right], one[left] - two[right], 0))
    return distinct_rows(columns)[0]


def _shifts(summary: Summary, buffer: int) -> tuple[Array, Array]:
    """Where each block works in a buffer, and whether its part touches it."""
    shift, touches = np.zeros(summary.part.size, dtype=np.int64), np.zeros(summary.part.size, dtype=bool)
    for part in summary.parts:
        if buffer in part.shift:
            shift[part.blocks] = part.shift[buffer]
            touches[part.blocks] = True
    return shift, touches


def _first_difference(first: Output, second: Output, both: Runs) -> int | None:
    """The first address in `both` whose elements differ."""
    chosen = []
    for output in (first, second):
        address = output.address.view(np.int64)
        inside = covers(both, address) | covers(both, address + output.size.view(np.int64) - 1)
        chosen.append((address[inside], output.size[inside], output.words[:, inside]))
    (address, size, words), (other_address, other_size, other_words) = chosen
    count = min(address.size, other_address.size)
    wrong = address[:count] != other_address[:count]
    wrong |= (size[:count] != other_size[:count]) | (words[:, :count] != other_words[:, :count]).any(axis=0)
    if wrong.any():
        place = int(np.flatnonzero(wrong)[0])
        return min(int(address[place]), int(other_address[place]))
    if address.size != other_address.size:
        return int((address if address.size > count else other_address)[count])
    return None


def offset_in_buffer(address: int) -> int:
    """The byte offset of an address in its buffer."""
    return address & ((1 << POINTER_SHIFT) - 1)
