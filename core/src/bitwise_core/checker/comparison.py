"""Comparison of two kernels: the verdict, and the first divergence (an output element and a node of its trees)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from bitwise_core.assembly.module import AssemblyError
from bitwise_core.checker.analysis import (
    Session,
    concrete_outputs,
    output_signature,
    outputs_of_all_blocks,
    prepare,
    term_domain_factory,
)
from bitwise_core.checker.block_symmetry import symmetry
from bitwise_core.checker.block_symmetry.byte_ranges import covers, union
from bitwise_core.checker.block_symmetry.grid import NotSymmetric
from bitwise_core.checker.block_symmetry.symmetry import GridSummary
from bitwise_core.checker.results import AnalysisResult, conflicting_tensors, given_digests
from bitwise_core.checker.sources import Arches, Options, Source, arch_pair, buffers_of, with_cross_architecture
from bitwise_core.checker.trees.divergence import DivergenceTrace, Element, expression_text, first_divergence
from bitwise_core.checker.trees.explanations import explanation
from bitwise_core.checker.trees.provenance import Definition, Provenance, Scalar, trace_provenance
from bitwise_core.checker.verdicts import (
    DIFFERENT_TREES,
    EQUAL_TREES,
    Comparison,
    Divergence,
    LargeComparison,
    Outcome,
    Side,
    Verdict,
    verdict,
)
from bitwise_core.execution.buffers import element_types
from bitwise_core.execution.concrete import PreparedLaunch
from bitwise_core.execution.domains.domain import Interrupted, Unsupported
from bitwise_core.execution.launch import POINTER_SHIFT, ManifestError, buffer_at, offset_at
from bitwise_core.execution.memory.outputs import COMPUTED_ADDRESSES, Output
from bitwise_core.execution.time_limit import TimeLimitExceeded, time_limit
from bitwise_core.execution.values.symbolic_vector import NAN_MARK
from bitwise_core.execution.values.term_hash import unspecified_nans
from bitwise_core.ir.element_names import element_name

NAN_BITS_DIFFER = (
    "the trees agree, but the bits of a NaN, which depend on the architecture, are read by an operation or stored as "
    "an integer"
)

FOREIGN_NAN_BITS_DIFFER = "the trees agree, but the bits of a NaN differ that is no NaN of the buffer's type"

UNSPECIFIED_NAN_BITS = (
    "the trees agree, but the element depends on the bits of a NaN that no document specifies, and only the same "
    "instructions are sure to give the same ones"
)

OTHER_THREADS_DIFFER = (
    "the trees of this element agree, but its forms depend on what other threads of the launches hold"
)


Pair = tuple[Source, Source]


def session_of(sources: tuple[Source, ...], options: Options) -> Session:
    """A session for the comparison of these kernels."""
    return Session(buffers_of(sources), options)


def compare(left: Source, right: Source, arch: Arches, options: Options) -> Comparison:
    """Compare two kernels for their launches, or for every launch.  Never raises because of a text.

    `arch` is the architecture of both kernels, or a pair with one for each.
    """
    session = session_of((left, right), with_cross_architecture(arch, options))
    of_left, of_right = arch_pair(arch)
    results = session.analyse(left, of_left), session.analyse(right, of_right)
    found = decide(*results, (left, right), arch, session)
    if found.outcome is not Outcome.UNPROVED or options.every_launch:
        return Comparison(results, found)
    try:
        with time_limit(options.time_limit):
            seen, trace = divergence(*results, (left, right), arch, session)
    except TimeLimitExceeded:
        seen, trace = None, None
    return Comparison(results, replace(found, divergence=seen), trace)


def decide(left: AnalysisResult, right: AnalysisResult, sources: Pair, arch: Arches, session: Session) -> Verdict:
    """The verdict on two results of one session; large grids are compared block by block."""
    found = verdict(left, right, session.options)
    if left.unknown is not None or right.unknown is not None or not (left.large or right.large):
        return found
    compared = compare_large(sources, arch, session)
    return replace(found, outcome=compared.outcome, reason=compared.reason)


def compare_large(sources: Pair, arch: Arches, session: Session) -> LargeComparison:
    """Compare two kernels on large grids by block symmetry.  Never raises because of a text."""
    names = " and ".join(source.name for source in sources)
    conflict = conflicting_tensors(*(given_digests(source, session.options) for source in sources))
    if conflict is not None:
        return LargeComparison(Outcome.UNKNOWN, f"{names} are launched on different tensors: {conflict}")
    try:
        return _compared_by_symmetry_or_in_full(sources, arch, session)
    except (NotSymmetric, Unsupported, AssemblyError, ManifestError, TimeLimitExceeded) as error:
        reason = f"{names} could not be compared block by block: {error}"
        return LargeComparison(Outcome.UNKNOWN, reason, isinstance(error, Interrupted | TimeLimitExceeded))
    except MemoryError:
        return LargeComparison(Outcome.UNKNOWN, f"comparing {names} ran out of memory", interrupted=True)


def _compared_by_symmetry_or_in_full(sources: Pair, arch: Arches, session: Session) -> LargeComparison:
    """Compare two kernels by block symmetry, and where that proves nothing, by all blocks.  Raises NotSymmetric."""
    try:
        summaries = _summaries(sources, arch, session)
        with time_limit(session.options.time_limit):
            found = symmetry.compare(summaries[0], summaries[1], term_domain_factory(session.options.assume))
        return LargeComparison(Outcome.EQUAL if found.equal else Outcome.UNPROVED, found.reason)
    except NotSymmetric as error:
        signatures = []
        for source, own in zip(sources, arch_pair(arch), strict=True):
            with time_limit(session.options.time_limit):
                outputs = outputs_of_all_blocks(prepare(source, own, session.options), session.buffers, session.options)
            if outputs is None:
                raise error from None
            signatures.append(output_signature(outputs))
    equal = signatures[0] == signatures[1]
    return LargeComparison(Outcome.EQUAL, EQUAL_TREES) if equal else LargeComparison(Outcome.UNPROVED, DIFFERENT_TREES)


def _summaries(sources: Pair, arch: Arches, session: Session) -> list[GridSummary]:
    found = []
    for source, own in zip(sources, arch_pair(arch), strict=True):
        with time_limit(session.options.time_limit):
            found.append(session.summary(source, own))
    return found


def _first_difference_of_large_grids(sources: Pair, arch: Arches, session: Session) -> Element | None:
    """An element in which two kernels on large grids differ, None where there is none.

    Raises Unsupported, NotSymmetric.
    """
    domain = term_domain_factory(session.options.assume)
    summaries = _summaries(sources, arch, session)
    found = symmetry.compare(summaries[0], summaries[1], domain)
    if found.equal or found.address is None or found.buffer is None:
        return None
    columns: list[tuple[int, int] | None] = []
    for each in summaries:
        output = None
        if found.buffer in each.owners:
            block = int(each.owners[found.buffer].of(np.array([found.address]))[0])
            output = symmetry.run_in_full(each, domain, [block])[block].get(found.buffer)
        positions = (
            np.zeros(0, dtype=np.int64)
            if output is None
            else np.flatnonzero(output.address == np.uint64(found.address))
        )
        if output is None or not positions.size:
            columns.append(None)
        else:
            columns.append((int(output.size[positions[0]]), int(output.thread[positions[0]])))
    if not any(columns):
        return None
    size = min(each[0] for each in columns if each is not None)
    left_thread, right_thread = (each[1] if each is not None and each[0] == size else None for each in columns)
    return Element(found.address, size, (left_thread, right_thread))


def _why_forms_differ(results: tuple[AnalysisResult, AnalysisResult], buffer: int, element: Element) -> str:
    """Return why an element has two forms though its trees agree."""
    flags, sizes = np.uint32(0), np.full(1, 8 * element.size)
    for each in results:
        output = None if each.outputs is None else each.outputs.get(buffer)
        if output is not None:
            flags |= np.bitwise_or.reduce(output.flags[output.address == np.uint64(element.address)], initial=flags)
            if unspecified_nans(flags.reshape(1), sizes).any():
                return UNSPECIFIED_NAN_BITS
    return FOREIGN_NAN_BITS_DIFFER if flags & np.uint32(NAN_MARK) else OTHER_THREADS_DIFFER


def find_element(source: Source, prepared: PreparedLaunch, session: Session, buffer: int, index: int) -> Element | str:
    """The element at an index, counted in elements of the width stored there, or a sentence if there is none.

    Raises Unsupported, NotSymmetric.
    """
    outputs: Mapping[int, Output] | None = concrete_outputs(prepared, session.buffers, session.options)
    if outputs is None:
        outputs = _outputs_of_storing_block(
            session.summary(source, prepared.arch, prepared),
            session.options,
            buffer,
            index,
            _width_of_number(source, session, buffer),
        )
    output = outputs.get(buffer)
    if output is None or not output.address.size:
        return "nothing is stored there"
    # A buffer may be stored in several widths; without a type, an index then denotes one element for each.
    offsets = output.address.astype(np.int64) - (buffer << POINTER_SHIFT)
    sizes = output.size.astype(np.int64)
    width = _width_of_number(source, session, buffer)
    wanted = index * (sizes if width is None else np.int64(width))
    positions = np.flatnonzero(offsets == wanted)
    if width is not None:
        positions = np.flatnonzero((offsets <= wanted) & (wanted + width <= offsets + sizes))
        positions = positions if positions.size else np.flatnonzero(offsets == wanted)
    if not positions.size:
        return f"the last element stored is {(int(offsets[-1] + sizes[-1]) - 1) // int(width or sizes[-1])}"
    position = int(positions[0])
    size = int(sizes[position])
    whole = Element(int(output.address[position]), size, (int(output.thread[position]), None))
    if width is None:
        return whole
    return replace(whole, address=(buffer << POINTER_SHIFT) + index * width, size=width)


def _width_of_number(source: Source, session: Session, buffer: int) -> int | None:
    """The width in bytes of the elements of a buffer by its number, None where the launch does not state it."""
    name = next((name for name, number in session.buffers.items() if number == buffer), "")
    return _element_width([source], name)


def _outputs_of_storing_block(
    found: GridSummary, options: Options, buffer: int, index: int, width: int | None
) -> Mapping[int, Output]:
    """The outputs, in one buffer, of the block that stores the element at an index."""
    owners = found.owners.get(buffer)
    if owners is None:
        return {}
    for size in (4, 2, 8, 1) if width is None else (width,):
        address = np.array([(buffer << POINTER_SHIFT) + index * size])
        if not covers(union(owners.start, owners.end), address)[0]:
            continue
        block = int(owners.of(address)[0])
        output = symmetry.run_in_full(found, term_domain_factory(options.assume), [block])[block].get(buffer)
        if output is None:
            continue
        if width is not None or ((output.address == np.uint64(address[0])) & (output.size == size)).any():
            return {buffer: output}
    return {}


def divergence(
    left: AnalysisResult, right: AnalysisResult, sources: Pair, arch: Arches, session: Session
) -> tuple[Divergence | None, DivergenceTrace | None]:
    """The first divergence of two kernels whose canonical forms differ, and its trace.

    The divergence is None where no output element can be compared, the trace where the trees of the element cannot be
    built.  Both results must come from this session, with their programs.
    """
    assert left.prepared is not None
    assert right.prepared is not None
    try:
        if left.outputs is None or right.outputs is None:
            element = _first_difference_of_large_grids(sources, arch, session)
        else:
            element = first_difference(left.outputs, right.outputs)
    except (Unsupported, NotSymmetric):
        return None, None
    if element is None or buffer_at(element.address) == COMPUTED_ADDRESSES:
        return None, None
    names = {number: name for name, number in session.buffers.items()}
    buffer = buffer_at(element.address)
    offset = offset_at(element.address)
    name = names.get(buffer, f"buffer {buffer}")
    width = _element_width(sources, name)
    found = Divergence(element_name(name, offset, element.size, width), name, offset, element.size)
    if None in element.threads:
        missing = (left if element.threads[0] is None else right).name
        return replace(found, why_not=f"{missing} does not store an element of that width there"), None
    try:
        traces = [
            trace_provenance(each, session.buffers, session.options.assume, buffer, thread or 0)
            for each, thread in zip((left.prepared, right.prepared), element.threads, strict=True)
        ]
        for part in _parts(element, width):
            (root_left, line_left), (root_right, line_right) = (
                each.stored(buffer, part.address, part.size) for each in traces
            )
            if root_left.hash != root_right.hash:
                break
    except Unsupported as error:
        return replace(found, why_not=str(error)), None
    first, second = traces
    if root_left.hash == root_right.hash:
        if session.options.cross_architecture:
            return replace(found, why_not=NAN_BITS_DIFFER), None
        return replace(found, why_not=_why_forms_differ((left, right), buffer, element)), None
    element, offset = part, offset_at(part.address)
    found = Divergence(element_name(name, offset, part.size, width), name, offset, part.size)
    nodes = first_divergence(first, root_left, second, root_right)
    meaning, depth = explanation(nodes, (first, second), (left.name, right.name))
    shown_left, shown_right = nodes.path[depth]
    shown = replace(
        found,
        left=_divergent_side(first, shown_left, line_left),
        right=_divergent_side(second, shown_right, line_right),
        depth=depth,
        meaning=meaning,
    )
    return shown, DivergenceTrace(element, name, (first, second), (root_left, root_right), nodes)


def _element_width(sources: Iterable[Source], buffer: str) -> int | None:
    """The width in bytes of the elements of a buffer, None where no launch states their type."""
    known = element_types([source.launch for source in sources if source.launch is not None]).get(buffer)
    return None if known is None or known.kind is None else known.bytes


def _parts(element: Element, width: int | None) -> Iterator[Element]:
    """Yield the elements of a store of several elements, or else the stored value as a whole."""
    if width is None or element.size % width:
        width = element.size
    for address in range(element.address, element.address + element.size, width):
        yield Element(address, width, element.threads)


def trace_element(
    prepared: PreparedLaunch, session: Session, address: int, size: int, thread: int
) -> tuple[Provenance, Scalar, int]:
    """Trace the block of a thread that stores an element: its provenance, the element's value, the store's line.

    Where no store holds the whole element, the value is that of its lowest bytes, as many as one holds.

    Raises Unsupported.
    """
    buffer = buffer_at(address)
    found = trace_provenance(prepared, session.buffers, session.options.assume, buffer, thread)
    scalar, line = stored_parts(found, address, size)[0]
    return found, scalar, line


def stored_parts(found: Provenance, address: int, size: int) -> list[tuple[Scalar, int]]:
    """The value of an element with the line of its store; several, from the lowest bytes up, if several stores hold it.

    Raises Unsupported.
    """
    parts: list[tuple[Scalar, int]] = []
    place, held = address, size
    while place < address + size:
        try:
            parts.append(found.stored(buffer_at(address), place, held))
        except Unsupported:
            if held == 1:
                raise
            held //= 2
        else:
            place += held
    return parts


def _divergent_side(found: Provenance, definition: Definition, store_line: int) -> Side:
    line = definition.line or store_line
    source = found.sources.get(line)
    own, *calls = source.chain if source is not None else (None,)
    shown = tuple(str(each) for each in calls)
    return Side(expression_text(found, definition), definition.name, line or None, own, shown)


def first_difference(left: Mapping[int, Output], right: Mapping[int, Output]) -> Element | None:
    """The element at the smallest address that only one side stores, or for which the sides store different terms."""
    for buffer in sorted(left.keys() | right.keys()):
        found = _first_difference_in_buffer(left.get(buffer), right.get(buffer))
        if found is not None:
            return found
    return None


def _first_difference_in_buffer(left: Output | None, right: Output | None) -> Element | None:
    if left is None or right is None:
        only = left if left is not None else right
        assert only is not None
        return _element(left, right, 0, 0) if only.address.size else None
    count = min(left.address.size, right.address.size)
    same = (left.address[:count] == right.address[:count]) & (left.size[:count] == right.size[:count])
    same &= (left.words[:, :count] == right.words[:, :count]).all(axis=0)
    position = int(np.argmin(same)) if not same.all() else count
    if position == left.address.size == right.address.size:
        return None
    return _element(left, right, position, position)


def _element(left: Output | None, right: Output | None, left_place: int, right_place: int) -> Element:
    """The element at the lower address of two positions, with the threads of the sides that store it."""
    found = []
    for output, position in ((left, left_place), (right, right_place)):
        if output is not None and position < output.address.size:
            found.append((int(output.address[position]), int(output.size[position]), int(output.thread[position])))
        else:
            found.append((1 << 63, 0, 0))
    address, size, _ = min(found)
    threads = [each[2] if each[:2] == (address, size) else None for each in found]
    return Element(address, size, (threads[0], threads[1]))
