"""One section of the page: the content for one partition, from analysis results and traces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bitwise_core.checker.analysis import Session, prepare
from bitwise_core.checker.block_symmetry.grid import NotSymmetric
from bitwise_core.checker.comparison import divergence, find_element, session_of, trace_element
from bitwise_core.checker.kernel_files import arch_of, targets_of
from bitwise_core.checker.partition import Partition
from bitwise_core.checker.results import AnalysisResult
from bitwise_core.checker.sources import Options, Source, with_cross_architecture
from bitwise_core.checker.trees.divergence import DivergenceTrace, Element
from bitwise_core.checker.trees.explanations import sums_on_path
from bitwise_core.checker.trees.expression_trees import Tree, build_tree
from bitwise_core.checker.trees.provenance import Definition, Provenance, Scalar
from bitwise_core.checker.trees.sum_orders import numbered_orders
from bitwise_core.checker.trees.sums_of_values import is_addition, summation
from bitwise_core.checker.verdicts import Divergence
from bitwise_core.checker.wording import COMMON_NOTES
from bitwise_core.execution.architecture import Arch
from bitwise_core.execution.assumptions import CONDITIONS, conditions_of
from bitwise_core.execution.concrete import PreparedLaunch
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.ir.nodes import descendants
from bitwise_core.plugins import registry
from bitwise_core.report.kernel_texts import assembly_record, source_records
from bitwise_core.report.shared_settings import settings_of, shared, values_of
from bitwise_core.report.tree_records import order_record, tree_record

MAXIMUM_TREE = 20_000
"""The most definitions of a tree that is drawn, nearest to the root first."""
MAXIMUM_TEXTS = 3 << 20
"""The most characters of assembly on the page; kernels beyond it are shown without their text."""


@dataclass(frozen=True, slots=True)
class Member:
    """A kernel: its name, its known settings, its launch, and the number of its class (None: Unknown)."""

    name: str
    settings: Mapping[str, str]
    launch: str
    number: int | None


@dataclass(frozen=True, slots=True)
class Class:
    """An equivalence class: what its members share, and how its first kernel diverges from that of class 1."""

    number: int
    members: tuple[Member, ...]
    divergence: Divergence | None
    shared: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """The content of one section of the page.

    `columns` are the settings in which kernels differ; `common` are the settings that all kernels share.  `drawings`
    is what the page draws: the trees and the texts of kernels, as JSON holds them.
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
    drawings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kernels(self) -> int:
        """The number of kernels."""
        return sum(len(each.members) for each in self.classes) + len(self.unknown_members)

    def record(self) -> dict[str, Any]:
        """Return what the scripts of the page draw: the configurations with their classes, trees and texts."""
        members = [*(each for one in self.classes for each in one.members), *self.unknown_members]
        rows = [[each.number or 0, each.name, *(each.settings.get(name, "") for name in self.columns), each.launch]
                for each in members]  # fmt: skip
        return {"columns": ["class", "kernel", *self.columns, "launch"], "rows": rows,
                "classes": len(self.classes), **self.drawings}  # fmt: skip


def section(
    found: Partition,
    sources: Sequence[Source],
    arch: Arch,
    options: Options,
    title: str,
    configurations: Mapping[str, str] | None = None,
    element: str | None = None,
    texts: Mapping[str, str] | None = None,
) -> Section:
    """Return the section of a partition.

    `configurations` maps files to settings, such as `BLOCK=64, num_warps=4`.  `element`, such as `Y[0]`, is the one
    whose tree is drawn for class 1, by default element 0 of the first buffer that the first kernel stores.  `texts` are
    the texts of the kernels' source files, by the names that the assembly gives them.
    """
    by_name = {source.name: source for source in sources}
    settings = {name: settings_of((configurations or {}).get(_file(source))) for name, source in by_name.items()}
    proved = [names for names in found.classes if names[0] not in found.unknown]
    numbers = {name: number for number, names in enumerate(proved, 1) for name in names}
    members = {name: Member(name, settings[name], _launch(by_name[name]), numbers.get(name)) for name in by_name}
    columns = values_of(list(settings.values()))
    drawn = _Drawings([by_name[names[0]] for names in proved], arch, options)
    divergences: dict[str, Divergence | None] = {}
    if not options.every_launch and proved:
        drawn.draw_first(element)
        divergences = drawn.draw_others()
    classes = [
        Class(number, tuple(members[name] for name in names), divergences.get(names[0]),
              shared([settings[name] for name in names], columns))
        for number, names in enumerate(proved, 1)
    ]  # fmt: skip
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
        conditions=tuple(CONDITIONS[each] for each in conditions_of(options.assume)),
        notes=(*found.notes, *COMMON_NOTES),
        drawings=drawn.record(texts or {}),
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


class _Drawings:
    """The trees, orders and texts of the first kernels of classes."""

    def __init__(self, representatives: Sequence[Source], arch: Arch, options: Options) -> None:
        self.representatives, self.arch, self.options = representatives, arch, options
        self.assemblies: dict[str, dict[str, Any]] = {}
        self.characters = 0
        self.first: dict[str, Any] | None = None
        self.others: list[dict[str, Any]] = []

    def record(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """Return all drawings as JSON holds them."""
        sources = source_records(self.assemblies, texts)
        return {"first": self.first, "others": self.others, "assemblies": self.assemblies, "sources": sources}

    def draw_first(self, element: str | None) -> None:
        """Draw an element of the first kernel, if it has a launch and the tree can be computed."""
        source = self.representatives[0]
        if source.launch is None:
            return
        session = session_of((source,), self.options)
        try:
            arch = arch_of(source, self.arch, registry.default())
            prepared = prepare(source, arch, self.options)
            found = _first_element(source, prepared, session, element)
            if found is None:
                return
            name, place = found
            replayed, scalar, _ = trace_element(prepared, session, place.address, place.size, place.threads[0] or 0)
        except (Unsupported, NotSymmetric):
            return
        tree = build_tree(replayed, scalar, MAXIMUM_TREE)
        root = _first_addition(replayed, scalar)
        one = None if root is None else summation(replayed, root)
        self._add_text(source, prepared)
        self.first = {
            "element": name, "kernel": source.name, "nodes": sum(1 for _ in descendants(tree.root)),
            "complete": tree.complete, "tree": tree_record(tree, (), replayed.widths),
            "order": None if one is None else order_record(numbered_orders(one, one)[0]),
        }  # fmt: skip

    def draw_others(self) -> dict[str, Divergence | None]:
        """Draw where the first kernel of each class diverges from that of class 1; the divergences by kernel."""
        first, *others = self.representatives
        plugins = registry.default()
        found: dict[str, Divergence | None] = {}
        cached: tuple[Session, AnalysisResult] | None = None
        for number, other in enumerate(others, 2):
            arches = arch_of(first, self.arch, plugins), arch_of(other, self.arch, plugins)
            pair_options = with_cross_architecture(arches, self.options)
            if cached is None or cached[0].options != pair_options:
                session = session_of(tuple(self.representatives), pair_options)
                cached = session, session.analyse(first, arches[0])
            session, first_result = cached
            other_result = session.analyse(other, arches[1])
            if first_result.unknown is not None or other_result.unknown is not None:
                continue
            seen, trace = divergence(first_result, other_result, (first, other), arches, session)
            found[other.name] = seen
            if seen is not None and trace is not None:
                for each, result in ((first, first_result), (other, other_result)):
                    if result.prepared is not None:
                        self._add_text(each, result.prepared)
                self.others.append(_pair(number, (first.name, other.name), seen, trace))
        return found

    def _add_text(self, source: Source, prepared: PreparedLaunch) -> None:
        if source.name in self.assemblies or self.characters > MAXIMUM_TEXTS:
            return
        made = assembly_record(source.text, prepared)
        self.characters += sum(map(len, made["lines"]))
        self.assemblies[source.name] = made


def _first_element(
    source: Source, prepared: PreparedLaunch, session: Session, element: str | None
) -> tuple[str, Element] | None:
    buffers = session.buffers
    for name in [element] if element is not None else [f"{buffer}[0]" for buffer in buffers]:
        buffer, _, index = name.rstrip("]").rpartition("[")
        found = find_element(source, prepared, session, buffers.get(buffer, 0), int(index))
        if isinstance(found, Element):
            return name, found
    return None


def _first_addition(provenance: Provenance, root: Scalar) -> Scalar | None:
    """Return the first floating-point addition below a value, level by level."""
    level = [root]
    for _ in range(8):
        definitions = [provenance.definition(each) for each in level]
        for each in definitions:
            if is_addition(each):
                return each.scalar
        level = [operand for each in definitions for operand in each.operands[:4]][:64]
    return None


def _pair(number: int, names: tuple[str, str], seen: Divergence, trace: DivergenceTrace) -> dict[str, Any]:
    """Return the trees of both kernels of a divergence, with the orders of the sums that hold it."""
    path = trace.nodes.path
    sides: list[dict[str, Any]] = []
    for side, (provenance, root) in enumerate(zip(trace.provenances, trace.roots, strict=True)):
        tree = build_tree(provenance, root, MAXIMUM_TREE)
        nodes = _nodes_of(tree, (pair[side] for pair in path[: seen.depth + 1]))
        sides.append({"kernel": names[side], "tree": tree_record(tree, nodes, provenance.widths, seen.depth)})
    orders = _orders(path, trace.provenances)
    for each, order in zip(sides, orders, strict=True):
        each["order"] = order_record(order)
    return {"class": number, "element": seen.element, "meaning": seen.meaning, "left": sides[0], "right": sides[1]}


def _orders(path: Sequence[tuple[Definition, Definition]], provenances: tuple[Provenance, Provenance]) -> Any:
    runs = sums_on_path(path)
    for first, _ in runs:
        left, right = (summation(each, node.scalar) for each, node in zip(provenances, path[first], strict=True))
        if left is not None and right is not None:
            return numbered_orders(left, right)
    return None, None


def _nodes_of(tree: Tree, definitions: Iterable[Definition]) -> list[Any]:
    """Return the nodes of values of a tree, up to the first that it lacks."""
    found = []
    for each in definitions:
        node = tree.nodes.get(each.scalar)
        if node is None:
            break
        found.append(node)
    return found
