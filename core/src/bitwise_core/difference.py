"""The verdict on two kernels, with a witness where they differ: an element, and the first node where its trees part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bitwise_core.asm import AssemblyError
from bitwise_core.checker import (
    Arches,
    Options,
    Outcome,
    Prepared,
    Reading,
    Side,
    Source,
    Verdict,
    Witness,
    across,
    buffer_numbers,
    of_both,
    prepare,
    read,
    small_outputs,
    summary,
    verdict,
)
from bitwise_core.engine import block_symmetry
from bitwise_core.engine.block_symmetry import Summary
from bitwise_core.engine.byte_ranges import covers, merged
from bitwise_core.engine.divergence import DivergentNodes, divergence_sentence, expression_text, first_divergence
from bitwise_core.engine.grid import NotSymmetric
from bitwise_core.engine.replay import Part, Replay, Scalar, replay
from bitwise_core.large import terms_under
from bitwise_core.machine.arch import Arch
from bitwise_core.machine.domain import Unreadable
from bitwise_core.machine.lane_hash import telling_nans
from bitwise_core.machine.launch import POINTER_SHIFT, ManifestError
from bitwise_core.machine.outputs import COMPUTED, Output

OWN_NANS = (
    "the trees agree, but not the bits of a NaN, which are each architecture's own: an operation looks at them, or "
    "they are stored as an integer"
)


@dataclass(frozen=True, slots=True)
class Element:
    """One element of a launch's result: its address and width in bytes, and the thread that stored it on each side."""

    address: int
    size: int
    threads: tuple[int | None, int | None]


@dataclass(frozen=True, slots=True)
class Parted:
    """Two replays of an element in which kernels differ, the element's value on each side, and where these part."""

    element: Element
    replays: tuple[Replay, Replay]
    roots: tuple[Scalar, Scalar]
    parting: DivergentNodes


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two readings and the verdict on them; `parted` where the trees of a witness can be shown."""

    readings: tuple[Reading, Reading]
    verdict: Verdict
    parted: Parted | None = None


def compare(left: Source, right: Source, arch: Arches, options: Options) -> Comparison:
    """The verdict on two kernels for their launches, or for every launch; never raises for what a text says.

    `arch` is the architecture of both, or that of each.
    """
    options = across(arch, options)
    of_left, of_right = of_both(arch)
    launches = [source.launch for source in (left, right) if source.launch is not None]
    buffers = buffer_numbers({name for launch in launches for name in launch.buffers()})
    readings = read(left, of_left, buffers, options), read(right, of_right, buffers, options)
    found = decide(*readings, left, right, arch, buffers, options)
    if found.outcome is not Outcome.DIFFERENT or options.every_launch:
        return Comparison(readings, found)
    seen, parted = witness(left, right, arch, buffers, options)
    return Comparison(readings, replace(found, witness=seen), parted)


def decide(
    left: Reading,
    right: Reading,
    left_source: Source,
    right_source: Source,
    arch: Arches,
    buffers: Mapping[str, int],
    options: Options,
) -> Verdict:
    """The verdict on two readings, which for large grids takes another look at both kernels."""
    found = verdict(left, right, options)
    if left.unknown is not None or right.unknown is not None or not (left.large or right.large):
        return found
    outcome, reason = compare_large(left_source, right_source, arch, buffers, options)
    return replace(found, outcome=outcome, reason=reason)


def compare_large(
    left: Source, right: Source, arch: Arches, buffers: Mapping[str, int], options: Options
) -> tuple[Outcome, str]:
    """Whether two kernels on large grids are equal, from few blocks, and why; never raises for what a text says."""
    try:
        summaries = _summaries(left, right, arch, buffers, options)
        found = block_symmetry.compare(summaries[0], summaries[1], terms_under(options.assume))
    except (NotSymmetric, Unreadable, AssemblyError, ManifestError) as error:
        return Outcome.UNKNOWN, f"{left.name} and {right.name} could not be compared block by block: {error}"
    except MemoryError:
        return Outcome.UNKNOWN, f"comparing {left.name} and {right.name} ran out of memory"
    return (Outcome.EQUAL if found.equal else Outcome.DIFFERENT), found.reason


def _summaries(
    left: Source, right: Source, arch: Arches, buffers: Mapping[str, int], options: Options
) -> list[Summary]:
    return [summary(source, own, buffers, options) for source, own in zip((left, right), of_both(arch), strict=True)]


def _difference_of_large(
    left: Source, right: Source, arch: Arches, buffers: Mapping[str, int], options: Options
) -> Element | None:
    """An element in which two kernels on large grids differ.  Raises Unreadable, NotSymmetric."""
    domain = terms_under(options.assume)
    summaries = _summaries(left, right, arch, buffers, options)
    found = block_symmetry.compare(summaries[0], summaries[1], domain)
    if found.equal or found.address is None or found.buffer is None:
        return None
    columns: list[tuple[int, int] | None] = []
    for each in summaries:
        output = None
        if found.buffer in each.owners:
            block = int(each.owners[found.buffer].of(np.array([found.address]))[0])
            output = block_symmetry.run_in_full(each, domain, [block])[block].get(found.buffer)
        places = (
            np.zeros(0, dtype=np.int64)
            if output is None
            else np.flatnonzero(output.address == np.uint64(found.address))
        )
        if output is None or not places.size:
            columns.append(None)
        else:
            columns.append((int(output.size[places[0]]), int(output.thread[places[0]])))
    if not any(columns):
        return None
    size = min(each[0] for each in columns if each is not None)
    left_thread, right_thread = (each[1] if each is not None and each[0] == size else None for each in columns)
    return Element(found.address, size, (left_thread, right_thread))


def find_element(
    source: Source,
    prepared: Prepared,
    arch: Arch,
    buffers: Mapping[str, int],
    options: Options,
    buffer: int,
    index: int,
) -> Element | str:
    """The element of that index, in elements of the width stored there, or a sentence that says there is none.

    Raises Unreadable, NotSymmetric.
    """
    outputs: Mapping[int, Output] | None = small_outputs(prepared.ready, buffers, options)
    if outputs is None:
        outputs = _around(summary(source, arch, buffers, options), options, buffer, index)
    output = outputs.get(buffer)
    if output is None or not output.address.size:
        return "nothing is stored there"
    # A buffer may be stored in several widths, and then an index has one meaning for each.
    offsets = output.address.astype(np.int64) - (buffer << POINTER_SHIFT)
    places = np.flatnonzero(offsets == index * output.size.astype(np.int64))
    if not places.size:
        return f"the last element stored is {int(offsets[-1]) // int(output.size[-1])}"
    place = int(places[0])
    return Element(int(output.address[place]), int(output.size[place]), (int(output.thread[place]), None))


def _around(found: Summary, options: Options, buffer: int, index: int) -> Mapping[int, Output]:
    """What the block stores that may store an element."""
    owners = found.owners.get(buffer)
    if owners is None:
        return {}
    for size in (4, 2, 8, 1):
        address = np.array([(buffer << POINTER_SHIFT) + index * size])
        if not covers(merged(owners.start, owners.end), address)[0]:
            continue
        block = int(owners.of(address)[0])
        output = block_symmetry.run_in_full(found, terms_under(options.assume), [block])[block].get(buffer)
        if output is not None and ((output.address == np.uint64(address[0])) & (output.size == size)).any():
            return {buffer: output}
    return {}


def witness(
    left: Source, right: Source, arch: Arches, buffers: Mapping[str, int], options: Options
) -> tuple[Witness | None, Parted | None]:
    """Where two kernels part that were read and differ; None where the outputs cannot be compared one by one.

    Beside it the replays of the element, where its trees can be shown.
    """
    options = across(arch, options)
    try:
        prepared = [prepare(source, own, options) for source, own in zip((left, right), of_both(arch), strict=True)]
        outputs = [small_outputs(each.ready, buffers, options) for each in prepared]
        if outputs[0] is None or outputs[1] is None:
            element = _difference_of_large(left, right, arch, buffers, options)
        else:
            element = first_difference(outputs[0], outputs[1])
    except (Unreadable, NotSymmetric):
        return None, None
    if element is None or element.address >> POINTER_SHIFT == COMPUTED:
        return None, None
    names = {number: name for name, number in buffers.items()}
    buffer = element.address >> POINTER_SHIFT
    offset = element.address & ((1 << POINTER_SHIFT) - 1)
    place = names.get(buffer, f"buffer {buffer}")
    found = Witness(f"{place}[{offset // element.size}]", place, offset, element.size)
    if None in element.threads:
        missing = (left if element.threads[0] is None else right).name
        return replace(found, why_not=f"{missing} stores nothing of that width there"), None
    try:
        sides = [
            shown_element(each, buffers, options, element.address, element.size, thread or 0)
            for each, thread in zip(prepared, element.threads, strict=True)
        ]
    except Unreadable as error:
        return replace(found, why_not=str(error)), None
    (first, root_left, line_left), (second, root_right, line_right) = sides
    if options.across and _equal_but_for_nans(prepared, buffers, options, element):
        return replace(found, why_not=OWN_NANS), None
    parting = first_divergence(first, root_left, second, root_right)
    shown = replace(
        found,
        left=_side(first, parting.left, line_left),
        right=_side(second, parting.right, line_right),
        depth=parting.depth,
        meaning=divergence_sentence(parting.left.name, parting.right.name, left.name, right.name),
    )
    return shown, Parted(element, (first, second), (root_left, root_right), parting)


def _equal_but_for_nans(
    prepared: Sequence[Prepared], buffers: Mapping[str, int], options: Options, element: Element
) -> bool:
    """Whether an element's trees agree where NaNs of several architectures are not told apart."""
    found = []
    for each in prepared:
        outputs = small_outputs(each.ready, buffers, replace(options, across=False)) or {}
        output = outputs.get(element.address >> POINTER_SHIFT)
        if output is None:
            return False
        place = np.flatnonzero((output.address == np.uint64(element.address)) & (output.size == element.size))
        if not place.size:
            return False
        found.append(output.words[:, place[0]])
    return bool((found[0] == found[1]).all())


def shown_element(
    prepared: Prepared, buffers: Mapping[str, int], options: Options, address: int, size: int, thread: int
) -> tuple[Replay, Scalar, int]:
    """The replay of the block that stores an element, the element's value, and the line of the store.

    Raises Unreadable.
    """
    with telling_nans(prepared.ready.arch.name if options.across else None):
        found = replay(prepared.ready, buffers, options.assume, address >> POINTER_SHIFT, thread)
    scalar, line = found.stored(address >> POINTER_SHIFT, address, size)
    return found, scalar, line


def _side(found: Replay, part: Part, store_line: int) -> Side:
    line = part.line or store_line
    source = found.sources.get(line)
    return Side(expression_text(found, part), part.name, line or None, None if source is None else str(source))


def first_difference(left: Mapping[int, Output], right: Mapping[int, Output]) -> Element | None:
    """The element of the smallest address that only one side stores, or that the sides store differently."""
    for buffer in sorted(left.keys() | right.keys()):
        found = _first_of(left.get(buffer), right.get(buffer))
        if found is not None:
            return found
    return None


def _first_of(left: Output | None, right: Output | None) -> Element | None:
    if left is None or right is None:
        only = left if left is not None else right
        assert only is not None
        return _element(left, right, 0, 0) if only.address.size else None
    count = min(left.address.size, right.address.size)
    same = (left.address[:count] == right.address[:count]) & (left.size[:count] == right.size[:count])
    same &= (left.words[:, :count] == right.words[:, :count]).all(axis=0)
    place = int(np.argmin(same)) if not same.all() else count
    if place == left.address.size == right.address.size:
        return None
    return _element(left, right, place, place)


def _element(left: Output | None, right: Output | None, left_place: int, right_place: int) -> Element:
    """The lower of the elements at two places, with the threads of those sides that have it."""
    found = []
    for output, place in ((left, left_place), (right, right_place)):
        if output is not None and place < output.address.size:
            found.append((int(output.address[place]), int(output.size[place]), int(output.thread[place])))
        else:
            found.append((1 << 63, 0, 0))
    address, size, _ = min(found)
    threads = [each[2] if each[:2] == (address, size) else None for each in found]
    return Element(address, size, (threads[0], threads[1]))
