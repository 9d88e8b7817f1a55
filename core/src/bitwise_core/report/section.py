"""One section of the page: the content for one partition, from analysis results and traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bitwise_core.checker.analysis import AnalysisResult, Options, Session, Source, prepare, with_cross_architecture
from bitwise_core.checker.block_symmetry.grid import NotSymmetric
from bitwise_core.checker.comparison import Element, divergence, find_element, session_of, trace_element
from bitwise_core.checker.expression_trees import build_tree
from bitwise_core.checker.kernel_files import arch_of, targets_of
from bitwise_core.checker.partition import Partition
from bitwise_core.checker.verdicts import COMMON_NOTES, Divergence
from bitwise_core.execution.architecture import Arch
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.ir.condensed_tree import condense
from bitwise_core.ir.nodes import descendants
from bitwise_core.ir.svg import to_svg
from bitwise_core.plugins import registry
from bitwise_core.report.shared_settings import settings_of, values_of

MAXIMUM_DIVERGENCES = 8
"""The number of classes for which the page shows the divergence from class 1."""

MAXIMUM_BOXES = 30
"""The number of nodes of the picture."""


@dataclass(frozen=True, slots=True)
class Member:
    """A kernel: its name, its known settings, its launch, and the number of its class (None: Unknown)."""

    name: str
    settings: Mapping[str, str]
    launch: str
    number: int | None


@dataclass(frozen=True, slots=True)
class Class:
    """An equivalence class, and the first divergence of its first kernel from that of class 1."""

    number: int
    members: tuple[Member, ...]
    divergence: Divergence | None


@dataclass(frozen=True, slots=True)
class Picture:
    """A tree as SVG, with its element, its kernel, and the number of nodes of the whole tree."""

    svg: str
    element: str
    kernel: str
    nodes: int


@dataclass(frozen=True, slots=True)
class Section:
    """The content of one section of the page.

    `columns` are the settings in which kernels differ; `common` are the settings that all kernels share.
    """

    title: str
    target: str
    scope: str
    seconds: float
    columns: tuple[str, ...]
    common: Mapping[str, str]
    classes: tuple[Class, ...]
    unknown: Mapping[str, str]
    unknown_members: tuple[Member, ...]
    conditions: tuple[str, ...]
    notes: tuple[str, ...]
    picture: Picture | None

    @property
    def kernels(self) -> int:
        """The number of kernels."""
        return sum(len(each.members) for each in self.classes) + len(self.unknown_members)


def section(
    found: Partition,
    sources: Sequence[Source],
    arch: Arch,
    options: Options,
    title: str,
    configurations: Mapping[str, str] | None = None,
    element: str | None = None,
) -> Section:
    """Return the section of a partition.

    `configurations` maps files to settings, such as `BLOCK=64, num_warps=4`.  `element`, such as `Y[0]`, is the one
    whose tree is drawn, by default element 0 of the first buffer that the first kernel stores.
    """
    by_name = {source.name: source for source in sources}
    settings = {name: settings_of((configurations or {}).get(_file(source))) for name, source in by_name.items()}
    proved = [names for names in found.classes if names[0] not in found.unknown]
    numbers = {name: number for number, names in enumerate(proved, 1) for name in names}
    members = {name: Member(name, settings[name], _launch(by_name[name]), numbers.get(name)) for name in by_name}
    columns = values_of(list(settings.values()))
    representatives = [by_name[names[0]] for names in proved]
    divergences = (
        {} if options.every_launch else _divergences(representatives[: MAXIMUM_DIVERGENCES + 1], arch, options)
    )
    classes = [
        Class(number, tuple(members[name] for name in names), divergences.get(names[0]))
        for number, names in enumerate(proved, 1)
    ]
    return Section(
        title=title,
        target=", ".join(targets_of(sources, arch)),
        scope="every launch" if options.every_launch else "the given launch",
        seconds=found.seconds,
        columns=tuple(name for name, values in columns.items() if len(values) > 1),
        common={name: values[0] for name, values in columns.items() if len(values) == 1},
        classes=tuple(classes),
        unknown=found.unknown,
        unknown_members=tuple(members[name] for name in found.unknown),
        conditions=tuple(sorted(options.assume)),
        notes=(*found.notes, *COMMON_NOTES),
        picture=_picture(by_name[proved[0][0]], arch, options, element) if proved else None,
    )


def _file(source: Source) -> str:
    return source.name if source.launch is None else source.launch.file


def _launch(source: Source) -> str:
    launch = source.launch
    if launch is None:
        return "every launch"
    block = f" blocks of {_extent(launch.block)} threads" if launch.block else " blocks"
    clusters = f" in clusters of {_extent(launch.cluster)}" if launch.cluster is not None else ""
    return f"{_extent(launch.grid)}{block}{clusters}"


def _extent(extent: tuple[int, int, int]) -> str:
    """Return an extent as text, without trailing dimensions of 1."""
    shown = [str(each) for each in extent]
    while len(shown) > 1 and shown[-1] == "1":
        shown.pop()
    return " x ".join(shown)


def _divergences(representatives: Sequence[Source], arch: Arch, options: Options) -> dict[str, Divergence | None]:
    """Return where the first kernels of classes diverge from that of class 1, by the kernels' names."""
    if not representatives:
        return {}
    first, *others = representatives
    plugins = registry.default()
    found: dict[str, Divergence | None] = {}
    cached: tuple[Session, AnalysisResult] | None = None
    for other in others:
        arches = arch_of(first, arch, plugins), arch_of(other, arch, plugins)
        pair_options = with_cross_architecture(arches, options)
        if cached is None or cached[0].options != pair_options:
            session = session_of(tuple(representatives), pair_options)
            cached = session, session.analyse(first, arches[0])
        session, first_result = cached
        other_result = session.analyse(other, arches[1])
        if first_result.unknown is None and other_result.unknown is None:
            found[other.name] = divergence(first_result, other_result, (first, other), arches, session)[0]
    return found


def _picture(source: Source, arch: Arch, options: Options, element: str | None) -> Picture | None:
    """Return the tree of an element of one kernel; None without a launch and where the tree cannot be computed."""
    if source.launch is None or options.every_launch:
        return None
    session = session_of((source,), options)
    buffers = session.buffers
    try:
        arch = arch_of(source, arch, registry.default())
        prepared = prepare(source, arch, options)
        found = None
        for name in [element] if element is not None else [f"{buffer}[0]" for buffer in buffers]:
            buffer, _, index = name.rstrip("]").rpartition("[")
            number = buffers.get(buffer, 0)
            found = find_element(source, prepared, session, number, int(index))
            if isinstance(found, Element):
                break
        if not isinstance(found, Element):
            return None
        replayed, scalar, _ = trace_element(prepared, session, found.address, found.size, found.threads[0] or 0)
    except (Unsupported, NotSymmetric):
        return None
    tree = build_tree(replayed, scalar)
    svg = to_svg(condense(tree.root), max_nodes=MAXIMUM_BOXES)
    return Picture(svg, name, source.name, sum(1 for _ in descendants(tree.root)))
