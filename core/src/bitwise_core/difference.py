"""The verdict on two kernels, with a witness where they differ: an element, and the first node where its trees part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from bitwise_core.checker import (
    MAXIMUM_LANES,
    Options,
    Outcome,
    Prepared,
    Reading,
    Side,
    Source,
    Verdict,
    Witness,
    buffer_numbers,
    prepare,
    read,
    verdict,
)
from bitwise_core.engine.launch_exact import results, run_blocks
from bitwise_core.engine.parting import part_trees, words
from bitwise_core.engine.replay import Part, Replay, Scalar, replay
from bitwise_core.machine.arch import Arch
from bitwise_core.machine.domain import Unreadable
from bitwise_core.machine.global_memory import Output
from bitwise_core.machine.launch import POINTER_SHIFT
from bitwise_core.machine.terms import TermDomain


@dataclass(frozen=True, slots=True)
class Element:
    """One element of a launch's result: its address and width in bytes, and the thread that stored it on each side."""

    address: int
    size: int
    threads: tuple[int | None, int | None]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two readings and the verdict on them."""

    readings: tuple[Reading, Reading]
    verdict: Verdict


def compare(left: Source, right: Source, arch: Arch, options: Options) -> Comparison:
    """The verdict on two kernels for their launches, or for every launch; never raises for what a text says."""
    launches = [source.launch for source in (left, right) if source.launch is not None]
    buffers = buffer_numbers({name for launch in launches for name in launch.buffers()})
    readings = read(left, arch, buffers, options), read(right, arch, buffers, options)
    found = verdict(*readings, options)
    if found.outcome is not Outcome.DIFFERENT or options.every_launch:
        return Comparison(readings, found)
    return Comparison(readings, replace(found, witness=witness(left, right, arch, buffers, options)))


def outputs_of(prepared: Prepared, buffers: Mapping[str, int], options: Options) -> dict[int, Output]:
    """What a launch leaves in every buffer.  Raises Unreadable."""
    if prepared.ready.launch.blocks * prepared.ready.threads > MAXIMUM_LANES:
        raise Unreadable("the grid is too large to be run whole")
    memory, scratch = run_blocks(prepared.ready, TermDomain(options.assume), buffers)
    return results(memory, scratch)


def witness(left: Source, right: Source, arch: Arch, buffers: Mapping[str, int], options: Options) -> Witness | None:
    """Where two kernels part that were read and differ; None where the outputs cannot be compared one by one."""
    try:
        prepared = [prepare(source, arch, options) for source in (left, right)]
        outputs = [outputs_of(each, buffers, options) for each in prepared]
    except Unreadable:
        return None
    element = first_difference(outputs[0], outputs[1])
    if element is None:
        return None
    names = {number: name for name, number in buffers.items()}
    buffer = element.address >> POINTER_SHIFT
    offset = element.address & ((1 << POINTER_SHIFT) - 1)
    place = names.get(buffer, f"buffer {buffer}")
    found = Witness(f"{place}[{offset // element.size}]", place, offset, element.size)
    if None in element.threads:
        missing = (left if element.threads[0] is None else right).name
        return replace(found, why_not=f"{missing} stores nothing of that width there")
    try:
        sides = [
            shown_element(each, buffers, options, element.address, element.size, thread or 0)
            for each, thread in zip(prepared, element.threads, strict=True)
        ]
    except Unreadable as error:
        return replace(found, why_not=str(error))
    (first, root_left, line_left), (second, root_right, line_right) = sides
    parting = part_trees(first, root_left, second, root_right)
    return replace(
        found,
        left=_side(first, parting.left, line_left),
        right=_side(second, parting.right, line_right),
        depth=parting.depth,
    )


def shown_element(
    prepared: Prepared, buffers: Mapping[str, int], options: Options, address: int, size: int, thread: int
) -> tuple[Replay, Scalar, int]:
    """The replay of the block that stores an element, the element's value, and the line of the store.

    Raises Unreadable.
    """
    found = replay(prepared.ready, buffers, options.assume, address >> POINTER_SHIFT, thread)
    scalar, line = found.stored(address >> POINTER_SHIFT, address, size)
    return found, scalar, line


def _side(found: Replay, part: Part, store_line: int) -> Side:
    line = part.line or store_line
    source = found.sources.get(line)
    return Side(words(found, part), part.name, line or None, None if source is None else str(source))


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
